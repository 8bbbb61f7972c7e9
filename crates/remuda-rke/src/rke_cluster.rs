//! `RKECluster`: the infrastructure of a cluster whose machines bring their own.
//!
//! Reads   the RKECluster, its Cluster and the machines of that.
//! Writes  the endpoint, and that everything is there; the endpoint of the Cluster, where it is one from here.
//! Never   makes anything: there is no infrastructure beside the machines.
//!
//! Users with a load balancer or a virtual address name it on the Cluster or on the RKECluster. Without, the endpoint
//! is
//! the address of a server, and of another one when that goes. Nothing waits for it: agents tell where to join, and
//! clusters are reached through their agents.

use std::sync::Arc;

use kube::{Api, ResourceExt, api::Patch};
use remuda_api::{
    core::{Cluster, Endpoint, Machine},
    rke::{Provisioned, RkeCluster, RkeClusterStatus},
};
use remuda_control::{Action, Controller, ObjectKey, drive, write::write_status};
use remuda_names::{
    annotation::ENDPOINT_OF,
    rancher::{group, label},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, objects,
    shared::{BY_CLUSTER, Rke, filed},
};

/// Where K3s and RKE2 serve the API of the cluster.
const PORT: i32 = 6443;
/// What was written before there were addresses.
const PLACEHOLDER: &str = "localhost";
/// Addresses of a server, the one that most can reach first.
const PREFERRED: [&str; 5] = ["ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS", "Hostname"];

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let clusters = rke.clusters.clone();
    let controller = Controller::on("rke-cluster", &rke.ctx, rke.rke_clusters.clone())
        .workers(rke.options.workers)
        .watches(&rke.clusters, infrastructure)
        .watches(&rke.machines, move |machine| {
            let cluster = ObjectKey::of(&machine.metadata).sibling(&machine.spec.cluster_name);
            let cluster = clusters.get(&cluster).filter(|_| is_server(machine));
            cluster.map(|cluster| infrastructure(&cluster)).unwrap_or_default()
        });
    drive(controller, reconcile, rke, stop).await;
}

fn infrastructure(cluster: &Cluster) -> Vec<ObjectKey> {
    let reference = &cluster.spec.infrastructure_ref;
    let ours = reference.kind == "RKECluster" && reference.api_group == group::RKE;
    ours.then(|| ObjectKey::of(&cluster.metadata).sibling(&reference.name)).into_iter().collect()
}

/// Machines with the API of the cluster.
fn is_server(machine: &Machine) -> bool {
    machine.labels().get(label::CONTROL_PLANE_ROLE).is_some_and(|role| role == "true")
}

async fn reconcile(object: Arc<RkeCluster>, rke: Arc<Rke>) -> Result<Action, Error> {
    let key = ObjectKey::of(&object.metadata);
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let owner = objects::owner(&object.metadata, "Cluster");
    let cluster = owner.and_then(|owner| rke.clusters.get(&key.sibling(&owner.name)));
    let name = cluster.as_ref().map(|cluster| cluster.name_any()).unwrap_or_default();
    let machines = rke.machines.by_index(BY_CLUSTER, &filed(namespace, &name));
    let Some(decision) = decide(&object, cluster.as_deref(), &servers(&machines)) else {
        return Ok(Action::AwaitChange);
    };
    // First the Cluster: what it says afterwards is known as ours by the address of a server.
    if let (Some(endpoint), Some(cluster)) = (&decision.of_cluster, &cluster) {
        let api: Api<Cluster> = rke.api(namespace);
        let patch = json!({
            "metadata": {"uid": cluster.uid(), "resourceVersion": cluster.resource_version()},
            "spec": {"controlPlaneEndpoint": endpoint},
        });
        let written = api.patch(&name, &rke.params(), &Patch::Merge(patch)).await;
        let written = written.map_err(Error::api("write", format!("Cluster {}", key.sibling(&name))))?;
        rke.seen(&rke.clusters, Some(&written)).await;
    }
    let api: Api<RkeCluster> = rke.api(namespace);
    let mut object = (*object).clone();
    if let Some(Chosen { endpoint, server }) = decision.endpoint {
        let server = server.map_or(Value::Null, Value::from);
        let patch = json!({
            "metadata": {"uid": object.uid(), "annotations": {ENDPOINT_OF: server}},
            "spec": {"controlPlaneEndpoint": endpoint},
        });
        let written = api.patch(&key.name, &rke.params(), &Patch::Merge(patch)).await;
        object = written.map_err(Error::api("write", format!("RKECluster {key}")))?;
    }
    let written = write_status(&rke.ctx, &api, &object, &decision.status).await?;
    rke.seen(&rke.rke_clusters, written.as_ref()).await;
    Ok(Action::AwaitChange)
}

