//! What a decision says: writes, status, verdicts, and why anything waits.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use remuda_names::{
    rancher::{annotation, label},
    waiting,
};
use remuda_plan::key;

use crate::{
    desired::Unrenderable,
    input::{PlanSecret, Tokens},
    operation::hibernation::Stage,
    phase::Phase,
    quorum::Refusal,
    reason::{self, Reason},
    spec::{ControlPlaneStatus, WaitingFor, rfc3339},
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
    /// When the same input is decided about otherwise, because of the time alone.
    pub look_again: Option<Timestamp>,
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
    /// Pauses the CAPI Cluster: its machines must stay as they are.
    Pause,
    /// Unpauses the CAPI Cluster.
    Unpause,
    /// Lets an ETCDSnapshot go whose file is gone.
    ReleaseSnapshot {
        name: String,
    },
    /// Says whether the server of a Machine is to run.
    Power {
        machine: String,
        on: bool,
    },
    /// Forgets how the probes of a machine went: its server was stopped since.
    ForgetProbes {
        machine: String,
        secret: String,
    },
    /// Unpauses the CAPI Cluster, whose machines were started at this time.
    Woken {
        at: Timestamp,
    },
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
            Write::Pause => f.write_str("cluster: pause"),
            Write::Unpause => f.write_str("cluster: unpause"),
            Write::ReleaseSnapshot { name } => write!(f, "snapshot {name}: its file is gone"),
            Write::Power { machine, on: true } => write!(f, "{machine}: start its server"),
            Write::Power { machine, on: false } => write!(f, "{machine}: stop its server"),
            Write::ForgetProbes { machine, .. } => {
                write!(f, "{machine}: its probes are of before it stopped")
            }
            Write::Woken { .. } => f.write_str("cluster: unpause, its machines run again"),
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
            Write::ForgetProbes { .. } => {
                secret.data.remove(key::PROBE_STATUSES);
            }
            _ => {}
        }
    }

    /// The machine whose plan secret is written.
    pub fn plan_machine(&self) -> Option<&str> {
        match self {
            Write::Plan(PlanWrite { machine, .. })
            | Write::Annotate { machine, .. }
            | Write::ForgetProbes { machine, .. }
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
    /// What was done is forgotten, since it is not asked for any more.
    Refreshing(Operation),
    /// An operation has begun, or goes on with its next step.
    Begun(Operation),
    /// Plans of an operation.
    Errand {
        errands: Vec<Errand>,
        progress: Progress,
    },
    ShuttingDown,
    ShutDown,
    CertificatesRotated,
    /// The machine that changes the encryption key was chosen.
    EncryptionLeader {
        machine: String,
    },
    /// The cluster is being stopped or started, and these machines are not yet as they are to be.
    Hibernation {
        stage: Stage,
        machines: Vec<String>,
    },
    Hibernated {
        since: Option<Timestamp>,
    },
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
        details: Vec<Reason>,
    },
    /// Machines whose own conditions are bad. Does not hold up later tiers.
    Machines {
        failing: bool,
        tier: TierName,
        machines: Vec<String>,
        details: Vec<Reason>,
    },
    /// A server still in the making. Does not hold up later tiers.
    Driver(Unrenderable),
}

