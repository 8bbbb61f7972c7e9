//! An OpenID provider on a port of this machine, which logs in whoever comes and can be made to misbehave.

use std::{collections::HashMap, convert::Infallible, net::SocketAddr, sync::Arc};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use remuda_auth::{
    jwt::discovery::jwks,
    keys::{KeyPair, sha256},
    tokens::random_token,
};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// Name of the only client.
pub const CLIENT: &str = "remuda";
/// And its secret.
pub const SECRET: &str = "s3:cret/ü";

/// What the next tokens are like.
#[derive(Default)]
struct Manner {
    /// Claims of whoever logs in.
    person: Map<String, Value>,
    /// Put over the claims of the token.
    claims: Map<String, Value>,
    /// Put over its header.
    header: Map<String, Value>,
    /// Signed with a key nobody publishes.
    forged: bool,
    /// Groups are told when asked only.
    by_user_info: bool,
}

struct Login {
    nonce: String,
    challenge: String,
    redirect: String,
}

struct State {
    issuer: String,
    manner: Mutex<Manner>,
    key: Mutex<KeyPair>,
    logins: Mutex<HashMap<String, Login>>,
    asked: Mutex<HashMap<String, usize>>,
}

/// Ends when dropped.
pub struct Provider {
    state: Arc<State>,
    _serving: JoinSet<()>,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            issuer: format!("http://{address}"),
            manner: Mutex::default(),
            key: Mutex::new(KeyPair::generate().unwrap()),
            logins: Mutex::default(),
            asked: Mutex::default(),
        });
        let mut serving = JoinSet::new();
        let served = state.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = served.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(state.clone(), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        let provider = Self { state, _serving: serving };
        provider.is(json!({"sub": "1001", "name": "Ann", "email": "ann@example.com", "groups": ["dev"]}));
        provider
    }

    pub fn issuer(&self) -> &str {
        &self.state.issuer
    }

    /// Who logs in from now on.
    pub fn is(&self, person: Value) {
        self.state.manner.lock().person = person.as_object().unwrap().clone();
    }

    /// Claims and a header tokens have from now on, whatever would be right; empty objects for what is right.
    pub fn lies(&self, header: Value, claims: Value) {
        let mut manner = self.state.manner.lock();
        manner.header = header.as_object().unwrap().clone();
        manner.claims = claims.as_object().unwrap().clone();
    }

    /// Whether tokens are signed with a key that is not published.
    pub fn forges(&self, forged: bool) {
        self.state.manner.lock().forged = forged;
    }

    /// Whether groups are not in tokens, and are told when asked.
    pub fn tells_when_asked(&self, asked: bool) {
        self.state.manner.lock().by_user_info = asked;
    }

    /// Another key from now on.
    pub fn rotate(&self) {
        *self.state.key.lock() = KeyPair::generate().unwrap();
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> usize {
        self.state.asked.lock().get(path).copied().unwrap_or_default()
    }
}

type Answer = Response<Full<Bytes>>;

fn body(code: StatusCode, value: &Value) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = code;
    response
}

fn fields(text: &str) -> HashMap<String, String> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    *state.asked.lock().entry(path.clone()).or_default() += 1;
    let issuer = state.issuer.clone();
    Ok(match (request.method(), path.as_str()) {
        (&Method::GET, "/.well-known/openid-configuration") => body(
            StatusCode::OK,
            &json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
                "userinfo_endpoint": format!("{issuer}/userinfo"),
            }),
        ),
        (&Method::GET, "/authorize") => authorize(&state, request.uri().query().unwrap_or_default()),
        (&Method::POST, "/token") => {
            let (head, sent) = request.into_parts();
            let sent = sent.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let credentials = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            token(&state, credentials.unwrap_or_default(), &fields(&String::from_utf8_lossy(&sent)))
        }
        (&Method::GET, "/keys") => body(StatusCode::OK, &jwks(&[state.key.lock().public().unwrap()])),
        (&Method::GET, "/userinfo") => {
            body(StatusCode::OK, &Value::Object(state.manner.lock().person.clone()))
        }
        _ => body(StatusCode::NOT_FOUND, &json!({})),
    })
}

/// Logs in at once whoever comes, as if they had typed a password.
fn authorize(state: &State, query: &str) -> Answer {
    let fields = fields(query);
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let right = field("client_id") == CLIENT
        && field("response_type") == "code"
        && field("code_challenge_method") == "S256"
        && field("scope").split(' ').any(|scope| scope == "openid");
    if !right {
        return body(StatusCode::BAD_REQUEST, &json!({"error": "invalid_request"}));
    }
    let code = random_token(16).unwrap();
    let login =
        Login { nonce: field("nonce"), challenge: field("code_challenge"), redirect: field("redirect_uri") };
    let location = format!("{}?code={code}&state={}", login.redirect, field("state"));
    state.logins.lock().insert(code, login);
    let mut response = body(StatusCode::FOUND, &json!({}));
    response.headers_mut().insert(header::LOCATION, location.parse().unwrap());
    response
}

fn token(state: &State, credentials: &str, fields: &HashMap<String, String>) -> Answer {
    let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    let refused = |error: &str| body(StatusCode::BAD_REQUEST, &json!({"error": error}));
    let expected = "remuda:s3%3Acret%2F%C3%BC";
    if credentials != format!("Basic {}", STANDARD.encode(expected)) {
        return refused("invalid_client");
    }
    // A code is good once.
    let Some(login) = state.logins.lock().remove(field("code")) else { return refused("invalid_grant") };
    let challenge = URL_SAFE_NO_PAD.encode(sha256(field("code_verifier").as_bytes()));
    if challenge != login.challenge || field("redirect_uri") != login.redirect {
        return refused("invalid_grant");
    }
    let (manner, key) = (state.manner.lock(), state.key.lock());
    let now = Timestamp::now().as_second();
    let mut claims =
        json!({"iss": state.issuer, "aud": CLIENT, "nonce": login.nonce, "iat": now, "exp": now + 60});
    let mut header = json!({"alg": "ES256", "kid": key.public().unwrap().id()});
    let person = manner.person.clone().into_iter();
    claims
        .as_object_mut()
        .unwrap()
        .extend(person.filter(|(name, _)| !manner.by_user_info || name != "groups"));
    claims.as_object_mut().unwrap().extend(manner.claims.clone());
    header.as_object_mut().unwrap().extend(manner.header.clone());
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = match manner.forged {
        true => KeyPair::generate().unwrap().sign_token(signed.as_bytes()).unwrap(),
        false => key.sign_token(signed.as_bytes()).unwrap(),
    };
    let signature = if header["alg"] == "none" { Vec::new() } else { signature };
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
    body(StatusCode::OK, &json!({"id_token": token, "access_token": "access", "token_type": "Bearer"}))
}
