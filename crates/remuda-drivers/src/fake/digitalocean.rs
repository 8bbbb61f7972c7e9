//! A fake of DigitalOcean's API: droplets, keys, tags, regions and images.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Api, Call, Hosts, Reply, pairs};

/// The fake account.
pub struct DigitalOcean {
    token: String,
    state: Mutex<Account>,
    /// Entries per page, whatever the caller asks for.
    page: usize,
    hosts: Option<Arc<dyn Hosts>>,
}

#[derive(Default)]
struct Account {
    next: u64,
    droplets: BTreeMap<u64, Droplet>,
    keys: BTreeMap<u64, Value>,
    tags: BTreeSet<String>,
    limit: Option<usize>,
}

struct Droplet {
    body: Value,
    tags: Vec<String>,
    /// Looks until it has an address.
    looks: u32,
    status: &'static str,
    /// Of the machine behind it, if there is one.
    address: Option<String>,
}

impl DigitalOcean {
    /// An account that accepts only this token.
    pub fn new(token: &str) -> Self {
        Self { token: token.into(), state: Mutex::default(), page: 2, hosts: None }
    }

    /// The same with real machines behind its droplets.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Arc<dyn Hosts>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// The same with longer pages.
    #[must_use]
    pub fn with_page(mut self, entries: usize) -> Self {
        self.page = entries.max(1);
        self
    }

    /// Droplets beyond this many are refused.
    pub fn limit(&self, droplets: usize) {
        self.state.lock().limit = Some(droplets);
    }

    /// Everything that exists, one line each.
    pub fn resources(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut all: Vec<String> = state.droplets.keys().map(|id| format!("droplet {id}")).collect();
        all.extend(state.keys.keys().map(|id| format!("key {id}")));
        all.extend(state.tags.iter().map(|tag| format!("tag {tag}")));
        all
    }

    /// The bodies droplets were created with.
    pub fn droplets(&self) -> Vec<Value> {
        self.state.lock().droplets.values().map(|droplet| droplet.body.clone()).collect()
    }

    /// Whether servers are `new`, `active` or `off`.
    pub fn statuses(&self) -> Vec<&'static str> {
        self.state.lock().droplets.values().map(|droplet| droplet.status).collect()
    }

    /// Puts somebody else's things into the account, which must survive.
    pub fn occupy(&self, count: usize) {
        let mut state = self.state.lock();
        for number in 0..count {
            state.next += 1;
            let id = state.next;
            state
                .keys
                .insert(id, json!({"id": id, "name": format!("other-{number}"), "public_key": "ssh-rsa x"}));
            state.next += 1;
            let id = state.next;
            let body = json!({"name": "other", "ipv6": false});
            let droplet = Droplet { body, tags: vec![], looks: 0, status: "active", address: None };
            state.droplets.insert(id, droplet);
        }
    }

    fn paged(&self, call: &Call, name: &str, all: Vec<Value>) -> Reply {
        let query = pairs(&call.query);
        let page: usize = query.get("page").and_then(|page| page.parse().ok()).unwrap_or(1).max(1);
        let start = (page - 1) * self.page;
        let more = all.len() > start + self.page;
        let items: Vec<Value> = all.into_iter().skip(start).take(self.page).collect();
        let mut links = json!({});
        if more {
            let host = call.headers.get("host").cloned().unwrap_or_default();
            let mut kept = query;
            kept.insert("page".into(), (page + 1).to_string());
            let kept: Vec<String> = kept.iter().map(|(key, value)| format!("{key}={value}")).collect();
            links = json!({"pages": {"next": format!("http://{host}{}?{}", call.path, kept.join("&"))}});
        }
        Reply::new(200, json!({name: items, "links": links}).to_string())
    }
}

impl Account {
    fn show(&mut self, id: u64) -> Option<Value> {
        let droplet = self.droplets.get_mut(&id)?;
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        if droplet.looks == 0 {
            if droplet.status == "new" {
                droplet.status = "active";
            }
            v4.push(json!({"ip_address": format!("10.0.0.{}", id % 250), "type": "private"}));
            let public = droplet.address.clone().unwrap_or_else(|| format!("203.0.113.{}", id % 250));
            v4.push(json!({"ip_address": public, "type": "public"}));
            if droplet.body["ipv6"] == true {
                v6.push(json!({"ip_address": format!("2001:db8::{id}"), "type": "public"}));
            }
        } else {
            droplet.looks -= 1;
        }
        Some(json!({
            "id": id, "name": droplet.body["name"], "status": droplet.status, "tags": droplet.tags,
            "networks": {"v4": v4, "v6": v6},
        }))
    }
}

impl Api for DigitalOcean {
    fn error(&self, status: u16, code: &str) -> Reply {
        Reply::new(status, json!({"id": code, "message": format!("{code} happened")}).to_string())
    }

