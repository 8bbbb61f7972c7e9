//! The calls of DigitalOcean's API that a machine needs.

use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    builtin::Context,
    error::{Class, Error, Result, classify},
    http::{Answer, Http, Repeat, Verdict},
    log::Log,
    secret::Secret,
};

#[derive(Debug)]
pub(super) struct Api {
    http: Http,
    endpoint: String,
    token: Secret,
    log: Log,
}

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

/// Pages beyond this are not read; nobody has so many keys.
const PAGES: usize = 500;

impl Api {
    pub(super) fn new(context: &Context, token: Secret) -> Result<Self> {
        let endpoint = context.digitalocean.trim_end_matches('/').to_owned();
        let http = Http::new(&endpoint, &context.connections, context.pace, context.log.clone())?;
        Ok(Self { http, endpoint, token, log: context.log.clone() })
    }

    pub(super) async fn regions(&self) -> Result<Vec<Region>> {
        self.list("list regions", "/v2/regions?per_page=200", "regions").await
    }

    pub(super) async fn check_image(&self, image: &str) -> Result<()> {
        let path = format!("/v2/images/{}", encode(image));
        match self.get("look up image", &path).await? {
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
        self.get("look up SSH key", &path).await?.map(|body| part(body, "ssh_key")).transpose()
    }

    pub(super) async fn create_key(&self, name: &str, public: &str) -> Result<Key> {
        let request = serde_json::json!({"name": name, "public_key": public});
        part(self.post("create SSH key", "/v2/account/keys", &request).await?, "ssh_key")
    }

    pub(super) async fn delete_key(&self, id: u64) -> Result<()> {
        self.delete("delete SSH key", &format!("/v2/account/keys/{id}")).await
    }

    /// The droplets with a tag, or all.
    pub(super) async fn droplets(&self, tag: Option<&str>) -> Result<Vec<Droplet>> {
        let filter = tag.map(|tag| format!("&tag_name={}", encode(tag))).unwrap_or_default();
        let path = format!("/v2/droplets?per_page=200{filter}");
        self.list("list droplets", &path, "droplets").await
    }

    pub(super) async fn droplet(&self, id: u64) -> Result<Option<Droplet>> {
        let path = format!("/v2/droplets/{id}");
        self.get("look up droplet", &path).await?.map(|body| part(body, "droplet")).transpose()
    }

    pub(super) async fn create_droplet(&self, request: &Value) -> Result<Droplet> {
        part(self.post("create droplet", "/v2/droplets", request).await?, "droplet")
    }

    pub(super) async fn delete_droplet(&self, id: u64) -> Result<()> {
        self.delete("delete droplet", &format!("/v2/droplets/{id}")).await
    }

    pub(super) async fn delete_tag(&self, tag: &str) -> Result<()> {
        self.delete("delete tag", &format!("/v2/tags/{}", encode(tag))).await
    }

    pub(super) async fn action(&self, id: u64, kind: &str) -> Result<()> {
        let request = serde_json::json!({"type": kind});
        // A second power_off does nothing, a second reboot little.
        let path = format!("/v2/droplets/{id}/actions");
        let answer = self.call(kind, Method::POST, &path, Some(&request), Repeat::Safe).await?;
        self.expect(kind, answer).map(drop)
    }

    async fn get(&self, what: &str, path: &str) -> Result<Option<Value>> {
        let answer = self.call(what, Method::GET, path, None, Repeat::Safe).await?;
        if answer.status == 404 { Ok(None) } else { self.expect(what, answer).map(Some) }
    }

    async fn post(&self, what: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.call(what, Method::POST, path, Some(body), Repeat::Unsafe).await?;
        self.expect(what, answer)
    }

    async fn delete(&self, what: &str, path: &str) -> Result<()> {
        let answer = self.call(what, Method::DELETE, path, None, Repeat::Safe).await?;
        if answer.status == 404 { Ok(()) } else { self.expect(what, answer).map(drop) }
    }

    async fn list<T: DeserializeOwned>(&self, what: &str, path: &str, name: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut path = path.to_owned();
        for _ in 0..PAGES {
            let answer = self.call(what, Method::GET, &path, None, Repeat::Safe).await?;
            let mut body = self.expect(what, answer)?;
            let items: Vec<T> = part(body[name].take(), "")?;
            all.extend(items);
            match body["links"]["pages"]["next"].as_str() {
                None => return Ok(all),
                // Only the path is followed: the token goes to nobody else.
                Some(next) => path = next_path(next).ok_or_else(|| unreadable(what))?,
            }
        }
        Err(Error::other(format!("{what}: too many pages")))
    }

    async fn call(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<Answer> {
        let url = format!("{}{path}", self.endpoint);
        let build = |client: &reqwest::Client| {
            let mut request = client.request(method.clone(), &url).bearer_auth(self.token.expose());
            if let Some(body) = body {
                request = request.json(body);
            }
            Ok(request)
        };
        let judge = |answer: &Answer| match answer.status {
            429 => Verdict::Throttled,
            500.. => Verdict::Broken,
            // A droplet that is still being made refuses to be deleted.
            422 if answer.body.windows(13).any(|part| part == b"pending event") => Verdict::Throttled,
            _ => Verdict::Final,
        };
        self.http.call(what, repeat, build, judge).await
    }

    fn expect(&self, what: &str, answer: Answer) -> Result<Value> {
        if (200..300).contains(&answer.status) {
            if answer.body.is_empty() {
                return Ok(Value::Null);
            }
            return serde_json::from_slice(&answer.body).map_err(|_| unreadable(what));
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let said = body["message"].as_str().unwrap_or("no explanation");
        let said: String = self.log.redactor().scrub(said).chars().take(500).collect();
        let lower = said.to_lowercase();
        let class = match answer.status {
            401 | 403 => Class::Credentials,
            422 if lower.contains("limit") => Class::Quota,
            422 if lower.contains("image") => Class::Image,
            _ => classify(&said),
        };
        Err(Error::new(class, format!("{what}: {said} (status {})", answer.status)))
    }
}

fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn next_path(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let at = rest.find('/')?;
    rest[at..].starts_with("/v2/").then(|| rest[at..].to_owned())
}

fn unreadable(what: &str) -> Error {
    Error::network(format!("{what}: the answer cannot be read"))
}

fn part<T: DeserializeOwned>(mut body: Value, name: &str) -> Result<T> {
    let value = if name.is_empty() { body } else { body[name].take() };
    serde_json::from_value(value).map_err(|_| unreadable("digitalocean"))
}
