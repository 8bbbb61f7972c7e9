//! The way in: every request passes here, in the same order.
//!
//! Authenticate, impersonate, route, authorize, take a place, handle, encode, count, audit.

use std::{borrow::Cow, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use parking_lot::Mutex;
use remuda_auth::{
    identity::User,
    request_info::{RequestInfo, Verb},
};
use tracing::error;

use crate::{
    audit::Auditing,
    body::Body,
    call::{Answer, Call, Content},
    codec,
    negotiate::{Encoding, plain_encoding, response_form, wants_pretty},
    options::Query,
    paths, processes,
    receive::receive,
    registry::Resource,
    represent::IncludeObject,
    server::{ApiServer, Inner},
    status::{ApiError, ApiResult},
    tokens::{self, Caller},
    websocket,
};

/// Who is at the other end of the connection. The listener puts it into the request's extensions.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: std::net::SocketAddr,
    pub certificate: PeerCertificate,
    pub login: Login,
}

/// Whether a request of a connection came from an authenticated user. All requests of a connection, and those
/// made in the name of its client, share it.
#[derive(Debug, Clone, Default)]
pub struct Login(Arc<std::sync::atomic::AtomicBool>);

impl Login {
    pub fn is_known(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn note(&self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// What the TLS handshake said of the client.
#[derive(Debug, Clone, Default)]
pub enum PeerCertificate {
    #[default]
    None,
    /// Signed by our CA and valid.
    Verified(Arc<User>),
    /// Presented, but expired or not ours.
    Rejected,
}

/// An identity that needs no credentials, for requests from inside the process.
#[derive(Debug, Clone)]
pub struct Internal(pub Arc<User>);

/// The body of a request, whatever it came by.
type Incoming = UnsyncBoxBody<Bytes, Broken>;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Broken(Box<dyn std::error::Error + Send + Sync>);

/// Bodies of at least this many bytes are compressed for clients that take it.
const COMPRESS_FROM: u64 = 128 << 10;
/// Bytes of all warnings together, and of each when they are more.
const WARNINGS: usize = 4 << 10;
const WARNING: usize = 256;
/// Many clients take no more than a hundred header lines, and there are others beside warnings.
const WARNING_LINES: usize = 50;

impl ApiServer {
    /// Handles one request. What the body is made of ends here, so that all that follows is in the program
    /// once and not once for each kind of transport.
    pub fn handle<B>(&self, request: Request<B>) -> BoxFuture<'static, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.clone()
            .answer(request.map(|body| UnsyncBoxBody::new(body.map_err(|error| Broken(error.into())))))
    }

    fn answer(self, request: Request<Incoming>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move { self.answer_to(request).await })
    }

    async fn answer_to(&self, request: Request<Incoming>) -> Response<Body> {
        let inner = &self.inner;
        let started = Instant::now();
        let _in_flight = inner.metrics.request();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let pretty = wants_pretty(query.flag("pretty"), &parts.headers);
        let info = RequestInfo::parse(parts.method.as_str(), parts.uri.path(), parts.uri.query());
        let mut audit = Auditing::begin(inner, &parts, &info);
        let mut seen = Seen::default();
        let warnings = Mutex::default();
        let work = inner.serve(&parts, body, &query, info, pretty, &mut seen, &warnings, &mut audit);
        // A bug in one request must not take the connection, with all its other requests, along.
        let result = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(result) => result,
            Err(_) => {
                error!(method = %parts.method, path = parts.uri.path(), "request handler panicked");
                Err(ApiError::internal("the server failed to handle the request"))
            }
        };
        audit.answered(inner, &result);
        let (code, mut response) = match result {
            Ok(answer) => {
                let code = answer.code;
                (code, encode(answer, &parts.headers, pretty))
            }
            Err(error) => (error.code, encode_error(&error, &parts.headers, pretty)),
        };
        let headers = response.headers_mut();
        for warning in bounded(warnings.into_inner()) {
            if let Ok(value) = HeaderValue::from_bytes(warning_text(&warning).as_bytes()) {
                headers.append(header::WARNING, value);
            }
        }
        if let Ok(id) = HeaderValue::from_str(&audit.id) {
            headers.insert("audit-id", id);
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        inner.metrics.observe(seen.verb, &seen.resource, code, started.elapsed().as_secs_f64());
        audit.end(inner, code);
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        response
    }
}

/// For metrics: what the request turned out to be.
#[derive(Default)]
struct Seen {
    verb: &'static str,
    resource: String,
}

impl Inner {
    #[allow(clippy::too_many_arguments)]
    async fn serve(
        self: &Arc<Self>,
        parts: &http::request::Parts,
        body: Incoming,
        query: &Query,
        info: RequestInfo,
        pretty: bool,
        seen: &mut Seen,
        warnings: &Mutex<Vec<String>>,
        audit: &mut Auditing,
    ) -> ApiResult<Answer> {
        let internal = parts.extensions.get::<Internal>();
        let Caller { user, revoked } = match internal {
            Some(Internal(user)) => user.clone().into(),
            None if is_health(&info) => self.authenticate_in_time(parts).await?,
            None => self.authenticate(parts).await?,
        };
        audit.user = Some(user.clone());
        if let Some(peer) = parts.extensions.get::<Peer>()
            && !user.is_anonymous()
        {
            peer.login.note();
        }
        let user = match self.impersonate(&user, &parts.headers)? {
            Some(other) => {
                audit.impersonated = Some(other.clone());
                other
            }
            None => user,
        };
        if !info.is_resource() {
            seen.verb = if info.verb.is_empty() { "other" } else { info.verb };
            let result = self.serve_path(&info, parts, query, &user).await;
            let refused = result.as_ref().is_err_and(|error| error.code == 403);
            audit.judged((!refused).then(|| Arc::from("")).as_ref());
            return result;
        }
        seen.verb = info.verb;
        seen.resource.clone_from(&info.resource);
        let judgement = self.authorize(&user, &info.attributes());
        audit.judged(judgement.as_ref().ok());
        judgement?;
        // Verbs in the path are from before there were any in the query. Of those only the watch is left.
        let old_watch = info.verb_in_path && info.verb == "watch" && parts.method == Method::GET;
        let Some(verb) = info.resource_verb().or(old_watch.then_some(Verb::Watch)) else {
            let gone = info.verb_in_path;
            return Err(if gone { ApiError::unknown_resource() } else { ApiError::method_not_allowed() });
        };
        let (mut info, mut query) = (info, Cow::Borrowed(query));
        if old_watch && !info.name.is_empty() && info.subresource.is_empty() {
            query = Cow::Owned(query.with_field(&format!("metadata.name={}", info.name)));
            info.name = String::new();
        }
        let query = &*query;
        let registry = self.registry.load_full();
        let Some(resource) = registry.find(&info.group, &info.version, &info.resource).cloned() else {
            seen.resource = String::new();
            return Err(ApiError::unknown_resource());
        };
        check_path(&resource, &info, verb)?;
        let timeout = request_timeout(query, self.config.limits.request_timeout)?;
        let deadline = tokio::time::Instant::now() + timeout;
        // Before a place is taken: a client that sends slowly keeps no other from writing.
        let (body, _share) = if verb.is_mutating() {
            let payer = (internal.is_none() && !user.is_master()).then_some(user.name.as_str());
            receive(body, payer, &self.throttle, &self.config.limits, deadline).await?
        } else {
            (Bytes::new(), None)
        };
        audit.request_body(self, &body);
        let _place = if verb == Verb::Watch || internal.is_some() || is_exempt(&user, &info) {
            None
        } else {
            let patience = deadline.saturating_duration_since(tokio::time::Instant::now());
            Some(self.throttle.enter(&user.name, verb.is_mutating(), patience).await?)
        };
        let call = Call {
            info,
            resource,
            registry,
            verb,
            query: query.clone(),
            headers: parts.headers.clone(),
            user,
            pretty,
            warnings: Mutex::default(),
        };
        if query.get("includeObject").is_some() {
            let list = matches!(verb, Verb::List | Verb::DeleteCollection);
            IncludeObject::check(query, response_form(&parts.headers, list)?)?;
        }
        if let Some(text) = deprecation(&call.resource) {
            call.warn(text);
        }
        let result = match verb {
            Verb::Watch => {
                match self.watch(&call).await.map(|answer| tokens::until(answer, revoked.as_ref())) {
                    Ok(answer) if websocket::is_wanted(&parts.headers) => self.over_websocket(parts, answer),
                    result => result,
                }
            }
            _ => {
                let work = async {
                    if processes::is_for_process(&call)
                        && let Some(answer) = self.ask_process(&call, parts, revoked.as_ref()).await?
                    {
                        return Ok(answer);
                    }
                    self.dispatch(&call, body).await
                };
                match tokio::time::timeout_at(deadline, work).await {
                    Ok(result) => result,
                    Err(_) => Err(ApiError::timeout(
                        "Timeout: request did not complete within the allowed duration",
                    )),
                }
            }
        };
        *warnings.lock() = call.warnings.into_inner();
        result
    }

