//! The order in which a Machine goes away, and what each stage waits for.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use remuda_names::capi::annotation;

use crate::{
    condition::{plus_seconds, seconds_between},
    text,
};

/// An object of a provider that has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    Present,
    Deleting,
    /// Positively not there.
    Gone,
    /// Reading it failed; that is not the same as gone.
    Unreadable,
}

/// The control plane object of the Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlPlane {
    /// The Cluster names none, or one that does not exist.
    None,
    Present,
    /// It is not made of machines.
    External,
    Deleting,
    Unreadable,
}

/// Everything the next step depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Input<'a> {
    pub cluster_deleting: bool,
    pub control_plane: ControlPlane,
    /// Control plane machines of the cluster that are not in deletion.
    pub control_plane_machines: usize,
    pub node: Option<&'a str>,
    /// Keys of the Machine's annotations.
    pub annotations: &'a BTreeSet<String>,
    pub infrastructure: Object,
    pub infrastructure_kind: &'a str,
    /// With its kind; `None` if the machine has no reference to one.
    pub bootstrap: Option<(Object, &'a str)>,
    pub timeouts: Timeouts,
    pub started: Started,
    /// When deletion was asked for.
    pub deleted: Timestamp,
    pub done: Done,
}

/// Seconds; `None` and 0 wait for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    pub drain: Option<i64>,
    pub volume_detach: Option<i64>,
    pub node_deletion: Option<i64>,
}

/// `status.deletion`: when stages began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Started {
    pub pre_drain_hook: Option<Timestamp>,
    pub drain: Option<Timestamp>,
    pub volume_detach: Option<Timestamp>,
    pub pre_terminate_hook: Option<Timestamp>,
}

/// What this pass has already got done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    pub drained: bool,
    pub detached: bool,
    pub node: NodeDeletion,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NodeDeletion {
    #[default]
    NotTried,
    Gone,
    Failed,
}

/// Why the Node is neither drained nor deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NodeKept {
    #[error("cluster is being deleted")]
    ClusterDeleting,
    #[error("noderef is nil")]
    NoNode,
    #[error("control plane is being deleted")]
    ControlPlaneDeleting,
    #[error("no control plane members")]
    NoControlPlane,
}

/// What to do next. Every step but `Finish` ends the pass unless the shell reports it done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nobody knows whether the Node may be touched.
    CannotTell,
    WaitForPreDrainHooks {
        hooks: Vec<String>,
    },
    /// Record the start first if it is not recorded, then evict.
    Drain {
        started: Timestamp,
    },
    WaitForVolumes {
        started: Timestamp,
    },
    WaitForPreTerminateHooks {
        hooks: Vec<String>,
    },
    /// `delete` unless it is in deletion already.
    DeleteInfrastructure {
        delete: bool,
        kind: String,
    },
    CannotDelete {
        kind: String,
    },
    DeleteBootstrap {
        delete: bool,
        kind: String,
    },
    DeleteNode {
        node: String,
    },
    RetryNode,
    /// The finalizer goes.
    Finish,
}

impl Step {
    /// Reason of the Deleting condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Step::CannotTell | Step::CannotDelete { .. } => "InternalError",
            Step::WaitForPreDrainHooks { .. } => "WaitingForPreDrainHook",
            Step::Drain { .. } => "DrainingNode",
            Step::WaitForVolumes { .. } => "WaitingForVolumeDetach",
            Step::WaitForPreTerminateHooks { .. } => "WaitingForPreTerminateHook",
            Step::DeleteInfrastructure { .. } => "WaitingForInfrastructureDeletion",
            Step::DeleteBootstrap { .. } => "WaitingForBootstrapDeletion",
            Step::DeleteNode { .. } | Step::RetryNode => "DeletingNode",
            Step::Finish => "DeletionCompleted",
        }
    }
}

