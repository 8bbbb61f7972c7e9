//! `remuda get kubeconfig`, `remuda kubeconfig merge` and `remuda kubeconfig credential`.
//!
//! Whoever is logged in gets a kubeconfig of their own, with a token that is good for one cluster and for a
//! while, or with this program in place of the token. Others, who have a certificate of the server, get the
//! kubeconfig the cluster itself has.

mod credential;
mod file;
mod merge;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use remuda_names::{PROGRAM, identity::path, rancher::secret_key};
use serde_json::{Value, json};

pub(crate) use self::credential::credential;
use crate::{
    age, api,
    cluster::{self, ClusterCommand},
    failure::{Code, Failure},
    gather::{self, Depth},
    machine::{self, MachineCommand},
    output,
    session::{Global, Session},
    token, why,
};

#[derive(Args, Debug)]
pub struct Get {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: GetCommand,
}

#[derive(Subcommand, Debug)]
pub enum GetCommand {
    /// Clusters, as remuda cluster list and remuda cluster get show them
    #[command(
        alias = "cluster",
        after_help = "Examples:
  remuda get clusters
  remuda get clusters demo -o yaml"
    )]
    Clusters {
        /// Only this one
        #[arg(value_name = "CLUSTER", conflicts_with_all = ["all_namespaces", "watch"])]
        name: Option<String>,
        #[command(flatten)]
        list: cluster::List,
    },

    /// Machines, as remuda machine list shows them
    #[command(
        alias = "machine",
        after_help = "Examples:
  remuda get machines --cluster demo"
    )]
    Machines(machine::MachineList),

    /// The kubeconfig of a cluster
    #[command(after_help = "Whoever is logged in gets a token of their own in it, for this cluster only.

Examples:
  remuda get kubeconfig demo > demo.kubeconfig
  remuda get kubeconfig demo -o demo.kubeconfig --ttl 8h
  remuda get kubeconfig demo --exec               tokens renew themselves
  kubectl --kubeconfig <(remuda get kubeconfig demo) get nodes
  remuda kubeconfig merge demo                    into ~/.kube/config")]
    Kubeconfig {
        /// Name of the cluster
        #[arg(value_name = "CLUSTER")]
        name: String,

        /// Write it to this file, which only you can read then [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,

        #[command(flatten)]
        form: Form,
    },
}

/// How a kubeconfig logs in.
#[derive(Args, Debug, Clone, Default)]
pub struct Form {
    /// How long the token is good for, at most what the server allows [default: what the server says]
    #[arg(long, value_name = "DURATION", value_parser = age::parse)]
    pub ttl: Option<Duration>,

    /// Instead of a token, have kubectl ask this program for one, which renews it; v1beta1 is for kubectl before 1.22
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, default_missing_value = "v1")]
    pub exec: Option<ExecVersion>,
}

/// Versions of how kubectl asks a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExecVersion {
    V1,
    V1beta1,
}

impl ExecVersion {
    fn api_version(self) -> String {
        let version = match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        };
        format!("{}/{version}", credential::GROUP)
    }
}

#[derive(Args, Debug)]
pub struct Kubeconfig {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: KubeconfigCommand,
}

#[derive(Subcommand, Debug)]
pub enum KubeconfigCommand {
    /// Add clusters to a kubeconfig file, or bring them up to date in it
    #[command(after_help = "Everything else in the file stays as it is.

Examples:
  remuda kubeconfig merge demo
  remuda kubeconfig merge demo --exec             tokens renew themselves
  remuda kubeconfig merge demo edge --into ~/.kube/clusters --switch
  kubectl --context demo get nodes")]
    Merge(Merge),
    /// Answer kubectl when it asks for a token; kubeconfigs made with --exec have it do so
    #[command(after_help = "Examples:
  remuda kubeconfig credential --cluster c-m-x7k2p9qz
  remuda kubeconfig credential --cluster c-m-x7k2p9qz --kubeconfig ~/.kube/config --context remuda")]
    Credential(credential::Credential),
}

