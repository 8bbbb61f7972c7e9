//! Machines of Hetzner Cloud, through its public API.
//!
//! Flags and variables are those of docker-machine-driver-hetzner, and so is the record. Beyond it the record has
//! `RemudaID`: servers and keys carry it as a label, which is how a creation whose answer was lost is found again, by
//! the next attempt or by `remove`.

mod api;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use parking_lot::Mutex;
use remuda_names::machines::tag::MACHINE;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    builtin::{Context, identity, unique_name},
    driver::{Base, Config, Driver, Hidden, Owned, Pending, State, from_config, to_config},
    error::{Error, Result},
    flags::{Flag, Flags},
    keys,
    kit::{self, Table, Values},
    secret::Secret,
};

use api::{Api, Server};

pub const NAME: &str = "hetzner";

/// The record of a server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    access_token: Secret,
    image: String,
    #[serde(rename = "ImageID")]
    image_id: u64,
    image_arch: String,
    #[serde(rename = "Type")]
    server_type: String,
    location: String,
    #[serde(rename = "KeyID")]
    key_id: u64,
    is_existing_key: bool,
    /// Where the private half of an existing key is.
    existing_key_path: String,
    #[serde(rename = "ServerID")]
    server_id: u64,
    user_data_file: String,
    networks: Vec<String>,
    use_private_network: bool,
    disable_public4: bool,
    disable_public6: bool,
    #[serde(rename = "PrimaryIPv4")]
    primary_ipv4: String,
    #[serde(rename = "PrimaryIPv6")]
    primary_ipv6: String,
    firewalls: Vec<String>,
    server_labels: BTreeMap<String, String>,
    placement_group: String,
    #[serde(rename = "PrivateIPAddress")]
    private_ip_address: String,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
    /// What another driver of that name recorded and we do not know; it is not lost.
    #[serde(flatten)]
    unknown: Hidden,
}

impl Record {
    fn key_name(&self) -> String {
        unique_name(&self.base.machine_name, &self.remuda_id)
    }

    /// Selects what was made for this record.
    fn selector(&self) -> String {
        format!("{MACHINE}={}", self.remuda_id)
    }

    /// Names of servers are host names, and unique in a project.
    fn check_name(&self) -> Result<()> {
        self.base.check_name()?;
        let name = &self.base.machine_name;
        if name.len() > 63 || name.ends_with(['-', '.']) {
            return Err(Error::other(format!(
                "machine name {name} is no host name of at most 63 characters"
            )));
        }
        Ok(())
    }

    /// Takes over a server's addresses; whether those that were asked for are there.
    fn learn(&mut self, server: &Server) -> bool {
        self.server_id = server.id;
        self.private_ip_address = server.private().to_owned();
        self.base.ipv6_address = server.v6();
        let public =
            if self.disable_public4 { self.base.ipv6_address.clone() } else { server.v4().to_owned() };
        self.base.ip_address =
            if self.use_private_network { self.private_ip_address.clone() } else { public };
        !self.base.ip_address.is_empty() && (self.networks.is_empty() || !self.private_ip_address.is_empty())
    }
}

/// The driver; see the module.
#[derive(Debug)]
pub struct Hetzner {
    context: Context,
    record: Mutex<Record>,
}

/// What a server is made with, as the API calls it.
struct Parts {
    image: u64,
    networks: Vec<u64>,
    firewalls: Vec<u64>,
    placement_group: Option<u64>,
    primary_ipv4: Option<u64>,
    primary_ipv6: Option<u64>,
}

impl Hetzner {
    pub fn new(context: Context) -> Self {
        Self { context, record: Mutex::default() }
    }

    fn record(&self) -> Record {
        self.record.lock().clone()
    }

    fn api(&self, record: &Record) -> Result<Api> {
        if record.access_token.is_empty() {
            return Err(kit::no_credential(NAME, "api-token"));
        }
        Api::new(&self.context, &record.access_token)
    }

