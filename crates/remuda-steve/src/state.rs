//! The state of an object in one word, as Rancher's clients show it, and beside it its cause as a code.
//!
//! Stages are asked in order, and the first that knows a state wins; deletion outranks them all. What follows from the
//! passing of time alone is told beforehand ([`Timeline`]), so that a row needs no second look at its object.

mod capi;
mod conditions;
mod workload;

use jiff::Timestamp;
use remuda_names::{
    capi::group::CORE as CAPI,
    list_api::state::IN_PROGRESS,
    rancher::{annotation, condition, group::MANAGEMENT},
};
use serde_json::{Value, json};

pub(crate) use self::conditions::{Condition, flags};

/// How an object is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) error: bool,
    pub(crate) transitioning: bool,
    pub(crate) message: String,
    pub(crate) cause: Option<Cause>,
}

/// Why it is so, where the object says it as a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// The state now, and what becomes of it by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Timeline {
    pub(crate) first: State,
    /// From this second on it is another, if the object does not change before.
    pub(crate) later: Option<(i64, State)>,
}

/// A cattle.io object without conditions is new for so long.
const NEW_SECONDS: i64 = 5;
/// A deletion that takes longer is an error.
const REMOVAL_SECONDS: i64 = 300;

impl State {
    pub(crate) fn active() -> Self {
        Self::named("active")
    }

    fn named(name: &str) -> Self {
        Self { name: name.to_lowercase(), ..Self::default() }
    }

    fn moving(name: &str, message: &str) -> Self {
        Self { transitioning: true, message: message.to_owned(), ..Self::named(name) }
    }

    fn failed(name: &str, message: &str) -> Self {
        Self { error: true, message: message.to_owned(), ..Self::named(name) }
    }

    /// With the condition it was read from as its cause.
    fn because(mut self, condition: &Condition<'_>) -> Self {
        let code = if condition.reason.is_empty() { condition.kind } else { condition.reason };
        self.cause = Some(Cause { code: code.to_owned(), message: condition.message.to_owned() });
        self
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({
            "name": self.name, "error": self.error, "transitioning": self.transitioning, "message": self.message,
        })
    }
}

impl Cause {
    pub(crate) fn to_value(&self) -> Value {
        json!({"code": self.code, "message": self.message})
    }
}

impl Timeline {
    pub(crate) fn at(&self, now: i64) -> &State {
        match &self.later {
            Some((from, later)) if now >= *from => later,
            _ => &self.first,
        }
    }

    /// Of an object of this API group and kind.
    pub(crate) fn of(group: &str, kind: &str, object: &Value) -> Self {
        let metadata = &object["metadata"];
        if let Some(since) = seconds(&metadata["deletionTimestamp"]) {
            let first = removing(object);
            let late = State { error: true, ..first.clone() };
            return Self { first, later: Some((since + REMOVAL_SECONDS, late)) };
        }
        let settled = settled(group, kind, object);
        let conditions = object["status"]["conditions"].as_array();
        let is_new = is_cattle(group) && settled.name == "active" && conditions.is_some_and(Vec::is_empty);
        match seconds(&metadata["creationTimestamp"]).filter(|_| is_new) {
            Some(made) => {
                let first = State::moving("initializing", "");
                Self { first, later: Some((made + NEW_SECONDS, settled)) }
            }
            None => Self { first: settled, later: None },
        }
    }
}

fn is_cattle(group: &str) -> bool {
    group == "cattle.io" || group.ends_with(".cattle.io")
}

/// Seconds of a timestamp in an object.
pub(crate) fn seconds(value: &Value) -> Option<i64> {
    Some(value.as_str()?.parse::<Timestamp>().ok()?.as_second())
}

fn removing(object: &Value) -> State {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let first = finalizers.and_then(|list| list.first()).and_then(Value::as_str);
    let message = match first {
        Some("foregroundDeletion") => "waiting on object cleanup".to_owned(),
        Some(finalizer) => format!("waiting on {finalizer}"),
        None => String::new(),
    };
    let mut state = State::moving("removing", &message);
    let code = first.map_or("Deleting", |_| "Finalizer");
    state.cause = Some(Cause { code: code.to_owned(), message });
    state
}

/// The state of an object that is not being deleted.
fn settled(group: &str, kind: &str, object: &Value) -> State {
    let conditions = Condition::all(object);
    let state = stages(group, kind, object, &conditions);
    with_failure(state, object)
}

