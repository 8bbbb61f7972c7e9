//! Situations and what is said about them.
//!
//! Each file in `situations` has the evidence, a line of dashes, and the answer. Evidence is made of parts that
//! most situations share, of objects that are added or removed, and of changes to single ones. Answers are
//! rewritten with `UPDATE_GOLDEN=1`.

use std::{fs, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::{hooks::JobLog, plan::tests::pack};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    #[serde(default)]
    parts: Vec<String>,
    /// `Kind/name`.
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    add: Vec<Value>,
    #[serde(default)]
    change: Vec<Value>,
    #[serde(default)]
    logs: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    unreadable: Vec<String>,
    #[serde(default)]
    missing_secrets: Vec<String>,
    unreachable: Option<String>,
    #[serde(default)]
    unknown_release: bool,
    #[serde(default)]
    hosts: std::collections::BTreeMap<String, crate::hooks::HostState>,
    /// A machine to ask about, instead of the cluster.
    machine: Option<String>,
}

const NOW: &str = "2026-01-01T12:10:00Z";

fn here() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/why/situations")
}

fn yaml<T: serde::de::DeserializeOwned>(text: &str, origin: &str) -> T {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{origin}: {error}"))
}

fn evidence(situation: &Situation) -> Evidence {
    let mut objects: Vec<Value> = Vec::new();
    for part in &situation.parts {
        let text = fs::read_to_string(here().join(format!("parts/{part}.yaml"))).unwrap();
        for item in yaml::<Vec<Value>>(&text, part) {
            if item.get("of").is_some() {
                change(&mut objects, item);
            } else {
                objects.push(item);
            }
        }
    }
    objects.retain(|object| {
        let name =
            format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        !situation.remove.contains(&name)
    });
    objects.extend(situation.add.iter().cloned());
    for item in &situation.change {
        change(&mut objects, item.clone());
    }
    let subject = match &situation.machine {
        Some(machine) => Subject::Machine(machine.clone()),
        None => Subject::Cluster("demo".to_owned()),
    };
    let mut evidence =
        Evidence::from_objects(subject, objects.into_iter().map(|object| Object(secret(object))));
    let log = |text: &String| JobLog { create: text.clone(), remove: text.clone() };
    evidence.logs = situation.logs.iter().map(|(machine, text)| (machine.clone(), log(text))).collect();
    let denied = |resource: &String| Denied {
        verb: "list".to_owned(),
        resource: resource.clone(),
        namespace: Some("fleet-default".to_owned()),
        name: None,
    };
    evidence.unreadable =
        situation.unreadable.iter().map(|resource| (resource.clone(), denied(resource))).collect();
    evidence.missing_secrets = situation.missing_secrets.iter().cloned().collect();
    evidence.unreachable.clone_from(&situation.unreachable);
    evidence.unknown_release = situation.unknown_release;
    evidence.hosts.clone_from(&situation.hosts);
    evidence
}

/// `of` names the one object that is changed: its kind, its name and perhaps the beginning of its group.
fn change(objects: &mut [Value], mut change: Value) {
    let wanted = change.as_object_mut().unwrap().remove("of").unwrap();
    let words: Vec<&str> = wanted.as_str().unwrap().split(' ').collect();
    let fits = |object: &&mut Value| {
        let group = object["apiVersion"].as_str().unwrap();
        object["kind"] == words[0]
            && object["metadata"]["name"] == words[1]
            && words.get(2).is_none_or(|wanted| group.starts_with(wanted))
    };
    let mut found: Vec<&mut Value> = objects.iter_mut().filter(fits).collect();
    assert_eq!(found.len(), 1, "{wanted}");
    merge(found[0], change);
}

/// Objects are merged, conditions by their type, everything else is replaced; null removes.
fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                match value {
                    Value::Null => drop(into.remove(&key)),
                    value => merge(into.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (Value::Array(into), Value::Array(change))
            if change.iter().all(|item| item.get("type").is_some()) =>
        {
            for item in change {
                into.retain(|old| old["type"] != item["type"]);
                into.push(item);
            }
        }
        (into, change) => *into = change,
    }
}

/// Plans are written as text; `PLAN` stands for the checksum of the plan, `failed-output` for what it holds.
fn secret(mut object: Value) -> Value {
    let Some(data) = object.get_mut("stringData").map(Value::take) else { return object };
    let plan = data["plan"].as_str().unwrap_or_default();
    let checksum = remuda_plan::sha256_hex(plan.as_bytes());
    for (key, value) in data.as_object().unwrap() {
        object["data"][key] = match value {
            Value::Object(outputs) => {
                let outputs: Vec<_> =
                    outputs.iter().map(|(name, text)| (name.as_str(), text.as_str().unwrap())).collect();
                json!(pack(&outputs))
            }
            value => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                json!(BASE64_STANDARD.encode(text.replace("PLAN", &checksum)))
            }
        };
    }
    if data["applied-checksum"] == "PLAN" {
        // As the controller of plan Secrets does when an agent reports this.
        object["data"][remuda_plan::key::APPLIED_PLAN] = json!(BASE64_STANDARD.encode(plan));
    }
    object
}

