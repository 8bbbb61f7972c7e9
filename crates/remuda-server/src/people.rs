//! People: who they are and what they may, put together.
//!
//! Their endpoints are in `remuda-login`, their users, tokens and roles in `remuda-identity`.

mod access;
mod admission;

use std::sync::Arc;

use remuda_apiserver::ApiServer;
use remuda_base::Chain;
use remuda_door::Opening;
use remuda_gateway::{Authorize, Holders};
use remuda_identity::{FirstUser, Identity};
use remuda_login::Login;
use tracing::{error, warn};

use self::access::{ByBindings, ByTokens, Known};
pub(crate) use self::admission::Admission;
use crate::controllers::{Component, Controllers, group};

/// Users and their sessions.
pub(crate) struct People {
    identity: Identity,
    login: Login,
    first: Option<FirstUser>,
}

impl People {
    /// Follows users and roles, makes those that must be there, and lets the API know whose tokens are good.
    pub(crate) async fn start(controllers: &mut Controllers, api: &ApiServer, admission: &Admission) -> Self {
        let ctx = controllers.ctx(Component::Identity);
        let identity = Identity::new(ctx.clone(), api.policy().clone());
        let login = Login::new(&ctx, identity.clone());
        api.ask_for_tokens(Arc::new(Known(identity.clone())));
        admission.begin(identity.clone());
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
        controllers.keep(group(Component::Identity, move |_, stop| running.clone().run(stop)));
        Self { identity, login, first }
    }

    pub(crate) fn first_user(&self) -> Option<FirstUser> {
        self.first.clone()
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity.clone()
    }

    pub(crate) fn openings(&self) -> Vec<Opening> {
        self.login.openings()
    }

    pub(crate) fn authorize(&self) -> Arc<dyn Authorize> {
        Arc::new(ByBindings(self.identity.clone()))
    }

    pub(crate) fn holders(&self) -> Arc<dyn Holders> {
        Arc::new(ByTokens(self.identity.clone()))
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

#[cfg(test)]
pub(crate) mod tests;
