//! The MachineSets of a deployment: which they are, and writing them.

use std::sync::Arc;

use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use remuda_api::core::MachineSet;
use remuda_control::write::is_controlled_by;
use remuda_names::capi::label;
use remuda_rollout::{
    deployment::{Create, Deployment, Desired, Plan, set_suffix},
    name,
    selector::Labels,
};
use serde_json::json;

use super::{Pass, desired};
use crate::{
    error::{Error, is_code},
    imprint,
    machine_set::{BY_CONTROLLER, ORPHANS},
    managed::{cluster_value, controller, ensure_owner},
    view,
};

/// How many names are tried for one set. Even the second is never needed, except by mischief.
const NAMES: usize = 4;

impl Pass<'_> {
    pub(super) fn members(&self) -> Vec<Arc<MachineSet>> {
        self.capi.sets.by_index(BY_CONTROLLER, self.uid())
    }

    /// Lists sets and takes those that fit and that nobody controls.
    pub(super) async fn claim(&mut self) -> Result<(), Error> {
        let selector = view::selector(&self.deployment.spec.selector);
        let wanted: Labels = selector.as_labels().map_err(|error| Error::Invalid(error.to_string()))?;
        if wanted.is_empty() {
            return Err(Error::Invalid("spec.selector is empty".to_owned()));
        }
        let here = cluster_value(self.namespace(), &self.deployment.spec.cluster_name);
        let orphans = self.capi.sets.by_index(ORPHANS, &here);
        let mut adopted = Ok(());
        for set in orphans.into_iter().filter(|set| selector.matches(set.labels())) {
            adopted = adopted.and(self.adopt(&set).await);
        }
        self.all.pending.settled(&self.key, &self.capi.sets).await;
        self.sets = Some(self.members());
        // A set that should be ours and is not yet would be made once more.
        adopted
    }

    async fn adopt(&mut self, set: &MachineSet) -> Result<(), Error> {
        let mut owners = set.owner_references().to_vec();
        ensure_owner(&mut owners, controller(&self.deployment));
        let patch = json!({"metadata": {
            "uid": set.uid(),
            "resourceVersion": set.resource_version(),
            "ownerReferences": owners,
            "labels": {label::DEPLOYMENT_NAME: self.deployment.name_any()},
        }});
        let name = set.name_any();
        let recorder = &self.capi.ctx.recorder;
        match self
            .capi
            .api::<MachineSet>(self.namespace())
            .patch(&name, &params(), &Patch::Merge(patch))
            .await
        {
            Ok(adopted) => {
                self.all.pending.wrote(&self.key, &adopted);
                let note = format!("Adopted MachineSet {name:?}");
                recorder.normal(&self.deployment, "SuccessfulAdopt", "Adopt", note);
                Ok(())
            }
            Err(error) if is_code(&error, 404) => Ok(()),
            Err(source) => {
                let note = format!("Failed to adopt MachineSet {name:?}: {source}");
                recorder.warning(&self.deployment, "FailedAdopt", "Adopt", note);
                Err(Error::Api { verb: "adopt", what: format!("MachineSet {name}"), source })
            }
        }
    }

    /// Does what the plan says, in its order.
    pub(super) async fn apply(&mut self, asked: &Deployment, plan: &Plan) -> Result<(), Error> {
        if let Some(create) = &plan.create {
            self.create(asked, create).await?;
        }
        for desired in &plan.sets {
            self.update(asked, desired).await?;
        }
        Ok(())
    }

    async fn create(&mut self, asked: &Deployment, create: &Create) -> Result<(), Error> {
        let unreadable = self.capi.sets.unreadable();
        if let Some(key) = unreadable.iter().find(|key| key.namespace == self.key.namespace) {
            return Err(Error::Invalid(format!("MachineSet {key} cannot be read and may be one of ours")));
        }
        let api = self.capi.api::<MachineSet>(self.namespace());
        let recorder = &self.capi.ctx.recorder;
        let post =
            PostParams { field_manager: Some(imprint::DEPLOYMENT.to_owned()), ..PostParams::default() };
        for attempt in 0..NAMES {
            // The suffix follows from the revision: an attempt that is repeated meets the first.
            let seed =
                if attempt == 0 { create.revision.clone() } else { format!("{}.{attempt}", create.revision) };
            let suffix = set_suffix(self.uid(), &seed, &asked.template);
            let name = name::of_set(&self.deployment.name_any(), &suffix);
            let set = desired::new_set(&self.deployment, asked, create, &name, &suffix);
            match api.create(&post, &set).await {
                Ok(created) => {
                    self.all.pending.wrote(&self.key, &created);
                    tracing::info!(set = name, reason = %create.reason, "current MachineSet created");
                    let note = format!(
                        "Created MachineSet {}/{name} with {} replicas",
                        self.namespace(),
                        create.replicas
                    );
                    recorder.normal(&self.deployment, "SuccessfulCreate", "Create", note);
                    return Ok(());
                }
                Err(error) if is_code(&error, 409) => {
                    let found = api.get_opt(&name).await.map_err(Error::api("read", &name))?;
                    let ours = found.filter(|found| is_controlled_by(&found.metadata, self.uid()));
                    if let Some(ours) = ours {
                        // Made before; the next look shows it.
                        self.all.pending.wrote(&self.key, &ours);
                        return Ok(());
                    }
                }
                Err(source) => {
                    let note = format!("Failed to create MachineSet {}/{name}: {source}", self.namespace());
                    recorder.warning(&self.deployment, "FailedCreate", "Create", note);
                    return Err(Error::Api { verb: "create", what: format!("MachineSet {name}"), source });
                }
            }
        }
        Err(Error::Invalid(format!("no free name for another MachineSet of MachineDeployment {}", self.key)))
    }

    async fn update(&self, asked: &Deployment, desired: &Desired) -> Result<(), Error> {
        let sets = self.sets.iter().flatten();
        let Some(set) = sets.clone().find(|set| set.name_any() == desired.name) else {
            return Ok(());
        };
        let Some(patch) = desired::patch(&self.deployment, asked, set, desired) else {
            return Ok(());
        };
        let recorder = &self.capi.ctx.recorder;
        let api = self.capi.api::<MachineSet>(self.namespace());
        match api.patch(&desired.name, &params(), &Patch::Merge(patch)).await {
            Ok(written) => self.all.pending.wrote(&self.key, &written),
            // One that is on its way out may go at any time.
            Err(error) if is_code(&error, 404) => return Ok(()),
            Err(source) => {
                let note =
                    format!("Failed to update MachineSet {}/{}: {source}", self.namespace(), desired.name);
                recorder.warning(&self.deployment, "FailedUpdate", "Update", note);
                let what = format!("MachineSet {}", desired.name);
                return Err(Error::Api { verb: "write", what, source });
            }
        }
        if desired.replicas != desired.from {
            let direction = if desired.replicas > desired.from { "up" } else { "down" };
            let Desired { name, from, replicas, .. } = desired;
            let why = desired.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::info!(set = name, from, to = replicas, why, "MachineSet scaled");
            let note = format!("Scaled {direction} MachineSet {name}: {from} -> {replicas}");
            recorder.normal(&self.deployment, "SuccessfulScale", "Scale", note);
        }
        Ok(())
    }

    pub(super) async fn delete_set(&self, name: &str) -> Result<(), Error> {
        let sets = self.sets.iter().flatten();
        let found = sets.clone().find(|set| set.name_any() == name);
        let Some(set) = found.filter(|set| set.metadata.deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let preconditions = Preconditions { uid: set.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let recorder = &self.capi.ctx.recorder;
        match self.capi.api::<MachineSet>(self.namespace()).delete(name, &params).await {
            Ok(answer) => {
                if let Some(deleting) = answer.left() {
                    self.all.pending.wrote(&self.key, &deleting);
                }
                self.all.pending.deleted(&self.key, &**set);
                let note = format!("Deleted MachineSet {name:?}");
                recorder.normal(&self.deployment, "SuccessfulDelete", "Delete", note);
                Ok(())
            }
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(source) => {
                let note = format!("Failed to delete MachineSet {name:?}: {source}");
                recorder.warning(&self.deployment, "FailedDelete", "Delete", note);
                Err(Error::Api { verb: "delete", what: format!("MachineSet {name}"), source })
            }
        }
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(imprint::DEPLOYMENT.to_owned()), ..PatchParams::default() }
}
