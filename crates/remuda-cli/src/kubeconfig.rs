//! `remuda get kubeconfig` and `remuda kubeconfig merge`.

mod file;
mod merge;

use std::path::PathBuf;

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::{Args, Subcommand};
use remuda_names::rancher::secret_key;
use serde_json::Value;

use crate::{
    api,
    failure::{Code, Failure},
    gather::{self, Depth},
    output,
    session::{Global, Session},
    why,
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
    /// The kubeconfig of a cluster
    #[command(after_help = "Examples:
  remuda get kubeconfig demo > demo.kubeconfig
  remuda get kubeconfig demo -o demo.kubeconfig
  kubectl --kubeconfig <(remuda get kubeconfig demo) get nodes
  remuda kubeconfig merge demo                    into ~/.kube/config")]
    Kubeconfig {
        /// Name of the cluster
        name: String,

        /// Write it to this file, which only you can read then [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
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
  remuda kubeconfig merge demo edge --into ~/.kube/clusters --switch
  kubectl --context demo get nodes")]
    Merge(Merge),
}

#[derive(Args, Debug)]
pub struct Merge {
    /// Names of clusters
    #[arg(required = true)]
    pub names: Vec<String>,

    /// The file [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,

    /// Call the context this instead of what the cluster is called
    #[arg(long = "as", value_name = "NAME")]
    pub called: Option<String>,

    /// Make it the current context
    #[arg(long)]
    pub switch: bool,

    /// Replace a context of the same name that leads to another server
    #[arg(long)]
    pub force: bool,

    /// Print the file as it would be, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

pub(crate) async fn get(session: &Session, command: GetCommand) -> Result<(), Failure> {
    let GetCommand::Kubeconfig { name, output } = command;
    let text = read(session, &name).await?;
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
    let mut merged = file::read(&path)?;
    merge::merge(&mut merged, incoming, called, force)?;
    if switch {
        merged["current-context"] = called.into();
    }
    file::write(&path, &output::yaml(&merged)?)?;
    Ok(path)
}

/// The kubeconfig of a cluster, as text.
pub async fn read(session: &Session, name: &str) -> Result<String, Failure> {
    let namespace = session.namespace.as_str();
    api::check_name(name)?;
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
    let KubeconfigCommand::Merge(arguments) = command;
    if arguments.called.is_some() && arguments.names.len() > 1 {
        return Err(Failure::invalid("--as names one context, and there are several clusters"));
    }
    let path = match arguments.into {
        Some(path) => path,
        None => file::default_path()?,
    };
    let mut merged = file::read(&path)?;
    for name in &arguments.names {
        let text = read(session, name).await?;
        let incoming = file::parse(&text, &format!("the kubeconfig of cluster {name}"))?;
        let called = arguments.called.as_deref().unwrap_or(name);
        merge::merge(&mut merged, &incoming, called, arguments.force)?;
        let unset = merged.get("current-context").and_then(Value::as_str).unwrap_or_default().is_empty();
        if arguments.switch || unset {
            merged["current-context"] = called.into();
        }
    }
    let text = output::yaml(&merged)?;
    if arguments.dry_run {
        session.out.text(&text);
        return Ok(());
    }
    file::write(&path, &text)?;
    let current = merged["current-context"].as_str().unwrap_or_default();
    for name in &arguments.names {
        let called = arguments.called.as_deref().unwrap_or(name);
        let how = if current == called {
            "current context".to_owned()
        } else {
            format!("kubectl --context {called}")
        };
        session.out.note(&format!("cluster {name} is in {} as {called} ({how})", path.display()));
    }
    Ok(())
}
