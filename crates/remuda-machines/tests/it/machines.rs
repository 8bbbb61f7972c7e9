//! From a machine to a server and back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod, events::v1::Event};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use remuda_drivers::{
    builtin::{Context, Registry},
    digitalocean::DigitalOcean,
    fake::{Fake, Fault, amazonec2::AmazonEc2, ssh::SshServer},
    log::Log,
};
use remuda_machines::{orphans, state};
use serde_json::json;

use crate::world::{NAMESPACE, TOKEN, World, data, until};

#[tokio::test]
async fn a_machine_gets_a_server_and_takes_it_along() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.machine("m1").await;
    world.until_ready("m1").await;
    assert_eq!(world.cloud.api.droplets().len(), 1);
    let droplet = world.cloud.api.droplets().remove(0);
    assert!(droplet["user_data"].as_str().unwrap().starts_with("#cloud-config\n"));
    let machine = world.machines().get("m1").await.unwrap();
    assert_eq!(machine.data["status"]["jobName"], "m1-machine-provision");
    assert!(machine.data["status"]["addresses"][0]["address"].is_string(), "{}", machine.data);
    assert_eq!(machine.metadata.labels.unwrap()["rke.cattle.io/capi-machine-name"], "m1");
    let secret = world.secrets().get("m1-machine-state").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("rke.cattle.io/machine-state"));
    let facts = state::facts(&data(&secret)["extractedConfig"]).unwrap().unwrap();
    assert_eq!((facts.driver.as_str(), facts.phase), ("digitalocean", Some(state::Phase::Delivered)));
    assert!(facts.key.is_some());
    // The job's account can do what the job needs, and no more.
    let may = async |verb: &str, secret: &str| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": "system:serviceaccount:fleet-default:m1-machine-provision",
                "resourceAttributes": {"namespace": NAMESPACE, "verb": verb, "resource": "secrets", "name": secret},
            },
        });
        world.create(review).await.data["status"]["allowed"] == true
    };
    assert!(may("get", "m1-machine-state").await && may("update", "m1-machine-state").await);
    assert!(!may("get", "m1-machine-driver-secret").await && !may("delete", "m1-machine-state").await);

    // Its node has joined: nothing but the state is needed any more.
    let joined = Patch::Merge(json!({"spec": {"providerID": "digitalocean://1"}}));
    world.machines().patch("m1", &PatchParams::default(), &joined).await.unwrap();
    let jobs = world.objects("batch", "v1", "Job");
    until("the job is gone", async || jobs.get_opt("m1-machine-provision").await.unwrap().is_none()).await;
    assert!(world.secrets().get_opt("m1-machine-driver-secret").await.unwrap().is_none());
    until("it is provisioned", async || {
        world.machines().get("m1").await.unwrap().data["status"]["initialization"]["provisioned"] == true
    })
    .await;

    world.machines().delete("m1", &DeleteParams::default()).await.unwrap();
    world.until_gone("m1").await;
    assert_eq!(world.cloud.api.resources(), Vec::<String>::new());
    assert!(world.secrets().get_opt("m1-machine-state").await.unwrap().is_none());
    let log = world.logs().get("m1-machine-log").await.unwrap().data.unwrap();
    assert!(log["create"].contains("Creating DigitalOcean droplet..."), "{log:?}");
    assert!(log["remove"].contains("Machine m1 is removed"), "{log:?}");
    running.stop().await;
}

/// Command lines and, of those we may look at, nothing else of every process there is.
fn command_lines() -> String {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ") + "\n").collect()
}

/// Processes of jobs of this test's server.
fn processes(world: &World) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(world.data.path().join("machine-jobs")).into_iter().flatten().flatten() {
        let pid = std::fs::read_to_string(entry.path().join("pid")).unwrap_or_default();
        found.extend(pid.split(' ').next().and_then(|pid| pid.parse::<i32>().ok()));
    }
    found
}

fn kill(pid: i32) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

