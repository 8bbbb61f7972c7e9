//! IPAddressClaim: is answered with an IPAddress of its name, and gives it back when it goes.
//!
//! Reads   the claim, its Cluster, its pool and all IPAddresses of that.
//! Writes  the IPAddress, what is promised of the pool, and the claim's finalizer and status.
//! Never   touches a claim of a kind of pools that is not ours, or changes an address that was given.

use std::{sync::Arc, time::Duration};

use kube::{Api, ResourceExt};
use remuda_api::ipam::{IpAddress, IpAddressClaim, NameReference};
use remuda_control::{
    Action, Controller, ObjectKey, drive,
    write::{
        Finalizer,
        conditions::{ConditionUpdate, set},
        ensure_finalizer, remove_finalizer, write_status,
    },
};
use remuda_names::{
    capi::{annotation, claim_reason, condition, finalizer},
    machines::finalizer::ADDRESS as IN_USE,
};
use remuda_rollout::addresses::{Answer, Claim, answer};
use tokio_util::sync::CancellationToken;

use super::{
    BY_CLUSTER, BY_POOL, Ipam, SomePool,
    address::{Whose, whose},
    cluster_of, given, is_paused, pool_key,
};
use crate::{Error, managed::cluster_value};

/// Why a claim has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Waiting {
    #[error("Cluster {0} does not exist")]
    NoCluster(String),
    #[error("{kind} {name} does not exist")]
    NoPool { kind: String, name: String },
    #[error("{kind} {name} is being deleted")]
    PoolGoes { kind: String, name: String },
    #[error("addresses, prefix and gateway of {kind} {name} do not fit together")]
    PoolOdd { kind: String, name: String },
    #[error("annotation {} of {kind} {name} cannot be read", remuda_names::annotation::PROMISED_ADDRESSES)]
    PromisesOdd { kind: String, name: String },
    #[error("no address is free in {kind} {name}")]
    Exhausted { kind: String, name: String },
    #[error("there is an IPAddress {0}, and it is not of this claim")]
    Taken(String),
}

impl Waiting {
    fn reason(&self) -> &'static str {
        match self {
            Self::NoPool { .. } | Self::PoolGoes { .. } | Self::PoolOdd { .. } => {
                claim_reason::POOL_NOT_READY
            }
            Self::Exhausted { .. } => claim_reason::POOL_EXHAUSTED,
            Self::NoCluster(_) | Self::PromisesOdd { .. } | Self::Taken(_) => claim_reason::ALLOCATION_FAILED,
        }
    }
}

/// What came of looking for an address.
enum Found {
    Address(String),
    Waiting(Waiting),
    /// It is left as it is: paused, or woken soon by what was just done.
    Nothing,
}

pub(super) async fn run(ipam: Arc<Ipam>, stop: CancellationToken) {
    let claims = ipam.claims.clone();
    let (of_cluster, of_pool, of_global) = (claims.clone(), claims.clone(), claims.clone());
    // One at a time: claims of one pool would only get into each other's way.
    let controller = Controller::<IpAddressClaim>::new("ip-address-claim", &ipam.capi.ctx)
        .workers(1)
        .requires(&ipam.addresses)
        .watches_facts(
            &ipam.capi.clusters,
            |cluster| (cluster.metadata.uid.clone(), cluster.spec.paused, is_paused(&cluster.metadata)),
            move |cluster| {
                let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
                of_cluster.keys_by_index(BY_CLUSTER, &cluster_value(namespace, &cluster.name_any()))
            },
        )
        .watches_facts(
            &ipam.pools,
            |pool| (pool.spec.clone(), news(&pool.metadata)),
            move |pool| of_pool.keys_by_index(BY_POOL, &ObjectKey::of(&pool.metadata).to_string()),
        )
        .watches_facts(
            &ipam.global,
            |pool| (pool.spec.clone(), news(&pool.metadata)),
            move |pool| of_global.keys_by_index(BY_POOL, &ObjectKey::of(&pool.metadata).to_string()),
        );
    let enqueuer = controller.enqueuer();
    let of_addresses = ipam.addresses.subscribe(move |change| {
        let Some(address) = change.object().filter(|_| !change.initial) else { return };
        enqueuer.enqueue(ObjectKey::of(&address.metadata));
        let pool = pool_key(&address.metadata, &address.spec.pool_ref).filter(|_| change.is_delete());
        // An address is free again.
        for claim in pool.map(|pool| claims.by_index(BY_POOL, &pool.to_string())).unwrap_or_default() {
            if !has_address(&claim) {
                enqueuer.enqueue(ObjectKey::of(&claim.metadata));
            }
        }
    });
    drive(controller, reconcile, ipam, stop).await;
    drop(of_addresses);
}

