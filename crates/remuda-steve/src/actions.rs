//! Actions on nodes of clusters (cordon, uncordon, drain, stopDrain), on clusters (kubeconfigs), and on cloud credentials
//! (test).
//!
//! A management Node says which node of which cluster is meant. What is done is done in that cluster, as the caller: the
//! cluster decides. Actions are offered to whoever has a role there that allows them, and only those that make sense
//! now.

mod credential;
mod kubeconfig;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use remuda_door::{Body, Call, Caller, Refusal};
use remuda_names::rancher::{condition, group::MANAGEMENT, reason::DISCONNECTED};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use self::credential::{CredentialChecks, Verdict};
use crate::{
    answer::{invalid, refused},
    api::Shared,
    cluster,
    kind::Kind,
    query::encoded,
    visit::Visit,
};

/// How long a drain may take, in seconds.
const TIMEOUTS: std::ops::RangeInclusive<i64> = 1..=10_800;
const DEFAULT_TIMEOUT: i64 = 120;

/// How a node is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainInput {
    /// Pods that nothing creates again may go.
    pub force: bool,
    /// Pods of DaemonSets stay.
    pub ignore_daemon_sets: bool,
    /// Pods with local storage may go.
    pub delete_local_data: bool,
    /// For each Pod, in seconds; its own if there is none.
    pub grace_period: Option<u32>,
    pub timeout: Duration,
}

/// Who drains nodes, and knows who may change them.
pub trait NodeActions: Send + Sync + 'static {
    /// Whether a caller has a role in a cluster that lets them change its nodes.
    fn offers<'a>(&'a self, caller: &'a Caller, cluster: &'a str) -> BoxFuture<'a, bool>;

    /// Begins to drain a node as `client` may. An `Err` says what the node is instead.
    fn drain(
        &self,
        cluster: &str,
        node: &str,
        client: Client,
        input: DrainInput,
        revoked: Option<CancellationToken>,
    ) -> Result<(), String>;

    /// Ends a drain; `false` if there is none.
    fn stop_drain(&self, cluster: &str, node: &str) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Cordon,
    Uncordon,
    Drain,
    StopDrain,
}

impl Action {
    const ALL: [Self; 4] = [Self::Cordon, Self::Uncordon, Self::Drain, Self::StopDrain];

    fn name(self) -> &'static str {
        match self {
            Self::Cordon => "cordon",
            Self::Uncordon => "uncordon",
            Self::Drain => "drain",
            Self::StopDrain => "stopDrain",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name().eq_ignore_ascii_case(name))
    }
}

/// How a node is, as far as actions go.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    node: String,
    is_cordoned: bool,
    is_draining: bool,
    /// Its cluster is away.
    is_away: bool,
}

impl Standing {
    fn of(object: &Value) -> Self {
        let conditions = object["status"]["conditions"].as_array();
        let is = |kind: &str, field: &str, value: &str| {
            conditions.into_iter().flatten().any(|known| known["type"] == kind && known[field] == value)
        };
        Self {
            node: object["status"]["nodeName"].as_str().unwrap_or_default().to_owned(),
            is_cordoned: object["spec"]["internalNodeSpec"]["unschedulable"] == true,
            is_draining: is(condition::DRAINED, "status", "Unknown"),
            is_away: is(condition::READY, "reason", DISCONNECTED),
        }
    }

    /// Actions that make sense now.
    fn actions(&self) -> &'static [Action] {
        match self {
            Self { node, is_away, .. } if node.is_empty() || *is_away => &[],
            Self { is_draining: true, .. } => &[Action::StopDrain],
            Self { is_cordoned: true, .. } => &[Action::Uncordon, Action::Drain],
            _ => &[Action::Cordon, Action::Drain],
        }
    }

    /// Why an action cannot be done now.
    fn refusal(&self, action: Action, id: &str) -> Option<Refusal> {
        if self.actions().contains(&action) {
            return None;
        }
        let why = match action {
            _ if self.node.is_empty() => "stands for no node of a cluster",
            _ if self.is_away => "is in a cluster that is not connected",
            Action::StopDrain => "is not being drained",
            _ if self.is_draining => "is being drained",
            Action::Cordon => "already cordoned",
            _ => "already uncordoned",
        };
        Some(invalid(format!("Node {id} {why}")).because("InvalidAction"))
    }
}

fn is_node(kind: &Kind) -> bool {
    (kind.group.as_str(), kind.resource.as_str()) == (MANAGEMENT, "nodes")
}

