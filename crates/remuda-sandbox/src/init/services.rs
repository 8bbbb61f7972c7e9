//! The service manager: starts, watches, restarts and stops services.
//!
//! Each service has a *generation*. Whoever changes what should happen to it (a stop, a new start) raises the
//! number; everything under way for an older one ends by itself. So a stop interrupts a start that waits, and
//! a restart that was due does not bring a stopped service back.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, watch},
    time::sleep,
};
use tokio_util::task::TaskTracker;

use super::{
    children::{Children, Ending, marked},
    files,
    journal::Journal,
    process,
};
use crate::unit::{Exit, Kind, Unit};

mod stop;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::enum_variant_names, reason = "systemd's own words")]
pub(crate) enum Active {
    Inactive,
    Activating,
    Active,
    Deactivating,
    Failed,
}

impl Active {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Activating => "activating",
            Self::Active => "active",
            Self::Deactivating => "deactivating",
            Self::Failed => "failed",
        }
    }
}

/// What `systemctl show` knows about a service.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) active: Active,
    pub(crate) sub: &'static str,
    pub(crate) main: Option<i32>,
    /// When the main process was started last, also after its end.
    pub(crate) main_since: Option<jiff::Timestamp>,
    pub(crate) invocation: String,
    pub(crate) result: &'static str,
    pub(crate) exit: Option<Exit>,
    pub(crate) since: jiff::Timestamp,
    pub(crate) restarts: u32,
    pub(crate) status: String,
}

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) state: RefCell<State>,
    pub(crate) journal: Rc<Journal>,
    /// Whoever starts or stops it.
    turn: Mutex<()>,
    generation: watch::Sender<u64>,
    /// Raised at every change of the state, and when a `notify` service says something.
    changed: watch::Sender<u64>,
    is_ready: Cell<bool>,
    /// When it was started lately.
    starts: RefCell<VecDeque<Instant>>,
    /// Position in the order of starts; stops happen in reverse.
    order: Cell<u64>,
}

impl Service {
    fn new(name: &str) -> Rc<Self> {
        Rc::new(Self {
            name: name.to_owned(),
            state: RefCell::new(State {
                active: Active::Inactive,
                sub: "dead",
                main: None,
                main_since: None,
                invocation: String::new(),
                result: "success",
                exit: None,
                since: jiff::Timestamp::now(),
                restarts: 0,
                status: String::new(),
            }),
            journal: Journal::of(name),
            turn: Mutex::default(),
            generation: watch::Sender::new(0),
            changed: watch::Sender::new(0),
            is_ready: Cell::new(false),
            starts: RefCell::default(),
            order: Cell::new(0),
        })
    }

    pub(crate) fn active(&self) -> Active {
        self.state.borrow().active
    }

    fn set(&self, active: Active, sub: &'static str) {
        {
            let mut state = self.state.borrow_mut();
            if state.active != active {
                state.since = jiff::Timestamp::now();
            }
            (state.active, state.sub) = (active, sub);
        }
        self.touch();
    }

    fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn raise(&self) -> u64 {
        self.generation.send_modify(|generation| *generation += 1);
        *self.generation.borrow()
    }

    fn is_current(&self, generation: u64) -> bool {
        *self.generation.borrow() == generation
    }

    /// Ends when something newer is wanted.
    async fn outdated(&self, generation: u64) {
        let _ = self.generation.subscribe().wait_for(|current| *current != generation).await;
    }

    /// The service itself says how it is; lines as of `sd_notify`.
    fn hear(&self, text: &str) {
        for line in text.lines() {
            match line.split_once('=') {
                Some(("READY", "1")) => self.is_ready.set(true),
                Some(("STATUS", status)) => status.clone_into(&mut self.state.borrow_mut().status),
                _ => {}
            }
        }
        self.touch();
    }
}

/// All services, on one thread.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) children: Rc<Children>,
    all: RefCell<BTreeMap<String, Rc<Service>>>,
    tasks: TaskTracker,
    count: Cell<u64>,
    is_closing: Cell<bool>,
}

/// Why a service did not start.
type Failure = String;

impl Services {
    pub(crate) fn new(children: Rc<Children>, tasks: TaskTracker) -> Rc<Self> {
        Rc::new(Self {
            children,
            all: RefCell::default(),
            tasks,
            count: Cell::new(0),
            is_closing: Cell::new(false),
        })
    }

