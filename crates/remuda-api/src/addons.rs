//! `addons.cluster.x-k8s.io/v1beta2`: objects applied to every cluster that matches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;

use crate::{core::DeprecatedConditions, wire};

wire! {
    /// Objects for every cluster that matches.
    #[derive(CustomResource)]
    #[kube(
        group = "addons.cluster.x-k8s.io", version = "v1beta2", kind = "ClusterResourceSet",
        plural = "clusterresourcesets", namespaced, status = "ClusterResourceSetStatus", schema = "disabled",
        derive = "PartialEq", derive = "Default"
    )]
    pub struct ClusterResourceSetSpec {
        /// Which clusters get them.
        pub cluster_selector: LabelSelector,
        /// Secrets and ConfigMaps that hold the objects.
        pub resources: Vec<ResourceReference>,
        /// `ApplyOnce` or `Reconcile`.
        pub strategy: String,
    }

    pub struct ResourceReference {
        /// Name of the Secret or ConfigMap.
        pub name: String,
        /// `Secret` or `ConfigMap`.
        pub kind: String,
    }

    /// What is known of the set.
    pub struct ClusterResourceSetStatus {
        /// Conditions of the set.
        pub conditions: Vec<Condition>,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// What only older API versions show.
        pub deprecated: Option<DeprecatedConditions>,
    }

    /// Which sets have been applied to a cluster.
    #[derive(CustomResource)]
    #[kube(
        group = "addons.cluster.x-k8s.io", version = "v1beta2", kind = "ClusterResourceSetBinding",
        plural = "clusterresourcesetbindings", namespaced, schema = "disabled", derive = "PartialEq",
        derive = "Default"
    )]
    pub struct ClusterResourceSetBindingSpec {
        /// One entry for every set.
        pub bindings: Vec<ResourceSetBinding>,
        /// Name of the cluster.
        pub cluster_name: String,
    }

    pub struct ResourceSetBinding {
        /// Name of the set.
        pub cluster_resource_set_name: String,
        /// What of it has been applied.
        pub resources: Vec<ResourceBinding>,
    }

    pub struct ResourceBinding {
        /// Name of the Secret or ConfigMap.
        pub name: String,
        /// Secret or ConfigMap.
        pub kind: String,
        /// Of what was applied.
        pub hash: String,
        /// When it was applied last.
        pub last_applied_time: Option<Time>,
        /// Whether all of it was applied.
        pub applied: Option<bool>,
    }
}