/// A machine with the API of the cluster, and where it is.
#[derive(Debug, Clone, PartialEq)]
struct Server {
    name: String,
    address: String,
}

/// Those that have an address and stay, oldest first.
fn servers(machines: &[Arc<Machine>]) -> Vec<Server> {
    let stays = |machine: &&Arc<Machine>| is_server(machine) && !objects::is_deleting(&machine.metadata);
    let mut found: Vec<&Arc<Machine>> = machines.iter().filter(stays).collect();
    found.sort_by_key(|machine| (machine.creation_timestamp().map(|time| time.0), machine.name_any()));
    let server = |machine: &Arc<Machine>| {
        let addresses = &machine.status.as_ref()?.addresses;
        let of = |kind: &&str| {
            addresses.iter().find(|address| address.kind == *kind && !address.address.is_empty())
        };
        let address = PREFERRED.iter().find_map(of)?;
        Some(Server { name: machine.name_any(), address: address.address.clone() })
    };
    found.into_iter().filter_map(server).collect()
}

/// An endpoint, and the server whose address it is; none if the user named it.
#[derive(Debug, PartialEq)]
struct Chosen {
    endpoint: Endpoint,
    server: Option<String>,
}

#[derive(Debug, PartialEq)]
struct Decision {
    /// `None` if it stays.
    endpoint: Option<Chosen>,
    /// What the Cluster is to say instead of an endpoint that was from here.
    of_cluster: Option<Endpoint>,
    status: RkeClusterStatus,
}

