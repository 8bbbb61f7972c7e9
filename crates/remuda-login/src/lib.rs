//! People: how they log in, and the tokens they have.
//!
//! | path | is |
//! |---|---|
//! | `POST /v3-public/localProviders/local?action=login`, `POST /v1-public/login` | a session for a password |
//! | `GET /v3-public/authProviders`, `GET /v1-public/authproviders` | how people can log in |
//! | `GET /v1-public/sso`, `GET /verify-auth` | a session of an OpenID provider |
//! | `POST /v1/logout`, `POST /v3/tokens?action=logout` | its end |
//! | `/v3/tokens`, `/v3/tokens/NAME` | tokens of the caller: list, make, look at, revoke |
//! | `POST /v3/tokens?action=revokeothers` | the end of all other sessions of the caller |
//! | `GET /v3/users?me=true`, `POST /v3/users?action=changepassword` | the caller |
//! | `GET /v3/principals` | the same, as providers of logins know them, and their groups |
//! | `POST /v3/users?action=enrolsecondfactor`, `…=confirmsecondfactor`, `…=removesecondfactor` | their second factor |
//! | `POST /v3/users/NAME?action=setpassword` | a password for another user |
//! | `POST /v3/users/NAME?action=resetsecondfactor` | the end of another user's second factor |
//! | `POST /v3/clusters/ID?action=generateKubeconfig` | a kubeconfig of the caller |
//!
//! Everything else about users and roles goes through their objects in the API. Who calls and whether they may is known
//! before anything here is reached: see [`doors`].

mod account;
pub mod doors;
mod kubeconfig;
mod login;
mod second_factor;
mod sso;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use remuda_auth::attributes::Attributes;
use remuda_control::{Chain, Ctx};
use remuda_door::{Access, Answer, Body, Call, Door, Handler, Opening, Refusal};
use remuda_identity::{Error, Identity, Issued};
use remuda_names::{
    identity::{extra, login_reason, oidc, path, second_factor::action::RESET},
    list_api,
    rancher::group::MANAGEMENT,
};
use serde_json::{Value, json};
use tracing::error;

use self::kubeconfig::Kubeconfigs;

/// Answers requests about people. Clones are the same.
#[derive(Clone)]
pub struct Login {
    identity: Identity,
    kubeconfigs: Arc<Kubeconfigs>,
}

impl Login {
    pub fn new(ctx: &Ctx, identity: Identity) -> Self {
        Self { identity, kubeconfigs: Arc::new(Kubeconfigs::new(ctx)) }
    }

    /// The doors with what is behind them.
    pub fn openings(&self) -> Vec<Opening> {
        let behind =
            |door: &'static Door| Opening { door, handler: Arc::new(Behind { login: self.clone(), door }) };
        doors::ALL.into_iter().map(behind).collect()
    }

    async fn answer(&self, call: Call, body: Body) -> Answer {
        let path = call.path().to_owned();
        let action = call.action();
        let post = call.head.method == Method::POST;
        let below = |prefix: &str| -> Option<&str> { path.strip_prefix(prefix)?.strip_prefix('/') };
        if std::ptr::eq(call.door, &doors::NOTHING_PUBLIC) {
            return Err(Refusal::not_found());
        }
        match path.as_str() {
            path::PROVIDERS | path::NEW_PROVIDERS => {
                let base = self.kubeconfigs.server(&call.head);
                let sso = self.identity.has_sso().then(|| sso_provider(&base));
                Ok(collection([provider(&base)].into_iter().chain(sso).collect()))
            }
            path::SSO => self.begin_sso(&call).await,
            path::SSO_BACK => self.finish_sso(&call).await,
            path::LOCAL_LOGIN if !post => Ok(ok(&provider(&self.kubeconfigs.server(&call.head)))),
            path::LOCAL_LOGIN if action != "login" => {
                Err(Refusal::method_not_allowed(doors::LOCAL_LOGIN.methods))
            }
            path::LOCAL_LOGIN | path::LOGIN => self.login(&call, body).await,
            path::LOGOUT => self.logout(&call).await,
            path::TOKENS if post && action == "logout" => self.logout(&call).await,
            path::TOKENS if post && action == "revokeothers" => self.revoke_others(&call, body).await,
            path::TOKENS if post && action.is_empty() => self.make_token(&call, body).await,
            path::TOKENS if call.head.method == Method::GET => self.list_tokens(&call).await,
            path::USERS if post && action == "changepassword" => self.change_password(&call, body).await,
            path::USERS if post && second_factor::is_action(&action) => {
                self.second_factor(&call, &action, body).await
            }
            path::PRINCIPALS => Ok(self.principals(&call)),
            path::USERS if !post && call.query("me").as_deref() == Some("true") => self.me(&call).await,
            _ => {
                if let Some(name) = below(path::TOKENS) {
                    return self.one_token(&call, name).await;
                }
                if let Some(id) = below(path::CLUSTERS).filter(|_| post && action == "generateKubeconfig") {
                    return self.kubeconfig(&call, id, body).await;
                }
                if let Some(name) = below(path::USERS).filter(|_| post && action == RESET) {
                    return self.reset_second_factor(&call, name).await;
                }
                match below(path::USERS).filter(|_| post && action == "setpassword") {
                    Some(name) => self.set_password(&call, name, body).await,
                    None => Err(Refusal::not_found()),
                }
            }
        }
    }
}

