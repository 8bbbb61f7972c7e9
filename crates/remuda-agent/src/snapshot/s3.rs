//! A snapshot in S3, read as it would be restored: by the node, with what its configuration says about the store.
//!
//! The keys are read from the configuration's file, so that no command line and no plan's output has them.

use std::{fs, path::Path};

use remuda_s3::{Config, S3Error, Store};
use remuda_snapshot::Report;
use serde_json::{Map, Value};

use super::open;
use crate::yaml;

/// No snapshot is larger: etcd itself takes less.
const LARGEST: u64 = 16 << 30;
/// The store did not give it.
const UNREACHABLE: &str = "Unreachable";
const MISSING: &str = "Missing";

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0} says nothing about S3")]
    NoStore(String),
    #[error("{0}: {1}")]
    Config(String, String),
    #[error(transparent)]
    S3(#[from] S3Error),
    #[error("{0}")]
    Other(String),
}

pub(super) fn read(config: &Path, path: &Path) -> Report {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // What is unfinished or a copy has a name that is none of a snapshot.
    let copy = path.with_file_name(format!(".{name}.check"));
    let report = match fetch(config, &name, &copy) {
        Ok(()) => Report::new(&name, open(&copy)),
        Err(error) => {
            let missing = matches!(&error, FetchError::S3(error) if error.is_missing());
            let code = if missing { MISSING } else { UNREACHABLE };
            let message = remuda_base::chain::one_line(&error);
            Report { file: name, code: code.to_owned(), message, ..Report::default() }
        }
    };
    let _ = fs::remove_file(&copy);
    report
}

fn fetch(config: &Path, name: &str, copy: &Path) -> Result<(), FetchError> {
    let place = config.display().to_string();
    let unreadable = |error: String| FetchError::Config(place.clone(), error);
    let text = fs::read(config).map_err(|error| unreadable(error.to_string()))?;
    let arguments: Map<String, Value> = yaml::decode(&text).map_err(unreadable)?;
    let argument = |name: &str| match arguments.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    if argument("etcd-s3").is_none_or(|yes| yes != "true") {
        return Err(FetchError::NoStore(place));
    }
    let config = Config::from_arguments(|name| argument(&format!("etcd-s3-{name}")))?;
    let store = Store::new(config.with_authorities()?)?;
    if let Some(directory) = copy.parent() {
        let made = fs::create_dir_all(directory);
        made.map_err(|source| S3Error::File { path: directory.to_owned(), source })?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| FetchError::Other(error.to_string()))?;
    runtime.block_on(store.get_file(name, copy, LARGEST))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use remuda_s3::fake::{ACCESS_KEY, FakeStore, SECRET_KEY};
    use remuda_snapshot::write::{self, Bucket};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_snapshot_in_a_store_is_read_with_the_keys_of_the_configuration() {
        let place = tempfile::tempdir().unwrap();
        let buckets = place.path().join("buckets");
        fs::create_dir_all(buckets.join("backups/demo")).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(FakeStore::start(Ipv4Addr::LOCALHOST.into(), &buckets)).unwrap();
        let items = vec![write::revision(7, b"/registry/pods/a/b", b"")];
        let mut file = write::seal(write::database(vec![Bucket { name: "key".to_owned(), items }]));
        fs::write(buckets.join("backups/demo/on-demand-a-1"), &file).unwrap();
        file[5000] ^= 1;
        fs::write(buckets.join("backups/demo/on-demand-a-2"), &file).unwrap();
        let (config, snapshots) = (place.path().join("50-rancher.yaml"), place.path().join("snapshots"));
        let configure = |secret: &str| {
            let text = json!({
                "etcd-s3": true, "etcd-s3-endpoint": fake.endpoint(), "etcd-s3-bucket": "backups",
                "etcd-s3-folder": "demo", "etcd-s3-access-key": ACCESS_KEY, "etcd-s3-secret-key": secret,
                "etcd-s3-endpoint-ca": fake.certificate(), "node-label": ["a=b"],
            });
            fs::write(&config, text.to_string()).unwrap();
        };
        configure(SECRET_KEY);
        let whole = read(&config, &snapshots.join("on-demand-a-1"));
        assert_eq!(whole.verified.unwrap().revision, 7, "{}", whole.message);
        assert_eq!(read(&config, &snapshots.join("on-demand-a-2")).code, "ChecksumMismatch");
        assert_eq!(read(&config, &snapshots.join("on-demand-a-3")).code, MISSING);
        configure("canary-wrong");
        let refused = read(&config, &snapshots.join("on-demand-a-1"));
        assert_eq!(refused.code, UNREACHABLE);
        assert!(refused.message.contains("does not accept the credential"), "{}", refused.message);
        assert!(!refused.message.contains("canary-wrong"));
        fs::write(&config, "node-name: a\n").unwrap();
        assert!(read(&config, &snapshots.join("on-demand-a-1")).message.contains("says nothing about S3"));
        assert_eq!(fs::read_dir(&snapshots).unwrap().count(), 0, "nothing is left behind");
    }
}
