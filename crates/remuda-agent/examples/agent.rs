//! The agent alone, to try it and to measure it: `agent run --allow-non-root --config FILE`.

use remuda_agent::{Chain, command, environment::Environment};

/// As in the program that ships the agent.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
    let command = command::parse(std::env::args_os().skip(1), Environment::of_process())?;
    command.execute().map_err(|error| Chain(&error).to_string().into())
}
