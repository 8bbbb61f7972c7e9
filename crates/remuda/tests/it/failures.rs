//! What goes wrong on machines is named in seconds, and costs little while nobody mends it.

use std::{thread, time::Duration};

use kube::ResourceExt;

use crate::lab::{Lab, NEW};

/// A cluster of one machine with something wrong about it.
struct Odd {
    name: &'static str,
    /// What the machine does before anything else.
    first: &'static str,
    more: &'static [&'static str],
    /// What `why` ends with, and words it must say.
    code: i32,
    says: &'static [&'static str],
}

const ODD: &[Odd] = &[
    Odd {
        name: "mute",
        // It starts, but nothing of ours does.
        first: "exit 0",
        more: &[],
        code: 10,
        says: &["has never connected", "journalctl -u rancher-system-agent"],
    },
    Odd {
        name: "full-at-boot",
        // A disk on which nothing can be made.
        first: "mkdir -p /etc/rancher && mount -t tmpfs -o nr_inodes=1 tmpfs /etc/rancher",
        more: &[],
        code: 11,
        says: &["could not be created", "No space left on device", "the disk is full"],
    },
    Odd {
        name: "full-later",
        first: "mkdir -p /var/lib/rancher/k3s && mount -t tmpfs -o nr_inodes=1 tmpfs /var/lib/rancher/k3s",
        more: &[],
        code: 11,
        says: &["the plan of machine", "failed", "No space left on device"],
    },
    Odd {
        name: "installer",
        // What is to be a program is a directory.
        first: "mkdir -p /usr/local/bin/k3s/in-the-way",
        more: &[],
        code: 11,
        says: &["the plan of machine", "failed", "instruction 0 (install)", "exit code"],
    },
    Odd {
        name: "version",
        first: "true",
        more: &["--version", "v1.35.99+k3s1"],
        code: 11,
        says: &["the plan of machine", "system-agent-installer-k3s:v1.35.99-k3s1"],
    },
    Odd {
        name: "registry",
        first: "true",
        more: &["--arg", "system-default-registry=192.0.2.1:5000"],
        code: 11,
        says: &["the plan of machine", "192.0.2.1:5000"],
    },
];

#[test]
fn what_is_wrong_with_a_machine_is_named_within_seconds_and_without_a_hot_loop() {
    let Some(lab) = Lab::open(None) else { return };
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
        lab.until_why(odd.name, odd.code, odd.says);
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
    lab.check_nothing_left();
}
