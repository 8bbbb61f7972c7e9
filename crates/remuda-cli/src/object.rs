//! A view of any object: what it says, without trusting that it says anything.
//!
//! Commands show objects of many kinds, some of which no type describes, and must keep every field of those
//! they write back. So an object stays the JSON it is, and absent or misshapen fields read as empty.

use jiff::Timestamp;
use remuda_names::{capi, rancher::group};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Value);

/// A condition, as Cluster API and Rancher both write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition<'a> {
    pub kind: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
    /// When it became what it is.
    pub since: Option<Timestamp>,
}

impl Condition<'_> {
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub fn is_false(&self) -> bool {
        self.status == "False"
    }
}

impl Object {
    /// Text at a JSON pointer, empty if there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer).and_then(Value::as_i64)
    }

    pub fn flag(&self, pointer: &str) -> bool {
        self.0.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn has(&self, pointer: &str) -> bool {
        self.0.pointer(pointer).is_some_and(|value| !value.is_null())
    }

    pub fn list(&self, pointer: &str) -> &[Value] {
        self.0.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn time(&self, pointer: &str) -> Option<Timestamp> {
        time(self.text(pointer))
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub fn group(&self) -> &str {
        self.text("/apiVersion").split_once('/').map_or("", |(group, _)| group)
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub fn created(&self) -> Option<Timestamp> {
        self.time("/metadata/creationTimestamp")
    }

    /// When it was asked to go.
    pub fn deleted(&self) -> Option<Timestamp> {
        self.time("/metadata/deletionTimestamp")
    }

    pub fn is_deleting(&self) -> bool {
        self.has("/metadata/deletionTimestamp")
    }

    fn member(&self, pointer: &str, key: &str) -> Option<&str> {
        self.0.pointer(pointer)?.get(key)?.as_str()
    }

    pub fn label(&self, key: &str) -> &str {
        self.member("/metadata/labels", key).unwrap_or_default()
    }

    pub fn annotation(&self, key: &str) -> &str {
        self.member("/metadata/annotations", key).unwrap_or_default()
    }

    pub fn has_annotation(&self, key: &str) -> bool {
        self.member("/metadata/annotations", key).is_some()
    }

    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let map = self.0.pointer("/metadata/annotations").and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.list("/metadata/finalizers").iter().filter_map(Value::as_str)
    }

    /// Name of the owner of that kind.
    pub fn owner(&self, kind: &str) -> Option<&str> {
        let owners = self.list("/metadata/ownerReferences").iter();
        let mut names =
            owners.filter(|owner| owner["kind"] == kind).filter_map(|owner| owner["name"].as_str());
        names.next()
    }

    pub fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        self.list("/status/conditions").iter().map(|condition| {
            let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
            Condition {
                kind: text("type"),
                status: text("status"),
                reason: text("reason"),
                message: text("message"),
                since: time(text("lastTransitionTime")).or_else(|| time(text("lastUpdateTime"))),
            }
        })
    }

    pub fn condition(&self, kind: &str) -> Option<Condition<'_>> {
        self.conditions().find(|condition| condition.kind == kind)
    }

    pub fn is(&self, condition: &str) -> bool {
        self.condition(condition).is_some_and(|condition| condition.is_true())
    }

    /// The controller has seen the spec as it is now.
    pub fn is_observed(&self) -> bool {
        match (self.number("/metadata/generation"), self.number("/status/observedGeneration")) {
            (Some(generation), Some(observed)) => observed >= generation,
            (generation, _) => generation.is_none(),
        }
    }

    /// Kind, namespace and name, for people. Three kinds are called Cluster.
    pub fn reference(&self) -> String {
        let kind = match (self.kind(), self.group()) {
            ("Cluster", capi::group::CORE) => "CAPI Cluster",
            ("Cluster", group::MANAGEMENT) => "management Cluster",
            ("Cluster", group::PROVISIONING) => "provisioning Cluster",
            (kind, _) => kind,
        };
        match self.namespace() {
            "" => format!("{kind} {}", self.name()),
            namespace => format!("{kind} {namespace}/{}", self.name()),
        }
    }

    /// Without what only the server's bookkeeping needs.
    pub(crate) fn presentable(mut self) -> Object {
        if let Some(metadata) = self.0.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        self
    }
}

/// Times of the API are RFC 3339.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    if text.is_empty() { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn misshapen_objects_read_as_empty_ones() {
        for value in
            [json!(null), json!([]), json!({"metadata": 3, "status": {"conditions": {"a": 1}}}), json!("x")]
        {
            let object = Object(value);
            assert_eq!((object.name(), object.label("a"), object.created()), ("", "", None));
            assert_eq!(object.conditions().count() + object.finalizers().count(), 0);
            assert_eq!(object.owner("Cluster"), None);
        }
    }

    #[test]
    fn a_condition_says_since_when() {
        let object = Object(json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "R", "message": "M",
             "lastTransitionTime": "2026-01-02T03:04:05Z"},
            {"type": "Old", "status": "True", "lastUpdateTime": "2026-01-02T03:04:06Z"},
        ]}}));
        let ready = object.condition("Ready").unwrap();
        assert_eq!((ready.status, ready.reason, ready.message), ("False", "R", "M"));
        assert_eq!(ready.since.unwrap().to_string(), "2026-01-02T03:04:05Z");
        assert!(object.is("Old") && object.condition("Old").unwrap().since.is_some());
        assert!(!object.is("Ready") && !object.is("None"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_text_is_a_time_that_panics(text in ".{0,40}") {
            let _ = time(&text);
        }
    }
}
