//! The management side.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use remuda_api::management::Cluster;
use remuda_control::Ctx;
use remuda_gateway::{Gateway, GatewayOptions};
use remuda_testkit::{Component, doors::Doors, until};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "vxz2456789bcdfghjklmnpqrstvwxz2456789bcdfghjklmnpqrstv";

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) gateway: Gateway,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    /// Of connections to workload clusters.
    pub(crate) workloads_ctx: Arc<Ctx>,
    /// Doors of the gateway, whose callers are who their bearer token says.
    pub(crate) doors: Arc<Doors>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        let api = remuda_testkit::World::with(remuda_testkit::working_config).await;
        let wanted = [
            "settings.management.cattle.io",
            "clusters.management.cattle.io",
            "nodes.management.cattle.io",
            "clusters.cluster.x-k8s.io",
            "clusterroletemplatebindings.management.cattle.io",
            "clusters.provisioning.cattle.io",
            "machines.cluster.x-k8s.io",
            "rkebootstraps.rke.cattle.io",
        ];
        for name in wanted {
            api.define(remuda_api::crd::named(name).unwrap()).await;
        }
        let client = api.client();
        let ctx = Ctx::new(api.client_of(Component::Shared), "test");
        let workloads_ctx = Arc::new(ctx.acting_as(api.client_of(Component::Workloads), "test"));
        let ctx = Arc::new(ctx.acting_as(api.client_of(Component::Gateway), "test"));
        let mut options = GatewayOptions::new(ctx.clone());
        options.agent_binary = PathBuf::from("/proc/self/exe");
        options.timing.machine = Duration::from_secs(5);
        options.timing.plan = Duration::from_secs(5);
        options.timing.look = Duration::from_millis(300);
        change(&mut options);
        let gateway = Gateway::new(options);
        let stop = CancellationToken::new();
        let (running, end) = (gateway.clone(), stop.clone());
        tokio::spawn(async move { running.run(end).await });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let doors = Doors::new(gateway.openings(), client.clone());
        tokio::spawn(serve(listener, doors.clone(), stop.clone()));
        let world = Self { client, gateway, address, stop, workloads_ctx, doors };
        world.namespace("cattle-global-data").await;
        world.namespace("fleet-default").await;
        world.setting("server-url", "https://remuda.example.com").await;
        world.setting("cacerts", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----").await;
        world.setting("agent-image", "rancher/rancher-agent:test").await;
        until("the gateway is ready", async || {
            let response = world.get("/v3/import/x_y.yaml", &[]).await;
            response.0 != StatusCode::SERVICE_UNAVAILABLE
                && world.get("/cacerts", &[]).await.1.contains("AAAA")
                && world.get("/system-agent-install.sh", &[]).await.1.contains("remuda.example.com")
        })
        .await;
        world
    }

    pub(crate) async fn namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }

    pub(crate) async fn setting(&self, name: &str, value: &str) {
        self.create(
            "management.cattle.io/v3",
            "Setting",
            json!({"metadata": {"name": name}, "value": value, "default": ""}),
        )
        .await;
    }

    /// A management Cluster that we make, with its namespace, its token and its provisioning Cluster.
    pub(crate) async fn cluster(&self, id: &str, name: &str, token: &str) {
        self.bare_cluster(id, name, "true").await;
        self.create(
            "provisioning.cattle.io/v1",
            "Cluster",
            json!({
                "metadata": {"name": name, "namespace": "fleet-default"},
                "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}},
            }),
        )
        .await;
        let clusters = self.dynamic("provisioning.cattle.io/v1", "Cluster", Some("fleet-default"));
        let patch = json!({"status": {"clusterName": id}});
        clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        self.token(id, token).await;
    }

    pub(crate) async fn bare_cluster(&self, id: &str, name: &str, administrated: &str) {
        self.namespace(id).await;
        self.create(
            "management.cattle.io/v3",
            "Cluster",
            json!({
                "metadata": {
                    "name": id,
                    "annotations": {"provisioning.cattle.io/administrated": administrated},
                },
                "spec": {"displayName": name},
            }),
        )
        .await;
    }

    /// Sets the token of a cluster and waits until it is known.
    pub(crate) async fn token(&self, id: &str, token: &str) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), id);
        let secret = serde_json::from_value(json!({
            "metadata": {"name": "crt-token-default-token"}, "stringData": {"token": token}, "type": "Opaque",
        }))
        .unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        let path = format!("/v3/import/{token}_{id}.yaml");
        until("the token is known", async || self.get(&path, &[]).await.0 == StatusCode::OK).await;
    }

    pub(crate) fn dynamic(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let plural = format!("{}s", kind.to_lowercase());
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    pub(crate) async fn create(&self, version: &str, kind: &str, mut object: Value) -> DynamicObject {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let api = self.dynamic(version, kind, namespace.as_deref());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// The management Cluster as it is now.
    pub(crate) async fn managed(&self, id: &str) -> Cluster {
        Api::<Cluster>::all(self.client.clone()).get(id).await.unwrap()
    }

    pub(crate) async fn condition(&self, id: &str, kind: &str) -> String {
        let status = self.managed(id).await.status.unwrap_or_default();
        let found = status.conditions.iter().find(|condition| condition.kind == kind);
        found
            .map(|condition| format!("{} {}", condition.status, condition.message).trim().to_owned())
            .unwrap_or_default()
    }

    /// Waits until a condition begins so.
    pub(crate) async fn until_condition(&self, id: &str, kind: &str, so: &str) {
        until(&format!("{kind} of {id} is {so}"), async || self.condition(id, kind).await.starts_with(so))
            .await;
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.unwrap()
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(path).header("host", "found.example.com");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::default()).unwrap()
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
        let (status, _, text) = self.get_all(path, headers).await;
        (status, text)
    }

    pub(crate) async fn get_all(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, HeaderMap, String) {
        let response = self.send(self.request("GET", path, headers)).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, String::from_utf8_lossy(&body).into_owned())
    }
}

async fn serve(listener: TcpListener, doors: Arc<Doors>, stop: CancellationToken) {
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted.unwrap(),
        };
        let doors = doors.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let doors = doors.clone();
                async move { Ok::<_, std::convert::Infallible>(doors.answer(peer, request).await) }
            });
            let _ =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
    }
}
