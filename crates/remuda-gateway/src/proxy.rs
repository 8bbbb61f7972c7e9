//! The API of a cluster, for people: `/k8s/clusters/<id>/…`.
//!
//! The caller is known to the management API; the cluster knows them by impersonation, under the same name.
//! Their own credentials end here, and those of the cluster's agent are not used for them either: see
//! [`impersonators`].

mod headers;
mod impersonators;
mod roles;
mod standing;

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{Either, select},
};
use http::{Request, Response, StatusCode, request::Parts};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use remuda_auth::{identity::User, request_info::RequestInfo};
use remuda_control::Chain;
use remuda_door::{Acted, Answer, Call};
use tokio::{io::copy_bidirectional, sync::watch};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    headers::Abroad,
    impersonators::{Impersonators, Unable, sweep},
    roles::Roles,
};
use self::{impersonators::Judged, standing::Standing};
use crate::{
    access::{Caller, Decision},
    doors::cluster_of,
    gateway::Shared,
    respond::{Body, BoxError, Refusal},
    route::RouteError,
};

/// For both sides to take an upgrade.
const UPGRADE: Duration = Duration::from_secs(15);

pub(crate) async fn handle(shared: &Arc<Shared>, call: Call, body: Body) -> Answer {
    let Call { caller, head, .. } = call;
    let Some((cluster, target)) = target(&head) else { return Err(Refusal::not_found()) };
    // From before it is decided: what changes meanwhile must not be missed.
    let changes = shared.authorize.changes();
    let decided = admit(shared, &caller, &cluster).await;
    let mut response = match decided {
        Err(refused) => refused.response(),
        Ok(decision) => {
            let who = abroad(&caller, &decision);
            let way = Way { cluster: &cluster, target, who, decision: &decision, changes };
            forward(shared, &caller, way, head, body).await.unwrap_or_else(Refusal::response)
        }
    };
    let known_as = headers::abroad(&caller.name);
    if known_as != caller.name {
        let as_user = Some(User::new(known_as, caller.groups.iter().cloned()));
        response.extensions_mut().insert(Acted { by: None, as_user });
    }
    Ok(response)
}

/// Who somebody is in a cluster, by what was decided about them.
pub(crate) fn abroad(caller: &Caller, decision: &Decision) -> Abroad {
    let roles = decision.roles.iter().map(|role| roles::group(&role.name));
    Abroad::new(caller, &roles.chain(decision.groups.iter().cloned()).collect::<Vec<_>>())
}

/// Whether a caller may use a cluster.
async fn admit(shared: &Shared, caller: &Caller, cluster: &str) -> Result<Decision, Refusal> {
    let decision = shared.authorize.authorize(caller, cluster).await.map_err(|error| {
        tracing::warn!(cluster, user = caller.name, error, "access cannot be decided");
        let message = "whether you may use this cluster cannot be decided now";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    if decision.allowed {
        return Ok(decision);
    }
    Err(Refusal::forbidden(format!("cluster {cluster:?} is forbidden: {}", decision.reason)))
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
) -> Result<Response<Body>, Refusal> {
    let Way { cluster, target, who, decision, changes } = way;
    if !shared.clusters.is_synced() {
        return Err(Refusal::not_yet("this server has just started and is not ready yet").after(1));
    }
    let Some(object) = shared.cluster(cluster) else {
        let message = format!("clusters.management.cattle.io {cluster:?} not found");
        return Err(Refusal::new(StatusCode::NOT_FOUND, message));
    };
    let people = Some(object.spec.display_name.as_str()).filter(|name| !name.is_empty()).unwrap_or(cluster);
    let route = shared.route(cluster).map_err(|why| unavailable(format!("cluster {people} is {why}")))?;
    let wants = headers::wanted_upgrade(&head.headers);
    let client = wants.as_ref().and_then(|_| head.extensions.remove::<hyper::upgrade::OnUpgrade>());
    let asks =
        changes.is_some().then(|| RequestInfo::parse(head.method.as_str(), target.path(), target.query()));
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = target;
    *request.headers_mut() = headers::forwarded(&head.headers, wants.as_ref());
    headers::impersonate(request.headers_mut(), &who)
        .map_err(|what| Refusal::forbidden(format!("{what} cannot be used in another cluster")))?;
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
        return switched(shared, answer, client, ends(caller.revoked.clone(), standing()));
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
            // It passes by itself in a moment. Clients try such requests again for minutes without showing why,
            // so this is for nothing else.
            Err(unable(Unable::Refused(why)).after(1))
        }
    }
}

/// Which cluster, and the path and query there.
fn target(head: &Parts) -> Option<(String, http::Uri)> {
    let (cluster, rest) = cluster_of(head.uri.path())?;
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
fn unable(shared: &Shared, cluster: &str, people: &str, user: &str, why: Unable) -> Refusal {
    let connection = shared.sessions.connection(cluster);
    if !connection.is_connected() {
        return unavailable(format!("cluster {people} is {connection}"));
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
    Refusal::new(code, message)
}

/// Nothing that passes in a moment.
fn unavailable(message: String) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

fn failed(shared: &Shared, cluster: &str, people: &str, error: &RouteError) -> Refusal {
    let connection = shared.sessions.connection(cluster);
    if error.is_disconnected() || !connection.is_connected() {
        return unavailable(format!("cluster {people} is {connection}"));
    }
    let code = match error {
        RouteError::Silent(_) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    Refusal::new(code, format!("the API of cluster {people} cannot be reached: {}", Chain(error)))
}

/// The body of an answer as it is, as long as the caller may have it.
fn passed(answer: Response<Incoming>, ends: Option<Ends>) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let mut response = Response::new(match ends {
        None => Body::Incoming(body),
        Some(ends) => Body::boxed(Revocable { body, ends }),
    });
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers::answered(&parts.headers);
    response
}

/// A stream of another protocol: bytes both ways until one side ends.
fn switched(
    shared: &Arc<Shared>,
    answer: Response<Incoming>,
    client: Option<hyper::upgrade::OnUpgrade>,
    ends: Option<Ends>,
) -> Result<Response<Body>, Refusal> {
    let Some(client) = client else {
        let message = "the cluster changed to a protocol that was not asked for";
        return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let upgrade = headers::wanted_upgrade(answer.headers());
    *response.headers_mut() = headers::answered(answer.headers());
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
    Ok(response)
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
