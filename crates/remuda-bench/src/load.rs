//! The measurements.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    http::{Connection, Target, Verb},
    table::Outcome,
};

const COLLECTION: &str = "/apis/bench.example.org/v1/namespaces/default/widgets";
const MARK: &[u8] = b"\"stamp\":\"";
/// Objects the watched writes go to.
const HOT: usize = 64;

pub(crate) struct Load {
    target: Arc<Target>,
    size: usize,
    duration: Duration,
}

impl Load {
    /// Installs the custom resource everything is measured with.
    pub(crate) async fn prepare(target: Arc<Target>, size: usize, seconds: u64) -> anyhow::Result<Load> {
        let mut connection = target.connect().await?;
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        connection.call(Verb::Post, path, definition().to_string().into()).await?;
        while connection.call(Verb::Get, COLLECTION, Bytes::new()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Load { target, size, duration: Duration::from_secs(seconds) })
    }

    pub(crate) async fn create(&self, clients: usize, range: Range<usize>) -> anyhow::Result<Outcome> {
        let (next, size) = (Arc::new(AtomicUsize::new(range.start)), self.size);
        self.clients(clients, move |_| {
            let number = next.fetch_add(1, Relaxed);
            (number < range.end).then(|| (Verb::Post, COLLECTION.to_owned(), widget(number, size)))
        })
        .await
    }

    pub(crate) async fn get(&self, clients: usize, objects: usize) -> anyhow::Result<Outcome> {
        self.timed(clients, move |number| {
            (Verb::Get, format!("{COLLECTION}/{}", name(number % objects)), Bytes::new())
        })
        .await
    }

    pub(crate) async fn patch_status(&self, clients: usize, objects: usize) -> anyhow::Result<Outcome> {
        self.timed(clients, move |number| {
            let body = json!({"status": {"phase": format!("phase-{number}")}}).to_string();
            (Verb::MergePatch, format!("{COLLECTION}/{}/status", name(number % objects)), body.into())
        })
        .await
    }

    pub(crate) async fn apply(&self, clients: usize, objects: usize) -> anyhow::Result<Outcome> {
        self.timed(clients, move |number| {
            let name = name(number % objects);
            let body = json!({
                "apiVersion": "bench.example.org/v1", "kind": "Widget", "metadata": {"name": name},
                "spec": {"stamp": format!("apply-{number}"), "ports": [{"name": "http", "port": 80}]},
            });
            let path = format!("{COLLECTION}/{name}?fieldManager=bench&force=true");
            (Verb::Apply, path, body.to_string().into())
        })
        .await
    }

    /// Lists everything, whole or in pages, until the time is over; a pass is one operation.
    pub(crate) async fn list(&self, limit: Option<usize>) -> anyhow::Result<Outcome> {
        let mut connection = self.target.connect().await?;
        let (mut outcome, until) = (Outcome::default(), Instant::now() + self.duration);
        while Instant::now() < until {
            let started = Instant::now();
            let mut path = COLLECTION.to_owned();
            if let Some(limit) = limit {
                path = format!("{COLLECTION}?limit={limit}");
            }
            let mut body = connection.call(Verb::Get, &path, Bytes::new()).await?;
            while let Some(token) = continuation(&body) {
                let next = format!("{path}&continue={token}");
                body = connection.call(Verb::Get, &next, Bytes::new()).await?;
            }
            outcome.latencies.push(started.elapsed());
        }
        Ok(outcome)
    }

    /// Watches by many while somebody writes at a steady rate; a delivery is one operation.
    pub(crate) async fn watch(&self, watchers: usize, rate: u32) -> anyhow::Result<Outcome> {
        let mut writer = self.target.connect().await?;
        let listed = writer.call(Verb::Get, &format!("{COLLECTION}?limit=1"), Bytes::new()).await?;
        let revision = between(&listed, b"\"resourceVersion\":\"").context("no revision")?;
        let writes = (self.duration.as_secs() as usize * rate as usize).max(1);
        let mut tasks = JoinSet::new();
        let path = format!("{COLLECTION}?watch=1&resourceVersion={revision}");
        for _ in 0..watchers {
            let mut connection = self.target.connect().await?;
            let stream = connection.open(Verb::Get, &path, Bytes::new()).await?;
            tasks.spawn(deliveries(connection, stream, writes));
        }
        let mut interval = tokio::time::interval(Duration::from_secs(1) / rate);
        for number in 0..writes {
            interval.tick().await;
            let body = json!({"spec": {"stamp": format!("{}", now().as_micros())}}).to_string();
            let path = format!("{COLLECTION}/{}", name(number % HOT));
            writer.call(Verb::MergePatch, &path, body.into()).await?;
        }
        let mut outcome = Outcome::default();
        while let Some(seen) = tasks.join_next().await {
            outcome.latencies.extend(seen??);
        }
        Ok(outcome)
    }

