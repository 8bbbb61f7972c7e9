//! Reading and writing of whole objects, compiled here once.
//!
//! Code that is generic over a kind is compiled in the crate that first names the kind. A client and a cache of Pods in
//! ten crates were ten copies of the code that reads a Pod, in build time and in the program. What a crate below
//! has compiled is taken from there, so this one, which is below them all, names every kind that several of them use.
//! Nothing calls it: the linker leaves out unused code.
//!
//! It depends on an optimisation level at which generic code is shared between crates (0, 1, "s" or "z").

use k8s_openapi::{
    api::{
        apps::v1 as apps, authorization::v1 as authorization, batch::v1 as batch,
        coordination::v1 as coordination, core::v1 as core, policy::v1 as policy, rbac::v1 as rbac,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
};
use kube::core::{DynamicObject, ObjectList};
use serde::{Serialize, de::DeserializeOwned};

use crate::{addons, clusterctl, core as capi, ipam, management, provisioning, quota, rke};

type Instance = fn(&str) -> Result<Vec<u8>, serde_json::Error>;

/// As clients and caches read and write an object of Kubernetes: as text, one or a list.
fn builtin<T: Serialize + DeserializeOwned + Clone>(text: &str) -> Result<Vec<u8>, serde_json::Error> {
    let list: ObjectList<T> = serde_json::from_str(text)?;
    drop(list);
    let object: T = serde_json::from_str(text)?;
    serde_json::to_vec(&object)
}

/// An object of ours is compared as a tree, too, before it is written.
fn ours<T: Serialize + DeserializeOwned + Clone>(text: &str) -> Result<Vec<u8>, serde_json::Error> {
    let object: T = serde_json::from_str(text)?;
    drop(serde_json::to_value(&object)?);
    builtin::<T>(text)
}

/// One for each kind that more than one crate reads or writes.
#[doc(hidden)]
pub static INSTANCES: &[Instance] = &[
    builtin::<core::ConfigMap>,
    builtin::<core::Event>,
    builtin::<core::Namespace>,
    builtin::<core::Node>,
    builtin::<core::Pod>,
    builtin::<core::Secret>,
    builtin::<core::Service>,
    builtin::<core::ServiceAccount>,
    builtin::<apps::DaemonSet>,
    builtin::<apps::Deployment>,
    builtin::<apps::ReplicaSet>,
    builtin::<authorization::SubjectAccessReview>,
    builtin::<batch::Job>,
    builtin::<coordination::Lease>,
    builtin::<policy::PodDisruptionBudget>,
    builtin::<rbac::ClusterRole>,
    builtin::<rbac::ClusterRoleBinding>,
    builtin::<rbac::Role>,
    builtin::<rbac::RoleBinding>,
    builtin::<apiextensions::CustomResourceDefinition>,
    builtin::<DynamicObject>,
    ours::<addons::ClusterResourceSet>,
    ours::<addons::ClusterResourceSetBinding>,
    ours::<capi::Cluster>,
    ours::<capi::Machine>,
    ours::<capi::MachineDeployment>,
    ours::<capi::MachineDrainRule>,
    ours::<capi::MachineHealthCheck>,
    ours::<capi::MachinePool>,
    ours::<capi::MachineSet>,
    ours::<clusterctl::Provider>,
    ours::<ipam::GlobalInClusterIpPool>,
    ours::<ipam::InClusterIpPool>,
    ours::<ipam::IpAddress>,
    ours::<ipam::IpAddressClaim>,
    ours::<management::AuthConfig>,
    ours::<management::Cluster>,
    ours::<management::ClusterRegistrationToken>,
    ours::<management::ClusterRoleTemplateBinding>,
    ours::<management::DynamicSchema>,
    ours::<management::GlobalRole>,
    ours::<management::GlobalRoleBinding>,
    ours::<management::NodeDriver>,
    ours::<management::Setting>,
    ours::<management::Token>,
    ours::<management::User>,
    ours::<provisioning::Cluster>,
    ours::<quota::WorkspaceQuota>,
    ours::<rke::CustomMachine>,
    ours::<rke::EtcdSnapshot>,
    ours::<rke::RkeBootstrap>,
    ours::<rke::RkeBootstrapTemplate>,
    ours::<rke::RkeCluster>,
    ours::<rke::RkeControlPlane>,
];
