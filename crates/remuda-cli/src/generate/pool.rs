//! Pools as they are written on the command line.

use std::{collections::BTreeSet, str::FromStr};

use serde_json::{Value, json};

use crate::failure::Failure;

/// How long the machines of a new pool are drained at most before they go.
const DRAIN_TIMEOUT: &str = "10m";

/// Roles of a pool's machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolRoles {
    pub etcd: bool,
    pub control_plane: bool,
    pub worker: bool,
}

impl PoolRoles {
    pub const ALL: PoolRoles = PoolRoles { etcd: true, control_plane: true, worker: true };
    pub const SERVER: PoolRoles = PoolRoles { etcd: true, control_plane: true, worker: false };
    pub const WORKER: PoolRoles = PoolRoles { etcd: false, control_plane: false, worker: true };
}

/// `all`, `server`, or roles joined by `+`.
impl FromStr for PoolRoles {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolRoles, String> {
        let mut roles = PoolRoles::default();
        for word in text.split(['+', '/']) {
            match word {
                "all" => roles = PoolRoles::ALL,
                "server" => (roles.etcd, roles.control_plane) = (true, true),
                "etcd" => roles.etcd = true,
                "controlplane" | "control-plane" | "cp" => roles.control_plane = true,
                "worker" => roles.worker = true,
                word => {
                    return Err(format!(
                        "{word:?} is no role; there are all, server, etcd, controlplane and worker"
                    ));
                }
            }
        }
        Ok(roles)
    }
}

/// A pool of a new cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolShape {
    pub name: String,
    pub roles: PoolRoles,
    pub count: u32,
    /// Who makes the machines, if not the one that makes those of all pools.
    pub driver: Option<String>,
    /// Fields of the machine configuration.
    pub config: Vec<(String, String)>,
    pub labels: Vec<(String, String)>,
}

impl FromStr for PoolShape {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolShape, String> {
        let (mut name, mut roles, mut count, mut driver) = (None, None, 1, None);
        let (mut config, mut labels) = (Vec::new(), Vec::new());
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
            match key {
                "name" => name = Some(value.to_owned()),
                "roles" | "role" => roles = Some(value.parse()?),
                "count" | "quantity" => {
                    count = value
                        .parse()
                        .ok()
                        .filter(|count| *count <= 1000)
                        .ok_or_else(|| format!("{value:?} is no number of machines from 0 to 1000"))?;
                }
                "driver" => driver = Some(value.to_owned()),
                key => match (key.strip_prefix("config."), key.strip_prefix("label.")) {
                    (Some(field), _) if !field.is_empty() => {
                        config.push((field.to_owned(), value.to_owned()));
                    }
                    (_, Some(label)) if !label.is_empty() => {
                        labels.push((label.to_owned(), value.to_owned()));
                    }
                    _ => {
                        return Err(format!(
                            "{key:?} is not known; there are name, roles, count, driver, label.NAME and config.FIELD"
                        ));
                    }
                },
            }
        }
        let name = name.ok_or("it has no name: add name=…")?;
        // A pool says what it is for by its name, where that is a role.
        let roles = match roles {
            Some(roles) => roles,
            None => {
                name.trim_end_matches('s').parse().map_err(|_| "it has no roles: add roles=…".to_owned())?
            }
        };
        Ok(PoolShape { name, roles, count, driver, config, labels })
    }
}

impl PoolShape {
    fn new(name: &str, roles: PoolRoles, count: u32) -> PoolShape {
        PoolShape {
            name: name.to_owned(),
            roles,
            count,
            driver: None,
            config: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// As it is written in a Cluster.
    pub(super) fn entry(&self, kind: &str, config: &str) -> Value {
        let mut entry = json!({
            "name": self.name,
            "quantity": self.count,
            "machineConfigRef": {"kind": kind, "name": config},
            // Nobody wants pods killed; a pod that cannot move holds a machine up for so long at most.
            "drainBeforeDelete": true,
            "drainBeforeDeleteTimeout": DRAIN_TIMEOUT,
        });
        let PoolRoles { etcd, control_plane, worker } = self.roles;
        for (held, field) in [(etcd, "etcdRole"), (control_plane, "controlPlaneRole"), (worker, "workerRole")]
        {
            if held {
                entry[field] = json!(true);
            }
        }
        for (name, value) in &self.labels {
            entry["labels"][name] = json!(value);
        }
        entry
    }
}

/// Servers, and workers if there are to be any.
pub(super) fn simple(servers: u32, workers: u32) -> Vec<PoolShape> {
    match workers {
        0 => vec![PoolShape::new("servers", PoolRoles::ALL, servers)],
        workers => vec![
            PoolShape::new("servers", PoolRoles::SERVER, servers),
            PoolShape::new("workers", PoolRoles::WORKER, workers),
        ],
    }
}

/// A cluster of these pools can become one.
pub(super) fn check(pools: &[PoolShape]) -> Result<(), Failure> {
    let mut names = BTreeSet::new();
    let mut held = PoolRoles::default();
    for pool in pools {
        let good = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        let name = &pool.name;
        if name.is_empty()
            || name.len() > 63
            || name.starts_with('-')
            || name.ends_with('-')
            || !name.chars().all(good)
        {
            let failure = Failure::invalid(format!("{name:?} cannot be the name of a pool"));
            return Err(failure.hint("use lower-case letters, digits and dashes"));
        }
        if !names.insert(name) {
            return Err(Failure::invalid(format!("two pools are called {name}")));
        }
        if pool.roles == PoolRoles::default() {
            return Err(Failure::invalid(format!("pool {name} has no role")));
        }
        if pool.count > 0 {
            held.etcd |= pool.roles.etcd;
            held.control_plane |= pool.roles.control_plane;
            held.worker |= pool.roles.worker;
        }
    }
    for (held, role) in [(held.etcd, "etcd"), (held.control_plane, "controlplane"), (held.worker, "worker")] {
        if !held {
            let failure = Failure::invalid(format!(
                "no pool has machines for {role}, so the cluster would never start"
            ));
            return Err(failure.hint(format!("add the role to a pool with machines, for example roles=etcd+controlplane+worker, or a pool with roles={role}")));
        }
    }
    Ok(())
}