#[tokio::test]
async fn a_job_killed_at_any_step_goes_on_or_is_cleaned_up() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    // How many calls one creation takes.
    world.machine("probe").await;
    world.until_ready("probe").await;
    let calls = world.cloud.calls().len();
    world.machines().delete("probe", &DeleteParams::default()).await.unwrap();
    world.until_gone("probe").await;
    assert!(calls > 5, "{:?}", world.cloud.calls());
    for step in 0..calls {
        // Half of them are killed and go on, the others are deleted in the middle.
        let (name, goes_on) = (format!("m{step}"), step % 2 == 0);
        let before = world.cloud.calls().len();
        world.cloud.fault(before + step, Fault::Hang);
        world.machine(&name).await;
        tokio::select! {
            () = world.cloud.hangs(step + 1) => {}
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("step {step} never came"),
        }
        if goes_on {
            processes(&world).into_iter().for_each(kill);
            world.until_ready(&name).await;
            assert_eq!(world.cloud.api.droplets().len(), 1, "step {step}");
        }
        world.machines().delete(&name, &DeleteParams::default()).await.unwrap();
        world.until_gone(&name).await;
        assert_eq!(world.cloud.api.resources(), Vec::<String>::new(), "step {step}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_removal_killed_at_any_step_is_finished() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    for step in 0..3 {
        let name = format!("m{step}");
        world.machine(&name).await;
        world.until_ready(&name).await;
        let before = world.cloud.calls().len();
        world.cloud.fault(before + step, Fault::Hang);
        world.machines().delete(&name, &DeleteParams::default()).await.unwrap();
        world.cloud.hangs(step + 1).await;
        processes(&world).into_iter().for_each(kill);
        world.until_gone(&name).await;
        assert_eq!(world.cloud.api.resources(), Vec::<String>::new(), "step {step}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_finds_its_jobs_again() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.latency(Duration::from_millis(200));
    world.machine("m1").await;
    until("a job runs", async || !processes(&world).is_empty()).await;
    let before = processes(&world);
    running.kill().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let running = world.run();
    world.until_ready("m1").await;
    let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
    let status = jobs.get("m1-machine-provision").await.unwrap().status.unwrap();
    assert_eq!((status.succeeded, status.failed), (Some(1), None), "{before:?}");
    assert_eq!(world.cloud.api.droplets().len(), 1);
    running.stop().await;
}

#[tokio::test]
async fn credentials_are_seen_nowhere_but_in_secrets() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.latency(Duration::from_millis(50));
    world.machine("m1").await;
    // One fails, and says why.
    let mut spec = world.machines().get("m1").await.unwrap().data["spec"].clone();
    spec["region"] = "nowhere".into();
    spec["accessToken"] = TOKEN.into();
    world.machine_of("m2", "DigitaloceanMachine", spec).await;
    let mut lines = String::new();
    until("both have ended", async || {
        lines += &command_lines();
        world.condition("m1", "Ready").await.0 == "True"
            && world.condition("m2", "CreateJob").await.0 == "False"
    })
    .await;
    assert!(lines.contains("create --driver=digitalocean"), "{lines}");
    let (_, message) = world.condition("m2", "CreateJob").await;
    assert!(message.contains("digitalocean has no region nowhere"), "{message}");
    assert!(message.starts_with(
        "failed creating server [fleet-default/m2] of kind (DigitaloceanMachine) for machine m2"
    ));
    world.machines().delete("m1", &DeleteParams::default()).await.unwrap();
    world.until_gone("m1").await;
    assert!(!lines.contains("canary"));

    let client = world.api.client();
    let everything = ListParams::default();
    let jobs = Api::<Job>::all(client.clone()).list(&everything).await.unwrap();
    let events = Api::<Event>::all(client.clone()).list(&everything).await.unwrap();
    let pods = Api::<Pod>::all(client.clone()).list(&everything).await.unwrap();
    let maps = world.logs().list(&everything).await.unwrap();
    assert!(!jobs.items.is_empty() && !maps.items.is_empty());
    let mut seen = serde_json::to_string(&(jobs.items, events.items, pods.items, maps.items)).unwrap();
    for machine in world.machines().list(&everything).await.unwrap() {
        seen += &machine.data["status"].to_string();
    }
    assert!(!seen.contains("canary"), "{seen}");
    running.stop().await;
}

#[tokio::test]
async fn many_machines_are_made_at_once() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.latency(Duration::from_millis(100));
    let begun = Instant::now();
    let names: Vec<String> = (0..24).map(|number| format!("m{number:03}")).collect();
    futures::future::join_all(names.iter().map(|name| world.machine(name))).await;
    for name in &names {
        world.until_ready(name).await;
    }
    assert_eq!(world.cloud.api.droplets().len(), 24);
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(120), "{elapsed:?}");

    running.stop().await;
}

