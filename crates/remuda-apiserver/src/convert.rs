//! Between the stored version of an object and the one a client asks for.

use std::sync::Arc;

use remuda_objects::autoscaling;
use remuda_schema::{CrdVersion, Schema};
use remuda_store::Record;
use serde_json::{Value, json};

use crate::{
    admission::ClientConfig,
    call::Call,
    registry::{Custom, Resource},
    server::Inner,
    status::{ApiError, ApiResult},
};

/// A native conversion: rewrites an object into the named version. It must not change the name,
/// namespace or uid.
pub type NativeConversion = Arc<dyn Fn(&mut Value, &str) -> Result<(), String> + Send + Sync>;

/// How the objects of one CRD get from version to version.
#[derive(Clone)]
pub(crate) enum Converter {
    /// Only `apiVersion` changes.
    None,
    Webhook(Arc<ConversionWebhook>),
    Native(NativeConversion),
}

pub(crate) struct ConversionWebhook {
    pub client: ClientConfig,
    pub review_versions: Vec<String>,
}

impl Inner {
    /// The objects of these records as the resource's version has them.
    pub(crate) async fn decode_all(
        &self,
        resource: &Resource,
        records: &[Arc<Record>],
    ) -> ApiResult<Vec<Value>> {
        let records: Vec<&Record> = records.iter().map(|record| &**record).collect();
        self.decode_each(resource, &records).await
    }

    pub(crate) async fn decode(&self, resource: &Resource, record: &Record) -> ApiResult<Value> {
        if is_served_form(resource, record) {
            return parse(record);
        }
        Ok(self.decode_each(resource, &[record]).await?.remove(0))
    }

    async fn decode_each(&self, resource: &Resource, records: &[&Record]) -> ApiResult<Vec<Value>> {
        let by_webhook = |custom: &&Custom| matches!(custom.crd.converter, Converter::Webhook(_));
        let kept = resource.custom().filter(by_webhook).map(|custom| &custom.converted);
        let mut objects = Vec::with_capacity(records.len());
        let (mut missing, mut places) = (Vec::new(), Vec::new());
        for (place, record) in records.iter().enumerate() {
            let known = kept.and_then(|kept| kept.get(record));
            if known.is_none() {
                missing.push(parse(record)?);
                places.push(place);
            }
            objects.push(known.unwrap_or_default());
        }
        self.convert_served(resource, &mut missing).await?;
        for (place, object) in places.into_iter().zip(missing) {
            let record = records[place];
            if let Some(kept) = kept.filter(|_| !is_stored_in(record, &resource.api_version)) {
                kept.put(record, &object);
            }
            objects[place] = object;
        }
        Ok(objects)
    }

    /// Converts stored objects to the served version, and gives them what the schema has gained since.
    pub(crate) async fn convert_served(&self, resource: &Resource, objects: &mut [Value]) -> ApiResult<()> {
        match resource.custom() {
            None => {
                if resource.group == "events.k8s.io" {
                    objects.iter_mut().for_each(event_to_new);
                } else if resource.group == autoscaling::GROUP {
                    objects.iter_mut().for_each(|object| autoscaling::convert(object, &resource.api_version));
                }
            }
            Some(custom) => {
                // Defaults are those of the version an object is stored in; a converter has the last word on
                // the others.
                let mut converted = Vec::with_capacity(objects.len());
                for object in objects.iter_mut() {
                    converted.push(object["apiVersion"] != resource.api_version.as_str());
                    if let Some(stored) = stored_version(custom, object) {
                        settle(&stored.schema, object);
                    }
                }
                self.convert(custom, objects, &resource.api_version).await?;
                if let Some(schema) = &resource.schema {
                    for (object, _) in objects.iter_mut().zip(converted).filter(|(_, converted)| *converted) {
                        schema.prune(object, None);
                    }
                }
            }
        }
        Ok(())
    }