/// Reads how a node is to be drained. No body is the usual way.
fn drain_input(body: &[u8]) -> Result<DrainInput, Refusal> {
    let given: Value = match body.is_empty() {
        true => json!({}),
        false => serde_json::from_slice(body).map_err(|_| invalid("the body is no JSON"))?,
    };
    if !(given.is_object() || given.is_null()) {
        return Err(invalid("the body is not an object"));
    }
    let flag = |field: &str, usual: bool| match &given[field] {
        Value::Null => Ok(usual),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(invalid(format!("{field}: must be true or false"))),
    };
    let number = |field: &str, usual: i64| match &given[field] {
        Value::Null => Ok(usual),
        value => value.as_i64().ok_or_else(|| invalid(format!("{field}: must be a whole number"))),
    };
    let (timeout, grace) = (number("timeout", DEFAULT_TIMEOUT)?, number("gracePeriod", -1)?);
    if !TIMEOUTS.contains(&timeout) {
        let (least, most) = (TIMEOUTS.start(), TIMEOUTS.end());
        return Err(invalid(format!("timeout: must be from {least} to {most} seconds")));
    }
    let grace_period = match grace {
        ..0 => None,
        grace => Some(u32::try_from(grace).map_err(|_| invalid("gracePeriod: is too long"))?),
    };
    Ok(DrainInput {
        force: flag("force", false)?,
        ignore_daemon_sets: flag("ignoreDaemonSets", true)?,
        delete_local_data: flag("deleteLocalData", false)?,
        grace_period,
        timeout: Duration::from_secs(timeout.unsigned_abs()),
    })
}

/// Adds to shown objects what their caller may do with them now.
pub(crate) async fn offer(api: &Shared, visit: &Visit, kind: &Kind, call: &Call, objects: &mut [Value]) {
    if visit.is_management() && kubeconfig::is_cluster(kind) {
        return kubeconfig::offer(api, visit, kind, objects);
    }
    if visit.is_management() && credential::is_secret(kind) {
        return credential::offer(api, visit, kind, objects);
    }
    let Some(nodes) = api.nodes.as_ref().filter(|_| is_node(kind) && visit.is_management()) else { return };
    let mut offers: HashMap<String, bool> = HashMap::new();
    for object in objects {
        let Some((cluster, _)) = object["id"].as_str().and_then(|id| id.split_once('/')) else { continue };
        let may = match offers.get(cluster) {
            Some(may) => *may,
            None => {
                let may = nodes.offers(&call.caller, cluster).await;
                offers.insert(cluster.to_owned(), may);
                may
            }
        };
        let own = object["links"]["self"].as_str().unwrap_or_default().to_owned();
        let actions = Standing::of(object).actions().iter().filter(|_| may);
        let actions: serde_json::Map<String, Value> = actions
            .map(|action| (action.name().to_owned(), format!("{own}?action={}", action.name()).into()))
            .collect();
        if !actions.is_empty() {
            object["actions"] = Value::Object(actions);
        }
    }
}

/// Does what an action asks for; the object as it was before is answered.
pub(crate) async fn act(
    api: &Arc<Shared>,
    visit: &Visit,
    kind: &Arc<Kind>,
    (namespace, name): (&str, &str),
    wanted: &str,
    call: &Call,
    body: Body,
) -> Result<Value, Refusal> {
    let clusters = visit.is_management() && kubeconfig::is_cluster(kind) && !name.is_empty();
    if clusters && wanted.eq_ignore_ascii_case(kubeconfig::NAME) {
        return kubeconfig::act(api, name, call, body).await;
    }
    let secrets = visit.is_management() && credential::is_secret(kind) && !name.is_empty();
    if secrets && wanted.eq_ignore_ascii_case(credential::NAME) {
        let row = visit.seen(kind, namespace, name).await?;
        return credential::act(api, &row, call).await;
    }
    let action = Action::parse(wanted).filter(|_| is_node(kind) && visit.is_management());
    let (Some(action), Some(nodes), false) = (action, &api.nodes, name.is_empty()) else {
        return Err(no_action(wanted));
    };
    if call.head.method != Method::POST {
        return Err(Refusal::method_not_allowed(&["POST"]));
    }
    let row = visit.seen(kind, namespace, name).await?;
    let standing = Standing::of(&row.object());
    if let Some(refusal) = standing.refusal(action, &row.id()) {
        return Err(refusal);
    }
    let client = cluster::client_in(api, namespace, call).ok_or_else(Refusal::not_found)?;
    let node = standing.node.as_str();
    match action {
        Action::Cordon => cordon(&client, node, true).await?,
        Action::Uncordon => cordon(&client, node, false).await?,
        Action::Drain => {
            let body = body.collect().await;
            let body = body.map_err(|_| Refusal::bad("the body is too long or did not arrive"))?.to_bytes();
            let input = drain_input(&body)?;
            // Who may not cordon it is told so, and nothing has begun.
            cordon(&client, node, true).await?;
            let revoked = call.caller.revoked.clone();
            let begun = nodes.drain(namespace, node, client, input, revoked);
            begun.map_err(|why| invalid(format!("Node {} {why}", row.id())).because("InvalidAction"))?;
        }
        Action::StopDrain => {
            may_patch(&client, node).await?;
            if !nodes.stop_drain(namespace, node) {
                // Another server drains it.
                return Err(
                    invalid(format!("Node {} is not being drained here", row.id())).because("InvalidAction")
                );
            }
        }
    }
    Ok(visit.shown_row(kind, &row))
}

