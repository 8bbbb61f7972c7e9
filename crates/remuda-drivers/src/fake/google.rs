//! A fake of Google's Compute Engine API and of where its tokens come from.

use std::{collections::BTreeMap, sync::OnceLock};

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa::{KeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey},
};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use parking_lot::Mutex;
use remuda_names::machines::tag::LABEL;
use serde_json::{Value, json};

use super::{Api, Call, Reply, pairs};

const EMAIL: &str = "remuda@canary.iam.gserviceaccount.com";
const PROJECT: &str = "demo-project";
const TOKEN: &str = "canary-token-of-google";
const ZONE: &str = "us-central1-a";

/// The fake project, `demo-project`, with one service account.
#[derive(Default)]
pub struct Google {
    state: Mutex<Project>,
}

#[derive(Default)]
struct Project {
    next: u64,
    instances: BTreeMap<String, Instance>,
    operations: BTreeMap<String, Value>,
    /// Ids of requests, with their operation.
    requests: BTreeMap<String, String>,
    limit: Option<usize>,
}

struct Instance {
    id: u64,
    body: Value,
    looks: u32,
    status: &'static str,
}

/// One key for all accounts of a process: making one takes a while.
fn key() -> &'static KeyPair {
    static KEY: OnceLock<KeyPair> = OnceLock::new();
    KEY.get_or_init(|| KeyPair::generate(KeySize::Rsa2048).expect("a key can be made"))
}

impl Google {
    /// The key of the service account, as its JSON in base64.
    pub fn key() -> String {
        let der: Pkcs8V1Der<'_> = key().as_der().expect("a key can be written");
        let private = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(der.as_ref())
        );
        let file = json!({
            "type": "service_account", "project_id": PROJECT, "private_key_id": "k1", "private_key": private,
            "client_email": EMAIL,
            // Nobody is to ask there.
            "token_uri": "http://192.0.2.1/token",
        });
        BASE64_STANDARD.encode(file.to_string())
    }

    /// Instances beyond this many fail as they are made.
    pub fn limit(&self, instances: usize) {
        self.state.lock().limit = Some(instances);
    }

    /// Puts somebody else's instances into the project, which must survive.
    pub fn occupy(&self, count: usize) {
        let mut state = self.state.lock();
        for number in 0..count {
            let name = format!("other-{number}");
            let body = json!({"name": name, "labels": {"team": "x"}});
            state.next += 1;
            let id = state.next;
            state.instances.insert(name, Instance { id, body, looks: 0, status: "RUNNING" });
        }
    }

    /// Everything that exists, one line each.
    pub fn resources(&self) -> Vec<String> {
        self.state.lock().instances.keys().map(|name| format!("instance {name}")).collect()
    }

    /// What an instance was made with.
    pub fn instance(&self, name: &str) -> Value {
        self.state.lock().instances.get(name).map(|instance| instance.body.clone()).unwrap_or_default()
    }

    fn token(&self, call: &Call) -> Reply {
        let form = pairs(&String::from_utf8_lossy(&call.body));
        let assertion = form.get("assertion").cloned().unwrap_or_default();
        let refused = |why: &str| {
            Reply::new(400, json!({"error": "invalid_grant", "error_description": why}).to_string())
        };
        if form.get("grant_type").map(String::as_str) != Some("urn:ietf:params:oauth:grant-type:jwt-bearer") {
            return refused("unsupported grant type");
        }
        let Some((signed, signature)) = assertion.rsplit_once('.') else { return refused("no assertion") };
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key().public_key().as_ref());
        if public.verify(signed.as_bytes(), &decode(signature)).is_err() {
            return refused("Invalid JWT Signature.");
        }
        let part = |index: usize| -> Value {
            serde_json::from_slice(&decode(signed.split('.').nth(index).unwrap_or_default()))
                .unwrap_or_default()
        };
        let (header, claims) = (part(0), part(1));
        let now = jiff::Timestamp::now().as_second();
        let in_time = claims["iat"].as_i64().is_some_and(|at| (at - now).abs() < 300)
            && claims["exp"].as_i64().is_some_and(|at| at > now && at <= now + 3600);
        let right = header["alg"] == "RS256"
            && claims["iss"] == EMAIL
            && claims["aud"] == "https://oauth2.googleapis.com/token"
            && claims["scope"] == "https://www.googleapis.com/auth/compute";
        if !in_time || !right {
            return refused("Invalid JWT");
        }
        Reply::new(
            200,
            json!({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"}).to_string(),
        )
    }
}

fn fail(status: u16, reason: &str, message: &str) -> Reply {
    let error = json!({"code": status, "message": message, "errors": [{"reason": reason}]});
    Reply::new(status, json!({"error": error}).to_string())
}

fn ok(value: &Value) -> Reply {
    Reply::new(200, value.to_string())
}

/// What the original refuses in a request for an instance.
fn wrong(body: &Value) -> Option<&'static str> {
    let name = |text: &str| {
        text.len() <= 63
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let label =
        |text: &str| text.len() <= 63 && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'));
    if !body["name"].as_str().is_some_and(name) {
        return Some("Invalid value for field 'resource.name'");
    }
    let labels = body["labels"].as_object().into_iter().flatten();
    if !labels.into_iter().all(|(key, value)| label(key) && value.as_str().is_some_and(label)) {
        return Some("Invalid value for field 'resource.labels'");
    }
    let disk = &body["disks"][0];
    if disk["boot"] != true || disk["autoDelete"] != true {
        return Some("Invalid value for field 'resource.disks'");
    }
    let network = body["networkInterfaces"][0]["network"].as_str().unwrap_or_default();
    (!network.ends_with("/global/networks/default")).then_some("Invalid value for field 'network'")
}

