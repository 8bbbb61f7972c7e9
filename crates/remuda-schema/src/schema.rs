//! The compiled form of a type: what validation, defaulting, pruning, patches and
//! server-side apply all walk.
//!
//! A tree is built once (from a CRD version or from the table of built-in kinds) and
//! shared as `Arc<Schema>`. It has no references: a recursive type ends in a node with
//! [`Schema::preserve_unknown`].

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

/// JSON type of a node. `Any` accepts every value (int-or-string and preserved nodes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// How a list is merged and owned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// Replaced and owned as a whole.
    #[default]
    Atomic,
    /// Scalars, each owned by itself.
    Set,
    /// Items identified by these fields.
    Map(Vec<String>),
}

/// Strategic merge patch behaviour of a field (`x-kubernetes-patch-strategy`, `-patch-merge-key`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    /// Lists: merge instead of replace. Without a key the list holds primitives.
    pub merge: bool,
    /// Maps: honour `$retainKeys`.
    pub retain_keys: bool,
    /// Maps: replaced as a whole.
    pub replace: bool,
    pub merge_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Additional {
    /// `additionalProperties: true`
    Any,
    Schema(Arc<Schema>),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Schema {
    pub kind: Type,
    pub description: Option<String>,
    pub format: Option<String>,
    pub nullable: bool,
    pub int_or_string: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub properties: BTreeMap<String, Arc<Schema>>,
    pub required: Vec<String>,
    pub additional: Option<Additional>,
    pub items: Option<Arc<Schema>>,
    pub default: Option<Value>,
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`: the object is owned as a whole.
    pub atomic_map: bool,
    pub patch: PatchStrategy,
    pub validation: Option<Box<crate::validation::Validation>>,
}
