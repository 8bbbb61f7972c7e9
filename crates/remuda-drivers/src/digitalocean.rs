//! Machines on DigitalOcean, through its public API.
//!
//! Flags, their variables and the record are those of rancher-machine, so machines can be taken over. Beyond
//! them the record has `RemudaID`: every droplet carries it as a tag and every key in its name, which is how
//! a creation whose answer was lost is found again, by the next attempt or by `remove`.

mod api;

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    builtin::{Context, identity, unique_name},
    driver::{Base, Config, Driver, Hidden, Owned, Pending, State, from_config, to_config},
    error::{Error, Result},
    flags::{Flag, Flags},
    keys,
    kit::{self, Table},
    secret::Secret,
};

use api::{Api, Droplet, Key};

pub const NAME: &str = "digitalocean";

/// What our tags begin with; the machine's identity follows.
const TAG: &str = remuda_names::machines::tag::PREFIX;

/// The record of a droplet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    access_token: Secret,
    #[serde(rename = "DropletID")]
    droplet_id: u64,
    droplet_name: String,
    image: String,
    region: String,
    #[serde(rename = "SSHKeyID")]
    ssh_key_id: u64,
    #[serde(rename = "SSHKeyFingerprint")]
    ssh_key_fingerprint: String,
    #[serde(rename = "SSHKey")]
    ssh_key: String,
    size: String,
    #[serde(rename = "IPv6")]
    ipv6: bool,
    backups: bool,
    private_networking: bool,
    user_data_file: String,
    monitoring: bool,
    tags: String,
    #[serde(rename = "PrivateIPAddress")]
    private_ip_address: String,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
    /// What another driver of that name recorded and we do not know; it is not lost.
    #[serde(flatten)]
    unknown: Hidden,
}

impl Record {
    fn tag(&self) -> String {
        format!("{TAG}{}", self.remuda_id)
    }

    fn key_name(&self) -> String {
        unique_name(&self.base.machine_name, &self.remuda_id)
    }

    fn all_tags(&self) -> Vec<String> {
        let given = self.tags.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned);
        given.chain([self.tag()]).collect()
    }

    /// Takes over a droplet's addresses; whether all that were asked for are there.
    fn learn(&mut self, droplet: &Droplet) -> bool {
        self.droplet_id = droplet.id;
        self.base.ip_address = droplet.v4("public").into();
        if self.private_networking {
            self.private_ip_address = droplet.v4("private").into();
        }
        if self.ipv6 {
            self.base.ipv6_address = droplet.v6().into();
        }
        !self.base.ip_address.is_empty()
            && (!self.private_networking || !self.private_ip_address.is_empty())
            && (!self.ipv6 || !self.base.ipv6_address.is_empty())
    }
}

/// The driver; see the module.
#[derive(Debug)]
pub struct DigitalOcean {
    context: Context,
    record: Mutex<Record>,
}

impl DigitalOcean {
    pub fn new(context: Context) -> Self {
        Self { context, record: Mutex::default() }
    }

    fn take(&self, values: &Flags) -> Result<()> {
        values.teach(self.context.log.redactor());
        let mut record = self.record.lock();
        record.access_token = values.secret("digitalocean-access-token");
        record.base.ssh_user = values.str("digitalocean-ssh-user").into();
        record.base.ssh_port = values.port("digitalocean-ssh-port")?;
        record.ssh_key_fingerprint = values.str("digitalocean-ssh-key-fingerprint").into();
        record.ssh_key = values.str("digitalocean-ssh-key-path").into();
        record.image = values.str("digitalocean-image").into();
        record.region = values.str("digitalocean-region").into();
        record.size = values.str("digitalocean-size").into();
        record.ipv6 = values.bool("digitalocean-ipv6");
        record.private_networking = values.bool("digitalocean-private-networking");
        record.backups = values.bool("digitalocean-backups");
        record.user_data_file = values.str("digitalocean-userdata").into();
        record.monitoring = values.bool("digitalocean-monitoring");
        record.tags = values.str("digitalocean-tags").into();
        if record.remuda_id.is_empty() {
            record.remuda_id = identity();
        }
        if record.access_token.is_empty() {
            return Err(kit::no_credential(NAME, "access-token"));
        }
        Ok(())
    }

    fn record(&self) -> Record {
        self.record.lock().clone()
    }

