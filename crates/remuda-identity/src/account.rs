//! What people do with their accounts: log in, make and revoke tokens, change passwords.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_api::management::{GlobalRoleBinding, Principal, Token, User};
use remuda_auth::bearer;
use remuda_control::{ObjectKey, Retry, Retryable, write::owner_reference};
use remuda_names::{
    identity::{
        self as names, FIRST_USER, FIRST_USERNAME, LOCAL_PRINCIPAL, LOCAL_PROVIDER, PASSWORD_KEY,
        PASSWORDS_NAMESPACE, annotation, role, setting, token_kind,
    },
    rancher::label,
};
use serde_json::{Value, json};

use crate::{
    identity::{BY_USER, BY_USERNAME, HEARD, Identity},
    password::{self, Unfit},
    second_factor::{Enrolment, Passed},
    tokens,
};

/// Minutes tokens are good for at most, unless a setting says otherwise.
const MAX_MINUTES: i64 = 129_600;
/// Minutes of the token in a kubeconfig.
const KUBECONFIG_MINUTES: i64 = 43_200;
/// Minutes of a session.
const SESSION_MINUTES: i64 = 960;
/// Letters that are kept of what a program says it is.
const LONGEST_AGENT: usize = 256;
/// Letters of a password nobody chose.
const MADE_UP: usize = 24;
/// Stands in for the hash of users who have none, so that they cannot be told from others by the time it takes.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm9ibw$CJ6yPhN1kzDwIz2Yb2sQzLkX8fWc0rVJvGqk4sW0Hq8";

/// Why something with an account cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Which of the two is wrong is nobody's business.
    #[error("authentication failed")]
    Wrong,
    #[error("too many attempts; try again in {} s", .0.as_secs().max(1))]
    TooOften(Duration),
    #[error("another password must be chosen; send it as newPassword")]
    MustChange,
    /// The password was right.
    #[error("a code of the second factor is needed; send it as otp")]
    SecondFactorRequired,
    #[error("the code is wrong, was used before or is over; send another as otp")]
    SecondFactorWrong,
    #[error(
        "a second factor must be enrolled; put the secret into an authenticator and send a code of it as otp"
    )]
    SecondFactorEnrolmentRequired(Box<Enrolment>),
    #[error("a second factor is enrolled already; remove it first")]
    SecondFactorEnrolled,
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// Known, and not welcome.
    #[error("you may not log in: {0}")]
    NotAllowed(String),
    #[error("this login did not begin in this browser, has been used, or took too long; begin again")]
    NotBegun,
    #[error("{0}")]
    Unreachable(String),
    #[error("there is no {0}")]
    Missing(String),
    #[error("{doing} {what}")]
    Api {
        doing: &'static str,
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error(transparent)]
    Kit(#[from] remuda_control::Error),
    #[error("{0}")]
    Internal(String),
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Self::Api { source, .. } => source.retry(),
            Self::Kit(error) => error.retry(),
            _ => Retry::Transient,
        }
    }
}

impl Error {
    pub(crate) fn api(doing: &'static str, what: &str, source: kube::Error) -> Self {
        Self::Api { doing, what: what.to_owned(), source: Box::new(source) }
    }
}

/// The first user, and the only time their password is told.
#[derive(Clone)]
pub struct FirstUser {
    pub username: String,
    pub password: String,
}

impl std::fmt::Debug for FirstUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FirstUser({})", self.username)
    }
}

/// Somebody who wants to log in.
pub struct Attempt<'a> {
    pub username: &'a str,
    pub password: &'a str,
    /// The password to have from now on, for those who must choose another.
    pub new_password: Option<&'a str>,
    /// A code of the second factor, or a recovery code.
    pub otp: Option<&'a str>,
    pub address: IpAddr,
    /// What the program says it is.
    pub user_agent: &'a str,
    /// What the token is for: see [`token_kind`].
    pub kind: &'a str,
    pub description: &'a str,
    /// Milliseconds; 0 is what is usual, less is as long as possible.
    pub ttl: i64,
}

