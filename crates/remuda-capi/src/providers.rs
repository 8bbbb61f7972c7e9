//! Objects of providers: found by reference, read by contract, followed by whoever refers to them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::{GroupVersionKind, PartialObjectMeta},
};
use parking_lot::Mutex;
use remuda_api::core::ContractReference;
use remuda_control::{Ctx, Enqueuer, Informer, Informers, ObjectKey, Scope, informer::Cached};
use remuda_names::capi::{annotation, label};
use remuda_rollout::contract::{self, Contract};
use serde_json::{Map, Value, json};

use crate::error::{Error, is_code};

/// Every controller files its root objects under [`reference_key`] of what they refer to, by this name.
pub(crate) const REFERENCES: &str = "references";

/// How long the first list of a kind may take.
const FIRST_LIST: Duration = Duration::from_secs(10);

pub(crate) fn reference_key(group: &str, kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}.{group}/{namespace}/{name}")
}

/// Under what an object is filed that refers to these.
pub(crate) fn reference_keys<'a>(
    namespace: &str,
    references: impl IntoIterator<Item = &'a ContractReference>,
) -> Vec<String> {
    references
        .into_iter()
        .filter(|reference| reference.is_defined())
        .map(|reference| reference_key(&reference.api_group, &reference.kind, namespace, &reference.name))
        .collect()
}

type Definition = PartialObjectMeta<CustomResourceDefinition>;

/// Who waits for a definition: by its name, the kind and key of those who do.
type Waiting = HashMap<String, HashMap<(String, ObjectKey), Enqueuer>>;

/// Finds provider kinds and their objects.
pub(crate) struct Providers {
    client: Client,
    informers: Informers,
    field_manager: Arc<str>,
    definitions: Informer<Definition>,
    waiting: Arc<Mutex<Waiting>>,
    /// Wakes those who wait for a definition.
    _definition_watch: remuda_control::informer::Subscription,
}

/// Who is reconciled, for waking it when what it looks for changes.
pub(crate) struct Interest<'a, K> {
    pub(crate) enqueuer: &'a Enqueuer,
    pub(crate) root: &'a Informer<K>,
    pub(crate) key: &'a ObjectKey,
}

/// A provider's kind, in the version that keeps the newest contract.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) contract: Contract,
    pub(crate) resource: ApiResource,
}

/// A provider's object.
#[derive(Debug, Clone)]
pub(crate) struct Provided {
    pub(crate) object: Arc<DynamicObject>,
    pub(crate) kind: Resolved,
}

impl Provided {
    /// Spec and status, for the accessors of the contract.
    pub(crate) fn data(&self) -> &Value {
        &self.object.data
    }

