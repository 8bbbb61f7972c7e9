//! CREATE and UPDATE: from a request body to a stored object.
//!
//! The order is fixed: decode, default, mutate, own fields, prepare, validate, admit, store. Every
//! write, whatever its verb, ends in [`Inner::create_object`] or [`Inner::update_object`].

use std::sync::Arc;

use bytes::Bytes;
use rand::RngExt;
use remuda_auth::request_info::Verb;
use remuda_objects::meta;
use remuda_schema::FieldError;
use remuda_store::{Record, Write};
use serde_json::{Value, json};

use crate::{
    admission::{Operation, Review},
    call::{Answer, Call},
    codec,
    convert::{self, is_served_form},
    fields::Problem,
    negotiate::{BodyType, Encoding, Shape, body_type, response_form},
    options::WriteOptions,
    read::{create_error, store_error},
    registry::Resource,
    represent,
    server::Inner,
    status::{ApiError, ApiResult, Named},
};

/// An object after a write.
pub(crate) struct Stored {
    /// Absent for dry runs and unchanged objects in another version.
    pub(crate) record: Option<Arc<Record>>,
    /// In the request's version, with its resourceVersion.
    pub(crate) object: Value,
}

/// Who owns what a write changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Changed fields belong to the request's manager.
    Compute,
    /// `metadata.managedFields` is final (server-side apply).
    Done,
}

/// What an update may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// A subresource that has already put its change into the object.
    Other,
}

