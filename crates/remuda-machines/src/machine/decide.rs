//! What to do about a machine. Pure: everything is in [`Observed`], every outcome in [`Decision`].

mod power;

use std::{fmt, time::Duration};

use jiff::{SignedDuration, Timestamp};
use remuda_drivers::error::Class;
use remuda_names::{capi::claim_reason, machines::annotation::ADDRESS_POOL, rancher::condition as kind};

use super::address::{Asked, Pool};
use super::view::{Capi, JobView, NodeDriver, Observed, Outcome, Owner, State, Status};
use crate::{
    condition::{self, Is},
    job::class_of,
    naming,
};

/// A server that could not be made for a reason that passes is replaced no sooner than after this long.
const PASSING: Duration = Duration::from_secs(60);
/// And one that will fail again unless somebody changes something.
const LASTING: Duration = Duration::from_secs(300);
/// A removal that failed is tried again after this long, for as long as it takes.
const REMOVE_AGAIN: Duration = Duration::from_secs(300);
/// Why a creation failed, as Cluster API reads it.
pub(crate) const CREATE_ERROR: &str = "CreateError";
/// Why a removal failed.
pub(crate) const DELETE_ERROR: &str = "DeleteError";

/// What to write. The shell makes no choices of its own.
#[derive(Debug, PartialEq)]
pub(crate) struct Decision {
    /// Written first: what is recorded here is what a later decision goes by.
    pub status: Status,
    pub act: Act,
    /// Look again after this long at the latest.
    pub after: Option<Duration>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Act {
    Nothing,
    /// Make the Job and what it needs.
    Create {
        bootstrap: String,
        machine: String,
    },
    /// Claim an address.
    Claim(Pool),
    /// Give back what was claimed of another pool.
    Unclaim,
    /// Make the Job that removes the server, and what it needs.
    Remove,
    /// Make the Job that restarts the server, and what it needs.
    Reboot {
        asked: String,
    },
    /// Record that a request to reboot was carried out, or could not be.
    NoteReboot {
        asked: String,
        failure: Option<String>,
    },
    /// Make the Job that stops the server, or starts it.
    Power {
        on: bool,
    },
    /// Record that it was stopped or started.
    NotePower {
        done: String,
    },
    /// Record that no job may begin to make the server any more.
    BarCreation,
    /// Let the Job make no further attempt. The attempt under way is not interrupted.
    CancelJob,
    /// Take the Job away; another follows.
    DropJob,
    /// Take everything away that was for the Job.
    Prune,
    /// Delete the Machine, which will be replaced.
    Retire {
        machine: String,
    },
    /// Take everything away and let go.
    Release,
}

impl Act {
    /// A Job is made, which takes its turn.
    pub(crate) fn starts_a_job(&self) -> bool {
        matches!(self, Act::Create { .. } | Act::Remove | Act::Reboot { .. } | Act::Power { .. })
    }
}

/// Why nothing can happen yet.
#[derive(Debug, PartialEq)]
pub(crate) enum Waiting {
    Owner,
    Machine,
    Cluster,
    Paused,
    Infrastructure,
    Bootstrap,
    Driver(String),
    Creation(String),
    NoPool(String),
    TakesNoAddress(String),
    Claimed,
    NoAddress { kind: String, name: String },
    Address { kind: String, name: String, why: String },
}

impl Waiting {
    fn reason(&self) -> &'static str {
        match self {
            Self::NoAddress { .. } => claim_reason::POOL_EXHAUSTED,
            _ => "Waiting",
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner | Self::Machine => f.write_str("waiting for the Machine this server is for"),
            Self::Cluster => f.write_str("waiting for the Cluster of the Machine"),
            Self::Paused => f.write_str("waiting for the Cluster to be unpaused"),
            Self::Infrastructure => f.write_str("waiting for the infrastructure of the Cluster"),
            Self::Bootstrap => f.write_str("waiting for the script the machine is to boot with"),
            Self::Driver(driver) => write!(f, "waiting for NodeDriver {driver}"),
            Self::Creation(name) => {
                write!(f, "cannot delete machine {name} because create job has not finished")
            }
            Self::NoPool(text) => write!(f, "{text:?} in annotation {ADDRESS_POOL} is no pool of addresses"),
            Self::TakesNoAddress(driver) => {
                write!(
                    f,
                    "driver {driver} takes no address, and annotation {ADDRESS_POOL} names a pool of them"
                )
            }
            Self::Claimed => {
                f.write_str("there is an IPAddressClaim of this name that is not of this machine")
            }
            Self::NoAddress { kind, name } => write!(f, "no address is free in {kind} {name}"),
            Self::Address { kind, name, why } if why.is_empty() => {
                write!(f, "waiting for an address of {kind} {name}")
            }
            Self::Address { kind, name, why } => write!(f, "waiting for an address of {kind} {name}: {why}"),
        }
    }
}