/// A token to be made.
pub struct NewToken<'a> {
    /// Name of the User.
    pub user: &'a str,
    pub kind: &'a str,
    pub description: &'a str,
    /// Milliseconds; 0 is what is usual, less is as long as possible.
    pub ttl: i64,
    /// Name of the management Cluster it is good for; empty is everything.
    pub cluster: &'a str,
    /// The token it is made with, if it is one of the same user: they are in the same groups with both.
    pub parent: Option<&'a str>,
}

/// Where a login came from.
pub(crate) struct Seen<'a> {
    pub(crate) address: IpAddr,
    pub(crate) user_agent: &'a str,
}

/// Where somebody was known from before a token was made.
pub(crate) struct Origin {
    pub(crate) provider: String,
    pub(crate) principal: Principal,
    pub(crate) groups: Vec<Principal>,
}

/// A token that was made, and the only time its key is told.
pub struct Issued {
    pub token: Token,
    /// `name:key`.
    pub bearer: String,
    /// Of a second factor that was enrolled with this login; they are told once.
    pub recovery_codes: Vec<String>,
}

impl Issued {
    pub fn expires(&self) -> Option<Timestamp> {
        tokens::expires(&self.token)
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Issued({})", self.token.name_any())
    }
}

/// What settings of people are unless they are set.
pub fn setting_defaults() -> Vec<(&'static str, String)> {
    vec![
        (setting::TOKEN_MAX_TTL, MAX_MINUTES.to_string()),
        (setting::TOKEN_DEFAULT_TTL, MAX_MINUTES.to_string()),
        (setting::SESSION_TTL, SESSION_MINUTES.to_string()),
        (setting::KUBECONFIG_DEFAULT_TTL, KUBECONFIG_MINUTES.to_string()),
        (setting::KUBECONFIG_MAX_TTL, MAX_MINUTES.to_string()),
        (setting::PASSWORD_LENGTH, password::SHORTEST.to_string()),
        (setting::SECOND_FACTOR, "off".to_owned()),
    ]
}

impl Identity {
    /// A session or token for somebody who knows their password.
    pub async fn login(&self, attempt: &Attempt<'_>) -> Result<Issued, Error> {
        let shared = &self.0;
        shared.throttle.enter(attempt.username, attempt.address).map_err(Error::TooOften)?;
        let user = self.by_username(attempt.username);
        let right = self.knows_password(user.as_deref(), attempt.password).await?;
        let Some(user) = user.filter(|user| right && user.enabled.unwrap_or(true)) else {
            tracing::warn!(username = attempt.username, address = %attempt.address, "a login failed");
            return Err(Error::Wrong);
        };
        let new = attempt.new_password.filter(|_| user.must_change_password);
        if user.must_change_password {
            // Before a code is used up: each is good once.
            let fit = match new {
                None => Err(Error::MustChange),
                Some(new) => self.is_fit(&user, attempt.password, new),
            };
            if let Err(error) = fit {
                shared.throttle.forgive(attempt.username, attempt.address);
                return Err(error);
            }
        }
        let passed = self.second_factor(&user, attempt.otp, attempt.address).await?;
        shared.throttle.succeeded(attempt.username, attempt.address);
        if let Some(new) = new {
            self.choose_password(&user, attempt.password, new).await?;
        }
        let token = NewToken {
            user: &user.name_any(),
            kind: attempt.kind,
            description: attempt.description,
            ttl: attempt.ttl,
            cluster: "",
            parent: None,
        };
        let seen = Seen { address: attempt.address, user_agent: attempt.user_agent };
        let mut issued = self.issue_from(&token, None, Some(&seen)).await?;
        if let Passed::Enrolled(codes) = passed {
            issued.recovery_codes = codes;
        }
        tracing::info!(user = token.user, address = %attempt.address, token = issued.token.name_any(), "a login");
        Ok(issued)
    }

    /// Makes a token. Whoever calls has made sure that it may be made.
    pub async fn issue(&self, new: &NewToken<'_>) -> Result<Issued, Error> {
        let parent = new.parent.and_then(|name| self.token(name));
        let origin = parent.filter(|parent| tokens::owner(parent) == new.user).map(|parent| Origin {
            provider: parent.auth_provider.clone(),
            principal: parent.user_principal.clone(),
            groups: parent.group_principals.clone(),
        });
        self.issue_from(new, origin, None).await
    }