#[derive(Args, Debug)]
pub struct Merge {
    /// Names of clusters
    #[arg(required = true, value_name = "CLUSTER")]
    pub names: Vec<String>,

    /// The file [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,

    /// Call the context this instead of what the cluster is called
    #[arg(long = "as", value_name = "NAME")]
    pub called: Option<String>,

    #[command(flatten)]
    pub form: Form,

    /// Make it the current context
    #[arg(long)]
    pub switch: bool,

    /// Replace what has the same name and leads to another server
    #[arg(long)]
    pub force: bool,

    /// Print the file as it would be, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

pub(crate) async fn get(session: &Session, command: GetCommand) -> Result<(), Failure> {
    let (name, output, form) = match command {
        GetCommand::Kubeconfig { name, output, form } => (name, output, form),
        GetCommand::Clusters { name: Some(name), list } => {
            let command = ClusterCommand::Get { name, output: list.output };
            return cluster::run(session, command).await;
        }
        GetCommand::Clusters { name: None, list } => {
            return cluster::run(session, ClusterCommand::List(list)).await;
        }
        GetCommand::Machines(list) => return machine::run(session, MachineCommand::List(list)).await,
    };
    let text = own(session, &name, &form).await?;
    match output {
        Some(path) if path.as_os_str() != "-" => {
            file::write(&path, &text)?;
            session.out.note(&format!("wrote {}", path.display()));
        }
        _ => session.out.text(&text),
    }
    Ok(())
}

/// Adds what a kubeconfig leads to to a file, under another name; gives the file.
pub(crate) fn add(
    incoming: &Value,
    called: &str,
    into: Option<PathBuf>,
    switch: bool,
    force: bool,
) -> Result<PathBuf, Failure> {
    let path = into.map_or_else(file::default_path, Ok)?;
    let _lock = file::lock(&path)?;
    let mut merged = file::read(&path)?;
    merge::merge(&mut merged, incoming, called, force)?;
    if switch {
        merged["current-context"] = called.into();
    }
    file::write(&path, &output::yaml(&merged)?)?;
    Ok(path)
}

/// Replaces a file that only its owner reads.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    file::write(path, text)
}

/// The kubeconfig of a cluster for whoever asks, as text.
pub async fn read(session: &Session, name: &str) -> Result<String, Failure> {
    own(session, name, &Form::default()).await
}

async fn own(session: &Session, name: &str, form: &Form) -> Result<String, Failure> {
    api::check_name(name)?;
    let id = match token::management_name(session, name).await {
        Err(failure) if failure.code == Code::NotFound => None,
        id => Some(id?),
    };
    let Some(id) = id else { return of_cluster(session, name).await };
    let request = json!({"token": form.exec.is_none(), "ttl": form.ttl.map_or(0, token::milliseconds)});
    let path = format!("{}/{id}?action=generateKubeconfig", path::CLUSTERS);
    let answer = token::send(session, "make a kubeconfig", Method::POST, &path, &request).await;
    let text = match answer {
        Ok(answer) => answer["config"].as_str().unwrap_or_default().to_owned(),
        // Who asks is no user of the server and has no tokens, or the server knows no users.
        Err(failure) if matches!(failure.code, Code::Invalid | Code::NotFound) => {
            if form.exec.is_some() || form.ttl.is_some() {
                return Err(failure.hint("log in first: remuda login"));
            }
            return of_cluster(session, name).await;
        }
        Err(failure) => return Err(failure),
    };
    match form.exec {
        None => Ok(text),
        Some(version) => with_program(session, &text, &id, version, form.ttl),
    }
}

