//! What to do about the plan Secret as it is now.
//!
//! Two flows share the Secret. A server that writes `plan-state` says when to run; an older one only
//! lets the agent compare checksums. In both, an execution has an identity, made of the Secret's uid,
//! the plan's checksum and a *trigger*: the facts of the Secret that made the agent run and that its
//! report will change. An execution found in the journal under the same identity is taken up where it
//! stopped, or only reported again; it is never begun a second time.

use std::{collections::BTreeMap, time::Duration};

use remuda_plan::{key, sha256_hex, state};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// A Secret's data, decoded.
pub type Data = BTreeMap<String, Vec<u8>>;

/// Between passes unless the Secret says otherwise.
pub const DEFAULT_PROBE_PERIOD: Duration = Duration::from_secs(5);

const COOL_DOWN: i64 = 30;

/// Tells one execution of a plan from every other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Identity {
    /// Uid of the Secret, or path of the plan file.
    pub source: String,
    /// Checksum of the plan.
    pub checksum: String,
    /// What made the agent run it.
    pub trigger: String,
}

/// An execution this node has on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Which one.
    pub identity: Identity,
    /// Its end was reported, so it is not to be taken up again.
    pub reported: bool,
    /// Whether it succeeded; `None` while it is under way.
    pub succeeded: Option<bool>,
}

/// Takes up the execution on record if it is this one, or begins it.
pub fn resume(identity: Identity, recorded: Option<&Recorded>) -> Run {
    match recorded {
        Some(recorded) if recorded.identity == identity && !recorded.reported => Run::Resume(identity),
        _ => Run::Begin(identity),
    }
}

/// What the agent remembers while it runs.
#[derive(Debug, Clone)]
pub struct Memory {
    /// Whether a plan was handled since the start.
    pub has_run_once: bool,
    /// Version of the agent's own last write.
    pub last_written: u64,
    /// The Secret the above is about.
    pub uid: String,
    /// Between passes.
    pub probe_period: Duration,
}

impl Default for Memory {
    fn default() -> Self {
        Self { has_run_once: false, last_written: 0, uid: String::new(), probe_period: DEFAULT_PROBE_PERIOD }
    }
}

impl Memory {
    /// Takes notice of the Secret's identity and probe period. A recreated Secret is a first start.
    pub fn notice(&mut self, uid: &str, data: &Data) {
        if !self.uid.is_empty() && self.uid != uid {
            *self = Self { probe_period: self.probe_period, ..Self::default() };
        }
        if let Some(period) = data.get(key::PROBE_PERIOD).and_then(|raw| probe_period(raw)) {
            self.probe_period = period;
        }
    }
}

/// Everything the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The Secret's uid.
    pub uid: &'a str,
    /// The Secret's version as a number; 0 if it is none.
    pub version: u64,
    /// The Secret's data.
    pub data: &'a Data,
    /// Checksum of its plan.
    pub checksum: &'a str,
    /// The execution on record, if any.
    pub recorded: Option<&'a Recorded>,
    /// Run the plan at every start even if this node has completed it.
    pub force_on_start: bool,
    /// The time of the pass.
    pub now: Stamp,
}

/// How the plan is to be treated in this pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// Leave files and one-time instructions alone.
    Skip(Reason),
    /// Write the files again, run no instruction: this node has completed the plan before.
    Files,
    /// Begin a new execution.
    Begin(Identity),
    /// Take up the execution on record, or report what became of it.
    Resume(Identity),
}

impl Run {
    /// Whether the pass executes the plan.
    pub fn executes(&self) -> bool {
        matches!(self, Self::Begin(_) | Self::Resume(_))
    }
}

/// Why nothing is run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The server waits for nothing.
    #[error("plan state is {0}")]
    Terminal(String),
    /// The plan is applied already.
    #[error("plan is applied")]
    Applied,
    /// Retrying would exceed what the server allows.
    #[error("plan failed {failures} times, limit is {limit}")]
    TooManyFailures {
        /// Failures so far.
        failures: i64,
        /// What the server allows.
        limit: i64,
    },
    /// A failed plan is not retried at once.
    #[error("plan failed {elapsed} s ago, next attempt after {COOL_DOWN} s")]
    CoolDown {
        /// Seconds since the failure.
        elapsed: i64,
    },
    /// The Secret is what the agent wrote itself.
    #[error("nothing changed since the last report")]
    Unchanged,
}

/// The decision about one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the server writes `plan-state`.
    pub stateful: bool,
    /// What to do.
    pub run: Run,
    /// `plan-state` and `plan-revision` are to be written before anything is executed.
    pub take: bool,
    /// This very plan failed before.
    pub was_failed: bool,
    /// Attempt number for instructions.
    pub attempt: i64,
    /// A forced first run starts from a blank `applied-checksum`.
    pub blank_applied: bool,
}