impl Inner {
    pub(crate) async fn create(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "CreateOptions")?;
        no_force(&options)?;
        let form = response_form(&call.headers, false)?;
        let (object, problems) = self.decode_body(call, &body)?;
        self.judge_body(call, options.validation, problems).await?;
        let stored = self.create_object(call, object, &options, Ownership::Compute).await?;
        Ok(self.answer(call, 201, stored, form))
    }

    pub(crate) fn answer(
        &self,
        call: &Call,
        code: u16,
        stored: Stored,
        form: crate::negotiate::Form,
    ) -> Answer {
        if let Some(record) = &stored.record
            && form.shape == Shape::Object
            && form.encoding == Encoding::Json
            && !call.pretty
            && is_served_form(&call.resource, record)
        {
            return Answer::bytes(code, record.value.clone());
        }
        let include = represent::IncludeObject::parse(&call.query);
        let value = represent::shape_object(&call.resource, stored.object, form, include, self.now());
        Answer::value(code, value, form)
    }

    /// Reads a body as an object of the call's kind and brings it into shape. What field validation has against it
    /// comes back too.
    pub(crate) fn decode_body(&self, call: &Call, body: &[u8]) -> ApiResult<(Value, Vec<Problem>)> {
        let mut duplicates = Vec::new();
        let kind = &call.resource.kind;
        let unreadable = |cause: &str| {
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {cause}"
            ))
        };
        let custom = call.resource.is_custom();
        let mut object = match body_type(&call.headers) {
            BodyType::Json => {
                codec::parse_json(body, &mut duplicates).map_err(|error| unreadable(&error.to_string()))?
            }
            BodyType::Yaml => codec::parse_yaml(body, &mut duplicates).map_err(|error| unreadable(&error))?,
            BodyType::Protobuf if !custom => {
                let expected = remuda_kinds::Expected {
                    group: &call.resource.group,
                    version: &call.resource.version,
                    kind,
                };
                remuda_kinds::decode_protobuf_as(body, Some(expected))
                    .map_err(|error| unreadable(&error.to_string()))?
            }
            _ if custom => {
                return Err(ApiError::unsupported_media_type("application/json, application/yaml"));
            }
            _ => {
                return Err(ApiError::unsupported_media_type(
                    "application/json, application/yaml, application/vnd.kubernetes.protobuf",
                ));
            }
        };
        check_type(&call.resource, &mut object)?;
        merge_owners(call, &mut object);
        let mut problems: Vec<Problem> = duplicates.into_iter().map(Problem::Duplicate).collect();
        self.shape_input(&call.resource, &mut object, &mut problems).map_err(|mut error| {
            if custom {
                let version = &call.resource.version;
                error.message =
                    format!("{kind} in version {version:?} cannot be handled as a {kind}: {}", error.message);
            }
            error
        })?;
        Ok((object, problems))
    }

    /// Drops what the kind does not know (reporting it) and fills in defaults.
    pub(crate) fn shape_input(
        &self,
        resource: &Resource,
        object: &mut Value,
        problems: &mut Vec<Problem>,
    ) -> ApiResult<()> {
        let mut unknown = Vec::new();
        if let (Some(schema), true) = (&resource.schema, resource.is_custom()) {
            unknown = schema.coerce(object).map_err(|error| ApiError::bad_request(error.to_string()))?;
            let metadata = unknown.len();
            schema.prune(object, Some(&mut unknown));
            unknown[metadata..].sort();
            schema.apply_defaults(object);
        } else if let Some(table) = remuda_kinds::type_of(&resource.group, &resource.version, &resource.kind)
        {
            // An empty list of managers means something, unlike other empty lists: forget them all.
            let forget = object["metadata"]["managedFields"].as_array().is_some_and(Vec::is_empty);
            remuda_kinds::decode(table, object, &mut unknown).map_err(|error| {
                ApiError::bad_request(format!(
                    "{} in version {:?} cannot be handled as a {}: {error}",
                    resource.kind, resource.version, resource.kind
                ))
            })?;
            if forget {
                metadata_mut(object).insert("managedFields".to_owned(), json!([]));
            }
            remuda_objects::defaults::apply(&resource.group, &resource.kind, object);
        }
        problems.extend(unknown.into_iter().map(Problem::Unknown));
        Ok(())
    }

    /// Defaults again, after admission may have changed the object.
    fn reshape(&self, resource: &Resource, object: &mut Value) -> ApiResult<()> {
        self.shape_input(resource, object, &mut Vec::new())
    }

    pub(crate) async fn create_object(
        &self,
        call: &Call,
        mut object: Value,
        options: &WriteOptions,
        ownership: Ownership,
    ) -> ApiResult<Stored> {
        let resource = &*call.resource;
        if resource.custom().is_some_and(|custom| custom.crd.terminating) {
            let detail = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(call.named_as(meta::name(&object)), detail));
        }
        let _names = self.crds.writing(resource).await;
        place(call, &mut object)?;
        if !meta::resource_version(&object).is_empty() {
            if ownership == Ownership::Compute {
                return Err(ApiError::bad_request(
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            remove_meta(&mut object, &["resourceVersion"]);
        }
        let name = meta::name(&object).to_owned();
        if let Some(namespace) = call.namespace().filter(|_| resource.namespaced) {
            self.check_namespace(call, namespace, &name).await?;
        }
        self.warn_of_standstill(call);
        crate::kinds::default_create(resource, &mut object);
        remove_meta(&mut object, &["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]);
        // What the server and admission add from here on is nobody's.
        if ownership == Ownership::Compute {
            self.own_fields(call, None, &mut object, options, Part::Main).await;
        }
        self.prepare_create(call, &mut object).await?;
        if self.mutate(&Review::new(call, Operation::Create, None, options.dry_run), &mut object).await? {
            self.reshape(resource, &mut object)?;
            place(call, &mut object)?;
        }
        remove_meta(
            &mut object,
            &["uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"],
        );
        let generated = meta::name(&object).is_empty() && !meta::text(&object, "generateName").is_empty();
        let metadata = metadata_mut(&mut object);
        metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".to_owned(), self.now_text().into());
        if resource.has_generation() {
            metadata.insert("generation".to_owned(), 1.into());
        }
        let nameless = generated.then(|| object.clone());
        let mut charge = None;
        for attempt in 0.. {
            if let Some(nameless) = &nameless {
                if attempt > 0 {
                    object = nameless.clone();
                }
                let prefix = meta::text(&object, "generateName").to_owned();
                let name = remuda_objects::names::generate(&prefix, rand::rng().random());
                metadata_mut(&mut object).insert("name".to_owned(), name.into());
            }
            // Some kinds carry their name in labels too, so each new name is a new beginning.
            if !resource.is_custom() && (attempt == 0 || generated) {
                remuda_objects::status::prepare_create(&resource.group, &resource.kind, &mut object);
                self.finish_create(call, &mut object);
            }
            if attempt == 0 {
                self.validate_create(call, &object).await?;
                let review = Review::new(call, Operation::Create, None, options.dry_run);
                self.validate_admission(&review, Some(&object)).await?;
                self.check_limits(call, &object, None).await?;
                charge = self.charge(call, None, &object, options.dry_run).await?;
            }
            let name = meta::name(&object).to_owned();
            let key = resource.key(call.namespace(), &name);
            if options.dry_run {
                if self.store.get(&key).await.map_err(store_error)?.value.is_some() {
                    return Err(ApiError::already_exists(call.named_as(&name)));
                }
                return Ok(Stored { record: None, object });
            }
            let direct = resource.api_version == resource.storage_api_version;
            let template = if direct {
                codec::encode(&object)
            } else {
                match self.to_stored(resource, object.clone()).await {
                    Ok(stored) => codec::encode(&stored),
                    Err(error) => {
                        self.uncharge(charge).await;
                        return Err(error);
                    }
                }
            };
            match self.store.write(Write::Create { key, value: template }).await {
                Ok(record) => {
                    metadata_mut(&mut object)
                        .insert("resourceVersion".to_owned(), record.revision.to_string().into());
                    self.after_write(resource, &record).await;
                    return Ok(Stored { record: Some(record), object });
                }
                Err(remuda_store::Error::Exists { .. }) if generated && attempt < 8 => {}
                Err(error) => {
                    self.uncharge(charge).await;
                    let mut error = create_error(error, call.named_as(&name));
                    if generated && error.reason == "AlreadyExists" {
                        error.message = format!(
                            "{}, the server was not able to generate a unique name for the object",
                            error.message
                        );
                        error.retry_after = Some(1);
                    }
                    return Err(error);
                }
            }
        }
        unreachable!("the loop returns")
    }

    pub(crate) async fn update(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        no_force(&options)?;
        let form = response_form(&call.headers, false)?;
        let part = if call.subresource() == "status" { Part::Status } else { Part::Main };
        let (object, problems) = self.decode_body(call, &body)?;
        self.judge_body(call, options.validation, problems).await?;
        let (code, stored) = self.put_object(call, object, &options, part).await?;
        Ok(self.answer(call, code, stored, form))
    }

    /// PUT of a decoded object.
    pub(crate) async fn put_object(
        &self,
        call: &Call,
        mut object: Value,
        options: &WriteOptions,
        part: Part,
    ) -> ApiResult<(u16, Stored)> {
        require_name(call, &object)?;
        place(call, &mut object)?;
        let wanted = meta::resource_version(&object).to_owned();
        let wanted = crate::options::parse_version(&wanted)?.filter(|version| *version > 0);
        let mut turn = self.turns.first();
        loop {
            let found = self.store.get(&call.key()).await.map_err(store_error)?.value;
            let Some(live) = found else {
                if part != Part::Main || !call.resource.put_creates() {
                    return Err(ApiError::not_found(call.named()));
                }
                self.authorize_create(call)?;
                let uid = meta::uid(&object);
                if !uid.is_empty() {
                    let detail =
                        format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
                    return Err(ApiError::conflict(call.named(), &detail));
                }
                remove_meta(&mut object, &["resourceVersion"]);
                let created = self.create_object(call, object, options, Ownership::Compute).await?;
                return Ok((201, created));
            };
            if wanted.is_none() && !call.resource.unconditional_update() {
                let field = "metadata.resourceVersion";
                let error = FieldError::invalid(field, &json!(0), "must be specified for an update");
                return Err(ApiError::invalid(call.named(), &[error]));
            }
            if wanted.is_some_and(|wanted| wanted != live.revision) {
                return Err(ApiError::modified(call.named()));
            }
            let new = if wanted.is_some() { std::mem::take(&mut object) } else { object.clone() };
            match self.update_object(call, &live, new, options, Ownership::Compute, part).await {
                Ok(stored) => return Ok((200, stored)),
                Err(Failed::Conflict) if wanted.is_some() => return Err(ApiError::modified(call.named())),
                Err(Failed::Conflict) => turn.lost(&live.key).await,
                Err(Failed::Api(error)) => return Err(error),
            }
        }
    }

    /// Replaces the live object by `new` (both in the request's version), as far as `part` allows.
    pub(crate) async fn update_object(
        &self,
        call: &Call,
        live_record: &Arc<Record>,
        mut new: Value,
        options: &WriteOptions,
        ownership: Ownership,
        part: Part,
    ) -> Result<Stored, Failed> {
        let resource = &*call.resource;
        let _names = self.crds.writing(resource).await;
        let live = self.decode(resource, live_record).await?;
        let uid = meta::uid(&new);
        if !uid.is_empty() && uid != meta::uid(&live) {
            // A patch says to change it; a whole object with another one is another object.
            if call.verb == Verb::Patch {
                let error = FieldError::invalid("metadata.uid", &json!(uid), "field is immutable");
                return Err(ApiError::invalid(call.kind_named(call.name()), &[error]).into());
            }
            let detail = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(&live)
            );
            return Err(ApiError::conflict(call.named(), &detail).into());
        }
        self.prepare_update(call, &mut new, &live, part).await?;
        // What admission changes from here on is nobody's.
        if ownership == Ownership::Compute {
            unchanged(call, meta::restore_server_fields(&mut new, &live))?;
            self.own_fields(call, Some(&live), &mut new, options, part).await;
        }
        if part == Part::Main && call.subresource().is_empty() {
            self.finish_update(call, &mut new, &live)?;
        }
        let review = Review::new(call, Operation::Update, Some(&live), options.dry_run);
        if !options.admitted && self.mutate(&review, &mut new).await? {
            self.reshape(resource, &mut new)?;
            self.prepare_update(call, &mut new, &live, part).await?;
        }
        unchanged(call, meta::restore_server_fields(&mut new, &live))?;
        if resource.has_generation() {
            let generation = meta::generation(&live) + i64::from(self.spec_changed(resource, &new, &live));
            metadata_mut(&mut new).insert("generation".to_owned(), generation.into());
        }
        self.validate_update(call, &new, &live, part).await?;
        if !options.admitted {
            self.validate_admission(&review, Some(&new)).await?;
        }
        self.check_limits(call, &new, Some(&live)).await?;

        let stored_form = resource.api_version == resource.storage_api_version;
        // Only what is stored can be compared: conversion and admission write the same thing in other words.
        let template = if stored_form {
            keep_manager_times(&live, &mut new);
            codec::encode(&new)
        } else {
            let mut stored = self.to_stored(resource, new.clone()).await?;
            if keep_manager_times(&convert::parse(live_record)?, &mut stored) {
                restore_managers(&live, &mut new);
            }
            codec::encode(&stored)
        };
        let version = |object: &mut Value, revision: u64| {
            metadata_mut(object).insert("resourceVersion".to_owned(), revision.to_string().into());
        };
        let finished = meta::is_deleting(&new)
            && meta::finalizers(&new).next().is_none()
            && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
            && crate::namespaces::content_is_gone(resource, &new);
        if same_bytes(&template, live_record) && !finished {
            version(&mut new, live_record.revision);
            let record = stored_form.then(|| live_record.clone());
            return Ok(Stored { record, object: new });
        }
        if options.dry_run {
            self.charge(call, Some(&live), &new, true).await?;
            version(&mut new, live_record.revision);
            return Ok(Stored { record: None, object: new });
        }
        let charge = self.charge(call, Some(&live), &new, false).await?;
        let key = live_record.key.to_string();
        let expected = live_record.revision;
        let write = if finished {
            Write::Delete { key, expected, last: Some(template) }
        } else {
            Write::Update { key, expected, value: template }
        };
        match self.store.write(write).await {
            Ok(record) => {
                self.after_write(resource, &record).await;
                if finished {
                    // The answer shows the last state under its old version; only watchers see the delete's.
                    version(&mut new, expected);
                    return Ok(Stored { record: None, object: new });
                }
                version(&mut new, record.revision);
                Ok(Stored { record: Some(record), object: new })
            }
            Err(error) => {
                self.uncharge(charge).await;
                Err(match error {
                    remuda_store::Error::Conflict { .. } => Failed::Conflict,
                    remuda_store::Error::Missing => ApiError::not_found(call.named()).into(),
                    error => store_error(error).into(),
                })
            }
        }
    }

    fn spec_changed(&self, resource: &Resource, new: &Value, live: &Value) -> bool {
        if resource.is_custom() && !resource.has_status() {
            remuda_objects::status::content_changed(new, live)
        } else {
            remuda_objects::status::spec_changed(new, live)
        }
    }
}

/// Refuses a write that tries to change what is the server's.
fn unchanged(call: &Call, errors: Vec<FieldError>) -> ApiResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(call.kind_named(call.name()), &errors))
}

