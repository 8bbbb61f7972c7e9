//! A fake of Proxmox VE's API: a cluster of two nodes, with templates and machines.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Api, Call, Reply, pairs};

/// The fake cluster.
pub struct ProxmoxVe {
    authorization: String,
    state: Mutex<Cluster>,
}

#[derive(Default)]
struct Cluster {
    machines: BTreeMap<u64, Machine>,
    tasks: BTreeMap<String, &'static str>,
    /// Fails clones as a full storage does.
    full: bool,
}

struct Machine {
    node: String,
    settings: BTreeMap<String, String>,
    template: bool,
    running: bool,
    /// Looks until its clone is complete.
    looks: u32,
    /// Looks until its guest agent answers.
    agent: u32,
}

impl Machine {
    fn named(name: &str, node: &str) -> Self {
        let settings = BTreeMap::from([("name".to_owned(), name.to_owned())]);
        Self { node: node.into(), settings, template: false, running: false, looks: 0, agent: 2 }
    }

    fn show(&mut self, id: u64) -> Value {
        let lock = if self.looks > 0 { "clone" } else { "" };
        self.looks = self.looks.saturating_sub(1);
        let text = |name: &str| self.settings.get(name).cloned().unwrap_or_default();
        json!({
            "vmid": id, "name": text("name"), "tags": text("tags"), "lock": lock, "type": "qemu",
            "status": if self.running { "running" } else { "stopped" },
            "template": u8::from(self.template), "node": self.node,
        })
    }
}

impl ProxmoxVe {
    /// A cluster that accepts only this token. Its nodes are `pve1` and `pve2`, and 9000 on `pve1` is a template.
    pub fn new(id: &str, secret: &str) -> Self {
        let mut template = Machine::named("ubuntu", "pve1");
        template.template = true;
        for (name, value) in [
            ("boot", "order=scsi0"),
            ("scsi0", "local-lvm:base-9000-disk-0,size=3584M"),
            ("net0", "virtio=BC:24:11:AA:BB:CC,bridge=vmbr0"),
            ("tags", "golden"),
        ] {
            template.settings.insert(name.into(), value.into());
        }
        let state = Cluster { machines: BTreeMap::from([(9000, template)]), ..Cluster::default() };
        Self { authorization: format!("PVEAPIToken={id}={secret}"), state: Mutex::new(state) }
    }

    /// Clones fail from now on: there is no space.
    pub fn fill(&self) {
        self.state.lock().full = true;
    }

    /// Puts somebody else's machines into the cluster, which must survive.
    pub fn occupy(&self, count: u64) {
        let mut state = self.state.lock();
        for number in 0..count {
            state.machines.insert(100 + number, Machine::named("m1", "pve2"));
        }
    }

    /// Everything that exists, one line each.
    pub fn resources(&self) -> Vec<String> {
        let state = self.state.lock();
        state.machines.iter().map(|(id, machine)| format!("{id} on {}", machine.node)).collect()
    }

    /// The settings of a machine.
    pub fn settings(&self, id: u64) -> BTreeMap<String, String> {
        self.state.lock().machines.get(&id).map(|machine| machine.settings.clone()).unwrap_or_default()
    }
}

fn data(value: Value) -> Reply {
    Reply::new(200, json!({"data": value}).to_string())
}

fn fail(status: u16, message: &str) -> Reply {
    Reply::new(status, json!({"data": null, "message": format!("{message}\n")}).to_string())
}

