//! InClusterIPPool and GlobalInClusterIPPool: counts what is given, and stays while anything is.
//!
//! Reads   the pool, its IPAddresses and the claims it has promised an address.
//! Writes  the pool's status and finalizer, takes back promises that are kept, and lets go of IPAddresses that are being
//!         deleted and whose claim is gone.
//! Never   gives an address: claims do.

use std::{collections::BTreeSet, sync::Arc};

use kube::{Api, ResourceExt};
use remuda_api::ipam::{InClusterIpPoolStatus, IpAddress, IpAddressClaim, PoolCounts};
use remuda_control::{
    Action, Controller, DEBOUNCE, ObjectKey, drive,
    write::{Finalizer, controller_of, ensure_finalizer, merge_status, remove_finalizer},
};
use remuda_names::capi::finalizer;
use remuda_rollout::addresses::Claim;
use tokio_util::sync::CancellationToken;

use super::{BY_POOL, IpPool, Ipam, SomePool, is_paused, pool_key, promises};
use crate::Error;

pub(super) async fn run<K: IpPool>(name: &'static str, ipam: Arc<Ipam>, stop: CancellationToken) {
    let of_kind = |key: &ObjectKey| key.namespace.is_some() == K::is_namespaced();
    let pool_of = move |meta: &kube::core::ObjectMeta, reference: &_| -> Vec<ObjectKey> {
        pool_key(meta, reference).filter(of_kind).into_iter().collect()
    };
    let controller = Controller::<K>::new(name, &ipam.capi.ctx)
        // Promises come and go with every claim, and what is counted is told by addresses.
        .only_when(|change| {
            let facts = |pool: &Arc<K>| {
                let meta = pool.meta();
                (pool.spec().clone(), meta.finalizers.clone(), meta.uid.clone(), is_paused(meta))
            };
            change.old.as_ref().map(facts) != change.new.as_ref().map(facts)
        })
        .watches_debounced(DEBOUNCE, &ipam.addresses, move |address| {
            pool_of(&address.metadata, &address.spec.pool_ref)
        })
        .watches_facts(
            &ipam.claims,
            |claim| claim.metadata.uid.clone(),
            move |claim| pool_of(&claim.metadata, &claim.spec.pool_ref),
        );
    let pools = controller.root().clone();
    let reconcile = move |pool: Arc<K>, ipam: Arc<Ipam>| {
        let pools = pools.clone();
        async move {
            let written = ipam.look_after(&*pool).await?;
            pools.wait_seen(written.as_ref()).await;
            Ok::<_, Error>(Action::AwaitChange)
        }
    };
    drive(controller, reconcile, ipam, stop).await;
}

impl Ipam {
    async fn look_after<K: IpPool>(&self, pool: &K) -> Result<Option<K>, Error> {
        if is_paused(pool.meta()) {
            return Ok(None);
        }
        let key = ObjectKey::of(pool.meta());
        let api = K::api(self.client(), key.namespace.as_deref());
        let addresses = self.addresses.by_index(BY_POOL, &key.to_string());
        for address in addresses.iter().filter(|address| address.metadata.deletion_timestamp.is_some()) {
            self.let_go(address).await?;
        }
        let pool = match ensure_finalizer(&api, pool.clone(), &(), finalizer::PROTECT_POOL).await? {
            Finalizer::Active(pool) => pool,
            Finalizer::Deleting(pool) => {
                // The cache may not know of the last one that was given.
                if addresses.is_empty() && self.read_addresses(&key).await?.is_empty() {
                    remove_finalizer(&api, &pool, &(), finalizer::PROTECT_POOL).await?;
                    return Ok(None);
                }
                pool
            }
            Finalizer::Gone => return Ok(None),
        };
        self.settle(&key, &pool).await?;
        let Some(usable) = Self::usable(&SomePool::of(&pool)) else { return Ok(None) };
        let given: Vec<_> = self.known_given(&key).iter().map(|given| given.address).collect();
        let counts = usable.counts(&given);
        let status = InClusterIpPoolStatus {
            ip_addresses: Some(PoolCounts {
                total: counts.total,
                free: counts.free,
                used: counts.used,
                out_of_range: counts.out_of_range,
            }),
        };
        // The status is ours alone, and promises change the pool all the time.
        Ok(merge_status(&self.capi.ctx, &api, &pool, &status).await?)
    }

    /// Takes back promises whose IPAddress is there, and those of claims that are gone.
    async fn settle<K: IpPool>(&self, key: &ObjectKey, pool: &K) -> Result<(), Error> {
        let Ok(before) = promises(pool.meta()) else { return Ok(()) };
        let mut gone = BTreeSet::new();
        for claim in before.claims() {
            if self.is_gone(claim).await? {
                gone.insert(claim.clone());
            }
        }
        let mut after = before.clone();
        after.settle(&self.known_given(key), |claim| gone.contains(claim));
        if after != before {
            self.write_promises(key, pool.meta(), &after).await?;
        }
        Ok(())
    }

    async fn is_gone(&self, claim: &Claim) -> Result<bool, Error> {
        let key = ObjectKey::namespaced(&claim.namespace, &claim.name);
        let is_it = |found: &IpAddressClaim| found.metadata.uid.as_deref() == Some(&claim.uid);
        if self.claims.get(&key).is_some_and(|found| is_it(&found)) {
            return Ok(false);
        }
        // It may be newer than the cache.
        Ok(!self.claim(&key).await?.is_some_and(|found| is_it(&found)))
    }

    async fn claim(&self, key: &ObjectKey) -> Result<Option<IpAddressClaim>, Error> {
        let api =
            Api::<IpAddressClaim>::namespaced(self.client(), key.namespace.as_deref().unwrap_or_default());
        api.get_opt(&key.name).await.map_err(Error::api("read", format!("IPAddressClaim {key}")))
    }

    /// An address that is being deleted is kept for its claim. One without a claim is let go.
    async fn let_go(&self, address: &IpAddress) -> Result<(), Error> {
        let known = address.finalizers().iter().any(|known| known == finalizer::PROTECT_ADDRESS);
        if !known {
            return Ok(());
        }
        let key = ObjectKey::of(&address.metadata);
        let owner = controller_of(&address.metadata).map(|owner| owner.uid.as_str());
        let is_of =
            |claim: &IpAddressClaim| owner.is_none_or(|uid| claim.metadata.uid.as_deref() == Some(uid));
        if self.claims.get(&key).is_some_and(|claim| is_of(&claim))
            || self.claim(&key).await?.is_some_and(|claim| is_of(&claim))
        {
            return Ok(());
        }
        let api = self.address_api(&key);
        remove_finalizer(&api, address, &(), finalizer::PROTECT_ADDRESS).await?;
        Ok(())
    }
}
