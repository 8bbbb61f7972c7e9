//! Content types in and out: JSON, YAML, protobuf, Tables, metadata alone, gzip.

use std::io::Read;

use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// A protobuf field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, bytes.len() as u8];
    assert!(bytes.len() < 128);
    out.extend_from_slice(bytes);
    out
}

fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = b"k8s\0".to_vec();
    let type_meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    out.extend(field(1, &type_meta));
    out.extend(field(2, raw));
    out.extend(field(3, b""));
    out.extend(field(4, b""));
    out
}

/// A ConfigMap as Go clients write it: empty strings are on the wire.
fn protobuf_map(name: &str) -> Vec<u8> {
    let meta =
        [field(1, name.as_bytes()), field(2, b""), field(3, b""), field(4, b""), field(5, b"")].concat();
    let entry = [field(1, b"k"), field(2, b"v")].concat();
    envelope("v1", "ConfigMap", &[field(1, &meta), field(2, &entry)].concat())
}

#[tokio::test]
async fn bodies_come_in_json_yaml_and_protobuf() {
    let server = Server::start().await;
    let yaml = "metadata:\n  name: yam\ndata:\n  k: v\n";
    for (name, content_type, body) in [
        ("j", "application/json; charset=utf-8", br#"{"metadata":{"name":"j"},"data":{"k":"v"}}"#.to_vec()),
        ("yam", YAML, yaml.as_bytes().to_vec()),
        ("p", PROTOBUF, protobuf_map("p")),
    ] {
        let created = server.ask("POST", MAPS).body(content_type, body).send().await.expect(201);
        assert_eq!((&created["metadata"]["name"], &created["data"]), (&json!(name), &json!({"k": "v"})));
        assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    }
    let bare = r#"{"metadata":{"name":"b"}}"#;
    server.ask("POST", MAPS).bare_body(bare).send().await.expect(201);
    let put = server.ask("PUT", &format!("{MAPS}/p")).body(PROTOBUF, protobuf_map("p")).send().await;
    put.expect(200);
    // DeleteOptions { 1: gracePeriodSeconds = 0 }
    let options = envelope("v1", "DeleteOptions", &[0x08, 0]);
    server.ask("DELETE", &format!("{MAPS}/p")).body(PROTOBUF, options).send().await.expect(200);
}

#[tokio::test]
async fn unknown_media_types_are_refused_with_what_is_known() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let begin = "the body of the request was in an unknown format - accepted media types include: ";
    for (method, path, content_type) in [
        ("POST", MAPS.to_owned(), "application/cbor"),
        ("POST", MAPS.to_owned(), MERGE_PATCH),
        ("PUT", format!("{MAPS}/a"), "text/plain"),
        ("PATCH", format!("{MAPS}/a"), JSON),
        ("PATCH", format!("{MAPS}/a"), YAML),
        ("PATCH", format!("{MAPS}/a"), PROTOBUF),
        ("PATCH", format!("{MAPS}/a"), "application/apply-patch+cbor"),
        ("DELETE", format!("{MAPS}/a"), "text/plain"),
    ] {
        let answer = server.ask(method, &path).body(content_type, "{}").send().await;
        let message = answer.fails(415, "UnsupportedMediaType");
        let list = message.strip_prefix(begin).unwrap_or_else(|| panic!("{message}"));
        match method {
            "PATCH" => assert!(list.contains(STRATEGIC_PATCH) && list.contains(APPLY_PATCH), "{list}"),
            _ => assert_eq!(list, format!("{JSON}, {YAML}, {PROTOBUF}")),
        }
    }
}

