//! Who a token stands for, from memory.
//!
//! The index is fed by the caches of Tokens and Users. A token that was deleted, disabled, changed or has
//! expired, and all tokens of a user who was, end what is under way with them at once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use parking_lot::RwLock;
use remuda_api::management::{Principal, Token, User};
use remuda_auth::{
    bearer::Stored,
    identity::{self, GROUP_AUTHENTICATED},
};
use remuda_names::{
    identity::{LOCAL_PRINCIPAL, LOCAL_PROVIDER, annotation, extra, group},
    rancher::group::MANAGEMENT,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Somebody with a good token.
#[derive(Debug, Clone)]
pub struct Login {
    pub user: Arc<identity::User>,
    /// Cancelled when the token is no longer good.
    pub revoked: CancellationToken,
    /// The only cluster it is good for, if it is not good for everything.
    pub cluster: Option<Arc<str>>,
    /// Name of the Token.
    pub token: Arc<str>,
}

/// What is known of a bearer token.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// It is none of ours.
    Foreign,
    /// It is not good, or not any more.
    Refused,
    /// Not all tokens are known yet.
    NotReady,
    Known(Login),
}

struct Entry {
    stored: Option<Stored>,
    user_id: String,
    /// The very User it was made for, if it says so.
    user_uid: Option<String>,
    groups: Vec<String>,
    enabled: bool,
    expires: Option<Timestamp>,
    cluster: Option<Arc<str>>,
    /// Authentication provider.
    provider: String,
    /// Who it stands for, while that is somebody.
    user: Option<Arc<identity::User>>,
    revoked: CancellationToken,
    name: Arc<str>,
    /// Second it was used last, and the one that is stored.
    used: AtomicI64,
    written: i64,
}

impl Entry {
    /// Whether it is the same credential with the same meaning.
    fn is_same(&self, other: &Self) -> bool {
        self.stored == other.stored
            && self.user_id == other.user_id
            && self.user_uid == other.user_uid
            && self.groups == other.groups
            && self.provider == other.provider
            && self.cluster == other.cluster
            && self.user == other.user
    }

    fn is_good(&self, now: Timestamp) -> bool {
        self.enabled && self.user.is_some() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// What tokens say of their user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Person {
    uid: Option<String>,
    enabled: bool,
    username: String,
    principals: Vec<String>,
}

#[derive(Default)]
struct Index {
    entries: HashMap<String, Entry>,
    by_user: HashMap<String, HashSet<String>>,
    people: HashMap<String, Person>,
    /// Users by their names at authentication providers. A name that several Users claim belongs to none.
    principals: HashMap<String, BTreeSet<String>>,
    /// Authentication providers that are enabled, beside our own.
    providers: HashSet<String>,
}

/// All tokens.
#[derive(Default)]
pub(crate) struct Tokens {
    index: RwLock<Index>,
    ready: AtomicBool,
}

/// How coarse the time of the last use is.
const USE_SECONDS: i64 = 60;

impl Tokens {
    /// From now on, what is not known is not there.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn check(&self, bearer: &str, now: Timestamp) -> Verdict {
        let Some((name, key)) = split(bearer) else { return Verdict::Foreign };
        let index = self.index.read();
        let Some(entry) = index.entries.get(name) else {
            return if self.is_ready() { Verdict::Foreign } else { Verdict::NotReady };
        };
        if !entry.stored.as_ref().is_some_and(|stored| stored.verify(key)) || !entry.is_good(now) {
            return Verdict::Refused;
        }
        let Some(user) = entry.user.clone() else { return Verdict::Refused };
        entry.used.store(now.as_second(), Ordering::Relaxed);
        Verdict::Known(Login {
            user,
            revoked: entry.revoked.clone(),
            cluster: entry.cluster.clone(),
            token: entry.name.clone(),
        })
    }

    /// Who a token stands for, if it is good.
    pub(crate) fn user_of(&self, name: &str, now: Timestamp) -> Option<Arc<identity::User>> {
        let index = self.index.read();
        index.entries.get(name).filter(|entry| entry.is_good(now))?.user.clone()
    }

