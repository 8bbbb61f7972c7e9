//! A server with the kinds of Cluster API and Rancher, and a person at it.

use std::sync::Arc;

use clap::Parser;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use parking_lot::Mutex;
use remuda_cli::{Code, Command, Failure, Out, Session, run_on};
use serde_json::{Value, json};

/// The command line as the program has it.
#[derive(Parser)]
#[command(name = "remuda")]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Kinds the tests write. Defining all of them would take longer than the tests.
const DEFINED: &[&str] = &[
    "clusters.provisioning.cattle.io",
    "clusters.cluster.x-k8s.io",
    "machines.cluster.x-k8s.io",
    "machinedeployments.cluster.x-k8s.io",
    "rkecontrolplanes.rke.cattle.io",
    "clusters.management.cattle.io",
    "clusterregistrationtokens.management.cattle.io",
    "nodedrivers.management.cattle.io",
];

pub(crate) struct World {
    pub(crate) api: remuda_testkit::World,
    pub(crate) session: Session,
    said: Arc<Mutex<String>>,
}

pub(crate) fn driver_kind(group: &str, kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

impl World {
    pub(crate) async fn new() -> World {
        let api = remuda_testkit::World::bare().await;
        let definitions = DEFINED.iter().map(|name| remuda_api::crd::named(name).unwrap());
        let drivers = [
            driver_kind("rke-machine-config.cattle.io", "LocalConfig"),
            driver_kind("rke-machine.cattle.io", "LocalMachine"),
        ];
        futures::future::join_all(definitions.chain(drivers).map(|definition| api.define(definition))).await;
        let said = Arc::new(Mutex::new(String::new()));
        let mut session = Session::new(api.client());
        session.out = Out::Kept(said.clone());
        let world = World { api, session, said };
        world.put("v1", "Namespace", json!({"metadata": {"name": "fleet-default"}})).await;
        world
    }

    /// Runs a command line, without the program's name. Answers with what was said, and how it ended.
    pub(crate) async fn try_run(&self, line: &str) -> (String, Result<(), Failure>) {
        self.try_run_words(line.split_whitespace()).await
    }

    pub(crate) async fn try_run_words<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> (String, Result<(), Failure>) {
        let line = Line::try_parse_from(std::iter::once("remuda").chain(words))
            .unwrap_or_else(|error| panic!("{error}"));
        self.said.lock().clear();
        let result = Box::pin(run_on(&self.session, line.command)).await;
        (self.said.lock().clone(), result)
    }

    pub(crate) async fn run(&self, line: &str) -> String {
        let (said, result) = self.try_run(line).await;
        result.unwrap_or_else(|failure| panic!("{line}: {failure:?}\n{said}"));
        said
    }

    /// Message, hint and exit code of a command that fails.
    pub(crate) async fn fails(&self, line: &str) -> (Code, String) {
        let (said, result) = self.try_run(line).await;
        let failure = result.expect_err(&format!("{line} succeeded: {said}"));
        (failure.code, format!("{} | {}", failure.message, failure.hint.unwrap_or_default()))
    }

    pub(crate) fn objects(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let plural = format!("{}s", kind.to_lowercase());
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.api.client(), namespace, &resource),
            None => Api::all_with(self.api.client(), &resource),
        }
    }

    /// Creates an object with its status.
    pub(crate) async fn put(&self, version: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let api = self.objects(version, kind, namespace.as_deref());
        let status = object.get("status").cloned();
        let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &typed).await.unwrap();
        if let Some(status) = status {
            let name = object["metadata"]["name"].as_str().unwrap();
            self.status(version, kind, namespace.as_deref(), name, status).await;
        }
    }

    pub(crate) async fn status(
        &self,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        status: Value,
    ) {
        let patch = Patch::Merge(json!({"status": status}));
        let api = self.objects(version, kind, namespace);
        match api.patch_status(name, &PatchParams::default(), &patch).await {
            // Kinds without a status of its own.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                api.patch(name, &PatchParams::default(), &patch).await.unwrap();
            }
            result => drop(result.unwrap()),
        }
    }

    pub(crate) async fn cluster(&self, name: &str) -> Value {
        let api = self.objects("provisioning.cattle.io/v1", "Cluster", Some("fleet-default"));
        serde_json::to_value(api.get(name).await.unwrap()).unwrap()
    }

    pub(crate) async fn names(&self, version: &str, kind: &str) -> Vec<String> {
        let list =
            self.objects(version, kind, Some("fleet-default")).list(&Default::default()).await.unwrap();
        list.items.into_iter().map(|object| object.metadata.name.unwrap()).collect()
    }
}
