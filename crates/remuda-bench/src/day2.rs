//! A cluster's life after Ready, on machines of this host, as a person goes through it with the command line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use remuda_snapshot::write::{self, Bucket};

use crate::{
    capi::say,
    process::{self, Server},
};

const NAME: &str = "day2";
/// Nothing here takes longer.
const PATIENCE: &str = "300s";

#[derive(clap::Args)]
pub(crate) struct Day2Arguments {
    /// Servers of the cluster; more than one need an etcd in PATH
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    servers: u32,
    /// Only the snapshot that is read, and no cluster
    #[arg(long)]
    verify: bool,
}

pub(crate) fn run(program: &Path, with: &[String], arguments: &Day2Arguments) -> anyhow::Result<()> {
    verify(program)?;
    if arguments.verify {
        return Ok(());
    }
    let servers = match Command::new("etcd").arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => arguments.servers,
        Err(_) if arguments.servers == 1 => 1,
        Err(_) => {
            say(
                "there is no etcd in PATH (Debian: etcd-server): a cluster of one server is measured, which is less",
            );
            1
        }
    };
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let data = dir.path().join("data");
    let person = Person { program: program.to_owned(), home: dir.path().to_owned(), data };
    if !person.command(&["sandbox", "probe", "/tmp"]).output()?.status.success() {
        say("* clusters are not measured: this host allows no local machines");
        return Ok(());
    }
    let server = Server::start(program, &person.data, "127.0.0.1:0", with)?;
    let lived = live(&person, servers);
    let _ = person.say(&["cluster", "delete", NAME, "--yes", "--wait", "--timeout", "120s"]);
    // Machines outlive a server that is killed.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(server.pid()).context("pid")?);
    kill(pid, Signal::SIGTERM)?;
    server.ended()?;
    let down = person.command(&["down", "--yes"]).arg("--data-dir").arg(&person.data).output()?;
    if lived.is_ok() && !down.status.success() {
        bail!("remuda down: {}", String::from_utf8_lossy(&down.stderr));
    }
    lived
}

/// Types the commands.
struct Person {
    program: PathBuf,
    home: PathBuf,
    data: PathBuf,
}

impl Person {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("HOME", &self.home).args(words).stdin(Stdio::null());
        command
    }

    fn say(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = self.command(words).arg("--data-dir").arg(&self.data).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("remuda {}: {}", words.join(" "), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// How long a command takes that waits until it is done.
    fn time(&self, words: &[&str]) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let words: Vec<&str> = words.iter().copied().chain(["--wait", "--timeout", PATIENCE]).collect();
        self.say(&words)?;
        Ok(began.elapsed())
    }
}

fn told(what: &str, took: Duration, wanted: u64) {
    say(&format!("* {what}: {:.1} s (wanted: at most {wanted} s)", took.as_secs_f64()));
}

fn live(person: &Person, servers: u32) -> anyhow::Result<()> {
    let count = servers.to_string();
    let create = ["cluster", "create", NAME, "--servers", count.as_str(), "--workers", "0"];
    // The driver has its kinds a moment after the server is ready.
    let mut made = person.time(&create);
    for _ in 0..50 {
        if made.is_ok() || person.say(&["cluster", "get", NAME]).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
        made = person.time(&create);
    }
    let noun = if servers == 1 { "server" } else { "servers" };
    say(&format!(
        "a cluster of {servers} {noun} on local machines, Ready after {:.1} s",
        made?.as_secs_f64()
    ));
    told("snapshot of all members", person.time(&["snapshot", "create", NAME])?, 10);
    let name = newest(person, servers)?;
    let restored = person.time(&["snapshot", "restore", NAME, &name, "--yes"])?;
    told("restore in place to Ready", restored, 45);
    told("certificate rotation", person.time(&["cluster", "rotate-certificates", NAME])?, 45);
    let stopped = person.time(&["cluster", "hibernate", NAME, "--yes"])?;
    let woken = person.time(&["cluster", "wake", NAME])?;
    say(&format!(
        "* hibernated, with a snapshot, after {:.1} s; Ready again after {:.1} s (nothing is wanted)",
        stopped.as_secs_f64(),
        woken.as_secs_f64()
    ));
    say(
        "* total loss to Ready on new machines: not measured, as machines that never were in a cluster cannot restore it yet",
    );
    Ok(())
}

/// The name of a snapshot, once the cluster has told of all of them.
fn newest(person: &Person, servers: u32) -> anyhow::Result<String> {
    let mut names = Vec::new();
    for _ in 0..150 {
        let listed = person.say(&["snapshot", "list", NAME, "-o", "name"])?;
        names = listed.lines().map(str::to_owned).collect();
        if names.len() >= servers as usize {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    names.into_iter().next().context("no snapshot is listed")
}

/// Reads a snapshot of 100 MiB as the agent does.
fn verify(program: &Path) -> anyhow::Result<()> {
    const VALUE: usize = 4000;
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let path = dir.path().join("snapshot");
    let items = (1..=26_000).map(|revision: i64| {
        let key = format!("/registry/configmaps/default/one-{revision:06}");
        // Not alike, as values are not.
        let value: Vec<u8> = (0..VALUE as i64).map(|at| (at * revision % 251) as u8).collect();
        write::revision(revision, key.as_bytes(), &value)
    });
    let buckets = vec![Bucket { name: "key".to_owned(), items: items.collect() }];
    fs::write(&path, write::seal(write::database(buckets))).context("write a snapshot")?;
    let size = fs::metadata(&path)?.len() >> 20;
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(["agent", "verify-snapshot"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let mut peak = 0;
    let status = loop {
        peak = peak.max(process::peak(child.id()));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = began.elapsed();
    if !status.success() {
        bail!("the snapshot is not verified ({status})");
    }
    say(&format!(
        "* a snapshot of {size} MiB verified in {:.2} s with {:.1} MiB of memory (wanted for 100 MiB: at most 1 s, 32 MiB)",
        took.as_secs_f64(),
        peak as f64 / f64::from(1 << 20)
    ));
    Ok(())
}