/// Message of the Deleting condition. Draining and volumes have longer ones of their own.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::CannotTell => f.write_str(crate::condition::SEE_LOG),
            Step::WaitForPreDrainHooks { hooks } => {
                write!(f, "Waiting for pre-drain hooks to succeed (hooks: {})", hooks.join(","))
            }
            Step::Drain { started } => {
                write!(f, "Drain not completed yet (started at {}):", text::time(*started))
            }
            Step::WaitForVolumes { started } => {
                write!(f, "Waiting for Node volumes to be detached (started at {})", text::time(*started))
            }
            Step::WaitForPreTerminateHooks { hooks } => {
                write!(f, "Waiting for pre-terminate hooks to succeed (hooks: {})", hooks.join(","))
            }
            Step::DeleteInfrastructure { kind, .. } | Step::DeleteBootstrap { kind, .. } => {
                write!(f, "Waiting for {kind} to be deleted")
            }
            Step::CannotDelete { kind } => {
                write!(f, "Failed to delete {kind}, please check controller logs for errors")
            }
            Step::DeleteNode { node } => write!(f, "Deleting Node {node}"),
            Step::RetryNode => f.write_str("Error deleting Node, please check controller logs for errors"),
            Step::Finish => f.write_str("Deletion completed"),
        }
    }
}

/// Whether the Node may be drained and deleted; `None` if that cannot be told.
///
/// Draining makes sense only while there is a control plane to move pods: when a whole cluster goes,
/// nothing is drained.
pub fn node_kept(input: &Input<'_>) -> Option<Result<(), NodeKept>> {
    if input.cluster_deleting {
        return Some(Err(NodeKept::ClusterDeleting));
    }
    if input.node.is_none() {
        return Some(Err(NodeKept::NoNode));
    }
    match input.control_plane {
        ControlPlane::Unreadable => None,
        ControlPlane::Deleting => Some(Err(NodeKept::ControlPlaneDeleting)),
        ControlPlane::External => Some(Ok(())),
        ControlPlane::None | ControlPlane::Present if input.control_plane_machines == 0 => {
            Some(Err(NodeKept::NoControlPlane))
        }
        ControlPlane::None | ControlPlane::Present => Some(Ok(())),
    }
}

/// The next step of the deletion.
pub fn next(input: &Input<'_>, now: Timestamp) -> Step {
    let Some(allowed) = node_kept(input) else {
        return Step::CannotTell;
    };
    if allowed.is_ok()
        && let Some(step) = before_termination(input, now)
    {
        return step;
    }
    let hooks = hooks(input, annotation::PRE_TERMINATE_HOOK);
    if !hooks.is_empty() {
        return Step::WaitForPreTerminateHooks { hooks };
    }
    if let Some(step) = providers(input) {
        return step;
    }
    if let (Ok(()), Some(node)) = (allowed, input.node) {
        match input.done.node {
            NodeDeletion::NotTried => return Step::DeleteNode { node: node.to_owned() },
            NodeDeletion::Failed if !node_deletion_expired(input, now) => return Step::RetryNode,
            NodeDeletion::Failed | NodeDeletion::Gone => {}
        }
    }
    Step::Finish
}

fn before_termination(input: &Input<'_>, now: Timestamp) -> Option<Step> {
    let hooks = hooks(input, annotation::PRE_DRAIN_HOOK);
    if !hooks.is_empty() {
        return Some(Step::WaitForPreDrainHooks { hooks });
    }
    // Once pre-terminate hooks have been waited for, or the server is going, pods are beyond saving.
    let serving = input.infrastructure == Object::Present && input.started.pre_terminate_hook.is_none();
    let wanted = |exclude: &str| serving && !input.annotations.contains(exclude);
    let Timeouts { drain, volume_detach, .. } = input.timeouts;
    if wanted(annotation::EXCLUDE_DRAIN) && !input.done.drained && !expired(input.started.drain, drain, now) {
        return Some(Step::Drain { started: input.started.drain.unwrap_or(now) });
    }
    if wanted(annotation::EXCLUDE_VOLUME_DETACH)
        && !input.done.detached
        && !expired(input.started.volume_detach, volume_detach, now)
    {
        return Some(Step::WaitForVolumes { started: input.started.volume_detach.unwrap_or(now) });
    }
    None
}