    async fn dispatch(self: &Arc<Self>, call: &Call, body: Bytes) -> ApiResult<Answer> {
        if call.resource.builtin().is_some_and(|builtin| builtin.is_virtual) {
            return match call.verb {
                Verb::Create => self.review(call, body).await,
                _ => self.components(call).await,
            };
        }
        match (call.subresource(), call.verb) {
            ("" | "status", _) => {}
            ("scale", Verb::Get) => return self.get(call).await,
            ("scale", Verb::Update | Verb::Patch) => return self.write_scale(call, body).await,
            (sub, _) => return self.subresource(call, sub, body).await,
        }
        match call.verb {
            Verb::Get => self.get(call).await,
            Verb::List => self.list(call).await,
            Verb::Watch => self.watch(call).await,
            Verb::Create => self.create(call, body).await,
            Verb::Update => self.update(call, body).await,
            Verb::Patch => self.patch(call, body).await,
            Verb::Delete => self.delete(call, body).await,
            Verb::DeleteCollection => self.delete_collection(call, body).await,
        }
    }
}

/// Leaders must be able to stay leaders, and administrators to mend, however busy the server is.
fn is_exempt(user: &User, info: &RequestInfo) -> bool {
    user.is_trusted_writer() || (info.group == "coordination.k8s.io" && info.resource == "leases")
}

fn is_health(info: &RequestInfo) -> bool {
    !info.is_resource() && paths::is_health(&info.path)
}

/// What only a kubelet could answer. It is not advertised where there is no way to any, but somebody who asks
/// deserves to hear whether the object is missing or nothing runs behind it.
fn needs_a_process(kind: &str, sub: &str) -> bool {
    match kind {
        "Pod" => matches!(sub, "attach" | "exec" | "log" | "portforward" | "proxy"),
        "Node" | "Service" => sub == "proxy",
        _ => false,
    }
}

/// Whether the resource offers what the URL and the verb ask for.
fn check_path(resource: &Resource, info: &RequestInfo, verb: Verb) -> ApiResult<()> {
    if info.in_namespace && (!resource.namespaced || info.namespace.is_empty()) {
        return Err(ApiError::unknown_resource());
    }
    // A name is missing between two slashes.
    if info.name.is_empty() && !info.subresource.is_empty() {
        return Err(ApiError::unknown_resource());
    }
    let sub = info.subresource.as_str();
    if !info.rest.is_empty() && sub != "proxy" {
        return Err(ApiError::unknown_resource());
    }
    if !sub.is_empty() {
        if resource.builtin().is_some_and(|_| needs_a_process(&resource.kind, sub)) {
            return Ok(());
        }
        let Some(sub) = resource.subresource(sub) else { return Err(ApiError::unknown_resource()) };
        let offered = sub.verbs.iter().any(|known| known == verb.as_str());
        return if offered { Ok(()) } else { Err(ApiError::method_not_allowed()) };
    }
    // Names of namespaced objects mean nothing without their namespace, and what spans all namespaces
    // can be read but not deleted at one stroke.
    if resource.namespaced && !info.in_namespace {
        if !info.name.is_empty() {
            return Err(ApiError::unknown_resource());
        }
        if matches!(verb, Verb::Create | Verb::DeleteCollection) {
            return Err(ApiError::method_not_allowed());
        }
    }
    // One object is made in its collection and changed by its name.
    let placed = match verb {
        Verb::Create => info.name.is_empty(),
        Verb::Update | Verb::Patch => !info.name.is_empty(),
        _ => true,
    };
    let offered = placed && resource.has_verb(verb.as_str());
    if offered { Ok(()) } else { Err(ApiError::method_not_allowed()) }
}

fn deprecation(resource: &Resource) -> Option<String> {
    if resource.group.is_empty() && resource.kind == "Endpoints" {
        let text = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
        return Some(text.to_owned());
    }
    if resource.group.is_empty() && resource.kind == "ComponentStatus" {
        return Some("v1 ComponentStatus is deprecated in v1.19+".to_owned());
    }
    let custom = resource.custom()?;
    custom.crd.view.versions[custom.version].deprecated.clone()
}

fn request_timeout(query: &Query, most: std::time::Duration) -> ApiResult<std::time::Duration> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(most) };
    let parsed = remuda_base::duration::parse(text)
        .ok_or_else(|| ApiError::bad_request("invalid timeout specified in the request URL"))?;
    Ok(if parsed.is_zero() || parsed > most { most } else { parsed })
}

