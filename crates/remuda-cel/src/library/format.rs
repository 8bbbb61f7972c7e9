//! Named formats of Kubernetes: names, labels, and the formats of schemas.

use std::sync::LazyLock;

use ::regex::Regex;
use base64::Engine as _;

use super::{Cx, Entry, url::Url};
use crate::{
    time::Timestamp,
    value::{EvalError, Result, Value},
};

/// What a string may be validated against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedFormat {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    Datetime,
}

const NONE: &[&str] = &["() -> format"];

/// The function `format.<name>()`.
macro_rules! constant {
    ($name:literal, $format:ident) => {
        Entry {
            name: concat!("format.", $name),
            native: |_, _| Ok(Value::Format(NamedFormat::$format)),
            overloads: NONE,
        }
    };
}

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "format.named", native: named, overloads: &["(string) -> optional(format)"] },
    Entry { name: "validate", native: validate, overloads: &[".(format, string) -> optional(list(string))"] },
    constant!("dns1123Label", Dns1123Label),
    constant!("dns1123Subdomain", Dns1123Subdomain),
    constant!("dns1035Label", Dns1035Label),
    constant!("qualifiedName", QualifiedName),
    constant!("dns1123LabelPrefix", Dns1123LabelPrefix),
    constant!("dns1123SubdomainPrefix", Dns1123SubdomainPrefix),
    constant!("dns1035LabelPrefix", Dns1035LabelPrefix),
    constant!("labelValue", LabelValue),
    constant!("uri", Uri),
    constant!("uuid", Uuid),
    constant!("byte", Byte),
    constant!("date", Date),
    constant!("datetime", Datetime),
];

fn named<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let name = args[0].str_arg()?;
    let format = match name {
        "dns1123Label" => NamedFormat::Dns1123Label,
        "dns1123Subdomain" => NamedFormat::Dns1123Subdomain,
        "dns1035Label" => NamedFormat::Dns1035Label,
        "qualifiedName" => NamedFormat::QualifiedName,
        "dns1123LabelPrefix" => NamedFormat::Dns1123LabelPrefix,
        "dns1123SubdomainPrefix" => NamedFormat::Dns1123SubdomainPrefix,
        "dns1035LabelPrefix" => NamedFormat::Dns1035LabelPrefix,
        "labelValue" => NamedFormat::LabelValue,
        "uri" => NamedFormat::Uri,
        "uuid" => NamedFormat::Uuid,
        "byte" => NamedFormat::Byte,
        "date" => NamedFormat::Date,
        "datetime" => NamedFormat::Datetime,
        _ => return Ok(Value::Optional(None)),
    };
    Ok(Value::some(Value::Format(format)))
}

fn validate<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let Value::Format(format) = &args[0] else { return Err(EvalError::no_overload()) };
    let text = args[1].str_arg()?;
    cx.budget.charge((text.len() as u64 + 1).div_ceil(10) * 10)?;
    let problems = format.problems(text);
    if problems.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(problems.into_iter().map(Value::string).collect())))
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("the patterns here are constants")
}

static SUBDOMAIN_REGEX: LazyLock<Regex> = LazyLock::new(|| whole(SUBDOMAIN));
static UUID_REGEX: LazyLock<Regex> =
    LazyLock::new(|| whole("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"));

impl NamedFormat {
    /// Why the text does not have the format; nothing when it has.
    pub fn problems(self, text: &str) -> Vec<String> {
        match self {
            NamedFormat::Dns1123Label => label(text),
            NamedFormat::Dns1123LabelPrefix => label(&masked(text)),
            NamedFormat::Dns1123Subdomain => subdomain(text),
            NamedFormat::Dns1123SubdomainPrefix => subdomain(&masked(text)),
            NamedFormat::Dns1035Label => label_1035(text),
            NamedFormat::Dns1035LabelPrefix => label_1035(&masked(text)),
            NamedFormat::QualifiedName => qualified_name(text),
            NamedFormat::LabelValue => label_value(text),
            NamedFormat::Uri => Url::parse(text).err().into_iter().collect(),
            NamedFormat::Uuid => unless(UUID_REGEX.is_match(text), "does not match the UUID format"),
            NamedFormat::Byte => {
                let valid =
                    base64::engine::general_purpose::STANDARD.decode(text).is_ok() && !text.is_empty();
                unless(valid, "invalid base64")
            }
            NamedFormat::Date => {
                unless(text.len() == 10 && Timestamp::parse_lenient(text).is_some(), "invalid date")
            }
            NamedFormat::Datetime => {
                unless(text.len() > 10 && Timestamp::parse_lenient(text).is_some(), "invalid datetime")
            }
        }
    }
}

fn unless(valid: bool, problem: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![problem.to_owned()] }
}

/// A prefix may end in a dash: something follows it.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        // The character before goes too, as in Kubernetes.
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => text.to_owned(),
    }
}

fn too_long(problems: &mut Vec<String>, text: &str, most: usize) {
    if text.len() > most {
        problems.push(format!("must be no more than {most} characters"));
    }
}

fn pattern_problem(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// Whether all of the text is lower case letters, digits and inner dashes.
fn is_label(text: &str, first: fn(&u8) -> bool) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.as_bytes().first().is_some_and(first)
        && text.as_bytes().last().is_some_and(alphanumeric)
        && text.bytes().all(|byte| alphanumeric(&byte) || byte == b'-')
}

fn label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(&mut problems, text, 63);
    if !is_label(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        problems.push(if SUBDOMAIN_REGEX.is_match(text) {
            "must not contain dots".to_owned()
        } else {
            let message = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
                           '-', and must start and end with an alphanumeric character";
            pattern_problem(message, LABEL, &["my-name", "123-abc"])
        });
    }
    problems
}

fn subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(&mut problems, text, 253);
    if !SUBDOMAIN_REGEX.is_match(text) {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                       or '.', and must start and end with an alphanumeric character";
        problems.push(pattern_problem(message, SUBDOMAIN, &["example.com"]));
    }
    problems
}

fn label_1035(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(&mut problems, text, 63);
    if !is_label(text, u8::is_ascii_lowercase) {
        let message = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
                       an alphabetic character, and end with an alphanumeric character";
        problems.push(pattern_problem(message, LABEL_1035, &["my-name", "abc-123"]));
    }
    problems
}

/// Letters and digits at both ends; dashes, underscores and dots between.
fn is_qualified(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    end(text.as_bytes().first())
        && end(text.as_bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn qualified_name(text: &str) -> Vec<String> {
    let message = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                   with an alphanumeric character";
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems
                    .extend(subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        _ => {
            let message = message.replacen("name part must", "a valid label key must", 1);
            let examples = ["MyName", "my.name", "123-abc"];
            let problem = pattern_problem(&message, QUALIFIED, &examples);
            return vec![format!(
                "{problem} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified(name) {
        problems.push(pattern_problem(message, QUALIFIED, &["MyName", "my.name", "123-abc"]));
    }
    problems
}

fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !is_qualified(text) {
        let message = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                       '.', and must start and end with an alphanumeric character";
        problems.push(pattern_problem(message, LABEL_VALUE, &["MyValue", "my_value", "12345"]));
    }
    problems
}
