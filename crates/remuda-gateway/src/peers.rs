//! Clusters whose agents are connected to another server on the same datastore.
//!
//! Servers tell each other over their links which clusters they have; what an agent uploaded to one of them is kept in
//! a Secret, where the others find it. With both, the way into a cluster is the same from every server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use remuda_control::{Chain, Informer, Scope, informer::Change};
use remuda_names::{
    gateway::{label, secret},
    rancher::name::GLOBAL_DATA,
};
use remuda_tunnel::server::SessionEvent;
use tokio::{sync::broadcast::error::RecvError, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{gateway::Shared, route::Access, status::keep_credential};

/// Between two attempts to keep what an agent uploaded, and how many there are.
const AGAIN: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 30;

/// Follows what the others have, and keeps for them what is uploaded here, until told to stop.
pub(crate) async fn run(shared: &Arc<Shared>, stop: &CancellationToken) {
    let scope = Scope::namespace(GLOBAL_DATA).with_labels(format!("{}=true", label::CLUSTER_ACCESS));
    let secrets: Informer<Secret> = shared.ctx.informers.of(scope);
    let _kept = {
        let sessions = shared.sessions.clone();
        secrets.subscribe(move |change: &Change<Secret>| {
            let Some(secret) = change.object() else { return };
            if let Some(cluster) = secret.name_any().strip_prefix(secret::CREDENTIAL_PREFIX) {
                sessions.set_kept(cluster, change.new.as_deref().and_then(kept).map(Arc::new));
            }
        })
    };
    let _uploads = {
        let shared = shared.clone();
        shared.sessions.clone().listen(move |cluster| keep(&shared, cluster))
    };
    let mut events = shared.sessions.tunnel.subscribe();
    let set = |client: &str| {
        if is_cluster(client) {
            let reachable = shared.sessions.tunnel.remote_clients().iter().any(|known| known == client);
            shared.sessions.set_remote(client, reachable, shared.ctx.clock.now());
        }
    };
    shared.sessions.tunnel.remote_clients().iter().for_each(|client| set(client));
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.recv() => event,
        };
        match event {
            Ok(SessionEvent::Remote { client, .. }) => set(&client),
            Ok(_) => {}
            // Too much at once: whoever was or is connected may have changed.
            Err(RecvError::Lagged(_)) => {
                let mut clients = shared.sessions.connected();
                clients.extend(shared.sessions.tunnel.remote_clients());
                clients.iter().for_each(|client| set(client));
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Servers announce each other too; their names are none a cluster can have.
fn is_cluster(client: &str) -> bool {
    !client.is_empty()
        && client
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

fn kept(secret: &Secret) -> Option<Access> {
    let text = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        String::from_utf8(value.0.clone()).ok()
    };
    let (address, ca, token) = (text(secret::ADDRESS)?, text(secret::AUTHORITY)?, text(secret::CREDENTIAL)?);
    Access::new(&address, ca, token).ok()
}

/// Keeps what an agent has just uploaded, if it has.
fn keep(shared: &Arc<Shared>, cluster: &str) {
    let Some(access) = shared.sessions.uploaded(cluster) else { return };
    let (shared, cluster) = (shared.clone(), cluster.to_owned());
    shared.tasks.clone().spawn(async move {
        let mut why = "its management Cluster is not there".to_owned();
        for _ in 0..ATTEMPTS {
            // Another agent may have come meanwhile, or this one gone.
            if shared.sessions.uploaded(&cluster).as_ref() != Some(&access) || shared.stop.is_cancelled() {
                return;
            }
            if let Some(object) = shared.cluster(&cluster) {
                match keep_credential(&shared, &object, &access).await {
                    Ok(()) => return,
                    Err(error) => why = Chain(&error).to_string(),
                }
            }
            shared.stop.run_until_cancelled(sleep(AGAIN)).await;
        }
        // It is uploaded again when the agent connects again.
        tracing::warn!(
            cluster,
            error = why,
            "other servers cannot reach this cluster: its credentials are not kept"
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_no_clusters() {
        assert!(is_cluster("c-m-abcdefgh") && is_cluster("local"));
        for other in ["", "host_0123456789abcdef", "stv/x", "A"] {
            assert!(!is_cluster(other), "{other}");
        }
    }
}
