//! The Node object: registered at start, kept honest, with a Lease for a heartbeat.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, Taint as NodeTaint},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use remuda_base::Backoff;
use remuda_control::{Informer, ObjectKey, Scope};
use remuda_names::node as names;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tracing::{info, warn};

use super::Shared;
use crate::{
    config::{Settings, Taint},
    encryption::Encryption,
};

/// As a kubelet renews its Lease.
const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
const PATIENCE: Duration = Duration::from_secs(8);
const MANAGER: &str = "remuda-kubelet";

pub async fn run(shared: Arc<Shared>) {
    let Some(uid) = register(&shared).await else { return };
    let name = shared.kubelet.settings.node_name.clone();
    let own: Informer<Node> =
        shared.ctx.informers.of(Scope::all().with_fields(format!("metadata.name={name}")));
    let (told, mut changed) = tokio::sync::watch::channel(());
    let _subscription = own.subscribe(move |_| told.send_modify(|()| {}));
    let mut beat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missed = 0;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            // Somebody may have found us silent, and may be wrong.
            Ok(()) = changed.changed() => {
                if let Some(node) = own.get(&ObjectKey::cluster_wide(&name)).filter(|node| !is_ready(node)) {
                    // The sign of life comes first, or what is written would be taken back at once.
                    let written = async {
                        renew(&shared, &uid).await?;
                        write_status(&shared, &node).await
                    };
                    match timeout(PATIENCE, written).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => warn!(%error, "cannot write the node's status"),
                        Err(_) => warn!("the API does not answer"),
                    }
                }
            }
            _ = beat.tick() => match timeout(PATIENCE, renew(&shared, &uid)).await {
                Ok(Ok(())) => missed = 0,
                failed => {
                    missed += 1;
                    if let Ok(Err(error)) = failed {
                        warn!(%error, "cannot renew the node's lease");
                    } else {
                        warn!("the API does not answer");
                    }
                    if let Some(backends) = shared.kubelet.backends.as_ref().filter(|_| missed > 1) {
                        backends.distrust();
                    }
                }
            }
        }
    }
}

/// Tries until the Node is there. `None` when told to stop.
async fn register(shared: &Shared) -> Option<String> {
    let mut row = Backoff::new(Duration::from_millis(200), Duration::from_secs(5)).begin();
    loop {
        match timeout(PATIENCE, attempt(shared)).await {
            Ok(Ok(uid)) => {
                info!(node = shared.kubelet.settings.node_name, "node registered");
                return Some(uid);
            }
            Ok(Err(error)) => warn!(%error, "cannot register the node yet"),
            Err(_) => {
                warn!("cannot register the node yet: the API does not answer");
                if let Some(backends) = &shared.kubelet.backends {
                    backends.distrust();
                }
            }
        }
        tokio::select! {
            () = shared.stop.cancelled() => return None,
            () = tokio::time::sleep(row.delay()) => {}
        }
    }
}

async fn attempt(shared: &Shared) -> Result<String, kube::Error> {
    let api: Api<Node> = Api::all(shared.ctx.client.clone());
    let settings = &shared.kubelet.settings;
    let desired = desired(shared);
    let params = PatchParams::apply(MANAGER).force();
    let node = api.patch(&settings.node_name, &params, &Patch::Apply(&desired)).await?;
    let node = apply_taints(settings, &api, node).await?;
    write_status(shared, &node).await?;
    let uid = node.uid().unwrap_or_default();
    renew(shared, &uid).await?;
    Ok(uid)
}

/// What the Node is told to be, beside its taints and its status.
fn desired(shared: &Shared) -> Value {
    let kubelet = &shared.kubelet;
    let settings = &kubelet.settings;
    let distribution = settings.distribution;
    let role = |name: &str| format!("node-role.kubernetes.io/{name}");
    let arch = architecture();
    let mut labels: BTreeMap<String, String> = [
        ("beta.kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/hostname", settings.node_name.as_str()),
        ("node.kubernetes.io/instance-type", distribution.name()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    if settings.is_server() && !settings.disabled.apiserver {
        labels.insert(role("control-plane"), "true".to_owned());
        labels.insert(role("master"), "true".to_owned());
    }
    let mut annotations: BTreeMap<String, String> = [(
        names::SANDBOX.to_owned(),
        format!(
            "sandbox distribution in place of {distribution}: pods are processes, for trying and testing only"
        ),
    )]
    .into();
    if let Some((member, address)) = &kubelet.etcd_member {
        labels.insert(role("etcd"), "true".to_owned());
        annotations.insert(distribution.etcd_annotation("node-name"), member.clone());
        annotations.insert(distribution.etcd_annotation("node-address"), address.clone());
    }
    if let Some(datastore) = &kubelet.datastore {
        annotations.insert(names::DATASTORE.to_owned(), datastore.clone());
    }
    if let Some(address) = &kubelet.api_address {
        annotations.insert(names::API.to_owned(), address.clone());
    }
    // Of the files, as they are now: a server that is registered again may have changed them since it started.
    if kubelet.encryption
        && let Ok(Some(encryption)) = Encryption::read(&settings.paths)
    {
        annotations.insert(distribution.encryption_annotation(), encryption.mark());
    }
    labels.extend(settings.labels.clone());
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": settings.node_name, "labels": labels, "annotations": annotations},
        "spec": {"providerID": format!("{distribution}://{}", settings.node_name)},
    })
}