    /// Converts an object of the served version into the stored one.
    pub(crate) async fn to_stored(&self, resource: &Resource, mut object: Value) -> ApiResult<Value> {
        if resource.api_version == resource.storage_api_version {
            return Ok(object);
        }
        match resource.custom() {
            None => {
                if resource.group == "events.k8s.io" {
                    event_to_core(&mut object);
                } else if resource.group == autoscaling::GROUP {
                    autoscaling::convert(&mut object, &resource.storage_api_version);
                }
            }
            Some(custom) => {
                let mut objects = [object];
                self.convert(custom, &mut objects, &resource.storage_api_version).await?;
                [object] = objects;
                let storage = custom.crd.view.versions.iter().find(|version| version.storage);
                if let Some(storage) = storage {
                    settle(&storage.schema, &mut object);
                }
            }
        }
        Ok(object)
    }

    /// Two objects of the served version in another one.
    pub(crate) async fn convert_pair(
        &self,
        call: &Call,
        mut objects: [Value; 2],
        api_version: &str,
    ) -> ApiResult<[Value; 2]> {
        if let Some(custom) = call.resource.custom() {
            self.convert(custom, &mut objects, api_version).await?;
        } else if call.resource.group == autoscaling::GROUP {
            objects.iter_mut().for_each(|object| autoscaling::convert(object, api_version));
        }
        Ok(objects)
    }

    async fn convert(&self, custom: &Custom, objects: &mut [Value], target: &str) -> ApiResult<()> {
        if objects.iter().all(|object| object["apiVersion"] == target) {
            return Ok(());
        }
        match &custom.crd.converter {
            Converter::None => {
                for object in objects {
                    object["apiVersion"] = target.into();
                }
                Ok(())
            }
            Converter::Native(conversion) => {
                let version = target.rsplit('/').next().unwrap_or(target);
                for object in objects.iter_mut().filter(|object| object["apiVersion"] != target) {
                    conversion(object, version)
                        .map_err(|error| ApiError::internal(format!("convert to {target}: {error}")))?;
                    object["apiVersion"] = target.into();
                }
                Ok(())
            }
            Converter::Webhook(webhook) => self.convert_by_webhook(custom, webhook, objects, target).await,
        }
    }

    async fn convert_by_webhook(
        &self,
        custom: &Custom,
        webhook: &ConversionWebhook,
        objects: &mut [Value],
        target: &str,
    ) -> ApiResult<()> {
        let stale: Vec<usize> = (0..objects.len()).filter(|i| objects[*i]["apiVersion"] != target).collect();
        let source = stale.first().and_then(|index| objects[*index]["apiVersion"].as_str()).unwrap_or(target);
        let subject = format!("conversion webhook for {source}, Kind={}", custom.crd.view.kind);
        let fault = |detail: String| ApiError::new(500, "", format!("{subject} {detail}"));
        let fail = |detail: String| fault(format!("failed: {detail}"));
        let version = webhook
            .review_versions
            .iter()
            .find(|version| matches!(version.as_str(), "v1" | "v1beta1"))
            .ok_or_else(|| fail("no supported conversion review versions".to_owned()))?;
        let uid = uuid::Uuid::new_v4().to_string();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {
                "uid": uid, "desiredAPIVersion": target,
                "objects": stale.iter().map(|index| objects[*index].clone()).collect::<Vec<_>>(),
            },
        });
        let timeout = std::time::Duration::from_secs(30);
        let mut answer = self.webhooks.post(self, &webhook.client, &review, timeout).await.map_err(fail)?;
        let response = &mut answer["response"];
        if response.is_null() {
            return Err(fail("no response provided".to_owned()));
        }
        // The beta review has no such duty.
        if version == "v1" && response["uid"] != uid.as_str() {
            let got = response["uid"].as_str().unwrap_or_default();
            return Err(fail(format!("expected response.uid={uid:?}, got {got:?}")));
        }
        let result = &response["result"];
        if result["status"] != "Success" {
            let message = result["message"].as_str().filter(|message| !message.is_empty());
            let status = result["status"].as_str().unwrap_or_default();
            let unexplained = || format!("response.result.status was '{status}', not 'Success'");
            return Err(fail(message.map_or_else(unexplained, str::to_owned)));
        }
        let mut none = Vec::new();
        let converted = response["convertedObjects"].as_array_mut().unwrap_or(&mut none);
        if converted.len() != stale.len() {
            return Err(fault(format!("returned {} objects, expected {}", converted.len(), stale.len())));
        }
        for (position, (index, mut object)) in stale.into_iter().zip(converted.drain(..)).enumerate() {
            check_converted(&objects[index], &object, target).map_err(|detail| {
                fault(format!("returned invalid converted object at index {position}: {detail}"))
            })?;
            // A converter may change labels and annotations; the rest of metadata is ours.
            let mut metadata = objects[index]["metadata"].take();
            for key in ["labels", "annotations"] {
                match object["metadata"].get_mut(key).map(Value::take) {
                    Some(value) if !value.is_null() => metadata[key] = value,
                    _ => {
                        metadata.as_object_mut().map(|metadata| metadata.remove(key));
                    }
                }
            }
            object["metadata"] = metadata;
            objects[index] = object;
        }
        Ok(())
    }
}

