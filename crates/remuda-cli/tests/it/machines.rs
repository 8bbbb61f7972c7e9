use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use remuda_cli::{
    Code, Failure, HostState, MachineTarget, Orphan, OrphanQuery, OrphanReport, Orphans, Shell,
};
use serde_json::{Value, json};

use crate::world::World;

fn labels(machine: &str) -> Value {
    json!({
        "cluster.x-k8s.io/cluster-name": "demo", "rke.cattle.io/cluster-name": "demo",
        "rke.cattle.io/capi-machine-name": machine, "rke.cattle.io/infra-machine-name": machine,
        "rke.cattle.io/infra-machine-kind": "LocalMachine", "rke.cattle.io/machine-name": machine,
        "rke.cattle.io/etcd-role": "true", "rke.cattle.io/control-plane-role": "true",
        "rke.cattle.io/worker-role": "true", "rke.cattle.io/rke-machine-pool-name": "servers",
    })
}

/// A cluster with a machine whose server could not be made.
async fn world() -> World {
    let world = World::new().await;
    world.run("cluster create demo").await;
    let meta =
        |name: &str| json!({"name": name, "namespace": "fleet-default", "labels": labels("demo-servers-a")});
    let status = json!({"clusterName": "c-m-1", "conditions": [{"type": "Created", "status": "True"}]});
    world.status("provisioning.cattle.io/v1", "Cluster", Some("fleet-default"), "demo", status).await;
    let driver = json!({"metadata": {"name": "local"}, "spec": {"active": true}});
    world.put("management.cattle.io/v3", "NodeDriver", driver).await;
    let managed = json!({"metadata": {"name": "c-m-1"}, "spec": {}});
    world.put("management.cattle.io/v3", "Cluster", managed).await;
    let capi = json!({
        "metadata": {"name": "demo", "namespace": "fleet-default"},
        "spec": {"infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "RKECluster", "name": "demo"},
            "controlPlaneRef": {"apiGroup": "rke.cattle.io", "kind": "RKEControlPlane", "name": "demo"}},
        "status": {"initialization": {"infrastructureProvisioned": true}},
    });
    world.put("cluster.x-k8s.io/v1beta2", "Cluster", capi).await;
    let control_plane = json!({"metadata": {"name": "demo", "namespace": "fleet-default"}, "spec": {"clusterName": "demo", "managementClusterName": "c-m-1"}});
    world.put("rke.cattle.io/v1", "RKEControlPlane", control_plane).await;
    let machine = json!({
        "metadata": meta("demo-servers-a"),
        "spec": {"clusterName": "demo",
            "bootstrap": {"dataSecretName": "x", "configRef": {"apiGroup": "rke.cattle.io", "kind": "RKEBootstrap", "name": "demo-servers-a"}},
            "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "LocalMachine", "name": "demo-servers-a"}},
        "status": {"phase": "Provisioning"},
    });
    world.put("cluster.x-k8s.io/v1beta2", "Machine", machine).await;
    let server = json!({
        "metadata": meta("demo-servers-a"), "spec": {},
        "status": {"failureReason": "CreateError", "failureMessage": "quota exceeded", "conditions": [
            {"type": "CreateJob", "status": "False", "reason": "CreateError", "message": "quota exceeded",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    world.put("rke-machine.cattle.io/v1", "LocalMachine", server).await;
    let mut log = meta("demo-servers-a-machine-log");
    log["labels"]["remuda.io/machine-log"] = json!("true");
    let log = json!({"metadata": log, "data": {"create": "asking for a server\nquota exceeded\n"}});
    world.put("v1", "ConfigMap", log).await;
    world
}

#[tokio::test]
async fn why_names_the_root_cause_with_the_log_of_the_job() {
    let world = world().await;
    let (said, result) = world.try_run("why demo").await;
    assert_eq!(result.unwrap_err().code, Code::Blocked);
    for text in [
        "cluster fleet-default/demo is blocked\n",
        "the local driver could not create the server of machine demo-servers-a\n",
        "    asking for a server\n    quota exceeded\n",
        "  - the account's quota is used up",
    ] {
        assert!(said.contains(text), "{text} is not in {said}");
    }
    let (said, _) = world.try_run("why demo-servers-a -o json").await;
    let finding: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (finding["cause"].as_str(), finding["state"].as_str()),
        (Some("create-job-failed"), Some("blocked"))
    );
    assert_eq!(world.try_run("why demo -o name").await.0, "create-job-failed\n");
}

#[tokio::test]
async fn machines_are_listed_and_described() {
    let world = world().await;
    let said = world.run("machine list").await;
    let row = said.lines().nth(1).unwrap();
    assert!(row.starts_with("demo-servers-a   demo      all     Provisioning   -"), "{said}");
    assert!(row.ends_with("its server could not be created"), "{said}");
    assert_eq!(world.run("machine list --cluster demo -o name").await, "demo-servers-a\n");
    assert!(world.run("machine list -A -o wide").await.contains("servers"));
    let said = world.run("machine describe demo-servers-a").await;
    assert!(said.contains("Server       LocalMachine fleet-default/demo-servers-a\n"), "{said}");
    assert!(said.contains("CreateJob   False"), "{said}");
    let said = world.run("cluster describe demo").await;
    assert!(said.contains("servers   all     0/1        LocalConfig nc-demo-servers"), "{said}");
    assert!(said.contains("cluster fleet-default/demo is blocked"), "{said}");
    let (code, text) = world.fails("machine describe demo-servers-b").await;
    assert_eq!(code, Code::NotFound);
    assert!(text.ends_with("did you mean demo-servers-a?"), "{text}");
}

#[tokio::test]
async fn logs_outlive_their_machine() {
    let world = world().await;
    let expected = "asking for a server\nquota exceeded\n";
    assert_eq!(world.run("machine logs demo-servers-a").await, expected);
    assert_eq!(world.run("machine logs demo-servers-a --tail 1").await, "quota exceeded\n");
    let machines = world.objects("cluster.x-k8s.io/v1beta2", "Machine", Some("fleet-default"));
    machines.delete("demo-servers-a", &Default::default()).await.unwrap();
    assert_eq!(world.run("machine logs demo-servers-a").await, expected);
    assert_eq!(world.fails("machine logs demo-servers-z").await.0, Code::NotFound);
}

#[derive(Default)]
struct Fake {
    entered: Mutex<Vec<MachineTarget>>,
}

impl Shell for Fake {
    fn serves(&self, driver: &str) -> bool {
        driver == "local"
    }

    fn run(&self, target: MachineTarget) -> BoxFuture<'_, Result<u8, Failure>> {
        let code = u8::from(target.command == ["false"]);
        self.entered.lock().push(target);
        Box::pin(async move { Ok(code) })
    }

    fn restart(&self, target: MachineTarget) -> BoxFuture<'_, Result<(), Failure>> {
        self.entered.lock().push(target);
        Box::pin(async { Ok(()) })
    }

    fn host_state(&self, _: &str, _: Option<&std::path::Path>) -> Option<HostState> {
        None
    }
}

impl Orphans for Fake {
    fn find(&self, _: kube::Client, query: OrphanQuery) -> BoxFuture<'_, Result<OrphanReport, Failure>> {
        let mut report = OrphanReport::default();
        match query.driver.as_str() {
            "local" => report.found.push(Orphan {
                driver: query.driver,
                credential: query.credential.unwrap_or_default(),
                kind: "machine".to_owned(),
                id: "id-lost".to_owned(),
                name: "lost".to_owned(),
            }),
            other => report.problems.push(format!("driver {other} cannot list its machines")),
        }
        Box::pin(async move { Ok(report) })
    }
}

#[tokio::test]
async fn shells_and_orphans_are_the_programs_business() {
    let mut world = world().await;
    let (code, text) = world.fails("machine shell demo-servers-a").await;
    assert_eq!(code, Code::Other);
    assert!(text.starts_with("there is no SSH key for machine demo-servers-a"), "{text}");
    assert_eq!(world.fails("machine orphans").await.0, Code::Other);

    let fake = Arc::new(Fake::default());
    world.session.hooks.shells.push(fake.clone());
    world.session.hooks.orphans = Some(fake.clone());
    world.run("machine shell demo-servers-a -- uptime -p").await;
    let (_, result) = world.try_run("machine shell demo-servers-a -- false").await;
    let failure = result.unwrap_err();
    assert_eq!((failure.said, failure.code), (true, Code::Command(1)));
    let entered = fake.entered.lock().clone();
    assert_eq!(entered[0].command, ["uptime", "-p"]);
    assert_eq!((entered[0].driver.as_str(), entered[0].server.name()), ("local", "demo-servers-a"));
    assert_eq!(world.run("machine orphans -o name").await, "local/id-lost\n");
    let said = world.run("machine orphans").await;
    assert!(said.contains("local    lost   machine   -            id-lost"), "{said}");
    let (said, result) = world.try_run("machine orphans --driver generic").await;
    assert_eq!(
        said,
        "there are none
could not be asked: driver generic cannot list its machines
"
    );
    assert_eq!(result.unwrap_err().code, Code::Other);
}
