//! `remuda why`: one root cause, since when, what shows it, and what to do next.
//!
//! [`decide`] is a pure function over [`Evidence`]. It names the deepest cause it can see: whatever waits for
//! something that itself waits is passed over for the thing at the end of that chain. Causes are ordered from
//! the root in [`Cause`], and something that will not mend itself always outranks something that only takes
//! time.

mod cluster;
mod diagnosis;
mod machine;
mod overview;
mod removal;
mod render;
#[cfg(test)]
mod tests;

use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;

use crate::{
    Why, api,
    denied::Denied,
    evidence::{Evidence, Subject},
    failure::{Code, Failure},
    gather::{self, Depth},
    near,
    object::Object,
    output::Format,
    session::Session,
};

pub(crate) use self::machine::of_machine;

/// How it stands with a cluster or a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It will not go on by itself.
    Blocked,
    /// It takes its time.
    Waiting,
    /// There is nothing to explain.
    Ready,
}

/// What is at the end of the chain. The order is that of causes and effects: of two that are true at once, the
/// earlier one explains the later one more often than the other way round. The names are for scripts and stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    NoControllers,
    WebhookNotServed,
    Paused,
    DriverMissing,
    DriverInactive,
    DriverFailed,
    ConfigMissing,
    CredentialMissing,
    SpecRefused,
    NoSuchOperation,
    EtcdLost,
    ObjectsMissing,
    InfrastructureNotReady,
    RemovalFailed,
    HostAway,
    CreateJobFailed,
    /// The pool of addresses has none that is free.
    NoAddress,
    CreateJobNotRun,
    /// A server that wanted to register was refused.
    RegistrationRefused,
    RolesMissing,
    BootstrapDataMissing,
    Remediation,
    BootstrapTokenExpired,
    ServerUrlUnreachable,
    AgentNeverConnected,
    /// The server of a machine does not run.
    MachineOff,
    /// Its processes are stopped.
    MachineFrozen,
    /// It runs and has no way to others.
    MachineCutOff,
    /// Neither the agent nor the kubelet of a machine says anything.
    MachineSilent,
    PlanFailed,
    /// PodDisruptionBudgets do not let Pods go.
    DrainBlocked,
    DrainFailed,
    DrainHooks,
    ProbesFailing,
    AgentSilent,
    ClusterAgentNotConnected,
    ApiUnhealthy,
    NodeMissing,
    NodeUnhealthy,
    RemovalHeld,
    CreatingServer,
    Draining,
    ApplyingPlan,
    WaitingForTurn,
    Operation,
    /// Its machines are stopped, as was asked for.
    Hibernated,
    ControlPlane,
    Scaling,
    Removing,
    Other,
    /// What would tell may not be read by who asks.
    NotAllowed,
    None,
}

/// Something that shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exhibit {
    /// Which object, log or probe says it.
    pub source: String,
    pub text: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `cluster NAMESPACE/NAME` or `machine NAMESPACE/NAME`.
    pub subject: String,
    pub state: State,
    pub cause: Cause,
    /// The cause in one line.
    pub summary: String,
    /// It is to go, and is not gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// A few words of it, for tables and progress.
    #[serde(skip)]
    pub brief: String,
    /// The object the cause is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The machine the cause is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// What would end it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Exhibit>,
    /// What to do, the first thing first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// Other machines with the same cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// What could not be looked at, since who asks may not; something there may say more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_allowed: Vec<Denied>,
}

impl Finding {
    fn new(state: State, cause: Cause, summary: impl Into<String>) -> Finding {
        let summary = summary.into();
        Finding {
            subject: String::new(),
            state,
            cause,
            deleting: false,
            brief: summary.clone(),
            summary,
            object: None,
            machine: None,
            waiting_for: String::new(),
            since: None,
            evidence: Vec::new(),
            next: Vec::new(),
            also: Vec::new(),
            not_allowed: Vec::new(),
        }
    }

    fn blocked(cause: Cause, summary: impl Into<String>) -> Finding {
        Finding::new(State::Blocked, cause, summary)
    }

    fn waiting(cause: Cause, summary: impl Into<String>) -> Finding {
        Finding::new(State::Waiting, cause, summary)
    }

    /// Blocked once it has taken longer than it ever should.
    fn patient(cause: Cause, since: Option<Timestamp>, limit: i64, now: Timestamp, summary: &str) -> Finding {
        let late = since.is_some_and(|since| now.as_second() - since.as_second() > limit);
        let state = if late { State::Blocked } else { State::Waiting };
        Finding::new(state, cause, summary).since(since)
    }

    fn brief(mut self, brief: impl Into<String>) -> Finding {
        self.brief = brief.into();
        self
    }

    fn about(mut self, object: &Object) -> Finding {
        self.object = Some(object.reference());
        self
    }

    fn since(mut self, since: Option<Timestamp>) -> Finding {
        self.since = since;
        self
    }

