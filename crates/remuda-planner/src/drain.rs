//! The exchange of annotations with the drain controller.
//!
//! The planner writes `drain-options`; the controller cordons, runs hooks, drains and answers with
//! `drain-done`. The planner delivers the plan and, when the node is healthy again, writes `uncordon`; the
//! controller uncordons and removes all of them.

use remuda_names::rancher::annotation;
use remuda_plan::json;

use crate::{
    entry::Entry,
    node_plan::NodePlan,
    reason::{DrainStep, Reason},
    spec::DrainOptions,
};

/// Where a drain stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    /// Nothing (more) to do.
    Done,
    /// Write this annotation and wait.
    Write(&'static str, String),
    Pending,
    Error(Reason),
}

/// Before a plan that restarts the distribution is delivered. `alone` is whether the cluster has one machine.
pub(crate) fn drain(entry: &Entry<'_>, desired: &NodePlan, options: &DrainOptions, alone: bool) -> Drain {
    if entry.machine.node.is_none() {
        return Drain::Done;
    }
    let hooks = !options.pre_drain_hooks.is_empty() || !options.post_drain_hooks.is_empty();
    if (!options.enabled || alone) && !hooks {
        return Drain::Done;
    }
    let applied = entry.node.as_ref().and_then(|node| node.applied()).and_then(NodePlan::drain_hash);
    if applied.is_none() || applied == desired.drain_hash() {
        return Drain::Done;
    }
    let text = options_text(options, alone);
    if entry.annotation(annotation::DRAIN_OPTIONS) != text {
        return Drain::Write(annotation::DRAIN_OPTIONS, text);
    }
    if let Some(error) = error(entry, DrainStep::Drain) {
        return error;
    }
    if entry.annotation(annotation::DRAIN_DONE) == text { Drain::Done } else { Drain::Pending }
}

/// After the plan is applied and the node healthy.
pub(crate) fn undrain(entry: &Entry<'_>) -> Drain {
    let options = entry.annotation(annotation::DRAIN_OPTIONS);
    let uncordon = entry.annotation(annotation::UNCORDON);
    if !options.is_empty() && options != uncordon {
        return Drain::Write(annotation::UNCORDON, options.to_owned());
    }
    if let Some(error) = error(entry, DrainStep::Undrain) {
        return error;
    }
    if uncordon.is_empty() { Drain::Done } else { Drain::Pending }
}

fn error(entry: &Entry<'_>, step: DrainStep) -> Option<Drain> {
    let error = entry.annotation(annotation::DRAIN_ERROR);
    // The API or the tunnel to it restarting is to be expected and no news.
    if error.is_empty() || error.contains("error trying to reach service") {
        return None;
    }
    let (machine, error) = (entry.name().to_owned(), error.to_owned());
    Some(Drain::Error(Reason::DrainFailed { machine, step, error }))
}

