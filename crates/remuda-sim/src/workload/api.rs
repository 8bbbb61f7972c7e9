//! Requests and answers, without the wire.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, header::CONTENT_TYPE};
use remuda_auth::request_info::{RequestInfo, parameter};
use serde_json::{Value, json};

use super::{
    cluster::{State, WorkloadCluster},
    kinds::{self, NAMESPACES, PODS, SERVED, Served},
    patch, select,
    status::{Failure, success},
    store::{Stored, Watch},
};

/// What goes back.
pub(super) enum Answer {
    Body(StatusCode, Bytes),
    Watch(Watch, Filter, Option<Duration>),
}

/// Which objects of a list or watch are wanted.
#[derive(Debug, Default)]
pub(super) struct Filter {
    labels: String,
    fields: String,
}

impl Filter {
    pub(super) fn passes(&self, object: &Stored) -> bool {
        if self.labels.is_empty() && self.fields.is_empty() {
            return true;
        }
        let object = object.value();
        select::labels(&self.labels, &object) && select::fields(&self.fields, &object)
    }
}

/// What a path names.
#[derive(Debug, PartialEq)]
struct Target<'a> {
    kind: usize,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    subresource: Option<&'a str>,
}

impl Target<'_> {
    fn served(&self) -> &'static Served {
        &SERVED[self.kind]
    }
}

fn target(info: &RequestInfo) -> Option<Target<'_>> {
    if !info.is_resource() || info.verb_in_path || !info.rest.is_empty() {
        return None;
    }
    let given = |text: &&str| !text.is_empty();
    let namespace = info.in_namespace.then_some(info.namespace.as_str());
    let name = Some(info.name.as_str()).filter(given);
    let subresource = Some(info.subresource.as_str()).filter(given);
    let kind = kinds::find(&info.group, &info.version, &info.resource)?;
    // One object of a namespaced kind is found in its namespace only.
    let placed = SERVED[kind].namespaced;
    let sound = if placed { namespace.is_some() || name.is_none() } else { namespace.is_none() };
    sound.then_some(Target { kind, namespace, name, subresource })
}

fn parse(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::bad_request(format!("body is no JSON: {error}")))
}

fn found(value: &Value) -> Answer {
    Answer::Body(StatusCode::OK, value.to_string().into())
}

impl WorkloadCluster {
    pub(super) fn answer(
        self: &Arc<Self>,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Answer, Failure> {
        let info = RequestInfo::parse(method.as_str(), path, Some(query));
        if !info.is_resource() && info.verb == "get" {
            return discovery(&info.path).ok_or_else(Failure::no_such_path);
        }
        let target = target(&info).ok_or_else(Failure::no_such_path)?;
        let Some(name) = target.name else {
            return match *method {
                Method::GET => self.list_or_watch(&target, info.verb == "watch", query),
                Method::POST => self.create(&target, parse(body)?),
                _ => Err(not_allowed()),
            };
        };
        if target.subresource == Some("eviction") && *method == Method::POST && target.kind == PODS {
            return self.evict(target.namespace.unwrap_or_default(), name);
        }
        if !matches!(target.subresource, None | Some("status")) {
            return Err(Failure::no_such_path());
        }
        match *method {
            Method::GET => {
                let state = self.lock();
                let object = get(&state, &target, name)?;
                Ok(Answer::Body(StatusCode::OK, object.body.clone()))
            }
            Method::PUT => {
                let new = parse(body)?;
                self.write(&target, name, |object| {
                    match target.subresource {
                        Some(_) => object["status"] = new["status"].clone(),
                        None => *object = new,
                    }
                    Ok(())
                })
            }
            Method::PATCH => self.patch(&target, name, headers, parse_patch(headers, body)?),
            Method::DELETE => {
                // Nobody has to send options.
                let options = parse(body).unwrap_or_default();
                self.remove(&target, name, &options)
            }
            _ => Err(not_allowed()),
        }
    }

    fn list_or_watch(&self, target: &Target<'_>, watch: bool, query: &str) -> Result<Answer, Failure> {
        let parameter = |name: &str| parameter(query, name).map(Cow::into_owned);
        let filter = Filter {
            labels: parameter("labelSelector").unwrap_or_default(),
            fields: parameter("fieldSelector").unwrap_or_default(),
        };
        let mut state = self.lock();
        if watch {
            if parameter("sendInitialEvents").is_some_and(|asked| asked == "true") {
                let message = "sendInitialEvents is forbidden for watch";
                return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message));
            }
            let since = parameter("resourceVersion").unwrap_or_default();
            let since = match since.as_str() {
                "" | "0" => state.store.version(),
                since => since.parse().map_err(|_| Failure::bad_request("resourceVersion is no number"))?,
            };
            let seconds = parameter("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
            let watch = state.store.watch(target.kind, target.namespace, since);
            let watch = watch.map_err(|_| Failure::expired())?;
            return Ok(Answer::Watch(watch, filter, seconds.map(Duration::from_secs)));
        }
        let served = target.served();
        let head = json!({
            "kind": format!("{}List", served.kind),
            "apiVersion": served.api_version(),
            "metadata": {"resourceVersion": state.store.version().to_string()},
        });
        let mut body = BytesMut::from(head.to_string().trim_end_matches('}').as_bytes());
        // The metadata's brace went with the object's.
        body.extend_from_slice(b"},\"items\":[");
        let objects = state.store.list(target.kind, target.namespace).filter(|object| filter.passes(object));
        for (index, object) in objects.enumerate() {
            if index > 0 {
                body.extend_from_slice(b",");
            }
            body.extend_from_slice(&object.body);
        }
        body.extend_from_slice(b"]}");
        Ok(Answer::Body(StatusCode::OK, body.freeze()))
    }

