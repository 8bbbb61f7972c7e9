//! A real etcd: its members, asked through its JSON gateway, and the process of this server's own.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    files::{self, FileError, PUBLIC},
    http::{HttpError, Peer},
    paths::Paths,
    pki::{self, PkiError},
    tls::{self, TlsError},
};

#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("use the certificates for etcd")]
    Pki(#[from] PkiError),
    #[error("use the certificates for etcd")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("ask etcd")]
    Http(#[from] HttpError),
    #[error("no member of etcd answers")]
    Silent,
    #[error("start {}", .program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("etcd answered something that makes no sense")]
    Nonsense,
    #[error("this server's etcd member was removed from the cluster")]
    Removed,
    #[error("etcd did not become ready within {} seconds", READY.as_secs())]
    NotReady,
}

const READY: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(300);

/// A member as etcd lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    /// Empty until it has started once.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub is_learner: bool,
}

/// The gateway leaves out what is empty, and writes 64-bit numbers as text.
#[derive(Deserialize)]
struct RawMember {
    #[serde(rename = "ID", default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(rename = "peerURLs", default)]
    peer_urls: Vec<String>,
    #[serde(rename = "clientURLs", default)]
    client_urls: Vec<String>,
    #[serde(rename = "isLearner", default)]
    is_learner: bool,
}

/// etcd, as those see it who manage its members.
#[derive(Clone)]
pub struct Members {
    endpoints: Vec<String>,
    tls: Arc<ClientConfig>,
}

impl Members {
    /// With the client certificate below `tls/etcd`.
    pub fn new(paths: &Paths, endpoints: Vec<String>) -> Result<Members, EtcdError> {
        let ca = files::read(&paths.tls("etcd/server-ca.crt"))?;
        let identity = pki::read_pair(&paths.tls("etcd/client.crt"), &paths.tls("etcd/client.key"))?;
        Ok(Members { endpoints, tls: tls::client_config(ca.as_deref(), identity.as_ref())? })
    }

    /// Asks one member after the other until one answers.
    async fn ask(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let peer = Peer { tls: Some(self.tls.clone()), basic: None };
        let mut last = EtcdError::Silent;
        for endpoint in &self.endpoints {
            match peer.post(&format!("{endpoint}{path}"), body).await {
                Ok(answer) => return Ok(answer),
                Err(error @ HttpError::Refused { .. }) => last = error.into(),
                Err(error) => {
                    if matches!(last, EtcdError::Silent) {
                        last = error.into();
                    }
                }
            }
        }
        Err(last)
    }

    pub async fn list(&self) -> Result<Vec<Member>, EtcdError> {
        members(self.ask("/v3/cluster/member/list", &json!({"linearizable": true})).await?)
    }

    /// Adds a member that does not vote yet: the cluster does not depend on it until it has caught up.
    pub async fn add_learner(&self, peer_url: &str) -> Result<Vec<Member>, EtcdError> {
        let body = json!({"peerURLs": [peer_url], "isLearner": true});
        members(self.ask("/v3/cluster/member/add", &body).await?)
    }

    pub async fn promote(&self, id: u64) -> Result<(), EtcdError> {
        self.ask("/v3/cluster/member/promote", &json!({"ID": id.to_string()})).await.map(drop)
    }

    pub async fn remove(&self, id: u64) -> Result<(), EtcdError> {
        self.ask("/v3/cluster/member/remove", &json!({"ID": id.to_string()})).await.map(drop)
    }

    /// Writes a snapshot of the first member to `file`: its database and the checksum of it.
    pub async fn snapshot(&self, file: &mut std::fs::File) -> Result<(), EtcdError> {
        use std::io::Write;
        let endpoint = self.endpoints.first().ok_or(EtcdError::Silent)?;
        let peer = Peer { tls: Some(self.tls.clone()), basic: None };
        let part = |line: &[u8]| {
            let answer: Value = serde_json::from_slice(line)?;
            if answer.get("error").is_some() {
                return Err(io::Error::other("etcd gave up"));
            }
            let blob = answer["result"]["blob"].as_str().unwrap_or_default();
            file.write_all(&BASE64_STANDARD.decode(blob).map_err(io::Error::other)?)
        };
        Ok(peer.post_for_lines(&format!("{endpoint}/v3/maintenance/snapshot"), &json!({}), part).await?)
    }

    /// The value of a key beside those of the store.
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, EtcdError> {
        let answer = self.ask("/v3/kv/range", &json!({"key": BASE64_STANDARD.encode(key)})).await?;
        let value = answer["kvs"][0]["value"].as_str();
        value.map(|value| BASE64_STANDARD.decode(value).map_err(|_| EtcdError::Nonsense)).transpose()
    }

    pub async fn put(&self, key: &str, value: &[u8]) -> Result<(), EtcdError> {
        let body = json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)});
        self.ask("/v3/kv/put", &body).await.map(drop)
    }

    pub async fn health(&self) -> Result<(), EtcdError> {
        self.ask("/v3/maintenance/status", &json!({})).await.map(drop)
    }
}