/// The options as one string with sorted keys; the controller answers with the same string. The only node
/// of a cluster is never drained, but its hooks run.
fn options_text(options: &DrainOptions, alone: bool) -> String {
    let options = DrainOptions { enabled: options.enabled && !alone, ..options.clone() };
    serde_json::to_value(&options).map(|value| json::compact(&value)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        input::{Machine, PlanSecret},
        node_plan::Instruction,
        spec::DrainHook,
    };

    fn plan(hash: &str) -> NodePlan {
        let env = vec![format!("DRAIN_HASH={hash}")];
        let install = Instruction { name: "install".into(), env, ..Instruction::default() };
        NodePlan { instructions: vec![install], ..NodePlan::default() }
    }

    fn machine(annotations: &[(&str, &str)]) -> Machine {
        let mut secret = PlanSecret::default();
        for key in ["plan", "appliedPlan"] {
            secret.data.insert(key.to_owned(), plan("old").encode());
        }
        for (key, value) in annotations {
            secret.annotations.insert((*key).to_owned(), (*value).to_owned());
        }
        Machine { name: "m".into(), node: Some("m".into()), plan_secret: Some(secret), ..Machine::default() }
    }

    fn failed(step: DrainStep, error: &str) -> Reason {
        Reason::DrainFailed { machine: "m".to_owned(), step, error: error.to_owned() }
    }

    const TEXT: &str = "{\"deleteEmptyDirData\":false,\"disableEviction\":false,\"enabled\":true,\"force\":false,\
                        \"gracePeriod\":0,\"skipWaitForDeleteTimeoutSeconds\":0,\"timeout\":120}";

    fn enabled() -> DrainOptions {
        DrainOptions { enabled: true, timeout: 120, ..DrainOptions::default() }
    }

    #[track_caller]
    fn check(annotations: &[(&str, &str)], expected: &Drain) {
        let machine = machine(annotations);
        assert_eq!(&drain(&Entry::new(&machine), &plan("new"), &enabled(), false), expected);
    }

    #[test]
    fn a_drain_runs_from_options_to_done() {
        check(&[], &Drain::Write(annotation::DRAIN_OPTIONS, TEXT.to_owned()));
        check(
            &[(annotation::DRAIN_OPTIONS, "{}")],
            &Drain::Write(annotation::DRAIN_OPTIONS, TEXT.to_owned()),
        );
        check(&[(annotation::DRAIN_OPTIONS, TEXT)], &Drain::Pending);
        check(&[(annotation::DRAIN_OPTIONS, TEXT), (annotation::DRAIN_DONE, TEXT)], &Drain::Done);
        check(
            &[(annotation::DRAIN_OPTIONS, TEXT), (annotation::DRAIN_ERROR, "pdb")],
            &Drain::Error(failed(DrainStep::Drain, "pdb")),
        );
        let blip = "x: error trying to reach service: eof";
        check(&[(annotation::DRAIN_OPTIONS, TEXT), (annotation::DRAIN_ERROR, blip)], &Drain::Pending);
    }

    /// The drain controller answers with these bytes, and servers of other makes write them: zeros are there, what is
    /// absent is not, keys are sorted.
    #[test]
    fn options_are_these_bytes() {
        assert_eq!(options_text(&enabled(), false), TEXT);
        let all = serde_json::json!({
            "enabled": true, "force": true, "ignoreDaemonSets": false, "ignoreErrors": true,
            "deleteEmptyDirData": true, "disableEviction": true, "gracePeriod": -1, "timeout": 120,
            "skipWaitForDeleteTimeoutSeconds": 5,
            "preDrainHooks": [{"annotation": "a"}, {"annotation": ""}], "postDrainHooks": [{"annotation": "b"}],
        });
        let all: DrainOptions = serde_json::from_value(all).unwrap();
        let text = "{\"deleteEmptyDirData\":true,\"disableEviction\":true,\"enabled\":true,\"force\":true,\
                    \"gracePeriod\":-1,\"ignoreDaemonSets\":false,\"ignoreErrors\":true,\
                    \"postDrainHooks\":[{\"annotation\":\"b\"}],\"preDrainHooks\":[{\"annotation\":\"a\"},{}],\
                    \"skipWaitForDeleteTimeoutSeconds\":5,\"timeout\":120}";
        assert_eq!(options_text(&all, false), text);
        let nothing: DrainOptions =
            serde_json::from_value(serde_json::json!({"preDrainHooks": null, "ignoreErrors": false}))
                .unwrap();
        assert_eq!(
            options_text(&nothing, true),
            "{\"deleteEmptyDirData\":false,\"disableEviction\":false,\"enabled\":false,\"force\":false,\
             \"gracePeriod\":0,\"skipWaitForDeleteTimeoutSeconds\":0,\"timeout\":0}"
        );
    }

    #[test]
    fn what_does_not_restart_is_not_drained() {
        let machine = machine(&[]);
        assert_eq!(drain(&Entry::new(&machine), &plan("old"), &enabled(), false), Drain::Done);
        let machine = Machine { node: None, ..machine };
        assert_eq!(drain(&Entry::new(&machine), &plan("new"), &enabled(), false), Drain::Done);
    }

    #[test]
    fn the_only_machine_is_not_drained_but_its_hooks_run() {
        let machine = machine(&[]);
        assert_eq!(drain(&Entry::new(&machine), &plan("new"), &enabled(), true), Drain::Done);
        let hooks = vec![DrainHook { annotation: "demo".into() }];
        let options = DrainOptions { pre_drain_hooks: hooks, ..enabled() };
        match drain(&Entry::new(&machine), &plan("new"), &options, true) {
            Drain::Write(annotation::DRAIN_OPTIONS, text) => {
                assert!(text.contains("\"enabled\":false") && text.contains("{\"annotation\":\"demo\"}"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_uncordon_runs_until_its_annotations_are_gone() {
        let undrained = |annotations: &[(&str, &str)]| undrain(&Entry::new(&machine(annotations)));
        assert_eq!(undrained(&[]), Drain::Done);
        let both = [(annotation::DRAIN_OPTIONS, TEXT), (annotation::UNCORDON, TEXT)];
        assert_eq!(undrained(&both[..1]), Drain::Write(annotation::UNCORDON, TEXT.to_owned()));
        assert_eq!(undrained(&both), Drain::Pending);
        let failed = [both[0], both[1], (annotation::DRAIN_ERROR, "x")];
        assert_eq!(undrained(&failed), Drain::Error(self::failed(DrainStep::Undrain, "x")));
    }
}
