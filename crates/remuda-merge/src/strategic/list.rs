//! Lists in a strategic merge patch.

use std::collections::BTreeMap;

use remuda_schema::Schema;
use serde_json::{Map, Value};

use super::{PATCH, Place, SET_ORDER, StrategicError, cleaned, map_text, merge_map, unknown};
use crate::{gotext, order::Key};

/// Merges `patch` into the list `target` of field `name`, or deletes its items from it.
pub(super) fn merge(
    target: &mut Vec<Value>,
    patch: &[Value],
    field: Option<&Schema>,
    name: &str,
    delete: bool,
) -> Result<(), StrategicError> {
    let merges = field.is_some_and(|field| field.patch.merge);
    if !merges && !delete {
        *target = patch.iter().filter_map(cleaned).collect();
        return Ok(());
    }
    if target.is_empty() && patch.is_empty() {
        return Ok(());
    }
    let key = merge_key(field);
    if kind(target, patch)? != Kind::Map {
        if delete {
            let unwanted = positions(patch, key);
            target.retain(|item| !unwanted.contains_key(&Key(item.clone())));
            return Ok(());
        }
        let before = positions(target, "");
        let mut seen = BTreeMap::new();
        let all = std::mem::take(target).into_iter().chain(patch.iter().cloned());
        let united = all.filter(|item| seen.insert(Key(item.clone()), ()).is_none()).collect();
        *target = arrange(united, patch, &before, "")?;
        return Ok(());
    }
    if key.is_empty() {
        return Err(StrategicError::Other(format!("cannot merge lists without merge key for {name}")));
    }
    let changes = special_elements(target, patch, key)?;
    let before = positions(target, key);
    let plain: Vec<Value> = changes.iter().map(|map| map.get(key).cloned().unwrap_or_default()).collect();
    merge_items(target, &changes, key, field)?;
    let wanted = plain.into_iter().enumerate().rev().map(|(index, value)| (Key(value), index)).collect();
    *target = arrange_by(std::mem::take(target), &wanted, &before, key)?;
    Ok(())
}

/// Merges `patch` and puts the items that `order` names into its order.
pub(super) fn merge_ordered(
    target: &mut Vec<Value>,
    patch: Option<&[Value]>,
    order: &[Value],
    field: Option<&Schema>,
    name: &str,
) -> Result<(), StrategicError> {
    let key = merge_key(field);
    let changes = patch.unwrap_or_default();
    fits_order(changes, order, key)?;
    kind(target, changes)?;
    let before = positions(target, key);
    if target.is_empty() {
        *target = changes.iter().filter_map(cleaned).collect();
    } else if patch.is_some() {
        merge(target, changes, field, name, false)?;
    }
    *target = arrange(std::mem::take(target), order, &before, key)?;
    Ok(())
}

fn merge_key(field: Option<&Schema>) -> &str {
    field.and_then(|field| field.patch.merge_key.as_deref()).unwrap_or_default()
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Kind {
    Text,
    Integer,
    Float,
    Bool,
    Map,
    List,
    Null,
}

/// The one kind all items of both lists have.
fn kind(left: &[Value], right: &[Value]) -> Result<Kind, StrategicError> {
    let of = |value: &Value| match value {
        Value::String(_) => Kind::Text,
        Value::Number(number) if number.is_f64() => Kind::Float,
        Value::Number(_) => Kind::Integer,
        Value::Bool(_) => Kind::Bool,
        Value::Object(_) => Kind::Map,
        Value::Array(_) => Kind::List,
        Value::Null => Kind::Null,
    };
    let mut kinds = left.iter().chain(right).map(of);
    let Some(first) = kinds.next() else {
        return Err(StrategicError::Other("no elements in any of the given slices".to_owned()));
    };
    if first == Kind::List {
        return Err(StrategicError::ListOfLists);
    }
    if first == Kind::Null || kinds.any(|kind| kind != first) {
        let lists =
            [left, right].map(|list| gotext::plain(&Value::Array(list.iter().take(50).cloned().collect())));
        return Err(StrategicError::Other(format!(
            "list element types are not identical: [{}]",
            lists.join(" ")
        )));
    }
    Ok(first)
}

/// The value that identifies an item: its merge key, or itself without one.
fn identity<'a>(item: &'a Value, key: &str) -> Option<&'a Value> {
    if key.is_empty() { Some(item) } else { item.get(key) }
}

/// First position of every identity.
fn positions(list: &[Value], key: &str) -> BTreeMap<Key, usize> {
    let items = list.iter().enumerate().rev();
    items.filter_map(|(index, item)| Some((Key(identity(item, key)?.clone()), index))).collect()
}

