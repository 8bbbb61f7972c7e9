//! The command line: what can be asked for, and what is said about a mistake in it.

use std::{path::PathBuf, process::ExitCode};

use clap::{
    Args, Parser, Subcommand,
    builder::styling::{AnsiColor, Styles},
    error::ErrorKind,
};
use remuda_cli::Code;
use remuda_names::env;
use remuda_server::config::Options;

use crate::failure::Failure;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

/// Kubernetes clusters, provisioned and managed from one binary
#[derive(Parser)]
#[command(name = "remuda", version, styles = STYLES, after_help = "Try it:
  remuda server --data-dir /tmp/remuda
  KUBECONFIG=/tmp/remuda/admin.kubeconfig kubectl get namespaces")]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the server with a cluster on machines of this host, to try it all
    #[command(after_help = "Machines are made of namespaces: no Docker, no root, no internet.

Examples:
  remuda up                                one server and two workers
  remuda up --servers 3 --workers 5        more of them
  remuda up --distribution rke2
  remuda up --real --bundle k3s.bundle     K3s itself, without internet; needs root
  remuda up --port 8080:80                 port 80 of its machines at 127.0.0.1:8080
  remuda up --data-dir /tmp/remuda --bind 127.0.0.1:9443
  remuda down                              the end of it")]
    Up(Box<crate::up::Up>),

    /// Delete all clusters of the server on this host, then the server's data
    #[command(after_help = "Examples:
  remuda down
  remuda down --data-dir /tmp/remuda --yes")]
    Down(crate::up::Down),

    /// Run the server: a Kubernetes API on one HTTPS port, with everything it needs inside
    #[command(after_help = "Examples:
  remuda server                                       all defaults: port 8443, embedded store
  remuda server --bind 127.0.0.1:0 --datastore memory a throw-away server on a free port
  remuda server --datastore etcd://a,b,c --shared-secret-file secret
  REMUDA_LOG_FORMAT=json remuda server --config remuda.yaml

Stop it with SIGTERM or Ctrl-C. SIGHUP reads --tls-cert and --tls-key again.")]
    Server(Box<Options>),

    #[command(flatten)]
    People(remuda_cli::Command),

    /// Run, install or remove the agent of a node
    ///
    /// Nodes are normally given it by the registration command of their cluster.
    #[command(disable_help_flag = true)]
    Agent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },

    /// Run a node of the sandbox distribution, as its services do
    #[command(disable_help_flag = true)]
    Node {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },

    /// Run the agent of a cluster, as its Deployment does
    ClusterAgent,

    /// Run the authenticator of a cluster with an authorized endpoint, as its DaemonSet does
    KubeApiAuth,

    /// Write everything the server knows to one file, while it runs or not
    #[command(
        after_help = "The file holds the objects, the encryption keys, the certificate authority and the
signing keys: whoever has it can become the server. It is written with mode 0600; keep it so.

Examples:
  remuda backup --output remuda.backup
  remuda backup --output remuda.backup --kubeconfig admin.kubeconfig   from another machine"
    )]
    Backup(Backup),

    /// Make a data directory out of a backup
    #[command(after_help = "The directory must be new or empty, and no server may be using it.

Examples:
  remuda restore remuda.backup --data-dir /var/lib/remuda
  remuda server --data-dir /var/lib/remuda")]
    Restore(Restore),

    /// Encrypt everything at rest with a new key and forget the old ones
    #[command(after_help = "Backups made before keep the keys they were made with and stay usable.

Examples:
  remuda rotate-keys
  remuda rotate-keys --kubeconfig admin.kubeconfig")]
    RotateKeys(Target),

    /// Save or push the image of the cluster agent, which is made of this program
    #[command(subcommand)]
    Image(crate::image::Command),

    /// Make, check and push bundles: images in one file, for machines without internet
    #[command(subcommand)]
    Bundle(crate::bundle::Command),

    /// Look into decisions about a cluster
    #[command(subcommand)]
    Debug(crate::debug::Command),

    /// Try out or load a server with simulated machines and clusters
    #[command(subcommand)]
    Sim(crate::sim::Sim),

    /// Check what this host can be: machines for clusters, a server, a node
    #[command(after_help = "Nothing is changed. The exit code is 0 if the host can be all that was asked.

