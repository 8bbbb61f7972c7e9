//! What provisioning leaves on the objects it makes.

/// Labels.
pub mod label {
    /// On objects made from provisioning Clusters and RKEBootstraps: hash of what was last applied, by which a server
    /// that starts again knows that there is nothing to do. A label, since annotations of MachineDeployments are
    /// copied on.
    pub const APPLIED: &str = "remuda.io/applied";
}

/// Annotations.
pub mod annotation {
    /// On MachineDeployments: how many machines the pool asked for when it was last applied. If the number of the
    /// MachineDeployment differs from it, somebody has scaled.
    pub const REPLICAS: &str = "remuda.io/pool-quantity";
    /// On Clusters, and in `machineDeploymentAnnotations` of pools, which come first: whether an edit of a machine
    /// configuration may replace machines. `Never`, `Ask` (meant if nothing is said) or `Auto`. Written by people.
    pub const CONFIG_POLICY: &str = "remuda.io/config-update-policy";
    /// On Clusters: edits of configurations that may replace machines, as `pool=revision,…`. Written by
    /// `remuda cluster apply-config`.
    pub const APPROVED_CONFIGS: &str = "remuda.io/approved-configs";
    /// On MachineDeployments: an edit of the configuration that has not reached the machines, as JSON with `config`,
    /// `fields`, `policy` and `revision`.
    pub const PENDING_CONFIG: &str = "remuda.io/pending-config";
    /// On Clusters: what was written as `spec.kubernetesVersion`, such as `stable`, where a release now is. Written
    /// by admission; the same word written again keeps the release.
    pub const VERSION_ALIAS: &str = "remuda.io/kubernetes-version-alias";
    /// On Clusters: the version the cluster may change to although it is older, leaves out a minor version or is of
    /// the other distribution. Written by people and by `remuda cluster upgrade --force`; read by admission.
    pub const FORCE_VERSION: &str = "remuda.io/force-version";
    /// On Clusters: `true` if the store of their snapshots is not to be tried when it is written. Written by people,
    /// where nodes reach the store and this server does not; read by admission.
    pub const SKIP_S3_CHECK: &str = "remuda.io/skip-s3-check";
    /// On Clusters: when what disrupts and starts by itself may begin, such as `Sat 01:00-05:00 Europe/Berlin`, several
    /// separated by commas. Written by people; `remuda-distro` has its form.
    pub const MAINTENANCE_WINDOW: &str = "remuda.io/maintenance-window";
    /// On Clusters: `auto` if their certificates are to be rotated before they end. Written by people.
    pub const ROTATE_CERTIFICATES: &str = "remuda.io/rotate-certificates";
    /// Its value.
    pub const ROTATE_CERTIFICATES_AUTO: &str = "auto";
    /// On Clusters: the generation of `rotateEncryptionKeys` before which no snapshot is taken. Written by
    /// `remuda cluster rotate-encryption-keys --no-snapshot`.
    pub const ROTATE_KEYS_WITHOUT_SNAPSHOT: &str = "remuda.io/rotate-encryption-keys-without-snapshot";
    /// On Clusters: since when they are to be stopped. The later of it and [`WAKE`] counts. Written by people and by
    /// `remuda cluster hibernate`. On RKEControlPlanes: that they are to be stopped now, and since when; written by
    /// the controller of Clusters, read by the planner.
    pub const HIBERNATE: &str = "remuda.io/hibernate";
    /// On Clusters: since when they are to run again. Written by people and by `remuda cluster wake`.
    pub const WAKE: &str = "remuda.io/wake";
    /// On Clusters: when they are stopped, as a cron schedule with a time zone: `0 20 * * 1-5 Europe/Berlin`.
    pub const HIBERNATE_SCHEDULE: &str = "remuda.io/hibernate-schedule";
    /// On Clusters: when they run again, in the same form.
    pub const WAKE_SCHEDULE: &str = "remuda.io/wake-schedule";
    /// On Clusters: `true` if no snapshot is taken before they are stopped, or the one value of [`HIBERNATE`] before which
    /// none is.
    pub const HIBERNATE_WITHOUT_SNAPSHOT: &str = "remuda.io/hibernate-without-snapshot";
    /// On Clusters: when they are deleted. Written by people who may delete them; read by the controller of Clusters.
    pub const EXPIRES: &str = "remuda.io/expires";
    /// On machine configurations: `true` if several clusters use it, or may. It then belongs to none of them and
    /// outlives them. Written by people, and as soon as a second cluster uses it.
    pub const SHARED: &str = "remuda.io/shared";
    /// `true` on provisioning Clusters, and in `machineDeploymentAnnotations` of their pools: what has it is not
    /// deleted, and such a pool is not scaled to nothing, before it is taken off again. Written by people
    /// (`remuda cluster protect`), read by admission.
    pub const PROTECTED: &str = "remuda.io/protected";
}

/// The ConfigMap in `cattle-system` with the release data that was last fetched; every server reads it.
pub mod release_data {
    pub const CONFIG_MAP: &str = "release-data";
    /// Key: where it was fetched.
    pub const URL: &str = "url";
    /// Key: by which the source knows whether it has changed.
    pub const ETAG: &str = "etag";
    /// Key: when the source was last asked.
    pub const CHECKED: &str = "checked";
    /// Binary key: the parts of the document that are used, packed with gzip.
    pub const DOCUMENT: &str = "document.json.gz";
}

/// Conditions.
pub mod condition {
    /// On Clusters: false while an edit of a machine configuration has not reached all machines.
    pub const CONFIGURATION_APPLIED: &str = "ConfigurationApplied";
    /// On Clusters: true while their machines are stopped.
    pub const HIBERNATED: &str = "Hibernated";
    /// On Clusters: true from a week before they are deleted because they expire.
    pub const EXPIRING: &str = "Expiring";
}
