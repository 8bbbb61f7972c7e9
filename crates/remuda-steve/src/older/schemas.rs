//! Schemas of kinds below `/v3`, and of what drivers and their credentials are configured with. Rancher's dashboard takes a
//! server that has none for another product, and makes its forms of the latter.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Response, StatusCode};
use remuda_door::{Answer, Body, Call, Handler, Refusal};
use remuda_names::{list_api::path, rancher::group::MANAGEMENT};
use serde_json::{Map, Value, json};

use super::{Older, where_schemas_are};
use crate::{
    answer::{answer, failure},
    api::{Asked, Shared, host_of},
    kind::Kind,
    rights::Sheet,
    settings::refused,
    show::Base,
    visit::{Source, Visit},
};

/// Kinds of other doors: id, methods of an object, methods of the list. Those of which there are only actions are not
/// among them, and clients refuse what is not.
const OTHERS: &[(&str, &[&str], &[&str])] = &[
    ("principal", &[], &["GET"]),
    ("setting", &["GET"], &["GET"]),
    ("token", &["GET", "DELETE"], &["GET", "POST"]),
];

/// Endings of the schemas of drivers.
const OF_DRIVERS: &str = "config";

pub(crate) struct OlderSchemas(pub(crate) Arc<Shared>);

impl Handler for OlderSchemas {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let base = Base { api: format!("https://{}", host_of(&call)) };
            let rest = call.path().strip_prefix(path::SCHEMAS_V3).unwrap_or_default();
            let asked = Asked::new(rest, None, &call.head.headers);
            let found = match self.0.visit(&call, base.clone()).await {
                Ok(visit) => schemas(&visit, &asked).await,
                Err(refusal) => Err(refusal),
            };
            let mut response = match found {
                Ok(value) => answer(&base, StatusCode::OK, &value, asked.is_yaml),
                Err(refusal) => failure(&base, refusal),
            };
            where_schemas_are(&base, &mut response);
            Ok(response)
        })
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        refused(refusal)
    }
}

async fn schemas(visit: &Visit, asked: &Asked) -> Result<Value, Refusal> {
    let own = format!("{}{}", visit.base.api, path::SCHEMAS_V3);
    let mut all: Vec<Value> = OTHERS
        .iter()
        .map(|(id, of_one, of_all)| {
            schema(&visit.base, id, &format!("{}/v3/{id}s", visit.base.api), of_one, of_all)
        })
        .collect();
    let sheet = visit.rights.sheet();
    for older in Older::ALL {
        let Ok(kind) = older.kind(visit) else { continue };
        let (of_one, of_all) = methods(visit, &sheet, older, &kind);
        if of_one.is_empty() && of_all.is_empty() {
            continue;
        }
        let mut schema = schema(&visit.base, older.id(), &older.collection(&visit.base), &of_one, &of_all);
        if older == Older::Driver {
            schema["resourceActions"] = json!({"activate": {}, "deactivate": {}});
        }
        all.push(schema);
    }
    all.extend(of_drivers(visit).await);
    all.sort_by_cached_key(|schema| schema["id"].as_str().unwrap_or_default().to_owned());
    match asked.parts.as_slice() {
        [] => Ok(json!({
            "type": "collection", "resourceType": "schema", "links": {"self": own}, "actions": {}, "data": all,
        })),
        [id] => all
            .into_iter()
            .find(|schema| schema["id"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(id)))
            .ok_or_else(Refusal::not_found),
        _ => Err(Refusal::not_found()),
    }
}

/// Methods of an object and of the list of it, by the caller's rights, of those that are answered here.
pub(super) fn methods(
    visit: &Visit,
    sheet: &Sheet,
    older: Older,
    kind: &Kind,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let (of_one, of_all) = visit.methods(sheet, kind);
    let (one, all): (&[&str], &[&str]) = match older {
        Older::Cluster | Older::Driver => (&["GET"], &["GET"]),
        Older::RegistrationToken => (&["GET", "DELETE"], &["GET", "POST"]),
        Older::Credential => (&["GET", "PUT", "DELETE"], &["GET", "POST"]),
    };
    let keep = |methods: Vec<&'static str>, known: &[&str]| {
        methods.into_iter().filter(|method| known.contains(method)).collect()
    };
    (keep(of_one, one), keep(of_all, all))
}

fn schema(base: &Base, id: &str, collection: &str, of_one: &[&str], of_all: &[&str]) -> Value {
    json!({
        "id": id, "type": "schema", "baseType": "schema", "pluralName": format!("{id}s"),
        "links": {"self": format!("{}{}/{id}", base.api, path::SCHEMAS_V3), "collection": collection},
        "version": {"group": MANAGEMENT, "version": "v3", "path": "/v3"}, "resourceFields": {},
        "resourceMethods": of_one, "collectionMethods": of_all, "resourceActions": {}, "collectionActions": {},
    })
}

/// What active drivers and their credentials are configured with. These are no secrets: everybody who makes machines
/// fills them in.
async fn of_drivers(visit: &Visit) -> Vec<Value> {
    let kind = visit.catalogue.of(&format!("{MANAGEMENT}/"), "DynamicSchema");
    let (Some(kind), Source::Indexes(indexes)) = (kind, &visit.source) else { return Vec::new() };
    // One that cannot be had now is missing, and no reason to answer nothing.
    let Ok(index) = indexes.get(kind, true).await else { return Vec::new() };
    let (rows, _) = index.rows("");
    let rows = rows.iter().filter(|row| row.name().ends_with(OF_DRIVERS));
    rows.map(|row| {
        let mut schema = schema(&visit.base, row.name(), "", &[], &[]);
        if let Some(links) = schema["links"].as_object_mut() {
            links.remove("collection");
        }
        let fields = row.object()["spec"]["resourceFields"].as_object().cloned().unwrap_or_default();
        let fields: Map<String, Value> =
            fields.into_iter().map(|(name, field)| (name, as_field(&field))).collect();
        schema["resourceFields"] = Value::Object(fields);
        schema
    })
    .collect()
}

/// A field as clients know it: its default is a value, not one for each type there could be.
fn as_field(field: &Value) -> Value {
    let mut shown = json!({});
    for name in ["type", "create", "update", "required", "nullable", "options", "description"] {
        if let Some(value) = field.get(name) {
            shown[name] = value.clone();
        }
    }
    let default = &field["default"];
    shown["default"] = match field["type"].as_str().unwrap_or_default() {
        "boolean" => default["boolValue"].clone(),
        "int" => default["intValue"].clone(),
        kind if kind.starts_with("array") => default["stringSliceValue"].clone(),
        _ => default["stringValue"].clone(),
    };
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_is_the_value_of_its_type() {
        let default =
            json!({"stringValue": "s", "intValue": 3, "boolValue": true, "stringSliceValue": ["a"]});
        for (kind, expected) in [
            ("string", json!("s")),
            ("password", json!("s")),
            ("int", json!(3)),
            ("boolean", json!(true)),
            ("array[string]", json!(["a"])),
        ] {
            let shown =
                as_field(&json!({"type": kind, "default": default, "create": true, "dynamicField": true}));
            assert_eq!(shown, json!({"type": kind, "default": expected, "create": true}));
        }
        assert_eq!(as_field(&json!("hostile")), json!({"default": null}));
    }
}
