//! IPAddress: what a claim was given. It has the name of its claim and goes with it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PostParams, Preconditions},
};
use remuda_api::ipam::{IpAddress, IpAddressClaim, IpAddressSpec, NameReference};
use remuda_control::{
    ObjectKey,
    write::{controller_of, owner_reference, remove_finalizer},
};
use remuda_names::capi::{finalizer, group, label};
use remuda_rollout::addresses::Pool;
use serde_json::json;

use super::{Ipam, SomePool};
use crate::{
    Error,
    error::is_code,
    managed::{ensure_owner, group_of},
};

/// Whose an IPAddress is that has the name of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The claim's, or made for it by hand or by a move.
    Ours,
    /// Of an earlier claim of that name, which is gone.
    Earlier,
    /// Of something else.
    Other,
}

pub(super) fn whose(address: &IpAddress, claim: &IpAddressClaim) -> Whose {
    let fits = address.spec.pool_ref == claim.spec.pool_ref;
    match controller_of(&address.metadata) {
        Some(owner)
            if owner.kind != IpAddressClaim::kind(&()) || group_of(&owner.api_version) != group::IPAM =>
        {
            Whose::Other
        }
        Some(owner) if Some(&owner.uid) != claim.metadata.uid.as_ref() => Whose::Earlier,
        _ if fits && address.spec.claim_ref.name == claim.name_any() => Whose::Ours,
        _ => Whose::Other,
    }
}

fn owner_of(pool: &SomePool) -> OwnerReference {
    OwnerReference {
        api_version: format!("{}/{}", group::IPAM, remuda_api::ipam::InClusterIpPool::version(&())),
        kind: pool.kind.clone(),
        name: pool.meta.name.clone().unwrap_or_default(),
        uid: pool.meta.uid.clone().unwrap_or_default(),
        controller: Some(false),
        block_owner_deletion: Some(true),
    }
}

/// What an address says of itself beside its spec.
fn dress(meta: &mut ObjectMeta, claim: &IpAddressClaim, pool: &SomePool) -> Result<(), Error> {
    let owners = meta.owner_references.get_or_insert_default();
    ensure_owner(owners, owner_reference(claim, &())?);
    ensure_owner(owners, owner_of(pool));
    if let Some(cluster) = claim.labels().get(label::CLUSTER_NAME) {
        meta.labels.get_or_insert_default().insert(label::CLUSTER_NAME.to_owned(), cluster.clone());
    }
    let finalizers = meta.finalizers.get_or_insert_default();
    // What is being deleted takes no new finalizers.
    if meta.deletion_timestamp.is_none()
        && !finalizers.iter().any(|known| known == finalizer::PROTECT_ADDRESS)
    {
        finalizers.push(finalizer::PROTECT_ADDRESS.to_owned());
    }
    Ok(())
}

impl Ipam {
    pub(super) fn address_api(&self, claim: &ObjectKey) -> Api<IpAddress> {
        Api::namespaced(self.client(), claim.namespace.as_deref().unwrap_or_default())
    }

    /// Makes the address of a claim. There may be one of its name by now: that is a conflict, and looked at anew.
    pub(super) async fn create_address(
        &self,
        claim: &IpAddressClaim,
        pool: &SomePool,
        usable: &Pool,
        address: std::net::IpAddr,
    ) -> Result<IpAddress, Error> {
        let key = ObjectKey::of(&claim.metadata);
        let mut wanted = IpAddress::named(&key.name);
        wanted.metadata.namespace = claim.metadata.namespace.clone();
        dress(&mut wanted.metadata, claim, pool)?;
        wanted.spec = IpAddressSpec {
            claim_ref: NameReference { name: key.name.to_string() },
            pool_ref: claim.spec.pool_ref.clone(),
            address: address.to_string(),
            prefix: Some(usable.prefix),
            gateway: usable.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
        };
        let manager = Some(self.capi.ctx.field_manager.to_string());
        let params = PostParams { field_manager: manager, ..PostParams::default() };
        let created = self.address_api(&key).create(&params, &wanted).await;
        let created = created.map_err(Error::api("create", format!("IPAddress {key}")))?;
        self.addresses.wait_seen(Some(&created)).await;
        Ok(created)
    }

    /// Owners, label and finalizer of an address that is there.
    pub(super) async fn keep_address(
        &self,
        address: &IpAddress,
        claim: &IpAddressClaim,
        pool: &SomePool,
    ) -> Result<(), Error> {
        let mut after = address.metadata.clone();
        dress(&mut after, claim, pool)?;
        let before = &address.metadata;
        if (&after.owner_references, &after.labels, &after.finalizers)
            == (&before.owner_references, &before.labels, &before.finalizers)
        {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "uid": before.uid, "resourceVersion": before.resource_version, "labels": after.labels,
            "ownerReferences": after.owner_references, "finalizers": after.finalizers,
        }});
        let key = ObjectKey::of(before);
        let written = self.address_api(&key).patch(&key.name, &self.params(), &Patch::Merge(patch)).await;
        let written = written.map_err(Error::api("write", format!("IPAddress {key}")))?;
        self.addresses.wait_seen(Some(&written)).await;
        Ok(())
    }

    /// Gives an address back: nothing keeps it any more, and it is deleted.
    pub(super) async fn drop_address(&self, address: &IpAddress) -> Result<(), Error> {
        let key = ObjectKey::of(&address.metadata);
        let api = self.address_api(&key);
        remove_finalizer(&api, address, &(), finalizer::PROTECT_ADDRESS).await?;
        let preconditions = Some(Preconditions { uid: address.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match api.delete(&key.name, &params).await {
            Ok(_) => Ok(()),
            // Gone already, or another one by now.
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(source) => Err(Error::api("delete", format!("IPAddress {key}"))(source)),
        }
    }
}
