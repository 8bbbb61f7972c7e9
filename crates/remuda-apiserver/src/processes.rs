//! What only the processes of a Pod can answer: its log, commands in it, its ports.
//!
//! The request goes on to the kubelet of the Pod's node. Whether it may is judged here, as for every other
//! request; the kubelet believes this server. Where the connection changes to another protocol (WebSocket or
//! SPDY), bytes are passed on both ways and not looked at.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use remuda_auth::{attributes::Attributes, request_info::Verb};
use remuda_schema::FieldError;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::{
    body::Body,
    call::{Answer, Call, Content},
    options::Query,
    server::{ApiServer, Inner},
    status::{ApiError, ApiResult, Named},
    websocket,
};

/// The way to kubelets. The API server opens no sockets of its own.
pub trait Kubelets: Send + Sync {
    /// Sends a request, whose target is a path and a query, to the kubelet at an address. Says why there is no
    /// answer.
    fn send(
        &self,
        address: SocketAddr,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Incoming>, String>>;
}

impl ApiServer {
    /// Pods run on nodes that can be reached, from now on. Only the first way to them is taken.
    pub fn reach_kubelets(&self, kubelets: Arc<dyn Kubelets>) {
        let _ = self.inner.kubelets.set(kubelets);
    }
}

const KUBELET_PORT: u16 = 10250;
/// Bytes of a kubelet's refusal.
const REFUSAL: usize = 8 << 10;
/// For both sides to take an upgrade.
const UPGRADE: Duration = Duration::from_secs(15);
/// For the other direction when one has ended: neither protocol can be closed by halves.
const LINGER: Duration = Duration::from_secs(2);
/// Words of a command, and numbers of ports.
const MOST_VALUES: usize = 1024;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Everything but what may stand in a path or a query as it is.
const QUOTED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Whether a request is for a Pod's processes.
pub(crate) fn is_for_process(call: &Call) -> bool {
    call.resource.builtin().is_some()
        && call.resource.kind == "Pod"
        && matches!(call.subresource(), "attach" | "exec" | "log" | "portforward")
}

impl Inner {
    /// Passes a request on to the kubelet. `None` where there is no way to any.
    pub(crate) async fn ask_process(
        &self,
        call: &Call,
        parts: &Parts,
        revoked: Option<&CancellationToken>,
    ) -> ApiResult<Option<Answer>> {
        let Some(kubelets) = self.kubelets.get() else { return Ok(None) };
        let sub = call.subresource();
        let allowed = match sub {
            "log" => call.verb == Verb::Get,
            _ => matches!(call.verb, Verb::Get | Verb::Create),
        };
        if !allowed || parts.method == Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        let admitted;
        let query = match sub {
            "log" => &call.query,
            _ => {
                self.authorize_stream(call)?;
                admitted = self.admit_connect(call).await?;
                &admitted
            }
        };
        let pod = crate::convert::parse(&*self.record(call).await?)?;
        let target = target(&pod, sub, query)?;
        let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
            return match sub {
                // What never ran has said nothing.
                "log" => Ok(Some(Answer::text(200, Bytes::new()))),
                _ => {
                    let message = format!("pod {} does not have a host assigned", call.name());
                    Err(ApiError::bad_request(message))
                }
            };
        };
        let address = match self.read_object(&format!("/core/nodes/{node}")).await? {
            Some(node) => address(&node),
            None => return Err(ApiError::not_found(Named { group: "", kind: "nodes", name: node })),
        };
        let Some(address) = address else {
            return Err(ApiError::unavailable(format!("node {node} has no address")));
        };
        let client = parts.extensions.get::<OnUpgrade>().cloned();
        if sub != "log" && client.is_none() {
            return Err(ApiError::bad_request("this connection cannot change its protocol"));
        }
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = target.parse().map_err(|_| ApiError::bad_request("the request is too long"))?;
        if sub != "log" {
            *request.method_mut() = parts.method.clone();
            *request.headers_mut() = upgrade_headers(&parts.headers)?;
        }
        let answer = kubelets.send(address, request).await.map_err(|why| {
            ApiError::new(503, "ServiceUnavailable", format!("node {node} cannot be reached: {why}"))
        })?;
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => self.join(client, answer, revoked).map(Some),
            StatusCode::OK => Ok(Some(self.pass(answer, revoked))),
            _ => Err(refusal(node, answer).await),
        }
    }

    /// A WebSocket begins with GET, whatever it will carry: who may only read must not run commands by it.
    fn authorize_stream(&self, call: &Call) -> ApiResult<()> {
        let attributes = Attributes::resource("create", "", "pods")
            .version("v1")
            .subresource(call.subresource())
            .namespace(call.namespace().unwrap_or_default())
            .name(call.name());
        self.authorize(&call.user, &attributes).map(drop)
    }

    /// A log, as long as the caller may have it.
    fn pass(&self, answer: Response<Incoming>, revoked: Option<&CancellationToken>) -> Answer {
        let pieces = answer.into_body().into_data_stream();
        let pieces = pieces
            .take_while(|piece| std::future::ready(piece.is_ok()))
            .filter_map(|piece| async { piece.ok() });
        let ended = ended(self.stop.clone(), revoked.cloned());
        let stream = pieces.take_until(Box::pin(ended)).boxed();
        Answer { code: 200, content: Content::Text(Body::Stream(stream)) }
    }

    /// Connects the two ends of a stream of another protocol.
    fn join(
        &self,
        client: Option<OnUpgrade>,
        answer: Response<Incoming>,
        revoked: Option<&CancellationToken>,
    ) -> ApiResult<Answer> {
        let Some(client) = client else {
            return Err(ApiError::internal("the node changed to a protocol nobody asked for"));
        };
        let passed = [
            header::CONNECTION,
            header::UPGRADE,
            header::SEC_WEBSOCKET_ACCEPT,
            header::SEC_WEBSOCKET_PROTOCOL,
            STREAM_PROTOCOL,
        ];
        let text = |name: HeaderName| {
            let value = answer.headers().get(&name)?.to_str().ok()?.to_owned();
            Some((name, value))
        };
        let headers = passed.into_iter().filter_map(text).collect();
        let ended = ended(self.stop.clone(), revoked.cloned());
        self.tasks.spawn(async move {
            let both = async { tokio::try_join!(client, hyper::upgrade::on(answer)) };
            match tokio::time::timeout(UPGRADE, both).await {
                Ok(Ok((client, node))) => pump(TokioIo::new(client), TokioIo::new(node), ended).await,
                Ok(Err(error)) => tracing::debug!(%error, "a client or a node left before its stream began"),
                Err(_) => tracing::debug!("a stream to a node took too long to begin"),
            }
        });
        Ok(Answer { code: 101, content: Content::Switch(headers) })
    }
}

