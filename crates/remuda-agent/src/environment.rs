//! The process environment, read once.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

/// Environment variables as they were at the start.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// That of this process.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// A variable as text; absent, empty and non-UTF-8 are all nothing.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(OsStr::new(name)).and_then(|value| value.to_str()).filter(|value| !value.is_empty())
    }

    /// A variable in upper or lower case, as proxy settings are written.
    pub fn either_case(&self, name: &str) -> Option<&str> {
        self.get(name).or_else(|| self.get(&name.to_ascii_lowercase()))
    }

    /// Whether a variable says `true`, in any case.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// All variables.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
