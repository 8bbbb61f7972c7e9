//! The environment of a container.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, ObjectFieldSelector, Pod, Secret};
use kube::{Api, Client, ResourceExt};

/// Why there is no environment yet.
pub type Problem = String;

/// What the environment is made from.
pub struct Source<'a> {
    pub client: &'a Client,
    pub pod: &'a Pod,
    pub address: IpAddr,
}

impl Source<'_> {
    async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, Problem> {
        let api: Api<ConfigMap> =
            Api::namespaced(self.client.clone(), &self.pod.namespace().unwrap_or_default());
        api.get_opt(name).await.map_err(|error| format!("configmap {name:?}: {error}"))
    }

    async fn secret(&self, name: &str) -> Result<Option<Secret>, Problem> {
        let api: Api<Secret> =
            Api::namespaced(self.client.clone(), &self.pod.namespace().unwrap_or_default());
        api.get_opt(name).await.map_err(|error| format!("secret {name:?}: {error}"))
    }

    async fn config_key(&self, name: &str, key: &str, optional: bool) -> Result<Option<String>, Problem> {
        let found = self.config_map(name).await?;
        let value = found.as_ref().and_then(|map| map.data.as_ref()?.get(key).cloned());
        missing(value, optional, found.is_some(), "configmap", name, key)
    }

    async fn secret_key(&self, name: &str, key: &str, optional: bool) -> Result<Option<String>, Problem> {
        let found = self.secret(name).await?;
        let value = found.as_ref().and_then(|secret| secret.data.as_ref()?.get(key));
        let value = value.map(|value| String::from_utf8_lossy(&value.0).into_owned());
        missing(value, optional, found.is_some(), "secret", name, key)
    }

    async fn value(&self, source: &EnvVarSource) -> Result<Option<String>, Problem> {
        if let Some(key) = &source.secret_key_ref {
            return self.secret_key(&key.name, &key.key, key.optional.unwrap_or(false)).await;
        }
        if let Some(key) = &source.config_map_key_ref {
            return self.config_key(&key.name, &key.key, key.optional.unwrap_or(false)).await;
        }
        if let Some(field) = &source.field_ref {
            return field_value(self.pod, self.address, field).map(Some);
        }
        // Pods have no limits here.
        Ok(source.resource_field_ref.as_ref().map(|_| "0".to_owned()))
    }

    /// Everything the container says, after what everybody gets.
    pub async fn build(
        &self,
        container: &Container,
        base: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Problem> {
        let mut env = base;
        for from in container.env_from.iter().flatten() {
            let prefix = from.prefix.as_deref().unwrap_or_default();
            if let Some(reference) = &from.config_map_ref {
                match self.config_map(&reference.name).await? {
                    Some(map) => {
                        let data = map.data.unwrap_or_default().into_iter();
                        env.extend(data.map(|(key, value)| (format!("{prefix}{key}"), value)));
                    }
                    None if reference.optional == Some(true) => {}
                    None => return Err(format!("configmap {:?} not found", reference.name)),
                }
            }
            if let Some(reference) = &from.secret_ref {
                match self.secret(&reference.name).await? {
                    Some(secret) => {
                        let data = secret.data.unwrap_or_default().into_iter();
                        let text =
                            |value: k8s_openapi::ByteString| String::from_utf8_lossy(&value.0).into_owned();
                        env.extend(data.map(|(key, value)| (format!("{prefix}{key}"), text(value))));
                    }
                    None if reference.optional == Some(true) => {}
                    None => return Err(format!("secret {:?} not found", reference.name)),
                }
            }
        }
        for variable in container.env.iter().flatten() {
            let value = match (&variable.value, &variable.value_from) {
                (Some(value), _) => Some(expand(value, &env)),
                (None, Some(source)) => self.value(source).await?,
                (None, None) => Some(String::new()),
            };
            if let Some(value) = value {
                env.insert(variable.name.clone(), value);
            }
        }
        // What cannot be in an environment is left out of it.
        env.retain(|name, value| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
        Ok(env)
    }
}

fn missing(
    value: Option<String>,
    optional: bool,
    found: bool,
    kind: &str,
    name: &str,
    key: &str,
) -> Result<Option<String>, Problem> {
    match value {
        Some(value) => Ok(Some(value)),
        None if optional => Ok(None),
        None if found => Err(format!("couldn't find key {key} in {kind} {name}")),
        None => Err(format!("{kind} {name:?} not found")),
    }
}

/// A field of the Pod, by its path.
pub fn field_value(pod: &Pod, address: IpAddr, field: &ObjectFieldSelector) -> Result<String, Problem> {
    let path = field.field_path.as_str();
    let quoted =
        |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']").map(str::to_owned);
    if let Some(key) = quoted("metadata.labels") {
        return Ok(pod.labels().get(&key).cloned().unwrap_or_default());
    }
    if let Some(key) = quoted("metadata.annotations") {
        return Ok(pod.annotations().get(&key).cloned().unwrap_or_default());
    }
    let spec = pod.spec.as_ref();
    let lines = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
    };
    Ok(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "metadata.labels" => lines(pod.labels()),
        "metadata.annotations" => lines(pod.annotations()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => {
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()
        }
        "status.hostIP" | "status.podIP" | "status.hostIPs" | "status.podIPs" => address.to_string(),
        _ => return Err(format!("fieldPath {path:?} is not supported")),
    })
}

/// Replaces `$(NAME)` by what is known; `$$` is a dollar sign.
pub fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        result.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match env.get(name) {
                Some(value) => result.push_str(value),
                None => {
                    result.push_str("$(");
                    result.push_str(name);
                    result.push(')');
                }
            }
            rest = after;
        } else {
            result.push('$');
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_replaced_where_they_are_known() {
        let env = [("A".to_owned(), "1".to_owned())].into();
        for (text, expected) in
            [("$(A)-$(B)", "1-$(B)"), ("$$(A)", "$(A)"), ("cost: $5", "cost: $5"), ("$(A", "$(A"), ("$", "$")]
        {
            assert_eq!(expand(text, &env), expected);
        }
    }

    #[test]
    fn fields_of_the_pod_are_found() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"a/b": "c"}}, "spec": {"containers": [], "nodeName": "x"},
        }))
        .unwrap();
        let get = |path: &str| {
            let field = ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
            field_value(&pod, [10, 0, 0, 1].into(), &field)
        };
        assert_eq!(get("metadata.labels['a/b']"), Ok("c".to_owned()));
        assert_eq!(get("spec.nodeName"), Ok("x".to_owned()));
        assert_eq!(get("status.hostIP"), Ok("10.0.0.1".to_owned()));
        assert!(get("spec.containers").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_text_breaks_expansion(text in "\\PC{0,80}") {
            let _ = expand(&text, &BTreeMap::new());
        }
    }
}
