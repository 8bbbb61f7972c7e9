//! `ipam.cluster.x-k8s.io`: pools of addresses, claims of one, and the addresses that were given.
//!
//! Claims and addresses are Cluster API's contract, in v1beta2. The two kinds of pools are those of the in-cluster
//! provider of Cluster API, in v1alpha2.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use remuda_names::capi::group::IPAM;
use serde::{Deserialize, Serialize};

use crate::{
    core::{ContractReference, DeprecatedConditions},
    lenient,
    object::object,
};

lenient! {
    pub struct IpAddressClaimSpec {
        /// Cluster it belongs to; while that is paused, nothing is done.
        pub cluster_name: String,
        /// The pool an address is asked of.
        pub pool_ref: ContractReference,
    }

    pub struct NameReference {
        /// Name of the object.
        pub name: String,
    }

    pub struct IpAddressClaimStatus {
        /// Conditions of the claim.
        pub conditions: Vec<Condition>,
        /// The IPAddress that was made for it.
        pub address_ref: NameReference,
        /// What only older API versions show.
        pub deprecated: Option<DeprecatedConditions>,
    }

    pub struct IpAddressSpec {
        /// The claim it was made for.
        pub claim_ref: NameReference,
        /// The pool it is of.
        pub pool_ref: ContractReference,
        /// The address.
        pub address: String,
        /// Bits of its network's prefix.
        pub prefix: Option<i32>,
        /// Gateway of its network.
        pub gateway: String,
    }

    pub struct InClusterIpPoolSpec {
        /// What can be given: single addresses, ranges as FIRST-LAST, and networks as ADDRESS/BITS.
        pub addresses: Vec<String>,
        /// Bits of the network's prefix.
        pub prefix: i64,
        /// Gateway of the network, which is never given.
        pub gateway: String,
        /// Gives the first address of the network as well, and for IPv4 the last one.
        #[serde(rename = "allocateReservedIPAddresses")]
        pub allocate_reserved_ip_addresses: bool,
        /// What is not given, in the same forms as addresses.
        pub excluded_addresses: Vec<String>,
        /// How long an address that was given back is not given again, in seconds. Its claim stays that long.
        pub address_reuse_grace_period_seconds: Option<i32>,
    }

    pub struct InClusterIpPoolStatus {
        /// How many addresses there are. More than fit into 63 bits are shown as the greatest such number.
        pub ip_addresses: Option<PoolCounts>,
    }
}

/// Counts of a pool. The schema demands all of them, so zeros are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PoolCounts {
    /// Addresses of the pool.
    pub total: i64,
    /// Addresses that can be given.
    pub free: i64,
    /// Addresses that are given.
    pub used: i64,
    /// Addresses that are given and that the pool does not have, or not any more.
    pub out_of_range: i64,
}

object! {
    /// Asks for an address of a pool.
    mod ip_address_claim;
    IpAddressClaim = "IPAddressClaim", IPAM, "v1beta2", "ipaddressclaims", NamespaceResourceScope;
    spec: IpAddressClaimSpec; status: IpAddressClaimStatus;
    {}
}

object! {
    /// An address that was given to a claim.
    mod ip_address; IpAddress = "IPAddress", IPAM, "v1beta2", "ipaddresses", NamespaceResourceScope;
    spec: IpAddressSpec;
    {}
}

object! {
    /// Addresses for claims of its namespace.
    mod in_cluster_ip_pool;
    InClusterIpPool = "InClusterIPPool", IPAM, "v1alpha2", "inclusterippools", NamespaceResourceScope;
    spec: InClusterIpPoolSpec; status: InClusterIpPoolStatus;
    {}
}

object! {
    /// Addresses for claims of every namespace.
    mod global_in_cluster_ip_pool;
    GlobalInClusterIpPool =
        "GlobalInClusterIPPool", IPAM, "v1alpha2", "globalinclusterippools", ClusterResourceScope;
    spec: InClusterIpPoolSpec; status: InClusterIpPoolStatus;
    {}
}