/// Adds the configured taints and takes away those that were configured before. Others stay.
async fn apply_taints(settings: &Settings, api: &Api<Node>, node: Node) -> Result<Node, kube::Error> {
    let before: BTreeSet<String> = node
        .annotations()
        .get(names::TAINTS)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let current = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let taints = merge_taints(&current, &before, &settings.taints);
    let now: BTreeSet<String> = settings.taints.iter().map(taint_id).collect();
    if taints == current && (before == now || (now.is_empty() && before.is_empty())) {
        return Ok(node);
    }
    let patch = json!({
        "metadata": {
            "resourceVersion": node.resource_version(),
            "annotations": {names::TAINTS: serde_json::to_string(&now).unwrap_or_default()},
        },
        "spec": {"taints": taints},
    });
    api.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
}

fn taint_id(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

fn merge_taints(
    current: &[NodeTaint],
    before: &BTreeSet<String>,
    wanted: &BTreeSet<Taint>,
) -> Vec<NodeTaint> {
    let id = |taint: &NodeTaint| format!("{}:{}", taint.key, taint.effect);
    let ours: BTreeSet<String> = wanted.iter().map(taint_id).collect();
    let stays = |taint: &&NodeTaint| !before.contains(&id(taint)) && !ours.contains(&id(taint));
    let mut taints: Vec<NodeTaint> = current.iter().filter(stays).cloned().collect();
    taints.extend(wanted.iter().map(|taint| {
        let known = current.iter().find(|known| id(known) == taint_id(taint) && known.value == taint.value);
        known.cloned().unwrap_or_else(|| NodeTaint {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: taint.effect.clone(),
            time_added: None,
        })
    }));
    taints
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn write_status(shared: &Shared, node: &Node) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(shared.ctx.client.clone());
    let patch = json!({"status": status(shared, node, shared.ctx.clock.now())});
    api.patch_status(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

fn status(shared: &Shared, node: &Node, now: Timestamp) -> Value {
    let settings = &shared.kubelet.settings;
    let time = |at: Timestamp| remuda_base::rfc3339(at.as_second());
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let known = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let before = known.into_iter().find(|known| known.type_ == kind && known.status == status);
        let turned =
            before.and_then(|known| known.last_transition_time.as_ref().map(|at| at.0)).unwrap_or(now);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(turned),
        })
    };
    let internal = match settings.node_ips.is_empty() {
        true => vec![shared.address],
        false => settings.node_ips.clone(),
    };
    let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
    let mut addresses: Vec<Value> =
        internal.iter().map(|ip| address("InternalIP", &ip.to_string())).collect();
    addresses.extend(settings.external_ips.iter().map(|ip| address("ExternalIP", &ip.to_string())));
    addresses.push(address("Hostname", &settings.node_name));
    let resources = json!({
        "cpu": std::thread::available_parallelism().map_or(1, usize::from).to_string(),
        "memory": format!("{}Ki", memory_kilobytes()),
        "pods": settings.kubelet_arg("max-pods").unwrap_or("110"),
        "ephemeral-storage": "10Gi",
    });
    json!({
        "addresses": addresses,
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": shared.port}},
        "nodeInfo": {
            "architecture": architecture(),
            "bootID": read("/proc/sys/kernel/random/boot_id"),
            "containerRuntimeVersion": format!("sandbox://{}", settings.version.trim_start_matches('v')),
            "kernelVersion": read("/proc/sys/kernel/osrelease"),
            "kubeProxyVersion": settings.version,
            "kubeletVersion": settings.version,
            "machineID": read("/etc/machine-id"),
            "operatingSystem": "linux",
            "osImage": "Remuda sandbox distribution",
            "systemUUID": read("/etc/machine-id"),
        },
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn memory_kilobytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(1 << 20)
}

/// The heartbeat.
async fn renew(shared: &Shared, uid: &str) -> Result<(), kube::Error> {
    let name = &shared.kubelet.settings.node_name;
    let api: Api<Lease> = Api::namespaced(shared.ctx.client.clone(), "kube-node-lease");
    let now = shared.ctx.clock.now();
    let patch = json!({"spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": MicroTime(now)}});
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        result => return result.map(drop),
    }
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: serde_json::from_value(owner).ok(),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    };
    match api.create(&PostParams::default(), &lease).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str) -> Taint {
        Taint { key: key.to_owned(), value: None, effect: "NoSchedule".to_owned() }
    }

    fn keys(taints: &[NodeTaint]) -> Vec<&str> {
        taints.iter().map(|taint| taint.key.as_str()).collect()
    }

    #[test]
    fn a_taint_that_left_the_configuration_is_taken_away() {
        let both: BTreeSet<Taint> = [taint("a"), taint("b")].into();
        let first = merge_taints(&[], &BTreeSet::new(), &both);
        assert_eq!(keys(&first), ["a", "b"]);
        let mut current = first.clone();
        current.push(NodeTaint {
            key: "own".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..NodeTaint::default()
        });
        let before = both.iter().map(taint_id).collect();
        assert_eq!(keys(&merge_taints(&current, &before, &[taint("b")].into())), ["own", "b"]);
    }
}