fn encode(answer: Answer, headers: &HeaderMap, pretty: bool) -> Response<Body> {
    let mut more = Vec::new();
    let mut content_type = "application/json".to_owned();
    let body = match answer.content {
        Content::Bytes(bytes) => Body::Full(bytes),
        Content::Body(body) => body,
        Content::Text(body) => {
            content_type = "text/plain".to_owned();
            body
        }
        Content::Switch(headers) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            for (name, value) in headers {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    response.headers_mut().insert(name, value);
                }
            }
            return response;
        }
        Content::Other(bytes, other) => {
            content_type = other.to_owned();
            more.push((header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()));
            Body::Full(bytes)
        }
        Content::Tagged { bytes, content_type: other, headers } => {
            content_type = other;
            more = headers;
            Body::Full(bytes)
        }
        Content::Value(value, form) => {
            if form.encoding == Encoding::Yaml {
                content_type = "application/yaml".to_owned();
            }
            Body::Full(codec::render(&value, form.encoding, pretty).into())
        }
    };
    let gzip = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(takes_gzip));
    let size = match &body {
        Body::Full(bytes) => bytes.len() as u64,
        Body::Items(items) => items.len(),
        Body::Stream(_) => 0,
    };
    let mut response = Response::builder().status(answer.code).header(header::CONTENT_TYPE, content_type);
    for (name, value) in more {
        response = response.header(name, value);
    }
    let body = if gzip && size >= COMPRESS_FROM {
        response = response.header(header::CONTENT_ENCODING, "gzip").header(header::VARY, "Accept-Encoding");
        compress(body)
    } else {
        body
    };
    response.body(body).expect("status and headers are valid")
}

