//! The objects a cluster is made of.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource, ResourceExt,
    core::{ApiResource, DynamicObject},
};
use remuda_api::{
    core::{self, ContractReference},
    management::DynamicSchemaSpec,
    provisioning::{Cluster, MachinePool, RkeConfig},
    rke::{
        BootstrapTemplate, RkeBootstrapSpec, RkeBootstrapTemplate, RkeBootstrapTemplateSpec, RkeCluster,
        RkeControlPlane, RkeControlPlaneSpec,
    },
};
use remuda_control::write::{controller_of, owner_reference};
use remuda_names::{
    provisioning::annotation::{
        HIBERNATE, HIBERNATE_WITHOUT_SNAPSHOT, MAINTENANCE_WINDOW, PENDING_CONFIG, ROTATE_CERTIFICATES,
        ROTATE_KEYS_WITHOUT_SNAPSHOT, SHARED,
    },
    rancher::{annotation, group, label},
};

use super::{
    pool,
    problem::Problem,
    template::{self, Source, Stamped},
    update::{Census, Pending},
};
use crate::{Error, archive, naming, object_set::Child};

/// Everything the objects of a cluster depend on.
pub(super) struct View<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) config: &'a RkeConfig,
    /// Name of the management Cluster.
    pub(super) management: &'a str,
    pub(super) control_plane: Option<&'a RkeControlPlane>,
    /// Since when the cluster is to be stopped; empty if it is to run.
    pub(super) hibernate: &'a str,
    /// What was found for each pool, by its name.
    pub(super) pools: &'a BTreeMap<String, PoolView>,
}

/// What was found for a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolView {
    pub(super) config: Config,
    /// The template the MachineDeployment refers to.
    pub(super) template: Option<Arc<DynamicObject>>,
    /// Namespace and name of a credential that is not there.
    pub(super) missing_credential: Option<(String, String)>,
    pub(super) census: Census,
}

/// Where machines of a pool are described.
#[derive(Debug, Clone, Default)]
pub(super) enum Config {
    /// In a template of another provider.
    #[default]
    Foreign,
    NotServed,
    Missing,
    Found(Arc<DynamicObject>),
}

/// What to write.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// In the order in which they are applied.
    pub(super) children: Vec<Child>,
    /// Configurations that become ours, with the owners they then have.
    pub(super) adoptions: Vec<Adoption>,
    /// Edits of configurations that do not reach machines.
    pub(super) pending: Vec<Pending>,
}

/// A change of whose a configuration is.
#[derive(Debug)]
pub(super) struct Adoption {
    pub(super) resource: ApiResource,
    pub(super) config: Arc<DynamicObject>,
    pub(super) owners: Vec<OwnerReference>,
    /// It is to be known as shared.
    pub(super) shared: bool,
}

/// The pools whose description is ours, with the kind of their configurations.
pub(super) fn driver_pools(config: &RkeConfig) -> impl Iterator<Item = (&MachinePool, &str)> {
    config.machine_pools.iter().filter_map(|pool| Some((pool, template::config_kind(pool)?)))
}

/// What the driver of a pool could do when the pool was made; `None` if that is not known yet.
pub(super) fn schema(pool: &MachinePool) -> Option<DynamicSchemaSpec> {
    serde_json::from_str(&pool.dynamic_schema_spec).ok().filter(|_| !pool.dynamic_schema_spec.is_empty())
}

pub(super) fn build(view: &View<'_>) -> Result<Graph, Error> {
    let mut graph = Graph::default();
    let infrastructure = infrastructure(view, &mut graph)?;
    graph.children.push(Child::new(&control_plane(view)?)?);
    graph.children.push(Child::new(&capi_cluster(view, &infrastructure)?)?);
    let ours = infrastructure.api_group == group::RKE;
    if ours && !view.config.machine_pools.is_empty() {
        let name = naming::of::bootstrap_template(&view.cluster.name_any());
        graph.children.push(Child::new(&bootstrap_template(view, &name, None))?);
    }
    for pool in &view.config.machine_pools {
        add_pool(view, pool, ours, &mut graph)?;
    }
    Ok(graph)
}

/// How the infrastructure is referred to; an RKECluster is made of nothing else.
fn infrastructure(view: &View<'_>, graph: &mut Graph) -> Result<ContractReference, Error> {
    let name = view.cluster.name_any();
    if let Some(reference) = &view.config.infrastructure_ref {
        let version = reference.api_version.as_deref().unwrap_or_default();
        return Ok(ContractReference {
            api_group: version.split_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: reference.kind.clone().unwrap_or_default(),
            name: reference.name.clone().unwrap_or_default(),
        });
    }
    let mut made = RkeCluster::named(&name);
    made.metadata.namespace = view.cluster.namespace();
    made.metadata.annotations = Some(carried(view.cluster, &[annotation::DELETE_MISSING_AFTER]));
    // Its endpoint is somebody else's to set.
    graph.children.push(Child::new(&made)?);
    Ok(ContractReference { api_group: group::RKE.to_owned(), kind: "RKECluster".to_owned(), name })
}

