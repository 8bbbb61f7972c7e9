//! Commands for people: what only this program can do for them.

use std::{process::ExitCode, sync::Arc};

use futures::future::BoxFuture;
use remuda_cli::{Code, Failure, Hooks, MachineTarget, Shell};
use remuda_sandbox::{driver::NAME, machines::Sandbox};

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
    Hooks { shells: vec![Arc::new(LocalShell)], ..Hooks::default() }
}

/// Into machines on this host.
struct LocalShell;

impl Shell for LocalShell {
    fn serves(&self, driver: &str) -> bool {
        driver == NAME
    }

    fn run(&self, target: MachineTarget) -> BoxFuture<'_, Result<u8, Failure>> {
        Box::pin(async move {
            let Some(data_dir) = target.data_dir else {
                let failure = Failure::new(Code::Other, "the machine is on the host of its server");
                return Err(failure.hint("run this there, with --data-dir if the server has it"));
            };
            let failed = |error: &dyn std::error::Error| {
                Failure::new(
                    Code::Other,
                    format!("enter {}: {}", target.machine, crate::failure::chain(error)),
                )
            };
            let sandbox = Sandbox::new(local::options(&data_dir));
            let mut command =
                sandbox.enter(&target.machine, &target.command).map_err(|error| failed(&error))?;
            let status = command.status().map_err(|error| failed(&error))?;
            Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
        })
    }
}
