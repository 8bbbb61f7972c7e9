//! Who asks, and what they are in a cluster: what the API and the gateway are told.

use futures::future::BoxFuture;
use jiff::Timestamp;
use remuda_apiserver::{Bearer, Tokens};
use remuda_gateway::{Authorize, Caller, Decision, Held, Holders, Role};
use remuda_identity::{Access, Identity, Login, Verdict};
use remuda_names::user::MASTERS;
use tokio::sync::watch;

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
