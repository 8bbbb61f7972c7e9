//! Faults, and what `why` answers first.

use std::{
    thread,
    time::{Duration, Instant},
};

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::lab::Lab;

/// After the grace an agent has to come back, on a busy host.
pub(crate) const NOTICED: Duration = Duration::from_secs(120);

pub(crate) struct Table<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) lines: Vec<String>,
}

impl Table<'_> {
    fn why(&self, subject: &str) -> Value {
        let (_, text) = self.lab.say(&format!("why {subject} -o json"));
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Waits until `why` gives this cause, and notes the answer.
    #[track_caller]
    pub(crate) fn expect(&mut self, situation: &str, subject: &str, cause: &str) -> Value {
        self.expect_with(situation, subject, cause, &[])
    }

    /// As [`Table::expect`], with words that are to be somewhere in the answer.
    #[track_caller]
    pub(crate) fn expect_with(
        &mut self,
        situation: &str,
        subject: &str,
        cause: &str,
        words: &[&str],
    ) -> Value {
        let began = Instant::now();
        let said = loop {
            let said = self.why(subject);
            let text = said.to_string();
            if said["cause"] == cause && words.iter().all(|word| text.contains(word)) {
                break said;
            }
            assert!(began.elapsed() < NOTICED, "{situation}: {said:#}\n{}", self.lab.evidence());
            thread::sleep(Duration::from_millis(300));
        };
        let next = said["next"][0].as_str();
        assert!(next.is_some_and(|next| !next.is_empty()), "{situation}: nothing to do next: {said:#}");
        let summary = said["summary"].as_str().unwrap_or_default();
        self.lines.push(format!("{situation:44} → {cause}: {summary}"));
        said
    }

    /// Runs the first thing that an answer says to do, which is a command of ours.
    #[track_caller]
    pub(crate) fn follow(&self, said: &Value) {
        let next = said["next"][0].as_str().unwrap();
        let line = next.strip_prefix("remuda ").unwrap_or_else(|| panic!("no command: {next}"));
        let (code, text) = match line.split_once(" -- ") {
            Some((line, words)) => self.lab.say_to(line, &words.split(' ').collect::<Vec<_>>()),
            None => self.lab.say(line),
        };
        assert_eq!(code, 0, "{next}\n{text}");
    }

    #[track_caller]
    pub(crate) fn until_well(&self, subject: &str) {
        self.lab.until(&format!("{subject} is well"), NOTICED, || self.why(subject)["cause"] == "none");
    }
}

/// A process and all below it.
pub(crate) fn signal_tree(root: Pid, signal: Signal) {
    let _ = kill(root, signal);
    let tasks = std::fs::read_dir(format!("/proc/{root}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            signal_tree(Pid::from_raw(child), signal);
        }
    }
}

fn api(lab: &Lab, object: &Value) -> Api<DynamicObject> {
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap()));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(lab.client(), namespace, &resource),
        None => Api::all_with(lab.client(), &resource),
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Creates an object, once its kind is served.
#[track_caller]
pub(crate) fn make(lab: &Lab, object: &Value) {
    let wanted: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    lab.until(&format!("{} is made", name(object)), Duration::from_secs(30), || {
        let made = lab.runtime.block_on(api(lab, object).create(&PostParams::default(), &wanted));
        match made {
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            made => made.map(|_| true).unwrap(),
        }
    });
}

/// Changes an object to what this says.
#[track_caller]
pub(crate) fn patch(lab: &Lab, object: &Value) {
    let patch = Patch::Merge(object);
    lab.runtime.block_on(api(lab, object).patch(name(object), &PatchParams::default(), &patch)).unwrap();
}

#[track_caller]
pub(crate) fn remove(lab: &Lab, object: &Value) {
    lab.runtime.block_on(api(lab, object).delete(name(object), &DeleteParams::default())).unwrap();
}
