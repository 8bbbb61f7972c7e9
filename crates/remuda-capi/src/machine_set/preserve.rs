//! Machines that failed and are kept to look at.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::core::Machine;
use remuda_names::{
    annotation::{PRESERVE_FAILED, PRESERVED_UNTIL},
    capi::{annotation, label},
    rancher::label as rancher_label,
};
use remuda_rollout::{
    set::{Fate, Kept, Preserve, expired, keep, next_expiry},
    text,
};
use serde_json::json;

use super::{BY_CONTROLLER, Pass};
use crate::{
    error::{Error, is_code},
    imprint,
};

/// Until when a Machine is kept. A time nobody can read keeps nothing.
fn kept_until(machine: &Machine) -> Option<Timestamp> {
    machine.annotations().get(PRESERVED_UNTIL)?.parse().ok()
}

/// Whether a Machine is kept to look at, and another one took its place.
pub(crate) fn is_kept(machine: &Machine) -> bool {
    kept_until(machine).is_some()
}

/// Whether it may have a member of etcd, or part of the control plane.
fn is_server(machine: &Machine) -> bool {
    let labels = machine.labels();
    [label::CONTROL_PLANE, rancher_label::ETCD_ROLE, rancher_label::CONTROL_PLANE_ROLE]
        .iter()
        .any(|key| labels.contains_key(*key))
}

impl Pass<'_> {
    /// What the deployment asks for, or the set if it has none.
    fn preserve_policy(&self) -> Result<Option<Preserve>, Error> {
        let annotations = match &self.deployment {
            Some(deployment) => deployment.annotations(),
            None => self.set.annotations(),
        };
        let Some(text) = annotations.get(PRESERVE_FAILED) else { return Ok(None) };
        let policy = Preserve::parse(text);
        let invalid = |problem| Error::Invalid(format!("metadata.annotations[{PRESERVE_FAILED}] {problem}"));
        policy.map(Some).map_err(invalid)
    }

    /// Machines of the set that are kept. Those of a deployment's older sets count for themselves: they go with them.
    fn kept(&self) -> Vec<Arc<Machine>> {
        let mut machines = self.capi.machines.by_index(BY_CONTROLLER, self.uid());
        machines.retain(|machine| is_kept(machine) && machine.metadata.deletion_timestamp.is_none());
        machines
    }

    /// Deletes what was kept long enough.
    pub(super) async fn expire(&mut self) -> Result<(), Error> {
        let machines = self.kept();
        if machines.is_empty() {
            return Ok(());
        }
        let policy = self.preserve_policy()?;
        let until = |machine: &Arc<Machine>| {
            kept_until(machine).map(|until| Kept { name: machine.name_any(), until })
        };
        let kept: Vec<Kept> = machines.iter().filter_map(until).collect();
        let gone = expired(policy, &kept, self.now);
        for machine in machines.iter().filter(|machine| gone.contains(&machine.name_any())) {
            self.delete_found(machine).await?;
        }
        let left: Vec<Kept> = kept.into_iter().filter(|kept| !gone.contains(&kept.name)).collect();
        self.expires_after = next_expiry(&left, self.now).and_then(|left| Duration::try_from(left).ok());
        Ok(())
    }

    /// Keeps as many of the Machines that would be deleted as the policy allows.
    pub(super) fn preserved(&self, fates: Vec<(String, Fate)>) -> Result<Vec<(String, Fate)>, Error> {
        let Some(policy) = self.preserve_policy()? else { return Ok(fates) };
        let mut count = self.kept().len();
        let judge = |(name, fate): (String, Fate)| {
            let machine = self.machines.iter().flatten().find(|machine| machine.name_any() == name);
            let server = machine.is_none_or(|machine| is_server(machine));
            match keep(Some(policy), count, server, self.now).filter(|_| fate == Fate::Delete) {
                Some(until) => {
                    count += 1;
                    (name, Fate::Preserve { until })
                }
                None => (name, fate),
            }
        };
        Ok(fates.into_iter().map(judge).collect())
    }

    /// Takes a Machine out of the count. No health check looks at it any more: it would only count against the limit
    /// of how many may be unhealthy.
    pub(super) async fn preserve(&mut self, name: &str, until: Timestamp) -> Result<(), Error> {
        let found = self.machines.iter().flatten().find(|machine| machine.name_any() == name).cloned();
        let Some(machine) = found else { return Ok(()) };
        let annotations = json!({PRESERVED_UNTIL: text::time(until), annotation::SKIP_REMEDIATION: ""});
        let patch = json!({"metadata": {"uid": machine.uid(), "annotations": annotations}});
        let params = PatchParams { field_manager: Some(imprint::SET.to_owned()), ..PatchParams::default() };
        match self.capi.api::<Machine>(self.namespace()).patch(name, &params, &Patch::Merge(patch)).await {
            Ok(written) => {
                self.sets.pending.wrote(&self.key, &written);
                let note = format!("Keeping unhealthy Machine {name:?} until {}", text::time(until));
                self.capi.ctx.recorder.normal(&self.set, "MachinePreserved", "Preserve", note);
                let left = Duration::try_from(until.duration_since(self.now)).unwrap_or_default();
                self.expires_after = Some(self.expires_after.map_or(left, |known| known.min(left)));
                Ok(())
            }
            // Gone, or another one by now.
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(source) => Err(Error::Api { verb: "keep", what: format!("Machine {name}"), source }),
        }
    }
}
