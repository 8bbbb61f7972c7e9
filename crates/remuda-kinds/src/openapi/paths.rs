//! Paths and operations: which verbs a kind has, and which query parameters each takes.

use serde_json::{Map, Value, json};

use super::{Dialect, KindDoc, gvk, path_of, schema_name, types::meta_name};

const BODIES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const CUSTOM_BODIES: [&str; 2] = ["application/json", "application/yaml"];
const CUSTOM_PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

type Parameter = (&'static str, &'static str);

const LIST: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: &[Parameter] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: &[Parameter] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE: &[Parameter] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION: &[Parameter] = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
];
const READ: &[Parameter] = &[("resourceVersion", "string")];

pub(super) fn paths(kinds: &[&KindDoc], dialect: Dialect) -> Map<String, Value> {
    let mut paths = Map::new();
    for kind in kinds {
        Builder::new(kind, dialect).add(&mut paths);
    }
    paths
}

struct Builder<'a> {
    kind: &'a KindDoc,
    dialect: Dialect,
    /// `AppsV1`
    prefix: String,
    tag: String,
    custom: bool,
}

/// What an operation sends and gets.
struct Operation<'a> {
    method: &'static str,
    action: &'static str,
    id: String,
    parameters: &'static [Parameter],
    body: Option<Body>,
    response: String,
    created: bool,
    kind: (&'a str, &'a str, &'a str),
}

enum Body {
    Object(String),
    Patch,
    DeleteOptions,
}

impl<'a> Builder<'a> {
    fn new(kind: &'a KindDoc, dialect: Dialect) -> Self {
        let group = match kind.group.as_str() {
            "" => "core",
            group => group.strip_suffix(".k8s.io").unwrap_or(group),
        };
        let words = group.split(['.', '-']).chain([kind.version.as_str()]);
        let prefix = words.map(capitalised).collect();
        let tag = format!("{}_{}", camel(group), kind.version);
        let custom = matches!(kind.schema, super::Source::Custom(_));
        Self { kind, dialect, prefix, tag, custom }
    }

    fn add(&self, paths: &mut Map<String, Value>) {
        let kind = self.kind;
        let root = format!("/{}", path_of(&kind.group, &kind.version));
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{root}{scope}/{}", kind.plural);
        if kind.namespaced && kind.allows("list") {
            let id = format!("list{}{}ForAllNamespaces", self.prefix, kind.kind);
            let list = self.list(id);
            paths.insert(format!("{root}/{}", kind.plural), self.item(vec![list], &[]));
        }
        paths.insert(collection.clone(), self.item(self.collection(), &self.path_names(false)));
        let object = format!("{collection}/{{name}}");
        let operations = self.object();
        if !operations.is_empty() {
            paths.insert(object.clone(), self.item(operations, &self.path_names(true)));
        }
        for sub in &kind.subresources {
            let operations = self.subresource(sub);
            paths.insert(format!("{object}/{}", sub.name), self.item(operations, &self.path_names(true)));
        }
    }

