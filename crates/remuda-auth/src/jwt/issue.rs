//! Making tokens.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use super::{
    LEGACY_ISSUER,
    claims::{Bound, ObjectRef, ServiceAccountToken},
};
use crate::keys::{KeyError, KeyPair, key_id};

/// What a TokenRequest asks for, after defaulting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenSpec {
    pub namespace: String,
    pub service_account: ObjectRef,
    pub audiences: Vec<String>,
    pub lifetime_seconds: i64,
    pub bound: Bound,
    /// Seconds from now.
    pub warn_after_seconds: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// Secret.
    pub token: String,
    /// Seconds since the epoch.
    pub expires: i64,
    pub id: String,
}

/// Signs tokens with one key. Cheap to share.
#[derive(Debug, Clone)]
pub struct Issuer {
    key: Arc<KeyPair>,
    issuer: String,
    header: String,
}

impl Issuer {
    pub fn new(key: Arc<KeyPair>, issuer: impl Into<String>) -> Self {
        let header = json!({"alg": key.algorithm().name(), "kid": key_id(key.spki())});
        let header = URL_SAFE_NO_PAD.encode(header.to_string());
        Self { key, issuer: issuer.into(), header }
    }

    pub fn name(&self) -> &str {
        &self.issuer
    }

    /// `now` is in seconds since the epoch. The lifetime is taken as given: limits are the caller's.
    pub fn issue(&self, spec: TokenSpec, now: i64) -> Result<Issued, KeyError> {
        let id = uuid::Uuid::new_v4().to_string();
        let expires = now.saturating_add(spec.lifetime_seconds);
        let token = ServiceAccountToken {
            issuer: self.issuer.clone(),
            audiences: spec.audiences,
            issued_at: Some(now),
            not_before: Some(now),
            expires: Some(expires),
            id: id.clone(),
            namespace: spec.namespace,
            service_account: spec.service_account,
            bound: spec.bound,
            warn_after: spec.warn_after_seconds.map(|after| now.saturating_add(after)),
            legacy: false,
            user: Arc::default(),
        };
        Ok(Issued { token: self.sign(&token)?, expires, id })
    }

    /// A token without end, for a Secret of type `kubernetes.io/service-account-token`.
    pub fn issue_legacy(
        &self,
        namespace: &str,
        service_account: ObjectRef,
        secret: &str,
    ) -> Result<String, KeyError> {
        self.sign(&ServiceAccountToken {
            issuer: LEGACY_ISSUER.to_owned(),
            audiences: Vec::new(),
            issued_at: None,
            not_before: None,
            expires: None,
            id: String::new(),
            namespace: namespace.to_owned(),
            service_account,
            bound: Bound::Secret(ObjectRef::new(secret, "")),
            warn_after: None,
            legacy: true,
            user: Arc::default(),
        })
    }

    fn sign(&self, token: &ServiceAccountToken) -> Result<String, KeyError> {
        let mut text = self.header.clone();
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(token.to_claims().to_string(), &mut text);
        let signature = self.key.sign_token(text.as_bytes())?;
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut text);
        Ok(text)
    }
}
