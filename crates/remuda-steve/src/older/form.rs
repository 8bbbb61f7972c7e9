//! An object of the Kubernetes API in the form of the older one: one level, ids instead of names, a state.

use remuda_base::calendar::rfc3339;
use remuda_names::rancher::annotation::{CREATOR_ID, DESCRIPTION, NAME};
use serde_json::{Map, Value, json};

use crate::state::{State, seconds};

/// What a form is made of.
pub(super) struct Form<'a> {
    /// Name of the schema.
    pub(super) id: &'static str,
    /// Fields of the status are fields of the form.
    pub(super) status_on_top: bool,
    /// Its name is what it is shown as.
    pub(super) is_called_by_display_name: bool,
    pub(super) object: &'a Value,
    pub(super) state: &'a State,
    /// Seconds.
    pub(super) created: Option<i64>,
}

/// Fields that name another object, without `Name`, are ids here.
const REFERENCES: &[&str] = &["cluster", "user", "globalRole", "roleTemplate", "group", "project"];

/// Fields every form has, which the object's own do not take.
const OWN: &[&str] = &[
    "id",
    "type",
    "baseType",
    "links",
    "actions",
    "state",
    "transitioning",
    "transitioningMessage",
    "labels",
    "annotations",
    "created",
    "createdTS",
    "uuid",
    "creatorId",
];

pub(super) fn form(of: &Form<'_>) -> Value {
    let object = of.object;
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let mut form = Map::new();
    spread(&mut form, &object["spec"]);
    if of.status_on_top {
        spread(&mut form, &object["status"]);
    } else if object["status"].is_object() {
        form.insert("status".to_owned(), object["status"].clone());
    }
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    let creator = annotations.remove(CREATOR_ID).unwrap_or_default();
    let said_name = annotations.remove(NAME);
    if let Some(description) = annotations.remove(DESCRIPTION) {
        form.insert("description".to_owned(), description);
    }
    let shown = if of.is_called_by_display_name { form.remove("displayName") } else { said_name };
    let shown = shown.filter(|name| name.as_str().is_some_and(|name| !name.is_empty()));
    let (namespace, name) = (text("namespace"), text("name"));
    let id = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}:{name}") };
    if !namespace.is_empty() {
        form.insert("namespaceId".to_owned(), namespace.into());
    }
    let transitioning = if of.state.error {
        "error"
    } else if of.state.transitioning {
        "yes"
    } else {
        "no"
    };
    let own = json!({
        "id": id, "type": of.id, "baseType": of.id, "name": shown.unwrap_or_else(|| name.into()),
        "links": {}, "actions": {}, "uuid": metadata["uid"], "creatorId": creator,
        "state": of.state.name, "transitioning": transitioning, "transitioningMessage": of.state.message,
        "labels": metadata.get("labels").filter(|labels| labels.is_object()).cloned().unwrap_or_else(|| json!({})),
        "annotations": annotations, "created": of.created.map(rfc3339),
        "createdTS": of.created.map(|seconds| seconds.saturating_mul(1000)),
    });
    if let Value::Object(own) = own {
        form.extend(own);
    }
    if let Some(removed) = seconds(&metadata["deletionTimestamp"]) {
        form.insert("removed".to_owned(), rfc3339(removed).into());
        form.insert("removedTS".to_owned(), removed.saturating_mul(1000).into());
    }
    Value::Object(form)
}

/// Fields of a part of the object, without what is only written.
fn spread(form: &mut Map<String, Value>, part: &Value) {
    for (field, value) in part.as_object().into_iter().flatten() {
        if is_secret(field) || OWN.contains(&field.as_str()) {
            continue;
        }
        let reference = field.strip_suffix("Name").filter(|stem| REFERENCES.contains(stem));
        let field = reference.map_or_else(|| field.clone(), |stem| format!("{stem}Id"));
        form.insert(field, value.clone());
    }
}

/// Fields that are given and never shown.
fn is_secret(field: &str) -> bool {
    let field = field.to_lowercase();
    ["token", "password", "secret"].iter().any(|end| field.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(object: &Value, status_on_top: bool, is_called_by_display_name: bool) -> Value {
        let state = State::active();
        let (id, created) = ("cluster", Some(1_767_225_600));
        form(&Form { id, status_on_top, is_called_by_display_name, object, state: &state, created })
    }

    #[test]
    fn an_object_has_one_level() {
        let object = json!({
            "metadata": {
                "name": "c-1", "uid": "u", "labels": {"a": "b"},
                "annotations": {"field.cattle.io/creatorId": "u-ann", "field.cattle.io/description": "mine", "x": "y"},
            },
            "spec": {"displayName": "demo", "clusterName": "c-2", "serviceAccountToken": "hidden", "id": "hostile",
                     "links": {"self": "https://evil"}},
            "status": {"nodeCount": 3, "apiSecret": "hidden", "type": "hostile"},
        });
        let form = of(&object, true, true);
        assert_eq!(
            (&form["id"], &form["name"], &form["type"]),
            (&json!("c-1"), &json!("demo"), &json!("cluster"))
        );
        assert_eq!((&form["clusterId"], &form["nodeCount"]), (&json!("c-2"), &json!(3)));
        assert_eq!((&form["creatorId"], &form["description"]), (&json!("u-ann"), &json!("mine")));
        assert_eq!(form["annotations"], json!({"x": "y"}));
        assert_eq!(
            (&form["created"], &form["createdTS"]),
            (&json!("2026-01-01T00:00:00Z"), &json!(1_767_225_600_000_i64))
        );
        assert_eq!(form["links"], json!({}));
        assert!(!form.to_string().contains("hidden"), "{form}");
        let apart = of(&object, false, false);
        assert_eq!((&apart["name"], &apart["status"]["nodeCount"]), (&json!("c-1"), &json!(3)));
    }

    #[test]
    fn what_leaves_says_since_when() {
        let object = json!({"metadata": {"name": "n", "namespace": "c-1", "deletionTimestamp": "2026-01-01T00:00:01Z"}});
        let form = of(&object, true, false);
        assert_eq!((&form["id"], &form["removedTS"]), (&json!("c-1:n"), &json!(1_767_225_601_000_i64)));
        assert_eq!(form["namespaceId"], "c-1");
        for hostile in [json!(null), json!([]), json!({"metadata": 1, "spec": "x", "status": [1]})] {
            assert_eq!(of(&hostile, true, true)["id"], "");
        }
    }
}
