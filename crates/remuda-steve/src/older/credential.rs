//! Cloud credentials: Secrets whose keys name a driver and a field of its credential.

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_door::Refusal;
use remuda_names::rancher::{
    annotation::{CREATOR_ID, DESCRIPTION, NAME},
    group::{MANAGEMENT, PROVISIONING},
    name::GLOBAL_DATA,
};
use serde_json::{Map, Value, json};

use super::text;
use crate::{
    answer::invalid,
    visit::{Source, Visit},
};

/// Of the name of a configuration: `digitaloceancredentialConfig`.
pub(crate) const CONFIG: &str = "credentialConfig";
/// On what was made by clients of the older API.
const CREATOR: (&str, &str) = ("cattle.io/creator", "norman");

/// The configuration an object is of: driver's name and ending, as its keys begin.
pub(crate) fn driver_of(object: &Value) -> Option<&str> {
    let keys = object["data"].as_object()?.keys();
    let mut configs = keys.filter_map(|key| Some(key.split_once('-')?.0));
    configs.find(|config| config.strip_suffix(CONFIG).is_some_and(|driver| !driver.is_empty()))
}

/// A configuration in a body: its name and its fields.
type Config<'a> = (&'a str, &'a Map<String, Value>);

/// The configuration of a body. Clients send others as `null`.
fn config(given: &Map<String, Value>) -> Result<Option<Config<'_>>, Refusal> {
    let mut found = None;
    for (field, value) in given.iter().filter(|(field, _)| field.ends_with(CONFIG)) {
        let Value::Object(fields) = value else {
            if value.is_null() {
                continue;
            }
            return Err(invalid(format!("{field}: is not an object")));
        };
        let driver = field.trim_end_matches(CONFIG);
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if driver.is_empty() || !driver.bytes().all(is_name) {
            return Err(invalid(format!("{field}: does not begin with the name of a driver")));
        }
        if found.replace((field.as_str(), fields)).is_some() {
            return Err(invalid("there is more than one configuration"));
        }
    }
    Ok(found)
}

/// Values as the Secret has them.
fn values(config: &str, fields: &Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let mut values = Map::new();
    for (field, value) in fields {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Array(_) | Value::Object(_) => {
                return Err(invalid(format!("{config}.{field}: is not a text")));
            }
        };
        values.insert(format!("{config}-{field}"), BASE64_STANDARD.encode(text).into());
    }
    Ok(values)
}

/// The Secret a body asks for.
pub(super) fn object(given: &Map<String, Value>, user: &str) -> Result<Value, Refusal> {
    let Some((config, fields)) = config(given)? else {
        return Err(invalid(format!("…{CONFIG}: is missing")).because("MissingRequired"));
    };
    let mut annotations = json!({CREATOR_ID: user});
    for (field, annotation) in [("name", NAME), ("description", DESCRIPTION)] {
        match text(given, field)? {
            said if said.is_empty() => {}
            said => annotations[annotation] = said.into(),
        }
    }
    Ok(json!({
        "metadata": {
            "generateName": "cc-", "namespace": GLOBAL_DATA, "annotations": annotations,
            "labels": {CREATOR.0: CREATOR.1},
        },
        "type": "Opaque", "data": values(config, fields)?,
    }))
}

/// What an update changes: of the credential's own configuration, and no other's.
pub(super) fn patch(given: &Map<String, Value>, object: &Value) -> Result<Value, Refusal> {
    let mut patch = json!({});
    if let Some((config, fields)) = config(given)? {
        if driver_of(object) != Some(config) {
            return Err(invalid(format!("{config}: the credential is of another driver")));
        }
        patch["data"] = Value::Object(values(config, fields)?);
    }
    for (field, annotation) in [("name", NAME), ("description", DESCRIPTION)] {
        if given.contains_key(field) {
            patch["metadata"]["annotations"][annotation] = text(given, field)?.into();
        }
    }
    Ok(patch)
}

/// Puts in what is shown of a credential: fields that its driver calls public. The object itself is always there.
pub(super) async fn fill(visit: &Visit, object: &Value, form: &mut Value) {
    let Some(config) = driver_of(object) else { return };
    let schema = format!("{}credentialconfig", config.trim_end_matches(CONFIG));
    let public = public_fields(visit, &schema).await;
    let mut shown = Map::new();
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        let field = key.strip_prefix(config).and_then(|rest| rest.strip_prefix('-'));
        let Some(field) = field.filter(|field| public.iter().any(|name| name == field)) else { continue };
        let text = value.as_str().and_then(|value| BASE64_STANDARD.decode(value).ok());
        if let Some(text) = text.and_then(|bytes| String::from_utf8(bytes).ok()) {
            shown.insert(field.to_owned(), text.into());
        }
    }
    form[config] = Value::Object(shown);
    // Where a Secret has no state, a credential is one that can be used.
    form["state"] = "active".into();
    if form["labels"].as_object().is_none_or(Map::is_empty) {
        form["labels"] = json!({CREATOR.0: CREATOR.1});
    }
}

