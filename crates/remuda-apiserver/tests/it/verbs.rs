//! What each verb does and answers.

use serde_json::json;

use crate::harness::*;

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let created = server.post(path, config_map("a", json!({"k": "v"}))).await.expect(201);
    let mut watch = server.watch(path).await;
    watch.expect("ADDED").await;
    let read = server.get(&format!("{path}/a")).await.expect(200);
    assert_eq!(created, read);
}
