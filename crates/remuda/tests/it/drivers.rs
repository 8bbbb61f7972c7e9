//! One cluster whose machines come from everywhere: a plugin that speaks Go's protocol, clouds, a script, and a
//! server that exists. All of them are machines of this host in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aws_lc_rs::digest;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use remuda_drivers::fake::{Api as _, Call};
use remuda_sandbox::machines::{Image, Images, Options, Sandbox};
use serde_json::{Value, json};

use crate::{
    harness::{contains, skipped},
    lab::{Lab, NEW},
    providers::{ACCESS_KEY, AMAZON, CANARIES, OCEAN, Providers, REGION, REST, SHELF, Shelf},
};

const PLUGIN: &str = "docker-machine-driver-digitalocean";
const SCRIPT: &str = "remuda-driver-rest";

/// Watches the command lines of all processes for what must not be there.
struct Lookout {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<BTreeSet<String>>>,
}

impl Lookout {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen_stop = stop.clone();
        let thread = thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !seen_stop.load(Ordering::Relaxed) {
                for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
                    let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    let line = String::from_utf8_lossy(&line).replace('\0', " ");
                    if CANARIES.iter().any(|canary| line.contains(canary))
                        || line.contains(" create --driver=")
                    {
                        seen.insert(line);
                    }
                }
                thread::sleep(Duration::from_millis(15));
            }
            seen
        });
        Self { stop, thread: Some(thread) }
    }

    /// All lines that are interesting.
    fn end(mut self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn sandbox(lab: &Lab) -> Sandbox {
    let image = || {
        let image = remuda_sandbox_distro::installer::image(
            remuda_sandbox_distro::Distribution::K3s,
            NEW,
            "/opt/remuda/remuda",
        );
        vec![Image { file: "k3s.tar".to_owned(), bytes: image }]
    };
    Sandbox::new(Options {
        data_dir: lab.data(),
        program: env!("CARGO_BIN_EXE_remuda").into(),
        images: Images(Arc::new(image)),
        privileged: false,
    })
}

fn api(lab: &Lab, group: &str, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(lab.client(), namespace, &resource),
        None => Api::all_with(lab.client(), &resource),
    }
}

#[track_caller]
fn create(lab: &Lab, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let api = api(lab, group, version, &types.kind, object.metadata.namespace.as_deref());
    lab.runtime.block_on(api.create(&PostParams::default(), &object)).unwrap();
}

/// Puts the drivers into use: one from a URL in place of the built-in one, one built in, one a script.
fn register(lab: &Lab, web: &str, plugin: &[u8]) {
    let drivers = api(lab, "management.cattle.io", "v3", "NodeDriver", None);
    let checksum = remuda_base::hex(digest::digest(&digest::SHA256, plugin));
    let patch = |name: &str, spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        lab.runtime.block_on(drivers.patch(name, &PatchParams::default(), &patch)).unwrap();
    };
    let url = format!("{web}/{PLUGIN}");
    patch("digitalocean", json!({"active": true, "builtin": false, "url": url, "checksum": checksum}));
    patch("amazonec2", json!({"active": true}));
    create(
        lab,
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "NodeDriver",
            "metadata": {
                "name": "rest",
                "annotations": {
                    "privateCredentialFields": "token",
                    "nodedriver.cattle.io/file-to-field-aliases": "userdata:userdata",
                },
            },
            "spec": {"displayName": "rest", "active": true, "builtin": false, "url": format!("{web}/{SCRIPT}")},
        }),
    );
    for kind in ["DigitaloceanConfig", "Amazonec2Config", "RestConfig"] {
        let configs = api(lab, "rke-machine-config.cattle.io", "v1", kind, Some("fleet-default"));
        lab.until(&format!("{kind} is there"), Duration::from_secs(30), || {
            lab.runtime.block_on(configs.list(&Default::default())).is_ok()
        });
    }
    lab.until("the plugin is in use", Duration::from_secs(10), || {
        let shown = lab.runtime.block_on(drivers.get("digitalocean")).unwrap();
        let conditions = shown.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Active" && one["status"] == "True")
    });
}

fn credential(lab: &Lab, name: &str, driver: &str, fields: &[(&str, &str)]) {
    let fields = fields.iter().map(|(field, value)| (format!("{driver}credentialConfig-{field}"), *value));
    let data: BTreeMap<String, &str> = fields.collect();
    create(
        lab,
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": name, "namespace": "cattle-global-data"},
        }),
    );
}

fn config(lab: &Lab, kind: &str, name: &str, fields: Value) {
    let mut object = json!({
        "apiVersion": "rke-machine-config.cattle.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "fleet-default"},
    });
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    create(lab, object);
}

