//! What Cluster API objects carry: groups, labels, annotations, finalizers, condition types and reasons.
//!
//! These strings are Cluster API's, not ours. Providers, `clusterctl` and scripts read and write them.

/// API groups.
pub mod group {
    /// Cluster, Machine and the kinds that make machines.
    pub const CORE: &str = "cluster.x-k8s.io";
    /// ClusterResourceSet and its binding.
    pub const ADDONS: &str = "addons.cluster.x-k8s.io";
    /// The inventory `clusterctl` keeps.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
    /// Claims of addresses, addresses, and pools of them.
    pub const IPAM: &str = "ipam.cluster.x-k8s.io";
}

/// Labels.
pub mod label {
    /// On every object below a Cluster; written by its controllers, read by everybody.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// On control plane Machines; presence counts.
    pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
    /// On Machines of a MachineSet; written by the MachineSet controller.
    pub const SET_NAME: &str = "cluster.x-k8s.io/set-name";
    /// On MachineSets and Machines of a MachineDeployment.
    pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
    /// On Machines of a MachinePool.
    pub const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
    /// On Machines a control plane provider created.
    pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
    /// Tells the MachineSets of one MachineDeployment apart; written by the MachineDeployment controller.
    pub const TEMPLATE_HASH: &str = "machine-template-hash";
    /// Restricts which manager reconciles an object.
    pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
    /// On Nodes whose server may vanish at any time.
    pub const INTERRUPTIBLE: &str = "cluster.x-k8s.io/interruptible";
    /// On everything in a provider's manifest, CRDs included.
    pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
    /// Contract label on provider CRDs: the API versions that implement the v1beta1 contract.
    pub const CONTRACT_V1BETA1: &str = "cluster.x-k8s.io/v1beta1";
    /// Contract label on provider CRDs: the API versions that implement the v1beta2 contract.
    pub const CONTRACT_V1BETA2: &str = "cluster.x-k8s.io/v1beta2";
    /// On Pods of workload clusters: how draining treats the Pod.
    pub const POD_DRAIN: &str = "cluster.x-k8s.io/drain";
    /// On CRDs and inventory that `clusterctl` manages.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
    /// On objects of `clusterctl` itself, such as the inventory.
    pub const CLUSTERCTL_CORE: &str = "clusterctl.cluster.x-k8s.io/core";
}

