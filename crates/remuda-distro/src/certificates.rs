//! Services whose certificates can be rotated by name, and the nodes that have them.

/// Of nodes that run Pods.
pub const OF_NODES: &[&str] =
    &["rke2-server", "k3s-server", "api-server", "kubelet", "kube-proxy", "auth-proxy"];
/// Of control planes, beside those of all nodes.
pub const OF_CONTROL_PLANES: &[&str] =
    &["controller-manager", "scheduler", "rke2-controller", "k3s-controller", "admin", "cloud-controller"];
/// Of nodes with etcd.
pub const OF_ETCD: &[&str] = &["etcd", "kubelet", "k3s-server", "rke2-server"];
/// Certificates that end within so many days are made anew when K3s or RKE2 starts.
pub const RENEWED_WITHIN_DAYS: i64 = 90;