#[tokio::test]
async fn a_job_somebody_else_made_is_not_run() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.latency(Duration::from_millis(300));
    world.machine("m1").await;
    let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
    until("there is a job", async || jobs.get_opt("m1-machine-provision").await.unwrap().is_some()).await;
    let mut stolen = jobs.get("m1-machine-provision").await.unwrap();
    stolen.metadata = kube::core::ObjectMeta {
        name: Some("mine".into()),
        labels: stolen.metadata.labels,
        annotations: stolen.metadata.annotations,
        ..Default::default()
    };
    stolen.status = None;
    let spec = stolen.spec.as_mut().unwrap();
    spec.selector = None;
    let labels = spec.template.metadata.as_mut().unwrap().labels.as_mut().unwrap();
    labels.retain(|key, _| !key.contains("controller-uid") && !key.contains("job-name"));
    jobs.create(&Default::default(), &stolen).await.unwrap();
    let reason = async || {
        let status = jobs.get("mine").await.unwrap().status.unwrap_or_default();
        status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Failed")
    };
    until("it is refused", async || reason().await.is_some()).await;
    assert_eq!(reason().await.unwrap().reason.as_deref(), Some("NotSealed"));
    world.until_ready("m1").await;
    running.stop().await;
}

#[tokio::test]
async fn failures_that_pass_are_tried_again_and_others_are_told() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.api.limit(0);
    world.machine("m1").await;
    let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
    until("an attempt has failed", async || {
        let status = jobs.get_opt("m1-machine-provision").await.unwrap().and_then(|job| job.status);
        status.is_some_and(|status| status.failed.unwrap_or_default() > 0)
    })
    .await;
    world.cloud.api.limit(10);
    world.until_ready("m1").await;
    assert_eq!(world.cloud.api.droplets().len(), 1);

    // Without rights nothing is tried twice, and nothing is there to remove.
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(world.api.client(), "cattle-global-data");
    let wrong =
        Patch::Merge(json!({"stringData": {"digitaloceancredentialConfig-accessToken": "canary-wrong"}}));
    secrets.patch("cc-do", &PatchParams::default(), &wrong).await.unwrap();
    world.machine("m2").await;
    until("it has failed", async || world.condition("m2", "CreateJob").await.0 == "False").await;
    let (_, message) = world.condition("m2", "CreateJob").await;
    assert!(message.contains("in infrastructure provider: credentials: "), "{message}");
    let failed = jobs.get("m2-machine-provision").await.unwrap().status.unwrap().failed;
    assert_eq!(failed, Some(1));
    world.machines().delete("m2", &DeleteParams::default()).await.unwrap();
    world.until_gone("m2").await;

    // A server whose credential is refused stays known until it can be removed.
    world.machines().delete("m1", &DeleteParams::default()).await.unwrap();
    until("the removal has failed", async || world.condition("m1", "DeleteJob").await.0 == "False").await;
    let right = Patch::Merge(json!({"stringData": {"digitaloceancredentialConfig-accessToken": TOKEN}}));
    secrets.patch("cc-do", &PatchParams::default(), &right).await.unwrap();
    jobs.delete("m1-machine-provision", &DeleteParams::background()).await.unwrap();
    world.until_gone("m1").await;
    assert_eq!(world.cloud.api.resources(), Vec::<String>::new());
    running.stop().await;
}

