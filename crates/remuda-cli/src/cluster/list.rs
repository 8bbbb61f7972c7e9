//! Clusters in a table.

use std::collections::BTreeMap;

use jiff::Timestamp;
use remuda_names::{capi, rancher::condition};
use serde_json::Value;

use super::List;
use crate::{
    age, api,
    evidence::Pool,
    failure::Failure,
    gather,
    object::{Condition, Object},
    output::{self, Format},
    session::Session,
    table::{Cell, Table, Tone},
};

/// Machines of a cluster that are there and that are nodes.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    nodes: usize,
    machines: usize,
}

type Counts = BTreeMap<(String, String), Count>;

/// Management Clusters by their names.
type Managed = BTreeMap<String, Object>;

pub(super) async fn run(session: &Session, arguments: &List) -> Result<(), Failure> {
    let namespace = (!arguments.all_namespaces).then_some(session.namespace.as_str());
    let mut clusters = gather::served_clusters(session, namespace).await?;
    clusters.sort_by(|one, other| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
    if clusters.is_empty() && matches!(arguments.output, Format::Table | Format::Wide) {
        let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        session
            .out
            .note(&format!("there are no clusters{place}; make one: remuda cluster create demo --wait"));
        return Ok(());
    }
    print(session, clusters, namespace, arguments.output, false).await
}

pub(super) async fn one(session: &Session, name: &str, format: Format) -> Result<(), Failure> {
    let cluster = gather::existing(session, &session.namespace, name).await?;
    print(session, vec![cluster], Some(&session.namespace), format, true).await
}

async fn print(
    session: &Session,
    clusters: Vec<Object>,
    namespace: Option<&str>,
    format: Format,
    single: bool,
) -> Result<(), Failure> {
    match format {
        Format::Name => {
            for cluster in &clusters {
                match namespace {
                    Some(_) => session.out.line(cluster.name()),
                    None => session.out.line(&format!("{}/{}", cluster.namespace(), cluster.name())),
                }
            }
            Ok(())
        }
        Format::Json | Format::Yaml => {
            let mut items: Vec<Value> = clusters.into_iter().map(|cluster| cluster.presentable().0).collect();
            match (single, items.pop()) {
                (true, Some(only)) => session.out.document(&only, format),
                (_, last) => {
                    items.extend(last);
                    session.out.document(&output::list(items), format)
                }
            }
        }
        Format::Table | Format::Wide => {
            let machines =
                api::list(&session.client, &api::capi("Machine"), namespace, api::Which::All).await?;
            // Not everybody who sees a cluster sees its management Cluster.
            let managed =
                api::list(&session.client, &api::management("Cluster"), None, api::Which::All).await;
            let managed: Managed = managed
                .unwrap_or_default()
                .into_iter()
                .map(|managed| (managed.name().to_owned(), managed))
                .collect();
            let text = table(
                &clusters,
                &managed,
                &count(&machines),
                namespace.is_none(),
                format == Format::Wide,
                Timestamp::now(),
            );
            session.out.text(&text);
            Ok(())
        }
    }
}

fn count(machines: &[Object]) -> Counts {
    let mut counts = Counts::new();
    for machine in machines {
        let key = (machine.namespace().to_owned(), machine.label(capi::label::CLUSTER_NAME).to_owned());
        let count = counts.entry(key).or_default();
        count.machines += 1;
        count.nodes += usize::from(!machine.text("/status/nodeRef/name").is_empty());
    }
    counts
}

fn table(
    clusters: &[Object],
    managed: &Managed,
    counts: &Counts,
    namespaces: bool,
    wide: bool,
    now: Timestamp,
) -> String {
    let mut table = match (namespaces, wide) {
        (false, false) => Table::new(["NAME", "STATE", "VERSION", "MACHINES", "PROVIDER", "AGE", "MESSAGE"]),
        (true, false) => {
            Table::new(["NAMESPACE", "NAME", "STATE", "VERSION", "MACHINES", "PROVIDER", "AGE", "MESSAGE"])
        }
        (false, true) => {
            Table::new(["NAME", "STATE", "VERSION", "MACHINES", "PROVIDER", "AGE", "ID", "MESSAGE"])
        }
        (true, true) => Table::new([
            "NAMESPACE",
            "NAME",
            "STATE",
            "VERSION",
            "MACHINES",
            "PROVIDER",
            "AGE",
            "ID",
            "MESSAGE",
        ]),
    };
    for cluster in clusters {
        let managed = managed.get(cluster.text("/status/clusterName"));
        let (state, tone, message) = state(cluster, managed);
        let mut row: Vec<Cell> = Vec::new();
        if namespaces {
            row.push(cluster.namespace().into());
        }
        row.extend([
            cluster.name().into(),
            Cell::toned(state, tone),
            version(cluster, managed).into(),
            machines(cluster, managed, counts).into(),
            provider(cluster).into(),
            age::ago(cluster.created(), now).into(),
        ]);
        if wide {
            row.push(cluster.text("/status/clusterName").into());
        }
        row.push(message.into());
        table.row(row);
    }
    table.render("")
}

/// The version asked for; that of an imported cluster is whatever it runs.
fn version<'a>(cluster: &'a Object, managed: Option<&'a Object>) -> &'a str {
    match cluster.text("/spec/kubernetesVersion") {
        "" => managed.map_or("", |managed| managed.text("/status/version/gitVersion")),
        wanted => wanted,
    }
}

/// Nodes of all machines there are or should be. An imported cluster has nodes alone.
fn machines(cluster: &Object, managed: Option<&Object>, counts: &Counts) -> String {
    if !cluster.has("/spec/rkeConfig") {
        let nodes = managed.and_then(|managed| managed.0.pointer("/status/nodeCount")?.as_u64());
        return nodes.map(|nodes| nodes.to_string()).unwrap_or_default();
    }
    let key = (cluster.namespace().to_owned(), cluster.name().to_owned());
    let count = counts.get(&key).copied().unwrap_or_default();
    let pools = cluster.list("/spec/rkeConfig/machinePools").iter().map(Pool);
    let wanted: i64 = pools.map(Pool::wanted).sum();
    let wanted = usize::try_from(wanted).unwrap_or_default().max(count.machines);
    format!("{}/{wanted}", count.nodes)
}

/// State in a word, and what is said about it. Only the cluster itself is looked at, and its management Cluster
/// as far as that is known.
pub(super) fn state<'a>(cluster: &'a Object, managed: Option<&'a Object>) -> (&'static str, Tone, &'a str) {
    let message = |kind: &str| cluster.condition(kind).map(|condition| condition.message).unwrap_or_default();
    if cluster.is_deleting() {
        return ("Removing", Tone::Busy, message(condition::REMOVED));
    }
    for kind in [condition::CREATED, condition::RKE_CLUSTER, condition::READY] {
        if let Some(found) = cluster.condition(kind).filter(Condition::is_false) {
            return ("Failed", Tone::Bad, found.message);
        }
    }
    let imported = !cluster.has("/spec/rkeConfig");
    // What was ready when it was last seen is not ready for anybody while it cannot be reached.
    let connected = managed.and_then(|managed| managed.condition(condition::CONNECTED));
    let was = managed.is_some_and(|managed| managed.is(condition::AGENT_DEPLOYED));
    if let Some(lost) = connected.filter(Condition::is_false).filter(|_| imported || was) {
        let state = if was { ("Disconnected", Tone::Bad) } else { ("Waiting", Tone::Busy) };
        return (state.0, state.1, lost.message);
    }
    if cluster.flag("/status/ready") && (imported || cluster.is(condition::READY)) {
        return ("Ready", Tone::Good, "");
    }
    match cluster.condition(condition::READY) {
        Some(ready) if cluster.flag("/status/ready") => ("Updating", Tone::Busy, ready.message),
        _ => ("Creating", Tone::Busy, message(condition::READY)),
    }
}