/// What the original accepts as a name or a tag.
fn fits(text: &str, more: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

impl Cluster {
    fn clone(&mut self, template: u64, form: &BTreeMap<String, String>) -> Reply {
        const KNOWN: &[&str] = &["newid", "name", "full", "target", "storage", "format", "pool"];
        let text = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let id: u64 = text("newid").parse().unwrap_or(0);
        let wrong = form.keys().find(|name| !KNOWN.contains(&name.as_str()));
        if let Some(name) = wrong {
            let why = json!({"errors": {name: "not defined"}, "message": "Parameter verification failed."});
            return Reply::new(400, why.to_string());
        }
        if !fits(text("name"), "-.") || !(100..1_000_000_000).contains(&id) {
            return fail(400, "Parameter verification failed.");
        }
        if self.machines.contains_key(&id) {
            return fail(500, &format!("unable to create VM {id}: config file already exists"));
        }
        if text("full") != "1" && !(text("storage").is_empty() && text("format").is_empty()) {
            return fail(500, "parameter 'storage' not allowed for linked clones");
        }
        let task = format!("UPID:pve1:0000:{id}:qmclone:{template}:x@pve:");
        if self.full {
            self.tasks.insert(task.clone(), "clone failed: storage quota exceeded");
            return data(json!(task));
        }
        let Some(source) = self.machines.get(&template).filter(|source| source.template) else {
            return fail(500, &format!("unable to find configuration file for VM {template}"));
        };
        let node = if text("target").is_empty() { source.node.clone() } else { text("target").to_owned() };
        let mut settings = source.settings.clone();
        settings.insert("name".into(), text("name").into());
        settings.insert("net0".into(), format!("virtio=BC:24:11:00:00:{:02X},bridge=vmbr0", id % 256));
        let machine = Machine { node, settings, template: false, running: false, looks: 2, agent: 2 };
        self.machines.insert(id, machine);
        self.tasks.insert(task.clone(), "OK");
        data(json!(task))
    }
}

impl Api for ProxmoxVe {
    fn error(&self, status: u16, code: &str) -> Reply {
        fail(status, code)
    }

    fn handle(&self, call: &Call) -> Reply {
        if call.headers.get("authorization") != Some(&self.authorization) {
            return fail(401, "authentication failure");
        }
        let path = call.path.strip_prefix("/api2/json/").unwrap_or_default();
        let path: Vec<String> = path
            .split('/')
            .map(|part| percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let form = pairs(&String::from_utf8_lossy(&call.body));
        let mut state = self.state.lock();
        let state = &mut *state;
        let (node, id, rest) = match (call.method.as_str(), path.as_slice()) {
            ("GET", ["nodes"]) => {
                return data(
                    json!([{"node": "pve1", "status": "online"}, {"node": "pve2", "status": "online"},
                    {"node": "pve3", "status": "offline"}]),
                );
            }
            ("GET", ["cluster", "resources"]) => {
                // Names come late to this list, other things do not.
                let mut all: Vec<Value> =
                    state.machines.iter_mut().map(|(id, machine)| machine.show(*id)).collect();
                for machine in all.iter_mut().filter(|machine| machine["status"] == "stopped") {
                    machine["name"] = Value::String(String::new());
                }
                all.push(json!({"vmid": 500, "type": "lxc", "name": "container", "node": "pve1"}));
                return data(json!(all));
            }
            ("GET", ["cluster", "nextid"]) => {
                let wanted = pairs(&call.query).get("vmid").and_then(|id| id.parse::<u64>().ok());
                return match wanted {
                    Some(id) if state.machines.contains_key(&id) => fail(400, "VM already exists"),
                    Some(id) => data(json!(id.to_string())),
                    None => data(json!(
                        (100..).find(|id| !state.machines.contains_key(id)).map(|id| id.to_string())
                    )),
                };
            }
            ("GET", ["nodes", _, "tasks", task, "status"]) => {
                return match state.tasks.get(*task) {
                    Some(status) => data(json!({"status": "stopped", "exitstatus": status})),
                    None => fail(400, "no such task"),
                };
            }
            ("GET", ["nodes", node, "qemu"]) => {
                let here = state.machines.iter_mut().filter(|(_, machine)| machine.node == **node);
                return data(here.map(|(id, machine)| machine.show(*id)).collect());
            }
            (_, ["nodes", node, "qemu", id, rest @ ..]) => (*node, id.parse::<u64>().unwrap_or(0), rest),
            _ => return fail(501, "Method not implemented"),
        };
        if state.machines.get(&id).is_none_or(|machine| machine.node != node) {
            return fail(
                500,
                &format!("Configuration file 'nodes/{node}/qemu-server/{id}.conf' does not exist"),
            );
        }
        if (call.method.as_str(), rest) == ("POST", &["clone"][..]) {
            return state.clone(id, &form);
        }
        let machine = state.machines.get_mut(&id).expect("looked up above");
        if machine.looks > 0 && call.method != "GET" {
            return fail(500, "VM is locked (clone)");
        }
        match (call.method.as_str(), rest) {
            ("GET", ["config"]) => data(json!(machine.settings)),
            ("PUT", ["config"]) => {
                let tags = form.get("tags").cloned().unwrap_or_default();
                let name = form.get("name").cloned().unwrap_or_default();
                if !fits(&name, "-.") || !tags.split(';').all(|tag| fits(tag, "-_+.")) {
                    return fail(400, "Parameter verification failed.");
                }
                machine.settings.extend(form);
                data(Value::Null)
            }
            ("PUT", ["resize"]) => {
                let (disk, size) = (form["disk"].clone(), form["size"].clone());
                machine.settings.insert(disk, format!("local-lvm:vm-{id}-disk-0,size={size}"));
                data(json!("UPID:resize"))
            }
            ("POST", ["status", "start"]) if machine.running => {
                fail(500, &format!("VM {id} already running"))
            }
            ("POST", ["status", kind]) => {
                machine.running = matches!(*kind, "start" | "reboot");
                data(json!("UPID:power"))
            }
            ("GET", ["agent", "network-get-interfaces"]) => {
                if !machine.running || machine.agent > 0 {
                    machine.agent = machine.agent.saturating_sub(1);
                    return fail(500, "QEMU guest agent is not running");
                }
                let mac = format!("bc:24:11:00:00:{:02x}", id % 256);
                let address = |ip: String| json!({"ip-address": ip, "prefix": 24});
                data(json!({"result": [
                    {"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": [address("127.0.0.1".into())]},
                    {"name": "eth0", "hardware-address": mac, "ip-addresses": [
                        address(format!("192.0.2.{}", id % 250)), address(format!("2001:db8::{id}"))]},
                ]}))
            }
            ("DELETE", []) if machine.running => fail(500, &format!("VM {id} is running - destroy failed")),
            ("DELETE", []) => {
                state.machines.remove(&id);
                data(json!("UPID:destroy"))
            }
            _ => fail(501, "Method not implemented"),
        }
    }
}
