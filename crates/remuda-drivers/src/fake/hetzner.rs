//! A fake of Hetzner Cloud's API: servers, keys, and what servers are made with.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Api, Call, Reply, pairs};

/// The fake project.
pub struct Hetzner {
    token: String,
    state: Mutex<Project>,
}

#[derive(Default)]
struct Project {
    next: u64,
    servers: BTreeMap<u64, Server>,
    keys: BTreeMap<u64, Value>,
    limit: Option<usize>,
}

struct Server {
    body: Value,
    /// Looks until it runs.
    looks: u32,
    status: &'static str,
}

/// Entries per page, whatever the caller asks for.
const PAGE: usize = 2;
/// Kind, id and name of what is there for servers to be made with.
const THINGS: &[(&str, u64, &str)] = &[
    ("locations", 1, "fsn1"),
    ("networks", 11, "inside"),
    ("firewalls", 21, "closed"),
    ("placement_groups", 31, "apart"),
    ("primary_ips", 41, "first"),
    ("images", 51, "ubuntu-24.04"),
];

impl Hetzner {
    /// A project that accepts only this token.
    pub fn new(token: &str) -> Self {
        Self { token: token.into(), state: Mutex::default() }
    }

    /// Servers beyond this many are refused.
    pub fn limit(&self, servers: usize) {
        self.state.lock().limit = Some(servers);
    }

    /// Everything that exists, one line each.
    pub fn resources(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut all: Vec<String> = state.servers.keys().map(|id| format!("server {id}")).collect();
        all.extend(state.keys.keys().map(|id| format!("key {id}")));
        all
    }

    /// The bodies servers were created with.
    pub fn servers(&self) -> Vec<Value> {
        self.state.lock().servers.values().map(|server| server.body.clone()).collect()
    }

    /// Puts somebody else's things into the project, which must survive.
    pub fn occupy(&self, count: usize) {
        let mut state = self.state.lock();
        for number in 0..count {
            let id = state.take();
            let key = json!({"id": id, "name": format!("other-{number}"), "public_key": "x", "labels": {}});
            state.keys.insert(id, key);
            let id = state.take();
            let body = json!({"name": format!("other-{number}"), "labels": {"remuda.io/other": "x"}});
            state.servers.insert(id, Server { body, looks: 0, status: "running" });
        }
    }
}

impl Project {
    fn take(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn show(&mut self, id: u64) -> Option<Value> {
        let server = self.servers.get_mut(&id)?;
        match server.looks {
            0 if server.status == "initializing" => server.status = "running",
            0 => {}
            _ => server.looks -= 1,
        }
        let address = |wanted: &Value, ip: String| (wanted != false).then(|| json!({"ip": ip}));
        let public = &server.body["public_net"];
        let networks = server.body["networks"].as_array().into_iter().flatten();
        let private: Vec<_> = networks.map(|_| json!({"ip": format!("10.0.0.{}", id % 250)})).collect();
        Some(json!({
            "id": id, "name": server.body["name"], "status": server.status, "labels": server.body["labels"],
            "public_net": {
                "ipv4": address(&public["enable_ipv4"], format!("203.0.113.{}", id % 250)),
                "ipv6": address(&public["enable_ipv6"], format!("2001:db8:{id}::/64")),
            },
            "private_net": private,
        }))
    }
}

/// Whether labels fit a selector: `key` or `key=value`.
fn selected(labels: &Value, selector: Option<&String>) -> bool {
    let Some(selector) = selector else { return true };
    match selector.split_once('=') {
        Some((key, value)) => labels[key] == value,
        None => labels.get(selector).is_some(),
    }
}

fn fail(status: u16, code: &str, message: &str) -> Reply {
    Reply::new(status, json!({"error": {"code": code, "message": message}}).to_string())
}

fn paged(call: &Call, name: &str, all: Vec<Value>) -> Reply {
    let page: usize = pairs(&call.query).get("page").and_then(|page| page.parse().ok()).unwrap_or(1).max(1);
    let start = (page - 1) * PAGE;
    let next = (all.len() > start + PAGE).then_some(page + 1);
    let items: Vec<Value> = all.into_iter().skip(start).take(PAGE).collect();
    Reply::new(200, json!({name: items, "meta": {"pagination": {"next_page": next}}}).to_string())
}

/// What the original refuses in a request for a server.
fn wrong(body: &Value) -> Option<&'static str> {
    let name = body["name"].as_str().unwrap_or_default();
    let label =
        |text: &str| text.len() <= 63 && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let labels = body["labels"].as_object()?;
    if name.is_empty()
        || name.len() > 63
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    {
        return Some("invalid name");
    }
    if !labels.values().all(|value| value.as_str().is_some_and(label)) {
        return Some("invalid label");
    }
    if body["image"] != 51 || body["server_type"] != "cx23" {
        return Some("invalid image or server type");
    }
    if body["user_data"].as_str().is_some_and(|text| text.len() > 32 << 10) {
        return Some("user_data is too long");
    }
    body["ssh_keys"].as_array().is_none_or(Vec::is_empty).then_some("no key")
}

