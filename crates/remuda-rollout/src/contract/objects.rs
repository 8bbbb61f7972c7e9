//! Accessors for each kind of provider object.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Contract, WrongType, at, flag, number, text, typed};
use crate::{cluster::counters::Reported, version::VersionCount};

/// Reason and message of a failure the provider calls terminal.
pub fn failure(object: &Value) -> Result<(Option<String>, Option<String>), WrongType> {
    Ok((text(object, "status.failureReason")?, text(object, "status.failureMessage")?))
}

/// A failure domain, as a Cluster shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureDomain {
    pub name: String,
    pub control_plane: bool,
    pub attributes: BTreeMap<String, String>,
}

fn initialized(object: &Value, contract: Contract, old: &str, new: &str) -> Result<bool, WrongType> {
    let path = match contract {
        Contract::V1Beta1 => old,
        Contract::V1Beta2 => new,
    };
    Ok(flag(object, path)?.unwrap_or(false))
}

fn endpoint(object: &Value) -> Result<Option<(String, i32)>, WrongType> {
    let host = text(object, "spec.controlPlaneEndpoint.host")?.unwrap_or_default();
    let port = number(object, "spec.controlPlaneEndpoint.port")?.unwrap_or(0);
    Ok((!host.is_empty() && port != 0).then_some((host, port)))
}

/// The infrastructure of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct InfraCluster<'a> {
    pub object: &'a Value,
    pub contract: Contract,
}

impl InfraCluster<'_> {
    pub fn provisioned(&self) -> Result<bool, WrongType> {
        initialized(self.object, self.contract, "status.ready", "status.initialization.provisioned")
    }

    /// Host and port, once both are known.
    pub fn endpoint(&self) -> Result<Option<(String, i32)>, WrongType> {
        endpoint(self.object)
    }

    /// Sorted by name.
    pub fn failure_domains(&self) -> Result<Vec<FailureDomain>, WrongType> {
        let path = "status.failureDomains";
        let entries: Vec<(String, &Value)> = match self.contract {
            Contract::V1Beta1 => typed(self.object, path, "a map", Value::as_object)?
                .into_iter()
                .flatten()
                .map(|(name, domain)| (name.clone(), domain))
                .collect(),
            Contract::V1Beta2 => typed(self.object, path, "a list", Value::as_array)?
                .into_iter()
                .flatten()
                .map(|domain| {
                    (at(domain, "name").and_then(Value::as_str).unwrap_or_default().to_owned(), domain)
                })
                .collect(),
        };
        let mut domains: Vec<FailureDomain> = entries
            .into_iter()
            .map(|(name, domain)| FailureDomain {
                name,
                control_plane: at(domain, "controlPlane").and_then(Value::as_bool).unwrap_or(false),
                attributes: at(domain, "attributes")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                    .collect(),
            })
            .collect();
        domains.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(domains)
    }
}

/// The server behind a machine.
#[derive(Debug, Clone, Copy)]
pub struct InfraMachine<'a> {
    pub object: &'a Value,
    pub contract: Contract,
}

impl InfraMachine<'_> {
    pub fn provisioned(&self) -> Result<bool, WrongType> {
        initialized(self.object, self.contract, "status.ready", "status.initialization.provisioned")
    }

    /// What the Node must say byte for byte. Empty counts as missing.
    pub fn provider_id(&self) -> Result<Option<String>, WrongType> {
        Ok(text(self.object, "spec.providerID")?.filter(|id| !id.is_empty()))
    }

    /// Type and address of each, if the list is there.
    pub fn addresses(&self) -> Result<Option<Vec<(String, String)>>, WrongType> {
        let list = typed(self.object, "status.addresses", "a list", Value::as_array)?;
        let part =
            |entry: &Value, key: &str| at(entry, key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(list.map(|list| list.iter().map(|entry| (part(entry, "type"), part(entry, "address"))).collect()))
    }

    /// For the Machine's spec; providers of either contract may still use it.
    pub fn spec_failure_domain(&self) -> Result<Option<String>, WrongType> {
        text(self.object, "spec.failureDomain")
    }

    /// For the Machine's status.
    pub fn status_failure_domain(&self) -> Result<Option<String>, WrongType> {
        text(self.object, "status.failureDomain")
    }

    pub fn interruptible(&self) -> Result<bool, WrongType> {
        Ok(flag(self.object, "status.interruptible")?.unwrap_or(false))
    }
}

