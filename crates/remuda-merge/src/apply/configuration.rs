//! Server-side apply: merging a configuration and recording what it states.

use remuda_schema::Schema;
use serde_json::Value;

use super::{
    ApplyError, NULL, Write,
    conflict::{Contested, report},
    take_from_others, track, tracked_difference,
};
use crate::{
    fields::Set,
    managed::{self, BEFORE_FIRST_APPLY, Entry, Operation},
    meta,
    typed::{
        Typed,
        compare::{self, Difference},
        merge::merge,
        prune::prune,
        validate::validate,
    },
};

/// Where `kubectl apply` without `--server-side` keeps the last configuration.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager whose applies take over from client-side apply.
const KUBECTL: &str = "kubectl";
/// Most bytes of all annotations.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Merges `applied` into the stored object and returns the result with its managers.
///
/// The configuration is the object as the client sent it, without defaults. Where it changes
/// fields of other managers the apply fails, unless `force` takes them over.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: Option<&Schema>,
    write: &Write<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    if managed::of(applied).is_some_and(|list| !list.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let version = applied.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != write.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            write.api_version
        )));
    }
    let typed = Typed::Root(schema);
    validate(applied, typed).map_err(|error| {
        ApplyError::Typed(format!("failed to create typed patch object ({}): {error}", description(applied)))
    })?;

    let live = live.unwrap_or(&NULL);
    let mut merged = live.clone();
    let mut entries = managed::strip(&mut merged).map(managed::entries).unwrap_or_default();
    if entries.is_empty() {
        let before = Write { manager: BEFORE_FIRST_APPLY, ..*write };
        track(&NULL, &merged, schema, &before, &mut entries);
    }
    merge(&mut merged, applied, typed);

    let mut set = compare::stated(applied, typed);
    write.tracked.filter(&mut set);
    let identity = write.identity(Operation::Apply);
    let own = entries.iter().position(|entry| entry.identity() == identity);
    let unchanged = match own {
        Some(own) => {
            let last = entries[own].set();
            if !last.is_subset(&set) {
                let others = entries.iter().enumerate().filter(|(index, _)| *index != own);
                let managed = others.fold(set.clone(), |all, (_, entry)| all.union(&entry.set()));
                prune(&mut merged, &last, &managed, typed);
            }
            meta::strip(&mut set);
            last == set
        }
        None => {
            meta::strip(&mut set);
            set.is_empty()
        }
    };

    let difference = tracked_difference(live, &merged, typed, write.tracked);
    let contested = contested(live, &merged, schema, write, &difference, &entries, own);
    if !force && !contested.is_empty() {
        let contested = beyond_last_applied(contested, live, schema, write);
        if !contested.is_empty() {
            return Err(ApplyError::Conflicts(report(contested)));
        }
    } else {
        drop(contested);
    }
    take_from_others(live, &merged, schema, write, &difference, &mut entries, own);

    let same_object = managed::same_except_managed(live, &merged);
    record(&mut entries, own, &set, unchanged, same_object, write);
    if write.manager == KUBECTL {
        rewrite_last_applied(&mut merged, applied);
    }
    managed::store(&mut merged, entries);
    Ok(merged)
}

/// Writes the applier's entry.
fn record(
    entries: &mut Vec<Entry>,
    own: Option<usize>,
    set: &Set<'_>,
    unchanged: bool,
    same_object: bool,
    write: &Write<'_>,
) {
    match own {
        Some(own) => {
            let entry = &mut entries[own];
            let same_version = entry.api_version() == write.api_version;
            if !unchanged {
                entry.set_fields(set.to_json());
            }
            if !same_version {
                entry.set_api_version(write.api_version);
            }
            if !unchanged || !same_object || !same_version {
                entry.touch(write.now);
            }
        }
        None if set.is_empty() => {}
        None => entries.push(Entry::new(write.identity(Operation::Apply), super::owned_map(set), write.now)),
    }
}

/// What the merge would change of others' fields.
fn contested<'a>(
    live: &'a Value,
    merged: &'a Value,
    schema: Option<&'a Schema>,
    write: &Write<'_>,
    difference: &Difference<'a>,
    entries: &'a [Entry],
    own: Option<usize>,
) -> Vec<Contested<'a>> {
    let mut contested = Vec::new();
    if difference.changed.is_empty() && write.convert.is_none() {
        return contested;
    }
    for (index, entry) in entries.iter().enumerate() {
        if Some(index) == own {
            continue;
        }
        let fields = if write.is_foreign(entry) {
            foreign(live, merged, schema, write, entry)
        } else {
            entry.intersect(&difference.changed)
        };
        if !fields.is_empty() {
            contested.push(Contested { owner: entry.identity(), fields });
        }
    }
    contested
}

/// The contested fields of an entry made in another version, in that version's terms.
fn foreign<'a>(
    live: &Value,
    merged: &Value,
    schema: Option<&Schema>,
    write: &Write<'_>,
    entry: &'a Entry,
) -> Set<'a> {
    let version = entry.api_version();
    let objects =
        write.convert.and_then(|convert| Some((convert(version, live)?, convert(version, merged)?)));
    let Some((live, merged)) = objects else { return Set::new() };
    let difference = tracked_difference(&live, &merged, Typed::Root(schema), write.tracked);
    let hit = entry.intersect(&difference.changed);
    // The paths in the entry's own terms, because the converted objects end here.
    entry.set().common(&hit)
}

/// Conflicts that remain when `kubectl` takes over from client-side apply: fields that still have
/// the value of the last client-side configuration were its own.
fn beyond_last_applied<'a>(
    contested: Vec<Contested<'a>>,
    live: &Value,
    schema: Option<&Schema>,
    write: &Write<'_>,
) -> Vec<Contested<'a>> {
    let last =
        live.pointer("/metadata/annotations").and_then(|annotations| annotations.get(LAST_APPLIED)?.as_str());
    let last =
        last.filter(|_| write.manager == KUBECTL).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(last) = last else { return contested };
    let typed = Typed::Root(schema);
    if last.get("apiVersion").and_then(Value::as_str) != Some(write.api_version)
        || validate(&last, typed).is_err()
    {
        return contested;
    }
    let Difference { changed, removed } = compare::difference(&last, live, typed);
    let allowed = compare::stated(&last, typed).difference(&changed).difference(&removed);
    let remaining = contested.into_iter().map(|Contested { owner, fields }| {
        let fields = fields.without(&allowed);
        Contested { owner, fields }
    });
    remaining.filter(|contested| !contested.fields.is_empty()).collect()
}

/// Keeps the annotation of client-side apply in step with what `kubectl` applies, so that going
/// back to client-side apply computes the right difference.
fn rewrite_last_applied(merged: &mut Value, applied: &Value) {
    let annotations = merged.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    let present = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if !annotations.get(LAST_APPLIED).is_some_and(present) {
        return;
    }
    let mut configuration = applied.clone();
    if let Some(Value::Object(own)) = configuration.pointer_mut("/metadata/annotations") {
        own.remove(LAST_APPLIED);
    }
    let text = format!("{configuration}\n");
    let others = annotations.iter().filter(|(key, _)| *key != LAST_APPLIED);
    let size: usize = others.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size + LAST_APPLIED.len() + text.len() > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    } else {
        annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
    }
}

/// `namespace/name; group/version, Kind=kind`.
fn description(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!(
        "{}/{}; {slash}{version}, Kind={}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind")
    )
}
