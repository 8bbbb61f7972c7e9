//! Parts of a cluster are deleted by hand, at any time and two at a time: it heals once, or goes, and never makes
//! machines without end. Nothing here refuses anything: what a server refuses, controllers must still survive.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams},
};
use parking_lot::Mutex;
use remuda_api::{
    core::{Cluster, Machine, MachineDeployment, MachineSet},
    provisioning,
    rke::{RkeBootstrap, RkeBootstrapTemplate, RkeCluster, RkeControlPlane},
};
use remuda_control::{Ctx, Informer, Scope, informer::Subscription};
use remuda_sim::{Options, provision::kinds};

use crate::{
    provision::{NAMESPACE, World},
    world::clock,
};

/// Machines of a cluster: one server, one worker.
const WANTED: usize = 2;
/// How long a cluster is watched that should stay as it is. A loop would make machines within seconds.
const QUIET: Duration = Duration::from_secs(300);
/// Virtual seconds a cluster is given for each step.
const PATIENCE: u64 = 3_600;
/// Virtual seconds between two looks.
const STEP: u64 = 5;

/// What a cluster consists of. Of those that both pools have one is deleted: the worker's if there is a choice.
const PARTS: [&str; 11] = [
    "Cluster",
    "RKECluster",
    "RKEControlPlane",
    "MachineDeployment",
    "MachineDeployment of servers",
    "MachineSet",
    "Machine",
    "RKEBootstrapTemplate",
    "SimulatedMachineTemplate",
    "RKEBootstrap",
    "SimulatedMachine",
];

/// Parts whose loss nothing mends, which is why a server refuses to delete them: a control plane waits for its
/// machines to go, the last etcd member is not let go as long as its cluster stays, and a Machine is not replaced
/// for what is behind it.
const LASTING: [&str; 4] =
    ["RKEControlPlane", "MachineDeployment of servers", "RKEBootstrap", "SimulatedMachine"];

fn resource(part: &str) -> ApiResource {
    match part.split(' ').next().unwrap() {
        "Cluster" => ApiResource::erase::<Cluster>(&()),
        "RKECluster" => ApiResource::erase::<RkeCluster>(&()),
        "RKEControlPlane" => ApiResource::erase::<RkeControlPlane>(&()),
        "MachineDeployment" => ApiResource::erase::<MachineDeployment>(&()),
        "MachineSet" => ApiResource::erase::<MachineSet>(&()),
        "Machine" => ApiResource::erase::<Machine>(&()),
        "RKEBootstrapTemplate" => ApiResource::erase::<RkeBootstrapTemplate>(&()),
        "RKEBootstrap" => ApiResource::erase::<RkeBootstrap>(&()),
        kind => kinds::resource(kind),
    }
}

/// When parts are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// As soon as they are there.
    Making,
    /// When the cluster is ready.
    Ready,
    /// After the cluster itself was deleted.
    Going,
}

#[derive(Debug, Clone)]
struct Case {
    name: String,
    parts: Vec<&'static str>,
    stage: Stage,
}

/// Machines that ever were, by cluster.
struct Census {
    ctx: Arc<Ctx>,
    made: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    _subscription: Subscription,
}

impl Census {
    fn begin(world: &World) -> Self {
        let ctx = Arc::new(Ctx::new(world.api.client(), "census").with_clock(clock()));
        let machines: Informer<Machine> = ctx.informers.of(Scope::all());
        let made: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>> = Arc::default();
        let noted = made.clone();
        let subscription = machines.subscribe(move |change| {
            for machine in change.new.iter() {
                let cluster = machine.spec.cluster_name.clone();
                noted.lock().entry(cluster).or_default().insert(machine.uid().unwrap_or_default());
            }
        });
        Self { ctx, made, _subscription: subscription }
    }

    fn of(&self, cluster: &str) -> usize {
        self.made.lock().get(cluster).map_or(0, BTreeSet::len)
    }
}

struct Run<'a> {
    world: &'a World,
    census: &'a Census,
    case: &'a Case,
}

