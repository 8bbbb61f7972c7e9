//! The settings a driver has and the values a machine is created with.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    secret::{Redactor, Secret, names_a_secret},
};

/// One setting of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flag {
    /// With the driver's name in front: `digitalocean-access-token`.
    pub name: String,
    pub usage: String,
    /// The environment variable that also sets it; may be empty.
    pub env: String,
    pub kind: Kind,
}

/// A flag's type and default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    String(String),
    Int(i64),
    Bool,
    List(Vec<String>),
}

impl Flag {
    fn new(name: &str, env: &str, usage: &str, kind: Kind) -> Self {
        Self { name: name.into(), usage: usage.into(), env: env.into(), kind }
    }

    pub fn string(name: &str, env: &str, default: &str, usage: &str) -> Self {
        Self::new(name, env, usage, Kind::String(default.into()))
    }

    pub fn int(name: &str, env: &str, default: i64, usage: &str) -> Self {
        Self::new(name, env, usage, Kind::Int(default))
    }

    pub fn bool(name: &str, env: &str, usage: &str) -> Self {
        Self::new(name, env, usage, Kind::Bool)
    }

    pub fn list(name: &str, env: &str, default: &[&str], usage: &str) -> Self {
        let default = default.iter().map(|item| (*item).to_owned()).collect();
        Self::new(name, env, usage, Kind::List(default))
    }

    /// Whether the value is a credential, by its name.
    pub fn is_secret(&self) -> bool {
        names_a_secret(&self.name)
    }

    /// Whether the value is a file the provider hands to the machine at its first boot.
    pub fn is_user_data(&self) -> bool {
        ["user-data", "userdata", "custom-data", "cloud-config"].iter().any(|part| self.name.contains(part))
    }

    fn default_value(&self) -> Value {
        match &self.kind {
            Kind::String(default) => Value::String(default.clone()),
            Kind::Int(default) => Value::Int(*default),
            Kind::Bool => Value::Bool(false),
            Kind::List(default) => Value::List(default.clone()),
        }
    }

    /// Reads a value given as text, as in environments and in the kinds made from flags.
    pub fn parse(&self, text: &str) -> Result<Value> {
        Ok(match &self.kind {
            Kind::String(_) => Value::String(text.into()),
            Kind::Int(_) => match text.trim().parse() {
                Ok(number) => Value::Int(number),
                Err(_) => return Err(Error::other(format!("--{} must be a whole number", self.name))),
            },
            Kind::Bool => match text.trim() {
                "true" | "1" | "t" | "T" | "TRUE" | "True" => Value::Bool(true),
                "false" | "0" | "f" | "F" | "FALSE" | "False" | "" => Value::Bool(false),
                _ => return Err(Error::other(format!("--{} must be true or false", self.name))),
            },
            Kind::List(_) => Value::List(
                text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect(),
            ),
        })
    }
}

/// The value of a flag.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    String(String),
    Int(i64),
    Bool(bool),
    List(Vec<String>),
}

/// Values by flag name. Debug shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Flags(BTreeMap<String, Value>);

impl Flags {
    /// Every flag at its default, with what docker-machine adds for all drivers.
    pub fn defaults(flags: &[Flag]) -> Self {
        let mut values: BTreeMap<_, _> =
            flags.iter().map(|flag| (flag.name.clone(), flag.default_value())).collect();
        values.insert("swarm-master".into(), Value::Bool(false));
        values.insert("swarm-host".into(), Value::String("tcp://0.0.0.0:3376".into()));
        values.insert("swarm-discovery".into(), Value::String(String::new()));
        Self(values)
    }

    /// Takes values from the variables that flags name; empty variables count as unset.
    pub fn apply_env<'a>(&mut self, flags: &[Flag], env: impl Fn(&str) -> Option<&'a str>) -> Result<()> {
        for flag in flags.iter().filter(|flag| !flag.env.is_empty()) {
            if let Some(text) = env(&flag.env).filter(|text| !text.is_empty()) {
                self.0.insert(flag.name.clone(), flag.parse(text)?);
            }
        }
        Ok(())
    }

    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// A missing flag is a zero value, as drivers expect.
    pub fn str(&self, name: &str) -> &str {
        match self.0.get(name) {
            Some(Value::String(value)) => value,
            _ => "",
        }
    }

    pub fn secret(&self, name: &str) -> Secret {
        Secret::new(self.str(name))
    }

    pub fn int(&self, name: &str) -> i64 {
        match self.0.get(name) {
            Some(Value::Int(value)) => *value,
            _ => 0,
        }
    }

    pub fn bool(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Value::Bool(true)))
    }

    pub fn list(&self, name: &str) -> &[String] {
        match self.0.get(name) {
            Some(Value::List(value)) => value,
            _ => &[],
        }
    }

    /// A port, refusing what is none.
    pub fn port(&self, name: &str) -> Result<u16> {
        let number = self.int(name);
        u16::try_from(number)
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| Error::other(format!("--{name} must be a port, not {number}")))
    }

    /// Tells the redactor every credential among the values.
    pub fn teach(&self, redactor: &Redactor) {
        for (name, value) in &self.0 {
            if let Value::String(text) = value
                && names_a_secret(name)
            {
                redactor.learn(text);
            }
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::String(_) => "string",
            Self::Int(_) => "int",
            Self::Bool(_) => "bool",
            Self::List(_) => "[]string",
        })
    }
}

impl FromIterator<(String, Value)> for Flags {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Vec<String>> for Value {
    fn from(value: Vec<String>) -> Self {
        Self::List(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo() -> Vec<Flag> {
        vec![
            Flag::string("demo-token", "DEMO_TOKEN", "", "API token"),
            Flag::int("demo-ssh-port", "DEMO_SSH_PORT", 22, "SSH port"),
            Flag::bool("demo-ipv6", "", "want IPv6"),
            Flag::list("demo-tag", "DEMO_TAG", &["a"], "tags"),
        ]
    }

    #[test]
    fn defaults_then_environment_then_settings() {
        let mut values = Flags::defaults(&demo());
        let env = BTreeMap::from([("DEMO_TOKEN", "canary"), ("DEMO_SSH_PORT", "2222"), ("DEMO_TAG", "x, y")]);
        values.apply_env(&demo(), |name| env.get(name).copied()).unwrap();
        values.set("demo-ipv6", true);
        assert_eq!(values.str("demo-token"), "canary");
        assert_eq!(values.port("demo-ssh-port").unwrap(), 2222);
        assert_eq!(values.list("demo-tag"), ["x", "y"]);
        assert!(values.bool("demo-ipv6"));
        assert_eq!(values.str("swarm-host"), "tcp://0.0.0.0:3376");
        assert!(!format!("{values:?}").contains("canary"));
    }

    #[test]
    fn a_wrong_value_names_the_flag_not_the_value() {
        let mut values = Flags::defaults(&demo());
        let error = values.apply_env(&demo(), |_| Some("canary")).unwrap_err();
        assert_eq!(error.to_string(), "--demo-ssh-port must be a whole number");
        values.set("demo-ssh-port", 70_000);
        assert!(values.port("demo-ssh-port").is_err());
    }
}
