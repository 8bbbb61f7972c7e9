//! What only a person can put right.

/// Why a cluster cannot be made of its spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("kubernetesVersion not set on {namespace}/{name}")]
    NoVersion { namespace: String, name: String },
    #[error("invalid machinePool [{0}] missing name or valid config")]
    InvalidPool(String),
    #[error("at least one role of etcd, control-plane or worker must be assigned to machinePool [{0}]")]
    NoRole(String),
    #[error("duplicate machinePool name [{0}] used")]
    DuplicatePool(String),
    #[error("invalid {field} [{value}] of machinePool [{pool}]")]
    InvalidField { pool: String, field: &'static str, value: String },
    #[error("{kind} {namespace}/{name} of machinePool [{pool}] not found")]
    NoConfig { pool: String, kind: String, namespace: String, name: String },
    #[error(
        "kind {kind} of the config of machinePool [{pool}] is not served, its node driver may not be active"
    )]
    NoKind { pool: String, kind: String },
    #[error("can not use {kind} {name} because it is already controlled by {owner}")]
    Controlled { kind: String, name: String, owner: String },
    #[error("cloud credential {namespace}/{name} of machinePool [{pool}] not found")]
    NoCredential { pool: String, namespace: String, name: String },
    #[error("invalid management cluster name [{0}], it must begin with c- and be a DNS label")]
    InvalidManagement(String),
    #[error("management cluster {0} belongs to another cluster")]
    ForeignManagement(String),
    #[error("management cluster {0} does not exist")]
    NoManagement(String),
    #[error("etcd snapshot {namespace}/{name} to be restored does not exist")]
    NoSnapshot { namespace: String, name: String },
    #[error("etcd snapshot {namespace}/{name} holds no spec of the cluster")]
    NoSnapshotSpec { namespace: String, name: String },
    #[error(
        "the spec in etcd snapshot {snapshot} names {object} at {field}, which the spec of the cluster does not; write \
         that field first, or restore with restoreRKEConfig none or kubernetesVersion"
    )]
    SnapshotNames { snapshot: String, field: String, object: String },
    #[error(
        "{kind} {name} exists and was not made for this cluster; remove or rename it, or name the cluster otherwise"
    )]
    Foreign { kind: String, name: String },
}
