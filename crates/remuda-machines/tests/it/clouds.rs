//! Machines of the built-in drivers of clouds, through Jobs.

use kube::api::DeleteParams;
use remuda_drivers::fake::{Api, Fake, azure::Azure, google::Google, hetzner::Hetzner, proxmoxve::ProxmoxVe};
use serde_json::{Value, json};

use crate::world::{Running, World, until};

/// A world where a driver finds a fake instead of its cloud, with a credential `cc` for it.
async fn with<A: Api>(driver: &str, fake: &Fake<A>, credential: &[(&str, String)]) -> (World, Running) {
    let world = World::start().await;
    let mut options = world.options();
    let elsewhere = format!("{driver}={}", fake.url());
    options.job_environment.push(("REMUDA_TEST_ELSEWHERE".to_owned(), elsewhere));
    let running = world.run_with(options);
    world.activate(driver).await;
    world.cluster().await;
    let data: Value = credential
        .iter()
        .map(|(field, value)| (format!("{driver}credentialConfig-{field}"), value.as_str().into()))
        .collect::<serde_json::Map<String, Value>>()
        .into();
    world
        .create(json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": "cc", "namespace": "cattle-global-data"},
        }))
        .await;
    (world, running)
}

fn spec(mut fields: Value) -> Value {
    fields["common"] = json!({"cloudCredentialSecretName": "cattle-global-data:cc"});
    fields
}

async fn until_ready(world: &World, kind: &str) {
    until("it is ready", async || {
        let (status, message) = world.condition_of(kind, "m1", "Ready").await;
        assert!(!message.contains("failed"), "{message}");
        status == "True"
    })
    .await;
}

async fn remove(world: &World, kind: &str) {
    let machines = world.objects("rke-machine.cattle.io", "v1", kind);
    machines.delete("m1", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || machines.get_opt("m1").await.unwrap().is_none()).await;
}

#[tokio::test]
async fn a_server_at_hetzner_is_made_and_removed() {
    let fake = Fake::start(Hetzner::new("canary-token-1")).await.unwrap();
    let (world, running) = with("hetzner", &fake, &[("apiToken", "canary-token-1".to_owned())]).await;
    let fields =
        json!({"serverType": "cx23", "serverLocation": "fsn1", "userData": "#cloud-config\nruncmd: [x]\n"});
    world.machine_of("m1", "HetznerMachine", spec(fields)).await;
    until_ready(&world, "HetznerMachine").await;
    let made = fake.api.servers().pop().unwrap();
    let user_data = made["user_data"].as_str().unwrap();
    assert!(user_data.starts_with("#cloud-config") && user_data.contains("install.sh"), "{user_data}");
    assert_eq!(made["name"], "m1");
    remove(&world, "HetznerMachine").await;
    assert_eq!(fake.api.resources(), Vec::<String>::new());
    running.stop().await;
}

#[tokio::test]
async fn an_instance_at_google_is_made_and_removed() {
    let fake = Fake::start(Google::default()).await.unwrap();
    let (world, running) = with("google", &fake, &[("authEncodedJson", Google::key())]).await;
    world.machine_of("m1", "GoogleMachine", spec(json!({"project": "demo-project", "tags": "web"}))).await;
    until_ready(&world, "GoogleMachine").await;
    let items = fake.api.instance("m1")["metadata"]["items"].clone();
    assert!(items[1]["value"].as_str().unwrap().contains("install.sh"), "{items}");
    remove(&world, "GoogleMachine").await;
    assert_eq!(fake.api.resources(), Vec::<String>::new());
    running.stop().await;
}

#[tokio::test]
async fn a_machine_at_azure_is_made_and_removed() {
    let fake = Fake::start(Azure::new("client-1", "canary-secret-1")).await.unwrap();
    let fields = [
        ("clientId", "client-1"),
        ("clientSecret", "canary-secret-1"),
        ("tenantId", "tenant-1"),
        ("subscriptionId", "sub-1"),
    ];
    let fields = fields.map(|(field, value)| (field, value.to_owned()));
    let (world, running) = with("azure", &fake, &fields).await;
    world.machine_of("m1", "AzureMachine", spec(json!({"location": "westus", "openPort": ["80"]}))).await;
    until_ready(&world, "AzureMachine").await;
    assert!(!fake.api.resource("virtualmachines", "m1")["properties"]["osProfile"]["customData"].is_null());
    remove(&world, "AzureMachine").await;
    let left: Vec<String> = fake.api.resources().into_iter().filter(|it| it.contains(" m1")).collect();
    assert_eq!(left, Vec::<String>::new());
    running.stop().await;
}

#[tokio::test]
async fn a_machine_at_proxmox_is_made_and_removed_also_if_it_never_answers() {
    let (id, secret) = ("remuda@pve!machines", "canary-secret-1");
    let fake = Fake::start(ProxmoxVe::new(id, secret)).await.unwrap();
    let fields = [("proxmoxHost", "pve.example"), ("proxmoxTokenId", id), ("proxmoxTokenSecret", secret)];
    let fields = fields.map(|(field, value)| (field, value.to_owned()));
    let (world, running) = with("proxmoxve", &fake, &fields).await;
    world.machine_of("m1", "ProxmoxveMachine", spec(json!({"vmCloneVmid": "9000", "vmMemory": "4"}))).await;
    // Nobody is at the address it gets, so its first script cannot be brought.
    until("it is made", async || fake.api.settings(100).get("memory").is_some_and(|memory| memory == "4096"))
        .await;
    remove(&world, "ProxmoxveMachine").await;
    assert_eq!(fake.api.resources(), ["9000 on pve1"]);
    running.stop().await;
}
