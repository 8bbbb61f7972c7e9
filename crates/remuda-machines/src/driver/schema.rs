//! What a driver's flags are as fields: the DynamicSchemas that user interfaces and other controllers read.

use std::collections::BTreeMap;

use remuda_api::management::{DynamicSchema, DynamicSchemaSpec, NodeDriver, SchemaDefault, SchemaField};
use remuda_drivers::flags::{Flag, Kind};
use remuda_names::driver::facts;
use remuda_names::rancher::{annotation::driver as annotation, label};

use crate::flags::{field_of, is_login_key, pairs, words};

/// What the annotations of a NodeDriver say about its fields.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Hints {
    pub public: Vec<String>,
    pub private: Vec<String>,
    pub optional: Vec<String>,
    pub passwords: Vec<String>,
    pub defaults: Vec<(String, String)>,
    /// Field that holds the content of a file, and the driver's field for the file's place.
    pub aliases: Vec<(String, String)>,
}

impl Hints {
    pub(crate) fn of(driver: &NodeDriver) -> Self {
        let text = |key: &str| {
            let annotations = driver.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
        };
        Self {
            public: words(text(annotation::PUBLIC_CREDENTIALS)),
            private: words(text(annotation::PRIVATE_CREDENTIALS)),
            optional: words(text(annotation::OPTIONAL_CREDENTIALS)),
            passwords: words(text(annotation::PASSWORDS)),
            defaults: pairs(text(annotation::DEFAULTS)),
            aliases: pairs(text(annotation::FILE_ALIASES)),
        }
    }

    fn is_password(&self, field: &str) -> bool {
        self.private.iter().chain(&self.passwords).any(|known| known == field) || is_login_key(field)
    }

    /// Hints for user interfaces: fields that hold files have several lines.
    pub(crate) fn for_interfaces(&self) -> Option<String> {
        if self.aliases.is_empty() {
            return None;
        }
        let lines =
            self.aliases.iter().map(|(field, _)| (field.clone(), BTreeMap::from([("type", "multiline")])));
        serde_json::to_string(&lines.collect::<BTreeMap<_, _>>()).ok()
    }
}

/// Why a driver's flags make no fields.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("{0:?} is no name for a driver: lower-case letters and digits, a letter first, at most 40")]
    Name(String),
    #[error("flag {0:?} does not begin with the name of a driver")]
    NoPrefix(String),
    #[error("the driver has {0} flags, more than {MOST}")]
    TooMany(usize),
    #[error("flag {0:?} does not make a field")]
    NoField(String),
}

/// More flags than any driver has.
const MOST: usize = 500;

/// Names of kinds are made from it.
pub(crate) fn check_name(driver: &str) -> Result<(), Unfit> {
    let plain = driver.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let fits = plain && driver.starts_with(|first: char| first.is_ascii_lowercase()) && driver.len() <= 40;
    // `CustomMachine` is somebody else's kind.
    if fits && driver != "custom" { Ok(()) } else { Err(Unfit::Name(driver.to_owned())) }
}

/// The fields of a driver's configuration.
pub(crate) fn config_fields(flags: &[Flag], hints: &Hints) -> Result<BTreeMap<String, SchemaField>, Unfit> {
    if flags.len() > MOST {
        return Err(Unfit::TooMany(flags.len()));
    }
    let mut fields = BTreeMap::new();
    for flag in flags {
        let name = field_of(&flag.name).ok_or_else(|| Unfit::NoPrefix(flag.name.clone()))?;
        let plain = name.chars().all(|letter| letter.is_ascii_alphanumeric()) && name.len() <= 100;
        if !plain || RESERVED.contains(&name.as_str()) {
            return Err(Unfit::NoField(flag.name.clone()));
        }
        let alias = hints.aliases.iter().find(|(_, driver)| same_field(driver, &name));
        let (name, description) = match alias {
            Some((alias, driver)) => (alias.clone(), format!("File contents for {driver}")),
            None => (name, flag.usage.clone()),
        };
        let mut field = field(flag, description);
        if alias.is_some() {
            // The default would be a place, not a content.
            field.default = SchemaDefault::default();
        }
        if hints.is_password(&name) {
            field.kind = "password".to_owned();
        }
        fields.insert(name, field);
    }
    Ok(fields)
}

/// Fields every object has.
const RESERVED: &[&str] = &["apiVersion", "kind", "metadata", "status", "common"];

/// Aliases name driver fields in either spelling.
fn same_field(alias: &str, field: &str) -> bool {
    alias == field || field_of(&format!("x-{alias}")).as_deref() == Some(field)
}

fn field(flag: &Flag, description: String) -> SchemaField {
    let mut field = SchemaField { create: true, update: true, description, ..SchemaField::default() };
    match &flag.kind {
        Kind::String(default) => {
            field.kind = "string".to_owned();
            field.default.string_value.clone_from(default);
        }
        // Numbers are text in Rancher's kinds.
        Kind::Int(default) => {
            field.kind = "string".to_owned();
            field.default.string_value = default.to_string();
        }
        Kind::Bool => field.kind = "boolean".to_owned(),
        Kind::List(default) => {
            field.kind = "array[string]".to_owned();
            field.nullable = true;
            field.default.string_slice_value.clone_from(default);
        }
    }
    field
}

