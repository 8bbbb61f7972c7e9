//! What a plan Secret says about its node: what was ordered, what came of it, what the probes say.

use std::{collections::BTreeMap, io::Read};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use remuda_names::rancher::{annotation, label};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::object::{self, Object};

/// Keys in the data of a plan Secret.
mod key {
    pub(super) const PLAN: &str = "plan";
    pub(super) const STATE: &str = "plan-state";
    pub(super) const APPLIED: &str = "applied-checksum";
    pub(super) const FAILED: &str = "failed-checksum";
    pub(super) const FAILURES: &str = "failure-count";
    pub(super) const FAILED_OUTPUT: &str = "failed-output";
    pub(super) const LAST_APPLY: &str = "last-apply-time";
    pub(super) const PROBES: &str = "probe-statuses";
    /// Under this name our node agent saves why a plan failed, beside the output of instructions.
    pub(super) const ERROR_OUTPUT: &str = "remuda-agent-error";
}

/// Output is text for people; nobody reads more of it here.
const MAX_OUTPUT: u64 = 4 * 1024 * 1024;

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
        Sha256::digest(self.data(key::PLAN)).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn failures(self) -> u64 {
        self.text(key::FAILURES).parse().unwrap_or_default()
    }

    pub(crate) fn is_failed(self) -> bool {
        self.is_delivered()
            && match self.text(key::STATE).as_str() {
                "" => self.failures() > 0 && self.text(key::FAILED) == self.checksum(),
                state => state == "failed",
            }
    }

    pub(crate) fn is_applied(self) -> bool {
        self.is_delivered()
            && match self.text(key::STATE).as_str() {
                "" => self.text(key::APPLIED) == self.checksum(),
                state => state == "succeeded",
            }
    }

    /// The agent has written something at some time.
    pub(crate) fn has_agent(self) -> bool {
        [key::APPLIED, key::FAILED, key::PROBES].iter().any(|key| !self.data(key).is_empty())
            || matches!(self.text(key::STATE).as_str(), "in-progress" | "succeeded" | "failed")
    }

    pub(crate) fn delivered_at(self) -> Option<Timestamp> {
        object::time(self.0.annotation(annotation::PLAN_LAST_UPDATED))
    }

    pub(crate) fn last_apply(self) -> String {
        self.text(key::LAST_APPLY)
    }

    pub(crate) fn is_init(self) -> bool {
        self.0.label(label::INIT_NODE) == "true"
    }

    pub(crate) fn probes_passed(self) -> bool {
        !self.0.annotation(annotation::PLAN_PROBES_PASSED).is_empty()
    }

    /// What the failed run wrote, by instruction; why it failed comes first, without a name.
    pub(crate) fn failed_output(self) -> Vec<(String, String)> {
        let mut outputs = unpack(&self.data(key::FAILED_OUTPUT));
        let reason = outputs.remove(key::ERROR_OUTPUT);
        let reason = reason.into_iter().map(|text| (String::new(), text));
        reason.chain(outputs).filter(|(_, text)| !text.trim().is_empty()).collect()
    }

    fn plan(self) -> Value {
        serde_json::from_slice(&self.data(key::PLAN)).unwrap_or_default()
    }

    /// Image of the installer, which says the version too.
    pub(crate) fn installer(self) -> Option<String> {
        let plan = self.plan();
        let instructions = plan.get("instructions")?.as_array()?;
        let install = instructions.iter().find(|instruction| instruction["name"] == "install")?;
        Some(install.get("image")?.as_str()?.to_owned())
    }

    /// Probes that do not pass, by name. None if no probe has run yet.
    pub(crate) fn sick_probes(self) -> Option<Vec<SickProbe>> {
        let statuses: BTreeMap<String, Value> = serde_json::from_slice(&self.data(key::PROBES)).ok()?;
        let plan = self.plan();
        let url =
            |name: &str| plan.get("probes")?.get(name)?.pointer("/httpGet/url")?.as_str().map(str::to_owned);
        let sick = statuses.iter().filter(|(_, status)| status["healthy"] != true);
        let sick = sick.map(|(name, status)| SickProbe {
            name: name.clone(),
            failures: status["failureCount"].as_i64().unwrap_or_default(),
            url: url(name),
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

/// Compressed JSON of names and outputs in base64.
fn unpack(bytes: &[u8]) -> BTreeMap<String, String> {
    let mut text = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(bytes).take(MAX_OUTPUT);
    if bytes.is_empty() || decoder.read_to_end(&mut text).is_err() {
        return BTreeMap::new();
    }
    let outputs: BTreeMap<String, Option<String>> = serde_json::from_slice(&text).unwrap_or_default();
    let decoded = outputs.into_iter().filter_map(|(name, output)| {
        let bytes = BASE64_STANDARD.decode(output?).ok()?;
        Some((name, String::from_utf8_lossy(&bytes).into_owned()))
    });
    decoded.collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    pub(crate) fn pack(outputs: &[(&str, &str)]) -> String {
        let map: BTreeMap<_, _> =
            outputs.iter().map(|(name, text)| (*name, BASE64_STANDARD.encode(text))).collect();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&serde_json::to_vec(&map).unwrap()).unwrap();
        BASE64_STANDARD.encode(encoder.finish().unwrap())
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
