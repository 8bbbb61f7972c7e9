//! A Kubernetes API that knows one Secret.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_agent::decide::Data;
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, Notify, mpsc},
    task::JoinSet,
};

use crate::server::{Answer, Ask, Running, serve_at};

#[derive(Default)]
pub(crate) struct State {
    pub(crate) secret: Option<Value>,
    pub(crate) version: u64,
    /// Answers to PUTs, used up one by one: `lose` applies and hangs up, `fail` answers 500.
    pub(crate) faults: Vec<&'static str>,
    pub(crate) puts: usize,
    pub(crate) lists: usize,
    pub(crate) watches: usize,
    /// Watches are refused with 410 once.
    pub(crate) expire: bool,
    /// Image of the cluster agent, and what is announced of it.
    pub(crate) image: Option<(Vec<u8>, String)>,
    /// What agents said they have when they asked for it.
    pub(crate) images: Vec<String>,
    /// What the server's own registry has, by path.
    pub(crate) registry: BTreeMap<String, Vec<u8>>,
    /// Registries that were named when it was asked.
    pub(crate) asked_of: Vec<String>,
}

pub(crate) struct Api {
    pub(crate) state: Mutex<State>,
    changed: Notify,
    watchers: Mutex<JoinSet<()>>,
}

pub(crate) const COLLECTION: &str = "/api/v1/namespaces/fleet-default/secrets";
const NAME: &str = "demo-machine-plan";

