//! Requests for processes of Pods: who may make them, and where they go.

use std::{net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use http::{Request, Response};
use parking_lot::Mutex;
use remuda_apiserver::{Body, Kubelets};
use serde_json::json;

use crate::harness::{Server, somebody};

/// Kubelets that cannot be reached, and what they would have been asked.
#[derive(Default)]
struct Unreachable(Mutex<Vec<String>>);

impl Kubelets for Unreachable {
    fn send(
        &self,
        address: SocketAddr,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<hyper::body::Incoming>, String>> {
        self.0.lock().push(format!("{address}{}", request.uri()));
        Box::pin(async { Err("nobody is there".to_owned()) })
    }
}

const POD: &str = "/api/v1/namespaces/ns/pods/web";

async fn server() -> (Server, Arc<Unreachable>) {
    let server = Server::quiet().await;
    let kubelets = Arc::new(Unreachable::default());
    server.api.reach_kubelets(kubelets.clone());
    server.namespace("ns").await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    server.post("/api/v1/namespaces/ns/serviceaccounts", account).await.expect(201);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    server.post("/api/v1/nodes", node).await.expect(201);
    let status = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
    }});
    server.put("/api/v1/nodes/n/status", status).await.expect(200);
    for (name, node) in [("web", json!("n")), ("waiting", json!(null)), ("lost", json!("gone"))] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "a", "image": "nginx"}]}});
        server.post("/api/v1/namespaces/ns/pods", pod).await.expect(201);
    }
    (server, kubelets)
}

/// Lets somebody do something with a subresource of Pods.
async fn allow(server: &Server, user: &str, verb: &str, sub: &str) {
    let name = format!("{user}-{verb}-{sub}");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": [format!("pods/{sub}")], "verbs": [verb]}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns";
    server.post(&format!("{roles}/roles"), role).await.expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    server.post(&format!("{roles}/rolebindings"), binding).await.expect(201);
}

#[tokio::test]
async fn a_log_comes_from_the_node_of_its_pod() {
    let (server, kubelets) = server().await;
    allow(&server, "ann", "get", "log").await;
    let ann = server.by(somebody("ann"));
    let answer = ann.get(&format!("{POD}/log?tailLines=2&pretty=true")).await;
    assert_eq!(answer.fails(503, "ServiceUnavailable"), "node n cannot be reached: nobody is there");
    assert_eq!(*kubelets.0.lock(), ["10.1.2.3:10250/containerLogs/ns/web/a?tailLines=2"]);
    let refused = server.by(somebody("bob")).get(&format!("{POD}/log")).await;
    assert!(refused.fails(403, "Forbidden").contains("cannot get resource \"pods/log\""));
    let pods = "/api/v1/namespaces/ns/pods";
    assert_eq!(
        server.get(&format!("{pods}/lost/log")).await.fails(404, "NotFound"),
        "nodes \"gone\" not found"
    );
    assert_eq!(
        server
            .ask("POST", &format!("{pods}/waiting/exec?command=ls&stdout=1"))
            .send()
            .await
            .fails(400, "BadRequest"),
        "pod waiting does not have a host assigned"
    );
    server.ask("POST", &format!("{POD}/log")).send().await.fails(405, "MethodNotAllowed");
    assert_eq!(kubelets.0.lock().len(), 1);
}

#[tokio::test]
async fn who_may_only_read_runs_no_commands() {
    let (server, kubelets) = server().await;
    for sub in ["exec", "attach", "portforward"] {
        let path = format!("{POD}/{sub}?command=ls&stdout=1&ports=80");
        allow(&server, "ann", "get", sub).await;
        let ann = server.by(somebody("ann"));
        for method in ["GET", "POST"] {
            let refused =
                ann.ask(method, &path).header("connection", "upgrade").header("upgrade", "websocket");
            let why = refused.send().await.fails(403, "Forbidden").to_owned();
            assert!(why.contains(&format!("cannot create resource \"pods/{sub}\"")), "{why}");
        }
        allow(&server, "bob", "create", sub).await;
        let bob = server.by(somebody("bob"));
        assert!(bob.ask("GET", &path).send().await.fails(403, "Forbidden").contains("cannot get"));
        // A client in this process has no connection that could change.
        let answer = bob.ask("POST", &path).send().await;
        assert_eq!(answer.fails(400, "BadRequest"), "this connection cannot change its protocol");
    }
    assert!(kubelets.0.lock().is_empty());
}