/// The version an object is stored in, if it still exists.
fn stored_version<'a>(custom: &'a Custom, object: &Value) -> Option<&'a CrdVersion> {
    let (_, version) = object["apiVersion"].as_str()?.rsplit_once('/')?;
    custom.crd.view.version(version)
}

/// A converter changes what is in an object, not which object it is.
fn check_converted(before: &Value, after: &Value, target: &str) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if after["apiVersion"] != target {
        let got = text(&after["apiVersion"]);
        return Err(format!("invalid groupVersion (expected {target}, received {got})"));
    }
    if after["kind"] != before["kind"] {
        let (expected, got) = (text(&before["kind"]), text(&after["kind"]));
        return Err(format!("invalid kind (expected {expected}, received {got})"));
    }
    if !after["metadata"].is_object() {
        return Err("missing metadata in converted object".to_owned());
    }
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, got) = (text(&before["metadata"][field]), text(&after["metadata"][field]));
        if expected != got {
            return Err(format!("must have the same {shown}: {expected} != {got}"));
        }
    }
    for field in ["labels", "annotations"] {
        let value = &after["metadata"][field];
        if !value.is_object() && !value.is_null() {
            return Err(format!("invalid metadata.{field} in converted object"));
        }
        let odd = value.as_object().into_iter().flatten().find(|(_, value)| !value.is_string());
        if let Some((key, _)) = odd {
            return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
        }
    }
    Ok(())
}

/// Whether the record's bytes are the answer, as they are.
pub(crate) fn is_served_form(resource: &Resource, record: &Record) -> bool {
    resource.api_version == resource.storage_api_version
        && resource.custom().is_none_or(|custom| {
            record.revision > custom.crd.schema_since && is_stored_in(record, &resource.api_version)
        })
}

/// A request that began before the storage version changed may have stored the old one after it. The
/// keys of stored objects are sorted, so their version comes first.
fn is_stored_in(record: &Record, api_version: &str) -> bool {
    let rest = record.value.strip_prefix(b"{\"apiVersion\":\"");
    let rest = rest.and_then(|rest| rest.strip_prefix(api_version.as_bytes()));
    rest.is_some_and(|rest| rest.first() == Some(&b'"'))
}

pub(crate) fn parse(record: &Record) -> ApiResult<Value> {
    serde_json::from_slice(&record.value)
        .map_err(|error| ApiError::internal(format!("stored object {} does not parse: {error}", record.key)))
}

/// Prunes and defaults an object to its schema.
pub(crate) fn settle(schema: &Schema, object: &mut Value) {
    schema.prune(object, None);
    schema.apply_defaults(object);
}

const EVENT_FIELDS: &[(&str, &str)] = &[
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(object: &mut Value, fields: impl Iterator<Item = (&'static str, &'static str)>, api_version: &str) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in fields {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    map.insert("apiVersion".to_owned(), api_version.into());
}

fn event_to_new(object: &mut Value) {
    rename(object, EVENT_FIELDS.iter().copied(), "events.k8s.io/v1");
}

fn event_to_core(object: &mut Value) {
    rename(object, EVENT_FIELDS.iter().map(|(core, new)| (*new, *core)), "v1");
}