impl Api {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { version: 100, ..State::default() }),
            changed: Notify::new(),
            watchers: Mutex::default(),
        })
    }

    pub(crate) async fn serve(self: &Arc<Self>, tls: Option<Arc<rustls::ServerConfig>>) -> Running {
        self.serve_at(([127, 0, 0, 1], 0).into(), tls).await
    }

    pub(crate) async fn serve_at(
        self: &Arc<Self>,
        at: std::net::SocketAddr,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Running {
        let api = self.clone();
        serve_at(at, tls, move |ask| {
            let api = api.clone();
            async move { api.answer(ask).await }
        })
        .await
    }

    /// Ends every watch.
    pub(crate) async fn hang_up(&self) {
        self.watchers.lock().await.shutdown().await;
    }

    /// Changes the Secret as a server would.
    pub(crate) async fn change(&self, uid: &str, change: impl FnOnce(&mut Data)) {
        let mut state = self.state.lock().await;
        let mut data = state.secret.as_ref().map(decode).unwrap_or_default();
        if state.secret.as_ref().is_some_and(|secret| secret["metadata"]["uid"] != uid) {
            data = Data::new();
        }
        change(&mut data);
        state.version += 1;
        let version = state.version.to_string();
        state.secret = Some(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "rke.cattle.io/machine-plan",
            "metadata": {"name": NAME, "namespace": "fleet-default", "uid": uid, "resourceVersion": version,
                "labels": {"keep": "me"}},
            "data": encode(&data),
        }));
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) async fn delete(&self) {
        let mut state = self.state.lock().await;
        state.version += 1;
        state.secret = None;
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) async fn data(&self) -> Data {
        self.state.lock().await.secret.as_ref().map(decode).unwrap_or_default()
    }

    /// Waits until the Secret is as wanted.
    pub(crate) async fn wait(&self, what: &str, wanted: impl Fn(&Data) -> bool) -> Data {
        for _ in 0..600 {
            let data = self.data().await;
            if wanted(&data) {
                return data;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("timed out waiting for {what}: {:?}", show(&self.data().await));
    }

    async fn answer(self: Arc<Self>, ask: Ask) -> Answer {
        if ask.headers.get("authorization").map(String::as_str) != Some("Bearer secret-token") {
            return Answer::json(
                401,
                &json!({"kind":"Status","reason":"Unauthorized","message":"no","code":401}),
            );
        }
        let item = format!("{COLLECTION}/{NAME}");
        match (ask.method.as_str(), ask.path.as_str()) {
            ("GET", "/version") => Answer::json(200, &json!({"major":"1"})),
            ("GET", COLLECTION) => {
                assert_eq!(ask.query["fieldSelector"], format!("metadata.name={NAME}"));
                if ask.query.contains_key("watch") { self.watch(&ask).await } else { self.list().await }
            }
            ("GET", path) if path == item => match &self.state.lock().await.secret {
                Some(secret) => Answer::json(200, secret),
                None => missing(),
            },
            ("PUT", path) if path == item => self.put(&ask).await,
            ("GET", "/v3/connect/agent-image") => self.image(&ask).await,
            ("GET", path) if path.starts_with("/v2/") => {
                let mut state = self.state.lock().await;
                state.asked_of.push(ask.query.get("ns").cloned().unwrap_or_default());
                match state.registry.get(path) {
                    Some(bytes) => Answer::Full(200, Vec::new(), bytes.clone()),
                    None => Answer::text(404, "{}"),
                }
            }
            _ => Answer::json(403, &json!({"reason":"Forbidden","message":"not yours","code":403})),
        }
    }

    async fn image(&self, ask: &Ask) -> Answer {
        let mut state = self.state.lock().await;
        let known = ask.headers.get("if-none-match").cloned().unwrap_or_default();
        state.images.push(known.clone());
        match &state.image {
            None => Answer::text(404, "none"),
            Some((_, tag)) if known == format!("\"{tag}\"") => Answer::text(304, ""),
            Some((image, tag)) => {
                Answer::Full(200, vec![("ETag".into(), format!("\"{tag}\""))], image.clone())
            }
        }
    }

    async fn list(&self) -> Answer {
        let mut state = self.state.lock().await;
        state.lists += 1;
        let items: Vec<&Value> = state.secret.iter().collect();
        Answer::json(
            200,
            &json!({"kind":"SecretList","metadata":{"resourceVersion":state.version.to_string()},"items":items}),
        )
    }

    async fn put(&self, ask: &Ask) -> Answer {
        let mut state = self.state.lock().await;
        state.puts += 1;
        let fault = if state.faults.is_empty() { "" } else { state.faults.remove(0) };
        if fault == "fail" {
            return Answer::text(500, "no");
        }
        let mut secret: Value = serde_json::from_slice(&ask.body).unwrap();
        let Some(current) = &state.secret else { return missing() };
        if current["metadata"]["resourceVersion"] != secret["metadata"]["resourceVersion"]
            || current["metadata"]["uid"] != secret["metadata"]["uid"]
        {
            return Answer::json(
                409,
                &json!({"kind":"Status","reason":"Conflict","message":"newer","code":409}),
            );
        }
        assert_eq!(secret["metadata"]["labels"]["keep"], "me");
        state.version += 1;
        secret["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.secret = Some(secret.clone());
        drop(state);
        self.changed.notify_waiters();
        if fault == "lose" { Answer::HangUp } else { Answer::json(200, &secret) }
    }

    async fn watch(self: Arc<Self>, ask: &Ask) -> Answer {
        let mut seen: u64 = ask.query["resourceVersion"].parse().unwrap();
        let mut state = self.state.lock().await;
        state.watches += 1;
        let expire = std::mem::take(&mut state.expire);
        drop(state);
        let (sender, receiver) = mpsc::channel(4);
        let api = self.clone();
        // Ends with the connection, whose receiver it feeds.
        self.watchers.lock().await.spawn(async move {
            if expire {
                let object = json!({"kind":"Status","code":410,"reason":"Expired","message":"too old"});
                let _ =
                    sender.send(format!("{}\n", json!({"type":"ERROR","object":object})).into_bytes()).await;
                return;
            }
            loop {
                let changed = api.changed.notified();
                let event = {
                    let state = api.state.lock().await;
                    let is_news = state.version > seen;
                    seen = state.version;
                    is_news.then(|| match &state.secret {
                        Some(secret) => json!({"type":"MODIFIED","object":secret}),
                        None => json!({"type":"DELETED","object":{"metadata":{"name":NAME}}}),
                    })
                };
                if let Some(event) = event {
                    // In two pieces, as a network may deliver it.
                    let line = format!("{event}\n").into_bytes();
                    let (one, two) = line.split_at(line.len() / 2);
                    if sender.send(one.to_vec()).await.is_err() || sender.send(two.to_vec()).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    () = changed => {}
                    () = sender.closed() => return,
                }
            }
        });
        Answer::Stream(receiver)
    }
}

fn missing() -> Answer {
    Answer::json(404, &json!({"kind":"Status","reason":"NotFound","message":"gone","code":404}))
}

fn decode(secret: &Value) -> Data {
    let entries = secret["data"].as_object().cloned().unwrap_or_default();
    entries
        .into_iter()
        .map(|(name, value)| (name, STANDARD.decode(value.as_str().unwrap()).unwrap()))
        .collect()
}

fn encode(data: &Data) -> Value {
    data.iter()
        .map(|(name, value)| (name.clone(), json!(STANDARD.encode(value))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub(crate) fn show(data: &Data) -> Vec<String> {
    data.iter().map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value))).collect()
}

/// Writes configuration and connection info of an agent below `dir`.
pub(crate) fn configure(dir: &Path, server: &str, cluster: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: agent\n\
         clusters: [{{name: agent, cluster: {{server: '{server}'{cluster}}}}}]\n\
         users: [{{name: agent, user: {{token: secret-token}}}}]\n\
         contexts: [{{name: agent, context: {{cluster: agent, user: agent}}}}]\n"
    );
    let info = json!({"kubeConfig": kubeconfig, "namespace": "fleet-default", "secretName": NAME});
    let var = dir.join("var");
    std::fs::create_dir_all(&var).unwrap();
    let write = |name: &str, text: String| {
        let path = var.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let info = write("connection.json", info.to_string());
    let var = var.display();
    write(
        "config.yaml",
        format!(
            "workDirectory: {var}/work\nappliedPlanDirectory: {var}/applied\nremoteEnabled: true\n\
             imagesDirectory: {var}/images\nagentRegistriesFile: {var}/registries.yaml\n\
             interlockDirectory: {var}/interlock\nconnectionInfoFile: {}\n",
            info.display()
        ),
    )
}
