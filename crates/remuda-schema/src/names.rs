//! Syntax of the names that definitions and embedded metadata use, with the reference's texts.

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

pub(crate) fn dns1035_label(name: &str) -> Vec<String> {
    let mut out = Vec::new();
    if name.len() > 63 {
        out.push(max_length(63));
    }
    if !is_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        out.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
             regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    out
}

pub(crate) fn dns1123_subdomain(name: &str) -> Vec<String> {
    let mut out = Vec::new();
    if name.len() > 253 {
        out.push(max_length(253));
    }
    if !name.split('.').all(is_label) {
        out.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '{LABEL_1123}(\\.{LABEL_1123})*')"
        ));
    }
    out
}

pub(crate) fn qualified_name(name: &str) -> Vec<String> {
    const TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                        validation is '";
    let mut out = Vec::new();
    let mut parts = name.split('/');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if third.is_some() {
        out.push(format!(
            "a valid label key {TEXT}{QUALIFIED}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ));
        return out;
    }
    let local = match second {
        Some(local) => {
            if first.is_empty() {
                out.push("prefix part must be non-empty".to_owned());
            } else {
                out.extend(dns1123_subdomain(first).into_iter().map(|text| format!("prefix part {text}")));
            }
            local
        }
        None => first,
    };
    if local.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if local.len() > 63 {
        out.push(format!("name part {}", max_length(63)));
    }
    if !is_qualified_part(local) {
        out.push(format!("name part {TEXT}{QUALIFIED}')"));
    }
    out
}

pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 63 {
        out.push(max_length(63));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        out.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
             regex used for validation is '({QUALIFIED})?')"
        ));
    }
    out
}

/// Names that become a segment of a URL.
pub(crate) fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

fn max_length(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn is_label(text: &str) -> bool {
    let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|b| edge(b) || *b == b'-')
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
