//! What Rancher's objects carry: groups, labels, annotations, finalizers, secret types, keys and conditions.
//!
//! These strings are Rancher's, not ours. Manifests, agents on nodes, user interfaces and scripts read and
//! write them.

/// API groups.
pub mod group {
    /// The Cluster people write.
    pub const PROVISIONING: &str = "provisioning.cattle.io";
    /// Providers of K3s and RKE2 clusters.
    pub const RKE: &str = "rke.cattle.io";
    /// What a driver is to make, one kind for each driver.
    pub const MACHINE_CONFIG: &str = "rke-machine-config.cattle.io";
    /// Machines of drivers and their templates, two kinds for each driver.
    pub const MACHINE: &str = "rke-machine.cattle.io";
    /// Identities of clusters, drivers, settings, access.
    pub const MANAGEMENT: &str = "management.cattle.io";
    /// Locks that let one party at a time change the nodes of a cluster.
    pub const PLAN: &str = "plan.cattle.io";
    /// Kinds of our own.
    pub const REMUDA: &str = "remuda.io";
}

/// Namespaces and names with a meaning.
pub mod name {
    /// Workspace of clusters that say nothing else.
    pub const FLEET_DEFAULT: &str = "fleet-default";
    /// Workspace of the cluster a server runs in.
    pub const FLEET_LOCAL: &str = "fleet-local";
    /// Where credentials of providers are.
    pub const GLOBAL_DATA: &str = "cattle-global-data";
    /// Where agents in clusters run.
    pub const SYSTEM: &str = "cattle-system";
    /// The cluster a server runs in.
    pub const LOCAL: &str = "local";
    /// The registration token every cluster has.
    pub const DEFAULT_TOKEN: &str = "default-token";
    /// DynamicSchema that lists the configurations of active drivers.
    pub const NODE_TEMPLATE_CONFIG: &str = "nodetemplateconfig";
    /// DynamicSchema that lists the configurations of nodes.
    pub const NODE_CONFIG: &str = "nodeconfig";
    /// DynamicSchema that lists the credentials drivers take.
    pub const CREDENTIAL_CONFIG: &str = "credentialconfig";
    /// ConfigMap with what happened while a cluster was made.
    pub const PROVISIONING_LOG: &str = "provisioning-log";
}

