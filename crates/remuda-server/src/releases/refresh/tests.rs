use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::people::tests::Site;

fn document(version: &str) -> String {
    let args = json!({"a": {"type": "string"}});
    let release = json!({"version": version, "serverArgs": args, "agentArgs": args});
    json!({"k3s": {"releases": [release]}, "K8sVersionInfo": {"not": "kept"}}).to_string()
}

/// A web server that says what it is told to say, with a tag.
#[derive(Clone, Default)]
struct Web {
    answer: Arc<Mutex<(&'static str, String)>>,
    unchanged: Arc<AtomicUsize>,
}

impl Web {
    async fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 8192];
                let read = stream.read(&mut request).await.unwrap_or_default();
                let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
                let (head, body) = self.answer.lock().clone();
                let text = if request.contains("if-none-match: \"one\"") && head.starts_with("200") {
                    self.unchanged.fetch_add(1, Ordering::SeqCst);
                    "HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n".to_owned()
                } else {
                    let length = body.len();
                    format!("HTTP/1.1 {head}\r\netag: \"one\"\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
                };
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        // It lives as long as the test.
        std::mem::forget(tasks);
        format!("http://{address}/data.json")
    }

    fn says(&self, head: &'static str, body: String) {
        *self.answer.lock() = (head, body);
    }
}

#[tokio::test]
async fn a_document_is_fetched_within_bounds_and_only_when_it_changed() {
    let web = Web::default();
    let url = web.clone().start().await;
    web.says("200 OK", document("v1.35.9+k3s1"));
    let Ok(Fetched::Document { bytes, etag }) = fetch(&url, None).await else { panic!("a document") };
    assert_eq!((bytes.len(), etag.as_deref()), (document("v1.35.9+k3s1").len(), Some("\"one\"")));
    assert!(matches!(fetch(&url, etag.as_deref()).await, Ok(Fetched::Unchanged)));

    let error = async |head: &'static str, body: String| {
        web.says(head, body);
        fetch(&url, None).await.err().map(|error| Chain(&error).to_string()).unwrap_or_default()
    };
    assert!(error("404 Not Found", String::new()).await.ends_with("answered 404 Not Found"));
    assert!(error("200 OK", " ".repeat((32 << 20) + 1)).await.contains("has more than 33554432 bytes"));
    let back = "302 Found\r\nlocation: /data.json";
    assert!(error(back, String::new()).await.contains("too many redirections"));
}

#[test]
fn the_source_is_asked_again_after_an_interval_and_sooner_after_failures() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let config = Config { url: "https://x/".to_owned(), interval: Duration::from_secs(24 * 3600) };
    let kept = |url: &str, checked: &str| Kept {
        url: url.to_owned(),
        etag: None,
        checked: checked.parse().ok(),
        packed: Vec::new(),
    };
    let mut pace = Pace::default();
    let hours = |pace: &Pace, kept: Option<&Kept>| pace.due(&config, kept, now).as_secs() / 3600;
    assert_eq!(pace.due(&config, None, now), Duration::ZERO);
    assert_eq!(hours(&pace, Some(&kept("https://x/", "2025-12-31T12:00:00Z"))), 12);
    assert_eq!(pace.due(&config, Some(&kept("https://x/", "2025-12-30T12:00:00Z")), now), Duration::ZERO);
    assert_eq!(pace.due(&config, Some(&kept("https://y/", "2025-12-31T12:00:00Z")), now), Duration::ZERO);
    assert_eq!(
        hours(&pace, Some(&kept("https://x/", "2027-01-01T00:00:00Z"))),
        24,
        "a clock that was set back"
    );
    let mut delays = Vec::new();
    for _ in 0..8 {
        pace.failed(&config, now);
        delays.push(pace.due(&config, None, now).as_secs() / 60);
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
    let other = Config { url: "https://y/".to_owned(), ..config.clone() };
    assert_eq!(pace.due(&other, None, now), Duration::ZERO, "another source is asked at once");
}

/// What a server says of its release data once it says `wanted`.
async fn wait_for(site: &Site, token: &str, wanted: &str) -> serde_json::Value {
    for _ in 0..500 {
        let got = site.send(Some(token), "GET", "/v1-k3s-release/channels/latest", &[], json!({})).await;
        if got.body["latest"] == wanted {
            return site.send(Some(token), "GET", "/v1-k3s-release/channels", &[], json!({})).await.body;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the latest release is not {wanted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_fetched_outlives_its_source_and_the_server() {
    let web = Web::default();
    let url = web.clone().start().await;
    web.says("200 OK", document("v1.35.9+k3s1"));
    let site = Site::start().await;
    let first = site.server.first_user().unwrap().clone();
    let token = site.login(&first.username, &first.password).await.body["token"].as_str().unwrap().to_owned();
    let send = async |method: &str, path: &str, body: serde_json::Value| {
        site.send(Some(&token), method, path, &[], body).await
    };
    let shipped = Catalog::shipped();
    let before = wait_for(&site, &token, shipped.k3s.channel("latest").unwrap()).await;
    assert_eq!(before["source"], "shipped with this program");

    let settings = "/apis/management.cattle.io/v3/settings";
    let namespace = json!({"metadata": {"name": SYSTEM}});
    // Whoever first keeps something there makes it, and that may have been the server.
    let code = send("POST", "/api/v1/namespaces", namespace).await.code.as_u16();
    assert!(matches!(code, 201 | 409), "{code}");
    let setting = |value: serde_json::Value| {
        json!({"apiVersion": "management.cattle.io/v3", "kind": "Setting", "metadata": {"name": RELEASE_DATA},
            "value": value.to_string()})
    };
    let refused = send("POST", settings, setting(json!({"url": "file:///etc/passwd"}))).await;
    assert_eq!(refused.code.as_u16(), 422, "{}", refused.text);
    assert_eq!(refused.body["details"]["causes"][0]["field"], "value");
    let made = send("POST", settings, setting(json!({"url": url}))).await;
    assert_eq!(made.code.as_u16(), 201, "{}", made.text);
    let after = wait_for(&site, &token, "v1.35.9+k3s1").await;
    assert_eq!(after["source"], url.as_str());
    assert!(after["date"].is_string());

    // The source says nonsense, the server starts again: what was good is still known.
    web.says("500 Internal Server Error", "no".to_owned());
    let dir = site.dir;
    site.server.shutdown().await;
    let server = Site::up(dir.path().to_owned()).await;
    let site = Site { server, dir };
    let kept = wait_for(&site, &token, "v1.35.9+k3s1").await;
    assert_eq!(kept["source"], url.as_str());

    let path = format!("{settings}/{RELEASE_DATA}");
    let cleared = site.send(Some(&token), "DELETE", &path, &[], json!({})).await;
    assert_eq!(cleared.code.as_u16(), 200, "{}", cleared.text);
    let back = wait_for(&site, &token, shipped.k3s.channel("latest").unwrap()).await;
    assert_eq!(back["source"], "shipped with this program");
}
