//! Who is asking: certificates, tokens, impersonation.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, header};
use remuda_auth::{
    attributes::Attributes,
    identity::{GROUP_CONTROLLERS, User},
    impersonation::Impersonation,
    jwt::claims::{Bound, ObjectRef, ServiceAccountToken},
    tokens::{BOOTSTRAP_SECRET_NAMESPACE, BootstrapToken},
};
use remuda_objects::meta;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    front::{Peer, PeerCertificate},
    server::{ApiServer, Inner},
    status::{ApiError, ApiResult},
    tokens::{Bearer, Caller, Verdict},
};

/// Who sent a request.
#[derive(Debug, Clone)]
pub struct Identified {
    pub user: Arc<User>,
    /// Whom they act as, if they asked to and may.
    pub as_user: Option<Arc<User>>,
    /// Cancelled when the credentials are no longer good.
    pub revoked: Option<CancellationToken>,
}

/// Why it is not known who sent a request, or why they may not be whom they ask to be.
#[derive(Debug)]
pub struct Unidentified {
    /// As far as it is known.
    pub user: Option<Arc<User>>,
    pub error: ApiError,
}

impl ApiServer {
    /// Finds out who sent a request that is answered beside the API, by the same rules and with no trace in the audit
    /// log. `known` is a user whose credentials were good already.
    pub async fn identify(
        &self,
        head: &http::request::Parts,
        known: Option<Arc<User>>,
    ) -> Result<Identified, Unidentified> {
        let caller = match known {
            Some(user) => user.into(),
            None => {
                let found = self.inner.authenticate(head).await;
                found.map_err(|error| Unidentified { user: None, error })?
            }
        };
        let Caller { user, revoked } = caller;
        if let Some(peer) = head.extensions.get::<Peer>()
            && !user.is_anonymous()
        {
            peer.login.note();
        }
        match self.inner.impersonate(&user, &head.headers) {
            Ok(as_user) => Ok(Identified { user, as_user, revoked }),
            Err(error) => Err(Unidentified { user: Some(user), error }),
        }
    }

    /// Whether a user may do something.
    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> ApiResult<()> {
        self.inner.authorize(user, attributes).map(drop)
    }
}

impl Inner {
    /// The first credential decides; a bad one is refused, not ignored. So is one that claims to be a controller of
    /// this server: those have no credentials.
    pub(crate) async fn authenticate(&self, parts: &http::request::Parts) -> ApiResult<Caller> {
        let caller = self.authenticate_credential(parts).await?;
        if caller.user.is_controller() { Err(ApiError::unauthorized()) } else { Ok(caller) }
    }

    async fn authenticate_credential(&self, parts: &http::request::Parts) -> ApiResult<Caller> {
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

    /// As `authenticate`, for those who ask how the server is: they cannot wait for a store that may be
    /// what is wrong.
    pub(crate) async fn authenticate_in_time(&self, parts: &http::request::Parts) -> ApiResult<Caller> {
        match tokio::time::timeout(Duration::from_millis(300), self.authenticate(parts)).await {
            Ok(result) => result,
            Err(_) => Err(ApiError::unavailable("the store does not answer, so the token cannot be judged")),
        }
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
    /// answer. What this process has seen of it counts, as in the reference: with several servers a
    /// deletion elsewhere shows a moment later. Only one that is not there is looked for in the store.
    pub(crate) async fn read_object(&self, key: &str) -> ApiResult<Option<Value>> {
        let seen = self.store.get_many(&[key.to_owned()], Some(self.store.observed())).await;
        let seen = seen.ok().and_then(|seen| seen.value.into_iter().next().flatten());
        let record = match seen {
            Some(record) => Some(record),
            None => self.store.get(key).await.map_err(crate::read::store_error)?.value,
        };
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
        let other = asked.into_user();
        if other.is_controller() {
            let message = format!("group {GROUP_CONTROLLERS} is reserved for controllers inside the server");
            return Err(ApiError::new(403, "Forbidden", message));
        }
        Ok(Some(Arc::new(other)))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod fuzz;
