//! What a decision says: writes, status, verdicts, and why anything waits.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use remuda_names::rancher::{annotation, label};
use remuda_plan::key;

use crate::{
    desired::Unrenderable,
    input::{PlanSecret, Tokens},
    quorum::Refusal,
    spec::{ControlPlaneStatus, rfc3339},
};

/// The decision. The caller makes no choices of its own: it carries out `writes` in order, then writes
/// `status` if it differs from the stored one, then acts on `outcome`.
///
/// Writes come first because the status speaks of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    pub writes: Vec<Write>,
    pub status: ControlPlaneStatus,
    /// What was decided about each machine that was looked at.
    pub machines: BTreeMap<String, Report>,
    pub outcome: Outcome,
}

/// How a pass ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Everything is as it should be.
    Settled,
    /// The cluster or its control plane is being deleted; nothing is planned any more.
    Stopped,
    /// Something else must happen first; its event brings the next pass.
    Waiting(Waiting),
    /// What was written changes the input: look again soon.
    Again(Again),
    /// The input is wrong, or part of it is lost; retry with back-off.
    Failed(Failure),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Settled => f.write_str("settled"),
            Outcome::Stopped => f.write_str("stopped: the cluster is being deleted"),
            Outcome::Waiting(waiting) => waiting.fmt(f),
            Outcome::Again(again) => again.fmt(f),
            Outcome::Failed(failure) => failure.fmt(f),
        }
    }
}

/// A write to one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    Plan(PlanWrite),
    /// Sets an annotation on a plan secret.
    Annotate {
        machine: String,
        secret: String,
        key: &'static str,
        value: String,
    },
    /// Sets the init mark on a plan secret, or removes it.
    Mark {
        machine: String,
        secret: String,
        marked: bool,
    },
    /// Sets condition `Reconciled` of a Machine.
    Reconciled {
        machine: String,
        message: Option<String>,
    },
    /// Creates the secret with the join tokens, owned by the control plane object.
    CreateState {
        name: String,
        tokens: Tokens,
    },
    /// Lets a Machine that never became an etcd member go at once: no draining, no waiting for volumes, no
    /// safe removal.
    ForceRemove {
        machine: String,
    },
    /// Sets condition `ControlPlaneInitialized` of the CAPI Cluster to `False`.
    ClusterNotInitialized,
    /// Unpauses the CAPI Cluster so that it can be deleted.
    Unpause,
}

/// Message of [`Write::ClusterNotInitialized`]; the reason is `NotInitialized`.
pub const NOT_INITIALIZED_MESSAGE: &str =
    "Waiting for control plane provider to indicate the control plane has been initialized";

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Write::Plan(plan) => match plan.delivery {
                Delivery::Initial => write!(f, "{}: initial plan", plan.machine),
                Delivery::Minor => write!(f, "{}: minor change of plan", plan.machine),
                Delivery::Changed { restarts: true } => write!(f, "{}: new plan, restarts", plan.machine),
                Delivery::Changed { restarts: false } => write!(f, "{}: new plan", plan.machine),
            },
            Write::Annotate { machine, key, value, .. } => write!(f, "{machine}: {key}={value}"),
            Write::Mark { machine, marked: true, .. } => write!(f, "{machine}: elected init node"),
            Write::Mark { machine, marked: false, .. } => write!(f, "{machine}: no longer init node"),
            Write::Reconciled { machine, message: Some(message) } => write!(f, "{machine}: {message}"),
            Write::Reconciled { machine, message: None } => write!(f, "{machine}: reconciled"),
            Write::CreateState { name, .. } => write!(f, "create secret {name}"),
            Write::ForceRemove { machine } => write!(f, "{machine}: remove without asking etcd"),
            Write::ClusterNotInitialized => f.write_str("cluster: control plane not initialized"),
            Write::Unpause => f.write_str("cluster: unpause"),
        }
    }
}

/// A new plan for a machine.
#[derive(Clone, PartialEq, Eq)]
pub struct PlanWrite {
    pub machine: String,
    pub secret: String,
    pub delivery: Delivery,
    /// The plan as it is to be stored.
    pub plan: Vec<u8>,
    /// `None` leaves annotation `joined-to` alone.
    pub joined_to: Option<String>,
    /// How often the agent tries; `None` is without end.
    pub max_failures: Option<i64>,
    /// From how many failures on the plan counts as failed.
    pub failure_threshold: Option<i64>,
}

impl fmt::Debug for PlanWrite {
    /// Plans are full of credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanWrite")
            .field("machine", &self.machine)
            .field("delivery", &self.delivery)
            .field("bytes", &self.plan.len())
            .field("joined_to", &self.joined_to)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Initial,
    Minor,
    Changed { restarts: bool },
}

