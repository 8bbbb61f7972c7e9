//! The steps of a run.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use remuda_api::core::{Cluster, Machine, MachineDeployment};
use remuda_control::{Ctx, Informer, ObjectKey, Scope};
use remuda_names::capi::label;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{LoadError, LoadOptions, LoadReport, Percentiles, Progress, Stage, tracker::Tracker};
use crate::{
    define,
    dice::Dice,
    kinds,
    names::{GROUP, VERSION},
    objects::{Shape, machine_template},
    workload::{Reach, Workloads},
};

/// How long after the last Cluster its leftovers may still be on their way.
const COLLECTED: Duration = Duration::from_secs(60);

pub(super) struct Run {
    pub(super) options: LoadOptions,
    pub(super) ctx: Arc<Ctx>,
    pub(super) workloads: Workloads,
    cut_off: Vec<ObjectKey>,
}

/// Nothing written for so long counts as quiet.
const QUIET: Duration = Duration::from_millis(300);

fn is_rolled_out(deployment: &MachineDeployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let wanted = deployment.spec.replicas;
    Some(status.observed_generation) >= deployment.metadata.generation
        && status.replicas == wanted
        && status.up_to_date_replicas == wanted
        && status.available_replicas == wanted
}

fn failed(verb: &'static str, what: impl std::fmt::Display) -> impl FnOnce(kube::Error) -> LoadError {
    let what = what.to_string();
    move |source| LoadError::Api { verb, what, source }
}

/// Kind and plural of an object we make.
fn resource(object: &Value) -> ApiResource {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    let plural = format!("{}s", text("kind").to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, text("kind")), &plural)
}

impl Run {
    pub(super) fn new(options: LoadOptions, ctx: Arc<Ctx>, workloads: Workloads) -> Self {
        Self { options, ctx, workloads, cut_off: Vec::new() }
    }

    fn tell(&self, stage: Stage, done: usize, total: usize) {
        (self.options.progress)(Progress { stage, done, total });
    }

    /// Installs our kinds and the namespace.
    pub(super) async fn install(&self) -> Result<(), LoadError> {
        define::let_controllers_in(&self.options.client).await?;
        let definitions: Vec<Value> = kinds::definitions(self.options.providers.contract).collect();
        for (index, definition) in definitions.iter().enumerate() {
            self.tell(Stage::Install, index, definitions.len());
            define::define(&self.options.client, definition).await?;
        }
        define::ensure_namespace(&self.options.client, &self.options.namespace).await?;
        self.tell(Stage::Install, definitions.len(), definitions.len());
        Ok(())
    }

    /// Where the server's store is, if it counts.
    pub(super) async fn revision(&self) -> Result<u64, LoadError> {
        let namespaces: Api<Namespace> = Api::all(self.options.client.clone());
        let list = namespaces.list(&ListParams::default()).await.map_err(failed("list", "namespaces"))?;
        let revision = list.metadata.resource_version.unwrap_or_default();
        Ok(revision.parse().unwrap_or(0))
    }

    pub(super) async fn provision(&self, tracker: &Tracker) -> Result<LoadReport, LoadError> {
        let shapes = tracker.shapes();
        let total = shapes.len();
        let machines =
            shapes.iter().map(|shape| (shape.control_planes + shape.workers) as usize).sum::<usize>();
        let started = Instant::now();
        let create = async {
            let mut created = stream::iter(shapes.iter().map(|shape| self.create(tracker, shape)))
                .buffer_unordered(self.options.parallel.max(1));
            let mut done = 0;
            while created.try_next().await?.is_some() {
                done += 1;
                self.tell(Stage::Create, done, total);
            }
            Ok::<Duration, LoadError>(started.elapsed())
        };
        let mut counts = tracker.counts();
        let watch = async {
            loop {
                let count = *counts.borrow_and_update();
                self.tell(Stage::Provision, count.machines, machines);
                if count.clusters >= total {
                    return Ok(started.elapsed());
                }
                // The sender is the tracker, which we hold.
                let _ = counts.changed().await;
            }
        };
        let both = futures::future::try_join(create, watch);
        let (created, provisioned) = match tokio::time::timeout(self.options.patience, both).await {
            Ok(done) => done?,
            Err(_) => {
                let done = tracker.counts().borrow().clusters;
                let (after, example) = (self.options.patience, tracker.example());
                return Err(LoadError::TimedOut { done, total, after, example });
            }
        };
        Ok(LoadReport {
            clusters: total,
            machines,
            created_seconds: created.as_secs_f64(),
            provisioned_seconds: provisioned.as_secs_f64(),
            cluster: tracker.cluster_times(),
            machine: tracker.machine_times(),
            ..LoadReport::default()
        })
    }

