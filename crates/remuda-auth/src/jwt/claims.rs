//! What a service account token says.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::identity::{
    EXTRA_CREDENTIAL_ID, EXTRA_NODE_NAME, EXTRA_NODE_UID, EXTRA_POD_NAME, EXTRA_POD_UID, User,
    parse_service_account, service_account_user_name,
};

/// A reference to an object as it was when the token was issued.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectRef {
    pub name: String,
    /// Empty for the Secret of a legacy token, whose name alone counts.
    pub uid: String,
}

impl ObjectRef {
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self { name: name.into(), uid: uid.into() }
    }

    fn to_value(&self) -> Value {
        json!({"name": self.name, "uid": self.uid})
    }

    fn parse(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        value.is_object().then(|| Self { name: text("name"), uid: text("uid") })
    }
}

/// What a token is bound to: it dies with that object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Bound {
    #[default]
    Nothing,
    /// The node is only told, not checked: it cannot outlive the pod.
    Pod {
        pod: ObjectRef,
        node: Option<ObjectRef>,
    },
    Secret(ObjectRef),
    Node(ObjectRef),
}

/// A verified token, or one to be issued. Times are seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccountToken {
    pub issuer: String,
    /// Empty in legacy tokens, which are meant for the API server.
    pub audiences: Vec<String>,
    pub issued_at: Option<i64>,
    pub not_before: Option<i64>,
    pub expires: Option<i64>,
    pub id: String,
    pub namespace: String,
    pub service_account: ObjectRef,
    pub bound: Bound,
    /// From then on use of the token deserves a warning.
    pub warn_after: Option<i64>,
    /// A token kept in a Secret, valid as long as that Secret holds it.
    pub legacy: bool,
    /// Who presents this token.
    pub user: Arc<User>,
}

const LEGACY_NAMESPACE: &str = "kubernetes.io/serviceaccount/namespace";
const LEGACY_SECRET: &str = "kubernetes.io/serviceaccount/secret.name";
const LEGACY_NAME: &str = "kubernetes.io/serviceaccount/service-account.name";
const LEGACY_UID: &str = "kubernetes.io/serviceaccount/service-account.uid";

/// A token that is properly signed but says something we never sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    #[error("claims are not a JSON object")]
    NotAnObject,
    #[error("{0} claim is missing")]
    Missing(&'static str),
    #[error("sub claim is invalid")]
    Subject,
    #[error("token is bound to an object of an unsupported kind")]
    Bound,
}

impl ServiceAccountToken {
    pub(super) fn to_claims(&self) -> Value {
        let mut claims = Map::new();
        claims.insert("iss".into(), self.issuer.clone().into());
        let subject = service_account_user_name(&self.namespace, &self.service_account.name);
        claims.insert("sub".into(), subject.into());
        if self.legacy {
            let secret = match &self.bound {
                Bound::Secret(secret) => secret.name.as_str(),
                _ => "",
            };
            for (key, value) in [
                (LEGACY_NAMESPACE, self.namespace.as_str()),
                (LEGACY_SECRET, secret),
                (LEGACY_NAME, &self.service_account.name),
                (LEGACY_UID, &self.service_account.uid),
            ] {
                claims.insert(key.into(), value.into());
            }
            return Value::Object(claims);
        }
        claims.insert("aud".into(), self.audiences.clone().into());
        claims.insert("jti".into(), self.id.clone().into());
        for (key, time) in [("iat", self.issued_at), ("nbf", self.not_before), ("exp", self.expires)] {
            if let Some(time) = time {
                claims.insert(key.into(), time.into());
            }
        }
        claims.insert("kubernetes.io".into(), self.private_claims());
        Value::Object(claims)
    }

    fn private_claims(&self) -> Value {
        let mut claims = json!({
            "namespace": self.namespace,
            "serviceaccount": self.service_account.to_value(),
        });
        match &self.bound {
            Bound::Nothing => {}
            Bound::Pod { pod, node } => {
                claims["pod"] = pod.to_value();
                if let Some(node) = node {
                    claims["node"] = node.to_value();
                }
            }
            Bound::Secret(secret) => claims["secret"] = secret.to_value(),
            Bound::Node(node) => claims["node"] = node.to_value(),
        }
        if let Some(time) = self.warn_after {
            claims["warnafter"] = time.into();
        }
        claims
    }

