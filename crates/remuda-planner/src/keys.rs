//! Strings that objects, agents and nodes know.
//!
//! All of them are Rancher's or Cluster API's except where a line says otherwise; the values are part of
//! the protocol between planner, agents, drain and bootstrap controllers.

/// Labels.
pub mod label {
    /// On the plan secret of exactly one etcd machine; written and removed by the planner.
    pub const INIT_NODE: &str = "rke.cattle.io/init-node";
    /// On the control plane object: the machine id that must be the init node. Empty counts as absent.
    pub const INIT_NODE_MACHINE_ID: &str = "rke.cattle.io/init-node-machine-id";
    /// On machines and plan secrets: what the server called itself when it registered.
    pub const MACHINE_ID: &str = "rke.cattle.io/machine-id";
    /// On downstream nodes: the UID of their Machine; nodes are found by it.
    pub const MACHINE_UID: &str = "rke.cattle.io/machine";
    /// Requested name of the Kubernetes node.
    pub const NODE_NAME: &str = "rke.cattle.io/node-name";
    pub const ETCD_ROLE: &str = "rke.cattle.io/etcd-role";
    pub const CONTROL_PLANE_ROLE: &str = "rke.cattle.io/control-plane-role";
    pub const WORKER_ROLE: &str = "rke.cattle.io/worker-role";
    /// `linux` or `windows`.
    pub const OS: &str = "cattle.io/os";
    /// On secrets that a backup of the management store must contain.
    pub const BACKUP: &str = "resources.cattle.io/backup";
    /// On downstream nodes and plan secrets: which objects they belong to.
    pub const LIFECYCLE_CLUSTER_GROUP: &str = "plan.cattle.io/cluster-group";
    pub const LIFECYCLE_CLUSTER_KIND: &str = "plan.cattle.io/cluster-kind";
    pub const LIFECYCLE_CLUSTER_NAME: &str = "plan.cattle.io/cluster-name";
    pub const LIFECYCLE_MACHINE_GROUP: &str = "plan.cattle.io/machine-group";
    pub const LIFECYCLE_MACHINE_KIND: &str = "plan.cattle.io/machine-kind";
    pub const LIFECYCLE_MACHINE_NAME: &str = "plan.cattle.io/machine-name";
}

/// Annotations. Unless said otherwise they are on plan secrets.
pub mod annotation {
    /// JSON map of node labels.
    pub const LABELS: &str = "rke.cattle.io/labels";
    /// JSON list of node taints.
    pub const TAINTS: &str = "rke.cattle.io/taints";
    /// Comma separated addresses given at registration.
    pub const ADDRESS: &str = "rke.cattle.io/address";
    pub const INTERNAL_ADDRESS: &str = "rke.cattle.io/internal-address";
    /// Where others may join this node; written by the planner.
    pub const JOIN_URL: &str = "rke.cattle.io/join-url";
    /// Where this node was told to join; empty on the init node.
    pub const JOINED_TO: &str = "rke.cattle.io/joined-to";
    /// Presence keeps the planner from writing `join-url`.
    pub const JOIN_URL_AUTOSET_DISABLED: &str = "rke.cattle.io/join-url-autoset-disabled";
    /// Written by the planner to start a drain, removed by the drain controller after uncordoning.
    pub const DRAIN: &str = "rke.cattle.io/drain-options";
    /// Written by the drain controller: the options it has carried out.
    pub const DRAIN_DONE: &str = "rke.cattle.io/drain-done";
    pub const DRAIN_ERROR: &str = "rke.cattle.io/drain-error";
    /// Written by the planner to start uncordoning.
    pub const UNCORDON: &str = "rke.cattle.io/uncordon";
    pub const PRE_DRAIN: &str = "rke.cattle.io/pre-drain";
    pub const POST_DRAIN: &str = "rke.cattle.io/post-drain";
    pub const PLAN_LAST_UPDATED: &str = "rke.cattle.io/plan-last-updated";
    pub const PLAN_PROBES_PASSED: &str = "rke.cattle.io/plan-probes-passed";
    /// Ours: the removal of this machine's etcd member has begun. Until the machine is gone the planner
    /// neither relies on the member nor takes down another one in its place.
    pub const ETCD_LEAVING: &str = "remuda.io/etcd-member-leaving";
    /// On the control plane object: the cluster as its owner wrote it, packed.
    pub const CLUSTER_SPEC: &str = "rke.cattle.io/cluster-spec";
    /// On the control plane object: `true` or `false`; empty counts as absent.
    pub const PRIME_ENABLED: &str = "provisioning.cattle.io/rke2-prime-enabled";
    /// On RKEBootstraps: `true` lets an etcd machine go without asking etcd.
    pub const ETCD_FORCE_REMOVE: &str = "rke.cattle.io/etcd-force-remove";
    /// On secrets and config maps: clusters that may use them in files.
    pub const AUTHORIZED_FOR_CLUSTERS: &str = "rke.cattle.io/object-authorized-for-clusters";
    /// On cloud provider configuration secrets: clusters that may use them.
    pub const SECRET_AUTHORIZED_FOR_CLUSTER: &str = "v2prov-secret-authorized-for-cluster";
    /// On Machines: holds the server back until the etcd member is out.
    pub const PRE_TERMINATE: &str =
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup";
    /// Value of [`PRE_TERMINATE`].
    pub const PRE_TERMINATE_OWNER: &str = "rke-bootstrap-controller";
    /// On Machines: CAPI does not drain the node.
    pub const EXCLUDE_DRAINING: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
    /// On Machines: CAPI does not wait for volumes.
    pub const EXCLUDE_VOLUME_DETACH: &str = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";
}

/// Keys in the data of a plan secret.
pub mod data {
    pub const PLAN: &str = "plan";
    pub const APPLIED_PLAN: &str = "appliedPlan";
    pub const PLAN_STATE: &str = "plan-state";
    pub const MAX_FAILURES: &str = "max-failures";
    pub const FAILURE_THRESHOLD: &str = "failure-threshold";
    pub const FAILURE_COUNT: &str = "failure-count";
    pub const FAILED_CHECKSUM: &str = "failed-checksum";
    pub const PROBE_STATUSES: &str = "probe-statuses";
    pub const PERIODIC_OUTPUT: &str = "applied-periodic-output";
}

/// Condition types.
pub mod condition {
    pub const READY: &str = "Ready";
    pub const RECONCILED: &str = "Reconciled";
    pub const PROVISIONED: &str = "Provisioned";
    pub const BOOTSTRAPPED: &str = "Bootstrapped";
    pub const STABLE: &str = "Stable";
    pub const SCALING_UP: &str = "ScalingUp";
    pub const SCALING_DOWN: &str = "ScalingDown";
    pub const ROLLING_OUT: &str = "RollingOut";
}

/// Types of secrets.
pub mod secret {
    pub const MACHINE_PLAN: &str = "rke.cattle.io/machine-plan";
    pub const CLUSTER_STATE: &str = "rke.cattle.io/cluster-state";
    pub const AUTH_CONFIG: &str = "rke.cattle.io/auth-config";
    pub const BASIC_AUTH: &str = "kubernetes.io/basic-auth";
    pub const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
    pub const TLS: &str = "kubernetes.io/tls";
    /// Where global pull secrets are.
    pub const SYSTEM_NAMESPACE: &str = "cattle-system";
    /// Where cloud credentials are when their name says so.
    pub const CREDENTIAL_NAMESPACE: &str = "cattle-global-data";
}

/// API group of machines that a node driver makes.
pub const DRIVER_MACHINE_GROUP: &str = "rke-machine.cattle.io";