    fn until(mut self, waiting_for: impl Into<String>) -> Finding {
        self.waiting_for = waiting_for.into();
        self
    }

    /// Adds what a source says, unless it says nothing, or nothing new.
    fn exhibit(mut self, source: impl Into<String>, text: impl Into<String>) -> Finding {
        let text = text.into();
        let known = |exhibit: &Exhibit| exhibit.text.contains(text.trim());
        if !text.trim().is_empty() && !self.evidence.iter().any(known) {
            self.evidence.push(Exhibit { source: source.into(), text });
        }
        self
    }

    /// What a condition of an object says.
    fn condition(self, object: &Object, kind: &str) -> Finding {
        let Some(condition) = object.condition(kind) else { return self };
        let text = match (condition.reason, condition.message) {
            ("", message) => message.to_owned(),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        self.exhibit(format!("condition {kind} of {}", object.reference()), text)
    }

    fn next(mut self, step: impl Into<String>) -> Finding {
        self.next.push(step.into());
        self
    }

    /// What is known about messages like those in the evidence.
    fn diagnosed(self) -> Finding {
        self.diagnosed_as("")
    }

    /// The same for a failure of a kind, where words say nothing.
    fn diagnosed_as(mut self, class: &str) -> Finding {
        let advice = self.evidence.iter().find_map(|exhibit| diagnosis::advice(&exhibit.text));
        let advice = advice.or_else(|| diagnosis::advice_on_class(class));
        if let Some(advice) = advice {
            self.next.insert(0, advice);
        }
        self
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }
}

/// Why the subject is not as it should be, or that it is.
pub fn decide(evidence: &Evidence, now: Timestamp) -> Finding {
    let mut finding = match &evidence.subject {
        Subject::Cluster(name) => {
            let mut finding = cluster::decide(evidence, now);
            finding.deleting = cluster::is_deleting(evidence);
            finding.subject = subject("cluster", evidence.namespace(), name);
            finding
        }
        Subject::Machine(name) => {
            let mut finding = machine::decide(evidence, name, now);
            finding.deleting = evidence.machine(name).is_some_and(Object::is_deleting);
            finding.subject = subject("machine", evidence.namespace(), name);
            finding
        }
    };
    if !finding.is_ready() {
        finding.not_allowed = evidence.unreadable.values().cloned().collect();
    }
    finding
}

fn subject(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Lines of a log that are shown as evidence.
pub(crate) const LOG_LINES: usize = 12;

pub(crate) async fn run(session: &Session, arguments: &Why) -> Result<(), Failure> {
    let Some(name) = arguments.name.as_deref() else { return overview::run(session, arguments).await };
    let namespace = session.namespace.as_str();
    let mut evidence = gather::cluster(session, namespace, name, Depth::Logs).await?;
    if evidence.cluster.is_none() && evidence.capi.is_none() {
        evidence = match gather::machine(session, namespace, name, Depth::Logs).await {
            Ok(Some(evidence)) => evidence,
            Ok(None) => return Err(nothing(session, name).await?),
            Err(refused) if refused.code == Code::Forbidden => {
                return Err(
                    gather::unseen(session, &format!("a cluster or machine {name}"), name, refused).await
                );
            }
            Err(failure) => return Err(failure),
        };
    }
    let now = Timestamp::now();
    let finding = decide(&evidence, now);
    match arguments.output {
        Format::Table | Format::Wide => session.out.text(&finding.render(now, &TimeZone::system())),
        Format::Name => session.out.line(&cause_name(finding.cause)),
        format => session.out.document(&finding, format)?,
    }
    ended(finding.state)
}

/// What the exit code says.
fn ended(state: State) -> Result<(), Failure> {
    match state {
        State::Ready => Ok(()),
        State::Waiting => Err(Failure::silent(Code::Waiting)),
        State::Blocked => Err(Failure::silent(Code::Blocked)),
    }
}

/// As it is in JSON.
fn cause_name(cause: Cause) -> String {
    serde_json::to_value(cause).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

async fn nothing(session: &Session, name: &str) -> Result<Failure, Failure> {
    let namespace = session.namespace.as_str();
    let clusters = gather::served_clusters(session, None).await?.objects;
    let machines =
        api::list(&session.client, &api::capi("Machine"), Some(namespace), api::Which::All).await?;
    let failure = Failure::new(
        Code::NotFound,
        format!("there is no cluster and no machine {name} in namespace {namespace}"),
    );
    let elsewhere =
        clusters.iter().find(|cluster| cluster.name() == name && cluster.namespace() != namespace);
    if let Some(other) = elsewhere {
        return Ok(
            failure.hint(format!("there is a cluster in namespace {0}: add -n {0}", other.namespace()))
        );
    }
    let here = clusters.iter().filter(|cluster| cluster.namespace() == namespace);
    let names = here.chain(&machines).map(Object::name);
    Ok(failure.hint(near::hint(name, names, "remuda cluster list -A")))
}
