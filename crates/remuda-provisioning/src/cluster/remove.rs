//! Takes a cluster down.
//!
//! Cluster API does it in order: workers, control plane, infrastructure. This asks for it, tells how far it is, and
//! makes sure that nothing is left when the Cluster goes, whatever of it had been made by then.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};
use remuda_api::{
    core::{self, Machine, MachineDeployment, MachineHealthCheck, MachineSet},
    management::{self, User},
    provisioning::{Cluster, ClusterStatus},
    rke::{RkeBootstrapTemplate, RkeCluster, RkeControlPlane},
};
use remuda_control::{
    Action, Kind, ObjectKey,
    write::{conditions, is_controlled_by, remove_finalizer, write_status},
};
use remuda_names::{
    capi,
    rancher::{condition, finalizer, group},
};

use super::{BY_CLUSTER, Clusters, happening, identity, object_set_of, template};
use crate::{
    condition::{ConditionUpdate, get, set},
    error::Error,
    naming,
    object_set::{self, ObjectSet},
};

/// How long until a removal is looked at again. Everything it waits for is watched.
const AGAIN: Duration = Duration::from_secs(5);

/// What is left of a cluster, as far as caches know.
#[derive(Debug, Default)]
struct View {
    /// The management Cluster, and whether it is to go with this one.
    management: Option<Known>,
    management_goes: bool,
    legacy: bool,
    capi_cluster: Option<Known>,
    control_plane: bool,
    machines: Vec<MachineView>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    name: String,
    deleting: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct MachineView {
    name: String,
    /// Why it cannot be deleted.
    failure: Option<String>,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    delete_management: bool,
    delete_capi_cluster: bool,
    outcome: Outcome,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The control plane tells how far it is.
    ControlPlane,
    Waiting(String),
    Failed(String),
    /// Caches know of nothing more: time to make sure of it.
    Sweep,
}

fn decide(view: &View) -> Decision {
    let leaving = view.management.as_ref().filter(|_| view.management_goes);
    let capi_cluster = view.capi_cluster.as_ref();
    let outcome = match (leaving, capi_cluster) {
        (Some(management), _) if view.legacy => {
            Outcome::Waiting(format!("waiting for cluster [{}] to delete", management.name))
        }
        (_, Some(_)) if view.control_plane => Outcome::ControlPlane,
        _ => match (view.machines.first(), capi_cluster) {
            (Some(MachineView { name, failure: Some(failure) }), _) => {
                let advice = "machine must be deleted manually";
                let failure = if failure.is_empty() { String::new() } else { format!(": {failure}") };
                Outcome::Failed(format!("error deleting machine [{name}], {advice}{failure}"))
            }
            (Some(MachineView { name, failure: None }), Some(_)) => {
                Outcome::Waiting(format!("waiting for machine [{name}] to delete"))
            }
            (None, Some(known)) => {
                Outcome::Waiting(format!("waiting for cluster-api cluster [{}] to delete", known.name))
            }
            // Nobody else deletes machines whose Cluster is gone.
            (_, None) => Outcome::Sweep,
        },
    };
    Decision {
        delete_management: leaving.is_some_and(|known| !known.deleting),
        delete_capi_cluster: capi_cluster.is_some_and(|known| !known.deleting),
        outcome,
    }
}

pub(super) async fn reconcile(
    this: &Clusters,
    api: &Api<Cluster>,
    cluster: &Cluster,
) -> Result<Action, Error> {
    let ours = [finalizer::PROVISIONING_CLUSTER, finalizer::RKE_CLUSTER];
    if !cluster.finalizers().iter().any(|known| ours.contains(&known.as_str())) {
        return Ok(Action::AwaitChange);
    }
    let removed = step(this, cluster).await;
    let says = match &removed {
        Ok(says) => says.clone(),
        Err(error) => Some(ConditionUpdate::failed(remuda_control::Chain(error).to_string())),
    };
    let mut status = cluster.status.clone().unwrap_or_default();
    tell(&mut status, says.as_ref(), this.ctx.clock.now());
    let written = write_status(&this.ctx, api, cluster, &status).await;
    if written.is_ok() {
        happening::tell_removal(&this.ctx.recorder, cluster);
    }
    let cluster = match written {
        Ok(Some(written)) => written,
        Ok(None) => cluster.clone(),
        Err(error) => return Err(error.into()),
    };
    removed?;
    if says.is_some_and(|says| says.is_true()) {
        tracing::info!(cluster = %ObjectKey::of(&cluster.metadata), "nothing is left of the cluster");
        remove_finalizer(api, &cluster, &(), finalizer::RKE_CLUSTER).await?;
        // The place of the other one may have changed by that.
        let current = api.get_opt(&cluster.name_any()).await;
        let current = current.map_err(Error::api("read", super::cluster_text(&cluster)))?;
        if let Some(current) = current.filter(|current| current.metadata.uid == cluster.metadata.uid) {
            remove_finalizer(api, &current, &(), finalizer::PROVISIONING_CLUSTER).await?;
        }
        return Ok(Action::AwaitChange);
    }
    Ok(Action::RequeueAfter(AGAIN))
}

/// Conditions that would hide that the cluster goes are true from now on.
fn tell(status: &mut ClusterStatus, removed: Option<&ConditionUpdate>, now: jiff::Timestamp) {
    for kind in [condition::PROVISIONED, condition::WAITING, condition::PENDING, condition::UPDATED] {
        set(&mut status.conditions, kind, &ConditionUpdate::yes(), now);
    }
    let says =
        removed.cloned().unwrap_or_else(|| ConditionUpdate::waiting("waiting for control plane to delete"));
    set(&mut status.conditions, condition::REMOVED, &says, now);
}

/// One step. What it tells ends up in the condition; true when nothing is left.
async fn step(this: &Clusters, cluster: &Cluster) -> Result<Option<ConditionUpdate>, Error> {
    let view = observe(this, cluster);
    let decision = decide(&view);
    if decision.delete_management
        && let Some(management) = this.managements.get(&ObjectKey::cluster_wide(identity::name(cluster)))
    {
        object_set::delete(&this.ctx, &resource::<management::Cluster>(), &management.metadata).await?;
    }
    let key = ObjectKey::of(&cluster.metadata);
    if decision.delete_capi_cluster
        && let Some(capi_cluster) = this.capi_clusters.get(&key)
    {
        object_set::delete(&this.ctx, &resource::<core::Cluster>(), &capi_cluster.metadata).await?;
    }
    Ok(match decision.outcome {
        Outcome::ControlPlane => {
            let control_plane = this.control_planes.get(&key);
            let status = control_plane.as_ref().and_then(|control_plane| control_plane.status.as_ref());
            status
                .and_then(|status| get(&status.conditions, condition::REMOVED))
                .map(ConditionUpdate::as_in)
                // Only we know when nothing is left.
                .map(|says| {
                    if says.is_true() {
                        ConditionUpdate::waiting("waiting for control plane to delete")
                    } else {
                        says
                    }
                })
        }
        Outcome::Waiting(message) => Some(ConditionUpdate::waiting(message)),
        Outcome::Failed(message) => Some(ConditionUpdate::failed(message)),
        Outcome::Sweep => Some(match sweep(this, cluster).await? {
            Some(left) => ConditionUpdate::waiting(left),
            None => ConditionUpdate::yes(),
        }),
    })
}

fn observe(this: &Clusters, cluster: &Cluster) -> View {
    let key = ObjectKey::of(&cluster.metadata);
    let known = |meta: &ObjectMeta| Known {
        name: meta.name.clone().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
    };
    let management = this.managements.get(&ObjectKey::cluster_wide(identity::name(cluster)));
    let set = management_set(cluster);
    let management = management.filter(|management| identity::is_ours(cluster, management, &set));
    let objects = object_set_of(cluster);
    let capi_cluster = this.capi_clusters.get(&key);
    // Somebody may have made a cluster of the same name by other means.
    let theirs = capi_cluster.as_ref().is_some_and(|found| !objects.has(found.meta()));
    let made = cluster.spec.rke_config.is_some() && !theirs;
    let machines = this.machines.by_index(BY_CLUSTER, &key.to_string());
    let ours = machines.iter().filter(|_| made);
    let failure = |machine: &Machine| {
        let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice());
        let deleting = conditions::get(conditions.unwrap_or_default(), capi::condition::DELETING)?;
        let failed = deleting.status == "True" && deleting.reason == "InternalError";
        failed.then(|| deleting.message.clone())
    };
    View {
        management_goes: management.as_ref().is_some_and(|management| {
            // Else the cluster is being moved to another workspace.
            Some(&management.spec.fleet_workspace_name) == cluster.metadata.namespace.as_ref()
        }),
        management: management.map(|management| known(&management.metadata)),
        legacy: naming::is_legacy(&cluster.name_any()),
        capi_cluster: capi_cluster.filter(|_| !theirs).map(|found| known(&found.metadata)),
        control_plane: this.control_planes.get(&key).is_some_and(|found| objects.has(found.meta())),
        machines: ours
            .map(|machine| MachineView { name: machine.name_any(), failure: failure(machine) })
            .collect(),
    }
}