    /// Looks up everything the flags name.
    async fn resolve(&self, api: &Api, record: &Record) -> Result<Parts> {
        record.check_name()?;
        let kind = api.server_type(&record.server_type).await?;
        if !record.location.is_empty() {
            api.by_name("locations", "location", &record.location).await?;
        }
        let architecture =
            if record.image_arch.is_empty() { kind.architecture.as_str() } else { &record.image_arch };
        let image = match record.image_id {
            0 => api.image(&record.image, architecture).await?,
            id => api.image_of(id).await?,
        };
        let mut networks = Vec::new();
        for network in &record.networks {
            networks.push(api.by_name("networks", "network", network).await?);
        }
        let mut firewalls = Vec::new();
        for firewall in &record.firewalls {
            firewalls.push(api.by_name("firewalls", "firewall", firewall).await?);
        }
        let optional = async |list: &str, kind: &str, name: &str| -> Result<Option<u64>> {
            if name.is_empty() { Ok(None) } else { api.by_name(list, kind, name).await.map(Some) }
        };
        Ok(Parts {
            image,
            networks,
            firewalls,
            placement_group: optional("placement_groups", "placement group", &record.placement_group).await?,
            primary_ipv4: optional("primary_ips", "primary IP", &record.primary_ipv4).await?,
            primary_ipv6: optional("primary_ips", "primary IP", &record.primary_ipv6).await?,
        })
    }

    async fn make(&self) -> Result<()> {
        let record = self.record();
        if record.remuda_id.is_empty() {
            return Err(Error::other("the machine has not been configured"));
        }
        let api = self.api(&record)?;
        let user_data = kit::user_data("hetzner-user-data-file", &record.user_data_file).await?;
        let key = self.ensure_key(&api, &record).await?;
        {
            let mut kept = self.record.lock();
            kept.key_id = key;
            kept.base.ssh_key_path = record.base.key_path();
        }
        let server = match self.find(&api, &record).await? {
            Some(server) => server,
            None => self.launch(&api, &record, key, user_data.as_deref()).await?,
        };
        self.record.lock().server_id = server.id;
        self.context.log.info("Waiting for the server to run...");
        let look = || async {
            let server = api.server(server.id).await?.ok_or_else(|| self.lost())?;
            Ok((self.record.lock().learn(&server) && server.status == "running").then_some(()))
        };
        self.context.wait(&format!("server {} did not come up", server.id), look).await
    }

    async fn ensure_key(&self, api: &Api, record: &Record) -> Result<u64> {
        let path = record.base.key_path();
        if record.is_existing_key {
            if !api.has_key(record.key_id).await? {
                return Err(Error::other(format!("hetzner has no SSH key with id {}", record.key_id)));
            }
            keys::copy(&record.existing_key_path, &path).await?;
            return Ok(record.key_id);
        }
        let public = keys::ensure(&path, &record.base.machine_name).await?;
        let labels = json!({MACHINE: record.remuda_id});
        let request = json!({"name": record.key_name(), "public_key": public, "labels": labels});
        self.context.log.info("Creating SSH key...");
        let mut tries = 0;
        loop {
            match api.create_key(&request).await {
                Ok(id) => return Ok(id),
                // Its name is this machine's alone, so an earlier try was heard after all.
                Err(refused) if refused.code == "uniqueness_error" => {
                    let held = api.keys(&record.selector()).await?.first().copied();
                    return held.ok_or(refused.error);
                }
                Err(refused) => self.context.look_again(&mut tries, refused.error).await?,
            }
        }
    }

    async fn launch(&self, api: &Api, record: &Record, key: u64, user_data: Option<&str>) -> Result<Server> {
        let parts = self.resolve(api, record).await?;
        let mut labels = record.server_labels.clone();
        labels.insert(MACHINE.to_owned(), record.remuda_id.clone());
        let firewalls: Vec<_> = parts.firewalls.iter().map(|id| json!({"firewall": id})).collect();
        let mut request = json!({
            "name": record.base.machine_name,
            "server_type": record.server_type,
            "image": parts.image,
            "ssh_keys": [key],
            "labels": labels,
            "networks": parts.networks,
            "firewalls": firewalls,
            "start_after_create": true,
            "public_net": {"enable_ipv4": !record.disable_public4, "enable_ipv6": !record.disable_public6},
        });
        for (field, id) in [("ipv4", parts.primary_ipv4), ("ipv6", parts.primary_ipv6)] {
            if let Some(id) = id {
                request["public_net"][field] = id.into();
            }
        }
        if !record.location.is_empty() {
            request["location"] = record.location.as_str().into();
        }
        if let Some(id) = parts.placement_group {
            request["placement_group"] = id.into();
        }
        if let Some(user_data) = user_data {
            request["user_data"] = user_data.into();
        }
        let mut tries = 0;
        loop {
            self.context.log.info("Creating Hetzner server...");
            let error = match api.create_server(&request).await {
                Ok(server) => return Ok(server),
                Err(refused) => refused,
            };
            if error.code != "uniqueness_error" {
                self.context.look_again(&mut tries, error.error).await?;
                if let Some(server) = self.find(api, record).await? {
                    return Ok(server);
                }
                continue;
            }
            // An earlier try was heard after all, or the name is somebody else's.
            return self.find(api, record).await?.ok_or(error.error);
        }
    }

