//! Actions of the list API on nodes, done by the gateway.

use futures::future::BoxFuture;
use kube::Client;
use remuda_door::Caller;
use remuda_gateway::{DrainRequest, Gateway};
use remuda_steve::{DrainInput, NodeActions};
use remuda_workload::drain::Rules;
use tokio_util::sync::CancellationToken;

/// The gateway as the list API knows it.
pub(crate) struct Nodes(pub(crate) Gateway);

impl NodeActions for Nodes {
    fn offers<'a>(&'a self, caller: &'a Caller, cluster: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(self.0.may_change_nodes(caller, cluster))
    }

    fn drain(
        &self,
        cluster: &str,
        node: &str,
        client: Client,
        input: DrainInput,
        revoked: Option<CancellationToken>,
    ) -> Result<(), String> {
        let rules = Rules {
            force: input.force,
            ignore_daemon_sets: input.ignore_daemon_sets,
            delete_empty_dir_data: input.delete_local_data,
            ..Rules::default()
        };
        let request = DrainRequest { rules, grace_seconds: input.grace_period, timeout: input.timeout };
        self.0.drain_node(cluster, node, client, request, revoked).map_err(|refused| refused.to_string())
    }

    fn stop_drain(&self, cluster: &str, node: &str) -> bool {
        self.0.stop_drain(cluster, node)
    }
}
