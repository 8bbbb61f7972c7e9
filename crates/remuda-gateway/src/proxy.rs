//! The API of a cluster, for people: `/k8s/clusters/<id>/…`.
//!
//! The caller is known to the management API; the cluster knows them by impersonation, under the same name.
//! Their own credentials end here, and those of the cluster's agent are not used for them either: see
//! [`impersonators`].

mod asks;
mod headers;
mod impersonators;
mod roles;
mod standing;

use std::{net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{Either, select},
};
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use remuda_control::Chain;
use remuda_names::gateway::path::{CLUSTERS, CLUSTERS_PROXY};
use tokio::{io::copy_bidirectional, sync::watch};
use tokio_util::sync::CancellationToken;

use self::{asks::Asks, impersonators::Judged, standing::Standing};
pub(crate) use self::{
    headers::Abroad,
    impersonators::{Impersonators, Unable, sweep},
    roles::Roles,
};
use crate::{
    access::{Caller, Decision},
    gateway::Shared,
    respond::{Body, BoxError, full, in_a_moment, status},
    route::RouteError,
};

/// A request of somebody to a cluster, for those who keep a record.
#[derive(Debug, Clone, Copy)]
pub struct Proxied<'a> {
    pub peer: SocketAddr,
    pub caller: &'a Caller,
    /// The name they have in the cluster.
    pub as_user: &'a str,
    pub cluster: &'a str,
    pub method: &'a Method,
    /// As it was asked for, without the query.
    pub path: &'a str,
    /// How it was answered.
    pub code: StatusCode,
}

/// Is told of every request of somebody to a cluster when it is answered. Must be quick.
pub type Audit = Arc<dyn Fn(&Proxied<'_>) + Send + Sync>;

/// For both sides to take an upgrade.
const UPGRADE: Duration = Duration::from_secs(15);
/// The user of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// The cluster a path leads to, and where there; `None` for other paths.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(CLUSTERS).or_else(|| path.strip_prefix(CLUSTERS_PROXY))?;
    match rest.find('/') {
        Some(at) => Some((&rest[..at], &rest[at..])),
        None => Some((rest, "/")),
    }
}

pub(crate) async fn handle<B>(shared: &Arc<Shared>, peer: SocketAddr, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    let body = body.map_err(Into::into).boxed_unsync();
    let Some((cluster, target)) = target(&head) else {
        return status(StatusCode::NOT_FOUND, "the server could not find the requested resource");
    };
    let caller = match shared.authenticate.authenticate(&head).await {
        Ok(caller) if !caller.name.is_empty() && caller.name != ANONYMOUS => caller,
        Ok(_) => return status(StatusCode::UNAUTHORIZED, "Unauthorized"),
        Err(refused) => return refused,
    };
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    // From before it is decided: what changes meanwhile must not be missed.
    let changes = shared.authorize.changes();
    let response = match admit(shared, &caller, &cluster).await {
        Err(refused) => refused,
        Ok(decision) => {
            let who = abroad(&caller, &decision);
            let way = Way { cluster: &cluster, target, who, decision: &decision, changes };
            forward(shared, &caller, way, head, body).await.unwrap_or_else(|failed| failed)
        }
    };
    let code = response.status();
    tracing::debug!(%peer, cluster, user = caller.name, %method, path, code = code.as_u16(), "request to a cluster");
    if let Some(audit) = &shared.audit {
        let as_user = headers::abroad(&caller.name);
        audit(&Proxied {
            peer,
            caller: &caller,
            as_user: &as_user,
            cluster: &cluster,
            method: &method,
            path: &path,
            code,
        });
    }
    response
}

/// Who somebody is in a cluster, by what was decided about them.
pub(crate) fn abroad(caller: &Caller, decision: &Decision) -> Abroad {
    let roles = decision.roles.iter().map(|role| roles::group(&role.name));
    Abroad::new(caller, &roles.chain(decision.groups.iter().cloned()).collect::<Vec<_>>())
}

/// Whether a caller may use a cluster.
async fn admit(shared: &Shared, caller: &Caller, cluster: &str) -> Result<Decision, Response<Body>> {
    let decision = shared.authorize.authorize(caller, cluster).await.map_err(|error| {
        tracing::warn!(cluster, user = caller.name, error, "access cannot be decided");
        status(StatusCode::INTERNAL_SERVER_ERROR, "whether you may use this cluster cannot be decided now")
    })?;
    if decision.allowed {
        return Ok(decision);
    }
    let message = format!("cluster {cluster:?} is forbidden: {}", decision.reason);
    Err(status(StatusCode::FORBIDDEN, &message))
}

