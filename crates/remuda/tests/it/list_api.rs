//! The list API of a running server, for people who have logged in.

use std::{pin::Pin, time::Duration};

use futures::{Sink, SinkExt, Stream, StreamExt};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::{
    client::{client, client_with, config_map},
    lab::{Lab, NEW},
    people::Desk,
};

/// A person with a token, by a login.
fn logged_in(desk: &Desk, name: &str) -> Client {
    let (data, mine) = (desk.place.data().display().to_string(), desk.file(&format!("{name}.kubeconfig")));
    let password = "correct horse battery\n";
    desk.run_with(&format!("user create {name} --password-stdin --data-dir {data}"), password);
    desk.run_with(&format!("login --data-dir {data} -u {name} --password-stdin --into {mine}"), password);
    desk.runtime.block_on(client_with(mine.as_ref(), |_| {}))
}

async fn get(client: &Client, path: &str) -> Result<Value, u16> {
    match client.request::<Value>(Request::get(path).body(Vec::new()).unwrap()).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn make(client: &Client, name: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &config_map(name, "x")).await.unwrap();
}

/// A socket on which changes are told.
struct Socket {
    out: Pin<Box<dyn Sink<Message, Error = Error>>>,
    input: Pin<Box<dyn Stream<Item = Result<Message, Error>>>>,
}

impl Socket {
    async fn open(client: &Client) -> Self {
        let request = Request::get("/v1/subscribe").body(Vec::new()).unwrap();
        let (out, input) = client.connect(request).await.unwrap().into_stream().split();
        Self { out: Box::pin(out), input: Box::pin(input) }
    }

    async fn say(&mut self, text: &str) {
        self.out.send(Message::text(text)).await.unwrap();
    }

    /// The next message that is no ping.
    async fn hears(&mut self) -> Value {
        loop {
            let heard = tokio::time::timeout(Duration::from_secs(20), self.input.next()).await;
            let heard = heard.expect("something is told in time").unwrap().unwrap();
            let heard: Value = serde_json::from_str(heard.to_text().unwrap()).unwrap();
            if heard["name"] != "ping" {
                return heard;
            }
        }
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|row| row["metadata"]["name"].as_str().unwrap()).collect()
}

/// Lets a user read ConfigMaps of the namespace.
fn grant(desk: &Desk, user: &str) {
    let admin = desk.runtime.block_on(client(&desk.server));
    let post = |path: &str, body: Value| {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).unwrap();
        desk.runtime.block_on(admin.request::<Value>(request)).unwrap()
    };
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    let metadata = json!({"name": "readers", "namespace": "default"});
    post("/v1/rbac.authorization.k8s.io.roles", json!({"metadata": metadata, "rules": rules}));
    let binding = json!({
        "metadata": metadata, "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "readers"},
    });
    post("/v1/rbac.authorization.k8s.io.rolebindings", binding);
}

/// The name of a user in RBAC.
async fn own_name(client: &Client) -> String {
    let request = Request::post("/v1/ext.cattle.io.selfuser").body(b"{}".to_vec()).unwrap();
    let answer: Value = client.request(request).await.unwrap();
    answer["status"]["userID"].as_str().unwrap().to_owned()
}