    fn path_names(&self, object: bool) -> Vec<&'static str> {
        let mut names = Vec::new();
        if object {
            names.push("name");
        }
        if self.kind.namespaced {
            names.push("namespace");
        }
        names
    }

    fn id(&self, verb: &str, suffix: &str) -> String {
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        format!("{verb}{}{scope}{}{suffix}", self.prefix, self.kind.kind)
    }

    fn own(&self) -> (&'a str, &'a str, &'a str) {
        (&self.kind.group, &self.kind.version, &self.kind.kind)
    }

    fn list(&self, id: String) -> Operation<'a> {
        Operation {
            method: "get",
            action: "list",
            id,
            parameters: LIST,
            body: None,
            response: self.kind.list_schema_name(),
            created: false,
            kind: self.own(),
        }
    }

    fn collection(&self) -> Vec<Operation<'a>> {
        let mut operations = Vec::new();
        if self.kind.allows("list") {
            operations.push(self.list(self.id("list", "")));
        }
        if self.kind.allows("create") {
            let name = self.kind.schema_name();
            operations.push(self.write("post", "post", self.id("create", ""), name, self.own()));
        }
        if self.kind.allows("deletecollection") {
            let scope = if self.kind.namespaced { "Namespaced" } else { "" };
            let id = format!("delete{}Collection{scope}{}", self.prefix, self.kind.kind);
            operations.push(self.delete("deletecollection", id, DELETE_COLLECTION));
        }
        operations
    }

    fn object(&self) -> Vec<Operation<'a>> {
        let name = self.kind.schema_name();
        let mut operations = Vec::new();
        if self.kind.allows("get") {
            operations.push(self.read(self.id("read", ""), name.clone(), self.own()));
        }
        if self.kind.allows("update") {
            operations.push(self.write("put", "put", self.id("replace", ""), name.clone(), self.own()));
        }
        if self.kind.allows("patch") {
            operations.push(self.patch(self.id("patch", ""), name, self.own()));
        }
        if self.kind.allows("delete") {
            operations.push(self.delete("delete", self.id("delete", ""), DELETE));
        }
        operations
    }

    fn subresource(&self, sub: &'a super::SubresourceDoc) -> Vec<Operation<'a>> {
        let kind = (sub.group.as_str(), sub.version.as_str(), sub.kind.as_str());
        let name = || schema_name(kind.0, kind.1, kind.2);
        let suffix = capitalised(&sub.name);
        sub.verbs
            .iter()
            .filter_map(|verb| match verb.as_str() {
                "get" => Some(self.read(self.id("read", &suffix), name(), kind)),
                "create" => Some(self.write("post", "post", self.id("create", &suffix), name(), kind)),
                "update" => Some(self.write("put", "put", self.id("replace", &suffix), name(), kind)),
                "patch" => Some(self.patch(self.id("patch", &suffix), name(), kind)),
                _ => None,
            })
            .collect()
    }

    fn read(&self, id: String, response: String, kind: (&'a str, &'a str, &'a str)) -> Operation<'a> {
        Operation {
            method: "get",
            action: "get",
            id,
            parameters: READ,
            body: None,
            response,
            created: false,
            kind,
        }
    }

    fn write(
        &self,
        method: &'static str,
        action: &'static str,
        id: String,
        name: String,
        kind: (&'a str, &'a str, &'a str),
    ) -> Operation<'a> {
        let body = Some(Body::Object(name.clone()));
        Operation { method, action, id, parameters: WRITE, body, response: name, created: true, kind }
    }

    fn patch(&self, id: String, response: String, kind: (&'a str, &'a str, &'a str)) -> Operation<'a> {
        let body = Some(Body::Patch);
        Operation {
            method: "patch",
            action: "patch",
            id,
            parameters: PATCH,
            body,
            response,
            created: true,
            kind,
        }
    }

    fn delete(&self, action: &'static str, id: String, parameters: &'static [Parameter]) -> Operation<'a> {
        Operation {
            method: "delete",
            action,
            id,
            parameters,
            body: Some(Body::DeleteOptions),
            response: meta_name("Status"),
            created: false,
            kind: self.own(),
        }
    }

    fn item(&self, operations: Vec<Operation<'a>>, names: &[&str]) -> Value {
        let mut item = Map::new();
        for operation in operations {
            item.insert(operation.method.to_owned(), self.operation(&operation));
        }
        let mut parameters: Vec<Value> =
            names.iter().map(|name| self.parameter(name, "path", "string")).collect();
        parameters.push(self.parameter("pretty", "query", "string"));
        item.insert("parameters".to_owned(), parameters.into());
        Value::Object(item)
    }

    fn parameter(&self, name: &str, place: &str, kind: &str) -> Value {
        let mut parameter = match self.dialect {
            Dialect::V2 => json!({ "name": name, "in": place, "type": kind }),
            Dialect::V3 => json!({ "name": name, "in": place, "schema": { "type": kind } }),
        };
        if place == "path" {
            parameter["required"] = true.into();
        }
        parameter
    }

    fn operation(&self, operation: &Operation<'_>) -> Value {
        let mut parameters: Vec<Value> =
            operation.parameters.iter().map(|(name, kind)| self.parameter(name, "query", kind)).collect();
        let (bodies, patches): (&[&str], &[&str]) =
            if self.custom { (&CUSTOM_BODIES, &CUSTOM_PATCHES) } else { (&BODIES, &PATCHES) };
        let reference = self.dialect.reference(&operation.response);
        let mut out = json!({
            "operationId": operation.id,
            "tags": [self.tag],
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": gvk(operation.kind.0, operation.kind.1, operation.kind.2),
        });
        let (body, consumes, required) = match &operation.body {
            None => (None, ["*/*"].as_slice(), false),
            Some(Body::Object(name)) => (Some(self.dialect.reference(name)), ["*/*"].as_slice(), true),
            Some(Body::Patch) => (Some(self.dialect.reference(&meta_name("Patch"))), patches, true),
            Some(Body::DeleteOptions) => {
                (Some(self.dialect.reference(&meta_name("DeleteOptions"))), ["*/*"].as_slice(), false)
            }
        };
        let response = |description: &str| match self.dialect {
            Dialect::V2 => json!({ "description": description, "schema": reference }),
            Dialect::V3 => json!({ "description": description, "content": content(bodies, &reference) }),
        };
        let mut responses = Map::new();
        responses.insert("200".to_owned(), response("OK"));
        if operation.created {
            responses.insert("201".to_owned(), response("Created"));
        }
        responses.insert("401".to_owned(), json!({ "description": "Unauthorized" }));
        out["responses"] = Value::Object(responses);
        match self.dialect {
            Dialect::V2 => {
                out["consumes"] = json!(consumes);
                out["produces"] = json!(bodies);
                out["schemes"] = json!(["https"]);
                if let Some(schema) = body {
                    let mut body = json!({ "name": "body", "in": "body", "schema": schema });
                    if required {
                        body["required"] = true.into();
                    }
                    parameters.insert(0, body);
                }
            }
            Dialect::V3 => {
                if let Some(schema) = body {
                    let mut body = json!({ "content": content(consumes, &schema) });
                    if required {
                        body["required"] = true.into();
                    }
                    out["requestBody"] = body;
                }
            }
        }
        out["parameters"] = parameters.into();
        out
    }
}

fn content(types: &[&str], schema: &Value) -> Value {
    let content = types.iter().map(|media| ((*media).to_owned(), json!({ "schema": schema }))).collect();
    Value::Object(content)
}

fn capitalised(word: &str) -> String {
    let mut characters = word.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// `rbac.authorization` becomes `rbacAuthorization`.
fn camel(group: &str) -> String {
    let mut words = group.split('.');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &capitalised(word))
}