impl Waiting {
    /// A stable name, for those who tell them apart.
    pub fn code(&self) -> &'static str {
        match self {
            Waiting::ReleaseData { .. } => waiting::RELEASE_DATA,
            Waiting::Cluster => waiting::CLUSTER,
            Waiting::Infrastructure => waiting::INFRASTRUCTURE,
            Waiting::Uninitializing { .. } => waiting::UNINITIALIZING,
            Waiting::EtcdDeleted => waiting::ETCD_DELETED,
            Waiting::LastMembers { .. } => waiting::LAST_MEMBERS,
            Waiting::Roles => waiting::ROLES,
            Waiting::Refreshing(_)
            | Waiting::Begun(_)
            | Waiting::Errand { .. }
            | Waiting::ShuttingDown
            | Waiting::ShutDown
            | Waiting::CertificatesRotated
            | Waiting::EncryptionLeader { .. } => waiting::OPERATION,
            Waiting::Hibernation { .. } | Waiting::Hibernated { .. } => waiting::HIBERNATION,
            Waiting::Paused => waiting::PAUSED,
            Waiting::EtcdReplaced => waiting::ETCD_REPLACED,
            Waiting::ViableInitNode => waiting::VIABLE_INIT_NODE,
            Waiting::FormerInitNode { .. } => waiting::FORMER_INIT_NODE,
            Waiting::DesignatedInitNode { .. } => waiting::DESIGNATED_INIT_NODE,
            Waiting::JoinUrl { .. } => waiting::JOIN_URL,
            Waiting::ControlPlane => waiting::CONTROL_PLANE,
            Waiting::MarkingInitialized => waiting::MARKING_INITIALIZED,
            Waiting::AtLeastOne { .. } => waiting::AT_LEAST_ONE,
            Waiting::Tier { action, .. } => match action {
                Action::Uncordoning => waiting::UNCORDONING,
                Action::Draining => waiting::DRAINING,
                Action::Configuring => waiting::CONFIGURING,
                Action::Done => waiting::MACHINES_DONE,
            },
            Waiting::Machines { failing: true, .. } => waiting::MACHINES_FAILING,
            Waiting::Machines { failing: false, .. } => waiting::MACHINES_NOT_READY,
            Waiting::Driver(_) => waiting::DRIVER,
        }
    }

    /// As it is stored in the status. It says no more than the text does, so it changes with the text only, and
    /// costs no write of its own.
    pub(crate) fn as_data(&self) -> WaitingFor {
        let (machines, details): (&[String], &[Reason]) = match self {
            Waiting::LastMembers { machines } | Waiting::Hibernation { machines, .. } => (machines, &[]),
            Waiting::FormerInitNode { machine } | Waiting::EncryptionLeader { machine } => {
                (std::slice::from_ref(machine), &[])
            }
            Waiting::Errand { errands, .. } => match &errands[..] {
                [Errand::EncryptionKeys { machine, .. }] => (std::slice::from_ref(machine), &[]),
                _ => (&[], &[]),
            },
            Waiting::Tier { machines, details, .. } | Waiting::Machines { machines, details, .. } => {
                (machines, if machines.len() == 1 { details } else { &[] })
            }
            Waiting::JoinUrl { after: Some(first) } => {
                return WaitingFor { code: self.code().to_owned(), ..first.as_data() };
            }
            _ => (&[], &[]),
        };
        WaitingFor {
            code: self.code().to_owned(),
            machines: machines.iter().take(NAMED).cloned().collect(),
            reasons: details.iter().map(Reason::as_data).collect(),
        }
    }
}

/// What a plan of an operation is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    Snapshot { machine: String },
    SnapshotRestart,
    SnapshotDelete { snapshot: String, machine: String },
    SnapshotCheck { snapshot: String, machine: String },
    Stop { machine: String },
    Restore,
    Certificates { machine: String },
    EncryptionKeys { machine: String, phase: Phase },
}

impl fmt::Display for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Errand::Snapshot { machine } => write!(f, "etcd snapshot on node {machine}"),
            Errand::SnapshotRestart => f.write_str("etcd snapshot creation management plane restart"),
            Errand::SnapshotDelete { snapshot, machine } => {
                write!(f, "deletion of etcd snapshot {snapshot} on node {machine}")
            }
            Errand::SnapshotCheck { snapshot, machine } => {
                write!(f, "check of etcd snapshot {snapshot} on node {machine}")
            }
            Errand::Stop { machine } => write!(f, "services to stop on node {machine}"),
            Errand::Restore => f.write_str("etcd restore"),
            Errand::Certificates { machine } => write!(f, "[{machine}] certificate rotation"),
            Errand::EncryptionKeys { machine, phase } => {
                write!(f, "[{machine}] encryption key rotation ({phase})")
            }
        }
    }
}

/// How far a plan of an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    Starting,
    Applying,
    Probing,
}

/// Why a snapshot cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("there is no such snapshot")]
    Unknown,
    #[error("it is being deleted")]
    Deleting,
    #[error("the machine that holds it is gone or cannot begin a cluster")]
    NoMachine,
    #[error("it failed when it was taken")]
    Failed,
    #[error("it is in S3, and the cluster says nothing about S3 any more: set spec.rkeConfig.etcd.s3 again")]
    NoStore,
    #[error("it is in S3, and the cluster has no server that could begin with it")]
    NoServer,
    #[error("it was taken with Kubernetes {taken}, whose objects this version cannot serve")]
    Version { taken: String },
}

/// Why the encryption key could not be rotated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRotated {
    #[error("release {version} does not support it")]
    Release { version: String },
    #[error("the cluster does not encrypt its Secrets: machineGlobalConfig has no secrets-encryption: true")]
    NotEncrypted,
    #[error("keys of the provider {provider} are not rotated in steps")]
    Provider { provider: String },
    #[error("no server of the control plane is ready for it")]
    NoLeader,
    #[error("machine {machine}, on which it was begun, is gone")]
    LeaderGone { machine: String },
    #[error("machine {machine} failed to apply its plan")]
    Plan { machine: String },
    #[error("machine {machine} is in stage {found:?} of it")]
    Stage { machine: String, found: String },
    #[error("the snapshot before it was not taken: operation {0} failed")]
    Snapshot(Errand),
}

