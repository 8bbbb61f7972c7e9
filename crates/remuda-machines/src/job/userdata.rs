//! The script a machine starts with, as user data for cloud-init.

use std::io::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

/// Why user data cannot be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("the user data given begins neither with #! nor with #cloud-config")]
    NeitherScriptNorConfig,
    #[error("the cloud-config given is not a mapping in YAML: {0}")]
    NotYaml(String),
    #[error("{0} of the cloud-config given is not a list")]
    NotAList(&'static str),
}

/// What the operating system makes different.
struct System {
    path: &'static str,
    command: &'static str,
    hostname: &'static str,
}

const LINUX: System = System {
    path: "/usr/local/custom_script/install.sh",
    command: "sh /usr/local/custom_script/install.sh",
    hostname: "hostname",
};
const WINDOWS: System =
    System { path: "C:\\install.ps1", command: "powershell C:\\install.ps1", hostname: "set_hostname" };

/// User data that runs `script` at the first start, beside what the user gave.
pub(crate) fn merge(given: &str, script: &str, hostname: &str, windows: bool) -> Result<String, Unfit> {
    let system = if windows { WINDOWS } else { LINUX };
    let mut config = json!({});
    let mut whole = without_first_line(script).to_owned();
    if given.starts_with("#!") {
        whole = format!("{}\n\n{whole}", without_first_line(given));
    } else if given.starts_with("#cloud-config") {
        let parsed: Value =
            serde_saphyr::from_str(given).map_err(|error| Unfit::NotYaml(first_line(&error.to_string())))?;
        config = match parsed {
            Value::Null => json!({}),
            Value::Object(_) => parsed,
            _ => return Err(Unfit::NotYaml("it is something else".to_owned())),
        };
    } else if !given.trim().is_empty() {
        return Err(Unfit::NeitherScriptNorConfig);
    }
    let file = json!({
        "encoding": "gzip+b64", "content": compressed(&whole), "permissions": "0644", "path": system.path,
    });
    push(&mut config, "write_files", file)?;
    push(&mut config, "runcmd", system.command.into())?;
    if config.get(system.hostname).is_none() {
        config[system.hostname] = hostname.into();
    }
    // JSON is YAML.
    Ok(format!("#cloud-config\n{config}\n"))
}

fn push(config: &mut Value, list: &'static str, item: Value) -> Result<(), Unfit> {
    match &mut config[list] {
        place @ Value::Null => *place = json!([item]),
        Value::Array(items) => items.push(item),
        _ => return Err(Unfit::NotAList(list)),
    }
    Ok(())
}

fn without_first_line(script: &str) -> &str {
    match script.starts_with("#!") {
        true => script.split_once('\n').map_or("", |(_, rest)| rest),
        false => script,
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

fn compressed(text: &str) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    BASE64_STANDARD.encode(written.expect("writing to memory does not fail"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn parts(user_data: &str) -> (Value, String) {
        assert!(user_data.starts_with("#cloud-config\n"));
        let config: Value = serde_saphyr::from_str(user_data).unwrap();
        let files = config["write_files"].as_array().unwrap();
        let content = BASE64_STANDARD.decode(files.last().unwrap()["content"].as_str().unwrap()).unwrap();
        let mut script = String::new();
        flate2::read::GzDecoder::new(content.as_slice()).read_to_string(&mut script).unwrap();
        (config, script)
    }

    #[test]
    fn a_script_alone_becomes_cloud_config() {
        let (config, script) = parts(&merge("", "#!/bin/sh\necho hi\n", "m1", false).unwrap());
        assert_eq!(script, "echo hi\n");
        assert_eq!(config["hostname"], "m1");
        assert_eq!(config["runcmd"], json!(["sh /usr/local/custom_script/install.sh"]));
        assert_eq!(config["write_files"][0]["permissions"], "0644");
    }

    #[test]
    fn the_users_own_comes_first_and_is_kept() {
        let (_, script) = parts(&merge("#!/bin/bash\nmine\n", "#!/bin/sh\nours\n", "m1", false).unwrap());
        assert_eq!(script, "mine\n\n\nours\n");
        let given = "#cloud-config\nhostname: other\npackages: [jq]\nruncmd:\n- echo first\n";
        let (config, _) = parts(&merge(given, "#!/bin/sh\nours\n", "m1", false).unwrap());
        assert_eq!(config["hostname"], "other");
        assert_eq!(config["packages"], json!(["jq"]));
        assert_eq!(config["runcmd"], json!(["echo first", "sh /usr/local/custom_script/install.sh"]));
    }

    #[test]
    fn windows_has_its_own_places() {
        let (config, _) = parts(&merge("", "ours", "m1", true).unwrap());
        assert_eq!(config["set_hostname"], "m1");
        assert_eq!(config["write_files"][0]["path"], "C:\\install.ps1");
    }

    #[test]
    fn what_is_neither_is_refused() {
        assert_eq!(merge("hello", "x", "m", false), Err(Unfit::NeitherScriptNorConfig));
        assert_eq!(merge("#cloud-config\nruncmd: 1\n", "x", "m", false), Err(Unfit::NotAList("runcmd")));
        assert!(matches!(merge("#cloud-config\n- a\n", "x", "m", false), Err(Unfit::NotYaml(_))));
        assert!(matches!(merge("#cloud-config\n{{", "x", "m", false), Err(Unfit::NotYaml(_))));
    }
}