/// Returns when the server stops or the caller's credentials end.
async fn ended(stop: CancellationToken, revoked: Option<CancellationToken>) {
    match revoked {
        None => stop.cancelled().await,
        Some(revoked) => tokio::select! {
            () = stop.cancelled() => {}
            () = revoked.cancelled() => {}
        },
    }
}

/// Bytes both ways until one side ends.
async fn pump(
    client: impl AsyncRead + AsyncWrite + Unpin,
    node: impl AsyncRead + AsyncWrite + Unpin,
    ended: impl Future<Output = ()>,
) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_node, mut to_node) = tokio::io::split(node);
    let up = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_node).await;
        let _ = to_node.shutdown().await;
    };
    let down = async {
        let _ = tokio::io::copy(&mut from_node, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::pin!(up, down, ended);
    tokio::select! {
        () = &mut ended => {}
        () = &mut up => drop(tokio::time::timeout(LINGER, down).await),
        () = &mut down => drop(tokio::time::timeout(LINGER, up).await),
    }
}

/// What the kubelet must see of the client's headers, which is never a credential.
fn upgrade_headers(headers: &HeaderMap) -> ApiResult<HeaderMap> {
    let wants = |value: &http::HeaderValue| {
        let words = value.to_str().unwrap_or_default();
        words.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
    };
    let (true, Some(upgrade)) =
        (headers.get_all(header::CONNECTION).iter().any(wants), headers.get(header::UPGRADE))
    else {
        return Err(ApiError::bad_request("Upgrade request required"));
    };
    let mut kept = HeaderMap::new();
    kept.insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
    kept.insert(header::UPGRADE, upgrade.clone());
    for name in [header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_VERSION] {
        if let Some(value) = headers.get(&name) {
            kept.insert(name, value.clone());
        }
    }
    let protocols: Vec<&str> = websocket::offered(headers).collect();
    if let Ok(protocols) = protocols.join(", ").parse::<http::HeaderValue>()
        && !protocols.is_empty()
    {
        kept.insert(header::SEC_WEBSOCKET_PROTOCOL, protocols);
    }
    for value in headers.get_all(STREAM_PROTOCOL) {
        kept.append(STREAM_PROTOCOL, value.clone());
    }
    Ok(kept)
}

/// The kubelet's own words, as an error of the API.
async fn refusal(node: &str, answer: Response<Incoming>) -> ApiError {
    let code = answer.status();
    let body = Limited::new(answer.into_body(), REFUSAL).collect().await;
    let text = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let message = if text.is_empty() { format!("node {node} answered {code}") } else { text };
    match code {
        StatusCode::BAD_REQUEST => ApiError::bad_request(message),
        StatusCode::NOT_FOUND => ApiError::new(404, "NotFound", message),
        StatusCode::TOO_MANY_REQUESTS => ApiError::too_many_requests(message, 1),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ApiError::internal(format!("node {node} does not believe this server: {message}"))
        }
        _ => ApiError::internal(message),
    }
}

