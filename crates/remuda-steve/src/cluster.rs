//! The list API of other clusters: `/k8s/clusters/<id>/v1`, over the way into the cluster.
//!
//! The cluster is asked as the caller, for every list and every watch, so it decides what they see. Nothing of it is
//! kept here but which kinds it has.
//!
//! A cluster is not trusted with the memory of this server: how much of an answer is read is bounded, for each answer,
//! for each list, and for all that are read at the same time.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri};
use kube::Client;
use remuda_auth::rbac::rule::Rule;
use remuda_control::bounded::{ANSWER, BoundedBody, Room};
use remuda_door::{Answer, Body, Call, Door, Handler, Opening, Refusal};
use remuda_names::{gateway::path::CLUSTERS, list_api::path::ROOT};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    answer::{failure, refused},
    api::{Asked, Shared, host_of},
    rights::Rights,
    show::Base,
    visit::{Source, Visit},
};

/// Bytes of what clusters answer that are held at the same time.
pub(crate) const ROOM: usize = 512 << 20;

/// To find out which kinds a cluster has, and what the caller may do there.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of rules of a caller: they only say what to offer.
const MOST_RULES: usize = 1 << 20;

/// Takes requests for the list API of a cluster; all others go on.
pub(crate) struct InFront {
    pub(crate) api: Arc<Shared>,
    pub(crate) proxy: Arc<dyn Handler>,
}

impl Handler for InFront {
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer> {
        let Some((cluster, rest)) = target(call.path()) else { return self.proxy.handle(call, body) };
        let (cluster, rest) = (cluster.to_owned(), rest.to_owned());
        Box::pin(async move { Ok(self.answer(&cluster, &rest, call, body).await) })
    }
}

/// The cluster, and the path behind the root of its list API.
fn target(path: &str) -> Option<(&str, &str)> {
    let (cluster, rest) = path.strip_prefix(CLUSTERS)?.split_once('/')?;
    let rest = rest.strip_prefix(ROOT.trim_start_matches('/'))?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let good = !cluster.is_empty() && cluster.bytes().all(is_name);
    (good && (rest.is_empty() || rest.starts_with('/'))).then_some((cluster, rest))
}

impl InFront {
    async fn answer(&self, cluster: &str, rest: &str, call: Call, body: Body) -> Response<Body> {
        let base = Base { api: format!("https://{}{CLUSTERS}{cluster}", host_of(&call)) };
        let asked = Asked::new(rest, call.head.uri.query(), &call.head.headers);
        match timeout(PATIENCE, self.visit(cluster, &call, base.clone())).await {
            Ok(Ok(visit)) => self.api.respond(visit, asked, call, body).await,
            Ok(Err(refusal)) => failure(&base, refusal),
            Err(_) => {
                let message = format!("the cluster did not say within {PATIENCE:?} which kinds it has");
                failure(&base, Refusal::new(StatusCode::GATEWAY_TIMEOUT, message))
            }
        }
    }

    async fn visit(&self, cluster: &str, call: &Call, base: Base) -> Result<Visit, Refusal> {
        let room = self.api.room.clone();
        let client = client(call.door, self.proxy.clone(), &room, cluster, call);
        let catalogue = self.api.catalogue_of(cluster, &client).await?;
        Ok(Visit {
            base,
            rights: Rights::Rules(rules(&client).await?),
            client,
            catalogue,
            source: Source::Cluster(room),
            part_of: |_, _| None,
            user: call.caller.name.clone(),
            now: self.api.now(),
        })
    }
}

/// A client of a cluster that acts as the caller, if this server leads into clusters.
pub(crate) fn client_in(api: &Shared, cluster: &str, call: &Call) -> Option<Client> {
    let Opening { door, handler } = api.clusters_door.get()?.clone();
    Some(client(door, handler, &api.room, cluster, call))
}

/// A client of the cluster that acts as the caller: every request takes the way through the proxy.
fn client(
    door: &'static Door,
    proxy: Arc<dyn Handler>,
    room: &Arc<Room>,
    cluster: &str,
    call: &Call,
) -> Client {
    let (peer, caller, management) = (call.peer, call.caller.clone(), call.management.clone());
    let room = room.clone();
    let prefix = format!("{CLUSTERS}{cluster}");
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (caller, management, proxy) = (caller.clone(), management.clone(), proxy.clone());
        let share = room.share(ANSWER);
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let uri = format!("{prefix}{path}").parse::<Uri>();
        async move {
            let bounded = |uri: &Uri, answer: Response<Body>| {
                answer.map(|body| BoundedBody::new(uri, body).within(share))
            };
            let Ok(uri) = uri else {
                return Ok::<_, Infallible>(bounded(&Uri::default(), Refusal::not_found().response()));
            };
            head.uri = uri.clone();
            let call = Call { door, peer, caller, management, head };
            let answer = proxy.handle(call, Body::boxed(body)).await;
            Ok(bounded(&uri, answer.unwrap_or_else(Refusal::response)))
        }
    });
    Client::new(service, "default")
}

/// Rules of the caller in the cluster. They say what to offer; the cluster decides.
async fn rules(client: &Client) -> Result<Arc<[Rule]>, Refusal> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"},
    });
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|_| Refusal::not_found())?;
    let review: Value = client.request(request).await.map_err(refused)?;
    let rules = review["status"]["resourceRules"].as_array();
    let mut left = MOST_RULES;
    let fits = |rule: &&Value| match left.checked_sub(rule.to_string().len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    Ok(rules.into_iter().flatten().filter(fits).map(Rule::parse).collect())
}

#[cfg(test)]
mod tests;
