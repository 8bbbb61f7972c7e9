//! Names, label keys and values, in the words Kubernetes uses to refuse them.

/// What is wrong with a label's value.
pub(super) fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_word(value) {
        wrong.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    wrong
}

/// What is wrong with a label's or annotation's key.
pub(super) fn label_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) if !name.contains('/') => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        Some(_) => {
            return vec![
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                 validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and \
                 '/' (e.g. 'example.com/MyName')"
                    .to_owned(),
            ];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(name) {
        wrong.push(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                .to_owned(),
        );
    }
    wrong
}

/// What is wrong with an object's name.
pub(super) fn subdomain(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 253 {
        wrong.push("must be no more than 253 bytes".to_owned());
    }
    let part = |part: &str| {
        let inner =
            part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    if !name.split('.').all(part) {
        wrong.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    wrong
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Whether a text is a network in CIDR notation, as Go reads it.
pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let plain = !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && (bits == "0" || !bits.starts_with('0'));
    let Ok(bits) = bits.parse::<u8>() else {
        return false;
    };
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    plain && bits <= most
}
