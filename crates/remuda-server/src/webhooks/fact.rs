//! The facts webhooks can tell, as they are now: pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};
use remuda_api::{core::Machine, provisioning::Cluster};
use remuda_distro::{Catalog, Distro, version};
use remuda_names::{
    annotation::POWER,
    capi::condition as capi_condition,
    power::STOPPED,
    provisioning::{annotation::EXPIRES, condition::EXPIRING},
    rancher::{condition, reason},
};
use serde::{Deserialize, Serialize};

/// How long before its end something is told to expire.
pub(super) const NOTICE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// What one webhook is told of at a time. Its notes have to fit into a ConfigMap.
pub(super) const MOST: usize = 4000;

/// A topic a webhook can subscribe to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Topic {
    Broken,
    Fixed,
    Expiring,
    UpdateAvailable,
}

impl Topic {
    pub(super) const ALL: [Topic; 4] = [Topic::Broken, Topic::Fixed, Topic::Expiring, Topic::UpdateAvailable];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Topic::Broken => "broken",
            Topic::Fixed => "fixed",
            Topic::Expiring => "expiring",
            Topic::UpdateAvailable => "update-available",
        }
    }
}

/// What a fact is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    pub(super) topic: Topic,
    /// `cluster`, `machine` or `server`.
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Subject {
    /// As it is noted: `broken cluster fleet-default/demo`.
    pub(super) fn note(&self) -> String {
        let Subject { topic, kind, namespace, name } = self;
        format!("{} {kind} {namespace}/{name}", topic.as_str())
    }

    pub(super) fn parse(note: &str) -> Option<Subject> {
        let mut words = note.splitn(3, ' ');
        let topic = words.next()?;
        let topic = Topic::ALL.into_iter().find(|known| known.as_str() == topic)?;
        let kind = words.next()?;
        let kind = [CLUSTER, MACHINE, SERVER].into_iter().find(|known| *known == kind)?;
        let (namespace, name) = words.next()?.split_once('/')?;
        Some(Subject { topic, kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

const CLUSTER: &str = "cluster";
const MACHINE: &str = "machine";
const SERVER: &str = "server";
/// Phase of a Machine whose provider gave it up.
const FAILED: &str = "Failed";

/// Something that is so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fact {
    /// Another one is told again: the version that can be installed, the day something ends.
    pub(super) detail: String,
    /// Since when, if a condition says so.
    pub(super) since: Option<Timestamp>,
    pub(super) cluster: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// When certificates of this server end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) authority: Option<Timestamp>,
    pub(crate) serving: Option<Timestamp>,
}

pub(super) type Facts = BTreeMap<Subject, Fact>;

/// All that is so. Of too much the first in order are kept, those that are broken before all others.
pub(super) fn all<'a>(
    clusters: impl Iterator<Item = &'a Cluster>,
    machines: impl Iterator<Item = &'a Machine>,
    releases: &Catalog,
    certificates: &Certificates,
    now: Timestamp,
) -> Facts {
    let mut facts = Facts::new();
    for cluster in clusters.filter(|cluster| cluster.metadata.deletion_timestamp.is_none()) {
        of_cluster(cluster, releases, now, &mut facts);
    }
    for machine in machines.filter(|machine| machine.metadata.deletion_timestamp.is_none()) {
        of_machine(machine, now, &mut facts);
    }
    for (name, until) in [("authority", certificates.authority), ("serving", certificates.serving)] {
        if let Some(until) = until.filter(|until| is_soon(*until, now)) {
            let message = format!("the {name} certificate of this server expires at {until}");
            let subject = Subject {
                topic: Topic::Expiring,
                kind: SERVER,
                namespace: String::new(),
                name: name.to_owned(),
            };
            facts.insert(subject, expiring("Certificate", until.to_string(), "", message));
        }
    }
    while facts.len() > MOST {
        facts.pop_last();
    }
    facts
}

fn is_soon(until: Timestamp, now: Timestamp) -> bool {
    until.duration_since(now) <= NOTICE
}

fn expiring(reason: &str, detail: String, cluster: &str, message: String) -> Fact {
    Fact { detail, since: None, cluster: cluster.to_owned(), reason: reason.to_owned(), message }
}

fn of_cluster(cluster: &Cluster, releases: &Catalog, now: Timestamp, facts: &mut Facts) {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
    let about = |topic| Subject { topic, kind: CLUSTER, namespace: namespace.clone(), name: name.clone() };
    if let Some(problem) = problem(cluster) {
        facts.insert(about(Topic::Broken), Fact { cluster: name.clone(), ..problem });
    }
    let current = cluster.spec.kubernetes_version.as_str();
    if cluster.spec.rke_config.is_none() || current.is_empty() {
        facts.extend(ending(cluster, &name).map(|end| (about(Topic::Expiring), end)));
        return;
    }
    if let Some(last) = releases.end_of_life(current).filter(|last| is_soon(end_of(*last), now)) {
        let message = format!("the Kubernetes of {current} is maintained until {last}");
        facts.insert(about(Topic::Expiring), expiring("EndOfLife", last.to_string(), &name, message));
    }
    // The end of the cluster itself comes before that of its version.
    facts.extend(ending(cluster, &name).map(|end| (about(Topic::Expiring), end)));
    if let Some(newer) = newer(current, releases) {
        let message = format!("{newer} is there, the cluster runs {current}");
        facts.insert(about(Topic::UpdateAvailable), expiring("NewRelease", newer, &name, message));
    }
}

/// The end of a cluster that is deleted soon.
fn ending(cluster: &Cluster, name: &str) -> Option<Fact> {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let told = conditions.iter().find(|known| known.kind == EXPIRING && known.status == "True")?;
    let end = cluster.metadata.annotations.as_ref().and_then(|all| all.get(EXPIRES)).cloned();
    let message = format!("cluster {name} {}", told.message);
    Some(expiring("Expires", end.unwrap_or_default(), name, message))
}

fn end_of(day: Date) -> Timestamp {
    day.tomorrow()
        .ok()
        .and_then(|next| next.to_zoned(TimeZone::UTC).ok())
        .map_or(Timestamp::MAX, |end| end.timestamp())
}

/// The newest release of the same minor version, if it is newer than `current`.
fn newer(current: &str, releases: &Catalog) -> Option<String> {
    let parsed = version::parse(current)?;
    let minor = version::Minor::of(&parsed);
    let newest = releases.of(Distro::of(current)).newest(|release| release.minor() == minor)?;
    let is_newer = newest.parsed.pre.is_empty() && version::compare(&newest.parsed, &parsed).is_gt();
    is_newer.then(|| newest.version.clone())
}

/// Why a cluster is broken. One that was never ready because nothing has connected yet is only not there.
fn problem_of(cluster: &Cluster) -> Option<&remuda_api::rke::Condition> {
    let status = cluster.status.as_ref()?;
    let kinds = [condition::CREATED, condition::RKE_CLUSTER, condition::READY];
    status.conditions.iter().find(|known| {
        kinds.contains(&known.kind.as_str())
            && known.status == "False"
            && (known.reason != reason::DISCONNECTED || status.ready)
    })
}

fn problem(cluster: &Cluster) -> Option<Fact> {
    let found = problem_of(cluster)?;
    Some(Fact {
        since: found.last_transition_time.parse().ok(),
        reason: found.reason.clone(),
        message: found.message.clone(),
        ..Fact::default()
    })
}

fn of_machine(machine: &Machine, now: Timestamp, facts: &mut Facts) {
    let Some(status) = &machine.status else { return };
    let power = machine.metadata.annotations.as_ref().and_then(|all| all.get(POWER));
    // It was stopped on purpose.
    if power.is_some_and(|power| power == STOPPED) {
        return;
    }
    let name = machine.metadata.name.clone().unwrap_or_default();
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    let cluster = &machine.spec.cluster_name;
    let about = |topic| Subject { topic, kind: MACHINE, namespace: namespace.clone(), name: name.clone() };
    let bad = [capi_condition::NODE_HEALTHY, condition::AGENT_CONNECTED];
    // A machine that is still being made has no node to be missed.
    let was_there = !status.node_ref.name.is_empty();
    let found = status
        .conditions
        .iter()
        .find(|known| was_there && bad.contains(&known.type_.as_str()) && known.status == "False");
    if let Some(found) = found {
        let fact = Fact {
            detail: String::new(),
            since: Some(found.last_transition_time.0),
            cluster: cluster.clone(),
            reason: found.reason.clone(),
            message: found.message.clone(),
        };
        facts.insert(about(Topic::Broken), fact);
    } else if status.phase == FAILED {
        let message = "the machine has failed".to_owned();
        facts.insert(about(Topic::Broken), expiring(FAILED, String::new(), cluster, message));
    }
    let until = status.certificates_expiry_date.as_ref().map(|time| time.0);
    if let Some(until) = until.filter(|until| is_soon(*until, now)) {
        let message = format!("certificates of machine {name} expire at {until}");
        facts.insert(about(Topic::Expiring), expiring("Certificates", until.to_string(), cluster, message));
    }
}

#[cfg(test)]
mod tests;
