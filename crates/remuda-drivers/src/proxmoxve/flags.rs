//! The flags of docker-machine-driver-proxmoxve: names, variables and defaults.

use crate::{flags::Flag, kit::Table};

/// Flags of that driver that do nothing here.
pub(super) const UNSUPPORTED: &[&str] = &[
    "proxmox-user-name",
    "proxmox-user-password",
    "proxmox-realm",
    "vm-scsi-controller",
    "vm-scsi-attributes",
    "vm-protection",
    "vm-image-file",
    "vm-hostpci0",
    "ssh-password",
    "debug-driver",
    "task-timeout",
    "task-interval",
];

pub(super) fn all() -> Vec<Flag> {
    let table = Table::new(super::NAME, "PROXMOXVE");
    let text = |name: &str, default: &str, usage: &str| table.text(name, default, usage);
    vec![
        text("proxmox-host", "", "Name or address of a server of the Proxmox cluster"),
        Flag::int("proxmoxve-proxmox-port", "PROXMOXVE_PROXMOX_PORT", 8006, "Port of its API"),
        text("proxmox-token-id", "", "API token, as user@realm!name"),
        text("proxmox-token-secret", "", "Secret of the API token"),
        text("proxmox-ca", "", "Authority of the server's certificate, as PEM; the public ones if empty"),
        text("proxmox-node", "", "Node to make the machine on; that of the template if empty"),
        text("proxmox-user-name", "root", "Not supported: give an API token"),
        text("proxmox-user-password", "", "Not supported: give an API token"),
        text("proxmox-realm", "pam", "Not supported: give an API token"),
        text("proxmox-pool", "", "Pool that the machine becomes part of"),
        text("vm-vmid-range", "", "Ids to choose from, as low:high; the next free one if empty"),
        text("vm-clone-vmid", "", "Id of the template, which has cloud-init and the guest agent"),
        text("vm-clone-full", "", "Whether to copy the template's disks: 0 or 1"),
        text("vm-storage-path", "", "Storage for the machine's disks; that of the template if empty"),
        text("vm-storage-size", "16", "Size of the first disk in GB; it is never made smaller"),
        text("vm-storage-type", "", "Format of the machine's disks: raw, qcow2 or vmdk"),
        text("vm-scsi-controller", "virtio-scsi-pci", "Not supported: as the template has it"),
        text("vm-scsi-attributes", "", "Not supported: as the template has it"),
        table.number("vm-memory", 8, "Memory in GB"),
        text("vm-numa", "", "Whether there is NUMA: 0 or 1"),
        text("vm-cpu", "", "Emulated CPU; that of the template if empty"),
        text("vm-cpu-sockets", "", "Number of CPU sockets"),
        text("vm-cpu-cores", "", "Number of cores of each socket"),
        text("vm-start-onboot", "", "Whether it starts with its node: 0 or 1"),
        text("vm-protection", "", "Not supported: machines must be removable"),
        text("vm-image-file", "", "Not supported: machines are made from a template"),
        text("vm-net-model", "virtio", "Model of the network card; needs a bridge"),
        text("vm-net-firewall", "", "Whether the card is behind the firewall: 0 or 1; needs a bridge"),
        text("vm-net-mtu", "", "MTU of the network card; needs a bridge"),
        text("vm-net-bridge", "", "Bridge of the network card; the template's card if empty"),
        table.number("vm-net-tag", 0, "VLAN of the network card; needs a bridge"),
        text("vm-ipconfig", "ip=dhcp", "Address of the machine, as cloud-init parameters of Proxmox"),
        text("vm-hostpci0", "", "Not supported: as the template has it"),
        text("ssh-username", "root", "User that cloud-init makes, to log in as; it may become root by sudo"),
        text("ssh-password", "", "Not supported: machines have keys"),
        table.number("ssh-port", 22, "Port of the SSH server"),
        table.yes("debug-driver", "Not supported"),
        table.number("task-timeout", 300, "Not supported"),
        table.number("task-interval", 5, "Not supported"),
    ]
}