/// Labels.
pub mod label {
    /// On management Nodes: the name of the node in its cluster, if a label can hold it. The gateway writes it.
    pub const MANAGEMENT_NODE_NAME: &str = "management.cattle.io/nodename";
    /// On everything below a cluster: its name.
    pub const CLUSTER_NAME: &str = "rke.cattle.io/cluster-name";
    /// On plan Secrets, ServiceAccounts and request Secrets: the Machine.
    pub const MACHINE_NAME: &str = "rke.cattle.io/machine-name";
    /// On request Secrets: namespace of the Machine.
    pub const MACHINE_NAMESPACE: &str = "rke.cattle.io/machine-namespace";
    /// On Machines and what belongs to them: the id the server registered with.
    pub const MACHINE_ID: &str = "rke.cattle.io/machine-id";
    /// On Nodes of clusters: UID of the Machine.
    pub const MACHINE: &str = "rke.cattle.io/machine";
    /// `true` on what belongs to a machine with etcd.
    pub const ETCD_ROLE: &str = "rke.cattle.io/etcd-role";
    /// `true` on what belongs to a machine with a control plane.
    pub const CONTROL_PLANE_ROLE: &str = "rke.cattle.io/control-plane-role";
    /// `true` on what belongs to a machine with workloads.
    pub const WORKER_ROLE: &str = "rke.cattle.io/worker-role";
    /// `true` on the plan Secret of the machine the others join.
    pub const INIT_NODE: &str = "rke.cattle.io/init-node";
    /// On provisioning Clusters and control planes: only the machine of this id may be joined.
    pub const INIT_NODE_MACHINE_ID: &str = "rke.cattle.io/init-node-machine-id";
    /// On Machines and what belongs to them: name the Node is to have.
    pub const NODE_NAME: &str = "rke.cattle.io/node-name";
    /// On Machines: their pool.
    pub const MACHINE_POOL_NAME: &str = "rke.cattle.io/rke-machine-pool-name";
    /// On machine templates: hash of their content.
    pub const MACHINE_TEMPLATE_HASH: &str = "rke.cattle.io/machine-template-hash";
    /// On ServiceAccounts: `plan` or `bootstrap`.
    pub const SERVICE_ACCOUNT_ROLE: &str = "rke.cattle.io/service-account-role";
    /// On ServiceAccounts of nodes: the plan Secret.
    pub const PLAN_SECRET_NAME: &str = "rke.cattle.io/plan-secret-name";
    /// On ServiceAccounts: the RKEBootstrap.
    pub const BOOTSTRAP_NAME: &str = "rke.cattle.io/rkebootstrap-name";
    /// On Jobs of drivers: group of the machine.
    pub const INFRA_MACHINE_GROUP: &str = "rke.cattle.io/infra-machine-group";
    /// On Jobs of drivers: version of the machine.
    pub const INFRA_MACHINE_VERSION: &str = "rke.cattle.io/infra-machine-version";
    /// On Jobs of drivers: kind of the machine.
    pub const INFRA_MACHINE_KIND: &str = "rke.cattle.io/infra-machine-kind";
    /// On Jobs of drivers: name of the machine.
    pub const INFRA_MACHINE_NAME: &str = "rke.cattle.io/infra-machine-name";
    /// `true` on Jobs of drivers that remove a machine.
    pub const INFRA_REMOVE: &str = "rke.cattle.io/infra-remove";
    /// On machines of drivers and their Jobs: the Machine.
    pub const CAPI_MACHINE_NAME: &str = "rke.cattle.io/capi-machine-name";
    /// On Machines and what belongs to them: `linux` or `windows`.
    pub const OS: &str = "cattle.io/os";
    /// `true` on Secrets that belong into a backup.
    pub const BACKUP: &str = "resources.cattle.io/backup";
    /// On CRDs: objects belong to the cluster their cluster-name label names.
    pub const CLUSTER_INDEXED: &str = "auth.cattle.io/cluster-indexed";
    /// `false` on objects that stay when nothing wants them any more.
    pub const PRUNE: &str = "objectset.rio.cattle.io/prune";
    /// On token Secrets: their ServiceAccount.
    pub const SERVICE_ACCOUNT_NAME: &str = "cattle.io/service-account.name";
    /// On DynamicSchemas: the driver they are of.
    pub const NODE_DRIVER_NAME: &str = "io.cattle.node_driver.name";
    /// On Tokens: their User.
    pub const TOKEN_USER_ID: &str = "authn.management.cattle.io/token-userId";
    /// On Tokens: what they are for.
    pub const TOKEN_KIND: &str = "authn.management.cattle.io/kind";

    /// Lifecycle labels, on plan Secrets and Nodes of clusters.
    pub mod lifecycle {
        pub const CLUSTER_GROUP: &str = "plan.cattle.io/cluster-group";
        pub const CLUSTER_KIND: &str = "plan.cattle.io/cluster-kind";
        pub const CLUSTER_NAME: &str = "plan.cattle.io/cluster-name";
        pub const MACHINE_GROUP: &str = "plan.cattle.io/machine-group";
        pub const MACHINE_KIND: &str = "plan.cattle.io/machine-kind";
        pub const MACHINE_NAME: &str = "plan.cattle.io/machine-name";
    }
}

