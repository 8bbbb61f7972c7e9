//! Backups the server makes of itself: when, where to, and how many are kept.

use std::{
    fmt, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use remuda_base::Chain;
use remuda_names::env;
use remuda_objects::cron::Schedule;
use remuda_s3::{Config as StoreConfig, Field, Lookup, S3Error, Store};
use serde::Deserialize;

use super::{ConfigError, Datastore, Options};
use crate::datadir::{self, DataDirError};

const SCHEDULE: &str = "backup-schedule";
const TO: &str = "backup-to";
const RETENTION: &str = "backup-retention";
const ENDPOINT: &str = "backup-s3-endpoint";
const REGION: &str = "backup-s3-region";
const CA: &str = "backup-s3-ca";
const LOOKUP: &str = "backup-s3-lookup";
const KEYS: &str = "backup-s3-keys";
const DEFAULT_RETENTION: usize = 7;

/// What the server is to do for its own backups.
#[derive(Debug, Clone)]
pub struct Backups {
    /// In UTC.
    pub schedule: Schedule,
    pub to: BackupPlace,
    pub retention: NonZeroUsize,
}

#[derive(Debug, Clone)]
pub enum BackupPlace {
    Directory(PathBuf),
    S3(Box<BackupStore>),
}

/// A folder of an S3 bucket.
#[derive(Debug, Clone)]
pub struct BackupStore {
    /// Without keys, if these are in a file.
    config: StoreConfig,
    keys: Option<PathBuf>,
}

/// The keys to it. Never shown, not even in debug output.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BackupKeys {
    access_key: String,
    secret_key: String,
    #[serde(default)]
    session_token: String,
}

impl fmt::Debug for BackupKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BackupKeys")
    }
}

impl BackupKeys {
    /// The keys the environment has, if it has both.
    pub(super) fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<BackupKeys> {
        let given = |name: &str| variable(name).filter(|text| !text.is_empty());
        Some(BackupKeys {
            access_key: given(env::BACKUP_S3_ACCESS_KEY)?,
            secret_key: given(env::BACKUP_S3_SECRET_KEY)?,
            session_token: given(env::BACKUP_S3_SESSION_TOKEN).unwrap_or_default(),
        })
    }

    fn read(path: &Path) -> Result<BackupKeys, ConfigError> {
        if let Err(DataDirError::OpenKey { path, mode }) = datadir::check_key(path) {
            return Err(ConfigError::Exposed { flag: KEYS, path, mode });
        }
        let unreadable = |source| ConfigError::Unreadable { flag: KEYS, path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(unreadable)?;
        // What the parser says may repeat what is written there.
        serde_saphyr::from_str(&text).map_err(|_| {
            ConfigError::invalid(KEYS, format!("{} needs access-key and secret-key, as YAML", path.display()))
        })
    }
}

impl BackupStore {
    /// The store, with the keys as they are now: those in a file may have been replaced.
    pub(crate) fn open(&self) -> Result<Store, ConfigError> {
        let mut config = self.config.clone();
        if let Some(path) = &self.keys {
            let keys = BackupKeys::read(path)?;
            (config.access_key, config.secret_key, config.session_token) =
                (keys.access_key, keys.secret_key, keys.session_token);
        }
        let config = config.with_authorities().map_err(|error| refused(&error))?;
        Store::new(config).map_err(|error| refused(&error))
    }
}

fn refused(error: &S3Error) -> ConfigError {
    let flag = match error.field() {
        Field::Endpoint => ENDPOINT,
        Field::EndpointCa => CA,
        Field::Region => REGION,
        Field::Credential => KEYS,
        Field::Lookup => LOOKUP,
        Field::Bucket | Field::Folder | Field::Timeout => TO,
    };
    ConfigError::invalid(flag, Chain(error).to_string())
}

/// What was asked for, unchecked.
pub(super) struct Asked {
    schedule: Option<String>,
    to: Option<String>,
    retention: Option<usize>,
    endpoint: Option<String>,
    region: Option<String>,
    ca: Option<PathBuf>,
    lookup: Option<String>,
    keys_file: Option<PathBuf>,
    keys: Option<BackupKeys>,
}

impl Asked {
    pub(super) fn of(options: &Options) -> Asked {
        Asked {
            schedule: options.backup_schedule.clone(),
            to: options.backup_to.clone(),
            retention: options.backup_retention,
            endpoint: options.backup_s3_endpoint.clone(),
            region: options.backup_s3_region.clone(),
            ca: options.backup_s3_ca.clone(),
            lookup: options.backup_s3_lookup.clone(),
            keys_file: options.backup_s3_keys.clone(),
            keys: options.backup_keys.clone(),
        }
    }

