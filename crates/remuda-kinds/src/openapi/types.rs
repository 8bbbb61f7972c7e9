//! Schemas of the types in the table.

use std::collections::HashSet;

use remuda_schema::ListType;
use serde_json::{Map, Value, json};

use super::{Dialect, gvk, text};
use crate::table::{Field, Ty, TypeDef, TypeId, table, type_of};

const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const SCHEMA_OR_BOOL: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";
const SCHEMA_OR_ARRAY: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
const SCHEMA_OR_STRINGS: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray";

/// Schema name of a type of `meta/v1`.
pub(super) fn meta_name(name: &str) -> String {
    format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")
}

/// Collects the schemas of types and of everything they refer to.
pub(super) struct Types {
    dialect: Dialect,
    seen: HashSet<TypeId>,
    pending: Vec<TypeId>,
    schemas: Map<String, Value>,
}

impl Types {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, seen: HashSet::new(), pending: Vec::new(), schemas: Map::new() }
    }

    pub(super) fn insert(&mut self, name: String, schema: Value) {
        self.schemas.insert(name, schema);
    }

    /// A built-in kind, marked with its group, version and kind.
    pub(super) fn add_kind(&mut self, group: &str, version: &str, kind: &str) {
        let Some(ty) = type_of(group, version, kind) else { return };
        if !self.seen.insert(ty.id) {
            return;
        }
        let mut schema = self.message(ty);
        schema.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(group, version, kind)]));
        if let Some(text) = text::of_kind(kind) {
            schema.insert("description".to_owned(), text.into());
        }
        self.schemas.insert(ty.openapi_name(), Value::Object(schema));
    }

    pub(super) fn add_meta(&mut self, name: &str) {
        if let Some(ty) = table().find("meta/v1", name) {
            self.want(ty.id);
        }
    }

    /// What the operations of every group-version refer to.
    pub(super) fn add_common(&mut self, group_versions: &[(&str, &str)]) {
        self.schemas.insert(
            PATCH.to_owned(),
            json!({ "type": "object", "description": "A patch in one of the supported formats." }),
        );
        for (name, everywhere) in [("DeleteOptions", true), ("Status", false)] {
            let Some(ty) = table().find("meta/v1", name) else { continue };
            self.seen.insert(ty.id);
            let mut schema = self.message(ty);
            let mut kinds = vec![gvk("", "v1", name)];
            if everywhere {
                let others = group_versions.iter().filter(|group_version| **group_version != ("", "v1"));
                kinds.extend(others.map(|(group, version)| gvk(group, version, name)));
            }
            schema.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(kinds));
            if let Some(text) = text::of_kind(name) {
                schema.insert("description".to_owned(), text.into());
            }
            self.schemas.insert(ty.openapi_name(), Value::Object(schema));
        }
    }

    pub(super) fn finish(mut self) -> Map<String, Value> {
        while let Some(id) = self.pending.pop() {
            let ty = table().get(id);
            let mut schema = self.message(ty);
            if ty.package == "meta/v1"
                && let Some(text) = text::of_kind(ty.name)
            {
                schema.insert("description".to_owned(), text.into());
            }
            self.schemas.insert(ty.openapi_name(), Value::Object(schema));
        }
        self.schemas
    }

    fn want(&mut self, id: TypeId) {
        if self.seen.insert(id) {
            self.pending.push(id);
        }
    }

    fn message(&mut self, ty: &TypeDef) -> Map<String, Value> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        if ty.has_kind {
            properties.insert(
                "apiVersion".to_owned(),
                json!({ "type": "string", "description": text::API_VERSION }),
            );
            properties.insert("kind".to_owned(), json!({ "type": "string", "description": text::KIND }));
        }
        for field in ty.json_fields() {
            let description = if ty.has_kind { text::of_field(field.name) } else { None };
            properties.insert(field.name.to_owned(), self.field(field, description));
            if field.required {
                required.push(Value::from(field.name));
            }
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            schema.insert("required".to_owned(), Value::Array(required));
        }
        if ty.atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        schema
    }

    fn field(&mut self, field: &Field, description: Option<&str>) -> Value {
        let mut facts = Map::new();
        if let Some(description) = description {
            facts.insert("description".to_owned(), description.into());
        }
        if self.dialect == Dialect::V3
            && let Some(default) = &field.default
        {
            facts.insert("default".to_owned(), default.clone());
        }
        if !field.enumeration.is_empty() {
            facts.insert("enum".to_owned(), field.enumeration.clone().into());
        }
        match &field.list_type {
            None => {}
            Some(ListType::Atomic) => insert_text(&mut facts, "x-kubernetes-list-type", "atomic"),
            Some(ListType::Set) => insert_text(&mut facts, "x-kubernetes-list-type", "set"),
            Some(ListType::Map(keys)) => {
                insert_text(&mut facts, "x-kubernetes-list-type", "map");
                facts.insert("x-kubernetes-list-map-keys".to_owned(), keys.clone().into());
            }
        }
        if field.atomic_map {
            insert_text(&mut facts, "x-kubernetes-map-type", "atomic");
        }
        if field.has_patch {
            let names = [
                (field.patch.merge, "merge"),
                (field.patch.retain_keys, "retainKeys"),
                (field.patch.replace, "replace"),
            ];
            let names: Vec<&str> = names.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
            insert_text(&mut facts, "x-kubernetes-patch-strategy", &names.join(","));
            if let Some(key) = &field.patch.merge_key {
                insert_text(&mut facts, "x-kubernetes-patch-merge-key", key);
            }
        }
        self.ty(&field.ty, facts, &field.items_enumeration)
    }

    fn ty(&mut self, ty: &Ty, facts: Map<String, Value>, items_enumeration: &[String]) -> Value {
        let (kind, format) = match ty {
            Ty::String => ("string", None),
            Ty::Bool => ("boolean", None),
            Ty::Int32 => ("integer", Some("int32")),
            Ty::Int64 => ("integer", Some("int64")),
            Ty::Double => ("number", Some("double")),
            Ty::Bytes => ("string", Some("byte")),
            Ty::Strings => return self.ty(&Ty::List(Box::new(Ty::String)), facts, items_enumeration),
            Ty::List(item) => {
                let items = self.item(item, items_enumeration);
                return container(facts, "array", "items", items);
            }
            Ty::Map(item) => {
                let items = self.item(item, items_enumeration);
                return container(facts, "object", "additionalProperties", items);
            }
            Ty::Message(id) => {
                self.want(*id);
                return self.dialect.reference_with(&table().get(*id).openapi_name(), facts);
            }
            special => {
                let name = self.special(special);
                return self.dialect.reference_with(name, facts);
            }
        };
        let mut schema = facts;
        insert_text(&mut schema, "type", kind);
        if let Some(format) = format {
            insert_text(&mut schema, "format", format);
        }
        Value::Object(schema)
    }

    fn item(&mut self, item: &Ty, enumeration: &[String]) -> Value {
        let mut facts = Map::new();
        if self.dialect == Dialect::V3 {
            let default = match item {
                Ty::String => Some(json!("")),
                Ty::Int32 | Ty::Int64 => Some(json!(0)),
                Ty::Message(_) => Some(json!({})),
                _ => None,
            };
            if let Some(default) = default {
                facts.insert("default".to_owned(), default);
            }
        }
        if !enumeration.is_empty() {
            facts.insert("enum".to_owned(), enumeration.to_vec().into());
        }
        self.ty(item, facts, &[])
    }

    /// A type with a schema of its own that the table does not spell out.
    fn special(&mut self, ty: &Ty) -> &'static str {
        let v3 = self.dialect == Dialect::V3;
        let (name, schema) = match ty {
            Ty::Time => (TIME, json!({ "type": "string", "format": "date-time" })),
            Ty::MicroTime => (MICRO_TIME, json!({ "type": "string", "format": "date-time" })),
            Ty::Quantity if v3 => {
                (QUANTITY, json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }))
            }
            Ty::Quantity => (QUANTITY, json!({ "type": "string" })),
            Ty::IntOrString if v3 => (
                INT_OR_STRING,
                json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] }),
            ),
            Ty::IntOrString => (INT_OR_STRING, json!({ "type": "string", "format": "int-or-string" })),
            Ty::Fields => (FIELDS, json!({ "type": "object" })),
            Ty::Raw => (RAW, json!({ "type": "object" })),
            Ty::SchemaOrBool => (SCHEMA_OR_BOOL, json!({ "description": "A JSON schema or a boolean." })),
            Ty::SchemaOrArray => {
                (SCHEMA_OR_ARRAY, json!({ "description": "A JSON schema or a list of them." }))
            }
            Ty::SchemaOrStrings => {
                (SCHEMA_OR_STRINGS, json!({ "description": "A JSON schema or a list of property names." }))
            }
            _ => (JSON, json!({ "description": "Any JSON value." })),
        };
        self.schemas.entry(name).or_insert(schema);
        name
    }
}

fn insert_text(object: &mut Map<String, Value>, key: &str, text: &str) {
    object.insert(key.to_owned(), text.into());
}

fn container(facts: Map<String, Value>, kind: &str, key: &str, items: Value) -> Value {
    let mut schema = facts;
    insert_text(&mut schema, "type", kind);
    schema.insert(key.to_owned(), items);
    Value::Object(schema)
}
