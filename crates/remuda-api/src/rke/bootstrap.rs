//! RKEBootstrap, what a machine boots with, and its template.

use std::collections::BTreeMap;

use remuda_names::rancher::group::RKE;

use super::Userdata;
use crate::{lenient, object::object};

lenient! {
    pub struct RkeBootstrapSpec {
        /// Name of the cluster.
        pub cluster_name: String,
        /// What machines of foreign providers boot with beside our own.
        pub userdata: Option<Userdata>,
    }

    pub struct RkeBootstrapStatus {
        /// Secret with what the machine boots with.
        pub data_secret_name: Option<String>,
        /// Steps that are done once and stay done.
        pub initialization: BootstrapInitialization,
        /// What older controllers look at instead of initialization.
        pub ready: bool,
    }

    pub struct BootstrapInitialization {
        /// The Secret is there.
        pub data_secret_created: Option<bool>,
    }

    pub struct RkeBootstrapTemplateSpec {
        /// Name of the cluster.
        pub cluster_name: String,
        /// The objects to be made.
        pub template: BootstrapTemplate,
    }

    /// A whole RKEBootstrap, of which only metadata and spec matter.
    pub struct BootstrapTemplate {
        pub api_version: String,
        pub kind: String,
        pub metadata: EmbeddedMeta,
        /// Spec of the objects.
        pub spec: RkeBootstrapSpec,
        pub status: RkeBootstrapStatus,
    }

    /// Metadata of an object inside another.
    pub struct EmbeddedMeta {
        pub name: String,
        pub namespace: String,
        pub labels: BTreeMap<String, String>,
        pub annotations: BTreeMap<String, String>,
        pub finalizers: Vec<String>,
    }
}

object! {
    /// What one machine boots with.
    mod rke_bootstrap; RkeBootstrap = "RKEBootstrap", RKE, "v1", "rkebootstraps", NamespaceResourceScope;
    spec: RkeBootstrapSpec; status: RkeBootstrapStatus;
    {}
}

object! {
    /// What the machines of a pool boot with.
    mod rke_bootstrap_template;
    RkeBootstrapTemplate = "RKEBootstrapTemplate", RKE, "v1", "rkebootstraptemplates", NamespaceResourceScope;
    spec: RkeBootstrapTemplateSpec;
    {}
}