    /// A token was used elsewhere.
    pub(crate) fn note_use(&self, name: &str, at: Timestamp) {
        if let Some(entry) = self.index.read().entries.get(name) {
            entry.used.fetch_max(at.as_second(), Ordering::Relaxed);
        }
    }

    pub(crate) fn put_token(&self, token: &Token, now: Timestamp) {
        let name = token.name_any();
        if token.metadata.deletion_timestamp.is_some() {
            return self.remove_token(&name);
        }
        let mut index = self.index.write();
        let mut entry = entry(token);
        entry.user = index.person_behind(&entry);
        let old = index.entries.remove(&name);
        if let Some(old) = old {
            if entry.is_same(&old) && entry.is_good(now) {
                entry.revoked = old.revoked;
            } else {
                old.revoked.cancel();
            }
            entry.used = AtomicI64::new(old.used.load(Ordering::Relaxed).max(entry.written));
            index.forget(&old.user_id, &name);
        }
        index.by_user.entry(entry.user_id.clone()).or_default().insert(name.clone());
        index.entries.insert(name, entry);
    }

    pub(crate) fn remove_token(&self, name: &str) {
        let mut index = self.index.write();
        if let Some(entry) = index.entries.remove(name) {
            entry.revoked.cancel();
            index.forget(&entry.user_id, name);
        }
    }

    pub(crate) fn put_user(&self, user: &User) {
        let person = Person {
            uid: user.metadata.uid.clone(),
            enabled: user.enabled.unwrap_or(true) && user.metadata.deletion_timestamp.is_none(),
            username: user.username.clone(),
            principals: user.principal_ids.clone(),
        };
        self.change_user(&user.name_any(), Some(person));
    }

    pub(crate) fn remove_user(&self, name: &str) {
        self.change_user(name, None);
    }

    fn change_user(&self, name: &str, person: Option<Person>) {
        let mut index = self.index.write();
        if index.people.get(name) == person.as_ref() {
            return;
        }
        if let Some(old) = index.people.remove(name) {
            for principal in &old.principals {
                if let Some(users) = index.principals.get_mut(principal) {
                    users.remove(name);
                    if users.is_empty() {
                        index.principals.remove(principal);
                    }
                }
            }
        }
        if let Some(person) = person {
            for principal in &person.principals {
                index.principals.entry(principal.clone()).or_default().insert(name.to_owned());
            }
            index.people.insert(name.to_owned(), person);
        }
        for token in index.by_user.get(name).cloned().unwrap_or_default() {
            index.look_again(&token);
        }
    }

    /// Whoever came from a provider that is not enabled any more is nobody.
    pub(crate) fn put_provider(&self, name: &str, enabled: bool) {
        let mut index = self.index.write();
        let changed = match enabled {
            true => index.providers.insert(name.to_owned()),
            false => index.providers.remove(name),
        };
        if !changed {
            return;
        }
        let theirs = index.entries.iter().filter(|(_, entry)| entry.provider == name);
        for token in theirs.map(|(token, _)| token.clone()).collect::<Vec<_>>() {
            index.look_again(&token);
        }
    }

    /// Ends what is under way with tokens that have expired.
    pub(crate) fn expire(&self, now: Timestamp) {
        let index = self.index.read();
        let over = |entry: &&Entry| entry.expires.is_some_and(|expires| expires <= now);
        for entry in index.entries.values().filter(over) {
            entry.revoked.cancel();
        }
    }

    /// Tokens of which the time of their last use is worth writing.
    pub(crate) fn used(&self) -> Vec<(Arc<str>, Timestamp)> {
        let index = self.index.read();
        let used = index.entries.values().filter_map(|entry| {
            let used = entry.used.load(Ordering::Relaxed);
            let at = Timestamp::from_second(used).ok()?;
            (used >= entry.written.saturating_add(USE_SECONDS)).then(|| (entry.name.clone(), at))
        });
        used.collect()
    }