    fn api(&self, record: &Record) -> Result<Api> {
        if record.access_token.is_empty() {
            return Err(kit::no_credential(NAME, "access-token"));
        }
        Api::new(&self.context, &record.access_token)
    }

    async fn check(&self) -> Result<()> {
        let record = self.record();
        record.base.check_name()?;
        let api = self.api(&record)?;
        let regions = api.regions().await?;
        let region = regions.iter().find(|region| region.slug == record.region);
        let Some(region) = region else {
            return Err(Error::other(format!("digitalocean has no region {}", record.region)));
        };
        if !region.sizes.contains(&record.size) {
            let (size, region) = (&record.size, &record.region);
            return Err(Error::other(format!("digitalocean has no size {size} in region {region}")));
        }
        api.check_image(&record.image).await
    }

    async fn make(&self) -> Result<()> {
        let record = self.record();
        record.base.check_name()?;
        if record.remuda_id.is_empty() {
            return Err(Error::other("the machine has not been configured"));
        }
        let api = self.api(&record)?;
        let user_data = kit::user_data("digitalocean-userdata", &record.user_data_file).await?;
        let key = self.ensure_key(&api, &record).await?;
        let key_path = record.base.key_path();
        {
            let mut record = self.record.lock();
            record.ssh_key_id = key.id;
            record.base.ssh_key_path = key_path;
        }
        let droplet = self.ensure_droplet(&api, &record, key.id, user_data.as_deref()).await?;
        self.record.lock().droplet_id = droplet.id;
        self.wait_for_addresses(&api, droplet.id).await
    }

    async fn ensure_key(&self, api: &Api, record: &Record) -> Result<Key> {
        let path = record.base.key_path();
        if !record.ssh_key_fingerprint.is_empty() {
            let key = api.key(&record.ssh_key_fingerprint).await?.ok_or_else(|| {
                let wanted = &record.ssh_key_fingerprint;
                Error::other(format!("digitalocean has no SSH key with fingerprint {wanted}"))
            })?;
            if !record.ssh_key.is_empty() {
                keys::copy(&record.ssh_key, &path).await?;
            }
            return Ok(key);
        }
        let public = keys::ensure(&path, &record.base.machine_name).await?;
        let name = record.key_name();
        self.context.log.info("Creating SSH key...");
        let mut tries = 0;
        loop {
            match api.create_key(&name, &public).await {
                Ok(key) => return Ok(key),
                // An account holds a key once, so an earlier try was heard after all. Only then is it worth
                // reading the list, which may be long.
                Err(error) if error.to_string().contains("already in use") => {
                    let held = api.keys().await?.into_iter().find(|key| key.name == name);
                    return held.ok_or(error);
                }
                Err(error) => self.context.look_again(&mut tries, error).await?,
            }
        }
    }

    async fn ensure_droplet(
        &self,
        api: &Api,
        record: &Record,
        key: u64,
        user_data: Option<&str>,
    ) -> Result<Droplet> {
        let request = json!({
            "name": record.base.machine_name,
            "region": record.region,
            "size": record.size,
            "image": record.image,
            "ssh_keys": [key],
            "ipv6": record.ipv6,
            "backups": record.backups,
            "private_networking": record.private_networking,
            "monitoring": record.monitoring,
            "tags": record.all_tags(),
            "user_data": user_data,
        });
        let mut tries = 0;
        loop {
            if let Some(droplet) = api.droplets(Some(&record.tag())).await?.into_iter().next() {
                return Ok(droplet);
            }
            self.context.log.info("Creating DigitalOcean droplet...");
            match api.create_droplet(&request).await {
                Ok(droplet) => return Ok(droplet),
                Err(error) => self.context.look_again(&mut tries, error).await?,
            }
        }
    }

    async fn wait_for_addresses(&self, api: &Api, id: u64) -> Result<()> {
        self.context.log.info("Waiting for IP address to be assigned to the droplet...");
        let late = format!("droplet {id} got no address");
        let look = || async {
            let droplet = api.droplet(id).await?.ok_or_else(|| self.lost())?;
            Ok(self.record.lock().learn(&droplet).then_some(()))
        };
        self.context.wait(&late, look).await
    }

    fn lost(&self) -> Error {
        Error::not_found(format!("machine {} not found", self.record.lock().base.machine_name))
    }