/// Whether this part of an `Accept-Encoding` allows gzip.
fn takes_gzip(part: &str) -> bool {
    let mut words = part.split(';').map(str::trim);
    let refused = |word: &str| word.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0);
    words.next() == Some("gzip") && !words.any(refused)
}

/// Compresses lightly, as the reference does: size for little time.
fn compress(body: Body) -> Body {
    use std::io::Write;
    let whole = match body {
        Body::Full(bytes) => bytes,
        Body::Items(items) => items.collect(),
        Body::Stream(stream) => return Body::Stream(stream),
    };
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(&whole);
    Body::Full(encoder.finish().unwrap_or_default().into())
}

fn encode_error(error: &ApiError, headers: &HeaderMap, pretty: bool) -> Response<Body> {
    let encoding = plain_encoding(headers);
    let bytes = codec::render(&error.status(), encoding, pretty);
    let content_type = match encoding {
        Encoding::Json => "application/json",
        Encoding::Yaml => "application/yaml",
    };
    let mut response = Response::builder().status(error.code).header(header::CONTENT_TYPE, content_type);
    if let Some(seconds) = error.retry_after {
        response = response.header(header::RETRY_AFTER, seconds);
    }
    response.body(Body::Full(bytes.into())).expect("status and headers are valid")
}

/// Cuts warnings that would swell the head of the answer.
fn bounded(mut warnings: Vec<String>) -> Vec<String> {
    let given = warnings.len();
    let total = |warnings: &[String]| warnings.iter().map(String::len).sum::<usize>();
    if total(&warnings) > WARNINGS {
        let mut left = WARNINGS;
        warnings.retain_mut(|warning| {
            warning.truncate(warning.floor_char_boundary(WARNING));
            let fits = warning.len() <= left;
            left = left.saturating_sub(warning.len());
            fits
        });
    }
    if given > WARNING_LINES {
        warnings.truncate(WARNING_LINES - 1);
        warnings.push(format!("{} more warnings were left out", given - warnings.len()));
    }
    warnings
}

/// `299 - "text"`, with quotes, backslashes and control characters made safe.
fn warning_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 16);
    for c in text.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    format!("299 - \"{quoted}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_leave_room_for_other_headers_and_say_what_they_left_out() {
        let bounded = bounded((0..500).map(|index| format!("w{index}")).collect());
        assert_eq!(bounded.len(), WARNING_LINES);
        assert_eq!(bounded[0], "w0");
        assert_eq!(bounded.last().unwrap(), "451 more warnings were left out");
    }
}
