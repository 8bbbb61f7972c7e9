//! Plans from the plan Secret.
//!
//! One task watches the Secret and keeps the newest version; another makes passes over it, on each
//! change and after each probe period.

use std::{path::PathBuf, sync::Arc, time::Duration};

use remuda_base::Backoff;
use remuda_plan::{CheckedPlan, DecodeError, key, probe};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Chain,
    apply::{ApplyError, Engine, Order},
    cluster_image,
    decide::{Data, Decision, Memory, Observed, Run, decide},
    disk::DiskError,
    journal::Journal,
    kube::{Event, Kube, KubeError, Secret},
    probe::Prober,
    report::{self, Merged, merge},
    stamp::Stamp,
};

/// A watch that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(30);
/// Between passes over a plan with nothing to check.
const QUIET: Duration = Duration::from_secs(60);
/// After somebody else wrote first.
const SOON: Duration = Duration::from_millis(500);
/// For what is under way when the agent is told to stop.
const GRACE: Duration = Duration::from_secs(5);
const CONFLICTS: usize = 10;
const TRIES: usize = 4;

/// The newest version of the Secret, `None` while there is none.
pub type Latest = Option<Arc<Secret>>;

/// Watches the Secret until the agent stops. Never gives up.
pub async fn watch(kube: Arc<Kube>, latest: watch::Sender<Latest>, stop: CancellationToken) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60)).begin();
    let mut has_failed = true;
    while !stop.is_cancelled() {
        let began = Instant::now();
        let round = tokio::select! {
            () = stop.cancelled() => return,
            round = follow(&kube, &latest, has_failed) => round,
        };
        if began.elapsed() > GOOD {
            backoff.reset();
        }
        has_failed = match round {
            Ok(()) => {
                // The server ended the watch, as it does every few minutes.
                has_failed = false;
                if began.elapsed() > GOOD {
                    continue;
                }
                false
            }
            Err(error) if error.is_expired() => false,
            Err(error) => {
                tracing::warn!(server = kube.server(), error = %Chain(&error), "plan Secret cannot be watched, will try again");
                true
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(backoff.jittered(rand::random())) => {}
        }
    }
}

async fn follow(kube: &Kube, latest: &watch::Sender<Latest>, check: bool) -> Result<(), KubeError> {
    if check {
        kube.check().await?;
    }
    let (secret, mut version) = kube.list().await?;
    if check {
        tracing::info!(server = kube.server(), found = secret.is_some(), "connected");
    }
    publish(latest, secret.map(Arc::new));
    loop {
        // Spread out, so that a fleet does not come back in step.
        let seconds = rand::random_range(240..480);
        let mut watch = kube.watch(&version, seconds).await?;
        let began = Instant::now();
        while let Some(event) = watch.next().await? {
            match event {
                Event::Changed(secret) => {
                    version = secret.version().to_owned();
                    publish(latest, Some(Arc::from(secret)));
                }
                Event::Deleted => publish(latest, None),
                Event::Bookmark(at) => version = at,
            }
        }
        if began.elapsed() < GOOD {
            return Ok(());
        }
    }
}

fn publish(latest: &watch::Sender<Latest>, secret: Latest) {
    latest.send_if_modified(|current| {
        let is_same = match (&*current, &secret) {
            (Some(old), Some(new)) => old.uid() == new.uid() && old.version() == new.version(),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            *current = secret;
        }
        !is_same
    });
}