#[tokio::test]
async fn unreadable_bodies_say_why() {
    let server = Server::start().await;
    let message = server.ask("POST", MAPS).body(JSON, "{nope").send().await.fails(400, "BadRequest");
    let begin = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: ";
    assert!(message.starts_with(begin), "{message}");
    server.ask("POST", MAPS).body(JSON, "").send().await.fails(400, "BadRequest");
    server.ask("POST", MAPS).body(JSON, "[]").send().await.fails(400, "BadRequest");
    server.ask("POST", MAPS).body(PROTOBUF, "k8s").send().await.fails(400, "BadRequest");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let message = server.post(MAPS, secret).await.fails(400, "BadRequest");
    assert!(message.starts_with("Secret in version \"v1\" cannot be handled as a ConfigMap: "), "{message}");
    let message = server
        .post(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": 5}}))
        .await
        .fails(400, "BadRequest");
    assert!(
        message.starts_with("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: "),
        "{message}"
    );
    let message = server
        .post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "a"}, "data": {"k": "%%%"}}))
        .await
        .fails(400, "BadRequest");
    assert!(message.contains("illegal base64 data"), "{message}");
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let deep = format!(r#"{{"metadata":{{"name":"a"}},"x":{deep}}}"#);
    server.ask("POST", MAPS).body(JSON, deep).send().await.fails(400, "BadRequest");
    let null = json!({"metadata": {"name": "n", "labels": null}, "data": null, "immutable": null});
    let created = server.post(MAPS, null).await.expect(201);
    assert!(created.get("data").is_none() && created.get("immutable").is_none(), "{created}");
}

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused() {
    let server = Server::start().await;
    let big = config_map("a", json!({"k": "x".repeat(3 << 20)}));
    let answer = server.post(MAPS, big).await;
    assert_eq!(answer.fails(413, "RequestEntityTooLarge"), "Request entity too large: limit is 3145728");
    let message = server
        .post(MAPS, config_map("a", json!({"k": "x".repeat((1 << 20) + 1)})))
        .await
        .fails(422, "Invalid");
    assert!(message.contains("Too long: may not be more than 1048576 bytes"), "{message}");
    // An object of a megabyte and a half fits.
    let label = |n: usize| (format!("x.io/{n}"), json!("y".repeat(250_000)));
    let pod: Value = json!({"metadata": {"name": "p", "annotations": serde_json::Map::from_iter([label(1)])},
        "spec": {"containers": [{"name": "c", "image": "i", "args": ["z".repeat(1_200_000)]}]}});
    server.post("/api/v1/namespaces/default/pods", pod).await.expect(201);
}

