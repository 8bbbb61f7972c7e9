//! Makes the objects of a cluster, after edits of its spec that are ours to make.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Api, ResourceExt, api::Patch};
use remuda_api::{
    core,
    provisioning::{Cluster, ClusterSpec, RkeConfig},
    rke::{EtcdSnapshot, RkeControlPlane},
};
use remuda_control::{
    ObjectKey,
    events::{Happening, Tone},
};
use remuda_names::{provisioning::annotation::PENDING_CONFIG, rancher::group};
use serde_json::{Value, json};

use super::{
    Clusters, Problem, Progress, cluster_text,
    graph::{self, PoolView, View},
    identity, object_set_of, pool, power, rollback, template, typed,
    update::Pending,
};
use crate::{
    archive,
    error::{Error, is_code},
    naming,
    object_set::{self, Child, Foreign, Need},
};

impl Clusters {
    /// The objects a cluster is made of. Tells what is still waited for.
    pub(super) async fn make(
        &self,
        api: &Api<Cluster>,
        cluster: &Cluster,
        config: &RkeConfig,
        progress: &mut Progress,
    ) -> Result<Option<String>, Error> {
        if cluster.spec.kubernetes_version.is_empty() {
            let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
            return Err(Problem::NoVersion { namespace, name }.into());
        }
        pool::validate(&config.machine_pools)?;
        if let Some(waiting) = self.edit(api, cluster, config, progress.control_plane.as_ref()).await? {
            return Ok(Some(waiting));
        }
        let pools = self.observe_pools(cluster, config).await?;
        let management = identity::name(cluster);
        let power = power::wanted(cluster, self.ctx.clock.now());
        let graph = graph::build(&View {
            cluster,
            config,
            management: &management,
            control_plane: progress.control_plane.as_ref(),
            hibernate: power.hibernate.as_deref().unwrap_or_default(),
            pools: &pools,
        })?;
        for adoption in &graph.adoptions {
            self.adopt(adoption).await?;
        }
        self.tell(cluster, &graph.pending, &pools);
        progress.pending = Some(graph.pending);
        self.apply(cluster, graph.children, progress).await
    }

    /// Tells of edits that do not reach machines, once each, whoever looks at the cluster or at the configuration.
    fn tell(&self, cluster: &Cluster, pending: &[Pending], pools: &BTreeMap<String, PoolView>) {
        for pending in pending {
            let deployment = naming::of::machine_deployment(&cluster.name_any(), &pending.pool);
            let deployment = self.deployments.get(&ObjectKey::of(&cluster.metadata).sibling(deployment));
            let told = deployment.and_then(|found| found.annotations().get(PENDING_CONFIG).cloned());
            if told.as_ref() == Some(&pending.annotation()) {
                continue;
            }
            self.ctx.recorder.warning(cluster, "ConfigEdited", "Reconcile", pending.message());
            if let Some(PoolView { config: graph::Config::Found(config), .. }) = pools.get(&pending.pool) {
                let resource = template::resource(group::MACHINE_CONFIG, &pending.kind);
                let note = format!("cluster {}: {}", cluster.name_any(), pending.message());
                let happening =
                    Happening { tone: Tone::Warning, reason: "ConfigEdited", action: "Reconcile", note };
                self.ctx.recorder.record(&**config, &resource, happening);
            }
        }
    }

    /// Edits of the spec that are ours to make: each is a pass of its own, since it wakes us again.
    async fn edit(
        &self,
        api: &Api<Cluster>,
        cluster: &Cluster,
        config: &RkeConfig,
        control_plane: Option<&RkeControlPlane>,
    ) -> Result<Option<String>, Error> {
        let pool_path = |index: usize, field: &str| format!("/spec/rkeConfig/machinePools/{index}/{field}");
        let mut edits = Vec::new();
        let mut rolls_back = false;
        for (index, pool) in config.machine_pools.iter().enumerate() {
            let test = json!({"op": "test", "path": pool_path(index, "name"), "value": pool.name});
            if let Some(kind) = template::config_kind(pool).filter(|_| graph::schema(pool).is_none()) {
                let name = template::schema_name(kind);
                let schema = self.schemas.get(&ObjectKey::cluster_wide(&name));
                // What is kept of a schema without fields would be kept for good.
                let schema = schema.filter(|schema| !schema.spec.resource_fields.is_empty());
                let Some(schema) = schema else {
                    return Ok(Some(format!(
                        "waiting for DynamicSchema {name} of machinePool [{}]",
                        pool.name
                    )));
                };
                let encode = |source| Error::Encode { what: "a schema", source };
                let text = serde_json::to_string(&schema.spec).map_err(encode)?;
                let path = pool_path(index, "dynamicSchemaSpec");
                edits.extend([test.clone(), json!({"op": "add", "path": path, "value": text})]);
            }
            let deployment = naming::of::machine_deployment(&cluster.name_any(), &pool.name);
            let deployment = self.deployments.get(&ObjectKey::of(&cluster.metadata).sibling(deployment));
            if let Some(replicas) = deployment.and_then(|deployment| pool::scaled(pool, &deployment)) {
                // The number may have been edited meanwhile: then that is what counts.
                let path = pool_path(index, "quantity");
                let before = json!({"op": "test", "path": path, "value": pool.quantity});
                edits.extend([test, before, json!({"op": "add", "path": path, "value": replicas})]);
            }
        }
        if let Some(restore) = rollback::wanted(config, control_plane) {
            let former = self.former(cluster, &restore.name).await?;
            if let Some(after) = rollback::roll_back(&cluster.spec, &former, &restore.restore_rke_config) {
                if let Some((field, object)) = rollback::introduces(cluster, &after)? {
                    let snapshot = restore.name.clone();
                    return Err(Problem::SnapshotNames { snapshot, field, object }.into());
                }
                let encode = |source| Error::Encode { what: "a spec", source };
                let after = serde_json::to_value(after).map_err(encode)?;
                rolls_back = true;
                edits = vec![
                    json!({"op": "test", "path": "/metadata/generation", "value": cluster.metadata.generation}),
                    json!({"op": "replace", "path": "/spec", "value": after}),
                ];
            }
        }
        if edits.is_empty() {
            return Ok(None);
        }
        match self.write_edits(api, cluster, edits).await {
            // A test that fails means that our view is old. A former spec may be refused for what it is.
            Err(source) if is_code(&source, 422) && !rolls_back => {
                return Err(remuda_control::Error::Stale { what: cluster_text(cluster), source }.into());
            }
            written => written.map_err(Error::api("edit", cluster_text(cluster)))?,
        }
        Ok(Some("waiting for spec to be completed".to_owned()))
    }

