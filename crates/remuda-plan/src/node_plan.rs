//! What a node agent is told to do, and its JSON.
//!
//! The bytes are compared, hashed and remembered by agents and servers of other implementations, so
//! [`NodePlan::encode`] writes them exactly as Go does: fields in declaration order, zero values left out,
//! map keys sorted.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::{
    digest::sha256_hex,
    json,
    lenient::{lenient, shared, texts},
};

/// A plan. Only the planner writes plans; everybody else treats the bytes as opaque.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodePlan {
    /// Written in order.
    pub files: Vec<File>,
    /// Run once, in order.
    pub instructions: Vec<Instruction>,
    /// Run again and again.
    pub periodic_instructions: Vec<PeriodicInstruction>,
    /// Why there is no better plan; agents do not look at it.
    pub error: String,
    /// Health checks by name.
    pub probes: BTreeMap<String, Probe>,
}

/// A file or directory on the node.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// Standard base64. Shared, because most files are the same on many nodes.
    pub content: Arc<str>,
    /// A directory instead of a file.
    pub directory: bool,
    /// Owner.
    pub uid: i64,
    /// Group.
    pub gid: i64,
    /// Absolute path.
    pub path: String,
    /// Octal; empty means 0600 for files and 0755 for directories.
    pub permissions: String,
    /// `delete` removes the path; anything else writes it.
    pub action: String,
    /// Left out of the restart stamp and the drain hash.
    pub dynamic: bool,
    /// A change of such files alone is delivered at once.
    pub minor: bool,
}

impl File {
    /// A file with this content.
    pub fn new(path: impl Into<String>, content: &[u8]) -> File {
        File { content: BASE64_STANDARD.encode(content).into(), path: path.into(), ..File::default() }
    }

    /// The same, without a part in the restart stamp.
    #[must_use]
    pub fn dynamic(mut self) -> File {
        self.dynamic = true;
        self
    }

    /// The same, for delivery at any time.
    #[must_use]
    pub fn minor(mut self) -> File {
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Instruction {
    /// Names the saved output.
    pub name: String,
    /// Image unpacked into the work directory first.
    pub image: String,
    /// `KEY=value`.
    pub env: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Program; empty means `run.sh` of the work directory.
    pub command: String,
    /// Kept for servers that write it; agents do not look at it.
    pub script: String,
    /// Whether standard output is reported.
    pub save_output: bool,
}

/// Run again and again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeriodicInstruction {
    /// Names the result.
    pub name: String,
    /// Image unpacked into the work directory first.
    pub image: String,
    /// `KEY=value`.
    pub env: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Program; empty means `run.sh` of the work directory.
    pub command: String,
    /// Kept for servers that write it; agents do not look at it.
    pub script: String,
    /// Seconds between successful runs; zero means 600.
    pub period_seconds: i64,
    /// Whether standard error is reported too.
    pub save_stderr_output: bool,
}

/// What one-time and periodic instructions have in common.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Command<'a> {
    /// Names the output.
    pub name: &'a str,
    /// Image unpacked into the work directory first.
    pub image: &'a str,
    /// `KEY=value`.
    pub env: &'a [String],
    /// Arguments.
    pub args: &'a [String],
    /// Program; empty means `run.sh` of the work directory.
    pub program: &'a str,
}

impl Instruction {
    /// What to run.
    pub fn command(&self) -> Command<'_> {
        let Instruction { name, image, env, args, command, .. } = self;
        Command { name, image, env, args, program: command }
    }
}

impl PeriodicInstruction {
    /// What to run.
    pub fn command(&self) -> Command<'_> {
        let PeriodicInstruction { name, image, env, args, command, .. } = self;
        Command { name, image, env, args, program: command }
    }
}

/// An HTTP check the agent makes on its own node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Probe {
    /// Overwritten by the key in the plan's map.
    pub name: String,
    /// Waited for after a run.
    pub initial_delay_seconds: i64,
    /// Longest time one check may take.
    pub timeout_seconds: i64,
    /// Successes in a row that make it healthy; zero means 1.
    pub success_threshold: i64,
    /// Failures in a row that make it unhealthy; zero means 3.
    pub failure_threshold: i64,
    /// The request.
    pub http_get: HttpGet,
}

