//! Machines that are deleted while their server is being made.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use remuda_machines::Options;
use serde_json::json;

use crate::{
    drivers::{node_driver, publish},
    world::{NAMESPACE, World, public_dir, until},
};

/// Where a driver of these tests keeps what it made, and what it was asked to do.
struct Yard {
    dir: tempfile::TempDir,
}

impl Yard {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let dir = public_dir();
        fs::create_dir(dir.path().join("servers")).unwrap();
        fs::set_permissions(dir.path().join("servers"), fs::Permissions::from_mode(0o777)).unwrap();
        // One file for all users that the driver is.
        fs::write(dir.path().join("calls"), "").unwrap();
        fs::set_permissions(dir.path().join("calls"), fs::Permissions::from_mode(0o666)).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn servers(&self) -> usize {
        fs::read_dir(self.path("servers")).unwrap().count()
    }

    /// How often a method was begun.
    fn begun(&self, method: &str) -> usize {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().filter(|line| *line == method).count()
    }

    /// A driver whose methods are what the shell functions of these names do.
    fn driver(&self, functions: &str) -> Vec<u8> {
        let script = format!(
            r#"#!/bin/sh
cd {dir}
fail() {{ echo '{{"error":{{"class":"quota","message":"the limit of servers is reached"}}}}'; }}
make() {{ : > servers/$REMUDA_ID; }}
made() {{ echo '{{"addresses":{{"ip":"192.0.2.9"}}}}'; }}
hang() {{ : > hangs; while [ ! -e go ]; do sleep 0.02; done; }}
{functions}
case "$1" in
flags) echo '{{"flags":[{{"name":"yard-userdata"}}]}}'; exit ;;
esac
echo "$1" >> calls
case "$1" in
pre-create-check) check ;;
create) create ;;
status) [ -e servers/$REMUDA_ID ] && echo '{{"status":"Running"}}' || echo '{{"status":"Not Found"}}' ;;
remove) rm -f servers/$REMUDA_ID ;;
*) exit 64 ;;
esac
"#,
            dir = self.dir.path().display(),
        );
        script.into_bytes()
    }
}

/// Attempts are far apart: a job that failed once pauses for as long as a test takes.
fn patient(world: &World) -> Options {
    let mut options = world.options();
    options.retry = Duration::from_secs(3600);
    options
}

async fn register(world: &World, driver: Vec<u8>) {
    let url = format!("{}/remuda-driver-yard", publish(driver).await);
    world.create(node_driver("yard", &url, "")).await;
    world.until_served("yard").await;
    world.cluster().await;
}

async fn until_paused(world: &World, machine: &str) {
    let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
    until("the job pauses between two attempts", async || {
        let job = jobs.get_opt(&format!("{machine}-machine-provision")).await.unwrap();
        let status = job.and_then(|job| job.status).unwrap_or_default();
        status.failed == Some(1) && status.active.unwrap_or_default() == 0
    })
    .await;
}

/// Deletes a machine as a cluster's deletion does: what it boots with goes first.
async fn delete(world: &World, machine: &str) {
    world.secrets().delete(&format!("{machine}-boot"), &DeleteParams::default()).await.unwrap();
    let machines = world.objects("rke-machine.cattle.io", "v1", "YardMachine");
    machines.delete(machine, &DeleteParams::default()).await.unwrap();
}

async fn is_gone(world: &World, machine: &str) -> bool {
    let machines = world.objects("rke-machine.cattle.io", "v1", "YardMachine");
    machines.get_opt(machine).await.unwrap().is_none()
}

async fn until_gone(world: &World, yard: &Yard, machine: &str) {
    until(&format!("{machine} is gone"), async || is_gone(world, machine).await).await;
    assert_eq!(yard.servers(), 0, "{machine}");
    let labelled = ListParams::default().labels("rke.cattle.io/infra-machine-kind=YardMachine");
    let secrets = world.secrets().list(&labelled).await.unwrap().items;
    assert!(secrets.is_empty(), "{:?}", secrets.iter().map(|one| &one.metadata.name).collect::<Vec<_>>());
    let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
    until("its job is gone", async || jobs.list(&labelled).await.unwrap().items.is_empty()).await;
    let running = || processes(world.data.path());
    until("its processes have ended", async || running().is_empty()).await;
}

/// Processes of jobs, by the directories in their command lines.
fn processes(data: &Path) -> Vec<String> {
    let data = data.display().to_string();
    let lines = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&data)).collect()
}

const FAILS_IN_CHECK: &str = "check() { fail; }\ncreate() { make; made; }";
const FAILS_BEFORE_SERVER: &str = "check() { :; }\ncreate() { fail; }";
const FAILS_AFTER_SERVER: &str = "check() { :; }\ncreate() { make; fail; }";

#[tokio::test]
async fn a_machine_deleted_between_two_attempts_goes() {
    for functions in [FAILS_IN_CHECK, FAILS_BEFORE_SERVER, FAILS_AFTER_SERVER] {
        let (world, yard) = (World::start().await, Yard::new());
        register_and_pause(&world, &yard, functions, "m1").await.stop().await;
        let running = world.run_with(patient(&world));
        delete(&world, "m1").await;
        until_gone(&world, &yard, "m1").await;
        running.stop().await;
    }
}

