//! What a kubelet answers: logs of its containers, commands in them, ports of its Pods.
//!
//! Only the API server of the cluster is answered, which it shows by its certificate; who may do what was
//! judged there.

use std::{net::IpAddr, sync::Arc};

use futures::StreamExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{
    body::Incoming,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use percent_encoding::percent_decode_str;
use remuda_apiserver::{Body, PeerCertificate};
use remuda_control::{Informer, ObjectKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::{
    Shared, channels, forward,
    live::Instance,
    log::{
        self, Stream,
        read::{Reader, Wanted},
    },
    over_spdy,
    process::{Process, Start},
    remote::{self, Output},
};
use crate::{
    listen::{Handler, Remote},
    pki, spdy,
    tls::Clients,
};

/// Answers of a kubelet.
#[derive(Clone)]
pub struct Endpoint(Arc<Parts>);

struct Parts {
    shared: Arc<Shared>,
    pods: Informer<Pod>,
    clients: Arc<Clients>,
    tasks: TaskTracker,
    places: Arc<Semaphore>,
}

/// Streams of all clients at once.
const MOST: usize = 256;

const STREAM_PROTOCOL: &str = "x-stream-protocol-version";

/// Why something is not answered.
struct Refusal(StatusCode, String);

fn refuse<T>(code: StatusCode, why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(code, why.into()))
}

impl Endpoint {
    pub fn new(
        shared: Arc<Shared>,
        pods: Informer<Pod>,
        clients: Arc<Clients>,
        tasks: TaskTracker,
    ) -> Endpoint {
        Endpoint(Arc::new(Parts { shared, pods, clients, tasks, places: Arc::new(Semaphore::new(MOST)) }))
    }
}

impl Handler for Endpoint {
    type Peer = PeerCertificate;

    fn reached(&self, _: IpAddr) {}

    fn connect(&self, remote: Remote<'_>) -> PeerCertificate {
        self.0.clients.judge(remote.certificates)
    }

    async fn handle(&self, peer: PeerCertificate, request: Request<Incoming>) -> Response<Body> {
        let answer = match peer {
            PeerCertificate::Verified(user) if user.name == pki::API_SERVER => self.0.answer(request).await,
            PeerCertificate::Verified(user) => {
                refuse(StatusCode::FORBIDDEN, format!("{} is not the API server", user.name))
            }
            _ => refuse(StatusCode::UNAUTHORIZED, "Unauthorized"),
        };
        answer.unwrap_or_else(|Refusal(code, why)| {
            let mut response = Response::new(Body::from(why));
            *response.status_mut() = code;
            response
        })
    }
}

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    Log { pod: ObjectKey, container: &'a str },
    Exec { pod: ObjectKey, container: &'a str },
    Attach { pod: ObjectKey, container: &'a str },
    Ports { pod: ObjectKey },
}

impl Asked<'_> {
    fn parse(path: &str) -> Option<Asked<'_>> {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let pod = |namespace: &str, name: &str| ObjectKey::namespaced(namespace, name);
        Some(match segments.as_slice() {
            ["containerLogs", ns, name, container] => Asked::Log { pod: pod(ns, name), container },
            ["exec", ns, name, container] => Asked::Exec { pod: pod(ns, name), container },
            ["attach", ns, name, container] => Asked::Attach { pod: pod(ns, name), container },
            ["portForward", ns, name] => Asked::Ports { pod: pod(ns, name) },
            _ => return None,
        })
    }
}

/// Decoded pairs of a query.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(query: Option<&str>) -> Query {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let split = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Query(pairs.map(split).collect())
    }

    fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn flag(&self, key: &str) -> bool {
        self.all(key).next().is_some_and(|value| matches!(value, "1" | "true"))
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.all(key).next() else { return Ok(None) };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => refuse(StatusCode::BAD_REQUEST, format!("{key} is not a number: {value:?}")),
        }
    }

    fn log(&self, now: Timestamp) -> Result<Wanted, Refusal> {
        let since = match (self.number::<i64>("sinceSeconds")?, self.all("sinceTime").next()) {
            (Some(seconds), _) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
            (None, Some(time)) => match time.parse() {
                Ok(time) => Some(time),
                Err(_) => {
                    return refuse(StatusCode::BAD_REQUEST, format!("sinceTime is not a time: {time:?}"));
                }
            },
            (None, None) => None,
        };
        Ok(Wanted {
            follow: self.flag("follow"),
            previous: self.flag("previous"),
            timestamps: self.flag("timestamps"),
            tail: self.number("tailLines")?,
            since,
            limit: self.number("limitBytes")?,
            stream: match self.all("stream").next() {
                Some("Stdout") => Some(Stream::Out),
                Some("Stderr") => Some(Stream::Err),
                _ => None,
            },
        })
    }

    fn streams(&self) -> Result<over_spdy::Wanted, Refusal> {
        let wanted = over_spdy::Wanted {
            stdin: self.flag("input"),
            stdout: self.flag("output"),
            stderr: self.flag("error"),
            terminal: self.flag("tty"),
        };
        if !(wanted.stdin || wanted.stdout || wanted.stderr) {
            return refuse(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
        }
        Ok(wanted)
    }
}