    fn handle(&self, call: &Call) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        if call.headers.get("authorization") != Some(&bearer) {
            return Reply::new(401, r#"{"id":"Unauthorized","message":"Unable to authenticate you"}"#);
        }
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let path: Vec<&str> = call.path.trim_matches('/').split('/').skip(1).collect();
        let missing = || self.error(404, "not_found");
        let id = |text: &str| text.parse::<u64>().unwrap_or(0);
        let mut state = self.state.lock();
        match (call.method.as_str(), path.as_slice()) {
            ("GET", ["regions"]) => {
                let slugs = ["nyc1", "nyc2", "nyc3", "ams3", "fra1"];
                let all =
                    slugs.map(|slug| json!({"slug": slug, "available": true, "sizes": ["s-1vcpu-1gb"]}));
                self.paged(call, "regions", all.to_vec())
            }
            ("GET", ["images", slug]) if slug.starts_with("ubuntu") => {
                Reply::new(200, json!({"image": {"slug": slug}}).to_string())
            }
            ("GET", ["account", "keys"]) => {
                self.paged(call, "ssh_keys", state.keys.values().cloned().collect())
            }
            ("POST", ["account", "keys"]) => {
                let same = |key: &&Value| key["public_key"] == body["public_key"];
                if state.keys.values().find(same).is_some() {
                    let message = r#"{"id":"unprocessable_entity","message":"SSH Key is already in use on your account"}"#;
                    return Reply::new(422, message);
                }
                state.next += 1;
                let id = state.next;
                let key = json!({"id": id, "name": body["name"], "public_key": body["public_key"], "fingerprint": "f"});
                state.keys.insert(id, key.clone());
                Reply::new(201, json!({"ssh_key": key}).to_string())
            }
            ("GET", ["account", "keys", key]) => {
                let by = |held: &&Value| held["fingerprint"] == *key || held["id"] == id(key);
                match state.keys.values().find(by) {
                    Some(found) => Reply::new(200, json!({"ssh_key": found}).to_string()),
                    None => missing(),
                }
            }
            ("DELETE", ["account", "keys", key]) => match state.keys.remove(&id(key)) {
                Some(_) => Reply::new(204, ""),
                None => missing(),
            },
            ("POST", ["droplets"]) => {
                if state.limit.is_some_and(|limit| state.droplets.len() >= limit) {
                    let message = r#"{"id":"unprocessable_entity","message":"creating this/these droplet(s) will exceed your droplet limit"}"#;
                    return Reply::new(422, message);
                }
                let tags: Vec<String> = body["tags"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|tag| tag.as_str().map(str::to_owned))
                    .collect();
                state.next += 1;
                let id = state.next;
                let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
                let booted = self
                    .hosts
                    .as_ref()
                    .map(|hosts| hosts.boot(&format!("droplet-{id}"), &text("name"), &text("user_data")));
                let address = match booted.transpose() {
                    Ok(address) => address,
                    Err(why) => return self.error(500, &why),
                };
                state.tags.extend(tags.iter().cloned());
                let looks = u32::from(address.is_none());
                state.droplets.insert(id, Droplet { body, tags, looks, status: "new", address });
                let shown = state.show(id);
                Reply::new(202, json!({"droplet": shown}).to_string())
            }
            ("GET", ["droplets"]) => {
                let tag = pairs(&call.query).remove("tag_name");
                let wanted = |droplet: &Droplet| tag.as_ref().is_none_or(|tag| droplet.tags.contains(tag));
                let ids: Vec<u64> =
                    state.droplets.iter().filter(|(_, held)| wanted(held)).map(|(id, _)| *id).collect();
                let all = ids.into_iter().filter_map(|id| state.show(id)).collect();
                self.paged(call, "droplets", all)
            }
            ("GET", ["droplets", droplet]) => match state.show(id(droplet)) {
                Some(shown) => Reply::new(200, json!({"droplet": shown}).to_string()),
                None => missing(),
            },
            ("DELETE", ["droplets", droplet]) => {
                let ended = self.hosts.as_ref().map(|hosts| hosts.end(&format!("droplet-{droplet}")));
                if let Some(Err(why)) = ended {
                    return self.error(500, &why);
                }
                match state.droplets.remove(&id(droplet)) {
                    Some(_) => Reply::new(204, ""),
                    None => missing(),
                }
            }
            ("POST", ["droplets", droplet, "actions"]) => match state.droplets.get_mut(&id(droplet)) {
                Some(droplet) => {
                    droplet.status = match body["type"].as_str() {
                        Some("shutdown" | "power_off") => "off",
                        _ => "active",
                    };
                    Reply::new(201, r#"{"action":{"id":1,"status":"in-progress"}}"#)
                }
                None => missing(),
            },
            ("DELETE", ["tags", tag]) => {
                let tag = percent_encoding::percent_decode_str(tag).decode_utf8_lossy().into_owned();
                match state.tags.remove(&tag) {
                    true => Reply::new(204, ""),
                    false => missing(),
                }
            }
            _ => missing(),
        }
    }
}
