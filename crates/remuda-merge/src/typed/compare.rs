//! Which fields an object has, and which differ between two objects.

use serde_json::Value;

use super::{Form, Typed, list_of, map_of};
use crate::{
    fields::{Node, PathElement, Set},
    order,
};

/// The difference between two objects.
#[derive(Debug, Default)]
pub(crate) struct Difference<'a> {
    /// Fields that were added or have another value.
    pub(crate) changed: Set<'a>,
    pub(crate) removed: Set<'a>,
}

impl Difference<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Which nodes of a value become members of its set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    /// Every node: the fields a value brings along or takes away.
    Every,
    /// What somebody states by writing the value: leaves, list items and map keys.
    Stated,
}

/// The set of fields an applied configuration states.
pub(crate) fn stated<'a>(value: &'a Value, typed: Typed<'a>) -> Set<'a> {
    collect(value, typed, Members::Stated).1
}

/// Every path of a value.
#[cfg(test)]
pub(crate) fn every<'a>(value: &'a Value, typed: Typed<'a>) -> Set<'a> {
    collect(value, typed, Members::Every).1
}

/// What changed from `old` to `new`.
pub(crate) fn difference<'a>(old: &'a Value, new: &'a Value, typed: Typed<'a>) -> Difference<'a> {
    pair(old, new, typed).1
}

/// Whether the value is a leaf, and the set below it.
fn collect<'a>(value: &'a Value, typed: Typed<'a>, members: Members) -> (bool, Set<'a>) {
    match typed.form(value) {
        Form::Leaf => (true, Set::new()),
        Form::Map if typed.atomic_map() => (true, Set::new()),
        Form::List if typed.atomic_list() => (true, Set::new()),
        Form::Map => {
            let Some(map) = map_of(value) else { return (false, Set::new()) };
            let mut nodes = Vec::with_capacity(map.len());
            for (name, value) in map {
                let declared = typed.declared(name);
                let field = declared.or_else(|| typed.undeclared()).unwrap_or(Typed::Free);
                let (leaf, children) = collect(value, field, members);
                // An empty value is stated as such; otherwise it could not be kept empty.
                let member = members == Members::Every || leaf || declared.is_none() || is_empty(value);
                if member || !children.is_empty() {
                    nodes.push(Node { element: PathElement::Field(name), member, children });
                }
            }
            (false, Set::from_nodes(nodes))
        }
        Form::List => {
            let mut items = elements(list_of(value), typed, Side::New, Vec::new());
            items.sort_by(|left, right| left.element.cmp(&right.element));
            let mut nodes = Vec::with_capacity(items.len());
            for group in groups(&items) {
                // Items that cannot be told apart are owned only as a whole.
                let children = match group {
                    [item] => collect(item.value, typed.item(), members).1,
                    _ => Set::new(),
                };
                nodes.push(Node { element: group[0].element.clone(), member: true, children });
            }
            (false, Set::from_nodes(nodes))
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Whether the node itself has another value, and the difference below it.
fn pair<'a>(old: &'a Value, new: &'a Value, typed: Typed<'a>) -> (bool, Difference<'a>) {
    let (before, after) = (typed.form(old), typed.form(new));
    if before != after {
        let changed = collect(new, typed, Members::Every).1;
        let removed = collect(old, typed, Members::Every).1;
        return (true, Difference { changed, removed });
    }
    let leaf = || (!order::equal(old, new), Difference::default());
    match after {
        Form::Leaf => leaf(),
        Form::Map if typed.atomic_map() => leaf(),
        Form::List if typed.atomic_list() => leaf(),
        // Two empty values differ if one is `null`.
        Form::Map if map_of(old).is_none() && map_of(new).is_none() => leaf(),
        Form::List if list_of(old).is_empty() && list_of(new).is_empty() => leaf(),
        Form::Map => (false, maps(old, new, typed)),
        // Comparing first spares naming every item of the lists that did not change.
        Form::List if order::equal(old, new) => (false, Difference::default()),
        Form::List => (false, lists(list_of(old), list_of(new), typed)),
    }
}

/// Collects the nodes of one level of a difference.
#[derive(Default)]
struct Level<'a> {
    changed: Vec<Node<'a>>,
    removed: Vec<Node<'a>>,
}

impl<'a> Level<'a> {
    fn both(
        &mut self,
        element: impl FnOnce() -> PathElement<'a>,
        old: &'a Value,
        new: &'a Value,
        typed: Typed<'a>,
    ) {
        let (own, below) = pair(old, new, typed);
        if !own && below.is_empty() {
            return;
        }
        let element = element();
        if !below.removed.is_empty() {
            self.removed.push(Node { element: element.clone(), member: false, children: below.removed });
        }
        if own || !below.changed.is_empty() {
            self.changed.push(Node { element, member: own, children: below.changed });
        }
    }

    fn added(&mut self, element: PathElement<'a>, value: &'a Value, typed: Typed<'a>) {
        let children = collect(value, typed, Members::Every).1;
        self.changed.push(Node { element, member: true, children });
    }

    fn gone(&mut self, element: PathElement<'a>, value: &'a Value, typed: Typed<'a>) {
        let children = collect(value, typed, Members::Every).1;
        self.removed.push(Node { element, member: true, children });
    }

    fn done(self) -> Difference<'a> {
        Difference { changed: Set::from_nodes(self.changed), removed: Set::from_nodes(self.removed) }
    }
}

