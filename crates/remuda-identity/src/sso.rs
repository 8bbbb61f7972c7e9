//! Login at an OpenID provider.
//!
//! A browser is sent there and comes back with a code (authorization code flow with PKCE, state and nonce); the
//! code becomes an ID token, and that a User and a token of ours. A program logs somebody in through their
//! browser: it waits at a port of the same machine, is given a code of ours there and redeems it with a secret
//! only it knows. Each of these steps may be taken at another of several servers.

mod config;
mod http;
mod pending;
mod person;
mod profile;
mod provider;
mod shared;

use std::{net::IpAddr, sync::Arc};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use remuda_auth::tokens::RandomError;
use remuda_control::{Chain, ObjectKey};
use remuda_names::{
    identity::{oidc, token_kind},
    rancher::name::GLOBAL_DATA,
};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

pub use self::pending::Back;
use self::{
    config::Settings,
    pending::{Pending, challenge, random},
    profile::Profile,
    provider::{Provider, ProviderError},
    shared::Once,
};
use crate::{
    Error, Identity, Issued, NewToken,
    account::{Origin, Seen},
};

/// For a program to redeem its code.
const REDEMPTION: SignedDuration = SignedDuration::from_secs(60);

/// A login that has begun.
pub struct Begun {
    /// Where the browser goes.
    pub location: String,
    /// What it is to bring back, and to show nobody.
    pub cookie: String,
}

/// A login that has ended well.
pub enum Finished {
    /// The browser has a session, and goes to a page of ours.
    Session { issued: Box<Issued>, page: String },
    /// A program at this port gets a code, if the person agrees.
    Program { port: u16, state: String, code: String, person: String },
}

/// Somebody a program may become with its secret.
#[derive(Serialize, Deserialize)]
struct Waiting {
    challenge: String,
    profile: Profile,
}

/// What logins at a provider need.
#[derive(Default)]
pub(crate) struct Sso {
    key: shared::Key,
    room: shared::Room,
    provider: Mutex<Option<Arc<Provider>>>,
}

impl Sso {
    /// The provider of these settings; what is known of it goes when they change.
    fn provider(&self, settings: Settings) -> Arc<Provider> {
        let mut kept = self.provider.lock();
        match &*kept {
            Some(known) if known.settings == settings => known.clone(),
            _ => kept.insert(Arc::new(Provider::new(settings))).clone(),
        }
    }
}

impl Identity {
    fn provider(&self) -> Result<Arc<Provider>, Error> {
        let none = || Error::Missing("single sign-on on this server".to_owned());
        let config = self.0.auth_configs.get(&ObjectKey::cluster_wide(oidc::PROVIDER)).ok_or_else(none)?;
        match Settings::of(&config) {
            Ok(settings) => Ok(self.0.sso.provider(settings.ok_or_else(none)?)),
            Err(error) => {
                tracing::warn!(%error, "the AuthConfig {} cannot be used", oidc::PROVIDER);
                Err(Error::Missing(
                    "single sign-on on this server that can be used; its log says why".to_owned(),
                ))
            }
        }
    }

    /// Whether people can log in at a provider.
    pub fn has_sso(&self) -> bool {
        self.provider().is_ok()
    }

    /// Begins a login. `redirect` is where the provider sends people back to, unless the configuration says so.
    pub async fn begin_sso(&self, redirect: &str, back: Back) -> Result<Begun, Error> {
        let provider = self.provider()?;
        let random = |error: RandomError| Error::Internal(error.to_string());
        let seal = self.seal().await?;
        let redirect = match provider.settings.redirect.as_str() {
            "" => redirect.to_owned(),
            told => told.to_owned(),
        };
        let pending = Pending::new(redirect, back, self.0.now()).map_err(random)?;
        let location = provider.login_url(&pending).await.map_err(|error| refused(&error))?;
        Ok(Begun { location, cookie: seal.close(&pending).map_err(random)? })
    }

