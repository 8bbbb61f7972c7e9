//! What people are told of their cluster.

use jiff::Timestamp;
use remuda_api::{
    management,
    provisioning::{Cluster, ClusterStatus},
    rke::{Condition, RkeControlPlane},
};
use remuda_names::{
    provisioning::condition::{CONFIGURATION_APPLIED, EXPIRING, HIBERNATED},
    rancher::condition,
};

use crate::condition::{ConditionUpdate, ERROR, get, is_true, set};

const PAUSED: &str = "paused: spec.paused of its cluster.x-k8s.io Cluster is true, so nothing is done for it";

/// Everything the status depends on.
pub(super) struct View<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) management: Option<&'a management::Cluster>,
    pub(super) management_name: &'a str,
    pub(super) workspace: &'a str,
    pub(super) control_plane: Option<&'a RkeControlPlane>,
    /// Whether nothing is done for the cluster, by `spec.paused` of its Cluster of Cluster API.
    pub(super) paused: bool,
    /// Whether there is a management Cluster.
    pub(super) created: ConditionUpdate,
    /// Whether the objects of the cluster are as wanted; `None` for a cluster that somebody else made.
    pub(super) objects: Option<ConditionUpdate>,
    /// Whether machines are as their configurations say, if that is known.
    pub(super) configuration: Option<ConditionUpdate>,
    /// Whether its machines are stopped, and whether it is deleted soon, if there is anything to tell.
    pub(super) hibernated: Option<ConditionUpdate>,
    pub(super) expiring: Option<ConditionUpdate>,
    /// The Secret with the kubeconfig, once it is there.
    pub(super) kubeconfig: Option<String>,
}

pub(super) fn status(view: &View<'_>, now: Timestamp) -> ClusterStatus {
    let mut status = view.cluster.status.clone().unwrap_or_default();
    let reported = view.management.and_then(|management| management.status.as_ref());
    let reported = reported.map_or::<&[Condition], _>(&[], |reported| &reported.conditions);
    // Once a cluster was reached it is there, whatever becomes of the connection.
    status.ready |= is_true(reported, condition::CONNECTED);
    status.agent_deployed = is_true(reported, condition::AGENT_DEPLOYED);
    status.observed_generation = view.cluster.metadata.generation.unwrap_or_default();
    if view.created.is_true() {
        view.management_name.clone_into(&mut status.cluster_name);
        view.workspace.clone_into(&mut status.fleet_workspace_name);
    }
    if let Some(kubeconfig) = &view.kubeconfig {
        status.client_secret_name.clone_from(kubeconfig);
    }

    let mut told = match &view.objects {
        Some(objects) => made(view, objects),
        None => imported(reported, status.ready, &view.created),
    };
    if view.paused {
        // It may run for long like this, and edits have no effect meanwhile: the status says so.
        let paused = ConditionUpdate::waiting(PAUSED);
        for says in [&mut told.updated, &mut told.ready].into_iter().filter(|says| says.is_true()) {
            says.clone_from(&paused);
        }
    }
    let conditions = &mut status.conditions;
    set(conditions, condition::CREATED, &view.created, now);
    if let Some(objects) = &view.objects {
        set(conditions, condition::RKE_CLUSTER, objects, now);
    }
    if let Some(says) = &view.configuration
        && (!says.is_true() || get(conditions, CONFIGURATION_APPLIED).is_some())
    {
        // Nobody is told of edits who never had any.
        set(conditions, CONFIGURATION_APPLIED, says, now);
    }
    for (kind, says) in [(HIBERNATED, &view.hibernated), (EXPIRING, &view.expiring)] {
        if let Some(says) = says {
            set(conditions, kind, says, now);
        }
    }
    set(conditions, condition::UPDATED, &told.updated, now);
    set(conditions, condition::PROVISIONED, &told.provisioned, now);
    set(conditions, condition::READY, &told.ready, now);
    let waiting = [&view.created, &told.updated, &told.ready].into_iter().find(|says| !says.is_true());
    let waits =
        waiting.map_or_else(ConditionUpdate::yes, |says| ConditionUpdate { status: None, ..says.clone() });
    set(conditions, condition::WAITING, &waits, now);
    let failure = [Some(&view.created), view.objects.as_ref()]
        .into_iter()
        .flatten()
        .find(|says| says.status == Some(false) && says.reason == ERROR);
    let (reconciling, stalled) = progress(waiting, failure, status.ready);
    set(conditions, condition::RECONCILING, &reconciling, now);
    set(conditions, condition::STALLED, &stalled, now);
    status
}

