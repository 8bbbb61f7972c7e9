//! Joining: what a new node asks a server for, and what it gets.
//!
//! The server's authority is fetched first and held against the hash in the token, if the token has
//! one; credentials are sent only to whoever proves to be that server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    distribution::Distribution,
    http::{HttpError, Peer},
    tls::{self, TlsError},
    token::{Token, TokenError},
};

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("use the token")]
    Token(#[from] TokenError),
    #[error("{server} has another certificate authority than the token was made for")]
    OtherAuthority { server: String },
    #[error("join {server}")]
    Http { server: String, source: HttpError },
    #[error("use the certificate authority of {server}")]
    Tls { server: String, source: TlsError },
    #[error("{server} answered something that makes no sense")]
    Nonsense { server: String },
}

impl JoinError {
    /// Whether trying again is of no use.
    pub fn is_final(&self) -> bool {
        match self {
            JoinError::Token(_) => true,
            // The server may be on its way to what the token says.
            JoinError::OtherAuthority { .. } | JoinError::Tls { .. } | JoinError::Nonsense { .. } => false,
            JoinError::Http { source, .. } => source.is_refusal(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentRequest {
    pub node_name: String,
    pub node_password: String,
    pub addresses: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentResponse {
    pub server_ca: String,
    pub client_ca: String,
    pub kubelet_cert: String,
    pub kubelet_key: String,
    pub serving_cert: String,
    pub serving_key: String,
    /// `host:port` of every API.
    pub servers: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerRequest {
    pub node_name: String,
    /// By these the new server will be reached.
    pub addresses: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerResponse {
    /// Below `server/`.
    pub files: BTreeMap<String, String>,
    pub datastore: Datastore,
}

/// Where a cluster keeps its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Datastore {
    /// In an etcd of several members. Their client URLs.
    #[serde(rename_all = "camelCase")]
    Etcd { endpoints: Vec<String> },
    /// In one server's own store. The ports of its API and its supervisor.
    #[serde(rename_all = "camelCase")]
    Held { holder: String, api_port: u16, supervisor_port: u16 },
}

pub fn agent_path(distribution: Distribution) -> String {
    format!("{}sandbox/agent", distribution.supervisor_prefix())
}

pub fn server_path(distribution: Distribution) -> String {
    format!("{}sandbox/server", distribution.supervisor_prefix())
}

pub fn servers_path(distribution: Distribution) -> String {
    format!("{}apiservers", distribution.supervisor_prefix())
}

/// A server whose authority is known.
pub struct Server {
    pub url: String,
    pub ca: String,
    peer: Peer,
}

impl Server {
    /// Fetches the server's authority and checks it. `user` is who we are, unless the token says.
    pub async fn trust(url: &str, token: &str, user: &str) -> Result<Server, JoinError> {
        let token = Token::parse(token)?;
        let url = url.trim_end_matches('/').to_owned();
        let failed = |source| JoinError::Http { server: url.clone(), source };
        let unusable = |source| JoinError::Tls { server: url.clone(), source };
        let anybody = Peer { tls: Some(tls::client_config(None, None).map_err(unusable)?), basic: None };
        let ca = anybody.get(&format!("{url}/cacerts")).await.map_err(failed)?;
        let ca = String::from_utf8(ca.to_vec()).map_err(|_| JoinError::Nonsense { server: url.clone() })?;
        if !token.trusts(&ca) {
            return Err(JoinError::OtherAuthority { server: url });
        }
        let tls = Some(tls::client_config(Some(&ca), None).map_err(unusable)?);
        let user = token.user.as_deref().unwrap_or(user);
        let peer = Peer { tls, basic: Some(format!("{user}:{}", token.password)) };
        Ok(Server { url, ca, peer })
    }

    pub async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, JoinError> {
        let nonsense = |_| JoinError::Nonsense { server: self.url.clone() };
        let request = serde_json::to_value(request).map_err(nonsense)?;
        let answer = self.peer.post(&format!("{}{path}", self.url), &request).await;
        let answer = answer.map_err(|source| JoinError::Http { server: self.url.clone(), source })?;
        serde_json::from_value(answer).map_err(nonsense)
    }
}
