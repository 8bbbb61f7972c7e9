//! Objects that come with the server.

use std::{future::Future, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request, StatusCode, header};
use kube::Client;
use remuda_api::crd;
use remuda_control::Chain;
use remuda_names::{PROGRAM, annotation};
use remuda_schema::default_crd;
use serde_json::{Value, json};
use tracing::{info, warn};

/// Several servers that start on one store do the same at the same time.
const TRIES: usize = 5;
/// What another server has written is served here as soon as it is heard of.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// Between attempts to install what could not be installed.
const PAUSE: Duration = Duration::from_secs(10);
/// Definitions that are looked at and installed at one time.
const AT_ONCE: usize = 4;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("install {name}")]
    Request { name: String, source: kube::Error },
    #[error("install {name}: somebody else writes it all the time")]
    Contended { name: String },
    #[error("{name} is not served")]
    NotServed { name: String },
}

/// Creates and updates CRDs, and waits until they are served.
///
/// What is here already is judged by its annotation [`SHIPPED`](annotation::SHIPPED):
///
/// - with our number or a lower one it is ours. It is applied with force as it is shipped, if it
///   differs; labels, annotations and whatever else others added stay;
/// - with a higher number a newer server put it there, before somebody went back or while servers
///   on one etcd are replaced one by one. It is left as it is: an older schema would drop fields;
/// - without it, or with a conversion webhook, somebody else's manifest was put over ours
///   (`clusterctl init --core` does so), or somebody took it over on purpose. It is left as it is, and
///   stays theirs until they delete it. Versions are converted in the process all the same.
///
/// Versions in which objects may be stored are never taken away.
pub(crate) async fn definitions(
    client: &Client,
    definitions: impl Iterator<Item = Value>,
) -> Result<(), InstallError> {
    let install = |mut definition: Value| async move {
        default_crd(&mut definition);
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        ensure(client, DEFINITIONS, definition).await?;
        served(client, &name).await
    };
    stream::iter(definitions).map(install).buffered(AT_ONCE).try_collect().await
}

/// Tries again until it is done. What keeps us from installing may be something in the API itself,
/// such as a webhook that does not answer; people need the API to remove it.
pub(crate) async fn again<F>(what: &'static str, install: impl Fn() -> F)
where
    F: Future<Output = Result<(), InstallError>>,
{
    loop {
        tokio::time::sleep(PAUSE).await;
        match install().await {
            Ok(()) => return info!("the definitions of {what} are installed"),
            Err(error) => warn!(error = %Chain(&error), "the definitions of {what} are not installed"),
        }
    }
}

/// What is to be done about an object that is there.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// As it should be.
    Same,
    Outdated,
    Newer,
    NotOurs,
    Going,
    /// It names versions in which objects may be stored and that we do not know.
    Stored(Vec<String>),
}

/// Brings an object below `collection` into the shipped form, or leaves it to whom it belongs.
pub(crate) async fn ensure(
    client: &Client,
    collection: &str,
    mut shipped: Value,
) -> Result<(), InstallError> {
    shipped["metadata"]["annotations"][annotation::SHIPPED] = crd::REVISION.to_string().into();
    let name = shipped["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let path = format!("{collection}/{name}");
    for _ in 0..TRIES {
        match step(client, &path, &shipped).await {
            Ok(()) => return Ok(()),
            // Whoever was faster may have done all of it; looking again tells.
            Err(error) if is_code(&error, StatusCode::CONFLICT) || is_code(&error, StatusCode::NOT_FOUND) => {
            }
            Err(source) => return Err(InstallError::Request { name, source }),
        }
    }
    Err(InstallError::Contended { name })
}

async fn step(client: &Client, path: &str, shipped: &Value) -> Result<(), kube::Error> {
    let name = &shipped["metadata"]["name"];
    let live = get(client, path).await?;
    let verdict = match &live {
        Some(live) => judge(live, shipped),
        None => Verdict::Outdated,
    };
    match verdict {
        Verdict::Same => return Ok(()),
        Verdict::Outdated => {}
        Verdict::Newer => {
            info!(%name, "installed by a newer server, left as it is");
            return Ok(());
        }
        Verdict::NotOurs => {
            info!(%name, "installed by somebody else, left as it is");
            return Ok(());
        }
        Verdict::Going => {
            warn!(%name, "is being deleted; it is installed again at the next start");
            return Ok(());
        }
        Verdict::Stored(versions) => {
            warn!(%name, ?versions, "objects may be stored in versions we do not know; left as it is");
            return Ok(());
        }
    }
    // An uid makes sure that what was deleted in between is judged again.
    let mut applied = shipped.clone();
    if let Some(live) = &live {
        applied["metadata"]["uid"] = live["metadata"]["uid"].clone();
    }
    let uri = format!("{path}?fieldManager={PROGRAM}&force=true");
    let request = request(Method::PATCH, &uri, "application/apply-patch+yaml", applied.to_string());
    client.request::<Value>(request).await?;
    let done = if live.is_some() { "updated" } else { "installed" };
    info!(%name, "{done}");
    Ok(())
}

fn judge(live: &Value, shipped: &Value) -> Verdict {
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Verdict::Going;
    }
    match live["metadata"]["annotations"][annotation::SHIPPED].as_str().map(str::parse::<u32>) {
        Some(Ok(revision)) if revision > crd::REVISION => return Verdict::Newer,
        Some(Ok(_)) => {}
        // A mark that cannot be read was not made by us.
        Some(Err(_)) | None => return Verdict::NotOurs,
    }
    // None of ours is converted by a webhook: somebody else's manifest was merged into it.
    if live["spec"]["conversion"]["strategy"] == "Webhook" {
        return Verdict::NotOurs;
    }
    let known = |version: &&Value| {
        let versions = shipped["spec"]["versions"].as_array().into_iter().flatten();
        versions.map(|known| &known["name"]).any(|known| known == *version)
    };
    let stored = live["status"]["storedVersions"].as_array().into_iter().flatten();
    let unknown: Vec<String> =
        stored.filter(|version| !known(version)).filter_map(Value::as_str).map(str::to_owned).collect();
    if !unknown.is_empty() {
        return Verdict::Stored(unknown);
    }
    let content = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        let fields = fields.filter(|(key, _)| *key != "metadata" && *key != "status");
        fields.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let has = |key: &str| {
        let entries = shipped["metadata"][key].as_object().into_iter().flatten();
        entries.into_iter().all(|(name, value)| live["metadata"][key][name] == *value)
    };
    if has("labels") && has("annotations") && content(live) == content(shipped) {
        Verdict::Same
    } else {
        Verdict::Outdated
    }
}