    pub(crate) fn contract(&self) -> Contract {
        self.kind.contract
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

impl Providers {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        let definitions: Informer<Definition> =
            ctx.informers.metadata::<CustomResourceDefinition>(Scope::all());
        let waiting: Arc<Mutex<Waiting>> = Arc::default();
        let waiters = waiting.clone();
        let watch = definitions.subscribe(move |change| {
            let name = change.object().map(|definition| definition.name_any()).unwrap_or_default();
            for ((_, key), enqueuer) in waiters.lock().remove(&name).into_iter().flatten() {
                enqueuer.enqueue(key);
            }
        });
        Self {
            client: ctx.client.clone(),
            informers: ctx.informers.clone(),
            field_manager: ctx.field_manager.clone(),
            definitions,
            waiting,
            _definition_watch: watch,
        }
    }

    /// The kind behind a group and kind. If it is not installed, or keeps no contract, `interest` is woken when
    /// that changes.
    pub(crate) async fn resolve<K: Cached>(
        &self,
        group: &str,
        kind: &str,
        interest: &Interest<'_, K>,
    ) -> Result<Resolved, Error> {
        self.definitions.wait_synced().await;
        let crd = contract::crd_name(group, kind);
        let wait = || {
            let mut waiting = self.waiting.lock();
            let waiters = waiting.entry(crd.clone()).or_default();
            let who = (interest.root.kind().kind.clone(), interest.key.clone());
            waiters.entry(who).or_insert_with(|| interest.enqueuer.clone());
        };
        let Some(definition) = self.definitions.get(&ObjectKey::cluster_wide(&crd)) else {
            wait();
            return Err(Error::NoCrd { crd, kind: kind.to_owned(), group: group.to_owned() });
        };
        let (contract, version) = contract::choose(&crd, definition.labels()).inspect_err(|_| wait())?;
        let plural = crd.split('.').next().unwrap_or_default();
        let kind = GroupVersionKind::gvk(group, &version, kind);
        Ok(Resolved { contract, resource: ApiResource::from_gvk_with_plural(&kind, plural) })
    }

    /// The object behind a reference; `None` when it positively does not exist. From now on changes of objects
    /// of its kind wake the root objects that refer to them.
    pub(crate) async fn get<K: Cached>(
        &self,
        reference: &ContractReference,
        namespace: &str,
        interest: &Interest<'_, K>,
    ) -> Result<Option<Provided>, Error> {
        let kind = self.resolve(&reference.api_group, &reference.kind, interest).await?;
        let cache = self.informers.dynamic(&kind.resource, Scope::all());
        let root = interest.root.clone();
        let (group, name) = (reference.api_group.clone(), reference.kind.clone());
        interest.enqueuer.follow(&cache, move |object: &DynamicObject| {
            let namespace = object.namespace().unwrap_or_default();
            root.keys_by_index(REFERENCES, &reference_key(&group, &name, &namespace, &object.name_any()))
        });
        if tokio::time::timeout(FIRST_LIST, cache.wait_synced()).await.is_err() {
            let (kind, group) = (reference.kind.clone(), reference.api_group.clone());
            return Err(Error::NotServed { kind, group });
        }
        if let Some(object) = cache.get(&ObjectKey::namespaced(namespace, &reference.name)) {
            return Ok(Some(Provided { object, kind }));
        }
        // A cache may lag; who acts on an absence must be sure of it.
        let found = self.api(&kind.resource, namespace).get_opt(&reference.name).await;
        let found = found.map_err(Error::api("read", named(&kind.resource, namespace, &reference.name)))?;
        Ok(found.map(|mut object| {
            object.metadata.managed_fields = None;
            Provided { object: Arc::new(object), kind }
        }))
    }

    pub(crate) fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// Writes labels and owners of a provider's object. Owners are replaced as a whole, on condition that nobody
    /// changed the object meanwhile. Nothing is written if nothing differs; `None` when it is gone.
    pub(crate) async fn label_and_own(
        &self,
        provided: &Provided,
        labels: &[(&str, &str)],
        owners: Vec<OwnerReference>,
    ) -> Result<Option<Provided>, Error> {
        let meta = &provided.object.metadata;
        let known = meta.labels.clone().unwrap_or_default();
        let missing: Map<String, Value> = labels
            .iter()
            .filter(|(key, value)| known.get(*key).map(String::as_str) != Some(*value))
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let owners_differ = meta.owner_references.as_deref().unwrap_or_default() != owners;
        if missing.is_empty() && !owners_differ {
            return Ok(Some(provided.clone()));
        }
        let mut metadata = json!({"uid": meta.uid});
        if !missing.is_empty() {
            metadata["labels"] = Value::Object(missing);
        }
        if owners_differ {
            metadata["ownerReferences"] = json!(owners);
            metadata["resourceVersion"] = json!(meta.resource_version);
        }
        self.patch(provided, json!({"metadata": metadata})).await
    }

    /// A merge patch of a provider's object; `None` when it is gone.
    pub(crate) async fn patch(&self, provided: &Provided, patch: Value) -> Result<Option<Provided>, Error> {
        let namespace = provided.object.namespace().unwrap_or_default();
        let name = provided.object.name_any();
        let params =
            PatchParams { field_manager: Some(self.field_manager.to_string()), ..PatchParams::default() };
        let api = self.api(&provided.kind.resource, &namespace);
        match api.patch(&name, &params, &Patch::Merge(patch)).await {
            Ok(object) => Ok(Some(Provided { object: Arc::new(object), kind: provided.kind.clone() })),
            Err(error) if is_code(&error, 404) => Ok(None),
            Err(source) => {
                let what = named(&provided.kind.resource, &namespace, &name);
                Err(Error::Api { verb: "write", what, source })
            }
        }
    }

    /// Asks for the deletion of a provider's object; one that is being deleted, or gone, is fine.
    pub(crate) async fn delete(&self, provided: &Provided) -> Result<(), Error> {
        if provided.is_deleting() {
            return Ok(());
        }
        let namespace = provided.object.namespace().unwrap_or_default();
        let name = provided.object.name_any();
        let preconditions = Preconditions { uid: provided.object.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api(&provided.kind.resource, &namespace).delete(&name, &params).await {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(source) => {
                let what = named(&provided.kind.resource, &namespace, &name);
                Err(Error::Api { verb: "delete", what, source })
            }
        }
    }
}

/// An object in an error's text.
pub(crate) fn named(resource: &ApiResource, namespace: &str, name: &str) -> String {
    format!("{} {namespace}/{name}", resource.kind)
}

/// What is made from a template: `spec.template` under another kind and name.
pub(crate) struct Clone<'a> {
    pub(crate) template: &'a Provided,
    pub(crate) name: &'a str,
    pub(crate) cluster: &'a str,
    pub(crate) owner: OwnerReference,
    pub(crate) labels: &'a std::collections::BTreeMap<String, String>,
    pub(crate) annotations: &'a std::collections::BTreeMap<String, String>,
}

impl Clone<'_> {
    /// Kind of the object and the object itself.
    pub(crate) fn make(&self) -> (ApiResource, DynamicObject) {
        let template = &self.template.object;
        let source = &self.template.kind.resource;
        let body = template.data.pointer("/spec/template").cloned().unwrap_or_default();
        let texts = |key: &str| {
            let map = body.pointer(&format!("/metadata/{key}")).and_then(Value::as_object);
            let pairs = map.into_iter().flatten();
            pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        let mut annotations: std::collections::BTreeMap<String, String> = texts("annotations");
        annotations.extend(self.annotations.clone());
        annotations.insert(annotation::CLONED_FROM_NAME.to_owned(), template.name_any());
        let group_kind = format!("{}.{}", source.kind, source.group);
        annotations.insert(annotation::CLONED_FROM_GROUP_KIND.to_owned(), group_kind);
        let mut labels: std::collections::BTreeMap<String, String> = texts("labels");
        labels.extend(self.labels.clone());
        labels.insert(label::CLUSTER_NAME.to_owned(), self.cluster.to_owned());

        let kind = source.kind.strip_suffix("Template").unwrap_or(&source.kind);
        let plural = contract::crd_name("", kind);
        let gvk = GroupVersionKind::gvk(&source.group, &source.version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural.trim_end_matches('.'));
        let mut object = DynamicObject::new(self.name, &resource);
        object.metadata.namespace = template.namespace();
        object.metadata.labels = Some(labels);
        object.metadata.annotations = Some(annotations);
        object.metadata.owner_references = Some(vec![self.owner.clone()]);
        object.data = match body.get("spec") {
            Some(spec) => json!({"spec": spec}),
            None => json!({}),
        };
        (resource, object)
    }
}
