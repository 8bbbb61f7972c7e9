//! Whose token it is.
//!
//! Two kinds of tokens come in: those of ClusterRegistrationTokens, which stand for a cluster, and digests of
//! service-account tokens, which stand for a machine. Caches keep digests only, and of all other Secrets next
//! to nothing; what they find is read again before it counts.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE},
};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, ResourceExt};
use remuda_control::{
    Informer, Informers, Metrics, ObjectKey, Scope,
    informer::{self, Change, Subscription},
};
use remuda_names::{
    gateway::secret::{ACCOUNT_TOKEN_TYPE, TOKEN_PREFIX},
    rancher::secret_key,
};
use subtle::ConstantTimeEq;

use crate::respond::Refusal;

const BY_DIGEST: &str = "gateway/digest";
/// No token is this long.
const LONGEST: usize = 1024;

pub(crate) type Digest = [u8; 32];

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// A registration token that is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The management Cluster it stands for.
    pub(crate) cluster: String,
    /// The Secret it is in.
    pub(crate) secret: ObjectKey,
    pub(crate) digest: Digest,
    /// Its time is over, and nothing has taken its place yet.
    pub(crate) expired: bool,
}

pub(crate) struct Tokens {
    client: Client,
    informers: Informers,
    registrations: Informer<Secret>,
    accounts: Informer<Secret>,
}

impl Tokens {
    pub(crate) fn new(client: Client) -> Self {
        // With informers of our own, because others need more of a Secret.
        let informers = Informers::new(client.clone(), informer::Options::default(), Metrics::default());
        informers.trim(trim);
        let of_type = |name: &str| informers.of(Scope::all().with_fields(format!("type={name}")));
        let (registrations, accounts): (Informer<Secret>, Informer<Secret>) =
            (of_type("Opaque"), of_type(ACCOUNT_TOKEN_TYPE));
        registrations.add_index(BY_DIGEST, digests);
        accounts.add_index(BY_DIGEST, digests);
        Self { client, informers, registrations, accounts }
    }

    pub(crate) async fn stop(&self) {
        self.informers.stop().await;
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.registrations.is_synced() && self.accounts.is_synced()
    }

