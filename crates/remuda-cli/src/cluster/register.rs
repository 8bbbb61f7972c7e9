//! `remuda cluster registration-command`.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::{Args, ValueEnum};
use remuda_names::rancher::{name, secret_key};
use serde_json::Value;

use crate::{
    api,
    failure::{Code, Failure},
    gather,
    object::Object,
    quote::quote,
    session::Session,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeRole {
    All,
    Etcd,
    Controlplane,
    Worker,
}

#[derive(Args, Debug, Default)]
pub struct Register {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// What the server is to be; can be repeated [default: all]
    #[arg(long = "role", value_enum)]
    pub roles: Vec<NodeRole>,

    /// Name of the Node [default: the server's host name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// Address the server is reached at: an address, or the name of a network interface
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,

    /// Address the other servers reach it at
    #[arg(long, value_name = "ADDRESS")]
    pub internal_address: Option<String>,

    /// A label of the Node; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,

    /// A taint of the Node; can be repeated
    #[arg(long = "taint", value_name = "NAME=VALUE:EFFECT")]
    pub taints: Vec<String>,

    /// For a Windows server, which is always a worker
    #[arg(long)]
    pub windows: bool,

    /// Fetch the script without looking at this server's certificate at all
    #[arg(long)]
    pub insecure: bool,
}

/// How long a new cluster is given to get its token: what is copied from a guide comes right after its creation.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn run(session: &Session, arguments: Register) -> Result<(), Failure> {
    let name = arguments.name.as_str();
    let began = Instant::now();
    let (cluster, template, note) = loop {
        let cluster = gather::existing(session, &session.namespace, name).await?;
        match whole_command(session, &cluster, &arguments).await? {
            Some((template, note)) => break (cluster, template, note),
            None if began.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
            None => {
                let told = format!("cluster {name} has no registration token yet");
                let hint = format!("remuda why {name} says what it waits for");
                return Err(Failure::new(Code::NotFound, told).hint(hint));
            }
        }
    };
    if let Some(note) = note {
        session.out.note(note);
    }
    if let Some(warning) = unreachable(&template) {
        session.out.note(&warning);
    }
    let imported = !cluster.has("/spec/rkeConfig");
    if imported {
        session.out.line(&template);
        return Ok(());
    }
    session.out.line(&format!("{}{}", with_sudo_where_it_is(&template), flags(&arguments)?));
    Ok(())
}

/// The command with its token, and what there is to say about it; nothing as long as there is no token.
async fn whole_command(
    session: &Session,
    cluster: &Object,
    arguments: &Register,
) -> Result<Option<(String, Option<&'static str>)>, Failure> {
    let managed = cluster.text("/status/clusterName");
    if managed.is_empty() {
        return Ok(None);
    }
    let tokens = api::management("ClusterRegistrationToken");
    let mut found = api::list(&session.client, &tokens, Some(managed), api::Which::All).await?;
    found.sort_by(|one, other| {
        (one.name() != name::DEFAULT_TOKEN, one.name())
            .cmp(&(other.name() != name::DEFAULT_TOKEN, other.name()))
    });
    let Some(token) = found.first() else { return Ok(None) };
    let (template, note) = command_of(token, cluster, arguments);
    if template.is_empty() {
        return Ok(None);
    }
    if !template.contains("{token}") {
        return Ok(Some((template, note)));
    }
    let secret = secret_token(session, managed, token).await?;
    Ok(secret.map(|secret| (template.replace("{token}", &secret), note)))
}

/// Who is root on a small system has no sudo, and needs none.
fn with_sudo_where_it_is(command: &str) -> String {
    const ALWAYS: &str = "| sudo ";
    match command.split_once(ALWAYS) {
        // A shell takes VARIABLE=VALUE for what it is only at the beginning of a command.
        Some((fetch, run)) if !run.starts_with("sh ") => format!("{fetch}| $(command -v sudo) env {run}"),
        Some((fetch, run)) => format!("{fetch}| $(command -v sudo) {run}"),
        None => command.to_owned(),
    }
}

/// What to say about a command that only works on the server's own host.
fn unreachable(command: &str) -> Option<String> {
    let (_, rest) = command.split_once("https://")?;
    let authority = rest.split(['/', ' ', '?']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => authority.split(':').next()?,
    };
    let address = host.parse::<IpAddr>().ok();
    let here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    here.then(|| {
        format!(
            "warning: {host} is every machine itself, so this command works on the server's own host only; start the \
             server with --advertise ADDRESS, or set the setting server-url, to an address the machines reach"
        )
    })
}

/// Why a command is longer than one might expect.
const PINNED: &str = "this server's certificate is of its own authority, which curl does not know: the command fetches \
                      that authority first and goes on only if it has the checksum expected";
const UNPINNED: &str = "this server's certificate is of its own authority, which curl does not know: the script is \
                        fetched without looking at it, and checks the authority's checksum before it sends anything";

