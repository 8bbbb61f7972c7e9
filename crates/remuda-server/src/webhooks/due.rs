//! What is to be told, by what is so and what was told before: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use remuda_base::hex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fact::{Fact, Facts, Subject, Topic};

/// What is kept of something that was told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Mark {
    /// Of the message.
    pub(super) id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) cluster: String,
}

/// By the notes of their subjects.
pub(super) type Told = BTreeMap<String, Mark>;

/// Since when this server knows that something is broken.
pub(super) type FirstSeen = BTreeMap<Subject, Timestamp>;

/// What one webhook asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Tells messages of one webhook from those of all others.
    pub(super) uid: &'a str,
    pub(super) topics: &'a BTreeSet<Topic>,
    pub(super) after: Duration,
}

/// A message, and what is noted once it is delivered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) body: Value,
    pub(super) change: NoteChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoteChange {
    Put(String, Mark),
    Remove(String),
}

impl NoteChange {
    pub(super) fn apply(self, told: &mut Told) {
        match self {
            NoteChange::Put(note, mark) => drop(told.insert(note, mark)),
            NoteChange::Remove(note) => drop(told.remove(&note)),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Due {
    /// In the order they are sent.
    pub(super) messages: Vec<Message>,
    /// Noted without a message: the webhook does not subscribe to the topic.
    pub(super) silent: Vec<NoteChange>,
    /// When something will have been broken long enough.
    pub(super) next: Option<Timestamp>,
}

/// Notes when each broken subject was first seen to be so, and forgets those that are well.
pub(super) fn observe(seen: &mut FirstSeen, facts: &Facts, now: Timestamp) {
    seen.retain(|subject, _| facts.contains_key(subject));
    for subject in facts.keys().filter(|subject| subject.topic == Topic::Broken) {
        seen.entry(subject.clone()).or_insert(now);
    }
}

/// What to tell now. `server` is where people find more.
pub(super) fn due(
    wanted: &Wanted<'_>,
    facts: &Facts,
    told: &Told,
    seen: &FirstSeen,
    server: &str,
    now: Timestamp,
) -> Due {
    let mut due = Due::default();
    for (note, mark) in told {
        let subject = Subject::parse(note);
        let still = subject.as_ref().is_some_and(|subject| facts.contains_key(subject));
        if still {
            continue;
        }
        let change = NoteChange::Remove(note.clone());
        match subject
            .filter(|subject| subject.topic == Topic::Broken && wanted.topics.contains(&Topic::Fixed))
        {
            Some(subject) => due.messages.push(fixed(subject, mark, change, server, now)),
            None => due.silent.push(change),
        }
    }
    for (subject, fact) in facts {
        let note = subject.note();
        let is_told = told.get(&note).is_some_and(|mark| mark.detail == fact.detail);
        let is_wanted = wanted.topics.contains(&subject.topic);
        // What is broken is noted without a subscription, too: otherwise `fixed` could not be told later.
        let is_noted = is_wanted || subject.topic == Topic::Broken && wanted.topics.contains(&Topic::Fixed);
        if is_told || !is_noted {
            continue;
        }
        if let Some(until) = seen.get(subject).and_then(|seen| seen.checked_add(wanted.after).ok())
            && until > now
        {
            due.next = Some(due.next.map_or(until, |next| next.min(until)));
            continue;
        }
        let since = fact.since.or_else(|| seen.get(subject).copied());
        let id = identity(wanted.uid, &note, &fact.detail, since);
        let mark = Mark { id: id.clone(), detail: fact.detail.clone(), cluster: fact.cluster.clone() };
        let change = NoteChange::Put(note, mark);
        if is_wanted {
            let body = body(subject, fact, server, since.unwrap_or(now));
            due.messages.push(Message { id, body, change });
        } else {
            due.silent.push(change);
        }
    }
    due
}

/// A message has the same id on every server and at every try.
fn identity(uid: &str, note: &str, detail: &str, since: Option<Timestamp>) -> String {
    let since = since.map(|since| since.to_string()).unwrap_or_default();
    let text = [uid, note, detail, &since].join("\n");
    format!("msg_{}", &hex(digest(&SHA256, text.as_bytes()))[..32])
}

fn fixed(subject: Subject, mark: &Mark, change: NoteChange, server: &str, now: Timestamp) -> Message {
    let id = format!("{}_fixed", mark.id);
    let fact = Fact { cluster: mark.cluster.clone(), ..Fact::default() };
    let mut body = body(&Subject { topic: Topic::Fixed, ..subject }, &fact, server, now);
    body["data"]["fixes"] = json!(mark.id);
    body["data"]["message"] = json!("it is well again, or gone");
    Message { id, body, change }
}

fn body(subject: &Subject, fact: &Fact, server: &str, at: Timestamp) -> Value {
    let Subject { topic, kind, namespace, name } = subject;
    let mut data = json!({
        "server": server, "kind": kind, "namespace": namespace, "name": name, "cluster": fact.cluster,
        "reason": fact.reason, "message": fact.message,
    });
    match topic {
        Topic::Expiring => data["expires"] = json!(fact.detail),
        Topic::UpdateAvailable => data["version"] = json!(fact.detail),
        Topic::Broken | Topic::Fixed => {}
    }
    json!({"type": format!("{kind}.{}", topic.as_str()), "timestamp": at.to_string(), "data": data})
}

#[cfg(test)]
mod tests;