struct Told {
    updated: ConditionUpdate,
    provisioned: ConditionUpdate,
    ready: ConditionUpdate,
}

/// A cluster of ours is as its control plane says.
fn made(view: &View<'_>, objects: &ConditionUpdate) -> Told {
    let ready = match view.control_plane {
        None if !view.created.is_true() => view.created.clone(),
        None if !objects.is_true() => objects.clone(),
        None => ConditionUpdate::waiting("waiting for control plane to be created"),
        Some(control_plane) => control_plane_says(control_plane),
    };
    let ready = if ready.status == Some(false) && ready.reason.is_empty() && ready.message.is_empty() {
        ConditionUpdate::waiting("waiting for control plane to be ready")
    } else {
        ready
    };
    // A cluster goes on running while what its spec now says cannot be had.
    let updated = if objects.is_true() { ready.clone() } else { objects.clone() };
    Told { updated, provisioned: ready.clone(), ready }
}

fn control_plane_says(control_plane: &RkeControlPlane) -> ConditionUpdate {
    let none = Default::default();
    let status = control_plane.status.as_ref().unwrap_or(&none);
    let seen = status.observed_generation >= control_plane.metadata.generation.unwrap_or_default();
    match get(&status.conditions, condition::READY) {
        // What it says is about a spec that is no more.
        Some(ready) if ready.status == "True" && !seen => {
            ConditionUpdate::waiting("waiting for control plane to take up the latest configuration")
        }
        Some(ready) => ConditionUpdate::as_in(ready),
        None => ConditionUpdate::waiting("waiting for control plane to report"),
    }
}

/// A cluster that somebody else made is there once its agent is.
fn imported(reported: &[Condition], reached: bool, created: &ConditionUpdate) -> Told {
    if !created.is_true() {
        return Told { updated: created.clone(), provisioned: created.clone(), ready: created.clone() };
    }
    let waiting = || ConditionUpdate::waiting("waiting for cluster agent to connect");
    let provisioned = if reached { ConditionUpdate::yes() } else { waiting() };
    let ready = match get(reported, condition::READY) {
        Some(ready) => ConditionUpdate::as_in(ready),
        None if is_true(reported, condition::CONNECTED) => ConditionUpdate::yes(),
        None => waiting(),
    };
    Told { updated: provisioned.clone(), provisioned, ready }
}

