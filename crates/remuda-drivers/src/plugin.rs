//! Drivers in other processes: `docker-machine-driver-*` binaries and those inside `rancher-machine`.
//!
//! A plugin is a child process that listens on a loopback port, prints it as the first line of its standard
//! output and answers RPC there; see [`crate::rpc`]. [`Plugin`] is the parent's side and a [`Driver`] like
//! any other, [`serve`] the child's.
//!
//! The binary is foreign: it may crash, print garbage, never answer, or print without end. Each of these
//! becomes an error with [`Class::DriverCrash`] or [`Class::Timeout`] and the end of its output, and none costs
//! more than bounded time and memory.

mod host;
mod image;
pub(crate) mod process;
pub mod serve;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

pub use host::Plugin;
pub use image::Image;
pub use serve::serve_builtin;

#[allow(unused_imports, reason = "named in the documentation above")]
use crate::{driver::Driver, error::Class};

/// The names `rancher-machine` answers to without another binary.
pub const IN_TREE: &[&str] = &[
    "amazonec2",
    "azure",
    "digitalocean",
    "exoscale",
    "generic",
    "google",
    "hyperv",
    "none",
    "noop",
    "openstack",
    "pod",
    "rackspace",
    "softlayer",
    "virtualbox",
    "vmwarefusion",
    "vmwarevcloudair",
    "vmwarevsphere",
];

/// What a driver's child process inherits of our environment. Not more: ours may hold secrets.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "MACHINE_STORAGE_PATH",
];

/// How to start a plugin.
#[derive(Clone)]
pub struct Launch {
    /// The driver's name.
    pub driver: String,
    pub binary: PathBuf,
    /// Added to the inherited environment; may hold credentials, which reach neither logs nor errors.
    pub env: Vec<(String, String)>,
    /// The binary, where its path cannot be entered.
    pub image: Option<Image>,
    pub timeouts: Timeouts,
}

impl Launch {
    pub fn new(driver: impl Into<String>, binary: impl Into<PathBuf>) -> Self {
        Self {
            driver: driver.into(),
            binary: binary.into(),
            env: Vec::new(),
            image: None,
            timeouts: Timeouts::default(),
        }
    }

    /// Finds the binary for a driver: `docker-machine-driver-<name>` in one of `directories`, else
    /// `rancher-machine` if the driver is one of its own.
    pub fn find(driver: &str, directories: &[PathBuf]) -> Option<Self> {
        let own = format!("docker-machine-driver-{driver}");
        let look = |file: &str| directories.iter().map(|dir| dir.join(file)).find(|path| is_program(path));
        let binary =
            look(&own).or_else(|| IN_TREE.contains(&driver).then(|| look("rancher-machine")).flatten())?;
        Some(Self::new(driver, binary))
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Launch")
            .field("driver", &self.driver)
            .field("binary", &self.binary)
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// How long a plugin may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// From the start to the address on standard output.
    pub start: Duration,
    /// Calls that only ask or set something.
    pub call: Duration,
    /// Calls that work on the machine.
    pub work: Duration,
    /// Between heartbeats; the child gives up after ten seconds without.
    pub heartbeat: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(10),
            call: Duration::from_secs(60),
            work: Duration::from_secs(30 * 60),
            heartbeat: Duration::from_secs(5),
        }
    }
}

/// The part of our environment that child processes get.
pub(crate) fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| INHERITED.iter().any(|known| name == known))
}
