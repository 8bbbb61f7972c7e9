//! `remuda machine cordon`, `uncordon` and `drain`: what is done to the Node of a machine, through the server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clap::Args;
use http::Method;
use jiff::Timestamp;
use remuda_names::{capi, cluster_agent, gateway::path};
use remuda_rollout::machine::drain::{self, Controller, Input};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::existing;
use crate::{
    age, api,
    failure::{Code, Failure},
    gather::Depth,
    object::Object,
    session::Session,
};

#[derive(Args, Debug)]
pub struct Drain {
    /// Name of the machine
    #[arg(value_name = "MACHINE")]
    pub name: String,

    /// Give up after this time; what was evicted stays so
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = age::parse)]
    pub timeout: Duration,
}

/// Between two looks at what is left.
const PAUSE: Duration = Duration::from_secs(1);

/// The Node of a machine, and the way to it.
struct Node {
    machine: String,
    name: String,
    /// Path of the cluster at the server.
    cluster: String,
}

impl Node {
    async fn of(session: &Session, machine: &str) -> Result<Node, Failure> {
        let evidence = existing(session, machine, Depth::Objects).await?;
        let found = evidence.machine(machine);
        let name = found.map(|found| found.text("/status/nodeRef/name")).unwrap_or_default();
        if name.is_empty() {
            let failure = Failure::new(Code::NotFound, format!("machine {machine} has no node yet"));
            return Err(failure.hint(format!("remuda why {machine}")));
        }
        let id = evidence.cluster.as_ref().map(|cluster| cluster.text("/status/clusterName"));
        let Some(id) = id.filter(|id| api::check_name(id).is_ok()) else {
            let message = format!("the cluster of machine {machine} is not reached through this server");
            return Err(Failure::new(Code::NotFound, message)
                .hint(format!("use the cluster's own kubeconfig: kubectl drain {name}")));
        };
        api::check_name(name)?;
        let cluster = format!("{}{id}", path::CLUSTERS);
        Ok(Node { machine: machine.to_owned(), name: name.to_owned(), cluster })
    }

    async fn ask(
        &self,
        session: &Session,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.cluster))
            .header("content-type", kind)
            .body(body)
            .map_err(kube::Error::HttpError)?;
        session.client.request::<Value>(request).await
    }

    /// Whether that changed anything.
    async fn set_unschedulable(&self, session: &Session, wanted: bool) -> Result<bool, Failure> {
        let verb = if wanted { "cordon" } else { "uncordon" };
        let doing = format!("{verb} node {}", self.name);
        let path = format!("/api/v1/nodes/{}", self.name);
        let failed = |error: kube::Error| Failure::api(&doing, &error);
        let node = self.ask(session, Method::GET, &path, &Value::Null).await.map_err(failed)?;
        if Object(node).flag("/spec/unschedulable") == wanted {
            return Ok(false);
        }
        let patch = json!({"spec": {"unschedulable": wanted}});
        self.ask(session, Method::PATCH, &path, &patch).await.map_err(failed)?;
        Ok(true)
    }

    async fn pods(&self, session: &Session) -> Result<Vec<Object>, Failure> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.name);
        let list = self.ask(session, Method::GET, &path, &Value::Null).await;
        let mut list =
            list.map_err(|error| Failure::api(&format!("list pods of node {}", self.name), &error))?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items.into_iter().map(Object).collect()),
            _ => Ok(Vec::new()),
        }
    }
}

pub(super) async fn cordon(session: &Session, machine: &str, wanted: bool) -> Result<(), Failure> {
    let node = Node::of(session, machine).await?;
    let changed = node.set_unschedulable(session, wanted).await?;
    let state = if wanted { "takes no new pods" } else { "takes pods again" };
    let already = if changed { "" } else { " already" };
    session.out.line(&format!("node {} of machine {machine} {state}{already}", node.name));
    Ok(())
}

pub(super) async fn drain(session: &Session, arguments: Drain) -> Result<(), Failure> {
    let node = Node::of(session, &arguments.name).await?;
    node.set_unschedulable(session, true).await?;
    session.out.note(&format!("node {} takes no new pods", node.name));
    let began = Instant::now();
    let mut told = BTreeSet::new();
    loop {
        let pods: Vec<drain::Pod> =
            node.pods(session).await?.iter().filter(|pod| !is_cluster_agent(pod)).map(view).collect();
        let namespaces: BTreeMap<_, _> =
            pods.iter().map(|pod| (pod.namespace.clone(), BTreeMap::new())).collect();
        let none = BTreeMap::new();
        let input = Input {
            pods: &pods,
            rules: &[],
            machine: &none,
            cluster: &none,
            namespaces: &namespaces,
            unreachable: false,
        };
        let plan = drain::plan(&input, Timestamp::now());
        if plan.is_done() {
            session.out.line(&format!("machine {} is drained", node.machine));
            return Ok(());
        }
        let mut held = Vec::new();
        for pod in &plan.evict {
            match evict(session, &node, pod).await? {
                None if told.insert(format!("evicted {pod}")) => session.out.note(&format!("evicted {pod}")),
                None => {}
                Some(reason) => {
                    let line = format!("{pod} stays: {reason}");
                    if told.insert(line.clone()) {
                        session.out.note(&line);
                    }
                    held.push(line);
                }
            }
        }
        if began.elapsed() > arguments.timeout {
            return Err(late(&node, &plan, &held, arguments.timeout));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn late(node: &Node, plan: &drain::Plan, held: &[String], timeout: Duration) -> Failure {
    let after = age::short(i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX));
    let left = match held {
        [] => [plan.deleting.as_slice(), plan.wait.as_slice()].concat().join(", "),
        held => held.join("; "),
    };
    let message = format!("machine {} is not drained after {after}: {left}", node.machine);
    Failure::new(Code::TimedOut, message)
        .hint(format!("remuda machine uncordon {} lets it take pods again", node.machine))
}

/// Why a pod may not go now; nothing if it goes, or is gone.
async fn evict(session: &Session, node: &Node, pod: &str) -> Result<Option<String>, Failure> {
    let (namespace, name) = pod.split_once('/').unwrap_or_default();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
    });
    match node.ask(session, Method::POST, &path, &body).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 429 => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let causes: Vec<&str> = causes.map(|cause| cause.message.as_str()).collect();
            Ok(Some(format!("{} {}", status.message, causes.join(", ")).trim().to_owned()))
        }
        Err(error) => Err(Failure::api(&format!("evict pod {pod}"), &error)),
    }
}

/// The other end of the way to the cluster: without it nothing could be done there.
fn is_cluster_agent(pod: &Object) -> bool {
    pod.label("app") == cluster_agent::NAME
}

fn view(pod: &Object) -> drain::Pod {
    let controller = pod.list("/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
    let labels = pod.0.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    drain::Pod {
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        mirror: pod.has_annotation(capi::annotation::MIRROR_POD),
        controller: match controller {
            None => Controller::None,
            Some(owner) if owner["kind"] == "DaemonSet" => Controller::DaemonSet,
            Some(_) => Controller::Other,
        },
        finished: matches!(pod.text("/status/phase"), "Succeeded" | "Failed"),
        local_storage: pod.list("/spec/volumes").iter().any(|volume| !volume["emptyDir"].is_null()),
        deleted: pod.deleted(),
    }
}