/// Where a request goes, and as whose.
struct Way<'a> {
    cluster: &'a str,
    target: http::Uri,
    who: Abroad,
    decision: &'a Decision,
    changes: Option<watch::Receiver<()>>,
}

/// When what is under way must end, and why.
type Ends = Pin<Box<dyn Future<Output = &'static str> + Send>>;

fn ends(revoked: Option<CancellationToken>, standing: Option<Standing>) -> Option<Ends> {
    const REVOKED: &str = "credentials were revoked";
    const LOST: &str = "the rights to this were taken away";
    match (revoked, standing) {
        (None, None) => None,
        (Some(revoked), None) => Some(Box::pin(revoked.cancelled_owned().map(|()| REVOKED))),
        (None, Some(standing)) => Some(Box::pin(standing.lost().map(|()| LOST))),
        (Some(revoked), Some(standing)) => Some(Box::pin(async move {
            tokio::select! {
                () = revoked.cancelled() => REVOKED,
                () = standing.lost() => LOST,
            }
        })),
    }
}

async fn forward(
    shared: &Arc<Shared>,
    caller: &Caller,
    way: Way<'_>,
    mut head: Parts,
    body: Body,
) -> Result<Response<Body>, Response<Body>> {
    let Way { cluster, target, who, decision, changes } = way;
    if !shared.clusters.is_synced() {
        let message = "this server has just started and is not ready yet";
        return Err(in_a_moment(status(StatusCode::SERVICE_UNAVAILABLE, message)));
    }
    let Some(object) = shared.cluster(cluster) else {
        let message = format!("clusters.management.cattle.io {cluster:?} not found");
        return Err(status(StatusCode::NOT_FOUND, &message));
    };
    let people = Some(object.spec.display_name.as_str()).filter(|name| !name.is_empty()).unwrap_or(cluster);
    let route = shared
        .route(cluster)
        .map_err(|why| status(StatusCode::SERVICE_UNAVAILABLE, &format!("cluster {people} is {why}")))?;
    let wants = headers::wanted_upgrade(&head.headers);
    let client = wants.as_ref().and_then(|_| head.extensions.remove::<hyper::upgrade::OnUpgrade>());
    let asks = changes.is_some().then(|| Asks::of(&head.method, &target));
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = target;
    *request.headers_mut() = headers::forwarded(&head.headers, wants.as_ref());
    headers::impersonate(request.headers_mut(), &who).map_err(|what| {
        status(StatusCode::FORBIDDEN, &format!("{what} cannot be used in another cluster"))
    })?;
    let unable = |why: Unable| unable(shared, cluster, people, &who.user, why);
    shared.roles.ensure(shared, cluster, &route, &decision.roles).await.map_err(unable)?;
    let authorization =
        shared.impersonators.authorization(shared, cluster, &route, &who).await.map_err(unable)?;
    let answer = route.send_as(request, authorization, shared.timing.answer).await;
    let answer = answer.map_err(|error| failed(shared, cluster, people, &error))?;
    let standing = || {
        changes.zip(asks).map(|(changes, asks)| Standing {
            shared: shared.clone(),
            caller: caller.clone(),
            cluster: cluster.to_owned(),
            decision: decision.clone(),
            asks,
            changes,
        })
    };
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(switched(shared, answer, client, ends(caller.revoked.clone(), standing())));
    }
    match impersonators::judge(answer).await {
        Judged::Answer(answer) => {
            // What says how long it is goes on for a moment only.
            let short = answer.body().size_hint().exact().is_some();
            let standing = if short { None } else { standing() };
            Ok(passed(answer, ends(caller.revoked.clone(), standing)))
        }
        Judged::Theirs(response) => Ok(response),
        Judged::Ours => {
            shared.impersonators.forget_user(cluster, &who.user);
            let why = "the account to act through was changed; it is made again".to_owned();
            Err(in_a_moment(unable(Unable::Refused(why))))
        }
    }
}

/// Which cluster, and the path and query there.
fn target(head: &Parts) -> Option<(String, http::Uri)> {
    let (cluster, rest) = split(head.uri.path())?;
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if cluster.is_empty() || cluster.len() > 253 || !cluster.bytes().all(is_part) {
        return None;
    }
    let path = head.uri.query().map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
    // Read as a path and nothing else: `//host/…` would name another host.
    let uri = path.parse::<http::uri::PathAndQuery>().ok()?;
    Some((cluster.to_owned(), http::Uri::from(uri)))
}

