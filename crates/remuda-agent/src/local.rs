//! Plans from files.
//!
//! Every few seconds the directory is walked for `*.plan` files. Beside each, a `.pos` file holds what
//! is known about it. A plan is run once for each content, whether it succeeds or not.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use remuda_plan::{CheckedPlan, DecodeError, json, output::Blob, probe::Statuses, sha256_hex};
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    Chain,
    apply::{ApplyError, Engine, Order},
    decide::{Identity, Reason, Run, resume},
    disk::{Context, DiskError, read_if_exists, read_limited, remove_all, replace},
    probe::Prober,
    stamp::Stamp,
};

const PERIOD: Duration = Duration::from_secs(5);
const PLAN_LIMIT: u64 = 16 << 20;
const POSITION_LIMIT: u64 = 64 << 20;
const DEPTH: usize = 32;
const FILES: usize = 10_000;

/// What is known about a plan file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Position {
    /// The content that was run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub applied_checksum: String,
    /// Packed output.
    #[serde(skip_serializing_if = "is_empty")]
    pub output: Blob,
    /// Health of its probes.
    #[serde(skip_serializing_if = "Statuses::is_empty")]
    pub probe_status: Statuses,
    /// Packed periodic results.
    #[serde(skip_serializing_if = "is_empty")]
    pub periodic_output: Blob,
}

fn is_empty(blob: &Blob) -> bool {
    blob.0.is_empty()
}