#[tokio::test]
async fn answers_come_as_accepted() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({"k": "v"}))).await.expect(201);
    let a = format!("{MAPS}/a");
    for accept in [
        "*/*",
        "application/*",
        "application/json",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/vnd.kubernetes.protobuf, */*",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Nonsense;g=x;v=v1, application/json",
        "text/html, application/json;q=0.5",
        "application/yaml;q=0.3, application/json",
    ] {
        let answer = server.ask("GET", &a).accept(accept).send().await;
        assert_eq!((answer.code, answer.header("content-type")), (200, Some(JSON)), "{accept}");
        assert_eq!(answer.body["kind"], "ConfigMap");
    }
    for path in [a.as_str(), MAPS] {
        let yaml = server.ask("GET", path).accept(YAML).send().await;
        assert_eq!(yaml.header("content-type"), Some(YAML));
        assert!(yaml.text().contains("apiVersion: v1\n"), "{}", yaml.text());
    }
    let refused = server.ask("GET", &a).accept("text/html").send().await;
    assert_eq!(
        refused.fails(406, "NotAcceptable"),
        "only the following media types are accepted: application/json, application/yaml"
    );
    let missing = server.ask("GET", &format!("{MAPS}/b")).accept(YAML).send().await;
    assert_eq!((missing.code, missing.header("content-type")), (404, Some(YAML)));
    assert!(missing.text().contains("reason: NotFound"), "{}", missing.text());
    let fallen = server.ask("GET", &format!("{MAPS}/b")).accept("text/html").send().await;
    assert_eq!(fallen.header("content-type"), Some(JSON));
}

#[tokio::test]
async fn people_and_pretty_get_indentation() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let a = format!("{MAPS}/a");
    for (query, agent, indented) in [
        ("", "kubectl/v1.36", false),
        ("", "curl/8.1", true),
        ("", "Wget/1", true),
        ("", "Mozilla/5.0 (X11)", true),
        ("?pretty=true", "x", true),
        ("?pretty=1", "x", true),
        ("?pretty=false", "curl/8.1", false),
    ] {
        for path in [format!("{a}{query}"), format!("{MAPS}{query}"), format!("{MAPS}/nope{query}")] {
            let answer = server.ask("GET", &path).header("user-agent", agent).send().await;
            let text = answer.text();
            assert_eq!(text.starts_with("{\n  \""), indented, "{path} {agent}: {text}");
        }
    }
}

#[tokio::test]
async fn every_answer_has_its_headers() {
    let server = Server::start().await;
    for path in [MAPS, "/version", "/api", "/nope", "/api/v1/namespaces/default/configmaps/nope"] {
        let answer = server.get(path).await;
        assert_eq!(answer.header("cache-control"), Some("no-cache, private"), "{path}");
        let id = answer.header("audit-id").unwrap();
        assert!(id.parse::<uuid::Uuid>().is_ok(), "{id}");
        let id = "1d7bf8d5-96ff-4d2e-9f15-6a6f4a3c0c8f";
        let answer = server.ask("GET", path).header("audit-id", id).send().await;
        assert_eq!(answer.header("audit-id"), Some(id));
    }
}

#[tokio::test]
async fn tables_show_rows_with_metadata() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({"k": "v", "l": "w"}))).await.expect(201);
    let accept = format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
    let answer =
        server.ask("GET", &format!("{MAPS}?fieldSelector=metadata.name%3Da")).accept(&accept).send().await;
    assert_eq!(answer.header("content-type"), Some(JSON));
    let table = answer.expect(200);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert!(table["metadata"]["resourceVersion"].is_string());
    let columns: Vec<(&str, &str, i64)> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            assert_eq!(column.as_object().unwrap().len(), 5, "{column}");
            (
                column["name"].as_str().unwrap(),
                column["format"].as_str().unwrap(),
                column["priority"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(columns, [("Name", "name", 0), ("Data", "", 0), ("Age", "", 0)]);
    let row = &table["rows"][0];
    assert_eq!((&row["cells"][0], &row["cells"][1]), (&json!("a"), &json!(2)));
    assert!(row["cells"][2].as_str().unwrap().ends_with('s'), "{row}");
    let object = &row["object"];
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(object["metadata"]["name"], "a");
    assert!(object.get("data").is_none());

    let a = format!("{MAPS}/a");
    let one = server.ask("GET", &format!("{a}?includeObject=Object")).accept(TABLE).send().await.expect(200);
    assert_eq!(one["rows"][0]["object"]["data"], json!({"k": "v", "l": "w"}));
    assert_eq!(one["rows"][0]["object"]["kind"], "ConfigMap");
    let one = server.ask("GET", &format!("{MAPS}?includeObject=None")).accept(TABLE).send().await.expect(200);
    assert!(one["rows"][0]["object"].is_null());
    let bad = server.ask("GET", &format!("{MAPS}?includeObject=Nope")).accept(TABLE).send().await;
    bad.fails(400, "BadRequest");
    let beta = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let one = server.ask("GET", &a).accept(beta).send().await.expect(200);
    assert_eq!(one["apiVersion"], "meta.k8s.io/v1beta1");
    let created =
        server.ask("POST", MAPS).accept(TABLE).json(&config_map("b", json!({}))).send().await.expect(201);
    assert_eq!((&created["kind"], &created["rows"][0]["cells"][0]), (&json!("Table"), &json!("b")));
    let deleted = server.ask("DELETE", &format!("{MAPS}/b")).accept(TABLE).send().await.expect(200);
    assert_eq!((&deleted["kind"], &deleted["status"]), (&json!("Status"), &json!("Success")));
    // Errors stay what they are.
    server.ask("GET", &format!("{MAPS}/nope")).accept(TABLE).send().await.fails(404, "NotFound");
    server.ask("GET", "/apis/apps/v1/namespaces/default/deployments").accept(TABLE).send().await.expect(200);
}

#[tokio::test]
async fn tables_of_builtin_kinds_have_their_columns() {
    let server = Server::start().await;
    for (path, expected) in [
        ("/api/v1/namespaces", "Name,Status,Age"),
        ("/api/v1/secrets", "Name,Type,Data,Age"),
        (
            "/api/v1/events",
            "Last Seen,Type,Reason,Object,Subobject*,Source*,Message,First Seen*,Count*,Name*",
        ),
        (
            "/api/v1/nodes",
            "Name,Status,Roles,Age,Version,Internal-IP*,External-IP*,OS-Image*,Kernel-Version*,Container-Runtime*",
        ),
        ("/api/v1/pods", "Name,Ready,Status,Restarts,Age,IP*,Node*,Nominated Node*,Readiness Gates*"),
        ("/api/v1/services", "Name,Type,Cluster-IP,External-IP,Port(s),Age,Selector*"),
        ("/apis/apps/v1/deployments", "Name,Ready,Up-to-date,Available,Age,Containers*,Images*,Selector*"),
        ("/apis/apps/v1/replicasets", "Name,Desired,Current,Ready,Age,Containers*,Images*,Selector*"),
        ("/apis/apps/v1/statefulsets", "Name,Ready,Age,Containers*,Images*"),
        (
            "/apis/apps/v1/daemonsets",
            "Name,Desired,Current,Ready,Up-to-date,Available,Node Selector,Age,Containers*,Images*,Selector*",
        ),
        ("/apis/batch/v1/jobs", "Name,Status,Completions,Duration,Age,Containers*,Images*,Selector*"),
        ("/apis/coordination.k8s.io/v1/leases", "Name,Holder,Age"),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "Name,Created At"),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "Name,Role,Age,Users*,Groups*,ServiceAccounts*",
        ),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "Name,Created At"),
        ("/apis/apiregistration.k8s.io/v1/apiservices", "Name,Service,Available,Age"),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "Name,Age,SignerName,Requestor,RequestedDuration,Condition",
        ),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", "Name,Value,Global-Default,Age,PreemptionPolicy"),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
        ),
        ("/apis/networking.k8s.io/v1/ingresses", "Name,Class,Hosts,Address,Ports,Age"),
        (
            "/apis/policy/v1/poddisruptionbudgets",
            "Name,Min Available,Max Unavailable,Allowed Disruptions,Age",
        ),
        ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "Name,Webhooks,Age"),
    ] {
        let table = server.ask("GET", path).accept(TABLE).send().await.expect(200);
        let columns: Vec<String> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| {
                let star = if column["priority"].as_i64().unwrap() > 0 { "*" } else { "" };
                format!("{}{star}", column["name"].as_str().unwrap())
            })
            .collect();
        assert_eq!(columns.join(","), expected, "{path}");
        for row in table["rows"].as_array().unwrap() {
            assert_eq!(row["cells"].as_array().unwrap().len(), columns.len(), "{path}: {row}");
        }
    }
}

#[tokio::test]
async fn metadata_comes_alone_when_asked_for_alone() {
    let server = Server::start().await;
    let mut map = config_map("a", json!({"k": "v"}));
    map["metadata"]["labels"] = json!({"x": "y"});
    server.post(MAPS, map).await.expect(201);
    let accept = format!("{PARTIAL},application/json");
    let one = server.ask("GET", &format!("{MAPS}/a")).accept(&accept).send().await;
    assert_eq!(one.header("content-type"), Some(JSON));
    let one = one.expect(200);
    assert_eq!(one.as_object().unwrap().len(), 3, "{one}");
    assert_eq!(
        (&one["kind"], &one["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(one["metadata"]["labels"], json!({"x": "y"}));
    let list =
        server.ask("GET", &format!("{MAPS}?labelSelector=x")).accept(PARTIAL_LIST).send().await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert!(list["metadata"]["resourceVersion"].is_string());
    assert_eq!((names(&list), &list["items"][0]["kind"]), (vec!["a"], &json!("PartialObjectMetadata")));
    let wrong = server.ask("GET", MAPS).accept(PARTIAL).send().await;
    let message = wrong.fails(406, "NotAcceptable");
    assert!(
        message.starts_with("you requested PartialObjectMetadata, but the requested object is a list ("),
        "{message}"
    );
    let patched = server
        .ask("PATCH", &format!("{MAPS}/a"))
        .accept(PARTIAL)
        .body(MERGE_PATCH, r#"{"metadata":{"labels":{"x":"z"}}}"#)
        .send()
        .await
        .expect(200);
    assert_eq!(
        (&patched["kind"], &patched["metadata"]["labels"]["x"]),
        (&json!("PartialObjectMetadata"), &json!("z"))
    );
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_take_it() {
    let server = Server::start().await;
    for n in 0..3 {
        server.post(MAPS, config_map(&format!("m{n}"), json!({"k": "x".repeat(60_000)}))).await.expect(201);
    }
    let plain = server.get(MAPS).await;
    assert_eq!(plain.header("content-encoding"), None);
    let ask = |encodings: &str| server.ask("GET", MAPS).header("accept-encoding", encodings).send();
    let packed = ask("gzip, deflate").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.header("vary"), Some("Accept-Encoding"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.bytes[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
    assert_eq!(ask("gzip;q=0").await.header("content-encoding"), None);
    let small = server.ask("GET", "/version").header("accept-encoding", "gzip").send().await;
    assert_eq!(small.header("content-encoding"), None);
    let watch =
        server.ask("GET", &format!("{MAPS}?watch=true")).header("accept-encoding", "gzip").stream().await;
    assert!(watch.headers.get("content-encoding").is_none());
}
