//! Making and removing a virtual machine, and what it needs.

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_names::machines::tag::LABEL;
use serde_json::{Value, json};

use super::{
    Azure, Record,
    api::{ADDRESS, Api, CARD, FIREWALL, Kind, MACHINE, NETWORK, SET, classed},
};
use crate::{
    error::{Class, Error, Result},
    keys, kit,
};

/// What belongs to one machine, in the order in which it can go.
const OWN: &[(Kind, &str)] = &[(MACHINE, ""), (CARD, "-nic"), (ADDRESS, "-ip"), (FIREWALL, "-firewall")];

impl Azure {
    pub(super) async fn check(&self) -> Result<()> {
        let record = self.record();
        record.check_name()?;
        let api = self.api(&record).await?;
        if !api.has_location(&record.location).await? {
            return Err(Error::other(format!("azure has no location {}", record.location)));
        }
        // Nothing of others is touched.
        for (kind, suffix) in OWN {
            self.own(&api, &record, *kind, suffix).await?;
        }
        Ok(())
    }

    /// A resource that is called as the machine's are, if there is one; an error if it is somebody else's.
    async fn own(&self, api: &Api, record: &Record, kind: Kind, suffix: &str) -> Result<Option<Value>> {
        let name = format!("{}{suffix}", record.base.machine_name);
        match api.get(&api.id(&record.resource_group, kind, &name), kind).await? {
            Some(found) if !record.owns(&found) => {
                let group = &record.resource_group;
                Err(Error::other(format!("azure has a {name} in {group} that is not this machine's")))
            }
            found => Ok(found),
        }
    }

    pub(super) async fn make(&self) -> Result<()> {
        let record = self.record();
        record.check_name()?;
        if record.remuda_id.is_empty() {
            return Err(Error::other("the machine has not been configured"));
        }
        let api = self.api(&record).await?;
        let custom_data = kit::user_data("azure-custom-data", &record.custom_data_file).await?;
        let path = record.base.key_path();
        let public = keys::ensure(&path, &record.base.machine_name).await?;
        self.record.lock().base.ssh_key_path = path;
        api.ensure_group(&record.resource_group, &record.location).await?;
        let set = self.ensure_set(&api, &record).await?;
        let subnet = self.ensure_network(&api, &record).await?;
        let firewall = self.ensure_firewall(&api, &record).await?;
        let address = match record.no_public_ip {
            true => None,
            false => Some(self.ensure_own(&api, &record, ADDRESS, "-ip", address(&record)).await?),
        };
        let card = card(&record, &subnet, &firewall, address.as_deref());
        let card = self.ensure_own(&api, &record, CARD, "-nic", card).await?;
        let custom_data = custom_data.map(|text| BASE64_STANDARD.encode(text));
        let machine = machine(&record, &card, set.as_deref(), public.trim(), custom_data.as_deref());
        self.context.log.info("Creating virtual machine...");
        self.ensure_own(&api, &record, MACHINE, "", machine).await?;
        self.context.log.info("Waiting for the virtual machine to run...");
        let look = || async {
            let found = self.machine(&api, &record).await?.ok_or_else(|| self.lost())?;
            Ok((power_state(&found) == "running" && self.learn(&api, &record).await?).then_some(()))
        };
        self.context.wait("the virtual machine did not come up", look).await
    }

    /// Makes a resource of the machine's and waits until it is complete. Gives its id.
    async fn ensure_own(
        &self,
        api: &Api,
        record: &Record,
        kind: Kind,
        suffix: &str,
        mut body: Value,
    ) -> Result<String> {
        let name = format!("{}{suffix}", record.base.machine_name);
        let id = api.id(&record.resource_group, kind, &name);
        // What is there is not written again, unless it failed: that may pass.
        let there = self.own(api, record, kind, suffix).await?;
        if there.is_none_or(|found| provisioning(&found) == "Failed") {
            body["location"] = record.location.as_str().into();
            let mut tags = record.tags.clone();
            tags.insert(LABEL.to_owned(), record.remuda_id.clone());
            body["tags"] = json!(tags);
            if !record.availability_zone.is_empty() && (kind == MACHINE || kind == ADDRESS) {
                body["zones"] = json!([record.availability_zone]);
            }
            api.put(&id, kind, &body).await?;
        }
        self.complete(api, &id, kind).await?;
        Ok(id)
    }