    /// As [`Identity::issue`], for somebody who is known from elsewhere.
    pub(crate) async fn issue_from(
        &self,
        new: &NewToken<'_>,
        origin: Option<Origin>,
        seen: Option<&Seen<'_>>,
    ) -> Result<Issued, Error> {
        let shared = &self.0;
        let user = self.user_by_now(new.user).await?;
        let origin = origin.unwrap_or_else(|| Origin {
            provider: LOCAL_PROVIDER.to_owned(),
            principal: principal(&user),
            groups: Vec::new(),
        });
        let random = |error: remuda_auth::tokens::RandomError| Error::Internal(error.to_string());
        let prefix = match new.kind {
            token_kind::KUBECONFIG => format!("kubeconfig-{}", new.user),
            _ => "token-".to_owned(),
        };
        let name = format!("{prefix}{}", bearer::letters(10).map_err(random)?);
        let secret = bearer::generate().map_err(random)?;
        let ttl = shared.ttl(new.ttl, new.kind);
        let mut token = Token {
            token: bearer::hash(&secret).map_err(random)?,
            user_id: new.user.to_owned(),
            auth_provider: origin.provider,
            group_principals: origin.groups,
            ttl,
            is_derived: new.kind != token_kind::SESSION,
            description: new.description.chars().take(1024).collect(),
            cluster_name: new.cluster.to_owned(),
            enabled: Some(true),
            user_principal: origin.principal,
            ..Token::named(&name)
        };
        if ttl > 0
            && let Ok(expires) = shared.now().checked_add(SignedDuration::from_millis(ttl))
        {
            token.expires_at = remuda_base::rfc3339(expires.as_second());
        }
        token.labels_mut().insert(label::TOKEN_USER_ID.to_owned(), new.user.to_owned());
        token.labels_mut().insert(label::TOKEN_KIND.to_owned(), new.kind.to_owned());
        token.annotations_mut().insert(annotation::TOKEN_HASHED.to_owned(), "true".to_owned());
        if let Some(seen) = seen {
            let plain = |text: &str| -> String {
                text.chars().filter(|letter| !letter.is_control()).take(LONGEST_AGENT).collect()
            };
            let facts = [
                (annotation::LOGIN_ADDRESS, seen.address.to_string()),
                (annotation::LOGIN_USER_AGENT, plain(seen.user_agent)),
            ];
            for (name, fact) in facts.into_iter().filter(|(_, fact)| !fact.is_empty()) {
                token.annotations_mut().insert(name.to_owned(), fact);
            }
        }
        // Tokens go with their user.
        token.metadata.owner_references = owner_reference(&*user, &()).ok().map(|mut owner| {
            owner.controller = None;
            owner.block_owner_deletion = None;
            vec![owner]
        });
        let api: Api<Token> = Api::all(shared.ctx.client.clone());
        let token = api.create(&PostParams::default(), &token).await;
        let token = token.map_err(|source| Error::api("create the token", &name, source))?;
        // It is to be good when it is handed out.
        shared.token_cache.wait_for(&token.resource_version().unwrap_or_default(), HEARD).await;
        Ok(Issued { token, bearer: format!("{name}:{secret}"), recovery_codes: Vec::new() })
    }

