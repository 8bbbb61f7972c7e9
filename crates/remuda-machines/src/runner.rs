//! Runs the Jobs of machines as child processes, where there is no Kubernetes to run them.
//!
//! Reads   Jobs of machines, and the Secrets they name.
//! Writes  the Jobs' status, tokens of their ServiceAccounts, and one ConfigMap per machine with the log.
//! Never   touches other Jobs, nor runs one that the machine provider did not seal.
//!
//! A process is not tied to the server's life: it writes its log to a file and its last word to another, and a
//! server that starts finds both, and the process by its id and start time. What cannot be found is run again,
//! which the state Secret makes safe.
//!
//! Of several servers the elected one runs Jobs. Those of machines that exist on one server's own host are run there,
//! whoever is elected, and the elected server tells when that one has not been heard of.

mod files;
pub(crate) mod log;
mod process;
mod status;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{Api, ResourceExt, api::DeleteParams};
use parking_lot::Mutex;
use remuda_base::Backoff;
use remuda_control::{
    Action, Controller, Ctx, Enqueuer, Informer, ObjectKey, drive_keys, leases::Leadership,
};
use remuda_names::machines::{annotation, file, label};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::{files::inherited, process::end};
use self::{
    process::{Process, Running},
    status::{End, State},
};
use crate::{
    Options,
    error::{Error, is_missing},
    host::Host,
    machine,
    seal::Seal,
};

/// A Job that another server has to run is waited for this long before that is told.
const UNHEARD: Duration = Duration::from_secs(15);
/// The same for one it has begun with.
const STALLED: Duration = Duration::from_secs(300);

/// A safety net only.
const RESYNC: Duration = Duration::from_secs(600);

pub(crate) struct Runner {
    ctx: Arc<Ctx>,
    options: Arc<Options>,
    seal: Seal,
    host: Option<Arc<Host>>,
    directory: PathBuf,
    jobs: Informer<Job>,
    state: Mutex<Table>,
    tasks: TaskTracker,
    enqueuers: [Enqueuer; 2],
}

/// The two queues of a runner, and what each is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Jobs that can be run by any server, on the elected one.
    Elected,
    /// Jobs that can be run on this host only.
    OfHost,
}

#[derive(Default)]
struct Table {
    /// By the Job's uid.
    runs: HashMap<String, Run>,
    /// Jobs that wait for a place.
    waiting: VecDeque<ObjectKey>,
}

/// A Job that is this runner's business.
struct Run {
    key: ObjectKey,
    step: Step,
}

enum Step {
    /// A place is taken, the process is being set up.
    Starting,
    Running(Running),
    /// It has ended and that is to be written.
    Ended(crate::job::JobResult),
    /// It failed and is tried again then.
    Resting(Instant),
}

pub(crate) async fn run(
    ctx: Arc<Ctx>,
    options: Arc<Options>,
    seal: Seal,
    host: Option<Arc<Host>>,
    stop: CancellationToken,
) {
    let jobs = machine::jobs(&ctx);
    let elected = Controller::on("machine-jobs", &ctx, jobs.clone()).workers(options.workers);
    let everywhere = (*ctx).clone().with_leadership(Leadership::always());
    let of_host = Controller::on("machine-jobs-of-host", &everywhere, jobs.clone()).workers(options.workers);
    let runner = Arc::new(Runner {
        directory: options.data_dir.join(file::JOBS),
        enqueuers: [elected.enqueuer(), of_host.enqueuer()],
        host,
        tasks: TaskTracker::new(),
        state: Mutex::default(),
        ctx,
        options,
        seal,
        jobs,
    });
    let own = runner.clone();
    tokio::select! {
        () = stop.cancelled() => return,
        () = own.jobs.wait_synced() => own.sweep(),
    }
    let drive = |controller, share| {
        drive_keys(
            controller,
            move |key, runner: Arc<Runner>| async move { runner.reconcile(key, share).await },
            runner.clone(),
            stop.clone(),
        )
    };
    futures::join!(drive(elected, Share::Elected), drive(of_host, Share::OfHost));
    // Processes go on; whoever starts next finds them.
    own.tasks.close();
    for (_, run) in own.state.lock().runs.drain() {
        if let Step::Running(running) = run.step {
            running.leave();
        }
    }
}

impl Runner {
    fn directory(&self, uid: &str) -> PathBuf {
        self.directory.join(uid)
    }