#[test]
fn every_situation_has_its_cause() {
    let now: Timestamp = NOW.parse().unwrap();
    let mut files: Vec<_> = fs::read_dir(here()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(files.len() > 40, "{}", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (given, expected) = text.split_once("\n----\n").unwrap_or((text.trim_end(), ""));
        let situation: Situation = yaml(given, &file.display().to_string());
        let finding = decide(&evidence(&situation), now);
        let rendered = anstream::adapter::strip_str(&finding.render(now, &TimeZone::UTC)).to_string();
        let found = format!("{} | {}\n{rendered}", cause_name(finding.cause), finding.brief);
        if found != expected {
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&file, format!("{given}\n----\n{found}")).unwrap();
            } else {
                wrong.push(format!("{}:\n{found}\ninstead of\n{expected}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn causes_have_names_that_scripts_can_rely_on() {
    assert_eq!(cause_name(Cause::CreateJobFailed), "create-job-failed");
    let finding = Finding::blocked(Cause::DriverMissing, "x").since(NOW.parse().ok());
    let json = serde_json::to_value(&finding).unwrap();
    assert_eq!(
        json,
        json!({"subject": "", "state": "blocked", "cause": "driver-missing", "summary": "x", "since": NOW})
    );
}

#[test]
fn what_cannot_mend_itself_outranks_what_takes_time() {
    assert!(State::Blocked < State::Waiting && State::Waiting < State::Ready);
    assert!(Cause::DriverMissing < Cause::InfrastructureNotReady);
    assert!(Cause::CreateJobFailed < Cause::NodeMissing);
    assert!(Cause::PlanFailed < Cause::ProbesFailing);
}

/// Objects of the right kinds with anything in them.
fn any_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9:./-]{0,12}".prop_map(Value::from),
        Just(json!("2026-01-01T12:00:00Z")),
        Just(json!("True")),
        Just(json!("demo"))
    ];
    let keys = prop_oneof![
        Just("name"),
        Just("labels"),
        Just("annotations"),
        Just("conditions"),
        Just("type"),
        Just("status"),
        Just("rkeConfig"),
        Just("machinePools"),
        Just("quantity"),
        Just("machineConfigRef"),
        Just("kind"),
        Just("nodeRef"),
        Just("infrastructureRef"),
        Just("deletionTimestamp"),
        Just("data"),
        Just("plan"),
        Just("message"),
        Just("reason"),
        Just("lastTransitionTime"),
        Just("finalizers")
    ];
    let value = leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let kinds = prop_oneof![
        Just(("provisioning.cattle.io/v1", "Cluster")),
        Just(("cluster.x-k8s.io/v1beta2", "Cluster")),
        Just(("management.cattle.io/v3", "Cluster")),
        Just(("rke.cattle.io/v1", "RKEControlPlane")),
        Just(("cluster.x-k8s.io/v1beta2", "Machine")),
        Just(("rke-machine.cattle.io/v1", "LocalMachine")),
        Just(("batch/v1", "Job")),
        Just(("v1", "Event")),
        Just(("management.cattle.io/v3", "NodeDriver"))
    ];
    (kinds, value.clone(), value.clone(), value).prop_map(|((version, kind), metadata, spec, status)| {
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_evidence_makes_it_panic(objects in prop::collection::vec(any_object(), 0..8)) {
        let objects: Vec<Object> = objects.into_iter().map(Object).collect();
        let now: Timestamp = NOW.parse().unwrap();
        for subject in [Subject::Cluster("demo".into()), Subject::Machine("demo".into())] {
            let evidence = Evidence::from_objects(subject, objects.clone());
            let finding = decide(&evidence, now);
            prop_assert!(!finding.render(now, &TimeZone::UTC).is_empty());
        }
    }
}

#[test]
fn a_version_at_its_end_is_told_of_a_cluster_that_is_ready() {
    let cluster = Object(json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "old", "namespace": "fleet-default"},
        "spec": {"kubernetesVersion": "v1.33.5+k3s1", "rkeConfig": {}},
        "status": {"ready": true, "conditions": [{"type": "Ready", "status": "True"}]},
    }));
    let mut evidence = Evidence::from_objects(Subject::Cluster("old".to_owned()), [cluster]);
    let now: Timestamp = NOW.parse().unwrap();
    let young = decide(&evidence, now);
    assert!(young.evidence.is_empty() && young.next.is_empty(), "{young:?}");
    evidence.end_of_life = Some("2026-06-28".parse().unwrap());
    let finding = decide(&evidence, now);
    assert_eq!((finding.state, finding.cause), (young.state, young.cause), "it is no cause");
    assert_eq!(
        finding.evidence[0].text,
        "the Kubernetes of v1.33.5+k3s1 has not been maintained since 2026-06-28"
    );
    assert_eq!(finding.next, ["remuda cluster upgrade old --to 1.34"]);
}