    /// Ends a token and what is under way with it.
    pub async fn revoke(&self, name: &str) -> Result<(), Error> {
        let shared = &self.0;
        let api: Api<Token> = Api::all(shared.ctx.client.clone());
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return Err(Error::Missing(format!("token {name}")));
            }
            Err(source) => return Err(Error::api("delete the token", name, source)),
        }
        shared.tokens.remove_token(name);
        Ok(())
    }

    /// Tokens of somebody, the newest first.
    pub fn tokens_of(&self, user: &str) -> Vec<Arc<Token>> {
        let mut tokens = self.0.token_cache.by_index(BY_USER, user);
        tokens.sort_by_key(|token| {
            std::cmp::Reverse(token.metadata.creation_timestamp.clone().map(|time| time.0))
        });
        tokens
    }

    pub fn tokens(&self) -> Vec<Arc<Token>> {
        self.0.token_cache.list()
    }

    pub fn token(&self, name: &str) -> Option<Arc<Token>> {
        self.0.token_cache.get(&ObjectKey::cluster_wide(name))
    }

    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.0.users.get(&ObjectKey::cluster_wide(name))
    }

    /// As [`Identity::user`], also if the cache has not heard of them yet.
    async fn user_by_now(&self, name: &str) -> Result<Arc<User>, Error> {
        if let Some(user) = self.user(name) {
            return Ok(user);
        }
        let users: Api<User> = Api::all(self.0.ctx.client.clone());
        let found = users.get_opt(name).await.map_err(|source| Error::api("read user", name, source))?;
        found.map(Arc::new).ok_or_else(|| Error::Missing(format!("user {name}")))
    }

    /// Somebody by their name at login. Nobody if several have it.
    pub fn by_username(&self, username: &str) -> Option<Arc<User>> {
        if username.is_empty() {
            return None;
        }
        let mut found = self.0.users.by_index(BY_USERNAME, &username.to_lowercase());
        found.retain(|user| user.metadata.deletion_timestamp.is_none());
        if found.len() > 1 {
            tracing::warn!(username, "several users have this name, and none of them can log in");
            return None;
        }
        found.pop()
    }

    /// Somebody chooses another password. All their sessions end; `keep` does not.
    pub async fn change_password(
        &self,
        user: &str,
        current: &str,
        new: &str,
        address: IpAddr,
        keep: Option<&str>,
    ) -> Result<(), Error> {
        let Some(user) = self.user(user) else { return Err(Error::Missing(format!("user {user}"))) };
        let shared = &self.0;
        shared.throttle.enter(&user.username, address).map_err(Error::TooOften)?;
        if !self.knows_password(Some(&user), current).await? {
            return Err(Error::Wrong);
        }
        shared.throttle.succeeded(&user.username, address);
        self.choose_password(&user, current, new).await?;
        self.end_tokens(&user.name_any(), keep, false).await.map(drop)
    }

    /// Ends the sessions of a user but one, and with `all` the tokens they made too. Tells how many ended.
    pub async fn revoke_others(&self, user: &str, keep: Option<&str>, all: bool) -> Result<usize, Error> {
        self.end_tokens(user, keep, all).await
    }

    /// An administrator has a password made up for somebody. All their sessions end.
    pub async fn make_up_password(&self, user: &str, must_change: bool) -> Result<String, Error> {
        let length = MADE_UP.max(self.shortest());
        let password = bearer::letters(length).map_err(|error| Error::Internal(error.to_string()))?;
        self.set_password(user, &password, must_change).await?;
        Ok(password)
    }

    /// An administrator gives somebody a password. All their sessions end.
    pub async fn set_password(&self, user: &str, new: &str, must_change: bool) -> Result<(), Error> {
        let user = self.user_by_now(user).await?;
        password::check(new, &user.username, self.shortest())?;
        self.store_password(&user, self.hash(new).await?).await?;
        self.set_must_change(&user, must_change).await?;
        self.end_tokens(&user.name_any(), None, false).await.map(drop)
    }

    fn is_fit(&self, user: &User, current: &str, new: &str) -> Result<(), Error> {
        password::check(new, &user.username, self.shortest())?;
        if new == current {
            return Err(Unfit::Same.into());
        }
        Ok(())
    }

    async fn choose_password(&self, user: &User, current: &str, new: &str) -> Result<(), Error> {
        self.is_fit(user, current, new)?;
        self.store_password(user, self.hash(new).await?).await?;
        self.set_must_change(user, false).await
    }

    fn shortest(&self) -> usize {
        let number = self.0.number(setting::PASSWORD_LENGTH, password::SHORTEST as i64);
        usize::try_from(number).unwrap_or(password::SHORTEST)
    }

    async fn set_must_change(&self, user: &User, must: bool) -> Result<(), Error> {
        if user.must_change_password == must {
            return Ok(());
        }
        let users: Api<User> = Api::all(self.0.ctx.client.clone());
        let patch = Patch::Merge(json!({"mustChangePassword": must}));
        let patched = users.patch(&user.name_any(), &PatchParams::default(), &patch).await;
        let patched = patched.map_err(|source| Error::api("change the user", &user.name_any(), source))?;
        self.0.users.wait_for(&patched.resource_version().unwrap_or_default(), HEARD).await;
        Ok(())
    }

    async fn end_tokens(&self, user: &str, keep: Option<&str>, all: bool) -> Result<usize, Error> {
        let mut ended = 0;
        for token in self.tokens_of(user) {
            if (all || tokens::is_session(&token)) && keep != Some(token.name_any().as_str()) {
                match self.revoke(&token.name_any()).await {
                    Ok(()) => ended += 1,
                    Err(Error::Missing(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(ended)
    }

    async fn hash(&self, password: &str) -> Result<String, Error> {
        let password = password.to_owned();
        self.slowly(move || password::hash(&password))
            .await?
            .map_err(|error| Error::Internal(error.to_string()))
    }

    /// Runs what takes a processor for a while, a few at a time.
    async fn slowly<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        let _place = self.0.hashing.acquire().await.map_err(|error| Error::Internal(error.to_string()))?;
        tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))
    }

    pub(crate) async fn knows_password(&self, user: Option<&User>, password: &str) -> Result<bool, Error> {
        let stored = match user {
            Some(user) => self.stored_password(&user.name_any()).await?,
            None => None,
        };
        let known = stored.is_some();
        let (stored, password) = (stored.unwrap_or_else(|| NOBODY.to_owned()), password.to_owned());
        let right = self.slowly(move || password::verify(&password, &stored)).await?;
        Ok(known && right)
    }

    async fn stored_password(&self, user: &str) -> Result<Option<String>, Error> {
        let secret = self.passwords().get_opt(user).await;
        let secret = secret.map_err(|source| Error::api("read the password of", user, source))?;
        let bytes = secret.and_then(|secret| secret.data?.remove(PASSWORD_KEY)).map(|bytes| bytes.0);
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
    }

    fn passwords(&self) -> Api<Secret> {
        Api::namespaced(self.0.ctx.client.clone(), PASSWORDS_NAMESPACE)
    }

    async fn store_password(&self, user: &User, hash: String) -> Result<(), Error> {
        self.passwords_namespace().await?;
        let secret = password_secret(user, hash, false);
        let params = PatchParams::apply(&self.0.ctx.field_manager).force();
        let stored = self.passwords().patch(&user.name_any(), &params, &Patch::Apply(secret)).await;
        stored.map(drop).map_err(|source| Error::api("store the password of", &user.name_any(), source))
    }

    /// Whether a user still has the password that was told at the first start.
    pub async fn has_first_password(&self, user: &str) -> Result<bool, Error> {
        let found = self.passwords().get_metadata_opt(user).await;
        let found = found.map_err(|source| Error::api("read the password of", user, source))?;
        let marked = found.and_then(|found| found.annotations().get(annotation::FIRST_PASSWORD).cloned());
        Ok(marked.as_deref() == Some("true"))
    }

    async fn passwords_namespace(&self) -> Result<(), Error> {
        self.namespace(PASSWORDS_NAMESPACE).await
    }

    /// Makes a namespace of our own, if it is not there.
    pub(crate) async fn namespace(&self, name: &str) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(self.0.ctx.client.clone());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        match namespaces.create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(source) => Err(Error::api("create namespace", name, source)),
        }
    }

    /// The first user is made once, and never again: whoever removes it has made others. Of several servers
    /// that start together one tells the password.
    pub(crate) async fn ensure_first_user(&self) -> Result<Option<FirstUser>, Error> {
        let shared = &self.0;
        let users: Api<User> = Api::all(shared.ctx.client.clone());
        if !shared.users.is_empty() && self.user(FIRST_USER).is_none() {
            return Ok(None);
        }
        let mut user = User {
            username: FIRST_USERNAME.to_owned(),
            display_name: "Administrator".to_owned(),
            description: "Made at the first start".to_owned(),
            principal_ids: vec![format!("{LOCAL_PRINCIPAL}{FIRST_USER}")],
            enabled: Some(true),
            ..User::named(FIRST_USER)
        };
        user.labels_mut().insert(names::label::BOOTSTRAPPING.to_owned(), names::label::ADMIN_USER.to_owned());
        let user = match self.user(FIRST_USER) {
            Some(user) => (*user).clone(),
            None => match users.create(&PostParams::default(), &user).await {
                Ok(user) => user,
                Err(kube::Error::Api(status)) if status.code == 409 => users
                    .get(FIRST_USER)
                    .await
                    .map_err(|source| Error::api("read user", FIRST_USER, source))?,
                Err(source) => return Err(Error::api("create user", FIRST_USER, source)),
            },
        };
        // A server that died between the user and the password left a user nobody can be.
        if self.stored_password(FIRST_USER).await?.is_some() {
            return Ok(None);
        }
        let binding = GlobalRoleBinding {
            user_name: FIRST_USER.to_owned(),
            global_role_name: role::ADMIN.to_owned(),
            ..GlobalRoleBinding::named(&format!("globaladmin-{FIRST_USER}"))
        };
        let bindings: Api<GlobalRoleBinding> = Api::all(shared.ctx.client.clone());
        match bindings.create(&PostParams::default(), &binding).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(source) => return Err(Error::api("bind user", FIRST_USER, source)),
        }
        let random = |error: remuda_auth::tokens::RandomError| Error::Internal(error.to_string());
        let password = bearer::letters(MADE_UP).map_err(random)?;
        self.passwords_namespace().await?;
        let secret = password_secret(&user, self.hash(&password).await?, true);
        match self.passwords().create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(Some(FirstUser { username: FIRST_USERNAME.to_owned(), password })),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(source) => Err(Error::api("store the password of", FIRST_USER, source)),
        }
    }
}