impl PlanWrite {
    /// Changes a plan secret, in one update.
    ///
    /// `plan-state` is left out and, if another server wrote it, removed: agents then retry failed plans by
    /// themselves, which they do not while that key is there.
    pub fn apply(&self, secret: &mut PlanSecret, now: Timestamp) {
        if let Some(joined_to) = &self.joined_to {
            secret.annotations.insert(annotation::JOINED_TO.to_owned(), joined_to.clone());
        }
        secret.annotations.insert(annotation::PLAN_LAST_UPDATED.to_owned(), rfc3339(now));
        secret.annotations.insert(annotation::PLAN_PROBES_PASSED.to_owned(), String::new());
        secret.data.insert(key::PLAN.to_owned(), self.plan.clone());
        secret.data.remove(key::PROBE_STATUSES);
        secret.data.remove(key::PLAN_STATE);
        let limits =
            [(key::MAX_FAILURES, self.max_failures), (key::FAILURE_THRESHOLD, self.failure_threshold)];
        for (key, limit) in limits {
            match limit.filter(|limit| *limit > 0 || *limit == -1) {
                Some(limit) => secret.data.insert(key.to_owned(), limit.to_string().into_bytes()),
                None => secret.data.remove(key),
            };
        }
    }
}

impl Write {
    /// Changes the plan secret of the write's machine, if it is a write to one.
    pub fn apply(&self, secret: &mut PlanSecret, now: Timestamp) {
        match self {
            Write::Plan(plan) => plan.apply(secret, now),
            Write::Annotate { key, value, .. } => {
                secret.annotations.insert((*key).to_owned(), value.clone());
            }
            Write::Mark { marked: true, .. } => {
                secret.labels.insert(label::INIT_NODE.to_owned(), "true".to_owned());
            }
            Write::Mark { marked: false, .. } => {
                secret.labels.remove(label::INIT_NODE);
            }
            _ => {}
        }
    }

    /// The machine whose plan secret is written.
    pub fn plan_machine(&self) -> Option<&str> {
        match self {
            Write::Plan(PlanWrite { machine, .. })
            | Write::Annotate { machine, .. }
            | Write::Mark { machine, .. } => Some(machine),
            _ => None,
        }
    }
}

/// Something that must happen first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    ReleaseData {
        namespace: String,
        name: String,
        version: String,
    },
    Cluster,
    Infrastructure,
    Uninitializing {
        namespace: String,
        name: String,
    },
    EtcdDeleted,
    /// Every etcd machine is being deleted, and some of them hold the cluster's data.
    LastMembers {
        machines: Vec<String>,
    },
    Roles,
    NotSupported(Operation),
    Paused,
    EtcdReplaced,
    ViableInitNode,
    /// A machine that was told to start the cluster is no longer fit to, and not gone yet.
    FormerInitNode {
        machine: String,
    },
    DesignatedInitNode {
        id: String,
    },
    JoinUrl {
        after: Option<Box<Waiting>>,
    },
    ControlPlane,
    MarkingInitialized,
    AtLeastOne {
        tier: TierName,
    },
    Tier {
        action: Action,
        tier: TierName,
        machines: Vec<String>,
        details: Vec<String>,
    },
    /// Machines whose own conditions are bad. Does not hold up later tiers.
    Machines {
        failing: bool,
        tier: TierName,
        machines: Vec<String>,
        details: Vec<String>,
    },
    /// A server still in the making. Does not hold up later tiers.
    Driver(Unrenderable),
}

/// Operations the planner does not carry out yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    SnapshotCreate,
    SnapshotRestore,
    RotateCertificates,
    RotateEncryptionKeys,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::SnapshotCreate => "etcd snapshot creation (etcdSnapshotCreate)",
            Operation::SnapshotRestore => "etcd restore (etcdSnapshotRestore)",
            Operation::RotateCertificates => "certificate rotation (rotateCertificates)",
            Operation::RotateEncryptionKeys => "encryption key rotation (rotateEncryptionKeys)",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierName {
    Bootstrap,
    Etcd,
    ControlPlane,
    Worker,
}

