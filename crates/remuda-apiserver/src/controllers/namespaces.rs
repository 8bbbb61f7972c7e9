//! Emptying a namespace that is going, then letting it go.

use std::{collections::BTreeMap, sync::Arc};

use futures::stream::StreamExt;
use remuda_auth::{identity::User, request_info::Verb};
use remuda_objects::meta;
use remuda_store::ListQuery;
use serde_json::Value;

use crate::{
    call::Call,
    crd::set_condition,
    options::{DeleteOptions, Propagation},
    read::store_error,
    server::Inner,
    status::{ApiError, ApiResult},
};

const AT_ONCE: usize = 64;

/// What is left in a namespace, and what holds it.
#[derive(Default)]
struct Remaining {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    /// What could not be deleted, and why.
    failures: Vec<ApiError>,
}

impl Inner {
    pub(super) async fn empty_namespace(&self, name: &str) -> ApiResult<()> {
        let call = self.own_call("", "namespaces", Verb::Update, None, Some(name))?.through("finalize");
        let record = self.store.get(&call.key()).await.map_err(store_error)?.value;
        if let Some(record) = &record {
            let namespace = crate::convert::parse(record)?;
            if !meta::is_deleting(&namespace)
                || crate::namespaces::content_is_gone(&call.resource, &namespace)
            {
                return Ok(());
            }
        }
        let registry = self.registry.load_full();
        let mut remaining = Remaining::default();
        for resource in registry.stored() {
            if resource.namespaced && resource.has_verb("delete") {
                // One sort of content that cannot be deleted does not keep the others.
                if let Err(error) = self.empty_collection(&registry, &resource, name, &mut remaining).await {
                    remaining.failures.push(error);
                }
            }
        }
        if record.is_none() {
            // Leftovers of a namespace that is gone; nobody is there to be told of them.
            return Ok(());
        }
        let now = self.now_text();
        let done = remaining.resources.is_empty() && remaining.failures.is_empty();
        let result = self
            .change(&call, |namespace| {
                let mut status = namespace["status"].take();
                let before = status.clone();
                report(&mut status, &remaining, &now);
                // A namespace that goes at once needs no conditions.
                namespace["status"] = if done && before["conditions"].is_null() { before } else { status };
                if done {
                    namespace["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
                }
                Ok(())
            })
            .await;
        match result {
            Err(error) if error.code == 404 => return Ok(()),
            result => result?,
        };
        remaining.failures.into_iter().next().map_or(Ok(()), Err)
    }

    async fn empty_collection(
        &self,
        registry: &Arc<crate::registry::Registry>,
        resource: &Arc<crate::registry::Resource>,
        namespace: &str,
        remaining: &mut Remaining,
    ) -> ApiResult<()> {
        let query = ListQuery { prefix: resource.collection(Some(namespace)), ..Default::default() };
        let page = self.store.list(query.clone()).await.map_err(store_error)?;
        if page.records.is_empty() {
            return Ok(());
        }
        let user = Arc::new(User::kubernetes_controller("namespace-controller"));
        let deleted: Vec<ApiResult<()>> = futures::stream::iter(page.records)
            .map(|record| {
                let (registry, resource, user) = (registry.clone(), resource.clone(), user.clone());
                async move {
                    let object = crate::convert::parse(&record)?;
                    if meta::is_deleting(&object) {
                        return Ok(());
                    }
                    let name = meta::name(&object);
                    let call =
                        Call::internal(registry, resource, Verb::Delete, Some(namespace), Some(name), user);
                    let options =
                        DeleteOptions { propagation: Some(Propagation::Background), ..Default::default() };
                    match self.delete_object(&call, &options).await {
                        Err(error) if error.code == 404 => Ok(()),
                        result => result.map(drop),
                    }
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        remaining.failures.extend(deleted.into_iter().find_map(Result::err));
        let left = self.store.list(query).await.map_err(store_error)?;
        for record in &left.records {
            let object = crate::convert::parse(record)?;
            *remaining.resources.entry(resource.qualified()).or_default() += 1;
            for finalizer in meta::finalizers(&object) {
                *remaining.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
        Ok(())
    }
}

/// The conditions by which people see why a namespace does not go.
fn report(status: &mut Value, remaining: &Remaining, now: &str) {
    set_condition(
        status,
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
        now,
    );
    set_condition(
        status,
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
        now,
    );
    let (failed, reason, message) = if remaining.failures.is_empty() {
        let message = "All content successfully deleted, may be waiting on finalization";
        ("False", "ContentDeleted", message.to_owned())
    } else {
        let mut causes: Vec<&str> = remaining.failures.iter().map(|error| error.message.as_str()).collect();
        causes.dedup();
        let (count, causes) = (remaining.failures.len(), causes.join(", "));
        let message = format!("Failed to delete all resource types, {count} remaining: {causes}");
        ("True", "ContentDeletionFailed", message)
    };
    set_condition(status, "NamespaceDeletionContentFailure", failed, reason, &message, now);
    if remaining.resources.is_empty() {
        let message = "All content successfully removed";
        set_condition(status, "NamespaceContentRemaining", "False", "ContentRemoved", message, now);
    } else {
        let list: Vec<String> = remaining
            .resources
            .iter()
            .map(|(resource, count)| {
                let dotted = if resource.contains('.') { resource.clone() } else { format!("{resource}.") };
                format!("{dotted} has {count} resource instances")
            })
            .collect();
        let message = format!("Some resources are remaining: {}", list.join(", "));
        set_condition(status, "NamespaceContentRemaining", "True", "SomeResourcesRemain", &message, now);
    }
    if remaining.finalizers.is_empty() {
        let message = "All content-preserving finalizers finished";
        set_condition(
            status,
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            message,
            now,
        );
    } else {
        let list: Vec<String> = remaining
            .finalizers
            .iter()
            .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
            .collect();
        let message = format!("Some content in the namespace has finalizers remaining: {}", list.join(", "));
        set_condition(status, "NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", &message, now);
    }
}
