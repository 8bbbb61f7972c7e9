//! Clusters whose snapshots go to a store, which is a real one over TLS.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use http::Method;
use kube::Client;
use remuda_apiserver::Config;
use remuda_s3::fake::{ACCESS_KEY, FakeStore, Fault, SECRET_KEY};
use remuda_testkit::World;
use serde_json::{Value, json};

use super::S3Check;
use crate::{
    rancher::{Kinds, install},
    shipped,
};

const CLUSTERS: &str = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";

struct Site {
    client: Client,
    fake: FakeStore,
    _world: World,
    _place: tempfile::TempDir,
}

impl Site {
    async fn open() -> Site {
        Self::open_with(S3Check::default).await
    }

    async fn open_with(check: fn() -> S3Check) -> Site {
        let kinds = Kinds::default();
        let hooks = move || [kinds.hooks(), vec![Arc::new(check())]].concat();
        let world = World::with(move || Config { hooks: hooks(), ..remuda_testkit::config() }).await;
        let client = world.client();
        install(&client, true).await.unwrap();
        let place = tempfile::tempdir().unwrap();
        let fake = FakeStore::start(Ipv4Addr::LOCALHOST.into(), place.path()).await.unwrap();
        fake.make("backups").unwrap();
        let site = Site { client, fake, _world: world, _place: place };
        site.credential("keys", SECRET_KEY).await;
        site
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, Value> {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        match self.client.request(shipped::request(method, path, kind, body.to_string())).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(serde_json::to_value(status).unwrap()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn credential(&self, name: &str, secret_key: &str) {
        let data = json!({
            "s3credentialConfig-accessKey": ACCESS_KEY, "s3credentialConfig-secretKey": secret_key,
            "s3credentialConfig-defaultEndpointCA": self.fake.certificate(),
        });
        let secret = json!({"metadata": {"name": name}, "stringData": data});
        self.send(Method::POST, "/api/v1/namespaces/fleet-default/secrets", &secret).await.unwrap();
    }

    fn s3(&self, change: Value) -> Value {
        let mut s3 = json!({
            "bucket": "backups", "endpoint": self.fake.endpoint(), "folder": "demo",
            "cloudCredentialName": "keys",
        });
        s3.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        s3
    }

    async fn create(&self, name: &str, s3: Value) -> Result<Value, Value> {
        self.create_with(name, s3, "").await
    }

    async fn create_with(&self, name: &str, s3: Value, query: &str) -> Result<Value, Value> {
        let config = json!({"etcd": {"s3": s3}});
        let spec = json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": config});
        let cluster = json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": name}, "spec": spec,
        });
        self.send(Method::POST, &format!("{CLUSTERS}{query}"), &cluster).await
    }
}

#[track_caller]
fn refused(answer: Result<Value, Value>, field: &str, text: &str) {
    let status = answer.unwrap_err();
    let told = status.to_string();
    assert_eq!(status["code"], 422, "{told}");
    assert_eq!(status["details"]["causes"][0]["field"], format!("spec.rkeConfig.etcd.s3.{field}"), "{told}");
    assert!(told.contains(text), "{told}");
    assert!(!told.contains(SECRET_KEY) && !told.contains("canary-wrong"), "{told}");
}

#[tokio::test]
async fn a_store_is_tried_before_a_cluster_relies_on_it() {
    let site = Site::open().await;
    site.credential("wrong", "canary-wrong").await;
    refused(site.create("aa", site.s3(json!({"bucket": "missing"}))).await, "bucket", "there is no bucket");
    refused(
        site.create("aa", site.s3(json!({"bucket": "Odd_Name"}))).await,
        "bucket",
        "is not the name of a bucket",
    );
    let wrong = site.s3(json!({"cloudCredentialName": "wrong"}));
    refused(site.create("aa", wrong).await, "cloudCredentialName", "does not accept the credential");
    refused(site.create("aa", site.s3(json!({"endpoint": "127.0.0.1:1"}))).await, "endpoint", "127.0.0.1:1");
    refused(site.create("aa", site.s3(json!({"endpoint": "http://x"}))).await, "endpoint", "without TLS");
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem();
    refused(site.create("aa", site.s3(json!({"endpointCA": other}))).await, "endpointCA", "is not trusted");
    refused(
        site.create("aa", site.s3(json!({"endpointCA": "/etc/passwd"}))).await,
        "endpointCA",
        "neither PEM",
    );
    site.fake.fault("PUT", Fault::Refuse(403, "AccessDenied"));
    refused(site.create("aa", site.s3(json!({}))).await, "bucket", "may not write");

    let made = site.create("demo", site.s3(json!({}))).await.unwrap();
    assert_eq!(made["spec"]["rkeConfig"]["etcd"]["s3"]["bucket"], "backups");
    assert!(site.fake.names("backups", "demo").is_empty(), "nothing is left behind");

    // What was checked is not checked again, and what changes is.
    let calls = site.fake.calls().len();
    let path = format!("{CLUSTERS}/demo");
    let retention =
        json!({"spec": {"rkeConfig": {"etcd": {"s3": {"retention": 3}, "snapshotRetention": 7}}}});
    site.send(Method::PATCH, &path, &retention).await.unwrap();
    assert_eq!(site.fake.calls().len(), calls);
    let bucket = json!({"spec": {"rkeConfig": {"etcd": {"s3": {"bucket": "missing"}}}}});
    refused(site.send(Method::PATCH, &path, &bucket).await, "bucket", "there is no bucket");
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_a_person_can_leave_the_check_out() {
    let site = Site::open().await;
    site.create_with("demo", site.s3(json!({})), "?dryRun=All").await.unwrap();
    assert!(!site.fake.calls().iter().any(|call| call.starts_with("PUT")), "{:?}", site.fake.calls());
    let mut cluster = json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "far", "annotations": {"remuda.io/skip-s3-check": "true"}},
        "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {"etcd": {"s3": site.s3(json!({"bucket": "missing"}))}}},
    });
    site.send(Method::POST, CLUSTERS, &cluster).await.unwrap();
    // A credential that comes later, as in a list of manifests.
    cluster["metadata"] = json!({"name": "early"});
    cluster["spec"]["rkeConfig"]["etcd"]["s3"] = site.s3(json!({"cloudCredentialName": "later"}));
    site.send(Method::POST, CLUSTERS, &cluster).await.unwrap();
}

#[tokio::test]
async fn a_store_that_hangs_is_told_in_time() {
    let site = Site::open_with(|| S3Check { patience: Duration::from_millis(500) }).await;
    site.fake.fault("GET", Fault::Hang);
    refused(site.create("aa", site.s3(json!({}))).await, "endpoint", "no answer in time");
    site.create("aa", site.s3(json!({}))).await.unwrap();
}
