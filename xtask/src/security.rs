//! The tests that keep boundaries, by name, and random input for what strangers can send.
//!
//! All of them are part of `cargo test --workspace`. Here they are run by themselves, with more random input, and
//! counted: a name that matches no test fails the run.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// Tests of one boundary.
pub(crate) struct Boundary {
    pub name: &'static str,
    pub package: &'static str,
    /// The library's own tests, or those in `tests/it`.
    pub within: &'static str,
    /// Parts of names of tests; each has to match some.
    pub tests: &'static [&'static str],
    /// Whether they take random input, of which there can be more.
    pub random: bool,
}

const LIB: &str = "--lib";
const IT: &str = "--test=it";

const fn fixed(
    name: &'static str,
    package: &'static str,
    within: &'static str,
    tests: &'static [&'static str],
) -> Boundary {
    Boundary { name, package, within, tests, random: false }
}

const fn random(name: &'static str, package: &'static str, tests: &'static [&'static str]) -> Boundary {
    Boundary { name, package, within: LIB, tests, random: true }
}

pub(crate) const BOUNDARIES: &[Boundary] = &[
    random("URLs and tokens", "remuda-auth", &["fuzz::"]),
    random("frame of the doors", "remuda-door", &["frame::fuzz::"]),
    random("tunnels and registration", "remuda-gateway", &["tunnel::fuzz::", "register::fuzz::"]),
    random("second factors", "remuda-identity", &["second_factor::fuzz::"]),
    random("bearer tokens", "remuda-apiserver", &["authn::fuzz::"]),
    random("lists", "remuda-steve", &["fuzz::", "rights::tests::"]),
    random("terminals", "remuda-terminal", &["fuzz::"]),
    random("doors", "remuda-server", &["doors::fuzz::", "doors::tests::"]),
    random("executables", "remuda-oci", &["executable::fuzz::"]),
    fixed("connections", "remuda-server", LIB, &["accept::"]),
    fixed("slow clients, silent stores", "remuda-apiserver", IT, &["slow::"]),
    fixed("damaged stores", "remuda-store", IT, &["damage::", "faults::"]),
    fixed("backups and keys", "remuda-server", LIB, &["archive::", "pki::"]),
    fixed(
        "limits of workspaces, protection",
        "remuda-server",
        LIB,
        &["rancher::tests::quota::", "rancher::tests::protection::"],
    ),
    fixed("references of all kinds", "remuda-server", LIB, &["rancher::tests::references::"]),
    fixed("answers of clusters", "remuda-control", LIB, &["bounded::"]),
    fixed("lists of clusters", "remuda-steve", LIB, &["cluster::tests::"]),
    fixed("nodes of clusters", "remuda-gateway", LIB, &["nodes::"]),
    fixed("records of machines", "remuda-machines", LIB, &["state::"]),
    fixed("what drivers are told", "remuda-machines", IT, &["host_files::"]),
    fixed("writers", "remuda-server", LIB, &["rancher::tests::writers::", "rancher::tests::roles::"]),
    fixed("identities and logins", "remuda-server", LIB, &["people::tests::"]),
    fixed("plan accounts", "remuda-rke", LIB, &["plan_account::"]),
    fixed("tampered plans", "remuda-rke", IT, &["tampered::"]),
    fixed("unknown fields", "remuda-apiserver", IT, &["strict::"]),
    fixed("programs of drivers", "remuda-machines", IT, &["confined::"]),
    fixed("images for machines", "remuda-registry", IT, &["bundles::", "mirror::"]),
    fixed("machines on the host", "remuda-sandbox", IT, &["isolation::"]),
    fixed("running server", "remuda", IT, &["agents::", "driver_use::", "fields::", "memory::"]),
];

/// Cases of each property; the tests themselves have some hundreds.
const CASES: u32 = 20_000;
/// Variables that properties read, as `remuda_names::fuzz` has them.
const CASES_VARIABLE: &str = "REMUDA_FUZZ_CASES";
const SEED_VARIABLE: &str = "REMUDA_FUZZ_SEED";

/// How one boundary did.
struct Outcome {
    name: &'static str,
    tests: u32,
    rounds: u32,
    took: Duration,
    failed: Option<String>,
}

