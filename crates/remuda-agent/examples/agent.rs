//! The agent alone, to try it and to measure it: `agent [config file]`.

use std::path::PathBuf;

use remuda_agent::{environment::Environment, run};

/// As in the program that ships the agent.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
    let environment = Environment::of_process();
    let config = std::env::args_os().nth(1).map(PathBuf::from);
    let options = run::RunOptions { config, strict: None, allow_non_root: true, environment };
    run::run_blocking(options).map_err(|error| remuda_agent::Chain(&error).to_string().into())
}