/// `None` until there is a Cluster that may be worked on; its event brings the next look.
fn decide(object: &RkeCluster, cluster: Option<&Cluster>, servers: &[Server]) -> Option<Decision> {
    let cluster = cluster?;
    if objects::is_deleting(&object.metadata) || objects::is_paused(cluster, &object.metadata) {
        return None;
    }
    let status = RkeClusterStatus {
        conditions: Vec::new(),
        initialization: Provisioned { provisioned: Some(true) },
        ..object.status.clone().unwrap_or_default()
    };
    let (own, told) = (&object.spec.control_plane_endpoint, &cluster.spec.control_plane_endpoint);
    let of = object.annotations().get(ENDPOINT_OF);
    let is_of_server = |endpoint: &Endpoint| servers.iter().any(|server| server.address == endpoint.host);
    let is_ours = |endpoint: &Endpoint| {
        (endpoint.host == PLACEHOLDER && endpoint.port == PORT)
            || of.is_some() && (endpoint == own || is_of_server(endpoint))
    };
    let mut decision = Decision { endpoint: None, of_cluster: None, status };
    if told.is_valid() && !is_ours(told) {
        // What people say on the Cluster holds.
        if told != own || of.is_some() {
            decision.endpoint = Some(Chosen { endpoint: told.clone(), server: None });
        }
    } else if !own.is_valid() || is_ours(own) {
        let same = servers.iter().find(|server| Some(&server.name) == of && server.address == own.host);
        if let Some(server) = same.or(servers.first()) {
            let endpoint = Endpoint { host: server.address.clone(), port: PORT };
            decision.of_cluster = (told.is_valid() && *told != endpoint).then(|| endpoint.clone());
            if *own != endpoint || of != Some(&server.name) {
                decision.endpoint = Some(Chosen { endpoint, server: Some(server.name.clone()) });
            }
        }
    }
    Some(decision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        match text.split_once(':') {
            Some((host, port)) => Endpoint { host: host.to_owned(), port: port.parse().unwrap() },
            None => Endpoint::default(),
        }
    }

    /// `own` may have the server it is of behind it: `10.0.0.1:6443 a`. Servers are `name=address`.
    #[track_caller]
    fn check(own: &str, told: &str, servers: &[&str], expected: &str) {
        let (own, of) = own.split_once(' ').map_or((own, None), |(own, of)| (own, Some(of)));
        let mut object = RkeCluster::named("demo");
        object.spec.control_plane_endpoint = endpoint(own);
        if let Some(of) = of {
            object.metadata.annotations = Some([(ENDPOINT_OF.to_owned(), of.to_owned())].into());
        }
        let mut cluster = Cluster::default();
        cluster.spec.control_plane_endpoint = endpoint(told);
        let servers: Vec<Server> = servers
            .iter()
            .map(|text| text.split_once('=').unwrap())
            .map(|(name, address)| Server { name: name.to_owned(), address: address.to_owned() })
            .collect();
        let decision = decide(&object, Some(&cluster), &servers).unwrap();
        assert_eq!(decision.status.initialization.provisioned, Some(true));
        let text = |endpoint: &Endpoint| format!("{}:{}", endpoint.host, endpoint.port);
        let mut said = match &decision.endpoint {
            None => "stays".to_owned(),
            Some(Chosen { endpoint, server: None }) => text(endpoint),
            Some(Chosen { endpoint, server: Some(server) }) => format!("{} of {server}", text(endpoint)),
        };
        if let Some(endpoint) = &decision.of_cluster {
            said.push_str(&format!(", Cluster {}", text(endpoint)));
        }
        assert_eq!(said, expected);
    }

    #[test]
    fn nothing_happens_while_the_cluster_is_missing_or_paused() {
        let object = RkeCluster::named("demo");
        assert_eq!(decide(&object, None, &[]), None);
        let mut cluster = Cluster::default();
        cluster.spec.paused = Some(true);
        assert_eq!(decide(&object, Some(&cluster), &[]), None);
    }

    #[test]
    fn what_people_say_holds() {
        check("", "demo.example.com:443", &["a=10.0.0.1"], "demo.example.com:443");
        check("demo.example.com:443", "", &["a=10.0.0.1"], "stays");
        check("demo.example.com:443", "demo.example.com:443", &[], "stays");
        check("10.0.0.1:6443 a", "demo.example.com:443", &["a=10.0.0.1"], "demo.example.com:443");
        check("demo.example.com:443", "other.example.com:443", &[], "other.example.com:443");
    }

    #[test]
    fn otherwise_it_is_the_address_of_a_server() {
        check("", "", &[], "stays");
        check("", "", &["a=10.0.0.1", "b=10.0.0.2"], "10.0.0.1:6443 of a");
        check("10.0.0.1:6443 a", "10.0.0.1:6443", &["a=10.0.0.1", "b=10.0.0.2"], "stays");
        check("10.0.0.2:6443 b", "10.0.0.2:6443", &["a=10.0.0.1", "b=10.0.0.2"], "stays");
        // The server went, and the other one takes its place, on the Cluster as well.
        check(
            "10.0.0.1:6443 a",
            "10.0.0.1:6443",
            &["b=10.0.0.2"],
            "10.0.0.2:6443 of b, Cluster 10.0.0.2:6443",
        );
        check("10.0.0.1:6443 a", "10.0.0.2:6443", &["b=10.0.0.2"], "10.0.0.2:6443 of b");
        check("10.0.0.1:6443 a", "10.0.0.1:6443", &[], "stays");
        // What was written before there were addresses.
        check(
            "localhost:6443",
            "localhost:6443",
            &["a=10.0.0.1"],
            "10.0.0.1:6443 of a, Cluster 10.0.0.1:6443",
        );
        check("localhost:6443", "localhost:6443", &[], "stays");
    }

    #[test]
    fn servers_are_told_by_the_address_most_can_reach() {
        let machine = |name: &str, addresses: Value, role: &str| -> Arc<Machine> {
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": name, "labels": {"rke.cattle.io/control-plane-role": role}},
                    "spec": {}, "status": {"addresses": addresses},
                }))
                .unwrap(),
            )
        };
        let two = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"}]);
        let found = servers(&[
            machine("b", json!([{"type": "InternalIP", "address": "10.0.0.2"}]), "true"),
            machine("a", two, "true"),
            machine("w", json!([{"type": "InternalIP", "address": "10.0.0.3"}]), ""),
            machine("new", json!([]), "true"),
        ]);
        let found: Vec<String> =
            found.iter().map(|server| format!("{} {}", server.name, server.address)).collect();
        assert_eq!(found, ["a 192.0.2.1", "b 10.0.0.2"]);
    }
}
