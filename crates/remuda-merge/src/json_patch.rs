//! JSON Patch (RFC 6902) with the semantics of the library kube-apiserver uses.
//!
//! Where that library is more lenient than the RFC, so is this: `test` of a missing key against
//! `null` passes, negative indices count from the end, `replace` of a missing key of an existing
//! object sets it, `copy` of a missing key writes `null`, `add` without a value writes `null`.

use std::io;

use serde_json::{Map, Value};

/// Most operations a patch may have.
pub const MAX_OPERATIONS: usize = 10_000;
/// Most bytes all `copy` operations of a patch may write.
pub const MAX_COPY_BYTES: usize = 3 * 1024 * 1024;
/// Deepest document a patch may produce: what the JSON reader accepts again.
const MAX_DEPTH: usize = 126;
/// Depth that may exist while operations run; keeps recursion over the document bounded.
const MAX_TRANSIENT_DEPTH: usize = 2_000;
/// Array elements all operations of a patch may shift, so that many inserts at the front of a
/// long array stay cheap.
const MAX_SHIFTED: usize = 20_000_000;

/// Why a patch was refused, sorted by the answer it deserves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Not a list of operations.
    #[error("{0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooMany(usize),
    /// Does not fit the document: missing path, unknown operation.
    #[error("{0}")]
    Rejected(String),
    /// What a `test` operation looks at is something else.
    #[error("{0}")]
    TestFailed(String),
}

impl PatchError {
    /// The HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooMany(_) => 413,
            Self::Rejected(_) | Self::TestFailed(_) => 422,
        }
    }
}

/// Applies `patch` to `doc`. On error `doc` may hold the effect of earlier operations: the
/// caller patches a copy.
pub fn apply(doc: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Malformed(
            "error decoding patch: a JSON patch is a list of operations".to_owned(),
        ));
    };
    if let Some(index) =
        operations.iter().position(|operation| !operation.is_object() && !operation.is_null())
    {
        return Err(PatchError::Malformed(format!(
            "error decoding patch: operation {index} is not an object"
        )));
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooMany(operations.len()));
    }
    let mut patcher = Patcher { doc, copied: 0, shifted: 0, depth: MAX_DEPTH, test_failed: false };
    for operation in operations {
        if let Err(error) = patcher.run(operation) {
            let failed = patcher.test_failed;
            return Err(if failed { PatchError::TestFailed(error) } else { PatchError::Rejected(error) });
        }
    }
    // Only operations that can deepen the document raise the bound, so this walk is rare.
    if patcher.depth > MAX_DEPTH && depth(patcher.doc) > MAX_DEPTH {
        return Err(PatchError::Rejected("the patched document is nested too deeply".to_owned()));
    }
    Ok(())
}

struct Patcher<'a> {
    doc: &'a mut Value,
    copied: usize,
    shifted: usize,
    /// Upper bound of the document's depth.
    depth: usize,
    test_failed: bool,
}

