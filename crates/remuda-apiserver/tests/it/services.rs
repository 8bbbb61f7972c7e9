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
