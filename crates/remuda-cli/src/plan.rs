//! What a plan Secret says about its node: what was ordered, what came of it, what the probes say.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use remuda_distro::Distro;
use remuda_names::{
    agent::ERROR_OUTPUT,
    rancher::{annotation, label},
};
use remuda_plan::{NodePlan, Report, key, output::Outputs, probe, state};
use serde_json::Value;

use crate::object::{self, Object};

/// What a report is made of.
const REPORTED: &[&str] = &[
    key::PLAN,
    key::APPLIED_PLAN,
    key::PLAN_STATE,
    key::FAILED_CHECKSUM,
    key::FAILURE_COUNT,
    key::FAILURE_THRESHOLD,
    key::MAX_FAILURES,
];

/// A plan Secret, read once. The plan itself is not kept: it is large, and full of credentials.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The Secret, without its data.
    pub(crate) secret: Object,
    /// The planner has ordered something.
    pub(crate) delivered: bool,
    pub(crate) failed: bool,
    pub(crate) applied: bool,
    /// The agent has written something at some time.
    pub(crate) has_agent: bool,
    /// How often the plan failed in a row.
    pub(crate) failures: u64,
    /// When the agent ran instructions last, as it writes it.
    pub(crate) last_apply: String,
    /// What the failed run wrote, by instruction; why it failed comes first, without a name.
    pub(crate) failed_output: Vec<(String, String)>,
    /// Image of the installer, which says the version too.
    pub(crate) installer: Option<String>,
    /// Probes that do not pass, by name. None if no probe has run yet.
    pub(crate) sick_probes: Option<Vec<SickProbe>>,
}

/// One probe and how often it failed in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SickProbe {
    pub(crate) name: String,
    pub(crate) failures: i64,
    pub(crate) url: Option<String>,
}

/// A drain that is under way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Drain<'a> {
    pub(crate) error: &'a str,
    /// Annotations somebody else has to set.
    pub(crate) hooks: Vec<String>,
    pub(crate) done: bool,
}

impl Plan {
    pub(crate) fn read(mut secret: Object) -> Plan {
        let data = secret.0.as_object_mut().and_then(|map| map.remove("data")).unwrap_or_default();
        let bytes = |key: &str| {
            let text = data.get(key).and_then(Value::as_str);
            text.and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_default()
        };
        let text = |key: &str| String::from_utf8_lossy(&bytes(key)).trim().to_owned();
        let plan = bytes(key::PLAN);
        let stored: BTreeMap<&str, Vec<u8>> = REPORTED.iter().map(|key| (*key, bytes(key))).collect();
        let report = Report::read(|key| stored.get(key).map(Vec::as_slice).unwrap_or_default());
        let found = text(key::PLAN_STATE);
        let written = [key::APPLIED_CHECKSUM, key::FAILED_CHECKSUM, key::PROBE_STATUSES];
        let taken = matches!(found.as_str(), state::IN_PROGRESS | state::SUCCEEDED | state::FAILED);
        let plan = NodePlan::decode(&plan).unwrap_or_default();
        let install = plan.instructions.iter().find(|instruction| instruction.name == "install");
        Plan {
            delivered: report.delivered,
            failed: report.failed,
            applied: report.applied,
            has_agent: taken || written.iter().any(|key| !bytes(key).is_empty()),
            failures: report.failures.try_into().unwrap_or_default(),
            last_apply: text(key::LAST_APPLY_TIME),
            failed_output: failed_output(&bytes(key::FAILED_OUTPUT)),
            installer: install.map(|install| install.image.clone()).filter(|image| !image.is_empty()),
            sick_probes: sick_probes(&bytes(key::PROBE_STATUSES), &plan),
            secret,
        }
    }

    pub(crate) fn machine(&self) -> &str {
        self.secret.label(label::MACHINE_NAME)
    }

    /// What the machine runs. K3s if the plan does not say.
    pub(crate) fn distro(&self) -> Distro {
        self.installer.as_deref().map_or(Distro::K3s, Distro::of)
    }

    pub(crate) fn delivered_at(&self) -> Option<Timestamp> {
        object::time(self.secret.annotation(annotation::PLAN_LAST_UPDATED))
    }

    pub(crate) fn is_init(&self) -> bool {
        self.secret.label(label::INIT_NODE) == "true"
    }

    pub(crate) fn probes_passed(&self) -> bool {
        !self.secret.annotation(annotation::PLAN_PROBES_PASSED).is_empty()
    }

    /// Applied, and no probe says otherwise.
    pub(crate) fn is_healthy(&self) -> bool {
        self.applied && self.sick_probes.as_ref().is_none_or(Vec::is_empty)
    }

    pub(crate) fn drain(&self) -> Option<Drain<'_>> {
        let options = self.secret.annotation(annotation::DRAIN_OPTIONS);
        if options.is_empty() {
            return None;
        }
        let parsed: Value = serde_json::from_str(options).unwrap_or_default();
        let before = (self.secret.annotation(annotation::PRE_DRAIN), "preDrainHooks");
        let after = (self.secret.annotation(annotation::POST_DRAIN), "postDrainHooks");
        let mut hooks = Vec::new();
        for (asked, field) in [before, after].into_iter().filter(|(asked, _)| !asked.is_empty()) {
            let names =
                parsed[field].as_array().into_iter().flatten().filter_map(|hook| hook["annotation"].as_str());
            let open = names.filter(|name| !name.is_empty() && self.secret.annotation(name) != asked);
            hooks.extend(open.map(str::to_owned));
        }
        let done = self.secret.annotation(annotation::DRAIN_DONE) == options;
        Some(Drain { error: self.secret.annotation(annotation::DRAIN_ERROR), hooks, done })
    }
}