impl fmt::Display for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TierName::Bootstrap => "bootstrap",
            TierName::Etcd => "etcd",
            TierName::ControlPlane => "control plane",
            TierName::Worker => "worker",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Uncordoning,
    Draining,
    Configuring,
    /// Machines that are done, some of which have only now been told so.
    Done,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::ReleaseData { namespace, name, version } => {
                write!(f, "{namespace}/{name}: KDM release data is empty for {version}")
            }
            Waiting::Cluster => f.write_str("CAPI cluster does not exist"),
            Waiting::Infrastructure => f.write_str("waiting for infrastructure ready"),
            Waiting::Uninitializing { namespace, name } => {
                write!(f, "uninitializing rkecontrolplane {namespace}/{name}")
            }
            Waiting::EtcdDeleted => f.write_str("waiting for all etcd machines to be deleted"),
            Waiting::LastMembers { machines } => write!(
                f,
                "all etcd machines are being deleted, and with the last of {} the data of the cluster; set \
                 annotation {}=true on their RKEBootstraps to go on",
                at_most_three(machines),
                annotation::ETCD_FORCE_REMOVE
            ),
            Waiting::Roles => {
                f.write_str("waiting for at least one control plane, etcd, and worker node to be registered")
            }
            Waiting::NotSupported(operation) => write!(f, "{operation} is not supported yet"),
            Waiting::Paused => f.write_str("CAPI cluster or RKEControlPlane is paused"),
            Waiting::EtcdReplaced => f.write_str(
                "rkecontrolplane was already initialized but no etcd machines exist that have plans, \
                 indicating the etcd plane has been entirely replaced. Restoration from etcd snapshot is \
                 required.",
            ),
            Waiting::ViableInitNode => f.write_str("waiting for viable init node"),
            Waiting::FormerInitNode { machine } => {
                write!(f, "waiting for machine {machine} to be gone, which may have started the cluster")
            }
            Waiting::DesignatedInitNode { id } => {
                write!(f, "unable to find designated init node matching machine ID {id}")
            }
            Waiting::JoinUrl { after: None } => {
                f.write_str("waiting for join url to be available on bootstrap node")
            }
            Waiting::JoinUrl { after: Some(first) } => {
                write!(f, "{first} and join url to be available on bootstrap node")
            }
            Waiting::ControlPlane => f.write_str("waiting for control plane to be available"),
            Waiting::MarkingInitialized => f.write_str("marking control plane as initialized"),
            Waiting::AtLeastOne { tier } => write!(f, "waiting for at least one {tier} node"),
            Waiting::Tier { action, tier, machines, details } => {
                match action {
                    Action::Uncordoning => write!(f, "uncordoning {tier} node(s) ")?,
                    Action::Draining => write!(f, "draining {tier} node(s) ")?,
                    Action::Configuring => write!(f, "configuring {tier} node(s) ")?,
                    Action::Done => {}
                }
                named(f, machines, details)
            }
            Waiting::Machines { failing, tier, machines, details } => {
                let state = if *failing { "failing" } else { "non-ready" };
                write!(f, "{state} {tier} machine(s) ")?;
                named(f, machines, details)
            }
            Waiting::Driver(driver) => driver.fmt(f),
        }
    }
}

fn named(f: &mut fmt::Formatter<'_>, machines: &[String], details: &[String]) -> fmt::Result {
    f.write_str(&at_most_three(machines))?;
    if machines.len() == 1 && !details.is_empty() {
        write!(f, ": {}", details.join(", "))?;
    }
    Ok(())
}

/// `machines` are sorted.
fn at_most_three(machines: &[String]) -> String {
    match machines.get(..3) {
        Some(three) if machines.len() > 3 => format!("{} and {} more", three.join(","), machines.len() - 3),
        _ => machines.join(","),
    }
}

/// Why the same cluster has to be looked at again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// The control plane's standard conditions were added.
    Conditions,
    /// Join URLs were written.
    JoinUrls,
    /// The init mark was moved.
    Election,
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Again::Conditions => "adding conditions",
            Again::JoinUrls => "recording join urls",
            Again::Election => "electing init node",
        })
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("rkecluster {namespace}/{name}: error semver parsing kubernetes version {version}: {reason}")]
    Version { namespace: String, name: String, version: String, reason: String },
    #[error("newCluster was false and secret does not exist: {namespace}/{name}")]
    StateMissing { namespace: String, name: String },
    #[error("secret {namespace}/{name} type {found} did not match expected type {expected}")]
    StateType { namespace: String, name: String, found: String, expected: &'static str },
    #[error("concurrency must be a number or a percentage: {value:?}")]
    Concurrency { value: String },
    #[error(transparent)]
    Unrenderable(#[from] Unrenderable),
}

/// What was decided about a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub verdict: Verdict,
    /// As shown on the Machine.
    pub messages: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Ready,
    Deliver(Delivery),
    /// Its turn has not come: others are unavailable.
    Hold {
        unavailable: usize,
        limit: usize,
    },
    /// Its etcd member cannot be spared now.
    Quorum(Refusal),
    Draining,
    Uncordoning,
    /// Its plan is there, and something about it is not done; the messages say what.
    Pending,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Ready => f.write_str("ready"),
            Verdict::Deliver(Delivery::Initial) => f.write_str("initial plan"),
            Verdict::Deliver(Delivery::Minor) => f.write_str("minor change"),
            Verdict::Deliver(Delivery::Changed { .. }) => f.write_str("new plan"),
            Verdict::Hold { unavailable, limit } => {
                write!(f, "hold: {unavailable} unavailable, limit {limit}")
            }
            Verdict::Quorum(refusal) => write!(f, "hold for etcd quorum: {refusal}"),
            Verdict::Draining => f.write_str("draining"),
            Verdict::Uncordoning => f.write_str("uncordoning"),
            Verdict::Pending => f.write_str("pending"),
        }
    }
}
