//! The address of a machine, from a pool: claimed before its server is made, and given back when that is gone.
//!
//! The claim has the name of the machine and belongs to it. A finalizer of ours keeps it until the server is removed,
//! also when it is deleted before that: an address that is in use is not given to another machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, PostParams, Preconditions},
};
use remuda_api::{
    core::ContractReference,
    ipam::{IpAddress, IpAddressClaim, IpAddressClaimSpec},
};
use remuda_control::{
    ObjectKey,
    write::{is_controlled_by, owner_reference, remove_finalizer},
};
use remuda_names::{
    capi::{condition, group, label},
    driver::facts,
    machines::{annotation, finalizer},
};
use serde_json::{Map, Value};

use super::Machines;
use crate::error::{Error, is_conflict, is_missing};

/// A pool of addresses, as an annotation names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    pub kind: String,
    pub name: String,
}

impl Pool {
    fn parse(text: &str) -> Option<Self> {
        let (kind, name) = annotation::address_pool(text)?;
        Some(Self { kind: kind.to_owned(), name: name.to_owned() })
    }

    fn reference(&self) -> ContractReference {
        ContractReference {
            api_group: group::IPAM.to_owned(),
            kind: self.kind.clone(),
            name: self.name.clone(),
        }
    }
}

/// What a machine is told of its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub address: String,
    pub prefix: i32,
    /// Empty if there is none.
    pub gateway: String,
}

impl Address {
    /// Puts it into the settings of a driver, in its words.
    pub(crate) fn set(&self, driver: &str, fields: &mut Map<String, Value>) {
        if let Some((field, value)) = facts(driver).address_field(&self.address, self.prefix, &self.gateway) {
            fields.insert(field.to_owned(), value.into());
        }
    }
}

/// How far a machine is with its address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    /// No pool is named: the provider gives it one.
    #[default]
    No,
    /// What is named as a pool is none.
    Odd(String),
    /// Its driver takes no address.
    Unfit,
    Unclaimed(Pool),
    /// There is a claim of another pool, from before another one was named.
    Outdated(Pool),
    /// There is a claim of its name that is not its own.
    Taken,
    Exhausted(Pool),
    /// Not answered yet, or as the message says.
    Waiting(Pool, String),
    Given(Address),
}

impl Machines {
    fn claim_api(&self, namespace: &str) -> Api<IpAddressClaim> {
        Api::namespaced(self.ctx.client.clone(), namespace)
    }

    /// How far a machine that is to be made is with its address.
    pub(super) async fn asked(&self, object: &DynamicObject) -> Result<Asked, Error> {
        let Some(text) = object.annotations().get(annotation::ADDRESS_POOL).filter(|text| !text.is_empty())
        else {
            return Ok(Asked::No);
        };
        let Some(pool) = Pool::parse(text) else { return Ok(Asked::Odd(text.clone())) };
        if facts(&self.driver).static_address.is_none() {
            return Ok(Asked::Unfit);
        }
        let key = ObjectKey::of(&object.metadata);
        let Some(claim) = self.claims.get(&key) else { return Ok(Asked::Unclaimed(pool)) };
        if !is_controlled_by(&claim.metadata, &object.uid().unwrap_or_default()) {
            return Ok(Asked::Taken);
        }
        if claim.spec.pool_ref != pool.reference() || claim.metadata.deletion_timestamp.is_some() {
            return Ok(Asked::Outdated(pool));
        }
        let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let Some(ready) = conditions.iter().find(|known| known.type_ == condition::READY) else {
            return Ok(Asked::Waiting(pool, String::new()));
        };
        if ready.status != "True" {
            return Ok(match ready.reason.as_str() {
                remuda_names::capi::claim_reason::POOL_EXHAUSTED => Asked::Exhausted(pool),
                _ => Asked::Waiting(pool, ready.message.clone()),
            });
        }
        let namespace = object.namespace().unwrap_or_default();
        let addresses: Api<IpAddress> = Api::namespaced(self.ctx.client.clone(), &namespace);
        let found = addresses.get_opt(&key.name).await.map_err(Error::api("read IPAddress", &key))?;
        let is_its = |found: &IpAddress| is_controlled_by(&found.metadata, &claim.uid().unwrap_or_default());
        Ok(match found.filter(is_its) {
            Some(found) => Asked::Given(Address {
                address: found.spec.address,
                prefix: found.spec.prefix.unwrap_or_default(),
                gateway: found.spec.gateway,
            }),
            None => Asked::Waiting(pool, String::new()),
        })
    }

    pub(super) async fn claim(&self, object: &DynamicObject, pool: &Pool) -> Result<(), Error> {
        let name = object.name_any();
        let mut claim = IpAddressClaim::named(&name);
        let cluster = object.labels().get(label::CLUSTER_NAME).cloned().unwrap_or_default();
        claim.metadata = ObjectMeta {
            namespace: object.namespace(),
            labels: Some([(label::CLUSTER_NAME.to_owned(), cluster.clone())].into()),
            finalizers: Some(vec![finalizer::ADDRESS.to_owned()]),
            owner_references: Some(vec![owner_reference(object, &self.resource)?]),
            ..claim.metadata
        };
        claim.spec = IpAddressClaimSpec { cluster_name: cluster, pool_ref: pool.reference() };
        let api = self.claim_api(&object.namespace().unwrap_or_default());
        let manager = Some(self.ctx.field_manager.to_string());
        match api.create(&PostParams { field_manager: manager, ..PostParams::default() }, &claim).await {
            Ok(created) => self.claims.wait_seen(Some(&created)).await,
            // The cache is late, and wakes the machine.
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(Error::api("create IPAddressClaim", name)(error)),
        }
        Ok(())
    }

    /// Gives the address of a machine back. There need not be one.
    pub(super) async fn unclaim(&self, object: &DynamicObject) -> Result<(), Error> {
        let named = object.annotations().contains_key(annotation::ADDRESS_POOL);
        if !named && self.claims.get(&ObjectKey::of(&object.metadata)).is_none() {
            return Ok(());
        }
        let name = object.name_any();
        let api = self.claim_api(&object.namespace().unwrap_or_default());
        let claim = match api.get_opt(&name).await {
            Ok(claim) => claim,
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(Error::api("read IPAddressClaim", name)(error)),
        };
        let ours =
            |claim: &IpAddressClaim| is_controlled_by(&claim.metadata, &object.uid().unwrap_or_default());
        let Some(claim) = claim.filter(ours) else { return Ok(()) };
        let preconditions = Some(Preconditions { uid: claim.uid(), resource_version: None });
        match api.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(_) => {}
            Err(error) if is_missing(&error) || is_conflict(&error) => {}
            Err(error) => return Err(Error::api("delete IPAddressClaim", name)(error)),
        }
        Ok(remove_finalizer(&api, &claim, &(), finalizer::ADDRESS).await?)
    }
}