    pub(super) fn parse(claims: &Value) -> Result<Self, ClaimsError> {
        let object = claims.as_object().ok_or(ClaimsError::NotAnObject)?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let time = |key: &str| object.get(key).and_then(seconds);
        let mut token = Self {
            issuer: text("iss"),
            audiences: audiences(object.get("aud")),
            issued_at: time("iat"),
            not_before: time("nbf"),
            expires: time("exp"),
            id: text("jti"),
            namespace: String::new(),
            service_account: ObjectRef::default(),
            bound: Bound::Nothing,
            warn_after: None,
            legacy: false,
            user: Arc::default(),
        };
        match object.get("kubernetes.io") {
            Some(private) => token.read_bound(private)?,
            None => token.read_legacy(&text)?,
        }
        let subject = text("sub");
        let expected = (token.namespace.as_str(), token.service_account.name.as_str());
        if parse_service_account(&subject) != Some(expected) {
            return Err(ClaimsError::Subject);
        }
        token.user = Arc::new(token.make_user());
        Ok(token)
    }

    fn read_bound(&mut self, private: &Value) -> Result<(), ClaimsError> {
        self.namespace = private.get("namespace").and_then(Value::as_str).unwrap_or("").to_owned();
        self.service_account = private
            .get("serviceaccount")
            .and_then(ObjectRef::parse)
            .ok_or(ClaimsError::Missing("serviceAccountName"))?;
        // A token without end that is bound to nothing could never be revoked.
        if self.expires.is_none() {
            return Err(ClaimsError::Missing("exp"));
        }
        self.warn_after = private.get("warnafter").and_then(seconds).filter(|time| *time != 0);
        let reference = |kind: &str| private.get(kind).and_then(ObjectRef::parse);
        for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
            if reference(kind).is_some() {
                return Err(ClaimsError::Bound);
            }
        }
        self.bound = match (reference("pod"), reference("secret"), reference("node")) {
            (None, None, None) => Bound::Nothing,
            (Some(pod), None, node) => Bound::Pod { pod, node },
            (None, Some(secret), None) => Bound::Secret(secret),
            (None, None, Some(node)) => Bound::Node(node),
            _ => return Err(ClaimsError::Bound),
        };
        Ok(())
    }

    fn read_legacy(&mut self, text: &dyn Fn(&str) -> String) -> Result<(), ClaimsError> {
        let required = |key: &str, label: &'static str| {
            let value = text(key);
            if value.is_empty() { Err(ClaimsError::Missing(label)) } else { Ok(value) }
        };
        self.legacy = true;
        self.namespace = required(LEGACY_NAMESPACE, "namespace")?;
        self.bound = Bound::Secret(ObjectRef::new(required(LEGACY_SECRET, "secretName")?, ""));
        let name = required(LEGACY_NAME, "serviceAccountName")?;
        self.service_account = ObjectRef::new(name, required(LEGACY_UID, "serviceAccountUID")?);
        Ok(())
    }

    fn make_user(&self) -> User {
        let account = &self.service_account;
        let mut user = User::service_account(&self.namespace, &account.name, account.uid.clone());
        if !self.id.is_empty() {
            user = user.with_extra(EXTRA_CREDENTIAL_ID, format!("JTI={}", self.id));
        }
        let (pod, node) = match &self.bound {
            Bound::Pod { pod, node } => (Some(pod), node.as_ref()),
            Bound::Node(node) => (None, Some(node)),
            Bound::Nothing | Bound::Secret(_) => (None, None),
        };
        for (object, name_key, uid_key) in
            [(pod, EXTRA_POD_NAME, EXTRA_POD_UID), (node, EXTRA_NODE_NAME, EXTRA_NODE_UID)]
        {
            let Some(object) = object else { continue };
            user = user.with_extra(name_key, object.name.clone());
            if !object.uid.is_empty() {
                user = user.with_extra(uid_key, object.uid.clone());
            }
        }
        user
    }
}

/// Times may carry a fraction; what is out of range is cut to it.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
    value.as_i64().or_else(|| value.as_f64().map(|time| time as i64))
}

/// One audience may stand alone, without a list.
fn audiences(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
