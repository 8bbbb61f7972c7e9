//! A fake of Azure Resource Manager and of where its tokens come from: resources of a subscription, by their paths.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Api, Call, Reply, pairs};

const SUBSCRIPTION: &str = "sub-1";
const TENANT: &str = "tenant-1";
const TOKEN: &str = "canary-token-of-azure";

/// The fake subscription, `sub-1` of tenant `tenant-1`.
pub struct Azure {
    client: String,
    secret: String,
    state: Mutex<Subscription>,
}

#[derive(Default)]
struct Subscription {
    /// By path, in lower case: paths have no case.
    resources: BTreeMap<String, Resource>,
    next: u64,
    limit: Option<usize>,
    /// Machines fail after they were accepted.
    exhausted: bool,
}

struct Resource {
    body: Value,
    /// Looks until it is complete.
    looks: u32,
    power: &'static str,
}

impl Azure {
    /// A subscription that one service principal may use.
    pub fn new(client: &str, secret: &str) -> Self {
        Self { client: client.into(), secret: secret.into(), state: Mutex::default() }
    }

    /// Machines beyond this many are refused.
    pub fn limit(&self, machines: usize) {
        self.state.lock().limit = Some(machines);
    }

    /// Machines fail after they were accepted: there is no room for them.
    pub fn exhaust(&self) {
        self.state.lock().exhausted = true;
    }

    /// Puts somebody else's machines into the subscription, which must survive.
    pub fn occupy(&self, count: usize) {
        let mut state = self.state.lock();
        for number in 0..count {
            for kind in ["compute/virtualmachines/other", "network/networkinterfaces/other"] {
                let path = format!(
                    "/subscriptions/{SUBSCRIPTION}/resourcegroups/docker-machine/providers/microsoft.{kind}-{number}"
                );
                let body = json!({"id": path, "name": format!("other-{number}"), "tags": {"team": "x"}});
                state.resources.insert(path, Resource { body, looks: 0, power: "running" });
            }
        }
    }

    /// Everything that exists, one line each: kind and name.
    pub fn resources(&self) -> Vec<String> {
        let state = self.state.lock();
        let parts = |path: &String| path.rsplit('/').take(2).map(str::to_owned).collect::<Vec<_>>();
        state.resources.keys().map(parts).map(|parts| format!("{} {}", parts[1], parts[0])).collect()
    }

    /// A resource by its kind and name, both in lower case.
    pub fn resource(&self, kind: &str, name: &str) -> Value {
        let (state, end) = (self.state.lock(), format!("/{kind}/{name}"));
        let found = state.resources.iter().find(|(path, _)| path.ends_with(&end));
        found.map(|(_, resource)| resource.body.clone()).unwrap_or_default()
    }

