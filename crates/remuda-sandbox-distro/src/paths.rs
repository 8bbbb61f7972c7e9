//! Where things are on a node.

use std::path::{Path, PathBuf};

/// Absolute paths of a node, below a root that is `/` except in tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
    data: PathBuf,
}

/// A path of the node, as it is outside the root.
pub fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

impl Paths {
    pub fn new(root: PathBuf, data: &str) -> Paths {
        let data = below(&root, data);
        Paths { root, data }
    }

    pub fn absolute(&self, path: &str) -> PathBuf {
        below(&self.root, path)
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn server(&self, path: &str) -> PathBuf {
        self.data.join("server").join(path)
    }

    pub fn tls(&self, path: &str) -> PathBuf {
        self.data.join("server/tls").join(path)
    }

    pub fn agent(&self, path: &str) -> PathBuf {
        self.data.join("agent").join(path)
    }

    /// The store of a server that keeps the cluster's state itself.
    pub fn store(&self) -> PathBuf {
        self.data.join("server/db/state")
    }

    pub fn etcd(&self) -> PathBuf {
        self.data.join("server/db/etcd")
    }

    /// Snapshots, unless the configuration names another place.
    pub fn snapshots(&self) -> PathBuf {
        self.data.join("server/db/snapshots")
    }

    /// What is to be known of a snapshot beside its file, as K3s keeps it.
    pub fn snapshot_metadata(&self) -> PathBuf {
        self.data.join("server/db/.metadata")
    }

    /// Encrypts Secrets at rest; the same on all servers.
    pub fn keyring(&self) -> PathBuf {
        self.data.join("server/cred/encryption.keys")
    }

    /// Keys for Secrets as `secrets-encrypt` changes them, where `secrets-encryption` asked for that.
    pub fn encryption_config(&self) -> PathBuf {
        self.data.join("server/cred/encryption-config.json")
    }

    /// How far a change of these keys is.
    pub fn encryption_state(&self) -> PathBuf {
        self.data.join("server/cred/encryption-state.json")
    }

    /// What was decided about the datastore when the server was set up.
    pub fn mode(&self) -> PathBuf {
        self.data.join("server/db/sandbox.json")
    }

    pub fn manifests(&self) -> PathBuf {
        self.data.join("server/manifests")
    }

    pub fn pods(&self) -> PathBuf {
        self.data.join("agent/pods")
    }

    /// Proves that a node is the one that had its name before.
    pub fn node_password(&self) -> PathBuf {
        self.absolute("/etc/rancher/node/password")
    }
}
