//! PATCH in its four forms.

use bytes::Bytes;
use remuda_merge::{json_patch, merge_patch, strategic};
use remuda_objects::meta;
use remuda_schema::FieldError;
use remuda_store::Record;
use serde_json::Value;

use crate::{
    call::{Answer, Call},
    codec,
    convert::is_served_form,
    fields::Problem,
    negotiate::{BodyType, body_type, response_form},
    options::{FieldValidation, WriteOptions},
    read::store_error,
    server::Inner,
    status::{ApiError, ApiResult, Named},
    write::{Failed, Ownership, Part, Stored, check_type, merge_owners, no_force, place, require_name},
};

/// A parsed patch.
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
}

impl Inner {
    pub(crate) async fn patch(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "PatchOptions")?;
        let form = response_form(&call.headers, false)?;
        let part = if call.subresource() == "status" { Part::Status } else { Part::Main };
        if body_type(&call.headers) == BodyType::ApplyPatch {
            let (code, stored) = self.apply_patch(call, &body, &options, part).await?;
            return Ok(self.answer(call, code, stored, form));
        }
        no_force(&options)?;
        let (patch, problems) = self.parse_patch(call, &body)?;
        let stored = self.patch_object(call, &patch, problems, &options, part).await?;
        Ok(self.answer(call, 200, stored, form))
    }

    /// Reads the body of a patch that is not an apply. What field validation has against it comes back too.
    pub(crate) fn parse_patch(&self, call: &Call, body: &[u8]) -> ApiResult<(Patch, Vec<Problem>)> {
        let mut duplicates = Vec::new();
        let kind = body_type(&call.headers);
        let accepted = if call.resource.is_custom() {
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        } else {
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
        };
        if !matches!(kind, BodyType::JsonPatch | BodyType::MergePatch)
            && (kind != BodyType::StrategicPatch || call.resource.is_custom())
        {
            return Err(ApiError::unsupported_media_type(accepted));
        }
        let value = codec::parse_json(body, &mut duplicates)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
        let patch = match kind {
            BodyType::JsonPatch if !value.is_array() => {
                return Err(ApiError::bad_request(
                    "error decoding patch: a JSON patch is an array of operations",
                ));
            }
            BodyType::JsonPatch => {
                let known = |key: &str| matches!(key, "op" | "path" | "from" | "value");
                let operations = value.as_array().into_iter().flatten().enumerate();
                let mut found: Vec<Problem> = duplicates.into_iter().map(Problem::PatchDuplicate).collect();
                for (index, operation) in operations {
                    let keys = operation.as_object().into_iter().flatten().map(|(key, _)| key);
                    let unknown = keys.filter(|key| !known(key)).map(|key| format!("[{index}].{key}"));
                    found.extend(unknown.map(Problem::PatchUnknown));
                }
                return Ok((Patch::Json(value), found));
            }
            _ if !value.is_object() => {
                return Err(ApiError::bad_request("error decoding patch: the patch is not an object"));
            }
            BodyType::MergePatch => Patch::Merge(value),
            _ => Patch::Strategic(value),
        };
        let found = duplicates.into_iter().map(Problem::Duplicate).collect();
        Ok((patch, found))
    }

    pub(crate) async fn patch_object(
        &self,
        call: &Call,
        patch: &Patch,
        found: Vec<Problem>,
        options: &WriteOptions,
        part: Part,
    ) -> ApiResult<Stored> {
        let mut turn = self.turns.first();
        for attempt in 1.. {
            let record = self.record(call).await?;
            let mut new = self.patched(call, patch, &record).await?;
            // A version in the patch is a precondition; the live one, untouched, is always current.
            let wanted = meta::resource_version(&new).to_owned();
            if !wanted.is_empty() && wanted != record.revision.to_string() {
                return Err(ApiError::modified(call.named()));
            }
            let mut problems = found.clone();
            let shaped = self.shape_input(&call.resource, &mut new, &mut problems);
            let refused = match shaped {
                Err(error) => Some(error.message),
                Ok(()) => self.judge_fields(call, options.validation, problems, attempt == 1).await?,
            };
            if let Some(refused) = refused {
                let patched = self.patched(call, patch, &record).await?;
                return Err(unfit(&patch.shown(&patched), &refused));
            }
            place(call, &mut new)?;
            match self.update_object(call, &record, new, options, Ownership::Compute, part).await {
                Ok(stored) => return Ok(stored),
                Err(Failed::Conflict) => turn.lost(&record.key).await,
                Err(Failed::Api(error)) => return Err(error),
            }
        }
        unreachable!("the loop returns")
    }

    /// What a patch makes of a stored object, before it is brought into shape.
    async fn patched(&self, call: &Call, patch: &Patch, record: &Record) -> ApiResult<Value> {
        let mut new = self.decode(&call.resource, record).await?;
        apply(call, patch, &mut new)?;
        require_name(call, &new)?;
        if let (Patch::Strategic(_), Some(object)) = (patch, new.as_object_mut()) {
            // Such a patch is merged into the typed object: what it says of the type is not looked at.
            object.insert("apiVersion".to_owned(), call.resource.api_version.as_str().into());
            object.insert("kind".to_owned(), call.resource.kind.as_str().into());
        }
        check_type(&call.resource, &mut new).map_err(|error| unfit(&patch.shown(&new), &error.message))?;
        merge_owners(call, &mut new);
        Ok(new)
    }

    /// An applied configuration is typed, so only a key given twice can go unnoticed.
    fn report_duplicates(
        &self,
        call: &Call,
        asked: Option<FieldValidation>,
        duplicates: &[String],
        attempt: usize,
    ) -> ApiResult<()> {
        let problems: Vec<String> =
            duplicates.iter().map(|path| Problem::Duplicate(path.clone()).to_string()).collect();
        match self.validation_of(call, asked).0 {
            FieldValidation::Strict if !problems.is_empty() => {
                Err(ApiError::bad_request(format!("error strict decoding patch: {}", problems.join(", "))))
            }
            FieldValidation::Warn if attempt == 1 => {
                problems.into_iter().for_each(|problem| call.warn(problem));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Server-side apply.
    pub(crate) async fn apply_patch(
        &self,
        call: &Call,
        body: &[u8],
        options: &WriteOptions,
        part: Part,
    ) -> ApiResult<(u16, Stored)> {
        let Some(manager) = options.manager.as_deref() else {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            let named = Named { group: "meta.k8s.io", kind: "PatchOptions", name: "" };
            return Err(ApiError::invalid(named, &[error]));
        };
        let mut duplicates = Vec::new();
        let mut applied = codec::parse_yaml(body, &mut duplicates)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
        let kind = applied["kind"].as_str().unwrap_or_default();
        let version = applied["apiVersion"].as_str().unwrap_or_default();
        if kind.is_empty() || version.is_empty() {
            return Err(ApiError::bad_request(format!(
                "invalid object type: {}",
                if kind.is_empty() { "kind is required" } else { "apiVersion is required" }
            )));
        }
        check_type(&call.resource, &mut applied)?;
        let named = require_name(call, &applied);
        place(call, &mut applied)?;
        if !applied["metadata"]["managedFields"].is_null() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let wanted = meta::resource_version(&applied).to_owned();
        crate::write::remove_meta(&mut applied, &["managedFields", "creationTimestamp", "resourceVersion"]);
        let force = options.force.unwrap_or(false);
        let mut turn = self.turns.first();
        for attempt in 1.. {
            let found = self.store.get(&call.key()).await.map_err(store_error)?.value;
            let Some(record) = found else {
                if part != Part::Main {
                    return Err(ApiError::not_found(call.named()));
                }
                named?;
                let uid = meta::uid(&applied);
                if !uid.is_empty() {
                    let detail = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(ApiError::conflict(call.named(), &detail));
                }
                self.authorize_create(call)?;
                let mut merged = self.apply_fields(call, None, &applied, manager, force, part).await?;
                self.report_duplicates(call, options.validation, &duplicates, attempt)?;
                let managed = merged["metadata"].get("managedFields").cloned();
                self.shape_input(&call.resource, &mut merged, &mut Vec::new())?;
                if let Some(managed) = managed {
                    merged["metadata"]["managedFields"] = managed;
                }
                let stored = self.create_object(call, merged, options, Ownership::Done).await?;
                return Ok((201, stored));
            };
            if !wanted.is_empty() && wanted != record.revision.to_string() {
                return Err(ApiError::modified(call.named()));
            }
            let mut live = self.decode(&call.resource, &record).await?;
            if let Some(schema) = &call.resource.schema
                && !is_served_form(&call.resource, &record)
            {
                // A list that has become atomic since is owned as a whole.
                remuda_merge::managed::reconcile(&mut live, schema);
            }
            self.succeed_manager(call, &mut live, manager);
            let mut merged = self.apply_fields(call, Some(&live), &applied, manager, force, part).await?;
            self.report_duplicates(call, options.validation, &duplicates, attempt)?;
            self.shape_input(&call.resource, &mut merged, &mut Vec::new())?;
            match self.update_object(call, &record, merged, options, Ownership::Done, part).await {
                Ok(stored) => return Ok((200, stored)),
                Err(Failed::Conflict) => turn.lost(&record.key).await,
                Err(Failed::Api(error)) => return Err(error),
            }
        }
        unreachable!("the loop returns")
    }
}

impl Patch {
    /// What an error shows of a patch: the patched object, or the patch as Go prints a map.
    pub(crate) fn shown(&self, patched: &Value) -> String {
        match self {
            Self::Json(_) | Self::Merge(_) => patched.to_string(),
            Self::Strategic(patch) => {
                let mut text = String::new();
                go_text(&mut text, patch);
                text
            }
        }
    }
}

/// Writes a value as Go's `%v` does.
fn go_text(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                go_text(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                go_text(out, item);
            }
            out.push(']');
        }
    }
}

/// A patch that leads to no valid object. The reference names neither kind nor object here.
pub(crate) fn unfit(shown: &str, detail: &str) -> ApiError {
    let error = FieldError::invalid("patch", &shown.into(), detail);
    ApiError::invalid(Named { group: "", kind: "", name: "" }, &[error])
}

/// Applies a patch to an object of the request's version.
pub(crate) fn apply(call: &Call, patch: &Patch, object: &mut Value) -> ApiResult<()> {
    match patch {
        Patch::Json(patch) => json_patch::apply(object, patch).map_err(|error| match error.status() {
            400 => ApiError::bad_request(error.to_string()),
            413 => ApiError::new(413, "RequestEntityTooLarge", error.to_string()),
            _ => ApiError::unprocessable(),
        }),
        Patch::Merge(patch) => {
            merge_patch::apply(object, patch);
            Ok(())
        }
        Patch::Strategic(patch) => {
            let Some(schema) = &call.resource.schema else { return Err(ApiError::unprocessable()) };
            strategic::apply(object, patch, schema).map_err(|error| match error.status() {
                422 => ApiError { message: error.to_string(), ..ApiError::unprocessable() },
                _ => ApiError::bad_request(error.to_string()),
            })
        }
    }
}
