//! CustomResourceDefinitions: from an object to a served resource.
//!
//! A CRD's names are judged when it is written, under one lock, so that its answer already says
//! whether it is established; by then it is served.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use remuda_objects::meta;
use remuda_schema::{Conversion, CrdView, approval_condition, default_crd, record_storage_version};
use remuda_store::{Change, Record, Revision};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::{
    convert::{ConversionWebhook, Converter},
    follow::News,
    registry::{CrdState, Registry, Resource, Served},
    server::{Inner, StartError, time_text},
};

pub(crate) const PREFIX: &str = "/apiextensions.k8s.io/customresourcedefinitions/";
/// Holds a CRD until its instances are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Everything known of CRDs, and the pictures made from it.
#[derive(Default)]
pub(crate) struct CrdKeeper {
    states: Mutex<States>,
    /// Held from judging a CRD's names until they are known to everybody, so that of two CRDs that
    /// want the same name at the same time one sees the other.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct States {
    served: BTreeMap<String, Served>,
    /// The accepted names of every CRD, established or not.
    names: BTreeMap<String, AcceptedNames>,
    /// CRDs whose names are not all accepted.
    waiting: BTreeSet<String>,
    generation: u64,
}

/// What a CRD holds of its group's names.
struct AcceptedNames {
    group: String,
    /// Plural, singular and short names.
    resources: Vec<String>,
    /// Kind and list kind.
    kinds: Vec<String>,
}

pub(crate) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner.follow(PREFIX, move |news| server.crds.tell(&server, news)).await
}

impl CrdKeeper {
    fn tell(&self, server: &Inner, news: News<'_>) {
        let mut states = self.states.lock();
        let changed = match news {
            News::Reset(records) => {
                let before = std::mem::take(&mut states.served);
                states.names.clear();
                states.waiting.clear();
                for record in records {
                    states.put(server, record, before.get(key_name(record)));
                }
                for (name, known) in before {
                    if !states.served.contains_key(&name) {
                        known.state.gone.cancel();
                    }
                }
                true
            }
            News::Changed(event) if event.change == Change::Deleted => {
                let name = key_name(&event.record);
                states.names.remove(name);
                states.waiting.remove(name);
                let removed = states.served.remove(name);
                if let Some(known) = &removed {
                    known.state.gone.cancel();
                    info!(crd = %known.state.name, "custom resource removed");
                }
                removed.is_some()
            }
            News::Changed(event) => {
                let before = states.served.get(key_name(&event.record)).cloned();
                states.put(server, &event.record, before.as_ref())
            }
        };
        if changed {
            states.generation += 1;
            server.registry.store(Arc::new(Registry::new(states.served.clone(), states.generation)));
        }
    }