/// The request of a check; the last three are paths of PEM files on the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpGet {
    /// Where to.
    pub url: String,
    /// Skip verification of the server's certificate.
    pub insecure: bool,
    /// Client certificate.
    pub client_cert: String,
    /// Key of the client certificate.
    pub client_key: String,
    /// Authority trusted beside the system's.
    pub ca_cert: String,
}

lenient!(NodePlan {
    "files" => files,
    "instructions" => instructions,
    "periodicInstructions" => periodic_instructions,
    "error" => error,
    "probes" => probes,
});

lenient!(File {
    "content" => content by shared,
    "directory" => directory,
    "uid" => uid,
    "gid" => gid,
    "path" => path,
    "permissions" => permissions,
    "action" => action,
    "dynamic" => dynamic,
    "minor" => minor,
});

lenient!(Instruction {
    "name" => name,
    "image" => image,
    "env" => env by texts,
    "args" => args by texts,
    "command" => command,
    "script" => script,
    "saveOutput" => save_output,
});

lenient!(PeriodicInstruction {
    "name" => name,
    "image" => image,
    "env" => env by texts,
    "args" => args by texts,
    "command" => command,
    "script" => script,
    "periodSeconds" => period_seconds,
    "saveStderrOutput" => save_stderr_output,
});

lenient!(Probe {
    "name" => name,
    "initialDelaySeconds" => initial_delay_seconds,
    "timeoutSeconds" => timeout_seconds,
    "successThreshold" => success_threshold,
    "failureThreshold" => failure_threshold,
    "httpGet" => http_get,
});

lenient!(HttpGet {
    "url" => url,
    "insecure" => insecure,
    "clientCert" => client_cert,
    "clientKey" => client_key,
    "caCert" => ca_cert,
});

/// A plan and the checksum of the bytes it was decoded from.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedPlan {
    /// What to do.
    pub plan: NodePlan,
    /// Lower-case hexadecimal SHA-256 of the exact bytes.
    pub checksum: String,
}

/// Why bytes are not a plan.
#[derive(Debug, thiserror::Error)]
#[error("decode plan with checksum {checksum}")]
pub struct DecodeError {
    /// Checksum of what was rejected.
    pub checksum: String,
    source: serde_json::Error,
}

impl CheckedPlan {
    /// Decodes a plan. A plan of `null` is an empty one.
    pub fn decode(raw: &[u8]) -> Result<CheckedPlan, DecodeError> {
        let checksum = sha256_hex(raw);
        match NodePlan::decode(raw) {
            Ok(plan) => Ok(CheckedPlan { plan, checksum }),
            Err(source) => Err(DecodeError { checksum, source }),
        }
    }
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
    pub fn minor_change(&self, new: &NodePlan) -> bool {
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
    use proptest::prelude::*;

    use super::*;

    /// A plan as a Go server writes it, with every kind of omission and escaping.
    const REFERENCE: &str = include_str!("vectors/reference-plan.json");
    const CHECKSUM: &str = "b01e3feb091e996afee3f676712c5ecdb4ed18b595a83cedb10b2383aeb90e4f";

    #[test]
    fn plans_have_the_bytes_a_go_server_writes() {
        let plan = NodePlan::decode(REFERENCE.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(plan.encode()).unwrap(), REFERENCE);
        assert_eq!(sha256_hex(&plan.encode()), CHECKSUM);
    }

    #[test]
    fn the_reference_plan_decodes_with_its_checksum() {
        let checked = CheckedPlan::decode(REFERENCE.as_bytes()).unwrap();
        assert_eq!(checked.checksum, CHECKSUM);
        let install = &checked.plan.instructions[0];
        assert_eq!(install.command().env, ["A=1&2"]);
        assert_eq!(install.command().program, "sh");
        assert!(install.save_output);
        assert_eq!(checked.plan.periodic_instructions[0].period_seconds, 600);
        assert_eq!(checked.plan.periodic_instructions[0].command().name, "etcd-snapshot-list-local");
        assert_eq!(checked.plan.probes["kubelet"].failure_threshold, 2);
    }

    #[test]
    fn an_empty_plan_is_an_empty_object() {
        assert_eq!(NodePlan::default().encode(), b"{}");
        for nothing in ["{}", "null", r#"{"files":null,"probes":null,"error":null}"#] {
            assert_eq!(NodePlan::decode(nothing.as_bytes()).unwrap(), NodePlan::default(), "{nothing}");
        }
    }

    #[test]
    fn null_case_and_repeated_keys_are_tolerated() {
        let raw = br#"{"Files":null,"INSTRUCTIONS":[null,{"Command":"a","command":"b","args":null}],
            "instructions":[{"command":"x","COMMAND":"y","args":[null,"a"],"saveoutput":true}],
            "unknown":{"a":[]},"probes":{"p":null,"q":{"httpget":{"URL":"u"}}}}"#;
        let plan = NodePlan::decode(raw).unwrap();
        assert!(plan.files.is_empty());
        assert_eq!(plan.instructions.len(), 1);
        assert_eq!(plan.instructions[0].command, "y");
        assert_eq!(plan.instructions[0].args, ["", "a"]);
        assert!(plan.instructions[0].save_output);
        assert_eq!(plan.probes["p"], Probe::default());
        assert_eq!(plan.probes["q"].http_get.url, "u");
    }

