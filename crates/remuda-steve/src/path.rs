//! Paths into objects, as filters, sort orders and projections name them, and the values found there.
//!
//! `metadata.labels[a/b]`, `metadata.fields[2]`, `status.conditions.type`: parts are separated by dots, a part in
//! brackets is taken as it is. Where a part meets a list, a number picks an item and a name is looked for in all items.

use serde_json::Value;

/// Longest path that is read. Objects are not deeper than this either.
const MOST_PARTS: usize = 32;
/// Values of a list that are looked at.
const MOST_VALUES: usize = 256;

/// A path that was parsed. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    parts: Vec<String>,
    /// As it is compared and kept: parts joined by a byte no key has.
    text: std::sync::Arc<str>,
}

impl Path {
    /// `None` for what is no path: empty parts, brackets that do not close.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (key, after) = bracketed(inner)?;
                parts.push(key);
                rest = after.strip_prefix('.').unwrap_or(after);
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (key, after) = rest.split_at(end);
                if key.is_empty() {
                    return None;
                }
                parts.push(key.to_owned());
                rest = match after.strip_prefix('.') {
                    Some("") => return None,
                    Some(after) => after,
                    None => after,
                };
            }
            if parts.len() > MOST_PARTS {
                return None;
            }
        }
        if parts.is_empty() {
            return None;
        }
        let text = parts.join("\u{1f}").into();
        Some(Self { parts, text })
    }

    pub(crate) fn parts(&self) -> Vec<&str> {
        self.parts.iter().map(String::as_str).collect()
    }

    pub(crate) fn key(&self) -> &std::sync::Arc<str> {
        &self.text
    }

    /// What an object has there.
    pub(crate) fn value(&self, object: &Value) -> Cell {
        let mut found = Vec::new();
        let mut many = false;
        gather(object, &self.parts, &mut many, &mut found);
        match (many, found.len()) {
            (false, 0) => Cell::None,
            (false, _) => Cell::Text(found.swap_remove(0).into()),
            (true, _) => Cell::Many(found.into_iter().map(Into::into).collect()),
        }
    }

    /// Takes the value out of an object.
    pub(crate) fn remove(&self, object: &mut Value) {
        let (last, parents) = self.parts.split_last().expect("a path is never empty");
        change(object, parents, &mut |parent| match parent {
            Value::Object(map) => drop(map.remove(last)),
            Value::Array(items) => {
                for item in items {
                    if let Value::Object(map) = item {
                        map.remove(last);
                    }
                }
            }
            _ => {}
        });
    }

    /// Empties the value, and keeps the keys of a map.
    pub(crate) fn blank(&self, object: &mut Value) {
        change(object, &self.parts, &mut |value| match value {
            Value::Object(map) => map.values_mut().for_each(|value| *value = Value::from("")),
            value => *value = Value::from(""),
        });
    }

    /// Copies the value to the same place of another object. Lists are copied whole.
    pub(crate) fn copy(&self, from: &Value, to: &mut Value) {
        let (mut from, mut to) = (from, to);
        for (index, part) in self.parts.iter().enumerate() {
            let Some(next) = from.as_object().and_then(|map| map.get(part)) else { return };
            if !to.is_object() {
                return;
            }
            let leaf = index + 1 == self.parts.len() || next.is_array();
            let slot = &mut to[part.as_str()];
            if leaf {
                *slot = next.clone();
                return;
            }
            if slot.is_null() {
                *slot = Value::Object(serde_json::Map::new());
            }
            (from, to) = (next, slot);
        }
    }
}

/// The text up to the closing bracket, with or without quotes.
fn bracketed(text: &str) -> Option<(String, &str)> {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            let end = inner.find(quote)?;
            let after = inner[end + 1..].strip_prefix(']')?;
            return Some((inner[..end].to_owned(), after));
        }
    }
    let end = text.find(']')?;
    (end > 0).then(|| (text[..end].to_owned(), &text[end + 1..]))
}

