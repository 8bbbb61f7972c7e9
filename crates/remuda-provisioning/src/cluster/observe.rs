//! What there is of a cluster.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource, ResourceExt,
    api::Patch,
    core::{ApiResource, DynamicObject},
};
use remuda_api::{
    core::Machine,
    provisioning::{Cluster, MachinePool, RkeConfig},
};
use remuda_control::{Informer, Kind, ObjectKey, Scope, informer::Cached};
use remuda_names::{
    capi,
    provisioning::annotation::SHARED,
    rancher::{group, label},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    BY_CLUSTER, BY_CONFIG, Clusters,
    graph::{self, Adoption, Config, PoolView},
    template,
    update::Census,
};
use crate::{
    error::Error,
    naming,
    object_set::{self, ObjectSet},
};

/// How long the first list of a driver's kind may take.
const FIRST_LIST: Duration = Duration::from_secs(15);

fn encode<K: Serialize>(object: Option<Arc<K>>) -> Result<Option<Value>, Error> {
    let encode = |source| Error::Encode { what: "an object that exists", source };
    object.map(|object| serde_json::to_value(&*object).map_err(encode)).transpose()
}

impl Clusters {
    /// What exists under the name of an object of ours.
    pub(super) fn find(&self, kind: &Kind, key: &ObjectKey) -> Result<Option<Value>, Error> {
        match kind.kind.as_str() {
            "RKECluster" => encode(self.infrastructures.get(key)),
            "RKEControlPlane" => encode(self.control_planes.get(key)),
            "Cluster" => encode(self.capi_clusters.get(key)),
            "RKEBootstrapTemplate" => encode(self.bootstrap_templates.get(key)),
            "MachineDeployment" => encode(self.deployments.get(key)),
            "MachineHealthCheck" => encode(self.health_checks.get(key)),
            _ => encode(self.ctx.informers.dynamic(&kind.api_resource(), Scope::all()).get(key)),
        }
    }

    /// Deletes members of a set that nothing wants.
    pub(super) async fn prune(
        &self,
        cluster: &Cluster,
        set: &ObjectSet,
        wanted: &BTreeSet<(String, ObjectKey)>,
    ) -> Result<(), Error> {
        let mut unwanted: Vec<(ApiResource, ObjectMeta)> = Vec::new();
        // What machines depend on comes last.
        collect(&self.health_checks, set, wanted, &mut unwanted);
        collect(&self.deployments, set, wanted, &mut unwanted);
        collect(&self.bootstrap_templates, set, wanted, &mut unwanted);
        collect(&self.infrastructures, set, wanted, &mut unwanted);
        for (resource, meta) in unwanted {
            let (kind, name) = (&resource.kind, meta.name.as_deref().unwrap_or_default());
            tracing::info!(cluster = %ObjectKey::of(&cluster.metadata), kind, name, "nothing wants it any more");
            object_set::delete(&self.ctx, &resource, &meta).await?;
        }
        Ok(())
    }

    /// What was found for each pool.
    pub(super) async fn observe_pools(
        &self,
        cluster: &Cluster,
        config: &RkeConfig,
    ) -> Result<BTreeMap<String, PoolView>, Error> {
        let mut views = BTreeMap::new();
        // Pools mostly share one credential.
        let mut credentials = BTreeMap::new();
        for (pool, kind) in graph::driver_pools(config) {
            let config = self.config(cluster, pool, kind).await?;
            let template = self.template(cluster, pool, kind).await?;
            let reference = template::credential(cluster, pool);
            let missing_credential = match credentials.get(reference) {
                Some(known) => Option::clone(known),
                None => {
                    let missing = self.missing_credential(cluster, reference).await?;
                    credentials.insert(reference, missing.clone());
                    missing
                }
            };
            let census = self.census(cluster, pool);
            views.insert(pool.name.clone(), PoolView { config, template, missing_credential, census });
        }
        Ok(views)
    }