/// Runs everything once, and what takes random input until so many seconds have passed.
pub(crate) fn run(seconds: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for boundary in BOUNDARIES {
        outcomes.push(attempt(boundary, 1)?);
    }
    let mut seed = 1;
    while begun.elapsed() < Duration::from_secs(seconds) {
        seed += 1;
        for (boundary, outcome) in
            BOUNDARIES.iter().zip(&mut outcomes).filter(|(boundary, _)| boundary.random)
        {
            if begun.elapsed() >= Duration::from_secs(seconds) || outcome.failed.is_some() {
                continue;
            }
            let again = attempt(boundary, seed)?;
            outcome.rounds += 1;
            outcome.took += again.took;
            outcome.failed = again.failed;
        }
    }
    crate::print(&format!("{:<26} {:>6} {:>7} {:>7}  result", "boundary", "tests", "rounds", "seconds"));
    for outcome in &outcomes {
        let result = if outcome.failed.is_some() { "FAILED" } else { "passed" };
        crate::print(&format!(
            "{:<26} {:>6} {:>7} {:>7}  {result}",
            outcome.name,
            outcome.tests,
            outcome.rounds,
            outcome.took.as_secs()
        ));
    }
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.failed.is_some()).collect();
    for outcome in &failed {
        crate::print(&format!("\n{}:\n{}", outcome.name, outcome.failed.as_deref().unwrap_or_default()));
    }
    if !failed.is_empty() {
        bail!("{} of {} boundaries failed", failed.len(), outcomes.len());
    }
    Ok(())
}

fn attempt(boundary: &Boundary, seed: u64) -> anyhow::Result<Outcome> {
    crate::ci::report(&format!("{} (seed {seed})", boundary.name));
    let begun = Instant::now();
    let mut outcome =
        Outcome { name: boundary.name, tests: 0, rounds: 1, took: Duration::ZERO, failed: None };
    if boundary.within == IT {
        // Some tests run them, and cargo builds them only for whoever runs all tests.
        let arguments = ["build", "--quiet", "--package", boundary.package, "--examples"];
        let built = Command::new("cargo").args(arguments).status();
        if !built.context("build examples")?.success() {
            outcome.failed = Some(format!("the examples of {} cannot be built", boundary.package));
            return Ok(outcome);
        }
    }
    for wanted in boundary.tests {
        let mut command = Command::new("cargo");
        command.args(["test", "--package", boundary.package, boundary.within, "--", wanted]);
        if boundary.random {
            command.env(CASES_VARIABLE, CASES.to_string()).env(SEED_VARIABLE, seed.to_string());
        }
        let output = command.output().with_context(|| format!("run the tests {wanted}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let passed = passed(&text);
        outcome.tests += passed;
        if !output.status.success() {
            outcome.failed = Some(format!("{text}{}", String::from_utf8_lossy(&output.stderr)));
        } else if passed == 0 {
            outcome.failed = Some(format!("no test of {} is called {wanted}", boundary.package));
        }
    }
    outcome.took = begun.elapsed();
    Ok(outcome)
}

/// How many tests passed, as the test harness says it.
fn passed(text: &str) -> u32 {
    let results = text.lines().filter_map(|line| line.strip_prefix("test result: "));
    let counts =
        results.filter_map(|line| line.split_once(" passed")?.0.rsplit(' ').next()?.parse::<u32>().ok());
    counts.sum()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn passed_tests_are_counted() {
        let text = "running 3 tests\ntest result: ok. 3 passed; 0 failed; 0 ignored\n\
                    test result: FAILED. 12 passed; 1 failed\n";
        assert_eq!(passed(text), 15);
        assert_eq!(passed("nothing"), 0);
    }

    /// A boundary whose tests were renamed would be kept by none.
    #[test]
    fn every_boundary_has_its_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for boundary in BOUNDARIES {
            let within = if boundary.within == LIB { "src" } else { "tests/it" };
            for tests in boundary.tests {
                let path: Vec<&str> = tests.trim_end_matches("::").split("::").collect();
                let file = root.join(boundary.package).join(within).join(path.join("/"));
                assert!(file.with_extension("rs").exists(), "{}: {tests}", boundary.name);
            }
        }
    }

    /// Properties over hostile input take their number of cases from outside, and are all in the run.
    #[test]
    fn every_fuzz_module_is_in_the_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let names = fs::read_to_string(root.join("remuda-names/src/fuzz.rs")).unwrap();
        assert!([CASES_VARIABLE, SEED_VARIABLE].iter().all(|name| names.contains(&format!("{name:?}"))));
        let mut found = BTreeSet::new();
        for package in fs::read_dir(&root).unwrap().flatten() {
            let mut pending = vec![package.path().join("src")];
            while let Some(directory) = pending.pop() {
                for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                    if entry.path().is_dir() {
                        pending.push(entry.path());
                    } else if entry.file_name() == "fuzz.rs" {
                        let text = fs::read_to_string(entry.path()).unwrap();
                        if text.contains("proptest!") {
                            assert!(text.contains("fuzz::CASES"), "{}", entry.path().display());
                            found.insert(package.file_name().to_string_lossy().into_owned());
                        }
                    }
                }
            }
        }
        let run: BTreeSet<String> = BOUNDARIES
            .iter()
            .filter(|boundary| boundary.random)
            .map(|boundary| boundary.package.to_owned())
            .collect();
        assert_eq!(found, run);
    }
}
