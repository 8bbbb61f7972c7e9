//! A process under write load, killed again and again.
//!
//! The test binary runs itself as the victim. It reports each acknowledged write over a pipe;
//! whatever arrived there must be in the store afterwards.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rand::RngExt;
use remuda_store::{Embedded, Error, Keyring, ListQuery, Options, Revision, Sealing, Store, Template, Write};

const DIR: &str = "REMUDA_STORE_CRASH_DIR";
const KIND: &str = "REMUDA_STORE_CRASH_KIND";
const TASKS: usize = 6;
/// Operation `n` of a task deletes its key if `n` is one less than a multiple of this.
const CYCLE: u64 = 7;

fn options(dir: &Path, kind: &str) -> Options {
    let mut options = Options { preallocate: 64 << 10, ..Options::default() };
    match kind {
        "checkpoints" => options.checkpoint_bytes = 6_000,
        "segments" => {
            options.segment_bytes = 5_000;
            options.checkpoint_bytes = 60_000;
        }
        "sealed" => {
            let keyring = Arc::new(Keyring::open_or_create(dir.join("keyring")).unwrap());
            options.sealing = Some(Sealing { keyring, prefixes: vec!["/crash/".into()] });
            options.checkpoint_bytes = 20_000;
        }
        _ => {}
    }
    options
}

fn value(n: u64) -> Template {
    let text = format!("{n}:{}:end ", (0..n % 50).map(|_| n.to_string()).collect::<String>());
    let slot = text.len() as u32 - 1;
    Template::with_slot(text, slot)
}

/// The number of the operation a value comes from; fails on a value that is not whole.
fn parse(value: &[u8], revision: Revision) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    let n: u64 = text.split(':').next().unwrap().parse().unwrap();
    let whole = String::from_utf8(self::value(n).bytes.to_vec()).unwrap();
    assert_eq!(text, format!("{}{revision} ", &whole[..whole.len() - 1]));
    n
}

async fn task(store: &Embedded, index: usize) {
    let key = format!("/crash/things/{index}");
    let mut found = store.get(&key).await.unwrap().value;
    let mut n = match &found {
        Some(record) => parse(&record.value, record.revision) + 1,
        None => {
            let base = store.observed() * CYCLE * 10;
            base - base % CYCLE
        }
    };
    loop {
        let write = match &found {
            None => Write::Create { key: key.clone(), value: value(n) },
            Some(record) if n % CYCLE == CYCLE - 1 => {
                Write::Delete { key: key.clone(), expected: record.revision, last: Some(value(n)) }
            }
            Some(record) => Write::Update { key: key.clone(), expected: record.revision, value: value(n) },
        };
        let deletes = matches!(write, Write::Delete { .. });
        let record = store.write(write).await.unwrap();
        let line = format!("\nack {index} {} {n} {deletes}\n", record.revision);
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            return;
        }
        found = (!deletes).then_some(record);
        n += 1;
    }
}

/// Not a test by itself: what the killed process runs.
#[test]
fn the_victim_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let kind = std::env::var_os(KIND).unwrap_or_default();
    let dir = Path::new(&dir);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(dir, options(dir, &kind.to_string_lossy())).unwrap();
        futures::future::join_all((0..TASKS).map(|index| task(&store, index))).await;
    });
}

#[derive(Clone, Copy)]
struct Acked {
    revision: Revision,
    n: u64,
    deletes: bool,
}

fn kill_one(dir: &Path, kind: &str) -> Vec<(usize, Acked)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::the_victim_writes_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(KIND, kind)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (started, wait) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut acks = Vec::new();
        for line in out.split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8(line).unwrap();
            let words: Vec<_> = line.split(' ').collect();
            if let ["ack", index, revision, n, deletes] = words[..] {
                let Ok(deletes) = deletes.parse() else { continue };
                let acked = Acked { revision: revision.parse().unwrap(), n: n.parse().unwrap(), deletes };
                acks.push((index.parse().unwrap(), acked));
                let _ = started.send(());
            }
        }
        acks
    });
    // Mostly amid the writes, sometimes while it starts.
    if rand::rng().random_bool(0.8) {
        let _ = wait.recv_timeout(Duration::from_secs(10));
    }
    std::thread::sleep(Duration::from_micros(rand::rng().random_range(0..25_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

async fn chain(kind: &str, kills: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut newest: HashMap<usize, Acked> = HashMap::new();
    let mut highest = 0;
    let mut total = 0;
    for round in 0..kills {
        let acks = kill_one(dir.path(), kind);
        let mut seen = highest;
        for (index, acked) in &acks {
            assert!(acked.revision > highest, "{kind} {round}: revision {} came again", acked.revision);
            seen = seen.max(acked.revision);
            newest.insert(*index, *acked);
        }
        total += acks.len();
        let store = Embedded::open(dir.path(), options(dir.path(), kind)).unwrap();
        assert!(store.observed() >= seen, "{kind} {round}: {} after {seen}", store.observed());
        let query = ListQuery { prefix: "/crash/things/".into(), ..ListQuery::default() };
        for record in store.list(query).await.unwrap().records {
            parse(&record.value, record.revision);
        }
        for (index, acked) in &mut newest {
            let found = store.get(&format!("/crash/things/{index}")).await.unwrap().value;
            match found {
                Some(record) => {
                    let n = parse(&record.value, record.revision);
                    if n == acked.n {
                        assert!(!acked.deletes);
                        assert_eq!(record.revision, acked.revision);
                    } else {
                        assert!(record.revision > acked.revision, "{kind} {round}: an older state is back");
                        assert!(n == acked.n + 1 || acked.deletes, "{kind} {round}: {n} after {}", acked.n);
                    }
                    // Whatever survived without an answer counts from now on.
                    *acked = Acked { revision: record.revision, n, deletes: false };
                }
                None => {
                    let unacknowledged = acked.n % CYCLE == CYCLE - 2;
                    assert!(acked.deletes || unacknowledged, "{kind} {round}: an acknowledged write is gone");
                    *acked = Acked { revision: store.observed(), n: acked.n, deletes: true };
                }
            }
        }
        highest = store.observed();
        if round % 10 == 0 {
            // A store that was recovered takes writes.
            let probe = Write::Create { key: format!("/crash/probes/{round}"), value: Template::plain("x") };
            highest = store.write(probe).await.unwrap().revision;
        }
        store.close().await;
        assert_eq!(store.health().await, Err(Error::Closed));
    }
    total
}

#[test]
fn nothing_acknowledged_is_lost_to_two_hundred_kills() {
    let kinds = ["plain", "checkpoints", "segments", "sealed"];
    let run = |kind: &'static str| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(chain(kind, 52))
    };
    let threads: Vec<_> = kinds.into_iter().map(|kind| std::thread::spawn(move || run(kind))).collect();
    for (thread, kind) in threads.into_iter().zip(kinds) {
        let acknowledged = thread.join().unwrap();
        assert!(acknowledged > 100, "{kind}: only {acknowledged} writes were tried");
    }
}
