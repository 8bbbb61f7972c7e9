//! On a whole server, with a receiver on this host.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::hmac;
use base64::{Engine, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use remuda_names::{PROGRAM, rancher::name::SYSTEM};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::people::tests::Site;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PATIENCE: Duration = Duration::from_secs(30);

/// A message as it arrived.
#[derive(Debug, Clone)]
struct Arrived {
    id: String,
    timestamp: String,
    signature: String,
    body: String,
}

impl Arrived {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// As a receiver does it.
    fn check_signature(&self) {
        let key = BASE64_STANDARD.decode(KEY.strip_prefix("whsec_").unwrap()).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let signed = format!("{}.{}.{}", self.id, self.timestamp, self.body);
        let tag = BASE64_STANDARD.decode(self.signature.strip_prefix("v1,").unwrap()).unwrap();
        hmac::verify(&key, signed.as_bytes(), &tag).unwrap();
    }
}

/// Takes messages, and answers with the codes it was given before it answers 204.
#[derive(Clone, Default)]
struct Receiver {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    codes: Arc<Mutex<VecDeque<&'static str>>>,
}

impl Receiver {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let own = self.clone();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = own.take(stream).await;
            }
        });
        // It lives as long as the test.
        std::mem::forget(tasks);
        format!("http://{address}/hook?token=T0KEN")
    }

    async fn take(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut text = Vec::new();
        let (head, body) = loop {
            let mut piece = vec![0; 8192];
            let read = stream.read(&mut piece).await?;
            if read == 0 {
                return Ok(());
            }
            text.extend_from_slice(&piece[..read]);
            let all = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
            let length = header(head, "content-length").parse::<usize>().unwrap_or_default();
            if body.len() >= length {
                break (head.to_owned(), body.to_owned());
            }
        };
        assert!(head.starts_with("POST /hook?token=T0KEN HTTP/1.1"), "{head}");
        self.arrived.lock().push(Arrived {
            id: header(&head, "webhook-id"),
            timestamp: header(&head, "webhook-timestamp"),
            signature: header(&head, "webhook-signature"),
            body,
        });
        let code = self.codes.lock().pop_front().unwrap_or("204 No Content");
        let answer = format!("HTTP/1.1 {code}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await
    }

    async fn until(&self, count: usize) -> Vec<Arrived> {
        let began = Instant::now();
        loop {
            let arrived = self.arrived.lock().clone();
            if arrived.len() >= count {
                return arrived;
            }
            assert!(began.elapsed() < PATIENCE, "{count} messages: {arrived:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn header(head: &str, name: &str) -> String {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.to_owned()).unwrap_or_default()
}

fn secret(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "remuda.io/webhook",
        "metadata": {"name": "ops", "namespace": SYSTEM}, "stringData": data})
}

struct Admin {
    site: Site,
    token: String,
}

impl Admin {
    async fn start() -> Self {
        let site = Site::start().await;
        let first = site.server.first_user().unwrap().clone();
        let token =
            site.login(&first.username, &first.password).await.body["token"].as_str().unwrap().to_owned();
        let admin = Self { site, token };
        for namespace in [SYSTEM, "fleet-default"] {
            let body = json!({"metadata": {"name": namespace}});
            let code = admin.send("POST", "/api/v1/namespaces", body).await.0;
            assert!(matches!(code, 201 | 409), "{code}");
        }
        admin
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let got = self.site.send(Some(&self.token), method, path, &[], body).await;
        (got.code.as_u16(), got.body)
    }

    /// Says that the cluster is well, or is not.
    async fn cluster_is(&self, ready: &str) {
        let path = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters/demo/status";
        let condition = json!({"type": "Ready", "status": ready, "reason": "Error", "message": "etcd is gone",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"});
        let (_, mut cluster) = self.send("GET", path, Value::Null).await;
        cluster["status"] = json!({"ready": true, "conditions": [condition]});
        let (code, body) = self.send("PUT", path, cluster).await;
        assert_eq!(code, 200, "{body}");
    }
}

const SECRETS: &str = "/api/v1/namespaces/cattle-system/secrets";

#[tokio::test]
async fn a_receiver_is_told_what_breaks_and_is_well_again_and_nothing_twice() {
    let receiver = Receiver::default();
    let url = receiver.start().await;
    let admin = Admin::start().await;
    let (code, body) = admin.send("POST", SECRETS, secret(json!({"url": "ftp://x/T0KEN", "key": KEY}))).await;
    assert_eq!((code, &body["details"]["causes"][0]["field"]), (422, &json!("data[url]")), "{body}");
    assert!(!body.to_string().contains("T0KEN"), "{body}");
    let data = json!({"url": url, "key": KEY, "after": "0s", "events": "broken,fixed"});
    let (code, body) = admin.send("POST", SECRETS, secret(data)).await;
    assert_eq!(code, 201, "{body}");

    let clusters = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
    let cluster = json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "fleet-default"}, "spec": {}});
    let (code, body) = admin.send("POST", clusters, cluster).await;
    assert_eq!(code, 201, "{body}");
    // The receiver is away for the first two tries.
    let failures = ["503 Service Unavailable", "500 Internal Server Error"];
    receiver.codes.lock().extend(failures);
    admin.cluster_is("False").await;
    let tries = receiver.until(failures.len() + 1).await;
    for one in &tries {
        one.check_signature();
        assert_eq!(one.id, tries[0].id, "the same message has the same name");
    }
    let told = tries[0].json();
    assert_eq!(told["type"], "cluster.broken");
    assert_eq!(told["timestamp"], "2026-01-01T00:00:00Z");
    let data = &told["data"];
    assert_eq!((&data["namespace"], &data["name"]), (&json!("fleet-default"), &json!("demo")));
    assert_eq!((&data["reason"], &data["message"]), (&json!("Error"), &json!("etcd is gone")));

    admin.cluster_is("True").await;
    let all = receiver.until(failures.len() + 2).await;
    let fixed = all.last().unwrap();
    fixed.check_signature();
    assert_eq!(fixed.json()["type"], "cluster.fixed");
    assert_eq!(fixed.json()["data"]["fixes"], tries[0].id.as_str());

    // A server that starts again knows what it told; only what is new is told.
    admin.cluster_is("False").await;
    let again = receiver.until(failures.len() + 3).await;
    let note = format!("/api/v1/namespaces/{SYSTEM}/configmaps/webhook-ops");
    let began = Instant::now();
    loop {
        let (_, noted) = admin.send("GET", &note, Value::Null).await;
        if noted["data"]["told.json"].as_str().is_some_and(|text| text.contains(&again.last().unwrap().id)) {
            assert_eq!(noted["metadata"]["managedFields"][0]["manager"], format!("{PROGRAM}-webhooks"));
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{noted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let metrics = admin.site.send(Some(&admin.token), "GET", "/metrics", &[], Value::Null).await.text;
    for line in [
        "remuda_webhook_deliveries_total{webhook=\"ops\",outcome=\"delivered\"} 3",
        "remuda_webhook_deliveries_total{webhook=\"ops\",outcome=\"failed\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let Admin { site, token } = admin;
    let dir = site.dir;
    site.server.shutdown().await;
    let server = Site::up(dir.path().to_owned()).await;
    let admin = Admin { site: Site { server, dir }, token };
    admin.cluster_is("True").await;
    let last = receiver.until(failures.len() + 4).await;
    assert_eq!(last.len(), failures.len() + 4, "what was told was told again: {last:?}");
    assert_eq!(last.last().unwrap().json()["type"], "cluster.fixed");
}

#[tokio::test]
async fn a_receiver_does_not_choose_where_the_server_speaks_to() {
    let (chosen, elsewhere) = (Receiver::default(), Receiver::default());
    let (url, other) = (chosen.start().await, elsewhere.start().await);
    let admin = Admin::start().await;
    let redirect: &'static str =
        Box::leak(format!("307 Temporary Redirect\r\nlocation: {other}").into_boxed_str());
    chosen.codes.lock().push_back(redirect);
    let data = json!({"url": url, "key": KEY, "events": "update-available"});
    let (code, body) = admin.send("POST", SECRETS, secret(data)).await;
    assert_eq!(code, 201, "{body}");
    let cluster = json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "fleet-default"},
        "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}}});
    let clusters = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
    let (code, body) = admin.send("POST", clusters, cluster).await;
    assert_eq!(code, 201, "{body}");
    // It is a failure as any other, and tried again at the same place.
    let tries = chosen.until(2).await;
    assert_eq!(tries[1].json()["type"], "cluster.update-available");
    assert!(elsewhere.arrived.lock().is_empty());
}
