//! CRDs: removing the instances of one that is going, and giving freed names to those that wait.

use futures::stream::{StreamExt, TryStreamExt};
use remuda_objects::meta;
use remuda_store::ListQuery;
use serde_json::Value;

use remuda_auth::request_info::Verb;

use crate::{
    call::Call,
    crd::{FINALIZER, PREFIX, condition, set_condition},
    options::DeleteOptions,
    read::store_error,
    registry::storage_prefix,
    server::Inner,
    status::ApiResult,
};

const AT_ONCE: usize = 64;

impl Inner {
    pub(super) async fn settle_definition(&self, name: &str) -> ApiResult<()> {
        match self.read_object(&format!("{PREFIX}{name}")).await? {
            Some(definition) if meta::is_deleting(&definition) => self.end_definition(&definition).await,
            // It came, changed or went: others of its group may have waited for a name.
            _ => self.rename_waiting(name).await,
        }
    }

    async fn end_definition(&self, definition: &Value) -> ApiResult<()> {
        if !meta::finalizers(definition).any(|name| name == FINALIZER) {
            return Ok(());
        }
        let spec = &definition["spec"];
        let group = spec["group"].as_str().unwrap_or_default();
        let plural = spec["names"]["plural"].as_str().unwrap_or_default();
        let query = ListQuery { prefix: storage_prefix(group, plural), ..Default::default() };
        let established =
            condition(&definition["status"], "Established").is_some_and(|known| known["status"] == "True");
        let registry = self.registry.load_full();
        let known = registry.crds.get(meta::name(definition));
        if established && let Some(resource) = known.and_then(|known| known.storage()).cloned() {
            let page = self.store.list(query.clone()).await.map_err(store_error)?;
            let user = std::sync::Arc::new(remuda_auth::identity::User::api_server());
            futures::stream::iter(page.records)
                .map(Ok)
                .try_for_each_concurrent(AT_ONCE, |record| {
                    let (registry, resource, user) = (registry.clone(), resource.clone(), user.clone());
                    async move {
                        let object = crate::convert::parse(&record)?;
                        if meta::is_deleting(&object) {
                            return Ok(());
                        }
                        let (namespace, name) = (meta::namespace(&object), meta::name(&object));
                        let call = Call::internal(
                            registry,
                            resource,
                            Verb::Delete,
                            Some(namespace),
                            Some(name),
                            user,
                        );
                        match self.delete_object(&call, &DeleteOptions::default()).await {
                            Err(error) if error.code == 404 => Ok(()),
                            result => result.map(drop),
                        }
                    }
                })
                .await?;
            // Instances held by finalizers: their going wakes us.
            if !self
                .store
                .list(ListQuery { limit: 1, ..query })
                .await
                .map_err(store_error)?
                .records
                .is_empty()
            {
                return Ok(());
            }
        }
        let call = self
            .own_call(
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                Verb::Update,
                None,
                Some(meta::name(definition)),
            )?
            .through("status");
        let now = self.now_text();
        let ended = self.change(&call, |definition| {
            let mut status = definition["status"].take();
            let message = "removed all instances";
            set_condition(&mut status, "Terminating", "False", "InstanceDeletionCompleted", message, &now);
            definition["status"] = status;
            if let Some(finalizers) = definition["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|name| name != FINALIZER);
            }
            Ok(())
        });
        match ended.await {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    /// Judges the names again that were refused in this CRD's group.
    async fn rename_waiting(&self, changed: &str) -> ApiResult<()> {
        let Some((_, group)) = changed.split_once('.') else { return Ok(()) };
        for name in self.crds.waiting(group).iter().filter(|name| *name != changed) {
            let call = self
                .own_call(
                    "apiextensions.k8s.io",
                    "customresourcedefinitions",
                    Verb::Update,
                    None,
                    Some(name),
                )?
                .through("status");
            let renamed = self.change(&call, |definition| {
                let live = definition.clone();
                self.crds.prepare(self, definition, Some(&live));
                Ok(())
            });
            match renamed.await {
                Err(error) if error.code == 404 => {}
                result => result.map(drop)?,
            }
        }
        Ok(())
    }
}
