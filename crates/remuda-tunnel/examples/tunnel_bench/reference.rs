//! Another implementation to compare with, when there is one here.
//!
//! The program named by the environment measures a pair of its own over loopback TLS, with the same amounts,
//! and prints one line per figure: its name and a number, such as `one-from 312.5`.

use std::{collections::HashMap, env, ffi::OsString, process::Command};

use super::{Arguments, Figures, Outcome};

/// Names the program.
const REFERENCE: &str = "REMUDA_BENCH_REMOTEDIALER";

pub(super) struct Reference(OsString);

impl Reference {
    pub(super) fn from_env() -> Option<Reference> {
        env::var_os(REFERENCE).filter(|program| !program.is_empty()).map(Reference)
    }

    /// Runs it; its figures have the names `one-from`, `one-to`, `many-from`, `many-to` (MB/s), `p50`, `p99` (µs).
    pub(super) fn measure(&self, arguments: &Arguments) -> Outcome<Figures> {
        let output = Command::new(&self.0)
            .args(["--megabytes", &arguments.megabytes.to_string()])
            .args(["--streams", &arguments.streams.to_string()])
            .args(["--rate", &arguments.rate.to_string()])
            .args(["--seconds", &arguments.seconds.to_string()])
            .output()
            .map_err(|error| format!("start {}: {error}", self.0.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed: {told}", self.0.display()).into());
        }
        let figures: HashMap<&str, f64> = said
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, number)| Some((name, number.trim().parse().ok()?)))
            .collect();
        let figure = |name: &str| {
            figures.get(name).copied().ok_or_else(|| format!("{} does not tell {name}", self.0.display()))
        };
        Ok(Figures {
            one: [figure("one-from")?, figure("one-to")?],
            many: [figure("many-from")?, figure("many-to")?],
            p50: figure("p50")?,
            p99: figure("p99")?,
        })
    }
}
