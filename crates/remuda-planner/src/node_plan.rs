//! What a node agent is told to do, and its JSON.
//!
//! The bytes are compared, hashed and remembered by agents and servers of other implementations, so
//! [`NodePlan::encode`] writes them exactly as Go does: fields in declaration order, zero values left out,
//! map keys sorted.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer};

use crate::json;

/// A plan. Only the planner writes plans; everybody else treats the bytes as opaque.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodePlan {
    #[serde(deserialize_with = "or_default")]
    pub files: Vec<File>,
    #[serde(deserialize_with = "or_default")]
    pub instructions: Vec<Instruction>,
    #[serde(deserialize_with = "or_default")]
    pub periodic_instructions: Vec<PeriodicInstruction>,
    pub error: String,
    #[serde(deserialize_with = "or_default")]
    pub probes: BTreeMap<String, Probe>,
}

/// A file on the node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct File {
    /// Base64. Shared, because most files are the same on many nodes.
    #[serde(deserialize_with = "shared")]
    pub content: Arc<str>,
    pub directory: bool,
    pub uid: i64,
    pub gid: i64,
    pub path: String,
    /// Octal; empty means the agent's default of 0600.
    pub permissions: String,
    /// `delete` removes the path.
    pub action: String,
    /// Left out of the restart stamp and the drain hash.
    pub dynamic: bool,
    /// A change of such files alone is delivered at once.
    pub minor: bool,
}

impl File {
    pub(crate) fn new(path: impl Into<String>, content: &[u8]) -> File {
        File { content: BASE64_STANDARD.encode(content).into(), path: path.into(), ..File::default() }
    }

    pub(crate) fn dynamic(mut self) -> File {
        self.dynamic = true;
        self
    }

    pub(crate) fn minor(mut self) -> File {
        self.minor = true;
        self
    }
}

/// Two files are the same if the server would write the same; ownership and action are the agent's business.
impl PartialEq for File {
    fn eq(&self, other: &File) -> bool {
        self.content == other.content
            && self.path == other.path
            && self.permissions == other.permissions
            && self.dynamic == other.dynamic
            && self.minor == other.minor
    }
}

/// Run once for each new plan.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Instruction {
    pub name: String,
    pub image: String,
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub args: Vec<String>,
    pub command: String,
    pub script: String,
    pub save_output: bool,
}

/// Run again and again.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PeriodicInstruction {
    pub name: String,
    pub image: String,
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub args: Vec<String>,
    pub command: String,
    pub script: String,
    pub period_seconds: i64,
    pub save_stderr_output: bool,
}

