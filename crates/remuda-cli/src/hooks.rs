//! What commands need that only the program has: a way into machines, and what providers know.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use kube::Client;
use serde::{Deserialize, Serialize};

use crate::{
    api,
    failure::{Code, Failure},
    object::Object,
};

/// A machine somebody wants to get into.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineTarget {
    pub namespace: String,
    /// Name of the Machine.
    pub machine: String,
    /// Driver of its server, or `custom`.
    pub driver: String,
    /// The driver's machine, or the CustomMachine.
    pub server: Object,
    /// Addresses of the machine, as its status has them.
    pub addresses: Vec<String>,
    /// What to run there; empty is a login shell.
    pub command: Vec<String>,
    /// The server's data directory, if this is its host.
    pub data_dir: Option<PathBuf>,
    /// The driver's archive of the machine, with its SSH key; empty if there is none.
    pub state: Vec<u8>,
}

/// Gets into machines of one driver.
pub trait Shell: Send + Sync {
    /// Whether machines of this driver can be entered so.
    fn serves(&self, driver: &str) -> bool;

    /// Runs the command, or a shell, on the terminal of this process. Answers with its exit code.
    fn run(&self, target: MachineTarget) -> BoxFuture<'_, Result<u8, Failure>>;

    /// Restarts the machine, or starts it if it does not run.
    fn restart(&self, target: MachineTarget) -> BoxFuture<'_, Result<(), Failure>>;

    /// How the machine is, if that can be seen from here. `data_dir` is the server's, if this is its host.
    fn host_state(&self, machine: &str, data_dir: Option<&Path>) -> Option<HostState>;
}

/// What is seen of a machine from the host it is on, whatever it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    Running,
    /// It has processes, and they are stopped.
    Frozen,
    /// It runs and has no way to others.
    CutOff,
    Off,
}

/// Which servers are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrphanQuery {
    pub driver: String,
    /// Name of a Secret in `cattle-global-data`; without one, all that have credentials for the driver.
    pub credential: Option<String>,
    /// Flags of the driver that say where, such as a region.
    pub flags: Vec<(String, String)>,
    /// The server's data directory, if this is its host.
    pub data_dir: Option<PathBuf>,
}

/// Something a provider has that was made here and that no machine knows of.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Orphan {
    pub driver: String,
    /// The credential it was found with; empty if the driver needs none.
    pub credential: String,
    /// What it is at the provider, such as a droplet.
    pub kind: String,
    /// What the provider calls it.
    pub id: String,
    /// Name of the machine it was made for.
    pub name: String,
}

/// What one provider said, by credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrphanReport {
    pub found: Vec<Orphan>,
    /// Why somebody could not be asked.
    pub problems: Vec<String>,
    /// What was left out.
    pub caveats: Vec<String>,
}

/// Asks providers for servers that nobody knows any more.
pub trait Orphans: Send + Sync {
    fn find(&self, client: Client, query: OrphanQuery) -> BoxFuture<'_, Result<OrphanReport, Failure>>;
}

/// What the Jobs of a machine wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobLog {
    /// While its server was made.
    pub create: String,
    /// While its server was removed.
    pub remove: String,
}

impl JobLog {
    pub(crate) fn whole(&self) -> String {
        match (self.create.as_str(), self.remove.as_str()) {
            (one, "") | ("", one) => one.to_owned(),
            (create, remove) if create.ends_with('\n') => format!("{create}{remove}"),
            (create, remove) => format!("{create}\n{remove}"),
        }
    }
}

/// Finds what a machine's Jobs wrote.
pub trait JobLogs: Send + Sync {
    /// All of it that is kept, or nothing if nothing is. The machine may be gone.
    fn read<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        machine: &'a str,
    ) -> BoxFuture<'a, Result<Option<JobLog>, Failure>>;
}

/// Everything the program adds. Without it, commands that need it say so.
#[derive(Clone)]
pub struct Hooks {
    pub shells: Vec<Arc<dyn Shell>>,
    pub orphans: Option<Arc<dyn Orphans>>,
    pub logs: Arc<dyn JobLogs>,
}

impl Default for Hooks {
    fn default() -> Hooks {
        Hooks { shells: Vec::new(), orphans: None, logs: Arc::new(ServedLogs) }
    }
}

/// Logs from wherever they are kept: the runner of Jobs keeps them in ConfigMaps, Kubernetes with its pods.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServedLogs;

impl JobLogs for ServedLogs {
    fn read<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        machine: &'a str,
    ) -> BoxFuture<'a, Result<Option<JobLog>, Failure>> {
        Box::pin(async move {
            let kept = api::kept_logs(client, namespace, machine).await;
            match kept {
                Ok(Some(log)) => Ok(Some(log)),
                Ok(None) => match api::pod_logs(client, namespace, machine).await {
                    // There is nothing where logs are kept, and pods are where the server keeps none.
                    Err(failure) if failure.code == Code::Forbidden => Ok(None),
                    result => result,
                },
                Err(failure) if failure.code == Code::Forbidden => {
                    match api::pod_logs(client, namespace, machine).await {
                        Ok(Some(log)) => Ok(Some(log)),
                        _ => Err(failure),
                    }
                }
                Err(failure) => Err(failure),
            }
        })
    }
}
