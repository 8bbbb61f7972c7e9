//! The action of cloud credentials: whether their provider takes them. A caller who may read one may have it tried.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::future::BoxFuture;
use http::Method;
use remuda_door::{Call, Refusal};
use remuda_names::rancher::name::GLOBAL_DATA;
use serde_json::{Value, json};

use crate::{
    api::Shared,
    kind::Kind,
    older::credential::{CONFIG, driver_of},
    row::Row,
    visit::Visit,
};

/// As clients write it.
pub(super) const NAME: &str = "test";

/// Asks providers with credentials.
pub trait CredentialChecks: Send + Sync + 'static {
    /// Whether credentials of a driver are tried here at all.
    fn offers(&self, driver: &str) -> bool;

    /// Asks the provider with the fields of a credential, for a bounded time. An `Err` says why it is not asked.
    fn check<'a>(
        &'a self,
        driver: &'a str,
        fields: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<Verdict, Refusal>>;
}

/// What a provider says of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Class and text of why it does not take it.
    pub failure: Option<(&'static str, String)>,
}

pub(super) fn is_secret(kind: &Kind) -> bool {
    (kind.group.as_str(), kind.resource.as_str()) == ("", "secrets")
}

/// The driver of a credential that can be tried.
fn driver<'a>(api: &Shared, object: &'a Value) -> Option<&'a str> {
    if object["metadata"]["namespace"] != GLOBAL_DATA {
        return None;
    }
    let driver = driver_of(object)?.strip_suffix(CONFIG)?;
    api.credentials.as_ref()?.offers(driver).then_some(driver)
}

/// Offers it for credentials the caller may read.
pub(super) fn offer(api: &Shared, visit: &Visit, kind: &Kind, objects: &mut [Value]) {
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if driver(api, object).is_some() && visit.rights.may("get", kind, GLOBAL_DATA, name) {
            let own = object["links"]["self"].as_str().unwrap_or_default();
            object["actions"] = json!({NAME: format!("{own}?action={NAME}")});
        }
    }
}

/// Tries the credential of a row the caller may read.
pub(super) async fn act(api: &Shared, row: &Row, call: &Call) -> Result<Value, Refusal> {
    if call.head.method != Method::POST {
        return Err(Refusal::method_not_allowed(&["POST"]));
    }
    let object = row.object();
    let (Some(driver), Some(checks)) = (driver(api, &object), &api.credentials) else {
        return Err(super::no_action(NAME));
    };
    let prefix = format!("{driver}{CONFIG}-");
    let fields = object["data"].as_object().into_iter().flatten().filter_map(|(key, value)| {
        let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
        Some((key.strip_prefix(&prefix)?.to_owned(), String::from_utf8(bytes).ok()?))
    });
    let verdict = checks.check(driver, fields.collect()).await?;
    let mut told = json!({"type": "credentialTest", "links": {}, "works": verdict.failure.is_none()});
    if let Some((code, message)) = verdict.failure {
        told["code"] = code.into();
        told["message"] = message.into();
    }
    Ok(told)
}
