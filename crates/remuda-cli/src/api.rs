//! Requests, as plain JSON: nothing of an object is lost between reading and writing it.

use std::time::Duration;

use kube::{
    Client,
    api::{ApiResource, DeleteParams, DynamicObject, GetParams, ListParams, LogParams, PostParams},
    core::{GroupVersionKind, Request, Resource},
};
use remuda_names::{
    PROGRAM, capi,
    gateway::path,
    machines,
    path::VISIBLE,
    rancher::{group, label},
};
use serde_json::{Value, json};

use crate::{
    denied::Denied,
    failure::{Code, Failure},
    hooks::JobLog,
    object::Object,
};

/// A kind by what addresses it.
pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

pub(crate) fn provisioning_clusters() -> ApiResource {
    resource(group::PROVISIONING, "v1", "Cluster", "clusters")
}

pub(crate) fn management(kind: &str) -> ApiResource {
    resource(group::MANAGEMENT, "v3", kind, &format!("{}s", kind.to_lowercase()))
}

pub(crate) fn capi(kind: &str) -> ApiResource {
    resource(capi::group::CORE, "v1beta2", kind, &format!("{}s", kind.to_lowercase()))
}

pub(crate) fn rke(kind: &str) -> ApiResource {
    resource(group::RKE, "v1", kind, &format!("{}s", kind.to_lowercase()))
}

/// A kind of a driver: its machines or its configurations.
pub(crate) fn driver(group: &str, kind: &str) -> ApiResource {
    resource(group, "v1", kind, &format!("{}s", kind.to_lowercase()))
}

pub(crate) fn core(kind: &str, plural: &str) -> ApiResource {
    resource("", "v1", kind, plural)
}

pub(crate) fn jobs() -> ApiResource {
    resource("batch", "v1", "Job", "jobs")
}

fn request(resource: &ApiResource, namespace: Option<&str>) -> Request {
    Request::new(DynamicObject::url_path(resource, namespace))
}

fn doing(verb: &str, resource: &ApiResource, name: &str) -> String {
    match name {
        "" => format!("{verb} {}", resource.plural),
        name => format!("{verb} {} {name}", resource.kind),
    }
}

fn built<T>(
    request: Result<http::Request<T>, kube::core::request::Error>,
) -> Result<http::Request<T>, Failure> {
    request.map_err(|error| Failure::new(Code::Other, error.to_string()))
}

/// Objects in a list do not always say what they are.
fn named(mut value: Value, resource: &ApiResource) -> Object {
    if let Some(map) = value.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| json!(resource.api_version));
        map.entry("kind").or_insert_with(|| json!(resource.kind));
    }
    Object(value)
}