    /// Ends what is left of Jobs that went while no server ran.
    fn sweep(&self) {
        let known: BTreeSet<String> = self.jobs.list().iter().filter_map(|job| job.uid()).collect();
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            if !known.contains(&uid) {
                if let Some(process) = Process::find(&entry.path()) {
                    process.kill();
                }
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    fn enqueue(&self, key: &ObjectKey) {
        for enqueuer in &self.enqueuers {
            enqueuer.enqueue(key.clone());
        }
    }

    async fn reconcile(self: &Arc<Self>, key: ObjectKey, share: Share) -> Result<Action, Error> {
        let job = self.jobs.get(&key);
        let uid = job.as_ref().and_then(|job| job.uid());
        self.stop_others(&key, uid.as_deref());
        let (Some(job), Some(uid)) = (job, uid) else { return Ok(Action::AwaitChange) };
        let here = self.host.as_ref().map(|host| host.id.as_str());
        match (job.labels().get(label::HOST).map(String::as_str), share) {
            (None, Share::Elected) => {}
            (Some(host), Share::OfHost) if Some(host) == here => {}
            (Some(host), Share::Elected) if Some(host) != here => return self.look_after(&job).await,
            _ => return Ok(Action::AwaitChange),
        }
        if job.metadata.deletion_timestamp.is_some() {
            self.stop_others(&key, None);
            return Ok(Action::AwaitChange);
        }
        let state = State::of(&job);
        if let Some(ended) = state.ended {
            self.state.lock().runs.remove(&uid);
            let _ = std::fs::remove_dir_all(self.directory(&uid));
            return self.expire(&job, ended).await;
        }
        if state.suspended {
            self.stop_others(&key, None);
            return Ok(Action::AwaitChange);
        }
        let left = state.deadline.map(|deadline| {
            Duration::try_from(deadline.duration_since(self.ctx.clock.now())).unwrap_or_default()
        });
        if left == Some(Duration::ZERO) {
            self.stop_others(&key, None);
            let message = "timeout: the job took longer than it may".to_owned();
            return self.end(&job, End::Failed { reason: "DeadlineExceeded", message }).await;
        }
        let ended = match self.state.lock().runs.get(&uid).map(|run| &run.step) {
            Some(Step::Starting | Step::Running(_)) => {
                return Ok(Action::RequeueAfter(left.unwrap_or(RESYNC).min(RESYNC)));
            }
            Some(Step::Ended(result)) => Some(result.clone()),
            Some(Step::Resting(until)) if Instant::now() < *until && !state.cancelled => {
                return Ok(Action::RequeueAfter(until.duration_since(Instant::now())));
            }
            Some(Step::Resting(_)) | None => None,
        };
        // A process of an earlier server may be under way; it is waited for as one of our own.
        if ended.is_none() && state.cancelled && Process::find(&self.directory(&uid)).is_none() {
            let message = "other: the job was cancelled between two attempts".to_owned();
            return self.end(&job, End::Failed { reason: status::CANCELLED, message }).await;
        }
        if ended.is_none() && !self.seal.holds(&job).await? {
            let message = "other: the job was not made by the machine provider".to_owned();
            return self.end(&job, End::Failed { reason: "NotSealed", message }).await;
        }
        match ended {
            Some(result) => self.judge(&job, &state, &uid, result).await,
            None => self.start(&job, &uid, &state).await,
        }
    }

    /// A Job that another server has to run: says so when that server does not, and gives it up in the end.
    async fn look_after(&self, job: &Job) -> Result<Action, Error> {
        let state = State::of(job);
        if state.ended.is_some() || job.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let made = job.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let since = self.ctx.clock.now().duration_since(state.started.unwrap_or(made));
        let since = Duration::try_from(since).unwrap_or_default();
        let name = job.annotations().get(annotation::HOST_NAME).map(String::as_str).unwrap_or_default();
        if let Some(longest) = state.longest.filter(|longest| since >= *longest) {
            let message =
                format!("timeout: the server on host {name} did not end the job within {longest:?}");
            return self.end(job, End::Failed { reason: "DeadlineExceeded", message }).await;
        }
        // Removing takes a moment; making may take minutes, and is not waiting.
        let patience = if state.active { STALLED } else { UNHEARD };
        if since >= patience && !state.waiting {
            let waiting = status::without_host(job, name, self.ctx.clock.now());
            status::write_over(self, job, waiting).await?;
        }
        let next = if since < patience { patience } else { state.longest.unwrap_or(RESYNC) };
        Ok(Action::RequeueAfter(next.saturating_sub(since).max(Duration::from_secs(1)).min(RESYNC)))
    }

    /// Ends processes of Jobs that had this name, all but one.
    fn stop_others(&self, key: &ObjectKey, keep: Option<&str>) {
        let mut state = self.state.lock();
        let others: Vec<String> = state
            .runs
            .iter()
            .filter(|(uid, run)| run.key == *key && Some(uid.as_str()) != keep)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in others {
            if let Some(run) = state.runs.remove(&uid) {
                if let Step::Running(running) = run.step {
                    running.kill();
                }
                let _ = std::fs::remove_dir_all(self.directory(&uid));
                if let Some(next) = state.waiting.pop_front() {
                    self.enqueue(&next);
                }
            }
        }
    }

    /// Deletes a Job whose time is over.
    async fn expire(&self, job: &Job, ended: Timestamp) -> Result<Action, Error> {
        let Some(seconds) = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished) else {
            return Ok(Action::AwaitChange);
        };
        let passed = self.ctx.clock.now().duration_since(ended).as_secs();
        let left = u64::try_from(i64::from(seconds) - passed).unwrap_or_default();
        if left > 0 {
            return Ok(Action::RequeueAfter(Duration::from_secs(left)));
        }
        match self.api(job).delete(&job.name_any(), &DeleteParams::background()).await {
            Err(error) if !is_missing(&error) => Err(Error::api("delete Job", job.name_any())(error)),
            _ => Ok(Action::AwaitChange),
        }
    }

    fn api(&self, job: &Job) -> Api<Job> {
        Api::namespaced(self.ctx.client.clone(), &job.namespace().unwrap_or_default())
    }

    /// What the end of a process means for its Job.
    async fn judge(
        self: &Arc<Self>,
        job: &Job,
        state: &State,
        uid: &str,
        result: crate::job::JobResult,
    ) -> Result<Action, Error> {
        match state.verdict(result.code) {
            status::Verdict::Complete => self.end(job, End::Complete).await,
            status::Verdict::Failed(reason) => {
                self.end(job, End::Failed { reason, message: result.message }).await
            }
            status::Verdict::Again => {
                let failed = state.failed + 1;
                status::write(self, job, status::failed(job, failed)).await?;
                let backoff = Backoff::new(self.options.retry, Duration::from_secs(360));
                let until = Instant::now() + backoff.delay(failed.into());
                files::forget_process(&self.directory(uid));
                let mut table = self.state.lock();
                if let Some(run) = table.runs.get_mut(uid) {
                    run.step = Step::Resting(until);
                }
                tracing::info!(job = %ObjectKey::of(&job.metadata), failed, "job failed and is tried again");
                Ok(Action::RequeueAfter(until.duration_since(Instant::now())))
            }
        }
    }

    async fn end(&self, job: &Job, end: End) -> Result<Action, Error> {
        let now = self.ctx.clock.now();
        status::write(self, job, status::ended(job, &end, now)).await?;
        Ok(Action::RequeueAfter(Duration::from_secs(1)))
    }

    /// Takes a place and starts the process, or goes on with one that is there.
    async fn start(self: &Arc<Self>, job: &Job, uid: &str, state: &State) -> Result<Action, Error> {
        let key = ObjectKey::of(&job.metadata);
        let place = {
            let mut table = self.state.lock();
            let busy = table
                .runs
                .values()
                .filter(|run| matches!(run.step, Step::Starting | Step::Running(_)))
                .count();
            let place = busy < self.options.processes;
            if place {
                table.waiting.retain(|waiting| *waiting != key);
                table.runs.insert(uid.to_owned(), Run { key, step: Step::Starting });
            } else if !table.waiting.contains(&key) {
                table.waiting.push_back(key);
            }
            place
        };
        if !place {
            if !state.waiting {
                let waiting = status::without_place(self.options.processes, self.ctx.clock.now());
                status::write(self, job, waiting).await?;
            }
            // It is woken when its turn comes, unless that went to a Job that was gone by then.
            return Ok(Action::RequeueAfter(Duration::from_secs(5)));
        }
        let mut started = self.launch(job, uid, state).await;
        if let Err(Error::NoSecret { name }) = &started
            && !state.waiting
        {
            let waiting = status::without_secret(name, self.ctx.clock.now());
            if let Err(error) = status::write(self, job, waiting).await {
                started = Err(error);
            }
        }
        let mut table = self.state.lock();
        // The Job may have gone meanwhile.
        let Some(run) = table.runs.get_mut(uid) else {
            if let Ok(process) = started {
                process.kill();
            }
            return Ok(Action::AwaitChange);
        };
        match started {
            Ok(process) => {
                let running = self.follow(job, uid, process);
                run.step = Step::Running(running);
                Ok(Action::RequeueAfter(RESYNC))
            }
            Err(error) => {
                table.runs.remove(uid);
                Err(error)
            }
        }
    }

    async fn launch(&self, job: &Job, uid: &str, state: &State) -> Result<Process, Error> {
        let directory = self.directory(uid);
        if let Some(process) = Process::find(&directory) {
            tracing::info!(job = %ObjectKey::of(&job.metadata), pid = process.pid(), "job goes on");
            return Ok(process);
        }
        let plan = files::prepare(self, job, &directory, state).await?;
        let process = Process::spawn(plan, &directory).await?;
        if state.started.is_none() || !state.active {
            status::write(self, job, status::started(job, self.ctx.clock.now())).await?;
        }
        Ok(process)
    }

    /// Waits for the end of a process, and keeps its log.
    fn follow(self: &Arc<Self>, job: &Job, uid: &str, process: Process) -> Running {
        let (running, ended) = process.run();
        let (runner, job, uid) = (self.clone(), job.clone(), uid.to_owned());
        let directory = self.directory(&uid);
        self.tasks.spawn(async move {
            let key = ObjectKey::of(&job.metadata);
            let result = log::keep_until(&runner, &job, &directory, ended).await;
            let Some(result) = result else { return };
            let mut table = runner.state.lock();
            if let Some(run) = table.runs.get_mut(&uid) {
                run.step = Step::Ended(result);
            }
            let next = table.waiting.pop_front();
            drop(table);
            for key in next.into_iter().chain([key]) {
                runner.enqueue(&key);
            }
        });
        running
    }
}
