//! Virtual machines of Azure, through its Resource Manager.
//!
//! Flags, their variables and the record are those of rancher-machine. Beyond them the record has `RemudaID`: the
//! machine, its card, its address and its security group have it as a tag, and names that follow from the machine's.
//! Putting a resource twice makes one, so nothing has to be searched for. What is shared and free, the resource group,
//! the network and the availability set, is made if it is missing, and stays.

mod api;
mod flags;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;

use parking_lot::Mutex;
use remuda_names::machines::tag::LABEL;
use serde::{Deserialize, Serialize};

use crate::{
    builtin::{Context, identity},
    driver::{Base, Config, Driver, Hidden, Owned, Pending, State, from_config, to_config},
    error::{Error, Result},
    flags::{Flag, Flags},
    kit::{self, Values},
    rest::Tokens,
    secret::Secret,
};

use api::{Api, cloud};
use flags::{UNSUPPORTED, all};

pub const NAME: &str = "azure";

/// The record of a virtual machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    #[serde(rename = "ClientID")]
    client_id: String,
    client_secret: Secret,
    environment: String,
    #[serde(rename = "SubscriptionID")]
    subscription_id: String,
    #[serde(rename = "TenantID")]
    tenant_id: String,
    resource_group: String,
    location: String,
    size: String,
    image: String,
    virtual_network: String,
    subnet_name: String,
    subnet_prefix: String,
    availability_set: String,
    #[serde(rename = "NSG")]
    nsg: String,
    fault_count: i64,
    update_count: i64,
    disk_size: i64,
    storage_type: String,
    tags: BTreeMap<String, String>,
    accelerated_networking: bool,
    availability_zone: String,
    #[serde(rename = "EnablePublicIPStandardSKU")]
    enable_public_ip_standard_sku: bool,
    open_ports: Vec<String>,
    #[serde(rename = "PrivateIPAddr")]
    private_ip_addr: String,
    #[serde(rename = "UsePrivateIP")]
    use_private_ip: bool,
    #[serde(rename = "NoPublicIP")]
    no_public_ip: bool,
    #[serde(rename = "DNSLabel")]
    dns_label: String,
    #[serde(rename = "StaticPublicIP")]
    static_public_ip: bool,
    custom_data_file: String,
    #[serde(rename = "PrivateIPAddress")]
    private_ip_address: String,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
    /// What another driver of that name recorded and we do not know; it is not lost.
    #[serde(flatten)]
    unknown: Hidden,
}

impl Record {
    /// Names of machines are host names; those of their parts are longer, by up to nine characters.
    fn check_name(&self) -> Result<()> {
        self.base.check_name()?;
        let name = &self.base.machine_name;
        if name.len() > 64 || name.contains('.') || name.ends_with('-') {
            return Err(Error::other(format!(
                "machine name {name} is no name at Azure: letters, digits and -, at most 64"
            )));
        }
        Ok(())
    }
}

/// The driver; see the module.
#[derive(Debug)]
pub struct Azure {
    context: Context,
    record: Mutex<Record>,
    tokens: Tokens,
}

impl Azure {
    pub fn new(context: Context) -> Self {
        Self { context, record: Mutex::default(), tokens: Tokens::default() }
    }

    fn record(&self) -> Record {
        self.record.lock().clone()
    }

    async fn api(&self, record: &Record) -> Result<Api> {
        check_credentials(record)?;
        let token = self.tokens.get(&record.client_secret, api::exchange(&self.context, record)).await?;
        self.context.log.redactor().learn(token.expose());
        Api::new(&self.context, record, &token)
    }

    fn lost(&self) -> Error {
        Error::not_found(format!("machine {} not found", self.record.lock().base.machine_name))
    }

    async fn power(&self, kind: &str) -> Result<()> {
        let record = self.record();
        let api = self.api(&record).await?;
        self.machine(&api, &record).await?.ok_or_else(|| self.lost())?;
        api.power(&api.id(&record.resource_group, api::MACHINE, &record.base.machine_name), kind).await
    }

    fn take(&self, values: &Flags) -> Result<()> {
        values.teach(self.context.log.redactor());
        let values = Values::new(NAME, values)?;
        values.refuse(&all(), UNSUPPORTED)?;
        let tags = tags(&values.text("tags"))?;
        let mut record = self.record.lock();
        record.client_id = values.text("client-id");
        record.client_secret = values.secret("client-secret");
        record.environment = values.text("environment");
        record.subscription_id = values.text("subscription-id");
        record.tenant_id = values.text("tenant-id");
        record.resource_group = values.text("resource-group");
        record.location = values.text("location");
        record.size = values.text("size");
        record.image = values.text("image");
        record.virtual_network = values.text("vnet");
        record.subnet_name = values.text("subnet");
        record.subnet_prefix = values.text("subnet-prefix");
        record.availability_set = values.text("availability-set");
        record.nsg = values.text("nsg");
        record.fault_count = values.number("fault-domain-count");
        record.update_count = values.number("update-domain-count");
        record.disk_size = values.number("disk-size");
        record.storage_type = values.text("storage-type");
        record.tags = tags;
        record.accelerated_networking = values.yes("accelerated-networking");
        record.availability_zone = values.text("availability-zone");
        record.enable_public_ip_standard_sku = values.yes("enable-public-ip-standard-sku");
        record.open_ports = values.list("open-port");
        record.private_ip_addr = values.text("private-ip-address");
        record.use_private_ip = values.yes("use-private-ip");
        record.no_public_ip = values.yes("no-public-ip");
        record.dns_label = values.text("dns");
        record.static_public_ip = values.yes("static-public-ip");
        record.custom_data_file = values.text("custom-data");
        record.base.ssh_user = values.text("ssh-user");
        record.base.ssh_port = 22;
        if record.remuda_id.is_empty() {
            record.remuda_id = identity();
        }
        check(&record)
    }
}