fn providers(input: &Input<'_>) -> Option<Step> {
    let kind = input.infrastructure_kind.to_owned();
    match input.infrastructure {
        Object::Gone => {}
        Object::Unreadable => return Some(Step::CannotDelete { kind }),
        object => return Some(Step::DeleteInfrastructure { delete: object == Object::Present, kind }),
    }
    let (object, kind) = input.bootstrap?;
    let kind = kind.to_owned();
    match object {
        Object::Gone => None,
        Object::Unreadable => Some(Step::CannotDelete { kind }),
        object => Some(Step::DeleteBootstrap { delete: object == Object::Present, kind }),
    }
}

fn hooks(input: &Input<'_>, prefix: &str) -> Vec<String> {
    input.annotations.iter().filter(|key| key.starts_with(prefix)).cloned().collect()
}

fn expired(started: Option<Timestamp>, timeout: Option<i64>, now: Timestamp) -> bool {
    match (started, timeout) {
        (Some(started), Some(timeout)) if timeout > 0 => seconds_between(started, now) >= timeout as f64,
        _ => false,
    }
}

fn node_deletion_expired(input: &Input<'_>, now: Timestamp) -> bool {
    let timeout = input.timeouts.node_deletion.filter(|timeout| *timeout > 0);
    timeout.is_some_and(|timeout| plus_seconds(input.deleted, timeout) <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    /// Words: `node cp=1 infra=present boot=present hook=… exclude-drain … drained detached node-gone …`.
    #[track_caller]
    fn check(given: &str, expected: &str) {
        let mut annotations = BTreeSet::new();
        let object = |text: &str| match text {
            "present" => Object::Present,
            "deleting" => Object::Deleting,
            "gone" => Object::Gone,
            _ => Object::Unreadable,
        };
        let mut input = Input {
            cluster_deleting: false,
            control_plane: ControlPlane::Present,
            control_plane_machines: 1,
            node: None,
            annotations: &BTreeSet::new(),
            infrastructure: Object::Present,
            infrastructure_kind: "Server",
            bootstrap: None,
            timeouts: Timeouts::default(),
            started: Started::default(),
            deleted: at(0),
            done: Done::default(),
        };
        for word in given.split_whitespace() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("node", _) => input.node = Some("n"),
                ("cluster-deleting", _) => input.cluster_deleting = true,
                ("cp", "deleting") => input.control_plane = ControlPlane::Deleting,
                ("cp", "external") => {
                    input.control_plane = ControlPlane::External;
                    input.control_plane_machines = 0;
                }
                ("cp", "unreadable") => input.control_plane = ControlPlane::Unreadable,
                ("cp", count) => input.control_plane_machines = count.parse().unwrap(),
                ("infra", state) => input.infrastructure = object(state),
                ("boot", state) => input.bootstrap = Some((object(state), "Config")),
                ("pre-drain", name) => {
                    annotations.insert(format!("{}/{name}", annotation::PRE_DRAIN_HOOK));
                }
                ("pre-terminate", name) => {
                    annotations.insert(format!("{}/{name}", annotation::PRE_TERMINATE_HOOK));
                }
                ("exclude-drain", _) => {
                    annotations.insert(annotation::EXCLUDE_DRAIN.into());
                }
                ("exclude-volumes", _) => {
                    annotations.insert(annotation::EXCLUDE_VOLUME_DETACH.into());
                }
                ("drain-timeout", value) => input.timeouts.drain = value.parse().ok(),
                ("node-timeout", value) => input.timeouts.node_deletion = value.parse().ok(),
                ("drain-started", value) => input.started.drain = Some(at(value.parse().unwrap())),
                ("terminating", _) => input.started.pre_terminate_hook = Some(at(1)),
                ("drained", _) => input.done.drained = true,
                ("detached", _) => input.done.detached = true,
                ("node-gone", _) => input.done.node = NodeDeletion::Gone,
                ("node-failed", _) => input.done.node = NodeDeletion::Failed,
                other => panic!("{other:?}"),
            }
        }
        input.annotations = &annotations;
        let step = next(&input, at(100));
        assert_eq!(format!("{} {step}", step.reason()), expected);
    }

    #[test]
    fn stages_follow_each_other() {
        check("node", "DrainingNode Drain not completed yet (started at 1970-01-01T00:01:40Z):");
        check(
            "node drained",
            "WaitingForVolumeDetach Waiting for Node volumes to be detached (started at 1970-01-01T00:01:40Z)",
        );
        check("node drained detached", "WaitingForInfrastructureDeletion Waiting for Server to be deleted");
        check("node infra=deleting", "WaitingForInfrastructureDeletion Waiting for Server to be deleted");
        check("node infra=gone boot=present", "WaitingForBootstrapDeletion Waiting for Config to be deleted");
        check("node infra=gone boot=gone", "DeletingNode Deleting Node n");
        check("node infra=gone boot=gone node-gone", "DeletionCompleted Deletion completed");
    }

    #[test]
    fn hooks_hold_their_stage() {
        check(
            "node pre-drain=b pre-drain=a",
            "WaitingForPreDrainHook Waiting for pre-drain hooks to succeed (hooks: \
             pre-drain.delete.hook.machine.cluster.x-k8s.io/a,pre-drain.delete.hook.machine.cluster.x-k8s.io/b)",
        );
        check(
            "cluster-deleting node pre-terminate=etcd pre-drain=x",
            "WaitingForPreTerminateHook Waiting for pre-terminate hooks to succeed (hooks: \
             pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd)",
        );
    }

    #[test]
    fn nothing_is_drained_when_nobody_is_left_to_move_pods() {
        let straight = "WaitingForInfrastructureDeletion Waiting for Server to be deleted";
        check("cluster-deleting node", straight);
        check("", straight);
        check("node cp=0", straight);
        check("node cp=deleting", straight);
        check("node cp=external", "DrainingNode Drain not completed yet (started at 1970-01-01T00:01:40Z):");
        check("node cp=unreadable", "InternalError Please check controller logs for errors");
        check("cluster-deleting node infra=gone", "DeletionCompleted Deletion completed");
    }

    #[test]
    fn a_drain_ends_by_its_timeout_and_is_not_begun_again_afterwards() {
        let detach = "WaitingForVolumeDetach Waiting for Node volumes to be detached (started at 1970-01-01T00:01:40Z)";
        check("node drain-timeout=60 drain-started=40", detach);
        check(
            "node drain-timeout=61 drain-started=40",
            "DrainingNode Drain not completed yet (started at 1970-01-01T00:00:40Z):",
        );
        check(
            "node drain-timeout=0 drain-started=1",
            "DrainingNode Drain not completed yet (started at 1970-01-01T00:00:01Z):",
        );
        check("node exclude-drain", detach);
        check("node terminating", "WaitingForInfrastructureDeletion Waiting for Server to be deleted");
    }

    #[test]
    fn what_cannot_be_read_is_not_gone() {
        check(
            "cluster-deleting infra=unreadable",
            "InternalError Failed to delete Server, please check controller logs for errors",
        );
        check(
            "cluster-deleting infra=gone boot=unreadable",
            "InternalError Failed to delete Config, please check controller logs for errors",
        );
    }

    #[test]
    fn a_node_that_will_not_go_is_given_up_by_its_timeout() {
        let retry = "DeletingNode Error deleting Node, please check controller logs for errors";
        check("node infra=gone node-failed", retry);
        check("node infra=gone node-failed node-timeout=0", retry);
        check("node infra=gone node-failed node-timeout=101", retry);
        check("node infra=gone node-failed node-timeout=100", "DeletionCompleted Deletion completed");
    }
}