/// Carries out the items that are directives and returns the others.
fn special_elements<'p>(
    target: &mut Vec<Value>,
    patch: &'p [Value],
    key: &str,
) -> Result<Vec<&'p Map<String, Value>>, StrategicError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted = BTreeMap::new();
    let mut replace = false;
    for map in patch.iter().filter_map(Value::as_object) {
        let Some(directive) = map.get(PATCH) else {
            plain.push(map);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value =
                    map.get(key).ok_or_else(|| StrategicError::NoMergeKey(map_text(map), key.to_owned()))?;
                deleted.insert(Key(value.clone()), ());
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let text = "merging lists cannot yet be specified in the patch";
                return Err(StrategicError::Other(text.to_owned()));
            }
            _ => return Err(unknown(directive, map)),
        }
    }
    if replace {
        *target = plain.iter().map(|map| Value::Object(super::cleaned_map(map))).collect();
        plain.clear();
    } else if !deleted.is_empty() {
        target.retain(|item| item.get(key).is_none_or(|value| !deleted.contains_key(&Key(value.clone()))));
    }
    Ok(plain)
}

/// Merges items with a key that exists and appends the others.
fn merge_items(
    target: &mut Vec<Value>,
    changes: &[&Map<String, Value>],
    key: &str,
    field: Option<&Schema>,
) -> Result<(), StrategicError> {
    let place = Place::of(field.and_then(|field| field.items.as_deref()));
    let mut known = positions(target, key);
    for change in changes {
        let value =
            change.get(key).ok_or_else(|| StrategicError::NoMergeKey(map_text(change), key.to_owned()))?;
        let value = Key(value.clone());
        match known.get(&value).and_then(|index| target.get_mut(*index)) {
            Some(Value::Object(current)) => merge_map(current, change, place)?,
            _ => {
                known.insert(value, target.len());
                target.push(Value::Object(super::cleaned_map(change)));
            }
        }
    }
    Ok(())
}

/// Orders a merged list: items of `wanted` in its order, the others in their order from `before`
/// and, where both are known there, between them.
fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    before: &BTreeMap<Key, usize>,
    key: &str,
) -> Result<Vec<Value>, StrategicError> {
    arrange_by(merged, &positions(wanted, key), before, key)
}

fn arrange_by(
    merged: Vec<Value>,
    wanted: &BTreeMap<Key, usize>,
    before: &BTreeMap<Key, usize>,
    key: &str,
) -> Result<Vec<Value>, StrategicError> {
    struct Ranked {
        item: Value,
        wanted: Option<usize>,
        before: Option<usize>,
    }
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let Some(value) = identity(&item, key) else {
            return Err(StrategicError::NoMergeKey(gotext::plain(&item), key.to_owned()));
        };
        let value = Key(value.clone());
        let ranked =
            Ranked { wanted: wanted.get(&value).copied(), before: before.get(&value).copied(), item };
        if ranked.wanted.is_some() { named.push(ranked) } else { others.push(ranked) }
    }
    named.sort_by_key(|ranked| ranked.wanted);
    others.sort_by_key(|ranked| ranked.before.unwrap_or(usize::MAX));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let take_other = match (others.peek(), named.peek()) {
            (Some(other), Some(named)) => {
                matches!((other.before, named.before), (Some(other), Some(named)) if other < named)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return Ok(out),
        };
        out.extend(if take_other { others.next() } else { named.next() }.map(|ranked| ranked.item));
    }
}

/// Checks that the items of a patch come in the order the patch asks for.
fn fits_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), StrategicError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in patch {
        let directive = item.as_object().is_some_and(|map| map.contains_key(PATCH));
        if !key.is_empty() && !item.is_object() {
            let text =
                format!("expected a map[string]interface {{}}, but received a {}", gotext::type_name(item));
            return Err(StrategicError::Other(text));
        }
        if directive {
            continue;
        }
        let value = named(item, key)?;
        let mut found = false;
        for next in wanted.by_ref() {
            if crate::order::equal(named(next, key)?, value) {
                found = true;
                break;
            }
        }
        if !found {
            let [patch, order] = [patch, order]
                .map(|list| gotext::plain(&Value::Array(list.iter().take(100).cloned().collect())));
            return Err(StrategicError::Other(format!(
                "The order in patch list:\n{patch}\n doesn't match {SET_ORDER} list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

fn named<'a>(item: &'a Value, key: &str) -> Result<&'a Value, StrategicError> {
    identity(item, key).ok_or_else(|| StrategicError::NoMergeKey(gotext::plain(item), key.to_owned()))
}
