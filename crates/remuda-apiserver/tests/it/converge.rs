//! Whatever writers do, and however often they are cut off: clients that list and then watch end
//! with the server's state.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::TcpListener,
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use remuda_store::{Embedded, Etcd, EtcdOptions, Memory, Options, Store};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Server, *};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LAST: &str = "the-last";

#[derive(Debug, Clone)]
enum Step {
    Create(u8, bool),
    Change(u8, u16),
    Label(u8, bool),
    Delete(u8),
    Compact,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    /// Pages of this size, then a watch.
    Pages(usize),
    /// A list from the cache, then a watch with bookmarks.
    Cached,
    /// One stream for both.
    WatchList,
}

#[derive(Debug, Clone)]
struct Client {
    mode: Mode,
    selects: bool,
    /// Events after which it hangs up, again and again.
    patience: usize,
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        4 => (0..6_u8, any::<bool>()).prop_map(|(n, on)| Step::Create(n, on)),
        4 => (0..6_u8, any::<u16>()).prop_map(|(n, x)| Step::Change(n, x)),
        3 => (0..6_u8, any::<bool>()).prop_map(|(n, on)| Step::Label(n, on)),
        2 => (0..6_u8).prop_map(Step::Delete),
        1 => Just(Step::Compact),
    ];
    vec(vec(step, 1..25), 1..4)
}

fn clients() -> impl Strategy<Value = Vec<Client>> {
    let mode = prop_oneof![(1..4_usize).prop_map(Mode::Pages), Just(Mode::Cached), Just(Mode::WatchList)];
    let client = (mode, any::<bool>(), 1..12_usize).prop_map(|(mode, selects, patience)| Client {
        mode,
        selects,
        patience,
    });
    vec(client, 1..4)
}

async fn write(server: Server, steps: Vec<Step>) {
    for step in steps {
        let path = |n: u8| format!("{MAPS}/m{n}");
        let labels = |on: bool| json!({"on": if on { "yes" } else { "no" }});
        // Losing a race to another writer is part of the game.
        let code = match step {
            Step::Create(n, on) => {
                let map = json!({"metadata": {"name": format!("m{n}"), "labels": labels(on)}});
                server.post(MAPS, map).await.code
            }
            Step::Change(n, x) => {
                server.patch(&path(n), MERGE_PATCH, json!({"data": {"x": x.to_string()}})).await.code
            }
            Step::Label(n, on) => {
                server.patch(&path(n), MERGE_PATCH, json!({"metadata": {"labels": labels(on)}})).await.code
            }
            Step::Delete(n) => server.delete(&path(n)).await.code,
            Step::Compact => {
                server.store.compact(server.store.observed()).await.unwrap();
                200
            }
        };
        assert!(matches!(code, 200 | 201 | 404 | 409), "{code}");
        tokio::task::yield_now().await;
    }
}

type State = BTreeMap<String, Value>;

fn insert(state: &mut State, object: Value) -> Option<Value> {
    state.insert(object["metadata"]["name"].as_str().unwrap().to_owned(), object)
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// All pages of a list; `None` if it expired on the way.
async fn list(server: &Server, query: &str) -> Option<(State, u64)> {
    let mut state = State::new();
    let mut token = String::new();
    loop {
        let answer = server.get(&format!("{MAPS}?{query}{token}")).await;
        if answer.code == 410 {
            return None;
        }
        let mut page = answer.expect(200);
        for item in page["items"].as_array_mut().unwrap() {
            // The list names the type of its items; events of a watch name their own.
            item["apiVersion"] = "v1".into();
            item["kind"] = "ConfigMap".into();
            assert!(insert(&mut state, item.take()).is_none(), "listed twice");
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = format!("&continue={next}"),
            None => return Some((state, version(&page))),
        }
    }
}

/// Follows the collection until the last object is there; returns what it then knows.
async fn follow(server: Server, client: Client) -> State {
    let selector = if client.selects { "&labelSelector=on%3Dyes" } else { "" };
    'again: loop {
        let (mut state, mut at) = match client.mode {
            Mode::Pages(limit) => match list(&server, &format!("limit={limit}{selector}")).await {
                Some(listed) => listed,
                None => continue 'again,
            },
            Mode::Cached => list(&server, &format!("resourceVersion=0{selector}")).await.unwrap(),
            Mode::WatchList => {
                let query = "allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
                let mut watch = server.watch(&format!("{MAPS}?{query}{selector}")).await;
                let mut state = State::new();
                loop {
                    let mut event = watch.next().await.expect("the end of the initial events");
                    if event["type"] == "BOOKMARK" {
                        break (state, version(&event["object"]));
                    }
                    assert_eq!(event["type"], "ADDED");
                    assert!(insert(&mut state, event["object"].take()).is_none());
                }
            }
        };
        loop {
            if state.contains_key(LAST) {
                return state;
            }
            let mut watch = server.watch(&format!("{MAPS}?resourceVersion={at}{selector}")).await;
            for _ in 0..client.patience {
                let mut event = watch.next().await.expect("more, while the last is missing");
                let object = event["object"].take();
                if event["type"] == "ERROR" {
                    assert_eq!(object["code"], 410, "{object}");
                    continue 'again;
                }
                assert!(version(&object) > at, "{object} after {at}");
                at = version(&object);
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                match event["type"].as_str().unwrap() {
                    "ADDED" => assert!(insert(&mut state, object).is_none(), "{name} added twice"),
                    "MODIFIED" => assert!(insert(&mut state, object).is_some(), "{name} came from nowhere"),
                    "DELETED" => assert!(state.remove(&name).is_some(), "{name} was not there"),
                    other => panic!("{other}"),
                }
                if name == LAST {
                    break;
                }
            }
        }
    }
}

