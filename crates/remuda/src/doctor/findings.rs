//! What the facts about a host mean for what it is to be.

use super::{Role, facts::Facts};

const MIB: u64 = 1 << 20;
/// A cluster of three local machines takes about half of it.
const LOCAL_MEMORY: u64 = 512 * MIB;
/// One server and two workers of K3s, with what runs on them.
const REAL_MEMORY: u64 = 3 * 1024 * MIB;
/// What K3s asks of an agent at least.
const NODE_MEMORY: u64 = 512 * MIB;
/// Below this the store of a busy server has no room to compact.
const SERVER_DISK: u64 = 1024 * MIB;
const NODE_DISK: u64 = 5 * 1024 * MIB;
/// A server has a connection for each agent and watch.
const SERVER_FILES: u64 = 4096;
/// Each local machine has several; a distribution of Linux gives 128.
const LOCAL_INOTIFY: u64 = 128;
/// Where nodes keep what they run.
const NODE_DATA: &str = "/var/lib/rancher";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// It works, but not as well as it could.
    Warning,
    Failure,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "missing",
        }
    }
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) verdict: Verdict,
    pub(super) says: String,
    pub(super) hint: Option<String>,
}

fn good(about: &'static str, says: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Good, says: says.into(), hint: None }
}

fn warning(about: &'static str, says: impl Into<String>, hint: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Warning, says: says.into(), hint: Some(hint.into()) }
}

fn missing(about: &'static str, says: impl Into<String>, hint: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Failure, says: says.into(), hint: Some(hint.into()) }
}

pub(super) fn of(role: Role, facts: &Facts) -> Vec<Finding> {
    match role {
        Role::Local => vec![
            namespaces(facts),
            data_dir(facts, SERVER_DISK),
            memory(facts, LOCAL_MEMORY),
            inotify(facts),
            etcd(facts),
        ],
        Role::Real => vec![
            root(facts, "run it as root or with sudo"),
            namespaces(facts),
            control_groups(facts),
            overlay(facts),
            data_dir(facts, NODE_DISK),
            memory(facts, REAL_MEMORY),
            inotify(facts),
        ],
        Role::Server => vec![data_dir(facts, SERVER_DISK), address(facts), open_files(facts)],
        Role::Agent => vec![
            root(facts, "run it, and the registration command, as root or with sudo"),
            service_manager(facts),
            control_groups(facts),
            overlay(facts),
            memory(facts, NODE_MEMORY),
            node_disk(facts),
            ports(facts),
            leftovers(facts),
            host_name(facts),
        ],
    }
}

fn namespaces(facts: &Facts) -> Finding {
    match &facts.namespaces {
        None => good("namespaces", "machines can be made of them"),
        Some(problem) => {
            Finding { about: "namespaces", verdict: Verdict::Failure, says: problem.clone(), hint: None }
        }
    }
}

fn data_dir(facts: &Facts, least: u64) -> Finding {
    let (about, dir, place) = ("data directory", facts.data_dir.display(), facts.place.display());
    if let Some(problem) = &facts.unwritable {
        return missing(about, format!("{dir}: {place}: {problem}"), "name another one with --data-dir");
    }
    match facts.free_bytes {
        Some(free) if free < least => missing(
            about,
            format!("{dir}: {} MiB are free, {} MiB are needed", free / MIB, least / MIB),
            "make room, or name another one with --data-dir",
        ),
        Some(free) => good(about, format!("{dir}, {} MiB are free", free / MIB)),
        None => good(about, dir.to_string()),
    }
}

fn memory(facts: &Facts, least: u64) -> Finding {
    match facts.memory_bytes {
        Some(free) if free < least => warning(
            "memory",
            format!("{} MiB are available, {} MiB are advised", free / MIB, least / MIB),
            "end something, or take a larger host",
        ),
        Some(free) => good("memory", format!("{} MiB are available", free / MIB)),
        None => good("memory", "unknown"),
    }
}

fn inotify(facts: &Facts) -> Finding {
    match facts.inotify_instances {
        Some(most) if most < LOCAL_INOTIFY => warning(
            "inotify",
            format!("a user may have {most} instances, a few machines need more"),
            "sudo sysctl -w fs.inotify.max_user_instances=512",
        ),
        Some(most) => good("inotify", format!("a user may have {most} instances")),
        None => good("inotify", "no limit is known"),
    }
}

