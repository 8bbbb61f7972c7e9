//! Tests that pass most of the time: `cargo xtask flakes` runs them again and again and says which failed.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, bail};
use serde_json::Value;

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
    let programs = build(&arguments.package)?;
    let logs = graph::root().join("target").join("flakes");
    fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..arguments.load).map(|_| thread::spawn(busy(&stop))).collect();
    let outcome = repeat(arguments, &programs, &logs);
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

/// A test program, and the directory its package is in.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    executable: PathBuf,
    package: PathBuf,
}

/// Builds all tests of the workspace, as the test command does, and finds those of a package. Building the package
/// alone would select other features of what it depends on, and compile that anew.
fn build(package: &str) -> anyhow::Result<Vec<Program>> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(graph::root()).stderr(Stdio::inherit());
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let output = command.output().context("start cargo test")?;
    if !output.status.success() {
        bail!("the tests could not be built");
    }
    let programs = programs(&String::from_utf8_lossy(&output.stdout), package);
    if programs.is_empty() {
        bail!("package {package} has no tests, or does not exist");
    }
    Ok(programs)
}

/// Test programs of a package among what cargo says it has built.
fn programs(messages: &str, package: &str) -> Vec<Program> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = |message: Value| {
        let package_dir = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let wanted = message["profile"]["test"] == true && package_dir.ends_with(package);
        let executable = PathBuf::from(message["executable"].as_str()?);
        wanted.then_some(Program { executable, package: package_dir })
    };
    messages.filter_map(program).collect()
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
fn repeat(arguments: &Arguments, programs: &[Program], logs: &Path) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut failed: BTreeMap<String, u32> = BTreeMap::new();
    for turn in 1..=arguments.times {
        let began = Instant::now();
        let log = logs.join(format!("{turn}.log"));
        let file = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut passed = true;
        for program in programs {
            let mut command = Command::new(&program.executable);
            command.current_dir(&program.package).args(&arguments.filter).stdin(Stdio::null());
            command.stderr(file.try_clone().context("share the log")?);
            command.stdout(file.try_clone().context("share the log")?);
            passed &= command.status().context("start a test program")?.success();
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        let mut names = failures(&text);
        if !passed && names.is_empty() {
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
    fn test_programs_of_a_package_are_found() {
        let artifact = |package: &str, test: bool, executable: &str| {
            let executable = (!executable.is_empty()).then_some(executable);
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": format!("/w/crates/{package}/Cargo.toml"),
                "profile": {"test": test}, "executable": executable,
            })
            .to_string()
        };
        let messages = [
            artifact("remuda", true, "/w/target/it-1"),
            artifact("remuda", false, "/w/target/remuda"),
            artifact("remuda", true, ""),
            artifact("remuda-cli", true, "/w/target/it-2"),
            "no JSON".to_owned(),
            r#"{"reason": "build-finished"}"#.to_owned(),
        ];
        let found = programs(&messages.join("\n"), "remuda");
        let expected = Program { executable: "/w/target/it-1".into(), package: "/w/crates/remuda".into() };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn failed_tests_are_read_from_the_output_of_the_runner() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\nnoise\ntest d - should panic ... FAILED\n\
                      test result: FAILED. 1 passed; 2 failed\n";
        assert_eq!(failures(output), ["a::c", "d - should panic"]);
        assert!(failures("test result: ok. 3 passed\n").is_empty());
    }
}
