//! The `remuda` program: reads the command line and hands over.

mod command;
mod failure;
mod log;
mod maintain;
mod output;
mod serve;
mod sim;
mod version;

use std::process::ExitCode;

use clap::CommandFactory;

use crate::{
    command::{Command, CommandLine},
    failure::Failure,
};

/// Much of a server's work is making and dropping small things on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match command::parse() {
        Ok(command) => run(command),
        Err(early) => return early,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Server(options) => serve::run(*options),
        Command::Backup(arguments) => maintain::backup(&arguments),
        Command::Restore(arguments) => maintain::restore(&arguments),
        Command::RotateKeys(arguments) => maintain::rotate_keys(&arguments),
        Command::Sim(command) => sim::run(command),
        Command::Version(arguments) => version::print(&arguments),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), remuda_names::PROGRAM, &mut script);
            output::raw(&script)
        }
    }
}