/// Annotations.
pub mod annotation {
    /// On management Nodes: made for a node of a cluster, and goes with it. The gateway writes it.
    pub const NODE_SYNCER: &str = "management.cattle.io/nodesyncer";
    /// On nodes of clusters: what the Pods of the node ask for, in JSON. Agents in clusters write it.
    pub const POD_REQUESTS: &str = "management.cattle.io/pod-requests";
    /// On nodes of clusters: what the Pods of the node may take at most, in JSON. Agents in clusters write it.
    pub const POD_LIMITS: &str = "management.cattle.io/pod-limits";
    /// On Machines and what belongs to them: labels of the Node, as JSON.
    pub const LABELS: &str = "rke.cattle.io/labels";
    /// On Machines and what belongs to them: taints of the Node, as JSON.
    pub const TAINTS: &str = "rke.cattle.io/taints";
    /// Addresses a server registered with, separated by commas.
    pub const ADDRESS: &str = "rke.cattle.io/address";
    /// Internal addresses a server registered with, separated by commas.
    pub const INTERNAL_ADDRESS: &str = "rke.cattle.io/internal-address";
    /// On plan Secrets: where others can join this node.
    pub const JOIN_URL: &str = "rke.cattle.io/join-url";
    /// On plan Secrets: where this node has joined; empty on the init node.
    pub const JOINED_TO: &str = "rke.cattle.io/joined-to";
    /// On plan Secrets: presence keeps the join URL as it is.
    pub const JOIN_URL_AUTOSET_DISABLED: &str = "rke.cattle.io/join-url-autoset-disabled";
    /// On plan Secrets: asks for a drain, with its options as JSON.
    pub const DRAIN_OPTIONS: &str = "rke.cattle.io/drain-options";
    /// On plan Secrets: the drain that is done.
    pub const DRAIN_DONE: &str = "rke.cattle.io/drain-done";
    /// On plan Secrets: asks for the end of a drain.
    pub const UNCORDON: &str = "rke.cattle.io/uncordon";
    /// On plan Secrets: what hooks before a drain must be set to.
    pub const PRE_DRAIN: &str = "rke.cattle.io/pre-drain";
    /// On plan Secrets: what hooks after a drain must be set to.
    pub const POST_DRAIN: &str = "rke.cattle.io/post-drain";
    /// On plan Secrets: why the last drain failed.
    pub const DRAIN_ERROR: &str = "rke.cattle.io/drain-error";
    /// On plan Secrets: when the plan was written last.
    pub const PLAN_LAST_UPDATED: &str = "rke.cattle.io/plan-last-updated";
    /// On plan Secrets: when all probes passed after that.
    pub const PLAN_PROBES_PASSED: &str = "rke.cattle.io/plan-probes-passed";
    /// On control planes: spec of the provisioning Cluster, compressed.
    pub const CLUSTER_SPEC: &str = "rke.cattle.io/cluster-spec";
    /// On Machines and machines of drivers: longest host name.
    pub const HOSTNAME_LENGTH_LIMIT: &str = "rke.cattle.io/hostname-length-limit";
    /// `true` on RKEBootstraps: no care is taken of etcd when the machine goes.
    pub const ETCD_FORCE_REMOVE: &str = "rke.cattle.io/etcd-force-remove";
    /// On provisioning Clusters and RKEClusters: after which time a custom machine without a node is deleted.
    pub const DELETE_MISSING_AFTER: &str = "rke.cattle.io/delete-missing-custom-machines-after";
    /// On Secrets and ConfigMaps: clusters that may use them as files, separated by commas.
    pub const AUTHORIZED_FOR_CLUSTERS: &str = "rke.cattle.io/object-authorized-for-clusters";
    /// On token Secrets of bootstrap accounts: the token is one machines boot with.
    pub const BOOTSTRAP_TOKEN: &str = "rke.cattle.io/bootstrap-token";
    /// On the same: it is not good any more.
    pub const BOOTSTRAP_TOKEN_INVALIDATED: &str = "rke.cattle.io/bootstrap-token-invalidated";
    /// On the same: when it was used last.
    pub const LAST_ACCESS: &str = "rke.cattle.io/last-access-timestamp";
    /// On machine templates: version of the configuration they were made from.
    pub const CLONED_FROM_GROUP_VERSION: &str = "rke.cattle.io/cloned-from-group-version";
    /// On machine templates: kind of that configuration.
    pub const CLONED_FROM_KIND: &str = "rke.cattle.io/cloned-from-kind";
    /// On machine templates: name of that configuration.
    pub const CLONED_FROM_NAME: &str = "rke.cattle.io/cloned-from-name";
    /// On control planes: hash of the objects that upgrade node agents.
    pub const UPGRADER_HASH: &str = "rke.cattle.io/applied-system-agent-upgrader-hash";