    /// The service's state, made when first asked for.
    pub(crate) fn get(&self, name: &str) -> Rc<Service> {
        let mut all = self.all.borrow_mut();
        all.entry(name.to_owned()).or_insert_with(|| Service::new(name)).clone()
    }

    pub(crate) fn known(&self) -> Vec<Rc<Service>> {
        self.all.borrow().values().cloned().collect()
    }

    /// Does something nobody waits for.
    pub(crate) fn in_background<T: 'static>(&self, work: impl Future<Output = T> + 'static) {
        drop(self.tasks.spawn_local(work));
    }

    /// Starts everything that starts with the machine.
    pub(crate) async fn boot(self: &Rc<Self>) {
        for name in files::boot_order() {
            // Each waits for what it comes after, not for all before it in the list.
            let services = self.clone();
            let start = async move {
                services.wait_for_earlier(&name).await;
                let _ = services.start(&name).await;
            };
            drop(self.tasks.spawn_local(start));
        }
    }

    async fn wait_for_earlier(&self, name: &str) {
        let Some(unit) = files::load(name) else { return };
        let booting = files::boot_order();
        for earlier in unit.after.iter().filter(|other| booting.contains(other)) {
            // A service that comes later in the order can only be in a circle with this one.
            let position = |name: &str| booting.iter().position(|other| other == name);
            if position(earlier) > position(name) {
                continue;
            }
            let service = self.get(earlier);
            let mut changes = service.changed.subscribe();
            let up = async {
                while matches!(service.active(), Active::Activating)
                    || (service.active() == Active::Inactive && service.order.get() == 0)
                {
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(90), up).await;
        }
    }

    /// Starts a service and what it requires; waits until it is up.
    pub(crate) async fn start(self: &Rc<Self>, name: &str) -> Result<(), Failure> {
        /// Chains of requirements longer than this are taken for a circle.
        const MOST: usize = 64;
        let mut wanted = vec![(name.to_owned(), true)];
        let mut at = 0;
        while let Some((name, _)) = wanted.get(at).cloned() {
            at += 1;
            let Some(unit) = files::load(&name) else { continue };
            let needs =
                unit.requires.iter().map(|need| (need, true)).chain(unit.wants.iter().map(|w| (w, false)));
            for (need, required) in needs {
                let is_new = !wanted.iter().any(|(known, _)| known == need);
                if need.ends_with(".service") && is_new && wanted.len() < MOST && files::find(need).is_some()
                {
                    wanted.push((need.clone(), required));
                }
            }
        }
        for (need, required) in wanted.iter().skip(1).rev() {
            let outcome = self.start_one(need).await;
            if *required && let Err(failure) = outcome {
                return Err(format!("dependency {need} failed: {failure}"));
            }
        }
        self.start_one(name).await
    }

    async fn start_one(self: &Rc<Self>, name: &str) -> Result<(), Failure> {
        if name.ends_with(".target") {
            return Ok(());
        }
        if self.is_closing.get() {
            return Err("the machine is shutting down".into());
        }
        let path = files::find(name).ok_or_else(|| format!("Unit {name} not found."))?;
        if files::is_masked(&path) {
            return Err(format!("Unit {name} is masked."));
        }
        let unit = Rc::new(files::load(name).ok_or_else(|| format!("Unit {name} cannot be read."))?);
        let service = self.get(name);
        let _turn = service.turn.lock().await;
        if service.active() == Active::Active {
            return Ok(());
        }
        let generation = service.raise();
        service.state.borrow_mut().restarts = 0;
        // Somebody asked for it, however often; the limit is for services that keep failing by themselves.
        service.starts.borrow_mut().clear();
        self.launch(&service, &unit, generation).await
    }

    /// Stops if it runs, then starts.
    pub(crate) async fn restart(self: &Rc<Self>, name: &str) -> Result<(), Failure> {
        self.stop(name).await?;
        self.start(name).await
    }

    pub(crate) fn reset_failed(&self, name: &str) {
        let service = self.get(name);
        service.starts.borrow_mut().clear();
        if service.active() == Active::Failed {
            service.set(Active::Inactive, "dead");
        }
    }

    /// One attempt, with the turn held.
    async fn launch(
        self: &Rc<Self>,
        service: &Rc<Service>,
        unit: &Rc<Unit>,
        generation: u64,
    ) -> Result<(), Failure> {
        if let Some(unmet) = process::unmet(&unit.conditions) {
            service.journal.note(&format!("{} was skipped, unmet condition {unmet}", unit.name));
            service.set(Active::Inactive, "dead");
            return Ok(());
        }
        if self.is_hasty(service, unit) {
            service.journal.note(&format!("{}: Start request repeated too quickly.", unit.name));
            service.state.borrow_mut().result = "start-limit-hit";
            service.set(Active::Failed, "failed");
            return Err("it was started too often in a short time".into());
        }
        self.count.set(self.count.get() + 1);
        service.order.set(self.count.get());
        service.is_ready.set(false);
        {
            let mut state = service.state.borrow_mut();
            state.invocation = uuid::Uuid::new_v4().simple().to_string();
            (state.result, state.exit, state.main) = ("success", None, None);
            state.status.clear();
        }
        service.set(Active::Activating, "start-pre");
        service.journal.note(&format!("Starting {} - {}...", unit.name, unit.description));
        let outdated = service.outdated(generation);
        let outcome = tokio::select! {
            biased;
            outcome = self.bring_up(service, unit, generation) => outcome,
            () = outdated => Err(Down { result: "canceled", exit: None }),
        };
        match outcome {
            Ok(()) => {
                service.journal.note(&format!("Started {} - {}.", unit.name, unit.description));
                Ok(())
            }
            Err(down) => {
                self.after_end(service, unit, generation, down).await;
                Err(format!("it failed ({})", service.state.borrow().result))
            }
        }
    }

    fn is_hasty(&self, service: &Service, unit: &Unit) -> bool {
        let (burst, interval) = unit.start_limit;
        let mut starts = service.starts.borrow_mut();
        let now = Instant::now();
        while starts.front().is_some_and(|start| now.duration_since(*start) > interval) {
            starts.pop_front();
        }
        if burst > 0 && !interval.is_zero() && starts.len() >= burst as usize {
            return true;
        }
        starts.push_back(now);
        starts.truncate(1000);
        false
    }

    async fn bring_up(
        self: &Rc<Self>,
        service: &Rc<Service>,
        unit: &Rc<Unit>,
        generation: u64,
    ) -> Result<(), Down> {
        let limit = unit.timeout_start;
        self.run_all(service, unit, &unit.start_pre, limit).await?;
        service.set(Active::Activating, "start");
        match unit.kind {
            Kind::Oneshot => {
                self.run_all(service, unit, &unit.start, limit).await?;
                self.run_all(service, unit, &unit.start_post, limit).await?;
                if unit.remain_after_exit {
                    service.set(Active::Active, "exited");
                } else {
                    service.set(Active::Inactive, "dead");
                }
                return Ok(());
            }
            Kind::Forking => {
                self.run_all(service, unit, &unit.start, limit).await?;
                let main = self.find_main(service, unit).await;
                if let Some(pid) = main {
                    let ending = self.children.adopt(pid);
                    self.watch_main(service, unit, generation, pid, ending);
                }
            }
            Kind::Simple | Kind::Notify => {
                if unit.kind == Kind::Notify {
                    let (heard, hearer) = (service.clone(), process::notify_socket(&service.name));
                    let Some(socket) = hearer else { return Err(Down::of("resources")) };
                    drop(self.tasks.spawn_local(process::listen(socket, move |text| heard.hear(text), {
                        let service = service.clone();
                        async move { service.outdated(generation).await }
                    })));
                }
                let Some(line) = unit.start.first() else { return Err(Down::of("resources")) };
                let (pid, ending) = self.spawn(service, unit, line).ok_or(Down::of("resources"))?;
                self.watch_main(service, unit, generation, pid, ending);
                if unit.kind == Kind::Notify {
                    wait_ready(service, limit).await?;
                }
            }
        }
        service.set(Active::Active, "running");
        self.run_all(service, unit, &unit.start_post, limit).await
    }

    fn watch_main(
        self: &Rc<Self>,
        service: &Rc<Service>,
        unit: &Rc<Unit>,
        generation: u64,
        pid: i32,
        ending: Ending,
    ) {
        {
            let mut state = service.state.borrow_mut();
            (state.main, state.main_since) = (Some(pid), Some(jiff::Timestamp::now()));
        }
        service.touch();
        let (services, service, unit) = (self.clone(), service.clone(), unit.clone());
        let supervise = async move {
            let exit = ending.await.unwrap_or(Exit::Signal(9));
            {
                let mut state = service.state.borrow_mut();
                (state.main, state.exit) = (None, Some(exit));
            }
            service.touch();
            // A start that waits for readiness deals with the end itself.
            let turn = service.turn.lock().await;
            if service.is_current(generation) && service.active() == Active::Active {
                let result = if unit.is_success(exit) { "success" } else { word(exit) };
                services.after_end(&service, &unit, generation, Down { result, exit: Some(exit) }).await;
            }
            drop(turn);
        };
        drop(self.tasks.spawn_local(supervise));
    }

    /// Cleans up after a service that ended or did not start, and starts it again if its file says so.
    async fn after_end(self: &Rc<Self>, service: &Rc<Service>, unit: &Rc<Unit>, generation: u64, down: Down) {
        self.end_rest(service, unit).await;
        self.run_quietly(service, unit, &unit.stop_post).await;
        service.state.borrow_mut().result = down.result;
        let exit = down.exit.unwrap_or(Exit::Code(1));
        let is_success = down.result == "success";
        service.journal.note(&format!("{}: ended, {}.", unit.name, describe(down.exit, down.result)));
        let wanted = service.is_current(generation) && !self.is_closing.get();
        let timed_out = down.result == "timeout" && unit.restart != crate::unit::Restart::No;
        if !(wanted && (unit.should_restart(exit) || timed_out)) {
            let failed = !is_success && down.result != "canceled";
            let (active, sub) = if failed { (Active::Failed, "failed") } else { (Active::Inactive, "dead") };
            service.set(active, sub);
            return;
        }
        service.set(Active::Activating, "auto-restart");
        service.state.borrow_mut().restarts += 1;
        let (services, service, unit) = (self.clone(), service.clone(), unit.clone());
        let later = async move {
            tokio::select! {
                () = sleep(unit.restart_sec) => {}
                () = service.outdated(generation) => return,
            }
            let _turn = service.turn.lock().await;
            if service.is_current(generation) && !services.is_closing.get() {
                // The file may have changed meanwhile.
                let unit = files::load(&unit.name).map_or(unit, Rc::new);
                let _ = services.launch(&service, &unit, generation).await;
            }
        };
        drop(self.tasks.spawn_local(Box::pin(later)));
    }

    /// The main process of a service that forked away: by its pid file, else the one that is left.
    async fn find_main(&self, service: &Service, unit: &Unit) -> Option<i32> {
        for _ in 0..50 {
            if unit.pid_file.is_empty() {
                let invocation = service.state.borrow().invocation.clone();
                return marked(&invocation).into_iter().min();
            }
            let text = std::fs::read_to_string(&unit.pid_file).unwrap_or_default();
            if let Some(pid) = text.trim().parse().ok().filter(|pid| *pid > 1) {
                return Some(pid);
            }
            sleep(Duration::from_millis(100)).await;
        }
        None
    }
}

