//! One Pod: its volumes, its containers in order, its status, its end.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use parking_lot::Mutex;
use remuda_control::{ObjectKey, write};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::{
    Shared,
    containers::{Board, End, Runner, ended},
    status::{self, Facts, Progress, State},
    volumes::{self, Volumes},
};
use crate::control::pods::{is_deleting, is_over};

/// The way to a Pod's task.
pub struct Handle {
    pub key: ObjectKey,
    latest: watch::Sender<Arc<Pod>>,
    gone: CancellationToken,
}

impl Handle {
    pub fn update(&self, pod: Arc<Pod>) {
        self.latest.send_replace(pod);
    }

    /// The Pod is no longer in the API.
    pub fn gone(&self) {
        self.gone.cancel();
    }

    pub fn is_over(&self) -> bool {
        self.latest.is_closed()
    }
}

pub fn start(shared: Arc<Shared>, key: ObjectKey, pod: Arc<Pod>, tasks: &TaskTracker) -> Handle {
    let (latest, receiver) = watch::channel(pod);
    let gone = CancellationToken::new();
    let dir = shared.kubelet.settings.paths.pods().join(receiver.borrow().uid().unwrap_or_default());
    let task = Task { shared, dir, latest: receiver, gone: gone.clone() };
    tasks.spawn(task.run());
    Handle { key, latest, gone }
}

struct Task {
    shared: Arc<Shared>,
    dir: PathBuf,
    latest: watch::Receiver<Arc<Pod>>,
    gone: CancellationToken,
}

/// When the node stops, Pods have no more than this.
const NODE_STOPS: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
const VOLUME_RETRY: Duration = Duration::from_secs(2);

/// Why a Pod's task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Deleted,
    Gone,
    NodeStops,
}

impl Task {
    async fn run(mut self) {
        let pod = self.latest.borrow_and_update().clone();
        let board = Arc::new(board(&pod));
        let (end, ending) = watch::channel(None);
        let mut why = None;
        if !is_over(&pod) {
            let died = died_with_the_node(&pod);
            if died {
                self.report_lost(&pod, &board).await;
            } else {
                let work = work(self.shared.clone(), pod, self.dir.clone(), board.clone(), ending);
                why = Box::pin(self.follow(work, &board, &end)).await;
            }
        }
        let why = match why {
            Some(why) => why,
            None => self.deletion().await,
        };
        if why == Why::Deleted {
            self.finish().await;
        }
        if why != Why::NodeStops {
            volumes::remove(&self.dir);
        }
    }

    /// Lets the containers work, writes what becomes of them, and tells them when to end.
    async fn follow(
        &mut self,
        work: impl Future<Output = ()>,
        board: &Board,
        end: &watch::Sender<Option<Duration>>,
    ) -> Option<Why> {
        tokio::pin!(work);
        let mut why = None;
        let mut current = self.latest.borrow().clone();
        let mut dirty = true;
        loop {
            if dirty && why.is_none_or(|why| why == Why::Deleted) {
                match self.write(&current, board).await {
                    Ok(Some(written)) => (current, dirty) = (Arc::new(written), false),
                    Ok(None) => dirty = false,
                    Err(error) => {
                        debug!(pod = current.name_any(), %error, "cannot write the pod's status");
                    }
                }
            }
            tokio::select! {
                () = &mut work => {
                    let _ = self.write(&current, board).await;
                    return why;
                }
                () = board.changed.notified() => dirty = true,
                changed = self.latest.changed() => {
                    if changed.is_err() && why.is_none() {
                        why = Some(Why::NodeStops);
                        end.send_replace(Some(NODE_STOPS));
                    }
                    current = self.latest.borrow_and_update().clone();
                    if is_deleting(&current) {
                        let grace = grace(&current);
                        // A second deletion may only hurry.
                        if why.is_none() || end.borrow().is_some_and(|known| grace < known) {
                            why = why.or(Some(Why::Deleted));
                            end.send_replace(Some(grace));
                        }
                    }
                }
                () = self.gone.cancelled(), if why != Some(Why::Gone) => {
                    why = Some(Why::Gone);
                    end.send_replace(Some(Duration::from_secs(2)));
                }
                () = self.shared.stop.cancelled(), if why.is_none() => {
                    why = Some(Why::NodeStops);
                    end.send_replace(Some(grace(&current).min(NODE_STOPS)));
                }
                () = sleep(RETRY), if dirty => {}
            }
        }
    }

    async fn write(&self, pod: &Pod, board: &Board) -> Result<Option<Pod>, remuda_control::Error> {
        let status = {
            let (init, containers) = (board.init.lock(), board.containers.lock());
            let problem = board.problem.lock();
            let now = self.shared.ctx.clock.now();
            status::make(&Facts {
                pod,
                init: &init,
                containers: &containers,
                address: self.shared.address,
                problem: problem.as_deref(),
                now: jiff::Timestamp::from_second(now.as_second()).unwrap_or(now),
            })
        };
        let api: Api<Pod> =
            Api::namespaced(self.shared.ctx.client.clone(), &pod.namespace().unwrap_or_default());
        write::patch_status(&self.shared.ctx, &api, pod, &(), pod.status.as_ref(), &status, false).await
    }