fn management_set(cluster: &Cluster) -> ObjectSet {
    ObjectSet::new::<Cluster>("cluster-create", &cluster.metadata)
}

fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    Kind::of::<K>(&()).api_resource()
}

/// Asks the API itself what is left, deletes it, and tells of the first thing that is still there. Caches may not
/// know yet what was made right before the Cluster was deleted.
async fn sweep(this: &Clusters, cluster: &Cluster) -> Result<Option<String>, Error> {
    let key = ObjectKey::of(&cluster.metadata);
    let set = object_set_of(cluster);
    let of_cluster = format!("{}={}", capi::label::CLUSTER_NAME, key.name);
    let of_set = set.selector();
    let mut left = None;
    let others = list(this, &key, &resource::<core::Cluster>(), "").await?;
    let theirs = others.iter().any(|found| found.name_any() == *key.name && !set.has(&found.metadata));
    let made = cluster.spec.rke_config.is_some() && !theirs;
    // In this order, so that what machines need stays as long as they do.
    let stages: [(ApiResource, &str, bool); 9] = [
        (resource::<core::Cluster>(), &of_set, false),
        (resource::<MachineHealthCheck>(), &of_set, false),
        (resource::<MachineDeployment>(), &of_set, false),
        (resource::<MachineSet>(), &of_cluster, false),
        (resource::<Machine>(), &of_cluster, true),
        (resource::<RkeControlPlane>(), &of_set, false),
        (resource::<RkeCluster>(), &of_set, false),
        (resource::<RkeBootstrapTemplate>(), &of_set, false),
        (resource::<Secret>(), &of_cluster, false),
    ];
    for (resource, selector, blocks) in stages {
        let is_secret = resource.kind == "Secret";
        if selector == of_cluster && !made && !is_secret {
            continue;
        }
        let found = list(this, &key, &resource, selector).await?;
        for object in found.into_iter().filter(|object| !is_secret || is_kubeconfig(cluster, object)) {
            note(&mut left, &resource, &object);
            if object.metadata.deletion_timestamp.is_none() {
                object_set::delete(&this.ctx, &resource, &object.metadata).await?;
            }
        }
        // What serves machines is not taken away from under them.
        if left.is_some() && (blocks || is_secret) {
            return Ok(left);
        }
    }
    for resource in template_kinds(this) {
        for object in list(this, &key, &resource, &of_set).await? {
            note(&mut left, &resource, &object);
            object_set::delete(&this.ctx, &resource, &object.metadata).await?;
        }
    }
    if left.is_none() {
        left = dismiss(this, cluster).await?;
    }
    Ok(left)
}