async fn register_and_pause(
    world: &World,
    yard: &Yard,
    functions: &str,
    machine: &str,
) -> crate::world::Running {
    let running = world.run_with(patient(world));
    register(world, yard.driver(functions)).await;
    world.machine_of(machine, "YardMachine", json!({})).await;
    until_paused(world, machine).await;
    running
}

/// The server dies a little later each time, until the deletion is through before it does.
#[tokio::test]
async fn a_server_killed_anywhere_in_such_a_deletion_goes_on_with_it() {
    for functions in [FAILS_IN_CHECK, FAILS_AFTER_SERVER] {
        let (world, yard) = (World::start().await, Yard::new());
        let mut running = register_and_pause(&world, &yard, functions, "m0").await;
        for step in 0.. {
            let name = format!("m{step}");
            running.stop().await;
            delete(&world, &name).await;
            running = world.run_with(patient(&world));
            for _ in 0..step {
                tokio::task::yield_now().await;
            }
            running.kill().await;
            let finished = is_gone(&world, &name).await;
            running = world.run_with(patient(&world));
            until_gone(&world, &yard, &name).await;
            if finished || step == 60 {
                assert!(step > 2, "it was through after {step} turns");
                break;
            }
            let next = format!("m{}", step + 1);
            world.machine_of(&next, "YardMachine", json!({})).await;
            until_paused(&world, &next).await;
        }
        running.stop().await;
    }
}

/// A driver that has begun is not interrupted, as its record may not tell what it made; but it is not asked again.
#[tokio::test]
async fn an_attempt_under_way_is_waited_for_and_is_the_last() {
    for (functions, killed) in [
        ("check() { :; }\ncreate() { make; hang; fail; }", false),
        ("check() { :; }\ncreate() { make; hang; fail; }", true),
        ("check() { :; }\ncreate() { make; hang; made; }", true),
    ] {
        let (world, yard) = (World::start().await, Yard::new());
        let mut running = world.run();
        register(&world, yard.driver(functions)).await;
        world.machine_of("m1", "YardMachine", json!({})).await;
        until("the driver has begun", async || yard.path("hangs").exists()).await;
        delete(&world, "m1").await;
        let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
        until("the job is cancelled", async || {
            let job = jobs.get("m1-machine-provision").await.unwrap();
            job.metadata.annotations.unwrap_or_default().contains_key("remuda.io/cancelled")
        })
        .await;
        if killed {
            running.kill().await;
            running = world.run();
        }
        let (_, message) = world.condition_of("YardMachine", "m1", "Ready").await;
        assert_eq!(message, "cannot delete machine m1 because create job has not finished");
        assert_eq!((yard.servers(), yard.begun("remove")), (1, 0));
        fs::write(yard.path("go"), "").unwrap();
        until_gone(&world, &yard, "m1").await;
        assert_eq!((yard.begun("create"), yard.begun("remove")), (1, 1));
        running.stop().await;
    }
}

/// Nothing is recorded as begun, so nothing is waited for; and what would begin later is refused.
#[tokio::test]
async fn an_attempt_that_has_not_begun_is_ended_at_once() {
    let (world, yard) = (World::start().await, Yard::new());
    let running = world.run();
    register(&world, yard.driver("check() { hang; }\ncreate() { make; made; }")).await;
    world.machine_of("m1", "YardMachine", json!({})).await;
    until("the driver is asked", async || yard.path("hangs").exists()).await;
    delete(&world, "m1").await;
    until_gone(&world, &yard, "m1").await;
    assert_eq!(yard.begun("create"), 0);
    running.stop().await;
}

/// A Secret that was deleted is named, and the job goes on when it is there again.
#[tokio::test]
async fn a_job_without_its_secret_says_what_it_waits_for() {
    let (world, yard) = (World::start().await, Yard::new());
    let running = world.run();
    // The first attempt fails once it is told to; the second finds what it boots with gone.
    register(
        &world,
        yard.driver("check() { :; }\ncreate() { [ -e go ] || { hang; fail; exit; }; make; made; }"),
    )
    .await;
    world.machine_of("m1", "YardMachine", json!({})).await;
    until("the driver has begun", async || yard.path("hangs").exists()).await;
    let mut secret = world.secrets().get("m1-boot").await.unwrap();
    world.secrets().delete("m1-boot", &DeleteParams::default()).await.unwrap();
    fs::write(yard.path("go"), "").unwrap();
    until("it says what is missing", async || {
        let (_, message) = world.condition_of("YardMachine", "m1", "Ready").await;
        message == "waiting for the Secret m1-boot, which does not exist"
    })
    .await;
    secret.metadata.resource_version = None;
    secret.metadata.uid = None;
    world.secrets().create(&Default::default(), &secret).await.unwrap();
    until("it is ready", async || world.condition_of("YardMachine", "m1", "Ready").await.0 == "True").await;
    running.stop().await;
}
