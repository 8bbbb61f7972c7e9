//! CustomResourceDefinitions: from an object to a served resource.
//!
//! A CRD's names are judged when it is written, under one lock, so that its answer already says
//! whether it is established; by then it is served.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use remuda_objects::meta;
use remuda_schema::{Conversion, CrdView, default_crd};
use remuda_store::{Change, Record, Revision};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::{
    convert::{ConversionWebhook, Converter},
    follow::News,
    registry::{CrdState, Registry},
    server::{Inner, StartError, time_text},
};

pub(crate) const PREFIX: &str = "/apiextensions.k8s.io/customresourcedefinitions/";
/// Holds a CRD until its instances are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Everything known of CRDs, and the pictures made from it.
#[derive(Default)]
pub(crate) struct CrdKeeper {
    states: Mutex<States>,
}

#[derive(Default)]
struct States {
    served: BTreeMap<String, Arc<CrdState>>,
    generation: u64,
}

pub(crate) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner.follow(PREFIX, move |news| server.crds.tell(&server, news)).await
}

impl CrdKeeper {
    fn tell(&self, server: &Inner, news: News<'_>) {
        let mut states = self.states.lock();
        match news {
            News::Reset(records) => {
                let before = std::mem::take(&mut states.served);
                for record in records {
                    put(server, &mut states.served, record, before.get(key_name(record)));
                }
                for (name, state) in before {
                    if !states.served.contains_key(&name) {
                        state.gone.cancel();
                    }
                }
            }
            News::Changed(event) if event.change == Change::Deleted => {
                if let Some(state) = states.served.remove(key_name(&event.record)) {
                    state.gone.cancel();
                    info!(crd = %state.name, "custom resource removed");
                }
            }
            News::Changed(event) => {
                let before = states.served.get(key_name(&event.record)).cloned();
                put(server, &mut states.served, &event.record, before.as_ref());
            }
        }
        states.generation += 1;
        server.registry.store(Arc::new(Registry::new(states.served.clone(), states.generation)));
    }

    /// Defaults a CRD and sets the status that follows from its spec.
    pub(crate) fn prepare(&self, server: &Inner, object: &mut Value, live: Option<&Value>) {
        default_crd(object);
        let mut status =
            live.map(|live| live["status"].clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
        let names = object["spec"]["names"].clone();
        let conflict = self.conflict(object);
        let now = server.now_text();
        let was_established =
            condition(&status, "Established").is_some_and(|known| known["status"] == "True");
        match &conflict {
            None => {
                status["acceptedNames"] = names;
                set_condition(
                    &mut status,
                    "NamesAccepted",
                    "True",
                    "NoConflicts",
                    "no conflicts found",
                    &now,
                );
                let message = "the initial names have been accepted";
                set_condition(&mut status, "Established", "True", "InitialNamesAccepted", message, &now);
            }
            Some((reason, taken)) => {
                let message = format!("{taken:?} is already in use");
                if status["acceptedNames"].is_null() {
                    status["acceptedNames"] = json!({"kind": "", "plural": ""});
                }
                set_condition(&mut status, "NamesAccepted", "False", reason, &message, &now);
                if !was_established {
                    let message = "not all names are accepted";
                    set_condition(&mut status, "Established", "False", "NotAccepted", message, &now);
                }
            }
        }
        let storage = object["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|version| version["storage"] == true)
            .map(|version| version["name"].clone());
        let mut stored = status["storedVersions"].as_array().cloned().unwrap_or_default();
        stored.extend(storage.filter(|storage| !stored.contains(storage)));
        status["storedVersions"] = stored.into();
        object["status"] = status;
    }

    /// The first name of this CRD another one of its group already has.
    fn conflict(&self, object: &Value) -> Option<(&'static str, String)> {
        let names = &object["spec"]["names"];
        let group = object["spec"]["group"].as_str().unwrap_or_default();
        let own = meta::name(object);
        let states = self.states.lock();
        let others: Vec<&CrdView> = states
            .served
            .values()
            .filter(|state| state.view.group == group && state.name != own)
            .map(|state| &state.view)
            .collect();
        let resource_taken = |name: &str| {
            others.iter().any(|view| {
                view.plural == name
                    || view.singular == name
                    || view.short_names.iter().any(|known| known == name)
            })
        };
        let kind_taken = |name: &str| others.iter().any(|view| view.kind == name || view.list_kind == name);
        let text = |field: &str| names[field].as_str().unwrap_or_default().to_owned();
        let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let resources = [("PluralConflict", text("plural")), ("SingularConflict", text("singular"))];
        resources
            .into_iter()
            .chain(short.map(|name| ("ShortNamesConflict", name.to_owned())))
            .find(|(_, name)| !name.is_empty() && resource_taken(name))
            .or_else(|| {
                [("KindConflict", text("kind")), ("ListKindConflict", text("listKind"))]
                    .into_iter()
                    .find(|(_, name)| !name.is_empty() && kind_taken(name))
            })
    }
}

fn key_name(record: &Record) -> &str {
    record.key.strip_prefix(PREFIX).unwrap_or_default()
}

/// Takes a CRD into the served ones, if it is established.
fn put(
    server: &Inner,
    served: &mut BTreeMap<String, Arc<CrdState>>,
    record: &Record,
    before: Option<&Arc<CrdState>>,
) {
    let name = key_name(record).to_owned();
    let state = serde_json::from_slice::<Value>(&record.value)
        .map_err(|error| error.to_string())
        .and_then(|object| make(server, &name, &object, record.revision, before));
    match state {
        Ok(Some(state)) => {
            served.insert(name, Arc::new(state));
        }
        Ok(None) => {
            if let Some(state) = served.remove(&name) {
                state.gone.cancel();
            }
        }
        // Admission refuses what cannot be served; only a damaged or foreign object comes here.
        Err(error) => warn!(crd = %name, %error, "custom resource cannot be served"),
    }
}

fn make(
    server: &Inner,
    name: &str,
    object: &Value,
    revision: Revision,
    before: Option<&Arc<CrdState>>,
) -> Result<Option<CrdState>, String> {
    let established =
        condition(&object["status"], "Established").is_some_and(|known| known["status"] == "True");
    if !established {
        return Ok(None);
    }
    let uid = meta::uid(object).to_owned();
    let terminating = meta::is_deleting(object);
    let before = before.filter(|before| before.uid == uid);
    let view = CrdView::parse(object).map_err(|error| error.to_string())?;
    let same_spec = before.is_some_and(|before| before.spec == object["spec"]);
    let schema_since = match before {
        Some(before) if same_spec => before.schema_since,
        _ => revision,
    };
    let gone = match before {
        Some(before) if same_spec => before.gone.clone(),
        // Watches of the old form end; their clients come back to the new one.
        Some(before) => {
            before.gone.cancel();
            Default::default()
        }
        None => Default::default(),
    };
    let converter = match server.config.conversions.get(name) {
        Some(conversion) => Converter::Native(conversion.clone()),
        None => converter(&view.conversion)?,
    };
    Ok(Some(CrdState {
        name: name.to_owned(),
        uid,
        spec: object["spec"].clone(),
        view,
        terminating,
        schema_since,
        converter,
        gone,
    }))
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
