//! What is tried with unhealthy Machines before they are replaced.

use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::core::Machine;
use remuda_names::annotation::REMEDIATION_STEPS;
use remuda_rollout::{
    set::{Fate, Ladder, NextStep, Step, tried},
    text,
};
use serde_json::json;

use super::Pass;
use crate::{
    error::{Error, is_code},
    imprint,
};

impl Pass<'_> {
    /// What the deployment asks for, or the set if it has none.
    fn ladder(&self) -> Result<Option<Ladder>, Error> {
        let annotations = match &self.deployment {
            Some(deployment) => deployment.annotations(),
            None => self.set.annotations(),
        };
        let Some(text) = annotations.get(REMEDIATION_STEPS) else { return Ok(None) };
        let invalid =
            |problem| Error::Invalid(format!("metadata.annotations[{REMEDIATION_STEPS}] {problem}"));
        Ladder::parse(text).map(Some).map_err(invalid)
    }

    /// Puts the next step in place of a deletion, as long as there is one. A Machine that is marked for replacement is
    /// replaced at once.
    pub(super) fn climb(&mut self, fates: Vec<(String, Fate)>) -> Result<Vec<(String, Fate)>, Error> {
        let Some(ladder) = self.ladder()? else { return Ok(fates) };
        let machines = self.machines.clone().unwrap_or_default();
        let mut climbed = Vec::with_capacity(fates.len());
        for (name, fate) in fates {
            let machine = machines.iter().find(|machine| machine.name_any() == name);
            let fate = match machine.filter(|machine| fate == Fate::Delete && !is_marked(machine)) {
                Some(machine) => self.step(&ladder, machine),
                None => fate,
            };
            climbed.push((name, fate));
        }
        Ok(climbed)
    }

    fn step(&mut self, ladder: &Ladder, machine: &Machine) -> Fate {
        let annotations = machine.annotations();
        let tried = tried(|key| annotations.get(key).map(String::as_str));
        match ladder.next(tried, self.now) {
            NextStep::Replace => Fate::Delete,
            NextStep::Try { step, until } => self.wait_for(step, until, false),
            NextStep::Wait { step, until } => self.wait_for(step, until, true),
        }
    }

    fn wait_for(&mut self, step: Step, until: Timestamp, asked: bool) -> Fate {
        let left = std::time::Duration::try_from(until.duration_since(self.now)).unwrap_or_default();
        self.retry_after = Some(self.retry_after.map_or(left, |known| known.min(left)));
        Fate::Try { step, until, asked }
    }

    /// Asks for a step.
    pub(super) async fn try_step(&mut self, name: &str, step: Step, until: Timestamp) -> Result<(), Error> {
        let found = self.machines.iter().flatten().find(|machine| machine.name_any() == name).cloned();
        let Some(machine) = found else { return Ok(()) };
        let annotations = json!({(step.annotation()): text::time(self.now)});
        let patch = json!({"metadata": {"uid": machine.uid(), "annotations": annotations}});
        let params =
            PatchParams { field_manager: Some(imprint::SET_NOTES.to_owned()), ..PatchParams::default() };
        match self.capi.api::<Machine>(self.namespace()).patch(name, &params, &Patch::Merge(patch)).await {
            Ok(written) => {
                self.sets.pending.wrote(&self.key, &written);
                let (step, until) = (step.as_str(), text::time(until));
                let note = format!(
                    "Asked for {step} of unhealthy Machine {name:?}, which is replaced at {until} otherwise"
                );
                self.capi.ctx.recorder.normal(&self.set, "MachineRemediating", "Remediate", note);
                Ok(())
            }
            // Gone, or another one by now.
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(source) => Err(Error::Api { verb: "remediate", what: format!("Machine {name}"), source }),
        }
    }
}

/// The Machine is annotated for replacement.
fn is_marked(machine: &Machine) -> bool {
    machine.annotations().contains_key(remuda_names::capi::annotation::REMEDIATE_MACHINE)
}
