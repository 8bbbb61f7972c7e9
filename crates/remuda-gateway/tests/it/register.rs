//! Machines register.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE},
};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use remuda_testkit::until;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::world::{TOKEN, World};

pub(crate) fn owner(object: &DynamicObject) -> Value {
    let types = object.types.clone().unwrap();
    json!([{
        "apiVersion": types.api_version, "kind": types.kind, "name": object.name_any(),
        "uid": object.uid().unwrap(), "controller": true,
    }])
}

impl World {
    /// A Machine with its RKEBootstrap.
    pub(crate) async fn machine(
        &self,
        cluster: &str,
        name: &str,
        labels: Value,
    ) -> (DynamicObject, DynamicObject) {
        let mut all = json!({"cluster.x-k8s.io/cluster-name": cluster});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        let machine = self
            .create(
                "cluster.x-k8s.io/v1beta2",
                "Machine",
                json!({
                    "metadata": {"name": name, "namespace": "fleet-default", "labels": all},
                    "spec": {
                        "clusterName": cluster,
                        "bootstrap": {"dataSecretName": "x"},
                        "infrastructureRef": {
                            "apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": name,
                        },
                    },
                }),
            )
            .await;
        let bootstrap = self
            .create(
                "rke.cattle.io/v1",
                "RKEBootstrap",
                json!({
                    "metadata": {
                        "name": name, "namespace": "fleet-default", "ownerReferences": owner(&machine),
                    },
                    "spec": {"clusterName": cluster},
                }),
            )
            .await;
        (machine, bootstrap)
    }

    /// An account of a machine, and what it is for: the one of the plan has a plan Secret of its name.
    pub(crate) async fn account(
        &self,
        name: &str,
        machine: &str,
        role: &str,
        owners: Value,
    ) -> ServiceAccount {
        let account = self.bare_account(name, machine, role, owners).await;
        if role == "plan" {
            self.plan_secret(name).await;
        }
        account
    }

    /// Machine `m1` of a new cluster, with a bootstrap token that is known.
    async fn machine_that_boots(&self) -> (DynamicObject, String) {
        self.cluster("c-m-1", "demo", TOKEN).await;
        let (_, bootstrap) = self.machine("demo", "m1", json!({})).await;
        self.account("m1-machine-bootstrap", "m1", "bootstrap", owner(&bootstrap)).await;
        let token = self.bootstrap_token("m1-machine-bootstrap").await;
        until("the token is known", async || {
            self.connect(&token, &[("x-cattle-id", "a1")]).await.0 != StatusCode::UNAUTHORIZED
        })
        .await;
        (bootstrap, token)
    }

    async fn plan_secret(&self, name: &str) {
        let secret = json!({"metadata": {"name": name}, "type": "rke.cattle.io/machine-plan"});
        let secret = serde_json::from_value(secret).unwrap();
        self.secrets().create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn bare_account(&self, name: &str, machine: &str, role: &str, owners: Value) -> ServiceAccount {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "fleet-default");
        let mut labels =
            json!({"rke.cattle.io/machine-name": machine, "rke.cattle.io/service-account-role": role});
        if role == "plan" {
            labels["rke.cattle.io/plan-secret-name"] = name.into();
        }
        let account = json!({"metadata": {"name": name, "labels": labels, "ownerReferences": owners}});
        accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap()
    }

