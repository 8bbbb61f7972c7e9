//! `Deployment`: moves from one ReplicaSet to the next.
//!
//! Reads   the Deployment and its ReplicaSets.
//! Writes  ReplicaSets, and the Deployment's status.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetSpec},
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, Time},
        util::intstr::IntOrString,
    },
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use remuda_control::{Action, Controller, Ctx, Informer, Scope, drive, write};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Error, SEE, failed, is_gone, pods};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const OWNER: &str = "owner";

pub async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let sets: Informer<ReplicaSet> = ctx.informers.of(Scope::all());
    sets.add_index(OWNER, |set| {
        write::controller_of(&set.metadata).map(|owner| owner.uid.clone()).into_iter().collect()
    });
    let controller = Controller::<Deployment>::new("deployment", &ctx).owns(&sets);
    drive(controller, reconcile, ctx, stop).await;
}

/// A ReplicaSet, as far as arithmetic needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    wanted: i32,
    /// Pods that are there.
    present: i32,
    available: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    Recreate,
    Rolling { surge: i32, unavailable: i32 },
}

/// How many Pods the new set and each old one are to have.
fn decide(strategy: Strategy, replicas: i32, new: Counts, old: &[Counts]) -> (i32, Vec<i32>) {
    let old_present: i32 = old.iter().map(|set| set.present.max(set.wanted)).sum();
    match strategy {
        Strategy::Recreate => {
            let new = if old_present == 0 { replicas } else { new.wanted.min(replicas) };
            (new, vec![0; old.len()])
        }
        Strategy::Rolling { surge, unavailable } => {
            let total: i32 = new.wanted + old.iter().map(|set| set.wanted).sum::<i32>();
            let room = (replicas + surge - total).max(0);
            let grown = if new.wanted > replicas { replicas } else { (new.wanted + room).min(replicas) };
            let least = replicas - unavailable;
            let new_missing = (new.wanted - new.available).max(0);
            let mut may_go = (total - least - new_missing).max(0);
            // What does not work is no loss.
            let mut left: Vec<i32> = old.iter().map(|set| set.wanted).collect();
            for (left, set) in left.iter_mut().zip(old) {
                let broken = (set.wanted - set.available).max(0).min(may_go);
                *left -= broken;
                may_go -= broken;
            }
            let available: i32 = new.available + old.iter().map(|set| set.available).sum::<i32>();
            let mut spare = (available - least).max(0).min(may_go);
            for left in &mut left {
                let gone = (*left).min(spare);
                *left -= gone;
                spare -= gone;
            }
            (grown, left)
        }
    }
}

/// A number, or a part of all.
fn amount(value: Option<&IntOrString>, default: &str, of: i32, up: bool) -> i32 {
    let part = |text: &str| {
        let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
        let product = i64::from(of) * percent.clamp(0, 1000);
        i32::try_from(if up { (product + 99) / 100 } else { product / 100 }).ok()
    };
    match value {
        Some(IntOrString::Int(number)) => (*number).max(0),
        Some(IntOrString::String(text)) => part(text).unwrap_or(0),
        None => part(default).unwrap_or(0),
    }
}

fn strategy(deployment: &Deployment, replicas: i32) -> Strategy {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.clone()).unwrap_or_default();
    if strategy.type_.as_deref() == Some("Recreate") {
        return Strategy::Recreate;
    }
    let rolling = strategy.rolling_update.unwrap_or_default();
    let surge = amount(rolling.max_surge.as_ref(), "25%", replicas, true);
    let unavailable = amount(rolling.max_unavailable.as_ref(), "25%", replicas, false);
    // Neither would mean standing still.
    Strategy::Rolling { surge, unavailable: if surge == 0 { unavailable.max(1) } else { unavailable } }
}

fn counts(set: &ReplicaSet) -> Counts {
    let status = set.status.clone().unwrap_or_default();
    Counts {
        wanted: set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
        present: status.replicas,
        available: status.available_replicas.unwrap_or(0),
    }
}

