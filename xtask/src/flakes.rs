//! Tests that pass most of the time: `cargo xtask flakes` runs them again and again and says which failed.

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, bail};

use crate::{ci, graph, print};

/// Which tests, how often, and beside what.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How often they run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Threads that do nothing but keep processors busy meanwhile
    #[arg(long, default_value_t = 0)]
    load: usize,
    /// The package with the tests
    #[arg(long, default_value = "remuda")]
    package: String,
    /// Only tests with this in their name [default: all of the package]
    filter: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ci::step(&["test", "--package", &arguments.package, "--no-run"])?;
    let logs = graph::root().join("target").join("flakes");
    fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..arguments.load).map(|_| thread::spawn(busy(&stop))).collect();
    let outcome = repeat(arguments, &logs);
    stop.store(true, Ordering::Relaxed);
    for thread in load {
        let _ = thread.join();
    }
    let failed = outcome?;
    if failed.is_empty() {
        print(&format!("{} of {} runs passed", arguments.times, arguments.times));
        return Ok(());
    }
    print("| test | failed |\n|---|---|");
    for (test, times) in &failed {
        print(&format!("| {test} | {times} of {} |", arguments.times));
    }
    bail!("{} tests failed at least once; what they printed is in {}", failed.len(), logs.display())
}

fn busy(stop: &Arc<AtomicBool>) -> impl FnOnce() + Send + 'static {
    let stop = stop.clone();
    move || {
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}

/// Runs the tests and counts failures by test. A run that ends without naming one counts as itself.
fn repeat(arguments: &Arguments, logs: &Path) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut failed: BTreeMap<String, u32> = BTreeMap::new();
    for turn in 1..=arguments.times {
        let began = Instant::now();
        let log = logs.join(format!("{turn}.log"));
        let file = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(graph::root()).args(["test", "--package", &arguments.package, "--no-fail-fast"]);
        command.args(&arguments.filter).stdin(Stdio::null());
        command.stderr(file.try_clone().context("share the log")?).stdout(file);
        let status = command.status().context("start cargo test")?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        let mut names = failures(&text);
        if !status.success() && names.is_empty() {
            names.push("(the run itself)".to_owned());
        }
        ci::report(&format!(
            "run {turn} of {}: {} in {} s",
            arguments.times,
            if names.is_empty() { "passed".to_owned() } else { names.join(", ") },
            began.elapsed().as_secs()
        ));
        for name in names {
            *failed.entry(name).or_default() += 1;
        }
    }
    Ok(failed)
}

/// Names of tests that the test runner says failed.
fn failures(output: &str) -> Vec<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_the_output_of_the_runner() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\nnoise\ntest d - should panic ... FAILED\n\
                      test result: FAILED. 1 passed; 2 failed\n";
        assert_eq!(failures(output), ["a::c", "d - should panic"]);
        assert!(failures("test result: ok. 3 passed\n").is_empty());
    }
}
