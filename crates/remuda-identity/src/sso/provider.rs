//! A provider: what it tells about itself, its keys, and codes that become people.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Request, header};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use remuda_auth::oidc::{Expected, IdTokenError, KeySet, verify};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::{sync::Mutex, time::Instant};

use super::{
    config::{Endpoints, Settings, is_safe},
    http::{Unanswered, send},
    pending::Pending,
    profile::Profile,
};

/// What a provider tells is asked for again after this much time.
const FRESH: Duration = Duration::from_secs(3600);
/// A provider is not asked for the same more often, whatever anybody sends.
const SELDOM: Duration = Duration::from_secs(30);

const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why a login at a provider does not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    #[error("{0}")]
    Odd(String),
    #[error("the token of the provider is not good: {0}")]
    Token(#[from] IdTokenError),
}

fn odd(what: impl Into<String>) -> ProviderError {
    ProviderError::Odd(what.into())
}

/// What a provider tells about itself.
#[derive(Debug, Clone, Default, Deserialize)]
struct Discovery {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    authorization_endpoint: String,
    #[serde(default)]
    token_endpoint: String,
    #[serde(default)]
    userinfo_endpoint: String,
    #[serde(default)]
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// Something that was asked for, and when.
struct Kept<T> {
    value: Option<T>,
    asked: Option<Instant>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { value: None, asked: None }
    }
}

