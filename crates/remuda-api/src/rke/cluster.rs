//! RKECluster, the infrastructure of a cluster whose machines need none of their own.

use remuda_names::rancher::group::RKE;

use super::Condition;
use crate::{lenient, object::object};

lenient! {
    pub struct RkeClusterSpec {
        /// Where the API server of the cluster is reached.
        pub control_plane_endpoint: crate::core::Endpoint,
    }

    pub struct RkeClusterStatus {
        /// Conditions of the infrastructure.
        pub conditions: Vec<Condition>,
        /// What older controllers look at instead of initialization.
        pub ready: bool,
        /// Steps that are done once and stay done.
        pub initialization: Provisioned,
    }

    pub struct Provisioned {
        /// There is what the object stands for.
        pub provisioned: Option<bool>,
    }
}

object! {
    /// The infrastructure of a cluster. There is nothing to it: machines bring their own.
    mod rke_cluster; RkeCluster = "RKECluster", RKE, "v1", "rkeclusters", NamespaceResourceScope;
    spec: RkeClusterSpec; status: RkeClusterStatus;
    {}
}