impl Parts {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let path = request.uri().path().to_owned();
        let query = Query::parse(request.uri().query());
        let Some(asked) = Asked::parse(&path) else { return refuse(StatusCode::NOT_FOUND, "not found") };
        match asked {
            _ if !matches!(*request.method(), Method::GET | Method::POST) => {
                refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST are possible here")
            }
            Asked::Log { pod, container } => self.log(&pod, container, &query),
            Asked::Exec { pod, container } => self.exec(&pod, container, &query, request),
            Asked::Attach { pod, container } => self.attach(&pod, container, &query, request),
            Asked::Ports { pod } => self.forward(&pod, &query, request),
        }
    }

    fn pod(&self, key: &ObjectKey) -> Result<Arc<Pod>, Refusal> {
        match self.pods.get(key) {
            Some(pod) => Ok(pod),
            None => refuse(StatusCode::NOT_FOUND, format!("pod {key} is not on this node")),
        }
    }

    fn running(&self, key: &ObjectKey, container: &str) -> Result<Arc<Instance>, Refusal> {
        let pod = self.pod(key)?;
        match self.shared.live.get(&pod.uid().unwrap_or_default(), container) {
            Some(instance) => Ok(instance),
            None => refuse(
                StatusCode::BAD_REQUEST,
                format!("container {container:?} in pod {:?} is not running", pod.name_any()),
            ),
        }
    }

    fn log(&self, key: &ObjectKey, container: &str, query: &Query) -> Result<Response<Body>, Refusal> {
        let pod = self.pod(key)?;
        let uid = pod.uid().unwrap_or_default();
        let wanted = query.log(self.shared.ctx.clock.now())?;
        // Before the log is opened: what is said in between must not be missed.
        let changes = match wanted.previous {
            false => self.shared.live.get(&uid, container).map(|instance| instance.log.changes()),
            true => None,
        };
        let name = pod.name_any();
        let known = container_names(&pod).any(|known| known == container);
        if !known {
            return refuse(StatusCode::NOT_FOUND, format!("container {container:?} is not in pod {name:?}"));
        }
        let dir = log::directory(&self.shared.kubelet.settings.paths.pods().join(uid), container);
        let previous = wanted.previous;
        let reader = match Reader::open(&dir, wanted) {
            Ok(Some(reader)) => reader,
            Ok(None) if previous => {
                let why = format!("previous terminated container {container:?} in pod {name:?} not found");
                return refuse(StatusCode::BAD_REQUEST, why);
            }
            Ok(None) => {
                let why = format!(
                    "container {container:?} in pod {name:?} is waiting to start{}",
                    waiting(&pod, container).map(|reason| format!(": {reason}")).unwrap_or_default()
                );
                return refuse(StatusCode::BAD_REQUEST, why);
            }
            Err(error) => return refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("read the log: {error}")),
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Err(full()) };
        let stop = self.shared.stop.clone().cancelled_owned();
        let pieces = reader.pieces(changes).take_until(Box::pin(stop));
        let pieces = pieces.map(move |piece| {
            let _held = &place;
            piece
        });
        let mut response = Response::new(Body::Stream(pieces.boxed()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    fn exec(
        self: &Arc<Self>,
        key: &ObjectKey,
        container: &str,
        query: &Query,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let instance = self.running(key, container)?;
        let command: Vec<String> = query.all("command").map(str::to_owned).collect();
        let streams = query.streams()?;
        if command.first().is_none_or(String::is_empty) {
            return refuse(StatusCode::BAD_REQUEST, "you must specify a command");
        }
        let way = Way::of(&request, &[channels::V5, channels::V4], over_spdy::COMMANDS)?;
        let (pod, parts) = (key.to_string(), self.clone());
        self.upgraded(request, way, move |io, way| async move {
            let stop = parts.shared.stop.clone();
            let (session, transport) = remote::session();
            let work = async {
                let launcher = parts.shared.kubelet.settings.launcher.as_deref();
                let start = Start {
                    program: command[0].as_str().into(),
                    args: &command[1..],
                    env: Some(&instance.env),
                    mounts: &[],
                    dir: instance.dir.as_deref(),
                    launcher,
                    beside: instance.pid,
                    stdin: streams.stdin,
                    terminal: streams.terminal,
                };
                match Process::start(&start) {
                    Ok((process, ends)) => {
                        info!(pod, pid = process.id(), "command started in a container");
                        remote::exec(process, ends, session, stop).await;
                    }
                    Err(error) => {
                        let why = format!("error executing command in container: {}: {error}", command[0]);
                        let _ = session.outputs.send(Output::Status(remote::failure(&why))).await;
                    }
                }
            };
            tokio::join!(work, carry(io, way, streams, transport));
        })
    }

    fn attach(
        self: &Arc<Self>,
        key: &ObjectKey,
        container: &str,
        query: &Query,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let instance = self.running(key, container)?;
        let streams = query.streams()?;
        let way = Way::of(&request, &[channels::V5, channels::V4], over_spdy::COMMANDS)?;
        let parts = self.clone();
        self.upgraded(request, way, move |io, way| async move {
            let (session, transport) = remote::session();
            let work = remote::attach(instance, session, parts.shared.stop.clone());
            tokio::join!(work, carry(io, way, streams, transport));
        })
    }

    fn forward(
        self: &Arc<Self>,
        key: &ObjectKey,
        query: &Query,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let pod = self.pod(key)?;
        let uid = pod.uid().unwrap_or_default();
        if !container_names(&pod).any(|container| self.shared.live.get(&uid, container).is_some()) {
            let why = format!("unable to forward port because pod {:?} is not running", pod.name_any());
            return refuse(StatusCode::BAD_REQUEST, why);
        }
        let mut ports = Vec::new();
        for port in query.all("port") {
            match port.parse::<u16>() {
                Ok(port @ 1..) => ports.push(port),
                _ => return refuse(StatusCode::BAD_REQUEST, format!("{port:?} is not a port")),
            }
        }
        let way =
            Way::of(&request, &[over_spdy::TUNNELLED_PORTS, channels::V5, channels::V4], over_spdy::PORTS)?;
        let channelled = matches!(way, Way::WebSocket { protocol: channels::V4 | channels::V5, .. });
        if channelled && (ports.is_empty() || ports.len() > forward::MOST_PORTS) {
            return refuse(StatusCode::BAD_REQUEST, "one port is needed at least, and not too many");
        }
        let parts = self.clone();
        self.upgraded(request, way, move |io, way| async move {
            let stop = parts.shared.stop.clone();
            let work = async {
                match way {
                    Way::Spdy { .. } => over_spdy::ports(io).await,
                    Way::WebSocket { protocol: over_spdy::TUNNELLED_PORTS, .. } => {
                        over_spdy::tunnelled_ports(channels::accept(io).await).await;
                    }
                    Way::WebSocket { .. } => forward::serve(channels::accept(io).await, &ports).await,
                }
            };
            stop.run_until_cancelled(work).await;
        })
    }

    /// Changes the protocol, and goes on with `work` once it has changed.
    fn upgraded<W, F>(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        way: Way,
        work: W,
    ) -> Result<Response<Body>, Refusal>
    where
        W: FnOnce(TokioIo<Upgraded>, Way) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Err(full()) };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        match &way {
            Way::WebSocket { protocol, accept } => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
                if let Ok(accept) = HeaderValue::from_str(accept) {
                    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
                }
            }
            Way::Spdy { protocol } => {
                headers.insert(header::UPGRADE, HeaderValue::from_static(spdy::PROTOCOL));
                headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
            }
        }
        let upgrade = hyper::upgrade::on(&mut request);
        self.tasks.spawn(go_on(upgrade, self.shared.stop.clone(), place, move |io| work(io, way)));
        Ok(response)
    }
}

