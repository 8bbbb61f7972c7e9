//! Field ownership: how writes become `metadata.managedFields`.

use std::collections::BTreeMap;

use remuda_merge::apply::{self as ssa, ApplyError, Convert};
use remuda_objects::status::loose_exception;
use serde_json::{Value, json};

use crate::{
    call::Call,
    convert::Converter,
    options::WriteOptions,
    server::Inner,
    status::{ApiError, ApiResult},
    write::Part,
};

const STATUS: &[&[&str]] = &[&["status"]];
/// The status endpoint of a built-in kind takes metadata too.
const SPEC: &[&[&str]] = &[&["spec"]];
const SPEC_AND_LABELS: &[&[&str]] = &[&["spec"], &["metadata", "labels"]];
const SPEC_AND_OWNERS: &[&[&str]] = &[&["spec"], &["metadata", "ownerReferences"]];

/// An object before and after a write, in the versions its other managers wrote in. A version that is
/// no longer known has neither: its managers are forgotten.
type Versions = BTreeMap<String, Option<[Value; 2]>>;

impl Inner {
    fn write_context<'a>(
        &self,
        call: &'a Call,
        manager: &'a str,
        tracked: ssa::Tracked<'a>,
        convert: Option<&'a Convert<'a>>,
    ) -> ssa::Write<'a> {
        ssa::Write {
            manager,
            api_version: &call.resource.api_version,
            subresource: Some(call.subresource()).filter(|sub| !sub.is_empty()),
            now: self.now(),
            tracked,
            convert,
        }
    }

    /// Gives the request's manager what it changed.
    pub(crate) async fn own_fields(
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
        let schema = call.resource.schema.as_deref();
        let tracked = tracked(call, part);
        let Some(live) = live else {
            // The structs of a Go type are there before anybody fills them in, so nobody owns them.
            let resource = &call.resource;
            let ty = remuda_kinds::type_of(&resource.group, &resource.version, &resource.kind);
            let zero = ty.filter(|_| !resource.is_custom()).map(remuda_kinds::zero_object);
            ssa::update(zero.as_ref(), new, schema, &self.write_context(call, manager, tracked, None));
            return;
        };
        let mut managed = other_versions(call, live);
        managed.extend(other_versions(call, new));
        // Where conversion fails nobody's fields can be compared; all managers stay as they are.
        let versions = self.in_versions(call, managed, live, new).await.unwrap_or_default();
        let convert =
            |version: &str, object: &Value| converted(&versions, version, std::ptr::eq(object, live));
        let convert: Option<&Convert<'_>> = if versions.is_empty() { None } else { Some(&convert) };
        ssa::update(Some(live), new, schema, &self.write_context(call, manager, tracked, convert));
    }

    /// Renames the entry a controller of the server applied under a former name. Two managers would own the fields
    /// otherwise, and what the controller no longer applies would stay.
    pub(crate) fn succeed_manager(&self, call: &Call, live: &mut Value, manager: &str) {
        if !call.user.is_controller() {
            return;
        }
        let Some(former) = (self.config.former_manager)(manager) else { return };
        let Some(entries) = live["metadata"]["managedFields"].as_array_mut() else { return };
        let subresource = Some(call.subresource()).filter(|sub| !sub.is_empty());
        let is_applied_by = |entry: &Value, name: &str| {
            entry["manager"] == name
                && entry["operation"] == "Apply"
                && entry["subresource"].as_str() == subresource
        };
        if entries.iter().any(|entry| is_applied_by(entry, manager)) {
            return;
        }
        if let Some(entry) = entries.iter_mut().find(|entry| is_applied_by(entry, &former)) {
            entry["manager"] = manager.into();
        }
    }

    /// Merges an applied configuration into the live object.
    pub(crate) async fn apply_fields(
        &self,
        call: &Call,
        live: Option<&Value>,
        applied: &Value,
        manager: &str,
        force: bool,
        part: Part,
    ) -> ApiResult<Value> {
        self.apply_tracked(call, live, applied, manager, force, tracked(call, part)).await
    }

    /// As [`Self::apply_fields`], with the fields this endpoint may touch.
    pub(crate) async fn apply_tracked(
        &self,
        call: &Call,
        live: Option<&Value>,
        applied: &Value,
        manager: &str,
        force: bool,
        tracked: ssa::Tracked<'_>,
    ) -> ApiResult<Value> {
        let schema = call.resource.schema.as_deref();
        let managed = live.map(|live| other_versions(call, live)).unwrap_or_default();
        if let (Some(live), false) = (live, managed.is_empty()) {
            // What the merge makes of the object does not depend on who owns it: a first round shows
            // the result to the converter, the second compares what each manager has in its version.
            let merged = {
                let context = self.write_context(call, manager, tracked, None);
                ssa::apply(Some(live), applied, schema, &context, true).map_err(refused)?
            };
            let versions = self.in_versions(call, managed, live, &merged).await?;
            let convert =
                |version: &str, object: &Value| converted(&versions, version, std::ptr::eq(object, live));
            let context = self.write_context(call, manager, tracked, Some(&convert));
            return ssa::apply(Some(live), applied, schema, &context, force).map_err(refused);
        }
        let context = self.write_context(call, manager, tracked, None);
        ssa::apply(live, applied, schema, &context, force).map_err(refused)
    }

    async fn in_versions(
        &self,
        call: &Call,
        versions: Vec<String>,
        old: &Value,
        new: &Value,
    ) -> ApiResult<Versions> {
        let mut all = Versions::new();
        for version in versions {
            if all.contains_key(&version) {
                continue;
            }
            let pair = match known_version(call, &version) {
                true => Some(self.convert_pair(call, [old.clone(), new.clone()], &version).await?),
                false => None,
            };
            all.insert(version, pair);
        }
        Ok(all)
    }
}