fn gather(value: &Value, parts: &[String], many: &mut bool, found: &mut Vec<String>) {
    if found.len() >= MOST_VALUES {
        return;
    }
    let Some((first, rest)) = parts.split_first() else {
        match value {
            Value::Array(items) => {
                *many = true;
                found.extend(items.iter().filter_map(scalar).take(MOST_VALUES));
            }
            value => found.extend(scalar(value)),
        }
        return;
    };
    match value {
        Value::Object(map) => {
            if let Some(next) = map.get(first) {
                gather(next, rest, many, found);
            }
        }
        Value::Array(items) => match first.parse::<usize>() {
            Ok(place) => {
                if let Some(item) = items.get(place) {
                    gather(item, rest, many, found);
                }
            }
            Err(_) => {
                *many = true;
                for item in items {
                    gather(item, parts, many, found);
                }
            }
        },
        _ => {}
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn change(value: &mut Value, parts: &[String], act: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = parts.split_first() else { return act(value) };
    match value {
        Value::Object(map) => {
            if let Some(next) = map.get_mut(first) {
                change(next, rest, act);
            }
        }
        Value::Array(items) => match first.parse::<usize>() {
            Ok(place) => {
                if let Some(item) = items.get_mut(place) {
                    change(item, rest, act);
                }
            }
            Err(_) => items.iter_mut().for_each(|item| change(item, parts, act)),
        },
        _ => {}
    }
}

/// A value that can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Cell {
    #[default]
    None,
    Text(Box<str>),
    Many(Box<[Box<str>]>),
}

impl Cell {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Of a cell of a Table.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::Many(items.iter().filter_map(scalar).map(Into::into).collect()),
            value => scalar(value).map_or(Self::None, |text| Self::Text(text.into())),
        }
    }

    /// All values that are there.
    pub(crate) fn values(&self) -> &[Box<str>] {
        match self {
            Self::None => &[],
            Self::Text(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }

    /// The value it is sorted by.
    pub(crate) fn first(&self) -> &str {
        self.values().first().map(AsRef::as_ref).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &[&str]) {
        let object = json!({
            "metadata": {"name": "a", "labels": {"a/b.c": "x"}, "fields": ["n", 3, true]},
            "spec": {"replicas": 3, "list": [{"n": "p"}, {"n": "q"}, {}], "words": ["u", "v"]},
        });
        let cell = Path::parse(path).map(|path| path.value(&object)).unwrap_or_default();
        let values: Vec<&str> = cell.values().iter().map(AsRef::as_ref).collect();
        assert_eq!(values, expected, "{path}");
    }

    #[test]
    fn values_are_found_by_their_path() {
        check("metadata.name", &["a"]);
        check("metadata.labels[a/b.c]", &["x"]);
        check("metadata.labels[\"a/b.c\"]", &["x"]);
        check("metadata.fields[1]", &["3"]);
        check("metadata.fields.2", &["true"]);
        check("spec.replicas", &["3"]);
        check("spec.list.n", &["p", "q"]);
        check("spec.list[1].n", &["q"]);
        check("spec.words", &["u", "v"]);
        check("spec.nothing", &[]);
        check("spec", &[]);
    }

    #[test]
    fn what_is_no_path_is_none() {
        let deep = ["a"; 40].join(".");
        for bad in ["", " ", ".", "a..b", "a.", "a[", "a[]", "a[\"x]", deep.as_str()] {
            assert_eq!(Path::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn parts_are_taken_out_emptied_and_copied() {
        let object = json!({"a": {"b": 1, "c": 2}, "l": [{"x": 1, "y": 2}]});
        let path = |text: &str| Path::parse(text).unwrap();
        let mut without = object.clone();
        path("a.b").remove(&mut without);
        path("l.x").remove(&mut without);
        assert_eq!(without, json!({"a": {"c": 2}, "l": [{"y": 2}]}));
        let mut blank = object.clone();
        path("a").blank(&mut blank);
        assert_eq!(blank["a"], json!({"b": "", "c": ""}));
        let mut only = json!({});
        path("a.b").copy(&object, &mut only);
        path("l.x").copy(&object, &mut only);
        path("z.z").copy(&object, &mut only);
        assert_eq!(only, json!({"a": {"b": 1}, "l": [{"x": 1, "y": 2}]}));
    }
}
