//! `ETCDSnapshot`: the snapshots a cluster has, as it lists them itself.
//!
//! Reads   `ETCDSnapshotFile`s of workload clusters, Machines, plan Secrets, control planes.
//! Writes  ETCDSnapshots: one for each file, owned by the Machine that holds it; deletes those whose file is gone.
//! Never   touches a file: the planner has it deleted on the node, and releases the ETCDSnapshot then.
//!
//! While a cluster is being restored its list is that of another time, and is not looked at.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PostParams},
};
use remuda_api::{
    core::{Cluster, Machine},
    rke::{EtcdSnapshot, RkeControlPlane, S3},
};
use remuda_control::{Action, Controller, Enqueuer, ObjectKey, drive_keys, write::owner_reference};
use remuda_names::rancher::{annotation, finalizer, label, snapshot_file};
use remuda_plan::{naming::safe_concat_name_max, sha256_hex};
use remuda_planner::input::{Snapshot, Storage};
use remuda_snapshot::Report;
use remuda_workload::{Refused, What};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    error::is_code,
    objects,
    shared::{BY_CLUSTER, Rke, filed},
};

/// Snapshots of the schedule of a cluster are seen after this time at the latest.
const RESYNC: Duration = Duration::from_secs(300);
/// What the state of a snapshot is called that has no file.
const FAILED: &str = "failed";
/// The longest name an object can have.
const NAME: usize = 253;

struct Snapshots {
    rke: Arc<Rke>,
    enqueuer: Enqueuer,
}

/// Snapshots of a control plane, as the planner sees them.
pub(crate) fn of(rke: &Rke, control_plane: &ObjectKey) -> Vec<Snapshot> {
    let namespace = control_plane.namespace.as_deref().unwrap_or_default();
    let known = rke.snapshots.by_index(BY_CLUSTER, &filed(namespace, &control_plane.name));
    known.iter().map(|snapshot| seen(snapshot)).collect()
}

fn seen(snapshot: &EtcdSnapshot) -> Snapshot {
    let storage = snapshot.annotations().get(annotation::SNAPSHOT_STORAGE);
    let s3 = storage.is_some_and(|storage| storage == "s3") || snapshot.snapshot_file.s3.is_some();
    Snapshot {
        name: snapshot.name_any(),
        file: snapshot.snapshot_file.name.clone(),
        machine: objects::owner(&snapshot.metadata, "Machine").map(|owner| owner.name.clone()),
        storage: if s3 { Storage::S3 } else { Storage::Local },
        version: None,
        deleting: objects::is_deleting(&snapshot.metadata),
        failed: snapshot.snapshot_file.status == FAILED,
    }
}

/// Lets a snapshot go whose file is gone.
pub(crate) async fn release(rke: &Rke, key: &ObjectKey) -> Result<(), Error> {
    let Some(known) = rke.snapshots.get(key) else { return Ok(()) };
    let left: Vec<&String> = known.finalizers().iter().filter(|name| *name != finalizer::SNAPSHOT).collect();
    if left.len() == known.finalizers().len() {
        return Ok(());
    }
    let metadata =
        json!({"uid": known.uid(), "resourceVersion": known.resource_version(), "finalizers": left});
    let api: Api<EtcdSnapshot> = rke.api(key.namespace.as_deref().unwrap_or_default());
    match api.patch(&key.name, &rke.params(), &Patch::Merge(json!({"metadata": metadata}))).await {
        Err(error) if !is_code(&error, 404) => {
            Err(Error::api("release", format!("ETCDSnapshot {key}"))(error))
        }
        written => {
            rke.seen(&rke.snapshots, written.ok().as_ref()).await;
            Ok(())
        }
    }
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller =
        Controller::on("etcd-snapshot", &rke.ctx, rke.clusters.clone()).workers(rke.options.workers);
    let enqueuer = controller.enqueuer();
    let woken = enqueuer.clone();
    let connected = rke.workloads.subscribe(move |event| {
        if let What::Connected = event.what {
            woken.enqueue(event.cluster.clone());
        }
    });
    let controller = controller.watches_facts(
        &rke.control_planes,
        |control_plane: &RkeControlPlane| {
            let status = control_plane.status.clone().unwrap_or_default();
            (status.etcd_snapshot_create_phase, status.etcd_snapshot_restore_phase)
        },
        |control_plane| {
            let owner = objects::owner(&control_plane.metadata, "Cluster");
            let key = ObjectKey::of(&control_plane.metadata);
            owner.map(|owner| key.sibling(&owner.name)).into_iter().collect()
        },
    );
    let controller = controller.watches_facts(
        &rke.snapshots,
        |snapshot: &EtcdSnapshot| objects::is_deleting(&snapshot.metadata),
        |snapshot| vec![ObjectKey::of(&snapshot.metadata).sibling(&snapshot.spec.cluster_name)],
    );
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive_keys(controller, reconcile, Arc::new(Snapshots { rke, enqueuer }), stop).await;
    drop(connected);
}

