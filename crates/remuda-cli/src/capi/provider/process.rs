//! The provider's program as a process of this one: how it is called, how it is ended, when it is started again.

use std::{path::Path, process::ExitStatus, time::Duration};

use remuda_base::backoff::{Backoff, Row};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::failure::{Code, Failure};

/// What a program gets to end by itself.
const GRACE: Duration = Duration::from_secs(10);
/// After so long the next failure is the first again.
const STEADY: Duration = Duration::from_secs(60);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// What the arguments may name.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) kubeconfig: String,
    pub(super) webhook_port: u16,
    pub(super) webhook_cert_dir: String,
    pub(super) namespace: String,
    /// Whether the provider has webhooks.
    pub(super) has_webhooks: bool,
}

/// The arguments as the program gets them. One that says itself where ports and files belong gets nothing added.
fn arguments(given: &[String], site: &Site) -> Vec<String> {
    let port = site.webhook_port.to_string();
    let places = [
        ("{kubeconfig}", &site.kubeconfig),
        ("{webhook-port}", &port),
        ("{webhook-cert-dir}", &site.webhook_cert_dir),
    ];
    let filled =
        |text: &String| places.iter().fold(text.clone(), |text, (name, value)| text.replace(name, value));
    let mut arguments: Vec<String> = given.iter().map(filled).collect();
    if site.has_webhooks && arguments == given {
        arguments.push(format!("--webhook-port={port}"));
        arguments.push(format!("--webhook-cert-dir={}", site.webhook_cert_dir));
    }
    arguments
}

/// A running program, in a process group of its own: Ctrl-C is for this process, which then ends it.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    group: Option<Pid>,
}

impl Program {
    pub(super) fn start(line: &[String], site: &Site) -> Result<Program, Failure> {
        let (program, given) = line.split_first().ok_or_else(|| Failure::invalid("no program is named"))?;
        let mut command = Command::new(program);
        command.args(arguments(given, site)).stdin(std::process::Stdio::null());
        command.env("KUBECONFIG", &site.kubeconfig).env("POD_NAMESPACE", &site.namespace);
        command.process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => Code::NotFound,
                _ => Code::Other,
            };
            let failure = Failure::new(code, format!("start {program}: {error}"));
            match Path::new(program).is_dir() {
                true => failure.hint("it is a directory"),
                false => failure.hint("what comes after -- is the provider's program and its arguments"),
            }
        })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Program { child, group })
    }

    /// Waits for its end.
    pub(super) async fn ended(&mut self) -> Result<ExitStatus, Failure> {
        let ended = self.child.wait().await;
        ended.map_err(|error| Failure::new(Code::Other, format!("wait for the program: {error}")))
    }

    /// Ends the program and what it started: it is asked to, and after a while, or when `hurry` is done, killed.
    pub(super) async fn stop(mut self, hurry: impl Future<Output = ()>) {
        self.signal(Signal::TERM);
        tokio::select! {
            _ = self.child.wait() => {}
            () = tokio::time::sleep(GRACE) => {}
            () = hurry => {}
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
    }

    fn signal(&self, signal: Signal) {
        // The group may outlive its first process.
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }

    /// What the program started goes with it.
    pub(super) fn clear(self) {
        self.signal(Signal::KILL);
    }
}

/// How long to wait before a program is started again.
#[derive(Debug)]
pub(super) struct Restarts(Row);

impl Restarts {
    pub(super) fn new() -> Restarts {
        Restarts(BACKOFF.begin())
    }

    pub(super) fn delay(&mut self, ran: Duration) -> Duration {
        if ran >= STEADY {
            self.0.reset();
        }
        self.0.delay()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(has_webhooks: bool) -> Site {
        Site {
            kubeconfig: "/d/kubeconfig".into(),
            webhook_port: 4321,
            webhook_cert_dir: "/d/serving-certs".into(),
            namespace: "x-system".into(),
            has_webhooks,
        }
    }

    #[track_caller]
    fn check(given: &str, has_webhooks: bool, expected: &str) {
        let given: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        assert_eq!(arguments(&given, &site(has_webhooks)).join(" "), expected);
    }

    #[test]
    fn programs_are_told_of_their_webhooks_as_controller_runtime_has_it_or_as_they_say() {
        check("-v=2", true, "-v=2 --webhook-port=4321 --webhook-cert-dir=/d/serving-certs");
        check("-v=2", false, "-v=2");
        check(
            "--port {webhook-port} --certs={webhook-cert-dir} --kubeconfig {kubeconfig}",
            true,
            "--port 4321 --certs=/d/serving-certs --kubeconfig /d/kubeconfig",
        );
        check("--port={webhook-port}", false, "--port=4321");
    }

    #[test]
    fn a_program_that_keeps_ending_is_left_longer_and_one_that_ran_is_not() {
        let mut restarts = Restarts::new();
        let short: Vec<u64> = (0..8).map(|_| restarts.delay(Duration::from_secs(2)).as_secs()).collect();
        assert_eq!(short, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(restarts.delay(Duration::from_secs(600)).as_secs(), 1);
    }
}
