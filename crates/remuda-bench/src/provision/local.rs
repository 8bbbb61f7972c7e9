//! `remuda up` on machines of this host, as a person runs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use nix::{sys::signal, unistd::Pid};
use remuda_api::{core::Machine, provisioning::Cluster};
use remuda_plan::{key, sha256_hex};
use serde_json::json;

use crate::{
    capi::{config, say},
    process,
};

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(300);
const NAMESPACE: &str = remuda_names::rancher::name::FLEET_DEFAULT;
const NAME: &str = "bench";

/// Why there is nothing to measure.
enum Outcome {
    Ready(Up, Duration),
    /// The host does not let us.
    Forbidden(String),
}

/// A server with a cluster, which goes when this is dropped.
struct Up {
    program: std::path::PathBuf,
    dir: tempfile::TempDir,
    child: Child,
}

impl Up {
    fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// Runs `remuda up` and waits until it says that the cluster is ready.
    fn start(program: &Path, servers: u32, workers: u32) -> anyhow::Result<Outcome> {
        let dir = tempfile::tempdir().context("make a temporary directory")?;
        let (started, data) = (Instant::now(), dir.path().join("data"));
        let mut child = Command::new(program)
            .args(["up", NAME, "--bind", "127.0.0.1:0"])
            .arg(format!("--servers={servers}"))
            .arg(format!("--workers={workers}"))
            .arg(format!("--timeout={}", PATIENCE.as_secs()))
            .arg("--data-dir")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let stderr = child.stderr.take().context("no output")?;
        let up = Up { program: program.to_owned(), dir, child };
        // Read to the end, or the program would be stopped by a full pipe.
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut said = Vec::new();
        loop {
            let left = PATIENCE.saturating_sub(started.elapsed());
            match told.recv_timeout(left) {
                Ok(line) if line.contains(&format!("cluster {NAME} is ready after")) => {
                    return Ok(Outcome::Ready(up, started.elapsed()));
                }
                Ok(line) => said.push(line),
                Err(_) => break,
            }
        }
        let said = said.join("\n");
        if said.contains("machines on this host") {
            return Ok(Outcome::Forbidden(said));
        }
        bail!("remuda up did not get to a ready cluster:\n{said}")
    }

    /// Ends the server, then removes everything with `remuda down`.
    fn end(&mut self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("pid")?);
        if self.child.try_wait()?.is_none() {
            signal::kill(pid, signal::Signal::SIGTERM)?;
        }
        self.child.wait()?;
        if !self.data().exists() {
            return Ok(());
        }
        let down = Command::new(&self.program)
            .args(["down", "--yes", "--data-dir"])
            .arg(self.data())
            .output()
            .context("start remuda down")?;
        if !down.status.success() {
            bail!("remuda down failed: {}", String::from_utf8_lossy(&down.stderr));
        }
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            say(&format!("* could not be removed: {error:#}"));
        }
    }
}

fn skipped(why: &str) {
    say("!!! SKIPPED: this host does not let the program make local machines. Nothing below was measured:");
    say(
        "!!!   remuda up, five servers and five workers, a configuration change over them, the server's memory",
    );
    for line in why.lines() {
        say(&format!("!!! {line}"));
    }
    say("");
}

/// After this an agent has done what its first plan asked for, and given back what that needed.
const SETTLED: Duration = Duration::from_secs(75);
const LOOK: Duration = Duration::from_secs(20);

/// What agents need that have nothing to do but their probes.
async fn agents(others: &BTreeSet<u32>) {
    tokio::time::sleep(SETTLED).await;
    let agents: Vec<u32> = process::named(remuda_agent::command::NAME).difference(others).copied().collect();
    let used = || agents.iter().map(|pid| process::cpu(*pid)).sum::<Duration>();
    let before = used();
    tokio::time::sleep(LOOK).await;
    let share = used().saturating_sub(before).as_secs_f64() / LOOK.as_secs_f64() / agents.len().max(1) as f64;
    let mut memory: Vec<f64> =
        agents.iter().map(|pid| process::resident(*pid) as f64 / f64::from(1 << 20)).collect();
    memory.sort_by(f64::total_cmp);
    let memory: Vec<_> = memory.iter().map(|memory| format!("{memory:.1}")).collect();
    say(&format!(
        "* agents with nothing to do: {} MiB resident (wanted: at most 10 MiB), {:.2} % of a core each",
        memory.join(", "),
        share * 100.0
    ));
}