fn pool(name: &str, kind: &str, config: &str, credential: &str, all: bool, quantity: u32) -> Value {
    let mut pool = json!({
        "name": name, "quantity": quantity, "workerRole": true, "etcdRole": all, "controlPlaneRole": all,
        "machineConfigRef": {"kind": kind, "name": config},
    });
    if !credential.is_empty() {
        pool["cloudCredentialSecretName"] = format!("cattle-global-data:{credential}").into();
    }
    pool
}

fn explain(lab: &Lab) {
    let kubeconfig = lab.data().join("admin.kubeconfig");
    let output = Command::new("kubectl")
        .args(["explain", "digitaloceanconfig", "--kubeconfig"])
        .arg(kubeconfig)
        .env("HOME", lab.place.join("home"))
        .output();
    let Ok(output) = output else { return skipped("there is no kubectl: explaining a kind of a driver") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in
        ["KIND:       DigitaloceanConfig", "privateNetworking\t<boolean>", "size\t<string>", "Size slug"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn machines_come_from_plugins_clouds_scripts_and_shelves() {
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("there is no curl: the sample script of drivers");
    }
    let Some(lab) = Lab::open(None) else { return };
    let machines = sandbox(&lab);
    let lookout = Lookout::start();
    let plugin = fs::read(env!("CARGO_BIN_EXE_remuda")).unwrap();
    let script = include_bytes!("../../../remuda-drivers/samples/rest.sh").to_vec();
    let files = BTreeMap::from([(PLUGIN.to_owned(), plugin.clone()), (SCRIPT.to_owned(), script)]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (providers, shelf) = runtime.block_on(async {
        (Providers::start(&machines, files).await, Shelf::start(&machines, &lab.place.join("")).await)
    });
    if !shelf.real {
        skipped(
            "there is no /usr/sbin/sshd (Debian: openssh-server): an SSH server of the tests' own takes its place",
        );
    }
    let web = providers.web.url();
    register(&lab, &web, &plugin);
    drop(plugin);
    explain(&lab);

    credential(
        &lab,
        "cc-ocean",
        "digitalocean",
        &[("accessToken", OCEAN), ("apiUrl", &providers.ocean.url())],
    );
    let endpoint = providers.amazon.url();
    credential(
        &lab,
        "cc-amazon",
        "amazonec2",
        &[
            ("accessKey", ACCESS_KEY),
            ("secretKey", AMAZON),
            ("endpoint", &endpoint),
            ("insecureTransport", "true"),
        ],
    );
    credential(&lab, "cc-rest", "rest", &[("token", REST)]);
    config(&lab, "DigitaloceanConfig", "nc-ocean", json!({"size": "s-1vcpu-1gb", "region": "nyc3"}));
    config(&lab, "Amazonec2Config", "nc-amazon", json!({"region": REGION}));
    config(&lab, "RestConfig", "nc-rest", json!({"url": web}));
    let port = shelf.port.to_string();
    config(
        &lab,
        "GenericConfig",
        "nc-shelf",
        json!({"ipAddress": "127.0.0.1", "sshPort": port, "sshUser": "root", "sshKey": shelf.key}),
    );
    let began = Instant::now();
    create(
        &lab,
        json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": "mixed", "namespace": "fleet-default"},
            "spec": {"kubernetesVersion": NEW, "rkeConfig": {"machinePools": [
                pool("servers", "DigitaloceanConfig", "nc-ocean", "cc-ocean", true, 1),
                pool("ocean", "DigitaloceanConfig", "nc-ocean", "cc-ocean", false, 0),
                pool("amazon", "Amazonec2Config", "nc-amazon", "cc-amazon", false, 1),
                pool("rest", "RestConfig", "nc-rest", "cc-rest", false, 1),
                pool("shelf", "GenericConfig", "nc-shelf", "", false, 1),
            ]}},
        }),
    );
    lab.until("the cluster is ready", Duration::from_secs(90), || {
        lab.say("why mixed").0 == 0 && lab.nodes("mixed").len() == 4
    });
    eprintln!("four machines of four drivers were nodes after {:.1} s", began.elapsed().as_secs_f32());
    let nodes = lab.nodes("mixed");
    assert!(nodes.iter().all(|(_, version, ready)| *ready && version == NEW), "{nodes:?}");
    assert_eq!(providers.ocean.api.droplets().len(), 1);
    assert_eq!(providers.amazon.api.launches().len(), 1);
    assert_eq!(providers.web.api.machines(), 1);

    lab.run("cluster scale mixed ocean=1 --wait --timeout 60s");
    assert_eq!(lab.nodes("mixed").len(), 5);
    assert_eq!(providers.ocean.api.droplets().len(), 2);
    enter(&lab);
    orphans(&lab, &providers);
    lab.run("cluster scale mixed ocean=0 --wait --timeout 60s");
    assert_eq!(providers.ocean.api.droplets().len(), 1);

    lab.run("cluster delete --yes mixed --wait --timeout 60s");
    assert_eq!(providers.ocean.api.resources(), Vec::<String>::new());
    // The group is shared by all machines of an account; the last one takes it along.
    assert_eq!(providers.amazon.api.resources(), Vec::<String>::new());
    assert_eq!(providers.web.api.machines(), 0);
    assert!(machines.get(SHELF).is_ok(), "a server that existed before is there after");
    machines.remove(SHELF).unwrap();
    assert!(lab.run("machine orphans").contains("there are none"));
    lab.check_nothing_left();
    seen_nowhere(&lab, lookout.end());
}

/// The machine that was there before is entered with the key that is kept with its state.
fn enter(lab: &Lab) {
    if Command::new("ssh").arg("-V").output().is_err() {
        return skipped("there is no ssh: remuda machine ssh");
    }
    let machines = lab.machines();
    let shelf = machines.iter().find(|name| name.contains("-shelf-")).unwrap();
    let (code, said) = lab.say_to(&format!("machine ssh {shelf}"), &["cat", "/proc/sys/kernel/hostname"]);
    // A server that was there before keeps its host name.
    assert_eq!((code, said.trim()), (0, SHELF));
    // The exit code is that of what ran there.
    assert_eq!(lab.say_to(&format!("machine ssh {shelf}"), &["sh", "-c", "exit 7"]).0, 7);
}

/// Something that carries our mark and that no machine knows is found, and nothing else.
fn orphans(lab: &Lab, providers: &Providers) {
    let said = lab.run("machine orphans --driver digitalocean");
    assert!(said.contains("there are none") && said.contains("is a docker-machine plugin"), "{said}");
    // A script is asked with its credential, where its configuration says.
    assert!(lab.run("machine orphans --driver rest").contains("there are none"));
    providers.web.api.lose("0123", true);
    assert_eq!(lab.run("machine orphans --driver rest -o name"), "rest/0123\n");
    providers.web.api.lose("0123", false);
    let call = |method: &str, path: &str, body: Value| {
        let headers = BTreeMap::from([("authorization".to_owned(), format!("Bearer {OCEAN}"))]);
        let body = body.to_string().into_bytes().into();
        let call = Call { method: method.into(), path: path.into(), query: String::new(), headers, body };
        providers.ocean.api.handle(&call)
    };
    let made = call("POST", "/v2/droplets", json!({"name": "lost", "tags": ["remuda:0123456789abcdef"]}));
    let made: Value = serde_json::from_slice(&made.body).unwrap();
    let id = made["droplet"]["id"].to_string();
    let found: Value =
        serde_json::from_str(&lab.output("machine orphans --driver digitalocean -o json")).unwrap();
    let expected = json!([{"driver": "digitalocean", "credential": "cc-ocean", "kind": "droplet", "id": id, "name": "lost"}]);
    assert_eq!(found, expected);
    call("DELETE", &format!("/v2/droplets/{id}"), Value::Null);
    call("DELETE", "/v2/tags/remuda:0123456789abcdef", Value::Null);
}

/// Credentials are in Secrets, which are sealed where they are stored, and nowhere else: not in an object (all that
/// ever were are in the store's log), not in what the server or a job wrote, not on a command line.
#[track_caller]
fn seen_nowhere(lab: &Lab, lines: BTreeSet<String>) {
    assert!(lines.iter().any(|line| line.contains(" create --driver=digitalocean")), "{lines:?}");
    let log = lab.server.as_ref().unwrap().log();
    assert!(on_disk(lab, "nc-rest"), "objects can be read in the store");
    for canary in CANARIES {
        assert!(!lines.iter().any(|line| line.contains(canary)), "{canary} in {lines:?}");
        assert!(!log.contains(canary), "{canary} is in the log of the server");
        assert!(!on_disk(lab, canary), "{canary} is in a file");
    }
    let maps = api(lab, "", "v1", "ConfigMap", Some("fleet-default"));
    let maps = lab.runtime.block_on(maps.list(&Default::default())).unwrap();
    let logs = maps.iter().filter(|map| map.name_any().ends_with("-machine-log")).count();
    assert!(logs >= 5, "logs of jobs are kept: {logs}");
}

/// Whether a text is in a file of the server, leaving out programs of drivers.
fn on_disk(lab: &Lab, text: &str) -> bool {
    let entries = fs::read_dir(lab.data()).unwrap().flatten();
    let mut paths = entries.filter(|entry| entry.file_name() != "machine-drivers").map(|entry| entry.path());
    paths.any(|path| match path.is_dir() {
        true => contains(&path, text.as_bytes()),
        false => String::from_utf8_lossy(&fs::read(path).unwrap()).contains(text),
    })
}