    fn token(&self, call: &Call) -> Reply {
        let form = pairs(&String::from_utf8_lossy(&call.body));
        let is = |name: &str, value: &str| form.get(name).is_some_and(|given| given == value);
        let refused = |error: &str, why: &str| {
            Reply::new(
                401,
                json!({"error": error, "error_description": format!("{why}\r\nTrace ID: 1")}).to_string(),
            )
        };
        if call.path != format!("/{TENANT}/oauth2/v2.0/token") {
            return refused("invalid_request", "AADSTS90002: Tenant not found.");
        }
        if !is("grant_type", "client_credentials") || !is("scope", "https://management.azure.com/.default") {
            return refused("invalid_scope", "AADSTS70011: The provided request is invalid.");
        }
        if !is("client_id", &self.client) || !is("client_secret", &self.secret) {
            return refused("invalid_client", "AADSTS7000215: Invalid client secret provided.");
        }
        Reply::new(
            200,
            json!({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"}).to_string(),
        )
    }
}

fn fail(status: u16, code: &str, message: &str) -> Reply {
    Reply::new(status, json!({"error": {"code": code, "message": message}}).to_string())
}

fn ok(value: &Value) -> Reply {
    Reply::new(200, value.to_string())
}

impl Subscription {
    fn has(&self, id: &Value) -> bool {
        id.as_str().is_some_and(|id| self.resources.contains_key(&id.to_lowercase()))
    }

    fn machines(&self) -> usize {
        self.resources.keys().filter(|path| path.contains("/virtualmachines/")).count()
    }

    /// Whether another resource refers to this one.
    fn in_use(&self, path: &str, by: &str) -> bool {
        let users = self.resources.iter().filter(|(user, _)| user.contains(by));
        users
            .into_iter()
            .any(|(_, user)| user.body.to_string().to_lowercase().contains(&format!("\"{path}\"")))
    }

    fn put(&mut self, path: &str, mut body: Value) -> Reply {
        let properties = &body["properties"];
        if path.contains("/virtualmachines/") {
            let (storage, system) = (&properties["storageProfile"], &properties["osProfile"]);
            if storage["imageReference"]["publisher"] != "canonical"
                && storage["imageReference"]["id"].is_null()
            {
                return fail(404, "PlatformImageNotFound", "The platform image is not available.");
            }
            if storage["osDisk"]["deleteOption"] != "Delete" || system["adminUsername"].is_null() {
                return fail(400, "InvalidParameter", "the disk would stay, or nobody could log in");
            }
            let key = &system["linuxConfiguration"]["ssh"]["publicKeys"][0]["keyData"];
            if !key.as_str().is_some_and(|key| key.starts_with("ssh-")) {
                return fail(
                    400,
                    "InvalidParameter",
                    "The value of parameter linuxConfiguration.ssh is invalid.",
                );
            }
            if !self.has(&properties["networkProfile"]["networkInterfaces"][0]["id"]) {
                return fail(404, "ResourceNotFound", "The network interface was not found.");
            }
            if self.limit.is_some_and(|limit| self.machines() >= limit) && !self.resources.contains_key(path)
            {
                let why = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.";
                return fail(409, "OperationNotAllowed", why);
            }
            let disk = path.replace("/virtualmachines/", "/disks/");
            let resource = Resource { body: json!({"managedBy": path}), looks: 0, power: "" };
            self.resources.insert(format!("{disk}-os-disk"), resource);
        }
        if path.contains("/networkinterfaces/") {
            let ip = &properties["ipConfigurations"][0]["properties"];
            if !self.has(&ip["subnet"]["id"]) || !self.has(&properties["networkSecurityGroup"]["id"]) {
                return fail(400, "InvalidResourceReference", "subnet or security group was not found");
            }
        }
        if !path.ends_with("/resourcegroups/docker-machine")
            && body["location"].is_null()
            && !path.contains("/subnets/")
        {
            return fail(400, "LocationRequired", "The location property is required.");
        }
        for subnet in properties["subnets"].as_array().into_iter().flatten() {
            let name = subnet["name"].as_str().unwrap_or_default();
            let resource = Resource { body: subnet.clone(), looks: 0, power: "" };
            self.resources.insert(format!("{path}/subnets/{name}"), resource);
        }
        self.next += 1;
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        (body["id"], body["name"]) = (path.into(), name.into());
        body["number"] = self.next.into();
        let looks = if path.contains("/resourcegroups/docker-machine/") { 1 } else { 0 };
        self.resources.insert(path.to_owned(), Resource { body, looks, power: "running" });
        self.show(path).map_or_else(
            || fail(500, "InternalError", "it is lost"),
            |shown| Reply::new(201, shown.to_string()),
        )
    }

    fn show(&mut self, path: &str) -> Option<Value> {
        let exhausted = self.exhausted && path.contains("/virtualmachines/m");
        let resource = self.resources.get_mut(path)?;
        let state = match resource.looks {
            0 if exhausted => "Failed",
            0 => "Succeeded",
            _ => "Updating",
        };
        resource.looks = resource.looks.saturating_sub(1);
        let mut shown = resource.body.clone();
        let number = shown["number"].as_u64().unwrap_or(0) % 250;
        shown["properties"]["provisioningState"] = state.into();
        if state == "Failed" {
            let code = "ProvisioningState/failed/AllocationFailed";
            shown["properties"]["instanceView"] = json!({"statuses": [{"code": code, "message": "no room"}]});
        } else if path.contains("/virtualmachines/") {
            let code = format!("PowerState/{}", resource.power);
            shown["properties"]["instanceView"] =
                json!({"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": code}]});
        }
        if path.contains("/networkinterfaces/") && state == "Succeeded" {
            let ip = format!("192.168.0.{number}");
            shown["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] = ip.into();
        }
        if path.contains("/publicipaddresses/") && state == "Succeeded" {
            shown["properties"]["ipAddress"] = format!("203.0.113.{number}").into();
        }
        Some(shown)
    }

    fn delete(&mut self, path: &str) -> Reply {
        let busy = |code: &str| fail(400, code, "The resource is in use.");
        match path {
            _ if path.contains("/networkinterfaces/") && self.in_use(path, "/virtualmachines/") => {
                return busy("NicInUse");
            }
            _ if path.contains("/publicipaddresses/") && self.in_use(path, "/networkinterfaces/") => {
                return busy("PublicIPAddressCannotBeDeleted");
            }
            _ if path.contains("/networksecuritygroups/") && self.in_use(path, "/networkinterfaces/") => {
                return busy("InUseNetworkSecurityGroupCannotBeDeleted");
            }
            _ => {}
        }
        if self.resources.remove(path).is_none() {
            return Reply::new(204, "");
        }
        if path.contains("/virtualmachines/") {
            self.resources.remove(&format!("{}-os-disk", path.replace("/virtualmachines/", "/disks/")));
        }
        Reply::new(202, "")
    }
}

impl Api for Azure {
    fn error(&self, status: u16, code: &str) -> Reply {
        fail(status, code, "it happened")
    }

