//! Networks of Services, and the objects of their addresses.

use serde_json::{Value, json};

use crate::harness::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const NETWORKS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service(name: &str, address: &str) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    if !address.is_empty() {
        service["spec"]["clusterIP"] = address.into();
    }
    service
}

fn network(name: &str, cidr: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}})
}

fn is_ready(answer: &Answer, wanted: &str) -> bool {
    answer.body["status"]["conditions"][0]["status"] == wanted
}

#[tokio::test]
async fn every_address_of_a_service_is_an_object_while_the_service_has_it() {
    let server = Server::start().await;
    server.until(&format!("{NETWORKS}/kubernetes"), |answer| is_ready(answer, "True")).await;
    let own = server.until(&format!("{ADDRESSES}/10.96.0.1"), |answer| answer.code == 200).await;
    assert_eq!(
        own.body["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "kubernetes"})
    );
    let made = server.post(SERVICES, service("a", "")).await.expect(201);
    let address = made["spec"]["clusterIP"].as_str().unwrap();
    let path = format!("{ADDRESSES}/{address}");
    let object = server.until(&path, |answer| answer.code == 200).await.body;
    assert_eq!(
        object["metadata"]["labels"],
        json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"})
    );
    // It is made again while the Service has it, and goes with it.
    server.delete(&path).await.expect(200);
    server
        .until(&path, |answer| {
            answer.code == 200 && answer.body["metadata"]["uid"] != object["metadata"]["uid"]
        })
        .await;
    server.delete(&format!("{SERVICES}/a")).await.expect(200);
    server.until(&path, |answer| answer.code == 404).await;
    // Another Service may have it then.
    server.post(SERVICES, service("b", address)).await.expect(201);
    server.until(&path, |answer| answer.body["spec"]["parentRef"]["name"] == "b").await;
}

#[tokio::test]
async fn another_network_widens_the_range_and_stays_while_it_is_used() {
    let server = Server::start().await;
    let message = server.post(SERVICES, service("a", "172.30.0.20")).await.fails(422, "Invalid");
    assert!(message.contains("The range of valid IPs is 10.96.0.0/12"), "{message}");
    server.post(NETWORKS, network("more", "172.30.0.0/24")).await.expect(201);
    server.post(SERVICES, service("a", "172.30.0.20")).await.expect(201);
    server.until(&format!("{ADDRESSES}/172.30.0.20"), |answer| answer.code == 200).await;
    let path = format!("{NETWORKS}/more");
    server.until(&path, |answer| is_ready(answer, "True")).await;
    server.delete(&path).await.expect(200);
    server.until(&path, |answer| is_ready(answer, "False")).await;
    // It gives no more addresses.
    server.post(SERVICES, service("b", "172.30.0.21")).await.fails(422, "Invalid");
    server.delete(&format!("{SERVICES}/a")).await.expect(200);
    server.until(&path, |answer| answer.code == 404).await;
}

#[tokio::test]
async fn an_address_taken_for_something_else_is_not_given_to_services() {
    let server = Server::start().await;
    let taken = json!({"metadata": {"name": "10.96.7.7"}, "spec": {"parentRef": {"resource": "gateways", "group": "x.io", "name": "g"}}});
    server.post(ADDRESSES, taken).await.expect(201);
    let message = server.post(SERVICES, service("a", "10.96.7.7")).await.fails(422, "Invalid");
    assert!(message.contains("provided IP is already allocated"), "{message}");
    server.delete(&format!("{ADDRESSES}/10.96.7.7")).await.expect(200);
    server.post(SERVICES, service("a", "10.96.7.7")).await.expect(201);
}

#[tokio::test]
async fn networks_and_addresses_must_be_such() {
    let server = Server::quiet().await;
    for (cidr, text) in [
        ("10.0.0.1/24", "must be an IPv4 network"),
        ("fd00::/112", "IPv4 addresses only"),
        ("10.0.0.0/31", "must be an IPv4 network"),
    ] {
        let message = server.post(NETWORKS, network("n", cidr)).await.fails(422, "Invalid");
        assert!(message.contains("spec.cidrs[0]") && message.contains(text), "{message}");
    }
    server.post(NETWORKS, network("n", "10.1.0.0/24")).await.expect(201);
    let other = json!({"spec": {"cidrs": ["10.2.0.0/24"]}});
    let message = server.patch(&format!("{NETWORKS}/n"), MERGE_PATCH, other).await.fails(422, "Invalid");
    assert!(message.contains("spec.cidrs") && message.contains("field is immutable"), "{message}");
    for (name, parent) in [
        ("10.96.0.01", json!({"resource": "services", "name": "a"})),
        ("name", json!({"resource": "services", "name": "a"})),
        ("10.96.9.9", json!({"resource": "services"})),
    ] {
        let object = json!({"metadata": {"name": name}, "spec": {"parentRef": parent}});
        server.post(ADDRESSES, object).await.fails(422, "Invalid");
    }
}