fn stages(group: &str, kind: &str, object: &Value, conditions: &[Condition<'_>]) -> State {
    if group == CAPI
        && let Some(state) = capi::state(kind, object, conditions)
    {
        return state;
    }
    // What was switched off is no failure, whatever its conditions say of not being on.
    if is_driver(group, kind)
        && let Some(state) = active_flag(object).filter(|state| state.name != "active")
    {
        return state;
    }
    if group == MANAGEMENT && kind == "Node" {
        return node(object, conditions);
    }
    if group == MANAGEMENT
        && kind == "Cluster"
        && let Some(state) = waiting_for_agent(object, conditions)
    {
        return state;
    }
    own_summary(object)
        .or_else(|| workload::state(group, kind, object, conditions))
        .or_else(|| conditions::state(conditions))
        .or_else(|| active_flag(object))
        .or_else(|| phase(object))
        .or_else(|| lag(object))
        .unwrap_or_else(State::active)
}

/// `status.display` or `status.summary`, which say it all.
fn own_summary(object: &Value) -> Option<State> {
    let summary = ["display", "summary"].iter().find_map(|field| {
        let found = object["status"].get(field)?;
        found["state"].as_str().filter(|state| !state.is_empty())?;
        Some(found)
    })?;
    Some(State {
        error: summary["error"].as_bool().unwrap_or_default(),
        transitioning: summary["transitioning"].as_bool().unwrap_or_default(),
        message: summary["message"].as_str().unwrap_or_default().to_owned(),
        ..State::named(summary["state"].as_str()?)
    })
}

fn active_flag(object: &Value) -> Option<State> {
    object["spec"]["active"].as_bool().map(|active| State::named(if active { "active" } else { "inactive" }))
}

/// A node of a cluster: what is wrong with it, then whether it takes Pods.
fn node(object: &Value, conditions: &[Condition<'_>]) -> State {
    let is_cordoned = object["spec"]["internalNodeSpec"]["unschedulable"] == true;
    let is_drained = conditions.iter().any(|known| known.is(condition::DRAINED, "True"));
    let word = match (is_cordoned, is_drained) {
        (true, true) => "drained",
        (true, false) => "cordoned",
        (false, _) => "active",
    };
    conditions::state(conditions).unwrap_or_else(|| State::named(word))
}

/// A cluster that is imported waits for its agent until that has been connected once, whatever its conditions say.
fn waiting_for_agent(object: &Value, conditions: &[Condition<'_>]) -> Option<State> {
    let is = |kind: &str| conditions.iter().any(|known| known.is(kind, "True"));
    let is_made_here = object["metadata"]["annotations"][annotation::ADMINISTRATED] == "true";
    let is_local = object["spec"]["internal"] == true;
    let has_driver = object["status"]["driver"].as_str().is_some_and(|driver| !driver.is_empty());
    // The agent was deployed when it has been connected, and has been since.
    let was_there = is(condition::AGENT_DEPLOYED) || is(condition::CONNECTED) || has_driver;
    if was_there || is_made_here || is_local {
        return None;
    }
    let why = conditions.iter().find(|known| known.kind == condition::CONNECTED);
    let state = State::moving("pending", why.map_or("", |why| why.message));
    Some(match why {
        Some(why) => state.because(why),
        None => state,
    })
}

/// Drivers are switched on and off; their condition `Active` is False in both an error and in what was asked for.
fn is_driver(group: &str, kind: &str) -> bool {
    group == MANAGEMENT && matches!(kind, "NodeDriver" | "KontainerDriver")
}

fn phase(object: &Value) -> Option<State> {
    let phase = object["status"]["phase"].as_str().filter(|phase| !phase.is_empty())?;
    let mut state = State::named(phase);
    state.error = matches!(phase, "Failed" | "Error" | "Lost");
    state.transitioning = matches!(phase, "Pending" | "Provisioning" | "Terminating" | "Deleting");
    Some(state)
}

/// The controller of the kind has not seen the newest spec yet.
fn lag(object: &Value) -> Option<State> {
    let seen = object["status"]["observedGeneration"].as_i64()?;
    let made = object["metadata"]["generation"].as_i64()?;
    (seen < made).then(|| State::moving(IN_PROGRESS, ""))
}

/// What drivers say of a server they could not make: a class, and the error.
fn with_failure(mut state: State, object: &Value) -> State {
    let text = |field: &str| object["status"][field].as_str().filter(|text| !text.is_empty());
    let code = text("failureClass").or_else(|| text("failureReason"));
    if let Some(code) = code {
        let message = text("failureMessage").unwrap_or(&state.message).to_owned();
        state.cause = Some(Cause { code: code.to_owned(), message });
    } else if !state.error && !state.transitioning {
        state.cause = None;
    }
    state
}

#[cfg(test)]
mod tests;