/// Where a kubelet is, as its Node says.
fn address(node: &Value) -> Option<SocketAddr> {
    let addresses = node["status"]["addresses"].as_array()?;
    let of = |kind: &str| {
        let found = addresses.iter().filter(|address| address["type"] == kind);
        found.filter_map(|address| address["address"].as_str()?.parse::<IpAddr>().ok()).next()
    };
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    Some(SocketAddr::new(of("InternalIP").or_else(|| of("ExternalIP"))?, port.unwrap_or(KUBELET_PORT)))
}

/// Path and query at the kubelet.
fn target(pod: &Value, sub: &str, query: &Query) -> ApiResult<String> {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let path = match sub {
        "portforward" => {
            for value in query.all("ports").chain(query.all("port")).flat_map(|value| value.split(',')) {
                let port: u16 = value.trim().parse().ok().filter(|port| *port != 0).ok_or_else(|| {
                    ApiError::bad_request(format!(
                        "unable to decode parameter ports: {value:?} is not a port"
                    ))
                })?;
                pairs.push(("port", port.to_string()));
            }
            format!("/portForward/{namespace}/{name}")
        }
        "log" => {
            pairs = log_options(query)?;
            format!("/containerLogs/{namespace}/{name}/{}", container(pod, query)?)
        }
        _ => {
            // The kubelet's names of these differ from the API's.
            for (theirs, ours) in
                [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")]
            {
                if query.flag(theirs) == Some(true) {
                    pairs.push((ours, "1".to_owned()));
                }
            }
            if sub == "exec" {
                pairs.extend(query.all("command").map(|word| ("command", word.to_owned())));
            }
            format!("/{sub}/{namespace}/{name}/{}", container(pod, query)?)
        }
    };
    if pairs.len() > MOST_VALUES {
        return Err(ApiError::bad_request("the request has too many parameters"));
    }
    let quote = |(key, value): (&str, String)| format!("{key}={}", utf8_percent_encode(&value, QUOTED));
    let query: Vec<String> = pairs.into_iter().map(quote).collect();
    Ok(if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) })
}

/// The container that is meant.
fn container(pod: &Value, query: &Query) -> ApiResult<String> {
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |kind: &str| {
        let containers = pod["spec"][kind].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let main = names("containers");
    let wanted = query.get("container").unwrap_or_default();
    if !wanted.is_empty() {
        let known = main.iter().any(|name| name == wanted)
            || ["initContainers", "ephemeralContainers"]
                .iter()
                .any(|kind| names(kind).iter().any(|name| name == wanted));
        return match known {
            true => Ok(wanted.to_owned()),
            false => {
                Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {pod_name}")))
            }
        };
    }
    match main.as_slice() {
        [only] => Ok(only.clone()),
        _ => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            main.join(" ")
        ))),
    }
}

