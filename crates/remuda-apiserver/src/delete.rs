//! DELETE and DELETECOLLECTION: finalizers, grace, propagation.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use remuda_objects::meta;
use remuda_store::{Record, Write};
use serde_json::{Value, json};

use crate::{
    admission::Review,
    call::{Answer, Call},
    codec,
    filter::Filter,
    negotiate::response_form,
    options::{DeleteOptions, ListOptions, Propagation},
    read::store_error,
    represent,
    server::Inner,
    status::{ApiError, ApiResult},
    write::metadata_mut,
};

/// The garbage collector's own finalizers.
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Deletions of one collection under way at once.
const AT_ONCE: usize = 16;

/// What became of a deleted object.
pub(crate) enum Deleted {
    Gone(Value),
    /// It stays until its finalizers are done.
    Pending(Value),
}

/// One step of a deletion, decided from the live object.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nothing holds it.
    Remove,
    /// Write this object; it waits for finalizers or grace.
    Mark(Value),
    /// Already as far as it can be.
    Wait,
}

impl Inner {
    pub(crate) async fn delete(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let options = decode_options(call, &body)?;
        let form = response_form(&call.headers, false)?;
        let include = represent::IncludeObject::parse(&call.query);
        match self.delete_object(call, &options).await? {
            Deleted::Pending(object) => {
                let value = represent::shape_object(&call.resource, object, form, include, self.now());
                Ok(Answer::value(200, value, form))
            }
            Deleted::Gone(object) if crate::kinds::returns_deleted(&call.resource) => {
                let value = represent::shape_object(&call.resource, object, form, include, self.now());
                Ok(Answer::value(200, value, form))
            }
            Deleted::Gone(object) => {
                let mut details = json!({"name": call.name(), "kind": call.resource.plural});
                if !call.resource.group.is_empty() {
                    details["group"] = call.resource.group.as_str().into();
                }
                details["uid"] = object["metadata"]["uid"].clone();
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                Ok(Answer::value(200, status, form))
            }
        }
    }

    /// Deletes what the call names.
    pub(crate) async fn delete_object(&self, call: &Call, options: &DeleteOptions) -> ApiResult<Deleted> {
        let mut turn = self.turns.first();
        loop {
            let record = self.record(call).await?;
            match self.delete_record(call, &record, options).await? {
                Some(deleted) => return Ok(deleted),
                None => turn.lost(&record.key).await,
            }
        }
    }

    /// `None`: the record changed meanwhile.
    async fn delete_record(
        &self,
        call: &Call,
        record: &Arc<Record>,
        options: &DeleteOptions,
    ) -> ApiResult<Option<Deleted>> {
        let resource = &*call.resource;
        let mut live = self.decode(resource, record).await?;
        check_preconditions(call, &live, options)?;
        crate::kinds::may_delete(call, &live)?;
        if !options.admitted {
            let review = Review::delete(call, &live, options);
            self.mutate(&review, &mut Value::Null).await?;
            self.validate_admission(&review, None).await?;
        }
        let step = decide(call, &mut live, options, self.now());
        if options.dry_run {
            return Ok(Some(match step {
                Step::Remove => Deleted::Gone(live),
                Step::Mark(object) => Deleted::Pending(object),
                Step::Wait => Deleted::Pending(live),
            }));
        }
        let key = record.key.to_string();
        let expected = record.revision;
        let (write, marked) = match step {
            Step::Wait => return Ok(Some(Deleted::Pending(live))),
            Step::Remove => (Write::Delete { key, expected, last: None }, None),
            Step::Mark(object) => {
                let stored = self.to_stored(resource, object.clone()).await?;
                (Write::Update { key, expected, value: codec::encode(&stored) }, Some(object))
            }
        };
        match self.store.write(write).await {
            Ok(written) => {
                self.after_write(resource, &written).await;
                Ok(Some(match marked {
                    Some(mut object) => {
                        metadata_mut(&mut object)
                            .insert("resourceVersion".to_owned(), written.revision.to_string().into());
                        Deleted::Pending(object)
                    }
                    None => Deleted::Gone(live),
                }))
            }
            Err(remuda_store::Error::Conflict { .. }) => Ok(None),
            Err(remuda_store::Error::Missing) => Err(ApiError::not_found(call.named())),
            Err(error) => Err(store_error(error)),
        }
    }