#[test]
fn a_person_lists_and_is_told_of_changes_and_another_sees_nothing() {
    let desk = Desk::open();
    let (ann, bob) = (logged_in(&desk, "ann"), logged_in(&desk, "bob"));
    let admin = desk.runtime.block_on(client(&desk.server));
    let name = desk.runtime.block_on(own_name(&ann));
    grant(&desk, &name);
    desk.runtime.block_on(async {
        for number in 0..5 {
            make(&admin, &format!("cm-{number}")).await;
        }
        let path = "/v1/configmaps?filter=metadata.name~cm-&sort=-metadata.name&page=1&pagesize=2";
        let mut list = get(&ann, path).await.unwrap();
        for _ in 0..100 {
            if list["count"] == 5 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            list = get(&ann, path).await.unwrap();
        }
        assert_eq!((list["count"].as_u64(), list["pages"].as_u64()), (Some(5), Some(3)), "{list}");
        assert_eq!(names(&list), ["cm-4", "cm-3"]);
        assert_eq!(get(&bob, path).await, Err(403));
        for (setting, value) in
            [("ui-custom-links", ""), ("ui-community-links", "false"), ("ui-performance", "")]
        {
            let read = get(&bob, &format!("/v3/settings/{setting}")).await.unwrap();
            assert_eq!((&read["id"], &read["value"]), (&json!(setting), &json!(value)));
        }
        let counts = get(&bob, "/v1/counts").await.unwrap();
        assert!(counts["data"][0]["counts"].get("configmap").is_none(), "{counts}");

        let mut hers = Socket::open(&ann).await;
        let mut his = Socket::open(&bob).await;
        let revision = list["revision"].as_str().unwrap();
        let wish = json!({"resourceType": "configmap", "resourceVersion": revision}).to_string();
        hers.say(&wish).await;
        his.say(&wish).await;
        assert_eq!(hers.hears().await["name"], "resource.start");
        let refused = his.hears().await;
        assert_eq!(
            (&refused["name"], &refused["data"]["error"]),
            (&json!("resource.error"), &json!("watch not allowed"))
        );
        assert_eq!(his.hears().await["name"], "resource.stop");
        make(&admin, "cm-new").await;
        let told = loop {
            let told = hers.hears().await;
            if told["data"]["id"] == "default/cm-new" {
                break told;
            }
        };
        assert_eq!(told["name"], "resource.create", "{told}");
        assert_eq!(told["data"]["metadata"]["state"]["name"], "active");

        // Without data, of a page: the first notice at once, the next after a change.
        let changes = json!({"resourceType": "configmap", "mode": "resource.changes", "debounceMs": 100});
        hers.say(&changes.to_string()).await;
        assert_eq!(hers.hears().await["name"], "resource.start");
        assert_eq!(hers.hears().await["name"], "resource.changes");
        hers.say(&json!({"resourceType": "configmap", "stop": true}).to_string()).await;
        assert_eq!(hers.hears().await["name"], "resource.stop");
        make(&admin, "cm-more").await;
        let notice = hers.hears().await;
        assert_eq!(notice["name"], "resource.changes", "{notice}");
        let page =
            get(&ann, &format!("/v1/configmaps?revision={}", notice["revision"].as_str().unwrap())).await;
        assert!(names(&page.unwrap()).contains(&"cm-more"));

        // A revision that is not known any more, and a type that does not exist, are told apart by their text.
        hers.say(&json!({"resourceType": "secret", "resourceVersion": "1"}).to_string()).await;
        let error = hers.hears().await["data"]["error"].as_str().unwrap_or_default().to_owned();
        assert_eq!(error, "watch not allowed");
        assert_eq!(hers.hears().await["name"], "resource.stop");
        hers.say(&json!({"resourceType": "configmap", "resourceVersion": "1"}).to_string()).await;
        let old = hers.hears().await;
        assert!(old["data"]["error"].as_str().unwrap().starts_with("too old resource version"), "{old}");
    });
}

