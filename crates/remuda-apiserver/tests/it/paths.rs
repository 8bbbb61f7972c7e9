//! What is judged is what is done, however a URL is written.

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use remuda_auth::request_info::RequestInfo;
use serde_json::json;

use crate::harness::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Pieces of paths: words that mean something, and what separates them in one reading or another.
fn path() -> impl Strategy<Value = String> {
    let words = "api apis v1 namespaces open vault configmaps secrets secret map watch proxy status finalize . .. \
        %2e%2e a %00 healthz metrics";
    let words: Vec<&str> = words.split_whitespace().collect();
    let signs = vec!["/", "/", "/", "//", "%2f", "%2F", "%252f", "/./", ";", ""];
    proptest::collection::vec((select(signs), select(words)), 1..9)
        .prop_map(|parts| parts.into_iter().fold(String::new(), |path, (sign, word)| path + sign + word))
        .prop_map(|path| if path.starts_with('/') { path } else { format!("/{path}") })
}

fn query() -> impl Strategy<Value = String> {
    select(vec![
        "",
        "",
        "?limit=1",
        "?fieldSelector=metadata.name%3Dmap",
        "?fieldSelector=metadata.name%3Dsecret",
    ])
    .prop_map(str::to_owned)
}

#[test]
fn no_way_to_write_a_path_opens_what_is_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(async {
        let server = Server::quiet().await;
        for (namespace, kind, plural, name, text) in [
            ("open", "ConfigMap", "configmaps", "map", "readable"),
            ("open", "Secret", "secrets", "secret", "closed-text"),
            ("vault", "ConfigMap", "configmaps", "map", "closed-text"),
            ("vault", "Secret", "secrets", "secret", "closed-text"),
        ] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            server.post("/api/v1/namespaces", body).await;
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": {"said": text}}});
            server.post(&format!("/api/v1/namespaces/{namespace}/{plural}"), object).await.expect(201);
        }
        // Ann may read ConfigMaps of one namespace, look at its Namespace, and one ConfigMap by name anywhere.
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        ]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "ann"}, "rules": rules});
        server.post(&format!("{RBAC}/namespaces/open/roles"), role).await.expect(201);
        let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "ann"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ann"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
        server.post(&format!("{RBAC}/namespaces/open/rolebindings"), bound).await.expect(201);
        server
    });
    let (ann, admin) = (server.by(somebody("ann")), server.clone());
    runtime.block_on(async {
        let maps = ann.get("/api/v1/namespaces/open/configmaps").await;
        assert!(maps.text().contains("readable"), "{maps:?}");
        // The same in another writing, and what only looks like it.
        assert_eq!(ann.get("/api/v1/namespaces/open%2Fconfigmaps").await.code, 200);
        assert_eq!(ann.get("/api/v1/namespaces/open%2Fsecrets").await.code, 403);
        assert_eq!(ann.get("/api/v1/namespaces/vault%2Fconfigmaps").await.code, 403);
        assert_eq!(ann.get("/api/v1/namespaces//configmaps").await.code, 403);
        assert_eq!(admin.get("/api/v1//configmaps").await.code, 404);
        assert_eq!(admin.get("/api/v1/namespaces/open/configmaps/map/status/x").await.code, 404);
        assert_eq!(admin.get("/api/v1/watch/nonsense").await.code, 404);
        assert_eq!(ann.get("/api/v1/watch/namespaces/vault/configmaps").await.code, 403);
        assert_eq!(admin.ask("PUT", "/api/v1/namespaces/open/configmaps").send().await.code, 405);
        assert_eq!(admin.get("//metrics").await.code, 404);
    });
    let cases = Config { cases: 600, failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(cases).run(&(path(), query()), |(path, query)| {
        let target = format!("{path}{query}");
        if target.parse::<http::Uri>().is_err() {
            return Ok(());
        }
        let info = RequestInfo::parse("GET", &path, query.strip_prefix('?'));
        // A watch never ends by itself.
        if info.verb == "watch" {
            let open = runtime.block_on(ann.ask("GET", &target).response()).status() == 200;
            prop_assert!(!open || info.attributes().namespace == "open", "{}", target);
            return Ok(());
        }
        let answer = runtime.block_on(ann.get(&target));
        prop_assert!(!answer.text().contains("closed-text"), "{target}: {answer:?}");
        if answer.code == 200 && info.is_resource() {
            let attributes = info.attributes();
            prop_assert_eq!(attributes.namespace, "open", "{}", target);
            prop_assert!(matches!(attributes.resource, "configmaps" | "namespaces"), "{}", target);
        }
        Ok(())
    });
    run.unwrap();
}
