//! Making and removing a virtual machine.

use std::net::IpAddr;

use rand::RngExt;
use serde_json::Value;

use super::{
    ProxmoxVe, Record,
    api::{Api, Card, Vm},
};
use crate::{
    error::{Class, Error, Result},
    keys, rest,
};

/// Ids that Proxmox has.
const IDS: std::ops::RangeInclusive<u64> = 100..=999_999_999;

/// The ids to choose from; none for whatever is next.
pub(super) fn range(text: &str) -> Result<Option<(u64, u64)>> {
    if text.is_empty() {
        return Ok(None);
    }
    let (low, high) = text.split_once(':').unwrap_or((text, ""));
    let high = if high.is_empty() { "999999999" } else { high };
    match (low.trim().parse(), high.trim().parse()) {
        (Ok(low), Ok(high)) if IDS.contains(&low) && IDS.contains(&high) && low <= high => {
            Ok(Some((low, high)))
        }
        _ => Err(Error::other("--proxmoxve-vm-vmid-range must be low:high, from 100 to 999999999")),
    }
}

impl ProxmoxVe {
    /// The template, which exists and is one.
    pub(super) async fn template(&self, api: &Api, record: &Record) -> Result<Vm> {
        record.base.check_name()?;
        let name = &record.base.machine_name;
        if name.len() > 63 || name.ends_with(['-', '.']) {
            return Err(Error::other(format!(
                "machine name {name} is no host name of at most 63 characters"
            )));
        }
        let id = record.clone_vmid;
        let missing = |why: &str| Error::new(Class::Image, format!("proxmox has no template {id}: {why}"));
        let all = api.everywhere().await?;
        let found = all.into_iter().find(|vm| vm.vmid == id);
        let found =
            found.ok_or_else(|| missing("there is no machine of that id, or the token may not see it"))?;
        if found.template == 0 {
            return Err(missing("the machine of that id is none"));
        }
        if !record.node.is_empty() && !api.nodes().await?.contains(&record.node) {
            return Err(Error::other(format!("proxmox has no node {} that is online", record.node)));
        }
        Ok(found)
    }

    pub(super) async fn make(&self) -> Result<()> {
        let record = self.record();
        if record.remuda_id.is_empty() {
            return Err(Error::other("the machine has not been configured"));
        }
        let api = self.api(&record)?;
        let path = record.base.key_path();
        let public = keys::ensure(&path, &record.base.machine_name).await?;
        self.record.lock().base.ssh_key_path = path;
        let vm = match self.find(&api, &record).await?.into_iter().next() {
            Some(vm) => vm,
            None => self.copy(&api, &record).await?,
        };
        self.record.lock().vmid = vm.vmid.to_string();
        self.unlocked(&api, &vm).await?;
        self.settle(&api, &record, &vm, &public).await?;
        self.switch_on(&api, &vm).await?;
        self.context.log.info("Waiting for the guest agent to tell an address...");
        let settings = api.settings(&vm).await?;
        let late =
            "the machine got no address: is the guest agent in the template, and may the token ask it?";
        let look = || async {
            let cards = match api.cards(&vm).await {
                Ok(cards) => cards,
                // There is one status for everything: most likely the agent has not started yet.
                Err(refused) if refused.status == 500 => return Ok(None),
                Err(refused) => return Err(refused.error),
            };
            Ok(addresses(&cards, &settings))
        };
        let (v4, v6) = self.context.wait(late, look).await?;
        let mut kept = self.record.lock();
        (kept.base.ip_address, kept.base.ipv6_address) = (v4, v6);
        Ok(())
    }