fn log_options(query: &Query) -> ApiResult<Vec<(&'static str, String)>> {
    let mut pairs = Vec::new();
    for flag in ["follow", "previous", "timestamps"] {
        if query.flag(flag) == Some(true) {
            pairs.push((flag, "true".to_owned()));
        }
    }
    let mut errors = Vec::new();
    for (name, least) in [("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)] {
        let Some(value) = query.integer(name)? else { continue };
        if value < least {
            let detail = format!("must be greater than or equal to {least}");
            errors.push(FieldError::invalid(name, &json!(value), &detail));
        }
        pairs.push((name, value.to_string()));
    }
    if let Some(time) = query.get("sinceTime").filter(|time| !time.is_empty()) {
        if time.parse::<jiff::Timestamp>().is_err() {
            return Err(ApiError::bad_request(format!(
                "unable to decode parameter sinceTime: {time:?} is not a time"
            )));
        }
        if query.get("sinceSeconds").is_some_and(|seconds| !seconds.is_empty()) {
            errors.push(FieldError::forbidden(
                "",
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            ));
        }
        pairs.push(("sinceTime", time.to_owned()));
    }
    match query.get("stream").unwrap_or_default() {
        "" | "All" => {}
        stream @ ("Stdout" | "Stderr") => pairs.push(("stream", stream.to_owned())),
        other => {
            errors.push(FieldError::not_supported("stream", &json!(other), &["All", "Stderr", "Stdout"]));
        }
    }
    if errors.is_empty() {
        return Ok(pairs);
    }
    Err(ApiError::invalid(Named { group: "", kind: "PodLogOptions", name: "" }, &errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(containers: &[&str]) -> Value {
        let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
        json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "spec": {"containers": containers, "initContainers": [{"name": "first"}]},
        })
    }

    #[track_caller]
    fn check(containers: &[&str], sub: &str, query: &str, expected: &str) {
        let made = target(&pod(containers), sub, &Query::parse(Some(query)));
        assert_eq!(made.unwrap_or_else(|error| error.message), expected);
    }

    #[test]
    fn requests_are_put_as_kubelets_read_them() {
        check(&["a"], "log", "follow=true&tailLines=3", "/containerLogs/ns/p/a?follow=true&tailLines=3");
        check(&["a", "b"], "log", "container=first", "/containerLogs/ns/p/first");
        check(
            &["a"],
            "exec",
            "command=sh&command=-c&command=a+%26+b&stdin=true&stdout=true&tty=false",
            "/exec/ns/p/a?input=1&output=1&command=sh&command=-c&command=a%20%26%20b",
        );
        check(&["a"], "attach", "stdout=1&command=x", "/attach/ns/p/a?output=1");
        check(&["a"], "portforward", "ports=80,81", "/portForward/ns/p?port=80&port=81");
    }

    #[test]
    fn what_is_not_clear_is_asked_back() {
        check(&["a", "b"], "log", "", "a container name must be specified for pod p, choose one of: [a b]");
        check(&["a"], "exec", "container=../../x", "container ../../x is not valid for pod p");
        check(&["a"], "portforward", "ports=0", "unable to decode parameter ports: \"0\" is not a port");
        let refused = target(&pod(&["a"]), "log", &Query::parse(Some("tailLines=-1"))).unwrap_err();
        assert_eq!(refused.code, 422);
    }

    #[test]
    fn credentials_do_not_reach_the_node() {
        let headers = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("authorization", "Bearer secret"),
            ("cookie", "session=secret"),
            ("impersonate-user", "ann"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ];
        let pairs = headers
            .map(|(name, value)| (HeaderName::from_static(name), http::HeaderValue::from_static(value)));
        let kept = upgrade_headers(&HeaderMap::from_iter(pairs)).unwrap();
        let mut names: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["connection", "sec-websocket-key", "sec-websocket-protocol", "upgrade"]);
        assert_eq!(kept["sec-websocket-protocol"], "v5.channel.k8s.io");
        assert!(upgrade_headers(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_node_says_where_its_kubelet_is() {
        let node = json!({"status": {
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 99}},
        }});
        assert_eq!(address(&node), Some("10.0.0.1:99".parse().unwrap()));
        assert_eq!(address(&json!({"status": {}})), None);
    }

    #[tokio::test]
    async fn a_stream_ends_with_either_side() {
        for client_first in [true, false] {
            let (client, client_side) = tokio::io::duplex(64);
            let (node, node_side) = tokio::io::duplex(64);
            let (gone, mut left) = if client_first { (client, node) } else { (node, client) };
            drop(gone);
            let leaving = async {
                let mut rest = Vec::new();
                tokio::io::AsyncReadExt::read_to_end(&mut left, &mut rest).await.unwrap();
            };
            // The other side stays open; the stream ends all the same.
            tokio::join!(pump(client_side, node_side, std::future::pending()), leaving);
        }
    }
}
