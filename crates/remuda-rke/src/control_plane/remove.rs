//! The control plane goes when its machines have gone.

use std::sync::Arc;

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use remuda_api::{core::Machine, rke::RkeControlPlane};
use remuda_control::{
    Action, ObjectKey,
    write::{conditions as machine_conditions, remove_finalizer},
};
use remuda_names::{
    capi::{condition as capi_condition, label as capi_label},
    rancher::{condition, finalizer, label},
};

use super::ControlPlanes;
use crate::{
    Error,
    conditions::{ConditionUpdate, set},
    error::is_code,
    objects,
    shared::RESYNC,
};

impl ControlPlanes {
    /// Deletes control plane machines nobody else deletes, and waits for all of them.
    pub(super) async fn remove(
        &self,
        key: &ObjectKey,
        api: &Api<RkeControlPlane>,
        object: &RkeControlPlane,
    ) -> Result<Action, Error> {
        let mut left = self.left(key);
        if left.is_empty() {
            // A cache may lag, and what comes after this looks for machines no more.
            left = self.left_for_sure(key).await?;
        }
        if left.is_empty() {
            remove_finalizer(api, object, &(), finalizer::CONTROL_PLANE).await?;
            return Ok(Action::AwaitChange);
        }
        for machine in left.iter().filter(|machine| objects::is_custom(machine)) {
            self.delete(machine).await?;
        }
        let mut status = object.status.clone().unwrap_or_default();
        let now = self.rke.ctx.clock.now();
        // Whoever shows the first condition that is not True shows that it is being removed.
        for kind in [condition::PROVISIONED, condition::WAITING, condition::PENDING, condition::UPDATED] {
            set(
                &mut status.conditions,
                ConditionUpdate { kind, status: Some(true), reason: "", message: "" },
                now,
            );
        }
        let (removed, reason, message) = progress(&left);
        let says = ConditionUpdate { kind: condition::REMOVED, status: removed, reason, message: &message };
        set(&mut status.conditions, says, now);
        self.write(api, object, &status).await?;
        // Machines that go wake us.
        Ok(Action::RequeueAfter(RESYNC))
    }

    fn left(&self, key: &ObjectKey) -> Vec<Arc<Machine>> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let machines = self.rke.machines.in_namespace(namespace);
        machines.into_iter().filter(|machine| belongs(machine, &key.name)).collect()
    }

    async fn left_for_sure(&self, key: &ObjectKey) -> Result<Vec<Arc<Machine>>, Error> {
        let api: Api<Machine> = self.rke.api(key.namespace.as_deref().unwrap_or_default());
        let params = kube::api::ListParams::default().labels(&format!("{}=true", label::CONTROL_PLANE_ROLE));
        let listed = api.list(&params).await.map_err(Error::api("list", "Machines"))?;
        Ok(listed.items.into_iter().filter(|machine| belongs(machine, &key.name)).map(Arc::new).collect())
    }

    async fn delete(&self, machine: &Machine) -> Result<(), Error> {
        if objects::is_deleting(&machine.metadata) {
            return Ok(());
        }
        let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
        let preconditions = Preconditions { uid: machine.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.rke.api::<Machine>(&namespace).delete(&name, &params).await {
            Err(error) if !is_code(&error, 404) && !is_code(&error, 409) => {
                Err(Error::api("delete", format!("Machine {namespace}/{name}"))(error))
            }
            _ => Ok(()),
        }
    }
}

/// A control plane machine of this cluster.
fn belongs(machine: &Machine, cluster: &str) -> bool {
    let has = |key: &str, value: &str| machine.labels().get(key).is_some_and(|found| found == value);
    has(label::CONTROL_PLANE_ROLE, "true")
        && (has(capi_label::CLUSTER_NAME, cluster) || has(label::CLUSTER_NAME, cluster))
}

/// Condition `Removed`: status, reason and message.
fn progress(left: &[Arc<Machine>]) -> (Option<bool>, &'static str, String) {
    let Some(first) = left.iter().min_by_key(|machine| machine.name_any()) else {
        return (Some(true), "", String::new());
    };
    let name = first.name_any();
    let known = first.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let deleting = machine_conditions::get(known, capi_condition::DELETING);
    if deleting.is_some_and(|known| known.status == "True" && known.reason == "InternalError") {
        let message = format!("error deleting machine [{name}], machine must be deleted manually");
        return (Some(false), "Error", message);
    }
    (None, "Waiting", format!("waiting for machine [{name}] to delete"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(name: &str, reason: &str) -> Arc<Machine> {
        let condition = json!({"type": "Deleting", "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": name}, "spec": {},
            "status": {"conditions": [condition]},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_first_machine_that_is_left_is_told() {
        assert_eq!(progress(&[]), (Some(true), "", String::new()));
        let left = [machine("b", "InternalError"), machine("a", "Draining")];
        assert_eq!(progress(&left), (None, "Waiting", "waiting for machine [a] to delete".to_owned()));
        let left = [machine("b", "InternalError")];
        let message = "error deleting machine [b], machine must be deleted manually".to_owned();
        assert_eq!(progress(&left), (Some(false), "Error", message));
    }
}
