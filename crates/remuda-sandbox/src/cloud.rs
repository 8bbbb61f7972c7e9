//! User data: what a new machine does at its first start.
//!
//! The two forms every cloud knows: a script that starts with `#!`, and `#cloud-config` with `write_files`,
//! `runcmd` and `hostname`. Other keys are left out with a line in the log.

use std::{collections::BTreeMap, io::Read};

use base64::Engine as _;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;

/// What one file may grow to.
const MOST: u64 = 64 << 20;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct UserData {
    pub(crate) files: Vec<WriteFile>,
    pub(crate) commands: Vec<Vec<String>>,
    pub(crate) hostname: Option<String>,
    /// Keys that nothing is done about.
    pub(crate) ignored: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct WriteFile {
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) append: bool,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("user data is neither a script that starts with #! nor #cloud-config")]
    Form,
    #[error("user data: {0}")]
    Yaml(String),
    #[error("user data: file {path}: {problem}")]
    File { path: String, problem: &'static str },
    #[error("user data: runcmd has an entry that is neither text nor a list of texts")]
    Command,
}

#[derive(Deserialize)]
struct CloudConfig {
    #[serde(default)]
    hostname: Option<String>,
    #[serde(default)]
    write_files: Vec<FileEntry>,
    #[serde(default)]
    runcmd: Vec<serde_json::Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct FileEntry {
    path: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    encoding: String,
    #[serde(default)]
    permissions: Option<serde_json::Value>,
    #[serde(default)]
    append: bool,
}

/// Where a script given as user data is kept.
pub(crate) const SCRIPT: &str = "/var/lib/cloud/instance/scripts/part-001";

impl UserData {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        if text.starts_with("#!") {
            let file = WriteFile {
                path: SCRIPT.into(),
                content: text.as_bytes().into(),
                mode: 0o700,
                append: false,
            };
            return Ok(Self { files: vec![file], commands: vec![vec![SCRIPT.into()]], ..Self::default() });
        }
        if !text.starts_with("#cloud-config") {
            return Err(Problem::Form);
        }
        let config: Option<CloudConfig> =
            serde_saphyr::from_str(text).map_err(|error| Problem::Yaml(error.to_string()))?;
        let Some(config) = config else { return Ok(Self::default()) };
        Ok(Self {
            files: config.write_files.into_iter().map(file).collect::<Result<_, _>>()?,
            commands: config.runcmd.iter().map(command).collect::<Result<_, _>>()?,
            hostname: config.hostname.filter(|name| !name.is_empty()),
            ignored: config.rest.into_keys().collect(),
        })
    }

    /// The texts in which an install script may be found.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter_map(|file| std::str::from_utf8(&file.content).ok())
    }
}

fn file(entry: FileEntry) -> Result<WriteFile, Problem> {
    let wrong = |problem| Problem::File { path: entry.path.clone(), problem };
    if !entry.path.starts_with('/') {
        return Err(wrong("the path is not absolute"));
    }
    let mode = match &entry.permissions {
        None | Some(serde_json::Value::Null) => 0o644,
        Some(serde_json::Value::String(text)) => {
            let digits = text.trim_start_matches("0o");
            u32::from_str_radix(digits, 8).map_err(|_| wrong("the permissions are not octal"))?
        }
        // YAML reads an unquoted 0644 as a number with these decimal digits.
        Some(serde_json::Value::Number(number)) => {
            u32::from_str_radix(&number.to_string(), 8).map_err(|_| wrong("the permissions are not octal"))?
        }
        Some(_) => return Err(wrong("the permissions are not octal")),
    };
    let decode = || {
        let text: String = entry.content.split_whitespace().collect();
        base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| wrong("the content is not base64"))
    };
    let content = match entry.encoding.as_str() {
        "" | "text/plain" => entry.content.clone().into_bytes(),
        "b64" | "base64" => decode()?,
        "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64" => {
            let packed = decode()?;
            let mut content = Vec::new();
            let read = MultiGzDecoder::new(packed.as_slice()).take(MOST + 1).read_to_end(&mut content);
            read.map_err(|_| wrong("the content is not gzip"))?;
            if content.len() as u64 > MOST {
                return Err(wrong("the content is too large"));
            }
            content
        }
        _ => return Err(wrong("the encoding is unknown")),
    };
    Ok(WriteFile { mode: mode & 0o7777, append: entry.append, content, path: entry.path })
}

fn command(entry: &serde_json::Value) -> Result<Vec<String>, Problem> {
    match entry {
        serde_json::Value::String(line) => Ok(vec!["/bin/sh".into(), "-c".into(), line.clone()]),
        serde_json::Value::Array(words) if !words.is_empty() => words
            .iter()
            .map(|word| match word {
                serde_json::Value::String(text) => Ok(text.clone()),
                serde_json::Value::Number(number) => Ok(number.to_string()),
                _ => Err(Problem::Command),
            })
            .collect(),
        _ => Err(Problem::Command),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_script_is_kept_and_run() {
        let data = UserData::parse("#!/bin/sh\necho hi\n").unwrap();
        assert_eq!(data.commands, [[SCRIPT]]);
        assert_eq!(data.files[0].mode, 0o700);
        assert_eq!(UserData::parse(" \n").unwrap(), UserData::default());
        assert_eq!(UserData::parse("echo"), Err(Problem::Form));
    }

    #[test]
    fn the_cloud_config_that_carries_an_install_script_is_understood() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(b"CATTLE_SERVER=https://127.0.0.1:8443\n").unwrap();
        let packed = base64::engine::general_purpose::STANDARD.encode(packer.finish().unwrap());
        let text = format!(
            "#cloud-config\nhostname: demo-1\nwrite_files:\n- encoding: gzip+b64\n  content: {packed}\n  \
             permissions: \"0644\"\n  path: /usr/local/custom_script/install.sh\nruncmd:\n\
             - sh /usr/local/custom_script/install.sh\n- [echo, a b]\nusers: []\n"
        );
        let data = UserData::parse(&text).unwrap();
        assert_eq!(data.hostname.as_deref(), Some("demo-1"));
        assert_eq!(data.commands[0], ["/bin/sh", "-c", "sh /usr/local/custom_script/install.sh"]);
        assert_eq!(data.commands[1], ["echo", "a b"]);
        assert_eq!(data.ignored, ["users"]);
        let url = data.scripts().find_map(crate::server::url_in_script);
        assert_eq!(url.as_deref(), Some("https://127.0.0.1:8443"));
        assert_eq!(UserData::parse("#cloud-config\n").unwrap(), UserData::default());
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |body: &str| UserData::parse(&format!("#cloud-config\n{body}")).unwrap_err().to_string();
        assert!(wrong("write_files:\n- path: x\n").contains("file x: the path is not absolute"));
        assert!(wrong("write_files:\n- {path: /x, encoding: b64, content: '!'}\n").contains("not base64"));
        assert!(wrong("runcmd: [{a: b}]\n").contains("runcmd"));
        assert!(wrong("runcmd: {").starts_with("user data: "));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_user_data_or_not(text in "\\PC{0,120}") {
            let _ = UserData::parse(&text);
            let _ = UserData::parse(&format!("#cloud-config\n{text}"));
        }
    }
}