    /// How many machines a pool has.
    fn census(&self, cluster: &Cluster, pool: &MachinePool) -> Census {
        let deployment = naming::of::machine_deployment(&cluster.name_any(), &pool.name);
        let all = self.machines.by_index(BY_CLUSTER, &ObjectKey::of(&cluster.metadata).to_string());
        let ours = |machine: &&Arc<Machine>| {
            machine.labels().get(capi::label::DEPLOYMENT_NAME) == Some(&deployment)
                && machine.metadata.deletion_timestamp.is_none()
        };
        let is_node = |machine: &&Arc<Machine>| {
            machine.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty())
        };
        let ours: Vec<&Arc<Machine>> = all.iter().filter(ours).collect();
        Census { machines: ours.len(), nodes: ours.iter().copied().filter(is_node).count() }
    }

    /// All objects of a kind of a driver; `None` if it is not served. Nothing is asked of a kind that has no
    /// definition: its absence would look like an error.
    async fn driver_kind(&self, resource: &ApiResource) -> Result<Option<Informer<DynamicObject>>, Error> {
        let definition = format!("{}.{}", resource.plural, resource.group);
        if self.definitions.get(&ObjectKey::cluster_wide(definition)).is_none() {
            // Whoever knew that the kind is gone may have stopped its cache.
            self.enqueuer.unfollow(&Kind::of::<DynamicObject>(resource));
            return Ok(None);
        }
        let cache = self.ctx.informers.dynamic(resource, Scope::all());
        if tokio::time::timeout(FIRST_LIST, cache.wait_synced()).await.is_err() {
            return Err(Error::NotServed { kind: resource.kind.clone(), group: resource.group.clone() });
        }
        Ok(Some(cache))
    }

    async fn config(&self, cluster: &Cluster, pool: &MachinePool, kind: &str) -> Result<Config, Error> {
        let resource = template::resource(group::MACHINE_CONFIG, kind);
        let Some(cache) = self.driver_kind(&resource).await? else {
            return Ok(Config::NotServed);
        };
        let (clusters, kind) = (self.clusters.clone(), kind.to_owned());
        self.enqueuer.follow(&cache, move |config: &DynamicObject| {
            let namespace = config.namespace().unwrap_or_default();
            clusters.keys_by_index(BY_CONFIG, &format!("{kind}/{namespace}/{}", config.name_any()))
        });
        let name = pool.machine_config_ref.as_ref().and_then(|reference| reference.name.as_deref());
        let key = ObjectKey::of(&cluster.metadata).sibling(name.unwrap_or_default());
        Ok(cache.get(&key).map_or(Config::Missing, Config::Found))
    }

    /// The template machines of a pool are made from so far.
    async fn template(
        &self,
        cluster: &Cluster,
        pool: &MachinePool,
        kind: &str,
    ) -> Result<Option<Arc<DynamicObject>>, Error> {
        let resource = template::resource(group::MACHINE, &template::template_kind(kind));
        let Some(cache) = self.driver_kind(&resource).await? else {
            return Err(super::Problem::NoKind { pool: pool.name.clone(), kind: resource.kind }.into());
        };
        self.enqueuer.follow(&cache, |template: &DynamicObject| {
            super::enqueue::sibling(
                template,
                template.labels().get(label::CLUSTER_NAME).map_or("", String::as_str),
            )
        });
        let here = ObjectKey::of(&cluster.metadata);
        let deployment = naming::of::machine_deployment(&cluster.name_any(), &pool.name);
        let Some(deployment) = self.deployments.get(&here.sibling(deployment)) else {
            return Ok(None);
        };
        let reference = &deployment.spec.template.spec.infrastructure_ref;
        if reference.kind != resource.kind || reference.api_group != resource.group {
            return Ok(None);
        }
        if let Some(template) = cache.get(&here.sibling(&reference.name)) {
            return Ok(Some(template));
        }
        // A cache may lag; taking a template for absent replaces machines.
        let namespace = cluster.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(self.ctx.client.clone(), &namespace, &resource);
        let found = api.get_opt(&reference.name).await;
        let found =
            found.map_err(Error::api("read", format!("{} {namespace}/{}", resource.kind, reference.name)))?;
        Ok(found.map(Arc::new))
    }

    /// Namespace and name of a credential, if it is not there.
    async fn missing_credential(
        &self,
        cluster: &Cluster,
        reference: &str,
    ) -> Result<Option<(String, String)>, Error> {
        if reference.is_empty() {
            return Ok(None);
        }
        let here = cluster.namespace().unwrap_or_default();
        let (namespace, secret) = naming::credential(&here, reference);
        if self.secrets.get(&ObjectKey::namespaced(namespace, secret)).is_some() {
            return Ok(None);
        }
        // A cache may lag; nobody is told of a credential that is there.
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
        let found = secrets.get_metadata_opt(secret).await;
        let found = found.map_err(Error::api("read", format!("secrets {namespace}/{secret}")))?;
        Ok(found.is_none().then(|| (namespace.to_owned(), secret.to_owned())))
    }

    /// Makes a configuration ours, so that it goes with the cluster, or everybody's.
    pub(super) async fn adopt(&self, adoption: &Adoption) -> Result<(), Error> {
        let meta = &adoption.config.metadata;
        let mut patch = json!({"metadata": {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "ownerReferences": adoption.owners,
        }});
        if adoption.shared {
            patch["metadata"]["annotations"][SHARED] = "true".into();
        }
        let key = ObjectKey::of(meta);
        let api = object_set::api(&self.ctx.client, &adoption.resource, key.namespace.as_deref());
        let written = api.patch(&key.name, &self.params(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(Error::api("own", format!("{} {key}", adoption.resource.kind)))
    }
}

fn collect<K: Cached + Resource<DynamicType = ()>>(
    cache: &Informer<K>,
    set: &ObjectSet,
    wanted: &BTreeSet<(String, ObjectKey)>,
    unwanted: &mut Vec<(ApiResource, ObjectMeta)>,
) {
    let resource = cache.kind().api_resource();
    for object in set.members(cache) {
        let key = (resource.kind.clone(), ObjectKey::of(object.meta()));
        if set.prunes(object.meta()) && !wanted.contains(&key) {
            unwanted.push((resource.clone(), object.meta().clone()));
        }
    }
}
