//! `remuda cluster registration-command`.

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

    /// For servers that do not trust this one's certificate: the first download is then not protected
    #[arg(long)]
    pub insecure: bool,
}

pub(super) async fn run(session: &Session, arguments: Register) -> Result<(), Failure> {
    let name = arguments.name.as_str();
    let cluster = gather::existing(session, &session.namespace, name).await?;
    let early = || {
        let failure = Failure::new(Code::NotFound, format!("cluster {name} has no registration token yet"));
        failure.hint("it takes a moment after a cluster was created; try again")
    };
    let managed = cluster.text("/status/clusterName");
    if managed.is_empty() {
        return Err(early());
    }
    let tokens = api::management("ClusterRegistrationToken");
    let mut found = api::list(&session.client, &tokens, Some(managed), api::Which::All).await?;
    found.sort_by(|one, other| {
        (one.name() != name::DEFAULT_TOKEN, one.name())
            .cmp(&(other.name() != name::DEFAULT_TOKEN, other.name()))
    });
    let token = found.first().ok_or_else(early)?;
    let template = command_of(token, &cluster, &arguments);
    if template.is_empty() {
        return Err(early());
    }
    let template = match template.contains("{token}") {
        true => template.replace("{token}", &secret_token(session, managed, token).await?.ok_or_else(early)?),
        false => template.to_owned(),
    };
    let imported = !cluster.has("/spec/rkeConfig");
    if imported {
        session.out.line(&template);
        return Ok(());
    }
    session.out.line(&format!("{template}{}", flags(&arguments)?));
    Ok(())
}

/// Which of the token's commands fits.
fn command_of<'a>(token: &'a Object, cluster: &Object, arguments: &Register) -> &'a str {
    let imported = !cluster.has("/spec/rkeConfig");
    token.text(match (imported, arguments.windows, arguments.insecure) {
        (true, _, false) => "/status/command",
        (true, _, true) => "/status/insecureCommand",
        (false, true, false) => "/status/windowsNodeCommand",
        (false, true, true) => "/status/insecureWindowsNodeCommand",
        (false, false, false) => "/status/nodeCommand",
        (false, false, true) => "/status/insecureNodeCommand",
    })
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
