//! One container: started, watched, started again, stopped.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;
use remuda_base::Backoff;
use remuda_names::node as names;
use tokio::{
    io::AsyncWriteExt,
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Shared,
    env::{Source, expand},
    image::{self, Run},
    live::Instance,
    log::{self, Log, Stream},
    probe::Prober,
    process::{Ended, Process, Start, Streams},
    status::{Progress, State},
    volumes::Volumes,
};

/// The states of a Pod's containers, and word of changes.
pub struct Board {
    pub init: Mutex<Vec<Progress>>,
    pub containers: Mutex<Vec<Progress>>,
    pub problem: Mutex<Option<String>>,
    pub changed: Notify,
}

/// Told when a Pod is to end, with the time it has for it.
pub type End = watch::Receiver<Option<Duration>>;

/// Returns when the Pod is to end.
pub async fn ended(end: &mut End) -> Duration {
    match end.wait_for(Option::is_some).await {
        Ok(grace) => grace.unwrap_or_default(),
        // Whoever could have said it is gone.
        Err(_) => Duration::ZERO,
    }
}

/// First pause between two starts; doubled each time.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// A container that ran this long starts afresh.
const STABLE: Duration = Duration::from_secs(600);
const CONFIG_RETRY: Duration = Duration::from_secs(3);
/// Why a container waits whose image cannot be had.
const IMAGE_ERROR: &str = "ErrImagePull";
const IMAGE_RETRY: Duration = Duration::from_secs(60);
/// For the last words of processes that outlive their container's.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Pieces of input on their way to a process.
const TYPED: usize = 8;

pub struct Runner {
    pub shared: Arc<Shared>,
    pub pod: Arc<Pod>,
    pub dir: PathBuf,
    pub board: Arc<Board>,
    pub container: Container,
    pub place: usize,
    pub init: bool,
    pub end: End,
}

enum Outcome {
    Exited(Ended),
    /// Stopped because the Pod ends.
    Stopped(Ended),
}

/// What the Event says of a container that does not start. The same failure is told in the same words, so that
/// repetitions are counted.
fn failure(container: &Container, reason: &str, message: &str) -> String {
    match reason {
        IMAGE_ERROR => {
            let image = container.image.as_deref().unwrap_or_default();
            format!("Failed to pull image \"{image}\": {message}")
        }
        _ => format!("Error: {reason} of container {}: {message}", container.name),
    }
}

impl Runner {
    fn note(&self, change: impl FnOnce(&mut Progress)) {
        let list = if self.init { &self.board.init } else { &self.board.containers };
        let mut list = list.lock();
        if let Some(progress) = list.get_mut(self.place) {
            let before = progress.clone();
            change(progress);
            if *progress != before {
                self.board.changed.notify_one();
            }
        }
    }

    fn restarts(&self, code: i32) -> bool {
        let policy =
            self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
        match policy {
            "Never" => false,
            "OnFailure" => code != 0,
            _ => !self.init || code != 0,
        }
    }

