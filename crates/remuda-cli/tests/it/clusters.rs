use remuda_cli::Code;
use serde_json::json;

use crate::world::{World, driver_kind};

#[tokio::test]
async fn a_cluster_is_created_listed_changed_and_deleted() {
    let world = World::new().await;
    let said = world.run("cluster list").await;
    assert_eq!(
        said,
        "there are no clusters in namespace fleet-default; make one: remuda cluster create demo --wait\n"
    );
    assert_eq!(world.run("cluster create demo --workers 2").await, "cluster demo created\n");
    let configs = world.names("rke-machine-config.cattle.io/v1", "LocalConfig").await;
    assert_eq!(configs, ["nc-demo-servers", "nc-demo-workers"]);
    let listed = world.run("cluster list").await;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("NAME   STATE      VERSION        MACHINES   PROVIDER"), "{listed}");
    assert!(lines[1].starts_with("demo   Creating   v1.35.1+k3s1   0/3        local"), "{listed}");
    assert_eq!(world.run("cluster list -o name").await, "demo\n");
    assert_eq!(world.run("cluster list -A -o name").await, "fleet-default/demo\n");

    let said = world.run("cluster scale demo workers=5").await;
    assert_eq!(said, "cluster demo: pool workers changes from 2 to 5 machines\n");
    let writes = world.api.writes().len();
    assert_eq!(world.run("cluster scale demo workers=5").await, "cluster demo has those numbers already\n");
    assert_eq!(world.api.writes().len(), writes);
    let said = world.run("cluster upgrade demo --to 1.35.2").await;
    assert_eq!(said, "cluster demo changes from v1.35.1+k3s1 to v1.35.2+k3s1\n");
    let cluster = world.cluster("demo").await;
    assert_eq!(cluster["spec"]["kubernetesVersion"], "v1.35.2+k3s1");
    assert_eq!(cluster["spec"]["rkeConfig"]["machinePools"][1]["quantity"], 5);

    assert_eq!(world.run("cluster delete demo --yes").await, "cluster demo is being deleted\n");
    let said = world.run("cluster delete demo --yes").await;
    assert_eq!(said, "there is no cluster demo in namespace fleet-default: nothing to delete\n");
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let world = World::new().await;
    let said = world.run("cluster create demo --dry-run").await;
    assert_eq!(said, "cluster demo would be created\n");
    assert!(world.names("provisioning.cattle.io/v1", "Cluster").await.is_empty());
    assert!(world.names("rke-machine-config.cattle.io/v1", "LocalConfig").await.is_empty());
    world.run("cluster create demo").await;
    world.run("cluster scale demo 3 --dry-run").await;
    world.run("cluster upgrade demo --to 1.36.0 --dry-run").await;
    world.run("cluster delete demo --dry-run").await;
    let cluster = world.cluster("demo").await;
    assert_eq!(cluster["spec"]["kubernetesVersion"], "v1.35.1+k3s1");
    assert_eq!(cluster["spec"]["rkeConfig"]["machinePools"][0]["quantity"], 1);
    assert!(cluster["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test]
async fn documents_are_for_programs() {
    let world = World::new().await;
    world.run("cluster create demo").await;
    let json: serde_json::Value = serde_json::from_str(&world.run("cluster list -o json").await).unwrap();
    assert_eq!(
        (json["kind"].as_str(), json["items"][0]["metadata"]["name"].as_str()),
        (Some("List"), Some("demo"))
    );
    let one: serde_json::Value = serde_json::from_str(&world.run("cluster get demo -o json").await).unwrap();
    assert_eq!(one["kind"], "Cluster");
    assert!(one["metadata"].get("managedFields").is_none());
    assert!(
        world.run("cluster get demo -o yaml").await.starts_with("apiVersion: provisioning.cattle.io/v1\n")
    );
    let empty: serde_json::Value = serde_json::from_str(&world.run("machine list -o json").await).unwrap();
    assert_eq!(empty["items"], json!([]));
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let world = World::new().await;
    world.run("cluster create demo").await;
    let (code, text) = world.fails("cluster create demo").await;
    assert_eq!(
        (code, text.as_str()),
        (
            Code::Conflict,
            "there is a cluster demo already in namespace fleet-default | change it with: remuda cluster edit demo"
        )
    );
    let (code, text) = world.fails("cluster get deno").await;
    assert_eq!(
        (code, text.as_str()),
        (Code::NotFound, "there is no cluster deno in namespace fleet-default | did you mean demo?")
    );
    let (code, text) = world.fails("why nothing-like-it").await;
    assert_eq!(code, Code::NotFound);
    assert!(text.starts_with("there is no cluster and no machine nothing-like-it"), "{text}");
    let (code, text) = world.fails("cluster create other --driver nobody").await;
    assert_eq!(code, Code::NotFound);
    assert!(
        text.starts_with("the server knows no NobodyConfig: driver nobody does not exist or is not active"),
        "{text}"
    );
    let (code, text) = world.fails("cluster upgrade demo --to newest").await;
    assert_eq!(code, Code::Invalid);
    assert!(text.starts_with("\"newest\" is not a version"), "{text}");
    let (code, _) = world.fails("cluster get a/../b").await;
    assert_eq!(code, Code::Invalid);
}

#[tokio::test]
async fn a_cluster_in_another_namespace_is_pointed_at() {
    let world = World::new().await;
    world.put("v1", "Namespace", json!({"metadata": {"name": "team"}})).await;
    let cluster = json!({"metadata": {"name": "demo", "namespace": "team"}, "spec": {"rkeConfig": {}}});
    world.put("provisioning.cattle.io/v1", "Cluster", cluster).await;
    let (_, text) = world.fails("cluster describe demo").await;
    assert!(text.ends_with("there is one in namespace team: add -n team"), "{text}");
}

#[tokio::test]
async fn a_refused_cluster_leaves_no_configuration_behind() {
    let world = World::new().await;
    // The API refuses it: the schema wants text.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "apiVersion: rke-machine-config.cattle.io/v1\nkind: LocalConfig\nmetadata: {name: c}\n---\n\
         apiVersion: provisioning.cattle.io/v1\nkind: Cluster\nmetadata: {name: demo}\nspec: {kubernetesVersion: 3}\n",
    )
    .unwrap();
    let path = file.path().display().to_string();
    let (_, result) = world.try_run_words(["cluster", "create", "-f", &path]).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code, Code::Invalid, "{failure:?}");
    assert!(failure.message.contains("spec.kubernetesVersion"), "{failure:?}");
    assert!(world.names("rke-machine-config.cattle.io/v1", "LocalConfig").await.is_empty());
}