    async fn find(&self, api: &Api, record: &Record) -> Result<Option<Server>> {
        Ok(api.servers(&record.selector()).await?.into_iter().next())
    }

    fn lost(&self) -> Error {
        Error::not_found(format!("machine {} not found", self.record.lock().base.machine_name))
    }

    /// The server of the record, or what its label finds if creation never told.
    async fn server(&self) -> Result<(Api, Server)> {
        let record = self.record();
        let api = self.api(&record)?;
        let found = match record.server_id {
            0 if record.remuda_id.is_empty() => None,
            0 => self.find(&api, &record).await?,
            id => api.server(id).await?,
        };
        let server = found.ok_or_else(|| self.lost())?;
        self.record.lock().learn(&server);
        Ok((api, server))
    }

    async fn action(&self, kind: &str) -> Result<()> {
        let (api, server) = self.server().await?;
        api.action(server.id, kind).await
    }

    async fn clean(&self) -> Result<()> {
        let record = self.record();
        let ours = !record.remuda_id.is_empty();
        if !ours && record.server_id == 0 && record.key_id == 0 {
            // Never configured, so nothing was made; and there is no token to ask with.
            return Ok(());
        }
        let api = self.api(&record)?;
        let mut servers = if ours { api.servers(&record.selector()).await? } else { Vec::new() };
        if ours && servers.is_empty() && record.server_id == 0 {
            // Nobody knows whether a creation is still on its way into the listing.
            tokio::time::sleep(self.context.pace.settle).await;
            servers = api.servers(&record.selector()).await?;
        }
        let mut ids: Vec<u64> = servers.iter().map(|server| server.id).collect();
        if record.server_id != 0 && !ids.contains(&record.server_id) {
            ids.push(record.server_id);
        }
        for id in ids {
            self.context.log.info(format!("Removing server {id}..."));
            api.delete_server(id).await?;
        }
        if record.is_existing_key {
            return Ok(());
        }
        let mut keys = if ours { api.keys(&record.selector()).await? } else { Vec::new() };
        if record.key_id != 0 && !keys.contains(&record.key_id) {
            keys.push(record.key_id);
        }
        for id in keys {
            api.delete_key(id).await?;
        }
        Ok(())
    }

    fn take(&self, values: &Flags) -> Result<()> {
        values.teach(self.context.log.redactor());
        let values = Values::new(NAME, values)?;
        values.refuse(&flags(), UNSUPPORTED)?;
        let number = |flag: &str| -> Result<u64> {
            match values.text(flag).as_str() {
                "" => Ok(0),
                text => text.parse().map_err(|_| Error::other(format!("--{NAME}-{flag} must be a number"))),
            }
        };
        let labels: Result<BTreeMap<_, _>> =
            values.list("server-label").iter().map(|pair| kit::label("hetzner-server-label", pair)).collect();
        let none = values.yes("disable-public");
        let mut record = self.record.lock();
        record.access_token = values.secret("api-token");
        record.base.ssh_user = values.text("ssh-user");
        record.base.ssh_port = values.port("ssh-port")?;
        record.image = values.text("image");
        record.image_id = number("image-id")?;
        record.image_arch = values.text("image-arch");
        record.server_type = values.text("server-type");
        record.location = values.text("server-location");
        record.existing_key_path = values.text("existing-key-path");
        record.is_existing_key = number("existing-key-id")? != 0;
        if record.is_existing_key {
            record.key_id = number("existing-key-id")?;
        }
        record.user_data_file = values.text("user-data-file");
        record.networks = values.list("networks");
        record.firewalls = values.list("firewalls");
        record.use_private_network = values.yes("use-private-network") || none;
        record.disable_public4 = values.yes("disable-public-ipv4") || none;
        record.disable_public6 = values.yes("disable-public-ipv6") || none;
        record.primary_ipv4 = values.text("primary-ipv4");
        record.primary_ipv6 = values.text("primary-ipv6");
        record.server_labels = labels?;
        record.placement_group = values.text("placement-group");
        if record.remuda_id.is_empty() {
            record.remuda_id = identity();
        }
        check(&record)
    }
}

