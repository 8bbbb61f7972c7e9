//! A management API that processes can reach, a fake cloud, and the provider at work between them.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use remuda_control::Ctx;
use remuda_drivers::{
    builtin::Registry,
    fake::{Fake, digitalocean::DigitalOcean},
};
use remuda_machines::Options;
pub(crate) use remuda_testkit::Running;
use remuda_testkit::{Component, management_config};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

pub(crate) const TOKEN: &str = "canary-token-5678";
pub(crate) const NAMESPACE: &str = "fleet-default";

pub(crate) struct World {
    pub api: remuda_testkit::World,
    pub cloud: Fake<DigitalOcean>,
    pub data: tempfile::TempDir,
    url: String,
    _bridge: JoinHandle<()>,
}

/// A directory for programs of drivers, which are another user where the tests are root.
pub(crate) fn public_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

/// The example, which cargo builds beside the tests.
pub(crate) fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/machine")
}

impl World {
    pub(crate) async fn start() -> Self {
        let api = remuda_testkit::World::with(management_config).await;
        let wanted = [
            "Cluster",
            "Machine",
            "NodeDriver",
            "DynamicSchema",
            "Setting",
            "RKEControlPlane",
            "IPAddressClaim",
            "IPAddress",
        ];
        for definition in remuda_api::crd::all().chain(remuda_api::crd::rancher()) {
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
            if wanted.contains(&kind.as_str()) {
                api.define(definition).await;
            }
        }
        let namespaces: Api<Namespace> = Api::all(api.client());
        for name in [NAMESPACE, "cattle-global-data", "cattle-system"] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        let (url, bridge) = bridge(api.client()).await;
        let cloud = Fake::start(DigitalOcean::new(TOKEN).with_page(200)).await.unwrap();
        Self { api, cloud, data: tempfile::tempdir().unwrap(), url, _bridge: bridge }
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new(Registry::standard(), &self.url, self.data.path());
        options.program = Some(program());
        options.job_environment = vec![("DIGITALOCEAN_API_URL".to_owned(), self.cloud.url())];
        options.retry = Duration::from_millis(50);
        // Without one, each process would read all authorities of the system.
        options.server_ca = Some(remuda_testkit::config().root_ca_pem);
        options
    }

    pub(crate) fn run(&self) -> Running {
        self.run_with(self.options())
    }

    pub(crate) fn run_with(&self, options: Options) -> Running {
        let ctx = Ctx::new(self.api.client_of(Component::Shared), "remuda-test");
        let ctx = Arc::new(ctx.acting_as(self.api.client_of(Component::Machines), "remuda-test"));
        Running::start(ctx.clone(), |stop| remuda_machines::run(ctx, options, stop))
    }

    pub(crate) fn objects(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = resource(group, version, kind);
        match kind {
            "NodeDriver" | "DynamicSchema" | "CustomResourceDefinition" => {
                Api::all_with(self.api.client(), &resource)
            }
            _ => Api::namespaced_with(self.api.client(), NAMESPACE, &resource),
        }
    }