    async fn complete(&self, api: &Api, id: &str, kind: Kind) -> Result<()> {
        let name = id.rsplit('/').next().unwrap_or_default();
        let look = || async {
            let found = if kind == MACHINE { api.machine(id).await? } else { api.get(id, kind).await? };
            let Some(found) = found else { return Ok(None) };
            match provisioning(&found) {
                "Succeeded" => Ok(Some(())),
                "Failed" | "Canceled" => Err(self.failed(name, &found)),
                _ => Ok(None),
            }
        };
        self.context.wait(&format!("{name} was not completed"), look).await
    }

    /// Why a resource failed, as far as it says.
    fn failed(&self, name: &str, found: &Value) -> Error {
        let statuses = found["properties"]["instanceView"]["statuses"].as_array().into_iter().flatten();
        let (mut code, mut why) = ("", "");
        for status in statuses {
            let text = status["code"].as_str().unwrap_or_default();
            if let Some(failed) = text.strip_prefix("ProvisioningState/failed") {
                code = failed.trim_start_matches('/');
                why = status["message"].as_str().unwrap_or_default();
            }
        }
        let why: String = self.context.log.redactor().scrub(why).chars().take(500).collect();
        Error::new(classed(0, code, Class::Other), format!("make {name}: {code} {why}").trim_end().to_owned())
    }

    /// Availability sets are shared, and stay.
    async fn ensure_set(&self, api: &Api, record: &Record) -> Result<Option<String>> {
        if !record.availability_zone.is_empty() || record.availability_set.is_empty() {
            return Ok(None);
        }
        let id = api.id(&record.resource_group, SET, &record.availability_set);
        if api.get(&id, SET).await?.is_none() {
            let body = json!({
                "location": record.location, "sku": {"name": "Aligned"},
                "properties": {
                    "platformFaultDomainCount": record.fault_count,
                    "platformUpdateDomainCount": record.update_count,
                },
            });
            api.put(&id, SET, &body).await?;
        }
        Ok(Some(id))
    }

    /// Networks are shared, and stay. Gives the id of the subnet.
    async fn ensure_network(&self, api: &Api, record: &Record) -> Result<String> {
        let given = record.virtual_network.split_once(':');
        let (group, name) = given.unwrap_or((&record.resource_group, &record.virtual_network));
        let id = api.id(group, NETWORK, name);
        let subnet = format!("{id}/subnets/{}", crate::rest::encode(&record.subnet_name));
        let prefix = &record.subnet_prefix;
        if api.get(&id, NETWORK).await?.is_none() {
            let subnets = json!([{"name": record.subnet_name, "properties": {"addressPrefix": prefix}}]);
            let body = json!({
                "location": record.location,
                "properties": {"addressSpace": {"addressPrefixes": [prefix]}, "subnets": subnets},
            });
            api.put(&id, NETWORK, &body).await?;
        }
        self.complete(api, &id, NETWORK).await?;
        if api.get(&subnet, NETWORK).await?.is_none() {
            api.put(&subnet, NETWORK, &json!({"properties": {"addressPrefix": prefix}})).await?;
            self.complete(api, &subnet, NETWORK).await?;
        }
        Ok(subnet)
    }

    /// The group that was named, or one of the machine's own.
    async fn ensure_firewall(&self, api: &Api, record: &Record) -> Result<String> {
        if record.nsg.is_empty() {
            let body = firewall(&record.open_ports)?;
            return self.ensure_own(api, record, FIREWALL, "-firewall", body).await;
        }
        let id = if record.nsg.starts_with('/') {
            record.nsg.clone()
        } else {
            api.id(&record.resource_group, FIREWALL, &record.nsg)
        };
        match api.get(&id, FIREWALL).await? {
            Some(_) => Ok(id),
            None => Err(Error::other(format!("azure has no network security group {}", record.nsg))),
        }
    }

