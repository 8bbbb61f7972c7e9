//! Carrying out what was decided: files, one-time instructions, periodic instructions.

use std::path::Path;

use remuda_names::agent::ERROR_OUTPUT;
use remuda_plan::{
    CheckedPlan, Command, PeriodicInstruction,
    output::{Blob, Outputs, PeriodicResults, pack, unpack},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Chain,
    config::Config,
    decide::{Identity, Run},
    disk::{DiskError, create_dirs, remove_all},
    environment::Environment,
    execute::{self, ExecuteError, Launch},
    files, history,
    image::Images,
    interlock::{self, InterlockError},
    journal::{End, Journal, boot_id, captured},
    periodic::{self, Ran},
    report::Ended,
    stamp::Stamp,
    unit_log,
};

/// Times an instruction may be cut off by a crash of the machine before it counts as failed. An
/// instruction that reboots the machine would otherwise do so for ever.
const TRIES: u32 = 3;

/// Everything plans are applied with. There is one, so plans never overlap.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    environment: Environment,
    images: Images,
    boot: String,
    /// Instructions left something in the work directory.
    is_dirty: bool,
}

/// What to apply.
#[derive(Debug)]
pub struct Order<'a> {
    /// The plan.
    pub plan: &'a CheckedPlan,
    /// How.
    pub run: &'a Run,
    /// Attempt number of one-time instructions.
    pub attempt: i64,
    /// Packed output so far.
    pub output: &'a [u8],
    /// Packed periodic results so far.
    pub periodic: &'a [u8],
    /// The time of the pass.
    pub now: Stamp,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Applied {
    /// How the execution ended, if there was one.
    pub ended: Option<Ended>,
    /// Periodic results, if one ran.
    pub periodic: Option<Vec<u8>>,
}

/// Why a plan was not applied. Nothing is reported then; the pass is repeated.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Not now.
    #[error(transparent)]
    Interlock(#[from] InterlockError),
    /// The agent is stopping.
    #[error("agent is stopping")]
    Stopping,
}

/// Why an execution failed, or did not end.
enum Failure {
    Stopping,
    Reason(String),
}

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Self {
        Self::Reason(Chain(&error).to_string())
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Stopping => Self::Stopping,
            other => Self::Reason(Chain(&other).to_string()),
        }
    }
}

impl Engine {
    /// An engine that works as configured.
    pub fn new(config: Config, environment: Environment, images: Images) -> Self {
        interlock::clear(&config.interlock_directory);
        Self { config, environment, images, boot: boot_id(), is_dirty: true }
    }

    /// Whether plans run at every start, regardless of the record.
    pub fn forces_on_start(&self) -> bool {
        self.config.force_apply_on_start
    }

    /// Opens the record of a plan source.
    pub fn journal(&self, source: &str) -> Result<Journal, DiskError> {
        Journal::open(&self.config.journal(), source)
    }

    /// Drops the records of plan files that are not among these.
    pub fn forget_local(&self, known: &std::collections::BTreeSet<String>) {
        crate::local::forget(&self.config.journal(), known);
    }