impl Api for Hetzner {
    fn error(&self, status: u16, code: &str) -> Reply {
        fail(status, code, "it happened")
    }

    fn handle(&self, call: &Call) -> Reply {
        if call.headers.get("authorization") != Some(&format!("Bearer {}", self.token)) {
            return fail(401, "unauthorized", "unable to authenticate");
        }
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let path: Vec<&str> = call.path.trim_matches('/').split('/').skip(1).collect();
        let query = pairs(&call.query);
        let missing = || fail(404, "not_found", "there is none");
        let id = |text: &str| text.parse::<u64>().unwrap_or(0);
        let mut state = self.state.lock();
        match (call.method.as_str(), path.as_slice()) {
            ("GET", ["server_types"]) => {
                let known = query.get("name").is_none_or(|name| name == "cx23");
                let all = known.then(|| json!({"id": 1, "name": "cx23", "architecture": "x86"}));
                paged(call, "server_types", all.into_iter().collect())
            }
            ("GET", ["ssh_keys"]) => {
                let fits = |key: &&Value| selected(&key["labels"], query.get("label_selector"));
                paged(call, "ssh_keys", state.keys.values().filter(fits).cloned().collect())
            }
            ("POST", ["ssh_keys"]) => {
                let same =
                    |key: &Value| key["name"] == body["name"] || key["public_key"] == body["public_key"];
                if state.keys.values().any(same) {
                    return fail(409, "uniqueness_error", "SSH key not unique");
                }
                let id = state.take();
                let mut key = body;
                key["id"] = id.into();
                state.keys.insert(id, key.clone());
                Reply::new(201, json!({"ssh_key": key}).to_string())
            }
            ("GET", ["ssh_keys", key]) => match state.keys.get(&id(key)) {
                Some(key) => Reply::new(200, json!({"ssh_key": key}).to_string()),
                None => missing(),
            },
            ("DELETE", ["ssh_keys", key]) => match state.keys.remove(&id(key)) {
                Some(_) => Reply::new(204, ""),
                None => missing(),
            },
            ("GET", ["servers"]) => {
                let selector = query.get("label_selector");
                let fits = |server: &Server| selected(&server.body["labels"], selector);
                let ids: Vec<u64> =
                    state.servers.iter().filter(|(_, server)| fits(server)).map(|(id, _)| *id).collect();
                let all = ids.into_iter().filter_map(|id| state.show(id)).collect();
                paged(call, "servers", all)
            }
            ("POST", ["servers"]) => {
                if let Some(why) = wrong(&body) {
                    return fail(422, "invalid_input", why);
                }
                if state.servers.values().any(|server| server.body["name"] == body["name"]) {
                    return fail(409, "uniqueness_error", "server name is already used");
                }
                if state.limit.is_some_and(|limit| state.servers.len() >= limit) {
                    return fail(403, "resource_limit_exceeded", "server limit exceeded");
                }
                let id = state.take();
                state.servers.insert(id, Server { body, looks: 1, status: "initializing" });
                let shown = state.show(id);
                Reply::new(201, json!({"server": shown, "action": {"id": 1}}).to_string())
            }
            ("GET", ["servers", server]) => match state.show(id(server)) {
                Some(shown) => Reply::new(200, json!({"server": shown}).to_string()),
                None => missing(),
            },
            ("DELETE", ["servers", server]) => match state.servers.remove(&id(server)) {
                Some(_) => Reply::new(200, r#"{"action":{"id":2,"status":"running"}}"#),
                None => missing(),
            },
            ("POST", ["servers", server, "actions", kind]) => match state.servers.get_mut(&id(server)) {
                Some(server) => {
                    server.status = if matches!(*kind, "shutdown" | "poweroff") { "off" } else { "running" };
                    Reply::new(201, r#"{"action":{"id":3,"status":"running"}}"#)
                }
                None => missing(),
            },
            ("GET", [kind]) => {
                let named = |thing: &&(&str, u64, &str)| {
                    thing.0 == *kind && query.get("name").is_none_or(|name| name == thing.2)
                };
                let fits = query.get("architecture").is_none_or(|wanted| wanted == "x86");
                let found = THINGS.iter().filter(named).filter(|_| fits);
                let all: Vec<Value> = found.map(|thing| json!({"id": thing.1, "name": thing.2})).collect();
                paged(call, kind, all)
            }
            ("GET", [kind, number]) => {
                match THINGS.iter().find(|thing| thing.0 == *kind && thing.1 == id(number)) {
                    Some(thing) => Reply::new(200, json!({"it": {"id": thing.1}}).to_string()),
                    None => missing(),
                }
            }
            _ => missing(),
        }
    }
}