    pub(crate) async fn delete_collection(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let options = decode_options(call, &body)?;
        let list = ListOptions::parse(&call.query)?;
        let filter = Filter::new(&call.resource, &list)?;
        let form = response_form(&call.headers, true)?;
        let listed = self.list_records(call, &list, &filter).await?;
        let metadata = listed.metadata();
        let options = &options;
        let deleted: Vec<Option<Value>> = futures::stream::iter(listed.records)
            .map(|record| async move {
                let object = self.decode(&call.resource, &record).await?;
                let one = Call::internal(
                    call.registry.clone(),
                    call.resource.clone(),
                    call.verb,
                    Some(meta::namespace(&object)),
                    Some(meta::name(&object)),
                    call.user.clone(),
                );
                let result = self.delete_object(&one, options).await;
                one.warnings.into_inner().into_iter().for_each(|warning| call.warn(warning));
                match result {
                    Ok(Deleted::Gone(object) | Deleted::Pending(object)) => Ok(Some(object)),
                    // Gone or replaced meanwhile: not ours to delete any more.
                    Err(error) if error.code == 404 => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let objects = deleted.into_iter().flatten().collect();
        let include = represent::IncludeObject::parse(&call.query);
        let list = represent::shape_list(&call.resource, objects, metadata, form, include, self.now());
        Ok(Answer::value(200, list, form))
    }
}

fn decode_options(call: &Call, body: &[u8]) -> ApiResult<DeleteOptions> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return DeleteOptions::parse(&call.query, None);
    }
    let unreadable = |cause: String| ApiError::bad_request(format!("couldn't decode DeleteOptions: {cause}"));
    let mut value = codec::read_body(&call.headers, body, "DeleteOptions")?;
    if value["kind"].as_str().is_some_and(|kind| kind != "DeleteOptions") {
        return Err(unreadable(format!("the body is a {}", value["kind"])));
    }
    // Options that cannot be read must not be taken for absent: `dryRun: All` would delete.
    if let Some(table) = remuda_kinds::type_of("", "v1", "DeleteOptions") {
        remuda_kinds::decode(table, &mut value, &mut Vec::new())
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
    }
    DeleteOptions::parse(&call.query, Some(&value))
}

fn check_preconditions(call: &Call, live: &Value, options: &DeleteOptions) -> ApiResult<()> {
    if let Some(uid) = &options.uid
        && uid != meta::uid(live)
    {
        let detail = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            meta::uid(live)
        );
        return Err(ApiError::conflict(call.kind_named(call.name()), &detail));
    }
    if let Some(version) = &options.resource_version
        && version != meta::resource_version(live)
    {
        let detail = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            meta::resource_version(live)
        );
        return Err(ApiError::conflict(call.kind_named(call.name()), &detail));
    }
    Ok(())
}

fn decide(call: &Call, live: &mut Value, options: &DeleteOptions, now: jiff::Timestamp) -> Step {
    let resource = &*call.resource;
    let deleting = meta::is_deleting(live);
    let mut marked = live.clone();
    let changed = set_gc_finalizers(resource, &mut marked, options, deleting);
    crate::kinds::on_delete(resource, &mut marked, now);

    let grace = crate::kinds::grace_seconds(resource, live, options);
    let held =
        meta::finalizers(&marked).next().is_some() || !crate::namespaces::content_is_gone(resource, &marked);
    if !held && grace == 0 {
        return Step::Remove;
    }
    if deleting {
        let current = live["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        // A second delete may only shorten the grace.
        if grace < current {
            set_deletion(resource, &mut marked, now, grace, live);
            return Step::Mark(marked);
        }
        return if changed { Step::Mark(marked) } else { Step::Wait };
    }
    set_deletion(resource, &mut marked, now, grace, live);
    if resource.has_generation() {
        let generation = meta::generation(live) + 1;
        metadata_mut(&mut marked).insert("generation".to_owned(), generation.into());
    }
    Step::Mark(marked)
}

fn set_deletion(
    resource: &crate::registry::Resource,
    object: &mut Value,
    now: jiff::Timestamp,
    grace: i64,
    live: &Value,
) {
    // A shorter grace counts from when the first one began.
    let began = live["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        .map(|first| {
            let grace = live["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            first.saturating_sub(jiff::SignedDuration::from_secs(grace)).unwrap_or(first)
        });
    let began = began.unwrap_or(now);
    let at = began.saturating_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(began);
    let metadata = metadata_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), crate::server::time_text(at).into());
    if resource.kind != "Namespace" {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    }
}

/// Puts the finalizers of the asked propagation in place; says whether that changed anything.
fn set_gc_finalizers(
    resource: &crate::registry::Resource,
    object: &mut Value,
    options: &DeleteOptions,
    deleting: bool,
) -> bool {
    if resource.kind == "Event" {
        return false;
    }
    let orphans_by_default = resource.builtin().is_some_and(|builtin| builtin.default_gc_orphan);
    let wanted = match options.propagation {
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Background) => None,
        None => {
            let present = meta::finalizers(object).any(|name| name == ORPHAN || name == FOREGROUND);
            if present || deleting || !orphans_by_default {
                return false;
            }
            Some(ORPHAN)
        }
    };
    let before: Vec<String> = meta::finalizers(object).map(str::to_owned).collect();
    let mut after: Vec<String> =
        before.iter().filter(|name| *name != ORPHAN && *name != FOREGROUND).cloned().collect();
    after.extend(wanted.map(str::to_owned));
    if after == before {
        return false;
    }
    let metadata = metadata_mut(object);
    if after.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(after));
    }
    true
}
