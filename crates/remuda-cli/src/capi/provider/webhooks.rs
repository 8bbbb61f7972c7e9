//! Where the webhooks of a provider lead: to a Service as they are installed, or to a program on a host.
//!
//! A webhook that is pointed at a program keeps in an annotation what it had, so that it can be given back by a run that
//! did not take it. It never becomes one that is passed over: while nothing answers, writes fail.

use std::collections::BTreeMap;

use kube::api::ApiResource;
use remuda_api::clusterctl::ServiceKey;
use remuda_names::{annotation, capi::label};
use serde_json::{Value, json};

use crate::{
    api::{self, Which},
    capi::{configurations, definitions},
    failure::{Code, Failure},
    object::Object,
    session::Session,
};

/// A definition has one client, which has no name there.
const CONVERSION: &str = "conversion";

/// Where a program answers, and what its certificates are signed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// `https://HOST:PORT`
    pub(super) base: String,
    /// Base64 of PEM.
    pub(super) ca_bundle: String,
}

/// The clients of a webhook configuration or of a definition, by the names of their webhooks.
pub(super) fn clients(object: &Value) -> Vec<(&str, &Value)> {
    let webhooks = object["webhooks"].as_array().into_iter().flatten();
    let named =
        webhooks.map(|webhook| (webhook["name"].as_str().unwrap_or_default(), &webhook["clientConfig"]));
    let conversion = &object["spec"]["conversion"];
    let converts = conversion["strategy"] == "Webhook" && conversion["webhook"]["clientConfig"].is_object();
    named.chain(converts.then(|| (CONVERSION, &conversion["webhook"]["clientConfig"]))).collect()
}

fn client_mut<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    if object.get("webhooks").is_none() {
        return object.pointer_mut("/spec/conversion/webhook/clientConfig");
    }
    let webhooks = object["webhooks"].as_array_mut()?;
    let webhook = webhooks.iter_mut().find(|webhook| webhook["name"] == name)?;
    webhook.get_mut("clientConfig")
}

/// The Service a client leads to.
pub(super) fn service(client: &Value) -> Option<ServiceKey> {
    let text = |field: &str| client["service"][field].as_str().map(str::to_owned);
    Some((text("namespace")?, text("name")?))
}

/// `https://HOST:PORT` of a client that leads to a URL.
pub(super) fn base(client: &Value) -> Option<&str> {
    let url = client["url"].as_str()?;
    let start = url.find("://")? + 3;
    let end = url[start..].find('/').map_or(url.len(), |slash| start + slash);
    Some(&url[..end])
}

