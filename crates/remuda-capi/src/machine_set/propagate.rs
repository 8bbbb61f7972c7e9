//! What flows from a set to Machines that exist, without replacing them.

use std::collections::BTreeMap;

use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::core::{ContractReference, Machine, MachineSpec};
use remuda_names::capi::finalizer;
use serde_json::{Map, Value, json};

use super::{Pass, create};
use crate::{
    error::{Error, is_code},
    imprint::{self, Given},
};

impl Pass<'_> {
    /// Brings labels, annotations and what else may change in place to every Machine, and labels and
    /// annotations to the objects behind it. Written is only what differs.
    pub(super) async fn propagate(&mut self) -> Result<(), Error> {
        let labels = self.machine_labels();
        let annotations = self.set.spec.template.metadata.annotations.clone();
        let mut wrote = false;
        for machine in self.machines.clone().into_iter().flatten() {
            let spec = in_place(&machine.spec, &self.set.spec.template.spec);
            if machine.metadata.deletion_timestamp.is_some() {
                // A drain can still be cut short; labels no longer matter.
                wrote |= self.patch_machine(&machine, Map::new(), spec).await?;
                continue;
            }
            let given = Given::read(&machine.metadata, imprint::SET);
            let mut metadata = given.patch(&machine.metadata, &labels, &annotations);
            // The Machine tells what was given before, so it comes last.
            for reference in [&machine.spec.infrastructure_ref, &machine.spec.bootstrap.config_ref] {
                self.propagate_behind(&machine, reference, &given, &labels).await?;
            }
            let finalizers = machine.finalizers();
            if !finalizers.iter().any(|known| known == finalizer::MACHINE) {
                let all: Vec<&str> =
                    finalizers.iter().map(String::as_str).chain([finalizer::MACHINE]).collect();
                metadata.insert("finalizers".to_owned(), json!(all));
                metadata.insert("resourceVersion".to_owned(), json!(machine.resource_version()));
            }
            wrote |= self.patch_machine(&machine, metadata, spec).await?;
        }
        if wrote {
            self.sets.pending.settled(&self.key, &self.capi.machines).await;
            self.machines = Some(self.members()?);
        }
        Ok(())
    }

    async fn patch_machine(
        &self,
        machine: &Machine,
        mut metadata: Map<String, Value>,
        spec: Map<String, Value>,
    ) -> Result<bool, Error> {
        if metadata.is_empty() && spec.is_empty() {
            return Ok(false);
        }
        metadata.insert("uid".to_owned(), json!(machine.uid()));
        let mut patch = json!({"metadata": metadata});
        if !spec.is_empty() {
            patch["spec"] = Value::Object(spec);
        }
        let name = machine.name_any();
        let params = PatchParams { field_manager: Some(imprint::SET.to_owned()), ..PatchParams::default() };
        match self.capi.api::<Machine>(self.namespace()).patch(&name, &params, &Patch::Merge(patch)).await {
            Ok(written) => {
                self.sets.pending.wrote(&self.key, &written);
                Ok(true)
            }
            Err(error) if is_code(&error, 404) => Ok(false),
            Err(source) => Err(Error::Api { verb: "write", what: format!("Machine {name}"), source }),
        }
    }

    /// Labels and annotations of an object behind a Machine. One that does not exist is the Machine's worry.
    async fn propagate_behind(
        &self,
        machine: &Machine,
        reference: &ContractReference,
        given: &Given,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        if !reference.is_defined() {
            return Ok(());
        }
        let cache = self.clones(&reference.api_group, &reference.kind).await?;
        let Some(object) = cache.get(&create::key_of(machine, reference)) else {
            return Ok(());
        };
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let annotations = &self.set.spec.template.metadata.annotations;
        let mut metadata = given.patch(&object.metadata, labels, annotations);
        if metadata.is_empty() {
            return Ok(());
        }
        metadata.insert("uid".to_owned(), json!(object.uid()));
        let resource = cache.kind().api_resource();
        let params = PatchParams { field_manager: Some(imprint::SET.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let api = self.capi.providers.api(&resource, self.namespace());
        match api.patch(&reference.name, &params, &patch).await {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 404) => Ok(()),
            Err(source) => {
                let what = crate::providers::named(&resource, self.namespace(), &reference.name);
                Err(Error::Api { verb: "write", what, source })
            }
        }
    }
}

/// The merge patch of what may change in place.
fn in_place(has: &MachineSpec, template: &MachineSpec) -> Map<String, Value> {
    // Nobody wrote the default on a Machine that has nothing: it is meant all the same.
    let (before, after) = (create::with_default(&has.deletion), create::with_default(&template.deletion));
    if before == after
        && has.readiness_gates == template.readiness_gates
        && has.min_ready_seconds == template.min_ready_seconds
        && has.taints == template.taints
    {
        return Map::new();
    }
    let has = MachineSpec { deletion: before, ..has.clone() };
    let wanted = MachineSpec {
        deletion: after,
        readiness_gates: template.readiness_gates.clone(),
        min_ready_seconds: template.min_ready_seconds,
        taints: template.taints.clone(),
        ..has.clone()
    };
    let encode = |spec: &MachineSpec| serde_json::to_value(spec).unwrap_or_default();
    match remuda_control::write::difference(&encode(&has), &encode(&wanted)) {
        Some(Value::Object(patch)) => patch,
        _ => Map::new(),
    }
}