/// What claims look at in their pool beside its spec.
fn news(meta: &kube::core::ObjectMeta) -> (Option<String>, bool, bool, Option<String>) {
    let annotations = meta.annotations.as_ref();
    let promised = annotations.and_then(|known| known.get(remuda_names::annotation::PROMISED_ADDRESSES));
    (meta.uid.clone(), meta.deletion_timestamp.is_some(), is_paused(meta), promised.cloned())
}

fn has_address(claim: &IpAddressClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| !status.address_ref.name.is_empty())
}

async fn reconcile(claim: Arc<IpAddressClaim>, ipam: Arc<Ipam>) -> Result<Action, Error> {
    let Some(pool) = pool_key(&claim.metadata, &claim.spec.pool_ref) else {
        return Ok(Action::AwaitChange);
    };
    let deleting = claim.metadata.deletion_timestamp.is_some();
    let api: Api<IpAddressClaim> = Api::namespaced(ipam.client(), &claim.namespace().unwrap_or_default());
    match ipam.cluster(&claim) {
        _ if is_paused(&claim.metadata) => return Ok(Action::AwaitChange),
        Some(Err(missing)) if !deleting => {
            return ipam.tell(&api, &claim, Found::Waiting(Waiting::NoCluster(missing))).await;
        }
        Some(Ok(true)) => return Ok(Action::AwaitChange),
        _ => {}
    }
    match ensure_finalizer(&api, (*claim).clone(), &(), finalizer::RELEASE_ADDRESS).await? {
        Finalizer::Active(claim) => {
            let found = ipam.find(&pool, &claim).await?;
            ipam.tell(&api, &claim, found).await
        }
        Finalizer::Deleting(claim) => ipam.release(&api, &pool, &claim).await,
        Finalizer::Gone => Ok(Action::AwaitChange),
    }
}

impl Ipam {
    /// Whether the Cluster of a claim is paused, or its name if it is not there. `None` if there is none.
    fn cluster(&self, claim: &IpAddressClaim) -> Option<Result<bool, String>> {
        let key = ObjectKey::of(&claim.metadata).sibling(cluster_of(claim)?);
        let Some(cluster) = self.capi.clusters.get(&key) else { return Some(Err(key.to_string())) };
        Some(Ok(cluster.spec.paused == Some(true) || cluster.annotations().contains_key(annotation::PAUSED)))
    }

    /// The address of a claim, or that it gets now.
    async fn find(&self, key: &ObjectKey, claim: &IpAddressClaim) -> Result<Found, Error> {
        let own = ObjectKey::of(&claim.metadata);
        let (kind, name) = (claim.spec.pool_ref.kind.clone(), claim.spec.pool_ref.name.clone());
        let pool = self.known(key);
        if pool.as_ref().is_some_and(|pool| is_paused(&pool.meta)) {
            return Ok(Found::Nothing);
        }
        if let Some(address) = self.addresses.get(&own)
            && let Some(found) = self.settled(&address, claim, pool.as_ref()).await?
        {
            return Ok(found);
        }
        let Some(pool) = pool else { return Ok(Found::Waiting(Waiting::NoPool { kind, name })) };
        // From what is known it can be seen that nothing is free, and that is all that is asked for as long as
        // nothing changes.
        if let Err(waiting) = pick(&pool, claim, &self.known_given(key)) {
            return Ok(Found::Waiting(waiting));
        }
        // The order matters: what is promised is read before what is given, and written if the pool has not changed.
        let Some(pool) = self.read(key).await? else {
            return Ok(Found::Waiting(Waiting::NoPool { kind, name }));
        };
        let addresses = self.read_addresses(key).await?;
        if addresses.iter().any(|address| ObjectKey::of(&address.metadata) == own) {
            // It is there, and the cache will tell.
            return Ok(Found::Nothing);
        }
        let picked = match pick(&pool, claim, &given(&addresses)) {
            Ok(picked) => picked,
            Err(waiting) => return Ok(Found::Waiting(waiting)),
        };
        if pool.promises().ok().as_ref() != Some(&picked.promises) {
            self.write_promises(key, &pool.meta, &picked.promises).await?;
        }
        let created = self.create_address(claim, &pool, &picked.usable, picked.address).await?;
        tracing::info!(claim = %own, pool = %key, address = created.spec.address, "address given");
        Ok(Found::Address(created.name_any()))
    }

