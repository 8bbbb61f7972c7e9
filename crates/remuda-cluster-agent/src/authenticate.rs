//! The authenticator of a cluster with an authorized endpoint: `remuda kube-api-auth`.
//!
//! Runs on every node with an API, as the DaemonSet of that name, and listens on the node's own loopback. The API
//! asks it who somebody with a token is, in a TokenReview; it answers from what the server has written into the
//! cluster, so that people get in while the server is away. Of a token the cluster has no more than a hash.
//!
//! A token that is not good is answered with 401, which the API does not remember: one that was made a moment ago is
//! good as soon as the cluster knows it. How long the API remembers good ones is its own setting.

mod lookup;
mod review;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use remuda_agent::{Chain, environment::Environment, run::watch_signals};
use remuda_names::endpoint;
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    lookup::Lookup,
    review::{Refused, Shown, answer, decide},
};
use crate::{
    config::{self, ConfigError},
    listen::{self, Limits},
};

/// The API of one node asks, over few connections. All of them are closed from time to time.
const LIMITS: Limits = Limits {
    connections: 64,
    headers: Duration::from_secs(10),
    connection: Duration::from_secs(600),
    buffer: 16 << 10,
    keep_alive: true,
};
/// For the body of a request.
const BODY: Duration = Duration::from_secs(30);
/// A TokenReview is a token and little else.
const LARGEST: usize = 64 << 10;

/// Where the cluster's API is, and the account to ask it with.
#[derive(Debug, Clone)]
pub struct Authenticator {
    /// Directory below which mounted files are.
    pub root: PathBuf,
    /// Address and port of the cluster's API.
    pub api: String,
}

/// Why the authenticator ends other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticatorError {
    /// It cannot know whom to ask.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Somebody else listens there.
    #[error("listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// It has nothing to run on.
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
}

impl Authenticator {
    /// Reads the environment of a pod.
    pub fn from_env(environment: &Environment) -> Result<Authenticator, ConfigError> {
        Ok(Authenticator { root: config::root(environment), api: config::api(environment)? })
    }

    /// Runs on a runtime of its own until SIGINT or SIGTERM.
    pub fn run(self) -> Result<(), AuthenticatorError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .map_err(AuthenticatorError::Runtime)?;
        let ended = runtime.block_on(async {
            let stop = CancellationToken::new();
            let mut signals = JoinSet::new();
            signals.spawn(watch_signals(stop.clone()));
            self.serve(open().await?, stop).await;
            Ok(())
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended
    }

    /// Answers on these listeners until `stop`.
    pub async fn serve(self, listeners: Vec<TcpListener>, stop: CancellationToken) {
        tracing::info!(api = self.api, "authenticator starts");
        let lookup = Arc::new(Lookup::new(self.root, self.api));
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let (lookup, background) = (lookup.clone(), TaskTracker::new());
            tasks.spawn(listen::serve(listener, LIMITS, stop.clone(), move |request| {
                handle(lookup.clone(), background.clone(), request)
            }));
        }
        while tasks.join_next().await.is_some() {}
        tracing::info!("authenticator stopped");
    }
}

/// On both loopbacks: which of them the API asks depends on the cluster's network.
async fn open() -> Result<Vec<TcpListener>, AuthenticatorError> {
    let first = SocketAddr::from((Ipv4Addr::LOCALHOST, endpoint::PORT));
    let second = SocketAddr::from((Ipv6Addr::LOCALHOST, endpoint::PORT));
    match (TcpListener::bind(first).await, TcpListener::bind(second).await) {
        (Err(source), Err(_)) => Err(AuthenticatorError::Listen { address: first, source }),
        (first, second) => Ok([first, second].into_iter().flatten().collect()),
    }
}

async fn handle(
    lookup: Arc<Lookup>,
    background: TaskTracker,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let is = |method: Method, path: &str| *request.method() == method && request.uri().path() == path;
    if is(Method::GET, endpoint::HEALTH_PATH) {
        return respond(StatusCode::OK, String::new());
    }
    if !is(Method::POST, endpoint::PATH) {
        return respond(StatusCode::NOT_FOUND, String::new());
    }
    let reading = Limited::new(request.into_body(), LARGEST).collect();
    let Ok(Ok(body)) = timeout(BODY, reading).await else {
        return respond(StatusCode::BAD_REQUEST, String::new());
    };
    let Some(Shown { version, token }) = Shown::read(&body.to_bytes()) else {
        tracing::warn!("a request is no TokenReview");
        return respond(StatusCode::BAD_REQUEST, String::new());
    };
    let Some((name, key)) = token else {
        return refused(&version, "", &Refused::Form);
    };
    let known = match lookup.known(&name).await {
        Ok(Some(known)) => known,
        Ok(None) => return refused(&version, &name, &Refused::Unknown),
        Err(error) => {
            tracing::warn!(token = name, error = %Chain(&error), "whether a token is good cannot be found out");
            // The API tries again.
            return respond(StatusCode::INTERNAL_SERVER_ERROR, String::new());
        }
    };
    let now = Timestamp::now();
    let person = match decide(&known, &key, now) {
        Ok(person) => person,
        Err(why) => return refused(&version, &name, &why),
    };
    tracing::debug!(token = name, user = person.name, "a token is good");
    if person.first_in_a_while && background.len() < LIMITS.connections {
        background.spawn(async move {
            if let Err(error) = lookup.touch(&name, now).await {
                tracing::debug!(token = name, error = %Chain(&error), "the use of a token is not written");
            }
        });
    }
    respond(StatusCode::OK, answer(&version, Some(&person)).to_string())
}

fn refused(version: &str, name: &str, why: &Refused) -> Response<Full<Bytes>> {
    tracing::info!(token = name, reason = %why, "a token is refused");
    respond(StatusCode::UNAUTHORIZED, answer(version, None).to_string())
}

fn respond(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
