//! Regular expressions, in the syntax of RE2.

use ::regex::{Regex, RegexBuilder};

use super::{Cx, Entry};
use crate::{
    Budget,
    value::{EvalError, Result, Value},
};

pub(super) const TABLE: &[Entry] = &[
    Entry {
        name: "matches",
        native: |cx, args| call(cx, "matches", args),
        overloads: &["(string, string) -> bool", ".(string, string) -> bool"],
    },
    Entry {
        name: "find",
        native: |cx, args| call(cx, "find", args),
        overloads: &[".(string, string) -> string"],
    },
    Entry {
        name: "findAll",
        native: |cx, args| call(cx, "findAll", args),
        overloads: &[".(string, string) -> list(string)", ".(string, string, int) -> list(string)"],
    },
];

/// What a pattern in an expression may take when compiled, in bytes.
const MAX_LITERAL: usize = 2 << 20;
/// The same for a pattern made during evaluation: those are compiled again and again.
const MAX_DYNAMIC: usize = 1 << 19;
/// What compiling costs during evaluation. It takes far longer than a match, and Kubernetes
/// does not charge for it.
const COMPILE_COST: u64 = 500;

/// Compiles a literal pattern of RE2's syntax.
pub(crate) fn compile(pattern: &str) -> std::result::Result<Regex, ::regex::Error> {
    compile_within(pattern, MAX_LITERAL)
}

fn compile_within(pattern: &str, size: usize) -> std::result::Result<Regex, ::regex::Error> {
    RegexBuilder::new(&translate(pattern)).size_limit(size).dfa_size_limit(size).nest_limit(100).build()
}

/// Rewrites what RE2 reads differently: classes such as `\d` are ASCII there, a `{` that is no
/// repetition is a character, brackets and `&&` inside of a class are characters, and `\Q…\E` quotes.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.char_indices().peekable();
    // Inside of a class, and whether its first member is still to come.
    let mut class: Option<bool> = None;
    while let Some((at, char)) = chars.next() {
        let first = class.replace_if_some();
        match char {
            '\\' => {
                let Some((_, escaped)) = chars.next() else {
                    out.push('\\');
                    break;
                };
                match (escaped, class.is_some()) {
                    ('d', true) => out.push_str("0-9"),
                    ('w', true) => out.push_str("0-9A-Za-z_"),
                    ('s', true) => out.push_str("\\t\\n\\x0c\\r "),
                    ('d', false) => out.push_str("[0-9]"),
                    ('w', false) => out.push_str("[0-9A-Za-z_]"),
                    ('s', false) => out.push_str("[\\t\\n\\x0c\\r ]"),
                    ('D', _) => out.push_str("[^0-9]"),
                    ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                    ('S', _) => out.push_str("[^\\t\\n\\x0c\\r ]"),
                    ('b', false) => out.push_str("(?-u:\\b)"),
                    ('B', false) => out.push_str("(?-u:\\B)"),
                    ('Q', false) => {
                        let rest = &pattern[at + 2..];
                        let quoted = rest.find("\\E").map_or(rest, |end| &rest[..end]);
                        out.push_str(&::regex::escape(quoted));
                        let skip = quoted.chars().count() + if quoted.len() < rest.len() { 2 } else { 0 };
                        for _ in 0..skip {
                            chars.next();
                        }
                    }
                    (escaped, _) => {
                        out.push('\\');
                        out.push(escaped);
                        // `\p{…}` and `\x{…}`: the braces belong to the escape.
                        if matches!(escaped, 'p' | 'P' | 'x')
                            && chars.peek().is_some_and(|(_, next)| *next == '{')
                        {
                            for (_, char) in chars.by_ref() {
                                out.push(char);
                                if char == '}' {
                                    break;
                                }
                            }
                        }
                    }
                }
            }
            '[' if class.is_none() => {
                class = Some(true);
                out.push('[');
                if let Some((_, '^')) = chars.peek() {
                    chars.next();
                    out.push('^');
                }
            }
            '[' if chars.peek().is_some_and(|(_, next)| *next == ':')
                && named_class(&pattern[at..]).is_some() =>
            {
                let len = named_class(&pattern[at..]).unwrap_or(1);
                out.push_str(&pattern[at..at + len]);
                for _ in 1..len {
                    chars.next();
                }
            }
            ']' if first => out.push_str("\\]"),
            ']' if class.is_some() => {
                class = None;
                out.push(']');
            }
            '[' | '&' | '~' if class.is_some() => {
                out.push('\\');
                out.push(char);
            }
            // A minus that begins or ends a class, or follows another, is itself.
            '-' if class.is_some()
                && (first || chars.peek().is_some_and(|(_, next)| matches!(next, '-' | ']'))) =>
            {
                out.push_str("\\-");
            }
            '{' if class.is_none() && !repetition(&pattern[at..]) => out.push_str("\\{"),
            '}' if class.is_none() && !closes_repetition(pattern, at) => out.push_str("\\}"),
            char => out.push(char),
        }
    }
    out
}

