//! The calls of Compute Engine's API that a machine needs.

use std::collections::BTreeMap;

use remuda_names::machines::tag::LABEL;
use serde::Deserialize;
use serde_json::Value;

use super::NAME;
use crate::{
    builtin::Context,
    error::{Class, Error, Result},
    http::{Repeat, Verdict},
    log::Log,
    rest::{Body, Refused, Rest, Said, encode, part, unreadable},
    secret::Secret,
};

#[derive(Debug)]
pub(super) struct Api {
    rest: Rest,
    project: String,
    zone: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    #[serde(default)]
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    network_interfaces: Vec<Card>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Card {
    #[serde(default, rename = "networkIP")]
    network_ip: String,
    #[serde(default)]
    access_configs: Vec<Access>,
}

#[derive(Debug, Deserialize)]
struct Access {
    #[serde(default, rename = "natIP")]
    nat_ip: String,
}

impl Instance {
    pub(super) fn internal(&self) -> &str {
        self.network_interfaces.first().map_or("", |card| &card.network_ip)
    }

    pub(super) fn external(&self) -> &str {
        let first = self.network_interfaces.first().and_then(|card| card.access_configs.first());
        first.map_or("", |access| &access.nat_ip)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Operation {
    name: String,
    #[serde(default)]
    pub status: String,
    error: Option<Failures>,
}

#[derive(Debug, Deserialize)]
struct Failures {
    #[serde(default)]
    errors: Vec<Failure>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Operation {
    /// Whether what was begun was done.
    pub(super) fn outcome(&self, log: &Log) -> Result<()> {
        let Some(failure) = self.error.as_ref().and_then(|error| error.errors.first()) else { return Ok(()) };
        let said: String = log.redactor().scrub(&failure.message).chars().take(500).collect();
        let code = failure.code.as_str();
        let class = match code {
            "QUOTA_EXCEEDED" | "RESOURCE_EXHAUSTED" => Class::Quota,
            _ if code.contains("RESOURCE_POOL_EXHAUSTED") || code.ends_with("_EXCEEDED") => Class::Quota,
            _ => Class::Other,
        };
        Err(Error::new(class, format!("create instance: {code}: {said}")))
    }
}

fn understand(status: u16, body: &Value) -> Said {
    let error = &body["error"];
    let reason = error["errors"][0]["reason"].as_str().or(error["status"].as_str()).unwrap_or_default();
    let mut said = Said::new(status, reason, error["message"].as_str().unwrap_or_default());
    match said.code.as_str() {
        // Told as forbidden, but it passes.
        "rateLimitExceeded" | "userRateLimitExceeded" => {
            (said.class, said.verdict) = (Class::Quota, Verdict::Throttled);
        }
        "quotaExceeded" | "limitExceeded" | "dailyLimitExceeded" => said.class = Class::Quota,
        // Something else is under way with the same thing.
        "resourceNotReady" | "resourceInUseByAnotherResource" => said.verdict = Verdict::Throttled,
        _ => {}
    }
    said
}

impl Api {
    pub(super) fn new(context: &Context, project: &str, zone: &str, token: &Secret) -> Result<Self> {
        let endpoint = context.endpoint(NAME, "https://compute.googleapis.com");
        let authorization = Secret::new(format!("Bearer {}", token.expose()));
        let rest = Rest::new(context, endpoint, authorization, understand)?;
        Ok(Self { rest, project: encode(project), zone: encode(zone) })
    }

    fn zone(&self, rest: &str) -> String {
        format!("/compute/v1/projects/{}/zones/{}{rest}", self.project, self.zone)
    }

    /// Whether there is something below the zone, or the zone itself.
    pub(super) async fn has(&self, what: &str, path: &str) -> Result<bool> {
        Ok(self.rest.get(what, &self.zone(path)).await?.is_some())
    }

    /// An image is given as `project/global/images/name`.
    pub(super) async fn has_image(&self, image: &str) -> Result<bool> {
        let path: Vec<String> = image.split('/').map(encode).collect();
        // Dots would lead elsewhere.
        let path = path.join("/").replace("..", "%2E%2E");
        Ok(self.rest.get("look up image", &format!("/compute/v1/projects/{path}")).await?.is_some())
    }

    /// A reserved address, given by name or as it is.
    pub(super) async fn address(&self, region: &str, given: &str) -> Result<String> {
        if given.parse::<std::net::IpAddr>().is_ok() {
            return Ok(given.to_owned());
        }
        let (project, region, name) = (&self.project, encode(region), encode(given));
        let path = format!("/compute/v1/projects/{project}/regions/{region}/addresses/{name}");
        let found = self.rest.get("look up address", &path).await?;
        let missing = || Error::other(format!("google has no address {given} in that region"));
        found.and_then(|found| Some(found["address"].as_str()?.to_owned())).ok_or_else(missing)
    }

    pub(super) async fn instance(&self, name: &str) -> Result<Option<Instance>> {
        let what = "look up instance";
        let found = self.rest.get(what, &self.zone(&format!("/instances/{}", encode(name)))).await?;
        found.map(|body| part(what, body)).transpose()
    }

    /// Asks for an instance; the same id never makes a second one. Gives the operation.
    pub(super) async fn insert(&self, request: &Value, id: &str) -> Result<String, Refused> {
        let path = self.zone(&format!("/instances?requestId={}", request_id(id)));
        let answer = self.rest.post("create instance", &path, Body::Json(request), Repeat::Safe).await?;
        named("create instance", answer).map_err(Refused::from)
    }

    pub(super) async fn operation(&self, name: &str) -> Result<Option<Operation>> {
        let what = "look at an operation";
        let found = self.rest.get(what, &self.zone(&format!("/operations/{}", encode(name)))).await?;
        found.map(|body| part(what, body)).transpose()
    }

    pub(super) async fn power(&self, instance: &str, kind: &str) -> Result<String> {
        let path = self.zone(&format!("/instances/{}/{kind}", encode(instance)));
        named(kind, self.rest.post(kind, &path, Body::None, Repeat::Safe).await?)
    }

    /// Gives the operation, if there is still something to delete.
    pub(super) async fn delete(&self, instance: &str) -> Result<Option<String>> {
        let what = "delete instance";
        let path = self.zone(&format!("/instances/{}", encode(instance)));
        match self.rest.delete(what, &path).await? {
            Value::Null => Ok(None),
            answer => named(what, answer).map(Some),
        }
    }

    /// All instances of the project that have our label, in whichever zone.
    pub(super) async fn ours(&self) -> Result<Vec<Instance>> {
        let what = "list instances";
        let filter = encode(&format!("labels.{LABEL}:*"));
        let first = format!("/compute/v1/projects/{}/aggregated/instances?filter={filter}", self.project);
        let (mut all, mut path) = (Vec::new(), first.clone());
        // Zones are in an object, by name.
        for _ in 0..1000 {
            let mut body = self.rest.get(what, &path).await?.unwrap_or_default();
            let zones: BTreeMap<String, Value> = part(what, body["items"].take())?;
            for mut zone in zones.into_values() {
                if zone["instances"].is_array() {
                    let found: Vec<Instance> = part(what, zone["instances"].take())?;
                    all.extend(found);
                }
            }
            match body["nextPageToken"].as_str().filter(|token| !token.is_empty()) {
                None => return Ok(all),
                Some(token) => path = format!("{first}&pageToken={}", encode(token)),
            }
        }
        Err(unreadable(what))
    }
}

/// The name of the operation that an answer tells of.
fn named(what: &str, answer: Value) -> Result<String> {
    let operation: Operation = part(what, answer)?;
    Ok(operation.name)
}

/// An identity as Google wants ids of requests.
fn request_id(identity: &str) -> String {
    let part = |from: usize, to: usize| identity.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}