fn etcd(facts: &Facts) -> Finding {
    if facts.has_etcd {
        good("etcd", "installed, so local clusters with several servers use it")
    } else {
        good("etcd", "not installed, so local clusters keep their state with the first server")
    }
}

fn address(facts: &Facts) -> Finding {
    let (about, bind) = ("address", facts.bind);
    if facts.is_served {
        return good(about, format!("a server is running on {} already", facts.data_dir.display()));
    }
    match &facts.bind_problem {
        None => good(about, format!("{bind} is free")),
        Some(problem) => missing(
            about,
            format!("{bind}: {problem}"),
            "choose another one with --bind, such as 0.0.0.0:9443",
        ),
    }
}

fn open_files(facts: &Facts) -> Finding {
    match facts.open_files {
        Some(most) if most < SERVER_FILES => warning(
            "open files",
            format!("at most {most}; agents and watches need one each"),
            "raise it with ulimit -Hn, or LimitNOFILE= in the unit",
        ),
        Some(most) => good("open files", format!("at most {most}")),
        None => good("open files", "no limit is known"),
    }
}

fn root(facts: &Facts, hint: &str) -> Finding {
    match facts.is_root {
        true => good("user", "root"),
        false => missing("user", "not root", hint),
    }
}

fn service_manager(facts: &Facts) -> Finding {
    match facts.has_systemd {
        true => good("service manager", "systemd"),
        false => warning(
            "service manager",
            "systemd does not run here, so the agent supervises itself",
            "take a host that starts with systemd: the install script of RKE2 needs it",
        ),
    }
}

fn control_groups(facts: &Facts) -> Finding {
    let lacking: Vec<&str> = ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|name| !facts.controllers.iter().any(|c| c == name))
        .collect();
    if lacking.is_empty() {
        return good("control groups", "cpu, memory and pids are there");
    }
    missing(
        "control groups",
        format!("no controller {}", lacking.join(", ")),
        "start the kernel with cgroup_enable=memory cgroup_memory=1, or enable delegation in a container",
    )
}

fn overlay(facts: &Facts) -> Finding {
    match facts.has_overlay {
        true => good("overlay", "the kernel has it"),
        false => warning("overlay", "the kernel has it not loaded", "modprobe overlay"),
    }
}

fn node_disk(facts: &Facts) -> Finding {
    match facts.node_free_bytes {
        Some(free) if free < NODE_DISK => warning(
            "disk",
            format!("{} MiB are free below {NODE_DATA}, {} MiB are advised", free / MIB, NODE_DISK / MIB),
            "make room: images alone take a few GiB",
        ),
        Some(free) => good("disk", format!("{} MiB are free below {NODE_DATA}", free / MIB)),
        None => good("disk", "unknown"),
    }
}

fn ports(facts: &Facts) -> Finding {
    if facts.ports_taken.is_empty() {
        return good("ports", "those of K3s and RKE2 are free");
    }
    let taken: Vec<String> = facts.ports_taken.iter().map(u16::to_string).collect();
    missing(
        "ports",
        format!("in use: {}", taken.join(", ")),
        "ss -ltnp shows by what; a node needs 6443, 9345, 10250, and 2379 and 2380 with etcd",
    )
}

fn leftovers(facts: &Facts) -> Finding {
    if facts.leftovers.is_empty() {
        return good("history", "it has not been a node before");
    }
    warning(
        "history",
        format!("it has been a node before: {}", facts.leftovers.join(", ")),
        "uninstall the distribution first (k3s-uninstall.sh, k3s-agent-uninstall.sh or rke2-uninstall.sh)",
    )
}

