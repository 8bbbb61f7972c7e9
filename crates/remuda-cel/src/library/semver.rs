//! Semantic versions.

use std::{cmp::Ordering, sync::Arc};

use super::{Cx, Entry};
use crate::value::{EvalError, Result, Value};

const PART: &[&str] = &[".(semver) -> int"];
const COMPARE: &[&str] = &[".(semver, semver) -> bool"];

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "semver", native: semver, overloads: &["(string) -> semver", "(string, bool) -> semver"] },
    Entry { name: "isSemver", native: is_semver, overloads: &["(string) -> bool", "(string, bool) -> bool"] },
    Entry { name: "major", native: |_, args| part(args, |version| version.numbers[0]), overloads: PART },
    Entry { name: "minor", native: |_, args| part(args, |version| version.numbers[1]), overloads: PART },
    Entry { name: "patch", native: |_, args| part(args, |version| version.numbers[2]), overloads: PART },
    Entry {
        name: "isGreaterThan",
        native: |_, args| compare(args).map(|order| Value::Bool(order == Ordering::Greater)),
        overloads: COMPARE,
    },
    Entry {
        name: "isLessThan",
        native: |_, args| compare(args).map(|order| Value::Bool(order == Ordering::Less)),
        overloads: COMPARE,
    },
    Entry {
        name: "compareTo",
        native: |_, args| compare(args).map(|order| Value::Int(order as i64)),
        overloads: &[".(semver, semver) -> int"],
    },
];

/// A version; what follows a `+` is checked and forgotten, as it does not order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Part>,
}

/// Numbers come before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl Semver {
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let numbers = [number(major, "major")?, number(minor, "minor")?, number(patch, "patch")?];
        let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(pre_release).collect())?;
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !part.bytes().all(word) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Self { numbers, pre })
    }

    /// Drops a `v` and leading zeroes, and fills up missing numbers.
    fn parse_normalized(text: &str) -> std::result::Result<Self, String> {
        let mut parts: Vec<String> =
            text.strip_prefix('v').unwrap_or(text).splitn(3, '.').map(normalized_part).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        // A pre-release comes before its release.
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        })
    }
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn number(text: &str, name: &str) -> std::result::Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        let name = format!("{}{}", name[..1].to_ascii_uppercase(), &name[1..]);
        return Err(format!("{name} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("{name} number is too large"))
}

fn pre_release(text: &str) -> std::result::Result<Part, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return text.parse().map(Part::Number).map_err(|_| "PreRelease number is too large".to_owned());
    }
    if text.bytes().all(word) {
        return Ok(Part::Word(text.to_owned()));
    }
    Err(format!("Invalid character(s) found in prerelease {text:?}"))
}

fn normalized_part(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|char: char| char.is_ascii_digit()) {
        trimmed.to_owned()
    } else {
        format!("0{trimmed}")
    }
}

fn parse(cx: &mut Cx<'_>, args: &[Value<'_>]) -> Result<std::result::Result<Semver, String>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    let normalize = match args.get(1) {
        Some(normalize) => normalize.as_bool().ok_or_else(EvalError::no_overload)?,
        None => false,
    };
    Ok(if normalize { Semver::parse_normalized(text) } else { Semver::parse(text) })
}

fn semver<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match parse(cx, args)? {
        Ok(version) => Ok(Value::Semver(Arc::new(version))),
        Err(problem) => Err(EvalError::failed(problem)),
    }
}

fn is_semver<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Bool(parse(cx, args)?.is_ok()))
}

fn part<'a>(args: &[Value<'a>], part: fn(&Semver) -> u64) -> Result<Value<'a>> {
    match &args[0] {
        Value::Semver(version) => Ok(Value::Int(part(version) as i64)),
        _ => Err(EvalError::no_overload()),
    }
}

fn compare(args: &[Value<'_>]) -> Result<Ordering> {
    match (&args[0], &args[1]) {
        (Value::Semver(a), Value::Semver(b)) => Ok(a.compare(b)),
        _ => Err(EvalError::no_overload()),
    }
}
