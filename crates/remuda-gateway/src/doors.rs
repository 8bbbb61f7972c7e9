//! The doors of the gateway: which paths lead to it, and on which terms.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::Uri;
use remuda_auth::identity::User;
use remuda_door::{
    ANY_METHOD, Access, Acted, Answer, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown,
};
use remuda_names::{gateway::path, path as own};

use crate::{Gateway, assets, gateway::Shared, import, programs, proxy, register, tunnel};

const READ: &[&str] = &["GET", "HEAD"];

pub static TUNNEL: Door = Door {
    name: "tunnel",
    purpose: "the WebSocket of agents in clusters and of other servers",
    paths: &[Owned::Exact(path::CONNECT), Owned::Exact(path::CONNECT_REGISTER)],
    methods: &["GET"],
    access: Access::Credential("a cluster's registration token, or another server"),
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: true,
};

pub static REGISTER: Door = Door {
    name: "registration",
    purpose: "a machine registers and is told where its plan is",
    paths: &[
        Owned::Exact(path::CONNECT_AGENT),
        Owned::Exact(path::CONNECT_CONFIG),
        Owned::Exact(path::CONNECT_CLUSTER_INFO),
    ],
    methods: &["GET", "POST"],
    access: Access::Credential("a machine's or a cluster's registration token"),
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: true,
};

pub static AGENT_IMAGE: Door = Door {
    name: "cluster-agent-image",
    purpose: "the image of the cluster agent, for machines that import it",
    paths: &[Owned::Exact(path::AGENT_IMAGE)],
    methods: &["GET"],
    access: Access::Credential("the token of a machine's plan"),
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: true,
};

pub static REGISTRY: Door = Door {
    name: "registry",
    purpose: "images for machines, of bundles and mirrored registries: the OCI distribution API",
    paths: &[Owned::Tree(path::REGISTRY)],
    methods: READ,
    access: Access::Credential("the token of a machine's plan"),
    cookie: Cookie::Never,
    shown: Shown::Query,
    body: 0,
    personal: true,
};

pub static IMPORT: Door = Door {
    name: "import",
    purpose: "the manifest of the agent in a cluster",
    paths: &[Owned::Below(path::IMPORT)],
    methods: READ,
    access: Access::Credential("a cluster's registration token, in the path"),
    cookie: Cookie::Never,
    shown: Shown::Masked(without_token),
    body: 0,
    personal: true,
};

pub static ASSETS: Door = Door {
    name: "assets",
    purpose: "certificates, scripts and the agent, for machines that are not registered yet",
    paths: &[
        Owned::Exact(path::PING),
        Owned::Exact(path::CACERTS),
        Owned::Exact(path::CACERTS_SETTING),
        Owned::Exact(path::INSTALL_SCRIPT),
        Owned::Exact(path::UNINSTALL_SCRIPT),
        Owned::Exact(path::WINDOWS_SCRIPT),
        Owned::Below(path::ASSETS),
    ],
    methods: READ,
    access: Access::Anonymous,
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: false,
};

pub static PROGRAMS: Door = Door {
    name: "programs",
    purpose: "programs for machines of other architectures: a list, and another one",
    paths: &[Owned::Exact(own::ASSETS)],
    methods: &["GET", "POST"],
    access: Access::Permission,
    cookie: Cookie::Never,
    shown: Shown::Query,
    body: programs::LARGEST,
    personal: true,
};

pub static CLUSTERS: Door = Door {
    name: "clusters",
    purpose: "the APIs of clusters; each decides what its callers may",
    paths: &[Owned::Below(path::CLUSTERS), Owned::Below(path::CLUSTERS_PROXY)],
    methods: ANY_METHOD,
    access: Access::Authenticated,
    cookie: Cookie::Fetch,
    shown: Shown::Query,
    body: usize::MAX,
    personal: true,
};

/// All doors of a gateway.
pub static ALL: [&Door; 8] =
    [&TUNNEL, &REGISTER, &AGENT_IMAGE, &REGISTRY, &IMPORT, &ASSETS, &PROGRAMS, &CLUSTERS];

/// A token of a cluster is in the path: whoever reads the audit log must not be able to register with it.
fn without_token(path: &str) -> String {
    match path.strip_prefix(path::IMPORT).and_then(|name| name.split_once('_')) {
        Some((_, cluster)) => format!("{}***_{cluster}", path::IMPORT),
        None => format!("{}***", path::IMPORT),
    }
}

/// An agent, for the audit log: it is no user of the API.
pub(crate) fn agent(prefix: &str, name: &str) -> Acted {
    Acted { by: Some(User::new(format!("{prefix}{name}"), Vec::<String>::new())), as_user: None }
}

/// The cluster a path leads to, and the path there; `None` for paths that lead to no cluster.
pub fn cluster_of(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(path::CLUSTERS).or_else(|| path.strip_prefix(path::CLUSTERS_PROXY))?;
    match rest.find('/') {
        Some(at) => Some((&rest[..at], &rest[at..])),
        None => Some((rest, "/")),
    }
}

/// The URI in the API of the cluster itself; `None` for paths that lead to no cluster.
pub fn uri_in_cluster(uri: &Uri) -> Option<Uri> {
    let (_, rest) = cluster_of(uri.path())?;
    let path = uri.query().map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

impl Gateway {
    /// The doors with what is behind them.
    pub fn openings(&self) -> Vec<Opening> {
        ALL.iter().map(|door| Opening { door, handler: Arc::new(Behind(self.0.clone())) }).collect()
    }
}

struct Behind(Arc<Shared>);

impl Handler for Behind {
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer> {
        let shared = &self.0;
        match call.door.name {
            name if name == CLUSTERS.name => Box::pin(proxy::handle(shared, call, body)),
            name if name == TUNNEL.name => Box::pin(tunnel::handle(shared, call.peer, call.head)),
            name if name == REGISTER.name => {
                Box::pin(async move { register::handle(shared, call.peer, &call.head).await })
            }
            name if name == AGENT_IMAGE.name => {
                Box::pin(async move { text(register::image::handle(shared, &call.head).await) })
            }
            name if name == REGISTRY.name => {
                Box::pin(async move { register::registry::handle(shared, &call.head).await })
            }
            name if name == IMPORT.name => {
                Box::pin(async move { text(import::handle(shared, &call.head).await) })
            }
            name if name == PROGRAMS.name => Box::pin(async move {
                let (method, query) = (&call.head.method, call.head.uri.query());
                shared.assets.programs(method, query, body).await
            }),
            _ => Box::pin(async move { text(assets::handle(shared, &call.head).await) }),
        }
    }
}

/// Machines print what they are told.
fn text(answer: Answer) -> Answer {
    answer.map_err(Refusal::in_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stay_out_of_the_audit_log() {
        assert_eq!(without_token("/v3/import/secret_c-1.yaml"), "/v3/import/***_c-1.yaml");
        assert_eq!(without_token("/v3/import/secret.yaml"), "/v3/import/***");
    }

    #[test]
    fn a_path_leads_to_one_cluster() {
        assert_eq!(cluster_of("/k8s/clusters/c-1/api/v1"), Some(("c-1", "/api/v1")));
        assert_eq!(cluster_of("/k8s/proxy/c-1"), Some(("c-1", "/")));
        assert_eq!(cluster_of("/api/v1"), None);
        let there = |uri: &str| uri_in_cluster(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(there("/k8s/clusters/local/api/v1/pods?watch=1").as_deref(), Some("/api/v1/pods?watch=1"));
        assert_eq!(there("https://h/k8s/clusters/local").as_deref(), Some("https://h/"));
        assert_eq!(there("/api"), None);
    }
}
