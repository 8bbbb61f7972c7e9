//! Controllers, driven.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use parking_lot::Mutex;
use remuda_control::{
    Action, Controller, Ctx, Error, ObjectKey, Retry, Retryable, Scope, drive, drive_keys,
    leases::Elector,
    via_index,
    write::{owner_reference, write_status},
};
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::world::{SOON, Thing, ThingStatus, World, thing, until};

#[derive(Debug, thiserror::Error)]
#[error("it went wrong")]
struct Wrong(Retry);

impl Retryable for Wrong {
    fn retry(&self) -> Retry {
        self.0
    }
}

async fn resize(world: &World, name: &str, size: i64) {
    let patch = Patch::Merge(json!({"spec": {"size": size}}));
    world.things().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn create(world: &World, name: &str) -> Thing {
    world.things().create(&PostParams::default(), &thing(name)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_changes_is_one_reconcile() {
    let world = World::start().await;
    let ctx = world.ctx();
    let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let controller = Controller::<Thing>::new("burst", &ctx);
    let root = controller.root().clone();
    let (seen, passing) = (runs.clone(), gate.clone());
    let reconcile = move |thing: Arc<Thing>, _| {
        let (seen, passing) = (seen.clone(), passing.clone());
        async move {
            seen.lock().push(thing.spec.size);
            passing.acquire().await.unwrap().forget();
            Ok::<_, Wrong>(Action::AwaitChange)
        }
    };
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    create(&world, "a").await;
    until("the first reconcile", async || runs.lock().len() == 1).await;
    for size in 1..=50 {
        resize(&world, "a", size).await;
    }
    let newest = world.things().get("a").await.unwrap().resource_version().unwrap();
    assert!(root.wait_for(&newest, SOON).await);
    gate.add_permits(100);
    until("the second reconcile", async || runs.lock().len() == 2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(*runs.lock(), [0, 50]);
    stop.cancel();
    tasks.join_all().await;
}

/// The clock is paused: it moves only while nothing else can happen.
#[tokio::test(start_paused = true)]
async fn changes_of_what_is_summed_up_are_gathered_but_deletions_are_told_at_once() {
    const WINDOW: Duration = Duration::from_secs(30);
    let world = World::start().await;
    let ctx = world.ctx();
    create(&world, "sum").await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let cache = ctx.informers.of::<ConfigMap>(Scope::labels("part"));
    let controller = Controller::<Thing>::new("debounced", &ctx)
        .watches_debounced(WINDOW, &cache, |_| vec![ObjectKey::namespaced("default", "sum")]);
    let runs: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let seen = runs.clone();
    let reconcile = move |_, _| {
        seen.lock().push(Instant::now());
        async { Ok::<_, Wrong>(Action::AwaitChange) }
    };
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    until("the first reconcile", async || runs.lock().len() == 1).await;

    let mut newest = String::new();
    for name in 0..5 {
        let map = json!({"metadata": {"name": format!("part-{name}"), "labels": {"part": "yes"}}});
        let made = maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        newest = made.resource_version().unwrap();
    }
    assert!(cache.wait_for(&newest, SOON).await);
    let told = Instant::now();
    until("the window ends", async || runs.lock().len() == 2).await;
    assert!(runs.lock()[1] - told > WINDOW / 2, "five changes did not wait for the window");

    let before = Instant::now();
    maps.delete("part-0", &DeleteParams::default()).await.unwrap();
    until("the deletion is told", async || runs.lock().len() == 3).await;
    assert!(runs.lock()[2] - before < WINDOW / 2, "a deletion waited for the window");
    tokio::time::sleep(2 * WINDOW).await;
    assert_eq!(runs.lock().len(), 3);
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn no_object_is_reconciled_twice_at_once() {
    let world = World::start().await;
    let ctx = world.ctx();
    let held: Arc<Mutex<HashMap<String, i64>>> = Arc::default();
    let (busiest, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (held2, busiest2) = (held.clone(), busiest.clone());
    let reconcile = move |thing: Arc<Thing>, _| {
        let (held, busiest, now) = (held2.clone(), busiest2.clone(), now.clone());
        async move {
            let name = thing.name_any();
            assert!(held.lock().insert(name.clone(), -1) != Some(-1), "{name} is reconciled twice at once");
            busiest.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            held.lock().insert(name, thing.spec.size);
            Ok::<_, Wrong>(Action::AwaitChange)
        }
    };
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let controller = Controller::<Thing>::new("exclusive", &ctx).workers(6);
    tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    for name in 0..10 {
        create(&world, &format!("t{name}")).await;
    }
    for size in 1..=20 {
        for name in 0..10 {
            resize(&world, &format!("t{name}"), size).await;
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    until("everything is seen as it is", async || {
        held.lock().len() == 10 && held.lock().values().all(|size| *size == 20)
    })
    .await;
    assert_eq!(busiest.load(Ordering::Relaxed), 6);
    stop.cancel();
    tasks.join_all().await;
}

/// Runs a controller whose reconcile does what `then` says for the nth run, and gives the times
/// of runs.
fn timed<F>(ctx: &Arc<Ctx>, stop: &CancellationToken, then: F) -> (JoinSet<()>, Arc<Mutex<Vec<Instant>>>)
where
    F: Fn(usize) -> Result<Action, Wrong> + Send + Sync + 'static,
{
    let runs: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (times, then) = (runs.clone(), Arc::new(then));
    let reconcile = move |_: Arc<Thing>, _| {
        let (times, then) = (times.clone(), then.clone());
        async move {
            let run = {
                let mut times = times.lock();
                times.push(Instant::now());
                times.len()
            };
            then(run)
        }
    };
    let mut tasks = JoinSet::new();
    let controller = Controller::<Thing>::new("timed", ctx);
    tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    (tasks, runs)
}

fn gaps(runs: &Mutex<Vec<Instant>>) -> Vec<u128> {
    runs.lock().windows(2).map(|pair| pair[1].duration_since(pair[0]).as_millis()).collect()
}

#[track_caller]
fn about(gaps: &[u128], expected: &[u128]) {
    // The timer has a grain of a millisecond.
    let close = gaps.iter().zip(expected).all(|(gap, expected)| gap.abs_diff(*expected) <= 2);
    assert!(close && gaps.len() == expected.len(), "{gaps:?} is not about {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_less_and_less_often_until_a_success() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let (tasks, runs) = timed(&ctx, &stop, |run| match run {
        8 => Ok(Action::RequeueAfter(Duration::from_secs(30))),
        10.. => Ok(Action::AwaitChange),
        _ => Err(Wrong(Retry::Transient)),
    });
    create(&world, "a").await;
    until("the last run", async || runs.lock().len() == 10).await;
    about(&gaps(&runs), &[5, 10, 20, 40, 80, 160, 320, 30_000, 5]);
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_never_waits_long() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let (tasks, runs) = timed(&ctx, &stop, |run| match run {
        12.. => Ok(Action::AwaitChange),
        _ => Err(Wrong(Retry::Conflict)),
    });
    create(&world, "a").await;
    until("the last run", async || runs.lock().len() == 12).await;
    about(&gaps(&runs)[8..], &[1000, 1000, 1000]);
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_answer_is_not_asked_many_times_a_second() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let (tasks, runs) = timed(&ctx, &stop, |run| match run {
        17.. => Ok(Action::AwaitChange),
        _ => Err(Wrong(Retry::Unreachable)),
    });
    create(&world, "a").await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(runs.lock().len(), 17);
    about(&gaps(&runs)[..9], &[1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1280]);
    about(&gaps(&runs)[14..], &[60_000, 60_000]);
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn events_name_the_controller_that_records_them() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let reconcile = |thing: Arc<Thing>, ctx: Arc<Ctx>| async move {
        ctx.recorder.normal(&*thing, "Seen", "Look", "it is there");
        Ok::<_, Wrong>(Action::AwaitChange)
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(Controller::<Thing>::new("things", &ctx), reconcile, ctx.clone(), stop.clone()));
    create(&world, "a").await;
    let events: Api<Event> = Api::namespaced(world.client(), "default");
    until("the event is written", async || {
        let list = events.list(&Default::default()).await.unwrap().items;
        list.first().and_then(|event| event.reporting_controller.as_deref()) == Some("remuda-test/things")
    })
    .await;
    stop.cancel();
    tasks.join_all().await;
    ctx.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_writes_to_a_namespace_that_goes_asks_seldom_until_it_is_gone() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let (tasks, runs) = timed(&ctx, &stop, |run| match run {
        ..=12 => Err(Wrong(Retry::Terminating)),
        _ => Ok(Action::AwaitChange),
    });
    create(&world, "a").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(runs.lock().len(), 13, "it goes on when the namespace is gone, and then no more");
    let second = 1000;
    about(&gaps(&runs), &[[second; 8].as_slice(), &[1280, 2560, 5120, 10240]].concat());
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_user_must_fix_is_not_retried_before_it_changes() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let (tasks, runs) = timed(&ctx, &stop, |_| Err(Wrong(Retry::UserMustAct)));
    create(&world, "a").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(runs.lock().len(), 1);
    resize(&world, "a", 1).await;
    until("the change is seen", async || runs.lock().len() == 2).await;
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_counted_and_retried() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let (tasks, runs) = timed(&ctx, &stop, |run| {
        assert!(run > 3, "not yet");
        Ok(Action::AwaitChange)
    });
    create(&world, "a").await;
    until("the last run", async || runs.lock().len() == 4).await;
    about(&gaps(&runs), &[5, 10, 20]);
    let mut registry = prometheus_client::registry::Registry::default();
    ctx.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"controller_runtime_reconcile_panics_total{controller="timed"} 3"#), "{text}");
    assert!(
        text.contains(r#"controller_runtime_reconcile_total{controller="timed",result="success"} 1"#),
        "{text}"
    );
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn other_kinds_wake_their_owners_and_those_who_use_them() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let runs: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let maps = ctx.informers.of::<ConfigMap>(Scope::all());
    let controller = Controller::<Thing>::new("wakes", &ctx);
    controller.root().add_index("uses", |thing| thing.spec.uses.iter().cloned().collect());
    let users = via_index(controller.root(), "uses", |map: &ConfigMap| Some(map.name_any()));
    let controller = controller.owns(&maps).watches(&maps, users);
    let counted = runs.clone();
    let reconcile = move |thing: Arc<Thing>, _| {
        *counted.lock().entry(thing.name_any()).or_default() += 1;
        async { Ok::<_, Wrong>(Action::AwaitChange) }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    let owner = create(&world, "owner").await;
    let mut user = thing("user");
    user.spec.uses = Some("shared".to_owned());
    world.things().create(&PostParams::default(), &user).await.unwrap();
    create(&world, "stranger").await;
    let runs_are = async |owner: usize, user: usize| {
        let wanted = [("owner", owner), ("user", user), ("stranger", 1)];
        until(&format!("{wanted:?}"), async || {
            wanted.iter().all(|(name, times)| runs.lock().get(*name) == Some(times))
        })
        .await;
    };
    runs_are(1, 1).await;

    let api: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let mut owned = ConfigMap::default();
    owned.metadata.name = Some("owned".to_owned());
    owned.metadata.owner_references = Some(vec![owner_reference(&owner, &()).unwrap()]);
    api.create(&PostParams::default(), &owned).await.unwrap();
    runs_are(2, 1).await;
    let mut shared = ConfigMap::default();
    shared.metadata.name = Some("shared".to_owned());
    api.create(&PostParams::default(), &shared).await.unwrap();
    runs_are(2, 2).await;
    api.delete("owned", &DeleteParams::default()).await.unwrap();
    runs_are(3, 2).await;
    // Taken from its owner: the state before the change tells whom to wake.
    owned.metadata.name = Some("lost".to_owned());
    api.create(&PostParams::default(), &owned).await.unwrap();
    runs_are(4, 2).await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    api.patch("lost", &PatchParams::default(), &patch).await.unwrap();
    runs_are(5, 2).await;
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_settled_world_is_silent() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let things = world.things();
    let reconcile = move |thing: Arc<Thing>, ctx: Arc<Ctx>| {
        let things = things.clone();
        async move {
            let status = ThingStatus { seen: Some(thing.spec.size), ..ThingStatus::default() };
            write_status(&ctx, &things, &thing, &status).await?;
            Ok::<_, Error>(Action::AwaitChange)
        }
    };
    let mut tasks = JoinSet::new();
    for name in ["one", "two"] {
        let controller = Controller::<Thing>::new(name, &ctx);
        tasks.spawn(drive(controller, reconcile.clone(), ctx.clone(), stop.clone()));
    }
    for name in 0..20 {
        create(&world, &format!("t{name}")).await;
    }
    let all = world.things();
    until("all statuses are written", async || {
        let list = all.list(&Default::default()).await.unwrap();
        list.items.iter().all(|thing| thing.status.as_ref().is_some_and(|status| status.seen == Some(0)))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let watches = |requests: &[String]| requests.iter().filter(|line| line.starts_with("GET watch")).count();
    let before = world.requests();
    assert_eq!(watches(&before), 1, "both controllers share one watch");
    tokio::time::sleep(Duration::from_secs(280)).await;
    let after = world.requests();
    assert_eq!(after[before.len()..], [] as [String; 0]);
    stop.cancel();
    tasks.join_all().await;
    ctx.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_work_under_way_end_but_not_for_ever() {
    let world = World::start().await;
    let ctx = world.ctx();
    let ended = Arc::new(AtomicUsize::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let (begun, done) = (started.clone(), ended.clone());
    let reconcile = move |thing: Arc<Thing>, _| {
        let (begun, done) = (begun.clone(), done.clone());
        async move {
            begun.fetch_add(1, Ordering::Relaxed);
            let long = if thing.name_any() == "slow" { 3600 } else { 5 };
            tokio::time::sleep(Duration::from_secs(long)).await;
            done.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Wrong>(Action::AwaitChange)
        }
    };
    let stop = CancellationToken::new();
    let controller = Controller::<Thing>::new("stopping", &ctx).workers(2);
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    for name in ["slow", "quick", "never"] {
        create(&world, name).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(started.load(Ordering::Relaxed), 2);
    let at = Instant::now();
    stop.cancel();
    tasks.join_all().await;
    assert_eq!(at.elapsed().as_secs(), 20);
    assert_eq!((started.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_we_lead_nor_after() {
    let world = World::start().await;
    let plain = world.ctx();
    let elector = |identity: &str| {
        Elector::new(world.client(), "default", "test", identity, plain.clock.clone(), plain.metrics.clone())
    };
    let (first, second) = (elector("first"), elector("second"));
    let ctx = Arc::new(Ctx::clone(&plain).with_leadership(second.leadership()));
    let (stop, stop_first, stop_second) =
        <(CancellationToken, CancellationToken, CancellationToken)>::default();
    let mut electors = JoinSet::new();
    let leads = first.leadership();
    electors.spawn(first.run(stop_first.clone()));
    leads.gained().await;
    let ours = second.leadership();
    electors.spawn(second.run(stop_second.clone()));
    let (tasks, runs) = timed(&ctx, &stop, |_| Ok(Action::RequeueAfter(Duration::from_secs(1))));
    create(&world, "a").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(runs.lock().len(), 0);
    stop_first.cancel();
    ours.gained().await;
    until("a reconcile", async || !runs.lock().is_empty()).await;
    world.hang(true);
    ours.lost().await;
    let runs_then = runs.lock().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(runs.lock().len(), runs_then);
    world.hang(false);
    ours.gained().await;
    until("reconciles go on", async || runs.lock().len() > runs_then).await;
    stop.cancel();
    tasks.join_all().await;
    stop_second.cancel();
    electors.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_keys_hears_of_objects_that_are_gone() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let controller = Controller::<Thing>::new("keys", &ctx);
    let root = controller.root().clone();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hearing = heard.clone();
    let reconcile = move |key: ObjectKey, _| {
        let there = if root.get(&key).is_some() { "is" } else { "was" };
        hearing.lock().push(format!("{key} {there}"));
        async { Ok::<_, Wrong>(Action::AwaitChange) }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(drive_keys(controller, reconcile, ctx.clone(), stop.clone()));
    create(&world, "a").await;
    until("it is", async || heard.lock().len() == 1).await;
    world.things().delete("a", &DeleteParams::default()).await.unwrap();
    until("it was", async || heard.lock().len() == 2).await;
    assert_eq!(*heard.lock(), ["default/a is", "default/a was"]);
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_may_follow_a_kind_it_just_heard_of() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let controller = Controller::<Thing>::new("follower", &ctx);
    let enqueuer = controller.enqueuer();
    let runs = Arc::new(AtomicUsize::new(0));
    let (counted, following) = (runs.clone(), enqueuer.clone());
    let reconcile = move |_: Arc<Thing>, ctx: Arc<Ctx>| {
        counted.fetch_add(1, Ordering::Relaxed);
        // As a provider's kind is: known only by what an object says.
        let kind = ApiResource::erase::<ConfigMap>(&());
        let informer = ctx.informers.dynamic(&kind, Scope::labels("test.remuda/used"));
        following.follow(&informer, |_| vec![ObjectKey::namespaced("default", "a")]);
        async { Ok::<_, Wrong>(Action::AwaitChange) }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    let is = async |times: usize| {
        until(&format!("run {times}"), async || runs.load(Ordering::Relaxed) == times).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(runs.load(Ordering::Relaxed), times);
    };
    create(&world, "a").await;
    is(1).await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".to_owned());
    map.labels_mut().insert("test.remuda/used".to_owned(), String::new());
    maps.create(&PostParams::default(), &map).await.unwrap();
    is(2).await;
    enqueuer.enqueue(ObjectKey::namespaced("default", "a"));
    is(3).await;
    stop.cancel();
    tasks.join_all().await;
    enqueuer.enqueue(ObjectKey::namespaced("default", "a"));
}