/// Waits until the objects of a CRD can be listed. A definition that is somebody else's may be
/// without our version: that is theirs to know.
async fn served(client: &Client, crd: &str) -> Result<(), InstallError> {
    let error = |source| InstallError::Request { name: crd.to_owned(), source };
    let look = async {
        loop {
            let definition = get(client, &format!("{DEFINITIONS}/{crd}")).await.map_err(error)?;
            let Some(definition) = definition else { return Ok(()) };
            let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
            let version = versions.into_iter().find(|version| version["storage"] == true);
            let (Some(version), Some((plural, group))) =
                (version.and_then(|version| version["name"].as_str()), crd.split_once('.'))
            else {
                return Ok(());
            };
            let established = definition["status"]["conditions"].as_array().into_iter().flatten();
            let established = established
                .into_iter()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
            let path = format!("/apis/{group}/{version}/{plural}?limit=1");
            if !established || get(client, &path).await.map_err(error)?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(SERVED_WITHIN, look)
        .await
        .unwrap_or_else(|_| Err(InstallError::NotServed { name: crd.to_owned() }))
}

pub(crate) async fn get(client: &Client, path: &str) -> Result<Option<Value>, kube::Error> {
    match client.request(request(Method::GET, path, "application/json", String::new())).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_code(&error, StatusCode::NOT_FOUND) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn request(method: Method, uri: &str, kind: &str, body: String) -> Request<Vec<u8>> {
    Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, kind)
        .body(body.into_bytes())
        .expect("paths and types are made of names that are safe in both")
}

pub(crate) fn is_code(error: &kube::Error, code: StatusCode) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code.as_u16())
}

/// A namespace, which is nobody's once it is there.
pub(crate) async fn namespace(client: &Client, name: &str) -> Result<(), InstallError> {
    let error = |source| InstallError::Request { name: name.to_owned(), source };
    if get(client, &format!("/api/v1/namespaces/{name}")).await.map_err(error)?.is_some() {
        return Ok(());
    }
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let request = request(Method::POST, "/api/v1/namespaces", "application/json", body.to_string());
    match client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(already) if is_code(&already, StatusCode::CONFLICT) => Ok(()),
        Err(source) => Err(error(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> Value {
        json!({
            "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {annotation::SHIPPED: crd::REVISION.to_string()}},
            "spec": {"versions": [{"name": "v1"}, {"name": "v2"}]},
        })
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expected: &Verdict) {
        let mut live = shipped();
        live["status"]["storedVersions"] = json!(["v1", "v2"]);
        change(&mut live);
        assert_eq!(judge(&live, &shipped()), *expected);
    }

    #[test]
    fn what_others_add_is_no_difference() {
        check(|live| live["metadata"]["labels"]["theirs"] = "x".into(), &Verdict::Same);
    }

    #[test]
    fn what_others_change_is() {
        check(|live| live["metadata"]["labels"]["a"] = "x".into(), &Verdict::Outdated);
        check(|live| live["spec"]["versions"][0]["served"] = false.into(), &Verdict::Outdated);
        check(|live| live["metadata"]["annotations"][annotation::SHIPPED] = "0".into(), &Verdict::Outdated);
    }

    #[test]
    fn what_is_newer_or_not_ours_stays() {
        let newer = (crd::REVISION + 1).to_string();
        check(|live| live["metadata"]["annotations"][annotation::SHIPPED] = newer.into(), &Verdict::Newer);
        check(|live| live["metadata"]["annotations"] = json!({}), &Verdict::NotOurs);
        check(|live| live["spec"]["conversion"]["strategy"] = "Webhook".into(), &Verdict::NotOurs);
        check(|live| live["metadata"]["annotations"][annotation::SHIPPED] = "x".into(), &Verdict::NotOurs);
        check(|live| live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(), &Verdict::Going);
    }

    #[test]
    fn versions_that_may_be_stored_are_not_taken_away() {
        let theirs = |live: &mut Value| live["status"]["storedVersions"] = json!(["v1", "v3"]);
        check(theirs, &Verdict::Stored(vec!["v3".to_owned()]));
    }
}
