//! Addresses for claims: `InClusterIPPool` and `GlobalInClusterIPPool`, as the in-cluster provider of Cluster API has them.
//!
//! Claims of other kinds of pools are left to their providers. What is decided is in `remuda_rollout::addresses`.

mod address;
mod claim;
mod pool;

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::object::{HasSpec, HasStatus},
};
use remuda_api::{
    core::ContractReference,
    ipam::{
        GlobalInClusterIpPool, InClusterIpPool, InClusterIpPoolSpec, InClusterIpPoolStatus, IpAddress,
        IpAddressClaim,
    },
};
use remuda_control::{Chain, Informer, Kind, ObjectKey, Scope};
use remuda_names::{
    annotation::PROMISED_ADDRESSES,
    capi::{annotation, group, label},
};
use remuda_rollout::addresses::{Given, Pool, Promises, Spec, Unreadable};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Capi, Error, managed::cluster_value};

/// Claims and addresses are filed by this name under the key of their pool.
const BY_POOL: &str = "ip-pool";
/// Claims are filed by this name under [`cluster_value`] of the Cluster they belong to.
const BY_CLUSTER: &str = "ip-claim-cluster";

/// When the definition is asked for again after an error.
const AGAIN: Duration = Duration::from_secs(1);

/// What both controllers share.
struct Ipam {
    capi: Arc<Capi>,
    claims: Informer<IpAddressClaim>,
    addresses: Informer<IpAddress>,
    pools: Informer<InClusterIpPool>,
    global: Informer<GlobalInClusterIpPool>,
}

/// Whether another provider serves these kinds: it keeps several versions of its pools, which it converts itself. Two
/// that answer one claim would give addresses twice.
async fn is_served_by_another(capi: &Capi, stop: &CancellationToken) -> bool {
    let name = Kind::of::<InClusterIpPool>(&()).crd_name();
    let definitions: Api<CustomResourceDefinition> = Api::all(capi.ctx.client.clone());
    loop {
        match definitions.get_opt(&name).await {
            Ok(found) => {
                let conversion = found.and_then(|found| found.spec.conversion);
                return conversion.is_some_and(|conversion| conversion.strategy == "Webhook");
            }
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "definition of address pools not read");
                if stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await.is_none() {
                    return true;
                }
            }
        }
    }
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    if is_served_by_another(&capi, &stop).await {
        tracing::info!("claims of addresses are left to the provider that is installed for them");
        return stop.cancelled().await;
    }
    let informers = &capi.ctx.informers;
    let ipam = Arc::new(Ipam {
        claims: informers.of(Scope::all()),
        addresses: informers.of(Scope::all()),
        pools: informers.of(Scope::all()),
        global: informers.of(Scope::all()),
        capi,
    });
    ipam.claims.add_index(BY_POOL, |claim| filed(&claim.metadata, &claim.spec.pool_ref));
    ipam.claims.add_index(BY_CLUSTER, |claim| {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        cluster_of(claim).map(|name| cluster_value(namespace, name)).into_iter().collect()
    });
    ipam.addresses.add_index(BY_POOL, |address| filed(&address.metadata, &address.spec.pool_ref));
    tokio::join!(
        claim::run(ipam.clone(), stop.clone()),
        pool::run::<InClusterIpPool>("ip-pool", ipam.clone(), stop.clone()),
        pool::run::<GlobalInClusterIpPool>("global-ip-pool", ipam, stop),
    );
}

fn filed(meta: &ObjectMeta, reference: &ContractReference) -> Vec<String> {
    pool_key(meta, reference).map(|key| key.to_string()).into_iter().collect()
}

/// The pool that is referred to, if it is one of ours. Pools of a namespace have one in their key, the others none.
fn pool_key(meta: &ObjectMeta, reference: &ContractReference) -> Option<ObjectKey> {
    let ContractReference { api_group, kind, name } = reference;
    if api_group != group::IPAM || name.is_empty() {
        return None;
    }
    if *kind == InClusterIpPool::kind(&()) {
        return Some(ObjectKey::of(meta).sibling(name));
    }
    (*kind == GlobalInClusterIpPool::kind(&())).then(|| ObjectKey::cluster_wide(name))
}

/// The Cluster a claim belongs to: by its field, or as it was done before there was one.
fn cluster_of(claim: &IpAddressClaim) -> Option<&str> {
    let labelled = claim.metadata.labels.as_ref().and_then(|labels| labels.get(label::CLUSTER_NAME));
    match claim.spec.cluster_name.as_str() {
        "" => labelled.map(String::as_str).filter(|name| !name.is_empty()),
        name => Some(name),
    }
}

fn is_paused(meta: &ObjectMeta) -> bool {
    meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(annotation::PAUSED))
}

/// A kind of pool.
trait IpPool:
    Resource<DynamicType = ()>
    + HasSpec<Spec = InClusterIpPoolSpec>
    + HasStatus<Status = InClusterIpPoolStatus>
    + Clone
    + Debug
    + PartialEq
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    fn is_namespaced() -> bool;
    fn api(client: Client, namespace: Option<&str>) -> Api<Self>;
}

impl IpPool for InClusterIpPool {
    fn is_namespaced() -> bool {
        true
    }

