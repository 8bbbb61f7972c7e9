//! The calls of DigitalOcean's API that a machine needs.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    builtin::Context,
    error::{Class, Error, Result},
    http::{Repeat, Verdict},
    rest::{Body, Rest, Said, encode, part, unreadable},
    secret::Secret,
};

#[derive(Debug)]
pub(super) struct Api(Rest);

#[derive(Debug, Deserialize)]
pub(super) struct Region {
    pub slug: String,
    #[serde(default)]
    pub sizes: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Key {
    pub id: u64,
    #[serde(default)]
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Droplet {
    pub id: u64,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    networks: Networks,
}

#[derive(Debug, Default, Deserialize)]
struct Networks {
    #[serde(default)]
    v4: Vec<Network>,
    #[serde(default)]
    v6: Vec<Network>,
}

#[derive(Debug, Deserialize)]
struct Network {
    ip_address: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Droplet {
    pub(super) fn v4(&self, kind: &str) -> &str {
        let hit = self.networks.v4.iter().find(|network| network.kind == kind);
        hit.map_or("", |network| &network.ip_address)
    }

    pub(super) fn v6(&self) -> &str {
        self.networks
            .v6
            .iter()
            .find(|network| network.kind == "public")
            .map_or("", |network| &network.ip_address)
    }
}

impl Api {
    pub(super) fn new(context: &Context, token: &Secret) -> Result<Self> {
        let authorization = Secret::new(format!("Bearer {}", token.expose()));
        Rest::new(context, &context.digitalocean, authorization, understand).map(Self)
    }

    pub(super) async fn regions(&self) -> Result<Vec<Region>> {
        self.list("list regions", "/v2/regions?per_page=200", "regions").await
    }

    pub(super) async fn check_image(&self, image: &str) -> Result<()> {
        let path = format!("/v2/images/{}", encode(image));
        match self.0.get("look up image", &path).await? {
            Some(_) => Ok(()),
            None => Err(Error::new(Class::Image, format!("digitalocean has no image {image}"))),
        }
    }

    pub(super) async fn keys(&self) -> Result<Vec<Key>> {
        self.list("list SSH keys", "/v2/account/keys?per_page=200", "ssh_keys").await
    }

    /// A key by its number or fingerprint.
    pub(super) async fn key(&self, which: &str) -> Result<Option<Key>> {
        let path = format!("/v2/account/keys/{}", encode(which));
        let what = "look up SSH key";
        self.0.get(what, &path).await?.map(|body| held(what, body, "ssh_key")).transpose()
    }

    pub(super) async fn create_key(&self, name: &str, public: &str) -> Result<Key> {
        let request = serde_json::json!({"name": name, "public_key": public});
        let what = "create SSH key";
        let made = self.0.post(what, "/v2/account/keys", Body::Json(&request), Repeat::Unsafe).await?;
        held(what, made, "ssh_key")
    }

    pub(super) async fn delete_key(&self, id: u64) -> Result<()> {
        Ok(self.0.delete("delete SSH key", &format!("/v2/account/keys/{id}")).await.map(drop)?)
    }

    /// The droplets with a tag, or all.
    pub(super) async fn droplets(&self, tag: Option<&str>) -> Result<Vec<Droplet>> {
        let filter = tag.map(|tag| format!("&tag_name={}", encode(tag))).unwrap_or_default();
        let path = format!("/v2/droplets?per_page=200{filter}");
        self.list("list droplets", &path, "droplets").await
    }

    pub(super) async fn droplet(&self, id: u64) -> Result<Option<Droplet>> {
        let path = format!("/v2/droplets/{id}");
        let what = "look up droplet";
        self.0.get(what, &path).await?.map(|body| held(what, body, "droplet")).transpose()
    }

    pub(super) async fn create_droplet(&self, request: &Value) -> Result<Droplet> {
        let what = "create droplet";
        let made = self.0.post(what, "/v2/droplets", Body::Json(request), Repeat::Unsafe).await?;
        held(what, made, "droplet")
    }

    pub(super) async fn delete_droplet(&self, id: u64) -> Result<()> {
        Ok(self.0.delete("delete droplet", &format!("/v2/droplets/{id}")).await.map(drop)?)
    }

    pub(super) async fn delete_tag(&self, tag: &str) -> Result<()> {
        Ok(self.0.delete("delete tag", &format!("/v2/tags/{}", encode(tag))).await.map(drop)?)
    }

    pub(super) async fn action(&self, id: u64, kind: &str) -> Result<()> {
        let request = serde_json::json!({"type": kind});
        // A second power_off does nothing, a second reboot little.
        let path = format!("/v2/droplets/{id}/actions");
        Ok(self.0.post(kind, &path, Body::Json(&request), Repeat::Safe).await.map(drop)?)
    }

    async fn list<T: DeserializeOwned>(&self, what: &str, path: &str, name: &str) -> Result<Vec<T>> {
        let next = |body: &Value| match body["links"]["pages"]["next"].as_str() {
            None => Ok(None),
            Some(next) => next_path(next).map(Some).ok_or_else(|| unreadable(what)),
        };
        Ok(self.0.list(what, path, name, next).await?)
    }
}

fn understand(status: u16, body: &Value) -> Said {
    let text = |field: &str| body[field].as_str().unwrap_or_default();
    let mut said = Said::new(status, text("id"), text("message"));
    let lower = said.message.to_lowercase();
    if status == 422 {
        // There is one code for all it refuses.
        let is_about = |words: &[u8]| lower.as_bytes().windows(words.len()).any(|part| part == words);
        match () {
            // A droplet that is still being made refuses to be deleted.
            () if is_about(b"pending event") => said.verdict = Verdict::Throttled,
            () if is_about(b"limit") => said.class = Class::Quota,
            () if is_about(b"image") => said.class = Class::Image,
            () => {}
        }
    }
    said
}

fn next_path(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let at = rest.find('/')?;
    rest[at..].starts_with("/v2/").then(|| rest[at..].to_owned())
}

/// What an answer has under a name.
fn held<T: DeserializeOwned>(what: &str, mut body: Value, name: &str) -> Result<T> {
    part(what, body[name].take())
}