    /// On management Clusters: `true` if we make the cluster.
    pub const ADMINISTRATED: &str = "provisioning.cattle.io/administrated";
    /// On provisioning Clusters: name the management Cluster is to have.
    pub const MANAGEMENT_CLUSTER_NAME: &str = "provisioning.cattle.io/management-cluster-name";
    /// On provisioning Clusters: name of the cluster for people.
    pub const MANAGEMENT_CLUSTER_DISPLAY_NAME: &str =
        "provisioning.cattle.io/management-cluster-display-name";
    /// On provisioning Clusters: workspace of the cluster.
    pub const FLEET_WORKSPACE_NAME: &str = "provisioning.cattle.io/fleet-workspace-name";
    /// On management Clusters: somebody else manages the cluster.
    pub const EXTERNALLY_MANAGED: &str = "provisioning.cattle.io/externally-managed";
    /// `true` on provisioning Clusters: pools may lose what their driver could do.
    pub const ALLOW_SCHEMA_DROP: &str = "provisioning.cattle.io/allow-dynamic-schema-drop";
    /// On Clusters of Cluster API: an autoscaler works on them.
    pub const AUTOSCALER_ENABLED: &str = "provisioning.cattle.io/cluster-autoscaler-enabled";
    /// On Clusters: the autoscaler pauses.
    pub const AUTOSCALER_PAUSED: &str = "provisioning.cattle.io/cluster-autoscaler-paused";
    /// On provisioning Clusters and control planes: images of another vendor's edition.
    pub const PRIME: &str = "provisioning.cattle.io/rke2-prime-enabled";
    /// On provisioning Clusters: fills in or removes how the agent is scheduled.
    pub const SCHEDULING_CUSTOMIZATION: &str = "provisioning.cattle.io/enable-scheduling-customization";
    /// On provisioning Clusters: the same for the Fleet agent.
    pub const FLEET_SCHEDULING_CUSTOMIZATION: &str =
        "provisioning.cattle.io/enable-fleet-scheduling-customization";
    /// On machines of drivers: the object goes even if the server cannot be removed.
    pub const FORCE_MACHINE_REMOVE: &str = "provisioning.cattle.io/force-machine-remove";
    /// `false` on FleetWorkspaces: their namespace belongs to somebody else.
    pub const MANAGED: &str = "provisioning.cattle.io/managed";
    /// On clusters and others: User who created it. Written by admission.
    pub const CREATOR_ID: &str = "field.cattle.io/creatorId";
    /// On clusters: presence gives nobody rights for having created it.
    pub const NO_CREATOR_RBAC: &str = "field.cattle.io/no-creator-rbac";
    /// On cloud credentials: what people call it. Written by Rancher's dashboard, read by the list API.
    pub const NAME: &str = "field.cattle.io/name";
    /// On clusters and others: a description for people.
    pub const DESCRIPTION: &str = "field.cattle.io/description";
    /// On Secrets with configurations of cloud providers: the cluster that may use them.
    pub const SECRET_AUTHORIZED_FOR_CLUSTER: &str = "v2prov-secret-authorized-for-cluster";
    /// On provisioning Clusters: which provider user interfaces show.
    pub const UI_PROVIDER: &str = "ui.rancher/provider";
    /// On ServiceAccounts: namespace and name of their token Secret.
    pub const SERVICE_ACCOUNT_SECRET_REF: &str = "rancher.io/service-account.secret-ref";
    /// On Machines: deletion waits until etcd has let go of the node.
    pub const PRE_TERMINATE: &str =
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup";
    /// Its value.
    pub const PRE_TERMINATE_OWNER: &str = "rke-bootstrap-controller";

    /// On ETCDSnapshots: name of the object in the cluster.
    pub const SNAPSHOT_NAME: &str = "etcdsnapshot.rke.io/snapshot-name";
    /// On ETCDSnapshots: name of the file.
    pub const SNAPSHOT_FILE_NAME: &str = "etcdsnapshot.rke.io/snapshot-file-name";
    /// On ETCDSnapshots: `local` or `s3`.
    pub const SNAPSHOT_STORAGE: &str = "etcdsnapshot.rke.io/storage";
    /// On ETCDSnapshots: what else can be restored from them.
    pub const SNAPSHOT_RESTORE_MODES: &str = "etcdsnapshot.rke.io/restore-mode-options";
    /// On ETCDSnapshots and plan Secrets: what was found when the file was read, as JSON. The planner writes it on the
    /// plan Secret of the machine, the controller of snapshots on the snapshot.
    pub const SNAPSHOT_VERIFICATION: &str = "remuda.io/snapshot-verification";

