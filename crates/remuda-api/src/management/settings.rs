//! Settings, features and workspaces.

use remuda_names::rancher::group::MANAGEMENT;

use super::Other;
use crate::{lenient, object::object};

lenient! {
    pub struct FeatureSpec {
        /// On or off; as by default when absent.
        pub value: Option<bool>,
        ..other: Other,
    }

    pub struct FeatureStatus {
        /// A change needs no restart.
        pub dynamic: bool,
        /// What it is unless it is set.
        pub default: bool,
        /// What it is about.
        pub description: String,
        /// It cannot be changed now and has this value.
        pub locked_value: Option<bool>,
        ..other: Other,
    }
}

object! {
    /// A setting of this server.
    mod setting; Setting = "Setting", MANAGEMENT, "v3", "settings", ClusterResourceScope;
    {
        /// What people set it to.
        pub value: String,
        /// What it is unless it is set.
        pub default: String,
        /// Somebody set it.
        pub customized: bool,
        /// Where the value comes from: db, default or env.
        pub source: String,
        ..other: Other,
    }
}

impl Setting {
    /// What holds.
    pub fn effective(&self) -> &str {
        if self.value.is_empty() { &self.default } else { &self.value }
    }
}

object! {
    /// A feature of this server that can be switched.
    mod feature; Feature = "Feature", MANAGEMENT, "v3", "features", ClusterResourceScope;
    spec: FeatureSpec; status: FeatureStatus;
    { ..other: Other, }
}

impl Feature {
    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        let (locked, default) =
            self.status.as_ref().map_or((None, false), |status| (status.locked_value, status.default));
        locked.or(self.spec.value).unwrap_or(default)
    }
}

object! {
    /// A workspace: a namespace of clusters and what is deployed to them.
    mod workspace; FleetWorkspace = "FleetWorkspace", MANAGEMENT, "v3", "fleetworkspaces", ClusterResourceScope;
    { ..other: Other, }
}
