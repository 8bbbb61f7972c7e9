//! A Cluster with templates to make Machines from, and somebody who plays the Machine controller and the providers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachineSet};
use remuda_control::{
    Ctx, Informer, Scope,
    informer::{Change, Subscription},
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::world::{GROUP, World};

pub(crate) const CLUSTER: &str = "demo";

pub(crate) fn with_kind(mut object: Value, kind: &str) -> Value {
    object["apiVersion"] = json!("cluster.x-k8s.io/v1beta2");
    object["kind"] = json!(kind);
    object
}

/// The world, its controllers but for the one of Machines, and the player.
pub(crate) struct Fleet {
    pub(crate) world: World,
    controllers: Option<Controllers>,
    player: Option<JoinHandle<()>>,
    play: Arc<Mutex<Play>>,
    changed: Arc<Notify>,
}

struct Controllers {
    ctx: Arc<Ctx>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// How the player plays.
#[derive(Default)]
pub(crate) struct Play {
    /// Machines whose servers never come up, by infrastructure template.
    pub(crate) broken: Vec<String>,
    /// Machines that are left alone.
    pub(crate) untouched: Vec<String>,
    /// Nobody deletes anything.
    pub(crate) no_deletion: bool,
    /// Where Nodes of Machines appear.
    pub(crate) workload: Option<remuda_testkit::World>,
}

impl Fleet {
    /// A Cluster with templates `small` and `large`, and a player, but no controllers yet.
    pub(crate) async fn new() -> Self {
        let world = World::start().await;
        let cluster = with_kind(
            json!({"metadata": {"name": CLUSTER}, "spec": {
                "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443},
            }}),
            "Cluster",
        );
        create::<Cluster>(&world, cluster).await;
        for name in ["small", "large"] {
            template(&world, "FakeMachineTemplate", name).await;
            template(&world, "FakeConfigTemplate", name).await;
        }
        let play = Arc::new(Mutex::new(Play::default()));
        let changed = Arc::new(Notify::new());
        let player = tokio::spawn(play_machines(world.clone(), play.clone(), changed.clone()));
        Self { world, controllers: None, player: Some(player), play, changed }
    }

    /// With controllers at work.
    pub(crate) async fn start() -> Self {
        let mut fleet = Self::new().await;
        fleet.run();
        fleet
    }

    pub(crate) fn run(&mut self) {
        let (ctx, stop) = (self.world.ctx(), CancellationToken::new());
        let options =
            remuda_capi::Options { leave: vec!["Machine", "Cluster"], ..remuda_capi::Options::default() };
        let task = tokio::spawn(self.world.controllers(&ctx, options, stop.clone()));
        self.controllers = Some(Controllers { ctx, stop, task });
    }

    /// Stops the controllers in order.
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.controllers.take() {
            running.stop.cancel();
            running.task.await.unwrap();
            running.ctx.stop().await;
        }
    }

    /// Stops the controllers wherever they are, as a crash would.
    pub(crate) async fn kill(&mut self) {
        if let Some(running) = self.controllers.take() {
            running.task.abort();
            let _ = running.task.await;
            running.ctx.informers.stop().await;
        }
    }

    pub(crate) fn play(&self, change: impl FnOnce(&mut Play)) {
        change(&mut self.play.lock());
        self.changed.notify_one();
    }

    /// Ends the player: nothing happens to Machines any more.
    pub(crate) fn end_play(&mut self) {
        if let Some(player) = self.player.take() {
            player.abort();
        }
    }

    pub(crate) async fn machines(&self) -> Vec<Machine> {
        self.world.api::<Machine>().list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn machine_names(&self) -> Vec<String> {
        self.machines().await.iter().map(ResourceExt::name_any).collect()
    }

    pub(crate) async fn set(&self, name: &str) -> MachineSet {
        self.world.api::<MachineSet>().get(name).await.unwrap()
    }

    pub(crate) async fn sets(&self) -> Vec<MachineSet> {
        self.world.api::<MachineSet>().list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn deployment(&self, name: &str) -> MachineDeployment {
        self.world.api::<MachineDeployment>().get(name).await.unwrap()
    }

    pub(crate) async fn create_set(&self, name: &str, replicas: i32, more: Value) -> MachineSet {
        create(&self.world, set(name, replicas, more)).await
    }

    pub(crate) async fn create_deployment(
        &self,
        name: &str,
        replicas: i32,
        more: Value,
    ) -> MachineDeployment {
        create(&self.world, deployment(name, replicas, more)).await
    }

    pub(crate) async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let params = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
        self.world.api::<K>().patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until nothing is written any more, and makes sure that nothing is for a long time.
    pub(crate) async fn settle(&self) {
        let mut writes = self.world.writes().len();
        let mut calm = 0;
        for _ in 0..2_000 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = self.world.writes().len();
            calm = if now == writes { calm + 1 } else { 0 };
            writes = now;
            // Longer than a Machine is young.
            if calm == 30 {
                break;
            }
        }
        let before = self.world.writes();
        tokio::time::sleep(Duration::from_secs(250)).await;
        let after = self.world.writes();
        assert_eq!(after[before.len()..], [] as [String; 0], "a settled world is not written to");
    }

    /// Requests since the last time that were to change something, without events.
    pub(crate) fn writes_since(&self, start: usize) -> Vec<String> {
        let writes = self.world.writes();
        writes[start..].iter().filter(|write| !write.contains("events.k8s.io")).cloned().collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end_play();
    }
}

pub(crate) async fn create<K>(world: &World, object: Value) -> K
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::Serialize
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    world.api::<K>().create(&PostParams::default(), &object).await.unwrap()
}

pub(crate) async fn template(world: &World, kind: &str, name: &str) {
    let spec = json!({"template": {
        "metadata": {"labels": {"from": "template"}},
        "spec": {"size": name},
    }});
    world.create_fake(kind, name, spec).await;
}

/// A template for Machines.
pub(crate) fn machine_template(flavour: &str, labels: Value) -> Value {
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "clusterName": CLUSTER,
            "version": "v1.33.0",
            "bootstrap": {
                "configRef": {"apiGroup": GROUP, "kind": "FakeConfigTemplate", "name": flavour},
            },
            "infrastructureRef": {"apiGroup": GROUP, "kind": "FakeMachineTemplate", "name": flavour},
        },
    })
}