    /// Begins a clone and waits for the task.
    async fn copy(&self, api: &Api, record: &Record) -> Result<Vm> {
        let template = self.template(api, record).await?;
        let node = if record.node.is_empty() { &template.node } else { &record.node };
        let mut tries = 0;
        loop {
            let id = self.choose(api, record).await?;
            let mut parameters = vec![("newid", id.to_string()), ("name", record.clone_name())];
            let whole = !record.storage.is_empty() || !record.storage_type.is_empty();
            let full = if whole && record.clone_full.is_empty() { "1" } else { &record.clone_full };
            let target = if *node == template.node { "" } else { node };
            for (name, value) in [
                ("full", full),
                ("target", target),
                ("storage", &record.storage),
                ("format", &record.storage_type),
                ("pool", &record.pool),
            ] {
                if !value.is_empty() {
                    parameters.push((name, value.to_owned()));
                }
            }
            self.context.log.info(format!("Cloning template {} as {id}...", template.vmid));
            let refused = match api.clone(&template, &parameters).await {
                Ok(task) => {
                    self.done(api, &template.node, &task).await?;
                    let made = api.on(node).await?.into_iter().find(|vm| vm.vmid == id);
                    return made
                        .ok_or_else(|| Error::network(format!("machine {id} is not there after its clone")));
                }
                Err(refused) => refused,
            };
            // Another machine may have been given the same id a moment before.
            let taken = refused.status == 500 && api.free(Some(id)).await.is_err();
            let error = if taken { Error::network(refused.error.to_string()) } else { refused.error };
            self.context.look_again(&mut tries, error).await?;
            if let Some(vm) = self.find(api, record).await?.into_iter().next() {
                return Ok(vm);
            }
        }
    }

