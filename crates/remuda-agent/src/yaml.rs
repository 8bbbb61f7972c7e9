//! Reading YAML, most of it without a YAML parser.
//!
//! What agents are given is written by programs: block mappings and lists of plain words. Code that runs once
//! stays in memory for good, and a whole parser is a tenth of an idle agent. So the simple form is read
//! here, and whatever is not certainly that form goes to the parser.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Deeper than anything an agent is given.
const DEPTH: usize = 16;

/// Decodes YAML, or says what is wrong with it. The errors quote the input, which may hold a secret, so only
/// their first line is kept.
pub(crate) fn decode<T: for<'de> Deserialize<'de>>(raw: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(raw).map_err(|error| error.to_string())?;
    let simple =
        if text.trim_start().starts_with('{') { serde_json::from_str(text).ok() } else { plain(text) };
    if let Some(value) = simple.and_then(|value| serde_json::from_value(value).ok()) {
        return Ok(value);
    }
    serde_saphyr::from_str(text)
        .map_err(|error| error.to_string().lines().next().unwrap_or("invalid YAML").to_owned())
}

/// Reads the simple form. None means that this is for the parser to judge.
fn plain(text: &str) -> Option<Value> {
    let is_usual = |byte: u8| byte == b'\n' || (0x20..0x7f).contains(&byte) && byte != b'#';
    if !text.bytes().all(is_usual) {
        return None;
    }
    let full = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let lines: Vec<_> = full.map(|line| (line.len() - line.trim_start().len(), line.trim_start())).collect();
    let indent = lines.first()?.0;
    let mut lines = Lines { lines, at: 0 };
    let value = lines.block(indent, DEPTH)?;
    (lines.at == lines.lines.len()).then_some(value)
}

struct Lines<'a> {
    /// Spaces before, and what follows them.
    lines: Vec<(usize, &'a str)>,
    at: usize,
}

impl<'a> Lines<'a> {
    /// The current line, if it is indented so.
    fn peek(&self, indent: usize) -> Option<&'a str> {
        self.lines.get(self.at).filter(|(found, _)| *found == indent).map(|(_, text)| *text)
    }

    fn block(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        if self.peek(indent)?.starts_with('-') {
            self.list(indent, depth)
        } else {
            self.mapping(indent, depth)
        }
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut map = Map::new();
        while let Some(line) = self.peek(indent).filter(|line| !line.starts_with('-')) {
            let (key, rest) = entry(line)?;
            self.at += 1;
            let value = match rest {
                "" => match self.lines.get(self.at).copied() {
                    Some((inner, _)) if inner > indent => self.block(inner, depth)?,
                    Some((inner, text)) if inner == indent && text.starts_with('-') => {
                        self.list(indent, depth.checked_sub(1)?)?
                    }
                    _ => Value::Null,
                },
                text => scalar(text)?,
            };
            if map.insert(key.to_owned(), value).is_some() {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        while let Some(line) = self.peek(indent).filter(|line| line.starts_with('-')) {
            let rest = line.strip_prefix("- ")?;
            let item = rest.trim_start();
            if entry(item).is_some() {
                let inner = indent + line.len() - item.len();
                self.lines[self.at] = (inner, item);
                items.push(self.block(inner, depth)?);
            } else {
                items.push(scalar(item)?);
                self.at += 1;
            }
        }
        Some(Value::Array(items))
    }
}

/// `key: value` or `key:`.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once(':')?;
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if !key.bytes().all(is_key) || !matches!(scalar(key)?, Value::String(_)) {
        return None;
    }
    match rest.strip_prefix(' ') {
        Some(rest) => Some((key, rest.trim_start())),
        None => rest.is_empty().then_some((key, "")),
    }
}