/// The command that fits and works, and what there is to say about it.
fn command_of(token: &Object, cluster: &Object, arguments: &Register) -> (String, Option<&'static str>) {
    let imported = !cluster.has("/spec/rkeConfig");
    let (trusting, insecure) = match (imported, arguments.windows) {
        (true, _) => ("/status/command", "/status/insecureCommand"),
        (false, true) => ("/status/windowsNodeCommand", "/status/insecureWindowsNodeCommand"),
        (false, false) => ("/status/nodeCommand", "/status/insecureNodeCommand"),
    };
    let (trusting, insecure) = (token.text(trusting), token.text(insecure));
    if arguments.insecure {
        return (insecure.to_owned(), None);
    }
    // A checksum is there if the authority is not one that everybody knows.
    let linux = token.text("/status/nodeCommand");
    match (word_after(linux, "--server "), word_after(linux, "--ca-checksum ")) {
        (Some(_), Some(_)) if arguments.windows && !imported => (insecure.to_owned(), Some(UNPINNED)),
        (Some(root), Some(checksum)) => match pinned(insecure, root, checksum) {
            Some(command) => (command, Some(PINNED)),
            None => (trusting.to_owned(), None),
        },
        _ => (trusting.to_owned(), None),
    }
}

/// A command that trusts the authority of this server and nobody else, once it has seen its checksum.
fn pinned(insecure: &str, root: &str, checksum: &str) -> Option<String> {
    const DOWNLOAD: &str = "curl --insecure ";
    // What is set before it, such as a proxy, is for each download.
    let (environment, rest) = insecure.split_once(DOWNLOAD)?;
    Some(format!(
        "CA=$(mktemp) && {environment}{DOWNLOAD}-sfL {root}/cacerts > \"$CA\" && echo \"{checksum}  $CA\" | \
         sha256sum -c && {environment}curl --cacert \"$CA\" {rest}"
    ))
}

fn word_after<'a>(text: &'a str, flag: &str) -> Option<&'a str> {
    text.split_once(flag)?.1.split(' ').next().filter(|word| !word.is_empty())
}

async fn secret_token(session: &Session, managed: &str, token: &Object) -> Result<Option<String>, Failure> {
    let secret = match token.text("/status/tokenSecretName") {
        "" => format!("crt-token-{}", token.name()),
        name => name.to_owned(),
    };
    let secret = api::get(&session.client, &api::core("Secret", "secrets"), Some(managed), &secret).await?;
    let value = secret
        .as_ref()
        .and_then(|secret| secret.0.get("data")?.get(secret_key::TOKEN))
        .and_then(Value::as_str);
    let bytes = value.and_then(|value| BASE64_STANDARD.decode(value).ok());
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|token| !token.is_empty()))
}

/// What is added to the command for one server.
fn flags(arguments: &Register) -> Result<String, Failure> {
    let mut words: Vec<String> = Vec::new();
    let roles = &arguments.roles;
    if arguments.windows {
        if roles.iter().any(|role| *role != NodeRole::Worker) {
            return Err(Failure::invalid("a Windows server can only be a worker"));
        }
    } else {
        let all = roles.is_empty() || roles.contains(&NodeRole::All);
        let named = [
            (NodeRole::Etcd, "--etcd"),
            (NodeRole::Controlplane, "--controlplane"),
            (NodeRole::Worker, "--worker"),
        ];
        words.extend(
            named.iter().filter(|(role, _)| all || roles.contains(role)).map(|(_, flag)| (*flag).to_owned()),
        );
    }
    let mut add = |flag: &str, windows: &str, value: &str| -> Result<(), Failure> {
        if value.is_empty() || value.chars().any(char::is_control) {
            return Err(Failure::invalid(format!("{flag} {value:?} makes no sense")));
        }
        let (flag, value) = match arguments.windows {
            true => (windows, quote_powershell(value)),
            false => (flag, quote(value)),
        };
        words.push(format!("{flag} {value}"));
        Ok(())
    };
    if let Some(name) = &arguments.node_name {
        add("--node-name", "-NodeName", name)?;
    }
    if let Some(address) = &arguments.address {
        add("--address", "-Address", address)?;
    }
    if let Some(address) = &arguments.internal_address {
        add("--internal-address", "-InternalAddress", address)?;
    }
    for label in &arguments.labels {
        if !label.contains('=') {
            return Err(Failure::invalid(format!("label {label:?} is not NAME=VALUE")));
        }
        add("--label", "-Label", label)?;
    }
    for taint in &arguments.taints {
        let effect = taint.rsplit_once(':').map(|(_, effect)| effect);
        if !matches!(effect, Some("NoSchedule" | "PreferNoSchedule" | "NoExecute")) {
            let failure = Failure::invalid(format!("taint {taint:?} is not NAME=VALUE:EFFECT"));
            return Err(failure.hint("effects are NoSchedule, PreferNoSchedule and NoExecute"));
        }
        add("--taint", "-Taint", taint)?;
    }
    Ok(words.iter().map(|word| format!(" {word}")).collect())
}