/// Overwrites parts of an object; null takes away.
pub(crate) fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            base.retain(|key, _| !more.get(key).is_some_and(Value::is_null));
            for (key, value) in more.into_iter().filter(|(_, value)| !value.is_null()) {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}

pub(crate) fn set(name: &str, replicas: i32, more: Value) -> Value {
    let labels = json!({"pool": name});
    let mut set = with_kind(
        json!({"metadata": {"name": name}, "spec": {
            "clusterName": CLUSTER,
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": machine_template("small", labels),
        }}),
        "MachineSet",
    );
    merge(&mut set, more);
    set
}

pub(crate) fn deployment(name: &str, replicas: i32, more: Value) -> Value {
    let labels = json!({"pool": name});
    let mut deployment = with_kind(
        json!({"metadata": {"name": name}, "spec": {
            "clusterName": CLUSTER,
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "rollout": {"strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            }},
            "template": machine_template("small", labels),
        }}),
        "MachineDeployment",
    );
    merge(&mut deployment, more);
    deployment
}

/// The patch that has Machines made from another template.
pub(crate) fn use_template(flavour: &str) -> Value {
    json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": flavour}}}}})
}

/// `Status Reason message` of a condition.
pub(crate) fn condition(object: &impl serde::Serialize, kind: &str) -> String {
    let object = serde_json::to_value(object).unwrap();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind);
    let text = |found: &Value, key: &str| found[key].as_str().unwrap_or_default().to_owned();
    found.map_or("absent".to_owned(), |found| {
        let parts = ["status", "reason", "message"].map(|key| text(&found, key));
        parts.join(" ").trim_end().to_owned()
    })
}