    async fn write_edits(
        &self,
        api: &Api<Cluster>,
        cluster: &Cluster,
        edits: Vec<Value>,
    ) -> Result<(), kube::Error> {
        let patch = serde_json::from_value(Value::Array(edits)).map_err(kube::Error::SerdeError)?;
        let patch: Patch<()> = Patch::Json(patch);
        api.patch(&cluster.name_any(), &self.params(), &patch).await.map(drop)
    }

    /// The spec a cluster had when a snapshot was taken.
    async fn former(&self, cluster: &Cluster, name: &str) -> Result<ClusterSpec, Error> {
        let namespace = cluster.namespace().unwrap_or_default();
        let snapshots: Api<EtcdSnapshot> = Api::namespaced(self.ctx.client.clone(), &namespace);
        let name = name.to_owned();
        let found = snapshots.get_opt(&name).await;
        let found = found.map_err(Error::api("read", format!("etcd snapshot {namespace}/{name}")))?;
        let Some(found) = found else {
            return Err(Problem::NoSnapshot { namespace, name }.into());
        };
        let spec = archive::from_snapshot(&found.snapshot_file.metadata);
        Ok(spec.ok_or(Problem::NoSnapshotSpec { namespace, name })?)
    }

    /// Applies all children, then deletes those that are no longer among them. Nothing is deleted unless
    /// everything wanted is in place, and nothing is made below something that goes: Cluster API would delete it,
    /// it would be made again, and each time there would be servers for it.
    async fn apply(
        &self,
        cluster: &Cluster,
        mut children: Vec<Child>,
        progress: &mut Progress,
    ) -> Result<Option<String>, Error> {
        let set = object_set_of(cluster);
        let mut needs = Vec::with_capacity(children.len());
        for child in &mut children {
            set.mark(child);
            let existing = self.find(&child.kind, &child.key)?;
            needs.push((object_set::need(child, existing.as_ref()), existing.is_some()));
        }
        let going =
            children.iter().zip(&needs).find(|(child, (need, _))| is_root(child) && *need == Ok(Need::Wait));
        if let Some((child, _)) = going {
            return Ok(Some(awaits(child)));
        }
        let mut waiting = None;
        let mut wanted = BTreeSet::new();
        let mut is_alive = false;
        for (child, (need, exists)) in children.into_iter().zip(needs) {
            match need {
                Ok(Need::Nothing) => {}
                Err(Foreign) => {
                    let (kind, name) = (child.kind.kind.clone(), child.key.name.to_string());
                    return Err(Problem::Foreign { kind, name }.into());
                }
                Ok(Need::Wait) => waiting = Some(awaits(&child)),
                Ok(Need::Write) => {
                    if child.kind.kind == "MachineDeployment" && !exists && !is_alive {
                        if let Some(going) = self.going(cluster).await? {
                            return Ok(Some(going));
                        }
                        is_alive = true;
                    }
                    let written = child.apply(&self.ctx).await?;
                    // What was just written is known to stay.
                    is_alive |= is_capi_cluster(&child) && written.metadata.deletion_timestamp.is_none();
                    if child.kind.kind == "RKEControlPlane" {
                        progress.control_plane = Some(typed(&written)?);
                    }
                }
            }
            wanted.insert((child.kind.kind.clone(), child.key.clone()));
        }
        if waiting.is_none() {
            self.prune(cluster, &set, &wanted).await?;
        }
        Ok(waiting)
    }

    /// What is waited for if the Cluster of Cluster API is going. Asked of the API itself: each kind has a cache of
    /// its own, and one may show what was deleted below a Cluster before another shows why.
    async fn going(&self, cluster: &Cluster) -> Result<Option<String>, Error> {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let clusters: Api<core::Cluster> = Api::namespaced(self.ctx.client.clone(), &namespace);
        let found = clusters.get_metadata_opt(&name).await;
        let found = found.map_err(Error::api("read", format!("cluster-api cluster {namespace}/{name}")))?;
        let going = found.is_none_or(|found| found.metadata.deletion_timestamp.is_some());
        Ok(going.then(|| format!("waiting for former Cluster {name} to delete")))
    }
}

fn is_capi_cluster(child: &Child) -> bool {
    child.kind.kind == "Cluster"
}

/// What everything else of a cluster is below of.
fn is_root(child: &Child) -> bool {
    is_capi_cluster(child) || matches!(child.kind.kind.as_str(), "RKECluster" | "RKEControlPlane")
}

fn awaits(child: &Child) -> String {
    format!("waiting for former {} {} to delete", child.kind.kind, child.key.name)
}