/// A value on one line, if there is no doubt what it is.
fn scalar(text: &str) -> Option<Value> {
    /// Words that are not text, for one YAML or another.
    const SPECIAL: &[&str] =
        &["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];
    let text_of = |text: &str| Some(Value::String(text.to_owned()));
    match text {
        "true" | "false" => return Some(Value::Bool(text == "true")),
        "{}" => return Some(Value::Object(Map::new())),
        "[]" => return Some(Value::Array(Vec::new())),
        _ => {}
    }
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            let inner = inner.strip_suffix(quote)?;
            return if inner.contains([quote, '\\']) { None } else { text_of(inner) };
        }
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let is_certain = (1..=15).contains(&text.len()) && (text.len() == 1 || !text.starts_with('0'));
        return is_certain.then(|| text.parse::<u64>().ok().map(Value::from))?;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.+=:-".contains(&byte);
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'/';
    let is_certain = text.bytes().all(is_plain)
        && text.as_bytes().first().is_some_and(begins)
        && !text.ends_with(':')
        && !SPECIAL.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is_certain { text_of(text) } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_servers_and_scripts_write_needs_no_parser() {
        let config = "workDirectory: /var/lib/rancher/agent/work\nlocalEnabled: false\nremoteEnabled: true\n\
                      probePeriod: 5\npreserveWorkDirectory: false\n";
        assert_eq!(
            plain(config).unwrap(),
            json!({"workDirectory": "/var/lib/rancher/agent/work", "localEnabled": false,
                   "remoteEnabled": true, "probePeriod": 5, "preserveWorkDirectory": false})
        );
        let kubeconfig = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: LS0tLS1CRUdJTg==\n    \
                          server: https://[fd00::1]:8443\n  name: agent\ncontexts:\n  - context:\n      cluster: agent\n      \
                          user: agent\n    name: agent\ncurrent-context: agent\nkind: Config\npreferences: {}\nusers:\n\
                          - name: agent\n  user:\n    token: eyJhbGciOi.x-y_z\n";
        assert_eq!(plain(kubeconfig), None, "brackets are for the parser");
        let kubeconfig = kubeconfig.replace("[fd00::1]", "example.com");
        assert_eq!(
            plain(&kubeconfig).unwrap(),
            json!({"apiVersion": "v1", "kind": "Config", "current-context": "agent", "preferences": {},
                   "clusters": [{"name": "agent", "cluster": {"server": "https://example.com:8443",
                                 "certificate-authority-data": "LS0tLS1CRUdJTg=="}}],
                   "contexts": [{"name": "agent", "context": {"cluster": "agent", "user": "agent"}}],
                   "users": [{"name": "agent", "user": {"token": "eyJhbGciOi.x-y_z"}}]})
        );
    }

    #[test]
    fn whatever_is_in_doubt_goes_to_the_parser() {
        for text in [
            "a: b # c",
            "a: &b c",
            "a: *b",
            "a: |\n  b",
            "a: 'it''s'",
            "a: \"b\\n\"",
            "a: 0755",
            "a: 1.5",
            "a: yes",
            "a: No",
            "a: [b]",
            "a: {b: c}",
            "? a",
            "a: b: c",
            "a:\tb",
            "---\na: b",
            "a: b\na: c",
            "- - a",
            "a: b\n  c: d",
            "y: a",
            "1: a",
            "",
            "a: ~",
            "a: b\n c: d",
            "- a\nb: c",
        ] {
            assert_eq!(plain(text), None, "{text}");
        }
        assert_eq!(decode::<Value>(b"a: 'it''s' # so").unwrap(), json!({"a": "it's"}));
        assert_eq!(decode::<Value>(br#"{"a": [1, {"b": null}]}"#).unwrap(), json!({"a": [1, {"b": null}]}));
        let deep: String = (0..40).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert_eq!(plain(&deep), None);
    }

    #[test]
    fn types_are_those_the_reader_wants() {
        #[derive(Deserialize, PartialEq, Debug)]
        struct Wanted {
            name: String,
        }
        assert_eq!(decode::<Wanted>(b"name: 123").unwrap(), Wanted { name: "123".into() });
        assert!(!decode::<Wanted>(b"secret: x").unwrap_err().contains('\n'));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_read_here_is_what_the_parser_reads(
            lines in prop::collection::vec(("( {0,6})(- )?", "[a-z0-9.]{0,4}(: ?)?", "[-a-zA-Z0-9:/{}\\[\\]\"'.=+ ]{0,6}"), 0..6),
        ) {
            let text: String = lines.iter().map(|(indent, key, value)| format!("{indent}{key}{value}\n")).collect();
            if let Some(value) = plain(&text) {
                let parsed = serde_saphyr::from_str::<Value>(&text);
                prop_assert_eq!(parsed.map_err(|error| error.to_string()), Ok(value), "{}", text);
            }
        }
    }
}