async fn reconcile(key: ObjectKey, ctx: Arc<Snapshots>) -> Result<Action, Error> {
    let rke = &ctx.rke;
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let known = rke.snapshots.by_index(BY_CLUSTER, &filed(namespace, &key.name));
    let cluster = rke.clusters.get(&key).filter(|cluster| !objects::is_deleting(&cluster.metadata));
    let Some(cluster) = cluster else {
        // Servers that go take their files along.
        for snapshot in known.iter().filter(|snapshot| objects::is_deleting(&snapshot.metadata)) {
            release(rke, &ObjectKey::of(&snapshot.metadata)).await?;
        }
        return Ok(Action::AwaitChange);
    };
    if !objects::is_control_plane(&cluster.spec.control_plane_ref) || ctx.is_restoring(&cluster) {
        return Ok(Action::AwaitChange);
    }
    let Some(files) = ctx.files(&key).await? else {
        // Its connection wakes us.
        return Ok(Action::AwaitChange);
    };
    let mut wanted = BTreeMap::new();
    for file in &files {
        let snapshot = ctx.snapshot(&cluster, file)?;
        wanted.insert(snapshot.name_any(), snapshot);
    }
    for snapshot in &known {
        // Objects without this annotation were made by a person.
        let listed = snapshot.annotations().contains_key(annotation::SNAPSHOT_NAME);
        if listed && !wanted.contains_key(&snapshot.name_any()) {
            ctx.forget(snapshot).await?;
        }
    }
    for snapshot in wanted.into_values() {
        let known = known.iter().find(|known| known.name_any() == snapshot.name_any());
        ctx.write(&key, known.map(AsRef::as_ref), snapshot).await?;
    }
    Ok(Action::RequeueAfter(RESYNC))
}

impl Snapshots {
    fn is_restoring(&self, cluster: &Cluster) -> bool {
        let key = ObjectKey::of(&cluster.metadata).sibling(&cluster.spec.control_plane_ref.name);
        let control_plane = self.rke.control_planes.get(&key);
        let status = control_plane.as_ref().and_then(|control_plane| control_plane.status.as_ref());
        let phase = status.map_or("", |status| status.etcd_snapshot_restore_phase.as_str());
        !matches!(phase, "" | "Finished" | "Failed")
    }

    /// What the cluster lists. `None` if it cannot be asked now.
    async fn files(&self, cluster: &ObjectKey) -> Result<Option<Vec<DynamicObject>>, Error> {
        let lease = match self.rke.workloads.lease(cluster, &self.enqueuer, cluster) {
            Ok(lease) => lease,
            Err(Refused::Busy | Refused::Down(_)) => return Ok(None),
        };
        let kind = GroupVersionKind::gvk(snapshot_file::GROUP, snapshot_file::VERSION, snapshot_file::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, snapshot_file::PLURAL);
        let api: Api<DynamicObject> = Api::all_with(lease.client(), &resource);
        match lease.call(api.list(&ListParams::default())).await {
            Err(_) => Ok(None),
            // Older releases have no such kind.
            Ok(Err(error)) if is_code(&error, 404) => Ok(None),
            Ok(Err(error)) => Err(Error::api("list", format!("snapshots of cluster {cluster}"))(error)),
            Ok(Ok(listed)) => Ok(Some(listed.items)),
        }
    }

