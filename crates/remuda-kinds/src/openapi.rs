//! OpenAPI documents for built-in and custom kinds.
//!
//! Version 3 is one document per group-version, version 2 one document for everything, also in the protobuf
//! form that older clients insist on. All of it is computed from [`KindDoc`]s; caching and hashing belong to
//! the caller.

mod custom;
mod gnostic;
mod paths;
mod text;
mod types;

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub use gnostic::v2_protobuf;

use crate::inventory::Resource;

/// What a document says about one kind.
#[derive(Debug, Clone)]
pub struct KindDoc {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<SubresourceDoc>,
    pub schema: Source,
    /// JSON paths of a custom kind that work as field selectors (`.spec.color`).
    pub selectable_fields: Vec<String>,
}

/// A subresource and the kind it speaks.
#[derive(Debug, Clone)]
pub struct SubresourceDoc {
    pub name: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

/// Where the schema of a kind comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The table of built-in kinds.
    BuiltIn,
    /// The `openAPIV3Schema` of a definition; `None` if it has no schema.
    Custom(Option<Arc<Value>>),
}

impl KindDoc {
    pub fn built_in(resource: &Resource) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let subresource = |sub: &crate::inventory::Subresource| SubresourceDoc {
            name: sub.name.to_owned(),
            group: sub.group.to_owned(),
            version: sub.version.to_owned(),
            kind: sub.kind.to_owned(),
            verbs: owned(sub.verbs),
        };
        Self {
            group: resource.group.to_owned(),
            version: resource.version.to_owned(),
            kind: resource.kind.to_owned(),
            list_kind: format!("{}List", resource.kind),
            plural: resource.plural.to_owned(),
            namespaced: resource.namespaced,
            verbs: owned(resource.verbs),
            subresources: resource.subresources.iter().map(subresource).collect(),
            schema: Source::BuiltIn,
            selectable_fields: Vec::new(),
        }
    }

    fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb)
    }

    fn schema_name(&self) -> String {
        schema_name(&self.group, &self.version, &self.kind)
    }

    fn list_schema_name(&self) -> String {
        schema_name(&self.group, &self.version, &self.list_kind)
    }
}

/// The two versions of the format that differ in the shape of almost everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> Value {
        let prefix = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({ "$ref": format!("{prefix}{name}") })
    }

    /// A reference with siblings, which version 3 only allows through `allOf`.
    fn reference_with(self, name: &str, siblings: Map<String, Value>) -> Value {
        let reference = self.reference(name);
        if siblings.is_empty() {
            return reference;
        }
        let mut object = siblings;
        match (self, reference) {
            (Self::V2, Value::Object(reference)) => object.extend(reference),
            (_, reference) => {
                object.insert("allOf".to_owned(), Value::Array(vec![reference]));
            }
        }
        Value::Object(object)
    }
}

/// `io.k8s.api.core.v1.Pod` for built-in kinds, the reversed group for others (`io.x.v1.Foo`).
pub fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let built_in = crate::table::package_of(group, version)
        .and_then(|package| crate::table::table().types().iter().find(|ty| ty.package == package));
    if let Some(ty) = built_in {
        return format!("{}.{kind}", ty.openapi_package);
    }
    let mut name = String::with_capacity(group.len() + version.len() + kind.len() + 2);
    for part in group.rsplit('.').chain([version]) {
        name.push_str(part);
        name.push('.');
    }
    name.push_str(kind);
    name
}

/// `api/v1` or `apis/apps/v1`.
pub fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The document of one group-version. Kinds of other group-versions are left out.
pub fn v3_document(group: &str, version: &str, kinds: &[KindDoc]) -> Value {
    let kinds: Vec<&KindDoc> =
        kinds.iter().filter(|kind| kind.group == group && kind.version == version).collect();
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths::paths(&kinds, Dialect::V3),
        "components": { "schemas": schemas(&kinds, Dialect::V3) },
    })
}

/// The single version 2 document of all kinds. `git_version` is what `/version` reports.
pub fn v2_document(kinds: &[KindDoc], git_version: &str) -> Value {
    let kinds: Vec<&KindDoc> = kinds.iter().collect();
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": git_version },
        "paths": paths::paths(&kinds, Dialect::V2),
        "definitions": schemas(&kinds, Dialect::V2),
    })
}

fn schemas(kinds: &[&KindDoc], dialect: Dialect) -> Map<String, Value> {
    let mut types = types::Types::new(dialect);
    let mut group_versions: Vec<(&str, &str)> = Vec::new();
    for kind in kinds {
        let group_version = (kind.group.as_str(), kind.version.as_str());
        if !group_versions.contains(&group_version) {
            group_versions.push(group_version);
        }
        match &kind.schema {
            Source::BuiltIn => types.add_kind(&kind.group, &kind.version, &kind.kind),
            Source::Custom(schema) => {
                types.add_meta("ObjectMeta");
                types.insert(kind.schema_name(), custom::schema(kind, schema.as_deref(), dialect));
            }
        }
        for sub in &kind.subresources {
            types.add_kind(&sub.group, &sub.version, &sub.kind);
        }
        if kind.allows("list") {
            types.add_meta("ListMeta");
            types.insert(kind.list_schema_name(), list_schema(kind, dialect));
        }
    }
    types.add_common(&group_versions);
    types.finish()
}

fn list_schema(kind: &KindDoc, dialect: Dialect) -> Value {
    let mut item = Map::new();
    let mut metadata = Map::new();
    metadata.insert("description".to_owned(), text::LIST_METADATA.into());
    if dialect == Dialect::V3 && matches!(kind.schema, Source::BuiltIn) {
        item.insert("default".to_owned(), json!({}));
        metadata.insert("default".to_owned(), json!({}));
    }
    let items = dialect.reference_with(&kind.schema_name(), item);
    json!({
        "description": format!("A list of {} objects.", kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string", "description": text::API_VERSION },
            "kind": { "type": "string", "description": text::KIND },
            "metadata": dialect.reference_with(&types::meta_name("ListMeta"), metadata),
            "items": { "type": "array", "items": items, "description": "The objects." },
        },
        "x-kubernetes-group-version-kind": [gvk(&kind.group, &kind.version, &kind.list_kind)],
    })
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}

#[cfg(test)]
mod tests;
