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