fn check(record: &Record) -> Result<()> {
    if record.access_token.is_empty() {
        return Err(kit::no_credential(NAME, "api-token"));
    }
    if record.is_existing_key == record.existing_key_path.is_empty() {
        return Err(Error::other(
            "--hetzner-existing-key-id and --hetzner-existing-key-path need each other",
        ));
    }
    if record.use_private_network && record.networks.is_empty() {
        return Err(Error::other("--hetzner-use-private-network needs --hetzner-networks"));
    }
    if record.disable_public4 && record.disable_public6 && !record.use_private_network {
        return Err(Error::other("a server without public addresses needs --hetzner-use-private-network"));
    }
    if record.server_labels.contains_key(MACHINE) {
        return Err(Error::other(format!("--hetzner-server-label: {MACHINE} is set by the driver")));
    }
    Ok(())
}

/// Flags of docker-machine-driver-hetzner that do nothing here.
const UNSUPPORTED: &[&str] = &[
    "volumes",
    "additional-key",
    "key-label",
    "auto-spread",
    "wait-on-error",
    "wait-on-polling",
    "wait-for-running-timeout",
];

fn flags() -> Vec<Flag> {
    let table = Table::new(NAME, "HETZNER");
    let renamed = |flag: Flag, env: &str| Flag { env: env.to_owned(), ..flag };
    vec![
        table.text("api-token", "", "Token of the project, with write access"),
        table.text("image", "ubuntu-24.04", "Name of the image"),
        table.text("image-id", "", "Id of the image or snapshot, instead of its name"),
        table.text("image-arch", "", "Architecture of the image; that of the server type if empty"),
        renamed(table.text("server-type", "cx23", "Type of the server"), "HETZNER_TYPE"),
        renamed(
            table.text("server-location", "", "Location of the server; Hetzner chooses if empty"),
            "HETZNER_LOCATION",
        ),
        table.text("existing-key-id", "", "Id of a key in the project; needs its private key file"),
        table.text("existing-key-path", "", "Private key file that belongs to the existing key"),
        table.text("user-data-file", "", "File with cloud-init user data"),
        table.list("volumes", "Not supported"),
        table.list("networks", "Private networks, by name or id"),
        table.yes("use-private-network", "Reach the server by its private address"),
        table.yes("disable-public-ipv4", "Give no public IPv4 address"),
        table.yes("disable-public-ipv6", "Give no public IPv6 address"),
        table.yes("disable-public", "Give no public address, and use the private network"),
        table.text("primary-ipv4", "", "Existing primary IPv4 address, by name or id"),
        table.text("primary-ipv6", "", "Existing primary IPv6 address, by name or id"),
        table.list("firewalls", "Firewalls, by name or id"),
        renamed(table.list("additional-key", "Not supported"), "HETZNER_ADDITIONAL_KEYS"),
        renamed(table.list("server-label", "Labels of the server, as key=value"), "HETZNER_SERVER_LABELS"),
        renamed(table.list("key-label", "Not supported"), "HETZNER_KEY_LABELS"),
        table.text("placement-group", "", "Existing placement group, by name or id"),
        table.yes("auto-spread", "Not supported"),
        table.text("ssh-user", "root", "User to log in as"),
        table.number("ssh-port", 22, "Port of the SSH server"),
        table.number("wait-on-error", 0, "Not supported"),
        table.number("wait-on-polling", 1, "Not supported"),
        table.number("wait-for-running-timeout", 0, "Not supported"),
    ]
}

impl Driver for Hetzner {
    kit::by_record!(flags; access_token);

    fn renew(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            values.teach(self.context.log.redactor());
            let token = values.secret("hetzner-api-token");
            if !token.is_empty() {
                self.record.lock().access_token = token;
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let record = self.record();
            self.resolve(&self.api(&record)?, &record).await.map(drop)
        })
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            Ok(match self.server().await?.1.status.as_str() {
                "initializing" | "starting" | "rebuilding" | "migrating" => State::Starting,
                "running" => State::Running,
                "stopping" | "deleting" => State::Stopping,
                "off" => State::Stopped,
                _ => State::None,
            })
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.action("poweron"))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.action("shutdown"))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.action("reboot"))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.action("poweroff"))
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(async {
            let all = self.api(&self.record())?.servers(MACHINE).await?;
            let ours = all.into_iter().filter_map(|server| {
                let identity = server.labels.get(MACHINE)?.clone();
                let (kind, id) = ("server".to_owned(), server.id.to_string());
                Some(Owned { kind, id, name: server.name, identity })
            });
            Ok(ours.collect())
        })
    }
}
