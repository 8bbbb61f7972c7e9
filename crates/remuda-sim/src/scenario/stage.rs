//! Where a scenario is played.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::Client;
use remuda_control::{
    Ctx,
    clock::Clock,
    informer::{Informers, Options as InformerOptions},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{narrative::Narrative, script::Script};
use crate::{options::Options, providers, workload::Workloads};

/// The controllers under test.
pub trait Controllers: Send + Sync {
    /// Runs them until told to stop.
    fn run(&self, workloads: Workloads, stop: CancellationToken) -> BoxFuture<'static, ()>;
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("line {line}: {why}")]
    Command { line: usize, why: String },
}

/// Nothing settles later than this.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// What has not changed for so long has settled. Longer than any interval at which controllers look again of
/// themselves while something is under way.
const SETTLED: u64 = 45;

/// A world to play in: an API with the kinds installed, and time that can be told to pass.
pub struct Stage {
    pub(super) client: Client,
    clock: Arc<dyn Clock>,
    controllers: Arc<dyn Controllers>,
    pub(super) options: Options,
    pub(super) workloads: Workloads,
    pub(super) narrative: Narrative,
    informers: Informers,
    running: Option<Running>,
    /// The script has stopped the controllers, and has not started them yet.
    pub(super) stopped: bool,
    seconds: u64,
    told: String,
}

struct Running {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    ctx: Arc<Ctx>,
}

impl Stage {
    pub async fn new(client: Client, clock: Arc<dyn Clock>, controllers: Arc<dyn Controllers>) -> Self {
        let workloads = Workloads::new(1, clock.clone());
        let informers = Informers::new(client.clone(), InformerOptions::default(), Default::default());
        let narrative = Narrative::new(&informers, workloads.clone());
        narrative.wait_synced().await;
        Self {
            client,
            clock,
            controllers,
            options: Options::default(),
            workloads,
            narrative,
            informers,
            running: None,
            stopped: false,
            seconds: 0,
            told: String::new(),
        }
    }

    /// How the providers behave from their next start on.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    pub fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    /// Plays a script and gives the narrative of each block.
    pub async fn play(&mut self, script: &Script) -> Result<Vec<String>, RunError> {
        let mut narratives = Vec::new();
        for block in &script.blocks {
            for (line, command) in &block.commands {
                let done = self.command(command).await;
                done.map_err(|why| RunError::Command { line: *line, why })?;
            }
            narratives.push(std::mem::take(&mut self.told));
        }
        Ok(narratives)
    }

    /// Starts the controllers, and the providers, if they do not run.
    pub fn start(&mut self) {
        if self.running.is_some() {
            return;
        }
        let stop = CancellationToken::new();
        let ctx = Ctx::new(self.client.clone(), "remuda-sim").with_clock(self.clock.clone());
        let ctx = Arc::new(ctx);
        let mut tasks = JoinSet::new();
        let (options, workloads) = (self.options.clone(), self.workloads.clone());
        tasks.spawn(providers::run(ctx.clone(), options, workloads.clone(), stop.clone()));
        tasks.spawn(self.controllers.run(workloads, stop.clone()));
        self.running = Some(Running { stop, tasks, ctx });
    }

    pub async fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.stop.cancel();
            while running.tasks.join_next().await.is_some() {}
            running.ctx.stop().await;
        }
    }

    /// Ends the controllers and the providers in the middle of whatever they do.
    pub async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.tasks.shutdown().await;
            running.ctx.stop().await;
        }
    }

    /// Ends everything.
    pub async fn end(mut self) {
        self.stop().await;
        self.informers.stop().await;
    }

    /// Adds a line to the narrative.
    pub(super) fn say(&mut self, line: &str) {
        let plain = self.narrative.plain(line);
        self.told.push_str(&format!("{}  {plain}\n", time(self.seconds)));
    }

    /// Lets a second pass, and tells whether anything happened in it.
    pub(super) async fn second(&mut self) -> bool {
        self.skip(1).await
    }

    /// Lets time pass without a look at the world until it is over.
    pub(super) async fn skip(&mut self, seconds: u64) -> bool {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.seconds += seconds;
        let lines = self.narrative.look();
        for line in &lines {
            self.say(line);
        }
        !lines.is_empty()
    }

    pub(super) async fn wait(&mut self, duration: Duration) {
        for _ in 0..duration.as_secs() {
            self.second().await;
        }
    }

    pub(super) async fn settle(&mut self) -> Result<(), String> {
        let mut quiet = 0;
        for _ in 0..PATIENCE.as_secs() {
            quiet = if self.second().await { 0 } else { quiet + 1 };
            if quiet == SETTLED {
                // The time in which nothing happened is not part of the story.
                return Ok(());
            }
        }
        Err("nothing settled".to_owned())
    }
}

fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes:02}m{seconds:02}s"),
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("seconds", &self.seconds).finish_non_exhaustive()
    }
}
