//! Admission by what others define: classes of storage, ingress and runtimes, and the limits of a namespace.

use remuda_objects::{limits, meta};
use remuda_store::ListQuery;
use serde_json::{Value, json};

use crate::{
    call::Call,
    read::store_error,
    server::Inner,
    status::{ApiError, ApiResult},
};

const STORAGE_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_DEFAULT: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

impl Inner {
    pub(crate) async fn all_of(&self, prefix: String) -> ApiResult<Vec<Value>> {
        let query = ListQuery { prefix, ..ListQuery::default() };
        let page = self.store.list(query).await.map_err(store_error)?;
        page.records.iter().map(|record| crate::convert::parse(record)).collect()
    }

    /// The class that is marked as the default; of several the youngest.
    async fn default_class(&self, prefix: &str, marks: &[&str]) -> ApiResult<Option<String>> {
        let mut classes = self.all_of(prefix.to_owned()).await?;
        classes.retain(|class| marks.iter().any(|mark| meta::annotation(class, mark) == Some("true")));
        let age = |class: &Value| meta::text(class, "creationTimestamp").to_owned();
        classes.sort_by(|a, b| age(b).cmp(&age(a)).then_with(|| meta::name(a).cmp(meta::name(b))));
        Ok(classes.first().map(|class| meta::name(class).to_owned()))
    }

    pub(crate) async fn set_storage_class(&self, claim: &mut Value) -> ApiResult<()> {
        let said = claim["spec"].get("storageClassName").is_some_and(|class| !class.is_null());
        if said || !claim["spec"].is_object() || meta::annotation(claim, STORAGE_CLASS).is_some() {
            return Ok(());
        }
        if let Some(class) = self.default_class("/storage.k8s.io/storageclasses/", &STORAGE_DEFAULT).await? {
            claim["spec"]["storageClassName"] = class.into();
        }
        Ok(())
    }

    pub(crate) async fn set_ingress_class(&self, ingress: &mut Value) -> ApiResult<()> {
        let said = ingress["spec"].get("ingressClassName").is_some_and(|class| !class.is_null());
        if said || !ingress["spec"].is_object() || meta::annotation(ingress, INGRESS_CLASS).is_some() {
            return Ok(());
        }
        let class = self.default_class("/networking.k8s.io/ingressclasses/", &INGRESS_DEFAULT).await?;
        if let Some(class) = class {
            ingress["spec"]["ingressClassName"] = class.into();
        }
        Ok(())
    }

    /// What the runtime of a Pod costs, and where it is.
    pub(crate) async fn set_runtime(&self, call: &Call, pod: &mut Value) -> ApiResult<()> {
        let refuse = |pod: &Value, detail: &str| {
            let detail = format!("pod rejected: {detail}");
            Err(ApiError::forbidden(call.named_as(meta::name(pod)), &detail))
        };
        let spec = &pod["spec"];
        let overhead = spec.get("overhead").filter(|overhead| !overhead.is_null()).cloned();
        let Some(name) = spec["runtimeClassName"].as_str().map(str::to_owned) else {
            return match overhead {
                Some(_) => {
                    refuse(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
                }
                None => Ok(()),
            };
        };
        // No name of an object: it must not become the key of another one.
        let class = if name.contains('/') {
            None
        } else {
            self.read_object(&format!("/node.k8s.io/runtimeclasses/{name}")).await?
        };
        let Some(class) = class else {
            return refuse(pod, &format!("RuntimeClass {name:?} not found"));
        };
        let fixed = class["overhead"].get("podFixed").filter(|fixed| !fixed.is_null());
        let amounts = |map: &Value| remuda_objects::compute::amounts(map);
        match (fixed, overhead) {
            (None, Some(_)) => {
                return refuse(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead");
            }
            (Some(fixed), Some(given)) if amounts(fixed) != amounts(&given) => {
                return refuse(pod, "Pod's Overhead doesn't match RuntimeClass's defined Overhead");
            }
            (Some(fixed), None) => pod["spec"]["overhead"] = fixed.clone(),
            _ => {}
        }
        for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
            match pod["spec"]["nodeSelector"].get(key) {
                Some(given) if given != value => {
                    let detail = format!(
                        "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                        value.as_str().unwrap_or_default(),
                        given.as_str().unwrap_or_default()
                    );
                    return refuse(pod, &detail);
                }
                _ => pod["spec"]["nodeSelector"][key] = value.clone(),
            }
        }
        for toleration in class["scheduling"]["tolerations"].as_array().into_iter().flatten() {
            if !pod["spec"]["tolerations"].is_array() {
                pod["spec"]["tolerations"] = json!([]);
            }
            if let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut()
                && !tolerations.contains(toleration)
            {
                tolerations.push(toleration.clone());
            }
        }
        Ok(())
    }

    async fn ranges(&self, call: &Call) -> ApiResult<Vec<Value>> {
        self.all_of(format!("/core/limitranges/{}/", call.namespace().unwrap_or_default())).await
    }

    /// What containers get that do not say what they need.
    pub(crate) async fn set_limits(&self, call: &Call, pod: &mut Value) -> ApiResult<()> {
        for range in self.ranges(call).await? {
            limits::default_pod(&range, pod);
        }
        Ok(())
    }

    /// Refuses what is outside the limits of its namespace.
    pub(crate) async fn check_limits(&self, call: &Call, new: &Value, live: Option<&Value>) -> ApiResult<()> {
        let resource = &*call.resource;
        let check = match (resource.group.as_str(), resource.kind.as_str(), call.subresource()) {
            ("", "Pod", "") if live.is_none() => limits::check_pod,
            ("", "Pod", "resize") => limits::check_pod,
            ("", "PersistentVolumeClaim", "") => limits::check_claim,
            _ => return Ok(()),
        };
        let mut errors = Vec::new();
        for range in self.ranges(call).await? {
            errors.extend(check(&range, new));
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::forbidden(call.named_as(meta::name(new)), &limits::joined(&errors)))
    }
}