impl Run<'_> {
    fn api(&self, part: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.world.api.client(), NAMESPACE, &resource(part))
    }

    /// The object of a part, if it is there.
    async fn find(&self, part: &str) -> Option<DynamicObject> {
        let cluster = &self.case.name;
        let mut found = self.api(part).list(&ListParams::default()).await.unwrap().items;
        found.retain(|object| {
            let name = object.name_any();
            name == *cluster || name.starts_with(&format!("{cluster}-"))
        });
        let is_worker = |object: &DynamicObject| object.name_any().contains("-workers");
        let wants_worker = !part.ends_with("of servers");
        let place = found.iter().position(|object| is_worker(object) == wants_worker);
        let place = place.unwrap_or(0);
        (place < found.len()).then(|| found.swap_remove(place))
    }

    async fn until(&self, what: &str, so: impl AsyncFn() -> bool) {
        for _ in 0..PATIENCE / STEP {
            if so().await {
                return;
            }
            self.bounded();
            tokio::time::sleep(Duration::from_secs(STEP)).await;
        }
        panic!("never happened: {what}: {:?}: {}", self.case, self.describe().await);
    }

    /// Looks all the time: what was just made is to be deleted.
    async fn appears(&self, part: &str) {
        for _ in 0..PATIENCE * 20 {
            if self.find(part).await.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never made: {part}: {:?}: {}", self.case, self.describe().await);
    }

    /// What there is of the cluster, for whoever reads a failure.
    async fn describe(&self) -> String {
        let cluster = self.world.clusters().get_opt(&self.case.name).await.unwrap();
        let conditions = cluster.and_then(|cluster| cluster.status).map(|status| status.conditions);
        let mut text = String::new();
        for condition in conditions.into_iter().flatten().filter(|condition| condition.status != "True") {
            text += &format!("\n  {} {} {}", condition.kind, condition.status, condition.message);
        }
        for part in PARTS {
            let found = self.find(part).await;
            let going = found.as_ref().map(|found| found.metadata.deletion_timestamp.is_some());
            text += &format!("\n  {part}: {:?} going {going:?}", found.map(|found| found.name_any()));
        }
        text
    }

    /// Every part may be replaced once, and everything with it.
    #[track_caller]
    fn bounded(&self) {
        let (made, limit) = (self.census.of(&self.case.name), WANTED * (1 + self.case.parts.len()));
        assert!(made <= limit, "{made} machines were made, {limit} may be: {:?}", self.case);
    }

    async fn is_ready(&self) -> bool {
        let cluster = self.world.clusters().get(&self.case.name).await.unwrap();
        let status = cluster.status.unwrap_or_default();
        let is = |kind: &str| {
            status.conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
        };
        status.ready && is("Ready") && is("Updated") && self.machines().await == WANTED
    }

    /// Machines that stay.
    async fn machines(&self) -> usize {
        let machines: Api<Machine> = Api::namespaced(self.world.api.client(), NAMESPACE);
        let listed = machines.list(&ListParams::default()).await.unwrap().items;
        let ours = listed.iter().filter(|machine| machine.spec.cluster_name == self.case.name);
        ours.filter(|machine| machine.metadata.deletion_timestamp.is_none()).count()
    }

    async fn delete(&self, part: &str) {
        let Some(object) = self.find(part).await else { return };
        // Another one may be faster.
        let _ = self.api(part).delete(&object.name_any(), &DeleteParams::default()).await;
    }

    async fn run(&self) {
        let Case { name, parts, stage } = self.case;
        self.world.create_shape(name, 1, 1).await;
        match stage {
            Stage::Making => {}
            Stage::Ready => self.until("it is ready at first", async || self.is_ready().await).await,
            Stage::Going => {
                self.until("it is ready at first", async || self.is_ready().await).await;
                self.world.clusters().delete(name, &DeleteParams::default()).await.unwrap();
            }
        }
        for part in parts {
            if *stage == Stage::Making {
                self.appears(part).await;
            }
            self.delete(part).await;
        }
        let clusters = self.world.clusters();
        if *stage == Stage::Going {
            self.until("it is gone", async || clusters.get_opt(name).await.unwrap().is_none()).await;
            assert_eq!(self.machines().await, 0, "{:?}", self.case);
            return;
        }
        if parts.iter().any(|part| LASTING.contains(part)) {
            tokio::time::sleep(QUIET).await;
        } else {
            self.until("it is whole again", async || self.is_ready().await).await;
            // It stays so.
            tokio::time::sleep(QUIET).await;
            assert!(self.is_ready().await, "{:?}: {}", self.case, self.describe().await);
        }
        self.bounded();
        clusters.delete(name, &DeleteParams::default()).await.unwrap();
        self.until("it is gone", async || clusters.get_opt(name).await.unwrap().is_none()).await;
        assert_eq!(self.machines().await, 0, "{:?}", self.case);
        self.bounded();
    }
}

async fn check(sets_of_parts: Vec<Vec<&'static str>>, stage: impl Fn(usize) -> Stage) {
    let world = World::start(Options::default()).await;
    let server = world.serve();
    let census = Census::begin(&world);
    let cases: Vec<Case> = sets_of_parts
        .into_iter()
        .enumerate()
        .map(|(number, parts)| Case { name: format!("c{number}"), parts, stage: stage(number) })
        .collect();
    for some in cases.chunks(12) {
        join_all(some.iter().map(|case| async {
            Run { world: &world, census: &census, case }.run().await;
        }))
        .await;
    }
    let left: Api<provisioning::Cluster> = world.clusters();
    assert!(left.list(&ListParams::default()).await.unwrap().items.is_empty());
    census.ctx.stop().await;
    world.end(server).await;
}

fn singles() -> Vec<Vec<&'static str>> {
    PARTS.iter().map(|part| vec![*part]).collect()
}

/// Every second pair, beginning with the first or the second.
fn pairs(which: usize) -> Vec<Vec<&'static str>> {
    let all = PARTS
        .iter()
        .enumerate()
        .flat_map(|(place, first)| PARTS[place + 1..].iter().map(move |second| vec![*first, *second]));
    all.skip(which).step_by(2).collect()
}

#[tokio::test(start_paused = true)]
async fn one_part_deleted_while_the_cluster_is_made_is_made_once_more() {
    check(singles(), |_| Stage::Making).await;
}

#[tokio::test(start_paused = true)]
async fn one_part_deleted_of_a_cluster_that_is_ready_is_made_once_more() {
    check(singles(), |_| Stage::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn parts_deleted_of_a_cluster_that_goes_do_not_hold_it() {
    check(singles(), |_| Stage::Going).await;
}

#[tokio::test(start_paused = true)]
async fn two_parts_deleted_at_once_are_made_once_more() {
    check(pairs(0), |number| if number % 2 == 0 { Stage::Ready } else { Stage::Making }).await;
}

#[tokio::test(start_paused = true)]
async fn two_other_parts_deleted_at_once_are_made_once_more() {
    check(pairs(1), |number| if number % 2 == 0 { Stage::Making } else { Stage::Ready }).await;
}
