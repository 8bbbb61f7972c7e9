//! The Helm chart: what it makes is taken by an API server, and starts a server.

use std::{collections::BTreeSet, fs};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use remuda_dist::chart;
use serde_json::{Value, json};

use super::{chart_error, template};
use crate::{
    client::client,
    harness::{Place, Server, remuda, success},
};

fn file(name: &str) -> &'static str {
    chart::FILES.iter().find(|(path, _)| *path == name).unwrap().1
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// Values of a person over those of the chart, as Helm puts them together.
fn merged(lower: &Value, upper: &Value) -> Value {
    let (Value::Object(lower), Value::Object(upper)) = (lower, upper) else { return upper.clone() };
    let mut out = lower.clone();
    for (name, value) in upper {
        let value = out.get(name).map_or_else(|| value.clone(), |below| merged(below, value));
        out.insert(name.clone(), value);
    }
    Value::Object(out)
}

/// The objects of the chart, by the file that makes them.
fn rendered(values: &Value) -> Result<Vec<(&'static str, Value)>, String> {
    let mut values = merged(&yaml(file("values.yaml")), values);
    values["fullnameOverride"] = json!("");
    let chart = yaml(file("Chart.yaml"));
    let dot = json!({
        "Values": values,
        "Release": {"Name": "fleet", "Namespace": "remuda-system", "Service": "Helm"},
        "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
    });
    let mut defined = template::Defined::new();
    let templates: Vec<_> = chart::FILES
        .iter()
        .filter(|(path, _)| path.starts_with("templates/"))
        .map(|(path, text)| (*path, template::parse(text, &mut defined)))
        .collect();
    let mut objects = Vec::new();
    for (path, parsed) in templates {
        let text = template::render(&parsed, &defined, &dot)?;
        if path.ends_with(".yaml") && !text.trim().is_empty() {
            objects.push((path, yaml(&text)));
        }
    }
    Ok(objects)
}

fn single() -> Value {
    json!({"advertise": "remuda.example.org", "image": {"repository": "registry.example/remuda"}})
}

fn several() -> Value {
    let more = json!({
        "replicas": 3,
        "etcd": {"endpoints": ["etcd-0:2379", "etcd-1:2379"], "prefix": "/fleet", "tlsSecretName": "etcd-client"},
        "sharedSecret": {"secretName": "remuda-shared"},
        "tls": {"secretName": "remuda-tls"},
        "service": {"type": "LoadBalancer", "annotations": {"a.example/b": "c"}, "loadBalancerIP": "192.0.2.1"},
        "config": {"audit-log": "/data/audit.log", "tls-san": ["a.example.org"]},
        "imagePullSecrets": [{"name": "pull"}],
        "podAnnotations": {"x": "1"},
        "podLabels": {"team": "a"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [],
        "priorityClassName": "high",
        "serviceAccount": {"annotations": {"y": "2"}},
    });
    merged(&single(), &more)
}

fn of<'a>(objects: &'a [(&str, Value)], kind: &str) -> &'a Value {
    let found = objects.iter().find(|(_, object)| object["kind"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind}")).1
}

#[test]
fn what_the_chart_cannot_know_is_demanded() {
    let refused = |values: &Value| rendered(values).unwrap_err();
    assert_eq!(refused(&json!({"image": {"repository": "r"}})).split(':').next(), Some("advertise"));
    let no_image = refused(&json!({"advertise": "a"}));
    assert!(no_image.starts_with("image.repository: "), "{no_image}");
    let two = refused(&merged(&single(), &json!({"replicas": 2})));
    assert!(two.starts_with("replicas: several servers need an etcd"), "{two}");
    let secret = refused(&merged(&single(), &json!({"etcd": {"endpoints": ["a"]}})));
    assert!(secret.starts_with("sharedSecret.secretName: "), "{secret}");
    assert_eq!(chart_error("x"), "x");
}

