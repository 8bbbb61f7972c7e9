//! Which server a command talks to.

use std::{
    env,
    path::{Path, PathBuf},
};

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use remuda_names::{PROGRAM, env as variable, file, gateway, rancher};

use crate::{
    failure::{Code, Failure, chain},
    hooks::Hooks,
    output::Out,
};

/// What every command takes.
#[derive(Args, Debug, Clone, Default)]
pub struct Global {
    /// The server [default: $KUBECONFIG, then admin.kubeconfig in the data directory, then ~/.kube/config]
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
}

/// A context in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub file: PathBuf,
    pub context: String,
}

/// A kubeconfig that was found.
pub(crate) struct Found {
    pub(crate) kubeconfig: Kubeconfig,
    /// For people.
    pub(crate) origin: String,
    /// Where it was read from; several if it was put together.
    files: Vec<PathBuf>,
}

impl Found {
    /// The context that is meant, and the file it is in.
    fn context(&self, named: Option<&str>) -> Option<Origin> {
        let context = named.or(self.kubeconfig.current_context.as_deref())?.to_owned();
        let has = |file: &&PathBuf| {
            self.files.len() == 1
                || Kubeconfig::read_from(file)
                    .is_ok_and(|read| read.contexts.iter().any(|known| known.name == context))
        };
        let file = self.files.iter().find(has)?;
        Some(Origin { file: std::path::absolute(file).ok()?, context })
    }
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
        }
    }
}

impl Global {
    pub(crate) async fn connect(&self, hooks: &Hooks) -> Result<Session, Failure> {
        let (config, text, origin) = self.config().await?;
        let client = Client::try_from(config).map_err(|error| unusable(&text, &error))?;
        let mut session = Session::new(client);
        session.origin = origin;
        if let Some(namespace) = &self.namespace {
            crate::api::check_name(namespace)?;
            session.namespace = namespace.clone();
        }
        session.hooks = hooks.clone();
        session.data_dir = self.data_dir().filter(|dir| dir.is_dir());
        Ok(session)
    }

    /// How the server is reached, where that is from in words, and from which context.
    pub(crate) async fn config(&self) -> Result<(Config, String, Option<Origin>), Failure> {
        let found = self.find()?;
        let context = found.context(self.context.as_deref());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(found.kubeconfig, &options).await;
        let mut config = config.map_err(|error| unusable(&found.origin, &error))?;
        // A server that says why it cannot answer is to be heard now, not after minutes of silent tries.
        config.default_retry = false;
        Ok((config, found.origin, context))
    }

    /// The server's data directory, whether it exists or not.
    pub fn data_dir(&self) -> Option<PathBuf> {
        self.data_dir
            .clone()
            .or_else(|| default_data_dir(is_root(), |name| env::var_os(name).map(PathBuf::from)))
    }

    pub(crate) fn find(&self) -> Result<Found, Failure> {
        if let Some(path) = &self.kubeconfig {
            return read(path);
        }
        // A data directory that was named is meant, whatever the environment says beside it.
        let named = self.data_dir.as_ref().map(|dir| dir.join(file::ADMIN_KUBECONFIG));
        if let Some(path) = named.filter(|path| path.exists()) {
            return read(&path);
        }
        if env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
            let found = Kubeconfig::from_env();
            let failed = |error: &dyn std::error::Error| {
                Failure::new(Code::Unreachable, format!("$KUBECONFIG: {}", chain(error)))
                    .hint("name another kubeconfig with --kubeconfig")
            };
            // People export the kubeconfig of a cluster to work in it, and go on managing clusters beside that.
            let elsewhere =
                |kubeconfig: &Kubeconfig| self.context.is_none() && leads_into_a_cluster(kubeconfig);
            let ours =
                self.data_dir().map(|dir| dir.join(file::ADMIN_KUBECONFIG)).filter(|path| path.exists());
            match (found.map_err(|error| failed(&error))?, ours) {
                (Some(kubeconfig), Some(path)) if elsewhere(&kubeconfig) => return read(&path),
                (Some(kubeconfig), _) => {
                    let files = env::var_os("KUBECONFIG").unwrap_or_default();
                    let files = env::split_paths(&files).filter(|path| path.exists()).collect();
                    return Ok(Found { kubeconfig, origin: "$KUBECONFIG".to_owned(), files });
                }
                (None, _) => {}
            }
        }
        let ours = self.data_dir().map(|dir| dir.join(file::ADMIN_KUBECONFIG));
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
        let tried: Vec<PathBuf> = [ours, home].into_iter().flatten().collect();
        match tried.iter().find(|path| path.exists()) {
            Some(path) => read(path),
            None => {
                let tried: Vec<_> = tried.iter().map(|path| path.display().to_string()).collect();
                let message = format!("no server is known: there is no {}", tried.join(" and no "));
                Err(Failure::new(Code::Unreachable, message).hint(
                    "start one with `remuda up` or `remuda server`, or name a kubeconfig with --kubeconfig",
                ))
            }
        }
    }
}

