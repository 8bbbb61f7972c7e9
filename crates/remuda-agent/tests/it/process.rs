//! The agent as a process of its own: this very test binary, started again.
//!
//! `process::agent config=<file>` runs the agent, `process::supervisor pid=<file>` a supervisor that
//! runs it. In an ordinary test run neither argument is there and both do nothing.

use std::path::PathBuf;

use remuda_agent::{environment::Environment, run, supervise};

fn argument(name: &str) -> Option<PathBuf> {
    std::env::args().find_map(|argument| Some(PathBuf::from(argument.strip_prefix(name)?.strip_prefix('=')?)))
}

/// Arguments that run the agent.
pub(crate) fn agent_arguments(config: &std::path::Path) -> Vec<String> {
    let words = ["process::agent", "--exact", "--nocapture"].map(str::to_owned);
    words.into_iter().chain([format!("config={}", config.display())]).collect()
}

/// Arguments that run the supervisor.
pub(crate) fn supervisor_arguments(pid: &std::path::Path, config: &std::path::Path) -> Vec<String> {
    let words = ["process::supervisor", "--exact", "--nocapture"].map(str::to_owned);
    words
        .into_iter()
        .chain([format!("pid={}", pid.display()), format!("daemon={}", config.display())])
        .collect()
}

#[test]
fn agent() {
    let Some(config) = argument("config") else { return };
    let environment = Environment::of_process();
    run::run_blocking(run::RunOptions {
        config: Some(config),
        strict: None,
        allow_non_root: true,
        environment,
    })
    .unwrap();
}

#[test]
fn supervisor() {
    let (Some(pid), Some(config)) = (argument("pid"), argument("daemon")) else { return };
    let mut command = vec![std::env::current_exe().unwrap().into_os_string()];
    command.extend(agent_arguments(&config).into_iter().map(Into::into));
    supervise::supervise_blocking(&supervise::SuperviseOptions::new(command, pid)).unwrap();
}
