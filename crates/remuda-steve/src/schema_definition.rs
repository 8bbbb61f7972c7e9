//! Fields of a kind, as forms and editors of Rancher's dashboard read them: `/v1/schemaDefinitions/<id>`.
//!
//! They are made of what the API itself says of its kinds (OpenAPI), asked as the caller: of this server, or of a cluster,
//! which may say anything. Objects without a name of their own are called by where they are.

use std::collections::BTreeMap;

use http::Request;
use remuda_door::Refusal;
use serde_json::{Map, Value, json};

use crate::{answer::refused, kind::Kind, query::encoded, visit::Visit};

/// Definitions in one answer.
const MOST: usize = 2_000;
/// Objects in objects.
const DEEPEST: usize = 32;
/// Where names of other schemas begin.
const REFERENCE: &str = "#/components/schemas/";

/// `/v1/schemaDefinitions/<id>`. A caller who may do nothing with a kind is not told of it, as for its schema.
pub(crate) async fn one(visit: &Visit, name: &str) -> Result<Value, Refusal> {
    let kind = visit.kind(name)?;
    let (object, collection) = visit.methods(&visit.rights.sheet(), &kind);
    if object.is_empty() && collection.is_empty() {
        return Err(crate::visit::unknown(name));
    }
    let path = match kind.group.as_str() {
        "" => format!("/openapi/v3/api/{}", encoded(&kind.version)),
        group => format!("/openapi/v3/apis/{}/{}", encoded(group), encoded(&kind.version)),
    };
    let request = Request::get(path).body(Vec::new()).map_err(|_| Refusal::not_found())?;
    let document: Value = visit.client.request(request).await.map_err(refused)?;
    let schemas = document["components"]["schemas"].as_object();
    let (own, definitions) =
        schemas.and_then(|schemas| described(schemas, &kind)).ok_or_else(Refusal::not_found)?;
    Ok(json!({
        "id": kind.id, "type": "schemaDefinition",
        "links": {"self": format!("{}/schemaDefinitions/{}", visit.base.root(), kind.id)},
        "definitionType": own, "definitions": definitions,
    }))
}

/// The definition of a kind by name, with all it consists of.
fn described(schemas: &Map<String, Value>, kind: &Kind) -> Option<(String, BTreeMap<String, Value>)> {
    let is_kind = |schema: &Value| {
        let said = schema["x-kubernetes-group-version-kind"].as_array();
        said.into_iter().flatten().any(|said| {
            said["group"].as_str().unwrap_or_default() == kind.group
                && said["version"] == kind.version.as_str()
                && said["kind"] == kind.kind.as_str()
        })
    };
    let (own, schema) = schemas.iter().find(|(_, schema)| is_kind(schema))?;
    let mut reading = Reading { schemas, definitions: BTreeMap::new() };
    reading.define(own, schema, 0);
    Some((own.clone(), reading.definitions))
}

struct Reading<'a> {
    schemas: &'a Map<String, Value>,
    definitions: BTreeMap<String, Value>,
}

impl Reading<'_> {
    /// Adds an object, once.
    fn define(&mut self, name: &str, schema: &Value, depth: usize) {
        if self.definitions.contains_key(name) || self.definitions.len() >= MOST || depth > DEEPEST {
            return;
        }
        self.definitions.insert(name.to_owned(), Value::Null);
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields = Map::new();
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let mut shown = self.field(&format!("{name}.{field}"), property, depth + 1);
            shown["description"] = property["description"].as_str().unwrap_or_default().into();
            shown["required"] = required.contains(&field.as_str()).into();
            fields.insert(field.clone(), shown);
        }
        let definition = json!({
            "type": name, "description": schema["description"].as_str().unwrap_or_default(),
            "resourceFields": fields,
        });
        self.definitions.insert(name.to_owned(), definition);
    }

    /// The type of a field, and of what is in it.
    fn field(&mut self, name: &str, schema: &Value, depth: usize) -> Value {
        // A reference with a description beside it comes in a list of one.
        let schema = match schema["allOf"].as_array().map(Vec::as_slice) {
            Some([only]) if schema["properties"].is_null() => only,
            _ => schema,
        };
        if let Some(of) = schema["$ref"].as_str().and_then(|of| of.strip_prefix(REFERENCE)) {
            let schemas = self.schemas;
            return match schemas.get(of) {
                Some(schema) if schema["properties"].is_object() => {
                    self.define(of, schema, depth);
                    json!({"type": of})
                }
                // A name for a plain value: a time, a quantity.
                Some(schema) => json!({"type": plain(schema)}),
                None => json!({"type": "string"}),
            };
        }
        let inner = |kind: &str, reading: &mut Self, of: &Value| {
            let of = reading.field(name, of, depth + 1);
            json!({"type": kind, "subtype": of["type"]})
        };
        match (&schema["items"], &schema["additionalProperties"], &schema["properties"]) {
            (of @ Value::Object(_), ..) if depth < DEEPEST => inner("array", self, of),
            (_, of @ Value::Object(_), _) if depth < DEEPEST => inner("map", self, of),
            (.., Value::Object(_)) => {
                self.define(name, schema, depth);
                json!({"type": name})
            }
            _ => json!({"type": plain(schema)}),
        }
    }
}

