//! The plan as it comes over the wire.
//!
//! Decoding is as lenient as the servers rely on: unknown keys are ignored, `null` is the zero value,
//! keys match regardless of case and the last of two equal keys wins.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A plan and the checksum of the bytes it was decoded from.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedPlan {
    /// What to do.
    pub plan: Plan,
    /// Lower-case hexadecimal SHA-256 of the exact bytes.
    pub checksum: String,
}

/// What a node has to look like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Plan {
    /// Files and directories, in order.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub files: Vec<File>,
    /// Run once, in order.
    #[serde(rename = "instructions", skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub one_time: Vec<OneTime>,
    /// Run again and again.
    #[serde(
        rename = "periodicInstructions",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "nullable"
    )]
    pub periodic: Vec<Periodic>,
    /// Health checks by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable")]
    pub probes: BTreeMap<String, Probe>,
}

/// A file or directory to write or remove.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct File {
    /// Standard base64.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub content: String,
    /// A directory instead of a file.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "nullable")]
    pub directory: bool,
    /// Owner.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub uid: i64,
    /// Group.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub gid: i64,
    /// Absolute path.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub path: String,
    /// Octal text; empty means 0600 for files and 0755 for directories.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub permissions: String,
    /// `delete` removes the path; anything else writes it.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub action: String,
    /// Bookkeeping of the server.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "nullable")]
    pub dynamic: bool,
    /// Bookkeeping of the server.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "nullable")]
    pub minor: bool,
}

/// What one-time and periodic instructions share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// Names the saved output.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub name: String,
    /// Image unpacked into the work directory first.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub image: String,
    /// `KEY=value`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub env: Vec<String>,
    /// Arguments.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub args: Vec<String>,
    /// Program; empty means `run.sh` of the work directory.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub command: String,
}

/// An instruction that runs once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OneTime {
    /// What to run.
    #[serde(flatten)]
    pub command: Command,
    /// Whether standard output is reported.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "nullable")]
    pub save_output: bool,
}

/// An instruction that runs every so often.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Periodic {
    /// What to run.
    #[serde(flatten)]
    pub command: Command,
    /// Seconds between successful runs; zero means 600.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub period_seconds: i64,
    /// Whether standard error is reported too.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "nullable")]
    pub save_stderr_output: bool,
}

/// A health check.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Probe {
    /// Overwritten by the key in the plan's map.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub name: String,
    /// Waited for after a run.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub initial_delay_seconds: i64,
    /// Longest time one check may take.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub timeout_seconds: i64,
    /// Successes in a row that make it healthy; zero means 1.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub success_threshold: i64,
    /// Failures in a row that make it unhealthy; zero means 3.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub failure_threshold: i64,
    /// The request.
    #[serde(deserialize_with = "nullable")]
    pub http_get: HttpGet,
}

/// An HTTP check; the last three are paths of PEM files on the node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpGet {
    /// Where to.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub url: String,
    /// Skip verification of the server's certificate.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "nullable")]
    pub insecure: bool,
    /// Client certificate.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub client_cert: String,
    /// Key of the client certificate.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub client_key: String,
    /// Authority trusted beside the system's.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub ca_cert: String,
}

/// Why bytes are not a plan.
#[derive(Debug, thiserror::Error)]
#[error("decode plan with checksum {checksum}")]
pub struct PlanError {
    /// Checksum of what was rejected.
    pub checksum: String,
    source: serde_json::Error,
}

/// Decodes a plan. A plan of `null` is an empty one, as it is for the servers' own decoder.
pub fn decode(raw: &[u8]) -> Result<CheckedPlan, PlanError> {
    let checksum = checksum(raw);
    let parsed = serde_json::from_slice::<Value>(raw).and_then(|mut value| {
        fold(&mut value);
        serde_json::from_value::<Plan>(value)
    });
    match parsed {
        Ok(plan) => Ok(CheckedPlan { plan, checksum }),
        Err(source) => Err(PlanError { checksum, source }),
    }
}

