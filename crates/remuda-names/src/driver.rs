//! Node drivers by name: what others have to know of them.
//!
//! A driver says what it is by its flags and its record. This is the rest: what is different for one driver, in a
//! table, so that no other place asks for a driver by name. A driver that comes with the program has an entry with a
//! [`Listing`]; a driver without an entry is like most.

use crate::{
    machines::class,
    rancher::annotation::driver::{
        FILE_ALIASES, OPTIONAL_CREDENTIALS, PRIVATE_CREDENTIALS, PUBLIC_CREDENTIALS,
    },
};

/// What is known of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// What its environment variables begin with; empty for its own name in capitals.
    pub variable_prefix: &'static str,
    /// Further names of its environment variables: of a flag's variable, and what it may also be called.
    pub variable_aliases: &'static [(&'static str, &'static str)],
    /// What using it is trusted with, unless its NodeDriver says so: a constant of [`class`].
    pub class: &'static str,
    /// Which addresses nodes on its machines are told.
    pub addresses: Addresses,
    /// Whether what it makes is tagged with its cluster, for that cluster's cloud provider.
    pub cluster_tag: bool,
    /// Whether security groups other than the one it makes itself are left as they are.
    pub keeps_security_groups: bool,
    /// Whether its credentials have a region to choose from first.
    pub default_region: bool,
    /// Whether its machine configurations say which operating system is meant.
    pub chooses_system: bool,
    /// The setting that gives a machine a certain address.
    pub static_address: Option<StaticAddress>,
    /// Whether its servers can be stopped and started again. Of drivers of others it is believed until they refuse.
    pub power: bool,
    /// For drivers that come with the program.
    pub listing: Option<Listing>,
}

/// The setting of a driver that gives a machine its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticAddress {
    /// A field with the address alone.
    Plain(&'static str),
    /// A field with parameters of Proxmox' cloud-init drive.
    Proxmox(&'static str),
}

impl Facts {
    /// The field for a machine's address and what is in it; `None` if the driver takes none.
    pub fn address_field(&self, address: &str, prefix: i32, gateway: &str) -> Option<(&'static str, String)> {
        match self.static_address? {
            StaticAddress::Plain(field) => Some((field, address.to_owned())),
            StaticAddress::Proxmox(field) => {
                let version = if address.contains(':') { "6" } else { "" };
                let gateway = match gateway {
                    "" => String::new(),
                    gateway => format!(",gw{version}={gateway}"),
                };
                Some((field, format!("ip{version}={address}/{prefix}{gateway}")))
            }
        }
    }
}

/// Addresses of nodes, from those of their machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// Internal and external ones as the driver saved them.
    Saved,
    /// Without an internal one, the external one is the internal one too.
    ExternalIfAlone,
    /// None: machines are Pods, and see the network of another cluster.
    None,
}

/// What people are told about a driver that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    pub description: &'static str,
    /// Whether a kind of cloud credentials is made of it.
    pub credential: bool,
    /// Annotations of its NodeDriver.
    pub annotations: &'static [(&'static str, &'static str)],
    /// Fields of machine configurations that templates of clusters ask for, and their defaults.
    pub asked: &'static [(&'static str, Option<&'static str>)],
}

/// What holds for most drivers.
const MOST: Facts = Facts {
    variable_prefix: "",
    variable_aliases: &[],
    class: class::CLOUD,
    addresses: Addresses::Saved,
    cluster_tag: false,
    keeps_security_groups: false,
    default_region: false,
    chooses_system: false,
    static_address: None,
    power: true,
    listing: None,
};