    /// The bootstrap token of an account, as machines are given it.
    async fn bootstrap_token(&self, account: &str) -> String {
        let token = self.account_token(account).await;
        BASE64_URL_SAFE.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes()))
    }

    /// The token of an account itself.
    pub(crate) async fn account_token(&self, account: &str) -> String {
        let name = format!("{account}-token-x");
        let secret = json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token",
        });
        self.secrets()
            .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
            .await
            .unwrap();
        let mut token = Vec::new();
        until("the account has a token", async || {
            let secret = self.secrets().get(&name).await.unwrap();
            token = secret
                .data
                .and_then(|mut data| data.remove("token"))
                .map(|token| token.0)
                .unwrap_or_default();
            !token.is_empty()
        })
        .await;
        String::from_utf8(token).unwrap()
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), "fleet-default")
    }

    async fn connect(&self, token: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
        let bearer = format!("Bearer {token}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend(headers);
        self.get("/v3/connect/agent", &all).await
    }

    /// Plays the controller that makes Machines of requests.
    pub(crate) fn make_machines(self: &Arc<Self>) {
        let world = self.clone();
        tokio::spawn(async move {
            use futures::TryStreamExt;
            use kube::runtime::WatchStreamExt;
            let secrets: Api<Secret> = Api::all(world.client.clone());
            let config = watcher::Config::default().fields("type=rke.cattle.io/machine-request");
            let mut requests = Box::pin(watcher(secrets, config).applied_objects());
            while let Ok(Some(request)) = requests.try_next().await {
                if request.labels().contains_key("rke.cattle.io/machine-name") {
                    continue;
                }
                let name = request.name_any();
                let data = request.data.as_ref().unwrap()["data"].0.clone();
                let says: BTreeMap<String, Vec<String>> = serde_json::from_slice(&data).unwrap();
                let machines = world.dynamic("cluster.x-k8s.io/v1beta2", "Machine", Some("fleet-default"));
                if machines.get_opt(&name).await.unwrap().is_none() {
                    let node = says.get("node-name").map(|names| names[0].clone()).unwrap_or_default();
                    let labels =
                        json!({"rke.cattle.io/machine-id": says["id"][0], "rke.cattle.io/node-name": node});
                    let (_, bootstrap) = world.machine("demo", &name, labels).await;
                    let plan = format!("{name}-machine-plan");
                    world.account(&plan, &name, "plan", owner(&bootstrap)).await;
                }
                let namespace = request.namespace().unwrap();
                let labels = json!({"metadata": {"labels": {
                    "rke.cattle.io/machine-name": name, "rke.cattle.io/machine-namespace": "fleet-default",
                }}});
                let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &namespace);
                let _ = secrets.patch(&name, &PatchParams::default(), &Patch::Merge(labels)).await;
            }
        });
    }

    async fn requests(&self, namespace: &str) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let list = secrets.list(&ListParams::default()).await.unwrap();
        let requests = list
            .items
            .iter()
            .filter(|secret| secret.type_.as_deref() == Some("rke.cattle.io/machine-request"));
        requests.map(ResourceExt::name_any).collect()
    }

    pub(crate) async fn machines(&self) -> usize {
        let machines = self.dynamic("cluster.x-k8s.io/v1beta2", "Machine", Some("fleet-default"));
        machines.list(&ListParams::default()).await.unwrap().items.len()
    }
}

/// The answer, checked.
fn connection(text: &str) -> (String, Value) {
    let answer: Value = serde_json::from_str(text).unwrap();
    assert!(text.starts_with("{\n  \"kubeConfig\""), "indented, in order: {text}");
    let config: Value = serde_json::from_str(answer["kubeConfig"].as_str().unwrap()).unwrap();
    assert_eq!(answer["namespace"], "fleet-default");
    (answer["secretName"].as_str().unwrap().to_owned(), config)
}