    /// The machine of the record with what it does, or nothing.
    pub(super) async fn machine(&self, api: &Api, record: &Record) -> Result<Option<Value>> {
        let id = api.id(&record.resource_group, MACHINE, &record.base.machine_name);
        Ok(api.machine(&id).await?.filter(|found| record.owns(found)))
    }

    /// Takes over the machine's addresses; whether those that were asked for are there.
    async fn learn(&self, api: &Api, record: &Record) -> Result<bool> {
        let card = self.own(api, record, CARD, "-nic").await?.unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let private = text(&card["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]);
        let public = match record.no_public_ip {
            true => String::new(),
            false => {
                let found = self.own(api, record, ADDRESS, "-ip").await?.unwrap_or_default();
                text(&found["properties"]["ipAddress"])
            }
        };
        let mut kept = self.record.lock();
        kept.private_ip_address.clone_from(&private);
        kept.base.ip_address = if record.use_private_ip || record.no_public_ip { private } else { public };
        Ok(!kept.base.ip_address.is_empty())
    }

    pub(super) async fn clean(&self) -> Result<()> {
        let record = self.record();
        if record.client_id.is_empty() || record.subscription_id.is_empty() {
            // Never configured, so nothing was made; and there is no secret to ask with.
            return Ok(());
        }
        let api = self.api(&record).await?;
        for (kind, suffix) in OWN {
            let name = format!("{}{suffix}", record.base.machine_name);
            let id = api.id(&record.resource_group, *kind, &name);
            // What is called the same and is somebody else's stays.
            let found = api.get(&id, *kind).await?;
            if !found.is_some_and(|found| record.owns(&found)) {
                continue;
            }
            self.context.log.info(format!("Removing {name}..."));
            api.delete(&id, *kind).await?;
            let (api, id) = (&api, &id);
            let look = || async move { Ok(api.get(id, *kind).await?.is_none().then_some(())) };
            self.context.wait(&format!("{name} does not go"), look).await?;
        }
        Ok(())
    }
}

impl Record {
    /// Whether a resource is this machine's. Other drivers leave no mark: theirs are known by name.
    fn owns(&self, resource: &Value) -> bool {
        self.remuda_id.is_empty() || resource["tags"][LABEL] == *self.remuda_id
    }
}

fn provisioning(resource: &Value) -> &str {
    resource["properties"]["provisioningState"].as_str().unwrap_or_default()
}

/// What a machine does: `running`, `stopped`, `deallocated` and the ways there.
pub(super) fn power_state(machine: &Value) -> &str {
    let statuses = machine["properties"]["instanceView"]["statuses"].as_array().into_iter().flatten();
    let codes = statuses.filter_map(|status| status["code"].as_str());
    codes.filter_map(|code| code.strip_prefix("PowerState/")).next().unwrap_or_default()
}

fn address(record: &Record) -> Value {
    // Standard addresses are static.
    let standard = record.enable_public_ip_standard_sku;
    let method = if record.static_public_ip || standard { "Static" } else { "Dynamic" };
    let mut body = json!({
        "sku": {"name": if standard { "Standard" } else { "Basic" }},
        "properties": {"publicIPAllocationMethod": method},
    });
    if !record.dns_label.is_empty() {
        body["properties"]["dnsSettings"] = json!({"domainNameLabel": record.dns_label});
    }
    body
}

fn card(record: &Record, subnet: &str, firewall: &str, address: Option<&str>) -> Value {
    let mut ip = json!({"subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic"});
    if !record.private_ip_addr.is_empty() {
        ip["privateIPAllocationMethod"] = "Static".into();
        ip["privateIPAddress"] = record.private_ip_addr.as_str().into();
    }
    if let Some(address) = address {
        ip["publicIPAddress"] = json!({"id": address});
    }
    json!({"properties": {
        "enableAcceleratedNetworking": record.accelerated_networking,
        "networkSecurityGroup": {"id": firewall},
        "ipConfigurations": [{"name": "ip", "properties": ip}],
    }})
}

/// SSH and the ports given are open to everybody; within the network everything is, as Azure has it.
fn firewall(ports: &[String]) -> Result<Value> {
    let mut rules = Vec::new();
    let ssh = ["22".to_owned()];
    for (index, given) in ssh.iter().chain(ports).enumerate() {
        let (port, protocol) = given.split_once('/').unwrap_or((given, "tcp"));
        let protocol = match protocol.to_lowercase().as_str() {
            "tcp" => "Tcp",
            "udp" => "Udp",
            _ => return Err(Error::other(format!("--azure-open-port: {given:?} is neither tcp nor udp"))),
        };
        let range = port.split('-').all(|end| end.parse::<u16>().is_ok_and(|port| port != 0));
        if !range || port.split('-').count() > 2 {
            return Err(Error::other(format!("--azure-open-port: {given:?} is no port")));
        }
        rules.push(json!({"name": format!("open-{index}"), "properties": {
            "priority": 100 + index, "direction": "Inbound", "access": "Allow", "protocol": protocol,
            "sourceAddressPrefix": "*", "sourcePortRange": "*",
            "destinationAddressPrefix": "*", "destinationPortRange": port,
        }}));
    }
    Ok(json!({"properties": {"securityRules": rules}}))
}

/// Ports as they are given.
pub(super) fn check_ports(ports: &[String]) -> Result<()> {
    firewall(ports).map(drop)
}

/// An image as Azure wants it named.
pub(super) fn image(text: &str) -> Result<Value> {
    if text.starts_with('/') {
        return Ok(json!({"id": text}));
    }
    match text.split(':').collect::<Vec<_>>().as_slice() {
        [publisher, offer, sku, version] if text.split(':').all(|part| !part.is_empty()) => {
            Ok(json!({"publisher": publisher, "offer": offer, "sku": sku, "version": version}))
        }
        _ => Err(Error::new(
            Class::Image,
            "--azure-image must be publisher:offer:sku:version, or the id of a resource",
        )),
    }
}

fn machine(record: &Record, card: &str, set: Option<&str>, public: &str, custom_data: Option<&str>) -> Value {
    let user = &record.base.ssh_user;
    let mut system = json!({
        "computerName": record.base.machine_name, "adminUsername": user,
        "linuxConfiguration": {
            "disablePasswordAuthentication": true,
            "ssh": {"publicKeys": [{"path": format!("/home/{user}/.ssh/authorized_keys"), "keyData": public}]},
        },
    });
    if let Some(custom_data) = custom_data {
        system["customData"] = custom_data.into();
    }
    let mut body = json!({"properties": {
        "hardwareProfile": {"vmSize": record.size},
        "osProfile": system,
        "storageProfile": {
            "imageReference": image(&record.image).unwrap_or_default(),
            // Disk and card go with the machine, also if nobody is there to see it go.
            "osDisk": {
                "name": format!("{}-os-disk", record.base.machine_name), "createOption": "FromImage",
                "diskSizeGB": record.disk_size, "deleteOption": "Delete",
                "managedDisk": {"storageAccountType": record.storage_type},
            },
        },
        "networkProfile": {"networkInterfaces": [
            {"id": card, "properties": {"primary": true, "deleteOption": "Delete"}},
        ]},
    }});
    if let Some(set) = set {
        body["properties"]["availabilitySet"] = json!({"id": set});
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_opened_as_given() {
        let made = firewall(&["80".to_owned(), "53/udp".to_owned(), "30000-32767".to_owned()]).unwrap();
        let rules = made["properties"]["securityRules"].as_array().unwrap();
        let shown: Vec<_> = rules
            .iter()
            .map(|rule| &rule["properties"])
            .map(|rule| format!("{} {}", rule["protocol"].as_str().unwrap(), rule["destinationPortRange"]))
            .collect();
        assert_eq!(shown, [r#"Tcp "22""#, r#"Tcp "80""#, r#"Udp "53""#, r#"Tcp "30000-32767""#]);
        for bad in ["x", "0", "80/icmp", "1-2-3", "70000", "*"] {
            assert!(firewall(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn images_are_named_in_two_ways() {
        assert_eq!(image("a:b:c:latest").unwrap()["sku"], "c");
        assert_eq!(image("/subscriptions/x").unwrap()["id"], "/subscriptions/x");
        for bad in ["", "a:b", "a::c:d", "https://x"] {
            assert_eq!(image(bad).unwrap_err().class(), Class::Image, "{bad}");
        }
    }
}
