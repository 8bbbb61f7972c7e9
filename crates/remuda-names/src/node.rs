//! The sandbox distribution: what it writes beside what K3s and RKE2 write.

/// On every Node of the sandbox distribution, says in words what it is. Written by `remuda node`, for people.
pub const SANDBOX: &str = "remuda.io/sandbox";
/// On Nodes of servers: where the cluster's state is kept. Written by `remuda node`, for people.
pub const DATASTORE: &str = "remuda.io/sandbox-datastore";
/// On Nodes: the taints that came from the node's configuration, so that one that leaves it is taken away.
/// Written and read by `remuda node`.
pub const TAINTS: &str = "remuda.io/sandbox-taints";
/// ConfigMap in `kube-system` that says what the sandbox control plane is and is not. For people.
pub const CONFIG_MAP: &str = "sandbox-distribution";
/// On ConfigMaps in `kube-system` that remember what came from a file of the manifests directory.
pub const ADDON: &str = "remuda.io/sandbox-addon";
/// Version the sandbox distribution reports; set in its unit file by the installer.
pub const ENV_VERSION: &str = "REMUDA_NODE_VERSION";
/// Directory put in front of every absolute path; for tests.
pub const ENV_ROOT: &str = "REMUDA_NODE_ROOT";
/// `off` keeps servers from using the etcd that is installed; anything else is the path of one.
pub const ENV_ETCD: &str = "REMUDA_NODE_ETCD";
/// In processes of pods: where the pod's volumes are found under their mount paths.
pub const ENV_POD_ROOT: &str = "REMUDA_POD_ROOT";
/// Prefix of variables that set a port of the sandbox distribution, such as `REMUDA_NODE_PORT_API`; for tests.
pub const ENV_PORT: &str = "REMUDA_NODE_PORT_";
/// On Nodes of servers: `host:port` of the API there. Written by `remuda node`, read by the others' nodes.
pub const API: &str = "remuda.io/sandbox-api";