    fn create(&self, target: &Target<'_>, mut object: Value) -> Result<Answer, Failure> {
        let mut state = self.lock();
        let name = match object["metadata"]["name"].as_str() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => {
                let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default();
                if prefix.is_empty() {
                    return Err(Failure::bad_request("name or generateName is required"));
                }
                format!("{prefix}{:05}", state.store.version())
            }
        };
        if !object["metadata"].is_object() {
            return Err(Failure::bad_request("metadata is no object"));
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("deletionTimestamp");
        }
        self.insert(&mut state, target, &name, object)?;
        let stored = get(&state, target, &name)?;
        Ok(Answer::Body(StatusCode::CREATED, stored.body.clone()))
    }

    fn insert(
        &self,
        state: &mut State,
        target: &Target<'_>,
        name: &str,
        object: Value,
    ) -> Result<(), Failure> {
        let served = target.served();
        let namespace = match (served.namespaced, target.namespace) {
            (true, None) => return Err(Failure::bad_request("a namespace is required")),
            (_, namespace) => namespace.unwrap_or_default(),
        };
        if served.namespaced && state.store.get(NAMESPACES, "", namespace).is_none() {
            return Err(Failure::not_found(&SERVED[NAMESPACES], namespace));
        }
        if state.store.get(target.kind, namespace, name).is_some() {
            return Err(Failure::exists(served, name));
        }
        self.add(state, target.kind, namespace, name, object);
        Ok(())
    }

    fn patch(
        &self,
        target: &Target<'_>,
        name: &str,
        headers: &HeaderMap,
        patch: Value,
    ) -> Result<Answer, Failure> {
        let kind = content_type(headers);
        if kind == "application/apply-patch+yaml" {
            let mut state = self.lock();
            if get(&state, target, name).is_err() && target.subresource.is_none() {
                self.insert(&mut state, target, name, patch)?;
                let stored = get(&state, target, name)?;
                return Ok(Answer::Body(StatusCode::CREATED, stored.body.clone()));
            }
        }
        let whole = target.subresource.is_none();
        self.write(target, name, |object| {
            let mut patched = object.clone();
            match kind {
                "application/json-patch+json" => patch::json(&mut patched, &patch)
                    .map_err(|why| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", why))?,
                "application/strategic-merge-patch+json" => patch::strategic(&mut patched, patch),
                "application/merge-patch+json" | "application/apply-patch+yaml" => {
                    patch::merge(&mut patched, patch);
                }
                other => {
                    let message = format!("{other} is no patch");
                    return Err(Failure::new(
                        StatusCode::UNSUPPORTED_MEDIA_TYPE,
                        "UnsupportedMediaType",
                        message,
                    ));
                }
            }
            if whole {
                *object = patched;
            } else {
                object["status"] = patched["status"].take();
                object["metadata"]["resourceVersion"] = patched["metadata"]["resourceVersion"].take();
                object["metadata"]["uid"] = patched["metadata"]["uid"].take();
            }
            Ok(())
        })
    }

    /// Changes an object, unless it is another than the change is for.
    fn write(
        &self,
        target: &Target<'_>,
        name: &str,
        change: impl FnOnce(&mut Value) -> Result<(), Failure>,
    ) -> Result<Answer, Failure> {
        let served = target.served();
        let mut state = self.lock();
        let before = get(&state, target, name)?.value();
        let mut after = before.clone();
        change(&mut after)?;
        if !after["metadata"].is_object() {
            return Err(Failure::bad_request("metadata is no object"));
        }
        let given = |field: &str| after["metadata"][field].as_str().filter(|given| !given.is_empty());
        for field in ["uid", "resourceVersion"] {
            if given(field).is_some_and(|given| before["metadata"][field] != given) {
                let why = "the object has been modified; please apply your changes to the latest version \
                           and try again";
                return Err(Failure::conflict(served, name, why));
            }
        }
        for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "resourceVersion"]
        {
            let kept = before["metadata"].get(field).cloned();
            if let Some(metadata) = after["metadata"].as_object_mut() {
                metadata.remove(field);
                metadata.extend(kept.map(|kept| (field.to_owned(), kept)));
            }
        }
        after["apiVersion"] = before["apiVersion"].clone();
        after["kind"] = before["kind"].clone();
        let namespace = target.namespace.unwrap_or_default();
        if after == before {
            return Ok(found(&before));
        }
        let finalizers = after["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        let had_finalizers = before["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if after["metadata"]["deletionTimestamp"].is_string() && had_finalizers && !finalizers {
            state.store.remove(target.kind, namespace, name);
            return Ok(found(&after));
        }
        let stored = state.store.put(target.kind, namespace, name, after);
        Ok(Answer::Body(StatusCode::OK, stored.body.clone()))
    }

    fn remove(self: &Arc<Self>, target: &Target<'_>, name: &str, options: &Value) -> Result<Answer, Failure> {
        let mut state = self.lock();
        let object = get(&state, target, name)?.value();
        for field in ["uid", "resourceVersion"] {
            let wanted = options["preconditions"][field].as_str();
            if wanted.is_some_and(|wanted| object["metadata"][field] != wanted) {
                let why = "the precondition does not hold";
                return Err(Failure::conflict(target.served(), name, why));
            }
        }
        if target.kind == NAMESPACES {
            for kind in (0..SERVED.len()).filter(|kind| SERVED[*kind].namespaced) {
                let inside: Vec<_> = state.store.list(kind, Some(name)).map(|one| one.name.clone()).collect();
                for one in inside {
                    state.store.remove(kind, name, &one);
                }
            }
        }
        self.delete(&mut state, target.kind, target.namespace.unwrap_or_default(), name);
        Ok(found(&success()))
    }
}