fn password_secret(user: &User, hash: String, first: bool) -> Secret {
    let mut secret = Secret {
        data: Some(BTreeMap::from([(PASSWORD_KEY.to_owned(), ByteString(hash.into_bytes()))])),
        ..Secret::default()
    };
    secret.metadata.name = user.metadata.name.clone();
    secret.metadata.namespace = Some(PASSWORDS_NAMESPACE.to_owned());
    secret.metadata.annotations = Some(BTreeMap::from([
        (annotation::PASSWORD_HASH.to_owned(), "argon2id".to_owned()),
        (annotation::FIRST_PASSWORD.to_owned(), first.to_string()),
    ]));
    secret.metadata.owner_references = owner_reference(user, &()).ok().map(|mut owner| {
        owner.controller = None;
        owner.block_owner_deletion = None;
        vec![owner]
    });
    secret
}

/// The user as their provider has them.
pub fn principal(user: &User) -> Principal {
    let name = user.principal_ids.iter().find(|id| id.starts_with(LOCAL_PRINCIPAL)).cloned();
    let name = name.unwrap_or_else(|| format!("{LOCAL_PRINCIPAL}{}", user.name_any()));
    let other = serde_json::Map::from_iter([("metadata".to_owned(), json!({"name": name}))]);
    Principal {
        display_name: user.display_name.clone(),
        login_name: user.username.clone(),
        principal_type: "user".to_owned(),
        provider: LOCAL_PROVIDER.to_owned(),
        other,
    }
}