impl Project {
    fn operate(&mut self, error: Option<(&str, &str)>) -> Value {
        self.next += 1;
        let name = format!("operation-{}", self.next);
        let mut operation = json!({"name": name, "status": "RUNNING"});
        if let Some((code, message)) = error {
            operation["error"] = json!({"errors": [{"code": code, "message": message}]});
        }
        self.operations.insert(name, operation.clone());
        operation
    }

    fn show(&mut self, name: &str) -> Option<Value> {
        let instance = self.instances.get_mut(name)?;
        match instance.looks {
            0 if instance.status == "PROVISIONING" => instance.status = "RUNNING",
            0 => {}
            _ => instance.looks -= 1,
        }
        let mut card = json!({"networkIP": format!("10.128.0.{}", instance.id % 250)});
        if let Some(access) = instance.body["networkInterfaces"][0]["accessConfigs"].as_array() {
            let given = access.first().and_then(|access| access["natIP"].as_str());
            let address = given.map_or_else(|| format!("203.0.113.{}", instance.id % 250), str::to_owned);
            card["accessConfigs"] = json!([{"natIP": address}]);
        }
        Some(json!({
            "id": instance.id.to_string(), "name": name, "status": instance.status,
            "labels": instance.body["labels"], "networkInterfaces": [card],
        }))
    }

    fn insert(&mut self, body: Value, request: String) -> Reply {
        if let Some(known) = self.requests.get(&request) {
            return ok(&self.operations[known]);
        }
        if let Some(why) = wrong(&body) {
            return fail(400, "invalid", why);
        }
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        if self.instances.contains_key(&name) {
            return fail(409, "alreadyExists", &format!("The resource '{name}' already exists"));
        }
        if self.limit.is_some_and(|limit| self.instances.len() >= limit) {
            return ok(&self.operate(Some(("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 0"))));
        }
        let operation = self.operate(None);
        self.requests.insert(request, operation["name"].as_str().unwrap_or_default().to_owned());
        let id = self.next;
        self.instances.insert(name, Instance { id, body, looks: 2, status: "PROVISIONING" });
        ok(&operation)
    }
}

impl Api for Google {
    fn error(&self, status: u16, code: &str) -> Reply {
        fail(status, code, "it happened")
    }

    fn handle(&self, call: &Call) -> Reply {
        if call.path == "/token" {
            return self.token(call);
        }
        if call.headers.get("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return fail(401, "authError", "Request had invalid authentication credentials.");
        }
        let path = call.path.strip_prefix("/compute/v1/projects/").unwrap_or_default();
        let path: Vec<&str> = path.split('/').collect();
        let missing = || fail(404, "notFound", "The resource was not found");
        let mut state = self.state.lock();
        if let ["ubuntu-os-cloud", "global", "images", image] = path.as_slice() {
            return if image.starts_with("ubuntu") { ok(&json!({"name": image})) } else { missing() };
        }
        let Some((&PROJECT, path)) = path.split_first() else {
            return fail(403, "forbidden", "The caller does not have permission");
        };
        match (call.method.as_str(), path) {
            ("GET", ["aggregated", "instances"]) => {
                // One instance on each page, whatever the caller asks for.
                let query = pairs(&call.query);
                let page: usize = query.get("pageToken").and_then(|token| token.parse().ok()).unwrap_or(0);
                if query.get("filter") != Some(&format!("labels.{LABEL}:*")) {
                    return fail(400, "invalid", "Invalid list filter expression.");
                }
                let ours = state.instances.iter().filter(|(_, it)| it.body["labels"][LABEL].is_string());
                let names: Vec<String> = ours.map(|(name, _)| name.clone()).collect();
                let shown: Vec<Value> =
                    names.get(page).into_iter().filter_map(|name| state.show(name)).collect();
                let mut answer = json!({"items": {
                    "zones/us-central1-a": {"instances": shown},
                    "zones/us-central1-b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}},
                }});
                if names.len() > page + 1 {
                    answer["nextPageToken"] = (page + 1).to_string().into();
                }
                ok(&answer)
            }
            ("GET", ["regions", "us-central1", "addresses", "front"]) => {
                ok(&json!({"address": "198.51.100.7"}))
            }
            ("GET", ["zones", ZONE]) => ok(&json!({"name": ZONE})),
            ("GET", ["zones", ZONE, "machineTypes", "n1-standard-1"]) => {
                ok(&json!({"name": "n1-standard-1"}))
            }
            ("POST", ["zones", ZONE, "instances"]) => {
                let body = serde_json::from_slice(&call.body).unwrap_or_default();
                let request = pairs(&call.query).remove("requestId").unwrap_or_default();
                if request.len() != 36 || request.split('-').count() != 5 {
                    return fail(400, "invalid", "Invalid value for field 'requestId'");
                }
                state.insert(body, request)
            }
            ("GET", ["zones", ZONE, "operations", name]) => match state.operations.get_mut(*name) {
                Some(operation) => {
                    let now = operation.clone();
                    operation["status"] = "DONE".into();
                    ok(&now)
                }
                None => missing(),
            },
            ("GET", ["zones", ZONE, "instances", name]) => {
                state.show(name).map_or_else(missing, |shown| ok(&shown))
            }
            ("DELETE", ["zones", ZONE, "instances", name]) => match state.instances.remove(*name) {
                Some(_) => ok(&state.operate(None)),
                None => missing(),
            },
            ("POST", ["zones", ZONE, "instances", name, kind]) => match state.instances.get_mut(*name) {
                Some(instance) => {
                    instance.status = if *kind == "stop" { "TERMINATED" } else { "RUNNING" };
                    ok(&state.operate(None))
                }
                None => missing(),
            },
            _ => missing(),
        }
    }
}