/// Is the Machine controller, the providers and the garbage collector.
async fn play_machines(world: World, play: Arc<Mutex<Play>>, changed: Arc<Notify>) {
    let ctx = Ctx::new(world.client(), "player");
    fn tell<K>(changed: &Arc<Notify>) -> impl Fn(&Change<K>) + Send + Sync + 'static + use<K> {
        let changed = changed.clone();
        move |_| changed.notify_one()
    }
    let _subscriptions = [
        ctx.informers.of::<Machine>(Scope::all()).subscribe(tell(&changed)),
        ctx.informers.of::<MachineSet>(Scope::all()).subscribe(tell(&changed)),
        ctx.informers.of::<MachineDeployment>(Scope::all()).subscribe(tell(&changed)),
    ];
    loop {
        changed.notified().await;
        let machines = world.api::<Machine>().list(&ListParams::default()).await;
        for machine in machines.map(|list| list.items).unwrap_or_default() {
            let (skip, keep) = {
                let play = play.lock();
                (play.untouched.contains(&machine.name_any()), play.no_deletion)
            };
            if skip {
                continue;
            }
            if machine.metadata.deletion_timestamp.is_some() {
                if !keep {
                    bury(&world, &machine).await;
                }
            } else {
                raise(&world, &machine, &play).await;
            }
        }
    }
}

async fn bury(world: &World, machine: &Machine) {
    for (kind, name) in [
        (&machine.spec.infrastructure_ref.kind, &machine.spec.infrastructure_ref.name),
        (&machine.spec.bootstrap.config_ref.kind, &machine.spec.bootstrap.config_ref.name),
    ] {
        if !kind.is_empty() {
            let _ = world.fake(kind).delete(name, &DeleteParams::default()).await;
        }
    }
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null, "uid": machine.uid()}}));
    let _ = world.api::<Machine>().patch(&machine.name_any(), &PatchParams::default(), &patch).await;
}

async fn raise(world: &World, machine: &Machine, play: &Mutex<Play>) {
    let name = machine.name_any();
    let infra = world.fake("FakeMachine").get_opt(&name).await.ok().flatten();
    let flavour = infra.as_ref().and_then(|infra| infra.data["spec"]["size"].as_str()).unwrap_or_default();
    let up = !play.lock().broken.iter().any(|broken| broken == flavour);
    let outdated = outdated(world, machine).await;
    let fine = if up { "True" } else { "False" };
    let known = machine.status.clone().unwrap_or_default();
    let has = |kind: &str| {
        let found = known.conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|found| found.status.clone()).unwrap_or_default()
    };
    let mut wanted = vec![("Ready", fine), ("Available", fine), ("NodeReady", fine)];
    if let Some(outdated) = outdated {
        wanted.push(("UpToDate", if outdated { "False" } else { "True" }));
    }
    if wanted.iter().all(|(kind, status)| has(kind) == *status) {
        return;
    }
    let mut conditions: Vec<Value> = Vec::new();
    for known in &known.conditions {
        if !wanted.iter().any(|(kind, _)| *kind == known.type_) {
            conditions.push(serde_json::to_value(known).unwrap());
        }
    }
    let now = "2026-01-01T00:00:00Z";
    for (kind, status) in wanted {
        conditions.push(json!({
            "type": kind, "status": status, "reason": "Played", "message": "", "lastTransitionTime": now,
        }));
    }
    let mut status = json!({"conditions": conditions});
    let workload = play.lock().workload.clone();
    if let (Some(workload), true) = (workload, up) {
        let node = node(&format!("node-{name}"), "True", Timestamp::UNIX_EPOCH);
        let _ = Api::<Node>::all(workload.client()).create(&PostParams::default(), &node).await;
    }
    if up {
        status["nodeRef"] = json!({"name": format!("node-{name}")});
    }
    let version = machine.resource_version();
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
    let _ = world.api::<Machine>().patch_status(&name, &PatchParams::default(), &patch).await;
}