fn is_kubeconfig(cluster: &Cluster, secret: &DynamicObject) -> bool {
    secret.name_any() == naming::of::kubeconfig_secret(&cluster.name_any())
        && is_controlled_by(&secret.metadata, cluster.metadata.uid.as_deref().unwrap_or_default())
}

fn note(left: &mut Option<String>, resource: &ApiResource, object: &DynamicObject) {
    left.get_or_insert_with(|| {
        let kind = match resource.kind.as_str() {
            "Cluster" => "cluster-api cluster".to_owned(),
            kind => kind.to_lowercase(),
        };
        format!("waiting for {kind} [{}] to delete", object.name_any())
    });
}

async fn list(
    this: &Clusters,
    key: &ObjectKey,
    resource: &ApiResource,
    selector: &str,
) -> Result<Vec<DynamicObject>, Error> {
    let api = object_set::api(&this.ctx.client, resource, key.namespace.as_deref());
    let listed = api.list(&ListParams::default().labels(selector)).await;
    Ok(listed.map_err(Error::api("list", &resource.kind))?.items)
}

/// All kinds of templates there are: pools may have had other drivers once.
fn template_kinds(this: &Clusters) -> Vec<ApiResource> {
    let names = this.definitions.keys().into_iter();
    let plurals = names.filter_map(|name| {
        let plural = name.name.strip_suffix(group::MACHINE)?.strip_suffix('.')?;
        plural.ends_with("machinetemplates").then(|| plural.to_owned())
    });
    let mut kinds: Vec<ApiResource> = plurals
        .map(|plural| {
            let mut resource = template::resource(group::MACHINE, &plural);
            resource.plural = plural;
            resource
        })
        .collect();
    kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
    kinds
}