    async fn timed<F>(&self, clients: usize, request: F) -> anyhow::Result<Outcome>
    where
        F: Fn(usize) -> (Verb, String, Bytes) + Clone + Send + 'static,
    {
        let until = Instant::now() + self.duration;
        let next = Arc::new(AtomicUsize::new(0));
        self.clients(clients, move |_| (Instant::now() < until).then(|| request(next.fetch_add(1, Relaxed))))
            .await
    }

    /// A closed loop: each client sends its next request when it has the last answer.
    async fn clients<F>(&self, clients: usize, next: F) -> anyhow::Result<Outcome>
    where
        F: Fn(usize) -> Option<(Verb, String, Bytes)> + Clone + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let (mut connection, next) = (self.target.connect().await?, next.clone());
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                while let Some((verb, path, body)) = next(client) {
                    let started = Instant::now();
                    connection.call(verb, &path, body).await?;
                    latencies.push(started.elapsed());
                }
                anyhow::Ok(latencies)
            });
        }
        let mut outcome = Outcome::default();
        while let Some(done) = tasks.join_next().await {
            outcome.latencies.extend(done??);
        }
        Ok(outcome)
    }
}

/// Reads events until the wanted number of writes has been seen; how long each was under way.
async fn deliveries(
    _connection: Connection,
    mut stream: hyper::body::Incoming,
    writes: usize,
) -> anyhow::Result<Vec<Duration>> {
    let (mut seen, mut rest) = (Vec::with_capacity(writes), Vec::new());
    while seen.len() < writes {
        let Some(frame) = stream.frame().await else { break };
        let Ok(data) = frame?.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if let Some(stamp) = between(&line, MARK).and_then(|stamp| stamp.parse().ok()) {
                seen.push(now().saturating_sub(Duration::from_micros(stamp)));
            }
        }
    }
    Ok(seen)
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn name(number: usize) -> String {
    format!("widget-{number:06}")
}

fn widget(number: usize, size: usize) -> Bytes {
    let mut widget = json!({
        "apiVersion": "bench.example.org/v1", "kind": "Widget",
        "metadata": {"name": name(number), "labels": {"app": "bench"}},
        "spec": {"stamp": "new", "ports": [{"name": "http", "port": 80}], "filler": ""},
    });
    let missing = size.saturating_sub(widget.to_string().len());
    widget["spec"]["filler"] = "x".repeat(missing).into();
    widget.to_string().into()
}

fn definition() -> serde_json::Value {
    let ports = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object", "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                "protocol": {"type": "string", "default": "TCP"},
            },
        },
    });
    let spec = json!({
        "type": "object",
        "properties": {"stamp": {"type": "string"}, "filler": {"type": "string"}, "ports": ports},
    });
    let status = json!({"type": "object", "properties": {"phase": {"type": "string"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.bench.example.org"},
        "spec": {
            "group": "bench.example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": spec, "status": status},
                }},
            }],
        },
    })
}

fn continuation(body: &[u8]) -> Option<String> {
    // The list's own metadata comes before its items.
    between(&body[..body.len().min(4096)], b"\"continue\":\"").filter(|token| !token.is_empty())
}

/// The text from behind `mark` to the next quote.
fn between(text: &[u8], mark: &[u8]) -> Option<String> {
    let start = text.windows(mark.len()).position(|part| part == mark)? + mark.len();
    let rest = &text[start..];
    let end = rest.iter().position(|byte| *byte == b'"')?;
    String::from_utf8(rest[..end].to_vec()).ok()
}