    /// On NodeDrivers, lists separated by commas.
    pub mod driver {
        /// Fields of credentials everybody may see.
        pub const PUBLIC_CREDENTIALS: &str = "publicCredentialFields";
        /// Fields of credentials nobody may see.
        pub const PRIVATE_CREDENTIALS: &str = "privateCredentialFields";
        /// Further fields that are passwords.
        pub const PASSWORDS: &str = "passwordFields";
        /// Fields of credentials that may be missing.
        pub const OPTIONAL_CREDENTIALS: &str = "optionalCredentialFields";
        /// Defaults, as `field:value`.
        pub const DEFAULTS: &str = "defaults";
        /// Fields that hold the content of files, as `field:flag`.
        pub const FILE_ALIASES: &str = "nodedriver.cattle.io/file-to-field-aliases";
        /// Hints for user interfaces, derived from the driver's flags.
        pub const UI_HINTS: &str = "io.cattle.nodedriver/ui-field-hints";
    }
}

/// Finalizers.
pub mod finalizer {
    /// On provisioning Clusters: what the cluster consists of must go first.
    pub const PROVISIONING_CLUSTER: &str = "wrangler.cattle.io/provisioning-cluster-remove";
    /// On provisioning Clusters: the control plane must go first.
    pub const RKE_CLUSTER: &str = "wrangler.cattle.io/rke-cluster-remove";
    /// On management Clusters: the provisioning Cluster must go first.
    pub const MANAGEMENT_CLUSTER: &str = "wrangler.cattle.io/mgmt-cluster-remove";
    /// On ETCDSnapshots: the file must go first.
    pub const SNAPSHOT: &str = "remuda.io/etcd-snapshot-file";
    /// On control planes.
    pub const CONTROL_PLANE: &str = "wrangler.cattle.io/rke-control-plane-remove";
    /// On RKEBootstraps: etcd must have let go of the node.
    pub const BOOTSTRAP: &str = "wrangler.cattle.io/rke-bootstrap-etcd-removal";
    /// On machines of drivers: the server must go first.
    pub const MACHINE: &str = "wrangler.cattle.io/machine-provision-remove";
    /// On CustomMachines: what was installed on the server must go first.
    pub const HOST: &str = "remuda.io/host-clean";
    /// On registration tokens.
    pub const REGISTRATION_TOKEN: &str = "wrangler.cattle.io/cluster-registration-token-cleanup";
}

/// Types of Secrets.
pub mod secret_type {
    /// The plan of a node.
    pub const PLAN: &str = "rke.cattle.io/machine-plan";
    /// What a machine boots with.
    pub const BOOTSTRAP: &str = "rke.cattle.io/bootstrap";
    /// Tokens of a cluster.
    pub const CLUSTER_STATE: &str = "rke.cattle.io/cluster-state";
    /// What a driver keeps of a machine.
    pub const MACHINE_STATE: &str = "rke.cattle.io/machine-state";
    /// A server that registers itself.
    pub const MACHINE_REQUEST: &str = "rke.cattle.io/machine-request";
    /// Note of a server that was removed.
    pub const REMOVED_MACHINE: &str = "remuda.io/removed-machine";
    /// Credentials of a registry.
    pub const AUTH_CONFIG: &str = "rke.cattle.io/auth-config";
    /// User and password, Kubernetes' own.
    pub const BASIC_AUTH: &str = "kubernetes.io/basic-auth";
    /// Credentials of registries, Kubernetes' own.
    pub const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
    /// Certificate and key, Kubernetes' own.
    pub const TLS: &str = "kubernetes.io/tls";
    /// Credentials of a provider.
    pub const CLOUD_CREDENTIAL: &str = "provisioning.cattle.io/cloud-credential";
}