impl<T> Kept<T> {
    fn is_due(&self, after: Duration) -> bool {
        self.asked.is_none_or(|asked| asked.elapsed() >= after)
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    id_token: String,
    #[serde(default)]
    access_token: String,
}

/// A provider as it is configured, with what is known of it.
pub(crate) struct Provider {
    pub(crate) settings: Settings,
    /// While one asks, others wait for the answer.
    discovery: Mutex<Kept<Arc<Discovery>>>,
    keys: Mutex<Kept<Arc<KeySet>>>,
}

impl Provider {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, discovery: Mutex::default(), keys: Mutex::default() }
    }

    async fn discovery(&self) -> Result<Arc<Discovery>, ProviderError> {
        let mut kept = self.discovery.lock().await;
        let due = if kept.value.is_some() { FRESH } else { Duration::from_secs(1) };
        if kept.is_due(due) {
            kept.asked = Some(Instant::now());
            match self.discover().await {
                Ok(found) => kept.value = Some(Arc::new(found)),
                // What was true an hour ago is better than nothing.
                Err(error) if kept.value.is_none() => return Err(error),
                Err(error) => tracing::warn!(%error, "what the provider told before is used"),
            }
        }
        kept.value.clone().ok_or_else(|| odd("the provider could not be reached a moment ago"))
    }

    async fn discover(&self) -> Result<Discovery, ProviderError> {
        let Settings { issuer, endpoints, certificate, .. } = &self.settings;
        let Endpoints { authorization, token, user_info, keys } = endpoints;
        let all = [authorization, token, keys].iter().all(|endpoint| !endpoint.is_empty());
        let mut found = if all {
            Discovery { issuer: issuer.clone(), ..Discovery::default() }
        } else {
            let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
            let body = send(certificate, Request::get(url), String::new()).await?;
            serde_json::from_slice(&body).map_err(|_| odd("the provider's configuration is not readable"))?
        };
        // Otherwise one provider could speak for another.
        if found.issuer != *issuer {
            let told: String = found.issuer.chars().take(256).collect();
            return Err(odd(format!("the provider says it is {told:?} and not {issuer:?}")));
        }
        let parts = [
            (&mut found.authorization_endpoint, authorization, true),
            (&mut found.token_endpoint, token, true),
            (&mut found.jwks_uri, keys, true),
            (&mut found.userinfo_endpoint, user_info, false),
        ];
        for (told, given, needed) in parts {
            if !given.is_empty() {
                told.clone_from(given);
            }
            if !is_safe(told) {
                if needed {
                    return Err(odd(format!("the provider has an endpoint that cannot be used: {told:?}")));
                }
                told.clear();
            }
        }
        Ok(found)
    }

    /// The keys, after asking for them again if a token is signed with another. Whoever invents keys has the
    /// provider asked no more often than anybody.
    async fn keys_for(&self, token: &str, url: &str) -> Result<Arc<KeySet>, ProviderError> {
        let mut kept = self.keys.lock().await;
        let knows = match &kept.value {
            Some(keys) => keys.knows(token)?,
            None => false,
        };
        if kept.is_due(if knows { FRESH } else { SELDOM }) {
            kept.asked = Some(Instant::now());
            let answer = send(&self.settings.certificate, Request::get(url), String::new()).await;
            let parsed = answer.map_err(ProviderError::from).and_then(|body| {
                KeySet::parse(&body).ok_or_else(|| odd("the provider's keys are not readable"))
            });
            match parsed {
                Ok(keys) => kept.value = Some(Arc::new(keys)),
                Err(error) if !knows => {
                    // Nobody waits half a minute for a provider that was away for a moment.
                    if kept.value.is_none() {
                        kept.asked = None;
                    }
                    return Err(error);
                }
                Err(error) => tracing::warn!(%error, "the provider's former keys are used"),
            }
        }
        kept.value.clone().ok_or_else(|| IdTokenError::UnknownKey.into())
    }

    /// Where somebody logs in.
    pub(crate) async fn login_url(&self, pending: &Pending) -> Result<String, ProviderError> {
        let discovery = self.discovery().await?;
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &self.settings.client),
            ("redirect_uri", &pending.redirect),
            ("scope", &self.settings.scope),
            ("state", &pending.state),
            ("nonce", &pending.nonce),
            ("code_challenge", &pending.challenge()),
            ("code_challenge_method", "S256"),
        ]);
        let endpoint = &discovery.authorization_endpoint;
        let joint = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{joint}{query}"))
    }

    /// Whom a code stands for that a login ended with.
    pub(crate) async fn profile(
        &self,
        pending: &Pending,
        code: &str,
        secret: &str,
        now: Timestamp,
    ) -> Result<Profile, ProviderError> {
        let discovery = self.discovery().await?;
        let tokens = self.exchange(&discovery, pending, code, secret).await?;
        let keys = self.keys_for(&tokens.id_token, &discovery.jwks_uri).await?;
        let expected = Expected {
            issuer: &self.settings.issuer,
            client: &self.settings.client,
            nonce: &pending.nonce,
            now: now.as_second(),
        };
        let mut claims = verify(&tokens.id_token, &keys, &expected)?;
        let more =
            !claims.contains_key(&self.settings.groups_claim) && !discovery.userinfo_endpoint.is_empty();
        if more && !tokens.access_token.is_empty() {
            match self.user_info(&discovery.userinfo_endpoint, &tokens.access_token).await {
                Ok(told) => complete(&mut claims, told)?,
                Err(error) => tracing::warn!(%error, "the provider tells no more about somebody"),
            }
        }
        Ok(Profile::of(&claims, &self.settings))
    }

    async fn exchange(
        &self,
        discovery: &Discovery,
        pending: &Pending,
        code: &str,
        secret: &str,
    ) -> Result<TokenAnswer, ProviderError> {
        let client = &self.settings.client;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &pending.redirect),
            ("code_verifier", &pending.verifier),
        ];
        let methods = &discovery.token_endpoint_auth_methods_supported;
        let has = |method: &str| methods.iter().any(|known| known == method);
        let basic = !secret.is_empty() && (methods.is_empty() || has("client_secret_basic"));
        let mut request = Request::post(&discovery.token_endpoint)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if basic {
            let credentials = format!("{}:{}", encode(client), encode(secret));
            request =
                request.header(header::AUTHORIZATION, format!("Basic {}", STANDARD.encode(credentials)));
        } else {
            fields.push(("client_id", client));
            if !secret.is_empty() {
                fields.push(("client_secret", secret));
            }
        }
        let body = send(&self.settings.certificate, request, form(&fields)).await?;
        serde_json::from_slice(&body).map_err(|_| odd("the provider's answer holds no tokens"))
    }

    async fn user_info(&self, url: &str, token: &str) -> Result<Map<String, Value>, ProviderError> {
        let request = Request::get(url).header(header::AUTHORIZATION, format!("Bearer {token}"));
        let body = send(&self.settings.certificate, request, String::new()).await?;
        serde_json::from_slice(&body)
            .map_err(|_| odd("what the provider tells about somebody is not readable"))
    }
}

