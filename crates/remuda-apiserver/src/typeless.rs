//! Items of a list of a built-in kind name neither their version nor their kind: the list does. Those of custom
//! resources name both, as in Kubernetes.

use std::ops::Range;

use serde_json::Value;

use crate::registry::Resource;

/// What stored objects of a kind nearly always begin with. Kinds with fields that sort before `kind` are the others.
pub(crate) fn usual_head(resource: &Resource) -> String {
    format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", resource.storage_api_version, resource.kind)
}

/// Where an object names its version and its kind, each with the comma behind it.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Cut {
    version: Range<u32>,
    kind: Range<u32>,
}

impl Cut {
    /// `head` is the kind's [`usual_head`].
    pub(crate) fn of(object: &[u8], head: &[u8]) -> Self {
        if object.starts_with(head) {
            return Self { version: 1..head.len() as u32, kind: 0..0 };
        }
        Self::searched(object)
    }

    pub(crate) fn len(&self) -> usize {
        self.version.len() + self.kind.len()
    }

    /// What is left of the object, in order.
    pub(crate) fn rest<'o>(&self, object: &'o [u8]) -> [&'o [u8]; 3] {
        let place = |at: u32| at as usize;
        let (version, kind) = (&self.version, &self.kind);
        let after = place(version.end.max(kind.end));
        [
            &object[..place(version.start)],
            &object[place(version.end)..place(kind.start.max(version.end))],
            &object[after..],
        ]
    }

    /// Walks over the members of the object, whose keys are sorted, up to `kind`.
    fn searched(object: &[u8]) -> Self {
        let mut cut = Self::default();
        let mut at = 1;
        while object.get(at) == Some(&b'"') {
            let start = at;
            let Some(key_end) = string_end(object, at) else { break };
            // Over the colon.
            let Some(end) = value_end(object, key_end + 1) else { break };
            // The last member has no comma behind it, and is neither of the two: metadata comes later.
            if object.get(end) != Some(&b',') {
                break;
            }
            at = end + 1;
            let member = start as u32..at as u32;
            match &object[start..key_end] {
                b"\"apiVersion\"" => cut.version = member,
                b"\"kind\"" => {
                    cut.kind = member;
                    break;
                }
                _ => {}
            }
        }
        cut
    }
}

/// Behind the string that begins here.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += text.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Behind the value that begins here.
fn value_end(text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0usize);
    loop {
        match text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' if depth > 0 => (at, depth) = (at + 1, depth - 1),
            b',' | b'}' | b']' if depth == 0 => return Some(at),
            _ => at += 1,
        }
    }
}

/// The same of an object in parts.
pub(crate) fn strip(resource: &Resource, object: &mut Value) {
    if resource.is_custom() {
        return;
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HEAD: &[u8] = br#"{"apiVersion":"v1","kind":"Pod","#;

    #[track_caller]
    fn check(object: Value) {
        let text = object.to_string();
        let cut = Cut::of(text.as_bytes(), HEAD);
        let rest = cut.rest(text.as_bytes()).concat();
        let mut expected = object;
        expected.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
        assert_eq!(String::from_utf8(rest.clone()).unwrap(), expected.to_string());
        assert_eq!(rest.len(), text.len() - cut.len());
    }

    #[test]
    fn version_and_kind_go_and_nothing_else() {
        check(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}));
        check(json!({"apiVersion": "v1", "data": {}, "kind": "ConfigMap", "metadata": {}}));
        check(
            json!({"aggregationRule": {"a": [1, {"b": "}"}]}, "apiVersion": "v1", "kind": "R", "metadata": {}}),
        );
        check(json!({"apiVersion": "v1", "immutable": true, "kind": "Secret", "metadata": {}}));
        check(json!({"data": 1.5, "kind": "Secret", "metadata": {}}));
        check(json!({"apiVersion": "v1", "metadata": {}}));
        check(json!({"metadata": {}}));
        check(json!({}));
    }

    #[test]
    fn what_only_looks_like_them_stays() {
        let hostile = "\",\"kind\":\"ConfigMap\",\"metadata\":{\\";
        check(
            json!({"apiVersion": "v1", "data": {"apiVersion": "v1", "kind": "ConfigMap", "k": hostile}, "kind": "ConfigMap",
            "metadata": {"annotations": {"kind": "x"}}}),
        );
        let inner = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"x": ["\\", "\\\"", "{["]}});
        check(
            json!({"apiVersion": "apps/v1", "data": inner, "kind": "ControllerRevision", "metadata": {}, "revision": 1}),
        );
    }

    #[test]
    fn damaged_bytes_are_passed_on_as_they_are() {
        for text in [
            "",
            "{",
            "{\"",
            "{\"kind",
            "{\"kind\"",
            "{\"kind\":",
            "{\"kind\":\"a\\",
            "[1]",
            "{\"a\":{\"b\":[}",
        ] {
            let cut = Cut::of(text.as_bytes(), HEAD);
            assert_eq!(cut.rest(text.as_bytes()).concat(), text.as_bytes(), "{text}");
        }
    }
}
