//! What a server answers beside the API: its authority, joining nodes, and where its etcd is.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Node, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta, PostParams},
};
use remuda_apiserver::{ApiServer, Body, Peer};
use remuda_names::node as names;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tracing::{info, warn};

use crate::{
    config::Settings,
    encryption,
    etcd::{Members, Own},
    join::{self, AgentRequest, AgentResponse, Datastore, ServerRequest, ServerResponse},
    listen::{Handler, Remote},
    pki::Pki,
    snapshot::{
        Saved, SnapshotError, Snapshots,
        command::{self, Ask, Message},
        s3::S3Snapshots,
    },
    tls::{Clients, Serving},
    token,
};

/// Shared by all connections.
#[derive(Clone)]
pub struct Front(pub Arc<Parts>);

pub struct Parts {
    pub settings: Settings,
    pub api: ApiServer,
    pub client: Client,
    pub clients: Arc<Clients>,
    pub serving: Arc<Serving>,
    pub pki: Arc<Pki>,
    pub server_password: String,
    pub agent_password: String,
    /// How others reach this server.
    pub host: String,
    pub api_port: u16,
    pub supervisor_port: u16,
    pub own: Option<Own>,
    /// Absent where the state is elsewhere.
    pub snapshots: Option<Arc<Snapshots>>,
    /// Absent where Secrets have keys that cannot be changed.
    pub encryption: Option<Arc<encryption::server::Rotation>>,
    /// Client URLs of etcd as this server uses them; empty where it keeps the state itself.
    pub etcd: Vec<String>,
}

/// Bytes in a request to join.
const REQUEST_LIMIT: usize = 64 << 10;

impl Handler for Front {
    type Peer = Peer;

    fn reached(&self, local: IpAddr) {
        self.0.serving.reached_at(local);
    }

    fn connect(&self, remote: Remote<'_>) -> Peer {
        Peer {
            address: remote.address,
            certificate: self.0.clients.judge(remote.certificates),
            login: Default::default(),
        }
    }

    async fn handle(&self, peer: Peer, mut request: Request<Incoming>) -> Response<Body> {
        let parts = &self.0;
        let distribution = parts.settings.distribution;
        let path = request.uri().path();
        match path {
            "/cacerts" => return text(StatusCode::OK, parts.pki.server_ca.certificate_pem()),
            "/ping" => return text(StatusCode::OK, "pong".to_owned()),
            "/db/info" => return parts.db_info().await,
            command::PATH => {
                let act = |ask| parts.snapshot(ask);
                return answered(parts.answer(request, false, act).await);
            }
            _ => {}
        }
        if let Some(rest) = path.strip_prefix(distribution.supervisor_prefix()) {
            if rest == "readyz" {
                return text(StatusCode::OK, "ok".to_owned());
            }
            let path = path.to_owned();
            return parts.supervise(&path, request).await;
        }
        request.extensions_mut().insert(peer);
        parts.api.handle(request).await
    }
}

/// Why a request to join is refused.
struct Refusal(StatusCode, String);

impl Parts {
    async fn supervise(&self, path: &str, request: Request<Incoming>) -> Response<Body> {
        let distribution = self.settings.distribution;
        let answer = if path == join::servers_path(distribution) {
            match self.authenticate(request.headers(), true) {
                Ok(()) => Ok(json!(self.servers().await)),
                Err(refusal) => Err(refusal),
            }
        } else if path == join::agent_path(distribution) {
            self.answer(request, true, |request| self.take_agent(request)).await
        } else if path == join::server_path(distribution) {
            self.answer(request, false, |request| self.take_server(request)).await
        } else if path == encryption::command::path(distribution) {
            self.answer(request, false, |message| self.encrypt(message)).await
        } else {
            Err(Refusal(StatusCode::NOT_FOUND, "not found".to_owned()))
        };
        answered(answer)
    }

