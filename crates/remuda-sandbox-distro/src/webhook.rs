//! The authentication webhook: who the API asks about tokens it does not know.
//!
//! Good answers are remembered for as long as `authentication-token-webhook-cache-ttl` says; others are not, as with
//! Kubernetes when the webhook answers with an error: a token may become good at any moment.

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{SHA256, digest};
use futures::future::BoxFuture;
use kube::config::Kubeconfig;
use parking_lot::Mutex;
use remuda_apiserver::Remote;
use remuda_auth::identity::{GROUP_AUTHENTICATED, User};
use remuda_control::Chain;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::debug;

use crate::{config::WebhookArgs, http::Peer};

/// Answers that are remembered.
const MOST: usize = 4096;
/// Questions at a time: whoever tries out tokens waits.
const AT_ONCE: usize = 32;

/// Why there is no webhook.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("read the configuration of the authentication webhook, {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} does not lead to an authentication webhook: {reason}", .path.display())]
    Config { path: PathBuf, reason: String },
}

/// Somebody, and until when that is so.
type Known = (Arc<User>, Instant);

/// Where to ask, and what was answered.
pub struct Webhook {
    url: String,
    version: String,
    cache: Duration,
    known: Mutex<HashMap<Vec<u8>, Known>>,
    turns: Semaphore,
}