fn failed_output(packed: &[u8]) -> Vec<(String, String)> {
    let mut outputs: Outputs = remuda_plan::output::unpack(packed).unwrap_or_default();
    let reason = outputs.remove(ERROR_OUTPUT).map(|blob| (String::new(), blob));
    let all = reason.into_iter().chain(outputs);
    let texts = all.map(|(name, blob)| (name, String::from_utf8_lossy(&blob.0).into_owned()));
    texts.filter(|(_, text)| !text.trim().is_empty()).collect()
}

fn sick_probes(stored: &[u8], plan: &NodePlan) -> Option<Vec<SickProbe>> {
    let statuses = if stored.is_empty() { return None } else { probe::parse(stored)? };
    let url = |name: &str| plan.probes.get(name).map(|probe| probe.http_get.url.clone());
    let sick = statuses.iter().filter(|(_, status)| !status.healthy);
    let sick = sick.map(|(name, status)| SickProbe {
        name: name.clone(),
        failures: status.failure_count,
        url: url(name).filter(|url| !url.is_empty()),
    });
    Some(sick.collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    pub(crate) fn pack(outputs: &[(&str, &str)]) -> String {
        let blob = |text: &str| remuda_plan::output::Blob(text.as_bytes().to_vec());
        let map: Outputs = outputs.iter().map(|(name, text)| ((*name).to_owned(), blob(text))).collect();
        BASE64_STANDARD.encode(remuda_plan::output::pack(map))
    }

    fn secret(data: &[(&str, &str)]) -> Object {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, text)| (*key, BASE64_STANDARD.encode(text))).collect();
        Object(json!({"data": data}))
    }

    const EMPTY_PLAN_SHA: &str = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    #[test]
    fn both_flows_say_whether_a_plan_failed() {
        let check = |data: &[(&str, &str)]| {
            let plan = Plan::read(secret(data));
            (plan.failed, plan.applied)
        };
        assert_eq!(check(&[]), (false, false));
        assert_eq!(check(&[("plan", "{}")]), (false, false));
        assert_eq!(check(&[("plan", "{}"), ("appliedPlan", "{}")]), (false, true));
        let failed = [("plan", "{}"), ("failed-checksum", EMPTY_PLAN_SHA), ("failure-count", "2")];
        assert_eq!(check(&failed), (true, false));
        // As for the planner: a worker that may fail a few times is not stuck after the first.
        let expected = [
            ("plan", "{}"),
            ("failed-checksum", EMPTY_PLAN_SHA),
            ("failure-count", "1"),
            ("failure-threshold", "5"),
        ];
        assert_eq!(check(&expected), (false, false));
        let older = [("plan", "{}"), ("failed-checksum", "of another plan"), ("failure-count", "2")];
        assert_eq!(check(&older), (false, false));
        assert_eq!(check(&[("plan", "{}"), ("plan-state", "failed")]), (true, false));
        // In this flow the checksum is written for failed plans as well.
        let state = [("plan", "{}"), ("plan-state", "failed"), ("applied-checksum", EMPTY_PLAN_SHA)];
        assert_eq!(check(&state), (true, false));
        assert_eq!(check(&[("plan", "{}"), ("plan-state", "succeeded")]), (false, true));
    }

    #[test]
    fn the_reason_of_a_failure_comes_before_what_instructions_wrote() {
        let mut secret = secret(&[]);
        secret.0["data"]["failed-output"] =
            json!(pack(&[("install", "pulling\n"), ("remuda-agent-error", "exit status 1"), ("quiet", " ")]));
        let output = Plan::read(secret).failed_output;
        let expected =
            [("".to_owned(), "exit status 1".to_owned()), ("install".to_owned(), "pulling\n".to_owned())];
        assert_eq!(output, expected);
    }

    #[test]
    fn sick_probes_have_their_url() {
        let plan =
            json!({"probes": {"etcd": {"httpGet": {"url": "http://localhost:2381/health"}}}}).to_string();
        let secret = secret(&[
            ("plan", &plan),
            ("probe-statuses", r#"{"kubelet":{"healthy":true},"etcd":{"failureCount":3},"new":{}}"#),
        ]);
        let probes = Plan::read(secret).sick_probes.unwrap();
        let found: Vec<_> =
            probes.iter().map(|probe| (probe.name.as_str(), probe.failures, probe.url.as_deref())).collect();
        assert_eq!(found, [("etcd", 3, Some("http://localhost:2381/health")), ("new", 0, None)]);
        assert_eq!(Plan::read(self::secret(&[("plan", "{}")])).sick_probes, None);
    }

    #[test]
    fn hooks_that_nobody_answered_are_named() {
        let options = r#"{"enabled":true,"preDrainHooks":[{"annotation":"a.io/x"},{"annotation":"a.io/y"}]}"#;
        let secret = Object(json!({"metadata": {"annotations": {
            "rke.cattle.io/drain-options": options, "rke.cattle.io/pre-drain": options, "a.io/x": options,
        }}}));
        let plan = Plan::read(secret);
        assert_eq!(plan.drain().unwrap(), Drain { error: "", hooks: vec!["a.io/y".to_owned()], done: false });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn hostile_secrets_say_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = BASE64_STANDARD.encode(&bytes);
            let secret = Object(json!({"data": {
                "plan": text, "failed-output": text, "probe-statuses": text, "plan-state": text,
            }, "metadata": {"annotations": {"rke.cattle.io/drain-options": text}}}));
            let plan = Plan::read(secret);
            prop_assert!(plan.secret.0.get("data").is_none());
            let _ = plan.drain();
        }
    }
}
