//! Versions: what is stored of what was written, and what is refused.

use super::*;
use remuda_names::provisioning::annotation::{FORCE_VERSION, VERSION_ALIAS};

fn with(version: &str, annotations: Value) -> Value {
    let mut object = cluster(json!({"kubernetesVersion": version, "rkeConfig": {}}));
    for (key, value) in annotations.as_object().into_iter().flatten() {
        object["metadata"]["annotations"][key] = value.clone();
    }
    object
}

/// What is stored of what was written.
fn stored(old: Option<&Value>, mut object: Value) -> (String, Value) {
    fill_in(&write("demo", old), &mut object, &Catalog::shipped());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["spec"]["kubernetesVersion"]), object)
}

fn known(running: &[&str]) -> Known {
    let running = running.iter().map(|version| (*version).to_owned()).collect();
    Known { releases: Some(Catalog::shipped()), running, ..Known::default() }
}

#[test]
fn a_word_becomes_the_release_it_stands_for_and_stays_it() {
    let (version, pinned) = stored(None, with("stable", json!({})));
    assert_eq!(version, "v1.36.3+k3s1");
    assert_eq!(pinned["metadata"]["annotations"][VERSION_ALIAS], "stable");
    assert_eq!(stored(None, with("1.34+rke2", json!({}))).0, "v1.34.10+rke2r1");
    assert_eq!(stored(None, with("1.35.2+k3s1", json!({}))).0, "v1.35.2+k3s1");

    // A manifest that is applied again is no upgrade, even if the channel has gone on.
    let old = with("v1.35.2+k3s1", json!({VERSION_ALIAS: "stable"}));
    assert_eq!(stored(Some(&old), with("stable", json!({}))).0, "v1.35.2+k3s1");
    // Another word is, and stays with the distribution.
    assert_eq!(stored(Some(&old), with("1.36", json!({}))).0, "v1.36.3+k3s1");
    let old = with("v1.34.2+rke2r1", json!({}));
    assert_eq!(stored(Some(&old), with("stable", json!({}))).0, "v1.35.7+rke2r1");
    // Who names a release wants that one and no word.
    let old = with("v1.35.2+k3s1", json!({VERSION_ALIAS: "stable"}));
    let (_, exact) = stored(Some(&old), with("v1.35.3+k3s1", json!({VERSION_ALIAS: "stable"})));
    assert_eq!(exact["metadata"]["annotations"][VERSION_ALIAS], Value::Null);
    let (_, same) = stored(Some(&old), old.clone());
    assert_eq!(same, old);
    // Clusters that are not made here have no version of their own.
    let mut imported = cluster(json!({"kubernetesVersion": "stable"}));
    fill_in(&write("demo", None), &mut imported, &Catalog::shipped());
    assert_eq!(imported["spec"]["kubernetesVersion"], "stable");
}

#[test]
fn what_is_no_version_is_refused_with_its_field() {
    let new = with("newest", json!({}));
    assert_eq!(
        refusal(judge(&write("demo", None), &new, &known(&[]))),
        "422 spec.kubernetesVersion: Invalid value: \"newest\": is not a version: write one such as v1.35.1+k3s1, \
         a minor version such as 1.35, or stable"
    );
    assert!(refusal(judge(&write("demo", None), &with("1.12", json!({})), &known(&[]))).starts_with("422"));
    // A rule that is younger than the cluster does not keep anybody from editing it.
    let odd = with("newest", json!({}));
    let mut edited = odd.clone();
    edited["spec"]["agentEnvVars"] = json!([]);
    assert_eq!(refusal(judge(&write("demo", Some(&odd)), &edited, &known(&[]))), "");
}

#[test]
fn a_change_nodes_cannot_follow_is_refused_unless_it_is_meant() {
    let old = with("v1.34.2+k3s1", json!({}));
    let change = |to: &str, annotations: Value, running: &[&str]| {
        refusal(judge(&write("demo", Some(&old)), &with(to, annotations), &known(running)))
    };
    let nodes = &["v1.34.2+k3s1"];
    assert_eq!(change("v1.35.1+k3s1", json!({}), nodes), "");
    let refused = change("v1.33.1+k3s1", json!({}), nodes);
    assert!(
        refused.starts_with("422 spec.kubernetesVersion: Invalid value: \"v1.33.1+k3s1\": "),
        "{refused}"
    );
    assert!(refused.ends_with("if it is meant, set the annotation remuda.io/force-version to v1.33.1+k3s1"));
    assert!(change("v1.36.1+k3s1", json!({}), nodes).contains("go to 1.35 first"));
    assert!(change("v1.34.2+rke2r1", json!({}), nodes).contains("cannot become one of RKE2"));
    // The word is for one version and not for the next mistake.
    assert_eq!(change("v1.33.1+k3s1", json!({FORCE_VERSION: "v1.33.1+k3s1"}), nodes), "");
    assert!(!change("v1.33.1+k3s1", json!({FORCE_VERSION: "v1.33.2+k3s1"}), nodes).is_empty());
    assert!(!change("v1.33.1+k3s1", json!({FORCE_VERSION: "true"}), nodes).is_empty());
    // No node ever ran it.
    assert_eq!(change("v1.33.1+k3s1", json!({}), &["v1.33.1+k3s1"]), "");
    // A restore brings back what was.
    let server = Write { is_server: true, ..write("demo", Some(&old)) };
    assert_eq!(refusal(judge(&server, &with("v1.33.1+k3s1", json!({})), &known(nodes))), "");
}

#[test]
fn only_nodes_of_the_cluster_count() {
    let machine = |cluster: &str, version: Value| json!({"spec": {"clusterName": cluster}, "status": {"nodeInfo": {"kubeletVersion": version}}});
    let machines = [
        machine("demo", "v1.34.2+k3s1".into()),
        machine("other", "v1.36.0+k3s1".into()),
        machine("demo", Value::Null),
        json!({"spec": {"clusterName": "demo"}}),
    ];
    assert_eq!(running("demo", &machines), ["v1.34.2+k3s1"]);
    assert!(changes_version(&with("v1.1.1+k3s1", json!({})), &with("v1.1.2+k3s1", json!({}))));
    assert!(!changes_version(&with("", json!({})), &with("v1.1.2+k3s1", json!({}))));
}

#[test]
fn who_writes_a_version_is_told_what_is_known_of_it() {
    let today = "2026-11-17".parse().unwrap();
    let told = |old: Option<&Value>, new: &Value| version_warnings(old, new, &Catalog::shipped(), today);
    assert_eq!(told(None, &with("v1.36.3+k3s1", json!({}))), Vec::<String>::new());
    assert_eq!(
        told(None, &with("v1.36.3+k3s1", json!({VERSION_ALIAS: "stable"}))),
        ["spec.kubernetesVersion: stable is v1.36.3+k3s1 from now on"]
    );
    assert_eq!(
        told(None, &with("v1.33.99+k3s1", json!({}))),
        [
            "spec.kubernetesVersion: v1.33.99+k3s1 is not in the release data of 2026-08-21: it is installed if \
             there is an image of it",
            "spec.kubernetesVersion: Kubernetes 1.33 has not been maintained since 2026-06-28"
        ]
    );
    let old = with("v1.33.99+k3s1", json!({}));
    assert_eq!(told(Some(&old), &old), Vec::<String>::new());
}