async fn reconcile(deployment: Arc<Deployment>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    if deployment.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let sets: Informer<ReplicaSet> = ctx.informers.of(Scope::all());
    let uid = deployment.uid().unwrap_or_default();
    let spec = deployment.spec.clone().unwrap_or_default();
    let replicas = spec.replicas.unwrap_or(1).max(0);
    let hash = pods::template_hash(&spec.template);
    let owned = sets.by_index(OWNER, &uid);
    let is_new = |set: &Arc<ReplicaSet>| set.labels().get(HASH) == Some(&hash);
    let revision =
        |set: &Arc<ReplicaSet>| set.annotations().get(REVISION).and_then(|text| text.parse::<i64>().ok());
    let newest = owned.iter().filter_map(revision).max().unwrap_or(0);
    let api: Api<ReplicaSet> =
        Api::namespaced(ctx.client.clone(), &deployment.namespace().unwrap_or_default());
    if !spec.paused.unwrap_or(false) {
        let old: Vec<Arc<ReplicaSet>> = owned.iter().filter(|set| !is_new(set)).cloned().collect();
        let old_counts: Vec<Counts> = old.iter().map(|set| counts(set)).collect();
        let current = owned.iter().find(|set| is_new(set));
        let new_counts = current.map(|set| counts(set)).unwrap_or_default();
        let (wanted, rest) = decide(strategy(&deployment, replicas), replicas, new_counts, &old_counts);
        match current {
            None => create(&ctx, &sets, &deployment, &hash, wanted, newest + 1).await?,
            Some(set) => {
                let number = if revision(set) == Some(newest) { newest } else { newest + 1 };
                scale(&sets, &api, set, wanted, number).await?;
            }
        }
        for (set, wanted) in old.iter().zip(rest) {
            scale(&sets, &api, set, wanted, revision(set).unwrap_or(0)).await?;
        }
        forget(&api, &old, spec.revision_history_limit.unwrap_or(10)).await?;
    }
    let owned = sets.by_index(OWNER, &uid);
    let status = status(&deployment, &owned, &hash, replicas, ctx.clock.now());
    let api: Api<Deployment> =
        Api::namespaced(ctx.client.clone(), &deployment.namespace().unwrap_or_default());
    write::patch_status(&ctx, &api, &deployment, &(), deployment.status.as_ref(), &status, false).await?;
    Ok(Action::AwaitChange)
}

async fn create(
    ctx: &Ctx,
    sets: &Informer<ReplicaSet>,
    deployment: &Deployment,
    hash: &str,
    replicas: i32,
    revision: i64,
) -> Result<(), Error> {
    let spec = deployment.spec.clone().unwrap_or_default();
    let own = |labels: Option<BTreeMap<String, String>>| {
        let mut labels = labels.unwrap_or_default();
        labels.insert(HASH.to_owned(), hash.to_owned());
        Some(labels)
    };
    let mut template = spec.template.clone();
    let mut meta = template.metadata.take().unwrap_or_default();
    meta.labels = own(meta.labels);
    let labels = meta.labels.clone();
    template.metadata = Some(meta);
    let name = format!("{}-{hash}", deployment.name_any());
    let set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: deployment.namespace(),
            labels,
            annotations: Some([(REVISION.to_owned(), revision.to_string())].into()),
            owner_references: Some(vec![pods::reference(deployment)?]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector: LabelSelector { match_labels: own(spec.selector.match_labels), ..spec.selector },
            template: Some(template),
        }),
        status: None,
    };
    let api: Api<ReplicaSet> =
        Api::namespaced(ctx.client.clone(), &deployment.namespace().unwrap_or_default());
    match api.create(&PostParams::default(), &set).await {
        Ok(created) => {
            sets.wait_for(&created.resource_version().unwrap_or_default(), SEE).await;
            Ok(())
        }
        // Ours, and the cache is behind.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(failed("create", format!("replica set {name}"))(error)),
    }
}

async fn scale(
    sets: &Informer<ReplicaSet>,
    api: &Api<ReplicaSet>,
    set: &ReplicaSet,
    replicas: i32,
    revision: i64,
) -> Result<(), Error> {
    let same =
        counts(set).wanted == replicas && set.annotations().get(REVISION) == Some(&revision.to_string());
    if same {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"annotations": {REVISION: revision.to_string()}},
        "spec": {"replicas": replicas},
    });
    let what = format!("replica set {}", set.name_any());
    let patched = api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    let patched = patched.map_err(failed("scale", what))?;
    sets.wait_for(&patched.resource_version().unwrap_or_default(), SEE).await;
    Ok(())
}

