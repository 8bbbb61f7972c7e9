//! `remuda cluster delete`.

use std::time::Duration;

use clap::Args;

use super::Wait;
use crate::{
    api,
    failure::Failure,
    gather,
    object::Object,
    progress::{self, ClusterKey, Goal},
    session::Session,
};

#[derive(Args, Debug)]
pub struct Delete {
    /// Names of clusters
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub names: Vec<String>,

    /// All clusters of the namespace
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub wait: Wait,

    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}

pub(super) async fn run(session: &Session, arguments: Delete) -> Result<(), Failure> {
    let namespace = session.namespace.as_str();
    let names = match arguments.all {
        true => {
            let clusters = gather::served_clusters(session, Some(namespace)).await?;
            clusters.iter().map(|cluster| cluster.name().to_owned()).collect()
        }
        false => arguments.names,
    };
    let mut keys = Vec::new();
    for name in names {
        let clusters = api::provisioning_clusters();
        if api::delete(&session.client, &clusters, Some(namespace), &name, arguments.dry_run).await? {
            let done = if arguments.dry_run { "would be deleted" } else { "is being deleted" };
            session.out.line(&format!("cluster {name} {done}"));
            keys.push(ClusterKey { namespace: namespace.to_owned(), name });
        } else {
            // Nobody is served by a failure here, but a mistyped name should not look like success either.
            let failure = gather::no_such_cluster(session, namespace, &name).await?;
            let hint = failure.hint.filter(|hint| !hint.contains("shows what there is"));
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            session.out.note(&format!("{}: nothing to delete{hint}", failure.message));
        }
    }
    if arguments.wait.wait && !arguments.dry_run {
        progress::wait(session, &keys, Goal::Gone, arguments.wait.timeout).await?;
    }
    Ok(())
}

/// Deletes every cluster of the server and waits until nothing of them is left.
pub async fn delete_all(session: &Session, timeout: Duration) -> Result<usize, Failure> {
    let clusters = gather::served_clusters(session, None).await?;
    // The cluster the server runs in is nobody's to delete.
    let ours = clusters.iter().filter(|cluster| cluster.name() != remuda_names::rancher::name::LOCAL);
    let keys: Vec<ClusterKey> = ours.map(key).collect();
    for key in &keys {
        api::delete(&session.client, &api::provisioning_clusters(), Some(&key.namespace), &key.name, false)
            .await?;
    }
    progress::wait(session, &keys, Goal::Gone, timeout).await?;
    Ok(keys.len())
}

fn key(cluster: &Object) -> ClusterKey {
    ClusterKey { namespace: cluster.namespace().to_owned(), name: cluster.name().to_owned() }
}