    /// Tokens that have been over for a while.
    pub(crate) fn long_over(&self, now: Timestamp) -> Vec<Arc<str>> {
        const GRACE: SignedDuration = SignedDuration::from_hours(24);
        let index = self.index.read();
        let over = |entry: &&Entry| entry.expires.is_some_and(|expires| now.duration_since(expires) > GRACE);
        index.entries.values().filter(over).map(|entry| entry.name.clone()).collect()
    }

    /// Name of the User with a name at an authentication provider. `None` if several claim it.
    pub(crate) fn user_of_principal(&self, principal: &str) -> Option<String> {
        let index = self.index.read();
        let users = index.principals.get(principal)?;
        users.first().filter(|_| users.len() == 1).cloned()
    }

    /// Names of all Users that claim a name at an authentication provider.
    pub(crate) fn claimants(&self, principal: &str) -> Vec<String> {
        self.index.read().principals.get(principal).into_iter().flatten().cloned().collect()
    }

    /// Names a User has at authentication providers.
    pub(crate) fn principals_of(&self, user: &str) -> Vec<String> {
        self.index.read().people.get(user).map(|person| person.principals.clone()).unwrap_or_default()
    }
}

impl Index {
    /// Finds out anew who a token stands for.
    fn look_again(&mut self, token: &str) {
        let user = self.entries.get(token).and_then(|entry| self.person_behind(entry));
        let Some(entry) = self.entries.get_mut(token) else { return };
        if entry.user != user {
            entry.user = user;
            // Whoever goes on has another name or other groups: what began before must not.
            std::mem::take(&mut entry.revoked).cancel();
        }
    }

    fn forget(&mut self, user: &str, token: &str) {
        if let Some(tokens) = self.by_user.get_mut(user) {
            tokens.remove(token);
            if tokens.is_empty() {
                self.by_user.remove(user);
            }
        }
    }

    fn person_behind(&self, entry: &Entry) -> Option<Arc<identity::User>> {
        let own = entry.provider.is_empty() || entry.provider == LOCAL_PROVIDER;
        if !own && !self.providers.contains(&entry.provider) {
            return None;
        }
        let person = self.people.get(&entry.user_id).filter(|person| person.enabled)?;
        if entry.user_uid.is_some() && entry.user_uid != person.uid {
            return None;
        }
        let mut groups = vec![GROUP_AUTHENTICATED.to_owned(), group::AUTHENTICATED.to_owned()];
        groups.extend(entry.groups.iter().cloned());
        let mut extras = BTreeMap::from([(extra::TOKEN.to_owned(), vec![entry.name.to_string()])]);
        if !person.principals.is_empty() {
            extras.insert(extra::PRINCIPAL.to_owned(), person.principals.clone());
        }
        if !person.username.is_empty() {
            extras.insert(extra::USERNAME.to_owned(), vec![person.username.clone()]);
        }
        let mut user = identity::User::new(entry.user_id.clone(), groups);
        user.extra = extras;
        Some(Arc::new(user))
    }
}

/// Name and key of a token; nothing if it has another form.
fn split(bearer: &str) -> Option<(&str, &str)> {
    let (name, key) = bearer.split_once(':')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let fits = (1..=253).contains(&name.len()) && name.bytes().all(is_name);
    (fits && !key.is_empty() && key.len() <= 512 && !key.contains(':')).then_some((name, key))
}

fn entry(token: &Token) -> Entry {
    let hashed = token.annotations().get(annotation::TOKEN_HASHED).is_some_and(|hashed| hashed == "true");
    let written = token.last_used_at.as_ref().map_or(0, |time| time.0.as_second());
    Entry {
        stored: Stored::parse(&token.token, hashed),
        user_id: owner(token).to_owned(),
        user_uid: owner_uid(token),
        groups: token.group_principals.iter().filter_map(group_name).collect(),
        enabled: token.enabled.unwrap_or(true) && !token.expired,
        expires: expires(token),
        cluster: Some(token.cluster_name.as_str()).filter(|name| !name.is_empty()).map(Arc::from),
        provider: token.auth_provider.clone(),
        user: None,
        revoked: CancellationToken::new(),
        name: token.name_any().into(),
        used: AtomicI64::new(written),
        written,
    }
}

