//! Registration tokens of clusters. Commands in them have a place for the token, which is filled for those who may read
//! the Secret it is in.

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_door::Refusal;
use remuda_names::rancher::{name::DEFAULT_TOKEN, secret_key};
use serde_json::{Map, Value, json};

use super::text;
use crate::{answer::invalid, row::Row, visit::Visit};

/// Where a token belongs.
const PLACE: &str = "{token}";
/// Fields with places for it.
const COMMANDS: [&str; 7] = [
    "command",
    "insecureCommand",
    "nodeCommand",
    "insecureNodeCommand",
    "windowsNodeCommand",
    "insecureWindowsNodeCommand",
    "manifestUrl",
];

/// The object a body asks for.
pub(super) fn object(given: &Map<String, Value>) -> Result<Value, Refusal> {
    let cluster = text(given, "clusterId")?;
    if cluster.is_empty() {
        return Err(invalid("clusterId: is missing").because("MissingRequired"));
    }
    let name = match text(given, "name")?.as_str() {
        "" => DEFAULT_TOKEN.to_owned(),
        name => name.to_owned(),
    };
    Ok(json!({"metadata": {"namespace": cluster, "name": name}, "spec": {"clusterName": cluster}}))
}

/// Fills the token in, or takes the commands out that say nothing without it.
pub(crate) async fn fill(visit: &Visit, row: &Row, fields: &mut Value) {
    let secret = match fields["tokenSecretName"].as_str().unwrap_or_default() {
        "" => format!("crt-token-{}", row.name()),
        name => name.to_owned(),
    };
    let token = read(visit, row.namespace(), &secret).await;
    for field in COMMANDS {
        let Some(command) = fields[field].as_str() else { continue };
        let filled = match &token {
            Some(token) => command.replace(PLACE, token),
            None if command.contains(PLACE) => String::new(),
            None => command.to_owned(),
        };
        fields[field] = filled.into();
    }
    if let Some(token) = token {
        fields["token"] = token.into();
    }
}

/// The token, as far as the caller may read it.
async fn read(visit: &Visit, namespace: &str, name: &str) -> Option<String> {
    let secrets = visit.catalogue.of("", "Secret")?;
    // A caller who may not is asked nothing of, and leaves no line of a refusal in the audit log.
    if !visit.rights.may("get", secrets, namespace, name) {
        return None;
    }
    let secret = visit.one(secrets, namespace, name).await.ok()?.object();
    let bytes = BASE64_STANDARD.decode(secret["data"][secret_key::TOKEN].as_str()?).ok()?;
    String::from_utf8(bytes).ok().filter(|token| !token.is_empty())
}
