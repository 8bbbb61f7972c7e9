//! What a machine boots with: the script itself, or a cloud-config around it.

use std::io::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use remuda_names::rancher::group;
use serde_json::{Map, Value, json};

/// Where a cloud-config puts the script.
const SCRIPT: &str = "/usr/local/custom_script/install.sh";
/// People write a few kilobytes.
const LIMIT: usize = 1 << 20;

/// Why there is nothing to boot with. Only somebody who changes an object can help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("Windows machines of infrastructure group {0} are not supported")]
    Windows(String),
    #[error("userdata is not a YAML map: {0}")]
    Userdata(String),
    #[error("{0} in userdata is not a list")]
    NotAList(&'static str),
}

/// Whether machines of this group run the script as it is.
pub(super) fn takes_script(infrastructure: &str) -> bool {
    [group::MACHINE, group::RKE, "elemental.cattle.io"].contains(&infrastructure)
}

/// The script as machines of a group of infrastructure take it.
pub(super) fn wrap(
    script: String,
    infrastructure: &str,
    windows: bool,
    userdata: &str,
) -> Result<String, Unfit> {
    if takes_script(infrastructure) {
        return Ok(script);
    }
    if windows {
        return Err(Unfit::Windows(infrastructure.to_owned()));
    }
    let mut config = parse(userdata)?;
    let file = json!({
        "content": BASE64_STANDARD.encode(gzip(script.as_bytes())),
        "encoding": "gzip+b64",
        "path": SCRIPT,
        "permissions": "0600",
    });
    prepend(&mut config, "write_files", file)?;
    prepend(&mut config, "runcmd", json!(format!("sh {SCRIPT}")))?;
    // JSON is YAML, and its keys are in order.
    let text = serde_json::to_string_pretty(&config).unwrap_or_default();
    Ok(format!("## template: jinja\n#cloud-config\n\n{text}\n"))
}

fn parse(userdata: &str) -> Result<Map<String, Value>, Unfit> {
    if userdata.trim().is_empty() {
        return Ok(Map::new());
    }
    if userdata.len() > LIMIT {
        return Err(Unfit::Userdata("too long".to_owned()));
    }
    let read: Result<Option<Map<String, Value>>, _> = serde_saphyr::from_str(userdata);
    read.map(Option::unwrap_or_default).map_err(|error| Unfit::Userdata(error.to_string()))
}

fn prepend(config: &mut Map<String, Value>, key: &'static str, first: Value) -> Result<(), Unfit> {
    match config.entry(key).or_insert(Value::Null) {
        Value::Array(items) => items.insert(0, first),
        value @ Value::Null => *value = json!([first]),
        _ => return Err(Unfit::NotAList(key)),
    }
    Ok(())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn machines_of_drivers_run_the_script_itself() {
        let script = || "#!/bin/sh\n".to_owned();
        assert_eq!(wrap(script(), group::MACHINE, false, "x: ["), Ok(script()));
        assert_eq!(wrap(script(), group::RKE, true, ""), Ok(script()));
    }

    #[test]
    fn machines_of_others_get_a_cloud_config_that_starts_with_ours() {
        let userdata = "users: [me]\nruncmd:\n- echo hi\n";
        let text =
            wrap("#!/bin/sh\n".to_owned(), "infrastructure.cluster.x-k8s.io", false, userdata).unwrap();
        let body = text.strip_prefix("## template: jinja\n#cloud-config\n").unwrap();
        let config: Value = serde_json::from_str(body).unwrap();
        assert_eq!(config["users"], json!(["me"]));
        assert_eq!(config["runcmd"], json!(["sh /usr/local/custom_script/install.sh", "echo hi"]));
        let file = &config["write_files"][0];
        assert_eq!((&file["path"], &file["permissions"]), (&json!(SCRIPT), &json!("0600")));
        let packed = BASE64_STANDARD.decode(file["content"].as_str().unwrap()).unwrap();
        let mut script = String::new();
        flate2::read::GzDecoder::new(&*packed).read_to_string(&mut script).unwrap();
        assert_eq!(script, "#!/bin/sh\n");
    }

    #[test]
    fn userdata_that_cannot_be_merged_is_refused() {
        let wrapped = |userdata: &str| wrap(String::new(), "x", false, userdata);
        assert!(matches!(wrapped("- a"), Err(Unfit::Userdata(_))));
        assert_eq!(wrapped("runcmd: x"), Err(Unfit::NotAList("runcmd")));
        assert_eq!(wrap(String::new(), "x", true, ""), Err(Unfit::Windows("x".into())));
        assert!(wrapped("runcmd:\n").is_ok());
    }
}