/// Keys in Secrets.
pub mod secret_key {
    /// Of bootstrap and kubeconfig Secrets.
    pub const VALUE: &str = "value";
    /// Of token, kubeconfig and registration Secrets.
    pub const TOKEN: &str = "token";
    /// The registration token before.
    pub const PREVIOUS_TOKEN: &str = "previousToken";
    /// When a registration token ends.
    pub const EXPIRES_AT: &str = "expiresAt";
    /// When the registration token before ends.
    pub const GRACE_PERIOD_EXPIRES_AT: &str = "gracePeriodExpiresAt";
    /// Token servers of a cluster join with.
    pub const SERVER_TOKEN: &str = "serverToken";
    /// Token agents of a cluster join with.
    pub const AGENT_TOKEN: &str = "agentToken";
    /// What a driver keeps of a machine, compressed.
    pub const EXTRACTED_CONFIG: &str = "extractedConfig";
    /// Headers of a server that registers itself, as JSON.
    pub const REQUEST_DATA: &str = "data";
    /// User at a registry.
    pub const USERNAME: &str = "username";
    /// Password at a registry.
    pub const PASSWORD: &str = "password";
    /// User and password at a registry in one.
    pub const AUTH: &str = "auth";
    /// Token for a registry.
    pub const IDENTITY_TOKEN: &str = "identityToken";
    /// Admission configuration for pod security.
    pub const ADMISSION_CONFIG: &str = "admission-config-psact";
}

/// Environment variables agents are given.
pub mod env {
    /// Data directory of the node agent.
    pub const AGENT_VAR_DIR: &str = "CATTLE_AGENT_VAR_DIR";
    /// Hosts that are reached without a proxy; in either case.
    pub const NO_PROXY: &str = "NO_PROXY";
}

