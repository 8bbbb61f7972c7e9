//! How much a workspace may have.

use std::collections::BTreeMap;

use remuda_names::GROUP;

use crate::{object::object, wire};

wire! {
    pub struct WorkspaceQuotaSpec {
        /// The most there may be; what is absent is not limited.
        pub hard: WorkspaceLimits,
    }

    pub struct WorkspaceLimits {
        /// Clusters.
        pub clusters: Option<i64>,
        /// Machines of all pools; of one that an autoscaler works on its greatest size counts.
        pub machines: Option<i64>,
        /// Machines by what their driver is trusted with, which is cloud or host; 0 allows none.
        pub driver_classes: BTreeMap<String, i64>,
    }
}

object! {
    /// Limits of a workspace: how many clusters, and machines in them, people may ask for in its namespace.
    ///
    /// A kind and no annotation of the FleetWorkspace: those who may edit a workspace are not those who may raise its
    /// limits, rights are given per kind, and a namespace can have limits without being a FleetWorkspace. Where there
    /// are several, all of them hold. It has no status: what is used follows from the Clusters of the namespace, and
    /// the refusal of a write tells the numbers.
    mod workspace; WorkspaceQuota = "WorkspaceQuota", GROUP, "v1", "workspacequotas", NamespaceResourceScope;
    spec: WorkspaceQuotaSpec;
    {}
}
