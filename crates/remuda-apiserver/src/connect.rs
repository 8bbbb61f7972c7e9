//! CONNECT as admission sees it: the parameters of a stream are an object of a kind of their own.

use serde_json::{Value, json};

use crate::{
    admission::{Operation, Review},
    call::Call,
    options::Query,
    server::Inner,
    status::ApiResult,
};

/// The kind of the parameters of a stream; `None` for what is no stream.
pub(crate) fn options_kind(kind: &str, sub: &str) -> Option<&'static str> {
    Some(match (kind, sub) {
        ("Pod", "attach") => "PodAttachOptions",
        ("Pod", "exec") => "PodExecOptions",
        ("Pod", "portforward") => "PodPortForwardOptions",
        ("Pod", "proxy") => "PodProxyOptions",
        ("Service", "proxy") => "ServiceProxyOptions",
        ("Node", "proxy") => "NodeProxyOptions",
        _ => return None,
    })
}

impl Inner {
    /// Lets admission judge a stream; returns its parameters as admission left them.
    pub(crate) async fn admit_connect(&self, call: &Call) -> ApiResult<Query> {
        let Some(kind) = options_kind(&call.resource.kind, call.subresource()) else {
            return Ok(call.query.clone());
        };
        let asked = options(call, kind);
        let mut admitted = asked.clone();
        self.admit(&Review::new(call, Operation::Connect, None, false), &mut admitted).await?;
        Ok(if admitted == asked { call.query.clone() } else { query(&admitted) })
    }
}

const FLAGS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// The parameters as an object; what is not given is left out.
fn options(call: &Call, kind: &str) -> Value {
    let query = &call.query;
    let mut options = json!({"apiVersion": "v1", "kind": kind});
    match call.subresource() {
        "proxy" => {
            if !call.info.rest.is_empty() {
                options["path"] = call.info.rest.as_str().into();
            }
        }
        "portforward" => {
            // Those that are none are refused later, when the stream would begin.
            let ports = query.all("ports").flat_map(|value| value.split(','));
            let ports: Vec<u16> = ports.filter_map(|port| port.trim().parse().ok()).collect();
            if !ports.is_empty() {
                options["ports"] = json!(ports);
            }
        }
        _ => {
            for flag in FLAGS {
                if query.flag(flag) == Some(true) {
                    options[flag] = true.into();
                }
            }
            if let Some(container) = query.get("container").filter(|container| !container.is_empty()) {
                options["container"] = container.into();
            }
            let command: Vec<&str> = query.all("command").collect();
            if !command.is_empty() && call.subresource() == "exec" {
                options["command"] = json!(command);
            }
        }
    }
    options
}

/// The parameters a changed object stands for.
fn query(options: &Value) -> Query {
    let mut pairs = Vec::new();
    let mut add = |key: &str, value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        pairs.push((key.to_owned(), text));
    };
    for key in FLAGS.into_iter().chain(["container"]) {
        if let Some(value) = options.get(key).filter(|value| !value.is_null()) {
            add(key, value);
        }
    }
    for key in ["command", "ports"] {
        options[key].as_array().into_iter().flatten().for_each(|value| add(key, value));
    }
    Query::from_pairs(pairs)
}