    /// The object for a file.
    fn snapshot(&self, owner: &Cluster, file: &DynamicObject) -> Result<EtcdSnapshot, Error> {
        let cluster = ObjectKey::of(&owner.metadata);
        let (spec, status) = (&file.data["spec"], &file.data["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let s3 = spec["s3"].is_object();
        let (node, location, name) =
            (text(&spec["nodeName"]), text(&spec["location"]), text(&spec["snapshotName"]));
        let storage = if s3 { "s3" } else { "local" };
        let place = sha256_hex(format!("{node}{location}").as_bytes());
        let own = format!("{storage}-{}-{}", name.to_lowercase(), &place[..6]);
        let mut snapshot = EtcdSnapshot::named(&safe_concat_name_max(NAME, &[&cluster.name, &own]));
        snapshot.metadata.namespace = cluster.namespace.as_deref().map(str::to_owned);
        let namespace = cluster.namespace.as_deref().unwrap_or_default();
        let machines = self.rke.machines.by_index(BY_CLUSTER, &filed(namespace, &cluster.name));
        let holds = |machine: &&Arc<Machine>| {
            machine.status.as_ref().is_some_and(|status| status.node_ref.name == node)
        };
        let machine = machines.iter().find(holds).filter(|_| !s3);
        if let Some(machine) = machine {
            snapshot.metadata.owner_references = Some(vec![owner_reference(&**machine, &())?]);
        }
        if s3 {
            // It stays when its servers go, and goes with its cluster: the object, not the file.
            let owners = owner.metadata.owner_references.iter().flatten();
            let owners = owners.filter(|owner| owner.kind == "Cluster").cloned();
            let owners = owners.map(|owner| OwnerReference { controller: None, ..owner });
            snapshot.metadata.owner_references =
                Some(owners.collect()).filter(|owners: &Vec<_>| !owners.is_empty());
        }
        let labels = [(label::CLUSTER_NAME, cluster.name.to_string()), (label::NODE_NAME, node.clone())];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value));
        snapshot.metadata.labels = Some(labels.collect());
        let metadata = spec["metadata"].as_object().filter(|metadata| !metadata.is_empty());
        let whole = metadata.is_some_and(|metadata| metadata.contains_key("provisioning-cluster-spec"));
        let modes = if whole { "none,kubernetesVersion,all" } else { "none" };
        let mut annotations: BTreeMap<String, String> = [
            (annotation::SNAPSHOT_NAME, file.name_any()),
            (annotation::SNAPSHOT_FILE_NAME, name.clone()),
            (annotation::SNAPSHOT_STORAGE, storage.to_owned()),
            (annotation::SNAPSHOT_RESTORE_MODES, modes.to_owned()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
        let said =
            machine.and_then(|machine| self.verification(machine)).filter(|(report, _)| report.file == name);
        if let Some((_, said)) = said {
            annotations.insert(annotation::SNAPSHOT_VERIFICATION.to_owned(), said);
        }
        snapshot.metadata.annotations = Some(annotations);
        snapshot.spec.cluster_name = cluster.name.to_string();
        let ready = status["readyToUse"].as_bool().unwrap_or(false);
        let created = status["creationTime"].as_str().and_then(|time| time.parse().ok()).map(Time);
        let out = &mut snapshot.snapshot_file;
        out.metadata =
            metadata.map_or_else(String::new, |metadata| BASE64_STANDARD.encode(json!(metadata).to_string()));
        out.size = text(&status["size"]).parse().unwrap_or_default();
        out.status = if ready { "successful" } else { FAILED }.to_owned();
        out.message = text(&status["error"]["message"]);
        out.s3 = s3.then(|| self.place(owner, &spec["s3"]));
        (out.name, out.node_name, out.location, out.created_at) = (name, node, location, created);
        Ok(snapshot)
    }

    /// The store a file is in. The cluster does not know by which credential it got there; its specification does.
    fn place(&self, cluster: &Cluster, place: &Value) -> S3 {
        let text = |key: &str| place[key].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey::of(&cluster.metadata).sibling(&cluster.spec.control_plane_ref.name);
        let asked = self.rke.control_planes.get(&key);
        let asked = asked.as_ref().and_then(|asked| asked.spec.config.etcd.as_ref()?.s3.clone());
        let asked = asked.filter(|asked| asked.bucket.is_empty() || asked.bucket == text("bucket"));
        S3 {
            endpoint: text("endpoint"),
            skip_ssl_verify: place["skipSSLVerify"].as_bool().unwrap_or_default(),
            bucket: text("bucket"),
            region: text("region"),
            folder: text("prefix"),
            cloud_credential_name: asked.map(|asked| asked.cloud_credential_name).unwrap_or_default(),
            ..S3::default()
        }
    }

    /// What the agent of a machine found when it last read a snapshot.
    fn verification(&self, machine: &Machine) -> Option<(Report, String)> {
        let plan =
            ObjectKey::of(&machine.metadata).sibling(objects::plan_name(objects::bootstrap_of(machine)?));
        let secret = self.rke.plans.get(&plan)?;
        let said = secret.annotations().get(annotation::SNAPSHOT_VERIFICATION)?;
        Some((serde_json::from_str(said).ok()?, said.clone()))
    }

    async fn write(
        &self,
        cluster: &ObjectKey,
        known: Option<&EtcdSnapshot>,
        mut wanted: EtcdSnapshot,
    ) -> Result<(), Error> {
        let api: Api<EtcdSnapshot> = self.rke.api(cluster.namespace.as_deref().unwrap_or_default());
        let name = wanted.name_any();
        let Some(known) = known else {
            wanted.metadata.finalizers = Some(vec![finalizer::SNAPSHOT.to_owned()]);
            let params = PostParams {
                field_manager: Some(self.rke.ctx.field_manager.to_string()),
                ..PostParams::default()
            };
            let created = api.create(&params, &wanted).await;
            let created = created.map_err(Error::api("create", format!("ETCDSnapshot {name}")))?;
            self.rke.seen(&self.rke.snapshots, Some(&created)).await;
            return Ok(());
        };
        let covers = |has: &BTreeMap<String, String>, wants: &BTreeMap<String, String>| {
            wants.iter().all(|(key, value)| has.get(key) == Some(value))
        };
        let same = known.snapshot_file == wanted.snapshot_file
            && covers(known.labels(), wanted.labels())
            && covers(known.annotations(), wanted.annotations())
            && known.metadata.owner_references == wanted.metadata.owner_references;
        if same || objects::is_deleting(&known.metadata) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {
                "labels": wanted.labels(), "annotations": wanted.annotations(),
                "ownerReferences": wanted.metadata.owner_references,
            },
            "snapshotFile": wanted.snapshot_file,
        });
        let written = api.patch(&name, &self.rke.params(), &Patch::Merge(patch)).await;
        let written = written.map_err(Error::api("write", format!("ETCDSnapshot {name}")))?;
        self.rke.seen(&self.rke.snapshots, Some(&written)).await;
        Ok(())
    }

    /// The file is gone: so is the object.
    async fn forget(&self, snapshot: &EtcdSnapshot) -> Result<(), Error> {
        let key = ObjectKey::of(&snapshot.metadata);
        release(&self.rke, &key).await?;
        let api: Api<EtcdSnapshot> = self.rke.api(key.namespace.as_deref().unwrap_or_default());
        match api.delete(&key.name, &DeleteParams::default()).await {
            Err(error) if !is_code(&error, 404) => {
                Err(Error::api("delete", format!("ETCDSnapshot {key}"))(error))
            }
            _ => Ok(()),
        }
    }
}
