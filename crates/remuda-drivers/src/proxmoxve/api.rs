//! The calls of Proxmox's API that a machine needs.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::NAME;
use crate::{
    builtin::Context,
    error::{Class, Result, classify},
    http::{Repeat, Verdict},
    rest::{Body, Refused, Rest, Said, encode, part, unreadable},
    secret::Secret,
};

#[derive(Debug)]
pub(super) struct Api(Rest);

/// A virtual machine, or a template.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Vm {
    pub vmid: u64,
    #[serde(default)]
    pub node: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub lock: String,
    #[serde(default)]
    tags: String,
    #[serde(default)]
    pub template: u8,
    /// Containers are in the same list.
    #[serde(default, rename = "type")]
    kind: String,
}

impl Vm {
    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        self.tags.split([';', ',', ' ']).filter(|tag| !tag.is_empty())
    }

    pub(super) fn has_tag(&self, wanted: &str) -> bool {
        self.tags().any(|tag| tag == wanted)
    }
}

#[derive(Debug, Deserialize)]
struct Node {
    node: String,
    #[serde(default)]
    status: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Task {
    pub status: String,
    #[serde(default)]
    pub exitstatus: String,
}

/// A network card as the guest agent sees it.
#[derive(Debug, Deserialize)]
pub(super) struct Card {
    #[serde(default)]
    pub name: String,
    #[serde(default, rename = "hardware-address")]
    pub mac: String,
    #[serde(default, rename = "ip-addresses")]
    pub addresses: Vec<Address>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Address {
    #[serde(rename = "ip-address")]
    pub ip: String,
}

/// Parameters of a call.
pub(super) type Parameters<'a> = [(&'a str, String)];

fn understand(status: u16, body: &Value) -> Said {
    let mut message = body["message"].as_str().unwrap_or_default().trim().to_owned();
    for (field, why) in body["errors"].as_object().into_iter().flatten() {
        message.push_str(&format!(" {field}: {}", why.as_str().unwrap_or_default().trim()));
    }
    let mut said = Said::new(status, "", &message);
    // It says 500 for whatever is wrong with a request, and from 595 on if one node cannot reach another.
    if matches!(status, 500 | 501) {
        said.verdict = Verdict::Final;
        said.class = match classify(&message) {
            Class::Network => Class::Other,
            class => class,
        };
    }
    said
}

impl Api {
    pub(super) fn new(context: &Context, url: &str, id: &str, secret: &Secret, ca: &str) -> Result<Self> {
        let authorization = Secret::new(format!("PVEAPIToken={id}={}", secret.expose()));
        let rest = Rest::new(context, context.endpoint(NAME, url), authorization, understand)?;
        Ok(Self(if ca.is_empty() { rest } else { rest.trusting(ca)? }))
    }

    /// All machines and templates of the cluster. Their tags and nodes are as they are now; names may be late.
    pub(super) async fn everywhere(&self) -> Result<Vec<Vm>> {
        let found: Vec<Vm> = self.get("list machines", "/cluster/resources?type=vm").await?;
        Ok(found.into_iter().filter(|vm| vm.kind == "qemu").collect())
    }

    pub(super) async fn nodes(&self) -> Result<Vec<String>> {
        let found: Vec<Node> = self.get("list nodes", "/nodes").await?;
        Ok(found.into_iter().filter(|node| node.status == "online").map(|node| node.node).collect())
    }

    /// The machines of a node, as they are now.
    pub(super) async fn on(&self, node: &str) -> Result<Vec<Vm>> {
        let path = format!("/nodes/{}/qemu", encode(node));
        let found: Vec<Vm> = self.get("list machines of a node", &path).await?;
        Ok(found.into_iter().map(|vm| Vm { node: node.to_owned(), ..vm }).collect())
    }

    /// A free id: the next one, or this one if it is.
    pub(super) async fn free(&self, wanted: Option<u64>) -> Result<u64, Refused> {
        let path = match wanted {
            None => "/cluster/nextid".to_owned(),
            Some(id) => format!("/cluster/nextid?vmid={id}"),
        };
        let id: Value = self.get("choose an id", &path).await?;
        let id = id.as_u64().or_else(|| id.as_str().and_then(|text| text.parse().ok()));
        id.ok_or_else(|| unreadable("choose an id").into())
    }

    /// Begins to copy a template; gives the task.
    pub(super) async fn clone(&self, of: &Vm, parameters: &Parameters<'_>) -> Result<String, Refused> {
        let body = Body::Form(parameters);
        let answer = self.0.post("clone the template", &path(of, "/clone"), body, Repeat::Unsafe).await?;
        data("clone the template", answer).map_err(Refused::from)
    }

    pub(super) async fn task(&self, node: &str, task: &str) -> Result<Task> {
        let path = format!("/nodes/{}/tasks/{}/status", encode(node), encode(task));
        Ok(self.get("look at a task", &path).await?)
    }

    pub(super) async fn settings(&self, vm: &Vm) -> Result<Value> {
        let path = path(vm, "/config");
        let answer = self.0.get("read settings", &path).await?.unwrap_or_default();
        data("read settings", answer)
    }

    pub(super) async fn set(&self, vm: &Vm, what: &str, parameters: &Parameters<'_>) -> Result<()> {
        let path = path(vm, &format!("/{what}"));
        Ok(self.0.put(what, &path, Body::Form(parameters)).await.map(drop)?)
    }

    pub(super) async fn power(&self, vm: &Vm, kind: &str) -> Result<(), Refused> {
        let path = path(vm, &format!("/status/{kind}"));
        self.0.post(kind, &path, Body::None, Repeat::Safe).await.map(drop)
    }

    pub(super) async fn delete(&self, vm: &Vm) -> Result<(), Refused> {
        let path = path(vm, "?purge=1&destroy-unreferenced-disks=1");
        self.0.delete("delete the machine", &path).await.map(drop)
    }

    /// What the guest agent says of the machine's network.
    pub(super) async fn cards(&self, vm: &Vm) -> Result<Vec<Card>, Refused> {
        let what = "ask the guest agent";
        let mut answer: Value = self.get(what, &path(vm, "/agent/network-get-interfaces")).await?;
        Ok(part(what, answer["result"].take())?)
    }

    async fn get<T: DeserializeOwned>(&self, what: &str, path: &str) -> Result<T, Refused> {
        let path = if path.starts_with("/api2/") { path.to_owned() } else { format!("/api2/json{path}") };
        let answer = self.0.get(what, &path).await?.unwrap_or_default();
        data(what, answer).map_err(Refused::from)
    }
}

fn data<T: DeserializeOwned>(what: &str, mut answer: Value) -> Result<T> {
    part(what, answer["data"].take())
}

fn path(vm: &Vm, rest: &str) -> String {
    format!("/api2/json/nodes/{}/qemu/{}{rest}", encode(&vm.node), vm.vmid)
}
