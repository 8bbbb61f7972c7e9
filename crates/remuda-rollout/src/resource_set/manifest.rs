//! Objects out of the text in a ConfigMap or Secret.

use serde_json::Value;

/// Why text holds no objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadManifest {
    #[error("it has no data")]
    NoData,
    #[error("{key} is not text")]
    NotText { key: String },
    #[error("{key}, document {document}: {why}")]
    Syntax { key: String, document: usize, why: String },
    #[error("{key}, document {document} has no {field}")]
    Incomplete { key: String, document: usize, field: &'static str },
}

/// What must be there before others, as in upstream; everything else comes after, in the order given.
const FIRST: &[&str] = &[
    "Namespace",
    "CustomResourceDefinition",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Secret",
    "ConfigMap",
    "ServiceAccount",
    "LimitRange",
    "Pod",
    "ReplicaSet",
    "Endpoint",
];

/// All objects: by key, and within a key in the order they are created in.
///
/// The text of a key is YAML, of any number of documents, or JSON, which may be a list. Lists of Kubernetes
/// are opened.
pub fn objects<'a>(data: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Vec<Value>, BadManifest> {
    let mut all = Vec::new();
    let mut any = false;
    for (key, bytes) in data {
        any = true;
        let text = std::str::from_utf8(bytes).map_err(|_| BadManifest::NotText { key: key.to_owned() })?;
        let mut objects = Vec::new();
        for (index, document) in documents(text).enumerate() {
            let document_number = index + 1;
            let parsed = parse(document).map_err(|why| BadManifest::Syntax {
                key: key.to_owned(),
                document: document_number,
                why,
            })?;
            for object in flatten(parsed) {
                check(&object).map_err(|field| BadManifest::Incomplete {
                    key: key.to_owned(),
                    document: document_number,
                    field,
                })?;
                objects.push(object);
            }
        }
        objects.sort_by_key(rank);
        all.append(&mut objects);
    }
    if any { Ok(all) } else { Err(BadManifest::NoData) }
}

/// Parts between lines that begin with three dashes. A part without content is none.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    let mut starts = vec![0];
    let mut ends = Vec::new();
    let mut position = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("---") {
            ends.push(position);
            starts.push(position + line.len());
        }
        position += line.len();
    }
    ends.push(text.len());
    let parts = starts.into_iter().zip(ends).map(|(start, end)| &text[start..end]);
    parts.filter(|part| part.lines().any(|line| !matches!(line.trim().as_bytes(), [] | [b'#', ..])))
}

fn parse(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        // Far more than any manifest has, and little enough to refuse the rest at once.
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.without_snippet().to_string())
}

/// One level of lists: what is in a list must not be a list again.
fn flatten(value: Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        Value::Object(mut map) if is_list(&map) => match map.remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        value => vec![value],
    }
}

fn is_list(map: &serde_json::Map<String, Value>) -> bool {
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    text("apiVersion") == "v1" && text("kind") == "List" && map.contains_key("items")
}

fn check(object: &Value) -> Result<(), &'static str> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match object {
        Value::Object(_) => {}
        _ => return Err("object"),
    }
    for (pointer, field) in
        [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name")]
    {
        // The API makes up a name then.
        let generated = field == "metadata.name" && !text("/metadata/generateName").is_empty();
        if text(pointer).is_empty() && !generated {
            return Err(field);
        }
    }
    Ok(())
}

fn rank(object: &Value) -> usize {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    FIRST.iter().position(|first| *first == kind).unwrap_or(FIRST.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: &[(&str, &str)], expected: &str) {
        let found = match objects(data.iter().map(|(key, text)| (*key, text.as_bytes()))) {
            Ok(objects) => objects
                .iter()
                .map(|object| {
                    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
                    format!("{}/{}", text("/kind"), text("/metadata/name"))
                })
                .collect::<Vec<_>>()
                .join(" "),
            Err(bad) => bad.to_string(),
        };
        assert_eq!(found, expected);
    }

    fn yaml(kind: &str, name: &str) -> String {
        format!("apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n")
    }

    #[test]
    fn what_others_need_comes_first_within_a_key() {
        let one =
            [yaml("Pod", "p1"), yaml("Deployment", "d1"), yaml("Namespace", "n1"), yaml("Secret", "s1")]
                .join("---\n");
        check(
            &[("a", &one), ("b", &yaml("Namespace", "m1"))],
            "Namespace/n1 Secret/s1 Pod/p1 Deployment/d1 Namespace/m1",
        );
    }

    #[test]
    fn yaml_and_json_and_lists_are_read() {
        let json = r#"[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}]"#;
        let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}]}"#;
        check(
            &[("1", json), ("2", list), ("3", &format!("---\n# nothing\n---\n{}", yaml("Pod", "c")))],
            "Pod/a Pod/b Pod/c",
        );
    }

    #[test]
    fn what_is_no_object_is_named() {
        check(&[], "it has no data");
        check(&[("a", "")], "");
        check(&[("a", "kind: Pod\n")], "a, document 1 has no apiVersion");
        check(&[("a", "just text")], "a, document 1 has no object");
        check(
            &[("a", &format!("{}---\napiVersion: v1\nkind: Pod\n", yaml("Pod", "x")))],
            "a, document 2 has no metadata.name",
        );
        let bytes: &[u8] = &[0xff, 0xfe];
        assert_eq!(objects([("a", bytes)]).unwrap_err().to_string(), "a is not text");
        assert!(objects([("a", "a: [1\nb: }".as_bytes())]).is_err());
        assert!(objects([("a", "kind: [".as_bytes())]).is_err());
    }

    #[test]
    fn hostile_text_is_refused_and_does_no_harm() {
        let deep = "[".repeat(100_000);
        assert!(objects([("a", deep.as_bytes())]).is_err());
        let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (from, to) in ('a'..='y').zip('b'..='z') {
            bomb.push_str(&format!("{to}: &{to} [{}]\n", vec![format!("*{from}"); 9].join(", ")));
        }
        assert!(objects([("a", bomb.as_bytes())]).is_err());
    }
}