    /// Ends a login that came back with a state and a code, in the browser with the cookie it began with.
    pub async fn finish_sso(
        &self,
        cookie: &str,
        state: &str,
        code: &str,
        address: IpAddr,
    ) -> Result<Finished, Error> {
        let shared = &self.0;
        shared.throttle.enter_from(address).map_err(Error::TooOften)?;
        let pending = self.open(cookie).await?.filter(|pending| pending.comes_back(state, shared.now()));
        let pending = pending.ok_or(Error::NotBegun)?;
        if !self.first(Once::Login, &pending.state, pending.until).await? {
            return Err(Error::NotBegun);
        }
        let provider = self.provider()?;
        let secret = self.client_secret(&provider.settings).await?;
        let profile = provider.profile(&pending, code, &secret, shared.now()).await;
        let profile = profile.map_err(|error| {
            tracing::warn!(%address, error = %Chain(&error), "a login at the provider does not count");
            Error::Wrong
        })?;
        let user = self.person(&profile, &provider.settings).await?;
        shared.throttle.succeeded_from(address);
        match pending.back {
            Back::Page(page) => {
                let issued = self.issue_for(&profile, &user.name_any(), "", 0, address).await?;
                Ok(Finished::Session { issued: Box::new(issued), page })
            }
            Back::Program { port, state, challenge } => {
                let person = profile.display_name.clone();
                let until = (shared.now() + REDEMPTION).as_second();
                let internal = |error: &dyn std::error::Error| Error::Internal(error.to_string());
                let code = random().map_err(|error| internal(&error))?;
                let waiting = serde_json::to_vec(&Waiting { challenge, profile });
                let waiting = waiting.map_err(|error| internal(&error))?;
                self.keep(Once::Code, &code, until, waiting).await?;
                Ok(Finished::Program { port, state, code, person })
            }
        }
    }

    /// A token for a program that was given a code.
    pub async fn redeem_sso(
        &self,
        code: &str,
        verifier: &str,
        description: &str,
        ttl: i64,
        address: IpAddr,
    ) -> Result<Issued, Error> {
        let shared = &self.0;
        shared.throttle.enter_from(address).map_err(Error::TooOften)?;
        // A code is good for one attempt.
        let waiting = self.take(Once::Code, code).await?;
        let waiting: Option<Waiting> = waiting.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Waiting { challenge: told, profile } = waiting.ok_or(Error::Wrong)?;
        if !bool::from(challenge(verifier).as_bytes().ct_eq(told.as_bytes())) {
            return Err(Error::Wrong);
        }
        let provider = self.provider()?;
        let user = self.person(&profile, &provider.settings).await?;
        shared.throttle.succeeded_from(address);
        self.issue_for(&profile, &user.name_any(), description, ttl, address).await
    }

    async fn issue_for(
        &self,
        profile: &Profile,
        user: &str,
        description: &str,
        ttl: i64,
        address: IpAddr,
    ) -> Result<Issued, Error> {
        let groups = profile.group_principals();
        self.refresh_groups(user, &groups).await?;
        let origin = Origin { provider: oidc::PROVIDER.to_owned(), principal: profile.principal(), groups };
        let new = NewToken { user, kind: token_kind::SESSION, description, ttl, cluster: "", parent: None };
        let issued = self.issue_from(&new, Some(origin), Some(&Seen { address, user_agent: "" })).await?;
        tracing::info!(user, %address, token = issued.token.name_any(), "a login at the provider");
        Ok(issued)
    }

    async fn client_secret(&self, settings: &Settings) -> Result<String, Error> {
        let reference = settings.secret.strip_prefix(GLOBAL_DATA).and_then(|rest| rest.strip_prefix(':'));
        let Some(name) = reference else { return Ok(settings.secret.clone()) };
        let secrets: Api<Secret> = Api::namespaced(self.0.ctx.client.clone(), GLOBAL_DATA);
        let secret = secrets.get(name).await;
        let secret = secret.map_err(|source| Error::api("read the secret", &settings.secret, source))?;
        let bytes = secret.data.and_then(|mut data| data.remove(oidc::SECRET_KEY)).map(|bytes| bytes.0);
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| Error::Internal(format!("secret {} has no {}", settings.secret, oidc::SECRET_KEY)))
    }
}

fn refused(error: &ProviderError) -> Error {
    tracing::warn!(error = %Chain(error), "a login at the provider cannot begin");
    Error::Unreachable("the authentication provider cannot be used now; the server's log says why".to_owned())
}