fn members(answer: Value) -> Result<Vec<Member>, EtcdError> {
    let raw: Vec<RawMember> =
        serde_json::from_value(answer["members"].clone()).map_err(|_| EtcdError::Nonsense)?;
    raw.into_iter()
        .map(|raw| {
            Ok(Member {
                id: raw.id.parse().map_err(|_| EtcdError::Nonsense)?,
                name: raw.name,
                peer_urls: raw.peer_urls,
                client_urls: raw.client_urls,
                is_learner: raw.is_learner,
            })
        })
        .collect()
}

/// How this server's own etcd is run.
#[derive(Debug, Clone)]
pub struct Own {
    pub program: PathBuf,
    pub launcher: Option<PathBuf>,
    pub name: String,
    /// The address other servers reach it by.
    pub host: String,
    pub client_port: u16,
    pub peer_port: u16,
    pub health_port: u16,
}

impl Own {
    pub fn client_url(&self) -> String {
        format!("https://{}:{}", self.host, self.client_port)
    }

    pub fn peer_url(&self) -> String {
        format!("https://{}:{}", self.host, self.peer_port)
    }

    /// By which this server itself reaches it.
    pub fn local_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.client_port)
    }

    fn command(&self, paths: &Paths, initial: &str, state: &str) -> Result<Command, EtcdError> {
        let tls = |file: &str| paths.tls(&format!("etcd/{file}")).display().to_string();
        let loopback = self.host == "127.0.0.1";
        let listen = |port: u16| match loopback {
            true => format!("https://127.0.0.1:{port}"),
            false => format!("https://127.0.0.1:{port},https://{}:{port}", self.host),
        };
        let args = [
            ("name", self.name.clone()),
            ("data-dir", paths.etcd().display().to_string()),
            ("listen-client-urls", listen(self.client_port)),
            ("advertise-client-urls", self.client_url()),
            ("listen-peer-urls", listen(self.peer_port)),
            ("initial-advertise-peer-urls", self.peer_url()),
            ("listen-metrics-urls", format!("http://127.0.0.1:{}", self.health_port)),
            ("initial-cluster", initial.to_owned()),
            ("initial-cluster-state", state.to_owned()),
            ("client-cert-auth", "true".to_owned()),
            ("trusted-ca-file", tls("server-ca.crt")),
            ("cert-file", tls("server-client.crt")),
            ("key-file", tls("server-client.key")),
            ("peer-client-cert-auth", "true".to_owned()),
            ("peer-trusted-ca-file", tls("peer-ca.crt")),
            ("peer-cert-file", tls("peer-server-client.crt")),
            ("peer-key-file", tls("peer-server-client.key")),
            ("logger", "zap".to_owned()),
            ("log-level", "warn".to_owned()),
            ("snapshot-count", "10000".to_owned()),
            // Defaults of 100 and 1000 ms are for machines of their own.
            ("heartbeat-interval", "500".to_owned()),
            ("election-timeout", "5000".to_owned()),
        ];
        let args = args.into_iter().map(|(name, value)| format!("--{name}={value}"));
        let mut command = match &self.launcher {
            // Dies with us, however we die.
            Some(launcher) => {
                let mut command = Command::new(launcher);
                command.args(["node", "pod-exec", "--"]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        let log_path = paths.server("logs/etcd.log");
        if let Some(parent) = log_path.parent() {
            files::private_dir(parent)?;
        }
        let open = std::fs::OpenOptions::new().create(true).append(true).open(&log_path);
        let log = open.map_err(|source| FileError::Write { path: log_path, source })?;
        let again = log.try_clone().map_err(|source| FileError::Write { path: paths.etcd(), source })?;
        command.args(args).stdin(Stdio::null()).stdout(log).stderr(again).kill_on_drop(true);
        // Variables of etcd's own would contradict the flags.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        Ok(command)
    }

    /// Starts the process. `members` are the others, by name and peer URL; none for a new cluster.
    pub fn start(&self, paths: &Paths, members: &[(String, String)]) -> Result<Child, EtcdError> {
        files::private_dir(&paths.etcd())?;
        // Rancher reads it from here to find this member among all.
        files::keep(&paths.etcd().join("name"), format!("{}\n", self.name).as_bytes(), PUBLIC)?;
        let own = (self.name.clone(), self.peer_url());
        let all = members.iter().chain([&own]).map(|(name, url)| format!("{name}={url}"));
        let initial = all.collect::<Vec<_>>().join(",");
        let state = if members.is_empty() { "new" } else { "existing" };
        let mut command = self.command(paths, &initial, state)?;
        self.spawn(&mut command)
    }

    /// Starts it with its data, as the only member from now on.
    pub fn start_alone(&self, paths: &Paths) -> Result<Child, EtcdError> {
        let initial = format!("{}={}", self.name, self.peer_url());
        let mut command = self.command(paths, &initial, "existing")?;
        self.spawn(command.arg("--force-new-cluster"))
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, EtcdError> {
        command.spawn().map_err(|source| EtcdError::Start { program: self.program.clone(), source })
    }
}

/// Waits until a member answers.
pub async fn ready(members: &Members, child: &mut Child) -> Result<(), EtcdError> {
    let asking = async {
        while members.health().await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        asked = tokio::time::timeout(READY, asking) => asked.map_err(|_| EtcdError::NotReady),
        ended = child.wait() => {
            warn!(status = ?ended.ok().and_then(|status| status.code()), "etcd ended while it was starting");
            Err(EtcdError::NotReady)
        }
    }
}

/// Makes this server a member of the etcd of others. It votes when this returns.
///
/// It joins as a learner, so that the others keep their quorum whatever becomes of this server, and
/// may be tried again from any point.
pub async fn join(
    own: &Own,
    paths: &Paths,
    others: &Members,
    stop: &CancellationToken,
) -> Result<Child, EtcdError> {
    let deadline = tokio::time::Instant::now() + READY;
    let mut seen_stuck = BTreeSet::new();
    let listed = loop {
        let listed = others.list().await?;
        match listed.iter().find(|member| member.peer_urls.contains(&own.peer_url())) {
            // A former self at this address, whose data is gone: it will never come back.
            Some(former) if !former.name.is_empty() && former.name != own.name => {
                warn!(member = former.name, "removing the member this server was before");
                others.remove(former.id).await?;
            }
            Some(_) => break listed,
            None => {}
        }
        match others.add_learner(&own.peer_url()).await {
            Ok(listed) => break listed,
            Err(error) if tokio::time::Instant::now() > deadline => return Err(error),
            Err(error) => {
                info!(%error, "waiting to be taken as a member of etcd");
                clear_stuck(others, &listed, &mut seen_stuck).await;
                tokio::select! {
                    () = stop.cancelled() => return Err(error),
                    () = tokio::time::sleep(Duration::from_secs(2)) => {}
                }
            }
        }
    };
    let known = |member: &&Member| !member.name.is_empty() && !member.peer_urls.contains(&own.peer_url());
    let known: Vec<(String, String)> = listed
        .iter()
        .filter(known)
        .flat_map(|member| member.peer_urls.iter().map(|url| (member.name.clone(), url.clone())))
        .collect();
    let mut child = own.start(paths, &known)?;
    loop {
        let listed = others.list().await.unwrap_or_default();
        let me = listed.iter().find(|member| member.peer_urls.contains(&own.peer_url()));
        match me {
            Some(me) if !me.is_learner => break,
            // Refused until the learner has caught up.
            Some(me) => drop(others.promote(me.id).await),
            None => {}
        }
        if tokio::time::Instant::now() > deadline {
            return Err(EtcdError::NotReady);
        }
        tokio::select! {
            () = stop.cancelled() => return Err(EtcdError::NotReady),
            _ = child.wait() => return Err(EtcdError::NotReady),
            () = tokio::time::sleep(RETRY) => {}
        }
    }
    ready(&Members { endpoints: vec![own.local_url()], tls: others.tls.clone() }, &mut child).await?;
    Ok(child)
}

/// etcd takes one learner at a time. One that never started is in the way of all others for ever;
/// it is removed when it has been seen so for a while.
async fn clear_stuck(others: &Members, listed: &[Member], seen: &mut BTreeSet<(u64, u32)>) {
    const SIGHTINGS: u32 = 15;
    for member in listed.iter().filter(|member| member.is_learner && member.name.is_empty()) {
        let times = seen.iter().filter(|(id, _)| *id == member.id).count() as u32;
        seen.insert((member.id, times));
        if times >= SIGHTINGS {
            warn!(member = member.id, "removing a member of etcd that never started");
            let _ = others.remove(member.id).await;
        }
    }
}

/// Whether this member is still one, as far as the others say. `None` when nobody answers.
pub async fn is_member(others: &Members, name: &str) -> Option<bool> {
    let listed = others.list().await.ok()?;
    Some(listed.iter().any(|member| member.name == name))
}

/// The etcd to use, if there is one.
pub fn find(choice: &crate::config::EtcdChoice, path: Option<&str>) -> Option<PathBuf> {
    use crate::config::{EtcdChoice, find_program};
    match choice {
        EtcdChoice::Never => None,
        EtcdChoice::Program(program) => Some(program.clone()),
        EtcdChoice::Auto => find_program("etcd", path),
    }
}

/// A file beside the data of a member that was removed: the data is of no use any more.
pub fn tombstone(etcd: &Path) -> PathBuf {
    etcd.join("tombstone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_the_gateway_writes_them() {
        let answer = json!({"header": {}, "members": [
            {"ID": "10276657743932975437", "name": "a", "peerURLs": ["https://h:2380"], "clientURLs": ["https://h:2379"]},
            {"ID": "3", "peerURLs": ["https://i:2380"], "isLearner": true},
        ]});
        let members = members(answer).unwrap();
        assert_eq!(members[0].id, 10_276_657_743_932_975_437);
        assert!(members[1].is_learner && members[1].name.is_empty());
    }
}