fn unusable(origin: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::Unreachable, format!("{origin}: {}", chain(error)))
        .hint("name another kubeconfig with --kubeconfig, or another context with --context")
}

/// Whether the current context is one of a cluster behind a server, rather than of a server.
fn leads_into_a_cluster(kubeconfig: &Kubeconfig) -> bool {
    let current = kubeconfig.current_context.as_deref().unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|context| context.name == current);
    let Some(context) = context.and_then(|named| named.context.as_ref()) else { return false };
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
    let server = cluster.and_then(|named| named.cluster.as_ref()?.server.as_deref());
    server.is_some_and(|server| server.contains(gateway::path::CLUSTERS))
}

fn read(path: &Path) -> Result<Found, Failure> {
    match Kubeconfig::read_from(path) {
        Ok(kubeconfig) => {
            Ok(Found { kubeconfig, origin: path.display().to_string(), files: vec![path.to_owned()] })
        }
        Err(error) => {
            let code = if path.exists() { Code::Invalid } else { Code::NotFound };
            let failure = Failure::new(code, format!("read {}: {}", path.display(), chain(&error)));
            Err(failure.hint("start a server with `remuda up` or `remuda server`, or name its kubeconfig with --kubeconfig"))
        }
    }
}

/// Where this user's programs keep what they can get again, for ours.
pub fn cache_dir() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join(PROGRAM))
}

/// Where the server keeps its data unless it is told otherwise; the same rule as the server's.
fn default_data_dir(root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from(file::ROOT_DATA_DIR));
    }
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    match absolute("XDG_DATA_HOME") {
        Some(data) => Some(data.join(PROGRAM)),
        None => Some(absolute("HOME")?.join(".local/share").join(PROGRAM)),
    }
}

/// Who owns this process, as the kernel says.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_of_a_cluster_is_not_one_of_a_server() {
        let check = |server: &str| {
            let text = format!(
                "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
                 contexts: [{{name: d, context: {{cluster: c, user: u}}}}]\ncurrent-context: d\n"
            );
            leads_into_a_cluster(&Kubeconfig::from_yaml(&text).unwrap())
        };
        assert!(check("https://127.0.0.1:8443/k8s/clusters/c-m-1"));
        assert!(!check("https://127.0.0.1:8443"));
        assert!(!leads_into_a_cluster(&Kubeconfig::default()));
    }

    #[test]
    fn the_data_directory_is_where_the_server_has_it() {
        let none = |_: &str| None;
        assert_eq!(default_data_dir(true, none), Some("/var/lib/remuda".into()));
        assert_eq!(default_data_dir(false, none), None);
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/me"));
        assert_eq!(default_data_dir(false, home), Some("/home/me/.local/share/remuda".into()));
        let both = |name: &str| match name {
            "XDG_DATA_HOME" => Some(PathBuf::from("/data")),
            _ => Some(PathBuf::from("/home/me")),
        };
        assert_eq!(default_data_dir(false, both), Some("/data/remuda".into()));
        let relative = |name: &str| (name == "XDG_DATA_HOME").then(|| PathBuf::from("data"));
        assert_eq!(default_data_dir(false, relative), None);
    }
}
