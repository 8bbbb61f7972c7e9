//! A run against a server: clusters come, are looked at, are changed, and go.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use remuda_api::{core::Machine, provisioning::Cluster};
use remuda_control::{Ctx, Informer, ObjectKey, Scope, clock::SystemClock};
use remuda_names::rancher::{label, secret_type};
use remuda_plan::{key, sha256_hex};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    ConfigChange, ProvisionOptions, ProvisionReport, Shape, kinds, run as run_world,
    tracker::{Tracker, missing},
};
use crate::{
    define,
    load::{After, LoadError, Progress, Stage},
    workload::Workloads,
};

/// How long after the last Cluster its leftovers may still be on their way.
const COLLECTED: Duration = Duration::from_secs(60);
/// What follows the last cluster, such as sums elsewhere, gets a moment before idleness counts.
const MOMENT: Duration = Duration::from_secs(5);

/// Makes clusters on the server behind `options.client`, and tells how it took them.
pub async fn run_provision(options: ProvisionOptions) -> Result<ProvisionReport, LoadError> {
    let stop = CancellationToken::new();
    let ctx = Arc::new(Ctx::new(options.client.clone(), "remuda-sim"));
    let workloads = Workloads::new(options.world.seed, Arc::new(SystemClock));
    let outer = options.stop.clone();
    let run = Run { options, ctx: ctx.clone(), workloads: workloads.clone() };
    let mut tasks = JoinSet::new();
    let work = async {
        run.tell(Stage::Install, 0, 1);
        super::install(&run.options.client).await?;
        define::ensure_namespace(&run.options.client, &run.options.namespace).await?;
        run.tell(Stage::Install, 1, 1);
        let (world, door) = (run.options.world.clone(), run.options.door.clone());
        tasks.spawn(run_world(ctx.clone(), world, workloads, door, stop.clone()));
        run.all().await
    };
    let result = tokio::select! {
        // Being told to stop is how a held run ends well.
        biased;
        result = work => result,
        () = outer.cancelled() => Err(LoadError::Stopped),
    };
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    ctx.stop().await;
    result
}

struct Run {
    options: ProvisionOptions,
    ctx: Arc<Ctx>,
    workloads: Workloads,
}

fn failed(verb: &'static str, what: impl std::fmt::Display) -> impl FnOnce(kube::Error) -> LoadError {
    let what = what.to_string();
    move |source| LoadError::Api { verb, what, source }
}

/// The checksum of a plan, and whether it is applied.
fn plan(secret: &Secret) -> (String, bool) {
    let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| &value.0);
    let checksum = value(key::PLAN).map(|plan| sha256_hex(plan)).unwrap_or_default();
    let applied = value(key::APPLIED_CHECKSUM).is_some_and(|applied| applied == checksum.as_bytes());
    (checksum, applied)
}

impl Run {
    fn tell(&self, stage: Stage, done: usize, total: usize) {
        (self.options.progress)(Progress { stage, done, total });
    }

    async fn all(&self) -> Result<ProvisionReport, LoadError> {
        let shapes = self.options.shapes();
        let tracker = Arc::new(Tracker::new(&shapes));
        let followed = tracker.follow(&self.ctx);
        let before = self.revision().await?;
        let mut report = self.provision(&tracker, &shapes).await?;
        report.store_writes = self.revision().await?.checked_sub(before);
        report.writes_per_cluster =
            report.store_writes.map(|writes| writes as f64 / shapes.len().max(1) as f64);
        if !self.options.idle.is_zero() {
            tokio::time::sleep(MOMENT).await;
            let before = self.revision().await?;
            self.pause(Stage::Idle, self.options.idle).await;
            report.idle_seconds = Some(self.options.idle.as_secs_f64());
            report.idle_writes = self.revision().await?.checked_sub(before);
        }
        if self.options.config_change {
            report.config_change = Some(self.change_config(&shapes).await?);
        }
        report.workload_requests = self.workloads.requests();
        match self.options.after {
            After::Keep => {}
            After::Hold(duration) => tokio::select! {
                () = self.pause(Stage::Hold, duration) => {}
                () = self.options.stop.cancelled() => {}
            },
            After::Delete => self.delete(&shapes, &mut report).await?,
        }
        drop(followed);
        Ok(report)
    }

