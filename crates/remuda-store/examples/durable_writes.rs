//! Durable writes per second of the embedded engine, by number of concurrent callers.
//!
//! `cargo run --release -p remuda-store --example durable_writes [directory]`

use std::{
    io::Write as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use remuda_store::{Embedded, ListQuery, Options, Scope, Store, Template, Write};

const VALUE: usize = 2048;
const TIME: Duration = Duration::from_secs(3);

async fn callers(store: &Arc<Embedded>, count: usize) -> (u64, Duration) {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..count {
        let store = store.clone();
        tasks.spawn(async move {
            let key = format!("/bench/things/{count}/{caller}");
            let value = Template::with_slot(vec![b'x'; VALUE], 100);
            let create = Write::Create { key: key.clone(), value: value.clone() };
            let mut record = store.write(create).await.expect("a new key");
            let (mut writes, mut slowest) = (1u64, Duration::ZERO);
            while start.elapsed() < TIME {
                let (value, expected) = (value.clone(), record.revision);
                let one = Instant::now();
                record =
                    store.write(Write::Update { key: key.clone(), expected, value }).await.expect("ours");
                slowest = slowest.max(one.elapsed());
                writes += 1;
            }
            (writes, slowest)
        });
    }
    let done = tasks.join_all().await;
    let writes: u64 = done.iter().map(|(writes, _)| writes).sum();
    let slowest = done.iter().map(|(_, slowest)| *slowest).max().unwrap_or_default();
    (writes * 1000 / start.elapsed().as_millis().max(1) as u64, slowest)
}

#[tokio::main]
async fn main() {
    let mut out = std::io::stdout().lock();
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("remuda-store-bench-{}", std::process::id()));
    let store = Arc::new(Embedded::open(&dir, Options::default()).expect("a new directory"));
    for count in [1, 16, 64] {
        let (rate, slowest) = callers(&store, count).await;
        let _ = writeln!(out, "{count:3} callers: {rate:6} durable writes/s, slowest {slowest:?}");
    }
    let mut fill = tokio::task::JoinSet::new();
    for part in 0..64 {
        let store = store.clone();
        fill.spawn(async move {
            for index in 0..1600 {
                let value = Template::with_slot(vec![b'y'; VALUE], 100);
                let key = format!("/big/things/{part}/{index}");
                store.write(Write::Create { key, value }).await.expect("a new key");
            }
        });
    }
    fill.join_all().await;
    let start = Instant::now();
    let mut query = ListQuery { prefix: "/big/things/".into(), limit: 500, ..ListQuery::default() };
    let mut pages = 0;
    loop {
        let page = store.list(query.clone()).await.expect("readable");
        pages += 1;
        query.at = Some(page.revision);
        query.after = page.records.last().map(|record| record.key.to_string());
        if page.remaining == 0 {
            break;
        }
    }
    let _ = writeln!(out, "102400 keys listed in {pages} pages: {:?}", start.elapsed());
    let mut watches = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let mut watch = store.watch(Scope::Prefix("/woken/things/".into()), store.observed()).expect("now");
        watches.spawn(async move { while watch.next().await.is_ok() {} });
    }
    let start = Instant::now();
    for index in 0..500 {
        let (key, value) = (format!("/woken/things/{index}"), Template::plain("x"));
        store.write(Write::Create { key, value }).await.expect("a new key");
    }
    let _ = writeln!(out, "500 sequential writes watched by 1000: {:?}", start.elapsed());
    store.close().await;
    while watches.join_next().await.is_some() {}
    drop(store);
    let start = Instant::now();
    let store = Embedded::open(&dir, Options::default()).expect("as closed");
    let _ = writeln!(out, "reopened at revision {} in {:?}", store.observed(), start.elapsed());
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
}