async fn play(server: &Server, steps: Vec<Vec<Step>>, clients: Vec<Client>) {
    let mut following = JoinSet::new();
    for client in clients {
        let server = server.clone();
        following.spawn(async move { (client.clone(), follow(server, client).await) });
    }
    let mut writing = JoinSet::new();
    for steps in steps {
        writing.spawn(write(server.clone(), steps));
    }
    while let Some(written) = writing.join_next().await {
        written.unwrap();
    }
    let last = json!({"metadata": {"name": LAST, "labels": {"on": "yes"}}});
    server.post(MAPS, last).await.expect(201);
    while let Some(known) =
        tokio::time::timeout(PATIENCE, following.join_next()).await.expect("converges in time")
    {
        let (client, known) = known.unwrap();
        let selector = if client.selects { "labelSelector=on%3Dyes" } else { "" };
        let (truth, _) = list(server, selector).await.unwrap();
        assert_eq!(known, truth, "{client:?}");
    }
    server.delete(MAPS).await.expect(200);
}

fn converges(cases: u32, store: impl Fn() -> Arc<dyn Store>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = runtime.block_on(async {
        let mut config = config();
        config.controllers = remuda_apiserver::Controllers::Never;
        Server::on(store(), config).await
    });
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 50, ..Config::default() };
    TestRunner::new(config)
        .run(&(steps(), clients()), |(steps, clients)| {
            let server = server.clone();
            runtime.block_on(async move { play(&server, steps, clients).await });
            Ok(())
        })
        .unwrap();
    runtime.block_on(async {
        server.api.shutdown().await;
        server.store.close().await;
    });
}

#[test]
fn clients_end_with_the_servers_state_in_memory() {
    converges(40, || Arc::new(Memory::default()));
}

#[test]
fn clients_end_with_the_servers_state_on_the_embedded_engine() {
    let dir = tempfile::tempdir().unwrap();
    converges(15, || Arc::new(Embedded::open(dir.path(), Options::default()).unwrap()));
}

/// One member on loopback; it ends with the test.
struct Member {
    process: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_address() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

fn start_etcd() -> Option<Member> {
    let dir = tempfile::tempdir().unwrap();
    let (url, peer) = (free_address(), free_address());
    let process = Command::new("etcd")
        .args(["--name", "one", "--log-level", "error", "--unsafe-no-fsync", "--data-dir"])
        .arg(dir.path())
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match process {
        Ok(process) => Some(Member { process, url, _dir: dir }),
        Err(error) => {
            // Not through the test harness, which would hide it.
            let stderr = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
            let text = format!("SKIPPED: no etcd in PATH ({error}), convergence on etcd was not tested\n");
            let _ = std::fs::File::from(stderr).write_all(text.as_bytes());
            None
        }
    }
}

#[test]
fn clients_end_with_the_servers_state_on_etcd() {
    let Some(member) = start_etcd() else { return };
    converges(6, || {
        let connect = async {
            loop {
                match Etcd::connect(EtcdOptions::new(vec![member.url.clone()])).await {
                    Ok(etcd) => return etcd,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        let connect =
            async { tokio::time::timeout(Duration::from_secs(30), connect).await.expect("etcd starts") };
        let etcd = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(connect));
        Arc::new(etcd)
    });
}
