//! The flags of rancher-machine's driver: names, variables and defaults.

use crate::{flags::Flag, kit::Table};

/// Flags of that driver that do nothing here.
pub(super) const UNSUPPORTED: &[&str] =
    &["use-existing", "open-port", "external-firewall-rule-prefix", "internal-firewall-rule-prefix"];

const SCOPES: &str = "https://www.googleapis.com/auth/devstorage.read_only,\
                      https://www.googleapis.com/auth/logging.write,\
                      https://www.googleapis.com/auth/monitoring.write";

pub(super) fn all() -> Vec<Flag> {
    let table = Table::new(super::NAME, "GOOGLE");
    let text = |name: &str, default: &str, usage: &str| table.text(name, default, usage);
    vec![
        text("zone", "us-central1-a", "Zone of the instance"),
        text("machine-type", "n1-standard-1", "Type of the instance"),
        text(
            "machine-image",
            "ubuntu-os-cloud/global/images/ubuntu-2204-jammy-v20220420",
            "Image, as project/global/images/name or project/global/images/family/name",
        ),
        text("username", "docker-user", "User to log in as"),
        text("auth-encoded-json", "", "Key of a service account: its JSON, plain or in base64"),
        text("project", "", "Project of the instance; that of the service account if empty"),
        text("scopes", SCOPES, "What the instance may do with its own service account, separated by commas"),
        table.number("disk-size", 10, "Size of the disk in GB"),
        text("disk-type", "pd-standard", "Type of the disk"),
        text("network", "default", "Network of the instance"),
        text("subnetwork", "", "Subnetwork of the instance"),
        text("address", "", "Reserved external address, by name or as it is"),
        table.yes("preemptible", "Make an instance that Google may end"),
        text("tags", "", "Network tags of the instance, separated by commas"),
        table.yes("use-internal-ip", "Reach the instance by its internal address"),
        table.yes("use-internal-ip-only", "Give no external address"),
        table.yes("use-existing", "Not supported"),
        table.list("open-port", "Not supported: use a firewall rule for a network tag"),
        text("external-firewall-rule-prefix", "", "Not supported: use a firewall rule for a network tag"),
        text("internal-firewall-rule-prefix", "", "Not supported: use a firewall rule for a network tag"),
        text("userdata", "", "File with cloud-init user data"),
        text("vm-labels", "", "Labels of the instance, as key1,value1,key2,value2"),
    ]
}
