//! What servers tell each other of logins that are under way: the key of their cookies, and what was used.
//!
//! Both are Secrets in a namespace of their own. What is good once is made, or taken away, by exactly one: two
//! servers that try at the same moment are told apart by the API.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use aws_lc_rs::digest;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use remuda_auth::tokens::RandomError;
use remuda_control::Chain;
use remuda_names::identity::oidc::{
    LOGINS_KEY, LOGINS_KEY_DATA, LOGINS_NAMESPACE, ONCE_DATA, ONCE_LABEL, UNTIL,
};
use tokio::time::Instant;

use super::pending::{self, Seal};
use crate::{Error, Identity};

/// Somebody may have removed the key, and another server made another.
const FRESH: Duration = Duration::from_secs(60);
/// The key is not read more often because of cookies that cannot be opened.
const SELDOM: Duration = Duration::from_secs(1);
/// Things one server has made that are good once and not over.
const MOST: usize = 10_000;

/// The key as it was read last.
#[derive(Default)]
pub(crate) struct Key(tokio::sync::Mutex<Option<(Arc<Seal>, Instant)>>);

/// Seconds at which what was made ends.
#[derive(Default)]
pub(crate) struct Room(parking_lot::Mutex<Vec<i64>>);

impl Room {
    /// Full of what is not over: better nobody than without a bound.
    fn enter(&self, until: i64, now: i64) -> bool {
        let mut ends = self.0.lock();
        if ends.len() >= MOST {
            ends.retain(|until| *until > now);
        }
        let fits = ends.len() < MOST;
        if fits {
            ends.push(until);
        }
        fits
    }
}

/// What something is that is good once.
#[derive(Clone, Copy)]
pub(crate) enum Once {
    /// A login that has come back.
    Login,
    /// A code a program redeems.
    Code,
}

impl Once {
    fn word(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Code => "code",
        }
    }

    /// What is stored says nothing of the secret it stands for.
    fn name(self, secret: &str) -> String {
        let digest = digest::digest(&digest::SHA256, secret.as_bytes());
        let hex = remuda_base::hex(digest);
        format!("{}-{hex}", self.word())
    }
}

