use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-01T00:00:00Z";

fn found(clusters: &[Value], machines: &[Value], certificates: &Certificates) -> Vec<String> {
    let clusters: Vec<Cluster> =
        clusters.iter().map(|value| serde_json::from_value(value.clone()).unwrap()).collect();
    let machines: Vec<Machine> =
        machines.iter().map(|value| serde_json::from_value(value.clone()).unwrap()).collect();
    let now = NOW.parse().unwrap();
    let facts = all(clusters.iter(), machines.iter(), &Catalog::shipped(), certificates, now);
    facts
        .iter()
        .map(|(subject, fact)| {
            assert_eq!(Subject::parse(&subject.note()).as_ref(), Some(subject));
            let text = format!("{}: {} {} {}", subject.note(), fact.reason, fact.detail, fact.message);
            text.trim_end().to_owned()
        })
        .collect()
}

#[track_caller]
fn check_cluster(spec: Value, status: Value, expected: &[&str]) {
    let cluster = json!({"metadata": {"name": "demo", "namespace": "d"}, "spec": spec, "status": status});
    assert_eq!(found(&[cluster], &[], &Certificates::default()), expected);
}

fn ready(status: &str, reason: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": reason, "message": "m",
        "lastTransitionTime": "2026-10-31T23:00:00Z"}])
}

#[test]
fn a_cluster_is_broken_when_it_failed_or_was_lost() {
    check_cluster(json!({}), json!({"ready": true, "conditions": ready("True", "")}), &[]);
    check_cluster(json!({}), json!({"conditions": ready("Unknown", "Waiting")}), &[]);
    check_cluster(
        json!({}),
        json!({"conditions": ready("False", "Error")}),
        &["broken cluster d/demo: Error  m"],
    );
    // Nothing has connected yet, or what was connected is gone.
    check_cluster(json!({}), json!({"conditions": ready("False", "Disconnected")}), &[]);
    check_cluster(
        json!({}),
        json!({"ready": true, "conditions": ready("False", "Disconnected")}),
        &["broken cluster d/demo: Disconnected  m"],
    );
    let going = json!({"metadata": {"name": "demo", "deletionTimestamp": NOW}, "spec": {},
        "status": {"conditions": ready("False", "Error")}});
    assert!(found(&[going], &[], &Certificates::default()).is_empty());
}

#[test]
fn newer_releases_and_the_end_of_maintenance_are_told_of_clusters_that_are_made_here() {
    let releases = Catalog::shipped();
    let newest = releases.k3s.channel("v1.35").unwrap();
    let last = releases.end_of_life("v1.33.1+k3s1").unwrap();
    let spec = |version: &str| json!({"kubernetesVersion": version, "rkeConfig": {}});
    let update = format!(
        "update-available cluster d/demo: NewRelease {newest} {newest} is there, the cluster runs v1.35.1+k3s1"
    );
    check_cluster(spec("v1.35.1+k3s1"), json!({}), &[&update]);
    check_cluster(spec(newest), json!({}), &[]);
    check_cluster(json!({"kubernetesVersion": "v1.35.1+k3s1"}), json!({}), &[]);
    let old = json!({"metadata": {"name": "demo", "namespace": "d"}, "spec": spec("v1.33.1+k3s1")});
    let told = found(&[old], &[], &Certificates::default());
    let expected = format!("expiring cluster d/demo: EndOfLife {last} ");
    assert!(told[0].starts_with(&expected), "{told:?}");
}

#[test]
fn the_end_of_a_cluster_is_told_before_that_of_its_version() {
    let with = |version: &str, told: &str| {
        let cluster = json!({
            "metadata": {"name": "demo", "namespace": "d",
                "annotations": {"remuda.io/expires": "2026-11-05T00:00:00Z"}},
            "spec": {"kubernetesVersion": version, "rkeConfig": {}},
            "status": {"conditions": [{"type": "Expiring", "status": told, "message": "is deleted then"}]},
        });
        let all = found(&[cluster], &[], &Certificates::default());
        all.into_iter().filter(|one| one.starts_with("expiring")).collect::<Vec<_>>()
    };
    let expected = ["expiring cluster d/demo: Expires 2026-11-05T00:00:00Z cluster demo is deleted then"];
    assert_eq!(with("v1.35.1+k3s1", "True"), expected);
    assert_eq!(with("v1.33.1+k3s1", "True"), expected);
    assert!(with("v1.35.1+k3s1", "False").is_empty());
}

#[test]
fn machines_that_were_stopped_are_not_broken() {
    let machine = json!({"metadata": {"name": "m", "namespace": "d", "annotations": {"remuda.io/power": "stopped"}},
        "spec": {"clusterName": "demo", "bootstrap": {}, "infrastructureRef": {}},
        "status": {"nodeRef": {"name": "n"}, "conditions": [{"type": "AgentConnected", "status": "False",
            "reason": "R", "message": "gone", "lastTransitionTime": NOW}]}});
    assert!(found(&[], &[machine], &Certificates::default()).is_empty());
}

#[test]
fn machines_are_broken_once_they_were_there() {
    let machine = |node: &str, kind: &str, status: &str| {
        json!({"metadata": {"name": "m", "namespace": "d"},
            "spec": {"clusterName": "demo", "bootstrap": {}, "infrastructureRef": {}},
            "status": {"nodeRef": {"name": node}, "conditions": [{"type": kind, "status": status, "reason": "R",
                "message": "gone", "lastTransitionTime": NOW}]}})
    };
    let of = |machine: Value| found(&[], &[machine], &Certificates::default());
    assert_eq!(of(machine("n", "NodeHealthy", "False")), ["broken machine d/m: R  gone"]);
    assert_eq!(of(machine("n", "AgentConnected", "False")), ["broken machine d/m: R  gone"]);
    assert!(of(machine("n", "NodeHealthy", "Unknown")).is_empty());
    assert!(of(machine("", "NodeHealthy", "False")).is_empty());
    assert!(of(machine("n", "Ready", "False")).is_empty());
    let mut ends = machine("n", "NodeHealthy", "True");
    ends["status"]["certificatesExpiryDate"] = json!("2026-11-20T00:00:00Z");
    assert!(of(ends.clone())[0].starts_with("expiring machine d/m: Certificates 2026-11-20T00:00:00Z "));
    ends["status"]["certificatesExpiryDate"] = json!("2027-11-20T00:00:00Z");
    assert!(of(ends).is_empty());
}

#[test]
fn certificates_of_the_server_are_told_a_month_before() {
    let certificates = Certificates {
        authority: Some("2036-01-01T00:00:00Z".parse().unwrap()),
        serving: Some("2026-11-30T00:00:00Z".parse().unwrap()),
    };
    let told = found(&[], &[], &certificates);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("expiring server /serving: Certificate 2026-11-30T00:00:00Z "), "{told:?}");
}

#[test]
fn of_too_much_what_is_broken_is_kept() {
    let clusters: Vec<Value> = (0..MOST)
        .map(|place| {
            json!({"metadata": {"name": format!("c{place}"), "namespace": "d"},
                "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}},
                "status": {"conditions": ready("False", "Error")}})
        })
        .collect();
    let told = found(&clusters, &[], &Certificates::default());
    assert_eq!(told.len(), MOST);
    assert!(told.iter().all(|text| text.starts_with("broken ")));
}
