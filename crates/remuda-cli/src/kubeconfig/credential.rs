//! `remuda kubeconfig credential`: tokens for kubectl, made with somebody's login and renewed in time.
//!
//! A token is kept in a file only its owner can read, and handed out until a fifth of its time is left. The
//! server is asked whether it is still good; when the server cannot be reached it is handed out all the same,
//! since there may be another way to the cluster.

use std::{
    env,
    fs::{self, DirBuilder, File, Permissions},
    io::Read,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, Config};
use remuda_names::{
    PROGRAM,
    identity::{path, token_kind},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::file;
use crate::{
    age, api,
    failure::{Code, Failure, chain},
    output::{self, Out},
    session::{Global, Session, cache_dir, config},
    token,
};

/// Of the kind kubectl and this program talk in.
pub(super) const GROUP: &str = "client.authentication.k8s.io";
/// By which kubectl says what it wants.
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";
const TTL: Duration = Duration::from_secs(3600);
/// For the server to answer, while there is a token at hand.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longer files are not ours.
const LARGEST: u64 = 64 << 10;

#[derive(Args, Debug)]
pub struct Credential {
    /// The cluster, by the name of its management Cluster
    #[arg(long, value_name = "ID")]
    pub cluster: String,

    /// How long a token is good for before it is renewed, at most what the server allows [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = age::parse)]
    pub ttl: Option<Duration>,
}

/// A token and how long it is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    token: String,
    made: Timestamp,
    /// Nothing if it never ends.
    expires: Option<Timestamp>,
}

impl Held {
    fn is_good(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// When the next one is to be had: nobody should notice that there are several.
    fn renewal(&self) -> Option<Timestamp> {
        let expires = self.expires?;
        let life = expires.duration_since(self.made).max(SignedDuration::ZERO);
        Some(expires.checked_sub(life / 5).unwrap_or(expires))
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        self.is_good(now) && self.renewal().is_none_or(|renewal| now < renewal)
    }

    fn name(&self) -> &str {
        self.token.split(':').next().unwrap_or_default()
    }
}

/// What kubectl is told.
fn answer(held: &Held, asked: Option<&str>) -> Value {
    let version = asked.and_then(|info| {
        let info: Value = serde_json::from_str(info).ok()?;
        let version = info["apiVersion"].as_str()?.strip_prefix(GROUP)?.strip_prefix('/')?.to_owned();
        ["v1", "v1beta1"].contains(&version.as_str()).then_some(version)
    });
    let mut status = json!({"token": held.token});
    if let Some(at) = held.renewal() {
        status["expirationTimestamp"] = remuda_base::rfc3339(at.as_second()).into();
    }
    json!({
        "apiVersion": format!("{GROUP}/{}", version.as_deref().unwrap_or("v1")),
        "kind": "ExecCredential", "status": status,
    })
}

pub(crate) async fn credential(global: &Global, arguments: &Credential) -> Result<(), Failure> {
    api::check_name(&arguments.cluster)?;
    let located = global.locate()?;
    let config = config(&located).await?;
    let cache = Cache::open(&key(&config, &arguments.cluster));
    let unusable =
        |error: &kube::Error| Failure::new(Code::Unreachable, format!("{located}: {}", chain(error)));
    let client = Client::try_from(config).map_err(|error| unusable(&error))?;
    let session = Session::new(client);
    let held = obtain(&session, arguments, cache.as_ref(), Timestamp::now()).await;
    let held = held.map_err(|failure| failure.at(&located))?;
    let asked = env::var_os(EXEC_INFO).and_then(|info| info.into_string().ok());
    Out::Terminal.line(&answer(&held, asked.as_deref()).to_string());
    Ok(())
}

/// The token at hand, or another.
async fn obtain(
    session: &Session,
    arguments: &Credential,
    cache: Option<&Cache>,
    now: Timestamp,
) -> Result<Held, Failure> {
    let known = cache.and_then(Cache::read).filter(|held| held.is_good(now));
    if let Some(held) = known.as_ref().filter(|held| held.is_fresh(now))
        && still_known(session, held).await?
    {
        return Ok(held.clone());
    }
    let body = json!({
        "kind": token_kind::KUBECONFIG, "clusterId": arguments.cluster,
        "ttl": token::milliseconds(arguments.ttl.unwrap_or(TTL)),
        "description": format!("kubectl for cluster {}", arguments.cluster),
    });
    let made = token::send(session, "get a token", Method::POST, path::TOKENS, &body).await;
    let made = match (made, known) {
        (Err(failure), Some(held)) if failure.code == Code::Unreachable => {
            output::note(&format!("{PROGRAM}: {}; the former token is used", failure.message));
            return Ok(held);
        }
        (made, _) => made.map_err(log_in)?,
    };
    let held = Held {
        token: made["token"].as_str().unwrap_or_default().to_owned(),
        made: now,
        expires: made["expiresAt"].as_str().and_then(|at| at.parse().ok()),
    };
    if held.token.is_empty() {
        return Err(Failure::new(Code::Other, "the server sent no token"));
    }
    if let Some(cache) = cache {
        cache.write(&held);
    }
    Ok(held)
}

/// Whether the server still knows a token; it does if nobody can say otherwise.
async fn still_known(session: &Session, held: &Held) -> Result<bool, Failure> {
    let path = format!("{}/{}", path::TOKENS, held.name());
    let asking = token::send(session, "look at the token", Method::GET, &path, &json!(null));
    match tokio::time::timeout(PATIENCE, asking).await {
        Err(_) => Ok(true),
        Ok(Ok(token)) => Ok(token["expired"] != true && token["enabled"] != false),
        Ok(Err(failure)) => match failure.code {
            Code::NotFound => Ok(false),
            Code::Forbidden => Err(log_in(failure)),
            _ => Ok(true),
        },
    }
}

fn log_in(failure: Failure) -> Failure {
    match failure.code {
        Code::Forbidden => failure.hint("log in again: remuda login"),
        Code::Invalid => failure.hint("log in first: remuda login"),
        _ => failure,
    }
}

/// What a token at hand is known by: the server, the cluster and the login.
fn key(config: &Config, cluster: &str) -> String {
    let login = serde_json::to_value(&config.auth_info).unwrap_or_default();
    let login = login["token"].as_str().and_then(|token| token.split(':').next()).unwrap_or_default();
    let parts = [config.cluster_url.to_string(), cluster.to_owned(), login.to_owned()];
    remuda_plan::sha256_hex(parts.join("\n").as_bytes())
}

/// Where one token is kept. Held open so that of several at once one asks the server.
struct Cache {
    file: PathBuf,
    _lock: File,
}

impl Cache {
    /// Nothing if there is no place for it that is only ours.
    fn open(key: &str) -> Option<Self> {
        Self::open_in(&cache_dir()?.join("credentials"), key)
    }