/// Condition types.
pub mod condition {
    pub const CREATED: &str = "Created";
    pub const RKE_CLUSTER: &str = "RKECluster";
    pub const UPDATED: &str = "Updated";
    pub const PROVISIONED: &str = "Provisioned";
    pub const READY: &str = "Ready";
    pub const RECONCILING: &str = "Reconciling";
    pub const STALLED: &str = "Stalled";
    pub const REMOVED: &str = "Removed";
    pub const WAITING: &str = "Waiting";
    pub const PENDING: &str = "Pending";
    pub const AUTOSCALER_READY: &str = "ClusterAutoscalerDeploymentReady";
    /// Of management Nodes: the node is one of its cluster.
    pub const REGISTERED: &str = "Registered";
    /// Of management Nodes: Unknown while the node is drained, True when it is, False if it could not be.
    pub const DRAINED: &str = "Drained";
    /// Of management Clusters: the tunnel is open.
    pub const CONNECTED: &str = "Connected";
    pub const AGENT_DEPLOYED: &str = "AgentDeployed";
    pub const PRE_BOOTSTRAPPED: &str = "PreBootstrapped";
    /// Of control planes and Machines: plans are as wanted.
    pub const RECONCILED: &str = "Reconciled";
    pub const BOOTSTRAPPED: &str = "Bootstrapped";
    /// On RKEControlPlanes: how the last snapshot that was asked for ended. The planner writes it.
    pub const SNAPSHOT_CREATED: &str = "EtcdSnapshotCreated";
    /// On RKEControlPlanes: how the last restore ended. The planner writes it.
    pub const SNAPSHOT_RESTORED: &str = "EtcdSnapshotRestored";
    /// On RKEControlPlanes, ours: how the last rotation of the keys for Secrets ended. The planner writes it.
    pub const ENCRYPTION_KEYS_ROTATED: &str = "EncryptionKeysRotated";
    pub const STABLE: &str = "Stable";
    pub const UPGRADE_CONTROLLER_READY: &str = "SystemUpgradeControllerReady";
    pub const SCALING_UP: &str = "ScalingUp";
    pub const SCALING_DOWN: &str = "ScalingDown";
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Of Machines: the node has applied its plan.
    pub const PLAN_APPLIED: &str = "PlanApplied";
    /// Of Machines, ours: False while the agent of the node stays away. Absent if it never did.
    pub const AGENT_CONNECTED: &str = "AgentConnected";
    /// Of `AgentConnected`: the server saw the agent leave.
    pub const NOT_HEARD_FROM: &str = "NotHeardFrom";
    /// Of `AgentConnected`: the agent has not come back since the server started.
    pub const NOT_HEARD_FROM_SINCE_START: &str = "NotHeardFromSinceStart";
    /// Of Machines, ours: True while something keeps its node from being drained. Absent if nothing ever did.
    pub const DRAIN_BLOCKED: &str = "DrainBlocked";
    /// Of `DrainBlocked`: PodDisruptionBudgets allow no disruption of Pods on the node; the message names both.
    pub const BLOCKED_BY_BUDGET: &str = "BlockedByBudget";
    /// Of `DrainBlocked` that is False.
    pub const NOT_BLOCKED: &str = "NotBlocked";
    /// Of CustomMachines in deletion, ours: whether what was installed on the server is off it.
    pub const HOST_CLEAN: &str = "HostClean";
    /// Of `HostClean`: a hook on the Machine is waited for, as for its member of etcd to leave.
    pub const HOST_HELD: &str = "WaitingForHook";
    /// Of `HostClean`: the agent has its last plan.
    pub const HOST_CLEANING: &str = "Cleaning";
    /// Of `HostClean` that is True.
    pub const HOST_CLEANED: &str = "Cleaned";
    /// Of `HostClean`: nothing was put there.
    pub const HOST_UNTOUCHED: &str = "Untouched";
    /// Of `HostClean`: somebody wants the server left as it is, or its Machine stays.
    pub const HOST_KEPT: &str = "Kept";
    /// Of `HostClean`: the agent was away; the server goes as it is.
    pub const HOST_AWAY: &str = "AgentAway";
    /// Of `HostClean`: the last plan failed; the server goes as it is.
    pub const HOST_FAILED: &str = "CleaningFailed";
    /// Of `HostClean`: the last plan took too long; the server goes as it is.
    pub const HOST_TIMED_OUT: &str = "CleaningTimedOut";
    /// Of machines of drivers: the Job that makes the server.
    pub const CREATE_JOB: &str = "CreateJob";
    /// Of machines of drivers: the Job that removes the server.
    pub const DELETE_JOB: &str = "DeleteJob";
    /// Of NodeDrivers.
    pub const DOWNLOADED: &str = "Downloaded";
    /// Of NodeDrivers.
    pub const INSTALLED: &str = "Installed";
    /// Of NodeDrivers.
    pub const ACTIVE: &str = "Active";
    /// Of NodeDrivers.
    pub const INACTIVE: &str = "Inactive";
}

/// Reasons of conditions that others decide by.
pub mod reason {
    /// Of `Connected` and `Ready`: the cluster's agent is not connected.
    pub const DISCONNECTED: &str = "Disconnected";
    /// Of Events on provisioning Clusters: a server that wanted to register was refused. Written by the gateway, read
    /// by `remuda why`.
    pub const REGISTRATION_REFUSED: &str = "RegistrationRefused";
}