/// Why a plan file was not dealt with.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It is no plan.
    #[error(transparent)]
    Plan(#[from] DecodeError),
    /// It was not applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Something cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Deals with plan files until the agent stops.
pub async fn run(
    directory: PathBuf,
    engine: Arc<Mutex<Engine>>,
    mut prober: Prober,
    stop: CancellationToken,
) {
    let mut complained = HashSet::new();
    loop {
        match find(&directory) {
            Ok(plans) => {
                for path in &plans {
                    match pass(path, &engine, &mut prober, &stop).await {
                        Ok(()) => {}
                        Err(LocalError::Apply(ApplyError::Stopping)) => return,
                        Err(error) => {
                            // A broken file stays broken; once is enough.
                            let text = Chain(&error).to_string();
                            if complained.len() < FILES && complained.insert((path.clone(), text.clone())) {
                                tracing::warn!(path = %path.display(), error = text, "plan file not applied");
                            }
                        }
                    }
                }
                engine.lock().await.forget_local(&plans.iter().map(|path| source(path)).collect());
            }
            Err(error) => {
                if complained.insert((directory.clone(), String::new())) {
                    tracing::warn!(error = %Chain(&error), "plan directory cannot be read");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(PERIOD) => {}
        }
    }
}

fn source(path: &Path) -> String {
    format!("local-{}", &sha256_hex(path.as_os_str().as_encoded_bytes())[..16])
}

/// The plan files below a directory, sorted by path. A file `<name>.skip` anywhere leaves out all of
/// that name.
fn find(directory: &Path) -> Result<BTreeSet<PathBuf>, DiskError> {
    let mut plans = BTreeSet::new();
    let mut skipped = HashSet::new();
    let mut pending = vec![(directory.to_owned(), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = pending.pop() {
        for entry in fs::read_dir(&directory).on("read", &directory)?.flatten() {
            seen += 1;
            let (Ok(name), true) = (entry.file_name().into_string(), seen <= FILES) else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth < DEPTH {
                    pending.push((entry.path(), depth + 1));
                }
            } else if let Some(name) = name.strip_suffix(".skip") {
                skipped.insert(name.to_owned());
            } else if name.ends_with(".plan") && !name.starts_with('.') {
                plans.insert(entry.path());
            }
        }
    }
    let is_skipped = |path: &PathBuf| {
        path.file_name().is_some_and(|name| skipped.contains(name.to_string_lossy().as_ref()))
    };
    plans.retain(|path| !is_skipped(path));
    Ok(plans)
}

/// Deals with one plan file.
pub async fn pass(
    path: &Path,
    engine: &Mutex<Engine>,
    prober: &mut Prober,
    stop: &CancellationToken,
) -> Result<(), LocalError> {
    let checked = CheckedPlan::decode(&read_limited(path, PLAN_LIMIT)?)?;
    let position_path = path.with_extension("pos");
    let stored = read_if_exists(&position_path, POSITION_LIMIT)?.unwrap_or_default();
    let position: Position = serde_json::from_slice(&stored).unwrap_or_default();
    let now = Stamp::now();
    let mut engine = engine.lock().await;
    let mut journal = engine.journal(&source(path))?;
    let run = if position.applied_checksum == checked.checksum {
        Run::Skip(Reason::Applied)
    } else {
        let identity = Identity {
            source: path.display().to_string(),
            checksum: checked.checksum.clone(),
            trigger: format!("after {}", position.applied_checksum),
        };
        resume(identity, journal.recorded().as_ref())
    };
    let order = Order {
        plan: &checked,
        run: &run,
        attempt: 0,
        output: &position.output.0,
        periodic: &position.periodic_output.0,
        now,
    };
    let applied = engine.apply(&order, &mut journal, stop).await?;
    // Probes may wait for minutes; other plans need not.
    drop(engine);
    let statuses = prober.check(&checked.plan.probes, &position.probe_status, run.executes(), stop).await;
    let statuses = statuses.ok_or(ApplyError::Stopping)?;
    let executed = applied.ended.is_some();
    let after = Position {
        applied_checksum: checked.checksum,
        output: applied.ended.map_or(position.output.clone(), |ended| Blob(ended.output)),
        probe_status: statuses,
        periodic_output: applied.periodic.map_or(position.periodic_output.clone(), Blob),
    };
    let raw = json::encode(&after);
    if raw != stored {
        replace(&position_path, &raw, 0o600)?;
    }
    if executed {
        // Whoever removes the position file wants the plan to run again.
        journal.update(|execution| execution.reported = true)?;
    }
    Ok(())
}

/// Removes the records of plan files that are gone.
pub(crate) fn forget(root: &Path, known: &BTreeSet<String>) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("local-") && !known.contains(&name) {
            let _ = remove_all(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use remuda_plan::output::{Outputs, unpack};

    use super::*;
    use crate::{config::Config, environment::Environment, image::Images};

    fn engine(dir: &Path) -> Mutex<Engine> {
        let config = Config { work_directory: dir.join("var/work"), ..Config::default() };
        Mutex::new(Engine::new(config, Environment::of_process(), Images::default()))
    }

    fn position(path: &Path) -> Position {
        serde_json::from_slice(&fs::read(path.with_extension("pos")).unwrap()).unwrap()
    }

    #[test]
    fn plan_files_are_found_sorted_and_skipped_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        for name in ["z.plan", "b/a.plan", "b/c/off.plan", "off.plan.skip", ".hidden.plan", "x.json", "z.pos"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found: Vec<PathBuf> = find(dir.path()).unwrap().into_iter().collect();
        assert_eq!(found, [dir.path().join("b/a.plan"), dir.path().join("z.plan")]);
        assert!(find(&dir.path().join("none")).is_err());
    }

    #[tokio::test]
    async fn a_plan_file_runs_once_per_content_even_if_it_fails() {
        let dir = tempfile::tempdir().unwrap();
        let (path, count) = (dir.path().join("p.plan"), dir.path().join("count"));
        let plan = |tail: &str| {
            let script = format!("echo x >> {}; echo out; {tail}", count.display());
            let args = serde_json::json!(["-c", script]);
            format!(r#"{{"instructions":[{{"name":"i","command":"sh","args":{args},"saveOutput":true}}]}}"#)
        };
        let runs = || fs::read_to_string(&count).unwrap().len() / 2;
        let stop = CancellationToken::new();
        fs::write(&path, plan("true")).unwrap();
        for _ in 0..3 {
            pass(&path, &engine(dir.path()), &mut Prober::default(), &stop).await.unwrap();
        }
        assert_eq!(runs(), 1);
        let outputs: Outputs = unpack(&position(&path).output.0).unwrap();
        assert_eq!(outputs["i"].0, b"out\n");
        fs::write(&path, plan("exit 1")).unwrap();
        for _ in 0..2 {
            pass(&path, &engine(dir.path()), &mut Prober::default(), &stop).await.unwrap();
        }
        assert_eq!(runs(), 2);
        fs::remove_file(path.with_extension("pos")).unwrap();
        pass(&path, &engine(dir.path()), &mut Prober::default(), &stop).await.unwrap();
        assert_eq!(runs(), 3, "without a position file the plan runs again");
    }

    #[tokio::test]
    async fn a_run_whose_position_was_not_written_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let (path, count) = (dir.path().join("p.plan"), dir.path().join("count"));
        let script = format!("echo x >> {}", count.display());
        let args = serde_json::json!(["-c", script]);
        fs::write(&path, format!(r#"{{"instructions":[{{"command":"sh","args":{args}}}]}}"#)).unwrap();
        fs::create_dir(path.with_extension("pos.new")).unwrap();
        let stop = CancellationToken::new();
        assert!(pass(&path, &engine(dir.path()), &mut Prober::default(), &stop).await.is_err());
        fs::remove_dir(path.with_extension("pos.new")).unwrap();
        pass(&path, &engine(dir.path()), &mut Prober::default(), &stop).await.unwrap();
        assert_eq!(fs::read_to_string(&count).unwrap(), "x\n");
    }

    #[tokio::test]
    async fn bad_plan_files_are_errors_and_nothing_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.plan");
        for text in ["", "{", "[]"] {
            fs::write(&path, text).unwrap();
            let result =
                pass(&path, &engine(dir.path()), &mut Prober::default(), &CancellationToken::new()).await;
            assert!(matches!(result, Err(LocalError::Plan(_))));
        }
        fs::File::create(&path).unwrap().set_len(PLAN_LIMIT + 1).unwrap();
        let result =
            pass(&path, &engine(dir.path()), &mut Prober::default(), &CancellationToken::new()).await;
        assert!(matches!(result, Err(LocalError::Disk(_))));
    }
}
