//! Chores of this repository that are longer than a line. `cargo xtask --help` lists them.

mod ci;
mod graph;
#[cfg(test)]
mod rules;

use clap::Parser;

/// Chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Chore {
    /// Check formatting and lints, then run all tests: what has to pass before a commit
    Ci,
    /// Show which crates are below a crate of this workspace
    Below {
        /// A crate of this workspace
        name: String,
    },
}

fn main() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Ci => ci::run(),
        Chore::Below { name } => {
            for package in graph::below(&name)? {
                print(&package.to_string());
            }
            Ok(())
        }
    }
}

#[allow(clippy::print_stdout, reason = "the output is the purpose")]
fn print(line: &str) {
    println!("{line}");
}
