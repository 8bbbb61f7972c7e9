//! People: how they log in, and the tokens they have.
//!
//! | path | is |
//! |---|---|
//! | `POST /v3-public/localProviders/local?action=login`, `POST /v1-public/login` | a session for a password |
//! | `GET /v1-public/sso`, `GET /verify-auth` | a session of an OpenID provider |
//! | `POST /v1/logout`, `POST /v3/tokens?action=logout` | its end |
//! | `/v3/tokens`, `/v3/tokens/NAME` | tokens of the caller: list, make, look at, revoke |
//! | `GET /v3/users?me=true`, `POST /v3/users?action=changepassword` | the caller |
//! | `POST /v3/users/NAME?action=setpassword` | a password for somebody else |
//! | `POST /v3/clusters/ID?action=generateKubeconfig` | a kubeconfig of the caller |
//!
//! Everything else about users and roles goes through their objects in the API.

mod access;
mod admission;
mod kubeconfig;
mod session;
mod sso;

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use kube::ResourceExt;
use remuda_apiserver::{ApiServer, Body, Elsewhere};
use remuda_auth::{attributes::Attributes, identity::User};
use remuda_gateway::{Authenticate, Authorize, Caller, Holders};
use remuda_identity::{Attempt, Error, FirstUser, Identity, Issued, NewToken};
use remuda_names::{
    identity::{extra, oidc, path, token_kind},
    rancher::group::MANAGEMENT,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{error, warn};

pub(crate) use self::admission::Admission;
use self::{
    access::{ByApi, ByBindings, ByTokens, Known},
    kubeconfig::Kubeconfigs,
};
use crate::{
    chain::Chain,
    controllers::{Controllers, group},
    front::{json_response, status},
};

/// Bodies of requests are small, and there soon.
const LARGEST: usize = 64 << 10;
const SOON: Duration = Duration::from_secs(30);

/// Answers requests about people.
pub(crate) struct People {
    identity: Identity,
    api: ApiServer,
    by_api: ByApi,
    kubeconfigs: Kubeconfigs,
    first: Option<FirstUser>,
}

/// Why a request is not answered as it hoped.
struct Refusal {
    code: StatusCode,
    message: String,
    /// Seconds after which it may be tried again.
    after: Option<u64>,
}

impl Refusal {
    fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), after: None }
    }

    fn missing() -> Self {
        Self::new(StatusCode::NOT_FOUND, "the server could not find the requested resource")
    }

    fn response(&self) -> Response<Body> {
        let reason = match self.code {
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            StatusCode::CONFLICT => "MustChangePassword",
            StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
            _ => "BadRequest",
        };
        let mut response = status(self.code, reason, &self.message);
        if let Some(after) = self.after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after));
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Wrong => StatusCode::UNAUTHORIZED,
            Error::TooOften(wait) => {
                let after = Some(wait.as_secs() + 1);
                return Self { after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()) };
            }
            Error::MustChange => StatusCode::CONFLICT,
            Error::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Missing(_) => StatusCode::NOT_FOUND,
            Error::NotAllowed(_) => StatusCode::FORBIDDEN,
            Error::NotBegun => StatusCode::BAD_REQUEST,
            Error::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Error::Api { .. } | Error::Internal(_) => {
                error!(error = %Chain(&error), "a request about an account failed");
                return Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; the log says why");
            }
        };
        Self::new(code, error.to_string())
    }
}

