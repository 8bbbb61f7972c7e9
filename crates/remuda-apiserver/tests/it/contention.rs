//! Many writers of one object: whoever names no version never hears of the others.

use std::sync::Arc;

use remuda_store::{Embedded, Options};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 8;
const ROUNDS: usize = 40;

/// A server whose writes take as long as those of a disk: writers meet between a read and its write.
async fn durable() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let mut config = config();
    config.controllers = remuda_apiserver::Controllers::Never;
    (Server::on(Arc::new(store), config).await, dir)
}

/// Lets all writers write the object at `path` in turns of their own choice; `ask` makes one of their requests.
async fn contend(server: &Server, ask: impl Fn(Server, usize, usize) -> Ask + Copy + Send + 'static) {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let server = server.clone();
        writers.spawn(async move {
            for round in 0..ROUNDS {
                ask(server.clone(), writer, round).send().await.expect(200);
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
}

/// What is there when every writer has had its last word.
fn last_words() -> Value {
    let last = |writer: usize| (format!("w{writer}"), Value::from((ROUNDS - 1).to_string()));
    Value::Object((0..WRITERS).map(last).collect())
}

fn word(writer: usize, round: usize) -> Value {
    json!({format!("w{writer}"): round.to_string()})
}

#[tokio::test]
async fn merge_patches_without_a_version_never_conflict() {
    let (server, _dir) = durable().await;
    server.post(MAPS, config_map("one", json!({}))).await.expect(201);
    contend(&server, |server, writer, round| {
        let patch = json!({"data": word(writer, round)});
        server.ask("PATCH", &format!("{MAPS}/one")).body(MERGE_PATCH, patch.to_string())
    })
    .await;
    assert_eq!(server.get(&format!("{MAPS}/one")).await.expect(200)["data"], last_words());
}

#[tokio::test]
async fn forced_applies_never_conflict() {
    let (server, _dir) = durable().await;
    server.post(MAPS, config_map("one", json!({}))).await.expect(201);
    contend(&server, |server, writer, round| {
        let object = config_map("one", word(writer, round));
        let path = format!("{MAPS}/one?fieldManager=w{writer}&force=true");
        server.ask("PATCH", &path).body(APPLY_PATCH, object.to_string())
    })
    .await;
    assert_eq!(server.get(&format!("{MAPS}/one")).await.expect(200)["data"], last_words());
}

#[tokio::test]
async fn updates_without_a_version_replace_whatever_is_there() {
    let (server, _dir) = durable().await;
    server.post(MAPS, config_map("one", json!({}))).await.expect(201);
    contend(&server, |server, writer, round| {
        server.ask("PUT", &format!("{MAPS}/one")).json(&config_map("one", word(writer, round)))
    })
    .await;
}

#[tokio::test]
async fn scaling_and_a_delete_get_their_way_among_other_writers() {
    let (server, _dir) = durable().await;
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "one", "finalizers": ["example.com/hold"]},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    server.post(path, set).await.expect(201);
    contend(&server, move |server, writer, round| match writer {
        0 => server.ask("DELETE", &format!("{path}/one")),
        1 | 2 => {
            let patch = json!({"spec": {"replicas": round}});
            server.ask("PATCH", &format!("{path}/one/scale")).body(MERGE_PATCH, patch.to_string())
        }
        3 => {
            let patch = json!({"status": {"replicas": round}});
            server.ask("PATCH", &format!("{path}/one/status")).body(MERGE_PATCH, patch.to_string())
        }
        _ => {
            let patch = json!({"metadata": {"labels": word(writer, round)}});
            server.ask("PATCH", &format!("{path}/one")).body(MERGE_PATCH, patch.to_string())
        }
    })
    .await;
}

#[tokio::test]
async fn a_version_that_is_not_current_is_still_a_conflict() {
    let (server, _dir) = durable().await;
    let old = server.post(MAPS, config_map("one", json!({}))).await.expect(201);
    server.patch(&format!("{MAPS}/one"), MERGE_PATCH, json!({"data": {"a": "b"}})).await.expect(200);
    server.put(&format!("{MAPS}/one"), old).await.fails(409, "Conflict");
}
