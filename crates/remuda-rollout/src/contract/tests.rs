use super::*;
use crate::{condition::Status, provider::Reading, selector::Labels};
use serde_json::json;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_newest_contract_and_its_best_version_are_chosen() {
    let (old, new) = ("cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2");
    let chosen = |pairs: &[(&str, &str)]| {
        choose("x", &labels(pairs)).map(|(contract, version)| format!("{contract:?} {version}"))
    };
    assert_eq!(chosen(&[(old, "v1"), (new, "v1")]).unwrap(), "V1Beta2 v1");
    assert_eq!(chosen(&[(old, "v1alpha4_v1_v1beta1")]).unwrap(), "V1Beta1 v1");
    assert_eq!(chosen(&[(old, "v1beta1"), (new, "")]).unwrap(), "V1Beta1 v1beta1");
    let missing = chosen(&[]).unwrap_err().to_string();
    assert!(missing.contains("CRD x") && missing.contains("cluster.x-k8s.io/v1beta2"), "{missing}");
}

#[test]
fn versions_are_preferred_as_in_kubernetes() {
    let mut versions = ["v1alpha1", "v2", "foo", "v1beta2", "v1", "v1beta10", "bar", "v10", "v1beta"];
    versions.sort_by(|a, b| compare_versions(b, a));
    assert_eq!(versions.join(" "), "v10 v2 v1 v1beta10 v1beta2 v1alpha1 bar foo v1beta");
}

#[test]
fn crds_are_found_by_the_plural_of_their_kind() {
    assert_eq!(crd_name("rke.cattle.io", "RKEControlPlane"), "rkecontrolplanes.rke.cattle.io");
    assert_eq!(crd_name("x.io", "Proxy"), "proxies.x.io");
}

#[test]
fn each_contract_has_its_own_places() {
    let object = json!({"status": {"ready": true, "initialization": {"provisioned": false}}});
    let provisioned = |contract| InfraMachine { object: &object, contract }.provisioned();
    assert_eq!(provisioned(Contract::V1Beta1), Ok(true));
    assert_eq!(provisioned(Contract::V1Beta2), Ok(false));
    let missing = json!({});
    assert_eq!(InfraCluster { object: &missing, contract: Contract::V1Beta2 }.provisioned(), Ok(false));
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let object = json!({"kind": "Server", "spec": {"providerID": 7}});
    let found = InfraMachine { object: &object, contract: Contract::V1Beta2 }.provider_id();
    assert_eq!(found.unwrap_err().to_string(), "spec.providerID of Server is not a string");
}

#[test]
fn a_server_tells_where_it_is() {
    let object = json!({
        "spec": {"providerID": "sim://1", "failureDomain": ""},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "interruptible": true},
    });
    let server = InfraMachine { object: &object, contract: Contract::V1Beta2 };
    assert_eq!(server.provider_id(), Ok(Some("sim://1".into())));
    assert_eq!(server.addresses(), Ok(Some(vec![("InternalIP".into(), "10.0.0.1".into())])));
    assert_eq!(server.interruptible(), Ok(true));
    assert_eq!(server.status_failure_domain(), Ok(None));
}

#[test]
fn failure_domains_come_as_a_map_or_as_a_list() {
    let old =
        json!({"status": {"failureDomains": {"b": {"controlPlane": true}, "a": {"attributes": {"k": "v"}}}}});
    let new = json!({"status": {"failureDomains": [{"name": "b", "controlPlane": true}, {"name": "a", "attributes": {"k": "v"}}]}});
    let domains = |object, contract| InfraCluster { object, contract }.failure_domains().unwrap();
    let found = domains(&old, Contract::V1Beta1);
    assert_eq!(found, domains(&new, Contract::V1Beta2));
    assert_eq!((found[0].name.as_str(), found[0].control_plane, found[1].control_plane), ("a", false, true));
    assert!(InfraCluster { object: &old, contract: Contract::V1Beta2 }.failure_domains().is_err());
}

#[test]
fn an_endpoint_is_there_when_both_parts_are() {
    let with = |endpoint: Value| {
        let object = json!({"spec": {"controlPlaneEndpoint": endpoint}});
        InfraCluster { object: &object, contract: Contract::V1Beta2 }.endpoint().unwrap()
    };
    assert_eq!(with(json!({"host": "h", "port": 6443})), Some(("h".into(), 6443)));
    assert_eq!(with(json!({"host": "h", "port": 0})), None);
    assert_eq!(with(json!(null)), None);
}

#[test]
fn a_control_plane_is_counted_by_its_contract() {
    let object = json!({
        "spec": {"replicas": 3, "version": "v1.34.0"},
        "status": {
            "replicas": 3, "unavailableReplicas": 1, "availableReplicas": 3, "updatedReplicas": 2,
            "upToDateReplicas": 1, "version": "v1.33.0",
        },
    });
    let plane = |contract| ControlPlaneObject { object: &object, contract };
    let old = plane(Contract::V1Beta1).counters();
    assert_eq!((old.available, old.unavailable, old.up_to_date), (None, Some(1), Some(2)));
    let new = plane(Contract::V1Beta2).counters();
    assert_eq!((new.available, new.unavailable, new.up_to_date), (Some(3), None, Some(1)));
    assert_eq!(plane(Contract::V1Beta2).reported_versions(), Ok(vec!["v1.33.0".into()]));
}

#[test]
fn a_bootstrap_secret_without_a_name_is_none() {
    let object = json!({"status": {"initialization": {"dataSecretCreated": true}, "dataSecretName": ""}});
    let config = BootstrapConfig { object: &object, contract: Contract::V1Beta2 };
    assert_eq!((config.data_secret_created(), config.data_secret_name()), (Ok(true), Ok(None)));
}

#[test]
fn conditions_of_either_style_are_read_and_broken_ones_told() {
    let object = json!({"kind": "Server", "status": {"conditions": [
        {"type": "Ready", "status": "True", "lastUpdateTime": "x", "lastTransitionTime": ""},
    ]}});
    let ready = conditions(&object).unwrap().get("Ready").cloned().unwrap();
    assert_eq!((ready.status, ready.reason.as_str(), ready.since), (Status::True, "NoReasonReported", None));
    let both = json!({"status": {"conditions": [{"type": "Ready"}], "v1beta2": {"conditions": []}}});
    assert_eq!(reading(&both, "Ready"), Reading::Found(Ok(None)), "the new style wins");
    let broken = json!({"kind": "Server", "status": {"conditions": [{"type": "Ready", "status": "Maybe"}]}});
    assert_eq!(
        conditions(&broken).unwrap_err(),
        "failed to convert status.conditions from Server to []metav1.Condition: \
         status for the Ready condition must be one of True, False, Unknown"
    );
}
