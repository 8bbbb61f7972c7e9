//! A server's life: start, stop, crash, certificates, limits.

use std::{fs, time::Duration};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use remuda_auth::pki::authority::{Authority, San};

use crate::{
    client::{client, client_with, config_map_value, create_config_map},
    harness::{Place, Server},
};

const PROMISED: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_stopped_server_continues_where_it_was() {
    let place = Place::new();
    let server = Server::start(&place.data(), &["--address-file", place.join("address").to_str().unwrap()]);
    let address = fs::read_to_string(place.join("address")).unwrap();
    assert_eq!(format!("https://{}", address.trim()), server.url);
    let first = create_config_map(&client(&server).await, "one", "1").await;
    let (took, status) = server.stop();
    assert!(status.success(), "{status}");
    assert!(took < PROMISED, "{took:?}");
    assert!(!place.join("address").exists());

    let server = Server::start(&place.data(), &[]);
    let again = client(&server).await;
    assert_eq!(config_map_value(&again, "one").await.as_deref(), Some("1"));
    assert!(create_config_map(&again, "two", "2").await > first);
}

#[tokio::test]
async fn a_killed_server_has_everything_it_acknowledged() {
    let place = Place::new();
    let mut newest = 0;
    for round in 0..5 {
        let server = Server::start(&place.data(), &[]);
        let client = client(&server).await;
        for number in 0..20 {
            let revision = create_config_map(&client, &format!("map-{round}-{number}"), "x").await;
            assert!(revision > newest, "{revision} after {newest}");
            newest = revision;
        }
        server.kill();
    }
    let server = Server::start(&place.data(), &[]);
    let api: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    let maps = api.list(&ListParams::default()).await.unwrap();
    let ours = maps.iter().filter(|map| map.metadata.name.as_deref().unwrap().starts_with("map-"));
    assert_eq!(ours.count(), 100);
}

#[tokio::test]
async fn a_server_with_open_watches_stops_in_time_and_ends_them_politely() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let mut watches = Vec::new();
    for _ in 0..50 {
        // A client each: a connection each.
        let api: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
        let mut watch = api.watch(&WatchParams::default().timeout(290), "0").await.unwrap().boxed();
        watch.try_next().await.unwrap();
        watches.push(watch);
    }
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    for mut watch in watches {
        while let Some(event) = watch.next().await {
            let event = event.expect("a watch ends without an error");
            assert!(!matches!(event, WatchEvent::Error(_)), "{event:?}");
        }
    }
    let (took, status) = stopping.await.unwrap();
    assert!(status.success(), "{status}");
    assert!(took < PROMISED, "{took:?}");
}

#[tokio::test]
async fn memory_forgets() {
    let place = Place::new();
    let server = Server::start(&place.data(), &["--datastore", "memory"]);
    create_config_map(&client(&server).await, "one", "1").await;
    server.stop();
    let server = Server::start(&place.data(), &["--datastore", "memory"]);
    assert_eq!(config_map_value(&client(&server).await, "one").await, None);
}

#[tokio::test]
async fn credentials_outlive_a_restart() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let before = fs::read_to_string(server.kubeconfig()).unwrap();
    let port = server.port();
    server.stop();
    let bind = format!("127.0.0.1:{port}");
    let server = Server::start(&place.data(), &["--bind", &bind]);
    assert_eq!(fs::read_to_string(server.kubeconfig()).unwrap(), before);
}

#[tokio::test]
async fn a_stranger_s_certificate_is_answered_with_401() {
    let (ours, theirs) = (Place::new(), Place::new());
    let (server, other) = (Server::start(&ours.data(), &[]), Server::start(&theirs.data(), &[]));
    let foreign = kube::config::Kubeconfig::read_from(other.kubeconfig()).unwrap();
    let client = client_with(&server.kubeconfig(), |config| config.auth_infos = foreign.auth_infos).await;
    let namespaces: Api<Namespace> = Api::all(client);
    match namespaces.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 401, "{status:?}"),
        other => panic!("{:?}", other.map(|list| list.items.len())),
    }
}