/// The servers behind a pool.
#[derive(Debug, Clone, Copy)]
pub struct InfraMachinePool<'a> {
    pub object: &'a Value,
    pub contract: Contract,
}

impl InfraMachinePool<'_> {
    /// Upstream reads `status.ready` whatever the contract; what other kinds of the newer one report counts too.
    pub fn ready(&self) -> Result<bool, WrongType> {
        let ready = flag(self.object, "status.ready")?.unwrap_or(false);
        let provisioned = match self.contract {
            Contract::V1Beta1 => None,
            Contract::V1Beta2 => flag(self.object, "status.initialization.provisioned")?,
        };
        Ok(ready || provisioned.unwrap_or(false))
    }

    pub fn provider_ids(&self) -> Result<Vec<String>, WrongType> {
        let list = typed(self.object, "spec.providerIDList", "a list", Value::as_array)?;
        Ok(list.into_iter().flatten().filter_map(|id| Some(id.as_str()?.to_owned())).collect())
    }

    pub fn replicas(&self) -> Result<Option<i32>, WrongType> {
        number(self.object, "status.replicas")
    }

    /// Each server has an object of this kind.
    pub fn machine_kind(&self) -> Result<Option<String>, WrongType> {
        Ok(text(self.object, "status.infrastructureMachineKind")?.filter(|kind| !kind.is_empty()))
    }
}

/// What a machine boots from.
#[derive(Debug, Clone, Copy)]
pub struct BootstrapConfig<'a> {
    pub object: &'a Value,
    pub contract: Contract,
}

impl BootstrapConfig<'_> {
    pub fn data_secret_created(&self) -> Result<bool, WrongType> {
        initialized(self.object, self.contract, "status.ready", "status.initialization.dataSecretCreated")
    }

    pub fn data_secret_name(&self) -> Result<Option<String>, WrongType> {
        Ok(text(self.object, "status.dataSecretName")?.filter(|name| !name.is_empty()))
    }
}

/// A control plane.
#[derive(Debug, Clone, Copy)]
pub struct ControlPlaneObject<'a> {
    pub object: &'a Value,
    pub contract: Contract,
}

impl ControlPlaneObject<'_> {
    /// Its API server took requests once.
    pub fn initialized(&self) -> Result<bool, WrongType> {
        let new = "status.initialization.controlPlaneInitialized";
        initialized(self.object, self.contract, "status.initialized", new)
    }

    pub fn endpoint(&self) -> Result<Option<(String, i32)>, WrongType> {
        endpoint(self.object)
    }

    /// It is not made of machines.
    pub fn is_external(&self) -> Result<bool, WrongType> {
        Ok(flag(self.object, "status.externalManagedControlPlane")?.unwrap_or(false))
    }

    /// Version asked for; without one nothing is checked before machines are made.
    pub fn version(&self) -> Result<Option<String>, WrongType> {
        text(self.object, "spec.version")
    }

    /// Versions it runs: the list, or else the single one.
    pub fn reported_versions(&self) -> Result<Vec<String>, WrongType> {
        match self.versions()? {
            Some(versions) if !versions.is_empty() => {
                Ok(versions.into_iter().map(|count| count.version).collect())
            }
            _ => Ok(text(self.object, "status.version")?.into_iter().collect()),
        }
    }

    fn versions(&self) -> Result<Option<Vec<VersionCount>>, WrongType> {
        let list = typed(self.object, "status.versions", "a list", Value::as_array)?;
        Ok(list.map(|list| {
            list.iter()
                .map(|entry| VersionCount {
                    version: at(entry, "version").and_then(Value::as_str).unwrap_or_default().to_owned(),
                    replicas: at(entry, "replicas")
                        .and_then(Value::as_i64)
                        .and_then(|count| i32::try_from(count).ok())
                        .unwrap_or(0),
                })
                .collect()
        }))
    }

    /// Counters, as far as it has any. A counter of the wrong type counts as missing.
    pub fn counters(&self) -> Reported {
        let count = |path: &str| number(self.object, path).ok().flatten();
        let old = self.contract == Contract::V1Beta1;
        Reported {
            desired: count("spec.replicas"),
            replicas: count("status.replicas"),
            ready: count("status.readyReplicas"),
            available: if old { None } else { count("status.availableReplicas") },
            unavailable: if old { count("status.unavailableReplicas") } else { None },
            up_to_date: count(if old { "status.updatedReplicas" } else { "status.upToDateReplicas" }),
            versions: self.versions().ok().flatten(),
        }
    }
}
