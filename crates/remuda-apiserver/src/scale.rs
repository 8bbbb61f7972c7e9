//! The scale subresource: a window on the replicas of an object.

use bytes::Bytes;
use remuda_objects::meta;
use remuda_schema::FieldError;
use serde_json::{Value, json};

use remuda_auth::request_info::Verb;

use crate::{
    call::{Answer, Call},
    codec,
    negotiate::{BodyType, Form, body_type, response_form},
    options::WriteOptions,
    patch::{apply, unfit},
    registry::Resource,
    represent::{IncludeObject, shape_scale},
    server::Inner,
    status::{ApiError, ApiResult, Named},
    write::{Failed, Ownership, Part},
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
        let kind = if call.verb == Verb::Patch { "PatchOptions" } else { "UpdateOptions" };
        let options = WriteOptions::parse(&call.query, kind)?;
        let form = response_form(&call.headers, false)?;
        let paths = paths(&call.resource)?;
        if call.verb == Verb::Patch && body_type(&call.headers) == BodyType::ApplyPatch {
            return self.apply_scale(call, &body, &options, &paths, form).await;
        }
        crate::write::no_force(&options)?;
        let patch = match call.verb {
            Verb::Patch => Some(self.parse_patch(call, &body)?.0),
            _ => None,
        };
        let mut turn = self.turns.first();
        loop {
            let record = self.record(call).await?;
            let mut live = self.decode(&call.resource, &record).await?;
            let mut scale = of(&call.resource, &live)?;
            match &patch {
                Some(patch) => {
                    apply(call, patch, &mut scale)?;
                    let shown = scale.clone();
                    check_scale(&mut scale).map_err(|error| unfit(&patch.shown(&shown), &error))?;
                }
                None => scale = decode_scale(call, &body)?,
            }
            let wanted = meta::resource_version(&scale);
            if !wanted.is_empty() && wanted != record.revision.to_string() {
                return Err(ApiError::modified(call.named()));
            }
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            check_replicas(call, &json!(replicas))?;
            set(&mut live, &paths.spec, replicas.into());
            match self.update_object(call, &record, live, &options, Ownership::Compute, Part::Other).await {
                Ok(stored) => return self.scale_answer(call, &stored.object, form),
                Err(Failed::Conflict) => turn.lost(&record.key).await,
                Err(Failed::Api(error)) => return Err(error),
            }
        }
    }
}

impl Inner {
    fn scale_answer(&self, call: &Call, object: &Value, form: Form) -> ApiResult<Answer> {
        let include = IncludeObject::parse(&call.query);
        let scale = shape_scale(of(&call.resource, object)?, form, include, self.now());
        Ok(Answer::value(200, scale, form))
    }

    /// Apply of a Scale is an apply of the replicas to the object behind it.
    async fn apply_scale(
        &self,
        call: &Call,
        body: &[u8],
        options: &WriteOptions,
        paths: &Paths,
        form: crate::negotiate::Form,
    ) -> ApiResult<Answer> {
        let Some(manager) = options.manager.as_deref() else {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            let named = Named { group: "meta.k8s.io", kind: "PatchOptions", name: "" };
            return Err(ApiError::invalid(named, &[error]));
        };
        let scale = codec::parse_yaml(body, &mut Vec::new())
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
        if scale["kind"] != "Scale" || scale["apiVersion"] != "autoscaling/v1" {
            return Err(ApiError::bad_request("invalid object type: expected autoscaling/v1, Kind=Scale"));
        }
        let resource = &call.resource;
        let mut applied = json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": call.name()},
        });
        if let Some(namespace) = call.namespace() {
            applied["metadata"]["namespace"] = namespace.into();
        }
        if let Some(replicas) = scale["spec"].get("replicas") {
            check_replicas(call, replicas)?;
            set(&mut applied, &paths.spec, replicas.clone());
        }
        let wanted = meta::resource_version(&scale).to_owned();
        let path: Vec<&str> = paths.spec.split('/').skip(1).collect();
        let only: [&[&str]; 1] = [&path];
        let mut turn = self.turns.first();
        loop {
            let record = self.record(call).await?;
            if !wanted.is_empty() && wanted != record.revision.to_string() {
                return Err(ApiError::modified(call.named()));
            }
            let live = self.decode(resource, &record).await?;
            let tracked = remuda_merge::apply::Tracked::Only(&only);
            let force = options.force.unwrap_or(false);
            let merged = self.apply_tracked(call, Some(&live), &applied, manager, force, tracked).await?;
            match self.update_object(call, &record, merged, options, Ownership::Done, Part::Other).await {
                Ok(stored) => return self.scale_answer(call, &stored.object, form),
                Err(Failed::Conflict) => turn.lost(&record.key).await,
                Err(Failed::Api(error)) => return Err(error),
            }
        }
    }
}

fn check_replicas(call: &Call, replicas: &Value) -> ApiResult<()> {
    if replicas.as_i64().is_some_and(|replicas| replicas >= 0) {
        return Ok(());
    }
    let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
    Err(ApiError::invalid(Named { group: "autoscaling", kind: "Scale", name: call.name() }, &[error]))
}

/// Takes over what a Scale says.
pub(crate) fn put(resource: &crate::registry::Resource, object: &mut Value, scale: &Value) -> ApiResult<()> {
    set(object, &paths(resource)?.spec, scale["spec"]["replicas"].clone());
    Ok(())
}

/// A number that cannot be read must not be taken for none: that would scale to zero.
fn check_scale(scale: &mut Value) -> Result<(), String> {
    match remuda_kinds::type_of("autoscaling", "v1", "Scale") {
        Some(table) => remuda_kinds::decode(table, scale, &mut Vec::new()).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

fn decode_scale(call: &Call, body: &[u8]) -> ApiResult<Value> {
    let unreadable = |cause: String| ApiError::bad_request(format!("couldn't decode Scale: {cause}"));
    let mut scale = codec::read_body(&call.headers, body, "Scale")?;
    if scale["kind"].as_str().is_some_and(|kind| kind != "Scale") {
        return Err(unreadable(format!("the body is a {}", scale["kind"])));
    }
    if scale["apiVersion"].as_str().is_some_and(|version| !version.is_empty() && version != "autoscaling/v1")
    {
        return Err(unreadable(format!("the body is of {}", scale["apiVersion"])));
    }
    check_scale(&mut scale).map_err(unreadable)?;
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