/// The account somebody acts through is not there.
fn unable(shared: &Shared, cluster: &str, people: &str, user: &str, why: Unable) -> Response<Body> {
    let connection = shared.sessions.connection(cluster);
    if !connection.is_connected() {
        return status(StatusCode::SERVICE_UNAVAILABLE, &format!("cluster {people} is {connection}"));
    }
    let (code, message) = match why {
        Unable::Silent(patience) => (
            StatusCode::GATEWAY_TIMEOUT,
            format!("the API of cluster {people} gave no answer within {patience:?}"),
        ),
        Unable::Unreachable(why) => {
            (StatusCode::BAD_GATEWAY, format!("the API of cluster {people} cannot be reached: {why}"))
        }
        Unable::Refused(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("cluster {people} cannot be used as {user:?} now: {why}"),
        ),
    };
    tracing::debug!(cluster, user, error = message, "no account to act through");
    status(code, &message)
}

fn failed(shared: &Shared, cluster: &str, people: &str, error: &RouteError) -> Response<Body> {
    let connection = shared.sessions.connection(cluster);
    if error.is_disconnected() || !connection.is_connected() {
        let message = format!("cluster {people} is {connection}");
        return status(StatusCode::SERVICE_UNAVAILABLE, &message);
    }
    let code = match error {
        RouteError::Silent(_) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    status(code, &format!("the API of cluster {people} cannot be reached: {}", Chain(error)))
}

/// An answer as it is, as long as the caller may have it.
fn passed(answer: Response<Incoming>, ends: Option<Ends>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    headers::end_to_end(&mut parts.headers);
    let mut response = Response::new(match ends {
        None => body.map_err(Into::into).boxed_unsync(),
        Some(ends) => Revocable { body, ends }.boxed_unsync(),
    });
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response
}

/// A stream of another protocol: bytes both ways until one side ends.
fn switched(
    shared: &Arc<Shared>,
    answer: Response<Incoming>,
    client: Option<hyper::upgrade::OnUpgrade>,
    ends: Option<Ends>,
) -> Response<Body> {
    let Some(client) = client else {
        return status(StatusCode::BAD_GATEWAY, "the cluster changed to a protocol nobody asked for");
    };
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = answer.headers().clone();
    let upgrade = headers::wanted_upgrade(answer.headers());
    headers::end_to_end(response.headers_mut());
    headers::insert_upgrade(response.headers_mut(), upgrade.as_ref());
    let stop = shared.stop.clone();
    shared.tasks.spawn(async move {
        let both = async { tokio::try_join!(client, hyper::upgrade::on(answer)) };
        let (client, cluster) = match tokio::time::timeout(UPGRADE, both).await {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => return tracing::debug!(%error, "upgrade of a request to a cluster failed"),
            Err(_) => return tracing::debug!("upgrade of a request to a cluster took too long"),
        };
        let (mut client, mut cluster) = (TokioIo::new(client), TokioIo::new(cluster));
        let ended = async {
            match ends {
                Some(ends) => drop(select(Box::pin(stop.cancelled()), ends).await),
                None => stop.cancelled().await,
            }
        };
        let copying = Box::pin(copy_bidirectional(&mut client, &mut cluster));
        if let Either::Left((Err(error), _)) = select(copying, Box::pin(ended)).await {
            tracing::debug!(%error, "stream to a cluster ended");
        }
    });
    response
}

/// A body that ends with the credentials and the rights it was asked for with.
struct Revocable {
    body: Incoming,
    ends: Ends,
}

impl http_body::Body for Revocable {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        if let std::task::Poll::Ready(why) = self.ends.as_mut().poll(cx) {
            // Not a regular end: the rest of the answer is missing.
            return std::task::Poll::Ready(Some(Err(why.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_one_cluster() {
        assert_eq!(split("/k8s/clusters/c-1/api/v1"), Some(("c-1", "/api/v1")));
        assert_eq!(split("/k8s/proxy/c-1"), Some(("c-1", "/")));
        assert_eq!(split("/api/v1"), None);
        let target = |path: &str| {
            let (head, ()) = Request::get(path).body(()).unwrap().into_parts();
            target(&head).map(|(cluster, uri)| format!("{cluster} {uri}"))
        };
        assert_eq!(target("/k8s/clusters/c-1/api?a=b").as_deref(), Some("c-1 /api?a=b"));
        assert_eq!(target("/k8s/clusters/c-1//evil/x").as_deref(), Some("c-1 //evil/x"));
        for bad in
            ["/k8s/clusters/", "/k8s/clusters//api", "/k8s/clusters/C-1/api", "/k8s/clusters/a%2fb/api"]
        {
            assert_eq!(target(bad), None, "{bad}");
        }
    }
}
