//! The compiled form of a type: what validation, defaulting, pruning, patches and
//! server-side apply all walk.
//!
//! A tree is built once (from a CRD version or from the table of built-in kinds) and
//! shared as `Arc<Schema>`. It has no references: a recursive type ends in a node with
//! [`Schema::preserve_unknown`].

use std::{
    cmp::Ordering,
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    sync::Arc,
};

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
    /// What the walks may skip; filled by [`Schema::seal`].
    pub hints: Hints,
}

/// What is known about a node and everything below it. A node that was never sealed is walked fully.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hints {
    pub sealed: bool,
    /// Some node below has a default.
    pub defaults: bool,
    /// Pruning can remove something at or below this node.
    pub prunes: bool,
    /// An embedded resource is at or below this node.
    pub embedded: bool,
    /// A set or map list is at or below this node.
    pub list_types: bool,
    /// An expression rule is at or below this node.
    pub rules: bool,
}

/// Hints are derived from the rest, so they never make two schemas differ.
impl PartialEq for Hints {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Schema {
    /// Computes [`Schema::hints`] from this node and its (already sealed) children.
    pub fn seal(mut self) -> Self {
        let has_rules = self.validation.as_ref().is_some_and(|validation| !validation.rules.is_empty());
        let mut hints = Hints {
            sealed: true,
            defaults: false,
            prunes: !self.preserve_unknown,
            embedded: self.embedded_resource,
            list_types: !matches!(self.list_type, ListType::Atomic),
            rules: has_rules,
        };
        for child in self.children() {
            hints.defaults |= child.default.is_some() || child.may_default();
            hints.prunes |= child.may_prune();
            hints.embedded |= child.may_embed();
            hints.list_types |= child.may_have_list_types();
            hints.rules |= child.may_have_rules();
        }
        self.hints = hints;
        self
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = &Arc<Schema>> {
        let additional = match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        };
        self.properties.values().chain(self.items.as_ref()).chain(additional)
    }

    /// Finds the properties of an object with `entries` entries, asked for in their order.
    pub(crate) fn lookup(&self, entries: usize) -> Lookup<'_> {
        // Passing by what is not there must not cost more than searching for what is.
        let dense = entries.saturating_mul(4) >= self.properties.len();
        Lookup { properties: &self.properties, cursor: self.properties.iter().peekable(), dense, last: "" }
    }

    /// The schema of an entry: a declared property, or that of all other entries.
    pub(crate) fn entry(&self, name: &str) -> Option<&Arc<Schema>> {
        match (self.properties.get(name), &self.additional) {
            (Some(property), _) => Some(property),
            (None, Some(Additional::Schema(schema))) => Some(schema),
            _ => None,
        }
    }

    pub(crate) fn may_default(&self) -> bool {
        !self.hints.sealed || self.hints.defaults
    }

    pub(crate) fn may_prune(&self) -> bool {
        !self.hints.sealed || self.hints.prunes
    }

    pub(crate) fn may_embed(&self) -> bool {
        !self.hints.sealed || self.hints.embedded
    }

    pub(crate) fn may_have_list_types(&self) -> bool {
        !self.hints.sealed || self.hints.list_types
    }

    pub(crate) fn may_have_rules(&self) -> bool {
        !self.hints.sealed || self.hints.rules
    }
}

/// Objects and properties are both sorted, so walking along both beats a search per entry.
pub(crate) struct Lookup<'s> {
    properties: &'s BTreeMap<String, Arc<Schema>>,
    cursor: Peekable<btree_map::Iter<'s, String, Arc<Schema>>>,
    dense: bool,
    last: &'s str,
}

impl<'s> Lookup<'s> {
    pub(crate) fn find(&mut self, name: &str) -> Option<&'s Arc<Schema>> {
        if !self.dense || name <= self.last && !self.last.is_empty() {
            return self.properties.get(name);
        }
        while let Some((known, schema)) = self.cursor.peek() {
            match known.as_str().cmp(name) {
                Ordering::Less => {
                    self.last = known;
                    self.cursor.next();
                }
                Ordering::Equal => {
                    self.last = known;
                    let schema = *schema;
                    self.cursor.next();
                    return Some(schema);
                }
                Ordering::Greater => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_find_the_same_in_any_order() {
        let properties: BTreeMap<String, Arc<Schema>> =
            ["b", "d", "f", "h"].iter().map(|name| ((*name).to_owned(), Arc::default())).collect();
        let schema = Schema { properties, ..Schema::default() };
        let names = ["", "a", "b", "c", "d", "e", "f", "g", "h", "i"];
        for first in names {
            for second in names {
                for third in names {
                    let mut lookup = schema.lookup(3);
                    for name in [first, second, third] {
                        let expected = schema.properties.contains_key(name);
                        assert_eq!(lookup.find(name).is_some(), expected, "{first} {second} {third}: {name}");
                    }
                }
            }
        }
    }
}
