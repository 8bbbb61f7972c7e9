//! Registries: mirrors, credentials and certificates.

use std::collections::BTreeMap;

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD},
};
use remuda_names::rancher::{name, secret_type};
use remuda_plan::json as go_json;
use serde_json::{Value, json};

use super::{Unrenderable, values};
use crate::{
    distro,
    input::{Input, Secret},
    node_plan::File,
    spec::{Mirror, RegistryConfig},
};

/// The registries of a cluster.
#[derive(Debug, Default)]
pub(super) struct Rendered {
    /// The agent's own copy; `None` when there is nothing to say.
    pub(super) agent_file: Option<File>,
    /// Certificates, by path.
    pub(super) certificates: Vec<File>,
    /// Content of the distribution's registries.yaml.
    pub(super) raw: String,
}

pub(super) fn render(input: &Input) -> Result<Rendered, Unrenderable> {
    let spec = &input.control_plane.spec;
    let global = input.settings.system_default_registry.as_str();
    if spec.registries.is_none() && global.is_empty() {
        return Ok(Rendered::default());
    }
    let mut certificates = Vec::new();
    let mut configs: BTreeMap<&str, Value> = BTreeMap::new();
    for (host, config) in spec.registries.iter().flat_map(|registries| &registries.configs) {
        configs.insert(host, registry(input, host, config, &mut certificates)?);
    }
    let (_, is_global) = distro::system_registry(spec, global);
    if !global.is_empty()
        && is_global
        && !configs.contains_key(global)
        && let Some(auth) = global_credentials(input, global)
    {
        configs.insert(global, json!({"auth": auth, "tls": null}));
    }
    certificates.sort_by(|one, other| one.path.cmp(&other.path));
    let mirrors = match &spec.registries {
        Some(registries) => registries.mirrors.as_ref().map_or(Value::Null, mirrors),
        None => json!({}),
    };
    let raw = raw(&mirrors, &configs);
    Ok(Rendered {
        agent_file: Some(File::new("/etc/rancher/agent/registries.yaml", raw.as_bytes()).dynamic()),
        certificates,
        raw,
    })
}

/// Members of structs keep their order, keys of maps are sorted.
fn raw(mirrors: &Value, configs: &BTreeMap<&str, Value>) -> String {
    let mut out = String::from("{\"configs\":{");
    for (at, (host, config)) in configs.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        go_json::string(&mut out, host);
        out.push_str(":{\"auth\":");
        ordered(&mut out, &config["auth"], &["username", "password", "auth", "identity_token"]);
        out.push_str(",\"tls\":");
        ordered(&mut out, &config["tls"], &["ca_file", "cert_file", "key_file", "insecure_skip_verify"]);
        out.push('}');
    }
    out.push_str("},\"mirrors\":");
    out.push_str(&go_json::compact(mirrors));
    out.push('}');
    out
}

fn ordered(out: &mut String, value: &Value, keys: &[&str]) {
    if value.is_null() {
        out.push_str("null");
        return;
    }
    for (at, key) in keys.iter().enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        go_json::string(out, key);
        out.push(':');
        out.push_str(&go_json::compact(&value[key]));
    }
    out.push('}');
}

fn mirrors(mirrors: &BTreeMap<String, Mirror>) -> Value {
    let one = |mirror: &Mirror| {
        let mut value = json!({});
        if !mirror.endpoint.is_empty() {
            value["endpoint"] = json!(mirror.endpoint);
        }
        if !mirror.rewrite.is_empty() {
            value["rewrite"] = json!(mirror.rewrite);
        }
        value
    };
    Value::Object(mirrors.iter().map(|(host, mirror)| (host.clone(), one(mirror))).collect())
}

fn registry(
    input: &Input,
    host: &str,
    config: &RegistryConfig,
    files: &mut Vec<File>,
) -> Result<Value, Unrenderable> {
    let data_dir = distro::data_dir(&input.control_plane.spec);
    let mut file = |name: &str, content: &[u8]| {
        let file = File::new(format!("{data_dir}/etc/tls/registries/{host}/{name}"), content);
        let path = file.path.clone();
        files.push(file);
        json!(path)
    };
    let mut tls = Value::Null;
    if config.insecure_skip_verify || !config.tls_secret_name.is_empty() || !config.ca_bundle.is_empty() {
        tls = json!({
            "ca_file": "", "cert_file": "", "key_file": "",
            "insecure_skip_verify": config.insecure_skip_verify,
        });
    }
    if !config.tls_secret_name.is_empty() {
        let secret = get(input, &config.tls_secret_name)?;
        if secret.kind != secret_type::TLS {
            return Err(wrong_type(&config.tls_secret_name, &[secret_type::TLS]));
        }
        for (key, name, member) in [("tls.crt", "tls.crt", "cert_file"), ("tls.key", "tls.key", "key_file")] {
            if let Some(content) = secret.data.get(key).filter(|content| !content.is_empty()) {
                tls[member] = file(name, content);
            }
        }
    }
    if !config.ca_bundle.is_empty() {
        let bad = || Unrenderable::CaBundle { registry: host.to_owned() };
        let bundle = values::base64(&config.ca_bundle).ok_or_else(bad)?;
        tls["ca_file"] = file("ca.crt", &bundle);
    }
    let auth = match config.auth_config_secret_name.as_str() {
        "" => Value::Null,
        name => auth(name, get(input, name)?, host)?,
    };
    Ok(json!({"auth": auth, "tls": tls}))
}

