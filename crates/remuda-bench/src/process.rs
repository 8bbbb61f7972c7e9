//! The server as a process: starting it, and what it uses.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

pub(crate) struct Server {
    child: Child,
    ready_after: Duration,
}

impl Server {
    /// Starts the program and waits until it serves.
    pub(crate) fn start(program: &Path, data: &Path, bind: &str, with: &[String]) -> anyhow::Result<Server> {
        let started = Instant::now();
        let mut child = Command::new(program)
            .args(["server", "--bind", bind, "--log-level", "warn", "--data-dir"])
            .arg(data)
            .args(with)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let stdout = child.stdout.take().context("no output")?;
        for line in BufReader::new(stdout).lines() {
            if line?.starts_with("remuda is ready") {
                return Ok(Server { child, ready_after: started.elapsed() });
            }
        }
        bail!("the server ended with {}", child.wait()?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Waits until it has ended.
    pub(crate) fn ended(mut self) -> anyhow::Result<()> {
        self.child.wait()?;
        Ok(())
    }

    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time a process has used, in all its threads.
pub(crate) fn cpu(pid: u32) -> Duration {
    ticks(pid, 11)
}

/// Processor time of the children it had, those that ended.
pub(crate) fn cpu_of_children(pid: u32) -> Duration {
    ticks(pid, 13)
}

/// Two fields of a process, counted from behind its name, in hundredths of a second on every Linux.
fn ticks(pid: u32, field: usize) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        fields.split_whitespace().skip(field).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// How many children it has.
pub(crate) fn children(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

/// Processes that were started under a name of the program.
pub(crate) fn named(name: &str) -> BTreeSet<u32> {
    let called = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let program =
            String::from_utf8_lossy(line.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        Path::new(&program).file_name().is_some_and(|called| called == name)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter(|pid| called(*pid)).collect()
}

/// Memory in use, in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS:")
}

/// The most memory that ever was in use, in bytes.
pub(crate) fn peak(pid: u32) -> u64 {
    status(pid, "VmHWM:")
}

pub(crate) fn threads(pid: u32) -> u64 {
    number(pid, "Threads:")
}

fn status(pid: u32, key: &str) -> u64 {
    number(pid, key) * 1024
}

fn number(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse().unwrap_or_default()
}
