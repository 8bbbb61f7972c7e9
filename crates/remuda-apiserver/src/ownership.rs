//! Field ownership: how writes become `metadata.managedFields`.

use remuda_merge::apply::{self as ssa, ApplyError};
use serde_json::{Value, json};

use crate::{
    call::Call,
    options::WriteOptions,
    server::Inner,
    status::{ApiError, ApiResult},
    write::Part,
};

const STATUS: &[&[&str]] = &[&["status"]];

impl Inner {
    fn write_context<'a>(&self, call: &'a Call, manager: &'a str, part: Part) -> ssa::Write<'a> {
        let tracked = match part {
            Part::Status => ssa::Tracked::Only(STATUS),
            Part::Main if call.resource.has_status() => ssa::Tracked::Except(STATUS),
            Part::Main | Part::Other => ssa::Tracked::All,
        };
        ssa::Write {
            manager,
            api_version: &call.resource.api_version,
            subresource: call.path.subresource.as_deref(),
            now: self.now(),
            tracked,
            convert: None,
        }
    }

    /// Gives the request's manager what it changed.
    pub(crate) fn own_fields(
        &self,
        call: &Call,
        live: Option<&Value>,
        new: &mut Value,
        options: &WriteOptions,
        part: Part,
    ) {
        let default;
        let manager = match &options.manager {
            Some(manager) => manager.as_str(),
            None => {
                default = call.default_manager();
                &default
            }
        };
        let context = self.write_context(call, manager, part);
        ssa::update(live, new, call.resource.schema.as_deref(), &context);
    }

    /// Merges an applied configuration into the live object.
    pub(crate) fn apply_fields(
        &self,
        call: &Call,
        live: Option<&Value>,
        applied: &Value,
        manager: &str,
        force: bool,
        part: Part,
    ) -> ApiResult<Value> {
        let context = self.write_context(call, manager, part);
        ssa::apply(live, applied, call.resource.schema.as_deref(), &context, force).map_err(|error| match error {
            ApplyError::Conflicts(conflicts) => {
                let causes: Vec<Value> = conflicts
                    .causes()
                    .into_iter()
                    .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
                    .collect();
                ApiError {
                    details: Some(json!({"causes": causes})),
                    ..ApiError::new(409, "Conflict", conflicts.message())
                }
            }
            ApplyError::BadRequest(message) => ApiError::bad_request(message),
            ApplyError::Typed(message) => {
                let name = format!("{}/{}", call.namespace().unwrap_or_default(), call.name());
                let (version, kind) = (&call.resource.api_version, &call.resource.kind);
                ApiError::bad_request(format!(
                    "failed to create typed patch object ({name}; {version}, Kind={kind}): {message}"
                ))
            }
        })
    }
}