    fn now(&self) -> jiff::Timestamp {
        // Statuses have whole seconds; finer ones would differ from what the API gives back.
        let now = self.shared.ctx.clock.now();
        jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    /// Runs until it will not run again. Returns whether it succeeded.
    pub async fn run(mut self) -> bool {
        let mut row = BACKOFF.begin();
        loop {
            let began = Instant::now();
            let started = self.now();
            let outcome = match self.once().await {
                Ok(outcome) => outcome,
                Err((reason, message, retry)) => {
                    warn!(
                        pod = self.pod.name_any(),
                        container = self.container.name,
                        reason,
                        message,
                        "container does not start"
                    );
                    let told = failure(&self.container, reason, &message);
                    self.shared.ctx.recorder.warning(&*self.pod, "Failed", "Start", told);
                    self.note(|progress| progress.state = State::Waiting { reason, message });
                    tokio::select! {
                        _ = ended(&mut self.end) => {}
                        () = sleep(retry) => continue,
                    }
                    self.note(|progress| progress.over = true);
                    return false;
                }
            };
            let (result, stopped) = match outcome {
                Outcome::Exited(result) => (result, false),
                Outcome::Stopped(result) => (result, true),
            };
            let again = !stopped && self.restarts(result.code);
            let finished = self.now();
            let reason = if result.code == 0 { "Completed" } else { "Error" };
            let state = State::Terminated {
                code: result.code,
                signal: result.signal,
                started,
                finished,
                reason,
                message: String::new(),
            };
            info!(
                pod = self.pod.name_any(),
                container = self.container.name,
                code = result.code,
                again,
                "container ended"
            );
            self.note(|progress| {
                progress.ready = self.init && result.code == 0;
                progress.over = !again;
                progress.state = state.clone();
            });
            if !again {
                return result.code == 0;
            }
            if began.elapsed() >= STABLE {
                row.reset();
            }
            let pause = row.delay();
            let told = format!("Back-off restarting failed container {}", self.container.name);
            self.shared.ctx.recorder.warning(&*self.pod, "BackOff", "Start", told);
            self.note(|progress| {
                progress.last = Some(state);
                progress.restarts += 1;
                progress.state = State::Waiting {
                    reason: "CrashLoopBackOff",
                    message: format!(
                        "back-off {}s restarting container {}",
                        pause.as_secs(),
                        self.container.name
                    ),
                };
            });
            tokio::select! {
                _ = ended(&mut self.end) => {
                    self.note(|progress| progress.over = true);
                    return false;
                }
                () = sleep(pause) => {}
            }
        }
    }

    /// One life of the process.
    async fn once(&mut self) -> Result<Outcome, (&'static str, String, Duration)> {
        let kubelet = &self.shared.kubelet;
        let config = |message: String| ("CreateContainerConfigError", message, CONFIG_RETRY);
        let volumes = Volumes {
            client: &self.shared.ctx.client,
            pod: &self.pod,
            address: self.shared.address,
            dir: self.dir.clone(),
        };
        let mounts = volumes.mounts(&self.container).map_err(config)?;
        let tree = volumes.tree(&self.container.name, &mounts).map_err(config)?;
        let source = Source { client: &self.shared.ctx.client, pod: &self.pod, address: self.shared.address };
        let env = source.build(&self.container, self.base(&tree)).await.map_err(config)?;
        let words = |words: &Option<Vec<String>>| -> Vec<String> {
            words.iter().flatten().map(|word| expand(word, &env)).collect()
        };
        let (command, args) = (words(&self.container.command), words(&self.container.args));
        let said = image::Container {
            image: self.container.image.as_deref().unwrap_or_default(),
            command: &command,
            args: &args,
        };
        let run = image::resolve(&said, self.shared.program.as_deref(), env.get("PATH").map(String::as_str));
        let run = run.map_err(|message| (IMAGE_ERROR, message, IMAGE_RETRY))?;
        let Run::Process { program, args } = run else {
            let since = self.now();
            self.note(|progress| (progress.state, progress.ready) = (State::Running { since }, true));
            ended(&mut self.end).await;
            return Ok(Outcome::Stopped(Ended { code: 0, signal: None }));
        };
        let log = Arc::new(self.log().map_err(|error| config(error.to_string()))?);
        let working = self.container.working_dir.as_ref().map(PathBuf::from).filter(|dir| dir.is_dir());
        let wants_input = self.container.stdin == Some(true);
        let start = Start {
            program: program.clone(),
            args: &args,
            env: Some(&env),
            mounts: &mounts,
            dir: working.as_deref(),
            launcher: kubelet.settings.launcher.as_deref(),
            beside: None,
            stdin: wants_input,
            terminal: self.container.tty == Some(true),
        };
        let process = Process::start(&start);
        let (mut process, streams) = process.map_err(|error| {
            ("RunContainerError", format!("{}: {error}", program.display()), CONFIG_RETRY)
        })?;
        let (typed, typing) = mpsc::channel(TYPED);
        let shared = self.shared.clone();
        let _entry = shared.live.enter(
            &self.pod.uid().unwrap_or_default(),
            &self.container.name,
            Instance {
                pid: process.id(),
                env: env.clone(),
                dir: working,
                log: log.clone(),
                stdin: Mutex::new(wants_input.then_some(typed)),
                stdin_once: self.container.stdin_once == Some(true),
                terminal: streams.terminal.clone(),
                ended: CancellationToken::new(),
            },
        );
        info!(
            pod = self.pod.name_any(),
            container = self.container.name,
            pid = process.id(),
            "container started"
        );
        let since = self.now();
        let probed = self.container.readiness_probe.is_some() || self.container.startup_probe.is_some();
        self.note(|progress| (progress.state, progress.ready) = (State::Running { since }, !probed));
        let mut end = self.end.clone();
        let life = async {
            tokio::select! {
                ended = process.wait() => Outcome::Exited(ended),
                grace = ended(&mut end) => Outcome::Stopped(self.stop(&mut process, &env, grace).await),
                () = self.watch(&env) => {
                    info!(pod = self.pod.name_any(), container = self.container.name, "container is not alive");
                    Outcome::Exited(self.stop(&mut process, &env, self.grace()).await)
                }
            }
        };
        Ok(Box::pin(with_streams(life, streams, typing, &log)).await)
    }

    /// The log of the start that is coming.
    fn log(&self) -> std::io::Result<Log> {
        let list = if self.init { &self.board.init } else { &self.board.containers };
        let restarts = list.lock().get(self.place).map_or(0, |progress| progress.restarts);
        Log::begin(&log::directory(&self.dir, &self.container.name), restarts)
    }

    fn grace(&self) -> Duration {
        let spec = self.pod.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    async fn stop(&self, process: &mut Process, env: &BTreeMap<String, String>, grace: Duration) -> Ended {
        self.note(|progress| progress.ready = false);
        let began = Instant::now();
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        if let Some(command) = hook.and_then(|hook| hook.exec.as_ref()?.command.as_deref())
            && let Some((program, args)) = command.split_first()
        {
            let mut command = tokio::process::Command::new(program);
            command.args(args).env_clear().envs(env).kill_on_drop(true);
            let _ = timeout(grace, command.status()).await;
        }
        process.terminate(grace.saturating_sub(began.elapsed())).await
    }

    /// What every process gets, whatever its container says.
    fn base(&self, tree: &std::path::Path) -> BTreeMap<String, String> {
        let (host, port) = self.shared.kubelet.api;
        [
            ("PATH", self.shared.kubelet.settings.path.clone()),
            ("HOSTNAME", self.pod.name_any()),
            ("KUBERNETES_SERVICE_HOST", host.to_string()),
            ("KUBERNETES_SERVICE_PORT", port.to_string()),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string()),
            ("KUBERNETES_PORT", format!("tcp://{}", crate::address::join(&host.to_string(), port))),
            (names::ENV_POD_ROOT, tree.display().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Follows the container's probes. Returns when it is to be started anew.
    async fn watch(&self, env: &BTreeMap<String, String>) {
        let prober = |probe| Prober { probe, container: &self.container, env };
        if let Some(startup) = &self.container.startup_probe {
            let prober = prober(startup);
            sleep(prober.delay()).await;
            let mut failures = 0;
            while !prober.check().await {
                failures += 1;
                if failures >= prober.failures() {
                    return;
                }
                sleep(prober.period()).await;
            }
            if self.container.readiness_probe.is_none() {
                self.note(|progress| progress.ready = true);
            }
        }
        let readiness = async {
            let Some(probe) = &self.container.readiness_probe else { return std::future::pending().await };
            let prober = prober(probe);
            sleep(prober.delay()).await;
            let mut failures = 0;
            loop {
                if prober.check().await {
                    failures = 0;
                    self.note(|progress| progress.ready = true);
                } else {
                    failures += 1;
                    if failures >= prober.failures() {
                        self.note(|progress| progress.ready = false);
                    }
                }
                sleep(prober.period()).await;
            }
        };
        let liveness = async {
            let Some(probe) = &self.container.liveness_probe else { return std::future::pending().await };
            let prober = prober(probe);
            sleep(prober.delay()).await;
            let mut failures = 0;
            loop {
                failures = if prober.check().await { 0 } else { failures + 1 };
                if failures >= prober.failures() {
                    return;
                }
                sleep(prober.period()).await;
            }
        };
        tokio::select! {
            () = readiness => {}
            () = liveness => {}
        }
    }
}

/// Carries what a process says and is told for as long as it lives, and its last words after.
async fn with_streams<T>(
    life: impl Future<Output = T>,
    streams: Streams,
    mut typing: mpsc::Receiver<Bytes>,
    log: &Log,
) -> T {
    let Streams { stdin, stdout, stderr, .. } = streams;
    let saying = async {
        let out = async {
            if let Some(stdout) = stdout {
                log.keep(Stream::Out, stdout).await;
            }
        };
        let err = async {
            if let Some(stderr) = stderr {
                log.keep(Stream::Err, stderr).await;
            }
        };
        tokio::join!(out, err);
    };
    let hearing = async {
        if let Some(mut stdin) = stdin {
            while let Some(bytes) = typing.recv().await {
                if stdin.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        }
        // Closes the input; the process goes on.
        std::future::pending::<()>().await;
    };
    tokio::pin!(life, saying, hearing);
    let mut silent = false;
    let outcome = loop {
        tokio::select! {
            outcome = &mut life => break outcome,
            () = &mut saying, if !silent => silent = true,
            () = &mut hearing => {}
        }
    };
    if !silent {
        let _ = timeout(LAST_WORDS, saying).await;
    }
    outcome
}