type Answer = Result<Response<Body>, Refusal>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoginBody {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    new_password: Option<String>,
    #[serde(default)]
    response_type: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    ttl: i64,
    /// Of a login at a provider, with what it was asked for with; instead of a password.
    code: Option<String>,
    #[serde(default)]
    verifier: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenBody {
    #[serde(default)]
    user_id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    ttl: i64,
    #[serde(default, alias = "clusterName")]
    cluster_id: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeconfigBody {
    /// Whether there is a token in it.
    #[serde(default = "yes")]
    token: bool,
    #[serde(default)]
    description: String,
    #[serde(default)]
    ttl: i64,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PasswordBody {
    #[serde(default)]
    current_password: String,
    #[serde(default)]
    new_password: String,
    #[serde(default)]
    must_change_password: bool,
    /// Have one made up.
    #[serde(default)]
    generate: bool,
}

/// Makes credentials of a browser into those all parts of the server know.
/// Gives the answer to a request that must not have them.
pub(crate) fn adopt<B>(request: &mut Request<B>) -> Option<Response<Body>> {
    let method = request.method().clone();
    let forged = session::adopt(&method, request.headers_mut()).err()?;
    Some(Refusal::new(StatusCode::FORBIDDEN, forged.to_string()).response())
}

impl People {
    /// Follows users and roles, makes those that must be there, and lets the API know whose tokens are good.
    pub(crate) async fn start(controllers: &mut Controllers, api: &ApiServer, admission: &Admission) -> Self {
        let ctx = controllers.ctx.clone();
        let kubeconfigs = Kubeconfigs::new(&ctx);
        let identity = Identity::new(ctx, api.policy().clone());
        api.ask_for_tokens(Arc::new(Known(identity.clone())));
        admission.begin(api.policy().clone(), identity.clone());
        identity.ready().await;
        let first = match identity.ensure().await {
            Ok(first) => first,
            Err(error) => {
                error!(error = %Chain(&error), "users and roles that come with the server are not all there");
                let again = identity.clone();
                controllers.attend(ensure_later(again));
                None
            }
        };
        let running = identity.clone();
        controllers.keep(group(move |_, stop| running.clone().run(stop)));
        let by_api = ByApi { api: api.clone(), identity: Some(identity.clone()) };
        Self { identity, api: api.clone(), by_api, kubeconfigs, first }
    }

    pub(crate) fn first_user(&self) -> Option<FirstUser> {
        self.first.clone()
    }

    pub(crate) fn authenticate(&self) -> Arc<dyn Authenticate> {
        Arc::new(self.by_api.clone())
    }

    pub(crate) fn authorize(&self) -> Arc<dyn Authorize> {
        Arc::new(ByBindings(self.identity.clone()))
    }

    pub(crate) fn holders(&self) -> Arc<dyn Holders> {
        Arc::new(ByTokens(self.identity.clone()))
    }

    pub(crate) fn audit(&self) -> remuda_gateway::Audit {
        access::audit(&self.api)
    }

    /// Whether a path is where people come who are not known yet.
    pub(crate) fn is_login(path: &str) -> bool {
        [path::LOCAL_LOGIN, path::LOGIN, path::PROVIDERS, path::SSO, path::SSO_BACK].contains(&path)
    }

    /// Whether a path is answered here.
    pub(crate) fn owns(path: &str) -> bool {
        let below = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        Self::is_login(path)
            || path == path::LOGOUT
            || [path::TOKENS, path::USERS, path::CLUSTERS].into_iter().any(below)
    }

    pub(crate) async fn handle(&self, address: IpAddr, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let mut who = User::anonymous();
        let answer = Box::pin(self.answer(address, &head, body, &mut who)).await;
        let mut response = answer.unwrap_or_else(|refusal| refusal.response());
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.api.audit(&Elsewhere {
            user: &who,
            as_user: None,
            method: &head.method,
            path: head.uri.path(),
            source: address,
            code: response.status().as_u16(),
        });
        response
    }

    async fn answer(&self, address: IpAddr, head: &Parts, body: Incoming, who: &mut User) -> Answer {
        let path = head.uri.path();
        let action = query(head, "action").unwrap_or_default();
        let post = head.method == Method::POST;
        match path {
            path::PROVIDERS if head.method == Method::GET => {
                let sso = self.identity.has_sso().then(sso_provider);
                return Ok(collection([provider()].into_iter().chain(sso).collect()));
            }
            path::SSO if head.method == Method::GET => return self.begin_sso(head).await,
            path::SSO_BACK if head.method == Method::GET => return self.finish_sso(address, head, who).await,
            path::LOCAL_LOGIN if head.method == Method::GET => return Ok(ok(&provider())),
            path::LOCAL_LOGIN if post && action == "login" => {
                return self.login(address, head, body, who).await;
            }
            path::LOGIN if post => return self.login(address, head, body, who).await,
            path if Self::is_login(path) => return Err(not_allowed()),
            _ => {}
        }
        let caller = match self.by_api.authenticate(head).await {
            Ok(caller) => caller,
            Err(refused) => return Err(Refusal::new(refused.status(), "Unauthorized")),
        };
        let mut user = User::new(caller.name.clone(), caller.groups.iter().cloned());
        user.extra.clone_from(&caller.extra);
        *who = user.clone();
        if user.is_anonymous() {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized"));
        }
        let asks = Asks { address, head, caller: &caller, user: &user };
        match path {
            path::LOGOUT if post => self.logout(&asks).await,
            path::TOKENS if post && action == "logout" => self.logout(&asks).await,
            path::TOKENS if post && action.is_empty() => self.make_token(&asks, body).await,
            path::TOKENS if head.method == Method::GET => self.list_tokens(&asks),
            path::USERS if post && action == "changepassword" => self.change_password(&asks, body).await,
            path::USERS if head.method == Method::GET && query(head, "me").as_deref() == Some("true") => {
                let me = self.identity.user(&caller.name).map(|user| person(&user));
                Ok(collection(me.into_iter().collect()))
            }
            _ => {
                if let Some(name) = path.strip_prefix(path::TOKENS).and_then(|rest| rest.strip_prefix('/')) {
                    return self.one_token(&asks, name).await;
                }
                let cluster = path.strip_prefix(path::CLUSTERS).and_then(|rest| rest.strip_prefix('/'));
                if let Some(id) = cluster.filter(|_| post && action == "generateKubeconfig") {
                    return self.kubeconfig(&asks, id, body).await;
                }
                let name = path.strip_prefix(path::USERS).and_then(|rest| rest.strip_prefix('/'));
                match name.filter(|_| post && action == "setpassword") {
                    Some(name) => self.set_password(&asks, name, body).await,
                    None => Err(Refusal::missing()),
                }
            }
        }
    }

    async fn login(&self, address: IpAddr, head: &Parts, body: Incoming, who: &mut User) -> Answer {
        // A form of another site cannot send this, and so cannot log a browser in as somebody else.
        let kind =
            head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/json") {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body must be application/json",
            ));
        }
        let asked: LoginBody = read(body).await?;
        let LoginBody { username, password, description, ttl, .. } = &asked;
        let issued = match &asked.code {
            Some(code) => self.identity.redeem_sso(code, &asked.verifier, description, *ttl, address).await?,
            None => {
                let new_password = asked.new_password.as_deref();
                let kind = token_kind::SESSION;
                let attempt =
                    Attempt { username, password, new_password, address, kind, description, ttl: *ttl };
                self.identity.login(&attempt).await?
            }
        };
        who.name.clone_from(&issued.token.user_id);
        let mut shown = shown(&issued);
        let cookie = asked.response_type.is_empty() || asked.response_type == "cookie";
        if asked.response_type == "cookie"
            && let Some(shown) = shown.as_object_mut()
        {
            // It is in a cookie so that scripts do not have it.
            shown.remove("token");
        }
        let mut response = json_response(StatusCode::CREATED, shown.to_string());
        if cookie {
            let left = issued.expires().map(|expires| expires.as_second() - Timestamp::now().as_second());
            session::begin(response.headers_mut(), &issued.bearer, left);
        }
        Ok(response)
    }

    async fn logout(&self, asks: &Asks<'_>) -> Answer {
        if let Some(token) = asks.token() {
            match self.identity.revoke(token).await {
                Ok(()) | Err(Error::Missing(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut response = ok(&json!({}));
        session::end(response.headers_mut());
        Ok(response)
    }

    async fn make_token(&self, asks: &Asks<'_>, body: Incoming) -> Answer {
        let asked: TokenBody = read(body).await?;
        let own = &asks.caller.name;
        let user = if asked.user_id.is_empty() { own } else { &asked.user_id };
        if user != own && !self.may_act_as(asks.user, user) {
            return Err(forbidden(&format!("you may not make tokens of user {user:?}")));
        }
        if self.identity.user(user).is_none() {
            let message =
                format!("{user:?} is not a user of this server and has no tokens; name one with userId");
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message));
        }
        let kind = match asked.kind.as_str() {
            token_kind::KUBECONFIG => token_kind::KUBECONFIG,
            _ => token_kind::API,
        };
        let issued = self
            .identity
            .issue(&NewToken {
                user,
                kind,
                description: &asked.description,
                ttl: asked.ttl,
                cluster: &asked.cluster_id,
                parent: asks.token(),
            })
            .await?;
        Ok(json_response(StatusCode::CREATED, shown(&issued).to_string()))
    }

    async fn kubeconfig(&self, asks: &Asks<'_>, id: &str, body: Incoming) -> Answer {
        let asked: KubeconfigBody = read(body).await?;
        let caller = asks.caller;
        let entitled = asks.user.is_master()
            || self.identity.access(&caller.name, &caller.groups, id) != remuda_identity::Access::None;
        if !entitled {
            return Err(forbidden(&format!("user {:?} has no role in cluster {id:?}", caller.name)));
        }
        let Some(cluster) = self.kubeconfigs.cluster(id) else {
            let message = format!("clusters.management.cattle.io {id:?} not found");
            return Err(Refusal::new(StatusCode::NOT_FOUND, message));
        };
        if self.identity.user(&caller.name).is_none() {
            let message = format!("{:?} is not a user of this server and has no tokens; log in", caller.name);
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message));
        }
        let endpoints = self.kubeconfigs.endpoints(asks.head, &cluster);
        if !asked.token {
            let config = kubeconfig::render(&endpoints, None);
            return Ok(ok(&json!({"type": "generateKubeconfigOutput", "config": config})));
        }
        let description = match asked.description.as_str() {
            "" => format!("kubeconfig of cluster {}", endpoints[0].name),
            description => description.to_owned(),
        };
        let new = NewToken {
            user: &caller.name,
            kind: token_kind::KUBECONFIG,
            description: &description,
            ttl: asked.ttl,
            cluster: id,
            parent: asks.token(),
        };
        let issued = self.identity.issue(&new).await?;
        let config = kubeconfig::render(&endpoints, Some(&issued.bearer));
        let expires = issued.expires().map(|at| at.to_string()).unwrap_or_default();
        Ok(ok(&json!({"type": "generateKubeconfigOutput", "config": config, "expiresAt": expires})))
    }

    fn list_tokens(&self, asks: &Asks<'_>) -> Answer {
        let tokens = match query(asks.head, "userId") {
            Some(user) if user != asks.caller.name => {
                if !self.may(asks.user, "list", "tokens", "") {
                    return Err(forbidden("you may not list tokens of others"));
                }
                if user.is_empty() { self.identity.tokens() } else { self.identity.tokens_of(&user) }
            }
            _ => self.identity.tokens_of(&asks.caller.name),
        };
        let (now, current) = (Timestamp::now(), asks.token());
        let tokens = tokens.iter().map(|token| {
            let mut shown = remuda_identity::shown(token, now);
            shown["current"] = (current == Some(token.name_any().as_str())).into();
            shown
        });
        Ok(collection(tokens.collect()))
    }

    async fn one_token(&self, asks: &Asks<'_>, name: &str) -> Answer {
        let verb = match asks.head.method {
            Method::GET => "get",
            Method::DELETE => "delete",
            _ => return Err(not_allowed()),
        };
        let found = self.identity.token(name);
        let own = found.as_ref().is_some_and(|token| remuda_identity::owner(token) == asks.caller.name);
        let found = found.filter(|_| own || self.may(asks.user, verb, "tokens", name));
        // Whether others have a token of this name is their business.
        let Some(token) = found else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, format!("there is no token {name:?} of yours")));
        };
        if verb == "get" {
            return Ok(ok(&remuda_identity::shown(&token, Timestamp::now())));
        }
        self.identity.revoke(name).await?;
        Ok(ok(&json!({})))
    }

    async fn change_password(&self, asks: &Asks<'_>, body: Incoming) -> Answer {
        let asked: PasswordBody = read(body).await?;
        let (user, keep) = (&asks.caller.name, asks.token());
        let (current, new) = (&asked.current_password, &asked.new_password);
        self.identity.change_password(user, current, new, asks.address, keep).await?;
        Ok(ok(&json!({})))
    }

    async fn set_password(&self, asks: &Asks<'_>, name: &str, body: Incoming) -> Answer {
        let asked: PasswordBody = read(body).await?;
        let may = self.may(asks.user, "update", "users", name)
            && admission::outranks(self.api.policy(), asks.user, name);
        if !may {
            return Err(forbidden(&format!("you may not set the password of user {name:?}")));
        }
        if asked.generate {
            let password = self.identity.make_up_password(name, asked.must_change_password).await?;
            return Ok(ok(&json!({"password": password})));
        }
        self.identity.set_password(name, &asked.new_password, asked.must_change_password).await?;
        Ok(ok(&json!({})))
    }

    fn may(&self, user: &User, verb: &str, resource: &str, name: &str) -> bool {
        let attributes = Attributes::resource(verb, MANAGEMENT, resource).version("v3").name(name);
        self.api.policy().authorize(user, &attributes).allowed
    }

    fn may_act_as(&self, user: &User, other: &str) -> bool {
        let attributes = Attributes::resource("impersonate", "", "users").version("v1").name(other);
        self.api.policy().authorize(user, &attributes).allowed
    }
}