async fn go_on<W, F>(
    upgrade: OnUpgrade,
    stop: tokio_util::sync::CancellationToken,
    place: OwnedSemaphorePermit,
    work: W,
) where
    W: FnOnce(TokioIo<Upgraded>) -> F,
    F: Future<Output = ()>,
{
    match stop.run_until_cancelled(upgrade).await {
        Some(Ok(io)) => work(TokioIo::new(io)).await,
        Some(Err(error)) => debug!(%error, "a client left before its stream began"),
        None => {}
    }
    drop(place);
}

/// Carries a session the way its client came.
async fn carry(io: TokioIo<Upgraded>, way: Way, streams: over_spdy::Wanted, transport: remote::Transport) {
    match way {
        Way::WebSocket { protocol, .. } => {
            channels::serve(channels::accept(io).await, protocol, transport).await;
        }
        Way::Spdy { .. } => over_spdy::session(io, streams, transport).await,
    }
}

fn full() -> Refusal {
    Refusal(StatusCode::TOO_MANY_REQUESTS, "this node has too many streams open".to_owned())
}

fn container_names(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
        .map(|container| container.name.as_str())
}

/// Why a container has not started.
fn waiting<'a>(pod: &'a Pod, container: &str) -> Option<&'a str> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut statuses = lists.into_iter().flatten().flatten();
    let found = statuses.find(|status| status.name == container)?;
    found.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