    fn handle(&self, call: &Call) -> Reply {
        if call.path.ends_with("/oauth2/v2.0/token") {
            return self.token(call);
        }
        if call.headers.get("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return fail(401, "InvalidAuthenticationToken", "The access token is invalid.");
        }
        let query = pairs(&call.query);
        if query.get("api-version").is_none_or(|version| version.len() != 10) {
            return fail(400, "MissingApiVersionParameter", "The api-version query parameter is required.");
        }
        let path = call.path.to_lowercase();
        let Some(rest) = path.strip_prefix(&format!("/subscriptions/{SUBSCRIPTION}")) else {
            return fail(404, "SubscriptionNotFound", "The subscription could not be found.");
        };
        let mut state = self.state.lock();
        let found = state.resources.contains_key(&path);
        match (call.method.as_str(), rest) {
            ("GET", "/locations") => ok(&json!({"value": [{"name": "westus"}, {"name": "eastus"}]})),
            ("GET", "/providers/microsoft.compute/virtualmachines") => {
                // One machine on each page.
                let page: usize = query.get("$skiptoken").and_then(|token| token.parse().ok()).unwrap_or(0);
                let all: Vec<String> = state
                    .resources
                    .keys()
                    .filter(|path| path.contains("/virtualmachines/"))
                    .cloned()
                    .collect();
                let shown: Vec<Value> =
                    all.get(page).into_iter().filter_map(|path| state.show(path)).collect();
                let mut answer = json!({"value": shown});
                if all.len() > page + 1 {
                    let next = format!("{}?api-version=2024-03-01&$skiptoken={}", call.path, page + 1);
                    answer["nextLink"] = format!("https://elsewhere.example{next}").into();
                }
                ok(&answer)
            }
            ("GET", _) if found => {
                state.show(&path).map_or_else(|| fail(404, "NotFound", ""), |shown| ok(&shown))
            }
            ("PUT", _) => match serde_json::from_slice(&call.body) {
                Ok(body) => state.put(&path, body),
                Err(_) => fail(400, "InvalidRequestContent", "The request content was invalid."),
            },
            ("DELETE", _) => state.delete(&path),
            ("POST", _) => {
                let (machine, kind) = path.rsplit_once('/').unwrap_or_default();
                let Some(machine) = state.resources.get_mut(machine) else {
                    return fail(404, "ResourceNotFound", "The machine was not found.");
                };
                machine.power = if kind == "poweroff" { "stopped" } else { "running" };
                Reply::new(202, "")
            }
            _ => fail(404, "ResourceNotFound", "The resource was not found."),
        }
    }
}
