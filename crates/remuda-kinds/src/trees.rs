//! Schema trees of the built-in kinds, built once from the type table.
//!
//! Choices a caller should know:
//! - `Time` is a string with format `date-time`, `MicroTime` one with format `micro-time`.
//! - `Quantity` is a string with format `quantity`; JSON numbers are accepted by decoding and become strings.
//! - `bytes` is a string with format `byte`.
//! - `RawExtension`, `FieldsV1` and the recursive `JSONSchemaProps` are objects with `preserve_unknown`.
//! - Defaults are those of the published OpenAPI: they include Go's zero values (`""`, `{}`) of fields that are
//!   always written, besides the few real ones (`protocol: TCP`) that server-side apply needs for keys.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use remuda_schema::{Additional, ListType, Schema, Type};

use crate::table::{Field, Ty, TypeDef, TypeId, table, type_of};

static TREES: LazyLock<Vec<Arc<Schema>>> = LazyLock::new(|| Builder::new().build_all());

/// The schema tree of a built-in kind.
pub fn schema(group: &str, version: &str, kind: &str) -> Option<Arc<Schema>> {
    type_of(group, version, kind).map(|ty| Arc::clone(&TREES[ty.id.index()]))
}

/// The schema tree of `ObjectMeta`, which custom objects share.
pub fn object_meta() -> Arc<Schema> {
    let ty = table().find("meta/v1", "ObjectMeta").expect("the table has ObjectMeta");
    Arc::clone(&TREES[ty.id.index()])
}

enum Slot {
    Empty,
    Building,
    Done(Arc<Schema>),
}

struct Builder {
    slots: Vec<Slot>,
    string: Arc<Schema>,
}

impl Builder {
    fn new() -> Self {
        let slots = table().types().iter().map(|_| Slot::Empty).collect();
        Self { slots, string: Arc::new(scalar(Type::String, None)) }
    }

    fn build_all(mut self) -> Vec<Arc<Schema>> {
        table().types().iter().map(|ty| self.message(ty.id)).collect()
    }

    fn message(&mut self, id: TypeId) -> Arc<Schema> {
        match &self.slots[id.index()] {
            Slot::Done(schema) => return Arc::clone(schema),
            Slot::Building => return Arc::new(open_object()),
            Slot::Empty => self.slots[id.index()] = Slot::Building,
        }
        let ty = table().get(id);
        let schema =
            Arc::new(if ty.name == "JSONSchemaProps" { open_object() } else { self.struct_schema(ty) });
        self.slots[id.index()] = Slot::Done(Arc::clone(&schema));
        schema
    }

    fn struct_schema(&mut self, ty: &TypeDef) -> Schema {
        let mut properties = BTreeMap::new();
        let mut required = Vec::new();
        if ty.has_kind {
            properties.insert("apiVersion".to_owned(), Arc::clone(&self.string));
            properties.insert("kind".to_owned(), Arc::clone(&self.string));
        }
        for field in ty.json_fields() {
            properties.insert(field.name.to_owned(), self.field(field));
            if field.required {
                required.push(field.name.to_owned());
            }
        }
        Schema { kind: Type::Object, properties, required, atomic_map: ty.atomic, ..Schema::default() }
    }

    fn field(&mut self, field: &Field) -> Arc<Schema> {
        let base = self.ty(&field.ty);
        let list_type = field.list_type.clone().unwrap_or_default();
        let plain = list_type == ListType::Atomic
            && !field.atomic_map
            && !field.has_patch
            && field.default.is_none()
            && field.enumeration.is_empty();
        if plain {
            return base;
        }
        let mut schema = (*base).clone();
        schema.list_type = list_type;
        schema.atomic_map |= field.atomic_map;
        schema.patch = field.patch.clone();
        schema.default.clone_from(&field.default);
        Arc::new(schema)
    }

    fn ty(&mut self, ty: &Ty) -> Arc<Schema> {
        let schema = match ty {
            Ty::String => return Arc::clone(&self.string),
            Ty::Message(id) => return self.message(*id),
            Ty::Bool => scalar(Type::Boolean, None),
            Ty::Int32 => scalar(Type::Integer, Some("int32")),
            Ty::Int64 => scalar(Type::Integer, Some("int64")),
            Ty::Double => scalar(Type::Number, Some("double")),
            Ty::Bytes => scalar(Type::String, Some("byte")),
            Ty::Time => scalar(Type::String, Some("date-time")),
            Ty::MicroTime => scalar(Type::String, Some("micro-time")),
            Ty::Quantity => scalar(Type::String, Some("quantity")),
            Ty::IntOrString => Schema { int_or_string: true, ..Schema::default() },
            Ty::Fields | Ty::Raw => open_object(),
            Ty::Json | Ty::SchemaOrBool | Ty::SchemaOrArray | Ty::SchemaOrStrings => {
                Schema { preserve_unknown: true, ..Schema::default() }
            }
            Ty::Strings => list_of(Arc::clone(&self.string)),
            Ty::List(item) => list_of(self.ty(item)),
            Ty::Map(item) => Schema {
                kind: Type::Object,
                additional: Some(Additional::Schema(self.ty(item))),
                ..Schema::default()
            },
        };
        Arc::new(schema)
    }
}