/// What can be done to a cluster once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    SnapshotCreate,
    SnapshotDelete,
    SnapshotRestore,
    RotateCertificates,
    RotateEncryptionKeys,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::SnapshotCreate => "etcd snapshot creation (etcdSnapshotCreate)",
            Operation::SnapshotDelete => "etcd snapshot deletion",
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
            Waiting::Hibernation { stage, machines } if machines.is_empty() => write!(f, "{stage}"),
            Waiting::Hibernation { stage, machines } => write!(f, "{stage}: {}", at_most_three(machines)),
            Waiting::Hibernated { since: Some(since) } => {
                write!(f, "hibernated since {}: its machines are stopped", rfc3339(*since))
            }
            Waiting::Hibernated { since: None } => f.write_str("hibernated: its machines are stopped"),
            Waiting::Roles => {
                f.write_str("waiting for at least one control plane, etcd, and worker node to be registered")
            }
            Waiting::Refreshing(operation) => {
                let what = match operation {
                    Operation::SnapshotCreate | Operation::SnapshotDelete => "etcd create",
                    Operation::SnapshotRestore => "etcd restore",
                    Operation::RotateCertificates => "certificate rotation",
                    Operation::RotateEncryptionKeys => "encryption key rotation",
                };
                write!(f, "refreshing {what} state")
            }
            Waiting::Begun(operation) => write!(f, "starting {operation}"),
            Waiting::Errand { errands, progress } => {
                for (at, errand) in errands.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    match progress {
                        Progress::Starting => write!(f, "{comma}starting {errand}")?,
                        Progress::Applying => write!(f, "{comma}waiting for {errand}")?,
                        Progress::Probing => write!(f, "{comma}waiting for {errand} probes")?,
                    }
                }
                Ok(())
            }
            Waiting::CertificatesRotated => f.write_str("certificate rotation done"),
            Waiting::EncryptionLeader { machine } => {
                write!(f, "elected {machine} as control plane leader for encryption key rotation")
            }
            Waiting::ShuttingDown => f.write_str("shutting down cluster"),
            Waiting::ShutDown => f.write_str("cluster shutdown complete, running etcd restore"),
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

/// How many machines are named.
const NAMED: usize = 3;

fn named(f: &mut fmt::Formatter<'_>, machines: &[String], details: &[Reason]) -> fmt::Result {
    f.write_str(&at_most_three(machines))?;
    if machines.len() == 1 && !details.is_empty() {
        write!(f, ": {}", reason::join(details))?;
    }
    Ok(())
}

/// `machines` are sorted.
fn at_most_three(machines: &[String]) -> String {
    match machines.get(..NAMED) {
        Some(three) if machines.len() > NAMED => {
            format!("{} and {} more", three.join(","), machines.len() - NAMED)
        }
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
    #[error("operation {errand} failed")]
    Errand { errand: Errand },
    #[error("snapshot {snapshot} cannot be restored: {unusable}")]
    Snapshot { snapshot: String, unusable: Unusable },
    #[error("encryption key rotation failed in phase {phase}: {cause}; {}", keys_are(phase, snapshot.as_deref()))]
    EncryptionKeys { phase: Phase, cause: NotRotated, snapshot: Option<String> },
    #[error("not hibernated: the server of machine {machine} cannot be stopped and started by a driver")]
    Hibernation { machine: String },
    #[error(transparent)]
    Unrenderable(#[from] Unrenderable),
}

/// What state a rotation leaves the Secrets in that ends in a phase, and what can be done.
fn keys_are(phase: &Phase, snapshot: Option<&str>) -> String {
    let state = match phase {
        Phase::Prepare | Phase::PostPrepareRestart => {
            "there may be a new key, which encrypts nothing yet, and all Secrets are readable"
        }
        Phase::Rotate | Phase::PostRotateRestart => {
            "Secrets may be encrypted with the old key or the new one, and servers that were restarted have both"
        }
        Phase::Reencrypt => {
            "Secrets may be encrypted with the old key or the new one, and all servers have both"
        }
        Phase::PostReencryptRestart => "all Secrets are encrypted with the new key",
        _ => return "no key was changed".to_owned(),
    };
    let back = snapshot
        .map_or_else(String::new, |name| format!(", or restore snapshot {name} if Secrets cannot be read"));
    format!("{state}; another rotation goes on from there{back}")
}

/// What was decided about a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub verdict: Verdict,
    /// As shown on the Machine.
    pub reasons: Vec<Reason>,
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
    /// Its plan is there, and something about it is not done; the reasons say what.
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
