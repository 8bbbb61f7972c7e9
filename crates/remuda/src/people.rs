//! Commands for people: what only this program can do for them.

use std::{path::Path, process::ExitCode, sync::Arc};

use futures::future::BoxFuture;
use kube::Client;
use remuda_cli::{
    Code, Failure, Hooks, HostState, MachineTarget, Orphan, OrphanQuery, OrphanReport, Orphans, Shell,
};
use remuda_drivers::{builtin::Registry, log::Log, secret::names_a_secret};
use remuda_machines::orphans;
use remuda_names::machines::file;
use remuda_sandbox::{
    driver::NAME,
    machines::{MachineState, Sandbox},
};
use remuda_server::config::LocalMachines;

use crate::{local, serve};

pub(crate) fn run(command: remuda_cli::Command) -> ExitCode {
    let runtime = match serve::runtime() {
        Ok(runtime) => runtime,
        Err(failure) => return failure.report(),
    };
    match runtime.block_on(Box::pin(remuda_cli::run(command, &hooks()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

pub(crate) fn hooks() -> Hooks {
    Hooks { shells: vec![Arc::new(LocalShell)], orphans: Some(Arc::new(Providers)), ..Hooks::default() }
}

/// Asks providers through the drivers of this program.
struct Providers;

impl Orphans for Providers {
    fn find(&self, client: Client, query: OrphanQuery) -> BoxFuture<'_, Result<OrphanReport, Failure>> {
        Box::pin(async move {
            let OrphanQuery { driver, credential, flags, data_dir } = query;
            // Machines of the server's host are known there only.
            let drivers = data_dir
                .as_deref()
                .map_or_else(Registry::standard, |dir| local::drivers(dir, LocalMachines::default()));
            let cache = data_dir.or_else(remuda_cli::cache_dir).map(|dir| dir.join(file::DRIVERS));
            let query = orphans::Query { driver, credential, flags, cache };
            let found = orphans::orphans(client, &drivers, &query, Log::tracing()).await;
            let found = found.map_err(|error| Failure::new(Code::Other, crate::failure::chain(&error)))?;
            let orphans::Findings { driver, caveat, reports } = found;
            let mut report =
                OrphanReport { caveats: caveat.into_iter().collect(), ..OrphanReport::default() };
            for orphans::Report { credential, place, found } in reports {
                match found {
                    Ok(found) => report.found.extend(found.into_iter().map(|owned| Orphan {
                        driver: driver.clone(),
                        credential: credential.clone(),
                        kind: owned.kind,
                        id: owned.id,
                        name: owned.name,
                    })),
                    Err(error) => report.problems.push(problem(&driver, &credential, &place, &error)),
                }
            }
            Ok(report)
        })
    }
}

/// Who could not be asked, and why.
fn problem(
    driver: &str,
    credential: &str,
    place: &[(String, String)],
    error: &dyn std::fmt::Display,
) -> String {
    if credential.is_empty() && place.is_empty() {
        return error.to_string();
    }
    let mut who = driver.to_owned();
    if !credential.is_empty() {
        who.push_str(&format!(" with credential {credential}"));
    }
    for (flag, value) in place {
        let value = if names_a_secret(flag) { "…" } else { value.as_str() };
        who.push_str(&format!(" {flag}={value}"));
    }
    format!("{who}: {error}")
}

/// Into machines on this host.
struct LocalShell;

impl Shell for LocalShell {
    fn serves(&self, driver: &str) -> bool {
        driver == NAME
    }

    fn run(&self, target: MachineTarget) -> BoxFuture<'_, Result<u8, Failure>> {
        Box::pin(async move {
            let sandbox = here(&target)?;
            let command = sandbox.enter(&target.machine, &target.command);
            let mut command = command.map_err(|error| failed("enter", &target.machine, &error))?;
            let status = command.status().map_err(|error| failed("enter", &target.machine, &error))?;
            Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
        })
    }

    fn restart(&self, target: MachineTarget) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let (sandbox, machine) = (here(&target)?, target.machine.clone());
            let restarted =
                tokio::task::spawn_blocking(move || sandbox.restart(&sandbox.find(&machine)?.id)).await;
            let restarted = restarted.map_err(|error| failed("restart", &target.machine, &error))?;
            restarted.map_err(|error| failed("restart", &target.machine, &error))
        })
    }

    fn host_state(&self, machine: &str, data_dir: Option<&Path>) -> Option<HostState> {
        let sandbox = Sandbox::new(local::options(data_dir?, LocalMachines::default()));
        let found = sandbox.find(machine).ok()?;
        Some(match found.state {
            MachineState::Stopped | MachineState::Removing => HostState::Off,
            _ if found.is_frozen() => HostState::Frozen,
            _ if found.is_cut_off() => HostState::CutOff,
            _ => HostState::Running,
        })
    }
}

fn failed(doing: &str, machine: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::Other, format!("{doing} {machine}: {}", crate::failure::chain(error)))
}

/// Machines of this host, where the server of the target keeps them.
fn here(target: &MachineTarget) -> Result<Sandbox, Failure> {
    match &target.data_dir {
        Some(data_dir) => Ok(Sandbox::new(local::options(data_dir, LocalMachines::default()))),
        None => Err(Failure::new(Code::Other, "the machine is on the host of its server")
            .hint("run this there, with --data-dir if the server has it")),
    }
}