#[test]
fn one_server_has_a_volume_and_several_an_etcd() {
    let objects = rendered(&single()).unwrap();
    let server = of(&objects, "StatefulSet");
    assert_eq!(server["spec"]["replicas"], 1);
    let claim = &server["spec"]["volumeClaimTemplates"][0];
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "10Gi");
    assert!(!objects.iter().any(|(_, object)| object["kind"] == "PodDisruptionBudget"));
    let claimed = merged(&single(), &json!({"persistence": {"existingClaim": "mine"}}));
    let claimed = rendered(&claimed).unwrap();
    let server = of(&claimed, "StatefulSet");
    assert_eq!(server["spec"].get("volumeClaimTemplates"), None);
    let volumes = server["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == "mine"));

    let objects = rendered(&several()).unwrap();
    let server = of(&objects, "Deployment");
    let container = &server["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap();
    let datastore = variables.iter().find(|variable| variable["name"] == "REMUDA_DATASTORE").unwrap();
    assert_eq!(datastore["value"], "etcd://etcd-0:2379,etcd-1:2379?prefix=/fleet");
    of(&objects, "PodDisruptionBudget");
    // Another configuration is another Pod.
    let annotations = |objects: &[(&str, Value)], kind: &str| {
        of(objects, kind)["spec"]["template"]["metadata"]["annotations"]["checksum/config"].clone()
    };
    let changed = rendered(&merged(&several(), &json!({"config": {"bind": ":1"}}))).unwrap();
    assert_ne!(annotations(&objects, "Deployment"), annotations(&changed, "Deployment"));
}

#[test]
fn every_value_is_in_the_schema() {
    fn check(values: &Value, schema: &Value, at: &str) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        for (name, value) in values.as_object().unwrap() {
            let inner = properties.get(name).unwrap_or_else(|| panic!("{at}.{name} is not in the schema"));
            check(value, inner, &format!("{at}.{name}"));
        }
    }
    let schema: Value = serde_json::from_str(file("values.schema.json")).unwrap();
    check(&yaml(file("values.yaml")), &schema, "");
    check(&several(), &schema, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chart_makes_is_taken_by_an_api_server_and_starts_a_server() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    for values in [single(), several()] {
        for (path, object) in rendered(&values).unwrap() {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let types = object.types.clone().unwrap();
            let kind: GroupVersionKind = (&types).try_into().unwrap();
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind));
            let apply = PatchParams::apply("helm").force().validation_strict();
            let name = object.metadata.name.clone().unwrap();
            let applied = api.patch(&name, &apply, &Patch::Apply(&object)).await;
            applied.unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    // Every variable is one the program has.
    let said: Value = serde_json::from_str(&success(remuda().arg("describe"))).unwrap();
    let commands = said["commands"].as_array().unwrap();
    let options =
        commands.iter().find(|command| command["name"] == "server").unwrap()["arguments"].as_array();
    let known: BTreeSet<&str> =
        options.unwrap().iter().filter_map(|option| option["environment"].as_str()).collect();
    let objects = rendered(&several()).unwrap();
    let container = &of(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let expected = ["HOME", remuda_names::env::SHARED_SECRET].contains(&name) || known.contains(name);
        assert!(expected, "{name}");
    }

    // The configuration is one the program takes.
    let place = Place::new();
    let objects = rendered(&merged(&single(), &json!({"config": {"tls-san": ["a.example.org"]}}))).unwrap();
    let container = &of(&objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0];
    let text = of(&objects, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    let config = place.join("config.yaml");
    fs::write(&config, text.replace("json", "text")).unwrap();
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let [first, flag, path, bind, _] = arguments[..] else { panic!("{arguments:?}") };
    assert_eq!((first, path, bind), ("server", remuda_names::file::DEFAULT_CONFIG, "--bind"));
    let server = Server::start(&place.data(), &[flag, config.to_str().unwrap(), bind, "127.0.0.1:0"]);
    assert!(server.url.starts_with("https://"));
}
