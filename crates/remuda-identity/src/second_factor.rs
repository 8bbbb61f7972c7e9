//! A second factor at login with a password: one-time codes by time (RFC 6238), and recovery codes.
//!
//! What is stored is a Secret named like its User, in a namespace of its own: the secret both sides share, the
//! step of the last code that was used, and hashes of the recovery codes. It is replaced by whoever has read it
//! last and only by them, so that of two logins with the same code one fails, also at different servers.
//!
//! Logins at an authentication provider are not asked for one: the provider does that. Tokens are not either.

mod stored;
mod totp;

use std::net::IpAddr;

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use remuda_api::management::User;
use remuda_auth::{attributes::Attributes, bearer, identity};
use remuda_control::ObjectKey;
use remuda_names::identity::{group, second_factor, setting};

use self::stored::Factor;
use crate::{Error, Identity};

/// Two logins of one user at the same moment: the second tries again with what the first left.
const ATTEMPTS: usize = 3;

/// Who needs one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Off,
    Administrators,
    All,
}

impl Policy {
    /// What a setting says; nothing if it says something else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "off" => Some(Self::Off),
            "administrators" => Some(Self::Administrators),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

/// What is shown once, to be put into an authenticator.
pub struct Enrolment {
    /// `otpauth://…`, as authenticators read it.
    pub uri: String,
    /// The secret in it, to be typed.
    pub secret: String,
}

impl std::fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Enrolment")
    }
}

/// How a user stands with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecondFactorState {
    pub enrolled: bool,
    pub recovery_codes_left: usize,
    /// The server demands one of this user.
    pub required: bool,
}

/// What a login found out about the second factor.
pub(crate) enum Passed {
    /// Nothing is asked for, or it was right.
    Yes,
    /// It was enrolled with this login; the recovery codes are shown once.
    Enrolled(Vec<String>),
}

impl Identity {
    /// Judges the second factor of a user whose password was right.
    pub(crate) async fn second_factor(
        &self,
        user: &User,
        code: Option<&str>,
        address: IpAddr,
    ) -> Result<Passed, Error> {
        let name = user.name_any();
        let throttle = &self.0.throttle;
        match (self.factor(&name).await?, code) {
            (Some((_, factor)), None) if factor.confirmed => {
                // The password was right and nothing was guessed.
                throttle.forgive(&user.username, address);
                Err(Error::SecondFactorRequired)
            }
            (Some((_, factor)), Some(code)) if factor.confirmed => {
                self.use_code(user, code).await.map(|_| Passed::Yes)
            }
            (found, code) => {
                if !self.needs_second_factor(&name) {
                    return Ok(Passed::Yes);
                }
                match code.filter(|_| found.is_some()) {
                    Some(code) => self.confirm(user, code).await.map(Passed::Enrolled),
                    None => {
                        let enrolment = self.enrol(user).await?;
                        throttle.forgive(&user.username, address);
                        Err(Error::SecondFactorEnrolmentRequired(Box::new(enrolment)))
                    }
                }
            }
        }
    }

    /// Begins to give a user a second factor, who proves that they are who they say. It counts once a code of
    /// it is [confirmed](Identity::confirm_second_factor).
    pub async fn enrol_second_factor(
        &self,
        user: &str,
        password: &str,
        address: IpAddr,
    ) -> Result<Enrolment, Error> {
        let user = self.with_password(user, password, address).await?;
        self.enrol(&user).await
    }

    /// Ends the enrolment with a code of the authenticator. Gives the recovery codes, which are told once.
    pub async fn confirm_second_factor(&self, user: &str, code: &str) -> Result<Vec<String>, Error> {
        let Some(user) = self.user(user) else { return Err(Error::Missing(format!("user {user}"))) };
        self.confirm(&user, code).await
    }

    /// A user gives up their second factor, with their password and a code of it.
    pub async fn remove_second_factor(
        &self,
        user: &str,
        password: &str,
        code: &str,
        address: IpAddr,
    ) -> Result<(), Error> {
        let user = self.with_password(user, password, address).await?;
        self.use_code(&user, code).await?;
        self.reset_second_factor(&user.name_any()).await
    }

    /// Takes the second factor of a user away. Whoever calls has made sure that it may be taken.
    pub async fn reset_second_factor(&self, user: &str) -> Result<(), Error> {
        match self.factors().delete(user, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => Err(Error::api("delete the second factor of", user, source)),
        }
    }

    pub async fn second_factor_state(&self, user: &str) -> Result<SecondFactorState, Error> {
        let factor = self.factor(user).await?.map(|(_, factor)| factor).filter(|factor| factor.confirmed);
        Ok(SecondFactorState {
            enrolled: factor.is_some(),
            recovery_codes_left: factor.map_or(0, |factor| factor.recovery.len()),
            required: self.needs_second_factor(user),
        })
    }

    /// Whether the setting demands one of this user. A value that cannot be read demands it of all.
    fn needs_second_factor(&self, user: &str) -> bool {
        let setting = self.0.settings.get(&ObjectKey::cluster_wide(setting::SECOND_FACTOR));
        let policy = setting.map_or(Some(Policy::Off), |setting| Policy::parse(setting.effective()));
        match policy.unwrap_or(Policy::All) {
            Policy::Off => false,
            Policy::All => true,
            Policy::Administrators => {
                let groups = [identity::GROUP_AUTHENTICATED, group::AUTHENTICATED];
                let everything = Attributes::resource("*", "*", "*");
                self.0.policy.authorize(&identity::User::new(user, groups), &everything).allowed
            }
        }
    }