#[tokio::test]
async fn a_machine_made_here_registers_with_its_bootstrap_token() {
    let world = World::start().await;
    let (bootstrap, token) = world.machine_that_boots().await;
    let plan = world.account("m1-machine-plan", "m1", "plan", owner(&bootstrap)).await;
    let (status, text) = world.connect(&token, &[("x-cattle-id", "a1")]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let (secret, config) = connection(&text);
    assert_eq!(secret, "m1-machine-plan");
    assert_eq!(config["clusters"][0]["cluster"]["server"], "https://remuda.example.com");
    let ca = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
    assert!(BASE64_STANDARD.decode(ca).unwrap().starts_with(b"-----BEGIN"));
    let issued = world.secrets().get("m1-machine-plan-token").await.unwrap();
    let issued = issued.data.unwrap()["token"].0.clone();
    assert_eq!(config["users"][0]["user"]["token"].as_str().unwrap().as_bytes(), issued);
    assert_eq!(plan.name_any(), "m1-machine-plan");
    let machines = world.dynamic("cluster.x-k8s.io/v1beta2", "Machine", Some("fleet-default"));
    assert_eq!(machines.get("m1").await.unwrap().labels()["rke.cattle.io/machine-id"], "a1");
    let used = world.secrets().get("m1-machine-bootstrap-token-x").await.unwrap();
    assert!(used.annotations().contains_key("rke.cattle.io/last-access-timestamp"));

    // Made anew before it was a node: that is fine. After that it is another server.
    let (status, text) = world.connect(&token, &[("x-cattle-id", "a0")]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(world.connect(&token, &[("x-cattle-id", "a1")]).await.0, StatusCode::OK);
    let node = json!({"status": {"nodeRef": {"name": "n1"}}});
    machines.patch_status("m1", &PatchParams::default(), &Patch::Merge(node)).await.unwrap();
    let (status, text) = world.connect(&token, &[("x-cattle-id", "a2")]).await;
    assert_eq!(status, StatusCode::CONFLICT, "{text}");
    assert!(text.contains("m1 is already registered"), "{text}");
    let ended = json!({"metadata": {"annotations": {"rke.cattle.io/bootstrap-token-invalidated": "true"}}});
    let name = "m1-machine-bootstrap-token-x";
    world.secrets().patch(name, &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    let (status, text) = world.connect(&token, &[("x-cattle-id", "a1")]).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(text.contains("no longer good"), "{text}");
}

#[tokio::test]
async fn a_machine_is_answered_when_its_plan_can_be_read() {
    let world = World::with(|options| options.timing.plan = Duration::from_millis(300)).await;
    let (bootstrap, token) = world.machine_that_boots().await;
    world.bare_account("m1-machine-plan", "m1", "plan", owner(&bootstrap)).await;
    until("its account has a token", async || {
        let (status, text) = world.connect(&token, &[("x-cattle-id", "a1")]).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
        text.contains("m1 has no plan Secret yet")
    })
    .await;
    world.plan_secret("m1-machine-plan").await;
    let (status, text) = world.connect(&token, &[("x-cattle-id", "a1")]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(connection(&text).0, "m1-machine-plan");
}

#[tokio::test]
async fn an_account_that_only_claims_to_be_a_machines_gets_nothing() {
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let (_, bootstrap) = world.machine("demo", "m1", json!({})).await;
    world.machine("demo", "m2", json!({})).await;
    world.account("m1-machine-plan", "m1", "plan", owner(&bootstrap)).await;
    // No owner, somebody else's owner, another role.
    world.account("claims", "m1", "bootstrap", json!([])).await;
    world.account("stolen", "m2", "bootstrap", owner(&bootstrap)).await;
    world.account("other", "m1", "plan", owner(&bootstrap)).await;
    world.account("good", "m1", "bootstrap", owner(&bootstrap)).await;
    let good = world.bootstrap_token("good").await;
    for name in ["claims", "stolen", "other"] {
        let token = world.bootstrap_token(name).await;
        until("all tokens are known", async || {
            world.connect(&good, &[("x-cattle-id", "a1")]).await.0 == StatusCode::OK
        })
        .await;
        let (status, text) = world.connect(&token, &[("x-cattle-id", "a1")]).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{name}: {text}");
    }
}

const ROLES: &[(&str, &str)] = &[("x-cattle-role-etcd", "true"), ("x-cattle-role-worker", "true")];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    ROLES.iter().chain(more).copied().collect()
}

#[tokio::test]
async fn a_server_that_comes_along_becomes_a_machine_once() {
    let world = Arc::new(World::start().await);
    world.cluster("c-m-1", "demo", TOKEN).await;
    world.make_machines();
    let (status, text) =
        world.connect(TOKEN, &with(&[("x-cattle-id", "a1"), ("x-cattle-node-name", "n1")])).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let (secret, _) = connection(&text);
    assert!(secret.starts_with("custom-") && secret.ends_with("-machine-plan"), "{secret}");
    until("the request is gone", async || world.requests("c-m-1").await.is_empty()).await;
    let again = world.connect(TOKEN, &with(&[("x-cattle-id", "a1"), ("x-cattle-node-name", "n1")])).await;
    assert_eq!(connection(&again.1).0, secret, "the same machine gets the same plan");
    assert_eq!(world.machines().await, 1);

    let (status, text) =
        world.connect(TOKEN, &with(&[("x-cattle-id", "a1"), ("x-cattle-node-name", "n2")])).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(text.contains("already registered with cluster demo as node n1"), "{text}");
    world.cluster("c-m-2", "second", &TOKEN.to_uppercase()).await;
    let (status, text) = world.connect(&TOKEN.to_uppercase(), &with(&[("x-cattle-id", "a1")])).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(text.contains("registered with another cluster"), "{text}");
    assert_eq!(world.machines().await, 1);
    assert!(world.requests("c-m-2").await.is_empty());

    let bearer = format!("Bearer {TOKEN}");
    let mut headers = with(&[("x-cattle-id", "a1"), ("x-cattle-field", "kubernetesversion")]);
    headers.push(("authorization", &bearer));
    let (status, text) = world.get("/v3/connect/cluster-info", &headers).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({"kubernetesversion": "v1.35.1+k3s1"}));
    let content = BASE64_STANDARD.encode("{\"server\":\"x\"}");
    let plan =
        json!({"files": [{"path": "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", "content": content}]});
    let planned = Patch::Merge(json!({"stringData": {"plan": plan.to_string()}}));
    world.secrets().patch(&secret, &PatchParams::default(), &planned).await.unwrap();
    let (status, text) = world.get("/v3/connect/config-yaml", &headers).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "{\"server\":\"x\"}"));
}

