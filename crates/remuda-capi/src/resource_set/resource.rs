//! ConfigMaps and Secrets of a set.

use aws_lc_rs::digest::{Context, SHA256};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::addons::{ClusterResourceSet, ResourceReference};
use remuda_control::{Chain, ObjectKey};
use remuda_rollout::resource_set::{BadManifest, Bound, Fault, Strategy, needs_apply, objects};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ResourceSets, SECRET_TYPE, Work};
use crate::{
    Error,
    managed::{ensure_owner, plain_owner},
};

/// A resource of a set.
pub(super) struct Resource {
    pub(super) reference: ResourceReference,
    pub(super) hash: String,
    /// Only if some cluster lacks them.
    pub(super) objects: Option<Vec<Value>>,
}

/// Keys and values, decoded, in the order they count.
type Data = Vec<(String, Vec<u8>)>;

impl ResourceSets {
    /// Reads what is needed of the set's resources and makes the set an owner of all of them.
    pub(super) async fn load(
        &self,
        set: &ClusterResourceSet,
        strategy: Strategy,
        work: &mut Work,
    ) -> Vec<Resource> {
        let mut loaded = Vec::new();
        for reference in &set.spec.resources {
            match self.load_one(set, strategy, reference).await {
                Ok(Ok(resource)) => loaded.push(resource),
                Ok(Err(fault)) => work.faults.push(fault),
                Err(error) => {
                    work.faults.push(Fault::Unreadable {
                        kind: reference.kind.clone(),
                        name: reference.name.clone(),
                        why: Chain(&error).to_string(),
                    });
                    work.errors.push(error);
                }
            }
        }
        loaded
    }

    async fn load_one(
        &self,
        set: &ClusterResourceSet,
        strategy: Strategy,
        reference: &ResourceReference,
    ) -> Result<Result<Resource, Fault>, Error> {
        let namespace = set.namespace().unwrap_or_default();
        let key = ObjectKey::namespaced(&namespace, &reference.name);
        let missing = Fault::Missing { kind: reference.kind.clone(), name: reference.name.clone() };
        let (version, data) = if reference.kind == "Secret" {
            let secret = match self.secrets.get(&key) {
                Some(secret) => (*secret).clone(),
                None => match self.read::<Secret>(&namespace, &reference.name).await? {
                    Some(secret) => secret,
                    None => return Ok(Err(missing)),
                },
            };
            if secret.type_.as_deref() != Some(SECRET_TYPE) {
                return Ok(Err(Fault::WrongSecretType { name: reference.name.clone() }));
            }
            self.own::<Secret>(set, &secret.metadata).await?;
            (String::new(), Some(secret_data(secret)))
        } else {
            let Some(known) = self.config_maps.get(&key) else {
                self.hashes.lock().remove(&key);
                return Ok(Err(missing));
            };
            self.own::<ConfigMap>(set, &known.metadata).await?;
            (known.metadata.resource_version.clone().unwrap_or_default(), None)
        };
        if let Some(data) = data {
            return Ok(parse(reference, &data));
        }
        // Reading is spared where nothing follows from it.
        let known =
            self.hashes.lock().get(&key).filter(|known| known.0 == version).map(|known| known.1.clone());
        if let Some(hash) = known.or_else(|| (strategy == Strategy::ApplyOnce).then(String::new))
            && !self.wanted(set, strategy, reference, &hash)
        {
            return Ok(Ok(Resource { reference: reference.clone(), hash, objects: None }));
        }
        let Some(map) = self.read::<ConfigMap>(&namespace, &reference.name).await? else {
            return Ok(Err(missing));
        };
        let version = map.resource_version().unwrap_or_default();
        let data: Data = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes())).collect();
        let parsed = parse(reference, &data);
        if let Ok(resource) = &parsed {
            self.hashes.lock().insert(key, (version, resource.hash.clone()));
        }
        Ok(parsed)
    }

    /// Whether some cluster of the set lacks the resource.
    fn wanted(
        &self,
        set: &ClusterResourceSet,
        strategy: Strategy,
        reference: &ResourceReference,
        hash: &str,
    ) -> bool {
        self.clusters(set).iter().any(|cluster| {
            let binding = self.bindings.get(&ObjectKey::of(&cluster.metadata));
            let bound = binding.as_deref().and_then(|binding| super::binding::find(binding, set, reference));
            let bound = bound.map(|bound| Bound { hash: &bound.hash, applied: bound.applied == Some(true) });
            needs_apply(strategy, bound, hash)
        })
    }

    async fn read<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.capi.ctx.client.clone(), namespace);
        let what = format!("{} {namespace}/{name}", K::kind(&()));
        api.get_opt(name).await.map_err(Error::api("read", what))
    }

    /// Resources go with the last set that uses them, and move where it moves.
    async fn own<K>(&self, set: &ClusterResourceSet, meta: &ObjectMeta) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let mut owners = meta.owner_references.clone().unwrap_or_default();
        if !ensure_owner(&mut owners, plain_owner(set)) {
            return Ok(());
        }
        let (namespace, name) = (set.namespace().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let patch = json!({"metadata": {
            "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners,
        }});
        let params = PatchParams {
            field_manager: Some(self.capi.ctx.field_manager.to_string()),
            ..PatchParams::default()
        };
        let api: Api<K> = Api::namespaced(self.capi.ctx.client.clone(), &namespace);
        let what = format!("{} {namespace}/{name}", K::kind(&()));
        api.patch_metadata(&name, &params, &Patch::Merge(patch)).await.map_err(Error::api("own", what))?;
        Ok(())
    }
}

fn secret_data(secret: Secret) -> Data {
    secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect()
}

fn parse(reference: &ResourceReference, data: &Data) -> Result<Resource, Fault> {
    let parts = data.iter().map(|(key, bytes)| (key.as_str(), bytes.as_slice()));
    let objects = objects(parts).map_err(|why: BadManifest| Fault::Unusable {
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        why: why.to_string(),
    })?;
    Ok(Resource { reference: reference.clone(), hash: hash(data), objects: Some(objects) })
}

/// As upstream writes it into bindings: over the values, by key.
fn hash(data: &Data) -> String {
    let mut context = Context::new(&SHA256);
    for (_, bytes) in data {
        context.update(bytes);
    }
    format!("sha256:{}", remuda_base::hex(context.finish()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_the_one_upstream_writes() {
        let data = vec![("a".to_owned(), b"ab".to_vec()), ("b".to_owned(), b"c".to_vec())];
        // Of "abc": keys do not count, and values are joined.
        assert_eq!(
            super::hash(&data),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