pub(super) async fn run(program: &Path) -> anyhow::Result<()> {
    let others = process::named(remuda_agent::command::NAME);
    match Up::start(program, 1, 2)? {
        Outcome::Forbidden(why) => {
            skipped(&why);
            return Ok(());
        }
        Outcome::Ready(up, took) => {
            say("local machines");
            say(&format!(
                "* remuda up to a ready cluster of 1 + 2: {:.1} s (wanted: at most 15 s)",
                took.as_secs_f64()
            ));
            agents(&others).await;
            drop(up);
        }
    }
    let Outcome::Ready(up, took) = Up::start(program, 5, 5)? else {
        bail!("local machines were allowed a moment ago");
    };
    say(&format!("* five servers and five workers: {:.1} s (wanted: at most 60 s)", took.as_secs_f64()));
    let client = Client::try_from(config(&up.data().join(remuda_names::file::ADMIN_KUBECONFIG)).await?)?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let pid = up.child.id();
    say(&format!(
        "* server with 10 local machines: {} MiB resident (wanted: at most 120 MiB), {} MiB at most",
        process::resident(pid) >> 20,
        process::peak(pid) >> 20
    ));
    let (took, replaced) = change(&client).await?;
    say(&format!(
        "* configuration changed in place over them: {:.1} s (wanted: at most 30 s), {replaced} machines replaced",
        took.as_secs_f64()
    ));
    drop(up);
    say("");
    Ok(())
}

/// Plans by their Secret, and whether each is applied.
async fn plans(client: &Client) -> anyhow::Result<BTreeMap<String, (String, bool)>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let list = secrets.list(&ListParams::default().fields("type=rke.cattle.io/machine-plan")).await?;
    let plans = list.items.iter().map(|secret| {
        let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| &value.0);
        let checksum = value(key::PLAN).map(|plan| sha256_hex(plan)).unwrap_or_default();
        let applied = value(key::APPLIED_CHECKSUM).is_some_and(|known| known == checksum.as_bytes());
        (secret.name_any(), (checksum, applied))
    });
    Ok(plans.collect())
}

async fn machines(client: &Client) -> anyhow::Result<Vec<String>> {
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    Ok(machines.list(&ListParams::default()).await?.items.iter().filter_map(ResourceExt::uid).collect())
}

/// Changes the configuration and waits until every plan is another one, applied, and the cluster ready.
async fn change(client: &Client) -> anyhow::Result<(Duration, usize)> {
    let (before, there) = (plans(client).await?, machines(client).await?);
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), NAMESPACE);
    let started = Instant::now();
    let patch = json!({"spec": {"rkeConfig": {"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}}}});
    clusters.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
    loop {
        let now = plans(client).await?;
        let changed = before
            .iter()
            .all(|(name, (old, _))| now.get(name).is_none_or(|(new, applied)| *applied && new != old));
        let cluster = clusters.get(NAME).await?;
        let status = cluster.status.unwrap_or_default();
        let ready = Some(status.observed_generation) >= cluster.metadata.generation
            && ["Ready", "Updated", "Provisioned"].iter().all(|kind| {
                status.conditions.iter().any(|known| known.kind == *kind && known.status == "True")
            });
        if changed && ready {
            let took = started.elapsed();
            let left = machines(client).await?;
            return Ok((took, there.iter().filter(|uid| !left.contains(uid)).count()));
        }
        if started.elapsed() > PATIENCE {
            let open = now.values().filter(|(_, applied)| !applied).count();
            bail!(
                "the change was not over after {PATIENCE:?}: {open} plans are not applied, ready is {ready}"
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
