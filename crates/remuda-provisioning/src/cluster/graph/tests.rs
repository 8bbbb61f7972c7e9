use serde_json::{Value, json};

use super::*;

fn cluster(config: Value) -> Cluster {
    serde_json::from_value(json!({
        "metadata": {"name": "demo", "namespace": "ws", "uid": "1"},
        "spec": {"kubernetesVersion": "v1.35.1+rke2r1", "rkeConfig": config},
    }))
    .unwrap()
}

fn built(cluster: &Cluster, pools: BTreeMap<String, PoolView>) -> Result<Graph, String> {
    let view = View {
        cluster,
        config: cluster.spec.rke_config.as_ref().unwrap(),
        management: "c-m-x",
        control_plane: None,
        hibernate: "",
        pools: &pools,
    };
    build(&view).map_err(|error| error.to_string())
}

fn names(graph: &Graph) -> Vec<String> {
    graph.children.iter().map(|child| format!("{} {}", child.kind.kind, child.key.name)).collect()
}

fn config(owners: Value) -> Arc<DynamicObject> {
    let config = json!({
        "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "XConfig",
        "metadata": {"name": "x", "namespace": "ws", "ownerReferences": owners}, "size": "s",
    });
    Arc::new(serde_json::from_value(config).unwrap())
}

fn of_driver() -> Cluster {
    cluster(json!({"machinePools": [{
        "name": "p", "workerRole": true, "machineConfigRef": {"kind": "XConfig", "name": "x"},
        "dynamicSchemaSpec": "{\"resourceFields\": {\"size\": {\"type\": \"string\"}}}",
    }]}))
}

fn found(config: Config) -> BTreeMap<String, PoolView> {
    BTreeMap::from([("p".to_owned(), PoolView { config, ..PoolView::default() })])
}

#[test]
fn a_foreign_provider_gets_a_bootstrap_template_for_each_pool() {
    let foreign = json!({"apiVersion": "infra.example.com/v1", "kind": "XCluster", "name": "infra"});
    let template = json!({"apiVersion": "infra.example.com/v1", "kind": "XTemplate", "name": "t"});
    let pool = |userdata: &str| json!({"name": "p", "workerRole": true, "machineConfigRef": template, "userdata": {"inlineUserdata": userdata}});
    let made = |userdata: &str| {
        let config = json!({"infrastructureRef": foreign, "machinePools": [pool(userdata)]});
        built(&cluster(config), BTreeMap::new()).unwrap()
    };
    let graph = made("#cloud-config");
    let hash = naming::sha256_hex(b"demo-p#cloud-config", 8);
    assert_eq!(
        names(&graph),
        [
            "RKEControlPlane demo".to_owned(),
            "Cluster demo".to_owned(),
            format!("RKEBootstrapTemplate demo-p-{hash}"),
            "MachineDeployment demo-p".to_owned(),
        ]
    );
    let spec = &graph.children[3].value["spec"]["template"]["spec"];
    assert_eq!(
        spec["infrastructureRef"],
        json!({"apiGroup": "infra.example.com", "kind": "XTemplate", "name": "t"})
    );
    assert_eq!(
        graph.children[1].value["spec"]["infrastructureRef"],
        json!({"apiGroup": "infra.example.com", "kind": "XCluster", "name": "infra"})
    );
    assert_ne!(names(&graph), names(&made("#other")));
}

#[test]
fn a_configuration_is_taken_over_unless_it_is_somebody_elses() {
    let owner = |kind: &str, version: &str, name: &str, controller: bool| json!({"apiVersion": version, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": controller});
    let adopted = |owners: Value| built(&of_driver(), found(Config::Found(config(owners))));
    let graph = adopted(json!([])).unwrap();
    assert_eq!(graph.adoptions[0].owners.len(), 1);
    let graph = adopted(
        json!([{"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": "demo", "uid": "1"}]),
    );
    assert!(graph.unwrap().adoptions.is_empty());
    let former = adopted(json!([owner("Cluster", "provisioning.cattle.io/v1", "demo", true)])).unwrap();
    assert_eq!(former.adoptions[0].owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["1"]);
    assert_eq!(
        adopted(json!([owner("Thing", "a.b/v1", "t", true)])).unwrap_err(),
        "can not use XConfig x because it is already controlled by Thing t"
    );
    let beside = adopted(json!([owner("Thing", "a.b/v1", "t", false)])).unwrap();
    assert_eq!(beside.adoptions[0].owners.len(), 2);
}

#[test]
fn a_configuration_that_several_clusters_use_belongs_to_none() {
    let owner = |name: &str, uid: &str| json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": name, "uid": uid});
    let thing = json!({"apiVersion": "a.b/v1", "kind": "Thing", "name": "t", "uid": "9"});
    let check = |owners: Value, marked: bool| {
        let mut config = (*config(owners)).clone();
        if marked {
            config.metadata.annotations = Some([(SHARED.to_owned(), "true".to_owned())].into());
        }
        let adoptions = built(&of_driver(), found(Config::Found(Arc::new(config)))).unwrap().adoptions;
        let uids = |adoption: &Adoption| adoption.owners.iter().map(|owner| owner.uid.clone()).collect();
        adoptions.first().map(|adoption| (adoption.shared, uids(adoption)))
    };
    let becomes = |uids: &[&str]| Some((true, uids.iter().map(|uid| (*uid).to_owned()).collect::<Vec<_>>()));
    assert_eq!(check(json!([owner("other", "2"), thing]), false), becomes(&["9"]));
    assert_eq!(check(json!([owner("demo", "1"), owner("other", "2")]), false), becomes(&[]));
    // Somebody said so before anybody used it, or while only we did.
    assert_eq!(check(json!([owner("demo", "1")]), true), becomes(&[]));
    assert_eq!(check(json!([]), true), None);
    assert_eq!(check(json!([thing]), true), None);
}

#[test]
fn what_a_pool_lacks_is_named() {
    let lacks = |config| built(&of_driver(), found(config)).unwrap_err();
    assert_eq!(lacks(Config::Missing), "XConfig ws/x of machinePool [p] not found");
    assert_eq!(
        lacks(Config::NotServed),
        "kind XConfig of the config of machinePool [p] is not served, its node driver may not be active"
    );
}

#[test]
fn an_autoscaler_is_announced_and_paused() {
    let marks = |cluster: &Cluster| {
        let graph = built(cluster, found(Config::Found(config(json!([]))))).unwrap();
        let found = graph.children.iter().find(|child| child.kind.group == "cluster.x-k8s.io").unwrap();
        found.value["metadata"]["annotations"].clone()
    };
    let mut made = of_driver();
    assert_eq!(marks(&made), Value::Null);
    let pool = &mut made.spec.rke_config.as_mut().unwrap().machine_pools[0];
    (pool.autoscaling_min_size, pool.autoscaling_max_size) = (Some(1), Some(3));
    assert_eq!(marks(&made), json!({"provisioning.cattle.io/cluster-autoscaler-enabled": "true"}));
    made.metadata.annotations = Some([(annotation::AUTOSCALER_PAUSED.to_owned(), "yes".to_owned())].into());
    assert_eq!(marks(&made), json!({"provisioning.cattle.io/cluster-autoscaler-paused": "true"}));
}
