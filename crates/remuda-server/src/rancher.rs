//! Rancher's kinds on this server: the clusters people write, what they are made of, and what is refused.
//!
//! As with Cluster API, [`Kinds`] goes into the API's configuration before it starts, and [`install`]
//! creates the definitions before the first client is served.

mod admission;
mod protection;
mod quota;
mod s3;
mod writers;

use std::sync::{Arc, OnceLock};

use kube::Client;
use remuda_api::crd;
use remuda_apiserver::Hook;
use remuda_auth::{identity::User, rbac::policy::Policy};
use remuda_distro::Current;
use remuda_names::rancher::group;

pub use self::{admission::Admission, protection::Protection, writers::Writers};
pub(crate) use self::{quota::Quotas, s3::S3Check};
use crate::{
    releases,
    shipped::{self, InstallError},
    webhooks,
};

/// What the API server is told of Rancher's kinds.
#[derive(Clone, Default)]
pub struct Kinds {
    /// By which writers are judged, once the API has it.
    policy: Arc<OnceLock<Arc<Policy>>>,
    /// Releases there are.
    pub releases: Current,
}

impl Kinds {
    /// In-process admission.
    pub fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        vec![
            Arc::new(Admission::new(self.releases.clone())),
            Arc::new(Writers::new(self.clone())),
            Arc::new(Protection::new(self.clone())),
            Arc::new(releases::Admission),
            Arc::new(webhooks::Admission),
        ]
    }

    /// Begins to judge writers. Until then only administrators and the server may name other objects.
    pub fn judge_by(&self, policy: Arc<Policy>) {
        let _ = self.policy.set(policy);
    }

    fn policy(&self) -> Option<&Arc<Policy>> {
        self.policy.get()
    }
}

/// Groups whose kinds are ours to define. Those of Cluster API are not among them: its clients rely on Kubernetes'
/// default, which is a warning.
const STRICT: [&str; 6] = [
    group::PROVISIONING,
    group::MANAGEMENT,
    group::RKE,
    group::MACHINE_CONFIG,
    group::MACHINE,
    group::REMUDA,
];

/// Whether a write that does not say otherwise is refused for fields its kind does not know: a field that is dropped
/// from a machine configuration is a machine of another size. The server's own controllers write whole objects of
/// this version, also while another server has older definitions.
pub fn has_strict_fields(group: &str, user: &User) -> bool {
    STRICT.contains(&group) && !user.is_controller()
}

/// Creates the CRDs, or brings them up to date; returns when all of them are served.
///
/// With `workspaces` it also creates the namespaces clusters are made in: whoever is told that the server is ready
/// creates a cluster next.
pub async fn install(client: &Client, workspaces: bool) -> Result<(), InstallError> {
    shipped::definitions(client, crd::rancher()).await?;
    for name in remuda_provisioning::NAMESPACES.into_iter().filter(|_| workspaces) {
        shipped::namespace(client, name).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
