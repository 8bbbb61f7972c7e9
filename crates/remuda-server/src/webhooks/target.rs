//! The Secrets that say where messages go, which ones, and how they are signed.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Secret;
use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_base::duration;
use remuda_names::{
    rancher::name::SYSTEM,
    webhook::{SECRET_TYPE, key},
};
use remuda_schema::FieldError;
use reqwest::Certificate;
use serde_json::Value;

use super::{fact::Topic, sign::Keys};

/// How long something has to be broken before a message is sent, by default: agents come back after the
/// restart of a server, and servers after theirs.
const AFTER: Duration = Duration::from_secs(120);
/// The longest name whose ConfigMap has a name, too.
const LONGEST_NAME: usize = 200;

/// Where messages go.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) url: reqwest::Url,
    pub(super) keys: Keys,
    pub(super) topics: BTreeSet<Topic>,
    pub(super) after: Duration,
    pub(super) authorities: Option<Vec<Certificate>>,
}

/// Something in the Secret that cannot be followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) key: &'static str,
    pub(super) why: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "data[{}] {}", self.key, self.why)
    }
}

impl Target {
    pub(super) fn of(secret: &Secret) -> Result<Target, Wrong> {
        Self::parse(|key| {
            let value = secret.data.as_ref()?.get(key)?;
            Some(String::from_utf8_lossy(&value.0).into_owned())
        })
    }

    fn parse(read: impl Fn(&str) -> Option<String>) -> Result<Target, Wrong> {
        let wrong = |key: &'static str| move |why: String| Wrong { key, why };
        let text = |key: &str| read(key).map(|text| text.trim().to_owned()).unwrap_or_default();
        Ok(Target {
            url: address(&text(key::URL)).map_err(wrong(key::URL))?,
            keys: Keys::parse(&text(key::KEY)).map_err(wrong(key::KEY))?,
            topics: topics(&text(key::EVENTS)).map_err(wrong(key::EVENTS))?,
            after: after(&text(key::AFTER)).map_err(wrong(key::AFTER))?,
            authorities: authorities(&text(key::CA)).map_err(wrong(key::CA))?,
        })
    }
}

/// What is wrong is told without the address: it may hold the receiver's own secret.
fn address(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).ok();
    let url = url.filter(|url| ["https", "http"].contains(&url.scheme()) && url.host_str().is_some());
    url.ok_or_else(|| "must be an address that begins with https:// and a host".to_owned())
}

fn topics(text: &str) -> Result<BTreeSet<Topic>, String> {
    let names = || text.split(',').map(str::trim).filter(|name| !name.is_empty());
    if names().next().is_none() {
        return Ok(Topic::ALL.into_iter().collect());
    }
    let of = |name: &str| Topic::ALL.into_iter().find(|topic| topic.as_str() == name);
    names().map(|name| of(name).ok_or(name)).collect::<Result<_, _>>().map_err(|name| {
        let known = Topic::ALL.map(Topic::as_str).join(", ");
        format!("must be some of {known}, separated by commas, not {name}")
    })
}

fn after(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Ok(AFTER);
    }
    duration::parse(text).ok_or_else(|| "must be a duration such as 30s, 2m or 1h".to_owned())
}

fn authorities(pem: &str) -> Result<Option<Vec<Certificate>>, String> {
    if pem.is_empty() {
        return Ok(None);
    }
    remuda_http::certificates(pem.as_bytes())
        .map(Some)
        .ok_or_else(|| "must be certificates in PEM".to_owned())
}

/// Refuses Secrets of this type that could not be followed.
pub(crate) struct Admission;

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        // All other Secrets are spared: what a hook concerns itself with is looked at twice.
        request.group.is_empty()
            && request.resource == "secrets"
            && request.namespace == SYSTEM
            && request.operation != Operation::Delete
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let object = object.filter(|object| self.concerns(request) && object["type"] == SECRET_TYPE);
        let Some(object) = object else { return Ok(Vec::new()) };
        let named = Named { group: request.group, kind: request.kind, name: request.name };
        if request.name.len() > LONGEST_NAME {
            return Err(ApiError::invalid(named, &[FieldError::too_long("metadata.name", LONGEST_NAME)]));
        }
        let read = |key: &str| {
            let encoded = object["data"][key].as_str()?;
            String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
        };
        match Target::parse(read) {
            Ok(target) if target.url.scheme() == "http" => Ok(vec![
                "data[url]: messages are sent without encryption: who is on their way can read them".into(),
            ]),
            Ok(_) => Ok(Vec::new()),
            // Values of Secrets are not repeated.
            Err(Wrong { key, why }) => {
                let error = FieldError::invalid_omitted(format!("data[{key}]"), &why);
                Err(ApiError::invalid(named, &[error]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn parse(more: &[(&str, &str)]) -> Result<Target, Wrong> {
        let mut all = BTreeMap::from([("url", "https://hooks.example/x"), ("key", KEY)]);
        all.extend(more.iter().copied());
        Target::parse(|key| all.get(key).map(|text| (*text).to_owned()))
    }

    #[test]
    fn all_is_told_after_two_minutes_unless_something_else_is_said() {
        let target = parse(&[]).unwrap();
        assert_eq!((target.topics.len(), target.after), (Topic::ALL.len(), AFTER));
        let target = parse(&[("events", "broken, fixed"), ("after", "0s")]).unwrap();
        assert_eq!(target.topics, [Topic::Broken, Topic::Fixed].into());
        assert_eq!(target.after, Duration::ZERO);
    }

    #[test]
    fn what_cannot_be_followed_is_told_at_its_key_and_not_repeated() {
        for (key, value, words) in [
            ("url", "", "https://"),
            ("url", "ftp://hooks.example/T0KEN", "https://"),
            ("url", "file:///etc/shadow", "https://"),
            ("key", "T0KEN", "random bytes"),
            ("events", "exploded", "broken, fixed, expiring, update-available"),
            ("after", "soon", "duration"),
            ("ca.crt", "none", "PEM"),
        ] {
            let told = parse(&[(key, value)]).unwrap_err();
            assert_eq!(told.key, key);
            assert!(told.why.contains(words) && !told.why.contains("T0KEN"), "{told}");
        }
    }
}
