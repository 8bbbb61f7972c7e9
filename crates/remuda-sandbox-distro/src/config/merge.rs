//! Config files, merged as K3s merges them.
//!
//! Files are read in order; a later value replaces an earlier one, and a key with a `+` at its end
//! adds to what is there.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::ConfigError;

/// Settings by name, each with its values in order. Every value is text, as on a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(pub BTreeMap<String, Vec<String>>);

impl Values {
    /// Takes a file's values on top of these.
    pub fn merge(&mut self, path: &str, text: &str) -> Result<(), ConfigError> {
        let invalid = |reason: String| ConfigError::Invalid { path: path.to_owned(), reason };
        if text.trim().is_empty() {
            return Ok(());
        }
        let document: Value =
            serde_saphyr::from_str(text).map_err(|error| invalid(error.without_snippet().to_string()))?;
        let entries = match document {
            Value::Object(entries) => entries,
            Value::Null => return Ok(()),
            _ => return Err(invalid("it is not a mapping of settings".to_owned())),
        };
        for (key, value) in entries {
            let values = flatten(&value);
            match key.strip_suffix('+') {
                Some(key) => self.0.entry(key.to_owned()).or_default().extend(values),
                None => drop(self.0.insert(key, values)),
            }
        }
        Ok(())
    }

    /// The last value, as a flag given several times has it.
    pub fn last(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.last().map(String::as_str)
    }

    pub fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }
}

fn flatten(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::Null => Vec::new(),
        other => vec![text(other)],
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The main file, if it is there, then those of its `.d` directory by name.
pub fn files(main: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let mut found = Vec::new();
    if main.exists() {
        found.push(main.to_owned());
    }
    let mut directory = main.as_os_str().to_owned();
    directory.push(".d");
    let read = |source| ConfigError::Read { path: PathBuf::from(&directory), source };
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(read(error)),
    };
    let mut more = Vec::new();
    for entry in entries {
        let path = entry.map_err(read)?.path();
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        if (extension == "yaml" || extension == "yml") && !path.is_dir() {
            more.push(path);
        }
    }
    more.sort();
    found.append(&mut more);
    Ok(found)
}

/// Reads and merges all files.
pub fn read(main: &Path) -> Result<Values, ConfigError> {
    let mut values = Values::default();
    for path in files(main)? {
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        values.merge(&path.display().to_string(), &text)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Files one after the other; the result as `key=value,value` lines.
    #[track_caller]
    fn check(files: &[&str], expected: &str) {
        let mut values = Values::default();
        for file in files {
            values.merge("test", file).unwrap();
        }
        let shown: Vec<String> =
            values.0.iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn a_later_file_replaces_a_value() {
        check(&["token: a\nnode-label: [x=1, y=2]", "node-label: [z=3]"], "node-label=z=3 token=a");
    }

    #[test]
    fn a_plus_adds_to_what_is_there() {
        check(&["node-label: [x=1]", "node-label+: [y=2]", "node-label+: z=3"], "node-label=x=1,y=2,z=3");
        check(&["node-label+: [x=1]"], "node-label=x=1");
    }

    #[test]
    fn values_of_all_kinds_become_text() {
        check(
            &[
                "{\"cluster-init\": true, \"etcd-snapshot-retention\": 5, \"token\": \"t\", \"disable\": null}",
            ],
            "cluster-init=true disable= etcd-snapshot-retention=5 token=t",
        );
    }

    #[test]
    fn an_empty_file_says_nothing_and_a_list_is_refused() {
        check(&["", "# only a comment\n"], "");
        assert!(Values::default().merge("test", "- a\n- b").is_err());
    }

    #[test]
    fn files_come_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("config.yaml");
        let drop_ins = dir.path().join("config.yaml.d");
        std::fs::create_dir(&drop_ins).unwrap();
        for (path, text) in [
            (main.clone(), "token: main"),
            (drop_ins.join("50-rancher.yaml"), "{\"token\": \"rancher\"}"),
            (drop_ins.join("90-own.yml"), "node-name: own"),
            (drop_ins.join("99-ignored.txt"), "token: ignored"),
        ] {
            std::fs::write(path, text).unwrap();
        }
        let values = read(&main).unwrap();
        assert_eq!((values.last("token"), values.last("node-name")), (Some("rancher"), Some("own")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,200}") {
            let _ = Values::default().merge("test", &text);
        }
    }
}
