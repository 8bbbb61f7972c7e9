//! The management API as doors know it: who calls, what they may, what is written down.

use std::borrow::Cow;

use futures::future::BoxFuture;
use http::{StatusCode, header, request::Parts};
use kube::Client;
use remuda_apiserver::{ApiError, ApiServer, Identified, Peer, PeerCertificate, Unidentified};
use remuda_auth::{attributes::Attributes, identity::User};
use remuda_door::{AuditLine, Caller, Denied, Management, Refusal};
use remuda_gateway::doors::cluster_of;
use remuda_identity::{Identity, Login, Verdict};
use remuda_names::rancher::name::LOCAL;

/// Asks the API server of this process, so that every way to log in and every rule counts at all doors.
#[derive(Clone)]
pub(crate) struct InProcess {
    pub(crate) api: ApiServer,
    /// Users and their tokens, where controllers run.
    pub(crate) identity: Option<Identity>,
}

impl InProcess {
    /// The token of a request, if it is one of ours and good for where the request goes.
    fn login(&self, head: &Parts) -> Option<Login> {
        // A certificate identifies the caller before anything else does.
        let peer = head.extensions.get::<Peer>();
        if peer.is_some_and(|peer| !matches!(peer.certificate, PeerCertificate::None)) {
            return None;
        }
        let value = head.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        let Verdict::Known(login) = self.identity.as_ref()?.authenticate(token.trim()) else { return None };
        // Below `local` is the management API, and a token for one cluster is not for that.
        let cluster = cluster_of(head.uri.path()).map(|(cluster, _)| cluster).filter(|name| *name != LOCAL);
        let good = scheme.eq_ignore_ascii_case("bearer")
            && login.cluster.as_deref().is_none_or(|only| cluster == Some(only));
        good.then_some(login)
    }
}

fn refusal(error: ApiError) -> Refusal {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry_after = error.retry_after.map(u64::from);
    let refusal = Refusal { retry_after, ..Refusal::new(code, error.message) };
    match error.reason {
        Cow::Borrowed(reason) => refusal.because(reason),
        // A webhook's own word; the code says enough at a door.
        Cow::Owned(_) => refusal,
    }
}

impl Management for InProcess {
    fn authenticate<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<Caller, Denied>> {
        Box::pin(async move {
            // Known already; one that is for a single cluster would not be taken by the API.
            let login = self.login(head);
            let known = login.as_ref().map(|login| login.user.clone());
            match self.api.identify(head, known).await {
                Err(Unidentified { user, error }) => {
                    Err(Denied { user: user.map(|user| (*user).clone()), refusal: refusal(error) })
                }
                Ok(Identified { user, as_user, revoked }) => {
                    let by = as_user.as_ref().map(|_| user.name.clone());
                    let caller = Caller::of(&as_user.unwrap_or(user));
                    let revoked = login.map(|login| login.revoked).or(revoked);
                    Ok(Caller { by, revoked, ..caller })
                }
            }
        })
    }

    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: Attributes<'a>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(self.api.authorize(user, &attributes).map_err(refusal)))
    }

    fn client(&self, caller: &Caller) -> Client {
        Client::new(self.api.client_service(caller.user()), "default")
    }

    fn audit(&self, line: &AuditLine<'_>) {
        self.api.audit(line);
    }
}