    /// What an IPAddress of the claim's name means for it; `None` if it makes room.
    async fn settled(
        &self,
        address: &IpAddress,
        claim: &IpAddressClaim,
        pool: Option<&SomePool>,
    ) -> Result<Option<Found>, Error> {
        match whose(address, claim) {
            Whose::Ours => {
                if let Some(pool) = pool.filter(|pool| pool.meta.deletion_timestamp.is_none()) {
                    self.keep_address(address, claim, pool).await?;
                }
                Ok(Some(Found::Address(address.name_any())))
            }
            Whose::Earlier => {
                self.drop_address(address).await?;
                // It wakes the claim when it is gone.
                Ok(Some(Found::Nothing))
            }
            Whose::Other => Ok(Some(Found::Waiting(Waiting::Taken(address.name_any())))),
        }
    }

    async fn tell(
        &self,
        api: &Api<IpAddressClaim>,
        claim: &IpAddressClaim,
        found: Found,
    ) -> Result<Action, Error> {
        let mut status = claim.status.clone().unwrap_or_default();
        let (ready, reason, message) = match &found {
            Found::Nothing => return Ok(Action::AwaitChange),
            Found::Address(name) => {
                status.address_ref = NameReference { name: name.clone() };
                (true, claim_reason::READY, String::new())
            }
            Found::Waiting(waiting) => {
                status.address_ref = NameReference::default();
                (false, waiting.reason(), waiting.to_string())
            }
        };
        let says = ConditionUpdate {
            kind: condition::READY,
            status: Some(ready),
            reason,
            message: &message,
            generation: claim.metadata.generation,
        };
        set(&mut status.conditions, says, self.now());
        let written = write_status(&self.capi.ctx, api, claim, &status).await?;
        self.claims.wait_seen(written.as_ref()).await;
        Ok(Action::AwaitChange)
    }

    /// Gives back what the claim has.
    async fn release(
        &self,
        api: &Api<IpAddressClaim>,
        key: &ObjectKey,
        claim: &IpAddressClaim,
    ) -> Result<Action, Error> {
        let own = ObjectKey::of(&claim.metadata);
        let pool = self.known(key);
        // The server that has the address is still there.
        let in_use = claim.finalizers().iter().any(|known| known == IN_USE);
        if in_use || pool.as_ref().is_some_and(|pool| is_paused(&pool.meta)) {
            return Ok(Action::AwaitChange);
        }
        let address = self.address_api(&own).get_opt(&own.name).await;
        let address = address.map_err(Error::api("read", format!("IPAddress {own}")))?;
        if let Some(address) = address.filter(|address| whose(address, claim) != Whose::Other) {
            if let Some(rest) = pool.as_ref().and_then(|pool| self.grace(pool, claim)) {
                return Ok(Action::RequeueAfter(rest));
            }
            self.drop_address(&address).await?;
        }
        remove_finalizer(api, claim, &(), finalizer::RELEASE_ADDRESS).await?;
        Ok(Action::AwaitChange)
    }

    /// How long the address of a deleted claim is still kept from others.
    fn grace(&self, pool: &SomePool, claim: &IpAddressClaim) -> Option<Duration> {
        if pool.meta.deletion_timestamp.is_some() {
            return None;
        }
        let seconds = u64::try_from(pool.spec.address_reuse_grace_period_seconds?).ok()?;
        let since = claim.metadata.deletion_timestamp.as_ref()?.0;
        let passed = self.now().duration_since(since).unsigned_abs();
        Duration::from_secs(seconds).checked_sub(passed).filter(|rest| !rest.is_zero())
    }
}

struct Picked {
    usable: remuda_rollout::addresses::Pool,
    address: std::net::IpAddr,
    promises: remuda_rollout::addresses::Promises,
}

fn pick(
    pool: &SomePool,
    claim: &IpAddressClaim,
    given: &[remuda_rollout::addresses::Given],
) -> Result<Picked, Waiting> {
    let (kind, name) = (pool.kind.clone(), pool.meta.name.clone().unwrap_or_default());
    if pool.meta.deletion_timestamp.is_some() {
        return Err(Waiting::PoolGoes { kind, name });
    }
    let Some(usable) = Ipam::usable(pool) else { return Err(Waiting::PoolOdd { kind, name }) };
    let Ok(promises) = pool.promises() else {
        return Err(Waiting::PromisesOdd { kind, name });
    };
    let asking = Claim {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
    };
    match answer(&usable, &asking, given, &promises) {
        Answer::Give { address, promises } => Ok(Picked { usable, address, promises }),
        Answer::Exhausted => Err(Waiting::Exhausted { kind, name }),
    }
}
