//! Snapshots in an S3 store: the files of the servers, put there when they are whole.
//!
//! ```text
//! s3://<bucket>/<folder>/<file>               the snapshot
//!                        .metadata/<file>     what the cluster was when it was taken; written first
//! ```

use std::{collections::BTreeMap, path::Path};

use remuda_s3::{S3Error, Store};
use serde_json::{Value, json};

use super::Listed;
use crate::config::S3Args;

const METADATA: &str = ".metadata/";
/// No snapshot is larger: etcd itself takes less.
const LARGEST: u64 = 16 << 30;
/// Files of one moment: servers begin together, and are done one after the other.
const MOMENT: i64 = 60;

/// The store a command or a schedule is about.
pub struct S3Snapshots {
    args: S3Args,
}

impl S3Snapshots {
    pub fn new(args: S3Args) -> S3Snapshots {
        S3Snapshots { args }
    }

    /// Files with authorities may have changed: they are read anew.
    pub(super) fn open(&self) -> Result<Store, S3Error> {
        Store::new(self.args.config.clone().with_authorities()?)
    }

    pub(super) fn retention(&self) -> usize {
        self.args.retention
    }

    /// Where the store is, as the catalogue says it.
    pub(super) fn place(&self) -> Value {
        let config = &self.args.config;
        let mut place = json!({
            "endpoint": config.endpoint, "bucket": config.bucket, "region": config.region,
            "prefix": config.folder, "bucketLookup": config.lookup,
        });
        for (key, value) in [("skipSSLVerify", config.skip_verify), ("insecure", config.insecure)] {
            if value {
                place[key] = json!(true);
            }
        }
        place
    }

    /// A file in the store, whether it is there or not.
    pub(super) fn at(&self, name: &str, size: u64, created: i64) -> Listed {
        let folder: String = self
            .args
            .config
            .folder
            .split('/')
            .filter(|part| !part.is_empty())
            .fold(String::new(), |folder, part| format!("{folder}{part}/"));
        let location = format!("s3://{}/{folder}{name}", self.args.config.bucket);
        Listed { name: name.to_owned(), location, size, created }
    }

    /// Puts a file there that is whole.
    pub(super) async fn upload(
        &self,
        name: &str,
        path: &Path,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), S3Error> {
        let store = self.open()?;
        if !metadata.is_empty() {
            let text = serde_json::to_vec(metadata).expect("a map of text");
            store.put(&format!("{METADATA}{name}"), &text).await?;
        }
        store.put_file(name, path).await?;
        Ok(())
    }

    /// Takes a file from there. It is whole, or it is not there.
    pub(crate) async fn download(&self, name: &str, path: &Path) -> Result<(), S3Error> {
        let unfinished = path.with_file_name(format!(".{name}.part"));
        self.open()?.get_file(name, &unfinished, LARGEST).await?;
        let renamed = std::fs::rename(&unfinished, path);
        renamed.map_err(|source| S3Error::File { path: path.to_owned(), source })
    }

    /// The snapshots in the store, oldest first.
    pub(super) async fn list(&self) -> Result<Vec<Listed>, S3Error> {
        let objects = self.open()?.list("").await?;
        let files =
            objects.into_iter().filter(|object| !object.name.contains('/') && !object.name.starts_with('.'));
        let mut listed: Vec<Listed> = files
            .map(|object| {
                let named = super::moment_of(&object.name);
                let created = named.or(object.modified.map(jiff::Timestamp::as_second)).unwrap_or_default();
                self.at(&object.name, object.size, created)
            })
            .collect();
        listed.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
        Ok(listed)
    }

    /// What was kept about a snapshot. It is only told: what cannot be read is left out.
    pub(super) async fn metadata(&self, name: &str) -> BTreeMap<String, String> {
        let Ok(store) = self.open() else { return BTreeMap::new() };
        let text = store.get(&format!("{METADATA}{name}")).await;
        text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), S3Error> {
        let store = self.open()?;
        store.delete(name).await?;
        store.delete(&format!("{METADATA}{name}")).await
    }
}

/// Names of those of the schedule beyond the newest `retention` moments. Files of all servers of one moment count as
/// one, those of servers that are gone as well.
pub(super) fn surplus(listed: &[Listed], prefix: &str, retention: usize) -> Vec<String> {
    let prefix = format!("{prefix}-");
    let mut moments: Vec<(i64, Vec<&str>)> = Vec::new();
    for one in listed.iter().filter(|one| one.name.starts_with(&prefix)) {
        match moments.last_mut() {
            Some((began, names)) if one.created - *began < MOMENT => names.push(&one.name),
            _ => moments.push((one.created, vec![&one.name])),
        }
    }
    let too_many = moments.len().saturating_sub(retention);
    moments[..too_many].iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_moment_are_kept_or_pruned_together() {
        let listed =
            |name: &str, created| Listed { name: name.to_owned(), location: String::new(), size: 1, created };
        let all = [
            listed("etcd-snapshot-a-1000", 1000),
            listed("etcd-snapshot-b-1003", 1003),
            listed("on-demand-a-1500", 1500),
            listed("etcd-snapshot-a-2000", 2000),
            listed("etcd-snapshot-gone-2001", 2001),
            listed("etcd-snapshot-a-3000", 3000),
        ];
        assert_eq!(surplus(&all, "etcd-snapshot", 2), ["etcd-snapshot-a-1000", "etcd-snapshot-b-1003"]);
        assert_eq!(surplus(&all, "etcd-snapshot", 1).len(), 4);
        assert!(surplus(&all, "etcd-snapshot", 3).is_empty());
    }
}