fn plain(schema: &Value) -> &str {
    match schema["type"].as_str().unwrap_or_default() {
        "integer" | "number" => "int",
        "object" => "map",
        kind @ ("string" | "boolean" | "array") => kind,
        // Anything: an amount or a port, which are written as texts.
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_types_and_objects_names() {
        let kind = Kind { group: "g".into(), version: "v1".into(), kind: "Thing".into(), ..Kind::default() };
        let schemas = json!({
            "g.v1.Thing": {
                "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Thing"}],
                "description": "A thing.", "required": ["spec"],
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "description": "Of it."},
                    "spec": {"properties": {
                        "size": {"type": "integer"}, "on": {"type": "boolean"}, "port": {"x-kubernetes-int-or-string": true},
                        "names": {"items": {"type": "string"}, "type": "array"},
                        "pools": {"items": {"properties": {"n": {"type": "string"}}}, "type": "array"},
                        "labels": {"additionalProperties": {"type": "string"}, "type": "object"},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "again": {"$ref": "#/components/schemas/g.v1.Thing"},
                        "gone": {"$ref": "#/components/schemas/Nothing"},
                    }},
                },
            },
            "Meta": {"properties": {"at": {"$ref": "#/components/schemas/Time"}}},
            "Time": {"type": "string", "format": "date-time"},
        });
        let (own, all) = described(schemas.as_object().unwrap(), &kind).unwrap();
        assert_eq!(own, "g.v1.Thing");
        let fields = &all["g.v1.Thing"]["resourceFields"];
        assert_eq!(fields["metadata"], json!({"type": "Meta", "description": "Of it.", "required": false}));
        assert_eq!(
            (&fields["spec"]["type"], &fields["spec"]["required"]),
            (&json!("g.v1.Thing.spec"), &json!(true))
        );
        let spec = &all["g.v1.Thing.spec"]["resourceFields"];
        let types: Vec<String> = ["size", "on", "port", "names", "pools", "labels", "free", "again", "gone"]
            .iter()
            .map(|field| match spec[field]["subtype"].as_str() {
                Some(of) => format!("{} of {of}", spec[field]["type"].as_str().unwrap()),
                None => spec[field]["type"].as_str().unwrap().to_owned(),
            })
            .collect();
        assert_eq!(types[..4], ["int", "boolean", "string", "array of string"]);
        assert_eq!(types[4..6], ["array of g.v1.Thing.spec.pools", "map of string"]);
        assert_eq!(types[6..], ["map", "g.v1.Thing", "string"]);
        assert_eq!(all["Meta"]["resourceFields"]["at"]["type"], "string");
        assert!(all.contains_key("g.v1.Thing.spec.pools"));
    }

    #[test]
    fn a_hostile_document_ends() {
        let kind = Kind { version: "v1".into(), kind: "A".into(), ..Kind::default() };
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"items": {"additionalProperties": deep}});
        }
        let mut nested = json!({});
        for _ in 0..60 {
            nested = json!({"properties": {"a": nested}});
        }
        let schemas = json!({"A": {
            "x-kubernetes-group-version-kind": [{"version": "v1", "kind": "A"}],
            "properties": {"deep": deep, "nested": nested, "odd": 7, "list": {"items": [1]}}, "required": "x",
        }});
        let (_, all) = described(schemas.as_object().unwrap(), &kind).unwrap();
        assert!(all.len() <= DEEPEST + 2);
        assert!(described(&Map::new(), &kind).is_none());
    }
}
