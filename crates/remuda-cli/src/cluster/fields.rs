//! Fields of machine configurations, checked before anything is created: one that is dropped would be a machine of
//! another size.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use remuda_names::rancher::group;
use serde_json::{Map, Value, json};

use super::create::{driver_of, is_coming};
use crate::{failure::Failure, near, object::Object, session::Session};

/// Where objects come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// Values are text, and take the type of their field.
    Flags,
    /// Values have types of their own.
    File,
}

/// The objects with the fields of machine configurations as their drivers take them. A driver the server says
/// nothing about is left to it.
pub(super) async fn fit(session: &Session, objects: &[Object], given: Given) -> Result<Vec<Object>, Failure> {
    let mut known: BTreeMap<String, Option<Value>> = BTreeMap::new();
    let mut fitted = objects.to_vec();
    for object in fitted.iter_mut().filter(|object| object.group() == group::MACHINE_CONFIG) {
        let kind = object.kind().to_owned();
        if !known.contains_key(&kind) {
            known.insert(kind.clone(), schema(session, object).await?);
        }
        if let Some(schema) = &known[&kind] {
            fit_one(object, schema, given)?;
        }
    }
    Ok(fitted)
}

/// Longer than a driver takes that needs no download.
const COMING: Duration = Duration::from_secs(10);

/// The kinds of a driver come a moment after it is put into use, as all do after a server has started.
async fn schema(session: &Session, config: &Object) -> Result<Option<Value>, Failure> {
    let began = Instant::now();
    loop {
        let found = published(session, config.kind()).await;
        if found.is_some() || began.elapsed() >= COMING || !is_coming(session, &driver_of(config)).await? {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What the server publishes about a kind.
async fn published(session: &Session, kind: &str) -> Option<Value> {
    let path = format!("/openapi/v3/apis/{}/v1", group::MACHINE_CONFIG);
    let request = http::Request::get(path).body(Vec::new()).ok()?;
    let mut document: Value = session.client.request(request).await.ok()?;
    let is_it = |schema: &Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.into_iter().flatten().any(|named| named["kind"] == kind)
    };
    let schemas = document["components"]["schemas"].as_object_mut()?;
    schemas.values_mut().find(|schema| is_it(schema)).map(Value::take)
}

fn fit_one(config: &mut Object, schema: &Value, given: Given) -> Result<(), Failure> {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    if properties.is_empty() || schema["x-kubernetes-preserve-unknown-fields"] == true {
        return Ok(());
    }
    let kind = config.kind().to_owned();
    let Some(fields) = config.0.as_object_mut() else { return Ok(()) };
    for (name, value) in fields.iter_mut().filter(|(name, _)| !COMMON.contains(&name.as_str())) {
        let Some(property) = properties.get(name) else {
            let known = properties.keys().map(String::as_str).filter(|name| !COMMON.contains(name));
            let list = format!("kubectl explain {}s", kind.to_lowercase());
            return Err(
                Failure::invalid(format!("{kind} has no field {name}")).hint(near::hint(name, known, &list))
            );
        };
        if given == Given::Flags {
            *value = typed(value, property);
        }
        if let Some(wanted) = unfit(value, property) {
            return Err(Failure::invalid(format!("field {name} of {kind} takes {wanted}, not {value}")));
        }
    }
    Ok(())
}

/// Fields every object has.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A value from the command line as its field takes it, if it can be that.
fn typed(value: &Value, property: &Value) -> Value {
    match (value, property["type"].as_str()) {
        (Value::Bool(flag), Some("string")) => json!(flag.to_string()),
        (Value::String(text), Some("integer")) => {
            text.parse::<i64>().map_or(json!(text), |number| json!(number))
        }
        (Value::String(text), Some("array")) if text.is_empty() => json!([]),
        (Value::String(text), Some("array")) => text.split(',').map(str::trim).collect(),
        (value, _) => value.clone(),
    }
}

/// What a field takes, if the value is none of that. Deeper fields are the server's business.
fn unfit(value: &Value, property: &Value) -> Option<&'static str> {
    if value.is_null() && property["nullable"] == true {
        return None;
    }
    let (fits, wanted) = match property["type"].as_str()? {
        "string" => (value.is_string(), "text"),
        "boolean" => (value.is_boolean(), "true or false"),
        "integer" => (value.is_i64() || value.is_u64(), "a whole number"),
        "number" => (value.is_number(), "a number"),
        "array" => (value.is_array(), "a list"),
        "object" => (value.is_object(), "an object"),
        _ => return None,
    };
    (!fits).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(fields: Value, given: Given) -> Result<Value, Failure> {
        let schema = json!({"properties": {
            "metadata": {"type": "object"}, "size": {"type": "string"}, "ipv6": {"type": "boolean"},
            "disk": {"type": "integer"}, "tags": {"type": "array", "nullable": true}, "common": {"type": "object"},
        }});
        let mut config = json!({"kind": "DemoConfig", "apiVersion": "x/v1", "metadata": {"name": "a"}});
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mut object = Object(config);
        fit_one(&mut object, &schema, given)?;
        object.0.as_object_mut().unwrap().retain(|name, _| !COMMON.contains(&name.as_str()));
        Ok(object.0)
    }

    #[test]
    fn flags_take_the_type_of_their_field() {
        let given = json!({"size": true, "ipv6": true, "disk": "20", "tags": "a, b"});
        let expected = json!({"size": "true", "ipv6": true, "disk": 20, "tags": ["a", "b"]});
        assert_eq!(fitted(given, Given::Flags), Ok(expected));
        assert_eq!(fitted(json!({"tags": ""}), Given::Flags), Ok(json!({"tags": []})));
        let file = json!({"tags": null, "common": {"any": 1}});
        assert_eq!(fitted(file.clone(), Given::File), Ok(file));
    }

    #[test]
    fn what_a_driver_does_not_take_is_refused_with_what_was_probably_meant() {
        let refused = |fields: Value, given| {
            let failure = fitted(fields, given).unwrap_err();
            (failure.message, failure.hint)
        };
        let (message, hint) = refused(json!({"sise": "big"}), Given::Flags);
        assert_eq!(message, "DemoConfig has no field sise");
        assert_eq!(hint.as_deref(), Some("did you mean size?"));
        let (message, hint) = refused(json!({"colour": "red"}), Given::Flags);
        assert_eq!(message, "DemoConfig has no field colour");
        assert_eq!(hint.as_deref(), Some("kubectl explain democonfigs shows what there is"));
        for (fields, given, expected) in [
            (
                json!({"ipv6": "yes"}),
                Given::Flags,
                "field ipv6 of DemoConfig takes true or false, not \"yes\"",
            ),
            (
                json!({"disk": "big"}),
                Given::Flags,
                "field disk of DemoConfig takes a whole number, not \"big\"",
            ),
            (json!({"size": true}), Given::File, "field size of DemoConfig takes text, not true"),
            (json!({"tags": "a"}), Given::File, "field tags of DemoConfig takes a list, not \"a\""),
        ] {
            assert_eq!(refused(fields, given), (expected.to_owned(), None));
        }
    }
}
