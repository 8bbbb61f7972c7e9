//! Steps that cloud drivers have in common.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

use crate::{
    builtin::Context,
    error::{Class, Error, Result},
    flags::{Flag, Flags, Kind, Value},
};

/// The longest value of a flag that is no credential.
const LONGEST: usize = 4096;
/// Credentials may be whole files.
const LONGEST_SECRET: usize = 64 << 10;
/// The most items of a list.
const MOST: usize = 100;

/// What drivers do alike whose machine is a record, inside of `impl Driver`: where their flags are, and which fields of
/// the record are secrets. The rest is `take` for the values of flags, `make` and `clean`.
macro_rules! by_record {
    ($flags:path; $($secret:ident),+) => {
        fn name(&self) -> &str {
            NAME
        }

        fn flags(&self) -> Pending<'_, Vec<Flag>> {
            Box::pin(async { Ok($flags()) })
        }

        fn load(&self, config: Config) -> Pending<'_, ()> {
            Box::pin(async {
                let mut record = self.record.lock();
                *record = from_config(&*record, config)?;
                $(self.context.log.redactor().learn(record.$secret.expose());)+
                Ok(())
            })
        }

        fn config(&self) -> Pending<'_, Config> {
            Box::pin(async { Ok(to_config(&*self.record.lock())) })
        }

        fn configure(&self, values: Flags) -> Pending<'_, ()> {
            Box::pin(async move { self.take(&values) })
        }

        fn create(&self) -> Pending<'_, ()> {
            Box::pin(self.make())
        }

        fn remove(&self) -> Pending<'_, ()> {
            Box::pin(self.clean())
        }
    };
}
pub(crate) use by_record;

/// Flags of one driver, which all begin with its name.
pub(crate) struct Table {
    driver: &'static str,
    prefix: &'static str,
}

impl Table {
    /// `prefix` is what the variables begin with.
    pub(crate) fn new(driver: &'static str, prefix: &'static str) -> Self {
        Self { driver, prefix }
    }

    fn flag(&self, name: &str, make: impl FnOnce(&str, &str) -> Flag) -> Flag {
        let env = format!("{}_{}", self.prefix, name.replace('-', "_").to_uppercase());
        make(&format!("{}-{name}", self.driver), &env)
    }

    pub(crate) fn text(&self, name: &str, default: &str, usage: &str) -> Flag {
        self.flag(name, |name, env| Flag::string(name, env, default, usage))
    }

    pub(crate) fn yes(&self, name: &str, usage: &str) -> Flag {
        self.flag(name, |name, env| Flag::bool(name, env, usage))
    }

    pub(crate) fn number(&self, name: &str, default: i64, usage: &str) -> Flag {
        self.flag(name, |name, env| Flag::int(name, env, default, usage))
    }

    pub(crate) fn list(&self, name: &str, usage: &str) -> Flag {
        self.flag(name, |name, env| Flag::list(name, env, &[], usage))
    }
}

/// The values of one driver's flags, by the rest of their names.
pub(crate) struct Values<'a> {
    driver: &'static str,
    values: &'a Flags,
}

impl<'a> Values<'a> {
    /// Refuses what no provider takes: control characters and values without end.
    pub(crate) fn new(driver: &'static str, values: &'a Flags) -> Result<Self> {
        for (name, value) in values.iter() {
            let texts = match value {
                Value::String(text) => std::slice::from_ref(text),
                Value::List(items) => items,
                Value::Int(_) | Value::Bool(_) => continue,
            };
            let secret = crate::secret::names_a_secret(name);
            let longest = if secret { LONGEST_SECRET } else { LONGEST };
            if texts.len() > MOST || texts.iter().any(|text| text.len() > longest) {
                return Err(Error::other(format!("--{name} is longer than any provider takes")));
            }
            // Certificates have lines.
            let odd = |text: &String| {
                text.chars().any(|c| c.is_control() && !(c == '\n' && text.starts_with("-----")))
            };
            if !secret && texts.iter().any(odd) {
                return Err(Error::other(format!("--{name} has control characters")));
            }
        }
        Ok(Self { driver, values })
    }

    fn name(&self, flag: &str) -> String {
        format!("{}-{flag}", self.driver)
    }

    pub(crate) fn text(&self, flag: &str) -> String {
        self.values.str(&self.name(flag)).trim().to_owned()
    }

    pub(crate) fn secret(&self, flag: &str) -> crate::secret::Secret {
        crate::secret::Secret::new(self.text(flag))
    }

    pub(crate) fn yes(&self, flag: &str) -> bool {
        self.values.bool(&self.name(flag))
    }

    pub(crate) fn number(&self, flag: &str) -> i64 {
        self.values.int(&self.name(flag))
    }

    pub(crate) fn port(&self, flag: &str) -> Result<u16> {
        self.values.port(&self.name(flag))
    }

    pub(crate) fn list(&self, flag: &str) -> Vec<String> {
        let items = self.values.list(&self.name(flag)).iter().map(|item| item.trim().to_owned());
        items.filter(|item| !item.is_empty()).collect()
    }

