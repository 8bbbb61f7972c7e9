//! What can be found out about this host without changing it.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

use nix::{
    sys::{
        resource::{Resource, getrlimit},
        statvfs::statvfs,
    },
    unistd::{AccessFlags, access, geteuid, gethostname},
};
use remuda_sandbox::machines::Sandbox;
use remuda_server::{config::LocalMachines, datadir::DataDir};

use crate::{failure::chain, local};

/// Ports that K3s and RKE2 listen on.
const NODE_PORTS: [u16; 5] = [2379, 2380, 6443, 9345, 10250];
/// Directories that a node of K3s or RKE2 leaves behind.
const NODE_PLACES: [&str; 4] =
    ["/var/lib/rancher/k3s", "/var/lib/rancher/rke2", "/var/lib/rancher/agent", "/etc/rancher/agent"];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    pub(super) is_root: bool,
    pub(super) host_name: String,
    /// Why namespaces cannot be made; `None` if they can or are of no interest.
    pub(super) namespaces: Option<String>,
    pub(super) data_dir: PathBuf,
    /// The part of the data directory's path that exists, and why nothing can be written there.
    pub(super) place: PathBuf,
    pub(super) unwritable: Option<String>,
    pub(super) free_bytes: Option<u64>,
    pub(super) is_served: bool,
    pub(super) bind: SocketAddr,
    pub(super) bind_problem: Option<String>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) inotify_instances: Option<u64>,
    pub(super) controllers: Vec<String>,
    pub(super) has_systemd: bool,
    pub(super) has_overlay: bool,
    pub(super) ports_taken: Vec<u16>,
    pub(super) leftovers: Vec<&'static str>,
    pub(super) has_etcd: bool,
    /// Where a node keeps its images and data.
    pub(super) node_free_bytes: Option<u64>,
}

impl Facts {
    pub(super) fn gather(data_dir: &Path, bind: SocketAddr, machines: Option<LocalMachines>) -> Self {
        let place = data_dir.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/")).to_owned();
        let is_served = DataDir::is_locked(data_dir);
        let namespaces = machines.and_then(|kept| Sandbox::new(local::options(data_dir, kept)).check().err());
        Self {
            is_root: geteuid().is_root(),
            host_name: gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            namespaces: namespaces.map(|error| chain(&error)),
            unwritable: access(&place, AccessFlags::W_OK | AccessFlags::X_OK)
                .err()
                .map(|e| e.desc().to_owned()),
            free_bytes: free_bytes(&place),
            node_free_bytes: free_bytes(Path::new("/var/lib")),
            data_dir: data_dir.to_owned(),
            place,
            is_served,
            bind,
            bind_problem: if is_served { None } else { TcpListener::bind(bind).err().map(|e| chain(&e)) },
            memory_bytes: available_memory(&text("/proc/meminfo")),
            open_files: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(_, hard)| hard),
            inotify_instances: text("/proc/sys/fs/inotify/max_user_instances").trim().parse().ok(),
            controllers: controllers(),
            has_systemd: Path::new("/run/systemd/system").exists(),
            has_overlay: text("/proc/filesystems").split_whitespace().any(|word| word == "overlay"),
            ports_taken: NODE_PORTS.into_iter().filter(|port| is_taken(*port)).collect(),
            leftovers: NODE_PLACES.into_iter().filter(|place| Path::new(place).exists()).collect(),
            has_etcd: in_path("etcd"),
        }
    }
}

fn free_bytes(place: &Path) -> Option<u64> {
    statvfs(place).ok().map(|disk| disk.blocks_available() * disk.fragment_size())
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// What programs can still have, from `/proc/meminfo`.
fn available_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Controllers of control groups, of the unified form or of the old one.
fn controllers() -> Vec<String> {
    let unified = text("/sys/fs/cgroup/cgroup.controllers");
    if !unified.trim().is_empty() {
        return unified.split_whitespace().map(str::to_owned).collect();
    }
    // Name, hierarchy, number of groups, enabled.
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() == 4 && words[3] == "1").then(|| words[0].to_owned())
    };
    text("/proc/cgroups").lines().filter_map(of_line).collect()
}

fn is_taken(port: u16) -> bool {
    TcpListener::bind(("0.0.0.0", port)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_left_is_read() {
        assert_eq!(available_memory("MemTotal: 4 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available_memory("MemTotal: 4 kB\n"), None);
        assert_eq!(available_memory("MemAvailable: x kB\n"), None);
    }

    #[test]
    fn a_taken_port_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let facts = Facts::gather(Path::new("/nowhere/at/all"), address, None);
        assert!(facts.bind_problem.is_some() && facts.place == Path::new("/"), "{facts:?}");
    }
}