Examples:
  remuda doctor                    clusters on this host, and a server
  remuda doctor agent              before a registration command is run here
  remuda doctor server --bind 0.0.0.0:443 --data-dir /srv/remuda -o json")]
    Doctor(crate::doctor::Doctor),

    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  remuda completion bash > /etc/bash_completion.d/remuda    names of clusters and machines too
  remuda completion zsh > ~/.zfunc/_remuda
  remuda completion fish > ~/.config/fish/completions/remuda.fish")]
    Completion { shell: clap_complete::Shell },

    /// Print names the last word of a command line can be, for completion scripts
    #[command(hide = true)]
    Complete {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },

    /// Print all commands and their arguments as JSON, for manual pages
    #[command(hide = true)]
    Describe,

    /// Print which version this is
    Version(Version),
}

/// Which server, or which server's data, a command is about: by the same rule as for all commands.
#[derive(Args)]
pub(crate) struct Target {
    /// The kubeconfig of the server
    ///
    /// Which server is meant is decided by the first of these: --kubeconfig; --data-dir or $REMUDA_DATA_DIR; --context in
    /// $KUBECONFIG or ~/.kube/config; $KUBECONFIG; the server of the last remuda login; admin.kubeconfig in the default
    /// data directory; ~/.kube/config. Contexts that lead into a cluster are passed over unless they are named.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context in that file [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The server's data directory [default: /var/lib/remuda as root, else ~/.local/share/remuda]
    ///
    /// If no server is running on it, the command works on the directory itself.
    #[arg(long, env = env::DATA_DIR, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Target {
    /// As other commands are told.
    pub(crate) fn global(&self) -> remuda_cli::Global {
        remuda_cli::Global {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            data_dir: self.data_dir.clone(),
            namespace: None,
        }
    }
}

#[derive(Args)]
pub(crate) struct Backup {
    /// Write the backup to this file, which must not exist
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Args)]
pub(crate) struct Restore {
    /// A file written by `remuda backup`
    pub(crate) file: PathBuf,

    /// The data directory to make [default: /var/lib/remuda as root, else ~/.local/share/remuda]
    #[arg(long, env = env::DATA_DIR, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Version {
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// The command, or how the process ends without one.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    match CommandLine::try_parse() {
        Ok(line) => Ok(line.command),
        Err(error) => Err(match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let _ = error.print();
                ExitCode::SUCCESS
            }
            // It is the help of the command that was named, in colours only where they are seen.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _ = error.print();
                ExitCode::from(Code::Invalid.number())
            }
            _ => mistake(&error.render().to_string()).report(),
        }),
    }
}

/// Makes one line and a hint out of clap's several paragraphs.
fn mistake(text: &str) -> Failure {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let mut message = first.strip_prefix("error: ").unwrap_or(first).trim().to_owned();
    let mut hint = None;
    let mut usage = None;
    for line in lines {
        let line = line.trim();
        if let Some(tip) = line.strip_prefix("tip: ") {
            hint.get_or_insert_with(|| tip.to_owned());
        } else if let Some(line) = line.strip_prefix("Usage: ") {
            usage = Some(line.to_owned());
        } else if message.ends_with(':') && !line.is_empty() {
            message = format!("{message} {line}");
        } else if line.starts_with("[possible values") {
            hint = Some(line.trim_matches(['[', ']']).to_owned());
        }
    }
    let program = usage.as_deref().map(program_of);
    let help = program.map(|program| format!("{program} --help shows what there is"));
    Failure::usage(message, hint.or(help))
}

/// The command's words in a usage line, without the arguments.
fn program_of(usage: &str) -> String {
    let words = usage.split(' ').take_while(|word| !word.starts_with(['-', '<', '[']));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[track_caller]
    fn check(arguments: &str, message: &str, hint: &str) {
        let line = std::iter::once("remuda").chain(arguments.split(' '));
        let Err(error) = CommandLine::try_parse_from(line) else { panic!("{arguments} was accepted") };
        let failure = mistake(&error.render().to_string());
        assert_eq!((failure.message.as_str(), failure.hint.as_deref().unwrap_or("")), (message, hint));
    }

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn mistakes_are_one_line_and_a_hint() {
        check("server --bimd x", "unexpected argument '--bimd' found", "a similar argument exists: '--bind'");
        check(
            "server --max-connections many",
            "invalid value 'many' for '--max-connections <N>': invalid digit found in string",
            "",
        );
        check(
            "server --log-format xml",
            "invalid value 'xml' for '--log-format <FORMAT>'",
            "possible values: text, json",
        );
        check(
            "backup",
            "the following required arguments were not provided: --output <FILE>",
            "remuda backup --help shows what there is",
        );
    }
}
