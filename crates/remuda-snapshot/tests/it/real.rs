//! A file from a real etcd, taken as `etcdctl snapshot save` takes it: the stream of the maintenance API.

use std::{
    io::{BufRead, BufReader, Cursor, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_snapshot::verify;
use serde_json::{Value, json};

struct Etcd {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Etcd {
    fn start() -> Option<Etcd> {
        let directory = tempfile::tempdir().unwrap();
        let (port, peer) = (free_port(), free_port());
        let url = |port| format!("http://127.0.0.1:{port}");
        let child = Command::new("etcd")
            .args(["--data-dir".as_ref(), directory.path().as_os_str()])
            .args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("default={}", url(peer))])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let etcd = Etcd { child, port, _directory: directory };
        let started = Instant::now();
        while etcd.ask("/v3/maintenance/status", &json!({})).is_none_or(|answer| answer.contains("error")) {
            assert!(started.elapsed() < Duration::from_secs(60), "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(etcd)
    }

    fn ask(&self, path: &str, body: &Value) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let body = body.to_string();
        // 1.0, so that the answer ends with the connection and has no chunks.
        write!(stream, "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        }
        let mut answer = String::new();
        reader.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn put(&self, key: &str, value: &str) {
        let text = |text: &str| BASE64_STANDARD.encode(text);
        self.ask("/v3/kv/put", &json!({"key": text(key), "value": text(value)})).unwrap();
    }

    fn delete(&self, key: &str) {
        self.ask("/v3/kv/deleterange", &json!({"key": BASE64_STANDARD.encode(key)})).unwrap();
    }

    fn snapshot(&self) -> Vec<u8> {
        let answer = self.ask("/v3/maintenance/snapshot", &json!({})).unwrap();
        let parts = answer.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let blob =
            |part: Value| part["result"]["blob"].as_str().map(|blob| BASE64_STANDARD.decode(blob).unwrap());
        parts.filter_map(blob).flatten().collect()
    }
}

#[test]
fn a_snapshot_of_a_real_etcd_is_read() {
    let Some(etcd) = Etcd::start() else {
        eprintln!("SKIPPED a_snapshot_of_a_real_etcd_is_read: no etcd program was found");
        return;
    };
    let value = "x".repeat(2000);
    for number in 0..400 {
        etcd.put(&format!("/registry/configmaps/default/c-{number}"), &value);
    }
    for number in 0..10 {
        etcd.delete(&format!("/registry/configmaps/default/c-{number}"));
    }
    etcd.put("/registry/namespaces/shop", "n");
    let status = etcd.ask("/v3/maintenance/status", &json!({})).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let revision: i64 = status["header"]["revision"].as_str().unwrap().parse().unwrap();
    let file = etcd.snapshot();
    let verified = verify(&mut Cursor::new(&file)).unwrap();
    assert_eq!(verified.revision, revision);
    assert_eq!(verified.objects["/registry/configmaps"], 390);
    assert_eq!(verified.keys, 391);

    let mut flipped = file.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    assert_eq!(verify(&mut Cursor::new(flipped)).unwrap_err().code(), "ChecksumMismatch");

    // Keys that were compacted away are gone from the count of revisions, not from that of keys.
    etcd.ask("/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true})).unwrap();
    let compacted = verify(&mut Cursor::new(etcd.snapshot())).unwrap();
    assert_eq!((compacted.revision, compacted.keys), (revision, 391));
}