/// A request of somebody who is known.
struct Asks<'a> {
    address: IpAddr,
    head: &'a Parts,
    caller: &'a Caller,
    user: &'a User,
}

impl Asks<'_> {
    /// Name of the token they came with. Who acts as somebody else came with none of theirs.
    fn token(&self) -> Option<&str> {
        let own = self.caller.by.is_none() && self.caller.revoked.is_some();
        self.caller.extra.get(extra::TOKEN).filter(|_| own)?.first().map(String::as_str)
    }
}

/// Tries until it succeeds; then whoever reads the log is told what nobody else will be.
async fn ensure_later(identity: Identity) {
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        match identity.ensure().await {
            Ok(None) => return,
            Ok(Some(first)) => {
                warn!(username = first.username, password = first.password, "the first user was made");
                return;
            }
            Err(error) => warn!(error = %Chain(&error), "users and roles are still not all there"),
        }
    }
}

async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, Refusal> {
    let bad = |why: &str| Refusal::new(StatusCode::BAD_REQUEST, why);
    let bytes: Bytes = match timeout(SOON, Limited::new(body, LARGEST).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        _ => return Err(bad("the body is too long or did not arrive")),
    };
    let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
    // What the parser says may quote a password.
    serde_json::from_slice(&bytes).map_err(|_| bad("the body is not the JSON that belongs here"))
}

