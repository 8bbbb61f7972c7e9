//! Services and their addresses.

use serde_json::{Value, json};

use crate::harness::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, address: Option<&str>) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]},
    });
    if let Some(address) = address {
        service["spec"]["clusterIP"] = address.into();
    }
    service
}

#[tokio::test]
async fn every_service_has_an_address_of_its_own_until_it_goes() {
    let server = Server::start().await;
    let first = server.post(SERVICES, service("a", None)).await.expect(201);
    let address = first["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(address.starts_with("10.") && first["spec"]["clusterIPs"] == json!([address]), "{first}");

    let refused = server.post(SERVICES, service("b", Some(&address))).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.clusterIPs");

    server.delete(&format!("{SERVICES}/a")).await.expect(200);
    let second = server.post(SERVICES, service("b", Some(&address))).await.expect(201);
    assert_eq!(second["spec"]["clusterIP"], address.as_str());

    let headless = server.post(SERVICES, service("c", Some("None"))).await.expect(201);
    assert_eq!(headless["spec"]["clusterIP"], "None");
    server.post(SERVICES, service("d", Some("None"))).await.expect(201);
}

#[tokio::test]
async fn a_service_changes_its_type_by_a_patch_of_the_type() {
    let server = Server::start().await;
    let first = server.post(SERVICES, service("a", None)).await.expect(201);
    let path = format!("{SERVICES}/a");
    let away = json!({"spec": {"type": "ExternalName", "externalName": "x.y"}});
    let external = server.patch(&path, MERGE_PATCH, away).await.expect(200);
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert_eq!(external["spec"].get(field), None, "{field}");
    }
    // The address it had is free for others.
    let address = first["spec"]["clusterIP"].as_str().unwrap();
    server.post(SERVICES, service("b", Some(address))).await.expect(201);

    let back = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let back = server.patch(&format!("{path}?fieldManager=m"), MERGE_PATCH, back).await.expect(200);
    let new = back["spec"]["clusterIP"].as_str().unwrap();
    assert!(new.starts_with("10.") && new != address, "{back}");
    assert_eq!(back["spec"]["clusterIPs"], json!([new]));
    assert_eq!(back["spec"]["ipFamilies"], json!(["IPv4"]));
    let fields = back["metadata"]["managedFields"].to_string();
    assert!(!fields.contains("f:clusterIP"), "{fields}");
}

fn exposed(name: &str, kind: &str, ports: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
}

#[tokio::test]
async fn ports_of_nodes_are_given_and_belong_to_one_service() {
    let server = Server::start().await;
    let ports = json!([{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"},
        {"name": "w", "port": 80}]);
    let first = server.post(SERVICES, exposed("a", "NodePort", ports)).await.expect(201);
    let number = |index: usize| first["spec"]["ports"][index]["nodePort"].as_i64().unwrap();
    assert!((30000..=32767).contains(&number(0)) && number(0) == number(1) && number(0) != number(2));

    let taken = json!([{"port": 80, "nodePort": number(2)}]);
    let refused = server.post(SERVICES, exposed("b", "LoadBalancer", taken.clone())).await;
    let text = refused.fails(422, "Invalid");
    let said =
        format!("spec.ports[0].nodePort: Invalid value: {}: provided port is already allocated", number(2));
    assert!(text.ends_with(&said), "{text}");
    let low = server.post(SERVICES, exposed("b", "NodePort", json!([{"port": 80, "nodePort": 80}]))).await;
    let text = low.fails(422, "Invalid");
    assert!(text.contains("not in the valid range. The range of valid ports is 30000-32767"), "{text}");

    // What it has is its own; a type that needs none gives them back.
    let path = format!("{SERVICES}/a");
    let same =
        server.patch(&path, MERGE_PATCH, json!({"metadata": {"labels": {"x": "y"}}})).await.expect(200);
    assert_eq!(same["spec"]["ports"], first["spec"]["ports"]);
    server.patch(&path, MERGE_PATCH, json!({"spec": {"type": "ClusterIP"}})).await.expect(200);
    let balancer = server.post(SERVICES, exposed("b", "LoadBalancer", taken)).await.expect(201);
    assert_eq!(balancer["spec"]["ports"][0]["nodePort"], number(2));
    let mut plain = exposed("c", "LoadBalancer", json!([{"port": 80}]));
    plain["spec"]["allocateLoadBalancerNodePorts"] = false.into();
    let plain = server.post(SERVICES, plain).await.expect(201);
    assert_eq!(plain["spec"]["ports"][0].get("nodePort"), None, "{plain}");
    let mut local = exposed("d", "LoadBalancer", json!([{"port": 80}]));
    local["spec"]["externalTrafficPolicy"] = "Local".into();
    let local = server.post(SERVICES, local).await.expect(201);
    assert!(local["spec"]["healthCheckNodePort"].as_i64().is_some_and(|port| port >= 30000), "{local}");
}

#[tokio::test]
async fn one_of_many_who_want_an_address_or_port_at_once_gets_it() {
    let server = Server::start().await;
    let mut wanted = exposed("x", "NodePort", json!([{"port": 80, "nodePort": 30123}]));
    wanted["spec"]["clusterIP"] = "10.96.0.77".into();
    let posts = (0..8).map(|number| {
        let (server, mut wanted) = (server.clone(), wanted.clone());
        wanted["metadata"]["name"] = format!("s-{number}").into();
        async move { server.post(SERVICES, wanted).await.code }
    });
    let codes = futures::future::join_all(posts).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, 201 | 422)), "{codes:?}");
}

#[tokio::test]
async fn an_address_of_another_network_is_refused() {
    let server = Server::start().await;
    let refused = server.post(SERVICES, service("a", Some("192.0.2.1"))).await;
    let text = refused.fails(422, "Invalid");
    assert!(text.contains("is not in the valid range. The range of valid IPs is 10.96.0.0/12"), "{text}");
}