const KNOWN: &[(&str, Facts)] = &[
    (
        "amazonec2",
        Facts {
            variable_prefix: "AWS",
            // AWS' libraries accept these, and credentials of Rancher's come under them.
            variable_aliases: &[
                ("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY"),
                ("AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY"),
            ],
            cluster_tag: true,
            keeps_security_groups: true,
            default_region: true,
            listing: Some(Listing {
                description: "Instances of Amazon EC2",
                credential: true,
                annotations: &[
                    (PUBLIC_CREDENTIALS, "accessKey"),
                    (PRIVATE_CREDENTIALS, "secretKey"),
                    (FILE_ALIASES, "sshKeyContents:sshKeypath,userdata:userdata"),
                ],
                asked: &[
                    ("region", Some("us-east-1")),
                    ("zone", Some("a")),
                    ("instanceType", Some("t3.large")),
                ],
            }),
            ..MOST
        },
    ),
    (
        "azure",
        Facts {
            static_address: Some(StaticAddress::Plain("privateIpAddress")),
            listing: Some(Listing {
                description: "Virtual machines of Azure",
                credential: true,
                annotations: &[
                    (PUBLIC_CREDENTIALS, "clientId,subscriptionId,tenantId,environment"),
                    (PRIVATE_CREDENTIALS, "clientSecret"),
                    (OPTIONAL_CREDENTIALS, "environment"),
                    (FILE_ALIASES, "customData:customData"),
                ],
                asked: &[
                    ("location", Some("westus")),
                    ("resourceGroup", Some("docker-machine")),
                    ("size", Some("Standard_D2_v2")),
                ],
            }),
            ..MOST
        },
    ),
    (
        "digitalocean",
        Facts {
            addresses: Addresses::ExternalIfAlone,
            listing: Some(Listing {
                description: "Droplets of DigitalOcean",
                credential: false,
                annotations: &[
                    (PRIVATE_CREDENTIALS, "accessToken"),
                    (FILE_ALIASES, "sshKeyContents:sshKeyPath,userdata:userdata"),
                ],
                asked: &[
                    ("region", Some("nyc3")),
                    ("size", Some("s-2vcpu-4gb")),
                    ("image", Some("ubuntu-24-04-x64")),
                ],
            }),
            ..MOST
        },
    ),
    (
        "generic",
        Facts {
            class: class::HOST,
            // It is told where a server is, and nothing of its power.
            power: false,
            listing: Some(Listing {
                description: "Servers that exist, reached over SSH",
                credential: false,
                annotations: &[(FILE_ALIASES, "sshKey:sshKey")],
                asked: &[("ipAddress", None), ("sshUser", Some("root"))],
            }),
            ..MOST
        },
    ),
    (
        "google",
        Facts {
            listing: Some(Listing {
                description: "Instances of Google Compute Engine",
                credential: true,
                annotations: &[(PRIVATE_CREDENTIALS, "authEncodedJson"), (FILE_ALIASES, "userdata:userdata")],
                asked: &[("zone", Some("us-central1-a")), ("machineType", Some("n1-standard-2"))],
            }),
            ..MOST
        },
    ),
    (
        "hetzner",
        Facts {
            addresses: Addresses::ExternalIfAlone,
            listing: Some(Listing {
                description: "Servers of Hetzner Cloud",
                credential: false,
                annotations: &[
                    (PRIVATE_CREDENTIALS, "apiToken"),
                    (FILE_ALIASES, "sshKeyContents:existingKeyPath,userData:userDataFile"),
                ],
                asked: &[
                    ("serverType", Some("cx23")),
                    ("serverLocation", Some("fsn1")),
                    ("image", Some("ubuntu-24.04")),
                ],
            }),
            ..MOST
        },
    ),
    (
        "local",
        Facts {
            class: class::HOST,
            listing: Some(Listing {
                description: "Machines inside the server's own host, to try things out",
                credential: false,
                annotations: &[(FILE_ALIASES, "userData:userData")],
                asked: &[],
            }),
            ..MOST
        },
    ),
    ("openstack", Facts { variable_prefix: "OS", ..MOST }),
    ("pod", Facts { addresses: Addresses::None, ..MOST }),
    (
        "proxmoxve",
        Facts {
            // The address of its API is whatever people say, and scripts go to machines from here.
            class: class::HOST,
            addresses: Addresses::ExternalIfAlone,
            static_address: Some(StaticAddress::Proxmox("vmIpconfig")),
            listing: Some(Listing {
                description: "Virtual machines of Proxmox VE",
                credential: false,
                annotations: &[
                    (PUBLIC_CREDENTIALS, "proxmoxHost,proxmoxPort,proxmoxTokenId,proxmoxCa"),
                    (PRIVATE_CREDENTIALS, "proxmoxTokenSecret"),
                    (OPTIONAL_CREDENTIALS, "proxmoxPort,proxmoxCa"),
                ],
                asked: &[("vmCloneVmid", None), ("proxmoxNode", Some("")), ("vmStorageSize", Some("16"))],
            }),
            ..MOST
        },
    ),
    ("rackspace", Facts { variable_prefix: "OS", ..MOST }),
    ("vmwarefusion", Facts { variable_prefix: "FUSION", ..MOST }),
    ("vmwarevcloudair", Facts { variable_prefix: "VCLOUDAIR", ..MOST }),
    ("vmwarevsphere", Facts { variable_prefix: "VSPHERE", chooses_system: true, ..MOST }),
];

/// What is known of the driver of that name.
pub fn facts(name: &str) -> &'static Facts {
    KNOWN.iter().find(|(known, _)| *known == name).map_or(&MOST, |(_, facts)| facts)
}

/// The drivers that come with the program, with what people are told of them.
pub fn listed() -> impl Iterator<Item = (&'static str, &'static Facts, &'static Listing)> {
    KNOWN.iter().filter_map(|(name, facts)| Some((*name, facts, facts.listing.as_ref()?)))
}

/// Other names of an environment variable, of whatever driver.
pub fn variable_aliases(name: &str) -> impl Iterator<Item = &'static str> {
    let all = KNOWN.iter().flat_map(|(_, facts)| facts.variable_aliases);
    all.filter(move |(known, _)| *known == name).map(|(_, alias)| *alias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_so_that_each_stands_once() {
        assert!(KNOWN.is_sorted_by(|(left, _), (right, _)| left < right));
        assert_eq!(facts("unheard-of"), &MOST);
        assert_eq!(facts("amazonec2").variable_prefix, "AWS");
    }

    #[test]
    fn an_address_is_told_in_the_words_of_the_driver() {
        let told = |driver: &str, address: &str, gateway: &str| {
            facts(driver).address_field(address, 24, gateway).map(|(field, value)| format!("{field}={value}"))
        };
        let proxmox = told("proxmoxve", "10.0.0.5", "10.0.0.1");
        assert_eq!(proxmox.as_deref(), Some("vmIpconfig=ip=10.0.0.5/24,gw=10.0.0.1"));
        assert_eq!(told("proxmoxve", "10.0.0.5", "").as_deref(), Some("vmIpconfig=ip=10.0.0.5/24"));
        assert_eq!(
            told("proxmoxve", "fd00::5", "fd00::1").as_deref(),
            Some("vmIpconfig=ip6=fd00::5/24,gw6=fd00::1")
        );
        assert_eq!(told("azure", "10.0.0.5", "10.0.0.1").as_deref(), Some("privateIpAddress=10.0.0.5"));
        assert_eq!(told("digitalocean", "10.0.0.5", "10.0.0.1"), None);
    }
}
