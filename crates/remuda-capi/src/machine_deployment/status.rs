//! What a deployment says of itself.

use std::time::Duration;

use kube::ResourceExt;
use remuda_api::core::{MachineDeploymentStatus, MachineSet, StatusVersion};
use remuda_rollout::{
    condition::old::{OldCondition, Severity, mirror},
    deployment::{Deployment, Set, StatusInput, find, status},
    version::VersionCount,
    view::{Counts, Machine as View},
};

use super::{Pass, desired};
use crate::{
    machine_set::status::{next_moment, selector_text, written_version},
    managed::Managed,
    view,
};

impl Pass<'_> {
    /// Puts everything into the status and tells when to look again although nothing happens.
    pub(super) fn report(&mut self, asked: Option<&Deployment>) -> Option<Duration> {
        let machines: Vec<View> = self.machines().iter().map(|machine| view::machine(machine)).collect();
        let sets: Option<Vec<(Set, Vec<VersionCount>)>> = self
            .sets
            .as_ref()
            .map(|sets| sets.iter().map(|set| (desired::view(set), versions(set))).collect());
        let missing = self.templates.missing();
        let before = self.deployment.status.clone().unwrap_or_default();
        let versions_before: Vec<VersionCount> = before.versions.iter().map(read_version).collect();
        let input = StatusInput {
            deployment: asked,
            deleting: self.is_deleting(),
            sets: sets.as_deref(),
            machines: &machines,
            missing_templates: &missing,
            before: counts(&before),
            versions_before: &versions_before,
        };
        let found = status(&input, self.now);
        let known = self.deployment.status.get_or_insert_default();
        known.selector = selector_text(&self.deployment.spec.selector);
        known.replicas = found.counts.replicas;
        known.ready_replicas = found.counts.ready;
        known.available_replicas = found.counts.available;
        known.up_to_date_replicas = found.counts.up_to_date;
        known.versions = found.versions.into_iter().map(written_version).collect();
        known.phase = found.phase.as_str().to_owned();
        view::set(&mut self.deployment, found.conditions, self.now);
        if let (Some(asked), true) = (asked, self.sets.is_some()) {
            self.report_old(asked);
        }
        next_moment(&machines, self.now)
    }

    /// The same for clients of v1beta1.
    fn report_old(&mut self, asked: &Deployment) {
        let sets = self.sets.clone().unwrap_or_default();
        let views: Vec<Set> = sets.iter().map(|set| desired::view(set)).collect();
        let current = find(asked, &views, self.now).current.ok().map(|set| set.name.clone());
        let current = sets.iter().find(|set| Some(set.name_any()) == current);
        let old = |set: &MachineSet| {
            let status = set.status.as_ref().and_then(|status| status.deprecated.as_ref()?.v1beta1.clone());
            status.unwrap_or_default()
        };
        let sum = |of: fn(&remuda_api::core::OldMachineSetStatus) -> Option<i32>| {
            sets.iter().map(|set| of(&old(set)).unwrap_or(0)).fold(0, i32::saturating_add)
        };
        let (ready, available) = (sum(|set| set.ready_replicas), sum(|set| set.available_replicas));
        let total = sets.iter().map(|set| set.spec.replicas.unwrap_or(0)).fold(0, i32::saturating_add);

        let mut conditions = view::old_conditions(self.deployment.old_conditions_mut());
        let required = asked.replicas.saturating_sub(asked.fenceposts().unavailable);
        conditions.set(
            if available >= required {
                OldCondition::good("Available")
            } else {
                let message = format!(
                    "Minimum availability requires {required} replicas, current {available} available"
                );
                OldCondition::bad("Available", Severity::Warning, "WaitingForAvailableMachines", message)
            },
            self.now,
        );
        let waiting = |message: &str| {
            OldCondition::bad("MachineSetReady", Severity::Info, "WaitingForMachineSet", message)
        };
        conditions.set(
            match current {
                Some(set) => {
                    let theirs = view::old_conditions(&old(set).conditions);
                    mirror(&theirs, "MachineSetReady", waiting(""))
                }
                None => waiting("MachineSet not found"),
            },
            self.now,
        );
        if let Some(ready) = conditions.summarize(&["Available"], None) {
            conditions.set(ready, self.now);
        }
        *self.deployment.old_conditions_mut() = view::write_old(&conditions);
        let status = self.deployment.status.get_or_insert_default();
        let deprecated = status.deprecated.get_or_insert_default().v1beta1.get_or_insert_default();
        let updated = current.and_then(|set| set.status.as_ref()?.replicas).unwrap_or(0);
        deprecated.updated_replicas = Some(updated);
        deprecated.ready_replicas = Some(ready);
        deprecated.available_replicas = Some(available);
        deprecated.unavailable_replicas = Some(total.saturating_sub(available).max(0));
    }
}

fn counts(status: &MachineDeploymentStatus) -> Counts {
    Counts {
        replicas: status.replicas,
        ready: status.ready_replicas,
        available: status.available_replicas,
        up_to_date: status.up_to_date_replicas,
    }
}

fn versions(set: &MachineSet) -> Vec<VersionCount> {
    set.status.iter().flat_map(|status| status.versions.iter().map(read_version)).collect()
}

fn read_version(version: &StatusVersion) -> VersionCount {
    VersionCount { version: version.version.clone(), replicas: version.replicas }
}