/// What tools are told that know nothing else of clusters: whether work goes on, or cannot.
fn progress(
    waiting: Option<&ConditionUpdate>,
    failure: Option<&ConditionUpdate>,
    reached: bool,
) -> (ConditionUpdate, ConditionUpdate) {
    if let Some(failure) = failure {
        let stalled = ConditionUpdate {
            status: Some(true),
            reason: ERROR.to_owned(),
            message: failure.message.clone(),
        };
        return (ConditionUpdate::no(), stalled);
    }
    if waiting.is_none() && reached {
        return (ConditionUpdate::no(), ConditionUpdate::no());
    }
    let message = waiting.map(|says| says.message.clone()).filter(|message| !message.is_empty());
    let message = message.unwrap_or_else(|| "waiting for cluster agent to connect".to_owned());
    (ConditionUpdate { status: Some(true), reason: "Reconciling".to_owned(), message }, ConditionUpdate::no())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conditions(status: &ClusterStatus) -> String {
        let line = |condition: &Condition| {
            let text =
                format!("{} {} {} {}", condition.kind, condition.status, condition.reason, condition.message);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        status.conditions.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Connected or not, the control plane's generations and Ready condition, and what came of the objects.
    #[track_caller]
    fn check(
        connected: bool,
        control_plane: Option<(i64, i64, Value)>,
        objects: Option<ConditionUpdate>,
        expected: &str,
    ) -> ClusterStatus {
        check_paused(false, connected, control_plane, objects, expected)
    }

    #[track_caller]
    fn check_paused(
        paused: bool,
        connected: bool,
        control_plane: Option<(i64, i64, Value)>,
        objects: Option<ConditionUpdate>,
        expected: &str,
    ) -> ClusterStatus {
        let cluster = Cluster::named("demo");
        let management: management::Cluster = serde_json::from_value(json!({"status": {"conditions": [
            {"type": "Connected", "status": if connected { "True" } else { "False" }}]}}))
        .unwrap();
        let control_plane = control_plane.map(|(generation, observed, ready)| {
            serde_json::from_value::<RkeControlPlane>(json!({
                "metadata": {"generation": generation},
                "status": {"observedGeneration": observed, "conditions": [ready]},
            }))
            .unwrap()
        });
        let view = View {
            cluster: &cluster,
            management: Some(&management),
            management_name: "c-m-x",
            workspace: "ws",
            control_plane: control_plane.as_ref(),
            paused,
            created: ConditionUpdate::yes(),
            objects,
            configuration: None,
            hibernated: None,
            expiring: None,
            kubeconfig: None,
        };
        let status = status(&view, Timestamp::UNIX_EPOCH);
        let expected: Vec<&str> = expected.lines().map(str::trim).collect();
        assert_eq!(conditions(&status), expected.join("\n"));
        assert_eq!((status.cluster_name.as_str(), status.fleet_workspace_name.as_str()), ("c-m-x", "ws"));
        status
    }

    #[test]
    fn a_cluster_is_as_its_control_plane_says() {
        let ready = json!({"type": "Ready", "status": "True"});
        let status = check(
            true,
            Some((2, 2, ready)),
            Some(ConditionUpdate::yes()),
            "Created True
             RKECluster True
             Updated True
             Provisioned True
             Ready True
             Waiting True
             Reconciling False
             Stalled False",
        );
        assert!(status.ready);
        let waiting =
            json!({"type": "Ready", "status": "Unknown", "reason": "Waiting", "message": "waiting for m-1"});
        check(
            false,
            Some((2, 2, waiting)),
            Some(ConditionUpdate::yes()),
            "Created True
             RKECluster True
             Updated Unknown Waiting waiting for m-1
             Provisioned Unknown Waiting waiting for m-1
             Ready Unknown Waiting waiting for m-1
             Waiting Unknown Waiting waiting for m-1
             Reconciling True Reconciling waiting for m-1
             Stalled False",
        );
    }

    #[test]
    fn a_paused_cluster_is_not_called_ready() {
        check_paused(
            true,
            true,
            Some((2, 2, json!({"type": "Ready", "status": "True"}))),
            Some(ConditionUpdate::yes()),
            &format!(
                "Created True
                 RKECluster True
                 Updated Unknown Waiting {PAUSED}
                 Provisioned True
                 Ready Unknown Waiting {PAUSED}
                 Waiting Unknown Waiting {PAUSED}
                 Reconciling True Reconciling {PAUSED}
                 Stalled False"
            ),
        );
        // What else it waits for comes first.
        let waiting =
            json!({"type": "Ready", "status": "Unknown", "reason": "Waiting", "message": "waiting for m-1"});
        let status = check_paused(
            true,
            true,
            Some((2, 2, waiting)),
            Some(ConditionUpdate::yes()),
            "Created True
             RKECluster True
             Updated Unknown Waiting waiting for m-1
             Provisioned Unknown Waiting waiting for m-1
             Ready Unknown Waiting waiting for m-1
             Waiting Unknown Waiting waiting for m-1
             Reconciling True Reconciling waiting for m-1
             Stalled False",
        );
        assert!(status.ready);
    }

    #[test]
    fn a_control_plane_that_has_not_seen_its_spec_says_nothing_of_it() {
        let message = "waiting for control plane to take up the latest configuration";
        check(
            true,
            Some((3, 2, json!({"type": "Ready", "status": "True"}))),
            Some(ConditionUpdate::yes()),
            &format!(
                "Created True
                 RKECluster True
                 Updated Unknown Waiting {message}
                 Provisioned Unknown Waiting {message}
                 Ready Unknown Waiting {message}
                 Waiting Unknown Waiting {message}
                 Reconciling True Reconciling {message}
                 Stalled False"
            ),
        );
    }

    #[test]
    fn a_cluster_goes_on_while_its_new_spec_cannot_be_had() {
        check(
            true,
            Some((2, 2, json!({"type": "Ready", "status": "True"}))),
            Some(ConditionUpdate::failed("no such config")),
            "Created True
             RKECluster False Error no such config
             Updated False Error no such config
             Provisioned True
             Ready True
             Waiting Unknown Error no such config
             Reconciling False
             Stalled True Error no such config",
        );
    }

    #[test]
    fn an_imported_cluster_is_there_when_its_agent_is() {
        let status = check(
            false,
            None,
            None,
            "Created True
             Updated Unknown Waiting waiting for cluster agent to connect
             Provisioned Unknown Waiting waiting for cluster agent to connect
             Ready Unknown Waiting waiting for cluster agent to connect
             Waiting Unknown Waiting waiting for cluster agent to connect
             Reconciling True Reconciling waiting for cluster agent to connect
             Stalled False",
        );
        assert!(!status.ready);
        let status = check(
            true,
            None,
            None,
            "Created True
             Updated True
             Provisioned True
             Ready True
             Waiting True
             Reconciling False
             Stalled False",
        );
        assert!(status.ready);
    }
}