/// Annotations that are carried on, empty where there are none.
fn carried(cluster: &Cluster, keys: &[&str]) -> BTreeMap<String, String> {
    let value = |key: &str| cluster.annotations().get(key).cloned().unwrap_or_default();
    keys.iter().map(|key| ((*key).to_owned(), value(key))).collect()
}

fn control_plane(view: &View<'_>) -> Result<RkeControlPlane, Error> {
    let (cluster, config) = (view.cluster, view.config);
    let mut made = RkeControlPlane::named(&cluster.name_any());
    made.metadata.namespace = cluster.namespace();
    let pinned = cluster.labels().get(label::INIT_NODE_MACHINE_ID).cloned().unwrap_or_default();
    made.metadata.labels = Some(BTreeMap::from([(label::INIT_NODE_MACHINE_ID.to_owned(), pinned)]));
    let keys = [
        annotation::PRIME,
        MAINTENANCE_WINDOW,
        ROTATE_CERTIFICATES,
        ROTATE_KEYS_WITHOUT_SNAPSHOT,
        HIBERNATE_WITHOUT_SNAPSHOT,
    ];
    let mut annotations = carried(cluster, &keys);
    annotations.insert(HIBERNATE.to_owned(), view.hibernate.to_owned());
    let known = view.control_plane.and_then(|known| known.annotations().get(annotation::CLUSTER_SPEC));
    let encode = |source| Error::Encode { what: "the spec of a cluster", source };
    let packed = archive::packed(&cluster.spec, known.map(String::as_str)).map_err(encode)?;
    annotations.insert(annotation::CLUSTER_SPEC.to_owned(), packed);
    made.metadata.annotations = Some(annotations);
    made.spec = RkeControlPlaneSpec {
        agent_env_vars: cluster.spec.agent_env_vars.clone(),
        local_cluster_auth_endpoint: cluster.spec.local_cluster_auth_endpoint.clone(),
        etcd_snapshot_create: config.etcd_snapshot_create.clone(),
        etcd_snapshot_restore: config.etcd_snapshot_restore.clone(),
        rotate_certificates: config.rotate_certificates.clone(),
        rotate_encryption_keys: config.rotate_encryption_keys.clone(),
        kubernetes_version: cluster.spec.kubernetes_version.clone(),
        cluster_name: cluster.name_any(),
        management_cluster_name: view.management.to_owned(),
        unmanaged_config: false,
        config: config.config.clone(),
    };
    Ok(made)
}

fn capi_cluster(view: &View<'_>, infrastructure: &ContractReference) -> Result<core::Cluster, Error> {
    let name = view.cluster.name_any();
    let control_plane_ref = ContractReference {
        api_group: group::RKE.to_owned(),
        kind: "RKEControlPlane".to_owned(),
        name: name.clone(),
    };
    // Whether the cluster is paused is not said here: others say it.
    let spec = core::ClusterSpec {
        infrastructure_ref: infrastructure.clone(),
        control_plane_ref,
        ..core::ClusterSpec::default()
    };
    let mut made = core::Cluster::new(&name, spec);
    made.metadata.namespace = view.cluster.namespace();
    made.metadata.owner_references = Some(vec![owner_reference(view.cluster, &())?]);
    let paused = view.cluster.annotations().get(annotation::AUTOSCALER_PAUSED);
    let paused = paused.is_some_and(|paused| !paused.is_empty());
    let scaled = view.config.machine_pools.iter();
    let scaled =
        scaled.filter(|pool| pool.autoscaling_min_size.is_some() && pool.autoscaling_max_size.is_some());
    let mark = match (paused, scaled.count()) {
        (true, _) => Some(annotation::AUTOSCALER_PAUSED),
        (false, 0) => None,
        (false, _) => Some(annotation::AUTOSCALER_ENABLED),
    };
    made.metadata.annotations = mark.map(|mark| BTreeMap::from([(mark.to_owned(), "true".to_owned())]));
    Ok(made)
}

fn bootstrap_template(view: &View<'_>, name: &str, pool: Option<&MachinePool>) -> RkeBootstrapTemplate {
    let cluster = view.cluster.name_any();
    let mut made = RkeBootstrapTemplate::named(name);
    made.metadata.namespace = view.cluster.namespace();
    made.metadata.labels = Some(BTreeMap::from([(label::CLUSTER_NAME.to_owned(), cluster.clone())]));
    let userdata = pool.and_then(|pool| pool.userdata.clone());
    let spec = RkeBootstrapSpec { cluster_name: cluster.clone(), userdata };
    let template = BootstrapTemplate { spec, ..BootstrapTemplate::default() };
    made.spec = RkeBootstrapTemplateSpec { cluster_name: cluster, template };
    made
}