    fn api(client: Client, namespace: Option<&str>) -> Api<Self> {
        Api::namespaced(client, namespace.unwrap_or_default())
    }
}

impl IpPool for GlobalInClusterIpPool {
    fn is_namespaced() -> bool {
        false
    }

    fn api(client: Client, _: Option<&str>) -> Api<Self> {
        Api::all(client)
    }
}

/// A pool of either kind, as it was read.
struct SomePool {
    kind: String,
    meta: ObjectMeta,
    spec: InClusterIpPoolSpec,
}

impl SomePool {
    fn of<K: IpPool>(pool: &K) -> Self {
        Self { kind: K::kind(&()).into_owned(), meta: pool.meta().clone(), spec: pool.spec().clone() }
    }

    fn promises(&self) -> Result<Promises, Unreadable> {
        promises(&self.meta)
    }
}

fn promises(meta: &ObjectMeta) -> Result<Promises, Unreadable> {
    let written = meta.annotations.as_ref().and_then(|annotations| annotations.get(PROMISED_ADDRESSES));
    Promises::read(written.map(String::as_str))
}

fn spec_of(spec: &InClusterIpPoolSpec) -> Spec {
    Spec {
        addresses: spec.addresses.clone(),
        excluded: spec.excluded_addresses.clone(),
        prefix: spec.prefix,
        gateway: spec.gateway.clone(),
        reserved: spec.allocate_reserved_ip_addresses,
    }
}

fn given<'a>(addresses: impl IntoIterator<Item = &'a IpAddress>) -> Vec<Given> {
    let one = |address: &IpAddress| Given {
        namespace: address.namespace().unwrap_or_default(),
        name: address.name_any(),
        address: address.spec.address.parse().ok(),
    };
    addresses.into_iter().map(one).collect()
}

impl Ipam {
    fn now(&self) -> Timestamp {
        self.capi.ctx.clock.now()
    }

    fn client(&self) -> Client {
        self.capi.ctx.client.clone()
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.capi.ctx.field_manager.to_string()), ..PatchParams::default() }
    }

    /// A pool as the cache has it.
    fn known(&self, key: &ObjectKey) -> Option<SomePool> {
        match key.namespace {
            Some(_) => self.pools.get(key).map(|pool| SomePool::of(&*pool)),
            None => self.global.get(key).map(|pool| SomePool::of(&*pool)),
        }
    }

    /// Addresses of a pool as the cache has them.
    fn known_given(&self, key: &ObjectKey) -> Vec<Given> {
        let addresses = self.addresses.by_index(BY_POOL, &key.to_string());
        given(addresses.iter().map(|address| &**address))
    }

    async fn read(&self, key: &ObjectKey) -> Result<Option<SomePool>, Error> {
        match key.namespace {
            Some(_) => self.read_as::<InClusterIpPool>(key).await,
            None => self.read_as::<GlobalInClusterIpPool>(key).await,
        }
    }

    async fn read_as<K: IpPool>(&self, key: &ObjectKey) -> Result<Option<SomePool>, Error> {
        let found = K::api(self.client(), key.namespace.as_deref()).get_opt(&key.name).await;
        let found = found.map_err(Error::api("read", format!("{} {key}", K::kind(&()))))?;
        Ok(found.map(|pool| SomePool::of(&pool)))
    }

    /// Addresses of a pool as the server has them.
    async fn read_addresses(&self, key: &ObjectKey) -> Result<Vec<IpAddress>, Error> {
        let api: Api<IpAddress> = match &key.namespace {
            Some(namespace) => Api::namespaced(self.client(), namespace),
            None => Api::all(self.client()),
        };
        let list = api.list(&ListParams::default()).await.map_err(Error::api("list", "IPAddresses"))?;
        let mut found = list.items;
        found.retain(|address| pool_key(&address.metadata, &address.spec.pool_ref).as_ref() == Some(key));
        Ok(found)
    }

    /// Writes what is promised, on the condition that the pool is as it was read.
    async fn write_promises(
        &self,
        key: &ObjectKey,
        read: &ObjectMeta,
        promises: &Promises,
    ) -> Result<(), Error> {
        match key.namespace {
            Some(_) => self.write_promises_as::<InClusterIpPool>(key, read, promises).await,
            None => self.write_promises_as::<GlobalInClusterIpPool>(key, read, promises).await,
        }
    }

    async fn write_promises_as<K: IpPool>(
        &self,
        key: &ObjectKey,
        read: &ObjectMeta,
        promises: &Promises,
    ) -> Result<(), Error> {
        let patch = json!({"metadata": {
            "uid": read.uid,
            "resourceVersion": read.resource_version,
            "annotations": {PROMISED_ADDRESSES: promises.text()},
        }});
        let api = K::api(self.client(), key.namespace.as_deref());
        let written = api.patch(&key.name, &self.params(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(Error::api("write promises of", format!("{} {key}", K::kind(&()))))
    }

    /// The pool, if its parts fit together. Admission sees to that; a pool may be older than its rules.
    fn usable(pool: &SomePool) -> Option<Pool> {
        Pool::read(&spec_of(&pool.spec)).ok()
    }
}