/// How a client goes on.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    WebSocket { protocol: &'static str, accept: String },
    Spdy { protocol: &'static str },
}

impl Way {
    fn of<B>(request: &Request<B>, ours: &[&'static str], spdy: &'static str) -> Result<Way, Refusal> {
        let headers = request.headers();
        if channels::is_wanted(headers) {
            let key = headers.get(header::SEC_WEBSOCKET_KEY);
            let current = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
            let (Some(key), true) = (key, current) else {
                return refuse(StatusCode::BAD_REQUEST, "the WebSocket handshake is not one of version 13");
            };
            let Some(protocol) = channels::choose(headers, ours) else {
                let why = format!("none of the protocols is known here; known are {}", ours.join(", "));
                return refuse(StatusCode::BAD_REQUEST, why);
            };
            return Ok(Way::WebSocket { protocol, accept: derive_accept_key(key.as_bytes()) });
        }
        let upgrade = headers.get(header::UPGRADE).map(HeaderValue::as_bytes).unwrap_or_default();
        if !upgrade.eq_ignore_ascii_case(spdy::PROTOCOL.as_bytes()) {
            return refuse(StatusCode::BAD_REQUEST, "Upgrade request required");
        }
        let offered = headers.get_all(STREAM_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
        let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
        if !offered.is_empty() && !offered.contains(&spdy) {
            return refuse(
                StatusCode::FORBIDDEN,
                format!("none of the protocols is known here; known is {spdy}"),
            );
        }
        Ok(Way::Spdy { protocol: spdy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_is_asked_for() {
        let pod = ObjectKey::namespaced("ns", "p");
        assert_eq!(
            Asked::parse("/containerLogs/ns/p/c"),
            Some(Asked::Log { pod: pod.clone(), container: "c" })
        );
        assert_eq!(Asked::parse("/portForward/ns/p"), Some(Asked::Ports { pod }));
        for path in ["/", "", "/exec/ns/p", "/exec/ns/p/c/d", "/run/ns/p/c", "/portForward/ns"] {
            assert_eq!(Asked::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_client_goes_on_as_it_asked() {
        let way = |headers: &[(&str, &str)]| {
            let mut request = Request::get("/exec/a/b/c");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            Way::of(&request.body(()).unwrap(), &[channels::V5, channels::V4], over_spdy::COMMANDS)
                .map_err(|Refusal(code, _)| code.as_u16())
        };
        let socket = [("upgrade", "websocket"), ("sec-websocket-version", "13"), ("sec-websocket-key", "x")];
        let offer = |protocol| [&socket[..], &[("sec-websocket-protocol", protocol)]].concat();
        assert!(matches!(
            way(&offer("v4.channel.k8s.io, v5.channel.k8s.io")),
            Ok(Way::WebSocket { protocol: channels::V5, .. })
        ));
        assert_eq!(way(&offer("other")), Err(400));
        assert_eq!(way(&socket), Err(400));
        assert_eq!(
            way(&[("upgrade", "SPDY/3.1"), (STREAM_PROTOCOL, "v4.channel.k8s.io")]),
            Ok(Way::Spdy { protocol: over_spdy::COMMANDS })
        );
        assert_eq!(way(&[("upgrade", "SPDY/3.1"), (STREAM_PROTOCOL, "v9")]), Err(403));
        assert_eq!(way(&[]), Err(400));
    }
}
