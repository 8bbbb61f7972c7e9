//! Which Machines are a set's own, and their deletion.

use std::sync::Arc;

use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use remuda_api::core::Machine;
use remuda_control::write::controller_of;
use remuda_rollout::{
    selector::Labels,
    set::{Adoption, adopt},
};
use serde_json::json;

use super::{BY_CONTROLLER, ORPHAN_FINALIZER, ORPHANS, Pass, is_kept};
use crate::{
    error::{Error, is_code},
    imprint,
    managed::{cluster_value, controller, ensure_owner},
};

impl Pass<'_> {
    /// The labels a Machine of this set must have.
    fn selected(&self) -> Result<Labels, Error> {
        let labels = crate::view::selector(&self.set.spec.selector).as_labels();
        let labels = labels.map_err(|error| Error::Invalid(error.to_string()))?;
        if labels.is_empty() {
            return Err(Error::Invalid("spec.selector is empty".to_owned()));
        }
        Ok(labels)
    }

    pub(super) fn uid(&self) -> &str {
        self.set.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The Machines of the set. One whose labels no longer fit has been taken out by somebody and is not counted, nor
    /// is one that is kept to look at; both go with the set all the same.
    pub(super) fn members(&self) -> Result<Vec<Arc<Machine>>, Error> {
        let mut machines = self.capi.machines.by_index(BY_CONTROLLER, self.uid());
        if !self.is_deleting() {
            let wanted = self.selected()?;
            machines.retain(|machine| fits(machine, &wanted) && !is_kept(machine));
        }
        Ok(machines)
    }

    /// Lists Machines and takes those that nobody controls.
    pub(super) async fn claim(&mut self) -> Result<(), Error> {
        let wanted = self.selected()?;
        let here = cluster_value(self.namespace(), &self.set.spec.cluster_name);
        let orphans = self.capi.machines.by_index(ORPHANS, &here);
        let mut adopted = Ok(());
        for machine in orphans.into_iter().filter(|machine| fits(machine, &wanted)) {
            let controller = controller_of(&machine.metadata);
            let controller = controller.map(|owner| (owner.name.as_str(), owner.uid.as_str()));
            if adopt(self.uid(), false, controller) == Adoption::Adopt {
                adopted = adopted.and(self.adopt(&machine).await);
            }
        }
        self.sets.pending.settled(&self.key, &self.capi.machines).await;
        self.machines = Some(self.members()?);
        // A Machine that should be ours and is not yet would be replaced.
        adopted
    }

    async fn adopt(&mut self, machine: &Machine) -> Result<(), Error> {
        let mut owners = machine.owner_references().to_vec();
        ensure_owner(&mut owners, controller(&self.set));
        let patch = json!({"metadata": {
            "uid": machine.uid(),
            "resourceVersion": machine.resource_version(),
            "ownerReferences": owners,
        }});
        let name = machine.name_any();
        let recorder = &self.capi.ctx.recorder;
        let params = PatchParams { field_manager: Some(imprint::SET.to_owned()), ..PatchParams::default() };
        match self.capi.api::<Machine>(self.namespace()).patch(&name, &params, &Patch::Merge(patch)).await {
            Ok(adopted) => {
                self.sets.pending.wrote(&self.key, &adopted);
                recorder.normal(&self.set, "SuccessfulAdopt", "Adopt", format!("Adopted Machine {name:?}"));
                Ok(())
            }
            Err(error) if is_code(&error, 404) => Ok(()),
            Err(source) => {
                let note = format!("Failed to adopt Machine {name:?}: {source}");
                recorder.warning(&self.set, "FailedAdopt", "Adopt", note);
                Err(Error::Api { verb: "adopt", what: format!("Machine {name}"), source })
            }
        }
    }

    pub(super) async fn delete_machine(&mut self, name: &str) -> Result<(), Error> {
        let found = self.machines.iter().flatten().find(|machine| machine.name_any() == name).cloned();
        match found {
            Some(machine) => self.delete_found(&machine).await,
            None => Ok(()),
        }
    }

    pub(super) async fn delete_found(&mut self, machine: &Machine) -> Result<(), Error> {
        if machine.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = &*machine.name_any();
        let preconditions = Preconditions { uid: machine.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.capi.api::<Machine>(self.namespace()).delete(name, &params).await {
            Ok(answer) => {
                if let Some(deleting) = answer.left() {
                    self.sets.pending.wrote(&self.key, &deleting);
                }
                self.sets.pending.deleted(&self.key, machine);
                let note = format!("Deleted Machine {name:?}");
                self.capi.ctx.recorder.normal(&self.set, "SuccessfulDelete", "Delete", note);
                Ok(())
            }
            // Gone, or another one by now.
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(source) => Err(Error::Api { verb: "delete", what: format!("Machine {name}"), source }),
        }
    }

    /// Deletes all Machines, unless they are to stay. Tells whether none is left.
    pub(super) async fn delete(&mut self) -> Result<bool, Error> {
        self.machines = Some(self.members()?);
        if self.set.finalizers().iter().any(|finalizer| finalizer == ORPHAN_FINALIZER) {
            // The garbage collector makes orphans of them first.
            return Ok(false);
        }
        let names: Vec<String> = self.machines.iter().flatten().map(|machine| machine.name_any()).collect();
        for name in &names {
            self.delete_machine(name).await?;
        }
        // A cache that lags must not make us forget somebody.
        Ok(names.is_empty() && !self.has_unreadable())
    }

    /// A Machine we cannot read may be ours.
    fn has_unreadable(&self) -> bool {
        let namespace = self.key.namespace.as_deref();
        self.capi.machines.unreadable().iter().any(|key| key.namespace.as_deref() == namespace)
    }
}

fn fits(machine: &Machine, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| machine.labels().get(key) == Some(value))
}
