//! The Node of a Machine that goes before it came to know its Node.
//!
//! Cluster API deletes the Node a Machine refers to. A Machine that is replaced while its server joins refers to none
//! yet, and its Node would stay for ever. An RKEBootstrap goes after the server has gone, so the Node that is
//! labelled with the Machine's uid then has no owner.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};
use remuda_api::{core::Machine, rke::RkeBootstrap};
use remuda_control::{Chain, ObjectKey, write::delete};
use remuda_names::rancher::label;

use super::Bootstraps;
use crate::{
    error::is_code,
    objects,
    shared::{BY_BOOTSTRAP, filed},
};

/// How long a cluster that does not answer is waited for: as long as agents take to come back to a server that has
/// just started.
const TIMEOUT: SignedDuration = SignedDuration::from_secs(30);
/// How soon a cluster is asked again.
const AGAIN: Duration = Duration::from_secs(2);

impl Bootstraps {
    /// Deletes the Node of the Machine, if the Machine does not know it. Tells when to try again if the cluster
    /// does not answer; after a while what is left is found by the controller of stale nodes.
    pub(super) async fn take_node(&self, key: &ObjectKey, bootstrap: &RkeBootstrap) -> Option<Duration> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let found = self.rke.machines.by_index(BY_BOOTSTRAP, &filed(namespace, &key.name));
        let machine = found.into_iter().next()?;
        let uid = machine.uid().filter(|_| self.leaves_node(&machine))?;
        let cluster = key.sibling(&machine.spec.cluster_name);
        let Ok(lease) = self.rke.workloads.lease(&cluster, &self.enqueuer, key) else {
            return self.again(bootstrap);
        };
        let nodes: Api<Node> = Api::all(lease.client());
        let of_machine = ListParams::default().labels(&format!("{}={uid}", label::MACHINE));
        // A cluster that answers with an error holds its machine no longer than one that does not answer.
        let Ok(Ok(listed)) = lease.call(nodes.list(&of_machine)).await else {
            return self.again(bootstrap);
        };
        for node in listed.items {
            let name = node.name_any();
            let preconditions = Preconditions { uid: node.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let client = lease.client();
            match lease.call(delete(&client, nodes.resource_url(), &name, &params)).await {
                Err(_) => return self.again(bootstrap),
                Ok(Err(error)) if !is_code(&error, 404) && !is_code(&error, 409) => {
                    let error = Chain(&error);
                    tracing::warn!(machine = machine.name_any(), node = name, %error, "node cannot be deleted");
                    return self.again(bootstrap);
                }
                Ok(_) => {
                    tracing::info!(machine = machine.name_any(), node = name, "node goes with its machine");
                }
            }
        }
        None
    }

    /// Whether a Machine that goes may leave a Node behind: it refers to none, in a cluster that has an API and stays.
    fn leaves_node(&self, machine: &Machine) -> bool {
        let knows = machine.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty());
        let cluster = self.rke.cluster_of(machine);
        let answers = cluster.is_some_and(|cluster| {
            let status = cluster.status.as_ref();
            let initialized =
                status.is_some_and(|status| status.initialization.control_plane_initialized == Some(true));
            initialized && !objects::is_deleting(&cluster.metadata)
        });
        objects::is_deleting(&machine.metadata) && !knows && answers
    }

    fn again(&self, bootstrap: &RkeBootstrap) -> Option<Duration> {
        // Since its server has gone.
        let since = bootstrap.metadata.deletion_timestamp.as_ref()?.0;
        (self.rke.ctx.clock.now().duration_since(since) < TIMEOUT).then_some(AGAIN)
    }
}