    async fn choose(&self, api: &Api, record: &Record) -> Result<u64> {
        let Some((low, high)) = range(&record.vmid_range)? else { return Ok(api.free(None).await?) };
        // Somewhere in the range, then on from there: machines that are made at the same time rarely meet.
        let start = rand::rng().random_range(low..=high);
        let mut last = None;
        for id in (start..=high).chain(low..start).take(1000) {
            match api.free(Some(id)).await {
                Ok(id) => return Ok(id),
                Err(refused) if matches!(refused.status, 400 | 500) => last = Some(refused.error),
                Err(refused) => return Err(refused.error),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        let message = format!("no id of --proxmoxve-vm-vmid-range {low}:{high} is free: {why}");
        Err(Error::new(Class::Quota, message))
    }

    async fn done(&self, api: &Api, node: &str, task: &str) -> Result<()> {
        let look = || async {
            let task = api.task(node, task).await?;
            match (task.status.as_str(), task.exitstatus.as_str()) {
                ("stopped", status) if status == "OK" || status.starts_with("WARNINGS") => Ok(Some(())),
                ("stopped", status) => {
                    let said = self.context.log.redactor().scrub(status).into_owned();
                    Err(Error::from_text(format!("clone the template: {said}")))
                }
                _ => Ok(None),
            }
        };
        self.context.wait("the clone of the template did not end", look).await
    }

    /// Waits until no clone or other task holds it. What is gone is not held.
    async fn unlocked(&self, api: &Api, vm: &Vm) -> Result<()> {
        let look = || async {
            let found = api.on(&vm.node).await?.into_iter().find(|found| found.vmid == vm.vmid);
            Ok(found.is_none_or(|found| found.lock.is_empty()).then_some(()))
        };
        self.context.wait(&format!("machine {} stays locked", vm.vmid), look).await
    }

    /// Gives a complete clone its name, tag, size, user and key. Repeating changes nothing.
    async fn settle(&self, api: &Api, record: &Record, vm: &Vm, public: &str) -> Result<()> {
        let mut tags: Vec<&str> = vm.tags().collect();
        let ours = record.tag();
        if !tags.contains(&ours.as_str()) {
            tags.push(&ours);
        }
        let mut parameters = vec![
            ("name", record.base.machine_name.clone()),
            ("tags", tags.join(";")),
            ("memory", (record.memory * 1024).to_string()),
            ("ciuser", record.base.ssh_user.clone()),
            // It is decoded once more than other parameters.
            ("sshkeys", rest::encode(public.trim())),
            ("agent", "1".to_owned()),
        ];
        for (name, value) in [
            ("ipconfig0", record.ip_config.clone()),
            ("cpu", record.cpu.clone()),
            ("sockets", record.cpu_sockets.clone()),
            ("cores", record.cpu_cores.clone()),
            ("numa", record.numa.clone()),
            ("onboot", record.onboot.clone()),
            ("net0", record.network().unwrap_or_default()),
        ] {
            if !value.is_empty() {
                parameters.push((name, value));
            }
        }
        api.set(vm, "config", &parameters).await?;
        let settings = api.settings(vm).await?;
        let wanted = record.storage_size << 30;
        if let Some((disk, size)) = first_disk(&settings)
            && size < wanted
        {
            let size = format!("{}G", record.storage_size);
            api.set(vm, "resize", &[("disk", disk), ("size", size)]).await?;
        }
        Ok(())
    }

    async fn switch_on(&self, api: &Api, vm: &Vm) -> Result<()> {
        let running = || async {
            let found = api.on(&vm.node).await?.into_iter().find(|found| found.vmid == vm.vmid);
            found.map(|found| found.status == "running").ok_or_else(|| self.lost())
        };
        if running().await? {
            return Ok(());
        }
        self.context.log.info(format!("Starting machine {}...", vm.vmid));
        if let Err(refused) = api.power(vm, "start").await
            // A try whose answer was lost may have been heard.
            && !running().await?
        {
            return Err(refused.error);
        }
        let look = || async { Ok(running().await?.then_some(())) };
        self.context.wait(&format!("machine {} does not start", vm.vmid), look).await
    }

    /// What was made for this record: by its tag wherever it is now, or by the name of an unfinished clone.
    async fn find(&self, api: &Api, record: &Record) -> Result<Vec<Vm>> {
        let tagged: Vec<Vm> = api.everywhere().await?.into_iter().filter(|vm| record.is_ours(vm)).collect();
        if !tagged.is_empty() || record.remuda_id.is_empty() {
            return Ok(tagged);
        }
        let nodes = if record.node.is_empty() { api.nodes().await? } else { vec![record.node.clone()] };
        let mut found = Vec::new();
        for node in nodes {
            found.extend(api.on(&node).await?.into_iter().filter(|vm| record.is_ours(vm)));
        }
        Ok(found)
    }

    /// The machine of the record, as it is now.
    pub(super) async fn vm(&self) -> Result<(Api, Vm)> {
        let record = self.record();
        let api = self.api(&record)?;
        let found = self.find(&api, &record).await?.into_iter().next().ok_or_else(|| self.lost())?;
        let now = api.on(&found.node).await?.into_iter().find(|vm| vm.vmid == found.vmid);
        let now = now.ok_or_else(|| self.lost())?;
        Ok((api, now))
    }

    pub(super) async fn power(&self, kind: &str) -> Result<()> {
        let (api, vm) = self.vm().await?;
        if kind == "start" {
            return self.switch_on(&api, &vm).await;
        }
        Ok(api.power(&vm, kind).await?)
    }

    pub(super) async fn clean(&self) -> Result<()> {
        let record = self.record();
        if record.remuda_id.is_empty() {
            if record.vmid.is_empty() {
                // Never configured, so nothing was made; and there is no token to ask with.
                return Ok(());
            }
            let (name, id) = (&record.base.machine_name, &record.vmid);
            return Err(Error::other(format!(
                "machine {name} was made by another driver: remove virtual machine {id} by hand"
            )));
        }
        let api = self.api(&record)?;
        let mut found = self.find(&api, &record).await?;
        if found.is_empty() && record.vmid.is_empty() {
            // Nobody knows whether a clone is still on its way into the listing.
            tokio::time::sleep(self.context.pace.settle).await;
            found = self.find(&api, &record).await?;
        }
        for vm in found {
            self.context.log.info(format!("Removing machine {}...", vm.vmid));
            self.unlocked(&api, &vm).await?;
            self.end(&api, &vm).await?;
        }
        Ok(())
    }

    async fn end(&self, api: &Api, vm: &Vm) -> Result<()> {
        let look = || async {
            let found = api.on(&vm.node).await?.into_iter().find(|found| found.vmid == vm.vmid);
            match found {
                None => return Ok(Some(())),
                Some(found) if !found.lock.is_empty() => {}
                Some(found) if found.status == "running" => api.power(vm, "stop").await?,
                Some(_) => {
                    let refused = api.delete(vm).await.err();
                    let left = api.on(&vm.node).await?.into_iter().any(|found| found.vmid == vm.vmid);
                    match refused {
                        _ if !left => return Ok(Some(())),
                        Some(refused) => return Err(refused.error),
                        None => {}
                    }
                }
            }
            Ok(None)
        };
        self.context.wait(&format!("machine {} does not go", vm.vmid), look).await
    }
}

/// The disk that is started from, and its size in bytes.
fn first_disk(settings: &Value) -> Option<(String, i64)> {
    let order =
        settings["boot"].as_str().and_then(|boot| boot.split_once("order=")).map_or("", |(_, order)| order);
    let order = order.split(',').next().unwrap_or_default().split(';');
    let usual = ["scsi0", "virtio0", "sata0", "ide0"].into_iter();
    order.chain(usual).find_map(|disk| {
        let text = settings[disk].as_str()?;
        let size = text.split(',').find_map(|option| option.strip_prefix("size="))?;
        let number: i64 = size.trim_end_matches(char::is_alphabetic).parse().ok()?;
        let unit = match size.trim_start_matches(|c: char| c.is_ascii_digit()) {
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            _ => 1,
        };
        (!text.contains("media=cdrom")).then(|| (disk.to_owned(), number.saturating_mul(unit)))
    })
}

/// The addresses of the first card: the one the settings tell of, else any that is no loopback. IPv4 comes first;
/// where there is none, IPv6 is what the machine is reached by.
fn addresses(cards: &[Card], settings: &Value) -> Option<(String, String)> {
    let first = settings["net0"].as_str().unwrap_or_default().to_lowercase();
    let own = cards.iter().find(|card| !card.mac.is_empty() && first.contains(&card.mac.to_lowercase()));
    let card = own.or_else(|| cards.iter().find(|card| card.name != "lo" && !card.addresses.is_empty()))?;
    let all: Vec<IpAddr> = card.addresses.iter().filter_map(|address| address.ip.parse().ok()).collect();
    let v4 = all.iter().find(|ip| matches!(ip, IpAddr::V4(ip) if !ip.is_link_local()));
    let v6 = all
        .iter()
        .find(|ip| matches!(ip, IpAddr::V6(ip) if !ip.is_unicast_link_local() && !ip.is_loopback()));
    let text = |ip: Option<&IpAddr>| ip.map(ToString::to_string).unwrap_or_default();
    let main = text(v4.or(v6));
    (!main.is_empty()).then(|| (main, text(v6)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_are_read_and_bounded() {
        assert_eq!(range("").unwrap(), None);
        assert_eq!(range("200:300").unwrap(), Some((200, 300)));
        assert_eq!(range("200").unwrap(), Some((200, 999_999_999)));
        for bad in ["x", "99:200", "300:200", "100:9999999999", ":"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_disk_that_is_started_from_is_found() {
        let settings = json!({
            "boot": "order=ide2;virtio0", "ide2": "local:cloudinit,media=cdrom,size=4M",
            "virtio0": "lvm:vm-1-disk-0,size=3584M", "scsi0": "lvm:vm-1-disk-1,size=1T",
        });
        assert_eq!(first_disk(&settings), Some(("virtio0".into(), 3584 << 20)));
        assert_eq!(first_disk(&json!({"scsi0": "lvm:x,size=2G"})), Some(("scsi0".into(), 2 << 30)));
        assert_eq!(first_disk(&json!({})), None);
    }

    #[test]
    fn the_first_card_tells_the_address() {
        let cards = json!([
            {"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
            {"name": "docker0", "hardware-address": "02:aa", "ip-addresses": [{"ip-address": "172.17.0.1"}]},
            {"name": "eth0", "hardware-address": "bc:24:11:00:00:01", "ip-addresses": [
                {"ip-address": "fe80::1"}, {"ip-address": "192.0.2.7"}, {"ip-address": "2001:db8::7"}]},
        ]);
        let cards: Vec<Card> = serde_json::from_value(cards).unwrap();
        let settings = json!({"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"});
        assert_eq!(addresses(&cards, &settings), Some(("192.0.2.7".into(), "2001:db8::7".into())));
        assert_eq!(addresses(&cards, &json!({})), Some(("172.17.0.1".into(), String::new())));
        assert_eq!(addresses(&[], &settings), None);
    }
}