    fn open_in(dir: &Path, key: &str) -> Option<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).ok()?;
        let metadata = fs::symlink_metadata(dir).ok()?;
        if !metadata.is_dir() || !is_ours(&metadata) {
            output::note(&format!("{PROGRAM}: others can use {}; tokens are not kept", dir.display()));
            return None;
        }
        let lock = File::options().create(true).append(true).open(dir.join(format!("{key}.lock"))).ok()?;
        lock.set_permissions(Permissions::from_mode(0o600)).ok()?;
        lock.lock().ok()?;
        Some(Self { file: dir.join(format!("{key}.json")), _lock: lock })
    }

    fn read(&self) -> Option<Held> {
        let metadata = fs::symlink_metadata(&self.file).ok()?;
        if !metadata.is_file() || !is_ours(&metadata) {
            return None;
        }
        let mut text = String::new();
        File::open(&self.file).ok()?.take(LARGEST).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// One that cannot be kept is made again next time.
    fn write(&self, held: &Held) {
        if let Ok(text) = serde_json::to_string(held) {
            let _ = file::write(&self.file, &text);
        }
    }
}

/// Whether nobody else can read or change something.
fn is_ours(metadata: &fs::Metadata) -> bool {
    let own = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == metadata.uid());
    own && metadata.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn held(made: i64, expires: Option<i64>) -> Held {
        Held { token: "kubeconfig-u-1x:key".to_owned(), made: at(made), expires: expires.map(at) }
    }

    #[test]
    fn a_token_is_renewed_before_it_ends() {
        let token = held(0, Some(1000));
        assert!(token.is_fresh(at(799)) && !token.is_fresh(at(800)) && token.is_good(at(999)));
        assert!(!token.is_good(at(1000)));
        assert!(held(0, None).is_fresh(at(i32::MAX.into())));
        assert!(!held(2000, Some(1000)).is_fresh(at(1500)), "a clock that was wrong is no matter");
    }

    #[test]
    fn kubectl_is_answered_in_its_own_version() {
        let version = |asked: Option<&str>| answer(&held(0, Some(1000)), asked)["apiVersion"].clone();
        assert_eq!(version(None), "client.authentication.k8s.io/v1");
        let info = |version: &str| format!(r#"{{"apiVersion":"client.authentication.k8s.io/{version}"}}"#);
        assert_eq!(version(Some(&info("v1beta1"))), "client.authentication.k8s.io/v1beta1");
        for odd in [info("v9"), "{".to_owned(), info("v1/../x")] {
            assert_eq!(version(Some(&odd)), "client.authentication.k8s.io/v1");
        }
        let told = answer(&held(0, Some(1000)), None);
        assert_eq!(
            told["status"],
            json!({"token": "kubeconfig-u-1x:key", "expirationTimestamp": "1970-01-01T00:13:20Z"})
        );
        assert_eq!(answer(&held(0, None), None)["status"], json!({"token": "kubeconfig-u-1x:key"}));
    }

    #[test]
    fn a_token_is_kept_where_nobody_else_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a/credentials");
        let cache = Cache::open_in(&place, "k").unwrap();
        assert_eq!(cache.read(), None);
        cache.write(&held(0, Some(9)));
        assert_eq!(cache.read(), Some(held(0, Some(9))));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&place), mode(&cache.file)), (0o700, 0o600));
        fs::set_permissions(&cache.file, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(cache.read(), None, "what others could have read is not handed out");
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        assert!(Cache::open_in(&place, "j").is_none());
    }

    #[test]
    fn logins_do_not_share_tokens() {
        let config = |url: &str, token: &str| {
            let mut config = Config::new(url.parse().unwrap());
            config.auth_info.token = Some(token.to_owned().into());
            config
        };
        let one = key(&config("https://a", "token-a:x"), "c-1");
        assert_eq!(one, key(&config("https://a", "token-a:y"), "c-1"));
        for other in [
            key(&config("https://b", "token-a:x"), "c-1"),
            key(&config("https://a", "token-b:x"), "c-1"),
            key(&config("https://a", "token-a:x"), "c-2"),
        ] {
            assert_ne!(one, other);
        }
    }
}
