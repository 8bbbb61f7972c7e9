//! Who works, when several processes share one API: leader election by Leases of the API.

use std::sync::Arc;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
pub use remuda_coordination::election::Leadership;
use remuda_coordination::election::{self, Entry, Leases, Timing};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{clock::Clock, error::is_code, metrics::Metrics};

/// Competes for one Lease.
pub struct Elector(election::Elector<KubeLease>);

impl Elector {
    /// `identity` is unique to this process, also across its restarts.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        let lease = KubeLease { api, name: name.to_owned(), clock, metrics };
        Self(election::Elector::new(lease, name, identity, Timing::DEFAULT))
    }

    pub fn leadership(&self) -> Leadership {
        self.0.leadership()
    }

    /// Competes until told to stop, then gives the Lease back. Stop it after the controllers that work under it: the
    /// next leader starts at once.
    pub async fn run(self, stop: CancellationToken) {
        self.0.run(stop).await;
    }
}

struct KubeLease {
    api: Api<Lease>,
    name: String,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

#[derive(Debug, Clone, PartialEq)]
struct Version {
    uid: Option<String>,
    resource_version: Option<String>,
}

fn view(lease: Lease) -> election::Lease<Version> {
    let spec = lease.spec.unwrap_or_default();
    election::Lease {
        holder: spec.holder_identity.unwrap_or_default(),
        seconds: spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()),
        transitions: spec.lease_transitions.unwrap_or(0).into(),
        version: Version { uid: lease.metadata.uid, resource_version: lease.metadata.resource_version },
    }
}

impl KubeLease {
    fn spec(&self, entry: Entry<'_>) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        LeaseSpec {
            holder_identity: Some(entry.holder.to_owned()),
            lease_duration_seconds: Some(i32::try_from(entry.seconds).unwrap_or(i32::MAX)),
            acquire_time: entry.acquired.map(|_| now.clone()),
            lease_transitions: entry.acquired.map(|count| i32::try_from(count).unwrap_or(i32::MAX)),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }
}

impl Leases for KubeLease {
    type Version = Version;
    type Error = kube::Error;

    async fn read(&self) -> Result<Option<election::Lease<Version>>, kube::Error> {
        Ok(self.api.get_opt(&self.name).await?.map(view))
    }

    async fn write(
        &self,
        seen: Option<&Version>,
        entry: Entry<'_>,
    ) -> Result<Option<election::Lease<Version>>, kube::Error> {
        let spec = Some(self.spec(entry));
        let written = match seen {
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&PostParams::default(), &Lease { metadata, spec }).await
            }
            Some(seen) => {
                let patch = json!({
                    "metadata": {"resourceVersion": seen.resource_version, "uid": seen.uid},
                    "spec": spec,
                });
                self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await
            }
        };
        match written {
            Ok(lease) => Ok(Some(view(lease))),
            Err(error) if is_code(&error, 409) => Ok(None),
            Err(error) if seen.is_some() && is_code(&error, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn leads(&self, ours: bool) {
        self.metrics.leading(&self.name, ours);
    }
}