    /// Where the server's store is, if it counts.
    async fn revision(&self) -> Result<u64, LoadError> {
        let namespaces: Api<Namespace> = Api::all(self.options.client.clone());
        let list = namespaces.list_metadata(&ListParams::default().limit(1)).await;
        let list = list.map_err(failed("list", "namespaces"))?;
        Ok(list.metadata.resource_version.unwrap_or_default().parse().unwrap_or(0))
    }

    async fn pause(&self, stage: Stage, duration: Duration) {
        let total = usize::try_from(duration.as_secs()).unwrap_or(usize::MAX);
        for second in 0..total {
            self.tell(stage, second, total);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.tell(stage, total, total);
    }

    async fn provision(&self, tracker: &Tracker, shapes: &[Shape]) -> Result<ProvisionReport, LoadError> {
        let (total, started) = (shapes.len(), Instant::now());
        let create = async {
            let mut created = stream::iter(shapes.iter().map(|shape| self.create(tracker, shape)))
                .buffer_unordered(self.options.parallel.max(1));
            let mut done = 0;
            while created.try_next().await?.is_some() {
                done += 1;
                self.tell(Stage::Create, done, total);
            }
            Ok::<_, LoadError>(started.elapsed())
        };
        let mut complete = tracker.complete();
        let watch = async {
            loop {
                let done = *complete.borrow_and_update();
                self.tell(Stage::Ready, done, total);
                if done >= total {
                    return Ok(started.elapsed());
                }
                // The sender is the tracker, which we hold.
                let _ = complete.changed().await;
            }
        };
        let both = futures::future::try_join(create, watch);
        let Ok(done) = tokio::time::timeout(self.options.patience, both).await else {
            let (done, after) = (*tracker.complete().borrow(), self.options.patience);
            return Err(LoadError::TimedOut { done, total, after, example: tracker.example() });
        };
        let (created, ready) = done?;
        Ok(ProvisionReport {
            clusters: total,
            machines: shapes.iter().map(Shape::machines).sum(),
            created_seconds: created.as_secs_f64(),
            ready_seconds: ready.as_secs_f64(),
            cluster: tracker.cluster_times(),
            machine: tracker.machine_times(),
            ..ProvisionReport::default()
        })
    }

    async fn create(&self, tracker: &Tracker, shape: &Shape) -> Result<(), LoadError> {
        tracker.begin(shape);
        for object in shape.objects() {
            let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
            let (version, kind) = (text("apiVersion"), text("kind"));
            let (group, version) = version.split_once('/').unwrap_or_default();
            let plural = format!("{}s", kind.to_lowercase());
            let resource =
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &plural);
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.options.client.clone(), &shape.namespace, &resource);
            let what = format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or_default());
            let object: DynamicObject = serde_json::from_value(object)
                .map_err(kube::Error::SerdeError)
                .map_err(failed("encode", &what))?;
            api.create(&PostParams::default(), &object).await.map_err(failed("create", what))?;
        }
        Ok(())
    }

    fn clusters(&self) -> Api<Cluster> {
        Api::namespaced(self.options.client.clone(), &self.options.namespace)
    }

    /// Plans of our machines, by the Machine.
    fn plans(&self, names: &HashSet<String>) -> HashMap<ObjectKey, (String, bool)> {
        let scope = Scope::all().with_fields(format!("type={}", secret_type::PLAN));
        let secrets: Informer<Secret> = self.ctx.informers.of(scope);
        let ours = secrets.in_namespace(&self.options.namespace).into_iter().filter(|secret| {
            secret.labels().get(label::CLUSTER_NAME).is_some_and(|name| names.contains(name))
        });
        ours.filter_map(|secret| {
            let machine = secret.labels().get(label::MACHINE_NAME)?;
            Some((ObjectKey::of(&secret.metadata).sibling(machine), plan(&secret)))
        })
        .collect()
    }

    fn machines(&self, names: &HashSet<String>) -> HashSet<String> {
        let machines: Informer<Machine> = self.ctx.informers.of(Scope::all());
        let ours = machines.in_namespace(&self.options.namespace).into_iter();
        ours.filter(|machine| names.contains(&machine.spec.cluster_name))
            .filter_map(|machine| machine.uid())
            .collect()
    }

    /// Gives every cluster another configuration and waits until all plans are applied.
    async fn change_config(&self, shapes: &[Shape]) -> Result<ConfigChange, LoadError> {
        let names: HashSet<String> = shapes.iter().map(|shape| shape.name.clone()).collect();
        let (plans, machines) = (self.plans(&names), self.machines(&names));
        let (before, started, total) = (self.revision().await?, Instant::now(), shapes.len());
        let patch =
            json!({"spec": {"rkeConfig": {"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}}}});
        let clusters = self.clusters();
        stream::iter(shapes)
            .map(|shape| async {
                let patched =
                    clusters.patch(&shape.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
                patched.map(drop).map_err(failed("change the configuration of", &shape.name))
            })
            .buffer_unordered(self.options.parallel.max(1))
            .try_collect::<()>()
            .await?;
        let known: Informer<Cluster> = self.ctx.informers.of(Scope::all());
        loop {
            let now = self.plans(&names);
            let pending: HashSet<&ObjectKey> = plans
                .iter()
                .filter(|(key, (old, _))| now.get(key).is_some_and(|(new, applied)| new == old || !applied))
                .map(|(key, _)| key)
                .collect();
            let ready = |shape: &&Shape| {
                let cluster = known.get(&ObjectKey::namespaced(&shape.namespace, &shape.name));
                cluster.is_some_and(|cluster| missing(&cluster).is_none())
            };
            let done = shapes.iter().filter(ready).count();
            self.tell(Stage::ChangeConfig, if pending.is_empty() { done } else { 0 }, total);
            if pending.is_empty() && done == total {
                let changed =
                    plans.iter().filter(|(key, (old, _))| now.get(key).is_some_and(|(new, _)| new != old));
                return Ok(ConfigChange {
                    seconds: started.elapsed().as_secs_f64(),
                    store_writes: self.revision().await?.checked_sub(before),
                    plans_changed: changed.count(),
                    machines_replaced: machines.difference(&self.machines(&names)).count(),
                });
            }
            let after = self.options.patience;
            if started.elapsed() > after {
                let example = format!("{} plans are the old ones, or not applied", pending.len());
                return Err(LoadError::TimedOut { done, total, after, example });
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Deletes all clusters and lists what they leave.
    async fn delete(&self, shapes: &[Shape], report: &mut ProvisionReport) -> Result<(), LoadError> {
        let (clusters, started) = (self.clusters(), Instant::now());
        stream::iter(shapes)
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
        loop {
            let there =
                |shape: &&Shape| known.get(&ObjectKey::namespaced(&shape.namespace, &shape.name)).is_some();
            let (left, total) = (shapes.iter().filter(there).count(), shapes.len());
            self.tell(Stage::Delete, total - left, total);
            if left == 0 {
                break;
            }
            let after = self.options.patience;
            if started.elapsed() > after {
                let example = "the others are being deleted still".to_owned();
                return Err(LoadError::TimedOut { done: total - left, total, after, example });
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
        let kind = |group: &str, version: &str, kind: &str| {
            let plural = format!("{}s", kind.to_lowercase());
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural)
        };
        let mut resources: Vec<ApiResource> =
            [kinds::CONFIG, kinds::MACHINE, kinds::TEMPLATE].into_iter().map(kinds::resource).collect();
        for name in ["Machine", "MachineSet", "MachineDeployment", "Cluster"] {
            resources.push(kind(remuda_names::capi::group::CORE, "v1beta2", name));
        }
        for name in ["RKEControlPlane", "RKECluster", "RKEBootstrap", "RKEBootstrapTemplate"] {
            resources.push(kind(remuda_names::rancher::group::RKE, "v1", name));
        }
        resources.push(ApiResource::erase::<Secret>(&()));
        let (mut left, prefix) = (Vec::new(), format!("{}-", self.options.prefix));
        for resource in resources {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.options.client.clone(), &self.options.namespace, &resource);
            let list = api.list_metadata(&ListParams::default()).await;
            let list = list.map_err(failed("list", &resource.plural))?;
            let names = list.items.iter().map(ResourceExt::name_any);
            let ours = names.filter(|name| name.trim_start_matches("nc-").starts_with(&prefix));
            left.extend(ours.map(|name| format!("{} {name}", resource.kind)));
        }
        Ok(left)
    }
}
