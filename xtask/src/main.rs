//! Chores of this repository that are longer than a line. `cargo xtask --help` lists them.

mod bench;
mod build_time;
mod ci;
mod crds;
mod flakes;
mod graph;
#[cfg(test)]
mod rules;
mod security;
#[cfg(test)]
mod source;
#[cfg(test)]
mod source_rules;

use std::process::ExitCode;

use clap::Parser;

/// Chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Chore {
    /// Check formatting and lints, then run all tests: what has to pass before a commit
    Ci,
    /// Run the tests that keep boundaries, with more random input than usual, and say how each did
    Security {
        /// Give random input for at least so long
        #[arg(long, value_name = "N", default_value_t = 0)]
        seconds: u64,
    },
    /// Write what types and names say into the definitions of our kinds
    Crds {
        /// Only say whether they are as they should be
        #[arg(long)]
        check: bool,
    },
    /// Build for release and measure
    Bench {
        /// What to measure
        #[command(subcommand)]
        what: Bench,
    },
    /// Build from nothing and print what it took: processor time by crate, the longest chain, sizes of the program
    BuildTime(build_time::Arguments),
    /// Build what people install: packages, images, a chart, checksums; --help says more
    #[command(disable_help_flag = true)]
    Dist {
        /// Passed on to the program that makes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run tests many times, beside other load if wanted, and print which failed
    Flakes(flakes::Arguments),
    /// Show which crates are below a crate of this workspace
    Below {
        /// A crate of this workspace
        name: String,
    },
}

#[derive(clap::Subcommand)]
enum Bench {
    /// The API server, over TLS, on an empty data directory
    Api {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The Cluster API controllers, on a thousand simulated clusters
    Capi {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Machines of a cloud, many at once, and how soon a driver has its kinds
    Machines {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Snapshots, restores and rotations of a cluster on local machines
    Day2 {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// From the Cluster people write to a Ready one: simulated at scale, on local machines, planner and agent
    Provision {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The dashboard in headless Chromium: 2,000 clusters, 20,000 machines
    Dashboard {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The list API: pages of 20,000 Machines, schemas, changes to a thousand sockets, nodes of 100 clusters
    RancherApi {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The tunnel between server and clusters: throughput, latency, memory, the proxy
    Tunnel {
        /// Passed on to the load generator; --help lists what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    // Cargo starts this program in place of rustc while a build is measured.
    if let Some(code) = build_time::wrapped() {
        return Ok(code);
    }
    run(Chore::parse())?;
    Ok(ExitCode::SUCCESS)
}

fn run(chore: Chore) -> anyhow::Result<()> {
    match chore {
        Chore::Ci => ci::run(),
        Chore::Security { seconds } => security::run(seconds),
        Chore::Crds { check } => crds::run(check),
        Chore::Bench { what: Bench::Api { arguments } } => bench::run("api", &arguments),
        Chore::Bench { what: Bench::Capi { arguments } } => bench::run("capi", &arguments),
        Chore::Bench { what: Bench::Dashboard { arguments } } => bench::run("dashboard", &arguments),
        Chore::Bench { what: Bench::Day2 { arguments } } => bench::run("day2", &arguments),
        Chore::Bench { what: Bench::Machines { arguments } } => bench::run("machines", &arguments),
        Chore::Bench { what: Bench::Provision { arguments } } => bench::provision(&arguments),
        Chore::Bench { what: Bench::RancherApi { arguments } } => bench::run("rancher-api", &arguments),
        Chore::Bench { what: Bench::Tunnel { arguments } } => bench::tunnel(&arguments),
        Chore::BuildTime(arguments) => build_time::run(&arguments),
        Chore::Dist { arguments } => {
            let mut command = vec!["run", "--quiet", "--package", "remuda-dist", "--"];
            command.extend(arguments.iter().map(String::as_str));
            ci::step(&command).map(drop)
        }
        Chore::Flakes(arguments) => flakes::run(&arguments),
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