/// A Node that is ready, or is not since then.
pub(crate) fn node(name: &str, ready: &str, since: Timestamp) -> Node {
    let conditions = json!([{
        "type": "Ready", "status": ready, "reason": "Played", "message": "", "lastTransitionTime": since.to_string(),
    }]);
    let node = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
    serde_json::from_value(node).unwrap()
}

/// Whether the set a Machine is of is not what its deployment asks for; `None` without a deployment.
async fn outdated(world: &World, machine: &Machine) -> Option<bool> {
    let deployment = machine.labels().get("cluster.x-k8s.io/deployment-name")?;
    let deployment = world.api::<MachineDeployment>().get_opt(deployment).await.ok().flatten()?;
    let owner = machine.owner_references().iter().find(|owner| owner.kind == "MachineSet")?;
    let set = world.api::<MachineSet>().get_opt(&owner.name).await.ok().flatten()?;
    let part = |spec: &remuda_api::core::MachineSpec| {
        (spec.version.clone(), spec.infrastructure_ref.clone(), spec.bootstrap.clone())
    };
    let after = deployment.spec.rollout.after.as_ref().map(|after| after.0);
    let old = after
        .is_some_and(|after| set.metadata.creation_timestamp.as_ref().is_some_and(|made| made.0 < after));
    Some(old || part(&set.spec.template.spec) != part(&deployment.spec.template.spec))
}

/// Sees every state of every Machine.
pub(crate) struct Witness {
    ctx: Ctx,
    pub(crate) seen: Arc<Mutex<Seen>>,
    _subscription: Subscription,
}

#[derive(Default)]
pub(crate) struct Seen {
    machines: BTreeMap<String, Arc<Machine>>,
    /// UIDs of all Machines that ever were.
    pub(crate) created: Vec<String>,
    pub(crate) most: usize,
    /// The fewest that were available at once since [`Witness::start_counting`].
    pub(crate) fewest_available: Option<usize>,
    counting: bool,
}

impl Witness {
    pub(crate) async fn new(world: &World) -> Self {
        let ctx = Ctx::new(world.client(), "witness");
        let machines: Informer<Machine> = ctx.informers.of(Scope::all());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let told = seen.clone();
        let subscription = machines.subscribe(move |change: &Change<Machine>| told.lock().see(change));
        machines.wait_synced().await;
        Self { ctx, seen, _subscription: subscription }
    }

    /// From now on availability counts.
    pub(crate) fn start_counting(&self) {
        let mut seen = self.seen.lock();
        seen.counting = true;
        seen.most = seen.machines.len();
        seen.fewest_available = None;
    }

    pub(crate) async fn stop(self) {
        self.ctx.stop().await;
    }
}

impl Seen {
    fn see(&mut self, change: &Change<Machine>) {
        if let Some(machine) = &change.new {
            let uid = machine.uid().unwrap();
            if !self.created.contains(&uid) {
                self.created.push(uid);
            }
            self.machines.insert(machine.name_any(), machine.clone());
        } else if let Some(machine) = &change.old {
            self.machines.remove(&machine.name_any());
        }
        self.most = self.most.max(self.machines.len());
        if self.counting {
            let available = self.machines.values().filter(|machine| {
                let conditions = machine.status.iter().flat_map(|status| &status.conditions);
                machine.metadata.deletion_timestamp.is_none()
                    && conditions
                        .into_iter()
                        .any(|known| known.type_ == "Available" && known.status == "True")
            });
            let available = available.count();
            self.fewest_available = Some(self.fewest_available.map_or(available, |few| few.min(available)));
        }
    }
}

/// Names of the events about one kind, with their notes.
pub(crate) async fn events(world: &World, kind: &str) -> Vec<String> {
    let api: Api<k8s_openapi::api::events::v1::Event> = world.api();
    let events = api.list(&ListParams::default()).await.unwrap().items;
    let about = events.into_iter().filter(|event| {
        event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref()) == Some(kind)
    });
    about
        .map(|event| format!("{} {}", event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
        .collect()
}
