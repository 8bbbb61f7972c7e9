//! ClusterRegistrationToken, by which machines and agents say whose they are.

use remuda_names::rancher::group::MANAGEMENT;

use super::Other;
use crate::{lenient, object::object};

lenient! {
    pub struct ClusterRegistrationTokenSpec {
        /// Name of the management Cluster.
        pub cluster_name: String,
        /// Minutes after which another token takes its place; never when 0 or less.
        pub ttl: Option<i64>,
        /// Minutes for which the old token is still good then.
        pub grace_period: Option<i64>,
        ..other: Other,
    }

    /// What people are shown. Commands contain {token} where the token belongs.
    pub struct ClusterRegistrationTokenStatus {
        /// Imports a cluster.
        pub command: String,
        /// Imports a cluster, with any certificate.
        pub insecure_command: String,
        /// Registers a Linux server.
        pub node_command: String,
        /// Registers a Linux server, with any certificate.
        pub insecure_node_command: String,
        /// Registers a Windows server.
        pub windows_node_command: String,
        /// Registers a Windows server, with any certificate.
        pub insecure_windows_node_command: String,
        /// What an import applies.
        pub manifest_url: String,
        /// Where older servers kept the token.
        pub token: String,
        /// Secret with the token.
        pub token_secret_name: String,
        /// When another token takes its place.
        pub expires_at: String,
        /// Until when the token before is good.
        pub grace_period_expires_at: String,
        ..other: Other,
    }
}

object! {
    /// Lets machines and agents of one cluster register.
    mod token; ClusterRegistrationToken = "ClusterRegistrationToken", MANAGEMENT, "v3", "clusterregistrationtokens",
    NamespaceResourceScope;
    spec: ClusterRegistrationTokenSpec; status: ClusterRegistrationTokenStatus;
    { ..other: Other, }
}
