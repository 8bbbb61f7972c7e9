//! A command in a container, as the API of a cluster is asked for it: the request, and the frames of its streams.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use remuda_names::gateway::path::CLUSTERS;
use serde_json::{Value, json};

/// Subprotocols of streams over a WebSocket, the better first.
pub(crate) const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";
/// A shell, the one people expect first. Images have one or the other.
const SHELL: &str =
    "TERM=xterm-256color; export TERM; if [ -x /bin/bash ]; then exec /bin/bash; fi; exec /bin/sh";

/// The container a terminal is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    cluster: String,
    namespace: String,
    pod: String,
    /// The first one of the Pod, if there is none.
    container: String,
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

impl Target {
    /// From the query of the door. The error names the parameter.
    pub(crate) fn parse(query: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let name = |field: &str, optional: bool| {
            let given = query(field).unwrap_or_default();
            let is_part =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            let good = given.len() <= 253 && given.bytes().all(is_part) && (optional || !given.is_empty());
            if good && given != "." && given != ".." {
                Ok(given)
            } else {
                Err(format!("{field}: must be a name"))
            }
        };
        let number = |field: &str, usual: u16| match query(field) {
            None => Ok(usual),
            Some(text) => text.parse().map_err(|_| format!("{field}: must be a number")),
        };
        let (columns, rows) = bounded(number("columns", 80)?, number("rows", 24)?);
        let cluster = name("cluster", false)?;
        if cluster == "local" {
            return Err("cluster: Pods of this server itself run nowhere".to_owned());
        }
        Ok(Self {
            cluster,
            namespace: name("namespace", false)?,
            pod: name("pod", false)?,
            container: name("container", true)?,
            columns,
            rows,
        })
    }

    /// The path and query of the request, through the door of clusters.
    pub(crate) fn uri(&self) -> String {
        let Self { cluster, namespace, pod, container, .. } = self;
        let command = ["/bin/sh", "-c", SHELL];
        let command: String = command
            .iter()
            .map(|word| format!("&command={}", utf8_percent_encode(word, NON_ALPHANUMERIC)))
            .collect();
        let container = if container.is_empty() { String::new() } else { format!("&container={container}") };
        format!(
            "{CLUSTERS}{cluster}/api/v1/namespaces/{namespace}/pods/{pod}/exec?stdin=true&stdout=true&tty=true{container}{command}"
        )
    }
}

/// What a terminal can be: an emulator of any size would cost what is asked for.
pub(crate) fn bounded(columns: u16, rows: u16) -> (u16, u16) {
    (columns.clamp(2, 400), rows.clamp(2, 150))
}

/// A frame of the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Output(&'a [u8]),
    /// How the command ended; empty if it ended well.
    Ended(String),
    Other,
}

impl<'a> Frame<'a> {
    pub(crate) fn parse(frame: &'a [u8]) -> Self {
        match frame.split_first() {
            Some((1 | 2, output)) => Self::Output(output),
            Some((3, status)) => Self::Ended(ending(status)),
            _ => Self::Other,
        }
    }
}

fn ending(status: &[u8]) -> String {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    if status["status"] == "Success" {
        return String::new();
    }
    let message = status["message"].as_str().filter(|message| !message.is_empty());
    message.unwrap_or("the command ended").chars().take(1000).collect()
}

/// What was typed, for the command.
pub(crate) fn input(bytes: &[u8]) -> Vec<u8> {
    [&[0], bytes].concat()
}

pub(crate) fn resize(columns: u16, rows: u16) -> Vec<u8> {
    [&[4], json!({"Width": columns, "Height": rows}).to_string().as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Target, String> {
        Target::parse(|name| {
            let found =
                query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name));
            found.map(|(_, value)| value.to_owned())
        })
    }

    #[test]
    fn a_target_is_names_and_nothing_that_leads_elsewhere() {
        let target =
            parse("cluster=c-1&namespace=default&pod=web-1&container=main&columns=9999&rows=0").unwrap();
        assert_eq!((target.columns, target.rows), (400, 2));
        let uri = target.uri();
        let (path, query) = uri.split_once('?').unwrap();
        assert_eq!(path, "/k8s/clusters/c-1/api/v1/namespaces/default/pods/web-1/exec");
        assert!(query.starts_with(
            "stdin=true&stdout=true&tty=true&container=main&command=%2Fbin%2Fsh&command=%2Dc&command=TERM"
        ));
        assert!(uri.parse::<http::Uri>().is_ok());
        for (query, field) in [
            ("namespace=a&pod=b", "cluster"),
            ("cluster=a&namespace=..&pod=b", "namespace"),
            ("cluster=a&namespace=a/b&pod=b", "namespace"),
            ("cluster=a&namespace=a&pod=b?x", "pod"),
            ("cluster=a&namespace=a&pod=b&container=A", "container"),
            ("cluster=a&namespace=a&pod=b&rows=x", "rows"),
            ("cluster=local&namespace=a&pod=b", "cluster"),
        ] {
            assert!(parse(query).unwrap_err().starts_with(field), "{query}");
        }
    }

    #[test]
    fn frames_are_told_apart() {
        assert_eq!(Frame::parse(b"\x01hello"), Frame::Output(b"hello"));
        assert_eq!(Frame::parse(br#"3{"status":"Success"}"#), Frame::Other, "a digit is no channel");
        let ended = [b"\x03".as_slice(), br#"{"status":"Failure","message":"exit code 2"}"#].concat();
        assert_eq!(Frame::parse(&ended), Frame::Ended("exit code 2".to_owned()));
        assert_eq!(Frame::parse(b"\x03{\"status\":\"Success\"}"), Frame::Ended(String::new()));
        assert_eq!(Frame::parse(b""), Frame::Other);
        assert_eq!(resize(3, 4), b"\x04{\"Height\":4,\"Width\":3}");
        assert_eq!(input(b"a"), b"\x00a");
    }
}