    #[test]
    fn what_is_no_plan_is_refused_with_the_checksum_in_the_message() {
        for raw in [
            &b""[..],
            b"{",
            b"[",
            b"[]",
            b"\xff",
            b"{}{}",
            br#"{"files":3}"#,
            br#"{"files":{}}"#,
            br#"{"files":[["x"]]}"#,
            br#"{"files":[{"content":1}]}"#,
            br#"{"files":[{"uid":1.5}]}"#,
            br#"{"instructions":[{"args":[1]}]}"#,
            br#"{"probes":{"p":{"httpGet":[]}}}"#,
            "[".repeat(100_000).as_bytes(),
            format!("{{\"unknown\":{}", "[".repeat(100_000)).as_bytes(),
        ] {
            let error = CheckedPlan::decode(raw).unwrap_err();
            assert!(error.to_string().contains(&sha256_hex(raw)), "{error}");
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

    fn text() -> impl Strategy<Value = String> {
        "[a-z<&\"\u{2028}]{0,6}"
    }

    fn file() -> impl Strategy<Value = File> {
        (text(), any::<bool>(), any::<i64>(), text(), text(), any::<bool>()).prop_map(
            |(content, directory, uid, path, action, minor)| File {
                directory,
                uid,
                action,
                minor,
                ..File::new(path, content.as_bytes())
            },
        )
    }

    fn instruction() -> impl Strategy<Value = Instruction> {
        (text(), text(), prop::collection::vec(text(), 0..3), text(), any::<bool>()).prop_map(
            |(name, image, args, command, save_output)| Instruction {
                name,
                image,
                env: args.clone(),
                args,
                script: command.clone(),
                command,
                save_output,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn whatever_is_encoded_decodes_to_the_same(
            files in prop::collection::vec(file(), 0..3),
            instructions in prop::collection::vec(instruction(), 0..3),
            (period_seconds, error, name) in (any::<i64>(), text(), text()),
        ) {
            let periodic = PeriodicInstruction { name: name.clone(), period_seconds, ..Default::default() };
            let probe = Probe { timeout_seconds: period_seconds, ..Default::default() };
            let plan = NodePlan {
                files,
                instructions,
                periodic_instructions: vec![periodic],
                error,
                probes: BTreeMap::from([(name, probe)]),
            };
            let bytes = plan.encode();
            let decoded = NodePlan::decode(&bytes).unwrap();
            prop_assert_eq!(decoded.encode(), bytes);
            prop_assert_eq!(decoded, plan);
        }

        #[test]
        fn nothing_panics(raw in "[\\[\\]{}:,\"a-z0-9 ]{0,60}") {
            let _ = CheckedPlan::decode(raw.as_bytes());
        }
    }
}
