//! Sees every change of every Machine, and whether it was allowed.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use remuda_api::core::Machine;
use remuda_control::{
    Informers, Scope,
    informer::{Change, Options, Subscription},
    write::conditions,
};
use remuda_names::capi::{condition, label};
use tokio::time::Instant;

/// What a MachineDeployment asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) replicas: usize,
    pub(crate) surge: usize,
    pub(crate) unavailable: usize,
}

/// Something begun under old limits may end under new ones.
const OVERLAP: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    limits: Vec<(Instant, Limits)>,
    /// Machines of the deployment: available, and whether they are being deleted.
    machines: HashMap<String, (bool, bool)>,
    created: usize,
    /// The most that were being deleted at once.
    going: usize,
    remembered: usize,
    violations: Vec<String>,
}

impl State {
    fn recent(&self) -> impl Iterator<Item = &Limits> {
        let now = Instant::now();
        let newest = self.limits.len().saturating_sub(1);
        // Limits hold until others came, and a moment longer.
        let ended = |index: usize| self.limits.get(index + 1).map(|(at, _)| *at);
        self.limits.iter().enumerate().filter_map(move |(index, (_, limits))| {
            let holds = index == newest || ended(index).is_none_or(|at| now - at <= OVERLAP);
            holds.then_some(limits)
        })
    }

    fn hear(&mut self, change: &Change<Machine>) {
        let Some(object) = change.object() else { return };
        if object.labels().contains_key(label::CONTROL_PLANE) {
            return;
        }
        let name = object.name_any();
        let Some(machine) = &change.new else {
            self.machines.remove(&name);
            return;
        };
        let status = machine.status.as_ref();
        let available =
            status.is_some_and(|status| conditions::is_true(&status.conditions, condition::AVAILABLE));
        let deleting = machine.metadata.deletion_timestamp.is_some();
        let before = self.machines.insert(name.clone(), (available, deleting));
        self.going = self.going.max(self.machines.values().filter(|(_, deleting)| *deleting).count());
        match before {
            None => {
                self.created += 1;
                let most = self.recent().map(|limits| limits.replicas + limits.surge).max().unwrap_or(0);
                let count = self.machines.len();
                if count > most {
                    self.violations.push(format!("{name} is one of {count}, {most} are allowed"));
                }
            }
            Some((true, false)) if deleting => {
                let least =
                    self.recent().map(|limits| limits.replicas.saturating_sub(limits.unavailable)).min();
                let left =
                    self.machines.values().filter(|(available, deleting)| *available && !*deleting).count();
                if left < least.unwrap_or(0) {
                    let least = least.unwrap_or(0);
                    self.violations
                        .push(format!("{name} went and left {left} available, {least} are needed"));
                }
            }
            Some(_) => {}
        }
    }
}

pub(crate) struct Observer {
    state: Arc<Mutex<State>>,
    informers: Informers,
    _machines: Subscription,
}

impl Observer {
    pub(crate) async fn start(client: Client, limits: Limits) -> Self {
        let state =
            Arc::new(Mutex::new(State { limits: vec![(Instant::now(), limits)], ..State::default() }));
        let informers = Informers::new(client, Options::default(), Default::default());
        let machines = informers.of::<Machine>(Scope::all());
        let hearing = state.clone();
        let subscription = machines.subscribe(move |change| hearing.lock().hear(change));
        machines.wait_synced().await;
        Self { state, informers, _machines: subscription }
    }

    pub(crate) async fn end(self) {
        self.informers.stop().await;
    }

    /// From now on other limits hold.
    pub(crate) fn allow(&self, limits: Limits) {
        self.state.lock().limits.push((Instant::now(), limits));
    }

    pub(crate) fn created(&self) -> usize {
        self.state.lock().created
    }

    /// The most Machines that were being deleted at once, ever.
    pub(crate) fn most_going(&self) -> usize {
        self.state.lock().going
    }

    /// How many Machines there are, for [`Self::before_scaling`].
    pub(crate) fn remember_scale(&self) {
        let mut state = self.state.lock();
        state.remembered = state.machines.len();
    }

    pub(crate) fn before_scaling(&self) -> usize {
        self.state.lock().remembered
    }

    #[track_caller]
    pub(crate) fn check(&self, log: &[String]) {
        assert_eq!(self.state.lock().violations, Vec::<String>::new(), "{log:?}");
    }
}
