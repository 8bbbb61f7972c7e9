//! Login with a password or a code, and logout.

use http::{Response, StatusCode, header};
use jiff::Timestamp;
use remuda_auth::identity::User;
use remuda_door::{Acted, Answer, Body, Call, Refusal, begin_session, end_session};
use remuda_identity::{Attempt, Error, Issued};
use remuda_names::identity::token_kind;
use serde::Deserialize;
use serde_json::json;

use crate::{Login, json_response, ok, refusal, shown, token};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoginBody {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    new_password: Option<String>,
    /// A code of the second factor, or a recovery code.
    otp: Option<String>,
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

impl Login {
    pub(crate) async fn login(&self, call: &Call, body: Body) -> Answer {
        let kind = call.head.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // A form of another site cannot send this, and so cannot log a browser in as another user. Programs say
        // nothing about their bodies; they get no cookie.
        let from_script = kind.starts_with("application/json");
        let address = call.peer.ip();
        let asked: LoginBody = body.json().await?;
        if asked.response_type == "cookie" && !from_script {
            let message = "the body must be application/json where a cookie is asked for";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let token_kind = match asked.response_type.split('_').next() {
            Some("kubeconfig") => token_kind::KUBECONFIG,
            _ => token_kind::SESSION,
        };
        let LoginBody { username, password, description, ttl, .. } = &asked;
        let issued = match &asked.code {
            Some(code) => self.identity.redeem_sso(code, &asked.verifier, description, *ttl, address).await,
            None => {
                let new_password = asked.new_password.as_deref();
                let user_agent = call.head.headers.get(header::USER_AGENT);
                let user_agent = user_agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
                let attempt = Attempt {
                    username,
                    password,
                    new_password,
                    otp: asked.otp.as_deref(),
                    address,
                    user_agent,
                    kind: token_kind,
                    description,
                    ttl: *ttl,
                };
                self.identity.login(&attempt).await
            }
        };
        let issued = issued.map_err(refusal)?;
        let mut shown = shown(&issued);
        let cookie = from_script && matches!(asked.response_type.as_str(), "" | "cookie");
        if asked.response_type == "cookie"
            && let Some(shown) = shown.as_object_mut()
        {
            // It is in a cookie so that scripts do not have it.
            shown.remove("token");
        }
        let mut response = json_response(StatusCode::CREATED, &shown);
        if cookie {
            begin(&mut response, &issued);
        }
        logged_in(&mut response, &issued);
        Ok(response)
    }

    pub(crate) async fn logout(&self, call: &Call) -> Answer {
        if let Some(token) = token(call) {
            match self.identity.revoke(token).await {
                Ok(()) | Err(Error::Missing(_)) => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        let mut response = ok(&json!({}));
        end_session(response.headers_mut());
        Ok(response)
    }
}

/// Sets the cookies of a session for as long as its token is good.
pub(crate) fn begin(response: &mut Response<Body>, issued: &Issued) {
    let left = issued.expires().map(|expires| expires.as_second() - Timestamp::now().as_second());
    begin_session(response.headers_mut(), &issued.bearer, left);
}

/// Tells the audit log who it was.
pub(crate) fn logged_in(response: &mut Response<Body>, issued: &Issued) {
    let by = Some(User::new(issued.token.user_id.clone(), Vec::<String>::new()));
    response.extensions_mut().insert(Acted { by, as_user: None });
}
