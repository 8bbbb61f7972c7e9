//! The calls of Azure Resource Manager that a machine needs: all resources are put, looked at and deleted alike.

use serde::Deserialize;
use serde_json::Value;

use super::{NAME, Record};
use crate::{
    builtin::Context,
    error::{Class, Error, Result},
    http::{Repeat, Verdict},
    rest::{Body, Rest, Said, encode, part, unreadable},
    secret::Secret,
};

/// Where a cloud of Azure is: what people call it, tokens, resources.
const CLOUDS: &[(&str, &str, &str)] = &[
    ("AzurePublicCloud", "https://login.microsoftonline.com", "https://management.azure.com"),
    ("AzureChinaCloud", "https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
    ("AzureUSGovernmentCloud", "https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
];

/// Tokens and resources of a cloud.
pub(super) fn cloud(name: &str) -> Result<(&'static str, &'static str)> {
    let found = CLOUDS.iter().find(|(known, _, _)| known.eq_ignore_ascii_case(name));
    let names: Vec<&str> = CLOUDS.iter().map(|(known, _, _)| *known).collect();
    let unknown = || Error::other(format!("--azure-environment must be one of {}", names.join(", ")));
    found.map(|(_, tokens, resources)| (*tokens, *resources)).ok_or_else(unknown)
}

/// A kind of resources: its path below a group, and the version of its API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(pub &'static str, &'static str);

pub(super) const MACHINE: Kind = Kind("Microsoft.Compute/virtualMachines", "2024-03-01");
pub(super) const SET: Kind = Kind("Microsoft.Compute/availabilitySets", "2024-03-01");
pub(super) const CARD: Kind = Kind("Microsoft.Network/networkInterfaces", "2023-11-01");
pub(super) const ADDRESS: Kind = Kind("Microsoft.Network/publicIPAddresses", "2023-11-01");
pub(super) const FIREWALL: Kind = Kind("Microsoft.Network/networkSecurityGroups", "2023-11-01");
pub(super) const NETWORK: Kind = Kind("Microsoft.Network/virtualNetworks", "2023-11-01");
const GROUPS: &str = "2022-09-01";

#[derive(Debug)]
pub(super) struct Api {
    rest: Rest,
    subscription: String,
}

fn understand(status: u16, body: &Value) -> Said {
    let text = |field: &str| body["error"][field].as_str().unwrap_or_default();
    let mut said = Said::new(status, text("code"), text("message"));
    said.class = classed(status, &said.code, said.class);
    match said.code.as_str() {
        // Something else is under way with the same thing, or with what it needs.
        "AnotherOperationInProgress"
        | "RetryableError"
        | "InUseNetworkSecurityGroupCannotBeDeleted"
        | "PublicIPAddressCannotBeDeleted"
        | "NicInUse"
        | "NicReservedForAnotherVm" => {
            said.verdict = Verdict::Throttled;
        }
        _ => {}
    }
    said
}

/// What a code of Azure's means.
pub(super) fn classed(status: u16, code: &str, otherwise: Class) -> Class {
    match code {
        "OperationNotAllowed"
        | "SkuNotAvailable"
        | "AllocationFailed"
        | "ZonalAllocationFailed"
        | "OverconstrainedAllocationRequest"
        | "PublicIPCountLimitReached" => Class::Quota,
        _ if code.ends_with("QuotaExceeded")
            || code.ends_with("LimitReached")
            || code.ends_with("LimitExceeded") =>
        {
            Class::Quota
        }
        "PlatformImageNotFound" | "ImageNotFound" | "GalleryImageNotFound" => Class::Image,
        "InvalidAuthenticationToken" | "AuthorizationFailed" | "SubscriptionNotFound" => Class::Credentials,
        _ if matches!(status, 401 | 403) => Class::Credentials,
        _ => otherwise,
    }
}

fn understand_login(status: u16, body: &Value) -> Said {
    let text = |field: &str| body[field].as_str().unwrap_or_default();
    // Traces and times follow on further lines.
    let first = text("error_description").lines().next().unwrap_or_default();
    let mut said = Said::new(status, text("error"), first);
    if (400..429).contains(&status) {
        said.class = Class::Credentials;
    }
    said
}

/// A token for the record's service principal, and the seconds it lasts.
pub(super) async fn exchange(context: &Context, record: &Record) -> Result<(Secret, u64)> {
    #[derive(Deserialize)]
    struct Token {
        access_token: Secret,
        expires_in: u64,
    }
    let what = "ask for a token";
    let (tokens, resources) = cloud(&record.environment)?;
    let api = Rest::new(context, context.endpoint(NAME, tokens), Secret::default(), understand_login)?;
    let form = [
        ("grant_type", "client_credentials".to_owned()),
        ("client_id", record.client_id.clone()),
        ("client_secret", record.client_secret.expose().to_owned()),
        ("scope", format!("{resources}/.default")),
    ];
    let path = format!("/{}/oauth2/v2.0/token", encode(&record.tenant_id));
    let answer = api.post(what, &path, Body::Form(&form), Repeat::Safe).await?;
    let token: Token = part(what, answer)?;
    Ok((token.access_token, token.expires_in))
}

impl Api {
    pub(super) fn new(context: &Context, record: &Record, token: &Secret) -> Result<Self> {
        let (_, resources) = cloud(&record.environment)?;
        let authorization = Secret::new(format!("Bearer {}", token.expose()));
        let rest = Rest::new(context, context.endpoint(NAME, resources), authorization, understand)?;
        Ok(Self { rest, subscription: encode(&record.subscription_id) })
    }

    /// The id of a resource, which is its path.
    pub(super) fn id(&self, group: &str, kind: Kind, name: &str) -> String {
        let (subscription, group, name) = (&self.subscription, encode(group), encode(name));
        format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{}/{name}", kind.0)
    }

    fn path(id: &str, kind: Kind) -> String {
        format!("{id}?api-version={}", kind.1)
    }

    pub(super) async fn get(&self, id: &str, kind: Kind) -> Result<Option<Value>> {
        Ok(self.rest.get("look up resource", &Self::path(id, kind)).await?)
    }

    /// A machine with what it does at the moment.
    pub(super) async fn machine(&self, id: &str) -> Result<Option<Value>> {
        let path = format!("{}&$expand=instanceView", Self::path(id, MACHINE));
        Ok(self.rest.get("look up machine", &path).await?)
    }

    /// A second put of the same changes nothing.
    pub(super) async fn put(&self, id: &str, kind: Kind, body: &Value) -> Result<Value> {
        let name = id.rsplit('/').next().unwrap_or_default();
        Ok(self.rest.put(&format!("make {name}"), &Self::path(id, kind), Body::Json(body)).await?)
    }

    pub(super) async fn delete(&self, id: &str, kind: Kind) -> Result<()> {
        let name = id.rsplit('/').next().unwrap_or_default();
        Ok(self.rest.delete(&format!("delete {name}"), &Self::path(id, kind)).await.map(drop)?)
    }

    pub(super) async fn power(&self, id: &str, kind: &str) -> Result<()> {
        let path = format!("{id}/{kind}?api-version={}", MACHINE.1);
        Ok(self.rest.post(kind, &path, Body::None, Repeat::Safe).await.map(drop)?)
    }

    /// The group exists after this; one that does is left as it is.
    pub(super) async fn ensure_group(&self, group: &str, location: &str) -> Result<()> {
        let (subscription, name) = (&self.subscription, encode(group));
        let path = format!("/subscriptions/{subscription}/resourcegroups/{name}?api-version={GROUPS}");
        if self.rest.get("look up resource group", &path).await?.is_none() {
            let body = serde_json::json!({"location": location});
            self.rest.put("make resource group", &path, Body::Json(&body)).await?;
        }
        Ok(())
    }

    pub(super) async fn has_location(&self, location: &str) -> Result<bool> {
        let path = format!("/subscriptions/{}/locations?api-version={GROUPS}", self.subscription);
        let all: Vec<Value> = self.rest.list("list locations", &path, "value", |_| Ok(None)).await?;
        Ok(all
            .iter()
            .any(|known| known["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(location))))
    }

    /// All machines of the subscription.
    pub(super) async fn machines(&self) -> Result<Vec<Value>> {
        let what = "list machines";
        let path =
            format!("/subscriptions/{}/providers/{}?api-version={}", self.subscription, MACHINE.0, MACHINE.1);
        let next = |body: &Value| match body["nextLink"].as_str() {
            None => Ok(None),
            // Only the path is followed: the token goes to nobody else.
            Some(link) => {
                let at = link.find("/subscriptions/").ok_or_else(|| unreadable(what))?;
                Ok(Some(link[at..].to_owned()))
            }
        };
        Ok(self.rest.list(what, &path, "value", next).await?)
    }
}
