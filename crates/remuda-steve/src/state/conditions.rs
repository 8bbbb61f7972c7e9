//! States that follow from conditions, of any kind.

use remuda_names::{capi::condition as capi, rancher::condition as name};
use serde_json::Value;

use super::State;

/// A condition of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl<'a> Condition<'a> {
    pub(super) fn all(object: &'a Value) -> Vec<Self> {
        let list = object["status"]["conditions"].as_array();
        list.into_iter().flatten().map(Self::of).collect()
    }

    pub(crate) fn of(condition: &'a Value) -> Self {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        Self { kind: text("type"), status: text("status"), reason: text("reason"), message: text("message") }
    }

    pub(super) fn is(&self, kind: &str, status: &str) -> bool {
        self.kind == kind && self.status == status
    }
}

/// What a condition is called while it moves: a word, or its own reason.
#[derive(Clone, Copy)]
enum Moving {
    Named(&'static str),
    Reason,
}

use Moving::{Named, Reason};

/// Unknown moves, False is an error.
const UNKNOWN_MOVES: &[(&str, Moving)] = &[
    (name::ACTIVE, Named("activating")),
    ("AddonDeploy", Named("provisioning")),
    (name::AGENT_DEPLOYED, Named("provisioning")),
    ("BackingNamespaceCreated", Named("configuring")),
    ("CertsGenerated", Named("provisioning")),
    ("ConfigOK", Named("configuring")),
    (name::CREATED, Named("creating")),
    ("CreatorMadeOwner", Named("configuring")),
    ("DefaultNamespaceAssigned", Named("configuring")),
    ("DefaultNetworkPolicyCreated", Named("configuring")),
    ("DefaultProjectCreated", Named("configuring")),
    ("Deployed", Named("deploying")),
    ("DockerProvisioned", Named("provisioning")),
    (name::DRAINED, Named("draining")),
    ("etcd", Named("provisioning")),
    ("Initialized", Named("initializing")),
    (name::INSTALLED, Named("installing")),
    ("NodesCreated", Named("provisioning")),
    (name::PENDING, Named("pending")),
    (name::PROVISIONED, Named("provisioning")),
    (name::RECONCILED, Named("reconciling")),
    (name::REGISTERED, Named("registering")),
    (name::REMOVED, Named("removing")),
    ("Saved", Named("saving")),
    (name::UPDATED, Named("updating")),
    ("Upgraded", Named("upgrading")),
    (name::WAITING, Named("waiting")),
    (capi::NODE_HEALTHY, Reason),
    (capi::NODE_READY, Reason),
];

/// True moves.
const TRUE_MOVES: &[(&str, Moving)] = &[
    (name::RECONCILING, Named("reconciling")),
    (name::SCALING_UP, Reason),
    (name::SCALING_DOWN, Reason),
    (capi::DELETING, Reason),
    (capi::PAUSED, Reason),
];

/// False moves, Unknown is an error.
const FALSE_MOVES: &[(&str, Moving)] = &[
    ("Completed", Named("activating")),
    (name::READY, Named("unavailable")),
    (capi::AVAILABLE, Named("updating")),
    (capi::MACHINES_READY, Named("updating")),
    (capi::BOOTSTRAP_CONFIG_READY, Reason),
    (capi::INFRASTRUCTURE_READY, Reason),
];

/// Which of the three a condition belongs to, and its word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MovesWhen {
    Unknown,
    True,
    False,
}

fn known(kind: &str) -> Option<(MovesWhen, Moving)> {
    let tables =
        [(MovesWhen::Unknown, UNKNOWN_MOVES), (MovesWhen::True, TRUE_MOVES), (MovesWhen::False, FALSE_MOVES)];
    tables.into_iter().find_map(|(polarity, table)| {
        let (_, moving) = table.iter().find(|(name, _)| *name == kind)?;
        Some((polarity, *moving))
    })
}

/// Whether a condition by itself is an error, and whether it moves.
pub(crate) fn flags(condition: &Condition<'_>) -> (bool, bool) {
    if condition.reason == "Error" {
        return (true, false);
    }
    if matches!(condition.kind, name::STALLED | "Failed") {
        return (condition.status == "True", false);
    }
    match (known(condition.kind).map(|(polarity, _)| polarity), condition.status) {
        (Some(MovesWhen::Unknown), "False") | (Some(MovesWhen::False), "Unknown") => (true, false),
        (Some(MovesWhen::Unknown), "Unknown")
        | (Some(MovesWhen::True), "True")
        | (Some(MovesWhen::False), "False") => (false, true),
        _ => (false, false),
    }
}

fn word(condition: &Condition<'_>) -> Option<String> {
    let (_, moving) = known(condition.kind)?;
    Some(match moving {
        Named(word) => word.to_owned(),
        Reason if condition.reason.is_empty() => condition.kind.to_lowercase(),
        Reason => condition.reason.to_lowercase(),
    })
}

/// The state conditions tell: errors first, then what moves, in the order of the tables.
pub(super) fn state(conditions: &[Condition<'_>]) -> Option<State> {
    let error = conditions.iter().find(|condition| flags(condition).0 && condition.reason == "Error");
    let error = error.or_else(|| {
        conditions
            .iter()
            .find(|condition| flags(condition).0 && matches!(condition.kind, name::STALLED | "Failed"))
    });
    if let Some(condition) = error {
        let name = word(condition).unwrap_or_else(|| "error".to_owned());
        return Some(State::failed(&name, condition.message).because(condition));
    }
    for polarity in [MovesWhen::Unknown, MovesWhen::True, MovesWhen::False] {
        let of_table =
            |condition: &&Condition<'_>| known(condition.kind).is_some_and(|(own, _)| own == polarity);
        let ours = || conditions.iter().filter(of_table);
        let told = ours()
            .find(|condition| flags(condition).0)
            .or_else(|| ours().find(|condition| flags(condition).1));
        if let Some(condition) = told {
            let name = word(condition)?;
            let state = match flags(condition).0 {
                true => State::failed(&name, condition.message),
                false => State::moving(&name, condition.message),
            };
            return Some(state.because(condition));
        }
    }
    None
}