fn auth(name: &str, secret: &Secret, host: &str) -> Result<Value, Unrenderable> {
    const TYPES: [&str; 3] = [secret_type::AUTH_CONFIG, secret_type::BASIC_AUTH, secret_type::DOCKER_CONFIG];
    if !TYPES.contains(&secret.kind.as_str()) {
        return Err(wrong_type(name, &TYPES));
    }
    let text = |key: &str| {
        secret.data.get(key).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    if secret.kind == secret_type::DOCKER_CONFIG {
        let missing = || Unrenderable::NoCredentials { name: name.to_owned(), registry: host.to_owned() };
        let (username, password) = docker_login(secret, host).ok_or_else(missing)?;
        return Ok(login(&username, &password, &text("identityToken")));
    }
    let auth = BASE64_STANDARD.encode(secret.data.get("auth").map(Vec::as_slice).unwrap_or_default());
    Ok(json!({
        "username": text("username"), "password": text("password"),
        "auth": auth, "identity_token": text("identityToken"),
    }))
}

fn login(username: &str, password: &str, identity_token: &str) -> Value {
    let auth = BASE64_STANDARD.encode(format!("{username}:{password}"));
    json!({"username": username, "password": password, "auth": auth, "identity_token": identity_token})
}

/// User and password for `host` in a `.dockerconfigjson`; `auth` stands in for both.
fn docker_login(secret: &Secret, host: &str) -> Option<(String, String)> {
    let config: Value = serde_json::from_slice(secret.data.get(".dockerconfigjson")?).ok()?;
    let entry = config.get("auths")?.get(host)?;
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let auth = text("auth");
    // Padding is optional here.
    let auth = BASE64_STANDARD_NO_PAD.decode(auth.trim().trim_end_matches('=')).ok();
    let decoded = auth.and_then(|auth| String::from_utf8(auth).ok());
    if let Some((username, password)) = decoded.as_deref().and_then(|auth| auth.split_once(':')) {
        return Some((username.to_owned(), password.to_owned()));
    }
    Some((text("username"), text("password")))
}

/// The first global pull secret that has something for `host`.
fn global_credentials(input: &Input, host: &str) -> Option<Value> {
    input.settings.pull_secrets.iter().find_map(|name| {
        let key = (name::SYSTEM.to_owned(), name.clone());
        let secret =
            input.resources.secrets.get(&key).filter(|secret| secret.kind == secret_type::DOCKER_CONFIG)?;
        let (username, password) = docker_login(secret, host)?;
        Some(login(&username, &password, ""))
    })
}

fn get<'a>(input: &'a Input, name: &str) -> Result<&'a Secret, Unrenderable> {
    let key = (input.control_plane.namespace.clone(), name.to_owned());
    let missing = || Unrenderable::NotFound { kind: "secret", namespace: key.0.clone(), name: key.1.clone() };
    input.resources.secrets.get(&key).ok_or_else(missing)
}

fn wrong_type(name: &str, expected: &[&str]) -> Unrenderable {
    Unrenderable::SecretType { name: name.to_owned(), expected: expected.join("] or [") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Registries;

    /// Mirrors that are absent from the spec are `null` and those that are empty are not: the file restarts nodes.
    #[test]
    fn mirrors_nobody_wrote_are_null() {
        let written = |spec: Value| {
            let registries: Registries = serde_json::from_value(spec).unwrap();
            raw(&registries.mirrors.as_ref().map_or(Value::Null, mirrors), &BTreeMap::new())
        };
        assert_eq!(written(json!({})), r#"{"configs":{},"mirrors":null}"#);
        assert_eq!(written(json!({"mirrors": null})), r#"{"configs":{},"mirrors":null}"#);
        assert_eq!(written(json!({"mirrors": {}})), r#"{"configs":{},"mirrors":{}}"#);
        assert_eq!(written(json!({"mirrors": {"m": {}}})), r#"{"configs":{},"mirrors":{"m":{}}}"#);
    }
}