/// Whether the server knows more of a kind than RBAC does: clusters and their parts are shown to whoever may read the
/// cluster, one by one.
fn has_parts(resource: &ApiResource) -> bool {
    let groups = [group::PROVISIONING, group::MANAGEMENT, capi::group::CORE, group::RKE, group::MACHINE];
    groups.contains(&resource.group.as_str())
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Asks for what the caller may see of something they were refused. Servers without such an answer refuse it too.
async fn visible(client: &Client, request: &http::Request<Vec<u8>>) -> Result<Value, kube::Error> {
    let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let uri = format!("{}{path}", VISIBLE.trim_end_matches('/'));
    let request = http::Request::get(uri).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await
}

/// The object, or nothing if there is none, or no such kind.
pub(crate) async fn get(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Object>, Failure> {
    check_name(name)?;
    let request = built(request(resource, namespace).get(name, &GetParams::default()))?;
    let refused = match client.request::<Value>(request.clone()).await {
        Ok(value) => return Ok(Some(named(value, resource))),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => error,
    };
    let failure = Failure::api(&doing("read", resource, name), &refused);
    if !is_forbidden(&refused) {
        return Err(failure);
    }
    let failure = failure.denied(Denied::get(resource, namespace, name));
    if !has_parts(resource) {
        return Err(failure);
    }
    match visible(client, &request).await {
        Ok(value) => Ok(Some(named(value, resource))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(_) => Err(failure),
    }
}

/// How long a cluster may take to say which version it is of.
const REACH: Duration = Duration::from_secs(10);

/// Why the server cannot reach a cluster now; nothing if it can, and nothing if the caller may not ask or the server
/// has no way to clusters.
pub(crate) async fn unreachable(client: &Client, cluster: &str) -> Option<String> {
    check_name(cluster).ok()?;
    let request = http::Request::get(format!("{}{cluster}/version", path::CLUSTERS)).body(Vec::new()).ok()?;
    match tokio::time::timeout(REACH, client.request::<Value>(request)).await {
        Err(_) => Some(format!("it gave no answer within {REACH:?}")),
        Ok(Err(kube::Error::Api(status))) if (502..=504).contains(&status.code) => {
            Some(status.message.clone())
        }
        Ok(_) => None,
    }
}

/// Which objects of a kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    All,
    Labels(&'a str),
    Fields(&'a str),
}

/// Objects of a kind; a kind that is not served has none.
pub(crate) async fn list(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    which: Which<'_>,
) -> Result<Vec<Object>, Failure> {
    match try_list(client, resource, namespace, which).await {
        Ok(objects) => Ok(objects),
        Err(failure) if failure.code == Code::NotFound => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// As [`list`], but a kind that is not served is a failure. Whoever may not list the kind gets those objects they may
/// see; that they may see none is a failure.
pub(crate) async fn try_list(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    which: Which<'_>,
) -> Result<Vec<Object>, Failure> {
    match seen(client, resource, namespace, which).await? {
        Seen { objects, withheld: Some(failure) } if objects.is_empty() => Err(failure),
        Seen { objects, .. } => Ok(objects),
    }
}

/// Objects of a kind as far as the caller sees them.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) objects: Vec<Object>,
    /// Why there may be others; nothing if these are all.
    pub(crate) withheld: Option<Failure>,
}

pub(crate) async fn seen(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    which: Which<'_>,
) -> Result<Seen, Failure> {
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().limit(500);
    match which {
        Which::All => {}
        Which::Labels(labels) => parameters = parameters.labels(labels),
        Which::Fields(fields) => parameters = parameters.fields(fields),
    }
    let mut withheld = None;
    loop {
        let request = built(request(resource, namespace).list(&parameters))?;
        let doing = || doing("list", resource, "");
        let mut page = match client.request::<Value>(request.clone()).await {
            Ok(page) => page,
            Err(error) if is_forbidden(&error) => {
                let failure = Failure::api(&doing(), &error).denied(Denied::list(resource, namespace));
                if !has_parts(resource) {
                    return Err(failure);
                }
                match visible(client, &request).await {
                    Ok(page) => {
                        withheld = Some(failure);
                        page
                    }
                    Err(error @ kube::Error::Api(_)) if !is_forbidden(&error) => {
                        return Err(Failure::api(&doing(), &error));
                    }
                    Err(_) => return Err(failure),
                }
            }
            Err(error) => return Err(Failure::api(&doing(), &error)),
        };
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            objects.extend(items.into_iter().map(|item| named(item, resource)));
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str).filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(token),
            None => return Ok(Seen { objects, withheld }),
        }
    }
}

fn post(dry_run: bool) -> PostParams {
    PostParams { dry_run, field_manager: Some(PROGRAM.to_owned()) }
}

fn body(object: &Object) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(object).map_err(|error| Failure::new(Code::Other, error.to_string()))
}

pub(crate) async fn create(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    object: &Object,
    dry_run: bool,
) -> Result<Object, Failure> {
    let request = built(request(resource, namespace).create(&post(dry_run), body(object)?))?;
    let answer = client.request::<Value>(request).await;
    let created = answer.map_err(|error| Failure::api(&doing("create", resource, object.name()), &error))?;
    Ok(named(created, resource))
}

/// Writes an object as it is. Somebody else's change in between is a conflict.
pub(crate) async fn replace(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    object: &Object,
    dry_run: bool,
) -> Result<Object, Failure> {
    let name = object.name();
    let request = built(request(resource, namespace).replace(name, &post(dry_run), body(object)?))?;
    let answer = client.request::<Value>(request).await;
    let replaced = answer.map_err(|error| Failure::api(&doing("change", resource, name), &error))?;
    Ok(named(replaced, resource))
}

/// Whether there was something to delete.
pub(crate) async fn delete(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
    dry_run: bool,
) -> Result<bool, Failure> {
    check_name(name)?;
    let parameters = DeleteParams { dry_run, ..DeleteParams::default() };
    let request = built(request(resource, namespace).delete(name, &parameters))?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(Failure::api(&doing("delete", resource, name), &error)),
    }
}

/// Reads, changes and writes, again if somebody else was faster. `change` says whether there is anything to write.
pub(crate) async fn change(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
    dry_run: bool,
    mut change: impl FnMut(&mut Object) -> Result<bool, Failure>,
) -> Result<Option<Object>, Failure> {
    const TRIES: usize = 8;
    for attempt in 1..=TRIES {
        let Some(mut object) = get(client, resource, namespace, name).await? else {
            return Err(Failure::new(Code::NotFound, format!("there is no {} {name}", resource.kind)));
        };
        if !change(&mut object)? {
            return Ok(None);
        }
        match replace(client, resource, namespace, &object, dry_run).await {
            Err(failure) if failure.code == Code::Conflict && attempt < TRIES => {}
            result => return result.map(Some),
        }
    }
    unreachable!("the last try returns")
}

/// Longest value of a label.
const MAX_LABEL: usize = 63;

/// What the runner of Jobs keeps of them, also when the machine is gone.
pub(crate) async fn kept_logs(
    client: &Client,
    namespace: &str,
    machine: &str,
) -> Result<Option<JobLog>, Failure> {
    // What does not fit into a label was never one.
    if machine.len() > MAX_LABEL {
        return Ok(None);
    }
    let maps = core("ConfigMap", "configmaps");
    let labels = format!("{}=true,{}={machine}", machines::label::LOG, label::INFRA_MACHINE_NAME);
    let found = list(client, &maps, Some(namespace), Which::Labels(&labels)).await?;
    let Some(map) = found.first() else { return Ok(None) };
    let text = |key: &str| map.0.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let text = |key: &str| text(key).unwrap_or_default().to_owned();
    Ok(Some(JobLog { create: text("create"), remove: text("remove") }))
}

/// Logs of the pods that a machine's Jobs have, the oldest first.
pub(crate) async fn pod_logs(
    client: &Client,
    namespace: &str,
    machine: &str,
) -> Result<Option<JobLog>, Failure> {
    if machine.len() > MAX_LABEL {
        return Ok(None);
    }
    let pods = core("Pod", "pods");
    let labels = format!("{}={machine}", label::CAPI_MACHINE_NAME);
    let mut found = list(client, &pods, Some(namespace), Which::Labels(&labels)).await?;
    found.sort_by_key(Object::created);
    let mut log = JobLog::default();
    for pod in &found {
        let request = built(request(&pods, Some(namespace)).logs(pod.name(), &LogParams::default()))?;
        let part = if pod.label(label::INFRA_REMOVE) == "true" { &mut log.remove } else { &mut log.create };
        match client.request_text(request).await {
            Ok(text) => part.push_str(&text),
            Err(kube::Error::Api(_)) => {}
            Err(error) => return Err(Failure::api(&format!("read the log of pod {}", pod.name()), &error)),
        }
    }
    Ok(Some(log).filter(|log| *log != JobLog::default()))
}

/// Names become parts of paths.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let good =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '-' | '.');
    if name.is_empty() || name.len() > 253 || !name.chars().all(good) {
        let failure = Failure::invalid(format!("{name:?} cannot be the name of anything"));
        return Err(failure.hint("names are made of lower-case letters, digits and dashes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_path_are_refused() {
        for name in ["", "a/b", "..%2f", "A", "a?b", "ä", &"x".repeat(254)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["demo", "a.b-c", "0"] {
            assert_eq!(check_name(name), Ok(()));
        }
    }
}