fn get<'a>(state: &'a State, target: &Target<'_>, name: &str) -> Result<&'a Arc<Stored>, Failure> {
    let found = state.store.get(target.kind, target.namespace.unwrap_or_default(), name);
    found.ok_or_else(|| Failure::not_found(target.served(), name))
}

fn discovery(path: &str) -> Option<Answer> {
    let path = path.trim_matches('/');
    let parts: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
    let value = match parts.as_slice() {
        [] => json!({"paths": ["/api", "/apis", "/healthz", "/version"]}),
        ["healthz" | "livez" | "readyz"] => {
            return Some(Answer::Body(StatusCode::OK, Bytes::from_static(b"ok")));
        }
        ["version"] => json!({
            "major": "1", "minor": "34", "gitVersion": "v1.34.0+sim", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "none", "platform": "linux/amd64",
        }),
        ["api"] => kinds::core_versions(),
        ["apis"] => kinds::group_list(),
        ["api", version] => kinds::resource_list("", version)?,
        ["apis", group, version] => kinds::resource_list(group, version)?,
        _ => return None,
    };
    Some(found(&value))
}

fn not_allowed() -> Failure {
    let message = "the server does not allow this method on the requested resource";
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Applied objects may be YAML, of which JSON is a part.
fn parse_patch(headers: &HeaderMap, body: &[u8]) -> Result<Value, Failure> {
    if content_type(headers) != "application/apply-patch+yaml" {
        return parse(body);
    }
    parse(body).or_else(|_| {
        let text = std::str::from_utf8(body).map_err(|_| Failure::bad_request("body is no text"))?;
        let parsed = serde_saphyr::from_str(text);
        parsed.map_err(|error| Failure::bad_request(format!("body is no YAML: {error}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_objects() {
        let parts = |path: &'static str| {
            let info = RequestInfo::parse("GET", path, None);
            target(&info).map(|target| {
                let text = |part: Option<&str>| part.unwrap_or("-").to_owned();
                let kind = SERVED[target.kind].plural;
                format!(
                    "{kind} {} {} {}",
                    text(target.namespace),
                    text(target.name),
                    text(target.subresource)
                )
            })
        };
        for (path, expected) in [
            ("/api/v1/nodes", Some("nodes - - -")),
            ("/api/v1/nodes/a/status", Some("nodes - a status")),
            ("/api/v1/namespaces/a", Some("namespaces - a -")),
            ("/api/v1/namespaces/a/status", Some("namespaces - a status")),
            ("/api/v1/namespaces/a/pods", Some("pods a - -")),
            ("/api/v1/namespaces/a/pods/p/eviction", Some("pods a p eviction")),
            ("/api/v1/pods", Some("pods - - -")),
            ("/api/v1/pods/p", None),
            ("/api/v1/namespaces/a/nodes/n", None),
            ("/apis/apps/v1/namespaces/a/daemonsets/d", Some("daemonsets a d -")),
            ("/apis/apps/v2/daemonsets", None),
            ("/api/v1/namespaces/a/pods/p/x/y", None),
            ("/nothing", None),
        ] {
            assert_eq!(parts(path).as_deref(), expected, "{path}");
        }
    }
}