/// An HTTP check the agent makes on its own node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Probe {
    pub name: String,
    pub initial_delay_seconds: i64,
    pub timeout_seconds: i64,
    pub success_threshold: i64,
    pub failure_threshold: i64,
    pub http_get: HttpGet,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpGet {
    pub url: String,
    pub insecure: bool,
    pub client_cert: String,
    pub client_key: String,
    pub ca_cert: String,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

fn shared<'de, D: Deserializer<'de>>(input: D) -> Result<Arc<str>, D::Error> {
    Option::<String>::deserialize(input).map(|text| text.unwrap_or_default().into())
}

impl NodePlan {
    /// Reads a stored plan; unknown keys are ignored.
    pub fn decode(bytes: &[u8]) -> Result<NodePlan, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let size: usize = self.files.iter().map(|file| file.content.len() + 120).sum();
        let mut object = Object::open(String::with_capacity(size + 2048));
        object.list("files", &self.files, |out, file| {
            let mut object = Object::open(out);
            object.string("content", &file.content);
            object.bool("directory", file.directory);
            object.number("uid", file.uid);
            object.number("gid", file.gid);
            object.string("path", &file.path);
            object.string("permissions", &file.permissions);
            object.string("action", &file.action);
            object.bool("dynamic", file.dynamic);
            object.bool("minor", file.minor);
            object.close()
        });
        object.list("instructions", &self.instructions, |out, one| {
            let common = (&one.name, &one.image, &one.env, &one.args, &one.command, &one.script);
            let mut object = common_instruction(out, common);
            object.bool("saveOutput", one.save_output);
            object.close()
        });
        object.list("periodicInstructions", &self.periodic_instructions, |out, one| {
            let common = (&one.name, &one.image, &one.env, &one.args, &one.command, &one.script);
            let mut object = common_instruction(out, common);
            object.number("periodSeconds", one.period_seconds);
            object.bool("saveStderrOutput", one.save_stderr_output);
            object.close()
        });
        object.string("error", &self.error);
        if !self.probes.is_empty() {
            object.key("probes");
            let mut probes = Object::open(std::mem::take(&mut object.out));
            for (name, probe) in &self.probes {
                probes.key(name);
                probes.out = probe.encode(std::mem::take(&mut probes.out));
            }
            object.out = probes.close();
        }
        object.close().into_bytes()
    }

    /// Whether `new` differs from this plan by nothing but `minor` files, and does differ.
    pub(crate) fn minor_change(&self, new: &NodePlan) -> bool {
        if self.instructions != new.instructions
            || self.periodic_instructions != new.periodic_instructions
            || self.probes != new.probes
            || self.error != new.error
        {
            return false;
        }
        let mut changed: BTreeMap<&str, &File> =
            new.files.iter().map(|file| (file.path.as_str(), file)).collect();
        for old in &self.files {
            match changed.get(old.path.as_str()) {
                Some(new) if new.content == old.content => {
                    changed.remove(old.path.as_str());
                }
                Some(_) => {}
                None if old.minor => {}
                None => return false,
            }
        }
        !changed.is_empty() && changed.values().all(|file| file.minor)
    }

    /// Value of an environment variable of the `install` instruction.
    fn install_env(&self, names: [&str; 3]) -> Option<&str> {
        let install = self.instructions.iter().find(|one| one.name == "install")?;
        install
            .env
            .iter()
            .filter_map(|entry| entry.split_once('='))
            .find(|(key, _)| names.contains(key))
            .map(|(_, value)| value)
    }

    /// What must change for a node to be drained first. Windows plans carry it under another name.
    pub fn drain_hash(&self) -> Option<&str> {
        self.install_env(["DRAIN_HASH", "$env:DRAIN_HASH", "WINS_DRAIN_HASH"])
    }

    /// What must change for the distribution to be restarted.
    pub fn restart_stamp(&self) -> Option<&str> {
        self.install_env(["RESTART_STAMP", "$env:RESTART_STAMP", "WINS_RESTART_STAMP"])
    }
}

type Common<'a> = (&'a String, &'a String, &'a Vec<String>, &'a Vec<String>, &'a String, &'a String);

fn common_instruction(out: String, (name, image, env, args, command, script): Common<'_>) -> Object {
    let mut object = Object::open(out);
    object.string("name", name);
    object.string("image", image);
    object.strings("env", env);
    object.strings("args", args);
    object.string("command", command);
    object.string("script", script);
    object
}

impl Probe {
    fn encode(&self, out: String) -> String {
        let mut object = Object::open(out);
        object.string("name", &self.name);
        object.number("initialDelaySeconds", self.initial_delay_seconds);
        object.number("timeoutSeconds", self.timeout_seconds);
        object.number("successThreshold", self.success_threshold);
        object.number("failureThreshold", self.failure_threshold);
        // Go never leaves out a struct, however empty.
        object.key("httpGet");
        let mut get = Object::open(std::mem::take(&mut object.out));
        get.string("url", &self.http_get.url);
        get.bool("insecure", self.http_get.insecure);
        get.string("clientCert", &self.http_get.client_cert);
        get.string("clientKey", &self.http_get.client_key);
        get.string("caCert", &self.http_get.ca_cert);
        object.out = get.close();
        object.close()
    }
}

/// An object under construction; zero values leave no trace.
struct Object {
    out: String,
    empty: bool,
}