async fn post(client: &Client, path: &str, body: Value) -> Result<Value, u16> {
    let request = Request::post(path).header("content-type", "application/json");
    match client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Nodes of a real cluster, and what is done to them through its tunnel: by an administrator, and not by a member.
#[test]
fn nodes_of_a_cluster_are_cordoned_and_drained_as_the_caller() {
    const NODES: &str = "/v1/management.cattle.io.nodes";
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let admin = lab.client();
    let nodes = |client: &Client| lab.runtime.block_on(get(client, NODES));
    let states = || -> Vec<String> {
        let list = nodes(&admin).unwrap();
        let rows = list["data"].as_array().unwrap();
        rows.iter().map(|row| row["metadata"]["state"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let minute = Duration::from_secs(60);
    lab.until("both nodes are there", minute, || states() == ["active", "active"]);
    let list = nodes(&admin).unwrap();
    let worker = list["data"].as_array().unwrap().iter().find(|row| row["spec"]["worker"] == true).unwrap();
    let path = format!("{NODES}/{}", worker["id"].as_str().unwrap());
    assert!(worker["actions"]["cordon"].as_str().unwrap().ends_with("?action=cordon"), "{worker}");
    let cluster = worker["metadata"]["namespace"].as_str().unwrap();
    let managed = format!("/v1/management.cattle.io.clusters/{cluster}");
    lab.until("the cluster sums them up", minute, || {
        let status = lab.runtime.block_on(get(&admin, &managed)).unwrap()["status"].clone();
        status["nodeCount"] == 2
            && status["linuxWorkerCount"] == 1
            && status["capacity"]["cpu"].is_string()
            && status["info"]["arch"].as_str().is_some_and(|arch| !arch.is_empty())
    });
    // How many there are of each kind in the cluster, of those the caller may list there.
    let counts = |client: &Client| {
        let path = format!("/k8s/clusters/{cluster}/v1/counts");
        lab.runtime.block_on(get(client, &path)).unwrap()["data"][0]["counts"].clone()
    };
    let of = |counts: &Value, kind: &str| counts[kind]["summary"]["count"].clone();
    assert_eq!(of(&counts(&admin), "node"), 2);
    assert!(of(&counts(&admin), "secret").is_u64());

    // A member sees them, and may do nothing to them.
    let member = lab.runtime.block_on(async {
        let user = json!({"metadata": {"name": "u-ann"}, "username": "ann"});
        post(&admin, "/v1/management.cattle.io.users", user).await.unwrap();
        let binding = json!({
            "metadata": {"name": "ann", "namespace": cluster}, "clusterName": cluster, "userName": "u-ann",
            "roleTemplateName": "cluster-member",
        });
        post(&admin, "/v1/management.cattle.io.clusterroletemplatebindings", binding).await.unwrap();
        let mut token = Err(0);
        for _ in 0..100 {
            token = post(&admin, "/v3/tokens", json!({"userId": "u-ann"})).await;
            if token.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let token = token.unwrap()["token"].as_str().unwrap().to_owned();
        client_with(&lab.data().join("admin.kubeconfig"), |kubeconfig| {
            let auth = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
            kubeconfig.auth_infos[0].auth_info = Some(auth);
        })
        .await
    });
    lab.until("she sees them", minute, || nodes(&member).is_ok_and(|list| list["count"] == 2));
    let hers = nodes(&member).unwrap();
    assert!(hers["data"].as_array().unwrap().iter().all(|row| row.get("actions").is_none()), "{hers}");
    let act = |client: &Client, action: &str, body: Value| {
        lab.runtime.block_on(post(client, &format!("{path}?action={action}"), body))
    };
    assert_eq!(act(&member, "cordon", json!({})), Err(403));
    assert_eq!(of(&counts(&member), "secret"), json!(null), "she may not list them");

    act(&admin, "cordon", json!({})).unwrap();
    lab.until("it is cordoned", minute, || states().contains(&"cordoned".to_owned()));
    assert_eq!(act(&admin, "cordon", json!({})), Err(422));
    act(&admin, "uncordon", json!({})).unwrap();
    lab.until("it is open again", minute, || states() == ["active", "active"]);
    assert_eq!(act(&admin, "drain", json!({"timeout": 0})), Err(422));
    assert_eq!(states(), ["active", "active"], "bad input changes nothing");
    act(&admin, "drain", json!({"force": true, "deleteLocalData": true, "timeout": 60})).unwrap();
    lab.until("it is drained", minute, || states().contains(&"drained".to_owned()));
    assert_eq!(act(&admin, "explode", json!({})), Err(404));
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.until("its nodes are gone", minute, || states().is_empty());
}
