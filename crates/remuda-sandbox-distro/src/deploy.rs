//! Manifests: what is in files below `server/manifests` is in the API, and follows the files.
//!
//! What came from a file is remembered in a ConfigMap, so that an object that leaves the file leaves
//! the API. A file that is deleted leaves its objects, as with K3s; an empty one takes them away.

mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
    discovery::{self, Scope},
};
use remuda_base::Backoff;
use remuda_control::Chain;
use remuda_names::node as names;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{config::Settings, files, token};

const MANAGER: &str = "deploy@remuda-node";
const NAMESPACE: &str = "kube-system";
/// A file is written in several steps; the last one counts.
const SETTLE: Duration = Duration::from_millis(100);
/// Kinds may come with other files, and the API may be away.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(3), Duration::from_secs(60));
const SIZE_LIMIT: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
enum DeployError {
    #[error("{0}")]
    Manifest(String),
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error("the kind {0} is not served")]
    Kind(String),
    #[error("read")]
    Read(#[source] std::io::Error),
}

/// An object a file brought.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Brought {
    api_version: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
}

impl std::fmt::Display for Brought {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Follows the directory until told to stop.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken) {
    let root = settings.paths.manifests();
    if let Err(error) = files::private_dir(&root) {
        return warn!(error = %Chain(&error), "manifests are not applied");
    }
    let mut watcher = watch::Watcher::new(&root);
    let mut applied: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut row = BACKOFF.begin();
    loop {
        watcher.follow(&root);
        let failed = pass(&client, &settings, &root, &mut applied).await;
        let wait = async {
            if !failed {
                row.reset();
                return watcher.changed().await;
            }
            let again = tokio::time::sleep(row.delay());
            tokio::select! {
                () = watcher.changed() => row.reset(),
                () = again => {}
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = wait => {}
        }
        tokio::time::sleep(SETTLE).await;
        watcher.drain();
    }
}

/// Applies every file that changed. Returns whether some could not be.
async fn pass(
    client: &Client,
    settings: &Settings,
    root: &Path,
    applied: &mut BTreeMap<PathBuf, String>,
) -> bool {
    let mut failed = false;
    for path in manifests(root) {
        let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
        let stem = relative.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let skipped = PathBuf::from(format!("{}.skip", path.display())).exists();
        if skipped || settings.disable.contains(&stem) {
            continue;
        }
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) => {
                warn!(file = %path.display(), error = %Chain(&error), "manifest cannot be read");
                failed = true;
                continue;
            }
        };
        let hash = token::ca_hash(&text);
        if applied.get(&relative) == Some(&hash) {
            continue;
        }
        match deploy(client, settings, &relative, &text, &hash).await {
            Ok(()) => {
                applied.insert(relative, hash);
            }
            Err(error) => {
                warn!(file = %path.display(), error = %Chain(&error), "manifest is not applied");
                failed = true;
            }
        }
    }
    failed
}

fn read(path: &Path) -> Result<String, DeployError> {
    let meta = std::fs::metadata(path).map_err(DeployError::Read)?;
    if meta.len() > SIZE_LIMIT {
        return Err(DeployError::Manifest("the file is too large".to_owned()));
    }
    std::fs::read_to_string(path).map_err(DeployError::Read)
}

/// Files with manifests, by name.
fn manifests(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = pending.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if hidden {
                continue;
            }
            if path.is_dir() {
                if depth < watch::DEPTH {
                    pending.push((path, depth + 1));
                }
            } else if matches!(
                path.extension().and_then(|extension| extension.to_str()),
                Some("yaml" | "yml" | "json")
            ) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The documents of a file, lists taken apart.
fn documents(text: &str) -> Result<Vec<Value>, DeployError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| DeployError::Manifest(error.without_snippet().to_string()))?;
    let mut objects = Vec::new();
    for document in documents {
        match &document {
            Value::Null => {}
            Value::Object(fields) if fields.is_empty() => {}
            Value::Object(fields) if fields.get("kind").and_then(Value::as_str) == Some("List") => {
                objects.extend(document["items"].as_array().cloned().unwrap_or_default());
            }
            Value::Object(_) => objects.push(document),
            _ => return Err(DeployError::Manifest("a document is not an object".to_owned())),
        }
    }
    Ok(objects)
}

fn brought(object: &Value) -> Result<Brought, DeployError> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let missing = |field: &str| DeployError::Manifest(format!("an object has no {field}"));
    Ok(Brought {
        api_version: text(&object["apiVersion"]).ok_or_else(|| missing("apiVersion"))?,
        kind: text(&object["kind"]).ok_or_else(|| missing("kind"))?,
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]).ok_or_else(|| missing("metadata.name"))?,
    })
}

