//! Several servers on one etcd: a cluster is reached from each of them, whichever its agent is connected to.

use std::{net::TcpListener, process::Command, time::Duration};

use serde_json::{Value, json};

use crate::{
    etcd::{Etcd, Sharing},
    foreign::{Foreign, Person, led_to, until},
    harness::{Place, Server, assert_success, remuda},
};

const SOON: Duration = Duration::from_secs(45);

/// Who was chosen to write what is known of clusters.
fn connected(admin: &Person, id: &str) -> (String, String) {
    let cluster: Value =
        serde_json::from_str(&admin.run(&format!("get clusters.management.cattle.io {id} -o json"))).unwrap();
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let status = |kind: &str| {
        let found = conditions.iter().find(|known| known["type"] == kind);
        found.and_then(|known| known["status"].as_str()).unwrap_or_default().to_owned()
    };
    (status("Connected"), status("Ready"))
}

#[test]
fn a_cluster_connected_to_one_server_is_reached_through_all() {
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let Some(foreign) = Foreign::start(&place) else { return };
    let sharing = Sharing::new(&place, &etcd);
    let host = foreign.network.host.clone();
    let start = |name: &str| {
        let port = TcpListener::bind((host.as_str(), 0)).unwrap().local_addr().unwrap().port();
        let bind = format!("{host}:{port}");
        let mut arguments = vec!["--bind", bind.as_str()];
        arguments.extend(sharing.arguments());
        Server::start(&place.join(name), &arguments)
    };
    // The first is elected and has all its controllers before the second comes.
    let first = start("first");
    let admin = Person::new(&place, "admin", &std::fs::read_to_string(first.kubeconfig()).unwrap());
    let cluster = json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "old", "namespace": "fleet-default"}, "spec": {},
    });
    let file = place.write("cluster.json", &cluster.to_string());
    until("the kinds are there", SOON, || admin.can(&format!("apply -f {}", file.display())));
    let name = "get clusters.provisioning.cattle.io -n fleet-default old -o jsonpath={.status.clusterName}";
    until("the cluster has a management Cluster", SOON, || !admin.run(name).is_empty());
    let id = admin.run(name);
    let second = start("second");

    // The agent is told of the second server, though the first writes what is known of the cluster.
    let mut command = String::new();
    until("there is a registration command", SOON, || {
        let mut line: Command = remuda();
        line.args(["cluster", "registration-command", "old", "--insecure", "--data-dir"])
            .arg(place.join("first"));
        let output = line.env("HOME", place.join("home")).output().unwrap();
        command = String::from_utf8(output.stdout).unwrap();
        output.status.success()
    });
    assert_success(&foreign.shell(&command.trim().replace(&first.url, &second.url)));
    let agent = foreign.agent_of(&second.url);
    until("the first server says that the cluster is ready", SOON, || {
        connected(&admin, &id) == ("True".to_owned(), "True".to_owned())
    });
    assert!(second.log().contains("tunnel session starts"), "{}", second.log());

    let path = format!("/k8s/clusters/{id}");
    let here = Person::new(&place, "here", &led_to(&second.kubeconfig(), &second.url, &path, None));
    let there = Person::new(&place, "there", &led_to(&first.kubeconfig(), &first.url, &path, None));
    here.run("create configmap mark -n default --from-literal=who=me");
    assert_eq!(there.run("get configmap mark -n default -o jsonpath={.data.who}"), "me");
    let large = "x".repeat(500 << 10);
    let file = place.write("large", &large);
    there.run(&format!("create configmap large -n default --from-file=value={}", file.display()));
    assert!(here.run("get configmap large -n default -o jsonpath={.data.value}") == large);

    // The server that has the tunnel dies: the other says so, and finds its way when there is one again.
    let port = second.port();
    second.kill();
    until("the loss is told by the other server", SOON, || connected(&admin, &id).0 == "False");
    let said = there.fails("get namespaces");
    assert!(said.contains("not connected since"), "{said}");
    let bind = format!("{host}:{port}");
    let mut arguments = vec!["--bind", bind.as_str()];
    arguments.extend(sharing.arguments());
    let second = Server::start(&place.join("second"), &arguments);
    until("the cluster is back for both", SOON, || there.can("get namespaces") && here.can("get namespaces"));
    drop((agent, second, first));
}
