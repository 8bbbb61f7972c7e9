//! Merging an applied configuration into the stored object.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Form, Typed, list_of, map_of};
use crate::fields::PathElement;

/// Lays `applied` over `target`: maps by key, keyed lists by item, the rest replaced. Nothing is
/// removed.
pub(crate) fn merge<'a>(target: &mut Value, applied: &'a Value, typed: Typed<'a>) {
    match typed.form(applied) {
        Form::Map if !typed.atomic_map() && typed.form(target) == Form::Map => {
            let Some(fields) = map_of(applied) else {
                if map_of(target).is_none() {
                    *target = applied.clone();
                }
                return;
            };
            let Value::Object(map) = target else {
                *target = applied.clone();
                return;
            };
            for (name, value) in fields {
                match map.get_mut(name) {
                    Some(current) => merge(current, value, typed.field(name)),
                    None => {
                        map.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        Form::List if !typed.atomic_list() && typed.form(target) == Form::List => {
            let items = list_of(applied);
            match target {
                Value::Array(current) if !current.is_empty() => {
                    if !items.is_empty() {
                        *current = lists(std::mem::take(current), items, typed);
                    }
                }
                _ => *target = applied.clone(),
            }
        }
        _ => *target = applied.clone(),
    }
}

/// What is known about the items with one identity.
#[derive(Default)]
struct Slot {
    /// First position in the stored list.
    stored: Option<usize>,
    repeated: bool,
    applied: Option<usize>,
    merged: bool,
}

/// Merges two lists of items with identity.
///
/// Shared items come in the applied order; stored items that were not applied keep their place
/// before the shared item they preceded; new items follow the applied item before them.
fn lists<'a>(stored: Vec<Value>, applied: &'a [Value], typed: Typed<'a>) -> Vec<Value> {
    let mut slots: BTreeMap<PathElement<'_>, usize> = BTreeMap::new();
    let mut table: Vec<Slot> = Vec::new();
    let mut left: Vec<Option<usize>> = Vec::with_capacity(stored.len());
    let mut right: Vec<usize> = Vec::with_capacity(applied.len());
    for (index, item) in stored.iter().enumerate() {
        left.push(typed_element(typed, item).map(|element| {
            let slot = slot(&mut slots, &mut table, element);
            table[slot].repeated = table[slot].stored.is_some();
            table[slot].stored.get_or_insert(index);
            slot
        }));
    }
    for (index, item) in applied.iter().enumerate() {
        if let Some(element) = typed_element(typed, item) {
            let slot = slot(&mut slots, &mut table, element);
            if table[slot].applied.is_none() {
                table[slot].applied = Some(index);
                right.push(slot);
            }
        }
    }
    // Identities borrow from the stored items, which are moved from here on.
    drop(slots);

    let mut stored: Vec<Option<Value>> = stored.into_iter().map(Some).collect();
    let mut shared =
        right.iter().copied().filter(|slot| table[*slot].stored.is_some()).collect::<Vec<_>>().into_iter();
    let mut next_shared = shared.next();
    let mut out = Vec::with_capacity(stored.len().max(right.len()));
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        if i < left.len() && j < right.len() {
            if left[i] == Some(right[j]) {
                take(&mut out, &mut stored, &mut table[right[j]], applied, typed);
                next_shared = shared.next();
                i += 1;
                j += 1;
                continue;
            }
            let is_applied = left[i].is_some_and(|slot| table[slot].applied.is_some());
            if is_applied && next_shared.is_some() && next_shared != left[i] {
                // A shared item, but not the one whose turn it is.
                i += 1;
                continue;
            }
        }
        if i < left.len() {
            match left[i].map(|slot| &table[slot]) {
                Some(slot) if slot.applied.is_some() => {
                    if slot.merged {
                        i += 1;
                    }
                }
                _ => {
                    out.extend(stored[i].take());
                    i += 1;
                    continue;
                }
            }
        }
        if j < right.len() {
            let slot = right[j];
            take(&mut out, &mut stored, &mut table[slot], applied, typed);
            if next_shared == Some(slot) {
                next_shared = shared.next();
            }
            j += 1;
        }
    }
    out
}

fn typed_element<'a>(typed: Typed<'a>, item: &'a Value) -> Option<PathElement<'a>> {
    typed.element(item).ok()
}

fn slot<'a>(
    slots: &mut BTreeMap<PathElement<'a>, usize>,
    table: &mut Vec<Slot>,
    element: PathElement<'a>,
) -> usize {
    *slots.entry(element).or_insert_with(|| {
        table.push(Slot::default());
        table.len() - 1
    })
}

/// Moves the merged item of a slot to the result.
fn take<'a>(
    out: &mut Vec<Value>,
    stored: &mut [Option<Value>],
    slot: &mut Slot,
    applied: &'a [Value],
    typed: Typed<'a>,
) {
    let Some(value) = slot.applied.map(|index| &applied[index]) else { return };
    slot.merged = true;
    // Of repeated stored items none can be the one meant; the applied item replaces them.
    let current = slot.stored.filter(|_| !slot.repeated).and_then(|index| stored[index].take());
    out.push(match current {
        Some(mut current) => {
            merge(&mut current, value, typed.item());
            current
        }
        None => value.clone(),
    });
}