fn no_action(wanted: &str) -> Refusal {
    let wanted: String = wanted.chars().take(64).collect();
    Refusal::new(StatusCode::NOT_FOUND, format!("no such action: {wanted}")).because("InvalidAction")
}

async fn cordon(client: &Client, node: &str, unschedulable: bool) -> Result<(), Refusal> {
    let patch = json!({"spec": {"unschedulable": unschedulable}});
    let request = Request::patch(format!("/api/v1/nodes/{}", encoded(node)))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(|_| Refusal::not_found())?;
    client.request::<Value>(request).await.map(drop).map_err(refused)
}

/// Asks the cluster whether the caller may change a node.
async fn may_patch(client: &Client, node: &str) -> Result<(), Refusal> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "patch", "resource": "nodes", "version": "v1", "name": node}},
    });
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header(header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|_| Refusal::not_found())?;
    let review: Value = client.request(request).await.map_err(refused)?;
    match review["status"]["allowed"] == true {
        true => Ok(()),
        false => Err(Refusal::forbidden(format!("nodes {node:?} is forbidden: you may not patch it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(unschedulable: bool, drained: &str, reason: &str) -> Standing {
        Standing::of(&json!({
            "spec": {"internalNodeSpec": {"unschedulable": unschedulable}},
            "status": {"nodeName": "n1", "conditions": [
                {"type": "Drained", "status": drained}, {"type": "Ready", "status": "True", "reason": reason},
            ]},
        }))
    }

    fn offered(standing: &Standing) -> Vec<&'static str> {
        standing.actions().iter().map(|action| action.name()).collect()
    }

    #[test]
    fn only_what_makes_sense_now_is_offered() {
        assert_eq!(offered(&standing(false, "", "")), ["cordon", "drain"]);
        assert_eq!(offered(&standing(true, "", "")), ["uncordon", "drain"]);
        assert_eq!(offered(&standing(true, "True", "")), ["uncordon", "drain"]);
        assert_eq!(offered(&standing(true, "Unknown", "")), ["stopDrain"]);
        assert_eq!(offered(&standing(false, "", DISCONNECTED)), [""; 0]);
        assert_eq!(offered(&Standing::of(&json!("hostile"))), [""; 0]);
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_reason() {
        let told =
            |standing: &Standing, action| standing.refusal(action, "c-1/m").map(|refusal| refusal.message);
        assert_eq!(told(&standing(true, "", ""), Action::Cordon).unwrap(), "Node c-1/m already cordoned");
        assert_eq!(
            told(&standing(false, "", ""), Action::Uncordon).unwrap(),
            "Node c-1/m already uncordoned"
        );
        assert_eq!(
            told(&standing(true, "Unknown", ""), Action::Drain).unwrap(),
            "Node c-1/m is being drained"
        );
        assert_eq!(
            told(&standing(true, "", ""), Action::StopDrain).unwrap(),
            "Node c-1/m is not being drained"
        );
        assert!(told(&standing(false, "", DISCONNECTED), Action::Cordon).unwrap().contains("not connected"));
        assert_eq!(told(&standing(false, "", ""), Action::Cordon), None);
        assert_eq!(Action::parse("stopdrain"), Some(Action::StopDrain));
        assert_eq!(Action::parse("explode"), None);
    }

    #[test]
    fn bad_input_of_a_drain_is_named() {
        let usual = drain_input(b"").unwrap();
        assert_eq!((usual.ignore_daemon_sets, usual.force, usual.grace_period), (true, false, None));
        assert_eq!(usual.timeout, Duration::from_secs(120));
        assert_eq!(drain_input(b"null").unwrap(), usual);
        let given =
            drain_input(br#"{"force":true,"ignoreDaemonSets":false,"gracePeriod":5,"timeout":60}"#).unwrap();
        assert!(given.force && !given.ignore_daemon_sets && given.grace_period == Some(5));
        for (body, field) in [
            (r#"{"timeout":0}"#, "timeout"),
            (r#"{"timeout":10801}"#, "timeout"),
            (r#"{"timeout":"1"}"#, "timeout"),
            (r#"{"force":"yes"}"#, "force"),
            (r#"{"gracePeriod":99999999999}"#, "gracePeriod"),
            ("[]", "body"),
            ("{", "body"),
        ] {
            let refusal = drain_input(body.as_bytes()).unwrap_err();
            assert!(refusal.message.contains(field) && refusal.code == 422, "{body}: {}", refusal.message);
        }
    }
}
