//! Virtual machines of Proxmox VE: clones of a template that has cloud-init and the guest agent.
//!
//! Flags and variables are those of docker-machine-driver-proxmoxve, but for the credential, which is an API token, and
//! the authority of the server's certificate, which is always checked. A clone cannot be given a tag when it is begun,
//! so it is first called by a name of its own, which has the machine's identity in it, and gets its tag and its name
//! together when it is complete. Either is enough to find it again.

mod api;
mod flags;
#[cfg(test)]
mod tests;
mod work;

use parking_lot::Mutex;
use remuda_names::machines::tag::LABEL;
use serde::{Deserialize, Serialize};

use crate::{
    builtin::{Context, identity},
    driver::{Base, Config, Driver, Hidden, Owned, Pending, State, from_config, to_config},
    error::{Error, Result},
    flags::{Flag, Flags},
    kit::{self, Values},
    secret::Secret,
};

use api::{Api, Vm};
use flags::{UNSUPPORTED, all};

pub const NAME: &str = "proxmoxve";

/// The record of a virtual machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    host: String,
    port: u16,
    #[serde(rename = "TokenID")]
    token_id: String,
    token_secret: Secret,
    #[serde(rename = "CA")]
    ca: String,
    node: String,
    pool: String,
    #[serde(rename = "VMID")]
    vmid: String,
    #[serde(rename = "VMIDRange")]
    vmid_range: String,
    #[serde(rename = "CloneVMID")]
    clone_vmid: u64,
    clone_full: String,
    storage: String,
    /// In GB.
    storage_size: i64,
    storage_type: String,
    /// In GB.
    memory: i64,
    #[serde(rename = "CPU")]
    cpu: String,
    #[serde(rename = "CPUSockets")]
    cpu_sockets: String,
    #[serde(rename = "CPUCores")]
    cpu_cores: String,
    #[serde(rename = "NUMA")]
    numa: String,
    onboot: String,
    net_model: String,
    net_bridge: String,
    net_tag: i64,
    net_mtu: String,
    net_firewall: String,
    #[serde(rename = "IPConfig")]
    ip_config: String,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
    /// What another driver of that name recorded and we do not know; it is not lost.
    #[serde(flatten)]
    unknown: Hidden,
}

impl Record {
    fn tag(&self) -> String {
        format!("{LABEL}-{}", self.remuda_id)
    }

    /// The name of a clone that is not complete.
    fn clone_name(&self) -> String {
        let kept: String = self.base.machine_name.chars().take(40).collect();
        format!("{}-{}", kept.trim_end_matches(['-', '.']), self.remuda_id.get(..20).unwrap_or_default())
    }

    fn is_ours(&self, vm: &Vm) -> bool {
        !self.remuda_id.is_empty() && (vm.has_tag(&self.tag()) || vm.name == self.clone_name())
    }

    fn url(&self) -> String {
        // A literal IPv6 address has brackets in an address.
        let v6 = self.host.contains(':') && !self.host.starts_with('[');
        if v6 {
            format!("https://[{}]:{}", self.host, self.port)
        } else {
            format!("https://{}:{}", self.host, self.port)
        }
    }

    /// The network card, if the template's own is not meant.
    fn network(&self) -> Option<String> {
        if self.net_bridge.is_empty() {
            return None;
        }
        let mut card = format!("{},bridge={}", self.net_model, self.net_bridge);
        if self.net_tag != 0 {
            card.push_str(&format!(",tag={}", self.net_tag));
        }
        for (name, value) in [("mtu", &self.net_mtu), ("firewall", &self.net_firewall)] {
            if !value.is_empty() {
                card.push_str(&format!(",{name}={value}"));
            }
        }
        Some(card)
    }
}

/// The driver; see the module.
#[derive(Debug)]
pub struct ProxmoxVe {
    context: Context,
    record: Mutex<Record>,
}

impl ProxmoxVe {
    pub fn new(context: Context) -> Self {
        Self { context, record: Mutex::default() }
    }

    fn record(&self) -> Record {
        self.record.lock().clone()
    }

    fn api(&self, record: &Record) -> Result<Api> {
        if record.token_id.is_empty() || record.token_secret.is_empty() {
            return Err(kit::no_credential(NAME, "proxmox-token-secret"));
        }
        Api::new(&self.context, &record.url(), &record.token_id, &record.token_secret, &record.ca)
    }

    fn lost(&self) -> Error {
        Error::not_found(format!("machine {} not found", self.record.lock().base.machine_name))
    }