#[tokio::test]
async fn what_the_provider_has_and_nobody_knows_is_listed() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.api.occupy(2);
    for name in ["m1", "m2"] {
        world.machine(name).await;
        world.until_ready(name).await;
    }
    running.stop().await;
    let url = world.cloud.url();
    let drivers = Registry::standard().with("digitalocean", true, move |context| {
        Arc::new(DigitalOcean::new(Context { digitalocean: url.clone(), ..context }))
    });
    let query = orphans::Query { driver: "digitalocean".into(), ..Default::default() };
    let list = async || {
        let found = orphans::orphans(world.api.client(), &drivers, &query, Log::tracing()).await.unwrap();
        assert_eq!((found.reports[0].credential.as_str(), &found.caveat), ("cc-do", &None));
        found
            .reports
            .into_iter()
            .flat_map(|report| report.found.unwrap())
            .map(|owned| owned.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(list().await, Vec::<String>::new());
    world.secrets().delete("m2-machine-state", &DeleteParams::default()).await.unwrap();
    assert_eq!(list().await, ["m2"]);
}

#[tokio::test]
async fn a_full_lane_is_waited_for() {
    let world = World::start().await;
    let mut options = world.options();
    options.concurrency = 1;
    let running = world.run_with(options);
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.latency(Duration::from_millis(100));
    for name in ["m1", "m2", "m3"] {
        world.machine(name).await;
    }
    let mut most = 0;
    until("all are ready", async || {
        let jobs = processes(&world).len();
        most = most.max(jobs);
        let mut ready = true;
        for name in ["m1", "m2", "m3"] {
            ready &= world.condition(name, "Ready").await.0 == "True";
        }
        ready
    })
    .await;
    assert_eq!(most, 1);
    running.stop().await;
}

#[tokio::test]
async fn a_job_without_a_place_says_what_it_waits_for() {
    let world = World::start().await;
    let mut options = world.options();
    options.processes = 1;
    let running = world.run_with(options);
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.fault(0, Fault::Hang);
    world.machine("m1").await;
    world.cloud.hanging().await;
    world.machine("m2").await;
    let why = "waiting for a job slot (1 of 1 running)";
    until("it says so", async || world.condition("m2", "Ready").await.1 == why).await;
    // The first gives its place up.
    world.machines().delete("m1", &DeleteParams::default()).await.unwrap();
    world.until_ready("m2").await;
    world.until_gone("m1").await;
    running.stop().await;
}

/// An existing server, reached over SSH: the script is put there and run.
#[tokio::test]
async fn an_existing_server_runs_its_script_over_ssh() {
    let world = World::start().await;
    let running = world.run();
    world.activate("generic").await;
    world.cluster().await;
    let keys = tempfile::tempdir().unwrap();
    let path = keys.path().join("key");
    let public = remuda_drivers::keys::ensure(path.to_str().unwrap(), "me").await.unwrap();
    let server = SshServer::start(&public).await;
    let spec = json!({
        "ipAddress": "127.0.0.1", "sshPort": server.port.to_string(), "sshUser": "me",
        "sshKey": std::fs::read_to_string(&path).unwrap(),
    });
    world.machine_of("m1", "GenericMachine", spec).await;
    until("it is ready", async || world.condition_of("GenericMachine", "m1", "Ready").await.0 == "True")
        .await;
    let secret = world.secrets().get("m1-machine-state").await.unwrap();
    let facts = state::facts(&data(&secret)["extractedConfig"]).unwrap().unwrap();
    assert!(facts.host_key.starts_with("ssh-ed25519 ") && facts.key.is_some());
    until("its log is kept", async || {
        let log = world
            .logs()
            .get_opt("m1-machine-log")
            .await
            .unwrap()
            .and_then(|log| log.data)
            .unwrap_or_default();
        log.get("create").is_some_and(|log| log.contains("Running the machine's first script"))
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn servers_and_jobs_killed_at_random_lose_and_leave_nothing() {
    let world = World::start().await;
    let mut running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.cloud.latency(Duration::from_millis(30));
    let names: Vec<String> = (0..5).map(|number| format!("m{number}")).collect();
    // Any seed will do; this one makes failures repeat.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for name in &names {
        world.machine(name).await;
    }
    for round in 0..16 {
        if round == 8 {
            for name in &names {
                world.machines().delete(name, &DeleteParams::default()).await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(next(250))).await;
        if next(2) == 0 {
            running.kill().await;
            tokio::time::sleep(Duration::from_millis(next(100))).await;
            running = world.run();
        } else if let Some(pid) = processes(&world).first() {
            kill(*pid);
        }
    }
    for name in &names {
        world.until_gone(name).await;
    }
    assert_eq!(world.cloud.api.resources(), Vec::<String>::new());
    let left = world
        .secrets()
        .list(&ListParams::default().labels("rke.cattle.io/infra-machine-kind"))
        .await
        .unwrap();
    assert!(
        left.items.is_empty(),
        "{:?}",
        left.items.iter().map(|secret| &secret.metadata.name).collect::<Vec<_>>()
    );
    until("no process is left", async || processes(&world).is_empty()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_server_is_stopped_and_started_while_its_cluster_is_paused() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.machine("m1").await;
    world.until_ready("m1").await;
    let capi = |kind| world.objects("cluster.x-k8s.io", "v1beta2", kind);
    let merge = async |api: &Api<kube::api::DynamicObject>, name: &str, patch: serde_json::Value| {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    merge(&world.machines(), "m1", json!({"spec": {"providerID": "digitalocean://1"}})).await;
    merge(&capi("Cluster"), "demo", json!({"spec": {"paused": true}})).await;
    for (power, state) in [("stopped", "off"), ("running", "active")] {
        merge(&capi("Machine"), "m1", json!({"metadata": {"annotations": {"remuda.io/power": power}}})).await;
        until(&format!("it is {power}"), async || {
            let machine = world.machines().get("m1").await.unwrap();
            let annotations = machine.metadata.annotations.unwrap_or_default();
            annotations.get("remuda.io/power").is_some_and(|done| done == power)
        })
        .await;
        assert_eq!(world.cloud.api.statuses(), [state]);
        let secret = world.secrets().get("m1-machine-state").await.unwrap();
        let record = remuda_plan::machine_state::Record::read(&data(&secret)["extractedConfig"]);
        assert_eq!(record.unwrap().unwrap().is_stopped(), power == "stopped");
    }
    running.stop().await;
}

#[tokio::test]
async fn an_instance_at_amazon_is_made_and_removed() {
    let world = World::start().await;
    let amazon = Fake::start(AmazonEc2::new("AKIDCANARY", "canary-secret", "us-east-1")).await.unwrap();
    let running = world.run();
    world.activate("amazonec2").await;
    world.cluster().await;
    world
        .create(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "cc-aws", "namespace": "cattle-global-data"},
            "stringData": {
                "amazonec2credentialConfig-accessKey": "AKIDCANARY",
                "amazonec2credentialConfig-secretKey": "canary-secret",
            },
        }))
        .await;
    let before = amazon.api.resources();
    let spec = json!({
        "region": "us-east-1", "endpoint": amazon.authority(), "insecureTransport": true,
        "securityGroup": ["rancher-nodes"],
        "common": {"cloudCredentialSecretName": "cattle-global-data:cc-aws"},
    });
    world.machine_of("m1", "Amazonec2Machine", spec).await;
    until("it is ready", async || {
        let (status, message) = world.condition_of("Amazonec2Machine", "m1", "Ready").await;
        assert!(!message.contains("failed"), "{message}");
        status == "True"
    })
    .await;
    assert!(amazon.api.resources().iter().any(|resource| resource.contains("instance")));
    let machines = world.objects("rke-machine.cattle.io", "v1", "Amazonec2Machine");
    machines.delete("m1", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || machines.get_opt("m1").await.unwrap().is_none()).await;
    let mut left = amazon.api.resources();
    left.retain(|resource| !before.contains(resource) && !resource.contains("group"));
    assert_eq!(left, Vec::<String>::new());
    running.stop().await;
}