/// A parameter of the query; values here need no decoding.
fn query(head: &Parts, name: &str) -> Option<String> {
    let pairs = head.uri.query()?.split('&');
    let mut values = pairs.filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
    values.next().map(|(_, value)| value.to_owned())
}

fn ok(value: &Value) -> Response<Body> {
    json_response(StatusCode::OK, value.to_string())
}

fn collection(data: Vec<Value>) -> Response<Body> {
    ok(&json!({"type": "collection", "data": data}))
}

fn provider() -> Value {
    json!({"id": "local", "type": "localProvider", "actions": {"login": format!("{}?action=login", path::LOCAL_LOGIN)}})
}

fn sso_provider() -> Value {
    json!({"id": oidc::PROVIDER, "type": "genericOIDCProvider", "redirectUrl": path::SSO})
}

fn forbidden(message: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, message)
}

fn not_allowed() -> Refusal {
    let message = "the server does not allow this method on the requested resource";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

fn shown(issued: &Issued) -> Value {
    let mut shown = remuda_identity::shown(&issued.token, Timestamp::now());
    shown["token"] = issued.bearer.as_str().into();
    shown
}

fn person(user: &remuda_api::management::User) -> Value {
    json!({
        "type": "user", "id": user.name_any(), "username": user.username, "name": user.display_name,
        "principalIds": user.principal_ids, "enabled": user.enabled.unwrap_or(true),
        "mustChangePassword": user.must_change_password, "me": true,
    })
}

#[cfg(test)]
mod tests;