fn maps<'a>(old: &'a Value, new: &'a Value, typed: Typed<'a>) -> Difference<'a> {
    let mut level = Level::default();
    let (before, after) = (map_of(old), map_of(new));
    for (name, value) in after.into_iter().flatten() {
        let element = || PathElement::Field(name);
        match before.and_then(|before| before.get(name)) {
            // The same scalar needs no look at its type.
            Some(Value::String(old)) if value.as_str() == Some(old) => {}
            Some(old) => level.both(element, old, value, typed.field(name)),
            None => level.added(element(), value, typed.field(name)),
        }
    }
    for (name, value) in before.into_iter().flatten() {
        if after.is_none_or(|after| !after.contains_key(name)) {
            level.gone(PathElement::Field(name), value, typed.field(name));
        }
    }
    level.done()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Old,
    New,
}

struct Item<'a> {
    element: PathElement<'a>,
    side: Side,
    value: &'a Value,
}

/// Appends the items that have an identity.
fn elements<'a>(list: &'a [Value], typed: Typed<'a>, side: Side, mut items: Vec<Item<'a>>) -> Vec<Item<'a>> {
    items.reserve(list.len());
    for value in list {
        if let Ok(element) = typed.element(value) {
            items.push(Item { element, side, value });
        }
    }
    items
}

/// Runs of items with the same identity.
fn groups<'s, 'a>(sorted: &'s [Item<'a>]) -> impl Iterator<Item = &'s [Item<'a>]> {
    sorted.chunk_by(|left, right| left.element == right.element)
}

fn lists<'a>(old: &'a [Value], new: &'a [Value], typed: Typed<'a>) -> Difference<'a> {
    let items = elements(old, typed, Side::Old, Vec::new());
    let mut items = elements(new, typed, Side::New, items);
    // Stable: within a group the old items stay first, each side in its order.
    items.sort_by(|left, right| left.element.cmp(&right.element));
    let mut level = Level::default();
    for group in groups(&items) {
        let (before, after) = group.split_at(group.partition_point(|item| item.side == Side::Old));
        let element = || group[0].element.clone();
        let item = typed.item();
        match (before, after) {
            ([old], [new]) => level.both(element, old.value, new.value, item),
            ([], [new]) => level.added(element(), new.value, item),
            ([old], []) => level.gone(element(), old.value, item),
            // Repeated items are compared and owned only together.
            ([_, _, ..], [_, _, ..]) => {
                let same = before.len() == after.len()
                    && before.iter().zip(after).all(|(old, new)| order::equal(old.value, new.value));
                if !same {
                    level.changed.push(Node { element: element(), member: true, children: Set::new() });
                }
            }
            ([_, _, ..], rest) => {
                if let Some(new) = rest.first() {
                    level.added(element(), new.value, item);
                }
                level.removed.push(Node { element: element(), member: true, children: Set::new() });
            }
            (rest, _) => {
                if let Some(old) = rest.first() {
                    level.gone(element(), old.value, item);
                }
                level.changed.push(Node { element: element(), member: true, children: Set::new() });
            }
        }
    }
    level.done()
}
