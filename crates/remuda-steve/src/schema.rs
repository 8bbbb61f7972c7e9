//! Schemas: the kinds of an API with what the caller may do with them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    ext::Ext,
    kind::Kind,
    preferences,
    rights::Sheet,
    show::{Base, collection},
    visit::Visit,
};

/// Types that are no kinds of the Kubernetes API: id, plural, methods of objects and of the collection.
const OWN: &[(&str, &str, &[&str], &[&str])] = &[
    ("schema", "schemas", &["GET"], &["GET"]),
    ("count", "counts", &["GET"], &["GET"]),
    ("subscribe", "subscribe", &[], &["GET"]),
    ("ext.cattle.io.selfuser", "ext.cattle.io.selfusers", &[], &["POST"]),
];

/// The schema of a kind; nothing if it is not for the caller.
fn of_kind(visit: &Visit, sheet: &Sheet, kind: &Kind) -> Option<Value> {
    let (object, collection) = visit.methods(sheet, kind);
    if object.is_empty() && collection.is_empty() {
        return None;
    }
    let mut schema = schema(&visit.base, &kind.id, &kind.plural, &object, &collection);
    schema["attributes"] = kind.attributes();
    Some(schema)
}

fn schema(base: &Base, id: &str, plural: &str, object: &[&str], collection: &[&str]) -> Value {
    let root = base.root();
    json!({
        "id": id, "type": "schema", "pluralName": plural, "description": "",
        "links": {"self": format!("{root}/schemas/{id}"), "collection": format!("{root}/{plural}")},
        "resourceMethods": object, "collectionMethods": collection, "resourceFields": null,
        "resourceActions": {}, "collectionActions": {}, "attributes": {},
    })
}

/// All schemas of the caller, by id.
pub(crate) fn all(visit: &Visit) -> BTreeMap<String, Value> {
    let sheet = visit.rights.sheet();
    let ext = Ext::ALL.into_iter().filter(|_| visit.is_management()).map(Ext::schema);
    let preferences = visit.is_management().then_some(preferences::SCHEMA);
    let own = OWN.iter().copied().chain(ext).chain(preferences).map(|(id, plural, object, collection)| {
        (id.to_owned(), schema(&visit.base, id, plural, object, collection))
    });
    let kinds = visit.catalogue.all();
    let kinds = kinds.filter_map(|kind| Some((kind.id.clone(), of_kind(visit, &sheet, kind)?)));
    kinds.chain(own).collect()
}

/// `/v1/schemas`.
pub(crate) fn list(visit: &Visit, revision: &str) -> Value {
    let mut answer = collection(&visit.base, "schema", "/schemas");
    let data: Vec<Value> = all(visit).into_values().collect();
    answer["revision"] = revision.into();
    answer["count"] = data.len().into();
    answer["data"] = data.into();
    answer
}

/// `/v1/schemas/<id>`, by id or plural.
pub(crate) fn one(visit: &Visit, name: &str) -> Option<Value> {
    let id = visit.catalogue.find(name).map_or_else(|| name.to_lowercase(), |kind| kind.id.clone());
    all(visit).remove(&id)
}

/// `/v1`: a link for each type.
pub(crate) fn root(visit: &Visit) -> Value {
    let mut links = json!({"self": visit.base.root(), "schemas": format!("{}/schemas", visit.base.root())});
    for (id, schema) in all(visit) {
        links[id] = schema["links"]["collection"].clone();
    }
    json!({
        "type": "collection", "resourceType": "apiRoot", "links": {"self": visit.base.root()}, "actions": {},
        "data": [{"id": "v1", "type": "apiRoot", "links": links, "apiVersion": {"version": "v1"}}],
    })
}