impl crate::identity::Shared {
    /// Milliseconds a token is good for; 0 is for ever.
    fn ttl(&self, wanted: i64, kind: &str) -> i64 {
        let max = match kind {
            token_kind::KUBECONFIG => self.number(setting::KUBECONFIG_MAX_TTL, MAX_MINUTES),
            // No login outlives the time of a session, whatever it asks for.
            token_kind::SESSION => least(
                self.number(setting::TOKEN_MAX_TTL, MAX_MINUTES),
                self.number(setting::SESSION_TTL, SESSION_MINUTES),
            ),
            _ => self.number(setting::TOKEN_MAX_TTL, MAX_MINUTES),
        };
        let default = match kind {
            token_kind::SESSION => self.number(setting::SESSION_TTL, SESSION_MINUTES),
            token_kind::KUBECONFIG => self.number(setting::KUBECONFIG_DEFAULT_TTL, KUBECONFIG_MINUTES),
            _ => self.number(setting::TOKEN_DEFAULT_TTL, MAX_MINUTES),
        };
        ttl(wanted, default, max)
    }
}

/// The stricter of two maxima; less than 1 is none.
fn least(one: i64, other: i64) -> i64 {
    match (one < 1, other < 1) {
        (true, _) => other,
        (_, true) => one,
        _ => one.min(other),
    }
}