#[tokio::test]
async fn an_operators_certificate_is_shown_and_the_administrator_still_gets_in() {
    let place = Place::new();
    let authority = Authority::generate("operator", Timestamp::now()).unwrap();
    let names = [San::Dns("remuda.example.org".to_owned()), San::Ip([127, 0, 0, 1].into())];
    let issued = authority.issue_server("remuda.example.org", &names, Timestamp::now()).unwrap();
    let cert = place.write("tls.crt", &issued.certificate_pem());
    let key = place.write("tls.key", &issued.key_pem().unwrap());
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let arguments = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = Server::start(&place.data(), &arguments);
    create_config_map(&client(&server).await, "one", "1").await;
    // Whoever asks for the address sees the operator's certificate.
    let client = client_with(&server.kubeconfig(), |config| {
        let cluster = config.clusters[0].cluster.as_mut().unwrap();
        cluster.tls_server_name = None;
        cluster.certificate_authority_data = Some(base64(authority.certificate_pem().as_bytes()));
    })
    .await;
    assert_eq!(config_map_value(&client, "one").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn static_tokens_are_users() {
    let place = Place::new();
    let tokens = place.write("tokens.csv", "sesame,ali,1,system:masters\nstone,baba,2\n");
    let server = Server::start(&place.data(), &["--token-file", tokens.to_str().unwrap()]);
    for (token, expected) in [("sesame", None), ("stone", Some(403)), ("wrong", Some(401))] {
        let client = client_with(&server.kubeconfig(), |config| {
            let info = kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
            config.auth_infos[0].auth_info = Some(info);
        })
        .await;
        let namespaces: Api<Namespace> = Api::all(client);
        let code = match namespaces.list(&ListParams::default()).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(code, expected, "{token}");
    }
}

#[tokio::test]
async fn the_audit_log_says_who_did_what_and_no_secret() {
    let place = Place::new();
    let log = place.join("audit.log");
    let server = Server::start(&place.data(), &["--audit-log", log.to_str().unwrap()]);
    crate::client::create_secret(&client(&server).await, "kept", "open-sesame").await;
    server.stop();
    let text = fs::read_to_string(log).unwrap();
    assert!(
        text.contains("kubernetes-admin") && text.contains("/api/v1/namespaces/default/secrets"),
        "{text}"
    );
    assert!(!text.contains("open-sesame") && !text.contains(&base64(b"open-sesame")));
}

#[tokio::test]
async fn metrics_are_those_of_the_api_and_of_the_process() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    create_config_map(&client, "one", "1").await;
    let metrics = async |encoding: &str| {
        let request = http::Request::get("/metrics").header("accept-encoding", encoding);
        let text = client.request_text(request.body(Vec::new()).unwrap()).await.unwrap();
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
        assert!(text.contains("\napiserver_request_duration_seconds_bucket"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        text.len()
    };
    metrics("identity").await;
    // Prometheus takes compressed answers, and soon there is enough to compress.
    let mut tries = 0..600;
    while metrics("gzip").await <= 128 << 10 {
        assert!(tries.next().is_some(), "controllers have little to tell");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_corrupt_store_is_refused_with_what_to_do() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    for number in 0..10 {
        create_config_map(&client, &format!("map-{number}"), "x").await;
    }
    server.stop();
    let mut files: Vec<_> =
        fs::read_dir(place.data().join("store")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "log" || extension == "db"));
    let largest = files.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(largest).unwrap();
    for byte in &mut bytes[100..200] {
        *byte ^= 0xff;
    }
    fs::write(largest, bytes).unwrap();
    let mut start = crate::harness::remuda();
    start.args(["server", "--bind", "127.0.0.1:0", "--data-dir"]).arg(place.data());
    let text = crate::harness::failure(&mut start);
    let error = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains("damaged") && text.contains("\nhint: remuda restore "), "{text}");
}

fn base64(bytes: &[u8]) -> String {
    k8s_openapi::serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec()))
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}
