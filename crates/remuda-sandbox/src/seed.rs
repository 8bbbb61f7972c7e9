//! The private directories of a new machine.
//!
//! They start as on a freshly installed host: accounts, name resolution, certificates and the links that the
//! host's programs need, and nothing that is the host's own. Seeding can be repeated; it ends with a mark in
//! the record.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use remuda_distro::Distro;
use remuda_names::sandbox as names;

use crate::{
    error::{Doing, Result},
    place::{Home, Record, list, make_dir, replace},
};

/// Files of the host's `/etc` that say nothing about the host, but which its programs need.
const COPIED: &[&str] = &[
    "ca-certificates.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "netconfig",
    "os-release",
    "pki/tls/cert.pem",
    "profile",
    "protocols",
    "rpc",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
];

/// Directories of the host's `/etc` with many small files, which are laid under the machine's own instead.
pub(crate) const OVERLAID: &[&str] =
    &["alternatives", "ca-certificates", "crypto-policies", "pki/ca-trust", "pki/tls/certs", "ssl/certs"];

const DIRECTORIES: &[(&str, u32)] = &[
    ("etc/systemd/system", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("opt/remuda", 0o755),
    ("root", 0o700),
    ("srv", 0o755),
    ("usr/local/bin", 0o755),
    ("usr/local/etc", 0o755),
    ("usr/local/lib/systemd/system", 0o755),
    ("usr/local/sbin", 0o755),
    ("usr/local/share", 0o755),
    ("var/cache", 0o755),
    ("var/lib/cloud/instance", 0o700),
    ("var/lib/rancher/agent", 0o755),
    ("var/lib/rancher/k3s/agent", 0o700),
    ("var/lib/rancher/rke2/agent", 0o700),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
                      daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\ntty:x:5:\nnogroup:x:65534:\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
                        protocols: files\nservices: files\n";
// With no server named the resolver asks 127.0.0.1 and is refused at once instead of waiting.
const RESOLV: &str = "# This machine's network has no name server: names are in /etc/hosts.\n";

/// The tools that the program also is, by its name.
pub(crate) const TOOLS: &[&str] = &["systemctl", "journalctl"];

pub(crate) fn seed(home: &Home, record: &Record, user_data: &str) -> Result<()> {
    for (path, mode) in DIRECTORIES {
        let path = home.private(path);
        make_dir(&path, 0o755)?;
        let mode = fs::Permissions::from_mode(*mode);
        fs::set_permissions(&path, mode).doing(|| format!("set the mode of {}", path.display()))?;
    }
    for path in COPIED {
        copy(&Path::new("/etc").join(path), &home.private("etc").join(path))?;
    }
    let texts = [
        ("etc/passwd", PASSWD, 0o644),
        ("etc/group", GROUP, 0o644),
        ("etc/shadow", "root:*:::::::\n", 0o600),
        ("etc/nsswitch.conf", NSSWITCH, 0o644),
        ("etc/resolv.conf", RESOLV, 0o644),
        ("etc/hostname", &format!("{}\n", record.hostname), 0o644),
        ("etc/machine-id", &format!("{}\n", machine_id(&record.id)), 0o444),
        ("etc/hosts", &hosts("", record, std::slice::from_ref(record)), 0o644),
        ("var/lib/cloud/instance/user-data.txt", user_data, 0o600),
        ("opt/remuda/remuda", "", 0o755),
    ];
    for (path, text, mode) in texts {
        replace(&home.private(path), text.as_bytes(), mode)?;
    }
    for tool in TOOLS {
        link(names::PROGRAM, &home.private("usr/local/bin").join(tool))?;
    }
    link("/run", &home.private("var/run"))?;
    link("/run/lock", &home.private("var/lock"))?;
    // Seen by all machines at once, and not removed with the agent's own files.
    link(names::IMAGES, &home.private("var/lib/rancher/agent/images"))?;
    // Machines reach no registry: containers are made of what is put here, as on any node without one.
    for distro in Distro::ALL {
        let images = home.private("var/lib/rancher").join(distro.name()).join("agent/images");
        link(names::PRELOADED, &images)?;
    }
    link("/proc/self/mounts", &home.private("etc/mtab"))
}

fn machine_id(id: &str) -> String {
    let mut hex: String = id.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    hex.make_ascii_lowercase();
    format!("{hex:0<32}")
}

fn link(to: &str, at: &Path) -> Result<()> {
    let _ = fs::remove_file(at);
    symlink(to, at).doing(|| format!("link {}", at.display()))
}

/// Copies what is readable. Certificates and links are a convenience: a missing one is no error.
fn copy(from: &Path, to: &Path) -> Result<()> {
    /// Deeper or more than this is not what we are looking for.
    const MOST: usize = 5000;
    let mut pending = vec![(from.to_owned(), to.to_owned())];
    let mut count = 0;
    while let Some((from, to)) = pending.pop() {
        count += 1;
        let Ok(meta) = fs::symlink_metadata(&from) else { continue };
        if count > MOST {
            break;
        }
        if let Some(parent) = to.parent() {
            make_dir(parent, 0o755)?;
        }
        if meta.is_dir() {
            make_dir(&to, 0o755)?;
            for entry in list(&from).unwrap_or_default() {
                if let Some(name) = entry.file_name() {
                    pending.push((entry.clone(), to.join(name)));
                }
            }
        } else if meta.is_symlink() {
            if let Ok(target) = fs::read_link(&from) {
                let _ = fs::remove_file(&to);
                let _ = symlink(target, &to);
            }
        } else if meta.is_file() {
            let _ = fs::copy(&from, &to);
        }
    }
    Ok(())
}

const BEGIN: &str = "# machines: begin";
const END: &str = "# machines: end";

/// A machine's `/etc/hosts`: what it says itself stays, the block of machines is ours.
pub(crate) fn hosts(current: &str, own: &Record, all: &[Record]) -> String {
    let mut text = String::new();
    if current.is_empty() {
        text.push_str("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    }
    let mut inside = false;
    for line in current.lines() {
        match line {
            BEGIN => inside = true,
            END => inside = false,
            _ if inside => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text.push_str(BEGIN);
    text.push('\n');
    for (listen, _) in own.listens() {
        if let Some(name) = &listen.name {
            text.push_str(&format!("{} {name}\n", listen.address));
        }
    }
    for machine in all {
        let names = if machine.name == machine.hostname {
            machine.name.clone()
        } else {
            format!("{} {}", machine.hostname, machine.name)
        };
        text.push_str(&format!("{} {names}\n", machine.address));
    }
    text.push_str(END);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerAddress;

    fn machine(name: &str, last: u8) -> Record {
        Record {
            id: format!("{name}-id"),
            name: name.into(),
            hostname: name.into(),
            address: [10, 213, 0, last].into(),
            servers: vec![ServerAddress { url: "https://remuda.test".into(), connect: None }],
            seeded: false,
            stopped: false,
            removing: false,
            users: None,
            volumes: Vec::new(),
        }
    }

    #[test]
    fn hosts_keep_what_the_machine_wrote_and_follow_the_set_of_machines() {
        let (one, two) = (machine("one", 2), machine("two", 3));
        let first = hosts("", &one, &[one.clone(), two]);
        assert!(first.starts_with("127.0.0.1 localhost\n"), "{first}");
        assert!(first.contains("127.94.0.1 remuda.test\n10.213.0.2 one\n10.213.0.3 two\n"), "{first}");
        let edited = format!("{first}10.9.9.9 mine\n");
        let second = hosts(&edited, &one, std::slice::from_ref(&one));
        assert!(second.contains("10.9.9.9 mine\n") && !second.contains("two"), "{second}");
        assert_eq!(second.matches("127.0.0.1 localhost").count(), 1);
        assert_eq!(hosts(&second, &one, std::slice::from_ref(&one)), second);
    }

    #[test]
    fn a_seeded_machine_has_accounts_names_and_its_user_data() {
        let dir = tempfile::tempdir().unwrap();
        let home = crate::place::Place::of(dir.path()).machine("m");
        let record = machine("one", 2);
        seed(&home, &record, "#!/bin/sh\n").unwrap();
        seed(&home, &record, "#!/bin/sh\ntrue\n").unwrap();
        let read = |path: &str| fs::read_to_string(home.private(path)).unwrap();
        assert!(read("etc/passwd").starts_with("root:"));
        assert_eq!(read("etc/hostname"), "one\n");
        assert_eq!(read("var/lib/cloud/instance/user-data.txt"), "#!/bin/sh\ntrue\n");
        assert_eq!(read("etc/machine-id").trim().len(), 32);
        let images = fs::read_link(home.private("var/lib/rancher/k3s/agent/images")).unwrap();
        assert_eq!(images, Path::new(names::PRELOADED));
    }
}
