//! Login at an OpenID provider.
//!
//! A browser is sent there and comes back with a code (authorization code flow with PKCE, state and nonce); the
//! code becomes an ID token, and that a User and a token of ours. A program logs somebody in through their
//! browser: it waits at a port of the same machine, is given a code of ours there and redeems it with a secret
//! only it knows.

mod config;
mod http;
mod pending;
mod person;
mod profile;
mod provider;

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use remuda_auth::tokens::RandomError;
use remuda_control::{Chain, ObjectKey};
use remuda_names::{
    identity::{oidc, token_kind},
    rancher::name::GLOBAL_DATA,
};
use subtle::ConstantTimeEq;

pub use self::pending::Back;
use self::{
    config::Settings,
    pending::{Pending, Seal, challenge, random},
    profile::Profile,
    provider::{Provider, ProviderError},
};
use crate::{Error, Identity, Issued, NewToken, account::Origin};

/// For a program to redeem its code.
const REDEMPTION: SignedDuration = SignedDuration::from_secs(60);
/// Codes that wait for it.
const MOST_CODES: usize = 1000;

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
struct Waiting {
    challenge: String,
    profile: Profile,
    until: Timestamp,
}

/// What logins at a provider need.
pub(crate) struct Sso {
    seal: Seal,
    provider: Mutex<Option<Arc<Provider>>>,
    codes: Mutex<HashMap<String, Waiting>>,
}

impl Sso {
    pub(crate) fn new() -> Result<Self, RandomError> {
        Ok(Self { seal: Seal::new()?, provider: Mutex::default(), codes: Mutex::default() })
    }

    /// The provider of these settings; what is known of it goes when they change.
    fn provider(&self, settings: Settings) -> Arc<Provider> {
        let mut kept = self.provider.lock();
        match &*kept {
            Some(known) if known.settings == settings => known.clone(),
            _ => kept.insert(Arc::new(Provider::new(settings))).clone(),
        }
    }

    fn keep(&self, waiting: Waiting, now: Timestamp) -> Result<String, Error> {
        let code = random().map_err(|error| Error::Internal(error.to_string()))?;
        let mut codes = self.codes.lock();
        codes.retain(|_, waiting| waiting.until > now);
        if codes.len() >= MOST_CODES {
            return Err(Error::Internal("too many programs log in at once".to_owned()));
        }
        codes.insert(challenge(&code), waiting);
        Ok(code)
    }

    /// A code is good for one attempt.
    fn redeem(&self, code: &str, verifier: &str, now: Timestamp) -> Option<Profile> {
        let waiting = self.codes.lock().remove(&challenge(code))?;
        let same = challenge(verifier).as_bytes().ct_eq(waiting.challenge.as_bytes());
        (bool::from(same) && now < waiting.until).then_some(waiting.profile)
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
        let redirect = match provider.settings.redirect.as_str() {
            "" => redirect.to_owned(),
            told => told.to_owned(),
        };
        let pending = Pending::new(redirect, back, self.0.now()).map_err(random)?;
        let location = provider.login_url(&pending).await.map_err(|error| refused(&error))?;
        Ok(Begun { location, cookie: self.0.sso.seal.close(&pending).map_err(random)? })
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
        let Some(pending) = shared.sso.seal.open(cookie, state, shared.now()) else {
            return Err(Error::NotBegun);
        };
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
                let until = shared.now() + REDEMPTION;
                let code = shared.sso.keep(Waiting { challenge, profile, until }, shared.now())?;
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
        let profile = shared.sso.redeem(code, verifier, shared.now()).ok_or(Error::Wrong)?;
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
        let issued = self.issue_from(&new, Some(origin)).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-16T04:00:00Z".parse().unwrap()
    }

    fn waiting() -> Waiting {
        let profile = Profile {
            subject: "7".to_owned(),
            display_name: String::new(),
            login_name: String::new(),
            groups: Vec::new(),
        };
        Waiting { challenge: challenge("secret"), profile, until: now() + REDEMPTION }
    }

    #[test]
    fn a_program_redeems_its_code_once_and_with_its_secret() {
        let sso = Sso::new().unwrap();
        let code = sso.keep(waiting(), now()).unwrap();
        assert!(sso.redeem("guess", "secret", now()).is_none());
        assert_eq!(sso.redeem(&code, "secret", now()).unwrap().subject, "7");
        assert!(sso.redeem(&code, "secret", now()).is_none(), "again");
        let code = sso.keep(waiting(), now()).unwrap();
        assert!(sso.redeem(&code, "guess", now()).is_none());
        assert!(sso.redeem(&code, "secret", now()).is_none(), "one attempt");
        let code = sso.keep(waiting(), now()).unwrap();
        assert!(sso.redeem(&code, "secret", now() + REDEMPTION).is_none(), "late");
    }

    #[test]
    fn codes_that_nobody_redeems_do_not_pile_up() {
        let sso = Sso::new().unwrap();
        for _ in 0..MOST_CODES {
            sso.keep(waiting(), now()).unwrap();
        }
        assert!(sso.keep(waiting(), now()).is_err());
        assert!(sso.keep(waiting(), now() + REDEMPTION).is_ok());
        assert_eq!(sso.codes.lock().len(), 1);
    }
}