    /// Taken around every write of a CRD; other resources do not wait.
    pub(crate) async fn writing(&self, resource: &Resource) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if resource.prefix == PREFIX { Some(self.writing.lock().await) } else { None }
    }

    /// The CRDs of this group that wait for names.
    pub(crate) fn waiting(&self, group: &str) -> Vec<String> {
        let states = self.states.lock();
        let of_group = |name: &&String| name.split_once('.').is_some_and(|(_, known)| known == group);
        states.waiting.iter().filter(of_group).cloned().collect()
    }

    /// Defaults a CRD and sets the status that follows from its spec.
    pub(crate) fn prepare(&self, server: &Inner, object: &mut Value, live: Option<&Value>) {
        let status =
            live.map(|live| live["status"].clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
        object["status"] = status;
        default_crd(object);
        record_storage_version(object);
        let mut status = object["status"].take();
        let conflict = self.accept_names(object, &mut status);
        let now = server.now_text();
        let established = condition(&status, "Established").is_some_and(|known| known["status"] == "True");
        match &conflict {
            None => {
                let message = "no conflicts found";
                set_condition(&mut status, "NamesAccepted", "True", "NoConflicts", message, &now);
                if !established {
                    let message = "the initial names have been accepted";
                    set_condition(&mut status, "Established", "True", "InitialNamesAccepted", message, &now);
                }
            }
            Some((reason, message)) => {
                set_condition(&mut status, "NamesAccepted", "False", reason, message, &now);
                if !established {
                    let message = "not all names are accepted";
                    set_condition(&mut status, "Established", "False", "NotAccepted", message, &now);
                }
            }
        }
        if let Some((value, reason, message)) = approval_condition(object) {
            let kind = "KubernetesAPIApprovalPolicyConformant";
            set_condition(&mut status, kind, value, reason, &message, &now);
        }
        object["status"] = status;
    }

    /// Puts the names nobody else of the group has into `acceptedNames`. Of several that are
    /// refused the last is reported.
    fn accept_names(&self, object: &Value, status: &mut Value) -> Option<(&'static str, String)> {
        let wanted = &object["spec"]["names"];
        let group = object["spec"]["group"].as_str().unwrap_or_default();
        let own = meta::name(object);
        let states = self.states.lock();
        let others = || {
            states
                .names
                .iter()
                .filter(|(name, names)| names.group == group && *name != own)
                .map(|(_, names)| names)
        };
        let taken = |field: &str, name: &str| match field {
            "kind" | "listKind" => others().any(|names| names.kinds.iter().any(|known| known == name)),
            _ => others().any(|names| names.resources.iter().any(|known| known == name)),
        };
        let in_use = |name: &str| format!("{name:?} is already in use");
        let accepted = &mut status["acceptedNames"];
        let mut conflict = None;
        const FIELDS: [(&str, &str); 5] = [
            ("plural", "PluralConflict"),
            ("singular", "SingularConflict"),
            ("shortNames", "ShortNamesConflict"),
            ("kind", "KindConflict"),
            ("listKind", "ListKindConflict"),
        ];
        for (field, reason) in FIELDS {
            let want = &wanted[field];
            if *want == accepted[field] {
                continue;
            }
            let refused: Vec<String> = match want {
                Value::String(name) if taken(field, name) => vec![in_use(name)],
                Value::Array(names) => {
                    let had = accepted[field].as_array().cloned().unwrap_or_default();
                    let new = names.iter().filter(|name| !had.contains(name)).filter_map(Value::as_str);
                    new.filter(|name| taken(field, name)).map(in_use).collect()
                }
                _ => Vec::new(),
            };
            match refused.as_slice() {
                [] => put_or_remove(accepted, field, want),
                [one] => conflict = Some((reason, one.clone())),
                several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
            }
        }
        put_or_remove(accepted, "categories", &wanted["categories"]);
        conflict
    }
}

fn put_or_remove(names: &mut Value, field: &str, value: &Value) {
    if value.is_null() {
        names.as_object_mut().map(|names| names.remove(field));
    } else {
        names[field] = value.clone();
    }
}

impl States {
    /// Takes a CRD in, and serves it if it is established. Says whether that changes what is served.
    fn put(&mut self, server: &Inner, record: &Record, before: Option<&Served>) -> bool {
        let name = key_name(record).to_owned();
        let object = match serde_json::from_slice::<Value>(&record.value) {
            Ok(object) => object,
            Err(error) => {
                warn!(crd = %name, %error, "custom resource definition does not parse");
                return false;
            }
        };
        self.names.insert(name.clone(), AcceptedNames::of(&object));
        let status = &object["status"];
        if condition(status, "NamesAccepted").is_some_and(|known| known["status"] == "False") {
            self.waiting.insert(name.clone());
        } else {
            self.waiting.remove(&name);
        }
        match make(server, &name, object, record.revision, before) {
            Ok(Made::Same(served)) => {
                // After a reset it has to go back in.
                let _ = self.served.insert(name, served);
                false
            }
            Ok(Made::New(served)) => {
                self.served.insert(name, served);
                true
            }
            Ok(Made::Nothing) => match self.served.remove(&name) {
                Some(known) => {
                    known.state.gone.cancel();
                    true
                }
                None => false,
            },
            // Admission refuses what cannot be served; only a damaged or foreign object comes here.
            Err(error) => {
                warn!(crd = %name, %error, "custom resource cannot be served");
                false
            }
        }
    }
}

impl AcceptedNames {
    fn of(object: &Value) -> Self {
        let names = &object["status"]["acceptedNames"];
        let text = |field: &str| names[field].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let short = names["shortNames"].as_array().into_iter().flatten();
        let short = short.filter_map(Value::as_str).map(str::to_owned);
        Self {
            group: object["spec"]["group"].as_str().unwrap_or_default().to_owned(),
            resources: text("plural").into_iter().chain(text("singular")).chain(short).collect(),
            kinds: text("kind").into_iter().chain(text("listKind")).collect(),
        }
    }
}

fn key_name(record: &Record) -> &str {
    record.key.strip_prefix(PREFIX).unwrap_or_default()
}

/// What a definition amounts to.
enum Made {
    /// It is not to be served.
    Nothing,
    /// Nothing that matters has changed.
    Same(Served),
    New(Served),
}