/// Takes the "first member" flag of a class state.
trait ClassState {
    fn replace_if_some(&mut self) -> bool;
}

impl ClassState for Option<bool> {
    fn replace_if_some(&mut self) -> bool {
        match self {
            Some(first) => std::mem::replace(first, false),
            None => false,
        }
    }
}

/// The length of `[:alpha:]` and the like.
fn named_class(text: &str) -> Option<usize> {
    // Names are short; looking further would take quadratic time.
    let end = text.as_bytes().windows(2).take(16).position(|pair| pair == b":]")?;
    let name = text[2..end.max(2)].trim_start_matches('^');
    (end >= 2 && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())).then_some(end + 2)
}

/// Whether `{…` is `{n}`, `{n,}` or `{n,m}`.
fn repetition(text: &str) -> bool {
    let Some(end) = text.bytes().take(16).position(|byte| byte == b'}') else { return false };
    let (low, high) = text[1..end].split_once(',').unwrap_or((&text[1..end], ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

/// Whether the `}` at `at` ends a repetition.
fn closes_repetition(pattern: &str, at: usize) -> bool {
    let open = pattern.as_bytes()[..at].iter().rev().take(16).position(|byte| *byte == b'{');
    open.is_some_and(|back| repetition(&pattern[at - back - 1..]))
}

fn call<'a>(cx: &mut Cx<'_>, name: &str, args: &[Value<'a>]) -> Result<Value<'a>> {
    let pattern = args[1].str_arg()?;
    let limit = args.get(2).map_or(Ok(-1), Value::int_arg)?;
    if cx.regex.as_ref().is_none_or(|(known, _)| known != pattern) {
        cx.budget.charge(COMPILE_COST + pattern.len() as u64)?;
        let regex = compile_within(pattern, MAX_DYNAMIC)
            .map_err(|error| EvalError::failed(format!("error parsing regexp: {}", brief(&error))))?;
        cx.regex = Some((pattern.to_owned(), regex));
    }
    match &cx.regex {
        Some((_, regex)) => apply(name, regex, pattern.len(), &args[0], limit, cx.budget),
        None => Err(EvalError::failed("error parsing regexp")),
    }
}

/// The last line of the crate's message; the others draw the pattern.
fn brief(error: &::regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Runs `matches`, `find` or `findAll`.
pub(crate) fn apply<'a>(
    name: &str,
    regex: &Regex,
    pattern_len: usize,
    target: &Value<'a>,
    limit: i64,
    budget: &mut Budget,
) -> Result<Value<'a>> {
    let text = target.str_arg()?;
    let (text_cost, pattern_cost) = ((text.len() as u64 + 1).div_ceil(10), (pattern_len as u64).div_ceil(4));
    budget.charge(text_cost.saturating_mul(pattern_cost).max(1))?;
    Ok(match name {
        "matches" => Value::Bool(regex.is_match(text)),
        "find" => Value::string(regex.find(text).map_or("", |found| found.as_str())),
        _ => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let mut out = Vec::new();
            for found in regex.find_iter(text).take(limit) {
                budget.items(1)?;
                out.push(Value::string(found.as_str()));
            }
            Value::list(out)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn patterns_mean_what_they_mean_in_re2() {
        for (pattern, text, expected) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w-]+$", "a-b_1", true),
            (r"^[^\s]+$", "a b", false),
            (r"^{a}$", "{a}", true),
            (r"^a{2}$", "aa", true),
            (r"^a{2,3}$", "aaa", true),
            (r"^a{,3}$", "a{,3}", true),
            (r"^[[a]$", "[", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[]a]+$", "]a", true),
            (r"^[a-z-]+$", "a-z", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\Qa.b\E+$", "a.bb", true),
            (r"^\x{41}$", "A", true),
            (r"^\p{Greek}+$", "α", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", "a-b.c", true),
        ] {
            let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(regex.is_match(text), expected, "{pattern} on {text}");
        }
        assert!(compile("(").is_err());
        assert!(compile("((a{1000}){1000}){1000}").is_err());
    }
}
