//! Configuration and connection info files.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use remuda_names::agent::path;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    disk::{Context, DiskError, read_limited},
    yaml,
};

const FILE_LIMIT: u64 = 4 << 20;

/// What the agent does and where it keeps things.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// Where instructions work; emptied at every apply unless `preserve_work_directory`.
    pub work_directory: PathBuf,
    /// Keep what instructions leave behind.
    pub preserve_work_directory: bool,
    /// History of applied plans; empty is off.
    pub applied_plan_directory: PathBuf,
    /// Watch the plan Secret.
    pub remote_enabled: bool,
    /// Needed for remote plans.
    pub connection_info_file: PathBuf,
    /// Watch plan files.
    pub local_enabled: bool,
    /// Directory of `*.plan` files.
    pub local_plan_directory: PathBuf,
    /// Where agent and installer keep out of each other's way; empty is off.
    pub interlock_directory: PathBuf,
    /// Local image tarballs.
    pub images_directory: PathBuf,
    /// Registry settings.
    pub agent_registries_file: PathBuf,
    /// Record of executions; empty means `journal` beside the work directory. Ours: other agents ignore it.
    pub journal_directory: PathBuf,
    /// Run the plan at every start, as agents without a journal do. Ours.
    pub force_apply_on_start: bool,
    /// Report an instruction that was cut off by a crash of the machine as failed instead of running
    /// it again. Ours.
    pub fail_interrupted: bool,
}

const CONFIG_KEYS: &[&str] = &[
    "workDirectory",
    "preserveWorkDirectory",
    "appliedPlanDirectory",
    "remoteEnabled",
    "connectionInfoFile",
    "localEnabled",
    "localPlanDirectory",
    "interlockDirectory",
    "imagesDirectory",
    "agentRegistriesFile",
    "journalDirectory",
    "forceApplyOnStart",
    "failInterrupted",
];

/// How to reach the plan Secret.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConnectionInfo {
    /// A kubeconfig, YAML.
    pub kube_config: String,
    /// Where the Secret lives.
    pub namespace: String,
    /// Its name.
    pub secret_name: String,
}

impl std::fmt::Debug for ConnectionInfo {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The kubeconfig holds a token.
        write!(formatter, "ConnectionInfo({}/{})", self.namespace, self.secret_name)
    }
}

/// Why a file of the agent is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Others could read or change it.
    #[error("file {} has mode {mode:04o} and owner {owner}, expected mode 0600 and owner {expected}", path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its uid:gid.
        owner: String,
        /// Ours.
        expected: String,
    },
    /// Its name tells no format.
    #[error("file {} is neither a .json nor a .yaml file", .0.display())]
    Format(PathBuf),
    /// Its content is no such format.
    #[error("decode {}: {reason}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Something is missing in it.
    #[error("{}: {what}", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What has to be set.
        what: &'static str,
    },
}

impl Config {
    /// Reads and checks a configuration file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let value = load(path, CONFIG_KEYS)?;
        let config: Self = decode(path, value)?;
        config.check(path)?;
        Ok(config)
    }

    /// Checks that there is something to do and everything for it.
    pub fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let incomplete = |what| Err(ConfigError::Incomplete { path: path.to_owned(), what });
        if !self.local_enabled && !self.remote_enabled {
            return incomplete("neither remoteEnabled nor localEnabled is set");
        }
        if self.remote_enabled && self.connection_info_file.as_os_str().is_empty() {
            return incomplete("remoteEnabled needs connectionInfoFile");
        }
        if self.local_enabled && self.local_plan_directory.as_os_str().is_empty() {
            return incomplete("localEnabled needs localPlanDirectory");
        }
        if self.work_directory.as_os_str().is_empty() {
            return incomplete("workDirectory is not set");
        }
        Ok(())
    }

    /// Where executions are recorded.
    pub fn journal(&self) -> PathBuf {
        if !self.journal_directory.as_os_str().is_empty() {
            return self.journal_directory.clone();
        }
        self.work_directory.parent().unwrap_or(Path::new("/")).join("journal")
    }

    /// Where local image tarballs are.
    pub fn images(&self) -> PathBuf {
        if self.images_directory.as_os_str().is_empty() {
            PathBuf::from(path::IMAGES)
        } else {
            self.images_directory.clone()
        }
    }

    /// The registry settings that exist, the most specific first.
    pub fn registries(&self) -> Option<PathBuf> {
        let own =
            (!self.agent_registries_file.as_os_str().is_empty()).then(|| self.agent_registries_file.clone());
        let skip = usize::from(own.is_some());
        let rest = path::REGISTRIES.iter().skip(skip).map(PathBuf::from);
        own.into_iter().chain(rest).find(|path| path.exists())
    }
}

impl ConnectionInfo {
    /// Reads and checks a connection info file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let value = load(path, &["kubeConfig", "namespace", "secretName"])?;
        let info: Self = decode(path, value)?;
        info.check(path)?;
        Ok(info)
    }

    /// Checks that nothing is missing.
    pub fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let fields = [
            (&self.kube_config, "kubeConfig is not set"),
            (&self.namespace, "namespace is not set"),
            (&self.secret_name, "secretName is not set"),
        ];
        match fields.into_iter().find(|(value, _)| value.is_empty()) {
            Some((_, what)) => Err(ConfigError::Incomplete { path: path.to_owned(), what }),
            None => Ok(()),
        }
    }
}