/// The fields of a driver's credentials, of those its annotations name.
pub(crate) fn credential_fields(
    driver: &str,
    fields: &BTreeMap<String, SchemaField>,
    hints: &Hints,
) -> BTreeMap<String, SchemaField> {
    let mut credentials = BTreeMap::new();
    let named = hints.public.iter().map(|name| (name, "string"));
    for (name, kind) in named.chain(hints.private.iter().map(|name| (name, "password"))) {
        let mut field = fields.get(name).cloned().unwrap_or_default();
        kind.clone_into(&mut field.kind);
        (field.create, field.update) = (true, true);
        field.required = !hints.optional.contains(name);
        if let Some((_, default)) = hints.defaults.iter().find(|(known, _)| known == name) {
            field.default.string_value.clone_from(default);
        }
        credentials.insert(name.clone(), field);
    }
    if facts(driver).default_region && !credentials.is_empty() {
        let description = "Region to choose from first".to_owned();
        let region = SchemaField {
            kind: "string".into(),
            create: true,
            update: true,
            description,
            ..Default::default()
        };
        credentials.insert("defaultRegion".to_owned(), region);
    }
    credentials
}

/// Name of the schema of a driver's configuration.
pub(crate) fn config_name(driver: &str) -> String {
    format!("{driver}config")
}

/// Name of the schema of a driver's credentials.
pub(crate) fn credential_name(driver: &str) -> String {
    format!("{driver}credentialconfig")
}

/// A schema of a driver.
pub(crate) fn schema(name: &str, driver: &str, fields: BTreeMap<String, SchemaField>) -> DynamicSchema {
    let mut schema = DynamicSchema::named(name);
    schema.metadata.labels = Some(BTreeMap::from([(label::NODE_DRIVER_NAME.to_owned(), driver.to_owned())]));
    schema.spec =
        DynamicSchemaSpec { schema_name: name.to_owned(), resource_fields: fields, ..Default::default() };
    schema
}

/// The schemas that list those of all drivers: name, the type they extend, and what fields of theirs end in.
pub(crate) const LISTS: &[(&str, &str, &str)] = &[
    (remuda_names::rancher::name::NODE_CONFIG, "node", "Config"),
    (remuda_names::rancher::name::NODE_TEMPLATE_CONFIG, "nodeTemplate", "Config"),
    (remuda_names::rancher::name::CREDENTIAL_CONFIG, "cloudCredential", "credentialConfig"),
];

/// The field of a list for a driver.
pub(crate) fn listed(driver: &str, suffix: &str) -> (String, SchemaField) {
    let kind = format!("{driver}{}", suffix.to_lowercase());
    let field = SchemaField { kind, create: true, update: true, nullable: true, ..SchemaField::default() };
    (format!("{driver}{suffix}"), field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo() -> Vec<Flag> {
        vec![
            Flag::string("demo-access-token", "DEMO_TOKEN", "", "API token"),
            Flag::int("demo-ssh-port", "", 22, "SSH port"),
            Flag::bool("demo-ipv6", "", "want IPv6"),
            Flag::list("demo-open-port", "", &["80"], "ports"),
            Flag::string("demo-ssh-key-path", "", "", "key file"),
            Flag::string("demo-cloud-config", "", "/etc/x", "cloud config"),
        ]
    }

    fn hints() -> Hints {
        Hints {
            private: vec!["accessToken".into()],
            public: vec!["tenant".into()],
            optional: vec!["tenant".into()],
            defaults: vec![("tenant".into(), "t1".into())],
            aliases: pairs("sshKeyContents:sshKeyPath,cloudConfig:cloud-config"),
            ..Hints::default()
        }
    }

    #[test]
    fn flags_become_fields() {
        let fields = config_fields(&demo(), &hints()).unwrap();
        let kinds: Vec<_> = fields.iter().map(|(name, field)| (name.as_str(), field.kind.as_str())).collect();
        assert_eq!(
            kinds,
            [
                ("accessToken", "password"),
                ("cloudConfig", "string"),
                ("ipv6", "boolean"),
                ("openPort", "array[string]"),
                ("sshKeyContents", "password"),
                ("sshPort", "string"),
            ]
        );
        assert_eq!(fields["sshPort"].default.string_value, "22");
        assert_eq!(fields["openPort"].default.string_slice_value, ["80"]);
        assert_eq!(fields["sshKeyContents"].description, "File contents for sshKeyPath");
        assert_eq!(fields["cloudConfig"].default.string_value, "");
    }

    #[test]
    fn credentials_are_required_unless_optional() {
        let fields = config_fields(&demo(), &hints()).unwrap();
        let credentials = credential_fields("demo", &fields, &hints());
        assert!(credentials["accessToken"].required && credentials["accessToken"].kind == "password");
        assert!(!credentials["tenant"].required);
        assert_eq!(credentials["tenant"].default.string_value, "t1");
        assert!(credential_fields("demo", &fields, &Hints::default()).is_empty());
    }

    #[test]
    fn names_that_make_no_kinds_are_refused() {
        for good in ["digitalocean", "amazonec2", "pod"] {
            check_name(good).unwrap();
        }
        for bad in ["", "Demo", "de mo", "de-mo", "2do", "custom", "../x", &"x".repeat(41)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hostile_flags_are_refused() {
        let one = |name: &str| config_fields(&[Flag::bool(name, "", "")], &Hints::default());
        assert_eq!(one("driver").unwrap_err(), Unfit::NoPrefix("driver".into()));
        assert!(one("demo-metadata").is_err());
        assert!(one("demo-a b").is_err());
        assert!(one(&format!("demo-{}", "x".repeat(1000))).is_err());
        assert!(config_fields(&vec![Flag::bool("a-b", "", ""); 501], &Hints::default()).is_err());
    }
}
