//! A machine and what it depends on, as small values.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{Resource, ResourceExt};
use remuda_api::rke::Condition;
use remuda_names::{
    annotation::{POWER, REBOOTED},
    machines::{annotation, job_condition},
    rancher::label,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::address::Asked;
use crate::{host::Host, state::Phase};

/// Status of a machine of a driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub job_name: String,
    #[serde(skip_serializing_if = "is_false")]
    pub ready: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_hash: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cloud_credential_secret_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure_reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure_message: String,
    /// The name of a [`Class`](remuda_drivers::error::Class).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure_class: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    #[serde(skip_serializing_if = "is_none")]
    pub initialization: Initialization,
    /// What has no field here.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn is_false(yes: &bool) -> bool {
    !yes
}

fn is_none(initialization: &Initialization) -> bool {
    *initialization == Initialization::default()
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Initialization {
    #[serde(skip_serializing_if = "is_false")]
    pub provisioned: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Address {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

/// Everything a decision depends on.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub namespace: String,
    pub name: String,
    pub kind: String,
    pub driver: String,
    pub provider_id: String,
    pub deleting: bool,
    /// Deletion goes on although the server cannot be removed.
    pub force: bool,
    /// The request to reboot it that was carried out last.
    pub rebooted: Option<String>,
    /// What was last carried out of stopping and starting it: a constant of [`remuda_names::power`].
    pub powered: Option<String>,
    /// The machine itself is paused, whatever its Cluster is.
    pub paused: bool,
    pub status: Status,
    pub owner: Owner,
    pub capi: Option<Capi>,
    pub cluster: Option<Cluster>,
    pub node_driver: Option<NodeDriver>,
    pub job: Option<JobView>,
    /// What is recorded of the server.
    pub state: State,
    /// The record says that no job may begin to make a server any more. Read together with `state`.
    pub creation_barred: bool,
    /// How far it is with the address it is to have.
    pub address: Asked,
    /// How long a failed machine stays before it is replaced.
    pub retire_after: Duration,
    pub namespace_terminating: bool,
}

/// Who controls a machine of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    Nobody,
    /// It was made but its Machine does not have it yet.
    Set,
    Machine(String),
}

/// The Machine of Cluster API.
#[derive(Debug, Clone)]
pub(crate) struct Capi {
    pub name: String,
    pub bootstrap_secret: Option<String>,
    pub deleting: bool,
    /// Value of the annotation that asks for a reboot of its server.
    pub reboot: Option<String>,
    /// Value of the annotation that says whether its server is to run.
    pub power: Option<String>,
}

/// The Cluster of Cluster API.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub paused: bool,
    pub provisioned: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct NodeDriver {
    pub url: String,
    pub checksum: String,
    /// An interrupted creation can be cleaned up from the record alone.
    pub interruptible: bool,
}

/// What the state Secret says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum State {
    /// Nobody looked, as nothing depends on it.
    #[default]
    Unread,
    /// There is no Secret.
    Missing,
    /// There is a Secret without a machine.
    Empty,
    Machine {
        phase: Phase,
        addresses: Vec<Address>,
        /// The host it exists on, if that is a server's own.
        host: Option<Host>,
    },
    Unreadable(String),
}

impl State {
    /// Whether the record proves that no server was begun.
    pub(crate) fn is_without_server(&self) -> bool {
        matches!(self, Self::Missing | Self::Empty | Self::Machine { phase: Phase::Intended, .. })
    }
}

/// The Job of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobView {
    pub removes: bool,
    /// The request to reboot the server that it carries out.
    pub reboots: Option<String>,
    /// What it makes of the server's power.
    pub powers: Option<String>,
    pub deleting: bool,
    /// No further attempt is made.
    pub cancelled: bool,
    /// Why it has not been started.
    pub waiting: Option<String>,
    /// It waits for a server that has not been heard of.
    pub waits_for_host: bool,
    pub outcome: Outcome,
    /// The outcome is in the status of the machine already.
    pub told: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Running,
    Complete,
    Failed { message: String, at: Option<Timestamp> },
}

impl JobView {
    pub(crate) fn of(job: &Job) -> Self {
        let status = job.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let told = |kind: &str| {
            conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
        };
        let outcome = match (told("Complete"), told("Failed")) {
            (Some(_), _) => Outcome::Complete,
            (None, Some(failed)) => Outcome::Failed {
                message: failed.message.clone().unwrap_or_default(),
                at: failed.last_transition_time.as_ref().map(|time| time.0),
            },
            (None, None) => Outcome::Running,
        };
        Self {
            reboots: job.annotations().get(REBOOTED).cloned(),
            powers: job.annotations().get(POWER).cloned(),
            removes: job.labels().get(label::INFRA_REMOVE).is_some_and(|removes| removes == "true"),
            deleting: job.meta().deletion_timestamp.is_some(),
            cancelled: job.annotations().get(annotation::CANCELLED).is_some_and(|yes| yes == "true"),
            waits_for_host: told(job_condition::WAITING)
                .is_some_and(|waiting| waiting.reason.as_deref() == Some(job_condition::NO_HOST)),
            waiting: told(job_condition::WAITING).and_then(|waiting| waiting.message.clone()),
            outcome,
            told: false,
        }
    }
}
