//! Objects as the list API shows them, and back into what the Kubernetes API takes.

use remuda_names::rancher::group::MANAGEMENT;
use serde_json::{Map, Value, json};

use crate::{
    kind::Kind,
    rights::Rights,
    row::id,
    state::{Condition, State, flags},
};

/// Where the answers of one API are: all links begin with these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    /// `https://host`, and the path of the cluster if it is another one.
    pub(crate) api: String,
}

impl Base {
    pub(crate) fn root(&self) -> String {
        format!("{}{}", self.api, remuda_names::list_api::path::ROOT)
    }

    pub(crate) fn collection(&self, kind: &Kind) -> String {
        format!("{}/{}", self.root(), kind.plural)
    }

    pub(crate) fn object(&self, kind: &Kind, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(kind), id(namespace, name))
    }

    /// In the Kubernetes API.
    pub(crate) fn view(&self, kind: &Kind, namespace: &str, name: &str) -> String {
        let path = match (kind.group.as_str(), kind.version.as_str()) {
            ("", version) => format!("/api/{version}"),
            (group, version) => format!("/apis/{group}/{version}"),
        };
        let namespaces = match (kind.namespaced, namespace) {
            (true, namespace) if !namespace.is_empty() => format!("/namespaces/{namespace}"),
            _ => String::new(),
        };
        format!("{}{path}{namespaces}/{}/{name}", self.api, kind.resource)
    }
}

/// What is added to an object.
pub(crate) struct Added<'a> {
    pub(crate) state: &'a State,
    pub(crate) fields: Vec<Value>,
    pub(crate) relationships: Vec<Value>,
}

/// An object as it is shown to a caller.
pub(crate) fn shown(base: &Base, kind: &Kind, rights: &Rights, mut object: Value, added: Added<'_>) -> Value {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let own = base.object(kind, &namespace, &name);
    let mut links = Map::new();
    links.insert("self".to_owned(), own.as_str().into());
    for (link, verb) in [("update", "update"), ("patch", "patch"), ("remove", "delete")] {
        if kind.has_verb(verb) && rights.may(verb, kind, &namespace, &name) {
            links.insert(link.to_owned(), own.as_str().into());
        }
    }
    if kind.has_verb("get") && rights.may("get", kind, &namespace, &name) {
        links.insert("view".to_owned(), base.view(kind, &namespace, &name).into());
    }
    let Some(map) = object.as_object_mut() else { return Value::Null };
    if is_setting(kind) && !has_text(map, "value") {
        let default = map.get("default").filter(|default| default.is_string()).cloned();
        map.insert("value".to_owned(), default.unwrap_or_else(|| "".into()));
    }
    // The object's own `type` would be taken for that of the schema.
    if let Some(own_type) = map.remove("type") {
        map.insert("_type".to_owned(), own_type);
    }
    map.insert("id".to_owned(), id(&namespace, &name).into());
    map.insert("type".to_owned(), kind.id.as_str().into());
    map.insert("links".to_owned(), Value::Object(links));
    map.insert("apiVersion".to_owned(), kind.api_version().into());
    map.insert("kind".to_owned(), kind.kind.as_str().into());
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        metadata.remove("managedFields");
        metadata.insert("state".to_owned(), added.state.to_value());
        if let Some(cause) = &added.state.cause {
            metadata.insert("cause".to_owned(), cause.to_value());
        }
        metadata.insert("relationships".to_owned(), added.relationships.into());
        metadata.insert("fields".to_owned(), added.fields.into());
    }
    let conditions = map.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        mark(condition);
    }
    object
}

fn is_setting(kind: &Kind) -> bool {
    (kind.group.as_str(), kind.kind.as_str()) == (MANAGEMENT, "Setting")
}

fn has_text(map: &Map<String, Value>, field: &str) -> bool {
    map.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

/// Says of a condition whether it is an error or moves, and when it was written.
fn mark(condition: &mut Value) {
    if !condition.is_object() {
        return;
    }
    let (error, transitioning) = flags(&Condition::of(condition));
    condition["error"] = error.into();
    condition["transitioning"] = transitioning.into();
    if condition.get("lastUpdateTime").is_none()
        && let Some(at) = condition.get("lastTransitionTime").cloned()
    {
        condition["lastUpdateTime"] = at;
    }
}

/// Takes out what [`shown`] has added, so that what was read can be written again. `status` is not written here.
pub(crate) fn stored(kind: &Kind, mut object: Value) -> Value {
    let Some(map) = object.as_object_mut() else { return object };
    for added in ["id", "links", "actions", "actionLinks", "resourcePermissions"] {
        map.remove(added);
    }
    if map.get("type").and_then(Value::as_str).is_some_and(|own| own.eq_ignore_ascii_case(&kind.id)) {
        map.remove("type");
    }
    if let Some(own_type) = map.remove("_type") {
        map.insert("type".to_owned(), own_type);
    }
    // A default that was shown as the value would stay when this server's default becomes another one.
    if is_setting(kind) && has_text(map, "value") && map.get("value") == map.get("default") {
        map.insert("value".to_owned(), "".into());
    }
    map.insert("apiVersion".to_owned(), kind.api_version().into());
    map.insert("kind".to_owned(), kind.kind.as_str().into());
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        for added in ["state", "cause", "relationships", "fields"] {
            metadata.remove(added);
        }
    }
    object
}

