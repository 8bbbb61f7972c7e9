//! `addons.cluster.x-k8s.io/v1beta2`: objects applied to every cluster that matches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;

use crate::{core::Deprecated, wire};

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "addons.cluster.x-k8s.io", version = "v1beta2", kind = "ClusterResourceSet",
        plural = "clusterresourcesets", namespaced, status = "ClusterResourceSetStatus", schema = "disabled",
        derive = "PartialEq", derive = "Default"
    )]
    pub struct ClusterResourceSetSpec {
        pub cluster_selector: LabelSelector,
        pub resources: Vec<ResourceReference>,
        /// `ApplyOnce` or `Reconcile`.
        pub strategy: String,
    }

    pub struct ResourceReference {
        pub name: String,
        /// `Secret` or `ConfigMap`.
        pub kind: String,
    }

    pub struct ClusterResourceSetStatus {
        pub conditions: Vec<Condition>,
        pub observed_generation: i64,
        pub deprecated: Option<Deprecated>,
    }

    #[derive(CustomResource)]
    #[kube(
        group = "addons.cluster.x-k8s.io", version = "v1beta2", kind = "ClusterResourceSetBinding",
        plural = "clusterresourcesetbindings", namespaced, schema = "disabled", derive = "PartialEq",
        derive = "Default"
    )]
    pub struct ClusterResourceSetBindingSpec {
        pub bindings: Vec<ResourceSetBinding>,
        pub cluster_name: String,
    }

    pub struct ResourceSetBinding {
        pub cluster_resource_set_name: String,
        pub resources: Vec<ResourceBinding>,
    }

    pub struct ResourceBinding {
        pub name: String,
        pub kind: String,
        pub hash: String,
        pub last_applied_time: Option<Time>,
        pub applied: Option<bool>,
    }
}
