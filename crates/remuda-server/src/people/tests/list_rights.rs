//! Whatever roles people have: rows, counts, relationships and changes are those a review of their rights allows.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
};

use futures::{Sink, SinkExt, Stream, StreamExt};
use http::Request;
use kube::Client;
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngSeed, TestRunner},
};
use remuda_names::fuzz;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::*;

const NAMESPACES: [&str; 3] = ["red", "green", "blue"];
/// Secrets of each namespace, all of them owned by its ConfigMap `owner`.
const SECRETS: [&str; 3] = ["one", "two", "three"];
const OWNER: &str = "owner";
/// What everybody may read, and hears of last.
const SENTINEL: &str = "sentinel";
const PEOPLE: usize = 8;

/// A role with its binding.
#[derive(Debug, Clone)]
struct Grant {
    /// Everywhere without one.
    namespace: Option<&'static str>,
    resources: Vec<&'static str>,
    verbs: Vec<&'static str>,
    names: Vec<&'static str>,
}

fn grants() -> impl Strategy<Value = Vec<Grant>> {
    let namespace = prop_oneof![
        2 => Just(None),
        6 => proptest::sample::select(NAMESPACES.to_vec()).prop_map(Some),
    ];
    let some = |of: &'static [&'static str]| proptest::sample::subsequence(of, 1..=of.len());
    let names = proptest::sample::subsequence(&["one", "two", OWNER, "red"] as &[&str], 0..=3);
    let grant = (
        namespace,
        some(&["secrets", "configmaps", "namespaces"]),
        some(&["get", "list", "watch", "update", "delete"]),
        names,
    );
    let grant =
        grant.prop_map(|(namespace, resources, verbs, names)| Grant { namespace, resources, verbs, names });
    proptest::collection::vec(grant, 0..4)
}

/// One of the objects everything is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    kind: &'static str,
    resource: &'static str,
    namespace: &'static str,
    name: &'static str,
}

impl Object {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for namespace in NAMESPACES {
            all.push(Self { kind: "namespace", resource: "namespaces", namespace: "", name: namespace });
            all.push(Self { kind: "configmap", resource: "configmaps", namespace, name: OWNER });
            let secrets = SECRETS.iter();
            all.extend(secrets.map(|name| Self { kind: "secret", resource: "secrets", namespace, name }));
        }
        all
    }

    fn id(&self) -> String {
        if self.namespace.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    fn path(&self) -> String {
        format!("/v1/{}/{}", self.resource, self.id())
    }
}