/// Decides about one pass.
pub fn decide(observed: &Observed, memory: &Memory) -> Decision {
    let failures = number(observed.data, key::FAILURE_COUNT).unwrap_or(0);
    let has_failures = observed.data.get(key::FAILURE_COUNT).is_some_and(|raw| !raw.is_empty());
    let attempt = if has_failures { failures.saturating_add(1) } else { 1 };
    match text(observed.data, key::PLAN_STATE) {
        "" => by_checksum(observed, memory, failures, attempt),
        plan_state => by_state(observed, plan_state, attempt),
    }
}

fn by_state(observed: &Observed, plan_state: &str, attempt: i64) -> Decision {
    let decision = |run, take, attempt| Decision {
        stateful: true,
        run,
        take,
        was_failed: false,
        attempt,
        blank_applied: false,
    };
    match plan_state {
        state::PENDING => {
            let revision = increment(observed.data.get(key::PLAN_REVISION));
            decision(Run::Begin(identity(observed, revision_trigger(&revision))), true, 1)
        }
        state::IN_PROGRESS => {
            let revision = observed.data.get(key::PLAN_REVISION).map_or(&[][..], Vec::as_slice);
            decision(
                resume(identity(observed, revision_trigger(revision)), observed.recorded),
                false,
                attempt,
            )
        }
        terminal => decision(Run::Skip(Reason::Terminal(terminal.to_owned())), false, attempt),
    }
}

fn by_checksum(observed: &Observed, memory: &Memory, failures: i64, attempt: i64) -> Decision {
    let data = observed.data;
    let first = !memory.has_run_once;
    let is_applied = text(data, key::APPLIED_CHECKSUM) == observed.checksum;
    let was_failed = failures != 0 && text(data, key::FAILED_CHECKSUM) == observed.checksum;
    let decision = |run: Run| {
        let blank_applied = first && run.executes();
        Decision { stateful: false, run, take: false, was_failed, attempt, blank_applied }
    };

    let resumed = || resume(identity(observed, checksum_trigger(data)), observed.recorded);
    if observed.recorded.is_some_and(|recorded| !recorded.reported)
        && let taken_up @ Run::Resume(_) = resumed()
    {
        return decision(taken_up);
    }
    if was_failed {
        let limit = number(data, key::MAX_FAILURES).unwrap_or(-1);
        if limit != -1 && failures >= limit {
            return decision(Run::Skip(Reason::TooManyFailures { failures, limit }));
        }
        let last = Stamp::parse(text(data, key::LAST_APPLY_TIME));
        if let Some(elapsed) = last.and_then(|last| observed.now.since(last))
            && (1..=COOL_DOWN).contains(&elapsed)
        {
            return decision(Run::Skip(Reason::CoolDown { elapsed }));
        }
        return decision(if first || !is_applied { resumed() } else { Run::Skip(Reason::Applied) });
    }
    if memory.last_written != 0 && memory.last_written == observed.version {
        return decision(Run::Skip(Reason::Unchanged));
    }
    if !is_applied {
        return decision(resumed());
    }
    if !first {
        return decision(Run::Skip(Reason::Applied));
    }
    let completed_here = observed.recorded.is_some_and(|recorded| {
        recorded.succeeded == Some(true)
            && recorded.identity.source == observed.uid
            && recorded.identity.checksum == observed.checksum
    });
    decision(if completed_here && !observed.force_on_start { Run::Files } else { resumed() })
}

fn identity(observed: &Observed, trigger: String) -> Identity {
    Identity { source: observed.uid.to_owned(), checksum: observed.checksum.to_owned(), trigger }
}

fn revision_trigger(revision: &[u8]) -> String {
    format!("revision {}", String::from_utf8_lossy(revision))
}

/// Each report changes at least one counter, so the trigger differs once the report has arrived.
fn checksum_trigger(data: &Data) -> String {
    let facts = [
        key::APPLIED_CHECKSUM,
        key::FAILED_CHECKSUM,
        key::FAILURE_COUNT,
        key::SUCCESS_COUNT,
        key::LAST_APPLY_TIME,
    ]
    .map(|name| text(data, name));
    format!("state {}", sha256_hex(facts.join("\n").as_bytes()))
}

/// One more than a decimal counter; what is no number counts as none.
pub fn increment(count: Option<&Vec<u8>>) -> Vec<u8> {
    let count = count.and_then(|raw| std::str::from_utf8(raw).ok()?.parse::<i64>().ok());
    count.unwrap_or(0).saturating_add(1).to_string().into_bytes()
}

/// Text of a key, empty if absent or not UTF-8.
pub fn text<'a>(data: &'a Data, name: &str) -> &'a str {
    data.get(name).and_then(|raw| std::str::from_utf8(raw).ok()).unwrap_or_default()
}

fn number(data: &Data, name: &str) -> Option<i64> {
    text(data, name).parse().ok()
}

/// Reads `probe-period-seconds`: a duration whose last unit, seconds, is left out. Kept within bounds
/// that neither spin nor fall asleep.
fn probe_period(raw: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(raw).ok()?;
    let period = remuda_base::duration::nanos(&format!("{text}s"))?.max(0).unsigned_abs();
    Some(Duration::from_nanos(period).clamp(Duration::from_secs(1), Duration::from_secs(3600)))
}

#[cfg(test)]
mod tests;
