//! Objects that others refer to by name: Secrets and ConfigMaps people write.
//!
//! There may be many of them, of which few are referred to. So only their metadata is cached, and the content
//! of those that are wanted is kept until their version changes.

use std::{collections::HashMap, fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt, core::PartialObjectMeta};
use parking_lot::Mutex;
use remuda_control::{Ctx, Informer, ObjectKey, Scope, informer::Cached};
use serde::de::DeserializeOwned;

use crate::Error;

pub(crate) struct Referred<K: Resource> {
    client: Client,
    pub(crate) metadata: Informer<PartialObjectMeta<K>>,
    /// By key: version and content.
    read: Mutex<HashMap<ObjectKey, (String, Arc<K>)>>,
}

impl<K> Referred<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    PartialObjectMeta<K>: Cached + Resource<DynamicType = ()>,
{
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Self {
            client: ctx.client.clone(),
            metadata: ctx.informers.metadata::<K>(Scope::all()),
            read: Mutex::default(),
        }
    }

    /// The object, `None` if there is none.
    pub(crate) async fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, Error> {
        self.metadata.wait_synced().await;
        let Some(metadata) = self.metadata.get(key) else {
            self.read.lock().remove(key);
            return Ok(None);
        };
        let version = metadata.resource_version().unwrap_or_default();
        let known = self.read.lock().get(key).filter(|known| known.0 == version).map(|known| known.1.clone());
        if known.is_some() {
            return Ok(known);
        }
        let api: Api<K> = Api::namespaced(self.client.clone(), key.namespace.as_deref().unwrap_or_default());
        let found = api.get_opt(&key.name).await;
        let found = found.map_err(Error::api("read", format!("{} {key}", K::kind(&()))))?;
        let Some(found) = found.map(Arc::new) else {
            return Ok(None);
        };
        let version = found.resource_version().unwrap_or_default();
        self.read.lock().insert(key.clone(), (version, found.clone()));
        Ok(Some(found))
    }
}
