//! What a set says of itself.

use std::{fmt::Write as _, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use remuda_api::core::StatusVersion;
use remuda_names::capi::condition as kind;
use remuda_rollout::{
    condition::old::{OldCondition, OldConditions, Severity, aggregate},
    selector::Operator,
    set::{StatusInput, status},
    version::VersionCount,
    view::Machine as View,
};

use super::Pass;
use crate::{managed::Managed, view};

/// When what is said of Machines changes by itself: they are no longer young, or in deletion or draining for
/// long. A second more, so that the moment has passed.
const MOMENTS: [i64; 3] = [10, 15 * 60, 5 * 60];

impl Pass<'_> {
    /// Puts everything into the status and tells when to look again although nothing happens.
    pub(super) fn report(&mut self) -> Option<Duration> {
        let views = self.views();
        let missing = self.templates.missing();
        let input = StatusInput {
            replicas: self.set.spec.replicas,
            deleting: self.is_deleting(),
            machines: self.machines.is_some().then_some(&views[..]),
            missing_templates: &missing,
            failures: self.failures.as_deref().unwrap_or_default(),
        };
        let found = status(&input, self.now);
        let known = self.set.status.get_or_insert_default();
        known.selector = selector_text(&self.set.spec.selector);
        if let Some(counts) = found.counts {
            known.replicas = counts.replicas;
            known.ready_replicas = counts.ready;
            known.available_replicas = counts.available;
            known.up_to_date_replicas = counts.up_to_date;
        }
        if let Some(versions) = found.versions {
            known.versions = versions.into_iter().map(written_version).collect();
        }
        view::set(&mut self.set, found.conditions, self.now);
        if self.machines.is_some() {
            self.report_old(&views);
        }
        next_moment(&views, self.now)
    }

    /// The same for clients of v1beta1. Nodes are counted as Machines report them, so that a connection that is
    /// lost does not empty the set in their eyes.
    fn report_old(&mut self, views: &[View]) {
        let labels = self.set.spec.template.metadata.labels.clone();
        let fully = self
            .machines
            .iter()
            .flatten()
            .filter(|machine| labels.iter().all(|(key, value)| machine.labels().get(key) == Some(value)));
        let fully = size(fully.count());
        let with = |kind: &str| size(views.iter().filter(|machine| machine.conditions.is_true(kind)).count());
        let (ready, available) = (with(kind::NODE_READY), with(kind::AVAILABLE).min(with(kind::NODE_READY)));
        let wanted = if self.is_deleting() { 0 } else { self.set.spec.replicas.unwrap_or(0) };
        let has = size(views.len());

        let mut old = view::old_conditions(self.set.old_conditions_mut());
        let resizing = |reason: &str, direction: &str| {
            let message = format!("Scaling {direction} MachineSet to {wanted} replicas (actual {has})");
            OldCondition::bad("Resized", Severity::Warning, reason, message)
        };
        let created = OldCondition::good("MachinesCreated");
        if has < wanted {
            old.set(resizing(kind::SCALING_UP, "up"), self.now);
            if let Some(failures) = self.failures.as_ref().filter(|failures| !failures.is_empty()) {
                let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
                let (kind, reason) = ("MachinesCreated", "PreflightCheckFailed");
                let failed = OldCondition::bad(kind, Severity::Error, reason, told.join("; "));
                old.set(failed, self.now);
            }
        } else if has > wanted {
            old.set(resizing(kind::SCALING_DOWN, "down"), self.now);
            old.set(created, self.now);
        } else {
            if ready == has {
                old.set(OldCondition::good("Resized"), self.now);
            }
            old.set(created, self.now);
        }
        if let Some(failed) = self.uncreated.take() {
            old.set(failed, self.now);
        }
        old.set(self.old_machines_ready(), self.now);
        if let Some(ready) = old.summarize(&["MachinesCreated", "Resized", kind::MACHINES_READY], None) {
            old.set(ready, self.now);
        }
        *self.set.old_conditions_mut() = view::write_old(&old);
        let status = self.set.status.get_or_insert_default();
        let deprecated = status.deprecated.get_or_insert_default().v1beta1.get_or_insert_default();
        deprecated.fully_labeled_replicas = Some(fully);
        deprecated.ready_replicas = Some(ready);
        deprecated.available_replicas = Some(available);
    }

    fn old_machines_ready(&self) -> OldCondition {
        let machines: Vec<(String, OldConditions)> = self
            .machines
            .iter()
            .flatten()
            .map(|machine| {
                let status = machine.status.as_ref();
                let old = status.and_then(|status| status.deprecated.as_ref()?.v1beta1.as_ref());
                let old = old.map(|old| view::old_conditions(&old.conditions)).unwrap_or_default();
                (machine.name_any(), old)
            })
            .collect();
        let sources = machines.iter().map(|(name, old)| ("Machine", name.as_str(), old));
        aggregate(sources, kind::MACHINES_READY).unwrap_or_else(|| OldCondition::good(kind::MACHINES_READY))
    }
}

fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

pub(crate) fn written_version(count: VersionCount) -> StatusVersion {
    StatusVersion { version: count.version, replicas: count.replicas }
}

/// When what conditions say of Machines may change without any event.
pub(crate) fn next_moment(machines: &[View], now: Timestamp) -> Option<Duration> {
    let [young, stale, draining] = MOMENTS;
    let moments = machines.iter().flat_map(|machine| {
        let unjudged = !machine.conditions.has(kind::UP_TO_DATE);
        [
            unjudged.then_some((machine.created, young)),
            machine.deleted.map(|since| (since, stale)),
            machine.drain_started.map(|since| (since, draining)),
        ]
    });
    moments
        .flatten()
        .filter_map(|(since, seconds)| {
            let due = since.checked_add(jiff::SignedDuration::from_secs(seconds + 1)).ok()?;
            Duration::try_from(due.duration_since(now)).ok().filter(|left| !left.is_zero())
        })
        .min()
}

/// A selector as the scale subresource shows it.
pub(crate) fn selector_text(selector: &LabelSelector) -> String {
    let selector = view::selector(selector);
    let labels = selector.labels.iter().map(|(key, value)| (key.clone(), format!("{key}={value}")));
    let expressions = selector.expressions.iter().map(|expression| {
        let key = &expression.key;
        let mut values = expression.values.clone();
        values.sort();
        let values = values.join(",");
        let mut text = String::new();
        let _ = match expression.operator {
            Operator::In => write!(text, "{key} in ({values})"),
            Operator::NotIn => write!(text, "{key} notin ({values})"),
            Operator::Exists => write!(text, "{key}"),
            Operator::DoesNotExist => write!(text, "!{key}"),
        };
        (key.clone(), text)
    });
    let mut parts: Vec<(String, String)> = labels.chain(expressions).collect();
    parts.sort();
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    #[test]
    fn selectors_read_as_kubectl_takes_them() {
        let expression = |key: &str, operator: &str, values: &[&str]| LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
        };
        let selector = LabelSelector {
            match_labels: Some([("c".to_owned(), "1".to_owned())].into()),
            match_expressions: Some(vec![
                expression("b", "In", &["y", "x"]),
                expression("a", "Exists", &[]),
                expression("d", "DoesNotExist", &[]),
            ]),
        };
        assert_eq!(selector_text(&selector), "a,b in (x,y),c=1,!d");
    }
}