impl Webhook {
    pub fn load(args: &WebhookArgs) -> Result<Webhook, WebhookError> {
        let path = args.config.clone();
        let text = std::fs::read_to_string(&path)
            .map_err(|source| WebhookError::Read { path: path.clone(), source })?;
        let url = url(&text).map_err(|reason| WebhookError::Config { path, reason })?;
        Ok(Webhook {
            url,
            version: format!("authentication.k8s.io/{}", args.version),
            cache: args.cache,
            known: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    fn remembered(&self, key: &[u8], now: Instant) -> Option<Arc<User>> {
        let mut known = self.known.lock();
        let (user, until) = known.get(key)?;
        if now < *until {
            return Some(user.clone());
        }
        known.remove(key);
        None
    }

    fn remember(&self, key: Vec<u8>, user: Arc<User>, now: Instant) {
        if self.cache.is_zero() {
            return;
        }
        let mut known = self.known.lock();
        if known.len() >= MOST {
            known.retain(|_, (_, until)| now < *until);
            if known.len() >= MOST {
                known.clear();
            }
        }
        known.insert(key, (user, now + self.cache));
    }

    async fn ask(&self, token: &str) -> Option<Arc<User>> {
        let _turn = self.turns.acquire().await.ok()?;
        let review = json!({
            "apiVersion": self.version, "kind": "TokenReview", "metadata": {"creationTimestamp": null},
            "spec": {"token": token}, "status": {"user": {}},
        });
        match (Peer { tls: None, basic: None }).post(&self.url, &review).await {
            Ok(answer) => user(&answer).map(Arc::new),
            Err(error) => {
                debug!(error = %Chain(&error), "the authentication webhook does not vouch for a token");
                None
            }
        }
    }
}

impl Remote for Webhook {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Option<Arc<User>>> {
        Box::pin(async move {
            // A dump of the memory of this process is not to be a list of tokens.
            let key = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
            if let Some(user) = self.remembered(&key, Instant::now()) {
                return Some(user);
            }
            let user = self.ask(token).await?;
            self.remember(key, user.clone(), Instant::now());
            Some(user)
        })
    }
}

/// The address in a kubeconfig.
fn url(text: &str) -> Result<String, String> {
    let config = Kubeconfig::from_yaml(text).map_err(|error| error.to_string())?;
    let current = config.current_context.unwrap_or_default();
    let context = config.contexts.into_iter().find(|context| context.name == current);
    let cluster = context.and_then(|context| context.context).map(|context| context.cluster);
    let cluster = cluster.ok_or_else(|| format!("there is no context {current:?}"))?;
    let found = config.clusters.into_iter().find(|known| known.name == cluster);
    let server = found.and_then(|found| found.cluster?.server).unwrap_or_default();
    if !server.starts_with("http://") {
        return Err(format!("the sandbox distribution asks over http:// only, not {server:?}"));
    }
    Ok(server)
}

/// Whom an answer vouches for.
fn user(answer: &Value) -> Option<User> {
    let status = &answer["status"];
    if status["authenticated"] != true {
        return None;
    }
    let mut user: User = serde_json::from_value(status["user"].clone()).ok()?;
    if user.name.is_empty() {
        return None;
    }
    if !user.groups.iter().any(|group| group == GROUP_AUTHENTICATED) {
        user.groups.push(GROUP_AUTHENTICATED.to_owned());
    }
    Some(user)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinSet,
    };

    /// As plans have it.
    fn config(server: &str) -> String {
        format!(
            "\napiVersion: v1\nkind: Config\nclusters:\n- name: Default\n  cluster:\n    \
             insecure-skip-tls-verify: true\n    server: {server}\nusers:\n- name: Default\n  user:\n    \
             insecure-skip-tls-verify: true\ncurrent-context: webhook\ncontexts:\n- name: webhook\n  context:\n    \
             user: Default\n    cluster: Default\n"
        )
    }

    #[test]
    fn the_file_of_a_plan_leads_to_the_webhook() {
        let server = "http://localhost:6440/v1/authenticate";
        assert_eq!(url(&config(server)), Ok(server.to_owned()));
        assert!(url(&config("https://elsewhere")).unwrap_err().contains("http:// only"));
        assert!(url("{}").unwrap_err().contains("no context"));
        assert!(url("- a").is_err());
    }

    #[test]
    fn only_somebody_who_is_vouched_for_is_somebody() {
        let answer = |status: Value| user(&json!({"kind": "TokenReview", "status": status}));
        let ann =
            answer(json!({"authenticated": true, "user": {"username": "ann", "groups": ["a"]}})).unwrap();
        assert_eq!((ann.name.as_str(), ann.groups.join(",")), ("ann", "a,system:authenticated".to_owned()));
        for status in [
            json!({}),
            json!({"authenticated": false, "user": {"username": "ann"}}),
            json!({"authenticated": "true", "user": {"username": "ann"}}),
            json!({"authenticated": true}),
            json!({"authenticated": true, "user": {"username": ""}}),
        ] {
            assert!(answer(status.clone()).is_none(), "{status}");
        }
    }

    /// Answers every request in the same way, and counts them.
    struct Pretended {
        webhook: Webhook,
        asked: Arc<AtomicUsize>,
        _running: JoinSet<()>,
    }

    impl Pretended {
        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }
    }

    async fn pretended(status: &'static str, cache: Duration) -> Pretended {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let server = format!("http://{}/v1/authenticate", listener.local_addr().unwrap());
        std::fs::write(file.path(), config(&server)).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut running = JoinSet::new();
        running.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let mut buffer = vec![0; 4096];
                let _ = stream.read(&mut buffer).await;
                let body = r#"{"status":{"authenticated":true,"user":{"username":"ann"}}}"#;
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(head.as_bytes()).await;
            }
        });
        let args = WebhookArgs { config: file.path().to_owned(), cache, version: "v1beta1".to_owned() };
        Pretended { webhook: Webhook::load(&args).unwrap(), asked, _running: running }
    }

    #[tokio::test]
    async fn good_answers_are_remembered_and_refusals_are_not() {
        let good = pretended("200 OK", Duration::from_secs(60)).await;
        for _ in 0..3 {
            assert_eq!(good.webhook.review("a:b").await.unwrap().name, "ann");
        }
        assert_eq!(good.asked(), 1);
        good.webhook.review("a:c").await.unwrap();
        assert_eq!(good.asked(), 2, "another token is another question");
        let forgetful = pretended("200 OK", Duration::ZERO).await;
        let bad = pretended("401 Unauthorized", Duration::from_secs(60)).await;
        for _ in 0..2 {
            forgetful.webhook.review("a:b").await.unwrap();
            assert!(bad.webhook.review("a:b").await.is_none(), "whatever is in the body of a refusal");
        }
        assert_eq!((forgetful.asked(), bad.asked()), (2, 2));
    }
}