    pub(super) fn resolve(
        self,
        datastore: &Datastore,
        data_dir: &Path,
    ) -> Result<Option<Backups>, ConfigError> {
        let lonely = [
            (self.retention.is_some(), RETENTION),
            (self.endpoint.is_some(), ENDPOINT),
            (self.region.is_some(), REGION),
            (self.ca.is_some(), CA),
            (self.lookup.is_some(), LOOKUP),
            (self.keys_file.is_some(), KEYS),
        ];
        let mut lonely = lonely.into_iter().filter_map(|(given, flag)| given.then_some(flag));
        let (schedule, to) = match (&self.schedule, &self.to) {
            (Some(schedule), Some(to)) => (schedule, to),
            (Some(_), None) => return Err(ConfigError::together(SCHEDULE, TO)),
            (None, Some(_)) => return Err(ConfigError::together(TO, SCHEDULE)),
            (None, None) => {
                return lonely
                    .map(|flag| Err(ConfigError::together(flag, SCHEDULE)))
                    .next()
                    .unwrap_or(Ok(None));
            }
        };
        match datastore {
            Datastore::Embedded => {}
            Datastore::Memory => {
                return Err(ConfigError::invalid(SCHEDULE, "the memory datastore keeps nothing"));
            }
            Datastore::Etcd { .. } => {
                let reason = "etcd makes its own backups (etcdctl snapshot save)";
                return Err(ConfigError::invalid(SCHEDULE, reason));
            }
        }
        let parsed = Schedule::parse(schedule).map_err(|reason| ConfigError::invalid(SCHEDULE, reason))?;
        // Which eight years does not matter.
        if parsed.next(Timestamp::UNIX_EPOCH).is_none() {
            return Err(ConfigError::invalid(SCHEDULE, format!("{schedule:?} is never due")));
        }
        let retention = super::positive(RETENTION, self.retention, DEFAULT_RETENTION)?;
        let to = match to.strip_prefix("s3://") {
            Some(rest) => BackupPlace::S3(Box::new(self.store(rest)?)),
            None => {
                if let Some(flag) = lonely.rfind(|flag| *flag != RETENTION) {
                    return Err(ConfigError::invalid(flag, format!("--{TO} is a directory")));
                }
                BackupPlace::Directory(directory(to, data_dir)?)
            }
        };
        Ok(Some(Backups { schedule: parsed, to, retention }))
    }