/// Adds what is told about the same person; what is signed counts before what is not.
fn complete(claims: &mut Map<String, Value>, told: Map<String, Value>) -> Result<(), ProviderError> {
    if told.get("sub") != claims.get("sub") {
        return Err(odd("the provider tells about somebody else"));
    }
    for (name, value) in told {
        claims.entry(name).or_insert(value);
    }
    Ok(())
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, FORM).to_string()
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_a_form_cannot_become_others() {
        assert_eq!(form(&[("a", "b&c=d"), ("e", "ü /+")]), "a=b%26c%3Dd&e=%C3%BC%20%2F%2B");
    }

    #[test]
    fn what_is_signed_counts_before_what_is_not() {
        let map = |value: Value| value.as_object().unwrap().clone();
        let mut claims = map(json!({"sub": "7", "name": "Ann"}));
        complete(&mut claims, map(json!({"sub": "7", "name": "Eve", "groups": ["dev"]}))).unwrap();
        assert_eq!(Value::Object(claims.clone()), json!({"sub": "7", "name": "Ann", "groups": ["dev"]}));
        assert!(complete(&mut claims, map(json!({"sub": "8"}))).is_err());
        assert!(complete(&mut claims, map(json!({}))).is_err());
    }

    fn settings(issuer: &str) -> Settings {
        let config = remuda_api::management::AuthConfig {
            enabled: true,
            issuer: issuer.to_owned(),
            client_id: remuda_testkit::oidc::CLIENT.to_owned(),
            ..remuda_api::management::AuthConfig::default()
        };
        Settings::of(&config).unwrap().unwrap()
    }

    /// Somebody logs in, with whatever token the provider gives then.
    async fn log_in(provider: &Provider) -> Result<Profile, ProviderError> {
        let now = Timestamp::now();
        let back = super::super::Back::Page("/".to_owned());
        let pending = Pending::new("http://127.0.0.1:1/verify-auth".to_owned(), back, now).unwrap();
        let url = provider.login_url(&pending).await?;
        let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
            .build_http::<http_body_util::Full<bytes::Bytes>>();
        let answer = client.get(url.parse().unwrap()).await.unwrap();
        let location = answer.headers()["location"].to_str().unwrap();
        let (_, rest) = location.split_once("code=").unwrap();
        let (code, _) = rest.split_once('&').unwrap();
        provider.profile(&pending, code, remuda_testkit::oidc::SECRET, now).await
    }

    async fn later(by: Duration) {
        tokio::time::pause();
        tokio::time::advance(by).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn keys_are_asked_for_again_when_they_change_and_not_all_the_time() {
        let op = remuda_testkit::oidc::Provider::start().await;
        let provider = Provider::new(settings(op.issuer()));
        assert_eq!(log_in(&provider).await.unwrap().subject, "1001");
        op.rotate();
        let early = log_in(&provider).await;
        assert!(matches!(early, Err(ProviderError::Token(IdTokenError::UnknownKey))), "{early:?}");
        assert_eq!(op.asked("/keys"), 1);
        later(SELDOM).await;
        assert_eq!(log_in(&provider).await.unwrap().subject, "1001");
        assert_eq!(op.asked("/keys"), 2);
        op.lies(json!({"kid": "invented"}), json!({}));
        for _ in 0..10 {
            assert!(log_in(&provider).await.is_err());
        }
        assert_eq!(op.asked("/keys"), 2);
        op.lies(json!({}), json!({}));
        later(FRESH).await;
        log_in(&provider).await.unwrap();
        assert_eq!((op.asked("/keys"), op.asked("/.well-known/openid-configuration")), (3, 2));
    }

    #[tokio::test]
    async fn a_provider_speaks_for_nobody_else() {
        let op = remuda_testkit::oidc::Provider::start().await;
        let provider = Provider::new(settings(&format!("{}/", op.issuer())));
        let refused = log_in(&provider).await.unwrap_err().to_string();
        assert!(refused.contains("and not"), "{refused}");
        let nobody = Provider::new(settings("http://127.0.0.1:1"));
        assert!(matches!(log_in(&nobody).await, Err(ProviderError::Unanswered(_))));
    }
}
