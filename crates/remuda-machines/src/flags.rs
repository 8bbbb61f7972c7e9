//! Flags of drivers as fields, command lines and variables, and back.

use std::collections::BTreeMap;

use remuda_names::{
    driver::{facts, variable_aliases},
    machines,
};
use serde_json::{Map, Value};

/// The field of a flag: `digitalocean-ssh-key-path` is `sshKeyPath`. `None` if it has no driver in front.
pub(crate) fn field_of(flag: &str) -> Option<String> {
    let (_, rest) = flag.split_once('-')?;
    let mut words = rest.split('-').filter(|word| !word.is_empty());
    let mut field = words.next()?.to_owned();
    for word in words {
        let mut letters = word.chars();
        field.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        field.push_str(letters.as_str());
    }
    Some(field)
}

/// Puts `between` where a lower-case letter or digit is followed by an upper-case letter.
fn split_words(field: &str, between: char) -> String {
    let mut text = String::with_capacity(field.len() + 8);
    let mut before = ' ';
    for letter in field.chars() {
        if letter.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            text.push(between);
        }
        text.push(letter);
        before = letter;
    }
    text
}

/// The flag of a field: `sshKeyPath` of driver `digitalocean` is `digitalocean-ssh-key-path`.
pub(crate) fn flag_of(driver: &str, field: &str) -> String {
    format!("{driver}-{}", split_words(field, '-').to_lowercase())
}

/// Arguments for the fields of a machine's spec, in the order of their text.
pub(crate) fn arguments(driver: &str, fields: &Map<String, Value>) -> Vec<String> {
    let mut arguments = Vec::new();
    for (field, value) in fields.iter().filter(|(field, _)| *field != "providerID") {
        let flag = flag_of(driver, field);
        match value {
            Value::Number(number) => arguments.push(format!("--{flag}={number}")),
            Value::String(text) if !text.is_empty() => arguments.push(format!("--{flag}={text}")),
            Value::Bool(true) => arguments.push(format!("--{flag}")),
            Value::Array(items) => {
                let texts = items.iter().filter_map(Value::as_str);
                arguments.extend(texts.map(|text| format!("--{flag}={text}")));
            }
            Value::Null | Value::Bool(false) | Value::String(_) | Value::Object(_) => {}
        }
    }
    arguments.sort();
    arguments
}

/// What the variables of a driver begin with.
pub(crate) fn variable_prefix(driver: &str) -> String {
    match facts(driver).variable_prefix {
        "" => format!("{}_", driver.to_uppercase()),
        prefix => format!("{prefix}_"),
    }
}

/// The variable of a key in a credential: `digitaloceancredentialConfig-accessToken` is
/// `DIGITALOCEAN_ACCESS_TOKEN`.
pub(crate) fn variable_of(driver: &str, key: &str) -> String {
    let field = key.rsplit('-').next().unwrap_or_default();
    format!("{}{}", variable_prefix(driver), split_words(field, '_').to_uppercase())
}

/// The value of a flag's variable under any of its names.
pub(crate) fn variable<'a>(variables: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let found = variables.get(name).filter(|text| !text.is_empty());
    let other = || variable_aliases(name).find_map(|alias| variables.get(alias));
    found.or_else(other).map(String::as_str)
}

/// The variable that carries a flag which must not be on a command line.
pub(crate) fn hidden_variable(flag: &str) -> String {
    format!("{}{}", machines::env::FLAG_PREFIX, flag.replace('-', "_").to_uppercase())
}

/// `a:b,c:d` as pairs.
pub(crate) fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (left, right) = part.split_once(':')?;
        let (left, right) = (left.trim(), right.trim());
        (!left.is_empty() && !right.is_empty()).then(|| (left.to_owned(), right.to_owned()))
    };
    text.split(',').filter_map(pair).collect()
}

/// `a,b` as a list.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Fields that hold the content of a login key, which goes into a file of the name drivers expect.
pub(crate) fn is_login_key(field: &str) -> bool {
    matches!(field, "sshKeyContents" | "sshKey" | "privateKeyFile")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_flags_are_named_as_by_rancher() {
        for (flag, field) in [
            ("digitalocean-ssh-key-path", "sshKeyPath"),
            ("amazonec2-ssh-keypath", "sshKeypath"),
            ("amazonec2-use-ebs-optimized-instance", "useEbsOptimizedInstance"),
            ("digitalocean-ipv6", "ipv6"),
        ] {
            assert_eq!(field_of(flag).unwrap(), field);
            let driver = flag.split_once('-').unwrap().0;
            assert_eq!(flag_of(driver, field), flag);
        }
        assert_eq!(field_of("driver"), None);
        // The word after a digit has to be found again.
        assert_eq!(flag_of("amazonec2", "httpProtocolIpv6"), "amazonec2-http-protocol-ipv6");
    }

    #[test]
    fn a_spec_becomes_arguments() {
        let spec = json!({
            "image": "ubuntu-24-04-x64", "region": "nyc3", "size": "s-2vcpu-4gb", "privateNetworking": true,
            "tags": "demo", "backups": false, "sshPort": "22", "userdata": "", "ipv6": null, "count": 3,
            "securityGroup": ["a", "b"], "common": {"labels": {}}, "providerID": "x://1",
        });
        let arguments = arguments("digitalocean", spec.as_object().unwrap());
        assert_eq!(
            arguments,
            [
                "--digitalocean-count=3",
                "--digitalocean-image=ubuntu-24-04-x64",
                "--digitalocean-private-networking",
                "--digitalocean-region=nyc3",
                "--digitalocean-security-group=a",
                "--digitalocean-security-group=b",
                "--digitalocean-size=s-2vcpu-4gb",
                "--digitalocean-ssh-port=22",
                "--digitalocean-tags=demo",
            ]
        );
    }

    #[test]
    fn credentials_become_variables() {
        for (driver, key, variable) in [
            ("digitalocean", "digitaloceancredentialConfig-accessToken", "DIGITALOCEAN_ACCESS_TOKEN"),
            ("amazonec2", "amazonec2credentialConfig-secretKey", "AWS_SECRET_KEY"),
            ("vmwarevsphere", "vmwarevspherecredentialConfig-vcenterPort", "VSPHERE_VCENTER_PORT"),
        ] {
            assert_eq!(variable_of(driver, key), variable);
        }
        let variables = BTreeMap::from([("AWS_SECRET_KEY".to_owned(), "s".to_owned())]);
        assert_eq!(variable(&variables, "AWS_SECRET_ACCESS_KEY"), Some("s"));
        assert_eq!(variable(&variables, "AWS_ACCESS_KEY_ID"), None);
    }

    #[test]
    fn lists_in_annotations_are_read_leniently() {
        assert_eq!(pairs("a:b, c:d,bad,:x"), [("a".into(), "b".into()), ("c".into(), "d".into())]);
        assert_eq!(words(" a,,b "), ["a", "b"]);
    }
}
