//! Programs of drivers, started by root: they have a user of their own, see nothing of the server's, and end with their job.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use kube::api::{DeleteParams, ListParams};
use remuda_drivers::users;
use serde_json::json;

use crate::{
    drivers::{node_driver, publish},
    world::{World, public_dir, until},
};

/// A driver that looks around, and leaves a process behind that is in no group of anybody's.
fn spy(out: &Path, data: &Path) -> Vec<u8> {
    let script = format!(
        r#"#!/bin/sh
look() {{
    {{
        echo "uid $(id -u) gid $(id -g) groups $(id -G)"
        grep NoNewPrivs: /proc/self/status
        grep -E 'Max (core file size|processes|open files|file size)' /proc/self/limits
        echo "home $HOME here $(pwd)"
        cat {data}/secret && echo "read the secret"
        ls {data} && echo "listed the data directory"
        cat /proc/$PPID/environ > /dev/null && echo "read the environment of the job"
        cat "$REMUDA_STORE/planted"
    }} > {out}/$1 2>&1
}}
leave() {{
    setsid sh -c 'echo $$ > {out}/$0; exec sleep 100000' "$1" > /dev/null 2>&1 < /dev/null &
    while [ ! -s {out}/$1 ]; do sleep 0.01; done
}}
case "$1" in
flags) look flags; leave flags-child; echo '{{"flags":[{{"name":"spy-mode"}},{{"name":"spy-userdata"}}]}}' ;;
create)
    look create
    leave create-child
    if [ "$REMUDA_FLAG_MODE" = forever ]; then exec sleep 100000; fi
    ln -s {data}/secret "$REMUDA_STORE/machines/$REMUDA_MACHINE/link"
    echo '{{"addresses":{{"ip":"192.0.2.9"}}}}' ;;
status) echo '{{"status":"Running"}}' ;;
remove) ;;
*) exit 64 ;;
esac
"#,
        out = out.display(),
        data = data.display(),
    );
    script.into_bytes()
}

fn is_running(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("Z (zombie)"))
}

/// Where a program that looked around was at home.
fn home_of(report: &str) -> PathBuf {
    let line = report.lines().find_map(|line| line.strip_prefix("home ")).unwrap();
    PathBuf::from(line.split_once(" here ").unwrap().0)
}

#[track_caller]
fn check_report(text: &str) -> u32 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let user: u32 = words[1].parse().unwrap();
    assert!((users::FIRST_OF_PROGRAMS..0x8000_0000).contains(&user), "{text}");
    assert!(text.starts_with(&format!("uid {user} gid {user} groups {user}\n")), "{text}");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    for (limit, most) in
        [("core file size", "0"), ("processes", "512"), ("open files", "4096"), ("file size", "4294967296")]
    {
        let line = text.lines().find(|line| line.starts_with(&format!("Max {limit} "))).unwrap();
        let values: Vec<&str> = line.trim_start_matches(&format!("Max {limit}")).split_whitespace().collect();
        assert_eq!(values[..2], [most, most], "{text}");
    }
    for done in ["read the secret", "listed the data directory", "read the environment"] {
        assert!(!text.contains(done), "{text}");
    }
    assert_eq!(text.matches("Permission denied").count(), 3, "{text}");
    user
}

#[tokio::test]
async fn a_drivers_program_is_nobody_and_leaves_nothing_behind() {
    if !users::is_host_root() {
        // Past the test harness, which keeps what passing tests print to itself.
        let text = b"SKIPPED: programs of drivers get a user of their own from root only\n";
        std::io::Write::write_all(&mut std::io::stderr(), text).unwrap();
        return;
    }
    let world = World::start().await;
    // As the server makes its own.
    fs::set_permissions(world.data.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(world.data.path().join("secret"), "canary").unwrap();
    let running = world.run();
    let out = public_dir();
    let read = |name: &str| fs::read_to_string(out.path().join(name)).unwrap_or_default();
    let url = format!("{}/remuda-driver-spy", publish(spy(out.path(), world.data.path())).await);
    world.create(node_driver("spy", &url, "")).await;
    world.activate("spy").await;
    let asked = check_report(&read("flags"));
    let mut homes = vec![home_of(&read("flags"))];
    assert!(!is_running(&read("flags-child")), "it outlived the question for flags");

    world.cluster().await;
    world.machine_of("m1", "SpyMachine", json!({"mode": "report"})).await;
    until("it is ready", async || world.condition_of("SpyMachine", "m1", "Ready").await.0 == "True").await;
    assert_ne!(check_report(&read("create")), asked, "each job has a user of its own");
    homes.push(home_of(&read("create")));
    until("what it left has ended", async || !is_running(&read("create-child"))).await;
    // A link it laid among the files of its machine is no way to files of root.
    let secrets = world.objects("", "v1", "Secret");
    let kept = secrets.get("m1-machine-state").await.unwrap().data["data"].to_string();
    let archive = kept.split('"').find(|part| part.len() > 100).unwrap().to_owned();
    let archive = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, archive).unwrap();
    let mut files = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(archive.as_slice()), &mut files).unwrap();
    assert!(!files.windows(6).any(|part| part == b"canary"));

    // One that never ends, whose job is taken away.
    for written in ["create", "create-child"] {
        fs::remove_file(out.path().join(written)).unwrap();
    }
    world.machine_of("m2", "SpyMachine", json!({"mode": "forever"})).await;
    until("it hangs", async || is_running(&read("create-child"))).await;
    let child = read("create-child");
    homes.push(home_of(&read("create")));
    assert!(homes[2].exists() && homes[1] != homes[2], "{homes:?}");
    let jobs = world.objects("batch", "v1", "Job");
    for job in jobs.list(&ListParams::default()).await.unwrap() {
        let _ = jobs.delete(&job.metadata.name.unwrap(), &DeleteParams::background()).await;
    }
    until("all of it has ended", async || !is_running(&child)).await;
    running.stop().await;
    drop(world);
    // Not all of what is there: other tests run programs of drivers at the same time.
    until("no directory is left", async || homes.iter().all(|home| !home.exists())).await;
}