fn tracked(call: &Call, part: Part) -> ssa::Tracked<'static> {
    match part {
        Part::Status if call.resource.is_custom() || call.resource.kind == "CustomResourceDefinition" => {
            ssa::Tracked::Only(STATUS)
        }
        Part::Status => ssa::Tracked::Except(match loose_exception(&call.resource.kind) {
            Some("labels") => SPEC_AND_LABELS,
            Some("ownerReferences") => SPEC_AND_OWNERS,
            _ => SPEC,
        }),
        Part::Main if call.resource.has_status() => ssa::Tracked::Except(STATUS),
        Part::Main | Part::Other => ssa::Tracked::All,
    }
}

fn known_version(call: &Call, api_version: &str) -> bool {
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    call.resource.custom().is_none_or(|custom| custom.crd.view.version(version).is_some())
}

/// The versions other than the request's in which managers of a custom object wrote, where they have to
/// be told apart: because fields differ between versions, or because a version is gone.
fn other_versions(call: &Call, object: &Value) -> Vec<String> {
    let Some(custom) = call.resource.custom() else { return Vec::new() };
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let versions = entries.filter_map(|entry| entry["apiVersion"].as_str());
    let versions: Vec<String> =
        versions.filter(|version| *version != call.resource.api_version).map(str::to_owned).collect();
    let alike = matches!(custom.crd.converter, Converter::None);
    if alike && versions.iter().all(|version| known_version(call, version)) {
        return Vec::new();
    }
    versions
}

fn converted(versions: &Versions, version: &str, old: bool) -> Option<Value> {
    let [before, after] = versions.get(version)?.as_ref()?;
    Some(if old { before.clone() } else { after.clone() })
}

fn refused(error: ApplyError) -> ApiError {
    match error {
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
        // 500 in the reference, which calls a client's mistake the server's.
        ApplyError::Typed(message) => ApiError::bad_request(message),
    }
}
