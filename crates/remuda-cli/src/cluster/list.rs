//! Clusters in a table.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::ApiResource;
use remuda_names::{capi, provisioning::condition::HIBERNATED, rancher::condition};

use super::List;
use crate::{
    age,
    api::{self, Seen},
    evidence::Pool,
    failure::{Code, Failure},
    follow::interruptible,
    gather,
    list::{self, Item, Listing},
    object::{Condition, Object},
    output::Format,
    session::Session,
    table::{Cell, Tone},
    versions::Ends,
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
    if arguments.watch {
        return interruptible(list::watch(session, arguments.output, || listing(session, arguments))).await;
    }
    list::print(&session.out, listing(session, arguments).await?, arguments.output)
}

async fn listing(session: &Session, arguments: &List) -> Result<Listing, Failure> {
    let namespace = (!arguments.all_namespaces).then_some(session.namespace.as_str());
    let Seen { objects: mut clusters, withheld } = gather::served_clusters(session, namespace).await?;
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let remark = withheld.is_some().then_some("clusters you have no role in are not shown");
    if let Some(refused) = withheld.filter(|_| clusters.is_empty()) {
        let message =
            format!("you may see no clusters{place}: you may not list them all, and have a role in none");
        return Err(Failure { message, ..refused }.hint(gather::NO_ROLE));
    }
    clusters.sort_by(|one, other| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
    let empty = format!("there are no clusters{place}; make one: remuda cluster create demo --wait");
    let listing = of(session, clusters, namespace, arguments.output, empty).await?;
    Ok(Listing { remark, ..listing })
}

pub(super) async fn one(session: &Session, name: &str, format: Format) -> Result<(), Failure> {
    let cluster = gather::existing(session, &session.namespace, name).await?;
    match format {
        Format::Json | Format::Yaml => session.out.document(&cluster.presentable().0, format),
        format => {
            let namespace = Some(session.namespace.as_str());
            let listing = of(session, vec![cluster], namespace, format, String::new()).await?;
            list::print(&session.out, listing, format)
        }
    }
}

/// Clusters with what a table says about them, if one is asked for.
async fn of(
    session: &Session,
    clusters: Vec<Object>,
    namespace: Option<&str>,
    format: Format,
    empty: String,
) -> Result<Listing, Failure> {
    let (header, rows) = match format {
        Format::Table | Format::Wide => {
            // Not everybody who sees a cluster sees its parts.
            let machines = readable(session, &api::capi("Machine"), namespace).await?;
            let managed = readable(session, &api::management("Cluster"), None).await?;
            let managed: Managed = managed
                .unwrap_or_default()
                .into_iter()
                .map(|managed| (managed.name().to_owned(), managed))
                .collect();
            let versions = clusters
                .iter()
                .map(|cluster| version(cluster, managed.get(cluster.text("/status/clusterName"))));
            let ends = Ends::of(&session.client, versions).await;
            let view = View {
                managed,
                counts: machines.as_deref().map(count),
                ends,
                namespaces: namespace.is_none(),
                wide: format == Format::Wide,
                now: Timestamp::now(),
            };
            (view.header(), clusters.iter().map(|cluster| view.row(cluster)).collect())
        }
        _ => (Vec::new(), vec![Vec::new(); clusters.len()]),
    };
    let items = clusters.into_iter().zip(rows).map(|(object, cells)| Item { object, cells }).collect();
    Ok(Listing { header, items, qualified: namespace.is_none(), empty, remark: None })
}

/// Objects of a kind as far as they are visible; nothing if they may not be read at all.
async fn readable(
    session: &Session,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<Option<Vec<Object>>, Failure> {
    match api::seen(&session.client, resource, namespace, api::Which::All).await {
        Ok(seen) => Ok(Some(seen.objects)),
        Err(failure) if failure.code == Code::Forbidden => Ok(None),
        Err(failure) if failure.code == Code::NotFound => Ok(Some(Vec::new())),
        Err(failure) => Err(failure),
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

/// What rows are made from.
struct View {
    managed: Managed,
    /// Nothing if machines may not be read.
    counts: Option<Counts>,
    ends: Ends,
    namespaces: bool,
    wide: bool,
    now: Timestamp,
}

impl View {
    fn header(&self) -> Vec<&'static str> {
        let mut header = vec!["NAME", "STATE", "VERSION", "MACHINES", "PROVIDER", "AGE"];
        if self.namespaces {
            header.insert(0, "NAMESPACE");
        }
        if self.wide {
            header.push("ID");
        }
        header.push("MESSAGE");
        header
    }

    fn row(&self, cluster: &Object) -> Vec<Cell> {
        let managed = self.managed.get(cluster.text("/status/clusterName"));
        let (state, tone, message) = state(cluster, managed);
        let mut row: Vec<Cell> = Vec::new();
        if self.namespaces {
            row.push(cluster.namespace().into());
        }
        row.extend([
            cluster.name().into(),
            Cell::toned(state, tone),
            version_cell(version(cluster, managed), &self.ends, self.now),
            machines(cluster, managed, self.counts.as_ref()).into(),
            provider(cluster).into(),
            age::ago(cluster.created(), self.now).into(),
        ]);
        if self.wide {
            row.push(cluster.text("/status/clusterName").into());
        }
        row.push(message.into());
        row
    }
}

/// A version that is not maintained any more says so.
fn version_cell(version: &str, ends: &Ends, now: Timestamp) -> Cell {
    match ends.ended(version, now) {
        Some(_) => Cell::toned(format!("{version} (end of life)"), Tone::Bad),
        None => version.into(),
    }
}

/// The version asked for; that of an imported cluster is whatever it runs.
fn version<'a>(cluster: &'a Object, managed: Option<&'a Object>) -> &'a str {
    match cluster.text("/spec/kubernetesVersion") {
        "" => managed.map_or("", |managed| managed.text("/status/version/gitVersion")),
        wanted => wanted,
    }
}

/// Nodes of all machines there are or should be. An imported cluster has nodes alone.
/// What may not be read is not counted.
fn machines(cluster: &Object, managed: Option<&Object>, counts: Option<&Counts>) -> String {
    if !cluster.has("/spec/rkeConfig") {
        let nodes = managed.and_then(|managed| managed.0.pointer("/status/nodeCount")?.as_u64());
        return nodes.map(|nodes| nodes.to_string()).unwrap_or_default();
    }
    let key = (cluster.namespace().to_owned(), cluster.name().to_owned());
    let pools = cluster.list("/spec/rkeConfig/machinePools").iter().map(Pool);
    let wanted: i64 = pools.map(Pool::wanted).sum();
    let Some(counts) = counts else { return format!("?/{wanted}") };
    let count = counts.get(&key).copied().unwrap_or_default();
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
    let failure = |kind: &str| {
        let found = cluster.condition(kind).filter(Condition::is_false)?;
        Some(("Failed", Tone::Bad, found.message))
    };
    if let Some(failed) = failure(condition::CREATED).or_else(|| failure(condition::RKE_CLUSTER)) {
        return failed;
    }
    // A cluster whose machines are stopped is not connected, and nothing is wrong with it.
    if let Some(told) = cluster.condition(HIBERNATED) {
        match (told.is_true(), told.reason) {
            (true, _) => return ("Hibernated", Tone::Plain, told.message),
            (false, phase)
                if !told.is_false() && phase.starts_with("Start") || phase.starts_with("Confirm") =>
            {
                return ("Waking", Tone::Busy, message(condition::READY));
            }
            (false, phase) if !told.is_false() && phase != "Waiting" => {
                return ("Hibernating", Tone::Busy, message(condition::READY));
            }
            _ => {}
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
    // A cluster that is not connected is not ready either, so this is asked after the connection.
    if let Some(failed) = failure(condition::READY) {
        return failed;
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
    use serde_json::{Value, json};

    use super::*;
    use crate::table::Table;

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
        let mut foreign = cluster("foreign", ready("False", "Cluster agent is not connected"));
        foreign.0["status"]["clusterName"] = json!("c-m-3");
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
        let mut view = View {
            managed,
            counts: Some(counts),
            ends: Ends::default(),
            namespaces: false,
            wide: false,
            now,
        };
        let render = |view: &View, clusters: &[Object]| {
            let mut table = Table::new(view.header());
            clusters.iter().for_each(|cluster| table.row(view.row(cluster)));
            anstream::adapter::strip_str(&table.render("")).to_string()
        };
        let text = render(&view, &clusters);
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
        (view.namespaces, view.wide) = (true, true);
        let wide = render(&view, &clusters[2..3]);
        assert!(wide.starts_with("NAMESPACE       NAME   STATE"), "{wide}");
        assert!(wide.contains("c-m-1"), "{wide}");
    }
}
