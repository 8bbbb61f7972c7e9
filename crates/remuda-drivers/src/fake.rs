//! Fakes of cloud APIs, on a loopback port, for tests.
//!
//! A fake keeps real state, checks credentials as the original does, and can be told to fail, to throttle, to
//! be slow, and to do the work but lose the answer. `resources` lists what would be on the bill.

pub mod amazonec2;
pub mod azure;
pub mod digitalocean;
pub mod google;
pub mod hetzner;
pub mod proxmoxve;
pub mod ssh;

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// What happens to one call instead of the ordinary.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The work is done, then the connection breaks.
    LoseAnswer,
    /// The connection breaks before anything is done.
    LoseRequest,
    /// The work is done and the answer never comes.
    Hang,
    /// Answered with this status and error code, nothing done.
    Fail(u16, &'static str),
    /// Rate limit, with this in `Retry-After`.
    Throttle(&'static str),
}

/// A request as a fake sees it.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: BTreeMap<String, String>,
    pub body: Bytes,
}

/// An answer of a fake.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }
}

/// The behaviour of an API.
pub trait Api: Send + Sync + 'static {
    fn handle(&self, call: &Call) -> Reply;
    /// An error of the API's own shape.
    fn error(&self, status: u16, code: &str) -> Reply;
}

/// Runs real machines for the servers of a fake. What it is asked for may be asked for again.
pub trait Hosts: Send + Sync {
    /// Starts a machine that runs the user data, and says at which address.
    fn boot(&self, id: &str, name: &str, user_data: &str) -> Result<String, String>;
    /// Ends a machine.
    fn end(&self, id: &str) -> Result<(), String>;
}

/// A running fake. Dropping it stops it.
pub struct Fake<A> {
    pub api: Arc<A>,
    address: SocketAddr,
    controls: Arc<Controls>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Controls {
    calls: Mutex<Vec<String>>,
    faults: Mutex<BTreeMap<usize, Fault>>,
    latency: Mutex<Duration>,
    hanging: watch::Sender<usize>,
}

impl<A: Api> Fake<A> {
    pub async fn start(api: A) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (api, controls) = (Arc::new(api), Arc::new(Controls::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, api.clone(), controls.clone()));
        Ok(Self { api, address, controls, _tasks: tasks })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `host:port`.
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// Every call so far, as `METHOD path` or the action's name.
    pub fn calls(&self) -> Vec<String> {
        self.controls.calls.lock().clone()
    }

    /// Lets call number `index` (from 0, over the fake's whole life) go wrong.
    pub fn fault(&self, index: usize, fault: Fault) {
        self.controls.faults.lock().insert(index, fault);
    }

    /// Every answer takes this long.
    pub fn latency(&self, latency: Duration) {
        *self.controls.latency.lock() = latency;
    }

    /// Waits until a call hangs.
    pub async fn hanging(&self) {
        self.hangs(1).await;
    }

    /// Waits until so many calls have hung, over the fake's whole life.
    pub async fn hangs(&self, calls: usize) {
        let mut hanging = self.controls.hanging.subscribe();
        let _ = hanging.wait_for(|count| *count >= calls).await;
    }
}

async fn accept<A: Api>(listener: TcpListener, api: Arc<A>, controls: Arc<Controls>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (api, controls) = (api.clone(), controls.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, api.clone(), controls.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the fake breaks the connection")]
struct Broken;

async fn answer<A: Api>(
    request: hyper::Request<Incoming>,
    api: Arc<A>,
    controls: Arc<Controls>,
) -> Result<hyper::Response<Full<Bytes>>, Broken> {
    let (parts, body) = request.into_parts();
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let call = Call {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers,
        body: body.collect().await.map_err(|_| Broken)?.to_bytes(),
    };
    let index = {
        let mut calls = controls.calls.lock();
        calls.push(describe(&call));
        calls.len() - 1
    };
    let latency = *controls.latency.lock();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let fault = controls.faults.lock().remove(&index);
    let reply = match fault {
        None => api.handle(&call),
        Some(Fault::LoseRequest) => return Err(Broken),
        Some(Fault::LoseAnswer) => {
            api.handle(&call);
            return Err(Broken);
        }
        Some(Fault::Hang) => {
            api.handle(&call);
            controls.hanging.send_modify(|count| *count += 1);
            std::future::pending::<Infallible>().await;
            return Err(Broken);
        }
        Some(Fault::Fail(status, code)) => api.error(status, code),
        Some(Fault::Throttle(after)) => {
            let mut reply = api.error(429, "RequestLimitExceeded");
            reply.headers.push(("retry-after", after.to_owned()));
            reply
        }
    };
    let mut response = hyper::Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(reply.body)).map_err(|_| Broken)
}

fn describe(call: &Call) -> String {
    let form = String::from_utf8_lossy(&call.body);
    match form.split('&').find_map(|pair| pair.strip_prefix("Action=")) {
        Some(action) => action.to_owned(),
        None => format!("{} {}", call.method, call.path),
    }
}

/// The pairs of a query or form, decoded.
pub(crate) fn pairs(text: &str) -> BTreeMap<String, String> {
    let decode = |part: &str| {
        let part = part.replace('+', " ");
        percent_encoding::percent_decode_str(&part).decode_utf8_lossy().into_owned()
    };
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}