/// Undoes a write that changes nothing but the times of field managers; says whether it was one.
fn keep_manager_times(live: &Value, new: &mut Value) -> bool {
    // The version of what is written is the store's to give.
    let version = live["metadata"]["resourceVersion"].clone();
    metadata_mut(new).insert("resourceVersion".to_owned(), version);
    let noop = remuda_merge::managed::is_noop(live, new);
    if noop {
        restore_managers(live, new);
    }
    noop
}

fn restore_managers(live: &Value, new: &mut Value) {
    let managers = live["metadata"]["managedFields"].clone();
    if !managers.is_null() {
        metadata_mut(new).insert("managedFields".to_owned(), managers);
    }
}

/// Why an update did not happen.
pub(crate) enum Failed {
    /// Another writer was faster; read again.
    Conflict,
    Api(ApiError),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// Whether the template is the stored value but for the revision.
fn same_bytes(template: &remuda_store::Template, record: &Record) -> bool {
    let (Some(slot), Some(stored)) = (template.slot, &record.slot) else {
        return template.bytes == record.value;
    };
    let slot = slot as usize;
    stored.start as usize == slot
        && template.bytes.len() + stored.len() == record.value.len()
        && template.bytes[..slot] == record.value[..slot]
        && template.bytes[slot..] == record.value[stored.end as usize..]
}

/// Checks or fills `apiVersion` and `kind`.
pub(crate) fn check_type(resource: &Resource, object: &mut Value) -> ApiResult<()> {
    let kind = &resource.kind;
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): the body is not an object"
        )));
    };
    for (field, expected) in [("apiVersion", &resource.api_version), ("kind", kind)] {
        let given = map.get(field).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            if resource.is_custom() {
                let name = if field == "kind" { "Kind" } else { "apiVersion" };
                let shown: String =
                    serde_json::to_string(map).unwrap_or_default().chars().take(200).collect();
                return Err(ApiError::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): Object '{name}' is missing in '{shown}'"
                )));
            }
            map.insert(field.to_owned(), expected.as_str().into());
        } else if given != expected {
            let version = map.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
            let given_kind = map.get("kind").and_then(Value::as_str).unwrap_or(kind).to_owned();
            return Err(ApiError::bad_request(format!(
                "{given_kind} in version {:?} cannot be handled as a {kind}: the API version or kind in the data ({version}, Kind={given_kind}) does not match the expected {}, Kind={kind}",
                version.rsplit('/').next().unwrap_or_default(),
                resource.api_version
            )));
        }
    }
    match map.get("metadata") {
        None | Some(Value::Null) => {
            map.insert("metadata".to_owned(), json!({}));
            Ok(())
        }
        Some(Value::Object(_)) => Ok(()),
        Some(_) => Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): metadata is not an object"
        ))),
    }
}