#[tokio::test]
async fn a_server_that_knows_no_clusters_is_no_remuda_server() {
    let api = remuda_testkit::World::bare().await;
    let session = remuda_cli::Session::new(api.client());
    let line = <crate::world::Line as clap::Parser>::try_parse_from(["remuda", "cluster", "list"]).unwrap();
    let failure = Box::pin(remuda_cli::run_on(&session, line.command)).await.unwrap_err();
    assert_eq!(failure.message, "this server knows no clusters: it is no Remuda server");
}

#[tokio::test]
async fn a_server_that_is_down_is_said_to_be() {
    let world = World::new().await;
    world.api.down().await;
    let (code, text) = world.fails("cluster list").await;
    assert_eq!(code, Code::Unreachable);
    assert!(text.contains("is the server running?"), "{text}");
}

#[tokio::test]
async fn a_cluster_is_created_while_the_server_lists_its_drivers() {
    let world = World::new().await;
    let driver =
        json!({"metadata": {"name": "amazonec2"}, "spec": {"displayName": "amazonec2", "active": false}});
    world.put("management.cattle.io/v3", "NodeDriver", driver).await;
    let asked = world.run("cluster create demo --driver hetzner");
    let late = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        world.api.define(driver_kind("rke-machine-config.cattle.io", "HetznerConfig")).await;
    };
    let (said, ()) = tokio::join!(asked, late);
    assert!(said.contains("demo"), "{said}");
    let (code, _) = world.fails("cluster create other --driver amazonec2").await;
    assert_eq!(code, Code::NotFound, "one that is listed and not active is not waited for");
}

#[tokio::test]
async fn registration_commands_carry_the_token_and_the_roles() {
    let world = World::new().await;
    world.run("cluster create edge --custom").await;
    let (code, text) = world.fails("cluster registration-command edge").await;
    assert_eq!(code, Code::NotFound);
    assert!(text.starts_with("cluster edge has no registration token yet"), "{text}");
    world.put("v1", "Namespace", json!({"metadata": {"name": "c-m-1"}})).await;
    let status = json!({"clusterName": "c-m-1"});
    world.status("provisioning.cattle.io/v1", "Cluster", Some("fleet-default"), "edge", status).await;
    let token = json!({
        "metadata": {"name": "default-token", "namespace": "c-m-1"}, "spec": {"clusterName": "c-m-1"},
        "status": {"nodeCommand": "curl https://x | sudo sh -s - --token {token}", "tokenSecretName": "crt-token-default-token"},
    });
    world.put("management.cattle.io/v3", "ClusterRegistrationToken", token).await;
    let secret = json!({
        "metadata": {"name": "crt-token-default-token", "namespace": "c-m-1"}, "stringData": {"token": "s3cret"},
    });
    // It is asked for as soon as the cluster is made, and its token comes a moment later.
    let asked = world.run("cluster registration-command edge --role worker --node-name edge-1");
    let (said, ()) = tokio::join!(asked, world.put("v1", "Secret", secret));
    assert_eq!(
        said,
        "curl https://x | $(command -v sudo) sh -s - --token s3cret --worker --node-name edge-1\n"
    );
}

#[tokio::test]
async fn the_log_of_a_cluster_is_printed() {
    let world = World::new().await;
    world.run("cluster create demo").await;
    assert_eq!(world.fails("cluster logs demo").await.0, Code::NotFound);
    world.put("v1", "Namespace", json!({"metadata": {"name": "c-m-1"}})).await;
    let status = json!({"clusterName": "c-m-1"});
    world.status("provisioning.cattle.io/v1", "Cluster", Some("fleet-default"), "demo", status).await;
    let log = json!({"metadata": {"name": "provisioning-log", "namespace": "c-m-1"}, "data": {"log": "one\ntwo\nthree\n"}});
    world.put("v1", "ConfigMap", log).await;
    assert_eq!(world.run("cluster logs demo").await, "one\ntwo\nthree\n");
    assert_eq!(world.run("cluster logs demo --tail 1").await, "three\n");
}