/// Annotations.
pub mod annotation {
    /// Presence pauses the object it is on; written by people and `clusterctl`.
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";
    /// On Machines: delete this one first when scaling down.
    pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
    /// On Machines: no health check looks at it.
    pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
    /// On Machines: unhealthy, whatever its conditions say.
    pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
    /// On objects made from a template: the template's name.
    pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
    /// On objects made from a template: the template's kind and group.
    pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
    /// On MachineSets: `true` forbids new Machines; written by the MachineDeployment controller.
    pub const DISABLE_MACHINE_CREATE: &str = "cluster.x-k8s.io/disable-machine-create";
    /// On MachinePools: whoever decides about replicas; `false` is nobody.
    pub const REPLICAS_MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";
    /// Lower bound of an autoscaler.
    pub const AUTOSCALER_MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    /// Upper bound of an autoscaler.
    pub const AUTOSCALER_MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    /// On objects in an old API version: what that version has no field for.
    pub const CONVERSION_DATA: &str = "cluster.x-k8s.io/conversion-data";
    /// On Machines: no drain.
    pub const EXCLUDE_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
    /// On Machines: no waiting for volumes.
    pub const EXCLUDE_VOLUME_DETACH: &str = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";
    /// On control plane Machines or their bootstrap config: when certificates expire.
    pub const CERTIFICATES_EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";
    /// Prefix on Machines: deletion waits before draining until it is gone.
    pub const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
    /// Prefix on Machines: deletion waits before the infrastructure goes until it is gone.
    pub const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
    /// On MachineDeployments, MachineSets or bootstrap templates: which preflight checks to skip.
    pub const SKIP_PREFLIGHT: &str = "machineset.cluster.x-k8s.io/skip-preflight-checks";
    /// On MachineDeployments and MachineSets: number of the template's revision. The group has an `s`.
    pub const REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";
    /// On MachineSets: revisions it was before.
    pub const REVISION_HISTORY: &str = "machinedeployment.clusters.x-k8s.io/revision-history";
    /// On MachineSets: the deployment's replicas when the set was last written.
    pub const DESIRED_REPLICAS: &str = "machinedeployment.clusters.x-k8s.io/desired-replicas";
    /// On MachineSets: the deployment's replicas plus surge when the set was last written.
    pub const MAX_REPLICAS: &str = "machinedeployment.clusters.x-k8s.io/max-replicas";
    /// On Machines that are being changed without being replaced.
    pub const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
    /// On Machines that moved to another MachineSet and are not yet counted there.
    pub const PENDING_ACKNOWLEDGE_MOVE: &str =
        "in-place-updates.internal.cluster.x-k8s.io/pending-acknowledge-move";
    /// What `kubectl apply` last sent; never copied from parent to child.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// On Pods the kubelet made from files.
    pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";
    /// On Nodes: name of the Cluster.
    pub const NODE_CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// On Nodes: namespace of the Cluster.
    pub const NODE_CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
    /// On Nodes: name of the Machine.
    pub const NODE_MACHINE: &str = "cluster.x-k8s.io/machine";
    /// On Nodes: kind of the Machine's controller.
    pub const NODE_OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";
    /// On Nodes: name of the Machine's controller.
    pub const NODE_OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";
    /// On Nodes: which labels came from the Machine.
    pub const NODE_LABELS: &str = "cluster.x-k8s.io/labels-from-machine";
    /// On Nodes: which annotations came from the Machine.
    pub const NODE_ANNOTATIONS: &str = "cluster.x-k8s.io/annotations-from-machine";
    /// On Nodes: which taints came from the Machine.
    pub const NODE_TAINTS: &str = "cluster.x-k8s.io/taints-from-machine";
}

/// Finalizers.
pub mod finalizer {
    /// On Clusters until everything below is gone.
    pub const CLUSTER: &str = "cluster.cluster.x-k8s.io";
    /// On Machines until server and Node are gone.
    pub const MACHINE: &str = "machine.cluster.x-k8s.io";
    /// On MachineSets until their Machines are gone.
    pub const MACHINE_SET: &str = "cluster.x-k8s.io/machineset";
    /// On MachineDeployments until their MachineSets are gone.
    pub const MACHINE_DEPLOYMENT: &str = "cluster.x-k8s.io/machinedeployment";
    /// On MachinePools until their servers are gone.
    pub const MACHINE_POOL: &str = "machinepool.cluster.x-k8s.io";
    /// On ClusterResourceSets until no binding names them.
    pub const CLUSTER_RESOURCE_SET: &str = "addons.cluster.x-k8s.io";
    /// On IPAddressClaims until their address is given back.
    pub const RELEASE_ADDRESS: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";
    /// On IPAddresses while their claim is there.
    pub const PROTECT_ADDRESS: &str = "ipam.cluster.x-k8s.io/ProtectAddress";
    /// On pools of addresses while one of them is in use.
    pub const PROTECT_POOL: &str = "ipam.cluster.x-k8s.io/ProtectPool";
}

/// Taints.
pub mod taint {
    /// On new Nodes until their labels are in place; bootstrap providers add it, the Machine controller removes it.
    pub const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";
    /// On Nodes of older revisions, so that pods move once.
    pub const OUTDATED_REVISION: &str = "node.cluster.x-k8s.io/outdated-revision";
}

