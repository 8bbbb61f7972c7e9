//! Who asks, and what they are in a cluster: what the API and the gateway are told.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response, header, request::Parts};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use remuda_apiserver::{ApiServer, Bearer, Elsewhere, Internal, Peer, PeerCertificate, Tokens};
use remuda_auth::identity::User;
use remuda_gateway::{Audit, Authenticate, Authorize, Body, Caller, Decision, Held, Holders, Proxied, Role};
use remuda_identity::{Access, Identity, Login, Verdict};
use remuda_names::{
    gateway::path::{CLUSTERS, CLUSTERS_PROXY},
    user::MASTERS,
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::front;

/// Tokens, for the API. Those for one cluster are not for it.
pub(crate) struct Known(pub(crate) Identity);

impl Tokens for Known {
    fn authenticate(&self, token: &str) -> remuda_apiserver::Verdict {
        use remuda_apiserver::Verdict as Answer;
        match self.0.authenticate(token) {
            Verdict::Foreign => Answer::Foreign,
            Verdict::NotReady => Answer::NotReady,
            Verdict::Known(Login { user, revoked, cluster: None, .. }) => {
                Answer::Known(Bearer { user, revoked })
            }
            Verdict::Known(_) | Verdict::Refused => Answer::Refused,
        }
    }
}

/// Asks the API who somebody is, so that every way to log in counts here too, and impersonation by its rules.
#[derive(Clone)]
pub(crate) struct ByApi {
    pub(crate) api: ApiServer,
    pub(crate) identity: Option<Identity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: User,
}

impl ByApi {
    /// The token of a request, if it is one of ours and good for where the request goes.
    fn login(&self, head: &Parts) -> Option<Login> {
        // A certificate says who somebody is before anything else does.
        if head
            .extensions
            .get::<Peer>()
            .is_some_and(|peer| !matches!(peer.certificate, PeerCertificate::None))
        {
            return None;
        }
        let value = head.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        let Verdict::Known(login) = self.identity.as_ref()?.authenticate(token.trim()) else { return None };
        let good = scheme.eq_ignore_ascii_case("bearer")
            && login.cluster.as_deref().is_none_or(|only| cluster_of(head.uri.path()) == Some(only));
        good.then_some(login)
    }
}

fn cluster_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(CLUSTERS).or_else(|| path.strip_prefix(CLUSTERS_PROXY))?;
    Some(rest.split('/').next().unwrap_or_default())
}

impl Authenticate for ByApi {
    fn authenticate<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<Caller, Response<Body>>> {
        Box::pin(async move {
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            let mut request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(bytes::Bytes::from(review.to_string())))
                .expect("the parts are constant");
            front::copy_credentials(head, &mut request);
            if let Some(peer) = head.extensions.get::<Peer>() {
                request.extensions_mut().insert(peer.clone());
            }
            let login = self.login(head);
            if let Some(login) = &login {
                // Known already, and if it is for one cluster the API would not take it.
                request.extensions_mut().insert(Internal(login.user.clone()));
            }
            let response = self.api.handle(request).await;
            let (parts, body) = response.into_parts();
            let Ok(body) = body.collect().await;
            let body = body.to_bytes();
            let refusal = |parts, body| {
                let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
                Response::from_parts(parts, body)
            };
            if !parts.status.is_success() {
                return Err(refusal(parts, body));
            }
            let Ok(Review { status: ReviewStatus { user_info: user } }) = serde_json::from_slice(&body)
            else {
                return Err(refusal(parts, body));
            };
            let by = login.as_ref().map(|login| login.user.name.clone()).filter(|name| *name != user.name);
            Ok(Caller {
                name: user.name,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                by,
                revoked: login.map(|login| login.revoked),
            })
        })
    }
}

/// Which clusters somebody may enter, and as what.
pub(crate) struct ByBindings(pub(crate) Identity);

impl Authorize for ByBindings {
    fn authorize<'a>(
        &'a self,
        caller: &'a Caller,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Decision, String>> {
        Box::pin(async move {
            if caller.groups.iter().any(|group| group == MASTERS) {
                return Ok(Decision::allow());
            }
            Ok(match self.0.access(&caller.name, &caller.groups, cluster) {
                Access::Owner => Decision::owner(),
                Access::Member(roles) => {
                    let roles = roles.into_iter().map(|role| Role { name: role.name, rules: role.rules });
                    Decision::allow().with_roles(roles.collect())
                }
                Access::None => {
                    Decision::deny(format!("user {:?} has no role in cluster {cluster:?}", caller.name))
                }
            })
        })
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.0.rights_changes())
    }
}

/// Whose tokens are good in clusters without this server.
pub(crate) struct ByTokens(pub(crate) Identity);

impl Holders for ByTokens {
    fn held(&self, cluster: &str) -> Option<Vec<Held>> {
        let held = self.0.held(cluster)?.into_iter().map(|held| Held {
            token: held.name,
            hash: held.hash,
            expires: held.expires,
            created: held.created,
            caller: Caller {
                name: held.user.name.clone(),
                groups: held.user.groups.clone(),
                ..Caller::default()
            },
        });
        Some(held.collect())
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.0.changes()
    }

    fn used(&self, token: &str, at: Timestamp) {
        self.0.note_use(token, at);
    }
}

/// Requests to clusters are in the audit log as those to the API are.
pub(crate) fn audit(api: &ApiServer) -> Audit {
    let api = api.clone();
    Arc::new(move |proxied: &Proxied<'_>| {
        let caller = proxied.caller;
        let mut user = User::new(caller.name.clone(), caller.groups.iter().cloned());
        user.uid.clone_from(&caller.uid);
        user.extra.clone_from(&caller.extra);
        let real = caller.by.as_ref().map(|name| User::new(name.clone(), Vec::<String>::new()));
        let foreign = (proxied.as_user != caller.name)
            .then(|| User::new(proxied.as_user, caller.groups.iter().cloned()));
        let (who, as_whom) = match (&real, &foreign) {
            (Some(real), _) => (real, Some(&user)),
            (None, foreign) => (&user, foreign.as_ref()),
        };
        api.audit(&Elsewhere {
            user: who,
            as_user: as_whom,
            method: proxied.method,
            path: proxied.path,
            source: proxied.peer.ip(),
            code: proxied.code.as_u16(),
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_cluster() {
        assert_eq!(cluster_of("/k8s/clusters/c-1/api"), Some("c-1"));
        assert_eq!(cluster_of("/k8s/proxy/c-1"), Some("c-1"));
        assert_eq!(cluster_of("/api/v1"), None);
    }
}
