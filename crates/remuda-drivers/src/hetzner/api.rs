//! The calls of Hetzner's API that a machine needs.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::NAME;
use crate::{
    builtin::Context,
    error::{Class, Error, Result},
    http::{Repeat, Verdict},
    rest::{Body, Refused, Rest, Said, encode, part},
    secret::Secret,
};

#[derive(Debug)]
pub(super) struct Api(Rest);

#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub id: u64,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    public_net: PublicNet,
    #[serde(default)]
    private_net: Vec<Address>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PublicNet {
    ipv4: Option<Address>,
    ipv6: Option<Address>,
}

#[derive(Debug, Deserialize)]
struct Address {
    #[serde(default)]
    ip: String,
}

impl Server {
    pub(super) fn v4(&self) -> &str {
        self.public_net.ipv4.as_ref().map_or("", |address| &address.ip)
    }

    /// A server has a whole network, and answers at the first address in it.
    pub(super) fn v6(&self) -> String {
        let network = self.public_net.ipv6.as_ref().and_then(|address| address.ip.split_once("::/"));
        network.map(|(network, _)| format!("{network}::1")).unwrap_or_default()
    }

    pub(super) fn private(&self) -> &str {
        self.private_net.first().map_or("", |address| &address.ip)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ServerType {
    pub architecture: String,
}

#[derive(Debug, Deserialize)]
struct Named {
    id: u64,
}

fn understand(status: u16, body: &Value) -> Said {
    let text = |field: &str| body["error"][field].as_str().unwrap_or_default();
    let mut said = Said::new(status, text("code"), text("message"));
    match said.code.as_str() {
        // Something else is under way with the same thing.
        "locked" | "conflict" | "rate_limit_exceeded" => said.verdict = Verdict::Throttled,
        "resource_unavailable" | "placement_error" => {
            (said.class, said.verdict) = (Class::Quota, Verdict::Final);
        }
        "unauthorized" | "forbidden" | "token_readonly" => said.class = Class::Credentials,
        // Told as forbidden, but another token is no help.
        code if code.ends_with("limit_exceeded") => said.class = Class::Quota,
        _ => {}
    }
    said
}

impl Api {
    pub(super) fn new(context: &Context, token: &Secret) -> Result<Self> {
        let endpoint = context.endpoint(NAME, "https://api.hetzner.cloud");
        let authorization = Secret::new(format!("Bearer {}", token.expose()));
        Rest::new(context, endpoint, authorization, understand).map(Self)
    }

    pub(super) async fn server_type(&self, name: &str) -> Result<ServerType> {
        let path = format!("/v1/server_types?name={}", encode(name));
        let found: Vec<ServerType> = self.list("look up server type", &path, "server_types").await?;
        found.into_iter().next().ok_or_else(|| Error::other(format!("hetzner has no server type {name}")))
    }

    /// The id of a thing given by name or id.
    pub(super) async fn by_name(&self, list: &str, kind: &str, given: &str) -> Result<u64> {
        let what = format!("look up {kind}");
        let missing = || Error::other(format!("hetzner has no {kind} {given}"));
        if let Ok(id) = given.parse::<u64>() {
            let path = format!("/v1/{list}/{id}");
            return self.0.get(&what, &path).await?.map(|_| id).ok_or_else(missing);
        }
        let path = format!("/v1/{list}?name={}", encode(given));
        let found: Vec<Named> = self.list(&what, &path, list).await?;
        found.first().map(|named| named.id).ok_or_else(missing)
    }

    pub(super) async fn image(&self, name: &str, architecture: &str) -> Result<u64> {
        let (name_, architecture_) = (encode(name), encode(architecture));
        let path = format!("/v1/images?name={name_}&architecture={architecture_}");
        let found: Vec<Named> = self.list("look up image", &path, "images").await?;
        let missing = || Error::new(Class::Image, format!("hetzner has no image {name} for {architecture}"));
        found.first().map(|image| image.id).ok_or_else(missing)
    }

    pub(super) async fn image_of(&self, id: u64) -> Result<u64> {
        match self.0.get("look up image", &format!("/v1/images/{id}")).await? {
            Some(_) => Ok(id),
            None => Err(Error::new(Class::Image, format!("hetzner has no image with id {id}"))),
        }
    }

    pub(super) async fn has_key(&self, id: u64) -> Result<bool> {
        Ok(self.0.get("look up SSH key", &format!("/v1/ssh_keys/{id}")).await?.is_some())
    }

    pub(super) async fn keys(&self, selector: &str) -> Result<Vec<u64>> {
        let path = format!("/v1/ssh_keys?label_selector={}", encode(selector));
        let found: Vec<Named> = self.list("list SSH keys", &path, "ssh_keys").await?;
        Ok(found.into_iter().map(|key| key.id).collect())
    }

    pub(super) async fn create_key(&self, request: &Value) -> Result<u64, Refused> {
        let what = "create SSH key";
        let mut made = self.0.post(what, "/v1/ssh_keys", Body::Json(request), Repeat::Unsafe).await?;
        let key: Named = part(what, made["ssh_key"].take())?;
        Ok(key.id)
    }

    pub(super) async fn delete_key(&self, id: u64) -> Result<()> {
        Ok(self.0.delete("delete SSH key", &format!("/v1/ssh_keys/{id}")).await.map(drop)?)
    }

    pub(super) async fn servers(&self, selector: &str) -> Result<Vec<Server>> {
        let path = format!("/v1/servers?label_selector={}", encode(selector));
        self.list("list servers", &path, "servers").await
    }

    pub(super) async fn server(&self, id: u64) -> Result<Option<Server>> {
        let what = "look up server";
        let found = self.0.get(what, &format!("/v1/servers/{id}")).await?;
        found.map(|mut body| part(what, body["server"].take())).transpose()
    }

    pub(super) async fn create_server(&self, request: &Value) -> Result<Server, Refused> {
        let what = "create server";
        let mut made = self.0.post(what, "/v1/servers", Body::Json(request), Repeat::Unsafe).await?;
        Ok(part(what, made["server"].take())?)
    }

    pub(super) async fn delete_server(&self, id: u64) -> Result<()> {
        Ok(self.0.delete("delete server", &format!("/v1/servers/{id}")).await.map(drop)?)
    }

    pub(super) async fn action(&self, id: u64, kind: &str) -> Result<()> {
        // A second poweroff does nothing, a second reboot little.
        let path = format!("/v1/servers/{id}/actions/{kind}");
        Ok(self.0.post(kind, &path, Body::None, Repeat::Safe).await.map(drop)?)
    }

    /// `path` has a query already.
    async fn list<T: DeserializeOwned>(&self, what: &str, path: &str, name: &str) -> Result<Vec<T>> {
        let first = format!("{path}&per_page=50");
        let next = |body: &Value| {
            let page = body["meta"]["pagination"]["next_page"].as_u64();
            Ok(page.map(|page| format!("{first}&page={page}")))
        };
        Ok(self.0.list(what, &first, name, next).await?)
    }
}
