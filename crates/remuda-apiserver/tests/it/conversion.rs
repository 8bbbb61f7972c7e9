//! Objects of definitions whose versions differ: converted by a webhook, or by the server's own code.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::{
    custom::CRDS,
    harness::{MERGE_PATCH, Server, names},
};

type Handler = Arc<dyn Fn(Value) -> Value + Send + Sync>;

/// An HTTPS server that answers every POST with what the handler makes of its body. Returns its URL
/// and the bundle to trust.
async fn webhook(handler: Handler) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tasks = tokio_util::task::TaskTracker::new();
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let (acceptor, handler) = (acceptor.clone(), handler.clone());
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service =
                    hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let handler = handler.clone();
                        async move {
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let answer = handler(serde_json::from_slice(&body).unwrap()).to_string();
                            let response = http::Response::new(Full::new(Bytes::from(answer)));
                            Ok::<_, std::convert::Infallible>(response)
                        }
                    });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (format!("https://localhost:{port}/convert"), STANDARD.encode(certificate.pem()))
}

/// `v1` has `spec.host` and `spec.port`; `v2` has `spec.address`.
fn convert(object: &mut Value, version: &str) -> Result<(), String> {
    let spec = object["spec"].take();
    object["spec"] = match version {
        "v2" => json!({"address": format!("{}:{}", spec["host"].as_str().unwrap_or_default(), spec["port"])}),
        "v1" => {
            let address = spec["address"].as_str().unwrap_or_default();
            let (host, port) = address.split_once(':').ok_or("no port in the address")?;
            json!({"host": host, "port": port.parse::<u64>().map_err(|_| "the port is no number")?})
        }
        other => return Err(format!("unknown version {other}")),
    };
    Ok(())
}

fn crd(conversion: Value) -> Value {
    let version = |name: &str, storage: bool, properties: Value, field: &str| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}},
            "selectableFields": [{"jsonPath": field}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ends.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": "ends", "kind": "End"}, "conversion": conversion,
            "versions": [
                version("v1", true, json!({"host": {"type": "string"}, "port": {"type": "integer"}}), ".spec.host"),
                version("v2", false, json!({"address": {"type": "string"}}), ".spec.address"),
            ],
        },
    })
}

const V1: &str = "/apis/x.io/v1/namespaces/default/ends";
const V2: &str = "/apis/x.io/v2/namespaces/default/ends";

fn end(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("x.io/{version}"), "kind": "End", "metadata": {"name": name}, "spec": spec})
}

async fn with_webhook(handler: impl Fn(Value) -> Value + Send + Sync + 'static) -> Server {
    let (url, bundle) = webhook(Arc::new(handler)).await;
    let server = Server::start().await;
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": bundle},
    }});
    server.post(CRDS, crd(conversion)).await.expect(201);
    server
}

fn answer(mut review: Value) -> Value {
    assert_eq!(review["kind"], "ConversionReview");
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
    let request = review["request"].take();
    let target = request["desiredAPIVersion"].as_str().unwrap();
    let mut objects = request["objects"].as_array().unwrap().clone();
    for object in &mut objects {
        convert(object, target.rsplit('/').next().unwrap()).unwrap();
        object["apiVersion"] = target.into();
        object["metadata"]["annotations"] = json!({"converted": "yes"});
        object["metadata"]["generation"] = 99.into();
    }
    json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}},
    })
}

