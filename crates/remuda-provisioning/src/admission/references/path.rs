//! Walks an object along the path of a field.
//!
//! `a.b` is a field of a field, `[*]` every item of a list, `*` every value of a map, `[key]` one value of a map
//! whose keys have dots.

use serde_json::Value;

/// A value that was found.
pub(super) struct Spot<'a> {
    pub(super) value: &'a Value,
    /// Its path with the positions in lists.
    pub(super) concrete: String,
    /// Its path without them.
    pub(super) generic: String,
}

enum Step<'p> {
    Field(&'p str),
    Key(&'p str),
    Item,
    Any,
}

/// The first step of a path, and the rest of it.
fn step(path: &str) -> (Step<'_>, &str) {
    if let Some(rest) = path.strip_prefix("[*]") {
        return (Step::Item, rest.strip_prefix('.').unwrap_or(rest));
    }
    if let Some((key, rest)) = path.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        return (Step::Key(key), rest.strip_prefix('.').unwrap_or(rest));
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (field, rest) = path.split_at(end);
    let step = if field == "*" { Step::Any } else { Step::Field(field) };
    (step, rest.strip_prefix('.').unwrap_or(rest))
}

/// Calls `visit` for every value the path leads to. Null is no value.
pub(super) fn each<'a>(object: &'a Value, path: &str, visit: &mut dyn FnMut(&Spot<'a>)) {
    walk(Spot { value: object, concrete: String::new(), generic: String::new() }, path, visit);
}

fn walk<'a>(spot: Spot<'a>, path: &str, visit: &mut dyn FnMut(&Spot<'a>)) {
    if spot.value.is_null() {
        return;
    }
    if path.is_empty() {
        return visit(&spot);
    }
    let below = |value: &'a Value, concrete: &str, generic: &str| Spot {
        value,
        concrete: format!("{}{concrete}", spot.concrete),
        generic: format!("{}{generic}", spot.generic),
    };
    let dot = if spot.concrete.is_empty() { "" } else { "." };
    let (step, rest) = step(path);
    match step {
        Step::Field(field) => {
            if let Some(value) = spot.value.get(field) {
                let step = format!("{dot}{field}");
                walk(below(value, &step, &step), rest, visit);
            }
        }
        Step::Key(key) => {
            if let Some(value) = spot.value.get(key) {
                let step = format!("[{key}]");
                walk(below(value, &step, &step), rest, visit);
            }
        }
        Step::Item => {
            for (index, value) in spot.value.as_array().into_iter().flatten().enumerate() {
                walk(below(value, &format!("[{index}]"), "[*]"), rest, visit);
            }
        }
        Step::Any => {
            for (key, value) in spot.value.as_object().into_iter().flatten() {
                let step = format!("[{key}]");
                walk(below(value, &step, &step), rest, visit);
            }
        }
    }
}
