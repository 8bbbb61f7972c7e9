//! Templates of machines: what of a driver's configuration reaches machines, and when it is another template.
//!
//! A template is named after its content, so other content is another template and replaces the machines of the
//! pool. Only content that means something else counts: the order of fields, fields that are empty, and fields that
//! say what the driver assumes anyway do not.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use remuda_api::{
    core::ContractReference,
    management::{DynamicSchemaSpec, SchemaDefault, SchemaField},
    provisioning::{Cluster, MachinePool},
};
use remuda_control::{Kind, ObjectKey};
use remuda_names::rancher::{annotation, group, label};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::update::{self, Census, Pending};
use crate::{Error, naming, object_set::Child};

/// Version of the kinds of drivers.
const VERSION: &str = "v1";
/// Field of a template that may change without another template.
const COMMON: &str = "common";

/// A kind of a driver.
pub(super) fn resource(group: &str, kind: &str) -> ApiResource {
    let plural = format!("{}s", kind.to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, VERSION, kind), &plural)
}

/// The kind of the configuration of a pool, unless it refers to a template of another provider.
pub(super) fn config_kind(pool: &MachinePool) -> Option<&str> {
    let reference = pool.machine_config_ref.as_ref()?;
    let version = reference.api_version.as_deref().unwrap_or_default();
    let ours = version.is_empty() || version == config_version();
    reference.kind.as_deref().filter(|kind| ours && !kind.is_empty())
}

pub(super) fn config_version() -> String {
    format!("{}/{VERSION}", group::MACHINE_CONFIG)
}

/// The kind of templates for a kind of configurations.
pub(super) fn template_kind(config: &str) -> String {
    format!("{}MachineTemplate", config.strip_suffix("Config").unwrap_or(config))
}

/// The DynamicSchema that tells what is in a kind of configurations.
pub(super) fn schema_name(config: &str) -> String {
    config.to_lowercase()
}

/// What of a configuration reaches machines: what the driver knew when the pool was made.
pub(super) fn fields(config: &Value, schema: &DynamicSchemaSpec) -> Map<String, Value> {
    let all = config.as_object().into_iter().flatten();
    let known = all.filter(|(key, _)| schema.resource_fields.contains_key(*key));
    known.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Tells contents apart that machines are made from.
pub(super) fn hash(deployment: &str, fields: &Map<String, Value>) -> String {
    let kept: BTreeMap<&String, &Value> =
        fields.iter().filter(|(key, value)| *key != COMMON && !is_empty(value)).collect();
    // Such a map always has a text.
    let text = serde_json::to_string(&kept).unwrap_or_default();
    let mut hasher = Sha256::new();
    hasher.update(deployment);
    hasher.update(escape_html(&text));
    let digest = hasher.finalize();
    remuda_base::hex(&digest[..4])
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// JSON as Go writes it.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// The fields in which machines made from one would not be like machines made from the other.
pub(super) fn differences(
    one: &Map<String, Value>,
    other: &Map<String, Value>,
    schema: &DynamicSchemaSpec,
) -> Vec<String> {
    let keys: BTreeSet<&String> = one.keys().chain(other.keys()).filter(|key| *key != COMMON).collect();
    let meaning = |fields: &Map<String, Value>, key: &String| {
        let given = fields.get(key).filter(|value| !is_empty(value)).cloned();
        let meant = given.unwrap_or_else(|| schema.resource_fields.get(key).map_or(Value::Null, default));
        // What is absent is not, or none, or nothing.
        if meant == false || meant == 0 || is_empty(&meant) { Value::Null } else { meant }
    };
    keys.into_iter().filter(|key| meaning(one, key) != meaning(other, key)).cloned().collect()
}

fn default(field: &SchemaField) -> Value {
    let SchemaDefault { string_value, int_value, bool_value, string_slice_value } = &field.default;
    match field.kind.as_str() {
        "int" => json!(int_value),
        "boolean" => json!(bool_value),
        "array[string]" => json!(string_slice_value),
        _ => json!(string_value),
    }
}

/// What a template is made from.
pub(super) struct Source<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) pool: &'a MachinePool,
    /// Name of the MachineDeployment.
    pub(super) deployment: &'a str,
    pub(super) config: &'a DynamicObject,
    pub(super) config_kind: &'a str,
    pub(super) schema: &'a DynamicSchemaSpec,
    /// The template machines of the pool are made from so far.
    pub(super) current: Option<&'a DynamicObject>,
    pub(super) census: Census,
}