fn random(error: RandomError) -> Error {
    Error::Internal(error.to_string())
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

impl Identity {
    fn logins(&self) -> Api<Secret> {
        Api::namespaced(self.0.ctx.client.clone(), LOGINS_NAMESPACE)
    }

    async fn create_login(&self, secret: &Secret) -> Result<(), kube::Error> {
        self.logins().create(&PostParams::default(), secret).await.map(drop)
    }

    /// Seals cookies so that every server can open them.
    pub(super) async fn seal(&self) -> Result<Arc<Seal>, Error> {
        self.seal_read_within(FRESH).await
    }

    /// The login a cookie was made for, whichever server made it.
    pub(super) async fn open(&self, cookie: &str) -> Result<Option<pending::Pending>, Error> {
        match self.seal().await?.open(cookie) {
            Some(pending) => Ok(Some(pending)),
            None => Ok(self.seal_read_within(SELDOM).await?.open(cookie)),
        }
    }

    async fn seal_read_within(&self, age: Duration) -> Result<Arc<Seal>, Error> {
        let mut known = self.0.sso.key.0.lock().await;
        if let Some((seal, _)) = known.as_ref().filter(|(_, read)| read.elapsed() < age) {
            return Ok(seal.clone());
        }
        let seal = Arc::new(Seal::new(&self.read_key().await?).map_err(random)?);
        *known = Some((seal.clone(), Instant::now()));
        Ok(seal)
    }

    /// The key of all servers; made if there is none.
    async fn read_key(&self) -> Result<[u8; pending::KEY_LENGTH], Error> {
        let failed = |doing: &'static str| move |source| Error::api(doing, LOGINS_KEY, source);
        if let Some(key) = self.logins().get_opt(LOGINS_KEY).await.map_err(failed("read the key"))? {
            return usable(&key);
        }
        self.namespace(LOGINS_NAMESPACE).await?;
        let mut secret = Secret { immutable: Some(true), ..Secret::default() };
        secret.metadata.name = Some(LOGINS_KEY.to_owned());
        let key = pending::key().map_err(random)?;
        secret.data = Some(BTreeMap::from([(LOGINS_KEY_DATA.to_owned(), ByteString(key.to_vec()))]));
        match self.create_login(&secret).await {
            Ok(()) => Ok(key),
            Err(error) if is(&error, 409) => {
                usable(&self.logins().get(LOGINS_KEY).await.map_err(failed("read the key"))?)
            }
            Err(error) => Err(failed("make the key")(error)),
        }
    }

    /// Notes that something was used. It was not before, on any server, if the answer is yes.
    pub(super) async fn first(&self, once: Once, secret: &str, until: i64) -> Result<bool, Error> {
        self.put(once, secret, until, Vec::new()).await
    }

    /// Keeps what somebody gets for a secret.
    pub(super) async fn keep(
        &self,
        once: Once,
        secret: &str,
        until: i64,
        data: Vec<u8>,
    ) -> Result<(), Error> {
        match self.put(once, secret, until, data).await? {
            true => Ok(()),
            false => Err(Error::Internal("a random number came twice".to_owned())),
        }
    }

    async fn put(&self, once: Once, secret: &str, until: i64, data: Vec<u8>) -> Result<bool, Error> {
        let shared = &self.0;
        if !shared.sso.room.enter(until, shared.now().as_second()) {
            return Err(Error::Internal("too many logins at once".to_owned()));
        }
        let name = once.name(secret);
        let mut object = Secret { immutable: Some(true), ..Secret::default() };
        object.metadata.name = Some(name.clone());
        object.metadata.labels = Some(BTreeMap::from([(ONCE_LABEL.to_owned(), once.word().to_owned())]));
        object.metadata.annotations = Some(BTreeMap::from([(UNTIL.to_owned(), until.to_string())]));
        object.data = Some(BTreeMap::from([(ONCE_DATA.to_owned(), ByteString(data))]));
        let mut made = self.create_login(&object).await;
        if made.as_ref().is_err_and(|error| is(error, 404)) {
            // Somebody has removed the namespace.
            self.namespace(LOGINS_NAMESPACE).await?;
            made = self.create_login(&object).await;
        }
        match made {
            Ok(()) => Ok(true),
            Err(error) if is(&error, 409) => Ok(false),
            Err(error) => Err(Error::api("note the login", &name, error)),
        }
    }

    /// Takes what was kept for a secret. Of several who ask, on whichever servers, one gets it.
    pub(super) async fn take(&self, once: Once, secret: &str) -> Result<Option<Vec<u8>>, Error> {
        let name = once.name(secret);
        let failed = |source| Error::api("redeem the code", &name, source);
        let Some(found) = self.logins().get_opt(&name).await.map_err(failed)? else { return Ok(None) };
        let this = Preconditions { uid: found.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
        match self.logins().delete(&name, &params).await {
            Ok(_) => {}
            Err(error) if is(&error, 404) || is(&error, 409) => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let data = found.data.and_then(|mut data| data.remove(ONCE_DATA)).map(|bytes| bytes.0);
        Ok(data.filter(|_| until(&found.metadata) > self.0.now().as_second()))
    }

    /// Removes what is over.
    pub(crate) async fn sweep_logins(&self, now: Timestamp) {
        let listed = match self.logins().list(&ListParams::default().labels(ONCE_LABEL)).await {
            Ok(listed) => listed,
            Err(error) => return tracing::debug!(error = %Chain(&error), "logins are not looked through"),
        };
        let over = listed.items.iter().filter(|secret| until(&secret.metadata) <= now.as_second());
        for name in over.map(ResourceExt::name_any) {
            match self.logins().delete(&name, &DeleteParams::default()).await {
                Err(error) if !is(&error, 404) => {
                    tracing::debug!(name, error = %Chain(&error), "a login that is over is not removed");
                }
                _ => {}
            }
        }
    }
}

fn usable(secret: &Secret) -> Result<[u8; pending::KEY_LENGTH], Error> {
    let bytes = secret.data.as_ref().and_then(|data| data.get(LOGINS_KEY_DATA));
    let key = bytes.and_then(|bytes| bytes.0.as_slice().try_into().ok());
    key.ok_or_else(|| {
        Error::Internal(format!(
            "secret {LOGINS_NAMESPACE}/{LOGINS_KEY} holds no key; remove it to have one made"
        ))
    })
}

/// The second something ends; what does not say so is over.
fn until(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> i64 {
    let text = metadata.annotations.as_ref().and_then(|annotations| annotations.get(UNTIL));
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use jiff::SignedDuration;
    use remuda_auth::rbac::policy::Policy;
    use remuda_control::Ctx;

    use super::*;
    use crate::Back;

    /// Servers on one store.
    async fn servers<const N: usize>() -> ([Identity; N], Api<Secret>) {
        let api = remuda_testkit::World::bare().await;
        let server = |_| Identity::new(Arc::new(Ctx::new(api.client(), "test")), Arc::new(Policy::new()));
        (std::array::from_fn(server), Api::namespaced(api.client(), LOGINS_NAMESPACE))
    }

    fn login(at: &Identity) -> pending::Pending {
        pending::Pending::new("https://r".to_owned(), Back::Page("/".to_owned()), at.0.now()).unwrap()
    }

    async fn stored(secrets: &Api<Secret>) -> usize {
        secrets.list(&ListParams::default().labels(ONCE_LABEL)).await.unwrap().items.len()
    }

    #[tokio::test]
    async fn a_login_begins_at_one_server_and_ends_at_another_once() {
        let ([one, other], secrets) = servers().await;
        let pending = login(&one);
        // Both make a key, and one of them counts.
        let (seal, _) = tokio::join!(one.seal(), other.seal());
        let cookie = seal.unwrap().close(&pending).unwrap();
        assert_eq!(other.open(&cookie).await.unwrap(), Some(pending.clone()));
        assert_eq!(other.open("nonsense").await.unwrap(), None);
        let ends =
            [&one, &other, &one, &other].map(|at| at.first(Once::Login, &pending.state, pending.until));
        let first = join_all(ends).await.into_iter().filter(|first| *first.as_ref().unwrap()).count();
        assert_eq!(first, 1);
        let (state, until) = (login(&one).state, pending.until);
        assert!(other.first(Once::Login, &state, until).await.unwrap(), "another login is another");
        assert_eq!(stored(&secrets).await, 2);
        one.sweep_logins(one.0.now()).await;
        assert_eq!(stored(&secrets).await, 2);
        one.sweep_logins(one.0.now() + SignedDuration::from_mins(10)).await;
        assert_eq!(stored(&secrets).await, 0);
        assert_eq!(other.open(&cookie).await.unwrap(), Some(pending), "the key stays");
    }

    #[tokio::test]
    async fn a_code_is_redeemed_at_any_server_once_and_in_time() {
        let ([one, other], secrets) = servers().await;
        let until = (one.0.now() + SignedDuration::from_mins(1)).as_second();
        one.keep(Once::Code, "code", until, b"Ann".to_vec()).await.unwrap();
        assert!(other.take(Once::Code, "guess").await.unwrap().is_none());
        let takes = [&other, &one, &other, &one].map(|at| at.take(Once::Code, "code"));
        let taken: Vec<Vec<u8>> =
            join_all(takes).await.into_iter().filter_map(|taken| taken.unwrap()).collect();
        assert_eq!(taken, [b"Ann"]);
        one.keep(Once::Code, "late", one.0.now().as_second(), b"Ann".to_vec()).await.unwrap();
        assert!(other.take(Once::Code, "late").await.unwrap().is_none());
        assert_eq!(stored(&secrets).await, 0);
    }

    #[tokio::test]
    async fn a_key_that_was_removed_is_replaced_everywhere() {
        let ([one, other], secrets) = servers().await;
        one.seal().await.unwrap();
        secrets.delete(LOGINS_KEY, &DeleteParams::default()).await.unwrap();
        let pending = login(&other);
        let cookie = other.seal().await.unwrap().close(&pending).unwrap();
        assert_eq!(one.open(&cookie).await.unwrap(), None, "it does not ask for every bad cookie");
        tokio::time::pause();
        tokio::time::advance(SELDOM).await;
        tokio::time::resume();
        assert_eq!(one.open(&cookie).await.unwrap(), Some(pending));
    }

    #[test]
    fn what_nobody_ends_does_not_pile_up() {
        let room = Room::default();
        for _ in 0..MOST {
            assert!(room.enter(100, 50));
        }
        assert!(!room.enter(100, 50));
        assert!(room.enter(200, 100));
        assert_eq!(room.0.lock().len(), 1);
    }

    #[test]
    fn what_is_stored_says_nothing_of_the_secret() {
        let name = Once::Code.name("secret");
        assert!(name.starts_with("code-2bb80d53") && name.len() == 69, "{name}");
        assert_ne!(Once::Login.name("secret"), name);
    }
}
