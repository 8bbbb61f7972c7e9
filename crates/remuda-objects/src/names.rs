//! Rules for names, label keys and label values, with the words clients know from Kubernetes.
//!
//! Every check returns the list of complaints; an empty list means the value is fine. The patterns are
//! matched by hand: they run for every label of every write.

const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const WILDCARD_MESSAGE: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY_MESSAGE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;
/// Longest DNS label, label value and name part of a label key.
pub const LABEL_MAX: usize = 63;

/// A rule for object names. The flag says that a suffix will be appended (`generateName`).
pub type NameRule = fn(&str, bool) -> Vec<String>;

/// Name rule: DNS-1123 subdomain, what most kinds use.
pub fn subdomain_name(name: &str, prefix: bool) -> Vec<String> {
    with_mask(name, prefix, subdomain)
}

/// Name rule: DNS-1123 label (namespaces).
pub fn label_name(name: &str, prefix: bool) -> Vec<String> {
    with_mask(name, prefix, label)
}

/// Name rule: DNS-1035 label (services before relaxed names).
pub fn label_1035_name(name: &str, prefix: bool) -> Vec<String> {
    with_mask(name, prefix, label_1035)
}

/// Name rule: anything that fits into one segment of a URL path (RBAC kinds, CSRs).
pub fn path_segment_name(name: &str, prefix: bool) -> Vec<String> {
    path_segment(name, prefix)
}

fn with_mask(name: &str, prefix: bool, check: fn(&str) -> Vec<String>) -> Vec<String> {
    if prefix && name.len() > 1 && name.ends_with('-') {
        // The dash will be followed by random characters; upstream looks at the name with its last two
        // characters replaced by a harmless one.
        let mut masked: String = name
            .chars()
            .collect::<Vec<_>>()
            .split_last_chunk::<2>()
            .map_or_else(|| name.to_owned(), |(head, _)| head.iter().collect());
        masked.push('a');
        check(&masked)
    } else {
        check(name)
    }
}

fn is_lower_alnum(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn matches_label(value: &[u8]) -> bool {
    match (value.first(), value.last()) {
        (Some(&first), Some(&last)) => {
            is_lower_alnum(first)
                && is_lower_alnum(last)
                && value.iter().all(|&b| is_lower_alnum(b) || b == b'-')
        }
        _ => false,
    }
}

fn matches_subdomain(value: &str) -> bool {
    value.as_bytes().split(|&byte| byte == b'.').all(matches_label)
}

fn matches_key_name(value: &[u8]) -> bool {
    match (value.first(), value.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && value.iter().all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        }
        _ => false,
    }
}

pub(crate) fn max_length(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// DNS-1123 label.
pub fn label(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > LABEL_MAX {
        complaints.push(max_length(LABEL_MAX));
    }
    if !matches_label(value.as_bytes()) {
        let dots = matches_subdomain(value);
        complaints.push(if dots { "must not contain dots".to_owned() } else { LABEL_MESSAGE.to_owned() });
    }
    complaints
}

/// DNS-1123 subdomain.
pub fn subdomain(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        complaints.push(max_length(SUBDOMAIN_MAX));
    }
    if !matches_subdomain(value) {
        complaints.push(SUBDOMAIN_MESSAGE.to_owned());
    }
    complaints
}

/// `*.` followed by a DNS-1123 subdomain.
pub fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        complaints.push(max_length(SUBDOMAIN_MAX));
    }
    if !value.strip_prefix("*.").is_some_and(matches_subdomain) {
        complaints.push(WILDCARD_MESSAGE.to_owned());
    }
    complaints
}

/// DNS-1035 label: starts with a letter.
pub fn label_1035(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > LABEL_MAX {
        complaints.push(max_length(LABEL_MAX));
    }
    let starts = value.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if !starts || !matches_label(value.as_bytes()) {
        complaints.push(LABEL_1035_MESSAGE.to_owned());
    }
    complaints
}

/// One segment of a URL path: no `/`, no `%`, and as a whole name neither `.` nor `..`.
pub fn path_segment(value: &str, prefix: bool) -> Vec<String> {
    if !prefix && (value == "." || value == "..") {
        return vec![format!("may not be '{value}'")];
    }
    let mut complaints = Vec::new();
    for illegal in ["/", "%"] {
        if value.contains(illegal) {
            complaints.push(format!("may not contain '{illegal}'"));
        }
    }
    complaints
}