    async fn create(&self, tracker: &Tracker, shape: &Shape) -> Result<(), LoadError> {
        tracker.begin(shape);
        for object in shape.objects() {
            self.create_one(object).await?;
        }
        Ok(())
    }

    async fn create_one(&self, object: Value) -> Result<(), LoadError> {
        let resource = resource(&object);
        let what = format!("{} {}", resource.kind, object["metadata"]["name"].as_str().unwrap_or_default());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.options.client.clone(), &self.options.namespace, &resource);
        let object: DynamicObject = serde_json::from_value(object)
            .map_err(kube::Error::SerdeError)
            .map_err(failed("encode", &what))?;
        api.create(&PostParams::default(), &object).await.map(drop).map_err(failed("create", what))
    }

    /// Looks at a population that should do nothing.
    pub(super) async fn idle(&self, report: &mut LoadReport) -> Result<(), LoadError> {
        // What follows the last Machine, such as sums in Clusters, gets a moment.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = self.revision().await?;
        self.pause(Stage::Idle, self.options.idle).await;
        report.idle_seconds = Some(self.options.idle.as_secs_f64());
        report.idle_writes = self.revision().await?.checked_sub(before);
        Ok(())
    }

    pub(super) async fn pause(&self, stage: Stage, duration: Duration) {
        let total = usize::try_from(duration.as_secs()).unwrap_or(usize::MAX);
        for second in 0..total {
            self.tell(stage, second, total);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.tell(stage, total, total);
    }

    /// Gives MachineDeployments of clusters that can be reached another template, and waits for a Machine of each.
    pub(super) async fn change_templates(&self, first: u32) -> Result<Percentiles, LoadError> {
        let machines: Informer<Machine> = self.ctx.informers.of(Scope::all());
        let reachable = self
            .shapes()
            .into_iter()
            .filter(|shape| !self.cut_off.contains(&ObjectKey::namespaced(&shape.namespace, &shape.name)));
        let (mut taken, count) = (Vec::new(), self.options.template_changes);
        // From the end, so that what is cut off at the beginning does not matter.
        let chosen: Vec<Shape> = reachable.collect::<Vec<_>>().into_iter().rev().collect();
        for number in 0..count {
            self.tell(Stage::ChangeTemplates, number as usize, count as usize);
            let Some(shape) = chosen.get((first + number) as usize % chosen.len().max(1)) else { break };
            taken.push(self.change_template(shape, first + number, &machines).await?);
        }
        self.tell(Stage::ChangeTemplates, taken.len(), count as usize);
        Ok(Percentiles::of(taken))
    }

    async fn change_template(
        &self,
        shape: &Shape,
        number: u32,
        machines: &Informer<Machine>,
    ) -> Result<Duration, LoadError> {
        let deployment = shape.deployment();
        let name = format!("{deployment}-change-{number}");
        let mut template = machine_template(&shape.namespace, &name, "changed");
        template["metadata"]["labels"] = json!({label::CLUSTER_NAME: shape.name});
        self.create_one(template).await?;
        let known: HashSet<ObjectKey> = machines.keys().into_iter().collect();
        let came = Arc::new(Notify::new());
        let (heard, wanted) = (came.clone(), deployment.clone());
        let subscription = machines.subscribe(move |change| {
            let Some(machine) = &change.new else { return };
            let ours = machine.labels().get(label::DEPLOYMENT_NAME) == Some(&wanted);
            if ours && !known.contains(&ObjectKey::of(&machine.metadata)) {
                heard.notify_one();
            }
        });
        let deployments: Api<MachineDeployment> =
            Api::namespaced(self.options.client.clone(), &shape.namespace);
        let patch = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": name}}}}});
        let started = Instant::now();
        let patched = deployments.patch(&deployment, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(failed("change template of", &deployment))?;
        let after = self.options.patience;
        let came = tokio::time::timeout(after, came.notified()).await;
        drop(subscription);
        came.map_err(|_| LoadError::NoNewMachine { after })?;
        let taken = started.elapsed();
        self.rolled_out(&deployments, &deployment).await?;
        Ok(taken)
    }

    /// Waits until a MachineDeployment has replaced its Machines and nobody writes any more, so that the next
    /// change meets idle controllers.
    async fn rolled_out(&self, deployments: &Api<MachineDeployment>, name: &str) -> Result<(), LoadError> {
        let began = Instant::now();
        let mut last = self.revision().await?;
        while began.elapsed() < self.options.patience {
            tokio::time::sleep(QUIET).await;
            let revision = self.revision().await?;
            let still = std::mem::replace(&mut last, revision) == revision;
            if still {
                let deployment = deployments.get(name).await.map_err(failed("read", name))?;
                if is_rolled_out(&deployment) {
                    return Ok(());
                }
            }
        }
        Err(LoadError::NotRolledOut { name: name.to_owned(), after: self.options.patience })
    }

    /// Makes a share of the workload clusters hang, and tells how many.
    pub(super) fn cut_off(&mut self) -> usize {
        let seed = self.options.providers.seed;
        let mut ranked: Vec<(f64, ObjectKey)> = self
            .workloads
            .list()
            .iter()
            .map(|cluster| {
                (Dice::new(seed, &["cut off", &cluster.key().to_string()]).unit(), cluster.key().clone())
            })
            .collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = (ranked.len() as f64 * self.options.unreachable.clamp(0.0, 1.0)).round() as usize;
        self.cut_off = ranked.into_iter().take(count).map(|(_, key)| key).collect();
        for key in &self.cut_off {
            if let Some(cluster) = self.workloads.get(key) {
                cluster.set_reach(Reach::Hangs);
            }
        }
        count
    }

    pub(super) fn reconnect(&mut self) {
        for key in self.cut_off.drain(..) {
            if let Some(cluster) = self.workloads.get(&key) {
                cluster.set_reach(Reach::Answers);
            }
        }
    }

    /// Deletes all clusters and lists what they leave.
    pub(super) async fn delete(&self, report: &mut LoadReport) -> Result<(), LoadError> {
        let clusters: Api<Cluster> = Api::namespaced(self.options.client.clone(), &self.options.namespace);
        let shapes = self.shapes();
        let started = Instant::now();
        stream::iter(&shapes)
            .map(|shape| async {
                match clusters.delete(&shape.name, &Default::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    deleted => deleted.map(drop).map_err(failed("delete Cluster", &shape.name)),
                }
            })
            .buffer_unordered(self.options.parallel.max(1))
            .try_collect::<()>()
            .await?;
        let known: Informer<Cluster> = self.ctx.informers.of(Scope::all());
        let ours: HashSet<ObjectKey> =
            shapes.iter().map(|shape| ObjectKey::namespaced(&shape.namespace, &shape.name)).collect();
        loop {
            let left = known.keys().iter().filter(|key| ours.contains(key)).count();
            self.tell(Stage::Delete, ours.len() - left, ours.len());
            if left == 0 {
                break;
            }
            let after = self.options.patience;
            if started.elapsed() > after {
                let (done, total) = (ours.len() - left, ours.len());
                let example = "the others are being deleted still".to_owned();
                return Err(LoadError::TimedOut { done, total, after, example });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        report.deleted_seconds = Some(started.elapsed().as_secs_f64());
        let waiting = Instant::now();
        loop {
            report.left_behind = self.left_behind().await?;
            if report.left_behind.is_empty() || waiting.elapsed() > COLLECTED {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn left_behind(&self) -> Result<Vec<String>, LoadError> {
        let core = ["Machine", "MachineSet", "MachineDeployment", "Cluster"];
        let ours = [
            "SimCluster",
            "SimControlPlane",
            "SimMachine",
            "SimMachineTemplate",
            "SimBootstrap",
            "SimBootstrapTemplate",
        ];
        let kind = |group: &str, version: &str, kind: &str| {
            let plural = format!("{}s", kind.to_lowercase());
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural)
        };
        let mut kinds: Vec<ApiResource> =
            core.iter().map(|name| kind(&Cluster::group(&()), &Cluster::version(&()), name)).collect();
        kinds.extend(ours.iter().map(|name| kind(GROUP, VERSION, name)));
        kinds.push(ApiResource::erase::<Secret>(&()));
        let mut left = Vec::new();
        for resource in kinds {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.options.client.clone(), &self.options.namespace, &resource);
            let list = api.list_metadata(&ListParams::default()).await;
            let list = list.map_err(failed("list", &resource.plural))?;
            let prefix = format!("{}-", self.options.prefix);
            let names = list.items.iter().map(ResourceExt::name_any).filter(|name| name.starts_with(&prefix));
            left.extend(names.map(|name| format!("{} {name}", resource.kind)));
        }
        Ok(left)
    }
}