#[tokio::test]
async fn a_refusal_is_clear_and_leaves_nothing_behind() {
    let world = World::with(|options| options.timing.machine = Duration::from_millis(300)).await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    world.bare_cluster("c-m-2", "imported", "false").await;
    let imported = "imported-token";
    world.token("c-m-2", imported).await;
    world.namespace("elsewhere").await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "elsewhere");
    let secret = json!({"metadata": {"name": "crt-token-x"}, "stringData": {"token": "stray-token"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    until("the token is known", async || {
        world.connect("stray-token", &with(&[("x-cattle-id", "a1")])).await.0 == StatusCode::NOT_FOUND
    })
    .await;

    let id = ("x-cattle-id", "a1");
    for (token, headers, code, says) in [
        ("wrong", with(&[id]), 401, "is not known"),
        (TOKEN, ROLES.to_vec(), 401, "X-Cattle-Id is missing"),
        (TOKEN, vec![id], 400, "no role"),
        (imported, with(&[id]), 409, "is imported"),
        ("stray-token", with(&[id]), 404, "elsewhere of this token does not exist"),
        // Nobody makes a Machine of it.
        (TOKEN, with(&[id]), 503, "timeout waiting for c-m-1/custom-"),
    ] {
        let (status, text) = world.connect(token, &headers).await;
        assert_eq!(status.as_u16(), code, "{text}");
        assert!(text.contains(says), "{text}");
    }
    let expired = json!({"stringData": {"expiresAt": "2020-01-01T00:00:00Z"}});
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "c-m-1");
    secrets.patch("crt-token-default-token", &PatchParams::default(), &Patch::Merge(expired)).await.unwrap();
    let (status, text) = world.connect(TOKEN, &with(&[id])).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(text.contains("has expired"), "{text}");
    let (status, _) = world.get(&format!("/v3/import/{TOKEN}_c-m-1.yaml"), &[]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for namespace in ["c-m-1", "c-m-2", "elsewhere"] {
        until("no request is left", async || world.requests(namespace).await.is_empty()).await;
    }
    assert_eq!(world.machines().await, 0);
}

#[tokio::test]
async fn a_request_goes_with_whoever_made_it() {
    let world = World::with(|options| options.timing.machine = Duration::from_secs(60)).await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "GET /v3/connect/agent HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nX-Cattle-Id: a1\r\n\
         X-Cattle-Role-Worker: true\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    until("the request is there", async || world.requests("c-m-1").await.len() == 1).await;
    // Another server with the same id, meanwhile.
    let (status, text) =
        world.connect(TOKEN, &with(&[("x-cattle-id", "a1"), ("x-cattle-node-name", "b")])).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(text.contains("another machine with this id is being registered"), "{text}");
    assert_eq!(world.requests("c-m-1").await.len(), 1, "the first goes on");
    drop(stream);
    until("the request is gone", async || world.requests("c-m-1").await.is_empty()).await;
}
