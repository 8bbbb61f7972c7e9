//! URLs: absolute, or absolute paths.

use std::{collections::BTreeMap, sync::Arc};

use super::{Cx, Entry};
use crate::value::{EvalError, Key, Map, Result, Text, Value};

const PART: &[&str] = &[".(url) -> string"];

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "url", native: url, overloads: &["(string) -> url"] },
    Entry { name: "isURL", native: is_url, overloads: &["(string) -> bool"] },
    Entry { name: "getScheme", native: |_, args| part(args, |url| url.scheme.clone()), overloads: PART },
    Entry { name: "getHost", native: |_, args| part(args, |url| url.host.clone()), overloads: PART },
    Entry {
        name: "getHostname",
        native: |_, args| part(args, |url| url.hostname().to_owned()),
        overloads: PART,
    },
    Entry { name: "getPort", native: |_, args| part(args, |url| url.port().to_owned()), overloads: PART },
    Entry { name: "getEscapedPath", native: |_, args| part(args, |url| url.path.clone()), overloads: PART },
    Entry { name: "getQuery", native: query, overloads: &[".(url) -> map(string, list(string))"] },
];

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Put together again, in a normal form.
    pub(crate) text: String,
    scheme: String,
    /// With the port.
    host: String,
    /// Escaped.
    path: String,
    query: String,
}

impl Url {
    /// Parses as Go's `url.ParseRequestURI` does.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        let fail = |problem: &str| Err(format!("parse {text:?}: {problem}"));
        if text.is_empty() {
            return fail("empty url");
        }
        if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return fail("net/url: invalid control character in URL");
        }
        let (scheme, rest) = match scheme(text) {
            Ok(split) => split,
            Err(problem) => return fail(problem),
        };
        let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !before_query.starts_with('/') {
            if scheme.is_empty() {
                return fail("invalid URI for request");
            }
            // Opaque, such as `mailto:a@b`.
            let (scheme, text) = (scheme.to_ascii_lowercase(), text.to_owned());
            return Ok(Self {
                text,
                scheme,
                host: String::new(),
                path: String::new(),
                query: query.to_owned(),
            });
        }
        let mut path = before_query;
        let mut host = String::new();
        if !scheme.is_empty()
            && let Some(after) = before_query.strip_prefix("//")
        {
            let (authority, rest) = after.split_at(after.find('/').unwrap_or(after.len()));
            path = rest;
            host = match authority_host(authority) {
                Ok(host) => host,
                Err(problem) => return fail(&problem),
            };
        }
        let Some(path) = escape_path(path) else {
            return fail("invalid URL escape");
        };
        let scheme = scheme.to_ascii_lowercase();
        Ok(Self { text: text.to_owned(), scheme, host, path, query: query.to_owned() })
    }

    fn hostname(&self) -> &str {
        let host = match self.host.rfind(':') {
            Some(colon) if valid_port(&self.host[colon..]) => &self.host[..colon],
            _ => &self.host,
        };
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn port(&self) -> &str {
        match self.host.rfind(':') {
            Some(colon) if valid_port(&self.host[colon..]) => &self.host[colon + 1..],
            _ => "",
        }
    }
}

fn scheme(text: &str) -> std::result::Result<(&str, &str), &'static str> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme"),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn valid_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The host and port, without user information.
fn authority_host(authority: &str) -> std::result::Result<String, String> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            if unescape(user, false).is_none() {
                return Err("net/url: invalid userinfo".to_owned());
            }
            host
        }
        None => authority,
    };
    let port = if host.starts_with('[') {
        let Some(end) = host.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        &host[end + 1..]
    } else {
        if host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '}', '|']) {
            return Err("invalid character in host name".to_owned());
        }
        host.find(':').map_or("", |colon| &host[colon..])
    };
    if !port.is_empty() && !valid_port(port) {
        return Err(format!("invalid port {port:?} after host"));
    }
    unescape(host, false).ok_or_else(|| "invalid URL escape".to_owned())
}

/// Percent-decodes; `None` when an escape is broken. Bytes that are no UTF-8 are replaced.
fn unescape(text: &str, plus: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok())?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                out.push(u8::from_str_radix(digits, 16).ok()?);
                at += 2;
            }
            b'+' if plus => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    Some(
        String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// Escapes what must be, and keeps escapes that are there.
fn escape_path(path: &str) -> Option<String> {
    unescape(path, false)?;
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
        if plain {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(out)
}

fn url<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    match Url::parse(text) {
        Ok(url) => Ok(Value::Url(Arc::new(url))),
        Err(problem) => {
            Err(EvalError::failed(format!("URL parse error during conversion from string: {problem}")))
        }
    }
}

fn is_url<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    Ok(Value::Bool(Url::parse(text).is_ok()))
}

fn part<'a>(args: &[Value<'a>], part: fn(&Url) -> String) -> Result<Value<'a>> {
    match &args[0] {
        Value::Url(url) => Ok(Value::string(part(url))),
        _ => Err(EvalError::no_overload()),
    }
}

fn query<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let Value::Url(url) = &args[0] else { return Err(EvalError::no_overload()) };
    cx.budget.bytes(url.query.len())?;
    let mut parts: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // A broken pair is left out, as in Go.
        if let (Some(key), Some(value)) = (unescape(key, true), unescape(value, true)) {
            parts.entry(key).or_default().push(Value::string(value));
        }
    }
    let entry = |(key, values): (String, _)| (Key::String(Text::Shared(key.into())), Value::list(values));
    Ok(Value::Map(Map::Owned(Arc::new(parts.into_iter().map(entry).collect()))))
}
