//! What goes wrong on machines is named in seconds, and costs little while nobody mends it.

use std::{thread, time::Duration};

use kube::ResourceExt;

use crate::{lab::NEW, situations::Table};

/// A cluster of one machine with something wrong about it.
struct Odd {
    name: &'static str,
    fault: &'static str,
    /// What the machine does before anything else.
    first: &'static str,
    more: &'static [&'static str],
    /// What `why` answers first, and words it must say.
    cause: &'static str,
    says: &'static [&'static str],
}

const ODD: &[Odd] = &[
    Odd {
        name: "mute",
        fault: "machine without an agent",
        // It starts, but nothing of ours does.
        first: "exit 0",
        more: &[],
        cause: "agent-never-connected",
        says: &["has never connected", "journalctl -u rancher-system-agent"],
    },
    Odd {
        name: "full-at-boot",
        fault: "disk that is full at boot",
        // A disk on which nothing can be made.
        first: "mkdir -p /etc/rancher && mount -t tmpfs -o nr_inodes=1 tmpfs /etc/rancher",
        more: &[],
        cause: "create-job-failed",
        says: &["could not be created", "No space left on device", "the disk is full"],
    },
    Odd {
        name: "full-later",
        fault: "disk that is full later",
        first: "mkdir -p /var/lib/rancher/k3s && mount -t tmpfs -o nr_inodes=1 tmpfs /var/lib/rancher/k3s",
        more: &[],
        cause: "plan-failed",
        says: &["the plan of machine", "failed", "No space left on device"],
    },
    Odd {
        name: "installer",
        fault: "installer that fails",
        // What is to be a program is a directory.
        first: "mkdir -p /usr/local/bin/k3s/in-the-way",
        more: &[],
        cause: "plan-failed",
        says: &["the plan of machine", "failed", "instruction 0 (install)", "exit code"],
    },
    Odd {
        name: "version",
        fault: "version that does not exist",
        first: "true",
        more: &["--version", "v1.35.99+k3s1"],
        cause: "plan-failed",
        says: &["v1.35.99+k3s1 is no release", "system-agent-installer-k3s:v1.35.99-k3s1"],
    },
    Odd {
        name: "registry",
        fault: "registry that does not answer",
        first: "true",
        more: &["--arg", "system-default-registry=192.0.2.1:5000"],
        cause: "plan-failed",
        says: &["the plan of machine", "192.0.2.1:5000"],
    },
    Odd {
        name: "address",
        fault: "setting the distribution refuses",
        first: "true",
        more: &["--arg", "node-ip=here"],
        cause: "plan-failed",
        // In its own words, from its log.
        says: &["k3s.service", "node-ip: \\\"here\\\" is not an IP address"],
    },
];

pub(crate) fn of_machines(table: &mut Table<'_>) {
    let lab = table.lab;
    for odd in ODD {
        let user_data = format!("userData=#!/bin/sh\n{}\n", odd.first);
        let mut words = vec![
            "cluster",
            "create",
            odd.name,
            "--servers",
            "1",
            "--workers",
            "0",
            "--machine-config",
            &user_data,
        ];
        if !odd.more.contains(&"--version") {
            words.extend(["--version", NEW]);
        }
        words.extend(odd.more);
        let (code, text) = lab.tell(&words);
        assert_eq!(code, 0, "{text}");
    }
    for odd in ODD {
        table.expect_with(odd.fault, odd.name, odd.cause, odd.says);
    }
    // Conditions say so too, for whoever looks with other tools.
    let conditions = |group: &str, version: &str, kind: &str, cluster: &str| {
        let objects = lab.objects(group, version, kind);
        let prefix = format!("{cluster}-");
        let found = objects.iter().find(|object| object.name_any().starts_with(&prefix)).unwrap();
        found.data["status"]["conditions"].to_string()
    };
    let server = conditions("rke-machine.cattle.io", "v1", "LocalMachine", "full-at-boot");
    assert!(server.contains("No space left on device"), "{server}");
    for cluster in ["full-later", "installer", "version", "registry"] {
        lab.until(cluster, Duration::from_secs(20), || {
            conditions("cluster.x-k8s.io", "v1beta2", "Machine", cluster).contains("error applying plan")
        });
    }
    let (before, log) = (lab.revision(), lab.server.as_ref().unwrap().log().len());
    thread::sleep(Duration::from_secs(5));
    let writes = lab.revision() - before;
    assert!(writes < 100, "{writes} writes in five seconds");
    let log = lab.server.as_ref().unwrap().log().split_off(log);
    assert!(log.lines().count() < 20, "{log}");
    for odd in ODD {
        let (code, text) = lab.tell(&["cluster", "delete", "--yes", odd.name, "--wait", "--timeout", "60s"]);
        assert_eq!(code, 0, "{text}");
    }
}
