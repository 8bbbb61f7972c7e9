//! `remuda capi provider`: providers of Cluster API that others make, beside this server.
//!
//! `clusterctl init` brings a provider's definitions, rights and webhooks. Its Deployment runs nowhere, since this server
//! has no Pods: until something answers its webhooks, writes of its kinds fail. `list` says which providers that is so
//! for, and `run` runs the program of one.

mod credentials;
mod find;
mod list;
mod process;
mod run;
mod webhooks;

use std::net::IpAddr;

use clap::{Args, Subcommand};

use crate::{
    failure::Failure,
    output::Format,
    session::{Global, Session},
};

#[derive(Args, Debug)]
pub struct Provider {
    #[command(subcommand)]
    pub command: ProviderCommand,
}

#[derive(Subcommand, Debug)]
pub enum ProviderCommand {
    /// List installed providers, and whether anything answers their webhooks
    #[command(after_help = "Examples:
  remuda capi provider list
  remuda capi provider list -o json")]
    List {
        /// How to print it
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Run the program of an installed provider beside the server, until Ctrl-C or SIGTERM
    #[command(
        after_help = "The program gets a kubeconfig with the rights of the provider's ServiceAccount (KUBECONFIG), POD_NAMESPACE, and
if the provider has webhooks --webhook-port and --webhook-cert-dir at the end of its arguments. Where these have other
names, write {kubeconfig}, {webhook-port} and {webhook-cert-dir} where they belong; nothing is added then. The
webhooks lead to the program while it runs, and back to their Services afterwards, where nothing answers: writes of
the provider's kinds then fail, and none goes unchecked. A program that ends is started again.

Examples:
  remuda capi provider run infrastructure-docker -- ./capd-manager --diagnostics-address=127.0.0.1:0
  remuda capi provider run kubeadm --type bootstrap -- ./kubeadm-bootstrap-manager
  remuda capi provider run infrastructure-x -- ./x --port {webhook-port} --certs {webhook-cert-dir}"
    )]
    Run(Run),
}

#[derive(Args, Debug)]
pub struct Run {
    /// The provider, as remuda capi provider list names it
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Which, where providers of several types have the name: infrastructure, bootstrap, control-plane …
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,

    /// Where it is installed, if it is installed more than once
    #[arg(long, value_name = "NAMESPACE")]
    pub provider_namespace: Option<String>,

    /// Whose rights the program has [default: the ServiceAccount of the provider's Deployment]
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,

    /// Address of this host at which every server reaches the program [default: the one by which this host reaches the server]
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,

    /// Port of the program's webhooks [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

pub(crate) async fn run(session: &Session, global: &Global, command: ProviderCommand) -> Result<(), Failure> {
    match command {
        ProviderCommand::List { output } => list::run(session, output).await,
        ProviderCommand::Run(arguments) => Box::pin(run::run(session, global, arguments)).await,
    }
}
