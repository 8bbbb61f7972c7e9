//! Writes, done as the caller: authorization and admission are those of the Kubernetes API.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use remuda_door::{Body, Refusal};
use serde_json::{Map, Value, json};

use crate::{
    answer::{invalid, refused},
    kind::Kind,
    query::Parameters,
    show::stored,
    visit::{Source, Visit},
};

/// Formats of patches.
const PATCHES: [&str; 4] = [
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// What the Kubernetes API answered a write with.
pub(crate) struct Written {
    pub(crate) code: StatusCode,
    pub(crate) object: Value,
}

async fn send(
    visit: &Visit,
    method: Method,
    uri: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<Written, Refusal> {
    let request = Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, content_type);
    let request = request.body(kube::client::Body::from(body)).map_err(|_| Refusal::not_found())?;
    let response: Response<kube::client::Body> = visit.client.send(request).await.map_err(refused)?;
    let code = response.status();
    let body = response.into_body().collect().await.map_err(refused)?.to_bytes();
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    if code.is_success() {
        return Ok(Written { code, object });
    }
    let status = serde_json::from_value::<kube::core::Status>(object).unwrap_or_default();
    let status = if status.code == 0 { kube::core::Status { code: code.as_u16(), ..status } } else { status };
    Err(refused(kube::Error::Api(status.boxed())))
}

/// A write through this server is seen by the next list.
fn noted(visit: &Visit, kind: &Kind, written: Written) -> Written {
    if let Source::Indexes(indexes) = &visit.source
        && let Some(index) = indexes.peek(&kind.id)
        && let Some(revision) = written.object["metadata"]["resourceVersion"].as_str()
    {
        index.expect(revision.parse().unwrap_or_default());
    }
    written
}

/// The body of a create or an update: an object, without what the list API adds.
async fn object(kind: &Kind, body: Body) -> Result<Map<String, Value>, Refusal> {
    match stored(kind, body.json().await?) {
        Value::Object(map) => Ok(map),
        _ => Err(invalid("the body is not an object")),
    }
}

fn metadata(object: &mut Map<String, Value>) -> Result<&mut Map<String, Value>, Refusal> {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    metadata.as_object_mut().ok_or_else(|| invalid("metadata is not an object"))
}

/// POST to a collection.
pub(crate) async fn create(
    visit: &Visit,
    kind: &Arc<Kind>,
    namespace: &str,
    parameters: &Parameters,
    body: Body,
) -> Result<Written, Refusal> {
    let mut object = object(kind, body).await?;
    let metadata = metadata(&mut object)?;
    let own = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
    let namespace = match (kind.namespaced, own.as_str(), namespace) {
        (false, ..) => String::new(),
        (true, "", "") => return Err(invalid("metadata.namespace is missing")),
        (true, "", namespace) => namespace.to_owned(),
        (true, own, _) => own.to_owned(),
    };
    if kind.namespaced {
        metadata.insert("namespace".to_owned(), namespace.as_str().into());
    }
    let has = |field: &str| metadata.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if !has("name") && !has("generateName") && kind.has_verb("get") {
        let prefix = kind.kind.to_lowercase().chars().next().unwrap_or('x');
        metadata.insert("generateName".to_owned(), format!("{prefix}-").into());
    }
    let uri = format!("{}{}", kind.path(&namespace, ""), parameters.passed());
    let body = Value::Object(object).to_string().into_bytes();
    let written = send(visit, Method::POST, &uri, "application/json", body).await?;
    Ok(noted(visit, kind, Written { code: StatusCode::CREATED, ..written }))
}

/// Makes an object that is whole.
pub(crate) async fn send_new(
    visit: &Visit,
    kind: &Arc<Kind>,
    namespace: &str,
    object: &Value,
) -> Result<Value, Refusal> {
    let mut object = object.clone();
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.as_str().into();
    let body = object.to_string().into_bytes();
    let uri = kind.path(namespace, "");
    let written = send(visit, Method::POST, &uri, "application/json", body).await?;
    Ok(noted(visit, kind, written).object)
}

/// Changes what a merge patch names.
pub(crate) async fn merge(
    visit: &Visit,
    kind: &Arc<Kind>,
    (namespace, name): (&str, &str),
    patch: &Value,
) -> Result<Value, Refusal> {
    let body = patch.to_string().into_bytes();
    let written = send(visit, Method::PATCH, &kind.path(namespace, name), PATCHES[0], body).await?;
    Ok(noted(visit, kind, written).object)
}

/// PUT of an object. Its status is not written: it belongs to the controllers.
pub(crate) async fn update(
    visit: &Visit,
    kind: &Arc<Kind>,
    (namespace, name): (&str, &str),
    parameters: &Parameters,
    body: Body,
) -> Result<Written, Refusal> {
    let mut object = object(kind, body).await?;
    let metadata = metadata(&mut object)?;
    let version = metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default();
    if version.is_empty() {
        return Err(invalid("metadata.resourceVersion is missing"));
    }
    for (field, value) in [("name", name), ("namespace", namespace)] {
        if !value.is_empty() {
            let own = metadata.entry(field).or_insert_with(|| value.into());
            if own.as_str().is_some_and(|own| own != value) {
                return Err(invalid(format!("metadata.{field} is not that of the URL")));
            }
        }
    }
    // What is not in the body stays: with a status subresource the API ignores it, without one it would be emptied.
    object.remove("status");
    if let Some(status) = current_status(visit, kind, namespace, name).await? {
        object.insert("status".to_owned(), status);
    }
    let uri = format!("{}{}", kind.path(namespace, name), parameters.passed());
    let body = Value::Object(object).to_string().into_bytes();
    let written = send(visit, Method::PUT, &uri, "application/json", body).await?;
    Ok(noted(visit, kind, Written { code: StatusCode::OK, ..written }))
}

/// The status as it is stored. A caller who may not read the object writes none.
async fn current_status(
    visit: &Visit,
    kind: &Arc<Kind>,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Refusal> {
    match visit.one(kind, namespace, name).await {
        Ok(row) => Ok(row.object().get("status").cloned()),
        Err(refusal) if refusal.code == StatusCode::FORBIDDEN => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// PATCH of an object, in the formats of Kubernetes.
pub(crate) async fn patch(
    visit: &Visit,
    kind: &Arc<Kind>,
    (namespace, name): (&str, &str),
    parameters: &Parameters,
    content_type: Option<&HeaderValue>,
    body: Body,
) -> Result<Written, Refusal> {
    let given = content_type.and_then(|given| given.to_str().ok()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    let format = match given {
        // Clients that know one format only do not name it.
        "" | "application/json" => PATCHES[0],
        given => PATCHES.iter().copied().find(|known| *known == given).ok_or_else(|| {
            let message = format!("a patch is one of {}", PATCHES.join(", "));
            Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
        })?,
    };
    let bytes = body.collect().await.map_err(|_| Refusal::bad("the body is too long or did not arrive"))?;
    let uri = format!("{}{}", kind.path(namespace, name), parameters.passed());
    let written = send(visit, Method::PATCH, &uri, format, bytes.to_bytes().to_vec()).await?;
    Ok(noted(visit, kind, Written { code: StatusCode::OK, ..written }))
}

/// DELETE of an object. `None` if it is gone; the object while finalizers hold it.
pub(crate) async fn remove(
    visit: &Visit,
    kind: &Arc<Kind>,
    (namespace, name): (&str, &str),
    parameters: &Parameters,
) -> Result<Option<Value>, Refusal> {
    let uri = format!("{}{}", kind.path(namespace, name), parameters.passed());
    let written = send(visit, Method::DELETE, &uri, "application/json", Vec::new()).await?;
    let is_status = written.object["kind"] == "Status";
    let held = written.object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    Ok((!is_status && held).then_some(noted(visit, kind, written).object))
}