/// Why a pass came to nothing. It is repeated with growing delays.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The plan is no plan.
    #[error(transparent)]
    Plan(#[from] DecodeError),
    /// The plan was not applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The Secret was not written.
    #[error("report to the plan Secret")]
    Report(#[from] KubeError),
    /// The journal cannot be used.
    #[error("journal")]
    Journal(#[from] DiskError),
}

/// Makes passes over the Secret.
pub struct Reconciler {
    kube: Arc<Kube>,
    engine: Arc<Mutex<Engine>>,
    prober: Prober,
    memory: Memory,
    journal: Option<Journal>,
    /// The Secret as this agent wrote it last; the watch may lag behind.
    own: Latest,
    decoded: Option<(Arc<Secret>, CheckedPlan)>,
    /// Where the image of the cluster agent is to be, and when it is asked for again; nothing once it is there.
    image: Option<(PathBuf, Instant)>,
}

/// What became of a write.
enum Written {
    Done(Secret),
    /// The Secret, if it still exists, holds another plan now.
    Superseded(Option<Secret>),
}

impl Reconciler {
    /// A reconciler that has seen nothing yet.
    pub fn new(kube: Arc<Kube>, engine: Arc<Mutex<Engine>>, prober: Prober) -> Self {
        Self {
            kube,
            engine,
            prober,
            memory: Memory::default(),
            journal: None,
            own: None,
            decoded: None,
            image: None,
        }
    }

    /// Makes passes until the agent stops.
    pub async fn run(mut self, mut latest: watch::Receiver<Latest>, stop: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300)).begin();
        let mut wake: Option<Instant> = None;
        loop {
            let timer = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = latest.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let seen = latest.borrow_and_update().clone();
                    if !self.is_news(seen.as_ref()) {
                        continue;
                    }
                }
                () = timer => {}
            }
            let Some(secret) = self.newest(latest.borrow().clone()) else {
                wake = None;
                continue;
            };
            // The journal makes it safe to drop a pass anywhere.
            let overdue = async {
                stop.cancelled().await;
                sleep(GRACE).await;
            };
            let passed = tokio::select! {
                passed = self.pass(secret, &stop) => passed,
                () = overdue => return,
            };
            let after = match passed {
                Ok(after) => {
                    backoff.reset();
                    after
                }
                Err(PassError::Apply(ApplyError::Stopping)) => return,
                Err(error) => {
                    let delay = backoff.jittered(rand::random());
                    tracing::warn!(error = %Chain(&error), retry_in = delay.as_secs(), "pass failed");
                    delay
                }
            };
            wake = Some(Instant::now() + after);
        }
    }

    /// Whether a version is not what this agent wrote itself.
    fn is_news(&self, seen: Option<&Arc<Secret>>) -> bool {
        match (seen, &self.own) {
            (Some(seen), Some(own)) => {
                seen.uid() != own.uid() || seen.version_number() > own.version_number()
            }
            _ => true,
        }
    }

    fn newest(&mut self, seen: Latest) -> Latest {
        let seen = seen?;
        match &self.own {
            Some(own) if own.uid() == seen.uid() && own.version_number() >= seen.version_number() => {
                Some(own.clone())
            }
            _ => {
                self.own = None;
                Some(seen)
            }
        }
    }

    /// One pass: decide, apply, probe, report. Returns when the next one is due.
    pub async fn pass(
        &mut self,
        secret: Arc<Secret>,
        stop: &CancellationToken,
    ) -> Result<Duration, PassError> {
        let now = Stamp::now();
        self.memory.notice(secret.uid(), &secret.data);
        let Some(raw) = secret.data.get(key::PLAN) else { return Ok(self.memory.probe_period) };
        let checked = match self.decoded.take() {
            Some((of, checked)) if Arc::ptr_eq(&of, &secret) => checked,
            _ => CheckedPlan::decode(raw)?,
        };
        let engine = self.engine.clone();
        let mut engine = engine.lock().await;
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => engine.journal("remote")?,
        };
        let decision = self.decide(&secret, &checked, &journal, engine.forces_on_start(), now);
        let done =
            self.carry_out(&mut engine, &mut journal, secret.clone(), &checked, &decision, now, stop).await;
        self.journal = Some(journal);
        drop(engine);
        // Somebody else wrote first; what they wrote is news for the next pass.
        let Some((base, applied)) = done? else { return Ok(SOON) };
        self.memory.has_run_once = true;

        let known = base.data.get(key::PROBE_STATUSES).map(|raw| probe::parse(raw).unwrap_or_default());
        let known = known.unwrap_or_default();
        let executed = decision.run.executes();
        let statuses = self.prober.check(&checked.plan.probes, &known, executed, stop).await;
        let statuses = statuses.ok_or(ApplyError::Stopping)?;
        // The plan is by far the largest part and not ours to change: it is not copied to learn that nothing did.
        let others = || base.data.iter().filter(|(name, _)| *name != key::PLAN);
        let mut data: Data = others().map(|(name, value)| (name.clone(), value.clone())).collect();
        report::compose(
            &mut data,
            &decision,
            &checked.checksum,
            applied.ended.as_ref(),
            applied.periodic,
            &statuses,
        );
        let is_same = data.iter().eq(others());

        let is_quiet = checked.plan.probes.is_empty()
            && checked.plan.periodic_instructions.is_empty()
            && !executed
            && !decision.was_failed
            && is_same;
        let mut current = base.clone();
        if !is_same {
            data.extend(base.data.get_key_value(key::PLAN).map(|(name, plan)| (name.clone(), plan.clone())));
            match self.write(&base, data).await? {
                Written::Done(secret) => current = self.wrote(secret),
                Written::Superseded(latest) => {
                    tracing::info!("the plan was replaced before its report arrived");
                    self.own = latest.map(Arc::new);
                    return Ok(SOON);
                }
            }
        }
        if current.data.get(key::PLAN) == base.data.get(key::PLAN) {
            self.decoded = Some((current, checked));
        }
        let period = self.memory.probe_period;
        Ok(if is_quiet { period.max(QUIET) } else { period })
    }

    fn decide(
        &self,
        secret: &Secret,
        checked: &CheckedPlan,
        journal: &Journal,
        force_on_start: bool,
        now: Stamp,
    ) -> Decision {
        let recorded = journal.recorded();
        let observed = Observed {
            uid: secret.uid(),
            version: secret.version_number(),
            data: &secret.data,
            checksum: &checked.checksum,
            recorded: recorded.as_ref(),
            force_on_start,
            now,
        };
        let decision = decide(&observed, &self.memory);
        match &decision.run {
            Run::Skip(reason) => tracing::debug!(%reason, "nothing to run"),
            run => tracing::debug!(?run, "decided"),
        }
        decision
    }

    /// Takes the plan, if that is to be told first, and applies it.
    #[expect(
        clippy::too_many_arguments,
        reason = "the halves of one pass, split to release the engine early"
    )]
    async fn carry_out(
        &mut self,
        engine: &mut Engine,
        journal: &mut Journal,
        secret: Arc<Secret>,
        checked: &CheckedPlan,
        decision: &Decision,
        now: Stamp,
        stop: &CancellationToken,
    ) -> Result<Option<(Arc<Secret>, crate::apply::Applied)>, PassError> {
        let mut base = secret;
        if decision.take {
            let mut data = base.data.clone();
            report::take(&mut data);
            base = match self.write(&base, data).await? {
                Written::Done(secret) => self.wrote(secret),
                Written::Superseded(latest) => {
                    self.own = latest.map(Arc::new);
                    return Ok(None);
                }
            };
        }
        let stored = if decision.was_failed { key::FAILED_OUTPUT } else { key::APPLIED_OUTPUT };
        let bytes = |name: &str| base.data.get(name).map_or(&[][..], Vec::as_slice);
        let order = Order {
            plan: checked,
            run: &decision.run,
            attempt: decision.attempt,
            output: bytes(stored),
            periodic: bytes(key::APPLIED_PERIODIC_OUTPUT),
            now,
        };
        if decision.run.executes() {
            self.image = cluster_image::directory(&checked.plan).map(|directory| (directory, Instant::now()));
        }
        self.deliver(stop).await?;
        let applied = engine.apply(&order, journal, stop).await?;
        Ok(Some((base, applied)))
    }

    /// Brings the image of the cluster agent, if it is owed and it is time. The plan does not wait for one that does not
    /// come.
    async fn deliver(&mut self, stop: &CancellationToken) -> Result<(), ApplyError> {
        let due = |(_, at): &mut (PathBuf, Instant)| *at <= Instant::now();
        let Some((directory, _)) = self.image.take_if(due) else { return Ok(()) };
        let delivered = tokio::select! {
            () = stop.cancelled() => return Err(ApplyError::Stopping),
            delivered = cluster_image::deliver(&self.kube, &directory) => delivered,
        };
        match delivered {
            Ok(delivered) => {
                tracing::debug!(?delivered, directory = %directory.display(), "image of the cluster agent");
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the image of the cluster agent cannot be brought, will try again");
                self.image = Some((directory, Instant::now() + QUIET));
            }
        }
        Ok(())
    }

    fn wrote(&mut self, secret: Secret) -> Arc<Secret> {
        let secret = Arc::new(secret);
        self.memory.uid = secret.uid().to_owned();
        self.memory.last_written = secret.version_number();
        self.own = Some(secret.clone());
        secret
    }

    /// Writes data that was made from `base`, on top of whatever others have written meanwhile.
    async fn write(&self, base: &Secret, ours: Data) -> Result<Written, KubeError> {
        let mut target = base.with(ours.clone());
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2)).begin();
        let (mut conflicts, mut failures) = (0, 0);
        loop {
            let error = match self.kube.update(&target).await {
                Ok(secret) => return Ok(Written::Done(secret)),
                Err(error) => error,
            };
            if error.is_not_found() {
                return Ok(Written::Superseded(None));
            }
            if error.is_conflict() && conflicts < CONFLICTS {
                conflicts += 1;
                let latest = match self.kube.get().await {
                    Ok(latest) => latest,
                    Err(error) if error.is_not_found() => return Ok(Written::Superseded(None)),
                    Err(error) => return Err(error),
                };
                if latest.uid() != base.uid() {
                    return Ok(Written::Superseded(Some(latest)));
                }
                match merge(&base.data, &ours, &latest.data) {
                    Merged::Superseded => return Ok(Written::Superseded(Some(latest))),
                    // An earlier try got through although its answer did not.
                    Merged::Data(data) if data == latest.data => return Ok(Written::Done(latest)),
                    Merged::Data(data) => target = latest.with(data),
                }
                continue;
            }
            failures += 1;
            if failures >= TRIES {
                return Err(error);
            }
            sleep(backoff.jittered(rand::random())).await;
        }
    }
}
