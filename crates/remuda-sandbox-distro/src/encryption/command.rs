//! `k3s secrets-encrypt …`: asks the server on this machine, as the command of K3s does.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::server::Status;
use crate::{
    config::{self, ConfigError, Role, Settings, Sources},
    distribution::Distribution,
    snapshot,
};

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("unknown command {0:?}: expected status, prepare, rotate, reencrypt or rotate-keys")]
    Command(String),
    #[error("--{0} is not available in the sandbox distribution")]
    Flag(&'static str),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Ask(#[from] snapshot::command::CommandError),
    #[error("the server answered something that makes no sense")]
    Nonsense,
    #[error("write the answer")]
    Output(#[source] io::Error),
}

/// What is asked of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    Status,
    Prepare,
    Rotate,
    Reencrypt,
    RotateKeys,
}

const WORDS: [(&str, Ask); 5] = [
    ("status", Ask::Status),
    ("prepare", Ask::Prepare),
    ("rotate", Ask::Rotate),
    ("reencrypt", Ask::Reencrypt),
    ("rotate-keys", Ask::RotateKeys),
];

impl Ask {
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(_, ask)| *ask == self).map_or("", |(word, _)| word)
    }
}

#[derive(Serialize, Deserialize)]
pub struct Message {
    pub operation: Ask,
}

/// Where a server takes these requests.
pub fn path(distribution: Distribution) -> String {
    format!("{}encrypt/config", distribution.supervisor_prefix())
}

/// What follows `secrets-encrypt`, and the settings it is about.
fn parse(args: &[String]) -> Result<(Ask, config::Values, bool), CommandError> {
    let (mut flags, words) = config::parse_flags(args);
    for (short, long) in [("f", "force"), ("skip", "skip")] {
        if flags.0.contains_key(short) || flags.0.contains_key(long) {
            return Err(CommandError::Flag(long));
        }
    }
    // `-o` is the kubeconfig of a server; here it is the form of the output.
    let form =
        ["output", "write-kubeconfig"].iter().filter_map(|name| flags.0.remove(*name)).flatten().last();
    let word = words.first().map_or("status", String::as_str);
    let ask = WORDS.iter().find(|(known, _)| *known == word).map(|(_, ask)| *ask);
    let ask = ask.filter(|_| words.len() <= 1).ok_or_else(|| CommandError::Command(words.join(" ")))?;
    Ok((ask, flags, form.is_some_and(|form| form == "json")))
}

pub fn run(
    distribution: Distribution,
    args: &[String],
    env: BTreeMap<String, String>,
) -> Result<(), CommandError> {
    let (ask, flags, as_json) = parse(args)?;
    let settings = Settings::load(distribution, Role::Server, &Sources { flags, env })?;
    // A server that passes requests on passes this one on as well.
    let answer = snapshot::command::ask(&settings, &path(distribution), &json!(Message { operation: ask }))?;
    let text = render(ask, answer, as_json)?;
    io::stdout().write_all(text.as_bytes()).map_err(CommandError::Output)
}

/// As K3s prints it: its plans are told by these lines how far a rotation is.
fn render(ask: Ask, answer: Value, as_json: bool) -> Result<String, CommandError> {
    let status: Status = match ask {
        Ask::Status => serde_json::from_value(answer).map_err(|_| CommandError::Nonsense)?,
        Ask::Prepare | Ask::Rotate => return Ok(format!("{} completed successfully\n", ask.word())),
        Ask::Reencrypt => return Ok("reencryption started\n".to_owned()),
        Ask::RotateKeys => return Ok("keys rotated, reencryption finished\n".to_owned()),
    };
    if as_json {
        let text = serde_json::to_string_pretty(&status).map_err(|_| CommandError::Nonsense)?;
        return Ok(format!("{text}\n"));
    }
    let Some(enabled) = status.enable else {
        return Ok("Encryption Status: Disabled, no configuration file found\n".to_owned());
    };
    let word = if enabled { "Enabled" } else { "Disabled" };
    let hashes = if status.hashmatch { "All hashes match" } else { &status.hasherror };
    let mut text = format!("Encryption Status: {word}\nCurrent Rotation Stage: {}\n", status.stage);
    let _ = write!(
        text,
        "Server Encryption Hashes: {hashes}\n\nActive  Key Type  Name\n------  --------  ----\n"
    );
    let active = [(" *", &status.activekey)];
    for (mark, key) in active.into_iter().chain(status.inactivekeys.iter().map(|key| ("", key))) {
        let (kind, name) = key.split_once(' ').unwrap_or(("", key));
        let _ = writeln!(text, "{mark:6}  {kind:8}  {name}");
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_real_distributions() {
        let ask = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&words).map(|(ask, _, json)| (ask, json)).ok()
        };
        assert_eq!(ask(""), Some((Ask::Status, false)));
        assert_eq!(ask("status -o json"), Some((Ask::Status, true)));
        assert_eq!(ask("status --output=json"), Some((Ask::Status, true)));
        for (word, expected) in WORDS {
            assert_eq!(ask(word), Some((expected, false)));
            assert_eq!(serde_json::to_value(expected).unwrap(), word);
        }
        for wrong in ["dance", "prepare now", "prepare --force", "reencrypt --skip", "rotate -f"] {
            assert_eq!(ask(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_status_is_told_in_the_form_of_k3s() {
        let status = Status {
            stage: "rotate".into(),
            activekey: "AES-GCM new".into(),
            enable: Some(true),
            hashmatch: false,
            hasherror: "hash does not match between a and b".into(),
            inactivekeys: vec!["AES-GCM old".into()],
        };
        let text = render(Ask::Status, json!(status), false).unwrap();
        assert_eq!(
            text,
            "Encryption Status: Enabled\nCurrent Rotation Stage: rotate\n\
             Server Encryption Hashes: hash does not match between a and b\n\n\
             Active  Key Type  Name\n------  --------  ----\n *      AES-GCM   new\n        AES-GCM   old\n\n"
        );
        let value: Value = serde_json::from_str(&render(Ask::Status, json!(status), true).unwrap()).unwrap();
        assert_eq!(value["enable"], true);
        assert_eq!(value["inactivekeys"][0], "AES-GCM old");
        assert!(value.get("hashmatch").is_none());
        let off = render(Ask::Status, json!(Status::default()), false).unwrap();
        assert_eq!(off, "Encryption Status: Disabled, no configuration file found\n");
    }
}
