//! The control plane: the controllers and the scheduler, on one server at a time.

pub mod budget;
pub mod daemon_set;
pub mod deployment;
pub mod job;
pub mod members;
pub mod nodes;
pub mod pods;
pub mod replica_set;
pub mod scheduler;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use remuda_control::{Ctx, Informer, Retry, Retryable, Scope, leases::Elector};
use remuda_names::{PROGRAM, node as names, rancher::snapshot_file};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    balance::Backends, config::Settings, distribution::Distribution, paths::Paths, server::state::Mode,
};

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kit(#[from] remuda_control::Error),
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error("ask etcd about its members")]
    Etcd(#[from] crate::etcd::EtcdError),
    #[error("{what} cannot be understood")]
    Invalid { what: String, source: serde_json::Error },
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Error::Kit(error) => error.retry(),
            Error::Api { source, .. } => source.retry(),
            Error::Etcd(_) => Retry::Transient,
            Error::Invalid { .. } => Retry::UserMustAct,
        }
    }
}

pub(crate) fn failed(verb: &'static str, what: impl std::fmt::Display) -> impl FnOnce(kube::Error) -> Error {
    let what = what.to_string();
    move |source| Error::Api { verb, what, source }
}

/// Whether an error says that something is not there (any more).
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// How long a reconcile waits to see what it has just written.
pub(crate) const SEE: Duration = Duration::from_secs(5);

pub struct Options {
    pub distribution: Distribution,
    pub scheduler: bool,
    pub paths: Paths,
    /// Client URLs of etcd; none where one server keeps the state.
    pub etcd: Vec<String>,
    pub members: Option<Backends>,
    /// The node that keeps the state, if one does.
    pub holder: Option<String>,
}

/// The controllers, running or about to.
pub struct Control {
    ctx: Arc<Ctx>,
    elector: Option<Elector>,
    work: JoinSet<()>,
    election: JoinSet<()>,
    stop: CancellationToken,
    resign: CancellationToken,
}

/// For which servers on one etcd compete.
const LEASE: (&str, &str) = ("kube-system", "sandbox-control-plane");

impl Control {
    /// With an identity, one of several servers works at a time.
    pub fn new(client: Client, identity: Option<&str>) -> Control {
        let mut ctx = Ctx::new(client.clone(), &format!("{PROGRAM}-node"));
        let elector = identity.map(|identity| {
            Elector::new(client, LEASE.0, LEASE.1, identity, ctx.clock.clone(), ctx.metrics.clone())
        });
        if let Some(elector) = &elector {
            ctx = ctx.with_leadership(elector.leadership());
        }
        Control {
            ctx: Arc::new(ctx),
            elector,
            work: JoinSet::new(),
            election: JoinSet::new(),
            stop: CancellationToken::new(),
            resign: CancellationToken::new(),
        }
    }

    /// The Nodes as the controllers see them.
    pub fn nodes(&self) -> Informer<Node> {
        self.ctx.informers.of(Scope::all())
    }

    pub fn start(mut self, options: Options) -> Control {
        if let Some(elector) = self.elector.take() {
            self.election.spawn(elector.run(self.resign.clone()));
        }
        let (ctx, stop) = (self.ctx.clone(), self.stop.clone());
        pods::index(&ctx);
        self.work.spawn(replica_set::run(ctx.clone(), stop.clone()));
        self.work.spawn(deployment::run(ctx.clone(), stop.clone()));
        self.work.spawn(daemon_set::run(ctx.clone(), stop.clone()));
        self.work.spawn(job::run(ctx.clone(), stop.clone()));
        self.work.spawn(budget::run(ctx.clone(), stop.clone()));
        self.work.spawn(nodes::run(ctx.clone(), options.distribution, stop.clone()));
        self.work.spawn(pods::collect(ctx.clone(), stop.clone()));
        if options.scheduler {
            self.work.spawn(scheduler::run(ctx.clone(), stop.clone()));
        }
        self.work.spawn(members::run(ctx, options, stop));
        self
    }

    pub async fn shutdown(mut self) {
        self.stop.cancel();
        while self.work.join_next().await.is_some() {}
        self.ctx.stop().await;
        self.resign.cancel();
        while self.election.join_next().await.is_some() {}
    }
}

/// What every cluster of the sandbox distribution has: rights of nodes, kinds other manifests bring
/// objects of, and a plain statement of what this is.
pub async fn bootstrap(client: &Client, settings: &Settings, mode: &Mode) {
    let replicated = matches!(mode, Mode::Member { .. } | Mode::Client { .. });
    let state = match replicated {
        true => "All servers share a replicated etcd; each serves the API.",
        false => {
            "No etcd program was found when the cluster was made: one server keeps all state and the others pass \
             requests on to it. The control plane is NOT replicated; losing that server loses the cluster."
        }
    };
    let objects = [
        // Without the node authorizer of Kubernetes, every node may do what any node may do.
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:node"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": names::CONFIG_MAP, "namespace": "kube-system"},
            "data": {
                "distribution": format!("sandbox, in place of {}", settings.distribution),
                "replicated": replicated.to_string(),
                "state": state,
                "pods": "Pods are processes on their node. Only images the distribution knows, and commands that \
                         exist on the node, run; there is no pod network, no DNS and no load balancer.",
                "charts": "HelmChart and HelmChartConfig objects are kept, and nothing acts on them.",
            },
        }),
        definition("helm.cattle.io", "HelmChart", "helmcharts", "Namespaced"),
        definition("helm.cattle.io", "HelmChartConfig", "helmchartconfigs", "Namespaced"),
        definition(snapshot_file::GROUP, snapshot_file::KIND, snapshot_file::PLURAL, "Cluster"),
    ];
    for object in objects {
        if let Err(error) = apply(client, &object).await {
            warn!(%error, kind = %object["kind"], name = %object["metadata"]["name"], "cannot be created");
        }
    }
}

/// A kind whose objects are kept as they are.
fn definition(group: &str, kind: &str, plural: &str, scope: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}

async fn apply(client: &Client, object: &Value) -> Result<(), kube::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = text(&object["metadata"]["name"]);
    let params = PatchParams::apply("remuda-node").force();
    api.patch(&name, &params, &Patch::Apply(object)).await.map(drop)
}
