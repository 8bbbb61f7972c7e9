//! The scale subresource: a window on the replicas of an object.

use bytes::Bytes;
use remuda_objects::meta;
use remuda_schema::FieldError;
use serde_json::{Value, json};

use crate::{
    call::{Answer, Call},
    codec,
    negotiate::{BodyType, body_type, response_form},
    options::WriteOptions,
    patch::{Patch, apply},
    registry::Resource,
    route::Verb,
    server::Inner,
    status::{ApiError, ApiResult, Named},
    write::{Failed, Ownership, Part, TRIES},
};

struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

fn paths(resource: &Resource) -> ApiResult<Paths> {
    match resource.custom() {
        Some(custom) => {
            let scale = custom.crd.view.versions[custom.version].scale.as_ref();
            let scale = scale.ok_or_else(ApiError::unknown_resource)?;
            Ok(Paths {
                spec: pointer(&scale.spec_replicas),
                status: pointer(&scale.status_replicas),
                selector: scale.label_selector.as_deref().map(pointer),
            })
        }
        None => Ok(Paths {
            spec: "/spec/replicas".to_owned(),
            status: "/status/replicas".to_owned(),
            selector: None,
        }),
    }
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// The `Scale` of an object.
pub(crate) fn of(resource: &Resource, object: &Value) -> ApiResult<Value> {
    let paths = paths(resource)?;
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": object.pointer(&paths.spec).and_then(Value::as_i64).unwrap_or(0)},
        "status": {"replicas": object.pointer(&paths.status).and_then(Value::as_i64).unwrap_or(0)},
    });
    if let Some(namespace) = metadata.get("namespace") {
        scale["metadata"]["namespace"] = namespace.clone();
    }
    let selector = match &paths.selector {
        Some(path) => object.pointer(path).and_then(Value::as_str).map(str::to_owned),
        None => remuda_objects::selector::LabelSelector::from_object(&object["spec"]["selector"])
            .ok()
            .map(|selector| selector.to_string()),
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

impl Inner {
    /// PUT or PATCH of `/scale`: only the replicas are taken.
    pub(crate) async fn write_scale(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        let form = response_form(&call.headers, false)?;
        let paths = paths(&call.resource)?;
        let patch = match call.verb {
            Verb::Patch if body_type(&call.headers) == BodyType::ApplyPatch => {
                let value = codec::parse_yaml(&body, &mut Vec::new()).map_err(ApiError::bad_request)?;
                Some(Patch::Merge(json!({"spec": value["spec"]})))
            }
            Verb::Patch => Some(self.parse_patch(call, &body)?.0),
            _ => None,
        };
        for attempt in 1.. {
            let record = self.record(call).await?;
            let mut live = self.decode(&call.resource, &record).await?;
            let mut scale = of(&call.resource, &live)?;
            match &patch {
                Some(patch) => apply(call, patch, &mut scale)?,
                None => scale = decode_scale(call, &body)?,
            }
            let wanted = meta::resource_version(&scale);
            if !wanted.is_empty() && wanted != record.revision.to_string() {
                return Err(ApiError::modified(call.named()));
            }
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            if replicas < 0 {
                let error = FieldError::invalid(
                    "spec.replicas",
                    &json!(replicas),
                    "must be greater than or equal to 0",
                );
                let named = Named { group: "autoscaling", kind: "Scale", name: call.name() };
                return Err(ApiError::invalid(named, &[error]));
            }
            set(&mut live, &paths.spec, replicas.into());
            match self.update_object(call, &record, live, &options, Ownership::Compute, Part::Other).await {
                Ok(stored) => return Ok(Answer::value(200, of(&call.resource, &stored.object)?, form)),
                Err(Failed::Conflict) if attempt < TRIES => {}
                Err(Failed::Conflict) => return Err(ApiError::modified(call.named())),
                Err(Failed::Api(error)) => return Err(error),
            }
        }
        unreachable!("the loop returns")
    }
}

/// Takes over what a Scale says.
pub(crate) fn put(resource: &crate::registry::Resource, object: &mut Value, scale: &Value) -> ApiResult<()> {
    set(object, &paths(resource)?.spec, scale["spec"]["replicas"].clone());
    Ok(())
}

fn decode_scale(call: &Call, body: &[u8]) -> ApiResult<Value> {
    let unreadable = |cause: String| ApiError::bad_request(format!("couldn't decode Scale: {cause}"));
    let scale = match body_type(&call.headers) {
        BodyType::Json => {
            codec::parse_json(body, &mut Vec::new()).map_err(|error| unreadable(error.to_string()))?
        }
        BodyType::Yaml => codec::parse_yaml(body, &mut Vec::new()).map_err(unreadable)?,
        BodyType::Protobuf => {
            remuda_kinds::decode_protobuf(body).map_err(|error| unreadable(error.to_string()))?
        }
        _ => return Err(ApiError::unsupported_media_type("application/json, application/yaml")),
    };
    if scale["kind"].as_str().is_some_and(|kind| kind != "Scale") {
        return Err(unreadable(format!("the body is a {}", scale["kind"])));
    }
    if meta::name(&scale) != call.name() && !meta::name(&scale).is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::name(&scale),
            call.name()
        )));
    }
    Ok(scale)
}

/// Sets the value at a JSON pointer, making objects on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut node = object;
    for part in pointer.split('/').skip(1) {
        if !node.is_object() {
            *node = json!({});
        }
        node = &mut node[part];
    }
    *node = value;
}