fn scalar(kind: Type, format: Option<&str>) -> Schema {
    Schema { kind, format: format.map(str::to_owned), ..Schema::default() }
}

fn open_object() -> Schema {
    Schema { kind: Type::Object, preserve_unknown: true, ..Schema::default() }
}

fn list_of(item: Arc<Schema>) -> Schema {
    Schema { kind: Type::Array, items: Some(item), ..Schema::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows properties, list items and map values (`[]`) down a dotted path.
    fn at(gvk: (&str, &str), path: &str) -> Arc<Schema> {
        let mut node = schema(gvk.0, "v1", gvk.1).unwrap();
        for step in path.split('.') {
            let (name, item) = match step.strip_suffix("[]") {
                Some(name) => (name, true),
                None => (step, false),
            };
            let next =
                node.properties.get(name).unwrap_or_else(|| panic!("{gvk:?} {path}: no {name}")).clone();
            node = if item { next.items.clone().unwrap() } else { next };
        }
        node
    }

    const POD: (&str, &str) = ("", "Pod");
    const NODE: (&str, &str) = ("", "Node");

    #[track_caller]
    fn check(gvk: (&str, &str), path: &str, patch: &str, list: &str) {
        let node = at(gvk, path);
        let (strategies, key) = match patch.split_once('/') {
            Some((strategies, key)) => (strategies, Some(key.to_owned())),
            None => (patch, None),
        };
        let has = |name: &str| strategies.split(',').any(|strategy| strategy == name);
        assert_eq!(node.patch.merge, has("merge"), "{path} merge");
        assert_eq!(node.patch.retain_keys, has("retainKeys"), "{path} retainKeys");
        assert_eq!(node.patch.merge_key, key, "{path} key");
        let expected = match list {
            "atomic" => ListType::Atomic,
            "set" => ListType::Set,
            keys => ListType::Map(keys.split(',').map(str::to_owned).collect()),
        };
        assert_eq!(node.list_type, expected, "{path} list type");
    }

    #[test]
    fn lists_merge_and_are_owned_as_upstream_declares() {
        check(POD, "metadata.ownerReferences", "merge/uid", "uid");
        check(POD, "metadata.finalizers", "merge", "set");
        for field in
            ["containers", "initContainers", "ephemeralContainers", "imagePullSecrets", "schedulingGates"]
        {
            check(POD, &format!("spec.{field}"), "merge/name", "name");
        }
        check(POD, "spec.volumes", "merge,retainKeys/name", "name");
        check(POD, "spec.resourceClaims", "merge,retainKeys/name", "name");
        check(POD, "status.resourceClaimStatuses", "merge,retainKeys/name", "name");
        check(POD, "spec.hostAliases", "merge/ip", "ip");
        check(POD, "spec.topologySpreadConstraints", "merge/topologyKey", "topologyKey,whenUnsatisfiable");
        check(POD, "spec.tolerations", "", "atomic");
        check(POD, "spec.readinessGates", "", "atomic");
        for container in ["containers", "initContainers", "ephemeralContainers"] {
            let field = |name: &str| format!("spec.{container}[].{name}");
            check(POD, &field("env"), "merge/name", "name");
            check(POD, &field("ports"), "merge/containerPort", "containerPort,protocol");
            check(POD, &field("volumeMounts"), "merge/mountPath", "mountPath");
            check(POD, &field("volumeDevices"), "merge/devicePath", "devicePath");
            for atomic in ["command", "args", "envFrom"] {
                check(POD, &field(atomic), "", "atomic");
            }
            check(POD, &field("resources.claims"), "", "name");
        }
        check(POD, "status.conditions", "merge/type", "type");
        check(POD, "status.podIPs", "merge/ip", "ip");
        check(POD, "status.hostIPs", "merge/ip", "atomic");
        check(POD, "status.containerStatuses[].volumeMounts", "merge/mountPath", "mountPath");
        check(POD, "status.containerStatuses[].allocatedResourcesStatus", "merge/name", "name");
        check(("", "Service"), "spec.ports", "merge/port", "port,protocol");
        for (kind, path) in [("Service", "status.conditions"), ("Namespace", "status.conditions")] {
            check(("", kind), path, "merge/type", "type");
        }
        check(("", "PersistentVolumeClaim"), "status.conditions", "merge/type", "type");
        check(NODE, "status.conditions", "merge/type", "type");
        check(NODE, "status.addresses", "merge/type", "type");
        check(NODE, "spec.podCIDRs", "merge", "set");
        check(NODE, "spec.taints", "", "atomic");
        check(NODE, "status.images", "", "atomic");
        check(("", "ServiceAccount"), "secrets", "merge/name", "name");
        check(("", "ServiceAccount"), "imagePullSecrets", "", "atomic");
        for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
            check(("apps", kind), "status.conditions", "merge/type", "type");
        }
        check(("batch", "Job"), "status.conditions", "merge/type", "atomic");
        check(("batch", "Job"), "status.uncountedTerminatedPods.succeeded", "", "set");
        check(("apps", "Deployment"), "spec.strategy", "retainKeys", "atomic");
        for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
            let gvk = ("admissionregistration.k8s.io", kind);
            check(gvk, "webhooks", "merge/name", "name");
            check(gvk, "webhooks[].matchConditions", "merge/name", "name");
        }
        let pdb = ("policy", "PodDisruptionBudget");
        check(pdb, "status.conditions", "merge/type", "type");
        assert!(at(pdb, "spec.selector").patch.replace && at(pdb, "spec.selector").atomic_map);
        check(("apiregistration.k8s.io", "APIService"), "status.conditions", "merge/type", "type");
        check(("apiextensions.k8s.io", "CustomResourceDefinition"), "status.conditions", "", "type");
        check(("apiextensions.k8s.io", "CustomResourceDefinition"), "spec.versions", "", "atomic");
        check(("certificates.k8s.io", "CertificateSigningRequest"), "status.conditions", "", "type");
        check(("storage.k8s.io", "CSINode"), "spec.drivers", "merge/name", "name");
        check(("discovery.k8s.io", "EndpointSlice"), "endpoints[].addresses", "", "set");
        check(("rbac.authorization.k8s.io", "ClusterRole"), "rules", "", "atomic");
        check(("rbac.authorization.k8s.io", "RoleBinding"), "subjects", "", "atomic");
    }

    #[test]
    fn container_port_keys_have_their_default() {
        let protocol = at(POD, "spec.containers[].ports[].protocol");
        assert_eq!(protocol.default, Some("TCP".into()));
        assert_eq!(at(("", "Service"), "spec.ports[].protocol").default, Some("TCP".into()));
    }

    #[test]
    fn reference_structs_are_atomic_and_data_maps_are_not() {
        for name in [
            "NodeSelector",
            "NodeSelectorTerm",
            "LocalObjectReference",
            "ObjectReference",
            "TypedLocalObjectReference",
            "ConfigMapKeySelector",
            "SecretKeySelector",
            "ObjectFieldSelector",
            "ResourceFieldSelector",
            "FileKeySelector",
            "EndpointAddress",
            "EndpointPort",
            "ScopeSelector",
            "TopologySelectorTerm",
        ] {
            assert!(table().find("core/v1", name).unwrap().atomic, "{name}");
        }
        for (package, name) in [
            ("meta/v1", "LabelSelector"),
            ("meta/v1", "OwnerReference"),
            ("rbac/v1", "RoleRef"),
            ("rbac/v1", "Subject"),
            ("networking/v1", "ServiceBackendPort"),
        ] {
            assert!(table().find(package, name).unwrap().atomic, "{name}");
        }
        for field in ["data", "stringData"] {
            assert!(!at(("", "Secret"), field).atomic_map);
        }
        assert!(!at(("", "ConfigMap"), "binaryData").atomic_map);
        assert!(at(("apps", "Deployment"), "spec.selector").atomic_map);
    }

    #[test]
    fn special_types_have_their_documented_form() {
        assert!(at(("", "Service"), "spec.ports[].targetPort").int_or_string);
        assert_eq!(at(POD, "metadata.creationTimestamp").format.as_deref(), Some("date-time"));
        assert_eq!(
            at(("coordination.k8s.io", "Lease"), "spec.renewTime").format.as_deref(),
            Some("micro-time")
        );
        let crd = ("apiextensions.k8s.io", "CustomResourceDefinition");
        assert!(at(crd, "spec.versions[].schema.openAPIV3Schema").preserve_unknown);
        assert!(at(("apps", "ControllerRevision"), "data").preserve_unknown);
        assert!(at(POD, "metadata.managedFields[].fieldsV1").preserve_unknown);
        assert!(object_meta().properties.contains_key("generateName"));
    }
}
