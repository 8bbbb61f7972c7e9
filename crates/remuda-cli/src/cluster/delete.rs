//! `remuda cluster delete`.

use std::time::Duration;

use clap::Args;
use remuda_names::{
    capi,
    rancher::name::{FLEET_DEFAULT, LOCAL},
};
use serde_json::json;

use super::Wait;
use crate::{
    api::{self, Seen},
    confirm::{confirm, counted},
    failure::{Code, Failure},
    gather,
    object::Object,
    progress::{self, ClusterKey, Goal},
    session::Session,
};

#[derive(Args, Debug)]
pub struct Delete {
    /// Names of clusters
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "CLUSTER")]
    pub names: Vec<String>,

    /// All clusters of the namespace
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub wait: Wait,

    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,

    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}

pub(super) async fn run(session: &Session, arguments: Delete) -> Result<(), Failure> {
    let namespace = session.namespace.as_str();
    let resource = api::provisioning_clusters();
    let mut clusters = Vec::new();
    match arguments.all {
        true => clusters = all(session, Some(namespace)).await?,
        false => {
            for name in &arguments.names {
                match api::get(&session.client, &resource, Some(namespace), name).await {
                    Ok(Some(cluster)) => clusters.push(cluster),
                    Ok(None) => nothing(session, name).await?,
                    // Who may not see it may still be allowed to delete it: the server says.
                    Err(failure) if failure.code == Code::Forbidden => clusters.push(unseen(namespace, name)),
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
    if !arguments.dry_run && !clusters.is_empty() {
        let what = named(session, &clusters).await.join(", ");
        confirm(&format!("deletes {what}"), arguments.yes)?;
    }
    let mut keys = Vec::new();
    for key in clusters.iter().map(key) {
        let name = &key.name;
        if api::delete(&session.client, &resource, Some(namespace), name, arguments.dry_run).await? {
            let done = if arguments.dry_run { "would be deleted" } else { "is being deleted" };
            session.out.line(&format!("cluster {name} {done}"));
            keys.push(key);
        } else {
            nothing(session, name).await?;
        }
    }
    if arguments.wait.wait && !arguments.dry_run {
        progress::wait(session, &keys, Goal::Gone, arguments.wait.timeout).await?;
    }
    Ok(())
}

/// A failure would break repeated deletions, but a mistyped name should not look like success either.
async fn nothing(session: &Session, name: &str) -> Result<(), Failure> {
    let absent = gather::absent_cluster(session, &session.namespace, name).await?;
    let meant = absent.meant.map(|meant| format!(" ({meant})")).unwrap_or_default();
    session.out.note(&format!("{}: nothing to delete{meant}", absent.message));
    Ok(())
}

fn unseen(namespace: &str, name: &str) -> Object {
    Object(json!({"metadata": {"namespace": namespace, "name": name}}))
}

/// Clusters with the machines that go with them.
async fn named(session: &Session, clusters: &[Object]) -> Vec<String> {
    let machines = api::seen(&session.client, &api::capi("Machine"), None, api::Which::All).await;
    let machines = machines.map(|seen| seen.objects).unwrap_or_default();
    let of = |cluster: &Object| {
        let ours = machines.iter().filter(|machine| {
            machine.namespace() == cluster.namespace()
                && machine.label(capi::label::CLUSTER_NAME) == cluster.name()
        });
        let place = match cluster.namespace() {
            FLEET_DEFAULT => String::new(),
            namespace => format!("{namespace}/"),
        };
        let name = format!("cluster {place}{}", cluster.name());
        match ours.count() {
            0 => name,
            count => format!("{name} with {}", counted(count, "machine")),
        }
    };
    clusters.iter().map(of).collect()
}

/// Every cluster of the server that can be deleted, as people know it.
pub async fn all_named(session: &Session) -> Result<Vec<String>, Failure> {
    let clusters = deletable(session).await?;
    Ok(named(session, &clusters).await)
}

/// Deletes every cluster of the server and waits until nothing of them is left.
pub async fn delete_all(session: &Session, timeout: Duration) -> Result<usize, Failure> {
    let keys: Vec<ClusterKey> = deletable(session).await?.iter().map(key).collect();
    for key in &keys {
        api::delete(&session.client, &api::provisioning_clusters(), Some(&key.namespace), &key.name, false)
            .await?;
    }
    progress::wait(session, &keys, Goal::Gone, timeout).await?;
    Ok(keys.len())
}

/// The cluster the server runs in cannot be deleted.
async fn deletable(session: &Session) -> Result<Vec<Object>, Failure> {
    let mut clusters = all(session, None).await?;
    clusters.retain(|cluster| cluster.name() != LOCAL);
    Ok(clusters)
}

/// All clusters there are: whoever sees only some of them cannot mean all.
async fn all(session: &Session, namespace: Option<&str>) -> Result<Vec<Object>, Failure> {
    let Seen { objects, withheld } = gather::served_clusters(session, namespace).await?;
    match withheld {
        None => Ok(objects),
        Some(refused) => Err(refused.hint("name the clusters; remuda cluster list shows those you may see")),
    }
}

fn key(cluster: &Object) -> ClusterKey {
    ClusterKey { namespace: cluster.namespace().to_owned(), name: cluster.name().to_owned() }
}