    /// Applies a plan.
    pub async fn apply(
        &mut self,
        order: &Order<'_>,
        journal: &mut Journal,
        stop: &CancellationToken,
    ) -> Result<Applied, ApplyError> {
        // Most plans have none, and are looked at every few seconds.
        let stored = if order.plan.plan.periodic_instructions.is_empty() { &[][..] } else { order.periodic };
        let results: PeriodicResults = unpack(stored).unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "stored periodic results are unreadable and will be replaced");
            PeriodicResults::new()
        });
        let executes = order.run.executes();
        let is_due = |instruction: &&PeriodicInstruction| {
            let previous = results.get(&instruction.name);
            periodic::due(instruction, previous, order.now, executes).is_some()
        };
        let is_quiet = !order.plan.plan.periodic_instructions.iter().any(|instruction| is_due(&instruction));
        if matches!(order.run, Run::Skip(_)) && is_quiet {
            if self.is_dirty && !self.config.preserve_work_directory && journal.open_try().is_none() {
                self.is_dirty = remove_all(&self.config.work_directory).is_err();
            }
            return Ok(Applied::default());
        }

        let _active = interlock::acquire(&self.config.interlock_directory, order.now)?;
        if let Err(error) = history::record(&self.config.applied_plan_directory, order.plan, order.now) {
            tracing::warn!(error = %Chain(&error), "cannot record applied plan");
        }
        let ended = match order.run {
            Run::Skip(_) => None,
            Run::Files => {
                if let Err(error) = self.write_files(order.plan) {
                    tracing::warn!(%error, "cannot restore files of the applied plan");
                }
                None
            }
            Run::Begin(identity) => Some(self.execute(order, journal, Some(identity), stop).await?),
            Run::Resume(_) => Some(self.execute(order, journal, None, stop).await?),
        };
        let periodic = self.run_periodic(order, journal, results, executes, stop).await?;
        Ok(Applied { ended, periodic })
    }

    fn write_files(&self, plan: &CheckedPlan) -> Result<(), String> {
        plan.plan.files.iter().try_for_each(files::apply).map_err(|error| Chain(&error).to_string())
    }

    /// Begins an execution, or takes up the one on record.
    async fn execute(
        &mut self,
        order: &Order<'_>,
        journal: &mut Journal,
        begin: Option<&Identity>,
        stop: &CancellationToken,
    ) -> Result<Ended, ApplyError> {
        let outcome = match self.begin(order, journal, begin, stop).await {
            Ok(()) => match journal.current().and_then(|execution| execution.ended.clone()) {
                Some(end) => Ok(end),
                None => self.run_steps(order, journal, stop).await,
            },
            Err(failure) => Err(failure),
        };
        let end = match outcome {
            Ok(end) => end,
            Err(Failure::Stopping) => return Err(ApplyError::Stopping),
            Err(Failure::Reason(error)) => {
                let end = End { succeeded: false, error };
                // If even this cannot be written the report still goes out; it changes the trigger.
                let _ = journal.update(|execution| execution.ended = Some(end.clone()));
                end
            }
        };
        if end.succeeded {
            tracing::info!(checksum = order.plan.checksum, "plan applied");
        } else {
            tracing::error!(checksum = order.plan.checksum, error = end.error, "plan failed");
        }
        Ok(self.ended(order, journal, &end))
    }

    async fn begin(
        &mut self,
        order: &Order<'_>,
        journal: &mut Journal,
        begin: Option<&Identity>,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        self.is_dirty = true;
        if let Some(identity) = begin {
            // What an agent before us started goes on; two plans never run at the same time.
            if let Some((index, step)) = journal.open_try() {
                let directory = journal.try_directory(index, step.tries);
                execute::wait_for_end(&directory, step, &self.boot, stop).await?;
            }
            journal.begin(identity.clone(), order.attempt, order.now)?;
            tracing::info!(checksum = order.plan.checksum, attempt = order.attempt, "applying plan");
        } else {
            tracing::info!(checksum = order.plan.checksum, "taking up an execution that was not reported");
        }
        if journal.current().is_some_and(|execution| execution.files_done || execution.ended.is_some()) {
            return Ok(());
        }
        self.write_files(order.plan).map_err(Failure::Reason)?;
        if !self.config.preserve_work_directory {
            remove_all(&self.config.work_directory)?;
        }
        Ok(journal.update(|execution| execution.files_done = true)?)
    }

    async fn run_steps(
        &mut self,
        order: &Order<'_>,
        journal: &mut Journal,
        stop: &CancellationToken,
    ) -> Result<End, Failure> {
        for (index, instruction) in order.plan.plan.instructions.iter().enumerate() {
            let command = instruction.command();
            let status = self.run_step(order, journal, index, command, stop).await;
            let status = status.map_err(|failure| match failure {
                Failure::Reason(reason) => Failure::Reason(format!("{}: {reason}", title(index, command))),
                stopping @ Failure::Stopping => stopping,
            })?;
            if status != 0 {
                let reason = self.complaint(journal, index).await;
                return Err(Failure::Reason(format!(
                    "{}: exit code {status}{reason}",
                    title(index, command)
                )));
            }
        }
        let end = End { succeeded: true, error: String::new() };
        journal.update(|execution| execution.ended = Some(end.clone()))?;
        Ok(end)
    }

    /// Sees one instruction through, in as many tries as crashes of the machine make necessary.
    async fn run_step(
        &mut self,
        order: &Order<'_>,
        journal: &mut Journal,
        index: usize,
        command: Command<'_>,
        stop: &CancellationToken,
    ) -> Result<i64, Failure> {
        let label = format!("{}_{index}", order.plan.checksum);
        loop {
            let Some(execution) = journal.current() else {
                return Err(Failure::Reason("journal is empty".into()));
            };
            let work = self.config.work_directory.join(&execution.work).join(&label);
            let attempt = execution.attempt;
            let step = match execution.steps.get(index).filter(|step| step.tries > 0) {
                Some(step) => step.clone(),
                None => {
                    self.stage(&work, command, stop).await?;
                    journal.intend(index, &self.boot)?;
                    continue;
                }
            };
            if let Some(status) = step.exit {
                return Ok(status);
            }
            let directory = journal.try_directory(index, step.tries);
            let attempt = attempt.saturating_add(i64::from(step.tries) - 1);
            let launch = || Launch::new(command, &work, attempt, &self.environment);
            let status = execute::see_through(launch, &directory, &step, &self.boot, &label, stop).await?;
            if let Some(status) = status {
                journal.update(|execution| execution.steps[index].exit = Some(status))?;
                return Ok(status);
            }
            tracing::warn!(
                instruction = title(index, command),
                "instruction was interrupted, its outcome is unknown"
            );
            if self.config.fail_interrupted || step.tries >= TRIES {
                journal.update(|execution| execution.steps[index].exit = Some(-1))?;
                return Err(Failure::Reason(format!("interrupted {} times, outcome unknown", step.tries)));
            }
            self.stage(&work, command, stop).await?;
            journal.intend(index, &self.boot)?;
        }
    }

    /// Makes the work directory of an instruction.
    async fn stage(
        &self,
        work: &Path,
        command: Command<'_>,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        if command.image.is_empty() {
            return Ok(create_dirs(work, 0o755)?);
        }
        remove_all(work)?;
        create_dirs(work, 0o755)?;
        tracing::info!(image = command.image, "unpacking image");
        tokio::select! {
            () = stop.cancelled() => Err(Failure::Stopping),
            staged = self.images.stage(work, command.image) => {
                staged.map_err(|error| Failure::Reason(format!("image {}: {}", command.image, Chain(&error))))
            }
        }
    }

    /// The end of what the instruction had to say about its failure.
    async fn complaint(&self, journal: &Journal, index: usize) -> String {
        const TAIL: usize = 1024;
        let tries =
            journal.current().and_then(|execution| execution.steps.get(index)).map_or(0, |step| step.tries);
        let stderr = captured(&journal.try_directory(index, tries), "stderr");
        let text = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(TAIL)..]).trim().to_owned();
        match unit_log::of_failed(&text, &self.environment).await {
            _ if text.is_empty() => text,
            Some(log) => format!(": {text}\n{log}"),
            None => format!(": {text}"),
        }
    }

    /// The report of an execution, from what its instructions left in the journal.
    fn ended(&self, order: &Order<'_>, journal: &Journal, end: &End) -> Ended {
        let mut outputs: Outputs = unpack(order.output).unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "stored output is unreadable and will be replaced");
            Outputs::new()
        });
        outputs.remove(ERROR_OUTPUT);
        let execution = journal.current();
        for (index, instruction) in
            order.plan.plan.instructions.iter().enumerate().filter(|(_, one)| one.save_output)
        {
            let Some(step) =
                execution.and_then(|execution| execution.steps.get(index)).filter(|step| step.tries > 0)
            else {
                break;
            };
            if instruction.name.is_empty() {
                tracing::warn!(index, "instruction has no name to save its output under");
                continue;
            }
            let stdout = captured(&journal.try_directory(index, step.tries), "stdout");
            outputs.insert(instruction.name.clone(), Blob(stdout));
        }
        if !end.succeeded {
            outputs.insert(ERROR_OUTPUT.to_owned(), Blob(end.error.clone().into_bytes()));
        }
        let began = execution.map_or(order.now, |execution| Stamp(execution.began));
        Ended { succeeded: end.succeeded, output: pack(outputs), began }
    }

    async fn run_periodic(
        &mut self,
        order: &Order<'_>,
        journal: &Journal,
        mut results: PeriodicResults,
        forced: bool,
        stop: &CancellationToken,
    ) -> Result<Option<Vec<u8>>, ApplyError> {
        let mut has_run = false;
        for (index, instruction) in order.plan.plan.periodic_instructions.iter().enumerate() {
            let name = &instruction.name;
            if name.is_empty() {
                tracing::warn!(index, "periodic instruction has no name and is not run");
                continue;
            }
            let previous = results.get(name);
            let Some(attempt) = periodic::due(instruction, previous, order.now, forced) else { continue };
            let label = format!("{}_{index}", order.plan.checksum);
            let work = self.config.work_directory.join(order.now.compact()).join(&label);
            self.is_dirty = true;
            let ran = match self.run_once(&work, instruction.command(), attempt, journal, &label, stop).await
            {
                Ok(ran) => ran,
                Err(Failure::Stopping) => return Err(ApplyError::Stopping),
                Err(Failure::Reason(error)) => {
                    tracing::warn!(name, error, "periodic instruction did not run");
                    Ran { exit_code: -1, ..Ran::default() }
                }
            };
            has_run = true;
            let failed = ran.exit_code != 0;
            let result = periodic::result(instruction, previous, ran, order.now);
            results.insert(name.clone(), result);
            if failed {
                break;
            }
        }
        Ok(has_run.then(|| pack(results)))
    }

    async fn run_once(
        &self,
        work: &Path,
        command: Command<'_>,
        attempt: i64,
        journal: &Journal,
        label: &str,
        stop: &CancellationToken,
    ) -> Result<Ran, Failure> {
        self.stage(work, command, stop).await?;
        let scratch = journal.scratch()?;
        let launch = Launch::new(command, work, attempt, &self.environment)?;
        let ran = execute::run(&launch, &scratch, label, stop).await?;
        let _ = remove_all(&scratch);
        Ok(ran)
    }
}

fn title(index: usize, command: Command<'_>) -> String {
    if command.name.is_empty() {
        format!("instruction {index}")
    } else {
        format!("instruction {index} ({})", command.name)
    }
}

#[cfg(test)]
mod tests;
