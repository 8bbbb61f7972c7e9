//! Nodes of many connected clusters: what the server spends on them while nothing happens, and how soon a change of a node
//! is in its mirror.
//!
//! One server of ours stands for the API of all clusters; each has an agent of its own, so a change of one node is
//! a change of as many mirrors as there are clusters.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{RancherApiArguments, idle};
use crate::{
    http::Verb,
    process,
    tunnel::proxied::{Agent, Place, account, agent, node, registered},
};

/// For all clusters to connect and all nodes to be mirrored.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(20);
/// Changes that are measured.
const CHANGES: usize = 10;
const MIRRORS: &str = "/apis/management.cattle.io/v3/nodes";
/// The node that changes, in all clusters.
const CHANGED: &str = "node-0";

pub(super) async fn measure(
    program: &Path,
    with: &[String],
    arguments: &RancherApiArguments,
) -> anyhow::Result<Vec<String>> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let mut management = Place::start(program, &dir.path().join("management"), with).await?;
    let without = ["--controllers=false".to_owned()];
    let mut cluster = Place::start(program, &dir.path().join("cluster"), &without).await?;
    for number in 0..arguments.nodes {
        cluster.make("/api/v1/nodes", &node(number)).await?;
    }
    let account = account(&mut cluster).await?;
    let began = Instant::now();
    let mut agents: Vec<Agent> = Vec::new();
    for number in 0..arguments.clusters {
        let (_, token) = registered(&mut management, &format!("bench-{number}")).await?;
        let pod = dir.path().join(format!("pod-{number}"));
        agents.push(agent(program, &pod, &management, &cluster, &account, &token)?);
    }
    let wanted = (arguments.clusters * arguments.nodes) as u64;
    until(&mut management, "all nodes are mirrored", async |place| Ok(count(place).await? == wanted)).await?;
    let mirrored = began.elapsed();
    let mut notes = vec![format!(
        "{} clusters of {} nodes: mirrored {:.1} s after the first was made, {} MiB resident",
        arguments.clusters,
        arguments.nodes,
        mirrored.as_secs_f64(),
        process::resident(management.pid()) >> 20,
    )];
    let settled = idle(management.pid(), arguments.seconds, "nodes of connected clusters, settled").await;
    notes.push(format!("{settled} (wanted: at most 1)"));
    let (mut first, mut all) = (Vec::new(), Vec::new());
    for number in 0..CHANGES {
        let cordoned = number % 2 == 0;
        let patch = json!({"spec": {"unschedulable": cordoned}}).to_string();
        let since = Instant::now();
        cluster.connection.call(Verb::MergePatch, &format!("/api/v1/nodes/{CHANGED}"), patch.into()).await?;
        let (clusters, mut seen) = (arguments.clusters, None);
        until(&mut management, "the change is mirrored", async |place| {
            let there = changed(place, cordoned).await?;
            if there > 0 {
                seen.get_or_insert_with(|| since.elapsed());
            }
            Ok(there == clusters)
        })
        .await?;
        first.extend(seen);
        all.push(since.elapsed());
    }
    first.sort_unstable();
    all.sort_unstable();
    let millis = |times: &[Duration]| times.get(times.len() / 2).copied().unwrap_or_default().as_millis();
    notes.push(format!(
        "a change of a node: in the first mirror after {} ms, in those of all {} clusters after {} ms \
         (medians of {CHANGES}; wanted: at most 1,000)",
        millis(&first),
        arguments.clusters,
        millis(&all),
    ));
    Ok(notes)
}

/// Waits until something is so.
async fn until(
    management: &mut Place,
    what: &str,
    mut so: impl AsyncFnMut(&mut Place) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    while !so(management).await? {
        if started.elapsed() > PATIENCE {
            bail!("not within {PATIENCE:?}: {what}");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

async fn get(management: &mut Place, path: &str) -> anyhow::Result<Value> {
    let answer = management.connection.call(Verb::Get, path, Bytes::new()).await?;
    Ok(serde_json::from_slice(&answer)?)
}

/// How many nodes are mirrored. Not by the list API, which would keep them for it.
async fn count(management: &mut Place) -> anyhow::Result<u64> {
    let page = get(management, &format!("{MIRRORS}?limit=1")).await?;
    let here = page["items"].as_array().map_or(0, Vec::len) as u64;
    Ok(here + page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default())
}

/// Mirrors of the node that are as it was made.
async fn changed(management: &mut Place, cordoned: bool) -> anyhow::Result<usize> {
    let label = remuda_names::rancher::label::MANAGEMENT_NODE_NAME;
    let list = get(management, &format!("{MIRRORS}?labelSelector={label}%3D{CHANGED}")).await?;
    let is = |node: &&Value| (node["spec"]["internalNodeSpec"]["unschedulable"] == true) == cordoned;
    Ok(list["items"].as_array().into_iter().flatten().filter(is).count())
}