/// What clients had before they were pointed at a program.
fn kept(object: &Value) -> BTreeMap<String, Value> {
    let text = object["metadata"]["annotations"][annotation::PROVIDER_WEBHOOKS].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn keep(object: &mut Value, kept: &BTreeMap<String, Value>) {
    let metadata = &mut object["metadata"];
    if !kept.is_empty() {
        metadata["annotations"][annotation::PROVIDER_WEBHOOKS] = json!(kept).to_string().into();
        return;
    }
    let Some(annotations) = metadata["annotations"].as_object_mut() else { return };
    annotations.remove(annotation::PROVIDER_WEBHOOKS);
    if annotations.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
}

/// The program something of an object was pointed at.
pub(super) fn pointed_at(object: &Value) -> Option<&str> {
    let kept = kept(object);
    clients(object)
        .into_iter()
        .filter(|(name, _)| kept.contains_key(*name))
        .find_map(|(_, client)| base(client))
}

/// Points what leads to a Service in the provider's namespace at a program. Whether there was anything to do.
pub(super) fn point(object: &mut Value, namespace: &str, endpoint: &Endpoint) -> bool {
    let mut kept = kept(object);
    let found = clients(object).into_iter().map(|(name, client)| (name.to_owned(), client.clone()));
    let mut changed = false;
    for (name, client) in found.collect::<Vec<_>>() {
        if service(&client).is_some_and(|(of, _)| of == namespace) {
            kept.insert(name.clone(), client.clone());
        }
        let Some(original) = kept.get(&name) else { continue };
        let path = original["service"]["path"].as_str().unwrap_or_default().trim_start_matches('/');
        let pointed = json!({"url": format!("{}/{path}", endpoint.base), "caBundle": endpoint.ca_bundle});
        if client != pointed
            && let Some(place) = client_mut(object, &name)
        {
            *place = pointed;
            changed = true;
        }
    }
    if changed {
        keep(object, &kept);
    }
    changed
}

/// Gives back what clients had that lead to a program. Whether there was anything to do.
pub(super) fn restore(object: &mut Value, base_of_program: &str) -> bool {
    let mut kept = kept(object);
    let mut changed = false;
    for name in kept.keys().cloned().collect::<Vec<_>>() {
        let Some(place) = client_mut(object, &name) else { continue };
        if base(place) == Some(base_of_program)
            && let Some(original) = kept.remove(&name)
        {
            *place = original;
            changed = true;
        }
    }
    if changed {
        keep(object, &kept);
    }
    changed
}

/// Everything of a provider that may have webhooks.
pub(super) async fn of_provider(
    session: &Session,
    instance: &str,
) -> Result<Vec<(ApiResource, Object)>, Failure> {
    let mut found = Vec::new();
    let labels = format!("{}={instance}", label::PROVIDER);
    for resource in configurations().into_iter().chain([definitions()]) {
        let objects = api::list(&session.client, &resource, None, Which::Labels(&labels)).await?;
        let with_clients = objects.into_iter().filter(|object| !clients(&object.0).is_empty());
        found.extend(with_clients.map(|object| (resource.clone(), object)));
    }
    Ok(found)
}

/// Changes one object as it is now. Whether there was anything to do; what is gone needs nothing.
pub(super) async fn change(
    session: &Session,
    resource: &ApiResource,
    name: &str,
    mut change: impl FnMut(&mut Value) -> bool,
) -> Result<bool, Failure> {
    let changed =
        api::change(&session.client, resource, None, name, false, |object| Ok(change(&mut object.0)));
    match changed.await {
        Ok(written) => Ok(written.is_some()),
        Err(failure) if failure.code == Code::NotFound => Ok(false),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration() -> Value {
        json!({"metadata": {"name": "sim", "annotations": {"cert-manager.io/inject-ca-from": "x/y"}}, "webhooks": [
            {"name": "a.sim", "failurePolicy": "Fail", "clientConfig": {"caBundle": "Cg==",
                "service": {"namespace": "sim-system", "name": "hooks", "path": "/validate"}}},
            {"name": "b.sim", "clientConfig": {"service": {"namespace": "other", "name": "hooks"}}},
            {"name": "c.sim", "clientConfig": {"url": "https://example.org/c"}},
        ]})
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint { base: format!("https://127.0.0.1:{port}"), ca_bundle: "Y2E=".into() }
    }

    #[test]
    fn webhooks_lead_to_the_program_while_it_runs_and_back_to_their_services_afterwards() {
        let original = configuration();
        let mut object = original.clone();
        assert!(point(&mut object, "sim-system", &endpoint(1)));
        assert_eq!(
            object["webhooks"][0]["clientConfig"],
            json!({"url": "https://127.0.0.1:1/validate", "caBundle": "Y2E="})
        );
        // Those of others are left alone, and nothing is passed over.
        assert_eq!(
            [&object["webhooks"][1], &object["webhooks"][2]],
            [&original["webhooks"][1], &original["webhooks"][2]]
        );
        assert_eq!(object["webhooks"][0]["failurePolicy"], "Fail");
        assert_eq!(pointed_at(&object), Some("https://127.0.0.1:1"));
        assert!(!point(&mut object, "sim-system", &endpoint(1)));
        // A run that was killed left it so; the next one takes over.
        assert!(point(&mut object, "sim-system", &endpoint(2)));
        assert!(!restore(&mut object, "https://127.0.0.1:1"));
        assert!(restore(&mut object, "https://127.0.0.1:2"));
        assert_eq!(object, original);
        assert_eq!(pointed_at(&object), None);
    }

    #[test]
    fn what_was_installed_anew_meanwhile_is_pointed_again() {
        let mut object = configuration();
        point(&mut object, "sim-system", &endpoint(1));
        object["webhooks"][0]["clientConfig"] =
            json!({"service": {"namespace": "sim-system", "name": "hooks", "path": "/v2"}});
        assert!(point(&mut object, "sim-system", &endpoint(1)));
        assert_eq!(object["webhooks"][0]["clientConfig"]["url"], "https://127.0.0.1:1/v2");
        restore(&mut object, "https://127.0.0.1:1");
        assert_eq!(object["webhooks"][0]["clientConfig"]["service"]["path"], "/v2");
    }

    #[test]
    fn conversions_are_webhooks_too() {
        let client = json!({"service": {"namespace": "sim-system", "name": "hooks", "path": "/convert"}});
        let original = json!({"metadata": {}, "spec": {"conversion": {"strategy": "Webhook", "webhook":
            {"conversionReviewVersions": ["v1"], "clientConfig": client}}}});
        let mut object = original.clone();
        assert!(point(&mut object, "sim-system", &endpoint(1)));
        let converter = &object["spec"]["conversion"]["webhook"];
        assert_eq!(converter["clientConfig"]["url"], "https://127.0.0.1:1/convert");
        assert_eq!(converter["conversionReviewVersions"], json!(["v1"]));
        assert!(restore(&mut object, "https://127.0.0.1:1"));
        assert_eq!(object, original);
        let mut none = json!({"metadata": {}, "spec": {"conversion": {"strategy": "None"}}});
        assert!(!point(&mut none, "sim-system", &endpoint(1)));
    }
}
