//! What this program is besides a command line: the agents, the node, the processes of machines.
//!
//! They are told from the name the program is called by or from its first argument, before anything else
//! happens: some of them must have no second thread, and none of them may fail over a flag of another.

use std::{
    error::Error,
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use remuda_agent::{command, environment::Environment, run};
use remuda_distro::Distro;
use remuda_drivers::{
    install::{self, Protocol},
    plugin,
};
use remuda_names::env;
use remuda_sandbox_distro::Invocation;

use crate::{
    failure::{self, Failure},
    local, log, settle, undumped,
};

/// Runs the applet that is asked for; `None` if it is the command line.
pub(crate) fn dispatch() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rest: Vec<OsString> = arguments.collect();
    if let Some(code) = remuda_sandbox::run_tool(&name, &rest) {
        return Some(code);
    }
    if command::is_agent(name.as_ref()) {
        return Some(run_agent(&rest));
    }
    if Distro::named(&name).is_some() {
        return Some(node(&name, rest));
    }
    if let Some((Protocol::Plugin, driver)) = install::driver_name(&name) {
        return Some(serve_driver(driver));
    }
    let (first, rest) = rest.split_first()?;
    match first.to_str()? {
        remuda_sandbox::stage::COMMAND => Some(ended(remuda_sandbox::run_stage(rest))),
        "agent" => Some(run_agent(rest)),
        "node" => Some(node(&name, rest.to_vec())),
        "machine" if is_job(rest) => Some(job(rest)),
        // What comes after the name is the command line of whoever uses the plugin.
        "machine" if is_plugin(rest) => Some(serve_driver(&rest[1].to_string_lossy())),
        _ => None,
    }
}

/// Jobs are called with flags first, people with what they want.
fn is_job(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|first| first.to_string_lossy().starts_with("--driver-"))
}

fn is_plugin(arguments: &[OsString]) -> bool {
    let name = arguments.get(1).is_some_and(|name| !name.to_string_lossy().starts_with('-'));
    arguments.first().is_some_and(|first| first == "serve-driver") && name
}

/// The node agent: the service, and its way onto a machine.
fn run_agent(arguments: &[OsString]) -> ExitCode {
    let environment = Environment::of_process();
    let level = run::log_level(&environment);
    let command = match command::parse(arguments.iter().cloned(), environment) {
        Ok(command) => command,
        Err(error) => {
            let hint = Some("remuda agent help shows what there is".to_owned());
            return Failure::usage(failure::chain(&error), hint).report();
        }
    };
    match command {
        command::Command::Help => crate::output::line(command::HELP.trim_end()),
        command::Command::Version => {
            crate::output::line(&format!("{} version {}", command::NAME, crate::version::VERSION));
        }
        command::Command::VerifySnapshot(which) => {
            let report = which.read();
            crate::output::line(&serde_json::json!(report).to_string());
            if !report.is_proven() {
                return ExitCode::FAILURE;
            }
        }
        // Nothing is said of a node without certificates.
        command::Command::Certificates(data_dir) => {
            if let Some(first) = remuda_agent::certificates::first_to_end(&data_dir) {
                crate::output::line(&serde_json::json!(first).to_string());
            }
        }
        command => {
            match command.is_daemon() {
                true => undumped::keep_memory(),
                false => undumped::no_cores(),
            }
            match level {
                Ok(level) if command.is_daemon() => {
                    log::plain(level);
                    settle::soon();
                }
                Ok(_) => log::plain(tracing::Level::WARN),
                Err(error) => return Failure::new(&error, None).report(),
            }
            return ended(command.execute());
        }
    }
    ExitCode::SUCCESS
}

/// Runs the agent of a cluster until it is told to stop.
pub(crate) fn cluster_agent() -> Result<(), remuda_cluster_agent::Error> {
    undumped::keep_memory();
    log::plain(tracing::Level::INFO);
    let config = remuda_cluster_agent::Config::from_env(Environment::of_process())?;
    settle::soon();
    remuda_cluster_agent::run(config)
}

/// Runs the authenticator of a cluster until it is told to stop.
pub(crate) fn authenticator() -> Result<(), remuda_cluster_agent::AuthenticatorError> {
    undumped::keep_memory();
    log::plain(tracing::Level::INFO);
    let authenticator = remuda_cluster_agent::Authenticator::from_env(&Environment::of_process())?;
    settle::soon();
    authenticator.run()
}

fn node(name: &str, arguments: Vec<OsString>) -> ExitCode {
    let invocation = Invocation::new(name, arguments);
    log::plain(tracing::Level::INFO);
    match remuda_sandbox_distro::run(invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let reported = Failure::new(&error, error.hint()).report();
            error.exit_code().map_or(reported, ExitCode::from)
        }
    }
}

/// A driver of ours as a plugin of another program. A copy under a name that is none of ours serves whichever it
/// is asked for.
fn serve_driver(name: &str) -> ExitCode {
    let drivers = local::drivers(&data_dir(), local::told());
    plugin::serve_builtin(&drivers, if drivers.has(name) { name } else { "" })
}

fn data_dir() -> PathBuf {
    std::env::var_os(env::DATA_DIR).map(PathBuf::from).unwrap_or_default()
}

fn job(arguments: &[OsString]) -> ExitCode {
    undumped::keep_memory();
    let data_dir = data_dir();
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    remuda_machines::job::main(arguments, &local::drivers(&data_dir, local::told()))
}

trait Ending {
    fn code(self) -> ExitCode;
}

impl Ending for () {
    fn code(self) -> ExitCode {
        ExitCode::SUCCESS
    }
}

impl Ending for ExitCode {
    fn code(self) -> ExitCode {
        self
    }
}

fn ended<T: Ending, E: Error>(result: Result<T, E>) -> ExitCode {
    match result {
        Ok(done) => done.code(),
        Err(error) => Failure::new(&error, None).report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_people_both_say_machine() {
        let job = |text: &str| is_job(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(job("--driver-download-url= --driver-hash= --secret-name=x create"));
        assert!(!job("list"));
        assert!(!job("--help"));
        assert!(!job("--namespace x list"));
        assert!(!job("serve-driver generic"));
    }

    #[test]
    fn a_plugin_is_told_by_its_first_words() {
        let plugin = |text: &str| is_plugin(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(plugin("serve-driver digitalocean rancher-machine create"));
        assert!(!plugin("serve-driver"));
        assert!(!plugin("serve-driver --help"));
        assert!(!plugin("list serve-driver"));
    }
}