fn add_pool(view: &View<'_>, pool: &MachinePool, ours: bool, graph: &mut Graph) -> Result<(), Error> {
    let cluster = view.cluster.name_any();
    let deployment = naming::of::machine_deployment(&cluster, &pool.name);
    let bootstrap = if ours {
        naming::of::bootstrap_template(&cluster)
    } else {
        let userdata = pool.userdata.as_ref().map(|userdata| userdata.inline_userdata.as_str());
        let content = format!("{deployment}{}", userdata.unwrap_or_default());
        let name = naming::safe_concat_name(&[&deployment, &naming::sha256_hex(content.as_bytes(), 8)]);
        graph.children.push(Child::new(&bootstrap_template(view, &name, Some(pool)))?);
        name
    };
    let infrastructure = match template::config_kind(pool) {
        Some(kind) => add_template(view, pool, &deployment, kind, graph)?,
        None => foreign_template(pool),
    };
    let bootstrap = ContractReference {
        api_group: group::RKE.to_owned(),
        kind: "RKEBootstrapTemplate".to_owned(),
        name: bootstrap,
    };
    let templates = pool::Templates { bootstrap, infrastructure };
    let mut made = pool::deployment(view.cluster, pool, templates)?;
    if let Some(pending) = graph.pending.iter().find(|pending| pending.pool == pool.name) {
        let annotations = made.metadata.annotations.get_or_insert_default();
        annotations.insert(PENDING_CONFIG.to_owned(), pending.annotation());
    }
    graph.children.push(Child::new(&made)?);
    if let Some(check) = pool::health_check(view.cluster, pool)? {
        graph.children.push(Child::new(&check)?);
    }
    Ok(())
}

fn foreign_template(pool: &MachinePool) -> ContractReference {
    let reference = pool.machine_config_ref.clone().unwrap_or_default();
    let version = reference.api_version.unwrap_or_default();
    ContractReference {
        api_group: version.split_once('/').map_or("", |(group, _)| group).to_owned(),
        kind: reference.kind.unwrap_or_default(),
        name: reference.name.unwrap_or_default(),
    }
}

fn add_template(
    view: &View<'_>,
    pool: &MachinePool,
    deployment: &str,
    kind: &str,
    graph: &mut Graph,
) -> Result<ContractReference, Error> {
    let found = view.pools.get(&pool.name).cloned().unwrap_or_default();
    let namespace = view.cluster.namespace().unwrap_or_default();
    let name =
        pool.machine_config_ref.as_ref().and_then(|reference| reference.name.clone()).unwrap_or_default();
    let pool_name = || pool.name.clone();
    let config = match found.config {
        Config::Found(config) => config,
        Config::NotServed => return Err(Problem::NoKind { pool: pool_name(), kind: kind.to_owned() }.into()),
        Config::Missing | Config::Foreign => {
            return Err(
                Problem::NoConfig { pool: pool_name(), kind: kind.to_owned(), namespace, name }.into()
            );
        }
    };
    if let Some((namespace, name)) = found.missing_credential {
        return Err(Problem::NoCredential { pool: pool_name(), namespace, name }.into());
    }
    let resource = template::resource(group::MACHINE_CONFIG, kind);
    graph.adoptions.extend(adopt(view.cluster, &config, resource)?);
    let schema = schema(pool).unwrap_or_default();
    let source = Source {
        cluster: view.cluster,
        pool,
        deployment,
        config: &config,
        config_kind: kind,
        schema: &schema,
        current: found.template.as_deref(),
        census: found.census,
    };
    let Stamped { child, reference, pending } = source.template()?;
    graph.children.push(child);
    graph.pending.extend(pending);
    Ok(reference)
}

/// Makes a configuration ours, so that it goes with the cluster, unless it is shared: one that is marked so, or that
/// another cluster uses as well, belongs to no cluster, so that it goes with none. `None` if all is as it should be.
fn adopt(
    cluster: &Cluster,
    config: &Arc<DynamicObject>,
    resource: ApiResource,
) -> Result<Option<Adoption>, Error> {
    let us = owner_reference(cluster, &())?;
    let known = config.metadata.owner_references.clone().unwrap_or_default();
    let provisioned = |owner: &&OwnerReference| {
        owner.kind == us.kind
            && owner.api_version.split_once('/').is_some_and(|(group, _)| group == Cluster::group(&()))
    };
    let marked = config.annotations().get(SHARED).is_some_and(|shared| shared == "true");
    let shared = marked || known.iter().filter(provisioned).any(|owner| owner.name != us.name);
    let is_ours = known.iter().any(|owner| owner.uid == us.uid);
    let done = if shared { marked && !known.iter().any(|owner| provisioned(&owner)) } else { is_ours };
    if done {
        return Ok(None);
    }
    let other = controller_of(&config.metadata).filter(|owner| !provisioned(owner));
    if let Some(other) = other {
        let owner = format!("{} {}", other.kind, other.name);
        return Err(Problem::Controlled { kind: resource.kind, name: config.name_any(), owner }.into());
    }
    // A predecessor of our name is gone, and its reference with it.
    let mut owners: Vec<OwnerReference> = known.iter().filter(|owner| !provisioned(owner)).cloned().collect();
    if !shared {
        owners.push(us);
    }
    Ok(Some(Adoption { resource, config: config.clone(), owners, shared }))
}

#[cfg(test)]
mod tests;
