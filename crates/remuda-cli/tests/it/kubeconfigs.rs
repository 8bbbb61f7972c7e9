use remuda_cli::Code;
use serde_json::json;

use crate::world::World;

const KUBECONFIG: &str = "apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster: {server: https://127.0.0.1:8443/k8s/clusters/c-m-1}
users:
- name: user
  user: {token: u-1:t}
contexts:
- name: default
  context: {cluster: cluster, user: user}
current-context: default
";

async fn world() -> World {
    let world = World::new().await;
    world.run("cluster create demo").await;
    world
}

async fn with_kubeconfig() -> World {
    let world = world().await;
    let secret = json!({
        "metadata": {"name": "demo-kubeconfig", "namespace": "fleet-default"}, "stringData": {"value": KUBECONFIG},
    });
    world.put("v1", "Secret", secret).await;
    world
}

#[tokio::test]
async fn a_kubeconfig_is_printed_or_written() {
    let world = with_kubeconfig().await;
    assert_eq!(world.run("get kubeconfig demo").await, KUBECONFIG);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/demo");
    let path = path.to_str().unwrap();
    let (said, result) = world.try_run_words(["get", "kubeconfig", "demo", "-o", path]).await;
    assert_eq!((said, result), (format!("wrote {path}\n"), Ok(())));
    assert_eq!(std::fs::read_to_string(path).unwrap(), KUBECONFIG);
}

#[tokio::test]
async fn a_cluster_without_one_says_why() {
    let world = world().await;
    let (code, text) = world.fails("get kubeconfig demo").await;
    assert_eq!(code, Code::NotFound);
    assert!(
        text.starts_with("cluster demo has no kubeconfig yet: nothing has taken notice of the cluster yet"),
        "{text}"
    );
    assert!(text.ends_with("remuda why demo -n fleet-default"), "{text}");
    let (_, text) = world.fails("get kubeconfig dem").await;
    assert!(text.ends_with("did you mean demo?"), "{text}");
}

#[tokio::test]
async fn a_kubeconfig_is_merged_into_a_file_once() {
    let world = with_kubeconfig().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let path = path.to_str().unwrap();
    let merge = ["kubeconfig", "merge", "demo", "--into", path];
    let (said, result) = world.try_run_words(merge).await;
    assert_eq!((said, result), (format!("cluster demo is in {path} as demo (current context)\n"), Ok(())));
    let once = std::fs::read_to_string(path).unwrap();
    assert!(once.contains("token: u-1:t") && once.contains("current-context: demo"), "{once}");
    world.try_run_words(merge).await.1.unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), once);
    let named = ["kubeconfig", "merge", "demo", "--into", path, "--as", "other", "--dry-run"];
    let (said, _) = world.try_run_words(named).await;
    assert!(said.contains("name: other"), "{said}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), once);
}