/// The management Cluster and the User of the cluster's kubeconfig, whose tokens go with it. The former need not
/// be gone: its own end waits for ours.
async fn dismiss(this: &Clusters, cluster: &Cluster) -> Result<Option<String>, Error> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let users: Api<User> = Api::all(this.ctx.client.clone());
    let user = naming::cluster_user(&namespace, &name);
    let user = users.get_opt(&user).await.map_err(Error::api("read", format!("user {user}")))?;
    let stands = |user: &User| user.principal_ids.contains(&naming::cluster_principal(&namespace, &name));
    if let Some(user) = user.filter(stands) {
        object_set::delete(&this.ctx, &resource::<User>(), &user.metadata).await?;
    }
    let id = identity::name(cluster);
    let managements: Api<management::Cluster> = Api::all(this.ctx.client.clone());
    let found =
        managements.get_opt(&id).await.map_err(Error::api("read", format!("management cluster {id}")))?;
    let set = management_set(cluster);
    let Some(found) = found.filter(|found| identity::is_ours(cluster, found, &set)) else {
        return Ok(None);
    };
    if Some(&found.spec.fleet_workspace_name) == cluster.metadata.namespace.as_ref() {
        object_set::delete(&this.ctx, &resource::<management::Cluster>(), &found.metadata).await?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, deleting: bool) -> Option<Known> {
        Some(Known { name: name.to_owned(), deleting })
    }

    fn machine(name: &str, failure: Option<&str>) -> MachineView {
        MachineView { name: name.to_owned(), failure: failure.map(str::to_owned) }
    }

    #[track_caller]
    fn check(view: View, deletes: &str, expected: Outcome) {
        let decision = decide(&view);
        let mut found = Vec::new();
        if decision.delete_management {
            found.push("management");
        }
        if decision.delete_capi_cluster {
            found.push("capi");
        }
        assert_eq!(found.join(" "), deletes);
        assert_eq!(decision.outcome, expected);
    }

    #[test]
    fn a_cluster_goes_down_in_order() {
        let view = |deleting, control_plane, machines| View {
            management: known("c-m-x", deleting),
            management_goes: true,
            capi_cluster: known("demo", deleting),
            control_plane,
            machines,
            ..View::default()
        };
        let waiting = |text: &str| Outcome::Waiting(text.to_owned());
        check(view(false, true, vec![machine("m", None)]), "management capi", Outcome::ControlPlane);
        check(view(true, true, vec![]), "", Outcome::ControlPlane);
        check(view(true, false, vec![machine("m", None)]), "", waiting("waiting for machine [m] to delete"));
        check(view(true, false, vec![]), "", waiting("waiting for cluster-api cluster [demo] to delete"));
        check(
            view(true, false, vec![machine("m", Some(""))]),
            "",
            Outcome::Failed("error deleting machine [m], machine must be deleted manually".to_owned()),
        );
        check(View::default(), "", Outcome::Sweep);
    }

    #[test]
    fn a_cluster_that_moves_keeps_its_identity() {
        let view = View { management: known("c-m-x", false), ..View::default() };
        check(view, "", Outcome::Sweep);
    }

    #[test]
    fn machines_without_a_cluster_are_swept() {
        let view = View { machines: vec![machine("m", None)], ..View::default() };
        check(view, "", Outcome::Sweep);
    }

    #[test]
    fn an_old_cluster_waits_for_the_other_one() {
        let view = View {
            management: known("c-abc12", true),
            management_goes: true,
            legacy: true,
            ..View::default()
        };
        check(view, "", Outcome::Waiting("waiting for cluster [c-abc12] to delete".to_owned()));
    }
}