/// A template for the machines of a pool.
pub(super) struct Stamped {
    pub(super) child: Child,
    pub(super) reference: ContractReference,
    /// Why it is not what the configuration says.
    pub(super) pending: Option<Pending>,
}

/// Name, hash and content of a template.
type Named = (String, String, Map<String, Value>);

impl Source<'_> {
    pub(super) fn template(&self) -> Result<Stamped, Error> {
        let resource = resource(group::MACHINE, &template_kind(self.config_kind));
        let namespace = self.cluster.namespace().unwrap_or_default();
        let wanted = fields(&self.config.data, self.schema);
        let ((name, hash, mut spec), pending) = match self.kept(&wanted) {
            Some(kept) => kept,
            None => {
                let hash = hash(self.deployment, &wanted);
                ((naming::safe_concat_name(&[self.deployment, &hash]), hash, wanted), None)
            }
        };
        let common = self.common()?;
        if !common.is_empty() {
            spec.insert(COMMON.to_owned(), Value::Object(common));
        }
        let cluster = self.cluster.name_any();
        let value = json!({
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    label::CLUSTER_NAME: cluster,
                    // Machines of a former template may still be being made from it.
                    label::PRUNE: "false",
                    label::MACHINE_TEMPLATE_HASH: hash,
                },
                "annotations": {
                    annotation::CLONED_FROM_GROUP_VERSION: config_version(),
                    annotation::CLONED_FROM_KIND: self.config_kind,
                    annotation::CLONED_FROM_NAME: self.config.name_any(),
                },
            },
            "spec": {"clusterName": cluster, "template": {"spec": spec}},
        });
        let reference = ContractReference {
            api_group: resource.group.clone(),
            kind: resource.kind.clone(),
            name: name.clone(),
        };
        let kind = Kind::of::<DynamicObject>(&resource);
        let child = Child { kind, key: ObjectKey::namespaced(namespace, name), value };
        Ok(Stamped { child, reference, pending })
    }

    /// The current template, if it will do, or has to.
    fn kept(&self, wanted: &Map<String, Value>) -> Option<(Named, Option<Pending>)> {
        let current = self.current.filter(|current| current.metadata.deletion_timestamp.is_none())?;
        let mut content = current.data.pointer("/spec/template/spec")?.as_object()?.clone();
        content.remove(COMMON);
        let hash = current.labels().get(label::MACHINE_TEMPLATE_HASH)?.clone();
        let named = (current.name_any(), hash, content);
        let fields = differences(&named.2, wanted, self.schema);
        if fields.is_empty() {
            return Some((named, None));
        }
        let (config, kind) = (self.config, self.config_kind);
        let pending = update::held(self.cluster, self.pool, config, kind, current, self.census, fields)?;
        Some((named, Some(pending)))
    }

    fn common(&self) -> Result<Map<String, Value>, Error> {
        let mut common = Map::new();
        let encode = |source| Error::Encode { what: "taints of a pool", source };
        if !self.pool.labels.is_empty() {
            common.insert("labels".to_owned(), json!(self.pool.labels));
        }
        if !self.pool.taints.is_empty() {
            let taints = serde_json::to_value(&self.pool.taints).map_err(encode)?;
            common.insert("taints".to_owned(), taints);
        }
        let credential = credential(self.cluster, self.pool);
        if !credential.is_empty() {
            common.insert("cloudCredentialSecretName".to_owned(), credential.into());
        }
        Ok(common)
    }
}

/// The credential of a pool: its own, else that of the cluster.
pub(super) fn credential<'a>(cluster: &'a Cluster, pool: &'a MachinePool) -> &'a str {
    match pool.cloud_credential_secret_name.as_str() {
        "" => &cluster.spec.cloud_credential_secret_name,
        own => own,
    }
}

#[cfg(test)]
mod tests;