fn host_name(facts: &Facts) -> Finding {
    match facts.host_name.as_str() {
        "" | "localhost" => missing(
            "host name",
            "it has none of its own, and nodes are told apart by it",
            "hostnamectl set-hostname NAME",
        ),
        name => good("host name", name),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn facts() -> Facts {
        Facts {
            is_root: true,
            host_name: "web-1".into(),
            namespaces: None,
            data_dir: PathBuf::from("/var/lib/remuda"),
            place: PathBuf::from("/var/lib"),
            unwritable: None,
            free_bytes: Some(100 << 30),
            is_served: false,
            bind: "0.0.0.0:8443".parse().unwrap(),
            bind_problem: None,
            memory_bytes: Some(8 << 30),
            open_files: Some(1 << 20),
            inotify_instances: Some(512),
            controllers: ["cpu", "memory", "pids"].map(str::to_owned).to_vec(),
            has_systemd: true,
            has_overlay: true,
            ports_taken: Vec::new(),
            leftovers: Vec::new(),
            has_etcd: false,
            node_free_bytes: Some(100 << 30),
        }
    }

    const ROLES: [Role; 4] = [Role::Local, Role::Real, Role::Server, Role::Agent];

    #[test]
    fn a_good_host_can_be_everything() {
        for role in ROLES {
            let bad: Vec<Finding> = of(role, &facts())
                .into_iter()
                .filter(|finding| finding.verdict == Verdict::Failure)
                .collect();
            assert_eq!(bad, []);
        }
    }

    /// Each fact that is wrong makes one finding worse, and the finding says what to do.
    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let cases: Vec<(Role, Verdict, &str, Facts)> = vec![
            (
                Role::Local,
                Verdict::Failure,
                "namespaces",
                Facts { namespaces: Some("EPERM".into()), ..facts() },
            ),
            (Role::Local, Verdict::Warning, "memory", Facts { memory_bytes: Some(MIB), ..facts() }),
            (Role::Local, Verdict::Warning, "inotify", Facts { inotify_instances: Some(8), ..facts() }),
            (Role::Real, Verdict::Failure, "user", Facts { is_root: false, ..facts() }),
            (Role::Real, Verdict::Failure, "control groups", Facts { controllers: vec![], ..facts() }),
            (
                Role::Real,
                Verdict::Failure,
                "namespaces",
                Facts { namespaces: Some("EPERM".into()), ..facts() },
            ),
            (Role::Real, Verdict::Failure, "data directory", Facts { free_bytes: Some(MIB), ..facts() }),
            (Role::Real, Verdict::Warning, "memory", Facts { memory_bytes: Some(1024 * MIB), ..facts() }),
            (Role::Server, Verdict::Failure, "data directory", Facts { free_bytes: Some(MIB), ..facts() }),
            (
                Role::Server,
                Verdict::Failure,
                "data directory",
                Facts { unwritable: Some("read-only".into()), ..facts() },
            ),
            (
                Role::Server,
                Verdict::Failure,
                "address",
                Facts { bind_problem: Some("in use".into()), ..facts() },
            ),
            (Role::Server, Verdict::Warning, "open files", Facts { open_files: Some(256), ..facts() }),
            (Role::Agent, Verdict::Failure, "user", Facts { is_root: false, ..facts() }),
            (Role::Agent, Verdict::Warning, "service manager", Facts { has_systemd: false, ..facts() }),
            (
                Role::Agent,
                Verdict::Failure,
                "control groups",
                Facts { controllers: vec!["cpu".into()], ..facts() },
            ),
            (Role::Agent, Verdict::Warning, "overlay", Facts { has_overlay: false, ..facts() }),
            (Role::Agent, Verdict::Warning, "disk", Facts { node_free_bytes: Some(MIB), ..facts() }),
            (Role::Agent, Verdict::Failure, "ports", Facts { ports_taken: vec![6443], ..facts() }),
            (
                Role::Agent,
                Verdict::Warning,
                "history",
                Facts { leftovers: vec!["/var/lib/rancher/k3s"], ..facts() },
            ),
            (Role::Agent, Verdict::Failure, "host name", Facts { host_name: "localhost".into(), ..facts() }),
        ];
        for (role, verdict, about, facts) in cases {
            let bad: Vec<Finding> =
                of(role, &facts).into_iter().filter(|finding| finding.verdict != Verdict::Good).collect();
            let expected: Vec<Finding> = of(role, &facts).into_iter().filter(|f| f.about == about).collect();
            assert_eq!((bad.len(), &bad), (1, &expected), "{about}");
            assert_eq!(bad[0].verdict, verdict, "{about}");
            assert!(bad[0].hint.is_some() || about == "namespaces", "{about}");
        }
    }

    #[test]
    fn a_server_that_runs_is_no_problem() {
        let facts = Facts { is_served: true, ..facts() };
        assert!(of(Role::Server, &facts).iter().all(|finding| finding.verdict == Verdict::Good));
    }
}
