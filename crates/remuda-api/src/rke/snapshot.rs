//! ETCDSnapshot, a snapshot somewhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use remuda_names::rancher::group::RKE;

use super::S3;
use crate::{lenient, object::object};

lenient! {
    pub struct EtcdSnapshotSpec {
        /// Name of the cluster.
        pub cluster_name: String,
    }

    pub struct SnapshotFile {
        /// Name of the file.
        pub name: String,
        /// Node it was taken on.
        pub node_name: String,
        /// Where it is, as URL.
        pub location: String,
        /// What the cluster was like, as JSON in base64.
        pub metadata: String,
        /// When it was taken.
        pub created_at: Option<Time>,
        /// In bytes.
        pub size: i64,
        /// The store it is in, unless it is on the node.
        pub s3: Option<S3>,
        /// Either successful or failed.
        pub status: String,
        /// Why it failed.
        pub message: String,
    }

    pub struct EtcdSnapshotStatus {
        /// The file is gone.
        pub missing: bool,
    }
}

object! {
    /// A snapshot of etcd.
    mod etcd_snapshot; EtcdSnapshot = "ETCDSnapshot", RKE, "v1", "etcdsnapshots", NamespaceResourceScope;
    spec: EtcdSnapshotSpec; status: EtcdSnapshotStatus;
    {
        /// The file.
        pub snapshot_file: SnapshotFile,
    }
}