#[tokio::test]
async fn a_webhook_converts_reads_lists_watches_and_writes() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let server = with_webhook(move |review| {
        counted.fetch_add(1, Ordering::Relaxed);
        answer(review)
    })
    .await;
    for index in 0..5 {
        server
            .post(V1, end("v1", &format!("e{index}"), json!({"host": "h", "port": index})))
            .await
            .expect(201);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let list = server.get(V2).await.expect(200);
    assert_eq!(calls.load(Ordering::Relaxed), 1, "a list is converted in one call");
    assert_eq!(list["items"][3]["spec"], json!({"address": "h:3"}));
    assert_eq!(list["items"][3]["metadata"]["annotations"], json!({"converted": "yes"}));
    assert_eq!(list["items"][3]["metadata"]["generation"], 1);
    let created = server.post(V2, end("v2", "new", json!({"address": "x:7"}))).await.expect(201);
    assert_eq!(created["apiVersion"], "x.io/v2");
    assert_eq!(created["spec"], json!({"address": "x:7"}));
    let read = server.get(&format!("{V1}/new")).await.expect(200);
    assert_eq!(read["spec"], json!({"host": "x", "port": 7}));
    let mut watch = server
        .watch(&format!("{V2}?resourceVersion={}", created["metadata"]["resourceVersion"].as_str().unwrap()))
        .await;
    server.patch(&format!("{V1}/new"), MERGE_PATCH, json!({"spec": {"port": 8}})).await.expect(200);
    assert_eq!(watch.expect("MODIFIED").await["spec"], json!({"address": "x:8"}));
    let patched = server
        .patch(&format!("{V2}/new"), MERGE_PATCH, json!({"spec": {"address": "y:9"}}))
        .await
        .expect(200);
    assert_eq!(patched["spec"], json!({"address": "y:9"}));
    assert_eq!(watch.expect("MODIFIED").await["spec"], json!({"address": "y:9"}));
    // Selectors mean the fields of the version they are used in.
    let list = server.get(&format!("{V2}?fieldSelector=spec.address%3Dh:2")).await.expect(200);
    assert_eq!(names(&list), ["e2"]);
    let list = server.get(&format!("{V1}?fieldSelector=spec.host%3Dy")).await.expect(200);
    assert_eq!(names(&list), ["new"]);
    server.get(&format!("{V1}?fieldSelector=spec.address%3Dy")).await.fails(400, "BadRequest");
    let mut watch = server
        .watch(&format!(
            "{V2}?fieldSelector=spec.address%3Dh:44&resourceVersion={}",
            list["metadata"]["resourceVersion"].as_str().unwrap()
        ))
        .await;
    server.patch(&format!("{V1}/e4"), MERGE_PATCH, json!({"spec": {"port": 44}})).await.expect(200);
    assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "e4");
    server.delete(&format!("{V2}?fieldSelector=spec.address%3Dy:9")).await.expect(200);
    server.get(&format!("{V1}/new")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn what_a_webhook_gets_wrong_is_told() {
    let server = with_webhook(|review| {
        let mode = review["request"]["objects"][0]["metadata"]["name"].as_str().unwrap().to_owned();
        let mut answer = answer(review);
        let response = &mut answer["response"];
        match mode.as_str() {
            "failed" => response["result"] = json!({"status": "Failed", "message": "cannot do that"}),
            "uid" => response["uid"] = "other".into(),
            "none" => response["convertedObjects"] = json!([]),
            "renamed" => response["convertedObjects"][0]["metadata"]["name"] = "x".into(),
            "version" => response["convertedObjects"][0]["apiVersion"] = "x.io/v3".into(),
            _ => {}
        }
        answer
    })
    .await;
    for (name, expected) in [
        ("failed", "failed: cannot do that"),
        ("uid", "got \"other\""),
        ("none", "returned 0 objects, expected 1"),
        ("renamed", "must have the same name: renamed != x"),
        ("version", "invalid groupVersion (expected x.io/v2, received x.io/v3)"),
    ] {
        server.post(V1, end("v1", name, json!({"host": "h", "port": 1}))).await.expect(201);
        let answer = server.get(&format!("{V2}/{name}")).await;
        assert_eq!(answer.code, 500, "{answer:?}");
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.starts_with("conversion webhook for x.io/v1, Kind=End "), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn what_was_converted_is_served_while_the_webhook_is_broken() {
    let broken = Arc::new(AtomicBool::new(false));
    let switch = broken.clone();
    let server = with_webhook(move |review| {
        let mut answer = answer(review);
        if switch.load(Ordering::Relaxed) {
            answer["response"]["result"] = json!({"status": "Failed", "message": "out of order"});
        }
        answer
    })
    .await;
    for index in 0..3 {
        let object = end("v1", &format!("e{index}"), json!({"host": "h", "port": index}));
        server.post(V1, object).await.expect(201);
    }
    let before = server.get(V2).await.expect(200);
    broken.store(true, Ordering::Relaxed);
    assert_eq!(server.get(V2).await.expect(200), before);
    assert_eq!(server.get(&format!("{V2}/e1")).await.expect(200), before["items"][1]);
    let mut watch = server.watch(V2).await;
    for index in 0..3 {
        assert_eq!(watch.expect("ADDED").await, before["items"][index]);
    }
    let found = server.get(&format!("{V2}?fieldSelector=spec.address%3Dh:2")).await.expect(200);
    assert_eq!(names(&found), ["e2"]);
    // A change is not hidden behind what was converted before it.
    server.patch(&format!("{V1}/e1"), MERGE_PATCH, json!({"spec": {"port": 11}})).await.expect(200);
    let refused = server.get(&format!("{V2}/e1")).await;
    assert!(refused.body["message"].as_str().unwrap().ends_with("failed: out of order"), "{refused:?}");
    assert_eq!(server.get(V2).await.code, 500);
    server.get(&format!("{V2}/e2")).await.expect(200);
    broken.store(false, Ordering::Relaxed);
    let after = server.get(V2).await.expect(200);
    assert_eq!(after["items"][1]["spec"], json!({"address": "h:11"}));
}

#[tokio::test]
async fn a_webhook_nobody_answers_is_an_error_and_not_a_hang() {
    let server = Server::start().await;
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"},
    }});
    server.post(CRDS, crd(conversion)).await.expect(201);
    server.post(V1, end("v1", "a", json!({"host": "h", "port": 1}))).await.expect(201);
    let answer = server.get(&format!("{V2}/a")).await;
    assert_eq!(answer.code, 500);
    assert!(
        answer.body["message"]
            .as_str()
            .unwrap()
            .starts_with("conversion webhook for x.io/v1, Kind=End failed: ")
    );
}