fn make(
    server: &Inner,
    name: &str,
    mut object: Value,
    revision: Revision,
    before: Option<&Served>,
) -> Result<Made, String> {
    let established =
        condition(&object["status"], "Established").is_some_and(|known| known["status"] == "True");
    if !established {
        return Ok(Made::Nothing);
    }
    let uid = meta::uid(&object).to_owned();
    let terminating = meta::is_deleting(&object);
    let before = before.filter(|before| before.state.uid == uid);
    let names = object["status"]["acceptedNames"].take();
    // Keys are sorted, so equal values have equal texts.
    let spec = object["spec"].to_string();
    let same = before.filter(|before| *before.state.spec == *spec && has_names(&before.state.view, &names));
    if let Some(before) = same {
        if before.state.terminating == terminating {
            return Ok(Made::Same(before.clone()));
        }
        let state = &before.state;
        return Ok(Made::New(Served::new(CrdState {
            name: name.to_owned(),
            uid,
            spec: state.spec.clone(),
            view: state.view.clone(),
            terminating,
            schema_since: state.schema_since,
            converter: state.converter.clone(),
            gone: state.gone.clone(),
        })));
    }
    let mut view = CrdView::parse(&object).map_err(|error| match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })?;
    use_names(&mut view, &names);
    let converter = match server.config.conversions.get(name) {
        Some(conversion) => Converter::Native(conversion.clone()),
        None => converter(&view.conversion)?,
    };
    if let Some(before) = before {
        // Watches of the old form end; their clients come back to the new one.
        before.state.gone.cancel();
    }
    Ok(Made::New(Served::new(CrdState {
        name: name.to_owned(),
        uid,
        spec: spec.into(),
        view: Arc::new(view),
        terminating,
        // After a restart this is the last write of the definition, which is never too early.
        schema_since: revision,
        converter,
        gone: server.stop.child_token(),
    })))
}

/// Served are the accepted names, not the wanted ones.
fn use_names(view: &mut CrdView, names: &Value) {
    let text = |field: &str| names[field].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let list = |field: &str| -> Vec<String> {
        let items = names[field].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (Some(plural), Some(kind)) = (text("plural"), text("kind")) else { return };
    view.singular = text("singular").unwrap_or_else(|| kind.to_lowercase());
    view.list_kind = text("listKind").unwrap_or_else(|| format!("{kind}List"));
    view.plural = plural;
    view.kind = kind;
    view.short_names = list("shortNames");
    view.categories = list("categories");
}

fn has_names(view: &CrdView, names: &Value) -> bool {
    let same_list = |known: &[String], field: &str| {
        let items = names[field].as_array().map(Vec::as_slice).unwrap_or_default();
        items.len() == known.len() && items.iter().zip(known).all(|(item, known)| *item == known.as_str())
    };
    let same =
        |known: &str, field: &str| names[field].as_str().is_none_or(|name| name.is_empty() || name == known);
    same(&view.plural, "plural")
        && same(&view.kind, "kind")
        && same(&view.singular, "singular")
        && same(&view.list_kind, "listKind")
        && same_list(&view.short_names, "shortNames")
        && same_list(&view.categories, "categories")
}

fn converter(conversion: &Conversion) -> Result<Converter, String> {
    let Conversion::Webhook { client_config, review_versions } = conversion else {
        return Ok(Converter::None);
    };
    let client = crate::admission::ClientConfig::parse(client_config)?;
    let review_versions = review_versions.clone();
    Ok(Converter::Webhook(Arc::new(ConversionWebhook { client, review_versions })))
}

/// Marks a CRD as going: its instances are deleted before it.
pub(crate) fn begin_termination(object: &mut Value, now: jiff::Timestamp) {
    if meta::is_deleting(object) {
        return;
    }
    let mut finalizers: Vec<String> = meta::finalizers(object).map(str::to_owned).collect();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
        object["metadata"]["finalizers"] = json!(finalizers);
    }
    let now = time_text(now);
    let message = "CustomResource deletion is in progress";
    let mut status = object["status"].take();
    set_condition(&mut status, "Terminating", "True", "InstanceDeletionInProgress", message, &now);
    object["status"] = status;
}

pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Sets a condition; its transition time moves only with its status.
pub(crate) fn set_condition(
    status: &mut Value,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    if !status.is_object() {
        *status = json!({});
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let mut new = json!({
        "type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            if old["status"] == value {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}
