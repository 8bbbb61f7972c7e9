use super::*;
use crate::failure::Code;

fn shape(arguments: &str) -> ClusterShape {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        shape: ClusterShape,
    }
    let words = std::iter::once("x").chain(arguments.split_whitespace());
    <Line as clap::Parser>::try_parse_from(words).unwrap().shape
}

#[track_caller]
fn refused(arguments: &str, name: &str, expected: &str) {
    let failure = shape(arguments).manifest(name, "fleet-default").unwrap_err();
    assert_eq!((failure.code, failure.message.as_str()), (Code::Invalid, expected));
}

#[test]
fn a_name_is_enough() {
    let objects = shape("").manifest("demo", "fleet-default").unwrap();
    let text: Vec<String> = objects.iter().map(|object| output::yaml(object).unwrap()).collect();
    assert_eq!(
        text.join("---\n"),
        "apiVersion: rke-machine-config.cattle.io/v1\n\
         kind: LocalConfig\n\
         metadata:\n  \
           name: nc-demo-servers\n  \
           namespace: fleet-default\n\
         ---\n\
         apiVersion: provisioning.cattle.io/v1\n\
         kind: Cluster\n\
         metadata:\n  \
           name: demo\n  \
           namespace: fleet-default\n\
         spec:\n  \
           kubernetesVersion: v1.35.1+k3s1\n  \
           rkeConfig:\n    \
             machinePools:\n    \
             - controlPlaneRole: true\n      \
               drainBeforeDelete: true\n      \
               drainBeforeDeleteTimeout: 10m\n      \
               etcdRole: true\n      \
               machineConfigRef:\n        \
                 kind: LocalConfig\n        \
                 name: nc-demo-servers\n      \
               name: servers\n      \
               quantity: 1\n      \
               workerRole: true\n"
    );
}

#[test]
fn pools_carry_their_roles_drivers_and_fields() {
    let shape = shape(
        "--distribution rke2 --driver digitalocean --credential cattle-global-data:do --machine-config region=nyc3 \
         --arg disable=[a,b] --arg secrets-encryption=true \
         --pool name=servers,count=3,config.size=big,config.monitoring=true \
         --pool name=gpu,roles=worker,driver=local,label.tier=apps,count=2",
    );
    let objects = shape.manifest("prod", "team").unwrap();
    assert_eq!(objects.len(), 3);
    assert_eq!(
        objects[0].0,
        json!({"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "DigitaloceanConfig",
            "metadata": {"name": "nc-prod-servers", "namespace": "team"},
            "region": "nyc3", "size": "big", "monitoring": true})
    );
    assert_eq!(objects[1].kind(), "LocalConfig");
    assert_eq!(
        objects[2].0["spec"],
        json!({"kubernetesVersion": "v1.35.1+rke2r1", "cloudCredentialSecretName": "cattle-global-data:do",
        "rkeConfig": {
            "machineGlobalConfig": {"disable": ["a", "b"], "secrets-encryption": true},
            "machinePools": [
                {"name": "servers", "quantity": 3, "etcdRole": true, "controlPlaneRole": true,
                 "drainBeforeDelete": true, "drainBeforeDeleteTimeout": "10m",
                 "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "nc-prod-servers"}},
                {"name": "gpu", "quantity": 2, "workerRole": true, "labels": {"tier": "apps"},
                 "drainBeforeDelete": true, "drainBeforeDeleteTimeout": "10m",
                 "machineConfigRef": {"kind": "LocalConfig", "name": "nc-prod-gpu"}},
            ]}})
    );
}

#[test]
fn a_custom_cluster_has_no_pools() {
    let objects = shape("--custom").manifest("edge", "fleet-default").unwrap();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].0["spec"]["rkeConfig"], json!({}));
}

#[test]
fn what_cannot_become_a_cluster_is_refused_before_anything_is_made() {
    refused("", "Demo", "\"Demo\" cannot be the name of a cluster");
    refused("", "-d", "\"-d\" cannot be the name of a cluster");
    refused("--version banana", "demo", "\"banana\" is not a version");
    refused("--version v1.35.1+rke2r1 --distribution k3s", "demo", "v1.35.1+rke2r1 is not a version of k3s");
    refused("--driver Local", "demo", "\"Local\" cannot be the name of a driver");
    refused(
        "--servers 0 --workers 1",
        "demo",
        "no pool has machines for etcd, so the cluster would never start",
    );
    refused(
        "--pool name=servers",
        "demo",
        "no pool has machines for worker, so the cluster would never start",
    );
    refused("--pool name=a,roles=all --pool name=a,roles=all", "demo", "two pools are called a");
    refused("--pool name=A,roles=all", "demo", "\"A\" cannot be the name of a pool");
    refused("--machine-config kind=x", "demo", "kind is no field of a machine configuration");
    refused("--arg a", "demo", "argument \"a\": write it as NAME=VALUE");
}

#[test]
fn pools_that_make_no_sense_are_refused_with_what_does() {
    let refused = |text: &str| text.parse::<PoolShape>().unwrap_err();
    assert_eq!(refused("roles=all"), "it has no name: add name=…");
    assert_eq!(refused("name=x"), "it has no roles: add roles=…");
    assert_eq!(
        refused("name=x,roles=king"),
        "\"king\" is no role; there are all, server, etcd, controlplane and worker"
    );
    assert_eq!(refused("name=x,count=-1"), "\"-1\" is no number of machines from 0 to 1000");
    assert_eq!(refused("name"), "\"name\" is not KEY=VALUE");
    assert_eq!(
        refused("name=x,size=big"),
        "\"size\" is not known; there are name, roles, count, driver, label.NAME and config.FIELD"
    );
    let pool: PoolShape = "name=w,roles=etcd+controlplane".parse().unwrap();
    assert_eq!((pool.roles, pool.count), (PoolRoles::SERVER, 1));
}

#[test]
fn versions_are_completed() {
    let full = |version, distribution| full_version(version, distribution).unwrap();
    assert_eq!(full(None, None), "v1.35.1+k3s1");
    assert_eq!(full(Some("1.34.2"), Some(Distribution::Rke2)), "v1.34.2+rke2r1");
    assert_eq!(full(Some("stable"), None), "stable+k3s");
    assert_eq!(full(Some("v1.35"), Some(Distribution::Rke2)), "1.35+rke2");
    assert_eq!(full(Some("v1.34.2+k3s2"), None), "v1.34.2+k3s2");
}

#[test]
fn an_even_number_of_etcd_machines_is_warned_about() {
    let warned = |arguments: &str| warnings(&shape(arguments).manifest("demo", "x").unwrap());
    assert_eq!(warned("--servers 3"), Vec::<String>::new());
    assert_eq!(warned("--servers 2").len(), 1);
    assert_eq!(warned("--servers 9").len(), 1);
}
