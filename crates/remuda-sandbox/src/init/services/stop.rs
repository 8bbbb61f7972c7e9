//! Running the commands of services, and ending services.

use std::{
    io::pipe,
    process::{Command, Stdio},
    rc::Rc,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::{sleep, timeout};

use super::{Active, Down, Failure, Service, Services, word};
use crate::{
    init::{
        children::{Ending, marked},
        process,
    },
    unit::{KillMode, Unit, command::ExecLine, signal_number},
};

/// How often the processes of a stopping service are looked for.
const LOOK: Duration = Duration::from_millis(20);

impl Services {
    pub(super) fn spawn(
        self: &Rc<Self>,
        service: &Rc<Service>,
        unit: &Unit,
        line: &ExecLine,
    ) -> Option<(i32, Ending)> {
        let invocation = service.state.borrow().invocation.clone();
        let environment = match process::environment(unit, &invocation, service.state.borrow().main) {
            Ok(environment) => environment,
            Err(problem) => {
                service.journal.note(&problem);
                return None;
            }
        };
        let ready = line.ready(|name| environment.get(name).cloned())?;
        let (reader, writer) = pipe().ok()?;
        let mut command: Command = process::command(&ready, unit, &environment);
        command.stdin(Stdio::null()).stdout(writer.try_clone().ok()?).stderr(writer);
        let spawned = self.children.spawn(&mut command);
        // Our copies of the pipe's end must go, or it never closes.
        drop(command);
        match spawned {
            Ok((pid, ending)) => {
                let who = ready.program.rsplit('/').next().unwrap_or_default();
                let follow = service.journal.clone().follow(reader, format!("{who}[{pid}]"));
                drop(self.tasks.spawn_local(follow));
                Some((pid, ending))
            }
            Err(error) => {
                service.journal.note(&format!("{}: {}: {error}", unit.name, ready.program));
                None
            }
        }
    }

    /// Runs commands one after the other.
    pub(super) async fn run_all(
        self: &Rc<Self>,
        service: &Rc<Service>,
        unit: &Unit,
        lines: &[ExecLine],
        limit: Option<Duration>,
    ) -> Result<(), Down> {
        for line in lines {
            let Some((pid, ending)) = self.spawn(service, unit, line) else {
                if line.may_fail {
                    continue;
                }
                return Err(Down { result: "exit-code", exit: Some(crate::unit::Exit::Code(203)) });
            };
            let ended = match limit {
                Some(limit) => timeout(limit, ending).await,
                None => Ok(ending.await),
            };
            let Ok(ended) = ended else {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                return Err(Down::of("timeout"));
            };
            let Ok(exit) = ended else { return Err(Down::of("resources")) };
            if !line.may_fail && !unit.is_success(exit) {
                service.journal.note(&format!("{}: {} failed", unit.name, line.text()));
                return Err(Down { result: word(exit), exit: Some(exit) });
            }
        }
        Ok(())
    }

    pub(super) async fn run_quietly(self: &Rc<Self>, service: &Rc<Service>, unit: &Unit, lines: &[ExecLine]) {
        let _ = self.run_all(service, unit, lines, unit.timeout_stop).await;
    }

    pub(crate) async fn reload(self: &Rc<Self>, name: &str) -> Result<(), Failure> {
        let service = self.get(name);
        let unit = crate::init::files::load(name).ok_or_else(|| format!("Unit {name} not found."))?;
        if service.active() != Active::Active {
            return Err(format!("{name} is not active, cannot reload."));
        }
        let outcome = self.run_all(&service, &unit, &unit.reload, unit.timeout_start).await;
        outcome.map_err(|_| format!("Reload of {name} failed."))
    }

    /// Stops a service and whatever is under way for it.
    pub(crate) async fn stop(self: &Rc<Self>, name: &str) -> Result<(), Failure> {
        let service = self.get(name);
        service.raise();
        let _turn = service.turn.lock().await;
        let was = service.active();
        let main = service.state.borrow().main;
        if main.is_none() && !matches!(was, Active::Active | Active::Activating) {
            return Ok(());
        }
        let unit = crate::init::files::load(name)
            .unwrap_or_else(|| Unit::parse(name, std::path::PathBuf::new(), &[String::new()]));
        service.set(Active::Deactivating, "stop");
        service.journal.note(&format!("Stopping {} - {}...", unit.name, unit.description));
        if was == Active::Active {
            self.run_quietly(&service, &unit, &unit.stop).await;
        }
        service.set(Active::Deactivating, "stop-sigterm");
        self.end_rest(&service, &unit).await;
        self.run_quietly(&service, &unit, &unit.stop_post).await;
        service.state.borrow_mut().result = "success";
        service.set(Active::Inactive, "dead");
        service.journal.note(&format!("Stopped {} - {}.", unit.name, unit.description));
        Ok(())
    }

    /// Signals the processes that are to go, by the service's own rule, and waits for them.
    pub(super) async fn end_rest(self: &Rc<Self>, service: &Service, unit: &Unit) {
        let signal = signal_number(&unit.kill_signal).and_then(|number| Signal::try_from(number).ok());
        let signal = signal.unwrap_or(Signal::SIGTERM);
        let targets = |all: bool| -> Vec<i32> {
            let state = service.state.borrow();
            let mut pids: Vec<i32> = state.main.into_iter().collect();
            if all {
                pids.extend(marked(&state.invocation).into_iter().filter(|pid| Some(*pid) != state.main));
            }
            pids
        };
        let (first, rest) = match unit.kill_mode {
            KillMode::None => return,
            KillMode::Process => (false, false),
            KillMode::Mixed => (false, true),
            KillMode::ControlGroup => (true, true),
        };
        let send = |pids: &[i32], signal: Signal| {
            for pid in pids {
                let _ = kill(Pid::from_raw(*pid), signal);
            }
        };
        send(&targets(first), signal);
        let start = Instant::now();
        let mut killed = false;
        loop {
            // In mixed mode the others are not waited for: they get no gentle signal.
            let waiting = targets(if unit.kill_mode == KillMode::Mixed { false } else { rest });
            if waiting.is_empty() {
                break;
            }
            if !killed && unit.timeout_stop.is_some_and(|limit| start.elapsed() >= limit) {
                send(&targets(rest), Signal::SIGKILL);
                killed = true;
            }
            sleep(LOOK).await;
        }
        if unit.kill_mode == KillMode::Mixed {
            send(&targets(true), Signal::SIGKILL);
        }
    }

    pub(crate) fn signal(&self, name: &str, signal: &str) -> Result<(), Failure> {
        let number = if signal.is_empty() { Some(15) } else { signal_number(signal) };
        let signal = number.and_then(|number| Signal::try_from(number).ok());
        let signal = signal.ok_or_else(|| "Failed to parse signal string.".to_owned())?;
        let service = self.get(name);
        let state = service.state.borrow();
        for pid in marked(&state.invocation) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
        Ok(())
    }

    /// Stops everything, the last started first.
    pub(crate) async fn close(self: &Rc<Self>) {
        self.is_closing.set(true);
        let mut all = self.known();
        all.sort_by_key(|service| std::cmp::Reverse(service.order.get()));
        for service in all {
            let _ = self.stop(&service.name).await;
        }
    }
}