/// 0 is the default, and a default of 0 the maximum; less is for ever; a maximum below 1 is none.
fn ttl(wanted: i64, default_minutes: i64, max_minutes: i64) -> i64 {
    const MINUTE: i64 = 60_000;
    let max = if max_minutes < 1 { 0 } else { max_minutes.saturating_mul(MINUTE) };
    let wanted = match wanted {
        0 if default_minutes == 0 => max,
        0 => default_minutes.saturating_mul(MINUTE),
        wanted => wanted,
    };
    match (wanted, max) {
        (wanted, 0) => wanted.max(0),
        (wanted, max) if wanted <= 0 => max,
        (wanted, max) => wanted.min(max),
    }
}

/// What of a token may be shown: never what is stored of its key.
pub fn shown(token: &Token, now: Timestamp) -> Value {
    let expires = tokens::expires(token);
    json!({
        "type": "token",
        "id": token.name_any(),
        "name": token.name_any(),
        "userId": tokens::owner(token),
        "authProvider": token.auth_provider,
        "description": token.description,
        "clusterId": token.cluster_name,
        "created": token.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()),
        "lastUsedAt": token.last_used_at.as_ref().map(|time| time.0.to_string()),
        "ttl": token.ttl,
        "expiresAt": expires.map(|expires| expires.to_string()).unwrap_or_default(),
        "expired": token.expired || expires.is_some_and(|expires| expires <= now),
        "enabled": token.enabled.unwrap_or(true),
        "isDerived": token.is_derived,
        "kind": token.labels().get(label::TOKEN_KIND),
        "address": token.annotations().get(annotation::LOGIN_ADDRESS),
        "userAgent": token.annotations().get(annotation::LOGIN_USER_AGENT),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_good_for_as_long_as_settings_allow() {
        const MINUTE: i64 = 60_000;
        assert_eq!(ttl(0, 10, 100), 10 * MINUTE);
        assert_eq!(ttl(0, 0, 100), 100 * MINUTE);
        assert_eq!(ttl(-1, 10, 100), 100 * MINUTE, "for ever is as long as allowed");
        assert_eq!(ttl(-1, 10, 0), 0);
        assert_eq!(ttl(5 * MINUTE, 10, 100), 5 * MINUTE);
        assert_eq!(ttl(500 * MINUTE, 10, 100), 100 * MINUTE);
        assert_eq!(ttl(500 * MINUTE, 10, -1), 500 * MINUTE);
        assert_eq!(ttl(i64::MAX, i64::MAX, i64::MAX), i64::MAX);
        assert_eq!(ttl(i64::MIN, i64::MIN, 0), 0);
    }

    #[test]
    fn the_stricter_maximum_holds() {
        assert_eq!((least(10, 20), least(20, 10)), (10, 10));
        assert_eq!((least(0, 20), least(20, -1), least(0, 0)), (20, 20, 0));
    }

    #[test]
    fn a_hash_that_is_nobodys_takes_as_long_as_any() {
        let parts: Vec<&str> = NOBODY.split('$').collect();
        let real = password::hash("x").unwrap();
        let real: Vec<&str> = real.split('$').collect();
        assert_eq!(parts[..4], real[..4]);
        assert_eq!((parts[4].len(), parts[5].len()), (real[4].len(), real[5].len()));
        let started = std::time::Instant::now();
        assert!(!password::verify("x", NOBODY));
        assert!(started.elapsed() > Duration::from_millis(1), "it was hashed");
    }

    #[test]
    fn the_key_of_a_token_is_not_shown() {
        let token = Token { token: "$3:1:a:b".to_owned(), ..Token::named("token-a") };
        assert!(!shown(&token, Timestamp::UNIX_EPOCH).to_string().contains("$3"));
    }
}
