//! The production code of the workspace as text, for rules about what stands in it.
//!
//! Comments, attributes and everything below `#[cfg(test)]` are left out. This reads tokens, not
//! meaning: it knows strings, characters, comments and braces, and that is enough for these rules.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::graph;

/// One file. What is left out is blank, so that lines keep their numbers.
pub(crate) struct Source {
    /// From the root of the workspace.
    pub(crate) path: String,
    /// The code without the content of its strings.
    pub(crate) code: String,
    pub(crate) literals: Vec<Literal>,
}

pub(crate) struct Literal {
    pub(crate) value: String,
    /// Where its opening quote is in the code.
    pub(crate) at: usize,
}

impl Source {
    pub(crate) fn line(&self, at: usize) -> usize {
        self.code.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// Every file of a crate's `src` that is part of what is built without tests.
pub(crate) fn production(name: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut tests = BTreeSet::new();
    let mut pending = vec![graph::root().join("crates").join(name).join("src")];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let (source, modules) = read(&path);
                tests.extend(modules);
                sources.push((path, source));
            }
        }
    }
    let below = |path: &Path| tests.iter().any(|test| path.with_extension("").starts_with(test));
    let mut kept: Vec<_> = sources.into_iter().filter(|(path, _)| !below(path)).collect();
    kept.sort_by(|(left, _), (right, _)| left.cmp(right));
    kept.into_iter().map(|(_, source)| source).collect()
}

/// The file, and the modules in files of their own that it declares for tests.
fn read(path: &Path) -> (Source, Vec<PathBuf>) {
    let text = fs::read_to_string(path).unwrap();
    let shown = path.strip_prefix(graph::root()).unwrap().display().to_string();
    let (code, literals) = lex(&text);
    let (code, modules) = without_tests(code, &literals);
    let literals = literals.into_iter().filter(|literal| code.as_bytes()[literal.at] == b'"').collect();
    let (stem, parent) = (path.file_stem().unwrap(), path.parent().unwrap());
    let root = matches!(stem.to_str(), Some("lib" | "main" | "mod"));
    let home = if root { parent.to_owned() } else { path.with_extension("") };
    let modules = modules.into_iter().map(|module| match module {
        Module::Named(name) => home.join(name),
        Module::At(file) => parent.join(file).with_extension(""),
    });
    (Source { path: shown, code, literals }, modules.collect())
}

/// A text as if it were a file.
pub(crate) fn parse(path: &str, text: &str) -> Source {
    let (code, literals) = lex(text);
    Source { path: path.to_owned(), code, literals }
}

/// The text with comments and the content of strings blank, and the strings.
fn lex(text: &str) -> (String, Vec<Literal>) {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut literals = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        let end = match rest {
            [b'/', b'/', ..] => at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => at + end_of_comment(rest),
            [b'r', b'"' | b'#', ..] if !in_word(bytes, at) => match end_of_raw(rest) {
                Some((open, content)) => {
                    let value = String::from_utf8_lossy(&rest[open..open + content]).into_owned();
                    literals.push(Literal { value, at: at + open - 1 });
                    blank(&mut code[at + open..at + open + content]);
                    at += open + content + open - 1;
                    continue;
                }
                None => at + 1,
            },
            [b'"', ..] => {
                let content = end_of_string(&rest[1..]);
                let raw = String::from_utf8_lossy(&rest[1..=content]).into_owned();
                literals.push(Literal { value: unescape(&raw), at });
                blank(&mut code[at + 1..=at + content]);
                at += content + 2;
                continue;
            }
            // A character, and not a lifetime.
            [b'\'', b'\\', _, ..] => {
                at + 3 + rest[3..].iter().position(|byte| *byte == b'\'').unwrap_or(0) + 1
            }
            [b'\'', ..] => {
                let width = text[at + 1..].chars().next().map_or(1, char::len_utf8);
                if rest.get(1 + width) == Some(&b'\'') { at + width + 2 } else { at + 1 }
            }
            _ => {
                at += 1;
                continue;
            }
        };
        blank(&mut code[at..end.min(bytes.len())]);
        at = end;
    }
    (String::from_utf8_lossy(&code).into_owned(), literals)
}