fn load(path: &Path, keys: &[&str]) -> Result<Value, ConfigError> {
    let metadata = fs::metadata(path).on("read", path)?;
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let mode = metadata.mode() & 0o7777;
    if mode != 0o600 || metadata.uid() != uid || metadata.gid() != gid {
        return Err(ConfigError::Access {
            path: path.to_owned(),
            mode,
            owner: format!("{}:{}", metadata.uid(), metadata.gid()),
            expected: format!("{uid}:{gid}"),
        });
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let raw = read_limited(path, FILE_LIMIT)?;
    let undecodable = |reason: String| ConfigError::Decode { path: path.to_owned(), reason };
    let mut value = if name.contains(".json") {
        // Only the first value counts; what follows it is left alone.
        let mut values = serde_json::Deserializer::from_slice(&raw).into_iter::<Value>();
        values.next().unwrap_or(Ok(Value::Null)).map_err(|error| undecodable(error.to_string()))?
    } else if name.contains(".yaml") {
        yaml::decode(&raw).map_err(undecodable)?
    } else {
        return Err(ConfigError::Format(path.to_owned()));
    };
    fold_keys(&mut value, keys);
    // Unset keys may be written as null.
    if let Some(object) = value.as_object_mut() {
        object.retain(|_, value| !value.is_null());
    }
    Ok(value)
}

fn decode<T: for<'de> Deserialize<'de>>(path: &Path, value: Value) -> Result<T, ConfigError> {
    let value = if value.is_null() { Value::Object(serde_json::Map::new()) } else { value };
    let undecodable = |reason: String| ConfigError::Decode { path: path.to_owned(), reason };
    if !value.is_object() {
        return Err(undecodable("expected an object".into()));
    }
    serde_json::from_value(value).map_err(|error| undecodable(error.to_string()))
}

/// Renames keys that differ from a known one only by case. An exact key wins over a folded one.
fn fold_keys(value: &mut Value, known: &[&str]) {
    let Some(object) = value.as_object_mut() else { return };
    let renames: Vec<(String, &str)> = object
        .keys()
        .filter_map(|key| {
            let name = known.iter().find(|name| name.eq_ignore_ascii_case(key))?;
            (*name != key).then(|| (key.clone(), *name))
        })
        .collect();
    for (from, to) in renames {
        if let Some(moved) = object.remove(&from)
            && !object.contains_key(to)
        {
            object.insert(to.to_owned(), moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(name: &str, mode: u32, text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    const INSTALLED: &str = "workDirectory: /var/lib/rancher/agent/work
appliedPlanDirectory: /var/lib/rancher/agent/applied
remoteEnabled: true
localEnabled: false
localPlanDirectory: /var/lib/rancher/agent/plans
interlockDirectory: /var/lib/rancher/agent/interlock
preserveWorkDirectory: false
connectionInfoFile: /var/lib/rancher/agent/rancher2_connection_info.json
";

    #[test]
    fn the_file_the_installer_writes_is_read() {
        let (_dir, path) = file("config.yaml", 0o600, INSTALLED);
        let config = Config::load(&path).unwrap();
        assert!(config.remote_enabled && !config.local_enabled);
        assert_eq!(config.journal(), Path::new("/var/lib/rancher/agent/journal"));
        assert_eq!(config.images(), Path::new(path::IMAGES));
    }

    #[test]
    fn case_nulls_and_unknown_keys_do_not_matter() {
        let text = r#"{"LOCALENABLED":true,"localplandirectory":"/p","workDirectory":"/w","foo":1,"imagesDirectory":null} trailing"#;
        let (_dir, path) = file("config.json", 0o600, text);
        let config = Config::load(&path).unwrap();
        assert_eq!(config.local_plan_directory, Path::new("/p"));
    }

    #[test]
    fn what_others_can_read_is_refused() {
        let (_dir, path) = file("config.yaml", 0o644, INSTALLED);
        let error = Config::load(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0644"), "{error}");
    }

    #[test]
    fn incomplete_and_broken_files_say_what_is_wrong() {
        for (name, text, expected) in [
            ("config.yaml", "workDirectory: /w", "neither remoteEnabled nor localEnabled"),
            ("config.yaml", "remoteEnabled: true", "needs connectionInfoFile"),
            ("config.yaml", "localEnabled: true", "needs localPlanDirectory"),
            ("config.yaml", "- a", "expected an object"),
            ("config.yaml", "", "neither"),
            ("config.json", "{", "decode"),
            ("config.yml", "a: b", "neither a .json nor a .yaml"),
        ] {
            let (_dir, path) = file(name, 0o600, text);
            let error = Config::load(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let (_dir, path) = file("c.json", 0o600, r#"{"kubeConfig":"x","namespace":"n","secretName":""}"#);
        assert!(ConnectionInfo::load(&path).unwrap_err().to_string().contains("secretName"));
    }
}