/// Tags are given as keys and values in turn.
fn tags(text: &str) -> Result<BTreeMap<String, String>> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut tags = BTreeMap::new();
    for pair in parts.chunks(2).filter(|pair| !pair[0].is_empty()) {
        let (key, value) = (pair[0], pair.get(1).copied().unwrap_or_default());
        let odd = key.chars().any(|c| "<>%&\\?/".contains(c));
        if odd || key.len() > 512 || value.len() > 256 || key == LABEL {
            return Err(Error::other(format!("--azure-tags: {key:?} cannot be the name of a tag")));
        }
        tags.insert(key.to_owned(), value.to_owned());
    }
    Ok(tags)
}

fn check_credentials(record: &Record) -> Result<()> {
    for (flag, text) in [
        ("client-id", record.client_id.as_str()),
        ("client-secret", record.client_secret.expose()),
        ("subscription-id", &record.subscription_id),
        ("tenant-id", &record.tenant_id),
    ] {
        if text.is_empty() {
            return Err(kit::no_credential(NAME, flag));
        }
    }
    Ok(())
}

fn check(record: &Record) -> Result<()> {
    check_credentials(record)?;
    cloud(&record.environment)?;
    for (flag, text) in [
        ("resource-group", &record.resource_group),
        ("location", &record.location),
        ("size", &record.size),
        ("vnet", &record.virtual_network),
        ("subnet", &record.subnet_name),
        ("subnet-prefix", &record.subnet_prefix),
        ("storage-type", &record.storage_type),
    ] {
        if text.is_empty() {
            return Err(kit::required(NAME, flag));
        }
    }
    let user = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name = &record.base.ssh_user;
    if name.is_empty() || name == "root" || !name.chars().all(user) {
        return Err(Error::other("--azure-ssh-user must be the name of a user, and cannot be root"));
    }
    if !(1..=32_767).contains(&record.disk_size) {
        return Err(Error::other("--azure-disk-size must be a number of GB"));
    }
    if !record.availability_zone.is_empty() {
        if record.availability_zone.parse::<u8>().is_ok_and(|zone| zone > 0) {
            if !record.no_public_ip && !record.enable_public_ip_standard_sku {
                return Err(Error::other(
                    "--azure-availability-zone needs --azure-enable-public-ip-standard-sku",
                ));
            }
        } else {
            return Err(Error::other("--azure-availability-zone must be a number"));
        }
    }
    if !record.private_ip_addr.is_empty() && record.private_ip_addr.parse::<std::net::IpAddr>().is_err() {
        return Err(Error::other("--azure-private-ip-address must be an address"));
    }
    if record.nsg.starts_with('/')
        && (!record.nsg.starts_with("/subscriptions/") || record.nsg.contains(['?', '#']))
    {
        return Err(Error::other("--azure-nsg must be a name, or the id of a resource"));
    }
    work::check_ports(&record.open_ports)?;
    work::image(&record.image).map(drop)
}

impl Driver for Azure {
    kit::by_record!(all; client_secret);

    fn renew(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            values.teach(self.context.log.redactor());
            let secret = values.secret("azure-client-secret");
            if !secret.is_empty() {
                let mut record = self.record.lock();
                record.client_secret = secret;
                // A secret belongs to its principal; the subscription stays that of the machine.
                let given =
                    |flag: &str| Some(values.str(flag).trim().to_owned()).filter(|text| !text.is_empty());
                record.client_id = given("azure-client-id").unwrap_or_else(|| record.client_id.clone());
                record.tenant_id = given("azure-tenant-id").unwrap_or_else(|| record.tenant_id.clone());
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(self.check())
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            let record = self.record();
            let api = self.api(&record).await?;
            let machine = self.machine(&api, &record).await?.ok_or_else(|| self.lost())?;
            Ok(match work::power_state(&machine) {
                "running" => State::Running,
                "starting" => State::Starting,
                "stopping" | "deallocating" => State::Stopping,
                "stopped" | "deallocated" => State::Stopped,
                _ => State::None,
            })
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.power("start"))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.power("powerOff"))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.power("restart"))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.power("powerOff"))
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(async {
            let all = self.api(&self.record()).await?.machines().await?;
            let ours = all.into_iter().filter_map(|machine| {
                let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
                let identity = text(&machine["tags"][LABEL])?;
                let kind = "virtual machine".to_owned();
                Some(Owned { kind, id: text(&machine["id"])?, name: text(&machine["name"])?, identity })
            });
            Ok(ours.collect())
        })
    }
}