/// Deletes empty old sets beyond what is to be remembered.
async fn forget(api: &Api<ReplicaSet>, old: &[Arc<ReplicaSet>], limit: i32) -> Result<(), Error> {
    let mut empty: Vec<&Arc<ReplicaSet>> =
        old.iter().filter(|set| counts(set).wanted == 0 && counts(set).present == 0).collect();
    empty.sort_by_key(|set| set.annotations().get(REVISION).and_then(|text| text.parse::<i64>().ok()));
    let surplus = empty.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    for set in empty.into_iter().take(surplus) {
        match api.delete(&set.name_any(), &DeleteParams::default()).await {
            Err(error) if !is_gone(&error) => {
                return Err(failed("delete", format!("replica set {}", set.name_any()))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn status(
    deployment: &Deployment,
    owned: &[Arc<ReplicaSet>],
    hash: &str,
    replicas: i32,
    now: jiff::Timestamp,
) -> DeploymentStatus {
    let all: Vec<Counts> = owned.iter().map(|set| counts(set)).collect();
    let new = owned.iter().find(|set| set.labels().get(HASH).is_some_and(|known| known == hash));
    let updated = new.map(|set| counts(set).present).unwrap_or(0);
    let available: i32 = all.iter().map(|set| set.available).sum();
    let present: i32 = all.iter().map(|set| set.present).sum();
    let strategy = strategy(deployment, replicas);
    let least = match strategy {
        Strategy::Recreate => replicas,
        Strategy::Rolling { unavailable, .. } => replicas - unavailable,
    };
    let mut status = deployment.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.take().unwrap_or_default();
    let is_available = available >= least;
    let complete = updated == replicas && available == replicas && present == replicas;
    let (reason, message) = match is_available {
        true => ("MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    set_condition(&mut conditions, "Available", is_available, reason, message, now);
    let name = new.map(|set| set.name_any()).unwrap_or_default();
    let (reason, message) = match complete {
        true => ("NewReplicaSetAvailable", format!("ReplicaSet \"{name}\" has successfully progressed.")),
        false => ("ReplicaSetUpdated", format!("ReplicaSet \"{name}\" is progressing.")),
    };
    set_condition(&mut conditions, "Progressing", true, reason, &message, now);
    DeploymentStatus {
        replicas: Some(present),
        updated_replicas: Some(updated),
        ready_replicas: Some(available),
        available_replicas: Some(available),
        unavailable_replicas: Some((replicas - available).max(0)),
        observed_generation: deployment.metadata.generation,
        conditions: Some(conditions),
        ..status
    }
}

fn set_condition(
    conditions: &mut Vec<DeploymentCondition>,
    kind: &str,
    so: bool,
    reason: &str,
    message: &str,
    now: jiff::Timestamp,
) {
    let status = if so { "True" } else { "False" };
    let known = conditions.iter().position(|condition| condition.type_ == kind);
    let before = known.map(|place| conditions[place].clone());
    let same = |old: &DeploymentCondition| {
        old.status == status
            && old.reason.as_deref() == Some(reason)
            && old.message.as_deref() == Some(message)
    };
    if before.as_ref().is_some_and(same) {
        return;
    }
    let turned =
        before.as_ref().filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
    let condition = DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(turned.unwrap_or(Time(now))),
        last_update_time: Some(Time(now)),
    };
    match known {
        Some(place) => conditions[place] = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(wanted: i32, available: i32) -> Counts {
        Counts { wanted, present: wanted, available }
    }

    #[test]
    fn a_new_deployment_starts_at_once() {
        let rolling = Strategy::Rolling { surge: 1, unavailable: 0 };
        assert_eq!(decide(rolling, 3, Counts::default(), &[]), (3, vec![]));
    }

    #[test]
    fn a_rolling_update_never_has_too_few_or_too_many() {
        for (surge, unavailable) in [(1, 0), (0, 1), (2, 1)] {
            let rolling = Strategy::Rolling { surge, unavailable };
            let (mut new, mut old) = (Counts::default(), set(4, 4));
            for _ in 0..20 {
                let (wanted, left) = decide(rolling, 4, new, &[old]);
                assert!(wanted + left[0] <= 4 + surge, "too many: {wanted} + {}", left[0]);
                let available = new.available.min(wanted) + old.available.min(left[0]);
                assert!(available >= 4 - unavailable, "too few: {available}");
                (new, old) = (set(wanted, wanted), set(left[0], left[0]));
            }
            assert_eq!((new.wanted, old.wanted), (4, 0), "surge {surge}, unavailable {unavailable}");
        }
    }

    #[test]
    fn broken_old_pods_go_first() {
        let rolling = Strategy::Rolling { surge: 1, unavailable: 0 };
        assert_eq!(decide(rolling, 1, set(1, 0), &[set(1, 0)]), (1, vec![1]));
        assert_eq!(decide(rolling, 1, set(1, 1), &[set(1, 0)]), (1, vec![0]));
    }

    #[test]
    fn recreate_waits_until_the_old_pods_are_gone() {
        assert_eq!(decide(Strategy::Recreate, 2, Counts::default(), &[set(2, 2)]), (0, vec![0]));
        let gone = Counts::default();
        assert_eq!(decide(Strategy::Recreate, 2, Counts::default(), &[gone]), (2, vec![0]));
    }

    #[test]
    fn parts_are_rounded_as_kubernetes_does() {
        let percent = IntOrString::String("25%".to_owned());
        assert_eq!((amount(Some(&percent), "", 1, true), amount(Some(&percent), "", 1, false)), (1, 0));
        assert_eq!(amount(Some(&IntOrString::Int(-3)), "", 5, true), 0);
        assert_eq!(amount(Some(&IntOrString::String("x".to_owned())), "", 5, true), 0);
    }
}