    /// Refuses flags that are there because other drivers of that name have them, and do nothing here, unless they
    /// say what holds anyway.
    pub(crate) fn refuse(&self, flags: &[Flag], unsupported: &[&str]) -> Result<()> {
        for name in unsupported.iter().map(|name| self.name(name)) {
            let usual = flags.iter().find(|flag| flag.name == name).map(|flag| match &flag.kind {
                Kind::String(default) => Value::String(default.clone()),
                Kind::Int(default) => Value::Int(*default),
                Kind::Bool => Value::Bool(false),
                Kind::List(default) => Value::List(default.clone()),
            });
            if self.values.get(&name).is_some_and(|value| Some(value) != usual.as_ref()) {
                return Err(Error::other(format!(
                    "--{name} is not supported by the built-in driver {}: leave it out",
                    self.driver
                )));
            }
        }
        Ok(())
    }
}

/// An option that a driver cannot do without.
pub(crate) fn required(driver: &str, flag: &str) -> Error {
    Error::other(format!("{driver} driver requires the --{driver}-{flag} option"))
}

/// A credential that a driver cannot do without.
pub(crate) fn no_credential(driver: &str, flag: &str) -> Error {
    Error::new(Class::Credentials, required(driver, flag).to_string())
}

/// `key=value` pairs for labels and tags, with what providers allow in them.
pub(crate) fn label(flag: &str, text: &str) -> Result<(String, String)> {
    let fits = |part: &str, more: &[char]| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || more.contains(&letter);
        part.len() <= 63 && part.chars().all(plain)
    };
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || !fits(key, &['-', '_', '.', '/']) || !fits(value, &['-', '_', '.']) {
        return Err(Error::other(format!(
            "--{flag}: {text:?} is no key=value of letters, digits, -, _ and ., at most 63 each"
        )));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// The content of a user data file; none if none is named.
pub(crate) async fn user_data(flag: &str, path: &str) -> Result<Option<String>> {
    if path.is_empty() {
        return Ok(None);
    }
    let read = tokio::fs::read_to_string(path).await;
    read.map(Some).map_err(|error| Error::other(format!("read --{flag} file {path}: {error}")))
}

impl Context {
    /// After a creation that may have happened: waits until the provider would show it, so that one can look. Other
    /// errors are final.
    pub(crate) async fn look_again(&self, tries: &mut u32, error: Error) -> Result<()> {
        *tries += 1;
        if !matches!(error.class(), Class::Network | Class::Timeout) || *tries >= self.pace.attempts {
            return Err(error);
        }
        self.log.debug(format!("looking whether it happened after all: {error}"));
        tokio::time::sleep(self.pace.settle).await;
        Ok(())
    }

    /// Looks until there is an answer. `late` is what did not happen.
    pub(crate) async fn wait<T, F>(&self, late: &str, mut look: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<Option<T>>>,
    {
        let deadline = Instant::now() + self.pace.patience;
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                return Err(Error::timeout(late));
            }
            tokio::time::sleep(self.pace.poll.max(Duration::from_millis(1))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Vec<Flag> {
        let table = Table::new("demo", "DEMO");
        vec![table.text("zone-name", "a", ""), table.list("tag", ""), table.yes("old", "")]
    }

    #[test]
    fn flags_are_named_after_their_driver() {
        let all = flags();
        assert_eq!((all[0].name.as_str(), all[0].env.as_str()), ("demo-zone-name", "DEMO_ZONE_NAME"));
    }

    #[test]
    fn values_no_provider_takes_are_refused_by_name_only() {
        let check = |name: &str, text: &str| {
            let mut values = Flags::defaults(&flags());
            values.set(name, text);
            Values::new("demo", &values).err().map(|error| error.to_string())
        };
        assert_eq!(check("demo-zone-name", "b"), None);
        assert_eq!(check("demo-zone-name", "a\nb").unwrap(), "--demo-zone-name has control characters");
        assert!(check("demo-zone-name", &"x".repeat(5000)).unwrap().contains("longer than any provider"));
        assert_eq!(check("demo-token", "-----BEGIN\nKEY"), None);
    }

    #[test]
    fn what_has_no_effect_is_refused_unless_it_says_what_holds_anyway() {
        let mut values = Flags::defaults(&flags());
        let refused =
            |values: &Flags| Values::new("demo", values).unwrap().refuse(&flags(), &["old", "zone-name"]);
        refused(&values).unwrap();
        values.set("demo-old", true);
        let error = refused(&values).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--demo-old is not supported by the built-in driver demo: leave it out"
        );
    }

    #[test]
    fn labels_are_bounded() {
        assert_eq!(label("x", "a/b=c").unwrap(), ("a/b".into(), "c".into()));
        assert_eq!(label("x", "alone").unwrap(), ("alone".into(), String::new()));
        for bad in ["", "=x", "a=b c", "a=/", "a b=c"] {
            assert!(label("x", bad).is_err(), "{bad}");
        }
        assert!(label("x", &format!("a={}", "x".repeat(64))).is_err());
    }
}