impl Decision {
    fn new(status: Status, act: Act) -> Self {
        Self { status, act, after: None }
    }

    fn after(mut self, after: Duration) -> Self {
        self.after = Some(after);
        self
    }
}

pub(crate) fn decide(observed: &Observed, now: Timestamp) -> Decision {
    let mut status = observed.status.clone();
    status.initialization.provisioned = !observed.provider_id.is_empty();
    if observed.deleting { delete(observed, status, now) } else { create(observed, status, now) }
}

fn create(observed: &Observed, mut status: Status, now: Timestamp) -> Decision {
    match &observed.job {
        Some(job) if job.deleting => return Decision::new(status, Act::Nothing),
        Some(JobView { reboots: Some(asked), outcome, .. }) => {
            return Decision::new(status, rebooting(observed, asked, outcome));
        }
        Some(JobView { powers: Some(asked), outcome, .. }) => {
            return power::follow(observed, asked, outcome, status, now);
        }
        Some(job) => return follow(observed, job, status, now),
        None => {}
    }
    match condition::status(&status.conditions, kind::CREATE_JOB) {
        // Made, and its Job is gone.
        Some(Is::True) => {
            if let Some(on) = power::asked(observed) {
                return Decision::new(status, Act::Power { on });
            }
            let asked = reboot_asked(observed).map(str::to_owned);
            return Decision::new(status, asked.map_or(Act::Nothing, |asked| Act::Reboot { asked }));
        }
        Some(Is::False) => return retire(observed, status, now),
        Some(Is::Unknown) | None => {}
    }
    let (capi, bootstrap, driver) = match ready_to_create(observed) {
        Ok(ready) => ready,
        Err(waiting) => {
            let message = waiting.to_string();
            condition::set(&mut status.conditions, kind::READY, Is::False, "Waiting", &message, now);
            return Decision::new(status, Act::Nothing);
        }
    };
    if let Some((waiting, act)) = address(observed) {
        let message = waiting.to_string();
        condition::set(&mut status.conditions, kind::READY, Is::False, waiting.reason(), &message, now);
        return Decision::new(status, act);
    }
    status.driver_url.clone_from(&driver.url);
    status.driver_hash.clone_from(&driver.checksum);
    status.job_name = naming::job(&observed.name);
    creating(observed, &mut status, now);
    Decision::new(status, Act::Create { bootstrap: bootstrap.to_owned(), machine: capi.name.clone() })
}

/// Why a server cannot be made before its machine has its address, and what is done about it.
fn address(observed: &Observed) -> Option<(Waiting, Act)> {
    let of = |pool: &Pool, why: &str| {
        let Pool { kind, name } = pool.clone();
        Waiting::Address { kind, name, why: why.to_owned() }
    };
    Some(match &observed.address {
        Asked::No | Asked::Given(_) => return None,
        Asked::Odd(text) => (Waiting::NoPool(text.clone()), Act::Nothing),
        Asked::Unfit => (Waiting::TakesNoAddress(observed.driver.clone()), Act::Nothing),
        Asked::Taken => (Waiting::Claimed, Act::Nothing),
        Asked::Unclaimed(pool) => (of(pool, ""), Act::Claim(pool.clone())),
        Asked::Outdated(pool) => (of(pool, ""), Act::Unclaim),
        Asked::Waiting(pool, why) => (of(pool, why), Act::Nothing),
        Asked::Exhausted(Pool { kind, name }) => {
            (Waiting::NoAddress { kind: kind.clone(), name: name.clone() }, Act::Nothing)
        }
    })
}

/// The request to reboot that is still to be carried out. A server that was never told about is not rebooted.
pub(super) fn reboot_asked(observed: &Observed) -> Option<&str> {
    let capi = observed.capi.as_ref().filter(|capi| !capi.deleting && !observed.deleting)?;
    let asked = capi.reboot.as_deref().filter(|asked| !asked.is_empty())?;
    let paused = observed.cluster.as_ref().is_none_or(|cluster| cluster.paused);
    let is_new = observed.rebooted.as_deref() != Some(asked);
    (is_new && !paused && !observed.provider_id.is_empty()).then_some(asked)
}

/// Follows the Job that reboots a server: that it was done is recorded before the Job goes.
fn rebooting(observed: &Observed, asked: &str, outcome: &Outcome) -> Act {
    let is_noted = observed.rebooted.as_deref() == Some(asked);
    let note = |failure| Act::NoteReboot { asked: asked.to_owned(), failure };
    match outcome {
        Outcome::Running => Act::Nothing,
        _ if is_noted => Act::Prune,
        Outcome::Complete => note(None),
        Outcome::Failed { message, .. } => note(Some(class_of(message).1.to_owned())),
    }
}