/// A kubeconfig that has kubectl ask this program for tokens.
fn with_program(
    session: &Session,
    text: &str,
    id: &str,
    version: ExecVersion,
    ttl: Option<Duration>,
) -> Result<String, Failure> {
    let mut config = file::parse(text, "what the server sent")?;
    let mut arguments = vec!["kubeconfig".to_owned(), "credential".to_owned(), format!("--cluster={id}")];
    if let Some(ttl) = ttl {
        arguments.push(format!("--ttl={}s", ttl.as_secs().max(1)));
    }
    // Whatever the environment says then: the login this was made with is meant.
    if let Some(origin) = &session.origin {
        arguments.push(format!("--kubeconfig={}", origin.file.display()));
        arguments.push(format!("--context={}", origin.context));
    }
    let exec = json!({
        "apiVersion": version.api_version(), "command": program(), "args": arguments,
        "interactiveMode": "Never", "provideClusterInfo": false,
        "installHint": "remuda is needed to log in to this cluster; put it into your PATH",
    });
    for user in config["users"].as_array_mut().into_iter().flatten() {
        user["user"] = json!({"exec": exec});
    }
    output::yaml(&config)
}

/// By name if that is found, so that an update of the program is no matter.
fn program() -> String {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file()));
    let own = std::env::current_exe().ok().filter(|_| !found);
    own.map_or_else(|| PROGRAM.to_owned(), |path| path.display().to_string())
}

/// The kubeconfig the cluster itself has.
async fn of_cluster(session: &Session, name: &str) -> Result<String, Failure> {
    let namespace = session.namespace.as_str();
    let secrets = api::core("Secret", "secrets");
    let secret = api::get(&session.client, &secrets, Some(namespace), &format!("{name}-kubeconfig")).await?;
    let Some(secret) = secret else {
        gather::existing(session, namespace, name).await?;
        let evidence = gather::cluster(session, namespace, name, Depth::Objects).await?;
        let finding = why::decide(&evidence, jiff::Timestamp::now());
        let message = format!("cluster {name} has no kubeconfig yet: {}", finding.summary);
        return Err(Failure::new(Code::NotFound, message).hint(format!("remuda why {name} -n {namespace}")));
    };
    let value = secret.0.get("data").and_then(|data| data.get(secret_key::VALUE)).and_then(Value::as_str);
    let bytes = value.and_then(|value| BASE64_STANDARD.decode(value).ok()).unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) if !text.trim().is_empty() => Ok(text),
        _ => Err(Failure::new(Code::Other, format!("the kubeconfig of cluster {name} is empty"))),
    }
}

pub(crate) async fn run(session: &Session, command: KubeconfigCommand) -> Result<(), Failure> {
    match command {
        KubeconfigCommand::Merge(arguments) => merge_all(session, arguments).await,
        KubeconfigCommand::Credential(_) => Err(Failure::invalid("it is asked for by kubectl only")),
    }
}

async fn merge_all(session: &Session, arguments: Merge) -> Result<(), Failure> {
    if arguments.called.is_some() && arguments.names.len() > 1 {
        return Err(Failure::invalid("--as names one context, and there are several clusters"));
    }
    let mut incoming = Vec::new();
    for name in &arguments.names {
        let text = own(session, name, &arguments.form).await?;
        incoming.push((name, file::parse(&text, &format!("the kubeconfig of cluster {name}"))?));
    }
    let path = match arguments.into {
        Some(path) => path,
        None => file::default_path()?,
    };
    let _lock = if arguments.dry_run { None } else { file::lock(&path)? };
    let mut merged = file::read(&path)?;
    let mut notes = Vec::new();
    for (name, incoming) in &incoming {
        let called = arguments.called.as_deref().unwrap_or(name);
        let more = merge::merge(&mut merged, incoming, called, arguments.force)?;
        let unset = merged.get("current-context").and_then(Value::as_str).unwrap_or_default().is_empty();
        if arguments.switch || unset {
            merged["current-context"] = called.into();
        }
        notes.push((*name, called.to_owned(), more));
    }
    let text = output::yaml(&merged)?;
    if arguments.dry_run {
        session.out.text(&text);
        return Ok(());
    }
    file::write(&path, &text)?;
    let current = merged["current-context"].as_str().unwrap_or_default();
    for (name, called, more) in notes {
        let how = if current == called {
            "current context".to_owned()
        } else {
            format!("kubectl --context {called}")
        };
        session.out.note(&format!("cluster {name} is in {} as {called} ({how})", path.display()));
        for direct in more {
            session.out.note(&format!("and directly as {direct}"));
        }
    }
    Ok(())
}
