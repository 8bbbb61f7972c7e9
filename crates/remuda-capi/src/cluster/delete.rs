//! Takes a Cluster down, one step at a time.

use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use remuda_api::core::{Machine, MachineDeployment, MachinePool, MachineSet};
use remuda_control::Chain;
use remuda_names::capi::label;
use remuda_rollout::{
    cluster::delete::{Child, ChildKind, Input, Step, next},
    machine::delete::Object,
};

use super::observe::{Observed, Referred, owned};
use crate::{Capi, Error, error::is_code, managed::Managed};

/// Where a deletion is, and how the Deleting condition tells it.
pub(super) struct Stage {
    pub(super) step: Step,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Asks to go whatever is next, and tells what is waited for.
pub(super) async fn advance(capi: &Capi, observed: &Observed, errors: &mut Vec<Error>) -> Stage {
    let children = children(observed);
    let step = next(&Input {
        children: observed.unreadable.is_empty().then_some(&children[..]),
        control_plane: object(&observed.control_plane)
            .map(|object| (object, observed.cluster.spec.control_plane_ref.kind.as_str())),
        infrastructure: object(&observed.infrastructure)
            .map(|object| (object, observed.cluster.spec.infrastructure_ref.kind.as_str())),
    });
    let mut failed = Vec::new();
    match &step {
        Step::DeleteChildren { delete, .. } => {
            for (kind, name) in delete {
                if let Err(error) = delete_child(capi, observed, *kind, name).await {
                    failed.push(error);
                }
            }
        }
        Step::DeleteControlPlane { delete: true, .. } => {
            failed.extend(delete_referred(capi, &observed.control_plane).await);
        }
        Step::DeleteInfrastructure { delete: true, .. } => {
            failed.extend(delete_referred(capi, &observed.infrastructure).await);
        }
        _ => {}
    }
    let message = match (&step, failed.first()) {
        // What was refused is what people must know.
        (_, Some(error)) => Chain(error).to_string(),
        (Step::CannotTell { what }, None) => match why(observed) {
            Some(why) => format!("Cannot read {what}: {why}"),
            None => step.to_string(),
        },
        (step, None) => step.to_string(),
    };
    let reason = if failed.is_empty() { step.reason() } else { "InternalError" };
    errors.append(&mut failed);
    Stage { reason, message, step }
}

/// What could not be read, in the order it is needed.
fn why(observed: &Observed) -> Option<String> {
    if !observed.unreadable.is_empty() {
        return Some(observed.unreadable.join(", "));
    }
    [&observed.control_plane, &observed.infrastructure].into_iter().find_map(|referred| match referred {
        Referred::Unreadable(why) => Some(why.clone()),
        _ => None,
    })
}

fn object(referred: &Referred) -> Option<Object> {
    match referred {
        Referred::No => None,
        Referred::Missing => Some(Object::Gone),
        Referred::Here(provided) if provided.is_deleting() => Some(Object::Deleting),
        Referred::Here(_) => Some(Object::Present),
        Referred::Unreadable(_) => Some(Object::Unreadable),
    }
}

fn children(observed: &Observed) -> Vec<Child> {
    let mut children = Vec::new();
    children.extend(observed.pools.iter().map(|pool| child(ChildKind::MachinePool, &**pool, observed)));
    children
        .extend(observed.deployments.iter().map(|one| child(ChildKind::MachineDeployment, &**one, observed)));
    children.extend(observed.sets.iter().map(|set| child(ChildKind::MachineSet, &**set, observed)));
    children.extend(observed.machines.iter().map(|machine| {
        let control_plane = machine.labels().contains_key(label::CONTROL_PLANE);
        let kind = if control_plane { ChildKind::ControlPlaneMachine } else { ChildKind::WorkerMachine };
        child(kind, &**machine, observed)
    }));
    children
}

fn child<K: Managed>(kind: ChildKind, object: &K, observed: &Observed) -> Child {
    Child {
        kind,
        name: object.name_any(),
        owned: owned(object, &observed.cluster),
        deleting: object.meta().deletion_timestamp.is_some(),
    }
}

async fn delete_child(capi: &Capi, observed: &Observed, kind: ChildKind, name: &str) -> Result<(), Error> {
    match kind {
        ChildKind::MachinePool => delete::<MachinePool>(capi, &observed.pools, name).await,
        ChildKind::MachineDeployment => delete::<MachineDeployment>(capi, &observed.deployments, name).await,
        ChildKind::MachineSet => delete::<MachineSet>(capi, &observed.sets, name).await,
        ChildKind::WorkerMachine | ChildKind::ControlPlaneMachine => {
            delete::<Machine>(capi, &observed.machines, name).await
        }
    }
}

/// One that is gone, or another one by now, is fine.
async fn delete<K: Managed>(capi: &Capi, among: &[std::sync::Arc<K>], name: &str) -> Result<(), Error> {
    let Some(object) = among.iter().find(|object| object.name_any() == name) else {
        return Ok(());
    };
    let namespace = object.namespace().unwrap_or_default();
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match capi.api::<K>(&namespace).delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
        Err(source) => Err(Error::api("delete", format!("{} {namespace}/{name}", K::KIND))(source)),
    }
}

async fn delete_referred(capi: &Capi, referred: &Referred) -> Option<Error> {
    match referred {
        Referred::Here(provided) => capi.providers.delete(provided).await.err(),
        _ => None,
    }
}
