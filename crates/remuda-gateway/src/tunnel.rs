//! The WebSocket of agents in clusters.
//!
//! A session is let in by a registration token, which says whose it is, before the connection is upgraded.
//! What the agent uploads with it says how the API of its cluster is reached; it is used through this session
//! only, so a token of one cluster leads into that cluster and nowhere else.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use hyper_util::rt::TokioIo;
use remuda_control::{Chain, ObjectKey};
use remuda_door::Answer;
use remuda_names::gateway::{AGGREGATION_PREFIX, audit_user};
use remuda_tunnel::{
    protocol::Role,
    server::{Identity, PARAMS_HEADER, TOKEN_HEADER},
    websocket::WebSocket,
};
use serde::Deserialize;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::{
    doors,
    gateway::Shared,
    respond::{Body, Refusal},
    route::Access,
    tokens::{Digest, Registration},
};

/// For the client to take the upgrade, as in the original.
const UPGRADE: Duration = Duration::from_secs(5);

/// What an agent sends in a header.
#[derive(Deserialize)]
struct Params {
    cluster: Option<ClusterParams>,
    node: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ClusterParams {
    address: String,
    token: String,
    ca_cert: String,
}

/// Who is let in.
enum Admitted {
    Peer(Identity),
    Agent {
        /// Name of the session.
        key: String,
        secret: ObjectKey,
        digest: Digest,
        access: Option<Arc<Access>>,
    },
}

pub(crate) async fn handle(shared: &Arc<Shared>, peer: SocketAddr, head: Parts) -> Answer {
    let mut request = Request::from_parts(head, ());
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, ()) = request.into_parts();
    let admitted = admit(shared, &head).await.map_err(|refusal| {
        tracing::info!(%peer, code = refusal.code.as_u16(), error = refusal.message, "tunnel refused");
        refusal.in_text()
    })?;
    let accept = websocket_accept(&head).map_err(Refusal::in_text)?;
    let acted = match &admitted {
        Admitted::Peer(_) => doors::agent(audit_user::SERVER, "peer"),
        Admitted::Agent { key, .. } => doors::agent(audit_user::CLUSTER_AGENT, key),
    };
    match admitted {
        Admitted::Peer(identity) => {
            let shared = shared.clone();
            shared.tasks.clone().spawn(async move {
                if let Some(socket) = upgraded(upgrade).await {
                    shared.sessions.tunnel.serve(identity, socket).await;
                }
            });
        }
        Admitted::Agent { key, secret, digest, access } => {
            let stop = shared.stop.child_token();
            let seat = shared.sessions.seat(&key, secret, digest, stop);
            let shared = shared.clone();
            shared.tasks.clone().spawn(async move {
                let Some(socket) = upgraded(upgrade).await else { return };
                let sessions = shared.sessions.clone();
                let serving = sessions.tunnel.serve(Identity::Client(key.clone()), socket);
                tokio::pin!(serving);
                // The session is in the tunnel's table from its first poll on, and only then dialled through.
                let early = futures::poll!(serving.as_mut());
                seat.take(access, shared.ctx.clock.now());
                let stop = seat.stop.clone();
                let end = match early {
                    std::task::Poll::Ready(end) => Chain(&end).to_string(),
                    std::task::Poll::Pending => tokio::select! {
                        end = &mut serving => Chain(&end).to_string(),
                        () = stop.cancelled() => "ended by this server: its token or its cluster is gone, or the \
                                                  server stops".to_owned(),
                    },
                };
                seat.leave(&end, shared.ctx.clock.now());
            });
        }
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.extensions_mut().insert(acted);
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

type Socket = WebSocket<TokioIo<hyper::upgrade::Upgraded>>;

async fn upgraded(upgrade: hyper::upgrade::OnUpgrade) -> Option<Socket> {
    match timeout(UPGRADE, upgrade).await {
        Ok(Ok(io)) => Some(WebSocket::new(TokioIo::new(io), Role::Server)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "upgrade failed");
            None
        }
        Err(_) => None,
    }
}

/// Checks that this is the beginning of a WebSocket, and tells how to answer.
fn websocket_accept(head: &Parts) -> Result<HeaderValue, Refusal> {
    let has = |name: HeaderName, word: &str| {
        let values = head.headers.get_all(name);
        let mut words =
            values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    let version = head.headers.get(header::SEC_WEBSOCKET_VERSION);
    let key = head.headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| key.len() == 24);
    let is_websocket = head.method == http::Method::GET
        && has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && version.is_some_and(|version| version == "13");
    match key.filter(|_| is_websocket) {
        Some(key) => HeaderValue::try_from(derive_accept_key(key.as_bytes()))
            .map_err(|_| Refusal::bad("Sec-WebSocket-Key is no key")),
        None => Err(Refusal::bad("a WebSocket of version 13 over HTTP/1.1 is expected here")),
    }
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok().filter(|value| !value.is_empty())?;
    values.next().is_none().then_some(value)
}

async fn admit(shared: &Shared, head: &Parts) -> Result<Admitted, Refusal> {
    let headers = &head.headers;
    if let Some(identity) = shared.sessions.tunnel.authenticate_peer(headers) {
        return Ok(Admitted::Peer(identity));
    }
    if !shared.is_ready() {
        return Err(Refusal::not_yet("this server has just started and is not ready yet"));
    }
    let bearer = one(headers, header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    if let Some(token) = one(headers, TOKEN_HEADER) {
        let Registration { cluster, secret, digest, .. } = registration(shared, token).await?;
        let access = uploaded(headers).and_then(|access| room(shared, &cluster).map(|()| access));
        let access = access.inspect_err(|refusal| {
            shared.sessions.refused(&cluster, &refusal.message, shared.ctx.clock.now());
        })?;
        return Ok(Admitted::Agent { key: cluster, secret, digest, access: Some(Arc::new(access)) });
    }
    if let Some(token) = bearer.and_then(|bearer| bearer.strip_prefix(AGGREGATION_PREFIX)) {
        let Registration { cluster, secret, digest, .. } = registration(shared, token).await?;
        let key = format!("{AGGREGATION_PREFIX}{cluster}");
        room(shared, &key)?;
        return Ok(Admitted::Agent { key, secret, digest, access: None });
    }
    Err(Refusal::unauthorized("failed authentication"))
}

/// A cluster that is connected must not be lost because its token was not renewed in time, so a token whose
/// time is over is good here until another has taken its place.
async fn registration(shared: &Shared, token: &str) -> Result<Registration, Refusal> {
    let found = shared.tokens.registration(token, shared.ctx.clock.now()).await?;
    let found =
        found.ok_or_else(|| Refusal::bad("cluster not found: the registration token is not known"))?;
    match shared.cluster(&found.cluster) {
        Some(cluster) if cluster.metadata.deletion_timestamp.is_none() => Ok(found),
        Some(_) => Err(Refusal::bad(format!("cluster {} is being deleted", found.cluster))),
        None => Err(Refusal::bad("cluster not found")),
    }
}

fn room(shared: &Shared, key: &str) -> Result<(), Refusal> {
    if shared.sessions.has_room(key) {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, format!("{key} has too many sessions")))
}

/// How the agent says its cluster is reached.
fn uploaded(headers: &HeaderMap) -> Result<Access, Refusal> {
    let invalid = |what: &str| Refusal::bad(format!("invalid input, {what}"));
    let params = one(headers, PARAMS_HEADER).ok_or_else(|| invalid("parameters empty"))?;
    let params = BASE64_STANDARD.decode(params).map_err(|_| invalid("parameters are not base64"))?;
    let params: Params = serde_json::from_slice(&params).map_err(|_| invalid("parameters are not JSON"))?;
    let Some(cluster) = params.cluster else {
        let what = if params.node.is_some() {
            "agents of single nodes are not served here"
        } else {
            "node and cluster empty"
        };
        return Err(invalid(what));
    };
    for (name, value) in
        [("address", &cluster.address), ("token", &cluster.token), ("caCert", &cluster.ca_cert)]
    {
        if value.is_empty() {
            return Err(invalid(&format!("{name} empty")));
        }
    }
    let ca = BASE64_STANDARD.decode(&cluster.ca_cert).ok().and_then(|pem| String::from_utf8(pem).ok());
    let ca = ca.ok_or_else(|| invalid("caCert is not base64 of PEM"))?;
    Access::new(&cluster.address, ca, cluster.token).map_err(|what| invalid(&what))
}

#[cfg(test)]
mod fuzz;
