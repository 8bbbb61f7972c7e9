//! The `remuda` program: reads the command line and hands over.

mod applet;
mod bundle;
mod command;
mod complete;
mod debug;
mod describe;
mod doctor;
mod failure;
mod image;
mod local;
mod log;
mod maintain;
mod output;
mod people;
mod serve;
mod settle;
mod sim;
mod undumped;
mod up;
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
    // Whoever has the file can tell what it is: it must not be left out as unused.
    let _ = std::hint::black_box(version::MARK);
    if let Some(code) = applet::dispatch() {
        return code;
    }
    let result = match command::parse() {
        Ok(Command::People(command)) => return people::run(command),
        Ok(Command::Up(arguments)) => return ended(up::up(*arguments)),
        Ok(Command::Down(arguments)) => return ended(up::down(&arguments)),
        Ok(Command::Doctor(arguments)) => return doctor::run(arguments),
        Ok(command) => run(command),
        Err(early) => return early,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn ended(result: Result<(), remuda_cli::Failure>) -> ExitCode {
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
        Command::ClusterAgent => applet::cluster_agent().map_err(|error| Failure::new(&error, None)),
        Command::KubeApiAuth => applet::authenticator().map_err(|error| Failure::new(&error, None)),
        Command::Agent { .. }
        | Command::Node { .. }
        | Command::People(_)
        | Command::Up(_)
        | Command::Down(_)
        | Command::Doctor(_) => unreachable!("dealt with before"),
        Command::Image(command) => image::run(&command),
        Command::Bundle(command) => bundle::run(&command),
        Command::Debug(command) => debug::run(&command),
        Command::Sim(command) => sim::run(command),
        Command::Version(arguments) => version::print(&arguments),
        Command::Completion { shell } => output::raw(&complete::script(shell, CommandLine::command())),
        Command::Describe => {
            output::line(&describe::tree(CommandLine::command()).to_string());
            Ok(())
        }
        Command::Complete { words } => complete::run(&CommandLine::command(), &words),
    }
}
