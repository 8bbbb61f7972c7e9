//! What admission does to pods: an account and its token, a priority, patience with failing nodes.

use std::time::Duration;

use rand::RngExt;
use remuda_objects::meta;
use remuda_store::{Change, Scope};
use serde_json::{Value, json};

use crate::{
    call::Call,
    read::store_error,
    server::Inner,
    status::{ApiError, ApiResult},
};

/// The account every namespace gets. It comes a moment after its namespace.
const DEFAULT_ACCOUNT: &str = "default";
const ACCOUNT_WAIT: Duration = Duration::from_millis(1500);
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
/// A little over an hour: kubelets renew at 80 percent.
const TOKEN_SECONDS: i64 = 3607;
/// Marks the mirror of a pod a kubelet runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Inner {
    /// Completes a new pod, or refuses it.
    pub(crate) async fn admit_pod(&self, call: &Call, pod: &mut Value) -> ApiResult<()> {
        if !pod["spec"].is_object() {
            return Ok(());
        }
        self.set_limits(call, pod).await?;
        self.set_runtime(call, pod).await?;
        self.set_priority(call, pod).await?;
        if meta::annotation(pod, MIRROR).is_some() {
            return Ok(());
        }
        remuda_objects::defaults::admit_pod(pod);
        self.set_account(call, pod).await
    }

    async fn set_account(&self, call: &Call, pod: &mut Value) -> ApiResult<()> {
        let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or(DEFAULT_ACCOUNT).to_owned();
        let namespace = call.namespace().unwrap_or_default();
        let Some(account) = self.account(namespace, &name).await? else {
            let detail = format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
            );
            return Err(ApiError::forbidden(call.named_as(meta::name(pod)), &detail));
        };
        let spec = &mut pod["spec"];
        if spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
            && account["imagePullSecrets"].as_array().is_some_and(|secrets| !secrets.is_empty())
        {
            spec["imagePullSecrets"] = account["imagePullSecrets"].clone();
        }
        let automount = &spec["automountServiceAccountToken"];
        let automount =
            automount.as_bool().or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true);
        if automount {
            mount_token(spec);
        }
        Ok(())
    }

    /// A service account; the default one is waited for.
    async fn account(&self, namespace: &str, name: &str) -> ApiResult<Option<Value>> {
        let key = format!("/core/serviceaccounts/{namespace}/{name}");
        let found = self.store.get(&key).await.map_err(store_error)?;
        if let Some(record) = found.value {
            return crate::convert::parse(&record).map(Some);
        }
        if name != DEFAULT_ACCOUNT {
            return Ok(None);
        }
        let Ok(mut events) = self.store.watch(Scope::Key(key), found.revision) else { return Ok(None) };
        let arrival = async {
            loop {
                let events = events.next().await.ok()?;
                if let Some(event) = events.iter().rev().find(|event| event.change != Change::Deleted) {
                    return Some(event.record.clone());
                }
            }
        };
        match tokio::time::timeout(ACCOUNT_WAIT, arrival).await {
            Ok(Some(record)) => crate::convert::parse(&record).map(Some),
            _ => Ok(None),
        }
    }

    async fn set_priority(&self, call: &Call, pod: &mut Value) -> ApiResult<()> {
        let refuse =
            |pod: &Value, detail: &str| Err(ApiError::forbidden(call.named_as(meta::name(pod)), detail));
        let class = match pod["spec"]["priorityClassName"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => {
                let key = format!("/scheduling.k8s.io/priorityclasses/{name}");
                match self.store.get(&key).await.map_err(store_error)?.value {
                    Some(record) => Some(crate::convert::parse(&record)?),
                    None => return refuse(pod, &format!("no PriorityClass with name {name} was found")),
                }
            }
            None => self.default_priority().await?,
        };
        let value = class.as_ref().and_then(|class| class["value"].as_i64()).unwrap_or(0);
        let policy = class.as_ref().and_then(|class| class["preemptionPolicy"].as_str());
        let policy = policy.unwrap_or("PreemptLowerPriority").to_owned();
        if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != value) {
            let detail = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            );
            return refuse(pod, &detail);
        }
        if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
            let detail = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return refuse(pod, &detail);
        }
        if let Some(class) = &class {
            pod["spec"]["priorityClassName"] = meta::name(class).into();
        }
        pod["spec"]["priority"] = value.into();
        pod["spec"]["preemptionPolicy"] = policy.into();
        Ok(())
    }

    /// The class of pods that name none; of several, the lowest.
    async fn default_priority(&self) -> ApiResult<Option<Value>> {
        let prefix = "/scheduling.k8s.io/priorityclasses/".to_owned();
        let query = remuda_store::ListQuery { prefix, ..Default::default() };
        let page = self.store.list(query).await.map_err(store_error)?;
        let mut lowest: Option<Value> = None;
        for record in &page.records {
            let class: Value = crate::convert::parse(record)?;
            let value = class["value"].as_i64();
            if class["globalDefault"] == true
                && lowest.as_ref().is_none_or(|lowest| value < lowest["value"].as_i64())
            {
                lowest = Some(class);
            }
        }
        Ok(lowest)
    }
}

/// What admission does to a changed pod.
pub(crate) fn readmit(pod: &mut Value) {
    if meta::annotation(pod, MIRROR).is_none() {
        remuda_objects::defaults::readmit_pod(pod);
    }
}

/// Gives every container without one the account's token.
fn mount_token(spec: &mut Value) {
    let volumes = spec["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let existing = volumes
        .iter()
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with(TOKEN_VOLUME))
        .map(str::to_owned);
    let name = existing
        .clone()
        .unwrap_or_else(|| remuda_objects::names::generate(TOKEN_VOLUME, rand::rng().random()));
    let mut needed = false;
    for kind in ["initContainers", "containers"] {
        for container in spec[kind].as_array_mut().into_iter().flatten().filter(|item| item.is_object()) {
            let mounts = &mut container["volumeMounts"];
            if !mounts.is_array() {
                *mounts = json!([]);
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                continue;
            }
            needed = true;
            mounts.push(json!({"name": name, "mountPath": TOKEN_PATH, "readOnly": true}));
        }
        if spec[kind].is_null() {
            // Looking must not leave a null behind.
            spec.as_object_mut().map(|spec| spec.remove(kind));
        }
    }
    if !needed || existing.is_some() {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    match spec["volumes"].as_array_mut() {
        Some(volumes) => volumes.push(volume),
        None => spec["volumes"] = json!([volume]),
    }
}

/// What the pod's own subresources may change: one thing each.
pub(crate) fn keep_to_subresource(sub: &str, new: &mut Value, live: &Value) {
    match sub {
        "ephemeralcontainers" => {
            let containers = new["spec"]["ephemeralContainers"].take();
            new["spec"] = live["spec"].clone();
            if containers.is_array() {
                new["spec"]["ephemeralContainers"] = containers;
            }
        }
        "resize" => {
            let wanted = std::mem::take(&mut new["spec"]);
            new["spec"] = live["spec"].clone();
            for kind in ["containers", "initContainers"] {
                let Some(containers) = new["spec"].get_mut(kind).and_then(Value::as_array_mut) else {
                    continue;
                };
                for container in containers {
                    let same = |other: &&Value| other["name"] == container["name"];
                    let found = wanted[kind].as_array().into_iter().flatten().find(same);
                    for field in ["resources", "resizePolicy"] {
                        if let Some(value) = found.and_then(|found| found.get(field)) {
                            container[field] = value.clone();
                        }
                    }
                }
            }
        }
        _ => return,
    }
    new["status"] = live["status"].clone();
}