impl Object {
    fn open(mut out: String) -> Object {
        out.push('{');
        Object { out, empty: true }
    }

    fn close(mut self) -> String {
        self.out.push('}');
        self.out
    }

    fn key(&mut self, key: &str) {
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
        json::string(&mut self.out, key);
        self.out.push(':');
    }

    fn string(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.key(key);
            json::string(&mut self.out, value);
        }
    }

    fn bool(&mut self, key: &str, value: bool) {
        if value {
            self.key(key);
            self.out.push_str("true");
        }
    }

    fn number(&mut self, key: &str, value: i64) {
        if value != 0 {
            self.key(key);
            self.out.push_str(&value.to_string());
        }
    }

    fn strings(&mut self, key: &str, values: &[String]) {
        self.list(key, values, |mut out, value| {
            json::string(&mut out, value);
            out
        });
    }

    fn list<T>(&mut self, key: &str, values: &[T], mut write: impl FnMut(String, &T) -> String) {
        if values.is_empty() {
            return;
        }
        self.key(key);
        self.out.push('[');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            self.out = write(std::mem::take(&mut self.out), value);
        }
        self.out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::sha256_hex;

    /// A plan as a Go server writes it, with every kind of omission and escaping.
    const REFERENCE: &str = include_str!("vectors/reference-plan.json");

    #[test]
    fn plans_have_the_bytes_a_go_server_writes() {
        let plan = NodePlan::decode(REFERENCE.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(plan.encode()).unwrap(), REFERENCE);
        assert_eq!(
            sha256_hex(&plan.encode()),
            "b01e3feb091e996afee3f676712c5ecdb4ed18b595a83cedb10b2383aeb90e4f"
        );
    }

    #[test]
    fn an_empty_plan_is_an_empty_object() {
        assert_eq!(NodePlan::default().encode(), b"{}");
        assert_eq!(NodePlan::decode(b"{\"files\":null,\"probes\":null}").unwrap(), NodePlan::default());
    }

    #[test]
    fn hostile_plans_are_refused_not_fatal() {
        for bad in ["", "[", "{\"files\":3}", "{\"files\":[{\"content\":1}]}", &"[".repeat(100_000)] {
            assert!(NodePlan::decode(bad.as_bytes()).is_err());
        }
    }

    fn with(files: &[(&str, &str, bool)]) -> NodePlan {
        let file = |(path, content, minor): &(&str, &str, bool)| File {
            minor: *minor,
            ..File::new(*path, content.as_bytes())
        };
        NodePlan { files: files.iter().map(file).collect(), ..NodePlan::default() }
    }

    #[test]
    fn a_change_is_minor_only_if_every_changed_file_is() {
        let old = with(&[("/a", "1", false), ("/m", "1", true)]);
        for (new, minor) in [
            (with(&[("/a", "1", false), ("/m", "1", true)]), false),
            (with(&[("/a", "1", false), ("/m", "2", true)]), true),
            (with(&[("/a", "2", false), ("/m", "2", true)]), false),
            (with(&[("/a", "1", false), ("/n", "1", true)]), true),
            (with(&[("/m", "2", true)]), false),
            (with(&[("/a", "1", false)]), false),
            (NodePlan { error: "x".into(), ..with(&[("/a", "1", false), ("/m", "2", true)]) }, false),
        ] {
            assert_eq!(old.minor_change(&new), minor, "{new:?}");
        }
    }

    #[test]
    fn windows_plans_have_a_drain_hash_too() {
        for env in ["DRAIN_HASH=x", "WINS_DRAIN_HASH=x", "$env:DRAIN_HASH=x"] {
            let install =
                Instruction { name: "install".into(), env: vec![env.into()], ..Instruction::default() };
            let plan = NodePlan { instructions: vec![install], ..NodePlan::default() };
            assert_eq!(plan.drain_hash(), Some("x"));
        }
        assert_eq!(NodePlan::default().drain_hash(), None);
    }
}
