//! What a command works with: a server, and what the program adds.

use std::{env, path::PathBuf};

use clap::Args;
use kube::{Client, Config, config::KubeConfigOptions};
use remuda_names::{PROGRAM, env as variable, rancher};

use crate::{
    failure::Failure,
    hooks::Hooks,
    locate::{Located, Origin, Surroundings, locate, unusable},
    output::Out,
};

/// What every command takes.
#[derive(Args, Debug, Clone, Default)]
pub struct Global {
    /// The kubeconfig of the server
    ///
    /// Which server is meant is decided by the first of these: --kubeconfig; --data-dir or $REMUDA_DATA_DIR; --context in
    /// $KUBECONFIG or ~/.kube/config; $KUBECONFIG; the server of the last remuda login; admin.kubeconfig in the default
    /// data directory; ~/.kube/config. Contexts that lead into a cluster are passed over unless they are named.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server")]
    pub kubeconfig: Option<PathBuf>,

    /// Context in that file [default: its current one]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server")]
    pub context: Option<String>,

    /// The server's data directory [default: /var/lib/remuda as root, else ~/.local/share/remuda]
    #[arg(long, global = true, env = variable::DATA_DIR, value_name = "DIR", help_heading = "Server")]
    pub data_dir: Option<PathBuf>,

    /// Namespace of clusters and machines [default: fleet-default]
    #[arg(long, short, global = true, value_name = "NAMESPACE", help_heading = "Server")]
    pub namespace: Option<String>,
}

/// A server, and what the program adds.
#[derive(Clone)]
pub struct Session {
    pub client: Client,
    pub namespace: String,
    pub hooks: Hooks,
    pub out: Out,
    /// The server's data directory, if there is one here.
    pub data_dir: Option<PathBuf>,
    /// Where the credentials are from, if they are from a file.
    pub origin: Option<Origin>,
    /// The server and where it is known from, for people.
    pub server: Option<String>,
}

impl Session {
    /// A session on a client, for programs that have one.
    pub fn new(client: Client) -> Session {
        Session {
            client,
            namespace: rancher::name::FLEET_DEFAULT.to_owned(),
            hooks: Hooks::default(),
            out: Out::default(),
            data_dir: None,
            origin: None,
            server: None,
        }
    }
}

impl Global {
    /// A session at the server that is meant.
    pub async fn connect(&self, hooks: &Hooks) -> Result<Session, Failure> {
        let located = self.locate()?;
        let config = config(&located).await?;
        let client = Client::try_from(config).map_err(|error| unusable(&located.to_string(), &error))?;
        let mut session = Session::new(client);
        session.server = Some(located.to_string());
        session.origin = Some(located.origin);
        if let Some(namespace) = &self.namespace {
            crate::api::check_name(namespace)?;
            session.namespace = namespace.clone();
        }
        session.hooks = hooks.clone();
        session.data_dir = self.data_dir().filter(|dir| dir.is_dir());
        Ok(session)
    }

    /// Which server is meant; the same for every command.
    pub fn locate(&self) -> Result<Located, Failure> {
        locate(self, &Surroundings::here())
    }

    /// The server's data directory, whether it exists or not.
    pub fn data_dir(&self) -> Option<PathBuf> {
        self.data_dir.clone().or_else(default_data_dir)
    }
}

/// How a server is reached.
pub async fn config(located: &Located) -> Result<Config, Failure> {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(located.kubeconfig.clone(), &options).await;
    let mut config = config.map_err(|error| unusable(&located.to_string(), &error))?;
    // A server that says why it cannot answer is to be heard now, not after minutes of silent tries.
    config.default_retry = false;
    Ok(config)
}

/// Where the server keeps its data unless it is told otherwise.
pub fn default_data_dir() -> Option<PathBuf> {
    Surroundings::here().default_data_dir()
}

/// Where this user's programs keep what they can get again, for ours.
pub fn cache_dir() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join(PROGRAM))
}