    /// The cluster `token` registers with; `None` if it is nobody's.
    pub(crate) async fn registration(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<Registration>, Refusal> {
        if token.is_empty() || token.len() > LONGEST {
            return Ok(None);
        }
        let digest = sha256(token.as_bytes());
        let mut found = None;
        for key in self.registrations.keys_by_index(BY_DIGEST, &index(&digest)) {
            let Some(secret) = self.read(&key).await? else { continue };
            let Some(expired) = judge(&secret, token, now) else { continue };
            let cluster = key.namespace.as_deref().unwrap_or_default().to_owned();
            if found.is_some() {
                return Err(Refusal::new(
                    http::StatusCode::CONFLICT,
                    "this token is the token of more than one cluster",
                ));
            }
            found = Some(Registration { cluster, secret: key, digest, expired });
        }
        Ok(found)
    }

    /// Whether `token` is one of the tokens of this cluster.
    pub(crate) async fn is_of(&self, token: &str, cluster: &str, now: Timestamp) -> Result<bool, Refusal> {
        let found = self.registration(token, now).await?;
        Ok(found.is_some_and(|found| found.cluster == cluster && !found.expired))
    }

    /// The registration token with the digest a caller has shown it knows.
    pub(crate) async fn with_digest(&self, shown: &str, now: Timestamp) -> Result<Option<Vec<u8>>, Refusal> {
        let digest = BASE64_STANDARD.decode(shown).ok().and_then(|bytes| Digest::try_from(bytes).ok());
        let Some(digest) = digest else { return Ok(None) };
        for key in self.registrations.keys_by_index(BY_DIGEST, &index(&digest)) {
            let Some(secret) = self.read(&key).await? else { continue };
            let mut known = [secret_key::TOKEN, secret_key::PREVIOUS_TOKEN].into_iter();
            let token = known.find_map(|name| {
                let token = secret.data.as_ref()?.get(name)?;
                (sha256(&token.0) == digest).then(|| token.0.clone())
            });
            let text = token.as_deref().and_then(|token| std::str::from_utf8(token).ok());
            if text.and_then(|text| judge(&secret, text, now)).is_some() {
                return Ok(token);
            }
        }
        Ok(None)
    }

    /// The service-account token Secret whose token has the digest `shown`, in the form machines show it.
    pub(crate) async fn account(&self, shown: &str) -> Result<Option<Secret>, Refusal> {
        let digest = BASE64_URL_SAFE.decode(shown).ok().and_then(|bytes| Digest::try_from(bytes).ok());
        let Some(digest) = digest else { return Ok(None) };
        for key in self.accounts.keys_by_index(BY_DIGEST, &index(&digest)) {
            let Some(secret) = self.read(&key).await? else { continue };
            let token = secret.data.as_ref().and_then(|data| data.get(secret_key::TOKEN));
            if secret.type_.as_deref() == Some(ACCOUNT_TOKEN_TYPE)
                && token.is_some_and(|token| bool::from(sha256(&token.0).ct_eq(&digest)))
            {
                return Ok(Some(secret));
            }
        }
        Ok(None)
    }

    /// Calls `changed` with each token Secret that changed or went, and the digests still good in it.
    pub(crate) fn follow(
        &self,
        changed: impl Fn(&ObjectKey, &[Vec<u8>]) + Send + Sync + 'static,
    ) -> Subscription {
        self.registrations.subscribe(move |change: &Change<Secret>| {
            let Some(secret) = change.object().filter(|_| !change.initial) else { return };
            if secret.name_any().starts_with(TOKEN_PREFIX) {
                let left = change.new.as_deref().map(kept).unwrap_or_default();
                changed(&ObjectKey::of(&secret.metadata), &left);
            }
        })
    }

    async fn read(&self, key: &ObjectKey) -> Result<Option<Secret>, Refusal> {
        let secrets: Api<Secret> =
            Api::namespaced(self.client.clone(), key.namespace.as_deref().unwrap_or_default());
        let secret = secrets.get_opt(&key.name).await;
        secret.map_err(|error| Refusal::failed("reading a token", &error))
    }
}

/// Whether `token` is good in `secret`; then, whether its time is over.
fn judge(secret: &Secret, token: &str, now: Timestamp) -> Option<bool> {
    let data = secret.data.as_ref()?;
    let equals = |name: &str| {
        data.get(name).is_some_and(|known| !known.0.is_empty() && bool::from(known.0.ct_eq(token.as_bytes())))
    };
    let is_over = |name: &str| {
        let text = data.get(name).and_then(|time| std::str::from_utf8(&time.0).ok());
        text.and_then(|text| text.trim().parse::<Timestamp>().ok()).is_some_and(|time| time <= now)
    };
    if secret.metadata.deletion_timestamp.is_some() {
        None
    } else if equals(secret_key::TOKEN) {
        Some(is_over(secret_key::EXPIRES_AT))
    } else if equals(secret_key::PREVIOUS_TOKEN) && !is_over(secret_key::GRACE_PERIOD_EXPIRES_AT) {
        Some(false)
    } else {
        None
    }
}

fn index(digest: &[u8]) -> String {
    BASE64_STANDARD.encode(digest)
}

fn kept(secret: &Secret) -> Vec<Vec<u8>> {
    secret.data.iter().flatten().map(|(_, digest)| digest.0.clone()).collect()
}

fn digests(secret: &Secret) -> Vec<String> {
    kept(secret).iter().map(|digest| index(digest)).collect()
}

/// Leaves of a Secret its name and the digests of its tokens.
fn trim(secret: &mut Secret) {
    let meta = std::mem::take(&mut secret.metadata);
    let data = secret.data.take().unwrap_or_default();
    let is_account = secret.type_.as_deref() == Some(ACCOUNT_TOKEN_TYPE);
    let is_registration = meta.name.as_deref().is_some_and(|name| name.starts_with(TOKEN_PREFIX));
    let tokens: &[&str] = match (is_account, is_registration) {
        (true, _) => &[secret_key::TOKEN],
        (_, true) => &[secret_key::TOKEN, secret_key::PREVIOUS_TOKEN],
        _ => &[],
    };
    let digests: BTreeMap<String, ByteString> = tokens
        .iter()
        .filter_map(|name| {
            let token = data.get(*name).filter(|token| !token.0.is_empty())?;
            Some(((*name).to_owned(), ByteString(sha256(&token.0).to_vec())))
        })
        .collect();
    *secret = Secret {
        metadata: kube::core::ObjectMeta {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            ..Default::default()
        },
        data: Some(digests).filter(|digests| !digests.is_empty()),
        ..Secret::default()
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, data: &[(&str, &str)]) -> Secret {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        let mut secret = Secret { data: Some(data.collect()), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        secret
    }

    #[test]
    fn the_token_before_is_good_until_its_grace_is_over() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let rotated = |grace: &str, expires: &str| {
            secret(
                "crt-token-x",
                &[
                    ("token", "new"),
                    ("previousToken", "old"),
                    ("gracePeriodExpiresAt", grace),
                    ("expiresAt", expires),
                ],
            )
        };
        let (before, after) = ("2025-12-31T23:59:59Z", "2026-01-01T00:00:01Z");
        assert_eq!(judge(&rotated(after, after), "old", now), Some(false));
        assert_eq!(judge(&rotated(before, after), "old", now), None);
        assert_eq!(judge(&rotated(after, after), "new", now), Some(false));
        assert_eq!(judge(&rotated(after, before), "new", now), Some(true));
        assert_eq!(judge(&rotated(after, after), "", now), None);
        assert_eq!(judge(&secret("crt-token-x", &[("token", "")]), "", now), None);
    }

    #[test]
    fn caches_hold_digests_and_nothing_of_other_secrets() {
        let mut token = secret("crt-token-x", &[("token", "abc"), ("previousToken", ""), ("other", "x")]);
        trim(&mut token);
        assert_eq!(kept(&token), [sha256(b"abc").to_vec()]);
        let mut other = secret("mine", &[("token", "abc")]);
        trim(&mut other);
        assert_eq!(other.data, None);
        assert_eq!(other.name_any(), "mine");
    }
}