/// A collection without its data.
pub(crate) fn collection(base: &Base, resource_type: &str, path: &str) -> Value {
    json!({
        "type": "collection", "resourceType": resource_type, "links": {"self": format!("{}{path}", base.root())},
        "createTypes": {}, "actions": {},
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use remuda_auth::{identity::User, rbac::policy::Policy};

    use super::*;
    use crate::kind::tests::catalogue;

    fn rights(master: bool) -> Rights {
        let groups = if master { vec!["system:masters".to_owned()] } else { Vec::new() };
        Rights::Policy(Arc::new(Policy::new()), Arc::new(User::new("u", groups)))
    }

    fn secret(master: bool) -> Value {
        let catalogue = catalogue();
        let object = json!({
            "metadata": {"name": "s", "namespace": "n", "managedFields": []}, "type": "Opaque",
            "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "t"}]},
        });
        let base = Base { api: "https://h".to_owned() };
        let state = State::active();
        let added = Added { state: &state, fields: vec![json!("s")], relationships: Vec::new() };
        shown(&base, catalogue.find("secret").unwrap(), &rights(master), object, added)
    }

    #[test]
    fn an_object_has_what_clients_look_for() {
        let shown = secret(true);
        assert_eq!(shown["id"], "n/s");
        assert_eq!(shown["type"], "secret");
        assert_eq!(shown["_type"], "Opaque");
        assert_eq!(shown["links"]["self"], "https://h/v1/secrets/n/s");
        assert_eq!(shown["links"]["view"], "https://h/api/v1/namespaces/n/secrets/s");
        assert_eq!(shown["links"]["remove"], shown["links"]["self"]);
        assert_eq!(shown["metadata"]["state"]["name"], "active");
        assert_eq!(shown["metadata"]["fields"], json!(["s"]));
        assert_eq!(shown["status"]["conditions"][0]["transitioning"], true);
        assert_eq!(shown["status"]["conditions"][0]["lastUpdateTime"], "t");
        let links = secret(false)["links"].clone();
        assert_eq!(links, json!({"self": "https://h/v1/secrets/n/s"}), "links follow rights");
    }

    #[test]
    fn the_value_of_a_setting_is_the_one_that_counts() {
        let kind = Kind { group: MANAGEMENT.to_owned(), kind: "Setting".to_owned(), ..Kind::default() };
        let base = Base { api: "https://h".to_owned() };
        let seen = |object: Value| {
            let state = State::active();
            let added = Added { state: &state, fields: Vec::new(), relationships: Vec::new() };
            shown(&base, &kind, &rights(true), object, added)
        };
        let of = |value: Value, default: Value| json!({"metadata": {"name": "s"}, "value": value, "default": default});
        for (value, default, counts) in [
            (json!(null), json!("{}"), "{}"),
            (json!(""), json!("{}"), "{}"),
            (json!("mine"), json!("{}"), "mine"),
            (json!(null), json!(null), ""),
        ] {
            assert_eq!(seen(of(value, default))["value"], counts);
        }
        // What was read can be written again, and sets nothing that was not set.
        assert_eq!(stored(&kind, seen(of(json!(""), json!("{}"))))["value"], "");
        assert_eq!(stored(&kind, seen(of(json!("mine"), json!("{}"))))["value"], "mine");
        let secret = json!({"metadata": {"name": "s"}, "value": "a", "default": "a"});
        assert_eq!(stored(&Kind::default(), secret)["value"], "a", "only of settings");
    }

    #[test]
    fn what_was_shown_can_be_written_again() {
        let catalogue = catalogue();
        let written = stored(catalogue.find("secret").unwrap(), secret(true));
        assert_eq!(written["type"], "Opaque");
        assert_eq!(written["metadata"], json!({"name": "s", "namespace": "n"}));
        assert!(written.get("id").is_none() && written.get("links").is_none());
        assert_eq!(written["apiVersion"], "v1");
    }
}
