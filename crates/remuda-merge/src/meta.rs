//! The type of `metadata`, for schemas that leave it open, and the fields nobody owns.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use remuda_schema::{Additional, ListType, PatchStrategy, Schema, Type};

use crate::fields::{PathElement, Set};

/// Fields of `metadata` that the server sets or that identify the object.
const UNOWNED: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

static META: LazyLock<Schema> = LazyLock::new(object_meta);
static TEXT: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String));

pub(crate) fn object_meta_type() -> &'static Schema {
    &META
}

pub(crate) fn text_type() -> &'static Schema {
    &TEXT
}

/// Drops what is never tracked.
pub(crate) fn strip(set: &mut Set<'_>) {
    set.retain(|node| match node.element {
        PathElement::Field("apiVersion" | "kind") => false,
        PathElement::Field("metadata") => {
            node.member = false;
            node.children.retain(|field| {
                if let PathElement::Field(name) = field.element
                    && UNOWNED.contains(&name)
                {
                    field.member = false;
                }
                field.member || !field.children.is_empty()
            });
            !node.children.is_empty()
        }
        _ => true,
    });
}

fn scalar(kind: Type) -> Schema {
    Schema { kind, ..Schema::default() }
}

fn object(fields: impl IntoIterator<Item = (&'static str, Schema)>) -> Schema {
    let properties: BTreeMap<String, Arc<Schema>> =
        fields.into_iter().map(|(name, schema)| (name.to_owned(), Arc::new(schema))).collect();
    Schema { kind: Type::Object, properties, ..Schema::default() }
}

fn list(items: Schema, list_type: ListType) -> Schema {
    Schema { kind: Type::Array, items: Some(Arc::new(items)), list_type, ..Schema::default() }
}

/// The list with the strategic merge behaviour it has in every kind.
fn merged(list: Schema, key: Option<&str>) -> Schema {
    let patch = PatchStrategy { merge: true, merge_key: key.map(str::to_owned), ..PatchStrategy::default() };
    Schema { patch, ..list }
}

fn object_meta() -> Schema {
    let texts = || Schema {
        kind: Type::Object,
        additional: Some(Additional::Schema(Arc::new(scalar(Type::String)))),
        ..Schema::default()
    };
    let strings = ["creationTimestamp", "deletionTimestamp", "generateName", "name", "namespace"];
    let strings = strings.into_iter().chain(["resourceVersion", "selfLink", "uid"]);
    let owner = ["apiVersion", "kind", "name", "uid"].map(|name| (name, scalar(Type::String)));
    let flags = ["blockOwnerDeletion", "controller"].map(|name| (name, scalar(Type::Boolean)));
    // An owner reference belongs to one manager as a whole.
    let owner = Schema { atomic_map: true, ..object(owner.into_iter().chain(flags)) };
    let free = Schema { kind: Type::Object, preserve_unknown: true, ..Schema::default() };
    object(strings.map(|name| (name, scalar(Type::String))).chain([
        ("annotations", texts()),
        ("labels", texts()),
        ("deletionGracePeriodSeconds", scalar(Type::Integer)),
        ("generation", scalar(Type::Integer)),
        ("finalizers", merged(list(scalar(Type::String), ListType::Set), None)),
        ("ownerReferences", merged(list(owner, ListType::Map(vec!["uid".to_owned()])), Some("uid"))),
        ("managedFields", list(free, ListType::Atomic)),
    ]))
}