    fn take(&self, values: &Flags) -> Result<()> {
        values.teach(self.context.log.redactor());
        let values = Values::new(NAME, values)?;
        values.refuse(&all(), UNSUPPORTED)?;
        let mut record = self.record.lock();
        record.host = values.text("proxmox-host");
        record.port = values.port("proxmox-port")?;
        record.token_id = values.text("proxmox-token-id");
        record.token_secret = values.secret("proxmox-token-secret");
        record.ca = values.text("proxmox-ca");
        record.node = values.text("proxmox-node");
        record.pool = values.text("proxmox-pool");
        record.vmid_range = values.text("vm-vmid-range");
        record.clone_vmid = whole(&values, "vm-clone-vmid")?.unwrap_or_default();
        record.clone_full = switch(&values, "vm-clone-full")?;
        record.storage = plain(&values, "vm-storage-path")?;
        record.storage_size =
            whole(&values, "vm-storage-size")?.map_or(0, |size| i64::try_from(size).unwrap_or(0));
        record.storage_type = values.text("vm-storage-type").to_lowercase();
        record.memory = values.number("vm-memory");
        record.cpu = plain(&values, "vm-cpu")?;
        record.cpu_sockets = number(&values, "vm-cpu-sockets")?;
        record.cpu_cores = number(&values, "vm-cpu-cores")?;
        record.numa = switch(&values, "vm-numa")?;
        record.onboot = switch(&values, "vm-start-onboot")?;
        record.net_model = plain(&values, "vm-net-model")?;
        record.net_bridge = plain(&values, "vm-net-bridge")?;
        record.net_tag = values.number("vm-net-tag");
        record.net_mtu = number(&values, "vm-net-mtu")?;
        record.net_firewall = switch(&values, "vm-net-firewall")?;
        record.ip_config = values.text("vm-ipconfig");
        record.base.ssh_user = plain(&values, "ssh-username")?;
        record.base.ssh_port = values.port("ssh-port")?;
        if record.remuda_id.is_empty() {
            record.remuda_id = identity();
        }
        check(&record)
    }
}

/// A whole number, or nothing.
fn whole(values: &Values<'_>, flag: &str) -> Result<Option<u64>> {
    match values.text(flag).as_str() {
        "" => Ok(None),
        text => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::other(format!("--{NAME}-{flag} must be a whole number"))),
        },
    }
}

/// The same as text, as parameters are.
fn number(values: &Values<'_>, flag: &str) -> Result<String> {
    Ok(whole(values, flag)?.map(|number| number.to_string()).unwrap_or_default())
}

/// On, off, or as the template has it.
fn switch(values: &Values<'_>, flag: &str) -> Result<String> {
    match values.text(flag).as_str() {
        "" => Ok(String::new()),
        "0" | "false" => Ok("0".to_owned()),
        "1" | "true" => Ok("1".to_owned()),
        _ => Err(Error::other(format!("--{NAME}-{flag} must be 0 or 1"))),
    }
}

/// A word that can be part of a parameter with several parts.
fn plain(values: &Values<'_>, flag: &str) -> Result<String> {
    let text = values.text(flag);
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if text.len() <= 64 && text.chars().all(fits) {
        return Ok(text);
    }
    Err(Error::other(format!("--{NAME}-{flag} may have letters, digits, -, _ and . only, at most 64")))
}

fn check(record: &Record) -> Result<()> {
    if record.token_id.is_empty() || record.token_secret.is_empty() {
        return Err(kit::no_credential(NAME, "proxmox-token-secret"));
    }
    if !record.token_id.contains('@') || !record.token_id.contains('!') || record.token_id.contains('=') {
        return Err(Error::other("--proxmoxve-proxmox-token-id must look like user@realm!name"));
    }
    let host = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | ':' | '[' | ']');
    if record.host.is_empty() || !record.host.chars().all(host) {
        return Err(Error::other("--proxmoxve-proxmox-host must be the name or address of a server"));
    }
    if !["", "raw", "qcow2", "vmdk"].contains(&record.storage_type.as_str()) {
        return Err(Error::other("--proxmoxve-vm-storage-type must be raw, qcow2 or vmdk"));
    }
    if record.memory < 1 || record.memory > 16 << 10 {
        return Err(Error::other("--proxmoxve-vm-memory must be a number of GB"));
    }
    if record.storage_size > 1 << 20 {
        return Err(Error::other("--proxmoxve-vm-storage-size must be a number of GB"));
    }
    if !(0..=4094).contains(&record.net_tag) {
        return Err(Error::other("--proxmoxve-vm-net-tag must be a VLAN"));
    }
    if record.base.ssh_user.is_empty() {
        return Err(kit::required(NAME, "ssh-username"));
    }
    work::range(&record.vmid_range).map(drop)
}

impl Driver for ProxmoxVe {
    kit::by_record!(all; token_secret);

    fn renew(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            values.teach(self.context.log.redactor());
            let secret = values.secret("proxmoxve-proxmox-token-secret");
            if !secret.is_empty() {
                let mut record = self.record.lock();
                record.token_secret = secret;
                // What belongs to it comes with it.
                let given =
                    |flag: &str| Some(values.str(flag).trim().to_owned()).filter(|text| !text.is_empty());
                record.token_id =
                    given("proxmoxve-proxmox-token-id").unwrap_or_else(|| record.token_id.clone());
                record.ca = given("proxmoxve-proxmox-ca").unwrap_or_else(|| record.ca.clone());
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let record = self.record();
            self.template(&self.api(&record)?, &record).await.map(drop)
        })
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            let (_, vm) = self.vm().await?;
            Ok(match vm.status.as_str() {
                _ if !vm.lock.is_empty() => State::Starting,
                "running" => State::Running,
                "stopped" => State::Stopped,
                _ => State::None,
            })
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.power("start"))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.power("shutdown"))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.power("reboot"))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.power("stop"))
    }

    fn places(&self) -> Vec<String> {
        ["host", "port", "ca"].map(|flag| format!("{NAME}-proxmox-{flag}")).to_vec()
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(async {
            let all = self.api(&self.record())?.everywhere().await?;
            let ours = all.into_iter().filter_map(|vm| {
                let identity =
                    vm.tags().find_map(|tag| tag.strip_prefix(LABEL)?.strip_prefix('-'))?.to_owned();
                let (kind, id) = ("virtual machine".to_owned(), vm.vmid.to_string());
                Some(Owned { kind, id, name: vm.name, identity })
            });
            Ok(ours.collect())
        })
    }
}