    fn store(&self, rest: &str) -> Result<BackupStore, ConfigError> {
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        let lookup = Lookup::parse(self.lookup.as_deref().unwrap_or_default());
        let mut config = StoreConfig {
            endpoint: self.endpoint.clone().unwrap_or_default(),
            region: self.region.clone().unwrap_or_default(),
            bucket: bucket.to_owned(),
            folder: folder.to_owned(),
            lookup: lookup.map_err(|error| refused(&error))?,
            ..StoreConfig::default()
        };
        if let Some(path) = &self.ca {
            let unreadable = |source| ConfigError::Unreadable { flag: CA, path: path.clone(), source };
            config.endpoint_ca = fs::read_to_string(path).map_err(unreadable)?;
        }
        let keys = match (&self.keys_file, &self.keys) {
            (None, Some(keys)) => {
                config.access_key.clone_from(&keys.access_key);
                config.secret_key.clone_from(&keys.secret_key);
                config.session_token.clone_from(&keys.session_token);
                None
            }
            (file, _) => file.clone(),
        };
        let store = BackupStore { config, keys };
        store.open()?;
        Ok(store)
    }
}

fn directory(to: &str, data_dir: &Path) -> Result<PathBuf, ConfigError> {
    let path = Path::new(to);
    if !path.is_absolute() {
        return Err(ConfigError::invalid(
            TO,
            format!("{to:?} is neither an absolute path nor s3://BUCKET[/FOLDER]"),
        ));
    }
    // What takes the data directory would take its backups along.
    if path.starts_with(data_dir) {
        return Err(ConfigError::invalid(TO, format!("{to} is inside of the data directory")));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn options(schedule: &str, to: &str) -> Options {
        Options {
            data_dir: Some("/x".into()),
            backup_schedule: Some(schedule.to_owned()),
            backup_to: Some(to.to_owned()),
            ..Options::default()
        }
    }

    fn keys() -> Option<BackupKeys> {
        let variable = |name: &str| {
            Some(if name == env::BACKUP_S3_SESSION_TOKEN { String::new() } else { "canary".to_owned() })
        };
        BackupKeys::of_environment(variable)
    }

    #[test]
    fn a_schedule_needs_a_place_and_both_have_to_make_sense() {
        let s3 = |options: Options| Options { backup_keys: keys(), ..options };
        let daily = || options("0 3 * * *", "/backups");
        for (given, expected) in [
            (Options { backup_to: None, ..daily() }, "--backup-schedule needs --backup-to as well"),
            (Options { backup_schedule: None, ..daily() }, "--backup-to needs --backup-schedule as well"),
            (
                Options { backup_retention: Some(1), data_dir: Some("/x".into()), ..Options::default() },
                "--backup-retention needs --backup-schedule as well",
            ),
            (
                options("0 3 * *", "/b"),
                "invalid --backup-schedule: expected exactly 5 fields, found 4: [0 3 * *]",
            ),
            (options("0 0 30 2 *", "/b"), "invalid --backup-schedule: \"0 0 30 2 *\" is never due"),
            (
                options("@daily", "backups"),
                "invalid --backup-to: \"backups\" is neither an absolute path nor s3://BUCKET[/FOLDER]",
            ),
            (
                options("@daily", "/x/backups"),
                "invalid --backup-to: /x/backups is inside of the data directory",
            ),
            (
                Options { backup_retention: Some(0), ..daily() },
                "invalid --backup-retention: must be greater than zero",
            ),
            (
                Options { backup_s3_region: Some("eu".into()), ..daily() },
                "invalid --backup-s3-region: --backup-to is a directory",
            ),
            (
                Options { datastore: Some("memory".into()), ..daily() },
                "invalid --backup-schedule: the memory datastore keeps nothing",
            ),
            (
                Options { datastore: Some("etcd://a".into()), ..daily() },
                "invalid --backup-schedule: etcd makes its own backups (etcdctl snapshot save)",
            ),
            (
                options("@daily", "s3://backups"),
                "invalid --backup-s3-keys: there is no access key or no secret key for bucket \"backups\"",
            ),
            (
                s3(Options { backup_s3_lookup: Some("x".into()), ..options("@daily", "s3://backups") }),
                "invalid --backup-s3-lookup: bucket lookup type: \"x\" is not one of auto, dns and path",
            ),
            (
                s3(Options { backup_s3_endpoint: Some("a/b".into()), ..options("@daily", "s3://backups") }),
                "invalid --backup-s3-endpoint: endpoint: \"a/b\" is not a host, or a host and a port",
            ),
            (
                s3(options("@daily", "s3://backups/../x")),
                "invalid --backup-to: folder: \"../x\" is not a folder",
            ),
        ] {
            assert_eq!(given.resolve().unwrap_err().to_string(), expected);
        }
        let resolved = daily().resolve().unwrap().backups.unwrap();
        assert_eq!(resolved.retention.get(), 7);
        assert!(
            Options { data_dir: Some("/x".into()), ..Options::default() }
                .resolve()
                .unwrap()
                .backups
                .is_none()
        );
    }

    #[test]
    fn keys_are_read_again_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        let write = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        let given = || Options { backup_s3_keys: Some(file.clone()), ..options("@daily", "s3://backups/a") };
        write("access-key: canary\nsecret-key: canary\n", 0o640);
        let refused = given().resolve().unwrap_err().to_string();
        assert!(refused.ends_with("can be read by other users (mode 0640)"), "{refused}");
        write("access-key: canary\nsecret: canary\n", 0o600);
        let refused = given().resolve().unwrap_err().to_string();
        assert!(refused.ends_with("needs access-key and secret-key, as YAML"), "{refused}");
        write("access-key: canary\nsecret-key: canary\n", 0o600);
        let config = given().resolve().unwrap();
        assert!(!format!("{config:?} {:?}", keys()).contains("canary"));
        let BackupPlace::S3(store) = config.backups.unwrap().to else { panic!("it is a directory") };
        assert_eq!(store.open().unwrap().location("x"), "s3://backups/a/x");
        fs::remove_file(&file).unwrap();
        assert!(matches!(store.open(), Err(ConfigError::Unreadable { .. })));
    }
}