impl Patcher<'_> {
    fn run(&mut self, operation: &Value) -> Result<(), String> {
        let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
        let path = |kind: &str| {
            let path = operation.get("path").and_then(Value::as_str);
            path.ok_or_else(|| format!("{kind} operation failed to decode path: missing value"))
        };
        let from = |kind: &str| {
            let from = operation.get("from").and_then(Value::as_str);
            from.ok_or_else(|| format!("{kind} operation failed to decode from: missing value"))
        };
        let value = operation.get("value");
        match kind {
            "add" => {
                let value = value.cloned().unwrap_or(Value::Null);
                self.add("add", path(kind)?, value)
            }
            "remove" => self.remove("remove", path(kind)?).map(drop),
            "replace" => self.replace(path(kind)?, value),
            "move" => self.relocate(from(kind)?, path(kind)?),
            "copy" => self.copy(from(kind)?, path(kind)?),
            "test" => self.test(path(kind)?, value),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&mut self, kind: &str, path: &str, value: Value) -> Result<(), String> {
        self.deepen(path.matches('/').count() + depth(&value))?;
        self.insert(kind, path, value)
    }

    /// Puts `value` at `path`; the depth was accounted for.
    fn insert(&mut self, kind: &str, path: &str, value: Value) -> Result<(), String> {
        let (parent, key) = parent(self.doc, path).ok_or_else(|| {
            format!("{kind} operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        match parent {
            Value::Object(map) => {
                map.insert(key, value);
                Ok(())
            }
            Value::Array(items) if key == "-" => {
                items.push(value);
                Ok(())
            }
            Value::Array(items) => {
                // The end of the list is a valid place, so one more index exists than items.
                let index = index(&key, items.len() + 1).map_err(|error| at("add", path, &error))?;
                self.shifted += items.len() - index;
                affordable(self.shifted)?;
                items.insert(index, value);
                Ok(())
            }
            _ => Err(missing(kind, path)),
        }
    }

    fn remove(&mut self, kind: &str, path: &str) -> Result<Value, String> {
        let (parent, key) = parent(self.doc, path).ok_or_else(|| missing(kind, path))?;
        match parent {
            Value::Object(map) => map.remove(&key).ok_or_else(|| {
                at(kind, path, &format!("Unable to remove nonexistent key: {key}: missing value"))
            }),
            Value::Array(items) => {
                let index = index(&key, items.len()).map_err(|error| at(kind, path, &error))?;
                self.shifted += items.len() - index;
                affordable(self.shifted)?;
                Ok(items.remove(index))
            }
            _ => Err(missing(kind, path)),
        }
    }

    fn replace(&mut self, path: &str, value: Option<&Value>) -> Result<(), String> {
        if path.is_empty() {
            return match value {
                Some(value @ (Value::Object(_) | Value::Array(_))) => {
                    *self.doc = value.clone();
                    Ok(())
                }
                _ => Err("replace operation value must be object or array".to_owned()),
            };
        }
        let value = value.cloned().unwrap_or(Value::Null);
        self.deepen(path.matches('/').count() + depth(&value))?;
        let (parent, key) = parent(self.doc, path).ok_or_else(|| missing("replace", path))?;
        match parent {
            Value::Object(map) => {
                map.insert(key, value);
                Ok(())
            }
            Value::Array(items) => {
                let gone =
                    || format!("replace operation does not apply: doc is missing key: {path}: missing value");
                let index = index(&key, items.len()).map_err(|_| gone())?;
                items[index] = value;
                Ok(())
            }
            _ => Err(missing("replace", path)),
        }
    }

    fn relocate(&mut self, from: &str, path: &str) -> Result<(), String> {
        let value = self.remove("move", from)?;
        // A walk per move would be quadratic; how much deeper it lands bounds the growth as well.
        let deeper = path.matches('/').count().saturating_sub(from.matches('/').count());
        self.deepen(self.depth + deeper)?;
        self.insert("move", path, value)
    }

    fn copy(&mut self, from: &str, path: &str) -> Result<(), String> {
        let (parent, key) = parent(self.doc, from).ok_or_else(|| missing("copy", from))?;
        let value = get(parent, &key).map_err(|error| at("copy", from, &error))?;
        let Some(value) = value else {
            return self.insert("copy", path, Value::Null);
        };
        self.copied += size(value, MAX_COPY_BYTES);
        if self.copied > MAX_COPY_BYTES {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPY_BYTES}",
                self.copied
            ));
        }
        let value = value.clone();
        self.add("copy", path, value)
    }

    fn test(&mut self, path: &str, expected: Option<&Value>) -> Result<(), String> {
        let expected = expected.unwrap_or(&Value::Null);
        let found = if path.is_empty() {
            Some(&*self.doc)
        } else {
            let (parent, key) = parent(self.doc, path).ok_or_else(|| {
                format!("test operation does not apply: is missing path: {path}: missing value")
            })?;
            get(parent, &key).map_err(|error| at("test", path, &error))?
        };
        if found.unwrap_or(&Value::Null) == expected {
            return Ok(());
        }
        self.test_failed = true;
        Err(format!("testing value {path} failed: test failed"))
    }

    fn deepen(&mut self, depth: usize) -> Result<(), String> {
        self.depth = self.depth.max(depth);
        if self.depth > MAX_TRANSIENT_DEPTH {
            return Err("the patched document is nested too deeply".to_owned());
        }
        Ok(())
    }
}

fn missing(kind: &str, path: &str) -> String {
    format!("{kind} operation does not apply: doc is missing path: {path}: missing value")
}

fn at(kind: &str, path: &str, error: &str) -> String {
    format!("error in {kind} for path: '{path}': {error}")
}

fn affordable(shifted: usize) -> Result<(), String> {
    if shifted > MAX_SHIFTED { Err("the patch moves too many list items".to_owned()) } else { Ok(()) }
}

/// The container that holds the last part of `path`, and that part decoded.
fn parent<'a>(doc: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    // What precedes the first slash is ignored, as in the reference.
    let (_, path) = path.split_once('/')?;
    let (parents, key) = match path.rsplit_once('/') {
        Some((parents, key)) => (Some(parents), key),
        None => (None, path),
    };
    let mut node = doc;
    for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let part = decode(part);
        node = match node {
            Value::Object(map) => map.get_mut(&part)?,
            Value::Array(items) => {
                let index = index(&part, items.len()).ok()?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    matches!(node, Value::Object(_) | Value::Array(_)).then(|| (node, decode(key)))
}

fn get<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match parent {
        Value::Object(map) => Ok(Map::get(map, key)),
        Value::Array(items) => index(key, items.len()).map(|index| items.get(index)),
        _ => Ok(None),
    }
}