#[tokio::test]
async fn defaults_of_a_read_are_those_of_the_stored_version() {
    let server = Server::start().await;
    let mut crd = crd(json!({"strategy": "None"}));
    let field = |default: Value| json!({"type": "string", "default": default});
    for version in crd["spec"]["versions"].as_array_mut().unwrap() {
        let mut own = json!({"type": "object", "properties": {"old": {"type": "string"}}});
        own["properties"][version["name"].as_str().unwrap()] = field(version["name"].clone());
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = own;
        version["selectableFields"] = json!([]);
    }
    server.post(CRDS, crd).await.expect(201);
    let made = server.post(V1, end("v1", "a", json!({"old": "x"}))).await.expect(201);
    assert_eq!(made["spec"], json!({"old": "x", "v1": "v1"}));
    // What the other version does not know goes; what it would default is for its own writers.
    assert_eq!(server.get(&format!("{V2}/a")).await.expect(200)["spec"], json!({"old": "x"}));
    assert_eq!(server.get(V2).await.expect(200)["items"][0]["spec"], json!({"old": "x"}));
}

#[tokio::test]
async fn native_conversions_need_no_webhook_and_owners_are_compared_in_their_own_version() {
    let server = Server::with(|config| {
        config.conversions.insert("ends.x.io".to_owned(), Arc::new(convert));
    })
    .await;
    server.post(CRDS, crd(json!({"strategy": "None"}))).await.expect(201);
    let one = format!("{V1}/a");
    server.apply(&one, "m1", end("v1", "a", json!({"host": "h", "port": 1}))).await.expect(201);
    let read = server.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(read["spec"], json!({"address": "h:1"}));
    assert_eq!(read["metadata"]["managedFields"][0]["apiVersion"], "x.io/v1");
    // In the other version the same value is no conflict, another one is.
    server.apply(&format!("{V2}/a"), "m2", end("v2", "a", json!({"address": "h:1"}))).await.expect(200);
    let answer = server.apply(&format!("{V2}/a"), "m3", end("v2", "a", json!({"address": "h:2"}))).await;
    let message = answer.fails(409, "Conflict");
    assert!(
        message.contains("conflicts with \"m1\"") || message.contains("conflict with \"m1\""),
        "{message}"
    );
    assert!(message.contains(".spec.port"), "{message}");
    assert!(message.contains(".spec.address"), "{message}");
    let forced = server
        .apply(&format!("{V2}/a?force=true"), "m3", end("v2", "a", json!({"address": "h:2"})))
        .await
        .expect(200);
    let entries = forced["metadata"]["managedFields"].as_array().unwrap();
    let of = |manager: &str| entries.iter().find(|entry| entry["manager"] == manager);
    assert_eq!(of("m1").unwrap()["fieldsV1"], json!({"f:spec": {"f:host": {}}}));
    assert_eq!(of("m2"), None);
    assert_eq!(of("m3").unwrap()["apiVersion"], "x.io/v2");
    // An update in one version takes from those who wrote in the other.
    let updated = server
        .patch(&format!("{V1}/a?fieldManager=u"), MERGE_PATCH, json!({"spec": {"host": "g"}}))
        .await
        .expect(200);
    let entries = updated["metadata"]["managedFields"].as_array().unwrap();
    let managers: Vec<&Value> = entries.iter().map(|entry| &entry["manager"]).collect();
    assert_eq!(managers, ["u"], "{entries:?}");
    let answer = server.post(V2, end("v2", "bad", json!({"address": "no port"}))).await;
    assert_eq!(answer.code, 500, "{answer:?}");
}