/// Lower-case hexadecimal SHA-256.
pub fn checksum(raw: &[u8]) -> String {
    hex(digest(&SHA256, raw).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

const PLAN: &[&str] = &["files", "instructions", "periodicInstructions", "probes"];
const FILE: &[&str] =
    &["content", "directory", "uid", "gid", "path", "permissions", "action", "dynamic", "minor"];
const INSTRUCTION: &[&str] =
    &["name", "image", "env", "args", "command", "saveOutput", "periodSeconds", "saveStderrOutput"];
const PROBE: &[&str] =
    &["name", "initialDelaySeconds", "timeoutSeconds", "successThreshold", "failureThreshold", "httpGet"];
const HTTP_GET: &[&str] = &["url", "insecure", "clientCert", "clientKey", "caCert"];

fn fold(plan: &mut Value) {
    as_object(plan);
    fold_keys(plan, PLAN);
    for (list, names) in
        [("files", FILE), ("instructions", INSTRUCTION), ("periodicInstructions", INSTRUCTION)]
    {
        for item in plan.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            as_object(item);
            fold_keys(item, names);
        }
    }
    if let Some(probes) = plan.get_mut("probes").and_then(Value::as_object_mut) {
        for probe in probes.values_mut() {
            as_object(probe);
            fold_keys(probe, PROBE);
            if let Some(get) = probe.get_mut("httpGet") {
                as_object(get);
                fold_keys(get, HTTP_GET);
            }
        }
    }
}

/// `null` is a zero value, as it is for the decoder the servers were written with. An array in place of
/// an object is made something that fails to decode: field by field it would pass as a struct.
fn as_object(value: &mut Value) {
    match value {
        Value::Null => *value = Value::Object(serde_json::Map::new()),
        Value::Array(_) => *value = Value::Bool(false),
        _ => {}
    }
}

/// Renames keys that differ from a known one only by case. An exact key wins over a folded one.
pub(crate) fn fold_keys(value: &mut Value, known: &[&str]) {
    let Some(object) = value.as_object_mut() else { return };
    let renames: Vec<(String, &str)> = object
        .keys()
        .filter_map(|key| {
            let name = known.iter().find(|name| name.eq_ignore_ascii_case(key))?;
            (*name != key).then(|| (key.clone(), *name))
        })
        .collect();
    for (from, to) in renames {
        if let Some(moved) = object.remove(&from)
            && !object.contains_key(to)
        {
            object.insert(to.to_owned(), moved);
        }
    }
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = r#"{"files":[{"content":"YTxiPiZjCg==","path":"/etc/demo.conf","permissions":"0644","minor":true}],"instructions":[{"name":"install","image":"rancher/system-agent-installer-rke2:v1.35.1-rke2r1","env":["A=1\u00262"],"args":["-c","run.sh"],"command":"sh","saveOutput":true}],"periodicInstructions":[{"name":"etcd-snapshot-list-local","args":["etcd-snapshot","list"],"command":"rke2","periodSeconds":600}],"probes":{"empty":{"httpGet":{}},"kubelet":{"initialDelaySeconds":1,"timeoutSeconds":5,"successThreshold":1,"failureThreshold":2,"httpGet":{"url":"http://127.0.0.1:10248/healthz"}}}}"#;

    #[test]
    fn the_reference_plan_decodes_with_its_checksum() {
        let checked = decode(REFERENCE.as_bytes()).unwrap();
        assert_eq!(checked.checksum, "b01e3feb091e996afee3f676712c5ecdb4ed18b595a83cedb10b2383aeb90e4f");
        assert_eq!(checked.plan.one_time[0].command.env, ["A=1&2"]);
        assert!(checked.plan.one_time[0].save_output);
        assert_eq!(checked.plan.periodic[0].period_seconds, 600);
        assert_eq!(checked.plan.probes["kubelet"].failure_threshold, 2);
    }

    #[test]
    fn the_reference_plan_encodes_to_the_same_bytes() {
        let checked = decode(REFERENCE.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(crate::output::json(&checked.plan)).unwrap(), REFERENCE);
    }

    #[test]
    fn null_case_and_repeated_keys_are_tolerated() {
        let raw = br#"{"Files":null,"INSTRUCTIONS":[null,{"Command":"a","command":"b","args":null}],
            "instructions":[{"command":"x"}],"unknown":{"a":[]},"probes":{"p":null}}"#;
        let plan = decode(raw).unwrap().plan;
        assert!(plan.files.is_empty());
        assert_eq!(plan.one_time.len(), 1);
        assert_eq!(plan.one_time[0].command.command, "x");
        assert_eq!(plan.probes["p"], Probe::default());
        assert_eq!(decode(b"null").unwrap().plan, Plan::default());
    }

    #[test]
    fn bad_json_is_refused_with_the_checksum_in_the_message() {
        for raw in [
            &b""[..],
            b"{",
            b"[]",
            b"\xff",
            br#"{"files":{}}"#,
            br#"{"files":[["x"]]}"#,
            br#"{"instructions":[{"args":[1]}]}"#,
        ] {
            let error = decode(raw).unwrap_err();
            assert!(error.to_string().contains(&checksum(raw)), "{error}");
        }
        assert!(decode("[".repeat(100_000).as_bytes()).is_err());
    }
}