fn quote_powershell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: Register, expected: &str) {
        let found = flags(&arguments).unwrap_or_else(|failure| format!("refused: {}", failure.message));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_server_gets_its_roles_and_what_else_was_said() {
        check(Register::default(), " --etcd --controlplane --worker");
        let some = Register {
            roles: vec![NodeRole::Worker],
            node_name: Some("edge-7".into()),
            address: Some("eth0".into()),
            labels: vec!["rack=r2".into(), "note=it's here".into()],
            taints: vec!["a=b:NoExecute".into()],
            ..Register::default()
        };
        check(
            some,
            r" --worker --node-name edge-7 --address eth0 --label rack=r2 --label 'note=it'\''s here' --taint a=b:NoExecute",
        );
        let windows = Register { windows: true, node_name: Some("w".into()), ..Register::default() };
        check(windows, " -NodeName 'w'");
    }

    #[test]
    fn sudo_is_used_where_there_is_one() {
        assert_eq!(
            with_sudo_where_it_is("curl x | sudo sh -s - --server y"),
            "curl x | $(command -v sudo) sh -s - --server y"
        );
        assert_eq!(
            with_sudo_where_it_is("A=\"1\" curl x | sudo A=\"1\" sh -s -"),
            "A=\"1\" curl x | $(command -v sudo) env A=\"1\" sh -s -"
        );
        assert_eq!(with_sudo_where_it_is("kubectl apply -f x"), "kubectl apply -f x");
    }

    #[test]
    fn an_address_no_other_machine_reaches_is_warned_about() {
        for command in
            ["curl https://127.0.0.1:8443/x", "curl https://localhost/x", "curl https://[::1]:1/x | sh"]
        {
            assert!(unreachable(command).is_some(), "{command}");
        }
        for command in
            ["curl https://10.0.0.1:8443/x", "curl https://mgr.example", "true", "https://[fd00::1]/"]
        {
            assert_eq!(unreachable(command), None, "{command}");
        }
    }

    fn token(checksum: &str) -> Object {
        let tail = format!(
            "https://mgr/system-agent-install.sh | sudo sh -s - --server https://mgr --token t{checksum}"
        );
        let status = serde_json::json!({
            "nodeCommand": format!("curl -fL {tail}"),
            "insecureNodeCommand": format!("P=\"x\" curl --insecure -fL {tail}"),
            "windowsNodeCommand": "curl.exe -fL …",
            "insecureWindowsNodeCommand": "curl.exe --insecure -fL …",
            "command": "kubectl apply -f https://mgr/v3/import/t.yaml",
            "insecureCommand": "curl --insecure -sfL https://mgr/v3/import/t.yaml | kubectl apply -f -",
        });
        Object(serde_json::json!({"status": status}))
    }

    #[test]
    fn the_command_works_with_the_servers_own_authority_and_trusts_no_other() {
        let provisioned = Object(serde_json::json!({"spec": {"rkeConfig": {}}}));
        let imported = Object(serde_json::json!({"spec": {}}));
        let (own, public) = (token(" --ca-checksum 5af3"), token(""));
        let plain = Register::default();
        let said = |token: &Object, cluster: &Object, arguments: &Register| {
            let (command, note) = command_of(token, cluster, arguments);
            (command.chars().take_while(|letter| *letter != '|').collect::<String>(), note.is_some())
        };
        assert_eq!(
            command_of(&own, &provisioned, &plain).0,
            "CA=$(mktemp) && P=\"x\" curl --insecure -sfL https://mgr/cacerts > \"$CA\" && echo \"5af3  $CA\" | \
             sha256sum -c && P=\"x\" curl --cacert \"$CA\" -fL https://mgr/system-agent-install.sh | sudo sh -s - \
             --server https://mgr --token t --ca-checksum 5af3"
        );
        let script = "curl -fL https://mgr/system-agent-install.sh ".to_owned();
        assert_eq!(said(&public, &provisioned, &plain), (script, false));
        assert!(
            command_of(&own, &imported, &plain)
                .0
                .ends_with("curl --cacert \"$CA\" -sfL https://mgr/v3/import/t.yaml | kubectl apply -f -")
        );
        let windows = Register { windows: true, ..Register::default() };
        assert_eq!(said(&own, &provisioned, &windows), ("curl.exe --insecure -fL …".to_owned(), true));
        assert_eq!(said(&public, &provisioned, &windows), ("curl.exe -fL …".to_owned(), false));
        let insecure = Register { insecure: true, ..Register::default() };
        assert!(said(&own, &provisioned, &insecure).0.starts_with("P=\"x\" curl --insecure -fL"));
    }

    #[test]
    fn what_no_server_could_be_is_refused() {
        check(
            Register { windows: true, roles: vec![NodeRole::Etcd], ..Register::default() },
            "refused: a Windows server can only be a worker",
        );
        check(
            Register { labels: vec!["x".into()], ..Register::default() },
            "refused: label \"x\" is not NAME=VALUE",
        );
        check(
            Register { taints: vec!["x:Never".into()], ..Register::default() },
            "refused: taint \"x:Never\" is not NAME=VALUE:EFFECT",
        );
        check(
            Register { node_name: Some("a\nb".into()), ..Register::default() },
            "refused: --node-name \"a\\nb\" makes no sense",
        );
    }
}