/// What is behind one of the doors.
struct Behind {
    login: Login,
    door: &'static Door,
}

impl Handler for Behind {
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let known = !call.caller.is_anonymous();
            let mut response = self.login.answer(call, body).await?;
            mark(&mut response, known);
            Ok(response)
        })
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        let known = self.door.access != Access::Anonymous && refusal.code != StatusCode::UNAUTHORIZED;
        let mut response = refusal.response();
        mark(&mut response, known);
        response
    }
}

/// Says whether the request came with good credentials.
fn mark(response: &mut Response<Body>, known: bool) {
    let word = HeaderValue::from_static(if known { "true" } else { "false" });
    response.headers_mut().insert(HeaderName::from_static(list_api::header::AUTHENTICATED), word);
}

/// What went wrong with an account, as the caller is told.
fn refusal(error: Error) -> Refusal {
    let code = match &error {
        Error::Wrong => StatusCode::UNAUTHORIZED,
        Error::TooOften(wait) => {
            let after = wait.as_secs() + 1;
            return Refusal::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()).after(after);
        }
        Error::MustChange => {
            return Refusal::new(StatusCode::CONFLICT, error.to_string())
                .because(login_reason::MUST_CHANGE_PASSWORD);
        }
        Error::SecondFactorRequired | Error::SecondFactorWrong => {
            return Refusal::unauthorized(error.to_string()).because(login_reason::SECOND_FACTOR_REQUIRED);
        }
        Error::SecondFactorEnrolmentRequired(enrolment) => {
            let cause = json!({"field": "uri", "message": enrolment.uri});
            let details = json!({"uri": enrolment.uri, "secret": enrolment.secret, "causes": [cause]});
            let refusal = Refusal::forbidden(error.to_string()).with_details(details);
            return refusal.because(login_reason::SECOND_FACTOR_ENROLMENT_REQUIRED);
        }
        Error::SecondFactorEnrolled => {
            return Refusal::new(StatusCode::CONFLICT, error.to_string()).because("SecondFactorEnrolled");
        }
        Error::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Missing(_) => StatusCode::NOT_FOUND,
        Error::NotAllowed(_) => StatusCode::FORBIDDEN,
        Error::NotBegun => StatusCode::BAD_REQUEST,
        Error::Unreachable(_) => StatusCode::BAD_GATEWAY,
        Error::Api { .. } | Error::Kit(_) | Error::Internal(_) => {
            error!(error = %Chain(&error), "a request about an account failed");
            let message = "the request failed; the log says why";
            return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message);
        }
    };
    Refusal::new(code, error.to_string())
}

/// Name of the token a caller came with. Who acts as another user came with none of theirs.
fn token(call: &Call) -> Option<&str> {
    let caller = &call.caller;
    let own = caller.by.is_none() && caller.revoked.is_some();
    caller.extra.get(extra::TOKEN).filter(|_| own)?.first().map(String::as_str)
}

/// Whether the caller may do something with a kind of ours.
async fn may(call: &Call, verb: &str, resource: &str, name: &str) -> bool {
    call.may(Attributes::resource(verb, MANAGEMENT, resource).version("v3").name(name)).await
}

fn json_response(code: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn ok(value: &Value) -> Response<Body> {
    json_response(StatusCode::OK, value)
}

fn collection(data: Vec<Value>) -> Response<Body> {
    ok(&json!({"type": "collection", "data": data}))
}

fn provider(base: &str) -> Value {
    let own = format!("{base}{}", path::LOCAL_LOGIN);
    json!({
        "id": "local", "type": "localProvider", "baseType": "authProvider", "name": "local",
        "links": {"self": own}, "actions": {"login": format!("{own}?action=login")},
    })
}

fn sso_provider(base: &str) -> Value {
    json!({
        "id": oidc::PROVIDER, "type": "genericOIDCProvider", "baseType": "authProvider", "name": oidc::PROVIDER,
        "links": {"self": format!("{base}{}/{}", path::PROVIDERS, oidc::PROVIDER)}, "redirectUrl": path::SSO,
    })
}

/// A token with its key, which is told once.
fn shown(issued: &Issued) -> Value {
    let mut shown = remuda_identity::shown(&issued.token, jiff::Timestamp::now());
    shown["token"] = issued.bearer.as_str().into();
    if !issued.recovery_codes.is_empty() {
        shown["recoveryCodes"] = json!(issued.recovery_codes);
    }
    shown
}

fn person(user: &remuda_api::management::User) -> Value {
    use kube::ResourceExt;
    json!({
        "type": "user", "id": user.name_any(), "username": user.username, "name": user.display_name,
        "principalIds": user.principal_ids, "enabled": user.enabled.unwrap_or(true),
        "mustChangePassword": user.must_change_password, "me": true,
    })
}
