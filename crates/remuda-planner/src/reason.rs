//! What is to be said about a machine: what it waits for, or what is wrong with it.
//!
//! A reason is a code with its subjects. Its text is made at the end, and is the original's word for word: people and
//! tools know it.

use std::fmt;

use remuda_names::waiting;

use crate::{quorum::Refusal, spec::ReasonCode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A condition of the Machine, in the words of whoever set it.
    Condition(String),
    /// No plan yet: the first server with etcd is not there.
    BootstrapEtcd,
    /// No plan yet: there is no etcd to use.
    Etcd,
    /// No plan yet: there is no control plane to join.
    ControlPlane,
    /// The agent has applied no plan so far.
    Agent,
    /// The plan says itself what is wrong.
    PlanError(String),
    /// Probes that do not pass, by name.
    Probes(Vec<String>),
    PlanFailed,
    /// The agent is at it.
    Plan,
    Quorum(Refusal),
    Draining,
    Drained,
    DrainFailed {
        machine: String,
        step: DrainStep,
        error: String,
    },
    Uncordon,
    /// The kubelet reports another version than the plan's.
    Kubelet {
        reported: String,
    },
    PreBootstrap,
    ClusterAgent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    Drain,
    Undrain,
}

impl Reason {
    /// A stable name, for those who tell reasons apart.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Condition(_) => "Condition",
            Reason::BootstrapEtcd => "WaitingForBootstrapEtcd",
            Reason::Etcd => "WaitingForEtcd",
            Reason::ControlPlane => "WaitingForControlPlane",
            Reason::Agent => "WaitingForAgent",
            Reason::PlanError(_) => "PlanError",
            Reason::Probes(_) => "WaitingForProbes",
            Reason::PlanFailed => "PlanFailed",
            Reason::Plan => "WaitingForPlan",
            Reason::Quorum(_) => "WaitingForQuorum",
            Reason::Draining => "Draining",
            Reason::Drained => "Drained",
            Reason::DrainFailed { .. } => "DrainFailed",
            Reason::Uncordon => "WaitingForUncordon",
            Reason::Kubelet { .. } => "WaitingForKubelet",
            Reason::PreBootstrap => "WaitingForPreBootstrap",
            Reason::ClusterAgent => waiting::reason::CLUSTER_AGENT,
        }
    }
}

impl Reason {
    /// What it is about: probes, versions, machines.
    fn subjects(&self) -> Vec<String> {
        match self {
            Reason::Probes(names) => names.clone(),
            Reason::Kubelet { reported } => vec![reported.clone()],
            Reason::DrainFailed { machine, .. } => vec![machine.clone()],
            _ => Vec::new(),
        }
    }

    /// As it is stored in the status.
    pub(crate) fn as_data(&self) -> ReasonCode {
        ReasonCode { code: self.code().to_owned(), subjects: self.subjects() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Condition(text) | Reason::PlanError(text) => f.write_str(text),
            Reason::BootstrapEtcd => f.write_str("waiting for bootstrap etcd to be available"),
            Reason::Etcd => f.write_str("waiting for etcd to be available"),
            Reason::ControlPlane => f.write_str("waiting for control plane to be available"),
            Reason::Agent => f.write_str("waiting for agent to check in and apply initial plan"),
            Reason::Probes(names) => write!(f, "waiting for probes: {}", names.join(", ")),
            Reason::PlanFailed => f.write_str("failure while applying plan"),
            Reason::Plan => f.write_str("waiting for plan to be applied"),
            Reason::Quorum(refusal) => write!(f, "waiting for etcd: {refusal}"),
            Reason::Draining => f.write_str("draining node"),
            Reason::Drained => f.write_str("drain completed"),
            Reason::DrainFailed { machine, step, error } => {
                let step = match step {
                    DrainStep::Drain => "draining",
                    DrainStep::Undrain => "undraining",
                };
                write!(f, "error {step} machine {machine}: {error}")
            }
            Reason::Uncordon => f.write_str("waiting for uncordon to finish"),
            Reason::Kubelet { .. } => f.write_str("waiting for kubelet to update"),
            Reason::PreBootstrap => f.write_str("waiting for cluster pre-bootstrap to complete"),
            Reason::ClusterAgent => f.write_str("waiting for cluster agent to connect"),
        }
    }
}

/// Several reasons as one line.
pub(crate) fn join(reasons: &[Reason]) -> String {
    reasons.iter().map(Reason::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts stand in conditions that other programs read.
    #[test]
    fn reasons_are_told_in_the_words_of_the_original() {
        let failed = |step| Reason::DrainFailed { machine: "m".into(), step, error: "pdb".into() };
        for (reason, text) in [
            (Reason::Condition("no disk".into()), "no disk"),
            (Reason::BootstrapEtcd, "waiting for bootstrap etcd to be available"),
            (Reason::Etcd, "waiting for etcd to be available"),
            (Reason::ControlPlane, "waiting for control plane to be available"),
            (Reason::Agent, "waiting for agent to check in and apply initial plan"),
            (Reason::PlanError("bad file".into()), "bad file"),
            (Reason::Probes(vec!["etcd".into(), "kubelet".into()]), "waiting for probes: etcd, kubelet"),
            (Reason::PlanFailed, "failure while applying plan"),
            (Reason::Plan, "waiting for plan to be applied"),
            (Reason::Draining, "draining node"),
            (Reason::Drained, "drain completed"),
            (failed(DrainStep::Drain), "error draining machine m: pdb"),
            (failed(DrainStep::Undrain), "error undraining machine m: pdb"),
            (Reason::Uncordon, "waiting for uncordon to finish"),
            (Reason::Kubelet { reported: "v1.34.1".into() }, "waiting for kubelet to update"),
            (Reason::PreBootstrap, "waiting for cluster pre-bootstrap to complete"),
            (Reason::ClusterAgent, "waiting for cluster agent to connect"),
        ] {
            assert_eq!(reason.to_string(), text);
            assert!(!reason.code().contains(' '));
        }
        assert_eq!(join(&[Reason::Draining, Reason::Plan]), "draining node, waiting for plan to be applied");
    }
}
