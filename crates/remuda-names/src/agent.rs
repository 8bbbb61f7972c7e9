//! What the node agent shares with servers, plans and install scripts.
//!
//! They are those of the system-agent protocol; changing one breaks peers that are already deployed.

/// Keys of the plan Secret's `data`.
pub mod key {
    /// The plan, JSON. Written by the server, read by the agent.
    pub const PLAN: &str = "plan";
    /// The plan applied last, JSON. Written by the server when it sees the checksum; agents never look.
    pub const APPLIED_PLAN: &str = "appliedPlan";
    /// Where the plan stands; absent on servers that only compare checksums. Written by both.
    pub const PLAN_STATE: &str = "plan-state";
    /// Counts deliveries; the agent adds one when it takes a pending plan.
    pub const PLAN_REVISION: &str = "plan-revision";
    /// Failures after which the agent stops retrying; `-1` is never. Written by the server.
    pub const MAX_FAILURES: &str = "max-failures";
    /// Failures after which the server calls the plan failed. Written and read by the server.
    pub const FAILURE_THRESHOLD: &str = "failure-threshold";
    /// Seconds between passes. Written by the server or a person.
    pub const PROBE_PERIOD: &str = "probe-period-seconds";
    /// Checksum of the plan applied last. Written by the agent.
    pub const APPLIED_CHECKSUM: &str = "applied-checksum";
    /// Saved output of one-time instructions. Written by the agent.
    pub const APPLIED_OUTPUT: &str = "applied-output";
    /// Results of periodic instructions. Written by the agent, pruned by the server.
    pub const APPLIED_PERIODIC_OUTPUT: &str = "applied-periodic-output";
    /// Checksum of the plan that is failing. Written by the agent.
    pub const FAILED_CHECKSUM: &str = "failed-checksum";
    /// Saved output of the failing plan. Written by the agent.
    pub const FAILED_OUTPUT: &str = "failed-output";
    /// Failures in a row. Written by the agent.
    pub const FAILURE_COUNT: &str = "failure-count";
    /// Successful runs since the last failure. Written by the agent.
    pub const SUCCESS_COUNT: &str = "success-count";
    /// When instructions were last run. Written by the agent.
    pub const LAST_APPLY_TIME: &str = "last-apply-time";
    /// Health of each probe. Written by the agent, removed by the server with every new plan.
    pub const PROBE_STATUSES: &str = "probe-statuses";

    /// Everything the agent reports, which a conflicting write must not lose.
    pub const REPORTED: &[&str] = &[
        PROBE_STATUSES,
        APPLIED_PERIODIC_OUTPUT,
        FAILED_CHECKSUM,
        FAILURE_COUNT,
        FAILED_OUTPUT,
        SUCCESS_COUNT,
        LAST_APPLY_TIME,
        APPLIED_CHECKSUM,
        APPLIED_OUTPUT,
        PLAN_STATE,
        PLAN_REVISION,
    ];
}

/// Values of `plan-state`.
pub mod state {
    /// Delivered by the server, not yet taken.
    pub const PENDING: &str = "pending";
    /// Taken by the agent.
    pub const IN_PROGRESS: &str = "in-progress";
    /// All instructions succeeded.
    pub const SUCCEEDED: &str = "succeeded";
    /// An instruction failed.
    pub const FAILED: &str = "failed";
}

/// Name under which the reason of a failed run is saved in `failed-output`, beside the
/// instructions' own output. Servers that do not know it never look.
pub const ERROR_OUTPUT: &str = "remuda-agent-error";

/// Environment variables.
pub mod env {
    /// Log level of the daemon.
    pub const LOG_LEVEL: &str = "CATTLE_LOGLEVEL";
    /// Path of the configuration file.
    pub const CONFIG: &str = "CATTLE_AGENT_CONFIG";
    /// `true`: the CA of the kubeconfig is never given up for the system's.
    pub const STRICT_VERIFY: &str = "CATTLE_AGENT_STRICT_VERIFY";
    /// Given to instructions: their work directory.
    pub const EXECUTION_PWD: &str = "CATTLE_AGENT_EXECUTION_PWD";
    /// Given to instructions: which attempt this is.
    pub const ATTEMPT: &str = "CATTLE_AGENT_ATTEMPT_NUMBER";
}

/// Files and directories.
pub mod path {
    /// Configuration file of an installed agent.
    pub const CONFIG: &str = "/etc/rancher/agent/config.yaml";
    /// Name of the connection info file below the agent's variable directory.
    pub const CONNECTION_INFO: &str = "rancher2_connection_info.json";
    /// Machine id file below the configuration directory.
    pub const MACHINE_ID: &str = "cattle-id";
    /// Local image tarballs.
    pub const IMAGES: &str = "/var/lib/rancher/agent/images";
    /// Registry settings, first existing wins.
    pub const REGISTRIES: &[&str] = &[
        "/etc/rancher/agent/registries.yaml",
        "/etc/rancher/rke2/registries.yaml",
        "/etc/rancher/k3s/registries.yaml",
    ];
    /// Interlock: an upgrade of the agent is about to restart it. Written by the installer.
    pub const RESTART_PENDING: &str = "restart-pending";
    /// Interlock: a plan is being applied. Written by the agent, awaited by the installer.
    pub const APPLY_ACTIVE: &str = "applyinator-active";
    /// Suffix of history files.
    pub const APPLIED_SUFFIX: &str = "-applied.plan";
}

/// Headers of the registration request.
pub mod header {
    /// Machine id.
    pub const ID: &str = "X-Cattle-Id";
    /// Whether the node takes the etcd role.
    pub const ROLE_ETCD: &str = "X-Cattle-Role-Etcd";
    /// Whether the node takes the control plane role.
    pub const ROLE_CONTROL_PLANE: &str = "X-Cattle-Role-Control-Plane";
    /// Whether the node takes the worker role.
    pub const ROLE_WORKER: &str = "X-Cattle-Role-Worker";
    /// Requested node name.
    pub const NODE_NAME: &str = "X-Cattle-Node-Name";
    /// Address other nodes reach this one by.
    pub const ADDRESS: &str = "X-Cattle-Address";
    /// Address on the private network.
    pub const INTERNAL_ADDRESS: &str = "X-Cattle-Internal-Address";
    /// Node labels.
    pub const LABELS: &str = "X-Cattle-Labels";
    /// Node taints.
    pub const TAINTS: &str = "X-Cattle-Taints";
}