/// Condition types.
pub mod condition {
    /// Cluster, Machine, MachineDeployment: usable.
    pub const AVAILABLE: &str = "Available";
    /// Machine, and provider objects: in order.
    pub const READY: &str = "Ready";
    /// Machine: as its deployment's template asks.
    pub const UP_TO_DATE: &str = "UpToDate";
    /// Cluster: the workload cluster answers.
    pub const REMOTE_CONNECTION_PROBE: &str = "RemoteConnectionProbe";
    /// Machine: mirror of the bootstrap config.
    pub const BOOTSTRAP_CONFIG_READY: &str = "BootstrapConfigReady";
    /// Cluster, Machine: mirror of the infrastructure object.
    pub const INFRASTRUCTURE_READY: &str = "InfrastructureReady";
    /// Cluster: its API server took requests once.
    pub const CONTROL_PLANE_INITIALIZED: &str = "ControlPlaneInitialized";
    /// Cluster: mirror of the control plane object.
    pub const CONTROL_PLANE_AVAILABLE: &str = "ControlPlaneAvailable";
    /// Cluster: aggregate of MachineDeployments.
    pub const WORKERS_AVAILABLE: &str = "WorkersAvailable";
    /// Machine: aggregate of the Node's conditions.
    pub const NODE_HEALTHY: &str = "NodeHealthy";
    /// Machine: the Node's Ready.
    pub const NODE_READY: &str = "NodeReady";
    /// Machine: verdict of a MachineHealthCheck.
    pub const HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";
    /// Machine: False asks the owner to replace it.
    pub const OWNER_REMEDIATED: &str = "OwnerRemediated";
    /// Machine: False means an external remediation is under way.
    pub const EXTERNALLY_REMEDIATED: &str = "ExternallyRemediated";
    /// Cluster: managed topology applied.
    pub const TOPOLOGY_RECONCILED: &str = "TopologyReconciled";
    /// Machine: being changed in place.
    pub const UPDATING: &str = "Updating";
    /// Machines are being replaced.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Unhealthy Machines are being replaced.
    pub const REMEDIATING: &str = "Remediating";
    /// More Machines than wanted.
    pub const SCALING_DOWN: &str = "ScalingDown";
    /// Fewer Machines than wanted.
    pub const SCALING_UP: &str = "ScalingUp";
    /// Aggregate of Machines' Ready.
    pub const MACHINES_READY: &str = "MachinesReady";
    /// Cluster: aggregate of control plane Machines' Ready.
    pub const CONTROL_PLANE_MACHINES_READY: &str = "ControlPlaneMachinesReady";
    /// Cluster: aggregate of worker Machines' Ready.
    pub const WORKER_MACHINES_READY: &str = "WorkerMachinesReady";
    /// Aggregate of Machines' UpToDate.
    pub const MACHINES_UP_TO_DATE: &str = "MachinesUpToDate";
    /// Cluster: aggregate of control plane Machines' UpToDate.
    pub const CONTROL_PLANE_MACHINES_UP_TO_DATE: &str = "ControlPlaneMachinesUpToDate";
    /// Cluster: aggregate of worker Machines' UpToDate.
    pub const WORKER_MACHINES_UP_TO_DATE: &str = "WorkerMachinesUpToDate";
    /// Nobody reconciles the object.
    pub const PAUSED: &str = "Paused";
    /// Deletion under way, with its stage as reason.
    pub const DELETING: &str = "Deleting";
    /// MachineHealthCheck: not short circuited.
    pub const REMEDIATION_ALLOWED: &str = "RemediationAllowed";
    /// ClusterResourceSet: everything applied.
    pub const RESOURCES_APPLIED: &str = "ResourcesApplied";
}

/// Reasons of the condition `Ready` of an IPAddressClaim.
pub mod claim_reason {
    /// It has its address.
    pub const READY: &str = "Ready";
    /// Every address of the pool is in use.
    pub const POOL_EXHAUSTED: &str = "PoolExhausted";
    /// The pool is not there, is being deleted, or cannot be read.
    pub const POOL_NOT_READY: &str = "PoolNotReady";
    /// Something else is in the way; the message says what.
    pub const ALLOCATION_FAILED: &str = "AllocationFailed";
}
