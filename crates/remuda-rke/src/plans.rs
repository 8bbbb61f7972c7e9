//! Writes to plan Secrets.
//!
//! Agents, the planner and the controllers here all write them, each its own keys. So every write is a patch
//! of what differs, on condition that the Secret is as it was seen.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::Patch};
use remuda_planner::input::PlanSecret;
use serde_json::{Map, Value, json};

use crate::{Error, shared::Rke};

impl Rke {
    /// Makes `after` of `before`, which was seen in `version`, and tells the new version. Nothing is written, and
    /// `None` told, if nothing differs. A Secret that changed meanwhile is a conflict.
    pub(crate) async fn write_plan(
        &self,
        namespace: &str,
        version: &str,
        before: &PlanSecret,
        after: &PlanSecret,
    ) -> Result<Option<String>, Error> {
        let Some(mut patch) = patch(before, after) else {
            return Ok(None);
        };
        patch["metadata"]["resourceVersion"] = json!(version);
        let api: Api<Secret> = self.api(namespace);
        let written = api.patch(&before.name, &self.params(), &Patch::Merge(patch)).await;
        let written = written.map_err(Error::api("write", format!("Secret {namespace}/{}", before.name)))?;
        Ok(written.resource_version())
    }
}

/// The merge patch that makes `after` of `before`.
pub(crate) fn patch(before: &PlanSecret, after: &PlanSecret) -> Option<Value> {
    let text = |value: &String| json!(value);
    let labels = changed(&before.labels, &after.labels, text);
    let annotations = changed(&before.annotations, &after.annotations, text);
    let data = changed(&before.data, &after.data, |value| json!(BASE64_STANDARD.encode(value)));
    if labels.is_empty() && annotations.is_empty() && data.is_empty() {
        return None;
    }
    let mut patch = json!({"metadata": {}});
    for (key, value) in [("labels", labels), ("annotations", annotations)] {
        if !value.is_empty() {
            patch["metadata"][key] = Value::Object(value);
        }
    }
    if !data.is_empty() {
        patch["data"] = Value::Object(data);
    }
    Some(patch)
}

fn changed<T: PartialEq>(
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
    encode: impl Fn(&T) -> Value,
) -> Map<String, Value> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let new = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    gone.chain(new.map(|(key, value)| (key.clone(), encode(value)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_holds_what_differs_and_nothing_else() {
        let mut before = PlanSecret::default();
        before.labels.insert("l".into(), "1".into());
        before.annotations.insert("a".into(), "1".into());
        before.data.insert("plan".into(), b"x".to_vec());
        before.data.insert("probe-statuses".into(), b"{}".to_vec());
        assert_eq!(patch(&before, &before), None);
        let mut after = before.clone();
        after.labels.remove("l");
        after.data.insert("plan".into(), b"y".to_vec());
        after.data.remove("probe-statuses");
        let expected = json!({
            "metadata": {"labels": {"l": null}},
            "data": {"plan": "eQ==", "probe-statuses": null},
        });
        assert_eq!(patch(&before, &after), Some(expected));
    }
}