async fn deploy(
    client: &Client,
    settings: &Settings,
    file: &Path,
    text: &str,
    hash: &str,
) -> Result<(), DeployError> {
    let objects = documents(text)?;
    let named = objects.iter().map(brought).collect::<Result<Vec<_>, _>>()?;
    let record = Record::of(client, file);
    let before = record.read().await?;
    // Another server may have applied the same file, or we before a restart.
    if before.as_ref().is_some_and(|(known, _)| known == hash) {
        return Ok(());
    }
    // Everything that may come to be is on record before the first of it does.
    let old: BTreeSet<Brought> = before.map(|(_, objects)| objects).unwrap_or_default();
    let new: BTreeSet<Brought> = named.iter().cloned().collect();
    record.write("", &old.union(&new).cloned().collect(), file).await?;
    for (object, brought) in objects.iter().zip(&named) {
        let api = api(client, brought).await?;
        let params = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&brought.name, &params, &Patch::Apply(object)).await;
        applied.map_err(|source| DeployError::Api { verb: "apply", what: brought.to_string(), source })?;
    }
    for gone in old.difference(&new) {
        remove(client, gone).await?;
    }
    record.write(hash, &new, file).await?;
    info!(file = %file.display(), objects = new.len(), node = settings.node_name, "manifest applied");
    Ok(())
}

async fn remove(client: &Client, gone: &Brought) -> Result<(), DeployError> {
    let api = match api(client, gone).await {
        Ok(api) => api,
        // With the kind its objects are gone.
        Err(DeployError::Kind(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    match api.delete(&gone.name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(DeployError::Api { verb: "delete", what: gone.to_string(), source }),
    }
}

async fn api(client: &Client, object: &Brought) -> Result<Api<DynamicObject>, DeployError> {
    let (group, version) = object.api_version.split_once('/').unwrap_or(("", &object.api_version));
    let kind = GroupVersionKind::gvk(group, version, &object.kind);
    let (resource, capabilities): (ApiResource, _) = match discovery::pinned_kind(client, &kind).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code != 404 => {
            let what = object.kind.clone();
            return Err(DeployError::Api { verb: "look up", what, source: kube::Error::Api(status) });
        }
        Err(error @ (kube::Error::Service(_) | kube::Error::HyperError(_))) => {
            return Err(DeployError::Api { verb: "look up", what: object.kind.clone(), source: error });
        }
        Err(_) => return Err(DeployError::Kind(format!("{} {}", object.api_version, object.kind))),
    };
    Ok(match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    })
}

/// What is remembered about a file.
struct Record {
    api: Api<ConfigMap>,
    name: String,
}

impl Record {
    fn of(client: &Client, file: &Path) -> Record {
        let digits: String = token::ca_hash(&file.display().to_string()).chars().take(16).collect();
        Record { api: Api::namespaced(client.clone(), NAMESPACE), name: format!("sandbox-addon-{digits}") }
    }

    async fn read(&self) -> Result<Option<(String, BTreeSet<Brought>)>, DeployError> {
        let found = self.api.get_opt(&self.name).await;
        let found =
            found.map_err(|source| DeployError::Api { verb: "read", what: self.name.clone(), source })?;
        let data = found.and_then(|map| map.data);
        Ok(data.map(|data| {
            let objects =
                data.get("objects").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            (data.get("checksum").cloned().unwrap_or_default(), objects)
        }))
    }

    async fn write(&self, hash: &str, objects: &BTreeSet<Brought>, file: &Path) -> Result<(), DeployError> {
        let objects = serde_json::to_string(objects).unwrap_or_default();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": {names::ADDON: "true"}},
            "data": {"file": file.display().to_string(), "checksum": hash, "objects": objects},
        });
        let params = PatchParams::apply(MANAGER).force();
        let written = self.api.patch(&self.name, &params, &Patch::Apply(&map)).await;
        written.map(drop).map_err(|source| DeployError::Api {
            verb: "write",
            what: self.name.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_many_documents_or_none() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: a}}\n";
        let objects = documents(text).unwrap();
        let names: Vec<String> = objects.iter().map(|object| brought(object).unwrap().to_string()).collect();
        assert_eq!(names, ["Namespace a", "Secret s"]);
        assert!(documents("").unwrap().is_empty());
        assert!(documents("# only\n").unwrap().is_empty());
        assert!(documents("- a").is_err());
        assert!(brought(&json!({"kind": "X"})).is_err());
    }
}
