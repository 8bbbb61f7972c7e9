//! `k3s etcd-snapshot …`: asks the server on this machine, as the commands of K3s do.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Listed, ON_DEMAND};
use crate::{
    config::{self, ConfigError, Role, S3Args, Settings, Sources},
    distribution::Distribution,
    files::{self, FileError},
    http::{HttpError, Peer},
    server::state::{Mode, StateError},
    tls::{self, TlsError},
    token::{self, Token},
};

/// Where a server takes these requests.
pub const PATH: &str = "/db/snapshot";

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("unknown command {0:?}: expected save, ls, delete or prune")]
    Command(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("reach the server on this machine")]
    Tls(#[from] TlsError),
    #[error("no server runs on this machine, or it has not written its token yet")]
    NoServer,
    #[error("ask the server on this machine")]
    Ask(#[from] HttpError),
    #[error("the store of snapshots")]
    S3(#[from] remuda_s3::S3Error),
    #[error("the server answered something that makes no sense")]
    Nonsense,
    #[error("write the answer")]
    Output(#[source] io::Error),
}

/// What is asked of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "operation")]
pub enum Ask {
    Save { name: String },
    List,
    Delete { names: Vec<String> },
    Prune { retention: Option<usize> },
}

/// The same, with the store it is about: that of the configuration as it is now, whatever the server began with.
#[derive(Serialize, Deserialize)]
pub struct Message {
    #[serde(flatten)]
    pub ask: Ask,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Args>,
}

/// What follows `etcd-snapshot`, and the settings it is about.
fn parse(args: &[String]) -> Result<(Ask, config::Values, bool), CommandError> {
    let (mut flags, words) = config::parse_flags(args);
    let mut own = |names: &[&str]| {
        let given = names.iter().filter_map(|name| flags.0.remove(*name)).flatten();
        given.last()
    };
    let name = own(&["name", "etcd-snapshot-name"]);
    let retention = own(&["snapshot-retention", "etcd-snapshot-retention"]);
    // `-o` is the kubeconfig of a server; here it is the form of the output.
    let as_json = own(&["output", "write-kubeconfig"]).is_some_and(|form| form == "json");
    let mut words = words.into_iter();
    let ask = match words.next().as_deref() {
        // Older versions have no `save`.
        None | Some("save") => Ask::Save { name: name.unwrap_or_else(|| ON_DEMAND.to_owned()) },
        Some("ls" | "list" | "l") => Ask::List,
        Some("delete") => Ask::Delete { names: words.collect() },
        Some("prune") => Ask::Prune { retention: retention.and_then(|text| text.parse().ok()) },
        Some(other) => return Err(CommandError::Command(other.to_owned())),
    };
    Ok((ask, flags, as_json))
}

pub fn run(
    distribution: Distribution,
    args: &[String],
    env: BTreeMap<String, String>,
) -> Result<(), CommandError> {
    let (ask, flags, as_json) = parse(args)?;
    let settings = Settings::load(distribution, Role::Server, &Sources { flags, env })?;
    if let Some(Mode::Follower { holder, .. }) = Mode::read(&settings)? {
        let told = format!("all state is kept by the server at {holder}; snapshots are taken there\n");
        return io::stderr().write_all(told.as_bytes()).map_err(CommandError::Output);
    }
    let s3 = settings.snapshots.s3.clone().map(|s3| {
        let config = s3.config.with_authorities()?;
        Ok::<_, remuda_s3::S3Error>(S3Args { config, ..s3 })
    });
    let message = Message { ask, s3: s3.transpose()? };
    let answer = self::ask(&settings, PATH, &json!(message))?;
    print(&message.ask, &answer, as_json)
}

/// Asks the server on this machine, as one of its own.
pub(crate) fn ask(settings: &Settings, path: &str, message: &Value) -> Result<Value, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(CommandError::Output)?.block_on(send(settings, path, message))
}

async fn send(settings: &Settings, path: &str, message: &Value) -> Result<Value, CommandError> {
    let stored = files::read(&settings.paths.server("token"))?.ok_or(CommandError::NoServer)?;
    let token = Token::parse(&stored).map_err(|_| CommandError::NoServer)?;
    let ca = files::read(&settings.paths.tls("server-ca.crt"))?.ok_or(CommandError::NoServer)?;
    let basic = Some(format!("{}:{}", token::SERVER_USER, token.password));
    let peer = Peer { tls: Some(tls::client_config(Some(&ca), None)?), basic };
    let url = format!("https://127.0.0.1:{}{path}", settings.ports.supervisor);
    Ok(peer.post_slowly(&url, message).await?)
}

fn print(ask: &Ask, answer: &Value, as_json: bool) -> Result<(), CommandError> {
    let text = match ask {
        _ if as_json => format!("{answer}\n"),
        Ask::List => {
            let listed: Vec<Listed> =
                serde_json::from_value(answer.clone()).map_err(|_| CommandError::Nonsense)?;
            let mut text = format!("{:60} {:80} {:>12} Created\n", "Name", "Location", "Size");
            for one in listed {
                let created = remuda_base::rfc3339(one.created);
                text.push_str(&format!("{:60} {:80} {:>12} {created}\n", one.name, one.location, one.size));
            }
            text
        }
        Ask::Save { .. } => {
            let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
            // As K3s has it, a snapshot that is on this server is one, and the store's trouble is in its catalogue.
            match text("s3Error") {
                error if error.is_empty() => format!("Snapshot {} saved.\n", text("name")),
                error => format!("Snapshot {} saved, but not in S3: {error}\n", text("name")),
            }
        }
        Ask::Delete { .. } => "Snapshots deleted.\n".to_owned(),
        Ask::Prune { .. } => format!("{answer}\n"),
    };
    io::stdout().write_all(text.as_bytes()).map_err(CommandError::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_real_distributions() {
        let ask = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&words).map(|(ask, ..)| ask).ok()
        };
        assert_eq!(ask(""), Some(Ask::Save { name: "on-demand".to_owned() }));
        assert_eq!(ask("save --name before-upgrade"), Some(Ask::Save { name: "before-upgrade".to_owned() }));
        assert_eq!(ask("ls -o json"), Some(Ask::List));
        assert_eq!(ask("delete a b"), Some(Ask::Delete { names: vec!["a".to_owned(), "b".to_owned()] }));
        assert_eq!(ask("prune --snapshot-retention 3"), Some(Ask::Prune { retention: Some(3) }));
        assert_eq!(ask("dance"), None);
    }
}