/// An index below `len`; negative ones count from the end.
fn index(key: &str, len: usize) -> Result<usize, String> {
    let index: i64 = key.parse().map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let absolute = if index < 0 { index.saturating_add(len) } else { index };
    if absolute < 0 || absolute >= len {
        return Err(format!("Unable to access invalid index: {index}: invalid index referenced"));
    }
    usize::try_from(absolute).map_err(|error| error.to_string())
}

fn decode(part: &str) -> String {
    if part.contains('~') { part.replace("~1", "/").replace("~0", "~") } else { part.to_owned() }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Encoded size, counted no further than just beyond `limit`.
fn size(value: &Value, limit: usize) -> usize {
    struct Counter {
        bytes: usize,
        limit: usize,
    }
    impl io::Write for Counter {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            self.bytes += buffer.len();
            if self.bytes > self.limit { Err(io::ErrorKind::WriteZero.into()) } else { Ok(buffer.len()) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter { bytes: 0, limit };
    // The only failure is the counter's own refusal, after which the count is already too high.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn patched(mut doc: Value, patch: Value) -> Result<Value, PatchError> {
        apply(&mut doc, &patch).map(|()| doc)
    }

    fn check(doc: Value, patch: Value, expected: Value) {
        assert_eq!(patched(doc.clone(), patch.clone()), Ok(expected), "{patch} on {doc}");
    }

    fn refused(doc: Value, patch: Value, status: u16, text: &str) {
        let error = patched(doc, patch.clone()).expect_err("the patch does not fit");
        assert_eq!(error.status(), status, "{patch}: {error}");
        assert!(error.to_string().contains(text), "{patch}: {error}");
    }

    #[test]
    fn operations_do_what_the_rfc_says() {
        let doc = || json!({"a": {"b": 1}, "l": [1, 2, 3]});
        check(
            doc(),
            json!([{"op": "add", "path": "/a/c", "value": 2}]),
            json!({"a": {"b": 1, "c": 2}, "l": [1, 2, 3]}),
        );
        check(
            doc(),
            json!([{"op": "add", "path": "/l/1", "value": 9}]),
            json!({"a": {"b": 1}, "l": [1, 9, 2, 3]}),
        );
        check(
            doc(),
            json!([{"op": "add", "path": "/l/-", "value": 9}]),
            json!({"a": {"b": 1}, "l": [1, 2, 3, 9]}),
        );
        check(doc(), json!([{"op": "remove", "path": "/a"}]), json!({"l": [1, 2, 3]}));
        check(
            doc(),
            json!([{"op": "replace", "path": "/l/0", "value": 9}]),
            json!({"a": {"b": 1}, "l": [9, 2, 3]}),
        );
        check(
            doc(),
            json!([{"op": "move", "from": "/l/0", "path": "/a/x"}]),
            json!({"a": {"b": 1, "x": 1}, "l": [2, 3]}),
        );
        check(
            doc(),
            json!([{"op": "copy", "from": "/a", "path": "/l/0"}]),
            json!({"a": {"b": 1}, "l": [{"b": 1}, 1, 2, 3]}),
        );
        check(doc(), json!([{"op": "test", "path": "/a", "value": {"b": 1}}]), doc());
        check(json!({"a/b": {"~c": 1}}), json!([{"op": "remove", "path": "/a~1b/~0c"}]), json!({"a/b": {}}));
        check(json!({"~1": 1}), json!([{"op": "remove", "path": "/~01"}]), json!({}));
        check(doc(), json!([{"op": "replace", "path": "", "value": {}}]), json!({}));
    }

    #[test]
    fn leniencies_of_the_reference_are_kept() {
        check(json!({}), json!([{"op": "test", "path": "/a", "value": null}]), json!({}));
        check(json!({"a": null}), json!([{"op": "test", "path": "/a"}]), json!({"a": null}));
        check(json!({"l": [1, 2]}), json!([{"op": "remove", "path": "/l/-1"}]), json!({"l": [1]}));
        check(
            json!({"l": [1, 2]}),
            json!([{"op": "add", "path": "/l/-1", "value": 3}]),
            json!({"l": [1, 2, 3]}),
        );
        check(
            json!({"l": [1, 2]}),
            json!([{"op": "replace", "path": "/l/-2", "value": 3}]),
            json!({"l": [3, 2]}),
        );
        check(
            json!({"a": {}}),
            json!([{"op": "replace", "path": "/a/b", "value": 1}]),
            json!({"a": {"b": 1}}),
        );
        check(json!({}), json!([{"op": "copy", "from": "/x", "path": "/y"}]), json!({"y": null}));
        check(json!({}), json!([{"op": "add", "path": "/x"}]), json!({"x": null}));
    }

    #[test]
    fn what_does_not_fit_is_rejected() {
        let doc = || json!({"a": {"b": 1}, "l": [1]});
        refused(doc(), json!([{"op": "test", "path": "/a/b", "value": 2}]), 422, "test failed");
        refused(doc(), json!([{"op": "test", "path": "/x/y", "value": null}]), 422, "is missing path: /x/y");
        refused(doc(), json!([{"op": "remove", "path": "/x"}]), 422, "Unable to remove nonexistent key: x");
        refused(doc(), json!([{"op": "remove", "path": "/l/1"}]), 422, "invalid index");
        refused(doc(), json!([{"op": "remove", "path": "/l/-2"}]), 422, "invalid index");
        refused(
            doc(),
            json!([{"op": "replace", "path": "/x/y", "value": 1}]),
            422,
            "doc is missing path: /x/y",
        );
        refused(doc(), json!([{"op": "replace", "path": "/l/3", "value": 1}]), 422, "doc is missing key");
        refused(
            doc(),
            json!([{"op": "add", "path": "/x/y", "value": 1}]),
            422,
            "doc is missing path: \"/x/y\"",
        );
        refused(doc(), json!([{"op": "add", "path": "/a/b/c", "value": 1}]), 422, "missing");
        refused(doc(), json!([{"op": "add", "path": "", "value": 1}]), 422, "missing");
        refused(doc(), json!([{"op": "move", "from": "/x", "path": "/y"}]), 422, "nonexistent key");
        refused(doc(), json!([{"op": "jump", "path": "/x"}]), 422, "Unexpected kind: jump");
        refused(doc(), json!([{"path": "/x"}]), 422, "Unexpected kind: unknown");
        refused(doc(), json!([null]), 422, "Unexpected kind: unknown");
        refused(doc(), json!([{"op": "add", "path": 1}]), 422, "failed to decode path");
        refused(doc(), json!({"op": "add"}), 400, "error decoding patch");
        refused(doc(), json!(["x"]), 400, "error decoding patch");
    }

    #[test]
    fn limits_hold() {
        let many: Vec<Value> = vec![json!({"op": "test", "path": "/a"}); MAX_OPERATIONS + 1];
        refused(json!({}), Value::Array(many), 413, "maximum operations in a JSON patch is 10000, got 10001");
        let double = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 40];
        refused(json!({"a": ["x".repeat(1000)]}), Value::Array(double), 422, "exceeding the limit");
        let nest = vec![json!({"op": "copy", "from": "/a", "path": "/a/b"}); 200];
        refused(json!({"a": {}}), Value::Array(nest), 422, "nested too deeply");
        let deep: Vec<Value> = (0..200)
            .flat_map(|_| {
                [
                    json!({"op": "add", "path": "/w", "value": {}}),
                    json!({"op": "move", "from": "/a", "path": "/w/a"}),
                    json!({"op": "move", "from": "/w", "path": "/a"}),
                ]
            })
            .collect();
        refused(json!({"a": {}}), Value::Array(deep), 422, "nested too deeply");
        let path = "/x".repeat(100);
        let tower = |tower: Value, _| json!({ "x": tower });
        let steep: Vec<Value> = (0..30)
            .flat_map(|_| {
                [
                    json!({"op": "add", "path": "/w", "value": (0..100).fold(json!({}), tower)}),
                    json!({"op": "move", "from": "/a", "path": format!("/w{path}/a")}),
                    json!({"op": "move", "from": "/w", "path": "/a"}),
                ]
            })
            .collect();
        refused(json!({"a": {}}), Value::Array(steep), 422, "nested too deeply");
        let front: Vec<Value> = vec![json!({"op": "add", "path": "/l/0", "value": 1}); 9_000];
        refused(json!({"l": vec![0; 100_000]}), Value::Array(front), 422, "too many list items");
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3_i64).prop_map(Value::from),
            "[ab~/-]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab0~/-]{1,2}", inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    fn operation() -> impl Strategy<Value = Value> {
        let kind = prop_oneof![
            Just("add"),
            Just("remove"),
            Just("replace"),
            Just("move"),
            Just("copy"),
            Just("test")
        ];
        (kind, "(/(a|b|0|1|-1|-|~0|~1)){0,3}", "(/(a|b|0|1|-1)){0,3}", document())
            .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn random_patches_never_panic(doc in document(), patch in prop::collection::vec(operation(), 0..6), wild in document()) {
            let _ = patched(doc.clone(), Value::Array(patch));
            let _ = patched(doc, wild);
        }
    }
}