    /// A Pod that may not start again and whose processes went with the node has failed.
    async fn report_lost(&self, pod: &Pod, board: &Board) {
        let now = self.shared.ctx.clock.now();
        for progress in board.containers.lock().iter_mut().chain(board.init.lock().iter_mut()) {
            progress.over = true;
            progress.state = State::Terminated {
                code: 137,
                signal: Some(9),
                started: now,
                finished: now,
                reason: "NodeRestarted",
                message: "the process ended with the node".to_owned(),
            };
        }
        while let Err(error) = self.write(pod, board).await {
            debug!(pod = pod.name_any(), %error, "cannot write the pod's status");
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = self.gone.cancelled() => return,
                () = sleep(RETRY) => {}
            }
        }
    }

    /// Waits until there is nothing left to keep.
    async fn deletion(&mut self) -> Why {
        loop {
            if is_deleting(&self.latest.borrow_and_update()) {
                return Why::Deleted;
            }
            tokio::select! {
                changed = self.latest.changed() => if changed.is_err() { return Why::NodeStops },
                () = self.gone.cancelled() => return Why::Gone,
                () = self.shared.stop.cancelled() => return Why::NodeStops,
            }
        }
    }

    /// Lets the API forget the Pod.
    async fn finish(&self) {
        let pod = self.latest.borrow().clone();
        let api: Api<Pod> =
            Api::namespaced(self.shared.ctx.client.clone(), &pod.namespace().unwrap_or_default());
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        loop {
            match api.delete(&pod.name_any(), &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return,
                Err(error) => warn!(pod = pod.name_any(), %error, "cannot delete the pod"),
            }
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = self.gone.cancelled() => return,
                () = sleep(RETRY) => {}
            }
        }
    }
}

fn grace(pod: &Pod) -> Duration {
    let seconds = pod
        .metadata
        .deletion_grace_period_seconds
        .or(pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds));
    Duration::from_secs(u64::try_from(seconds.unwrap_or(30)).unwrap_or(0))
}

fn containers(pod: &Pod) -> (Vec<Container>, Vec<Container>) {
    let spec = pod.spec.clone().unwrap_or_default();
    (spec.init_containers.unwrap_or_default(), spec.containers)
}

/// A container that has run before starts with its past.
fn board(pod: &Pod) -> Board {
    let status = pod.status.clone().unwrap_or_default();
    let progress = |containers: &[Container], known: Option<&[ContainerStatus]>| {
        let before = |name: &str| known.unwrap_or_default().iter().find(|status| status.name == name);
        containers
            .iter()
            .map(|container| {
                let known = before(&container.name);
                let ran = known
                    .is_some_and(|known| known.state.as_ref().is_some_and(|state| state.running.is_some()));
                Progress::new(known.map_or(0, |known| known.restart_count + i32::from(ran)))
            })
            .collect()
    };
    let (init, main) = containers(pod);
    Board {
        init: Mutex::new(progress(&init, status.init_container_statuses.as_deref())),
        containers: Mutex::new(progress(&main, status.container_statuses.as_deref())),
        problem: Mutex::new(None),
        changed: Notify::new(),
    }
}

/// Whether a Pod that is started once only has been started already.
fn died_with_the_node(pod: &Pod) -> bool {
    let never = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never");
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ran = |status: &ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    never && statuses.into_iter().any(ran)
}

/// Everything the Pod does, until it will do no more.
async fn work(shared: Arc<Shared>, pod: Arc<Pod>, dir: PathBuf, board: Arc<Board>, mut end: End) {
    let client = shared.ctx.client.clone();
    let volumes = Volumes { client: &client, pod: &pod, address: shared.address, dir: dir.clone() };
    let renew = loop {
        match volumes.prepare().await {
            Ok(renew) => break renew,
            Err(problem) => {
                warn!(pod = pod.name_any(), problem, "volumes are not ready");
                *board.problem.lock() = Some(problem);
                board.changed.notify_one();
            }
        }
        tokio::select! {
            _ = ended(&mut end) => return,
            () = sleep(VOLUME_RETRY) => {}
        }
    };
    if board.problem.lock().take().is_some() {
        board.changed.notify_one();
    }
    let runner = |container: Container, place, init| Runner {
        shared: shared.clone(),
        pod: pod.clone(),
        dir: dir.clone(),
        board: board.clone(),
        container,
        place,
        init,
        end: end.clone(),
    };
    let (first, main) = containers(&pod);
    for (place, container) in first.into_iter().enumerate() {
        if !Box::pin(runner(container, place, true).run()).await {
            return;
        }
    }
    let running = join_all(
        main.into_iter().enumerate().map(|(place, container)| runner(container, place, false).run()),
    );
    // Tokens in volumes end before long; new ones take their place.
    let renewing = async {
        let mut renew = renew;
        while let Some(after) = renew {
            sleep(after).await;
            renew = match volumes.prepare().await {
                Ok(next) => next,
                Err(problem) => {
                    warn!(pod = pod.name_any(), problem, "tokens are not renewed");
                    Some(Duration::from_secs(30))
                }
            };
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = running => {}
        () = renewing => {}
    }
}