/// Fields that the schema of a driver's credentials does not call passwords; none of a driver that is not known.
async fn public_fields(visit: &Visit, schema: &str) -> Vec<String> {
    let kind = visit.catalogue.of(&format!("{MANAGEMENT}/"), "DynamicSchema");
    let (Some(kind), Source::Indexes(indexes)) = (kind, &visit.source) else { return Vec::new() };
    let Ok(index) = indexes.get(kind, true).await else { return Vec::new() };
    let Some(row) = index.row("", schema) else { return Vec::new() };
    let fields = row.object()["spec"]["resourceFields"].clone();
    let public = fields.as_object().into_iter().flatten().filter(|(_, field)| field["type"] != "password");
    public.map(|(name, _)| name.clone()).collect()
}

/// Whether a cluster or one of its pools names a credential.
pub(super) async fn is_used(visit: &Visit, name: &str) -> Result<bool, Refusal> {
    let kind = visit.catalogue.of(&format!("{PROVISIONING}/"), "Cluster");
    let (Some(kind), Source::Indexes(indexes)) = (kind, &visit.source) else { return Ok(false) };
    // Of all clusters: one that the caller does not see would lose its machines as well.
    let (rows, _) = indexes.get(kind, true).await?.rows("");
    let wanted = format!("{GLOBAL_DATA}:{name}");
    Ok(rows.iter().any(|row| names(&row.object()["spec"], &wanted)))
}

fn names(spec: &Value, wanted: &str) -> bool {
    let is = |of: &Value| of["cloudCredentialSecretName"] == wanted;
    is(spec) || spec["rkeConfig"]["machinePools"].as_array().into_iter().flatten().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_body_becomes_a_secret() {
        let body = given(json!({
            "type": "cloudCredential", "name": "do", "description": "", "links": null, "amazonec2credentialConfig": null,
            "digitaloceancredentialConfig": {"accessToken": "t", "port": 5, "none": null},
        }));
        let made = object(&body, "u-ann").unwrap();
        assert_eq!(
            made["data"],
            json!({"digitaloceancredentialConfig-accessToken": "dA==", "digitaloceancredentialConfig-port": "NQ=="})
        );
        assert_eq!(made["metadata"]["annotations"], json!({CREATOR_ID: "u-ann", NAME: "do"}));
        let stored = json!({"data": {"digitaloceancredentialConfig-accessToken": "dA=="}});
        assert_eq!(driver_of(&stored), Some("digitaloceancredentialConfig"));
        let change = given(json!({"digitaloceancredentialConfig": {"accessToken": "u"}, "name": "other"}));
        let patch = patch(&change, &stored).unwrap();
        assert_eq!(patch["data"]["digitaloceancredentialConfig-accessToken"], "dQ==");
        assert_eq!(patch["metadata"]["annotations"], json!({NAME: "other"}));
    }

    #[test]
    fn bad_bodies_are_refused_with_the_field() {
        let told = |body: Value| object(&given(body), "u").unwrap_err();
        assert_eq!(told(json!({})).reason, "MissingRequired");
        for (body, field) in [
            (json!({"xcredentialConfig": 7}), "xcredentialConfig:"),
            (json!({"xcredentialConfig": {"a": [1]}}), "xcredentialConfig.a:"),
            (json!({"credentialConfig": {}}), "credentialConfig:"),
            (json!({"A/BcredentialConfig": {}}), "A/BcredentialConfig:"),
            (json!({"name": 1, "xcredentialConfig": {}}), "name:"),
            (json!({"xcredentialConfig": {}, "ycredentialConfig": {}}), "there is more than one"),
        ] {
            let refusal = told(body);
            assert!(refusal.message.starts_with(field) && refusal.code == 422, "{}", refusal.message);
        }
        let other = json!({"data": {"ycredentialConfig-a": ""}});
        assert!(patch(&given(json!({"xcredentialConfig": {}})), &other).is_err());
        for odd in [json!({}), json!({"data": {"a": "", "credentialConfig-x": "", "x-y": ""}})] {
            assert_eq!(driver_of(&odd), None, "{odd}");
        }
    }

    #[test]
    fn a_credential_is_used_by_clusters_and_pools() {
        let wanted = "cattle-global-data:cc-a";
        assert!(names(&json!({"cloudCredentialSecretName": wanted}), wanted));
        let pool = json!({"rkeConfig": {"machinePools": [{}, {"cloudCredentialSecretName": wanted}]}});
        assert!(names(&pool, wanted));
        assert!(!names(&pool, "cattle-global-data:cc-b") && !names(&json!(null), wanted));
    }
}
