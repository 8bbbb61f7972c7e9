//! Who is asking: certificates, tokens, impersonation.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, header};
use remuda_auth::{
    identity::User,
    impersonation::Impersonation,
    jwt::claims::{Bound, ObjectRef, ServiceAccountToken},
    tokens::{BOOTSTRAP_SECRET_NAMESPACE, BootstrapToken},
};
use remuda_objects::meta;
use serde_json::Value;

use crate::{
    front::{Peer, PeerCertificate},
    server::Inner,
    status::{ApiError, ApiResult},
    tokens::{Bearer, Caller, Verdict},
};

impl Inner {
    /// The first credential decides; a bad one is refused, not ignored.
    pub(crate) async fn authenticate(&self, parts: &http::request::Parts) -> ApiResult<Caller> {
        match parts.extensions.get::<Peer>().map(|peer| &peer.certificate) {
            Some(PeerCertificate::Verified(user)) => return Ok(user.clone().into()),
            Some(PeerCertificate::Rejected) => return Err(ApiError::unauthorized()),
            Some(PeerCertificate::None) | None => {}
        }
        let hidden = crate::websocket::bearer(&parts.headers);
        if let Some(token) = bearer(&parts.headers).or(hidden.as_deref()) {
            if let Some(bearer) = self.known_bearer(token)? {
                return Ok(Caller { user: bearer.user, revoked: Some(bearer.revoked) });
            }
            return match self.authenticate_token(token, &[]).await? {
                Some((user, _)) => Ok(user.into()),
                None => Err(ApiError::unauthorized()),
            };
        }
        if parts.headers.contains_key(header::AUTHORIZATION) || !self.config.anonymous {
            return Err(ApiError::unauthorized());
        }
        Ok(Arc::new(User::anonymous()).into())
    }

    /// Somebody whose token is kept elsewhere; nobody if it is not.
    fn known_bearer(&self, token: &str) -> ApiResult<Option<Bearer>> {
        match self.tokens.get().map_or(Verdict::Foreign, |tokens| tokens.authenticate(token)) {
            Verdict::Foreign => Ok(None),
            Verdict::Known(bearer) => Ok(Some(bearer)),
            Verdict::Refused => Err(ApiError::unauthorized()),
            Verdict::NotReady => {
                let message = "this server has just started and does not know all tokens yet";
                Err(ApiError::new(503, "ServiceUnavailable", message))
            }
        }
    }

    /// The user of a bearer token, and the audiences it is good for among those asked for. Fails only
    /// if that cannot be found out: a store that does not answer must not make good tokens bad.
    pub(crate) async fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> ApiResult<Option<(Arc<User>, Vec<String>)>> {
        let api = self.config.verifier.audiences();
        let for_api = || {
            let good: Vec<String> = api
                .iter()
                .filter(|known| audiences.is_empty() || audiences.contains(known))
                .cloned()
                .collect();
            (!good.is_empty()).then_some(good)
        };
        if let Some(user) = self.config.static_tokens.authenticate(token) {
            return Ok(for_api().map(|good| (user, good)));
        }
        match self.known_bearer(token) {
            Ok(Some(bearer)) => return Ok(for_api().map(|good| (bearer.user, good))),
            Ok(None) => {}
            Err(error) if error.code == 401 => return Ok(None),
            Err(error) => return Err(error),
        }
        if let Some(bootstrap) = BootstrapToken::parse(token) {
            let key = format!("/core/secrets/{BOOTSTRAP_SECRET_NAMESPACE}/{}", bootstrap.secret_name());
            let secret = self.read_object(&key).await?;
            let user = secret.and_then(|secret| bootstrap.authenticate(&secret, self.now()).ok());
            return Ok(user.and_then(|user| Some((Arc::new(user), for_api()?))));
        }
        let now = self.now().as_second();
        let Ok((verified, good)) = self.config.verifier.verify_for(token, now, audiences) else {
            let Some((remote, good)) = self.remote.get().zip(for_api()) else { return Ok(None) };
            return Ok(remote.review(token).await.map(|user| (user, good)));
        };
        let alive = self.is_alive(token, &verified).await?;
        Ok(alive.then(|| (verified.user.clone(), good)))
    }

    /// The service account and whatever the token is bound to must still be there.
    async fn is_alive(&self, token: &str, verified: &ServiceAccountToken) -> ApiResult<bool> {
        let namespace = &verified.namespace;
        let account = &verified.service_account;
        let key = format!("/core/serviceaccounts/{namespace}/{}", account.name);
        if !self.lives(&key, account).await? {
            return Ok(false);
        }
        match &verified.bound {
            Bound::Nothing => Ok(true),
            Bound::Pod { pod, .. } => self.lives(&format!("/core/pods/{namespace}/{}", pod.name), pod).await,
            Bound::Node(node) => self.lives(&format!("/core/nodes/{}", node.name), node).await,
            Bound::Secret(secret) => {
                let key = format!("/core/secrets/{namespace}/{}", secret.name);
                if !verified.legacy {
                    return self.lives(&key, secret).await;
                }
                // A legacy token is the one its Secret holds.
                let held = self.read_object(&key).await?;
                Ok(held.is_some_and(|object| {
                    !meta::is_deleting(&object) && object["data"]["token"] == STANDARD.encode(token)
                }))
            }
        }
    }

    async fn lives(&self, key: &str, reference: &ObjectRef) -> ApiResult<bool> {
        Ok(self.read_object(key).await?.is_some_and(|object| {
            (reference.uid.is_empty() || object["metadata"]["uid"] == reference.uid.as_str())
                && !meta::is_deleting(&object)
        }))
    }

    /// A stored object by its key, for those who must tell a missing one from a store that does not
    /// answer.
    pub(crate) async fn read_object(&self, key: &str) -> ApiResult<Option<Value>> {
        let record = self.store.get(key).await.map_err(crate::read::store_error)?.value;
        record.map(|record| crate::convert::parse(&record)).transpose()
    }

    /// A stored object by its key.
    pub(crate) async fn read_value(&self, key: &str) -> Option<Value> {
        let record = self.store.get(key).await.ok()?.value?;
        serde_json::from_slice(&record.value).ok()
    }

    /// The user to act as, if the request asks for one and the caller may.
    pub(crate) fn impersonate(&self, user: &User, headers: &HeaderMap) -> ApiResult<Option<Arc<User>>> {
        if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Ok(None);
        }
        // A header that cannot be read must not make the request go on as the real user.
        let pairs = headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("impersonate-"))
            .map(|(name, value)| Ok((name.as_str(), std::str::from_utf8(value.as_bytes())?)))
            .collect::<Result<Vec<_>, std::str::Utf8Error>>()
            .map_err(|_| ApiError::bad_request("impersonation headers must be UTF-8"))?;
        let Some(asked) = Impersonation::parse(pairs.into_iter())
            .map_err(|error| ApiError::bad_request(error.to_string()))?
        else {
            return Ok(None);
        };
        for attributes in asked.checks() {
            self.authorize(user, &attributes)?;
        }
        Ok(Some(Arc::new(asked.into_user())))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}
