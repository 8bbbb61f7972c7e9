//! What happened while a cluster was made, line by line, for people who come later.
//!
//! Reads   management Clusters and the provisioning Clusters of theirs.
//! Writes  the ConfigMap of the log in the namespace of each management Cluster.
//! Never   writes the same line twice in a row.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use remuda_api::{management::Cluster, provisioning};
use remuda_control::{Action, Controller, Ctx, Informer, ObjectKey, Scope, drive, write::get_or_create};
use remuda_names::rancher::{condition, name};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{self, BY_MANAGEMENT},
    condition::{get, text},
    error::{Error, is_code},
};

/// Longest log, in bytes.
const LONGEST: usize = 10_000;
const LOG: &str = "log";
const LAST: &str = "last";
const DONE: &str = "provisioning done";
/// A namespace may be made a moment later.
const AGAIN: Duration = Duration::from_secs(2);

struct Logs {
    ctx: Arc<Ctx>,
    clusters: Informer<provisioning::Cluster>,
    logs: Informer<ConfigMap>,
}

pub(crate) async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let clusters: Informer<provisioning::Cluster> = ctx.informers.of(Scope::all());
    cluster::index(&clusters);
    let logs =
        ctx.informers.of(Scope::all().with_fields(format!("metadata.name={}", name::PROVISIONING_LOG)));
    let controller = Controller::<Cluster>::new("provisioning-log", &ctx)
        .watches(&clusters, |cluster: &provisioning::Cluster| {
            let name = cluster.status.as_ref().map(|status| status.cluster_name.as_str()).unwrap_or_default();
            if name.is_empty() { Vec::new() } else { vec![ObjectKey::cluster_wide(name)] }
        })
        .watches(&logs, |log: &ConfigMap| vec![ObjectKey::cluster_wide(log.namespace().unwrap_or_default())]);
    let this = Arc::new(Logs { ctx, clusters, logs });
    drive(controller, reconcile, this, stop).await;
}

async fn reconcile(cluster: Arc<Cluster>, this: Arc<Logs>) -> Result<Action, Error> {
    let id = cluster.name_any();
    if !is_made_here(&id) || cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let provisioned = this.clusters.by_index(BY_MANAGEMENT, &id).first().cloned();
    let line = current(&cluster, provisioned.as_deref());
    let logs: Api<ConfigMap> = Api::namespaced(this.ctx.client.clone(), &id);
    let known = match this.logs.get(&ObjectKey::namespaced(&id, name::PROVISIONING_LOG)) {
        Some(known) => ConfigMap::clone(&known),
        None => {
            let metadata = ObjectMeta {
                name: Some(name::PROVISIONING_LOG.to_owned()),
                namespace: Some(id.clone()),
                ..ObjectMeta::default()
            };
            let empty = ConfigMap { metadata, ..ConfigMap::default() };
            match get_or_create(&this.ctx, &logs, &empty).await {
                Ok(made) => made,
                Err(remuda_control::Error::Api { source, .. }) if is_code(&source, 404) => {
                    return Ok(Action::RequeueAfter(AGAIN));
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    let none = BTreeMap::new();
    let data = known.data.as_ref().unwrap_or(&none);
    let Some((message, failed)) = line.filter(|(message, _)| data.get(LAST) != Some(message)) else {
        return Ok(Action::AwaitChange);
    };
    let log = append(data.get(LOG).map_or("", String::as_str), &message, failed, this.ctx.clock.now());
    let patch = json!({
        "metadata": {"resourceVersion": known.metadata.resource_version},
        "data": {LOG: log, LAST: message},
    });
    let params =
        PatchParams { field_manager: Some(this.ctx.field_manager.to_string()), ..PatchParams::default() };
    let written = logs.patch(name::PROVISIONING_LOG, &params, &Patch::Merge(patch)).await;
    written.map(|_| Action::AwaitChange).map_err(Error::api("write", format!("provisioning log of {id}")))
}

/// `c-m-` and eight characters.
fn is_made_here(id: &str) -> bool {
    let id = id.strip_prefix("c-m-").unwrap_or_default();
    id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// What is to be said now, and whether it is a failure.
fn current(cluster: &Cluster, provisioned: Option<&provisioning::Cluster>) -> Option<(String, bool)> {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    for kind in [condition::PROVISIONED, condition::UPDATED] {
        let told = get(conditions, kind)?;
        if !told.message.is_empty() {
            return Some((told.message.clone(), told.status == "False"));
        }
        if told.status != "True" {
            return None;
        }
    }
    let ready = provisioned.and_then(|cluster| cluster.status.as_ref()).is_some_and(|status| status.ready);
    ready.then(|| (DONE.to_owned(), false))
}

/// The log with one more line, and with as many lines less at its beginning as it takes.
fn append(log: &str, message: &str, failed: bool, now: Timestamp) -> String {
    let level = if failed { "[ERROR]" } else { "[INFO ]" };
    let mut all = format!("{log}{} {level} {message}\n", text(now));
    while all.len() > LONGEST {
        match all.find('\n') {
            Some(end) if end + 1 < all.len() => drop(all.drain(..=end)),
            // One line that is too long by itself.
            _ => {
                all.truncate(all.floor_char_boundary(LONGEST));
                break;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_loses_whole_lines() {
        let mut log = String::new();
        for round in 0..300 {
            log = append(
                &log,
                &format!("line {round} {}", "x".repeat(50)),
                round % 2 == 0,
                Timestamp::UNIX_EPOCH,
            );
            assert!(log.len() <= LONGEST);
            assert!(log.starts_with("1970-01-01T00:00:00Z ["));
        }
        assert!(log.ends_with(&format!("[INFO ] line 299 {}\n", "x".repeat(50))));
        assert!(append("", &"ä".repeat(LONGEST), false, Timestamp::UNIX_EPOCH).len() <= LONGEST);
    }

    #[test]
    fn the_end_is_told_when_all_is_done() {
        let cluster = |conditions| -> Cluster {
            serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap()
        };
        let ready: provisioning::Cluster =
            serde_json::from_value(json!({"status": {"ready": true}})).unwrap();
        let waiting = cluster(json!([{"type": "Provisioned", "status": "Unknown", "message": "waiting"}]));
        assert_eq!(current(&waiting, Some(&ready)), Some(("waiting".into(), false)));
        let updating = cluster(json!([
            {"type": "Provisioned", "status": "True"}, {"type": "Updated", "status": "False", "message": "bad"}]));
        assert_eq!(current(&updating, Some(&ready)), Some(("bad".into(), true)));
        let done = cluster(
            json!([{"type": "Provisioned", "status": "True"}, {"type": "Updated", "status": "True"}]),
        );
        assert_eq!(current(&done, Some(&ready)), Some((DONE.into(), false)));
        assert_eq!(current(&done, None), None);
    }
}