async fn ask(client: &Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    match client.request::<Value>(request.body(body).unwrap()).await {
        Ok(value) => (200, value),
        Err(kube::Error::Api(status)) => (status.code, json!(null)),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

async fn make(admin: &Client, path: &str, body: Value) {
    let (code, made) = ask(admin, "POST", path, body.clone()).await;
    assert_eq!(code, 200, "{path} {body}: {made}");
}

/// A role, bound to a user.
async fn bind(admin: &Client, name: &str, user: &str, grant: &Grant) {
    let rule = json!({
        "apiGroups": [""], "resources": grant.resources, "verbs": grant.verbs, "resourceNames": grant.names,
    });
    let (prefix, metadata) = match grant.namespace {
        None => ("Cluster", json!({"name": name})),
        Some(namespace) => ("", json!({"name": name, "namespace": namespace})),
    };
    let kind = format!("{prefix}Role");
    let plural = kind.to_lowercase();
    make(
        admin,
        &format!("/v1/rbac.authorization.k8s.io.{plural}s"),
        json!({"metadata": metadata, "rules": [rule]}),
    )
    .await;
    let binding = json!({
        "metadata": metadata, "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
    });
    make(admin, &format!("/v1/rbac.authorization.k8s.io.{plural}bindings"), binding).await;
}

/// Whether a review says that the caller may read an object.
async fn may_read(client: &Client, object: &Object) -> bool {
    for verb in ["get", "list"] {
        // A Namespace is in itself, but not for lists.
        let own = object.kind == "namespace" && verb == "get";
        let namespace = if own { object.name } else { object.namespace };
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": "", "version": "v1", "resource": object.resource, "name": object.name,
                "namespace": namespace,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let (code, told) = ask(client, "POST", path, review).await;
        assert_eq!(code, 200);
        if told["status"]["allowed"] == true {
            return true;
        }
    }
    false
}

/// A socket of changes.
struct Socket {
    out: Pin<Box<dyn Sink<Message, Error = Error> + Send>>,
    input: Pin<Box<dyn Stream<Item = Result<Message, Error>> + Send>>,
}

impl Socket {
    async fn open(client: &Client) -> Self {
        let request = Request::get("/v1/subscribe").body(Vec::new()).unwrap();
        let (out, input) = client.connect(request).await.unwrap().into_stream().split();
        Self { out: Box::pin(out), input: Box::pin(input) }
    }

    /// Subscribes to kinds, and waits until all of them have begun or were refused.
    async fn begin(&mut self, kinds: &[&str]) -> usize {
        for kind in kinds {
            self.out.send(Message::text(json!({"resourceType": kind}).to_string())).await.unwrap();
        }
        let mut begun = 0;
        let mut left = kinds.len();
        while left > 0 {
            match self.hears().await["name"].as_str().unwrap() {
                "resource.start" => begun += 1,
                // Its error came before.
                "resource.stop" => {}
                _ => continue,
            }
            left -= 1;
        }
        begun
    }

    async fn hears(&mut self) -> Value {
        let heard = tokio::time::timeout(Duration::from_secs(20), self.input.next()).await;
        let heard = heard.expect("something is told in time").unwrap().unwrap();
        serde_json::from_str(heard.to_text().unwrap()).unwrap()
    }
}

struct Person {
    client: Client,
    grants: Vec<Grant>,
}

async fn people(site: &Site, admin: &Client) -> Vec<Person> {
    let told = std::env::var_os(fuzz::SEED).and_then(|seed| seed.to_str()?.parse::<u64>().ok());
    let config = Config { rng_seed: RngSeed::Fixed(told.unwrap_or(1)), ..Config::default() };
    let mut runner = TestRunner::new(config);
    let mut people = Vec::new();
    for number in 0..PEOPLE {
        let user = format!("u-{number}");
        let token = site.user(&user, json!({})).await;
        let grants = grants().new_tree(&mut runner).unwrap().current();
        for (place, grant) in grants.iter().enumerate() {
            bind(admin, &format!("{user}-{place}"), &user, grant).await;
        }
        // The last binding of everybody, so that those before it are in force when it is.
        let everybodys = Grant {
            namespace: None,
            resources: vec!["secrets", "configmaps", "namespaces"],
            verbs: vec!["get"],
            names: vec![SENTINEL],
        };
        bind(admin, &format!("{user}-last"), &user, &everybodys).await;
        site.gets(&token, "/v1/configmaps/sentinel/sentinel", 200).await;
        people.push(Person { client: site.client(Some(&token)).await, grants });
    }
    people
}

/// What a person is shown, as it should be once their rights are in force.
async fn shown(person: &Person, allowed: &BTreeSet<Object>) -> Result<(), String> {
    let (code, counts) = ask(&person.client, "GET", "/v1/counts", json!(null)).await;
    assert_eq!(code, 200);
    let counts = &counts["data"][0]["counts"];
    for (kind, resource) in [("secret", "secrets"), ("configmap", "configmaps"), ("namespace", "namespaces")]
    {
        let (code, list) = ask(&person.client, "GET", &format!("/v1/{resource}"), json!(null)).await;
        assert_eq!(code, 200, "everybody may read the sentinel");
        let rows = list["data"].as_array().unwrap();
        let ours = |id: &str| Object::all().into_iter().find(|known| known.kind == kind && known.id() == id);
        let found: BTreeSet<Object> = rows.iter().filter_map(|row| ours(row["id"].as_str()?)).collect();
        let expected: BTreeSet<Object> =
            allowed.iter().filter(|object| object.kind == kind).cloned().collect();
        if found != expected {
            return Err(format!("{kind}: rows are {found:?}, allowed are {expected:?}"));
        }
        let count = &counts[kind];
        if count["summary"]["count"] != rows.len() {
            return Err(format!("{kind}: counted {}, shown {}", count["summary"], rows.len()));
        }
        for namespace in NAMESPACES.iter().filter(|_| kind != "namespace") {
            let counted = count["namespaces"][namespace]["count"].as_u64().unwrap_or_default();
            let here = rows.iter().filter(|row| row["metadata"]["namespace"] == *namespace).count() as u64;
            if counted != here {
                return Err(format!("{kind} in {namespace}: counted {counted}, shown {here}"));
            }
        }
        for row in rows.iter().filter(|row| kind == "secret" && ours(row["id"].as_str().unwrap()).is_some()) {
            let namespace = row["metadata"]["namespace"].as_str().unwrap();
            let owner = allowed.iter().any(|known| known.kind == "configmap" && known.namespace == namespace);
            let related = row["metadata"]["relationships"].as_array().unwrap();
            if related.len() != usize::from(owner) {
                return Err(format!("{}: related to {related:?}, the owner is seen: {owner}", row["id"]));
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_count_and_hear_what_they_may_read_and_no_more() {
    let site = Site::start().await;
    let admin = site.root().await;
    for namespace in NAMESPACES.iter().chain([&SENTINEL]) {
        make(&admin, "/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    for namespace in NAMESPACES {
        let map = json!({"metadata": {"name": OWNER, "namespace": namespace}});
        make(&admin, "/v1/configmaps", map).await;
        let (_, map) = ask(&admin, "GET", &format!("/v1/configmaps/{namespace}/{OWNER}"), json!(null)).await;
        for name in SECRETS {
            let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": map["metadata"]["uid"]});
            let secret =
                json!({"metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]}});
            make(&admin, "/v1/secrets", secret).await;
        }
    }
    for resource in ["secrets", "configmaps"] {
        let sentinel = json!({"metadata": {"name": SENTINEL, "namespace": SENTINEL}});
        make(&admin, &format!("/v1/{resource}"), sentinel).await;
    }
    let people = people(&site, &admin).await;
    let mut allowed = Vec::new();
    for (number, person) in people.iter().enumerate() {
        let mut may = BTreeSet::new();
        for object in Object::all() {
            if may_read(&person.client, &object).await {
                may.insert(object);
            }
        }
        let mut told = Ok(());
        for _ in 0..50 {
            told = shown(person, &may).await;
            if told.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(told, Ok(()), "u-{number} with {:?}", person.grants);
        allowed.push(may);
    }
    let seen: usize = allowed.iter().map(BTreeSet::len).sum();
    assert!(seen > 0 && seen < PEOPLE * Object::all().len(), "the roles say something: {seen}");

    // All of it changes; what everybody may see changes last.
    let kinds = ["secret", "configmap", "namespace"];
    let mut sockets = Vec::new();
    for person in &people {
        let mut socket = Socket::open(&person.client).await;
        assert_eq!(socket.begin(&kinds).await, kinds.len());
        sockets.push(socket);
    }
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    let last = [
        "/v1/secrets/sentinel/sentinel".to_owned(),
        "/v1/configmaps/sentinel/sentinel".to_owned(),
        "/v1/namespaces/sentinel".to_owned(),
    ];
    for path in Object::all().iter().map(Object::path).chain(last) {
        let (code, _) = ask(&admin, "PATCH", &path, touched.clone()).await;
        assert_eq!(code, 200, "{path}");
    }
    for (number, mut socket) in sockets.into_iter().enumerate() {
        let mut heard: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut over = 0;
        while over < kinds.len() {
            let told = socket.hears().await;
            if told["name"] != "resource.change" || told["data"]["metadata"]["labels"]["touched"] != "yes" {
                assert_ne!(told["name"], "resource.error", "{told}");
                continue;
            }
            let id = told["data"]["id"].as_str().unwrap().to_owned();
            if id.ends_with(SENTINEL) {
                over += 1;
                continue;
            }
            heard.entry(told["resourceType"].as_str().unwrap().to_owned()).or_default().insert(id);
        }
        let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for object in &allowed[number] {
            expected.entry(object.kind.to_owned()).or_default().insert(object.id());
        }
        assert_eq!(heard, expected, "u-{number} with {:?}", people[number].grants);
    }
    site.stop().await;
}