/// Name of the User a token is of. Labels repeat it for selectors and are never asked.
pub fn owner(token: &Token) -> &str {
    &token.user_id
}

/// Whether a token is that of a login, and not one that was made with a login.
pub(crate) fn is_session(token: &Token) -> bool {
    !token.is_derived
}

/// The User a token was made for. A User made later under the same name is another.
fn owner_uid(token: &Token) -> Option<String> {
    let mut owners = token.metadata.owner_references.iter().flatten();
    let user = owners.find(|owner| {
        owner.kind == "User"
            && owner.api_version.split('/').next() == Some(MANAGEMENT)
            && owner.name == token.user_id
    });
    user.map(|owner| owner.uid.clone())
}

/// No provider can make somebody a member of a group that has a meaning in Kubernetes.
pub(crate) fn group_name(principal: &Principal) -> Option<String> {
    let name = principal.other.get("metadata")?.get("name").and_then(Value::as_str)?;
    let name = name.strip_prefix(LOCAL_PRINCIPAL).unwrap_or(name);
    Some(name.to_owned()).filter(|name| !name.is_empty() && !name.starts_with("system:"))
}

/// When a token ends. One that says so in a way nobody understands has ended.
pub fn expires(token: &Token) -> Option<Timestamp> {
    if !token.expires_at.is_empty() {
        return Some(token.expires_at.parse().unwrap_or(Timestamp::UNIX_EPOCH));
    }
    if token.ttl <= 0 {
        return None;
    }
    let created = token.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    // Longer than time itself is for ever.
    created.checked_add(SignedDuration::from_millis(token.ttl)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use remuda_auth::bearer as key;

    fn now() -> Timestamp {
        "2026-11-16T04:00:00Z".parse().unwrap()
    }

    fn token(name: &str, user: &str) -> Token {
        let mut token = Token::named(name);
        token.user_id = user.to_owned();
        token.token = key::hash("key").unwrap();
        token.annotations_mut().insert(annotation::TOKEN_HASHED.to_owned(), "true".to_owned());
        token
    }

    fn user(name: &str) -> User {
        User {
            username: "ann".to_owned(),
            principal_ids: vec![format!("local://{name}")],
            ..User::named(name)
        }
    }

    fn tokens() -> Tokens {
        let tokens = Tokens::default();
        tokens.put_user(&user("user-a"));
        tokens.put_token(&token("token-a", "user-a"), now());
        tokens.set_ready();
        tokens
    }

    #[track_caller]
    fn known(tokens: &Tokens) -> Login {
        match tokens.check("token-a:key", now()) {
            Verdict::Known(login) => login,
            other => panic!("{other:?}"),
        }
    }

    fn is_refused(tokens: &Tokens) -> bool {
        matches!(tokens.check("token-a:key", now()), Verdict::Refused)
    }

    #[test]
    fn a_token_stands_for_its_user() {
        let login = known(&tokens());
        assert_eq!(login.user.name, "user-a");
        assert_eq!(login.user.groups, ["system:authenticated", "system:cattle:authenticated"]);
        assert_eq!(login.user.extra["requesttokenid"], ["token-a"]);
        assert_eq!(login.user.extra["principalid"], ["local://user-a"]);
        assert_eq!(login.cluster, None);
    }

    #[test]
    fn what_has_another_form_is_of_others() {
        let tokens = tokens();
        for other in
            ["", ":", "a", "token-a", "token-a:", ":key", "TOKEN-A:key", "a:b:c", "token-b:key", "a/b:key"]
        {
            assert!(matches!(tokens.check(other, now()), Verdict::Foreign), "{other}");
        }
        assert!(matches!(tokens.check("token-a:kex", now()), Verdict::Refused));
        assert!(matches!(Tokens::default().check("token-a:key", now()), Verdict::NotReady));
    }

    #[test]
    fn a_token_that_is_gone_ends_what_is_under_way() {
        let tokens = tokens();
        let login = known(&tokens);
        tokens.remove_token("token-a");
        assert!(login.revoked.is_cancelled());
        assert!(matches!(tokens.check("token-a:key", now()), Verdict::Foreign));
    }

    #[test]
    fn disabling_a_token_or_its_user_ends_what_is_under_way() {
        let tokens = tokens();
        let login = known(&tokens);
        let mut disabled = token("token-a", "user-a");
        disabled.enabled = Some(false);
        tokens.put_token(&disabled, now());
        assert!(login.revoked.is_cancelled() && is_refused(&tokens));
        tokens.put_token(&token("token-a", "user-a"), now());
        let login = known(&tokens);
        assert!(!login.revoked.is_cancelled());
        tokens.put_user(&User { enabled: Some(false), ..user("user-a") });
        assert!(login.revoked.is_cancelled() && is_refused(&tokens));
        tokens.put_user(&user("user-a"));
        let login = known(&tokens);
        tokens.remove_user("user-a");
        assert!(login.revoked.is_cancelled() && is_refused(&tokens));
    }

    #[test]
    fn tokens_of_a_provider_end_with_it() {
        let tokens = tokens();
        tokens.put_token(
            &Token { auth_provider: "genericoidc".to_owned(), ..token("token-a", "user-a") },
            now(),
        );
        assert!(is_refused(&tokens));
        tokens.put_provider("genericoidc", true);
        let login = known(&tokens);
        tokens.put_provider("other", true);
        assert!(!login.revoked.is_cancelled());
        tokens.put_provider("genericoidc", false);
        assert!(login.revoked.is_cancelled() && is_refused(&tokens));
    }

    #[test]
    fn a_change_that_means_nothing_ends_nothing() {
        let tokens = tokens();
        let same = token("token-b", "user-a");
        tokens.put_token(&same, now());
        let Verdict::Known(login) = tokens.check("token-b:key", now()) else { panic!() };
        tokens.put_token(&Token { description: "other".to_owned(), ..same.clone() }, now());
        tokens.put_user(&user("user-a"));
        assert!(!login.revoked.is_cancelled());
        tokens.put_token(&Token { token: key::hash("key").unwrap(), ..same }, now());
        assert!(login.revoked.is_cancelled(), "another secret is another token");
    }

    #[test]
    fn tokens_expire_where_they_are() {
        let tokens = tokens();
        let mut short = token("token-a", "user-a");
        short.expires_at = "2026-11-16T04:00:10Z".to_owned();
        tokens.put_token(&short, now());
        let login = known(&tokens);
        tokens.expire(now());
        assert!(!login.revoked.is_cancelled());
        let later = now() + SignedDuration::from_secs(10);
        tokens.expire(later);
        assert!(login.revoked.is_cancelled());
        assert!(matches!(tokens.check("token-a:key", later), Verdict::Refused));
        short.expires_at = "tomorrow".to_owned();
        assert_eq!(expires(&short), Some(Timestamp::UNIX_EPOCH));
        assert_eq!(expires(&Token { ttl: i64::MAX, ..Token::named("x") }), None);
    }

    #[test]
    fn the_last_use_is_told_once_in_a_while() {
        let tokens = tokens();
        assert_eq!(tokens.used(), []);
        known(&tokens);
        assert_eq!(tokens.used(), [("token-a".into(), now())]);
        let mut written = token("token-a", "user-a");
        written.last_used_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
        tokens.put_token(&written, now());
        tokens.check("token-a:key", now() + SignedDuration::from_secs(59));
        assert_eq!(tokens.used(), []);
    }

    #[test]
    fn a_provider_cannot_make_administrators() {
        let named = |name: &str| Principal {
            other: serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap(),
            ..Principal::default()
        };
        assert_eq!(group_name(&named("system:masters")), None);
        assert_eq!(group_name(&named("local://system:masters")), None);
        assert_eq!(group_name(&named("oidc_group://dev")).as_deref(), Some("oidc_group://dev"));
        assert_eq!(group_name(&Principal::default()), None);
    }
}