/// Names of Settings.
pub mod setting {
    /// URL under which nodes, agents and people reach this server.
    pub const SERVER_URL: &str = "server-url";
    /// Certificates this server is trusted by.
    pub const CACERTS: &str = "cacerts";
    /// Certificates this server is trusted by at its inner address.
    pub const INTERNAL_CACERTS: &str = "internal-cacerts";
    /// Tells installations apart.
    pub const INSTALL_UUID: &str = "install-uuid";
    /// `strict`: agents trust `cacerts` and nothing else.
    pub const AGENT_TLS_MODE: &str = "agent-tls-mode";
    /// Image that installs a distribution, up to the name of the distribution.
    pub const INSTALLER_IMAGE: &str = "system-agent-installer-image";
    /// Registry of images that come with the product.
    pub const SYSTEM_DEFAULT_REGISTRY: &str = "system-default-registry";
    /// Secrets with credentials of that registry, separated by commas.
    pub const SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS: &str = "system-default-registry-pull-secrets";
    /// Version of the node agent this server hands out; empty hands out none.
    pub const SYSTEM_AGENT_VERSION: &str = "system-agent-version";
    /// Image of the agent in clusters.
    pub const AGENT_IMAGE: &str = "agent-image";
    /// Image of the authenticator in clusters with an authorized endpoint.
    pub const AUTH_IMAGE: &str = "auth-image";
    /// Where release data is fetched, and how often, as JSON; nothing is fetched unless it names a URL.
    pub const RELEASE_DATA: &str = "rke-metadata-config";
    /// Version of this server.
    pub const SERVER_VERSION: &str = "server-version";
    /// Version of Kubernetes clients offer first. Empty: they choose one of those there are.
    pub const K8S_VERSION: &str = "k8s-version";
    /// Page people land on after their login, in Rancher's dashboard. Clients set it and do nothing without it.
    pub const UI_DEFAULT_LANDING: &str = "ui-default-landing";
    /// What Rancher's dashboard knows of a server before and after a login. It reads them without asking whether they are
    /// there: without the first two its login page stays empty, without the last one its namespace filter.
    pub const UI_VENDOR: &str = "ui-pl";
    /// Texts of its pages, as JSON.
    pub const UI_BANNERS: &str = "ui-banners";
    /// Colours and pictures of its pages.
    pub const UI_BRAND: &str = "ui-brand";
    /// Where its users tell of faults.
    pub const UI_ISSUES: &str = "ui-issues";
    /// How it keeps what it has read, as JSON.
    pub const UI_PERFORMANCE: &str = "ui-performance";
    /// Links its menu shows, as JSON, and whether it shows those to the community of Rancher.
    pub const UI_CUSTOM_LINKS: &str = "ui-custom-links";
    pub const UI_COMMUNITY_LINKS: &str = "ui-community-links";
    /// Whether its pages begin with a first password. They do not: the one of this server is printed when it starts.
    pub const FIRST_LOGIN: &str = "first-login";
    /// Whether telemetry is sent: `out`, this server sends none.
    pub const TELEMETRY: &str = "telemetry-opt";
    /// `false`: tokens machines boot with stay good.
    pub const INSTALLER_TOKEN_TTL_ENABLED: &str = "system-agent-installer-token-ttl-enabled";
    /// How long they are good.
    pub const INSTALLER_TOKEN_LONG_TTL: &str = "system-agent-installer-token-long-ttl";
    /// How long they are good after they were used.
    pub const INSTALLER_TOKEN_SHORT_TTL: &str = "system-agent-installer-token-short-ttl";
    /// Whether clusters use images of another vendor's edition unless they say otherwise.
    pub const PRIME_DEFAULT: &str = "rke2-provisioning-prime-default";
    /// Minutes a registration token is good for that says nothing itself; none, or nothing, is for ever.
    pub const TOKEN_TTL: &str = "crt-default-ttl-minutes";
    /// Minutes the registration token before it stays good.
    pub const TOKEN_GRACE: &str = "crt-default-grace-period-minutes";
}

/// What tells the objects that were made from one object from all others.
pub mod object_set {
    /// Label: hash of the four annotations below.
    pub const HASH: &str = "objectset.rio.cattle.io/hash";
    /// Annotation: which set of the owner.
    pub const ID: &str = "objectset.rio.cattle.io/id";
    /// Annotation: version and kind of the owner.
    pub const OWNER_GVK: &str = "objectset.rio.cattle.io/owner-gvk";
    /// Annotation: name of the owner.
    pub const OWNER_NAME: &str = "objectset.rio.cattle.io/owner-name";
    /// Annotation: namespace of the owner.
    pub const OWNER_NAMESPACE: &str = "objectset.rio.cattle.io/owner-namespace";
}

/// `ETCDSnapshotFile`: snapshots as K3s and RKE2 list them in the cluster they are of.
pub mod snapshot_file {
    pub const GROUP: &str = "k3s.cattle.io";
    pub const VERSION: &str = "v1";
    pub const KIND: &str = "ETCDSnapshotFile";
    pub const PLURAL: &str = "etcdsnapshotfiles";
    /// In place of the node of files in S3.
    pub const S3_NODE: &str = "s3";

    pub mod label {
        /// The node that holds the file. The distribution writes it.
        pub const NODE: &str = "etcd.k3s.cattle.io/snapshot-storage-node";
    }
}