    /// The droplet of the record, or what its tag finds if creation never told.
    async fn droplet(&self) -> Result<Droplet> {
        let record = self.record();
        let api = self.api(&record)?;
        let found = match record.droplet_id {
            0 if record.remuda_id.is_empty() => None,
            0 => api.droplets(Some(&record.tag())).await?.into_iter().next(),
            id => api.droplet(id).await?,
        };
        let droplet = found.ok_or_else(|| self.lost())?;
        self.record.lock().learn(&droplet);
        Ok(droplet)
    }

    async fn action(&self, kind: &str) -> Result<()> {
        let droplet = self.droplet().await?;
        self.api(&self.record())?.action(droplet.id, kind).await
    }

    async fn clean(&self) -> Result<()> {
        let record = self.record();
        if record.remuda_id.is_empty() && record.droplet_id == 0 && record.ssh_key_id == 0 {
            // Never configured, so nothing was made; and there is no token to ask with.
            return Ok(());
        }
        let api = self.api(&record)?;
        let ours = !record.remuda_id.is_empty();
        let mut droplets = if ours { api.droplets(Some(&record.tag())).await? } else { Vec::new() };
        if ours && droplets.is_empty() && record.droplet_id == 0 {
            // Nobody knows whether a creation is still on its way into the listing.
            tokio::time::sleep(self.context.pace.settle).await;
            droplets = api.droplets(Some(&record.tag())).await?;
        }
        let mut ids: Vec<u64> = droplets.iter().map(|droplet| droplet.id).collect();
        if record.droplet_id != 0 && !ids.contains(&record.droplet_id) {
            ids.push(record.droplet_id);
        }
        for id in ids {
            self.context.log.info(format!("Removing droplet {id}..."));
            api.delete_droplet(id).await?;
        }
        if record.ssh_key_fingerprint.is_empty() {
            let name = record.key_name();
            let mut keys: Vec<u64> = Vec::new();
            if ours {
                // Also those of an attempt that was cut off before it could record any.
                keys.extend(api.keys().await?.into_iter().filter(|key| key.name == name).map(|key| key.id));
            }
            if record.ssh_key_id != 0 && !keys.contains(&record.ssh_key_id) {
                keys.push(record.ssh_key_id);
            }
            for id in keys {
                api.delete_key(id).await?;
            }
        }
        if ours {
            api.delete_tag(&record.tag()).await?;
        }
        Ok(())
    }
}

fn flags() -> Vec<Flag> {
    let table = Table::new(NAME, "DIGITALOCEAN");
    let text = |name: &str, default: &str, usage: &str| table.text(name, default, usage);
    let yes = |name: &str, usage: &str| table.yes(name, usage);
    vec![
        text("access-token", "", "Token for the DigitalOcean API"),
        text("ssh-user", "root", "User to log in as"),
        text("ssh-key-fingerprint", "", "Fingerprint of a key already in the account"),
        text("ssh-key-path", "", "Private key file that belongs to the fingerprint"),
        table.number("ssh-port", 22, "Port of the SSH server"),
        text("image", "ubuntu-20-04-x64", "Image slug"),
        text("region", "nyc3", "Region slug"),
        text("size", "s-1vcpu-1gb", "Size slug"),
        yes("ipv6", "Give the droplet an IPv6 address"),
        yes("private-networking", "Give the droplet a private address"),
        yes("backups", "Let DigitalOcean back the droplet up"),
        text("userdata", "", "File with cloud-init user data"),
        yes("monitoring", "Install DigitalOcean's monitoring agent"),
        text("tags", "", "Tags for the droplet, separated by commas"),
    ]
}

impl Driver for DigitalOcean {
    kit::by_record!(flags; access_token);

    fn renew(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            values.teach(self.context.log.redactor());
            let token = values.secret("digitalocean-access-token");
            if !token.is_empty() {
                self.record.lock().access_token = token;
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(self.check())
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            Ok(match self.droplet().await?.status.as_str() {
                "new" => State::Starting,
                "active" => State::Running,
                "off" => State::Stopped,
                _ => State::None,
            })
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.action("power_on"))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.action("shutdown"))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.action("reboot"))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.action("power_off"))
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(async {
            let all = self.api(&self.record())?.droplets(None).await?;
            let ours = all.into_iter().filter_map(|droplet| {
                let identity = droplet.tags.iter().find_map(|tag| tag.strip_prefix(TAG))?.to_owned();
                let (kind, id) = ("droplet".to_owned(), droplet.id.to_string());
                Some(Owned { kind, id, name: droplet.name, identity })
            });
            Ok(ours.collect())
        })
    }
}