/// Qualified name, the form of label keys: `[prefix/]name`.
pub fn qualified(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, name)) if name.contains('/') => {
            complaints.push(format!(
                "a valid label key {KEY_MESSAGE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return complaints;
        }
        Some(("", name)) => {
            complaints.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            complaints.extend(subdomain(prefix).into_iter().map(|text| format!("prefix part {text}")));
            name
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        complaints.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !matches_key_name(name.as_bytes()) {
        complaints.push(format!("name part {KEY_MESSAGE}"));
    }
    complaints
}

/// Label value: empty or at most 63 letters, digits, `-`, `_`, `.` with alphanumeric ends.
pub fn label_value(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > LABEL_MAX {
        complaints.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !matches_key_name(value.as_bytes()) {
        complaints.push(VALUE_MESSAGE.to_owned());
    }
    complaints
}

/// Key of the data of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        complaints.push(max_length(SUBDOMAIN_MAX));
    }
    let charset = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(charset) {
        complaints.push(CONFIG_KEY_MESSAGE.to_owned());
    }
    match value {
        "." => complaints.push("must not be '.'".to_owned()),
        ".." => complaints.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// Name of a port (IANA service name).
pub fn port_name(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 15 {
        complaints.push(max_length(15));
    }
    if value.is_empty() || !value.bytes().all(|b| is_lower_alnum(b) || b == b'-') {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

/// Port number.
pub fn port_number(value: i64) -> Vec<String> {
    in_range(value, 1, 65535)
}

pub(crate) fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {low} and {high}, inclusive")]
    }
}

/// What `generateName` becomes: the prefix cut to 58 characters and five characters chosen by `random`.
///
/// The alphabet has neither vowels nor look-alikes, so no word appears by accident. The modulo keeps the
/// choice within it; its bias is of no concern for a name that is checked for collisions anyway.
pub fn generate(prefix: &str, random: [u8; 5]) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    const PREFIX_MAX: usize = 58;
    let mut cut = prefix.len().min(PREFIX_MAX);
    while !prefix.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut name = String::with_capacity(cut + random.len());
    name.push_str(&prefix[..cut]);
    name.extend(random.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])));
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn subdomains_follow_the_pattern() {
        for good in ["a", "a-b", "a.b", "0", "example.com", "a--b.c"] {
            assert!(subdomain(good).is_empty(), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "ä", "a.-b"] {
            assert_eq!(subdomain(bad), [SUBDOMAIN_MESSAGE], "{bad}");
        }
        assert_eq!(subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
    }

    #[test]
    fn a_label_with_dots_says_so() {
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(label("a_b"), [LABEL_MESSAGE]);
        assert_eq!(label_1035("1a"), [LABEL_1035_MESSAGE]);
    }

    #[test]
    fn a_generated_prefix_may_end_in_a_dash() {
        assert!(subdomain_name("web-", true).is_empty());
        assert_eq!(subdomain_name("web-", false), [SUBDOMAIN_MESSAGE]);
        assert!(!subdomain_name("-", true).is_empty());
    }

    #[test]
    fn path_segments_refuse_what_breaks_urls() {
        assert_eq!(path_segment("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
        assert!(path_segment("system:node", false).is_empty());
    }

    #[test]
    fn qualified_names_name_the_broken_part() {
        assert!(qualified("example.com/My_Name").is_empty());
        assert_eq!(qualified("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("x.io/")[0], "name part must be non-empty");
        assert_eq!(qualified("X/y"), [format!("prefix part {SUBDOMAIN_MESSAGE}")]);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert_eq!(qualified(&"a".repeat(64)), ["name part must be no more than 63 bytes"]);
    }

    #[test]
    fn a_generated_name_is_cut_and_random() {
        assert_eq!(generate("web-", [0, 1, 26, 27, 255]), "web-bc9bq");
        assert_eq!(generate(&"x".repeat(90), [0; 5]).len(), 63);
    }

    #[test]
    fn port_names_hold_a_letter() {
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
    }

    proptest! {
        #[test]
        fn no_name_makes_a_check_panic(text in ".{0,80}", random: [u8; 5]) {
            for rule in [subdomain_name, label_name, label_1035_name, path_segment_name] {
                rule(&text, true);
                rule(&text, false);
            }
            qualified(&text);
            label_value(&text);
            config_key(&text);
            port_name(&text);
            generate(&text, random);
        }
    }
}
