//! What is secret in an input, and texts without it.

use std::collections::BTreeSet;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

use super::REDACTED;
use crate::input::{AgentManifest, Input, StateSecret};

/// Shorter ones are words that stand elsewhere with another meaning.
const SHORTEST: usize = 8;

/// Texts that must not be seen anywhere.
pub(super) struct Secrets(BTreeSet<String>);

impl Secrets {
    pub(super) fn of(input: &Input) -> Secrets {
        let mut found = BTreeSet::new();
        let mut add = |text: &str| {
            let text = text.trim();
            if text.len() >= SHORTEST && text != REDACTED {
                found.insert(text.to_owned());
                found.insert(BASE64_STANDARD.encode(text));
            }
        };
        let fresh = Some(&input.fresh_tokens);
        let present = if let StateSecret::Present(tokens) = &input.state { Some(tokens) } else { None };
        for tokens in [fresh, present].into_iter().flatten() {
            add(&tokens.server);
            add(&tokens.agent);
        }
        for value in input.resources.secrets.values().flat_map(|secret| secret.data.values()) {
            let Ok(text) = std::str::from_utf8(value) else { continue };
            add(text);
            if let Ok(value) = serde_json::from_str(text) {
                leaves(&value, &mut add);
            }
        }
        if let AgentManifest::Agent(agent) = &input.agent_manifest {
            add(&agent.token);
            for (_, config) in &agent.pull_secrets {
                add(config);
                serde_json::from_str(config).iter().for_each(|value| leaves(value, &mut add));
            }
        }
        for variable in &input.control_plane.spec.agent_env_vars {
            add(&variable.value);
        }
        Secrets(found)
    }

    /// Takes them out of all texts.
    pub(super) fn sweep(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                for secret in &self.0 {
                    if text.contains(secret.as_str()) {
                        *text = text.replace(secret.as_str(), REDACTED);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.sweep(item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.sweep(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The input without them, wherever people wrote them.
    pub(super) fn swept(&self, input: Input) -> Input {
        let Ok(mut value) = serde_json::to_value(&input) else { return input };
        self.sweep(&mut value);
        serde_json::from_value(value).unwrap_or(input)
    }
}

fn leaves(value: &Value, add: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => add(text),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, add)),
        Value::Object(map) => map.values().for_each(|value| leaves(value, add)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What stands in place of a value of a Secret. Credentials of registries stay readable as such: which registries they
/// are for decides about plans.
pub(super) fn blank(key: &str, value: &[u8]) -> Vec<u8> {
    if value.is_empty() {
        return Vec::new();
    }
    let logins = || -> Option<Value> {
        let config: Value = serde_json::from_slice(value).ok()?;
        let hosts = config.get("auths")?.as_object()?.keys();
        let login = json!({"username": REDACTED, "password": REDACTED});
        let auths: Map<String, Value> = hosts.map(|host| (host.clone(), login.clone())).collect();
        Some(json!({"auths": auths}))
    };
    match logins().filter(|_| key == ".dockerconfigjson") {
        Some(logins) => logins.to_string().into_bytes(),
        None => REDACTED.as_bytes().to_vec(),
    }
}
