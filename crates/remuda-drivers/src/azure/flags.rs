//! The flags of rancher-machine's driver: names, variables and defaults.

use crate::{flags::Flag, kit::Table};

/// Flags of that driver that do nothing here.
pub(super) const UNSUPPORTED: &[&str] = &["docker-port", "plan"];

pub(super) fn all() -> Vec<Flag> {
    let table = Table::new(super::NAME, "AZURE");
    let text = |name: &str, default: &str, usage: &str| table.text(name, default, usage);
    let called = |flag: Flag, env: &str| Flag { env: env.to_owned(), ..flag };
    vec![
        text("environment", "AzurePublicCloud", "Azure's public cloud, or one of its others"),
        text("subscription-id", "", "Subscription that pays"),
        text("tenant-id", "", "Tenant of the service principal"),
        text("resource-group", "docker-machine", "Resource group, made if missing"),
        text("ssh-user", "docker-user", "User to log in as"),
        table.number("docker-port", 2376, "Not supported"),
        text("location", "westus", "Region of the machine"),
        text("size", "Standard_D2_v2", "Size of the machine"),
        text(
            "image",
            "canonical:ubuntu-24_04-lts:server-gen1:latest",
            "Image, as publisher:offer:sku:version or as the id of a resource",
        ),
        text("vnet", "docker-machine-vnet", "Virtual network, as group:name or name, made if missing"),
        text("subnet", "docker-machine", "Subnet of the virtual network, made if missing"),
        text("subnet-prefix", "192.168.0.0/16", "Addresses of a network that is made"),
        text("availability-set", "docker-machine", "Availability set, made if missing; not used with a zone"),
        text(
            "nsg",
            "",
            "Existing network security group, by name or id; one is made for the machine if empty",
        ),
        called(text("plan", "", "Not supported"), ""),
        table.yes("managed-disks", "Has no effect: disks are always managed"),
        table.number("fault-domain-count", 3, "Fault domains of an availability set that is made"),
        table.number("update-domain-count", 5, "Update domains of an availability set that is made"),
        table.number("disk-size", 30, "Size of the disk in GB"),
        called(text("custom-data", "", "File with cloud-init user data"), "AZURE_CUSTOM_DATA_FILE"),
        called(text("private-ip-address", "", "Private address of the machine; any if empty"), ""),
        text("storage-type", "Standard_LRS", "Type of the disk"),
        called(table.yes("use-private-ip", "Reach the machine by its private address"), ""),
        called(table.yes("no-public-ip", "Give no public address"), ""),
        called(table.yes("static-public-ip", "Give a public address that stays"), ""),
        called(text("dns", "", "DNS label of the public address"), "AZURE_DNS_LABEL"),
        called(table.list("open-port", "Ports to open to everybody, as number or number/protocol"), ""),
        text("client-id", "", "Service principal"),
        text("client-secret", "", "Secret of the service principal"),
        text("tags", "", "Tags of the machine, as key1,value1,key2,value2"),
        text("availability-zone", "", "Zone of the machine; needs a Standard public address"),
        called(
            table.yes("enable-public-ip-standard-sku", "Make the public address a Standard one"),
            "AZURE_STANDARD_PUBLIC_IP_SKU",
        ),
        table.yes("accelerated-networking", "Accelerate the network of the machine"),
    ]
}