    async fn with_password(
        &self,
        user: &str,
        password: &str,
        address: IpAddr,
    ) -> Result<std::sync::Arc<User>, Error> {
        let Some(user) = self.user(user) else { return Err(Error::Missing(format!("user {user}"))) };
        self.0.throttle.enter(&user.username, address).map_err(Error::TooOften)?;
        if !self.knows_password(Some(&user), password).await? {
            return Err(Error::Wrong);
        }
        self.0.throttle.succeeded(&user.username, address);
        Ok(user)
    }

    async fn enrol(&self, user: &User) -> Result<Enrolment, Error> {
        let name = user.name_any();
        let known = self.factor(&name).await?;
        if known.as_ref().is_some_and(|(_, factor)| factor.confirmed) {
            return Err(Error::SecondFactorEnrolled);
        }
        let factor = Factor::new().map_err(|error| Error::Internal(error.to_string()))?;
        let enrolment = Enrolment {
            uri: totp::uri(&factor.secret, &user.username),
            secret: totp::base32(&factor.secret),
        };
        self.namespace(second_factor::NAMESPACE).await?;
        self.write_factor(user, known.map(|(version, _)| version), &factor).await?;
        Ok(enrolment)
    }

    async fn confirm(&self, user: &User, code: &str) -> Result<Vec<String>, Error> {
        let name = user.name_any();
        let known = self.factor(&name).await?;
        let Some((version, factor)) = known.filter(|(_, factor)| !factor.confirmed) else {
            return Err(Error::Missing("second factor that waits for a code; begin to enrol one".to_owned()));
        };
        self.0.throttle.enter_code(&name).map_err(Error::TooOften)?;
        let Some(step) =
            totp::matching_step(&factor.secret, code, self.0.now().as_second(), factor.last_step)
        else {
            return Err(Error::SecondFactorWrong);
        };
        let random = |error: remuda_auth::tokens::RandomError| Error::Internal(error.to_string());
        let codes = stored::recovery_codes().map_err(random)?;
        let hashes: Result<Vec<String>, _> =
            codes.iter().map(|code| bearer::hash(&stored::normal(code))).collect();
        let factor = Factor { confirmed: true, last_step: step, recovery: hashes.map_err(random)?, ..factor };
        self.write_factor(user, Some(version), &factor).await?;
        self.0.throttle.code_succeeded(&name);
        tracing::info!(user = name, "a second factor is enrolled");
        Ok(codes)
    }

    /// Uses up a code; each is good once.
    async fn use_code(&self, user: &User, code: &str) -> Result<(), Error> {
        let name = user.name_any();
        if totp::is_code(code) {
            // Six digits can be guessed by many together; recovery codes cannot, and stay good meanwhile.
            self.0.throttle.enter_code(&name).map_err(Error::TooOften)?;
        }
        for _ in 0..ATTEMPTS {
            let known = self.factor(&name).await?.filter(|(_, factor)| factor.confirmed);
            let used = known.and_then(|(version, factor)| {
                let used = factor.with_code_used(code, self.0.now().as_second())?;
                Some((version, used))
            });
            let Some((version, used)) = used else {
                tracing::warn!(user = name, "a login failed at its second factor");
                return Err(Error::SecondFactorWrong);
            };
            match self.write_factor(user, Some(version), &used).await {
                Err(Error::Api { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 409) =>
                    {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.0.throttle.code_succeeded(&name);
                    return Ok(());
                }
            }
        }
        Err(Error::SecondFactorWrong)
    }

    fn factors(&self) -> Api<k8s_openapi::api::core::v1::Secret> {
        Api::namespaced(self.0.ctx.client.clone(), second_factor::NAMESPACE)
    }

    /// The factor of a user, with the version it was read at.
    async fn factor(&self, user: &str) -> Result<Option<(String, Factor)>, Error> {
        let secret = self.factors().get_opt(user).await;
        let secret = secret.map_err(|source| Error::api("read the second factor of", user, source))?;
        let Some(secret) = secret else { return Ok(None) };
        let version = secret.resource_version().unwrap_or_default();
        match Factor::read(&secret) {
            Some(factor) => Ok(Some((version, factor))),
            // To go on as if there were none would let in whoever can damage it.
            None => Err(Error::Internal(format!("the second factor of {user} cannot be read; reset it"))),
        }
    }

    async fn write_factor(&self, user: &User, version: Option<String>, factor: &Factor) -> Result<(), Error> {
        let mut secret = factor.secret_of(user);
        let name = user.name_any();
        let written = match version {
            None => self.factors().create(&PostParams::default(), &secret).await,
            Some(version) => {
                secret.metadata.resource_version = Some(version);
                self.factors().replace(&name, &PostParams::default(), &secret).await
            }
        };
        written.map(drop).map_err(|source| Error::api("store the second factor of", &name, source))
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_one_of_three_words() {
        assert_eq!(Policy::parse(""), Some(Policy::Off));
        assert_eq!(Policy::parse("off"), Some(Policy::Off));
        assert_eq!(Policy::parse("administrators"), Some(Policy::Administrators));
        assert_eq!(Policy::parse("all"), Some(Policy::All));
        assert_eq!(Policy::parse("none"), None);
    }
}