    pub(crate) fn machines(&self) -> Api<DynamicObject> {
        self.objects("rke-machine.cattle.io", "v1", "DigitaloceanMachine")
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.api.client(), NAMESPACE)
    }

    pub(crate) fn logs(&self) -> Api<ConfigMap> {
        Api::namespaced(self.api.client(), NAMESPACE)
    }

    pub(crate) async fn create(&self, object: Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = resource(group, version, &types.kind);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.api.client(), namespace, &resource),
            None => Api::all_with(self.api.client(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Puts the driver into use and waits for its machines to be known.
    pub(crate) async fn activate(&self, driver: &str) {
        let drivers = self.objects("management.cattle.io", "v3", "NodeDriver");
        until("the driver is listed", async || drivers.get_opt(driver).await.unwrap().is_some()).await;
        let patch = Patch::Merge(json!({"spec": {"active": true}}));
        drivers.patch(driver, &PatchParams::default(), &patch).await.unwrap();
        self.until_served(driver).await;
    }

    /// Waits for the machines of a driver to be known.
    pub(crate) async fn until_served(&self, driver: &str) {
        let crds = self.objects("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        for kind in ["machines", "machinetemplates"] {
            let name = format!("{driver}{kind}.rke-machine.cattle.io");
            until(&format!("{name} is served"), async || {
                let crd = crds.get_opt(&name).await.unwrap();
                let conditions = crd.map(|crd| crd.data["status"]["conditions"].clone()).unwrap_or_default();
                let mut conditions = conditions.as_array().cloned().unwrap_or_default().into_iter();
                conditions
                    .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
            })
            .await;
        }
    }

    /// A Cluster with its infrastructure, and a credential.
    pub(crate) async fn cluster(&self) {
        self.create(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "demo", "namespace": NAMESPACE},
            "spec": {"controlPlaneEndpoint": {"host": "x", "port": 1}},
        }))
        .await;
        let clusters = self.objects("cluster.x-k8s.io", "v1beta2", "Cluster");
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        clusters.patch_status("demo", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        self.create(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "cc-do", "namespace": "cattle-global-data"},
            "stringData": {"digitaloceancredentialConfig-accessToken": TOKEN},
        }))
        .await;
    }

    /// A Machine with what it boots with, and its server to be.
    pub(crate) async fn machine(&self, name: &str) {
        self.machine_of(
            name,
            "DigitaloceanMachine",
            json!({
                "size": "s-1vcpu-1gb", "region": "nyc3", "image": "ubuntu-20-04-x64",
                "common": {"cloudCredentialSecretName": "cattle-global-data:cc-do"},
            }),
        )
        .await;
    }

    pub(crate) async fn machine_of(&self, name: &str, kind: &str, spec: Value) {
        self.machine_with(name, kind, spec, json!({})).await;
    }

    /// The same with annotations, as they come from the pool of the machine.
    pub(crate) async fn machine_with(&self, name: &str, kind: &str, spec: Value, annotations: Value) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("{name}-boot"), "namespace": NAMESPACE},
            "stringData": {"value": "#!/bin/sh\nCATTLE_TOKEN=\"canary-bootstrap\"\necho booted\n"},
        });
        self.create(secret).await;
        let machine = self
            .create(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "clusterName": "demo",
                    "bootstrap": {"dataSecretName": format!("{name}-boot")},
                    "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": kind, "name": name},
                },
            }))
            .await;
        self.create(json!({
            "apiVersion": "rke-machine.cattle.io/v1", "kind": kind,
            "metadata": {
                "name": name, "namespace": NAMESPACE, "annotations": annotations,
                "labels": {"cluster.x-k8s.io/cluster-name": "demo"},
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name,
                    "uid": machine.metadata.uid, "controller": true,
                }],
            },
            "spec": spec,
        }))
        .await;
    }

    pub(crate) async fn condition(&self, name: &str, kind: &str) -> (String, String) {
        self.condition_of("DigitaloceanMachine", name, kind).await
    }

    pub(crate) async fn condition_of(&self, machine_kind: &str, name: &str, kind: &str) -> (String, String) {
        let api = self.objects("rke-machine.cattle.io", "v1", machine_kind);
        let Some(object) = api.get_opt(name).await.unwrap() else { return Default::default() };
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("message"))
    }

    pub(crate) async fn until_ready(&self, name: &str) {
        until(&format!("{name} is ready"), async || self.condition(name, "Ready").await.0 == "True").await;
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let machines = self.machines();
        until(&format!("{name} is gone"), async || machines.get_opt(name).await.unwrap().is_none()).await;
    }
}

pub(crate) fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(group, version, kind),
        &format!("{}s", kind.to_lowercase()),
    )
}

/// As [`remuda_testkit::until`], for the time that processes take.
pub(crate) async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    for _ in 0..6_000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

/// Serves the API behind a client on a port.
async fn bridge(client: Client) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let client = client.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let client = client.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    assert!(parts.headers.contains_key("authorization"), "a job comes with its token");
                    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
                    client.send(request).await.map_err(std::io::Error::other)
                }
            });
            tokio::spawn(async move {
                http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    (url, task)
}

pub(crate) fn data(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.clone().unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
}