pub(super) fn provider(cluster: &Object) -> String {
    let pools = cluster.list("/spec/rkeConfig/machinePools");
    match (cluster.has("/spec/rkeConfig"), pools.first()) {
        (false, _) => "imported".to_owned(),
        (true, None) => "custom".to_owned(),
        (true, Some(pool)) => {
            let pool = Pool(pool);
            pool.driver().unwrap_or_else(|| pool.config_kind().to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(name: &str, status: Value) -> Object {
        Object(json!({
            "metadata": {"name": name, "namespace": "fleet-default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {"machinePools": [
                {"name": "p", "quantity": 3, "machineConfigRef": {"kind": "LocalConfig", "name": "x"}},
            ]}},
            "status": status,
        }))
    }

    fn ready(status: &str, message: &str) -> Value {
        json!({"ready": status == "True", "clusterName": "c-m-1", "conditions": [
            {"type": "Ready", "status": status, "message": message},
        ]})
    }

    #[test]
    fn a_row_says_how_it_stands_with_a_cluster() {
        let mut imported = cluster("imported", json!({"ready": true, "clusterName": "c-m-4"}));
        imported.0["spec"] = json!({});
        let mut going = cluster(
            "going",
            json!({"conditions": [
            {"type": "Removed", "status": "Unknown", "message": "waiting for machine [x] to delete"}]}),
        );
        going.0["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut refused = ready("Unknown", "later");
        refused["conditions"].as_array_mut().unwrap().push(json!({
            "type": "RKECluster", "status": "False", "message": "duplicate machinePool name [p] used"}));
        let mut lost = cluster("lost", ready("True", ""));
        lost.0["status"]["clusterName"] = json!("c-m-2");
        let mut foreign = cluster("foreign", json!({"ready": true, "clusterName": "c-m-3"}));
        foreign.0["spec"] = json!({});
        let disconnected = |name: &str, deployed: &str| {
            let managed = json!({"metadata": {"name": name}, "status": {"conditions": [
                {"type": "Connected", "status": "False", "message": "Cluster agent is not connected"},
                {"type": "AgentDeployed", "status": deployed},
            ]}});
            (name.to_owned(), Object(managed))
        };
        let running = json!({"metadata": {"name": "c-m-4"}, "status": {
            "version": {"gitVersion": "v1.34.2"}, "nodeCount": 5}});
        let running = ("c-m-4".to_owned(), Object(running));
        let managed = Managed::from([disconnected("c-m-2", "True"), disconnected("c-m-3", "False"), running]);
        let clusters = [
            lost,
            foreign,
            cluster("demo", ready("True", "")),
            cluster("young", ready("Unknown", "waiting for infrastructure ready")),
            cluster("refused", refused),
            imported,
            going,
        ];
        let machine = |cluster: &str, node: &str| {
            Object(json!({
                "metadata": {"namespace": "fleet-default", "labels": {"cluster.x-k8s.io/cluster-name": cluster}},
                "status": {"nodeRef": {"name": node}},
            }))
        };
        let counts =
            count(&[machine("demo", "a"), machine("demo", "b"), machine("demo", "c"), machine("young", "")]);
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let text =
            anstream::adapter::strip_str(&table(&clusters, &managed, &counts, false, false, now)).to_string();
        assert_eq!(
            text,
            "NAME       STATE          VERSION        MACHINES   PROVIDER   AGE   MESSAGE\n\
             lost       Disconnected   v1.35.1+k3s1   0/3        local      5m    Cluster agent is not connected\n\
             foreign    Waiting        -              -          imported   5m    Cluster agent is not connected\n\
             demo       Ready          v1.35.1+k3s1   3/3        local      5m    -\n\
             young      Creating       v1.35.1+k3s1   0/3        local      5m    waiting for infrastructure ready\n\
             refused    Failed         v1.35.1+k3s1   0/3        local      5m    duplicate machinePool name [p] used\n\
             imported   Ready          v1.34.2        5          imported   5m    -\n\
             going      Removing       v1.35.1+k3s1   0/3        local      5m    waiting for machine [x] to delete\n"
        );
        let wide = table(&clusters[2..3], &managed, &counts, true, true, now);
        assert!(wide.starts_with("NAMESPACE       NAME   STATE"), "{wide}");
        assert!(wide.contains("c-m-1"), "{wide}");
    }
}