    async fn snapshot(&self, Message { ask, s3 }: Message) -> Result<serde_json::Value, Refusal> {
        let failed = |error: SnapshotError| {
            let status = match error {
                SnapshotError::Name { .. } => StatusCode::BAD_REQUEST,
                SnapshotError::Missing { .. } => StatusCode::NOT_FOUND,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            Refusal(status, remuda_control::Chain(&error).to_string())
        };
        let snapshots = self.snapshots.as_ref().ok_or_else(|| failed(SnapshotError::NoState))?;
        let s3 = s3.map(S3Snapshots::new);
        let s3 = s3.as_ref();
        Ok(match ask {
            Ask::Save { name } => {
                let Saved { listed, verified, s3_error } = snapshots.save(&name, s3).await.map_err(failed)?;
                let (name, location) = (listed.name, listed.location);
                json!({"name": name, "location": location, "verified": verified, "s3Error": s3_error})
            }
            Ask::List => json!(snapshots.all(s3).await.map_err(failed)?),
            Ask::Delete { names } => {
                snapshots.delete(&names, s3).await.map_err(failed)?;
                json!(names)
            }
            Ask::Prune { retention } => {
                let retention = retention.unwrap_or(snapshots.settings.snapshots.retention);
                json!(snapshots.prune(retention, s3).await.map_err(failed)?)
            }
        })
    }

    async fn encrypt(
        &self,
        message: encryption::command::Message,
    ) -> Result<encryption::server::Status, Refusal> {
        use encryption::{
            command::Ask,
            server::{Status, StepError},
        };
        let failed = |error: StepError| {
            let status = match error.is_refusal() {
                true => StatusCode::BAD_REQUEST,
                false => StatusCode::INTERNAL_SERVER_ERROR,
            };
            Refusal(status, remuda_control::Chain(&error).to_string())
        };
        match (&self.encryption, message.operation) {
            (Some(rotation), Ask::Status) => rotation.status().await.map_err(failed),
            (Some(rotation), step) => {
                rotation.step(step).await.map_err(failed)?;
                rotation.status().await.map_err(failed)
            }
            (None, Ask::Status) => Ok(Status::default()),
            (None, _) => Err(failed(StepError::Off)),
        }
    }

    async fn answer<Q: DeserializeOwned, A: Serialize, F: Future<Output = Result<A, Refusal>>>(
        &self,
        request: Request<Incoming>,
        agent: bool,
        act: impl FnOnce(Q) -> F,
    ) -> Result<serde_json::Value, Refusal> {
        if request.method() != Method::POST {
            return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, "only POST is possible here".to_owned()));
        }
        self.authenticate(request.headers(), agent)?;
        let bad = |reason: String| Refusal(StatusCode::BAD_REQUEST, reason);
        let body = Limited::new(request.into_body(), REQUEST_LIMIT).collect().await;
        let body = body.map_err(|error| bad(error.to_string()))?.to_bytes();
        let request: Q = serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
        let answer = act(request).await?;
        serde_json::to_value(answer)
            .map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    /// The token of servers is good for agents too; the other way round it is not.
    fn authenticate(&self, headers: &HeaderMap, agent: bool) -> Result<(), Refusal> {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let refused =
            || Refusal(StatusCode::UNAUTHORIZED, "the token is not the one of this cluster".to_owned());
        let value =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).ok_or_else(refused)?;
        let decoded = value.strip_prefix("Basic ").and_then(|value| STANDARD.decode(value.trim()).ok());
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(refused)?;
        let (_, password) = decoded.split_once(':').ok_or_else(refused)?;
        let server = token::same(password, &self.server_password);
        let agent = agent && token::same(password, &self.agent_password);
        if server || agent { Ok(()) } else { Err(refused()) }
    }

    async fn take_agent(&self, request: AgentRequest) -> Result<AgentResponse, Refusal> {
        let name = &request.node_name;
        let failed = |error: String| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error);
        self.check_node_password(name, &request.node_password).await?;
        let now = Timestamp::now();
        let user = format!("{}{name}", remuda_auth::identity::NODE_PREFIX);
        let kubelet = self.pki.client(&user, &[remuda_auth::identity::GROUP_NODES], now);
        let kubelet = kubelet.map_err(|error| failed(error.to_string()))?;
        let names = request.addresses.iter().cloned().chain([name.clone()]).take(32).collect();
        let serving = self.pki.serving(name, &names, now).map_err(|error| failed(error.to_string()))?;
        info!(node = name, "agent joined");
        Ok(AgentResponse {
            server_ca: self.pki.server_ca.certificate_pem(),
            client_ca: self.pki.client_ca.certificate_pem(),
            kubelet_cert: kubelet.cert,
            kubelet_key: kubelet.key,
            serving_cert: serving.cert,
            serving_key: serving.key,
            servers: self.servers().await,
        })
    }

    /// A name belongs to whoever joined under it first, until its Node is gone.
    async fn check_node_password(&self, name: &str, password: &str) -> Result<(), Refusal> {
        let failed = |error: kube::Error| Refusal(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
        if password.is_empty() || password.len() > 256 || name.is_empty() || name.len() > 253 {
            return Err(Refusal(StatusCode::BAD_REQUEST, "nodeName and nodePassword are needed".to_owned()));
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "kube-system");
        let nodes: Api<Node> = Api::all(self.client.clone());
        let secret_name = password_secret(&self.settings, name);
        let hash = token::ca_hash(&format!("{name}:{password}"));
        if let Some(known) = secrets.get_opt(&secret_name).await.map_err(failed)? {
            let stored = known.data.as_ref().and_then(|data| data.get("hash"));
            if stored.is_some_and(|stored| token::same(&String::from_utf8_lossy(&stored.0), &hash)) {
                return Ok(());
            }
            if nodes.get_opt(name).await.map_err(failed)?.is_some() {
                return Err(Refusal(
                    StatusCode::FORBIDDEN,
                    format!(
                        "node password rejected: there is a node {name} already, and it had another \
                         /etc/rancher/node/password"
                    ),
                ));
            }
            secrets.delete(&secret_name, &Default::default()).await.map_err(failed)?;
        }
        let secret = Secret {
            metadata: ObjectMeta { name: Some(secret_name), ..ObjectMeta::default() },
            data: Some([("hash".to_owned(), ByteString(hash.into_bytes()))].into()),
            immutable: Some(true),
            ..Secret::default()
        };
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Err(Refusal(StatusCode::CONFLICT, format!("another node joins as {name} at this moment")))
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn take_server(&self, request: ServerRequest) -> Result<ServerResponse, Refusal> {
        let failed = |error: String| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error);
        let datastore = if self.etcd.is_empty() {
            // What comes to the new server's addresses is passed on to this one.
            self.serving.add(request.addresses.into_iter().take(64));
            Datastore::Held {
                holder: self.host.clone(),
                api_port: self.api_port,
                supervisor_port: self.supervisor_port,
            }
        } else {
            let members = Members::new(&self.settings.paths, self.etcd.clone())
                .map_err(|error| failed(error.to_string()))?;
            let listed =
                members.list().await.map_err(|error| failed(remuda_control::Chain(&error).to_string()))?;
            let voting = listed.into_iter().filter(|member| !member.is_learner);
            Datastore::Etcd { endpoints: voting.flat_map(|member| member.client_urls).collect() }
        };
        let files = self.pki.shared().map_err(|error| failed(error.to_string()))?;
        info!(node = request.node_name, "server joins");
        Ok(ServerResponse { files, datastore })
    }

    /// `host:port` of every API, this one first.
    async fn servers(&self) -> Vec<String> {
        let own = crate::address::join(&self.host, self.api_port);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let listed = nodes.list(&ListParams::default()).await;
        let others = match listed {
            Ok(nodes) => nodes.items,
            Err(error) => {
                warn!(%error, "cannot list servers");
                Vec::new()
            }
        };
        let mut servers = vec![own];
        for node in others {
            if let Some(address) = node.annotations().get(names::API)
                && !servers.contains(address)
            {
                servers.push(address.clone());
            }
        }
        servers
    }

    /// As K3s answers it: Rancher looks here for the address of a server without an API.
    async fn db_info(&self) -> Response<Body> {
        let members = if self.etcd.is_empty() {
            let host = match self.host.contains(':') {
                true => format!("[{}]", self.host),
                false => self.host.clone(),
            };
            let ports = self.settings.ports;
            json!([{
                "ID": "1",
                "name": single_member(&self.settings),
                "peerURLs": [format!("https://{host}:{}", ports.etcd_peer)],
                "clientURLs": [format!("https://{host}:{}", ports.etcd_client)],
            }])
        } else {
            let listed = match Members::new(&self.settings.paths, self.etcd.clone()) {
                Ok(members) => members.list().await,
                Err(error) => Err(error),
            };
            let listed = match listed {
                Ok(listed) => listed,
                Err(error) => return text(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            };
            let member = |member: crate::etcd::Member| {
                json!({
                    "ID": member.id.to_string(), "name": member.name,
                    "peerURLs": member.peer_urls, "clientURLs": member.client_urls,
                })
            };
            listed.into_iter().map(member).collect()
        };
        text(StatusCode::OK, json!({"members": members}).to_string())
    }
}

fn answered(answer: Result<serde_json::Value, Refusal>) -> Response<Body> {
    match answer {
        Ok(value) => {
            let mut response = text(StatusCode::OK, value.to_string());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(Refusal(status, reason)) => text(status, reason),
    }
}

/// The only "member" of a control plane whose state one server keeps.
pub fn single_member(settings: &Settings) -> String {
    format!("{}-sandbox", settings.node_name)
}

/// Where the password of a node is kept, under the name K3s gives it.
pub fn password_secret(settings: &Settings, node: &str) -> String {
    format!("{node}.node-password.{}", settings.distribution.name())
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
