//! What jobs of a machine wrote, in a ConfigMap that stays when the machine is gone.
//!
//! Its keys are `create` and `remove`. It holds no credential: jobs scrub what they write, and what the Job's
//! environment names as one is scrubbed here once more.

use std::{
    io::{Read, Seek, SeekFrom},
    path::Path,
    time::Duration,
};

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use remuda_control::Ctx;
use remuda_drivers::secret::{Redactor, names_a_secret};
use remuda_names::{machines, rancher::label};
use serde_json::json;

use super::{Runner, files::LOG, process::Ending};
use crate::{error::Error, job::JobResult, naming};

/// How much is kept of each log, from its end.
const KEPT: u64 = 200 << 10;
/// How many machines' logs are kept in a namespace, the newest.
const MACHINES: usize = 500;
/// How often a log that grows is written.
const EVERY: Duration = Duration::from_secs(3);

/// Keeps the log up to date until the process ends.
pub(super) async fn keep_until(
    runner: &Runner,
    job: &Job,
    directory: &Path,
    mut ending: Ending,
) -> Option<JobResult> {
    let redactor = secrets(runner, job).await;
    let mut written = 0;
    loop {
        tokio::select! {
            result = ending.wait() => {
                let result = result?;
                keep(runner, job, directory, &redactor, &mut written).await;
                if job.labels().get(label::INFRA_REMOVE).is_some_and(|removes| removes == "true") {
                    sweep(runner, job).await;
                }
                return Some(JobResult { message: redactor.scrub(&result.message).into_owned(), ..result });
            }
            () = tokio::time::sleep(EVERY) => keep(runner, job, directory, &redactor, &mut written).await,
        }
    }
}

async fn secrets(runner: &Runner, job: &Job) -> Redactor {
    let redactor = Redactor::default();
    let api: Api<Secret> = Api::namespaced(runner.ctx.client.clone(), &job.namespace().unwrap_or_default());
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let sources =
        pod.and_then(|pod| pod.containers.first()).and_then(|container| container.env_from.as_deref());
    for reference in sources.unwrap_or_default().iter().filter_map(|source| source.secret_ref.as_ref()) {
        let Ok(secret) = api.get(&reference.name).await else { continue };
        for (name, value) in secret.data.into_iter().flatten() {
            if names_a_secret(&name) {
                redactor.learn(&String::from_utf8_lossy(&value.0));
            }
        }
    }
    redactor
}

async fn keep(runner: &Runner, job: &Job, directory: &Path, redactor: &Redactor, written: &mut u64) {
    let Some((length, text)) = tail(&directory.join(LOG)) else { return };
    if length == *written {
        return;
    }
    if let Err(error) = write(&runner.ctx, job, &redactor.scrub(&text)).await {
        tracing::warn!(job = job.name_any(), error = %remuda_control::Chain(&error), "log cannot be kept");
        return;
    }
    *written = length;
}

fn tail(path: &Path) -> Option<(u64, String)> {
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(KEPT))).ok()?;
    let mut bytes = Vec::new();
    file.take(KEPT).read_to_end(&mut bytes).ok()?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if length > KEPT {
        let cut = text.find('\n').map_or(0, |end| end + 1);
        text.replace_range(..cut, "…\n");
    }
    Some((length, text))
}

pub(crate) async fn write(ctx: &Ctx, job: &Job, text: &str) -> Result<(), Error> {
    let labels = job.labels();
    let Some(machine) = labels.get(label::INFRA_MACHINE_NAME) else { return Ok(()) };
    let removes = labels.get(label::INFRA_REMOVE).is_some_and(|removes| removes == "true");
    let key = if removes { "remove" } else { "create" };
    let copied =
        [label::INFRA_MACHINE_KIND, label::INFRA_MACHINE_NAME, label::CAPI_MACHINE_NAME, label::CLUSTER_NAME];
    let mut marks = serde_json::Map::from_iter([(machines::label::LOG.to_owned(), "true".into())]);
    marks
        .extend(copied.into_iter().filter_map(|key| Some((key.to_owned(), labels.get(key)?.clone().into()))));
    let name = naming::log(machine);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": marks},
        "data": {(key): text},
    });
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &job.namespace().unwrap_or_default());
    // Each key has an owner of its own, or applying one would take the other away.
    let params = PatchParams::apply(&format!("{}-{key}", ctx.field_manager)).force();
    api.patch(&name, &params, &Patch::Apply(map)).await.map(drop).map_err(Error::api("write log", &name))
}

/// Logs are not kept without end: the oldest go.
async fn sweep(runner: &Runner, job: &Job) {
    let api: Api<ConfigMap> =
        Api::namespaced(runner.ctx.client.clone(), &job.namespace().unwrap_or_default());
    let selector = format!("{}=true", machines::label::LOG);
    let Ok(list) = api.list_metadata(&ListParams::default().labels(&selector)).await else { return };
    let mut maps: Vec<_> =
        list.items.into_iter().map(|map| (map.metadata.creation_timestamp.clone(), map.name_any())).collect();
    maps.sort();
    let surplus = maps.len().saturating_sub(MACHINES);
    for (_, name) in maps.into_iter().take(surplus) {
        let _ = api.delete(&name, &DeleteParams::default()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(tail(&path).unwrap().1, "short\n");
        let long = "0123456789abcdef\n".repeat(20_000);
        std::fs::write(&path, &long).unwrap();
        let (length, text) = tail(&path).unwrap();
        assert_eq!(length, long.len() as u64);
        assert!(text.len() as u64 <= KEPT + 4 && text.starts_with("…\n0123") && text.ends_with("def\n"));
    }
}