/// Makes the object's namespace and name agree with the URL.
pub(crate) fn place(call: &Call, object: &mut Value) -> ApiResult<()> {
    let metadata = metadata_mut(object);
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    match call.namespace().filter(|_| call.resource.namespaced) {
        Some(expected) if namespace.is_empty() => {
            metadata.insert("namespace".to_owned(), expected.into());
        }
        Some(expected) if expected == namespace => {}
        // Many manifests give cluster-wide objects the namespace of what they belong to.
        None => {
            metadata.remove("namespace");
        }
        _ => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    let expected = call.name();
    if !expected.is_empty() {
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            metadata.insert("name".to_owned(), expected.into());
        } else if name != expected {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({expected})"
            )));
        }
    }
    Ok(())
}

/// An owner named twice in the same words is one owner.
pub(crate) fn merge_owners(call: &Call, object: &mut Value) {
    let owners = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(owners) = owners.and_then(Value::as_array_mut) else { return };
    let mut repeated = std::collections::BTreeSet::new();
    let mut seen = std::collections::HashSet::new();
    owners.retain(|owner| {
        let first = seen.insert(owner.to_string());
        if !first {
            repeated.insert(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        first
    });
    if !repeated.is_empty() {
        let uids: Vec<String> = repeated.into_iter().collect();
        call.warn(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            uids.join(", ")
        ));
    }
}

/// An object that is put somewhere says itself what it is; the URL alone could be a slip.
pub(crate) fn require_name(call: &Call, object: &Value) -> ApiResult<()> {
    if !meta::name(object).is_empty() {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        call.name()
    )))
}

pub(crate) fn metadata_mut(object: &mut Value) -> &mut serde_json::Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("made an object just now")
}

pub(crate) fn remove_meta(object: &mut Value, keys: &[&str]) {
    let metadata = metadata_mut(object);
    for key in keys {
        metadata.remove(*key);
    }
}

pub(crate) fn no_force(options: &WriteOptions) -> ApiResult<()> {
    if options.force.is_some() {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        let named = Named { group: "meta.k8s.io", kind: "PatchOptions", name: "" };
        return Err(ApiError::invalid(named, &[error]));
    }
    Ok(())
}
