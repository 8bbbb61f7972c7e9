//! Claims and volumes in use stay until they are not: a finalizer is put on each new one, and taken off one that is to go
//! when no Pod on a node uses the claim, or no claim has the volume.

use remuda_auth::request_info::Verb;
use remuda_objects::meta;
use serde_json::{Value, json};

use crate::{server::Inner, status::ApiResult};

pub(crate) const OF_CLAIMS: &str = "kubernetes.io/pvc-protection";
pub(crate) const OF_VOLUMES: &str = "kubernetes.io/pv-protection";

/// Puts a finalizer on a new object.
pub(crate) fn protect(object: &mut Value, finalizer: &str) {
    if meta::finalizers(object).any(|known| known == finalizer) {
        return;
    }
    match object["metadata"]["finalizers"].as_array_mut() {
        Some(known) => known.push(finalizer.into()),
        None => object["metadata"]["finalizers"] = json!([finalizer]),
    }
}

/// Whether a Pod keeps a claim. One that is on no node yet is not started with a claim that goes.
fn uses(pod: &Value, claim: &str) -> bool {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut named = volumes.map(|volume| match volume.get("ephemeral").filter(|given| !given.is_null()) {
        Some(_) => format!("{}-{}", meta::name(pod), volume["name"].as_str().unwrap_or_default()),
        None => volume["persistentVolumeClaim"]["claimName"].as_str().unwrap_or_default().to_owned(),
    });
    pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) && named.any(|name| name == claim)
}

impl Inner {
    /// Lets a claim go that nothing uses any more.
    pub(super) async fn release_claim(&self, key: &str) -> ApiResult<()> {
        let Some(claim) = self.held(key, OF_CLAIMS).await? else { return Ok(()) };
        let (namespace, name) = (meta::namespace(&claim), meta::name(&claim));
        let pods = self.all_of(format!("/core/pods/{namespace}/")).await?;
        if pods.iter().any(|pod| uses(pod, name)) {
            return Ok(());
        }
        self.release("persistentvolumeclaims", Some(namespace), name, OF_CLAIMS).await
    }

    /// Lets a volume go that no claim has.
    pub(super) async fn release_volume(&self, key: &str) -> ApiResult<()> {
        let Some(volume) = self.held(key, OF_VOLUMES).await? else { return Ok(()) };
        if volume["status"]["phase"] == "Bound" {
            return Ok(());
        }
        self.release("persistentvolumes", None, meta::name(&volume), OF_VOLUMES).await
    }

    /// An object that is to go and has the finalizer.
    async fn held(&self, key: &str, finalizer: &str) -> ApiResult<Option<Value>> {
        let object = self.read_object(key).await?;
        let is_held = |object: &Value| {
            meta::is_deleting(object) && meta::finalizers(object).any(|known| known == finalizer)
        };
        Ok(object.filter(is_held))
    }

    async fn release(
        &self,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
        finalizer: &str,
    ) -> ApiResult<()> {
        let call = self.own_call("", plural, Verb::Update, namespace, Some(name))?;
        let released = self.change(&call, |object| {
            if let Some(known) = object["metadata"]["finalizers"].as_array_mut() {
                known.retain(|known| known != finalizer);
            }
            Ok(())
        });
        match released.await {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_on_nodes_use_their_claims() {
        let pod = |node: Value, volume: Value| {
            json!({
                "metadata": {"name": "web"}, "spec": {"nodeName": node, "volumes": [volume]},
            })
        };
        let claim = || json!({"name": "data", "persistentVolumeClaim": {"claimName": "a"}});
        assert!(uses(&pod("n".into(), claim()), "a"));
        assert!(!uses(&pod("n".into(), claim()), "b"));
        assert!(!uses(&pod(Value::Null, claim()), "a"));
        assert!(uses(&pod("n".into(), json!({"name": "data", "ephemeral": {}})), "web-data"));
        assert!(!uses(&json!({}), ""));
    }
}
