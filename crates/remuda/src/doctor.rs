//! `remuda doctor`: whether this host can have local machines, run the server, or become a node.
//!
//! Facts are gathered here; [`findings`] decides what they mean, and is a pure function of them. Nothing is changed
//! on the host.

mod facts;
mod findings;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use remuda_cli::Code;
use remuda_names::env;
use remuda_server::config::{Bind, LocalMachines, Options};
use serde_json::json;

use self::{
    facts::Facts,
    findings::{Finding, Verdict},
};
use crate::{command::Format, failure, output};

/// What a host is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Role {
    /// Clusters on machines of this host, as `remuda up` makes them
    Local,
    /// The same with K3s or RKE2 itself, as `remuda up --real` makes them
    Real,
    /// A server
    Server,
    /// A node of a cluster, with K3s or RKE2
    Agent,
}

#[derive(Args)]
pub(crate) struct Doctor {
    /// What this host is to be [default: local server]
    #[arg(value_enum, value_name = "ROLE")]
    roles: Vec<Role>,

    /// The server's data directory [default: /var/lib/remuda as root, else ~/.local/share/remuda]
    #[arg(long, env = env::DATA_DIR, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Where the server is going to listen [default: :8443]
    #[arg(long, env = env::BIND, value_name = "ADDRESS:PORT")]
    bind: Option<String>,

    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Ends with 0 if the host can be all that was asked, else with 1.
pub(crate) fn run(arguments: Doctor) -> ExitCode {
    let mut roles = arguments.roles;
    if roles.is_empty() {
        roles = vec![Role::Local, Role::Server];
    }
    roles.sort_unstable();
    roles.dedup();
    let options = Options { data_dir: arguments.data_dir, bind: arguments.bind, ..Options::default() };
    let config = match options.resolve() {
        Ok(config) => config,
        Err(error) => return failure::Failure::new(&error, error.hint()).report(),
    };
    let bind = match config.bind {
        Bind::At(address) => address,
        Bind::Any { port } => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
    };
    let machines = match (roles.contains(&Role::Local), roles.contains(&Role::Real)) {
        (false, false) => None,
        (false, true) => Some(LocalMachines::Privileged),
        (true, _) => Some(LocalMachines::Isolated),
    };
    let facts = Facts::gather(&config.data_dir, bind, machines);
    let found: Vec<(Role, Vec<Finding>)> =
        roles.iter().map(|role| (*role, findings::of(*role, &facts))).collect();
    match arguments.output {
        Format::Text => print_text(&found),
        Format::Json => print_json(&found),
    }
    let failed = found.iter().flat_map(|(_, found)| found).any(|found| found.verdict == Verdict::Failure);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Whether this host can have clusters of K3s or RKE2 itself; the first thing that is missing if not.
pub(crate) fn can_be_real(data_dir: &Path) -> Result<(), remuda_cli::Failure> {
    let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let facts = Facts::gather(data_dir, anywhere, Some(LocalMachines::Privileged));
    let found = findings::of(Role::Real, &facts);
    let Some(first) = found.into_iter().find(|finding| finding.verdict == Verdict::Failure) else {
        return Ok(());
    };
    let message = format!("this host cannot have real clusters: {}: {}", first.about, first.says);
    let hint = first.hint.map_or_else(String::new, |hint| format!("{hint}; "));
    Err(remuda_cli::Failure::new(Code::Other, message)
        .hint(format!("{hint}remuda doctor real shows everything; without --real no root is needed")))
}

fn print_text(found: &[(Role, Vec<Finding>)]) {
    for (role, findings) in found {
        output::line(&format!("{}:", role.title()));
        for finding in findings {
            output::line(&format!("  {:<8}{}: {}", finding.verdict.word(), finding.about, finding.says));
            if let Some(hint) = &finding.hint {
                output::line(&format!("          hint: {hint}"));
            }
        }
    }
    for (role, findings) in found {
        let failures = findings.iter().filter(|finding| finding.verdict == Verdict::Failure).count();
        output::line(&match failures {
            0 => format!("{}: yes", role.title()),
            1 => format!("{}: no, 1 thing is missing", role.title()),
            _ => format!("{}: no, {failures} things are missing", role.title()),
        });
    }
}

fn print_json(found: &[(Role, Vec<Finding>)]) {
    let roles: Vec<_> = found
        .iter()
        .map(|(role, findings)| {
            let possible = findings.iter().all(|finding| finding.verdict != Verdict::Failure);
            let checks: Vec<_> = findings
                .iter()
                .map(|finding| {
                    json!({"about": finding.about, "verdict": finding.verdict.word(),
                        "message": finding.says, "hint": finding.hint})
                })
                .collect();
            json!({"role": role.word(), "possible": possible, "checks": checks})
        })
        .collect();
    output::line(&format!("{:#}", json!({ "roles": roles })));
}

impl Role {
    fn title(self) -> &'static str {
        match self {
            Role::Local => "clusters on this host",
            Role::Real => "real clusters on this host",
            Role::Server => "server",
            Role::Agent => "node of a cluster",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Role::Local => "local",
            Role::Real => "real",
            Role::Server => "server",
            Role::Agent => "agent",
        }
    }
}