fn ready_to_create(observed: &Observed) -> Result<(&Capi, &str, &NodeDriver), Waiting> {
    if !matches!(observed.owner, Owner::Machine(_)) {
        return Err(Waiting::Owner);
    }
    let capi = observed.capi.as_ref().filter(|capi| !capi.deleting).ok_or(Waiting::Machine)?;
    let cluster = observed.cluster.as_ref().ok_or(Waiting::Cluster)?;
    if cluster.paused {
        return Err(Waiting::Paused);
    }
    if !cluster.provisioned {
        return Err(Waiting::Infrastructure);
    }
    let bootstrap = capi.bootstrap_secret.as_deref().filter(|name| !name.is_empty());
    let bootstrap = bootstrap.ok_or(Waiting::Bootstrap)?;
    let driver = observed.node_driver.as_ref().ok_or_else(|| Waiting::Driver(observed.driver.clone()))?;
    Ok((capi, bootstrap, driver))
}

/// `[ns/name] of kind (Kind) for machine m in infrastructure provider`.
fn server(observed: &Observed) -> String {
    let machine = observed.capi.as_ref().map(|capi| capi.name.as_str()).unwrap_or_default();
    let Observed { namespace, name, kind, .. } = observed;
    format!("server [{namespace}/{name}] of kind ({kind}) for machine {machine} in infrastructure provider")
}

fn creating(observed: &Observed, status: &mut Status, now: Timestamp) {
    if condition::get(&status.conditions, kind::CREATE_JOB).is_none() {
        let message = "creating machine provision job";
        condition::set(&mut status.conditions, kind::CREATE_JOB, Is::Unknown, "", message, now);
    }
    let message = format!("creating {}", server(observed));
    condition::set(&mut status.conditions, kind::READY, Is::False, "", &message, now);
}

/// A Job that nobody runs yet says why.
fn held_up(job: &JobView, status: &mut Status, now: Timestamp) {
    if let Some(why) = &job.waiting {
        condition::set(&mut status.conditions, kind::READY, Is::False, "Waiting", why, now);
    }
}

/// Follows the Job of a machine that is not being deleted.
fn follow(observed: &Observed, job: &JobView, mut status: Status, now: Timestamp) -> Decision {
    if job.removes {
        // It was made for a deletion that never was; it can only be from another time.
        return Decision::new(status, Act::DropJob);
    }
    status.job_name = naming::job(&observed.name);
    match &job.outcome {
        Outcome::Running => {
            creating(observed, &mut status, now);
            held_up(job, &mut status, now);
            Decision::new(status, Act::Nothing)
        }
        Outcome::Complete => {
            for kind in [kind::CREATE_JOB, kind::READY] {
                condition::set(&mut status.conditions, kind, Is::True, "", "", now);
            }
            status.ready = true;
            status.failure_reason.clear();
            status.failure_message.clear();
            status.failure_class.clear();
            if let State::Machine { addresses, .. } = &observed.state
                && status.addresses.is_empty()
            {
                status.addresses.clone_from(addresses);
            }
            let done = !observed.provider_id.is_empty();
            Decision::new(status, if done { Act::Prune } else { Act::Nothing })
        }
        Outcome::Failed { .. } if job.told => retire(observed, status, now),
        Outcome::Failed { message, .. } => {
            let (class, text) = class_of(message);
            let message = format!("failed creating {}: {class}: {text}", server(observed));
            for kind in [kind::CREATE_JOB, kind::READY] {
                condition::set(&mut status.conditions, kind, Is::False, CREATE_ERROR, &message, now);
            }
            status.ready = false;
            status.failure_reason = CREATE_ERROR.to_owned();
            status.failure_message = message;
            status.failure_class = class.as_str().to_owned();
            retire(observed, status, now)
        }
    }
}

/// A server that could not be made is replaced, in time.
fn retire(observed: &Observed, status: Status, now: Timestamp) -> Decision {
    let failed = condition::get(&status.conditions, kind::CREATE_JOB);
    let since =
        failed.and_then(|failed| failed.last_transition_time.parse::<Timestamp>().ok()).unwrap_or(now);
    // What has no class was recorded before there were any, and may as well last.
    let transient = Class::parse(&status.failure_class).is_transient();
    let patience = observed.retire_after.max(if transient { PASSING } else { LASTING });
    let passed = Duration::try_from(now.duration_since(since).max(SignedDuration::ZERO)).unwrap_or_default();
    if passed < patience {
        return Decision::new(status, Act::Nothing).after(patience - passed);
    }
    match &observed.capi {
        Some(capi) if !capi.deleting => Decision::new(status, Act::Retire { machine: capi.name.clone() }),
        _ => Decision::new(status, Act::Nothing),
    }
}

