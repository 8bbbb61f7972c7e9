//! What a plan Secret says about its node: what was ordered, what came of it, what the probes say.

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use remuda_names::{
    agent::ERROR_OUTPUT,
    rancher::{annotation, label},
};
use remuda_plan::{NodePlan, key, output::Outputs, probe, sha256_hex, state};
use serde_json::Value;

use crate::object::{self, Object};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a>(&'a Object);

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

impl<'a> Plan<'a> {
    pub(crate) fn new(secret: &'a Object) -> Plan<'a> {
        Plan(secret)
    }

    pub(crate) fn secret(self) -> &'a Object {
        self.0
    }

    fn data(self, key: &str) -> Vec<u8> {
        let text = self.0.0.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
        text.and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_default()
    }

    fn text(self, key: &str) -> String {
        String::from_utf8_lossy(&self.data(key)).trim().to_owned()
    }

    /// The planner has ordered something.
    pub(crate) fn is_delivered(self) -> bool {
        !self.data(key::PLAN).is_empty()
    }

    fn checksum(self) -> String {
        sha256_hex(&self.data(key::PLAN))
    }

    pub(crate) fn failures(self) -> u64 {
        self.text(key::FAILURE_COUNT).parse().unwrap_or_default()
    }

    pub(crate) fn is_failed(self) -> bool {
        self.is_delivered()
            && match self.text(key::PLAN_STATE).as_str() {
                "" => self.failures() > 0 && self.text(key::FAILED_CHECKSUM) == self.checksum(),
                found => found == state::FAILED,
            }
    }

    pub(crate) fn is_applied(self) -> bool {
        self.is_delivered()
            && match self.text(key::PLAN_STATE).as_str() {
                "" => self.text(key::APPLIED_CHECKSUM) == self.checksum(),
                found => found == state::SUCCEEDED,
            }
    }

    /// The agent has written something at some time.
    pub(crate) fn has_agent(self) -> bool {
        [key::APPLIED_CHECKSUM, key::FAILED_CHECKSUM, key::PROBE_STATUSES]
            .iter()
            .any(|key| !self.data(key).is_empty())
            || matches!(
                self.text(key::PLAN_STATE).as_str(),
                state::IN_PROGRESS | state::SUCCEEDED | state::FAILED
            )
    }

    pub(crate) fn delivered_at(self) -> Option<Timestamp> {
        object::time(self.0.annotation(annotation::PLAN_LAST_UPDATED))
    }

    pub(crate) fn last_apply(self) -> String {
        self.text(key::LAST_APPLY_TIME)
    }

    pub(crate) fn is_init(self) -> bool {
        self.0.label(label::INIT_NODE) == "true"
    }

    pub(crate) fn probes_passed(self) -> bool {
        !self.0.annotation(annotation::PLAN_PROBES_PASSED).is_empty()
    }

    /// What the failed run wrote, by instruction; why it failed comes first, without a name.
    pub(crate) fn failed_output(self) -> Vec<(String, String)> {
        let packed = self.data(key::FAILED_OUTPUT);
        let mut outputs: Outputs = remuda_plan::output::unpack(&packed).unwrap_or_default();
        let reason = outputs.remove(ERROR_OUTPUT).map(|blob| (String::new(), blob));
        let all = reason.into_iter().chain(outputs);
        let texts = all.map(|(name, blob)| (name, String::from_utf8_lossy(&blob.0).into_owned()));
        texts.filter(|(_, text)| !text.trim().is_empty()).collect()
    }

    fn plan(self) -> NodePlan {
        NodePlan::decode(&self.data(key::PLAN)).unwrap_or_default()
    }

    /// Image of the installer, which says the version too.
    pub(crate) fn installer(self) -> Option<String> {
        let install =
            self.plan().instructions.into_iter().find(|instruction| instruction.name == "install")?;
        Some(install.image).filter(|image| !image.is_empty())
    }

    /// Probes that do not pass, by name. None if no probe has run yet.
    pub(crate) fn sick_probes(self) -> Option<Vec<SickProbe>> {
        let stored = self.data(key::PROBE_STATUSES);
        let statuses = if stored.is_empty() { return None } else { probe::parse(&stored)? };
        let plan = self.plan();
        let url = |name: &str| plan.probes.get(name).map(|probe| probe.http_get.url.clone());
        let sick = statuses.iter().filter(|(_, status)| !status.healthy);
        let sick = sick.map(|(name, status)| SickProbe {
            name: name.clone(),
            failures: status.failure_count,
            url: url(name).filter(|url| !url.is_empty()),
        });
        Some(sick.collect())
    }

    pub(crate) fn drain(self) -> Option<Drain<'a>> {
        let options = self.0.annotation(annotation::DRAIN_OPTIONS);
        if options.is_empty() {
            return None;
        }
        let parsed: Value = serde_json::from_str(options).unwrap_or_default();
        let before = (self.0.annotation(annotation::PRE_DRAIN), "preDrainHooks");
        let after = (self.0.annotation(annotation::POST_DRAIN), "postDrainHooks");
        let mut hooks = Vec::new();
        for (asked, field) in [before, after].into_iter().filter(|(asked, _)| !asked.is_empty()) {
            let names =
                parsed[field].as_array().into_iter().flatten().filter_map(|hook| hook["annotation"].as_str());
            let open = names.filter(|name| !name.is_empty() && self.0.annotation(name) != asked);
            hooks.extend(open.map(str::to_owned));
        }
        let done = self.0.annotation(annotation::DRAIN_DONE) == options;
        Some(Drain { error: self.0.annotation(annotation::DRAIN_ERROR), hooks, done })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

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
            let secret = secret(data);
            let plan = Plan::new(&secret);
            (plan.is_failed(), plan.is_applied())
        };
        assert_eq!(check(&[]), (false, false));
        assert_eq!(check(&[("plan", "{}")]), (false, false));
        assert_eq!(check(&[("plan", "{}"), ("applied-checksum", EMPTY_PLAN_SHA)]), (false, true));
        let failed = [("plan", "{}"), ("failed-checksum", EMPTY_PLAN_SHA), ("failure-count", "2")];
        assert_eq!(check(&failed), (true, false));
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
        let output = Plan::new(&secret).failed_output();
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
        let probes = Plan::new(&secret).sick_probes().unwrap();
        let found: Vec<_> =
            probes.iter().map(|probe| (probe.name.as_str(), probe.failures, probe.url.as_deref())).collect();
        assert_eq!(found, [("etcd", 3, Some("http://localhost:2381/health")), ("new", 0, None)]);
        let none = self::secret(&[("plan", "{}")]);
        assert_eq!(Plan::new(&none).sick_probes(), None);
    }

    #[test]
    fn hooks_that_nobody_answered_are_named() {
        let options = r#"{"enabled":true,"preDrainHooks":[{"annotation":"a.io/x"},{"annotation":"a.io/y"}]}"#;
        let secret = Object(json!({"metadata": {"annotations": {
            "rke.cattle.io/drain-options": options, "rke.cattle.io/pre-drain": options, "a.io/x": options,
        }}}));
        let drain = Plan::new(&secret).drain().unwrap();
        assert_eq!(drain, Drain { error: "", hooks: vec!["a.io/y".to_owned()], done: false });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn hostile_secrets_say_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = BASE64_STANDARD.encode(&bytes);
            let secret = Object(json!({"data": {
                "plan": text, "failed-output": text, "probe-statuses": text, "plan-state": text,
            }, "metadata": {"annotations": {"rke.cattle.io/drain-options": text}}}));
            let plan = Plan::new(&secret);
            let _ = (plan.is_failed(), plan.is_applied(), plan.failed_output(), plan.sick_probes());
            let _ = (plan.installer(), plan.drain(), plan.has_agent());
        }
    }
}