fn in_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn blank(part: &mut [u8]) {
    part.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

fn end_of_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// How long the opening `r##"` of a raw string is, and its content.
fn end_of_raw(rest: &[u8]) -> Option<(usize, usize)> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let open = hashes + 2;
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let content = rest[open..].windows(close.len()).position(|part| part == close)?;
    Some((open, content))
}

fn end_of_string(content: &[u8]) -> usize {
    let mut at = 0;
    while at < content.len() && content[at] != b'"' {
        at += if content[at] == b'\\' { 2 } else { 1 };
    }
    at.min(content.len().saturating_sub(1))
}

/// Only the escapes that occur in names and sentences.
fn unescape(raw: &str) -> String {
    raw.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\")
}

/// A module in a file of its own.
#[derive(Debug, PartialEq)]
enum Module {
    Named(String),
    /// With an attribute `path`.
    At(String),
}

/// Blanks attributes, and the items that `#[cfg(test)]` stands before.
fn without_tests(code: String, literals: &[Literal]) -> (String, Vec<Module>) {
    let mut bytes = code.into_bytes();
    let mut modules = Vec::new();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(2).position(|pair| pair == b"#[" || pair == b"#!") {
        let start = at + found;
        let Some(end) = closing(&bytes, start, b'[', b']') else { break };
        let attribute: String = String::from_utf8_lossy(&bytes[start..=end]).split_whitespace().collect();
        let mut until = end;
        if attribute == "#[cfg(test)]" || attribute.starts_with("#[cfg(all(test,") {
            let item = &bytes[end + 1..];
            let stop = item.iter().position(|byte| matches!(byte, b';' | b'{')).unwrap_or(0);
            let head = String::from_utf8_lossy(&item[..stop]).into_owned();
            until = match item.get(stop) {
                Some(b'{') => closing(&bytes, end + 1 + stop, b'{', b'}').unwrap_or(end),
                _ => end + 1 + stop,
            };
            if let Some((_, name)) = head.split_once("mod ")
                && item.get(stop) == Some(&b';')
            {
                let here = end..end + stop;
                let file =
                    literals.iter().find(|literal| head.contains("path") && here.contains(&literal.at));
                modules.push(match file {
                    Some(file) => Module::At(file.value.clone()),
                    None => Module::Named(name.trim().to_owned()),
                });
            }
        }
        blank(&mut bytes[start..=until]);
        at = until + 1;
    }
    (String::from_utf8_lossy(&bytes).into_owned(), modules)
}

/// Where the bracket that opens at or after `from` closes.
fn closing(bytes: &[u8], from: usize, open: u8, close: u8) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        if *byte == open {
            depth += 1;
        } else if *byte == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        let (code, literals) = lex(text);
        let (code, _) = without_tests(code, &literals);
        let kept = literals.into_iter().filter(|literal| code.as_bytes()[literal.at] == b'"');
        kept.map(|literal| literal.value).collect()
    }

    #[test]
    fn strings_are_found_and_nothing_else_is() {
        let text = r##"
            // "comment" /* "no" */
            /* "nested /* "too" */ */
            #[serde(rename = "attribute")]
            fn a<'a>(x: &'a str) -> char { let r = r#"raw "quoted""#; b("one\"two", '"', '\'', 'é', "three"); 'x' }
            #[cfg(test)]
            mod tests { fn b() { c("in a test {"); } }
            #[cfg(test)]
            const T: &str = "test";
            const LAST: &str = "last";
        "##;
        assert_eq!(values(text), [r#"raw "quoted""#, "one\"two", "three", "last"]);
    }

    #[test]
    fn modules_of_tests_in_files_of_their_own_are_known() {
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\npub(crate) mod fake;\nmod real;";
        let (code, literals) = lex(text);
        let (_, modules) = without_tests(code, &literals);
        assert_eq!(modules, [Module::Named("tests".into()), Module::At("b_tests.rs".into())]);
    }
}