fn delete(observed: &Observed, mut status: Status, now: Timestamp) -> Decision {
    if observed.namespace_terminating {
        // Nothing can be made there any more.
        return Decision::new(status, Act::Release);
    }
    let created = condition::status(&status.conditions, kind::CREATE_JOB);
    let may_begin = !observed.creation_barred && created != Some(Is::True);
    if may_begin && observed.state != State::Missing {
        // What the record says is final only once no job can go on from it: a process of the create job may be
        // alive, even if its Job is gone.
        return Decision::new(status, Act::BarCreation);
    }
    let nothing_made = observed.state.is_without_server();
    match &observed.job {
        Some(job) if job.deleting => Decision::new(status, Act::Nothing),
        // Whether it is restarted does not matter any more.
        Some(job) if job.reboots.is_some() || job.powers.is_some() => Decision::new(status, Act::DropJob),
        Some(job) if !job.removes => {
            // A record without a server stays one: creation is barred.
            let interruptible =
                nothing_made || observed.node_driver.as_ref().is_some_and(|driver| driver.interruptible);
            if job.outcome == Outcome::Running && !interruptible {
                let message = Waiting::Creation(observed.name.clone()).to_string();
                condition::set(&mut status.conditions, kind::READY, Is::False, "Waiting", &message, now);
                let act = if job.cancelled { Act::Nothing } else { Act::CancelJob };
                return Decision::new(status, act);
            }
            Decision::new(status, Act::DropJob)
        }
        Some(job) => removing(observed, job, status, now),
        None if condition::status(&status.conditions, kind::DELETE_JOB) == Some(Is::True) => {
            Decision::new(status, Act::Release)
        }
        None if created.is_none() && nothing_made => Decision::new(status, Act::Release),
        None if observed.state == State::Missing && created == Some(Is::True) => {
            // What would be needed to remove the server is gone; somebody has to look.
            if observed.force {
                return Decision::new(status, Act::Release);
            }
            let message = format!(
                "failed deleting {}: the Secret {} with its state is missing; remove the server by hand and set the \
                 annotation {}",
                server(observed),
                naming::state_secret(&observed.name),
                remuda_names::rancher::annotation::FORCE_MACHINE_REMOVE,
            );
            failed_to_delete(&mut status, Class::Other, message, now);
            Decision::new(status, Act::Nothing)
        }
        None if nothing_made => Decision::new(status, Act::Release),
        None => {
            let message = "creating machine deletion job";
            condition::set(&mut status.conditions, kind::DELETE_JOB, Is::Unknown, "", message, now);
            let message = format!("deleting {}", server(observed));
            condition::set(&mut status.conditions, kind::READY, Is::False, "", &message, now);
            status.job_name = naming::job(&observed.name);
            Decision::new(status, Act::Remove)
        }
    }
}

fn removing(observed: &Observed, job: &JobView, mut status: Status, now: Timestamp) -> Decision {
    match &job.outcome {
        // Its server does not answer, and its owner said that this is for good.
        Outcome::Running if observed.force && job.waits_for_host => Decision::new(status, Act::Release),
        Outcome::Running => {
            let message = format!("deleting {}", server(observed));
            condition::set(&mut status.conditions, kind::READY, Is::False, "", &message, now);
            held_up(job, &mut status, now);
            Decision::new(status, Act::Nothing)
        }
        Outcome::Complete => {
            condition::set(&mut status.conditions, kind::DELETE_JOB, Is::True, "", "", now);
            status.failure_reason.clear();
            status.failure_message.clear();
            status.failure_class.clear();
            Decision::new(status, Act::Release)
        }
        Outcome::Failed { message, at } => {
            if !job.told {
                let (class, text) = class_of(message);
                let message = format!("failed deleting {}: {class}: {text}", server(observed));
                failed_to_delete(&mut status, class, message, now);
            }
            if observed.force {
                return Decision::new(status, Act::Release);
            }
            let since = at.unwrap_or(now);
            let passed =
                Duration::try_from(now.duration_since(since).max(SignedDuration::ZERO)).unwrap_or_default();
            if passed < REMOVE_AGAIN {
                return Decision::new(status, Act::Nothing).after(REMOVE_AGAIN - passed);
            }
            Decision::new(status, Act::DropJob)
        }
    }
}

fn failed_to_delete(status: &mut Status, class: Class, message: String, now: Timestamp) {
    for kind in [kind::DELETE_JOB, kind::READY] {
        condition::set(&mut status.conditions, kind, Is::False, DELETE_ERROR, &message, now);
    }
    status.failure_reason = DELETE_ERROR.to_owned();
    status.failure_message = message;
    status.failure_class = class.as_str().to_owned();
}

#[cfg(test)]
mod tests;