/// How a service went down.
#[derive(Debug, Clone, Copy)]
struct Down {
    result: &'static str,
    exit: Option<Exit>,
}

impl Down {
    fn of(result: &'static str) -> Self {
        Self { result, exit: None }
    }
}

fn word(exit: Exit) -> &'static str {
    match exit {
        Exit::Code(_) => "exit-code",
        Exit::Signal(_) => "signal",
    }
}

fn describe(exit: Option<Exit>, result: &str) -> String {
    match exit {
        Some(Exit::Code(code)) => format!("code=exited, status={code}"),
        Some(Exit::Signal(signal)) => format!("code=killed, signal={signal}"),
        None => format!("result={result}"),
    }
}

async fn wait_ready(service: &Service, limit: Option<Duration>) -> Result<(), Down> {
    let mut changes = service.changed.subscribe();
    let wait = async {
        loop {
            if service.is_ready.get() {
                return Ok(());
            }
            let (main, exit) = {
                let state = service.state.borrow();
                (state.main, state.exit)
            };
            if main.is_none() {
                // Ending well without having been ready is a broken promise.
                let result = exit.filter(|exit| *exit != Exit::Code(0)).map_or("protocol", word);
                return Err(Down { result, exit });
            }
            if changes.changed().await.is_err() {
                return Err(Down::of("resources"));
            }
        }
    };
    match limit {
        Some(limit) => tokio::time::timeout(limit, wait).await.unwrap_or(Err(Down::of("timeout"))),
        None => wait.await,
    }
}
