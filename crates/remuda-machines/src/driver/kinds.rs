//! The three kinds of a driver, from the fields of its schema.

use std::collections::BTreeMap;

use kube::core::{ApiResource, GroupVersionKind};
use remuda_api::management::SchemaField;
use remuda_names::driver::facts;
use remuda_names::{
    capi::label as contract,
    machines,
    rancher::{group, label},
};
use serde_json::{Map, Value, json};

/// What a driver's kinds begin with: its name with a capital.
pub(crate) fn prefix(driver: &str) -> String {
    let mut letters = driver.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// The driver of a machine's kind: `DigitaloceanMachine` is of `digitalocean`.
pub(crate) fn driver_of(kind: &str) -> Option<String> {
    let driver = kind.strip_suffix("Machine")?.to_lowercase();
    (!driver.is_empty() && driver != "custom").then_some(driver)
}

/// One of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Config,
    Machine,
    Template,
}

pub(crate) const ROLES: [Role; 3] = [Role::Config, Role::Machine, Role::Template];

impl Role {
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Config => group::MACHINE_CONFIG,
            Self::Machine | Self::Template => group::MACHINE,
        }
    }

    pub(crate) fn kind(self, driver: &str) -> String {
        let suffix = match self {
            Self::Config => "Config",
            Self::Machine => "Machine",
            Self::Template => "MachineTemplate",
        };
        format!("{}{suffix}", prefix(driver))
    }

    pub(crate) fn plural(self, driver: &str) -> String {
        format!("{}s", self.kind(driver).to_lowercase())
    }

    pub(crate) fn crd_name(self, driver: &str) -> String {
        format!("{}.{}", self.plural(driver), self.group())
    }

    pub(crate) fn resource(self, driver: &str) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group(), "v1", &self.kind(driver));
        ApiResource::from_gvk_with_plural(&kind, &self.plural(driver))
    }

    /// Where the driver's fields are in the schema.
    pub(crate) fn fields_at(self) -> &'static str {
        match self {
            Self::Config => "/properties",
            Self::Machine => "/properties/spec/properties",
            Self::Template => "/properties/spec/properties/template/properties/spec/properties",
        }
    }
}

/// The definition of one of a driver's kinds.
///
/// `before` is the one there is, if objects of it may exist: fields the driver no longer has stay in the schema,
/// or the API server would drop what objects say in them.
pub(crate) fn definition(
    role: Role,
    driver: &str,
    fields: &BTreeMap<String, SchemaField>,
    before: Option<&Value>,
) -> Value {
    let kind = role.kind(driver);
    let mut schema = match role {
        Role::Config => config(driver, fields),
        Role::Machine => machine(driver, fields),
        Role::Template => template(driver, fields),
    };
    if let Some(old) = before.and_then(old_schema)
        && let Some(old) = old.pointer(role.fields_at()).and_then(Value::as_object)
        && let Some(new) = schema.pointer_mut(role.fields_at()).and_then(Value::as_object_mut)
    {
        for (name, field) in old.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str())) {
            new.entry(name.clone()).or_insert_with(|| field.clone());
        }
    }
    let mut version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns(role),
    });
    if role == Role::Machine {
        version["subresources"] = json!({"status": {}});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": role.crd_name(driver),
            "labels": {
                (contract::CONTRACT_V1BETA1): "v1",
                (contract::CONTRACT_V1BETA2): "v1",
                (label::CLUSTER_INDEXED): "true",
                (machines::label::DRIVER): driver,
            },
        },
        "spec": {
            "group": role.group(),
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": role.plural(driver),
                "singular": kind.to_lowercase(),
            },
            "versions": [version],
        },
    })
}

fn old_schema(definition: &Value) -> Option<&Value> {
    definition.pointer("/spec/versions/0/schema/openAPIV3Schema")
}

/// Properties that are not fields of a driver.
const RESERVED: &[&str] = &["apiVersion", "kind", "metadata", "status", "common", "providerID"];

fn columns(role: Role) -> Value {
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    match role {
        Role::Machine => json!([
            {"name": "Machine", "type": "string", "jsonPath": ".metadata.labels.rke\\.cattle\\.io/capi-machine-name"},
            {"name": "ProviderID", "type": "string", "jsonPath": ".spec.providerID"},
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
            {"name": "Message", "type": "string", "priority": 1,
             "jsonPath": ".status.conditions[?(@.type=='Ready')].message"},
            age,
        ]),
        Role::Config | Role::Template => json!([age]),
    }
}

fn property(field: &SchemaField, with_default: bool) -> Value {
    let default = &field.default;
    let mut property = match field.kind.as_str() {
        "boolean" => json!({"type": "boolean"}),
        "int" => json!({"type": "integer", "nullable": true}),
        "array[string]" => {
            json!({"type": "array", "nullable": true, "items": {"type": "string", "nullable": true}})
        }
        _ => json!({"type": "string", "nullable": true}),
    };
    if !field.description.is_empty() {
        property["description"] = field.description.clone().into();
    }
    if !field.options.is_empty() {
        let mut options = field.options.clone();
        if !options.iter().any(String::is_empty) {
            options.push(String::new());
        }
        property["enum"] = options.into();
    }
    if with_default {
        match field.kind.as_str() {
            "boolean" => property["default"] = default.bool_value.into(),
            "int" => property["default"] = default.int_value.into(),
            "array[string]" if default.string_slice_value.is_empty() => {}
            "array[string]" => property["default"] = default.string_slice_value.clone().into(),
            _ => property["default"] = default.string_value.clone().into(),
        }
    }
    property
}

fn properties(fields: &BTreeMap<String, SchemaField>, with_defaults: bool) -> Map<String, Value> {
    fields.iter().map(|(name, field)| (name.clone(), property(field, with_defaults))).collect()
}

fn required(fields: &BTreeMap<String, SchemaField>) -> Option<Value> {
    let names: Vec<&str> =
        fields.iter().filter(|(_, field)| field.required).map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| names.into())
}

fn object(description: String, properties: Map<String, Value>, required: Option<Value>) -> Value {
    let mut object = json!({"type": "object", "description": description, "properties": properties});
    if let Some(required) = required {
        object["required"] = required;
    }
    object
}

fn root(description: String, mut properties: Map<String, Value>) -> Value {
    for name in ["apiVersion", "kind"] {
        properties.insert(name.to_owned(), json!({"type": "string"}));
    }
    properties.insert("metadata".to_owned(), json!({"type": "object"}));
    object(description, properties, None)
}

fn config(driver: &str, fields: &BTreeMap<String, SchemaField>) -> Value {
    let mut properties = properties(fields, true);
    if facts(driver).chooses_system {
        let os =
            json!({"type": "string", "nullable": true, "description": "Operating system: linux or windows"});
        properties.insert("os".to_owned(), os);
    }
    root(format!("What driver {driver} is to make: the settings of the machines of a pool."), properties)
}

/// The spec of a machine: the driver's fields and what all drivers have.
fn spec(driver: &str, fields: &BTreeMap<String, SchemaField>) -> Value {
    let mut properties = properties(fields, false);
    properties.insert("common".to_owned(), common());
    let description = "Identifies the server at its provider; known once the node has joined";
    properties.insert(
        "providerID".to_owned(),
        json!({"type": "string", "nullable": true, "description": description}),
    );
    object(format!("What driver {driver} is to make."), properties, required(fields))
}

fn common() -> Value {
    json!({
        "type": "object",
        "nullable": true,
        "description": "What all drivers have",
        "properties": {
            "cloudCredentialSecretName": {
                "type": "string", "nullable": true,
                "description": "Secret with the credentials for the provider: cattle-global-data:NAME, or the \
                                name of one in this namespace",
            },
            "labels": {
                "type": "object", "nullable": true, "additionalProperties": {"type": "string", "nullable": true},
                "description": "Labels of the node",
            },
            "taints": {
                "type": "array", "nullable": true,
                "description": "Taints of the node",
                "items": {
                    "type": "object",
                    "properties": {
                        "effect": text("What it does to Pods: NoSchedule, PreferNoSchedule or NoExecute"),
                        "key": text("Key of the taint"),
                        "timeAdded": text("When it was added"),
                        "value": text("Value of the taint"),
                    },
                },
            },
        },
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "nullable": true, "description": description})
}

fn machine(driver: &str, fields: &BTreeMap<String, SchemaField>) -> Value {
    let properties =
        Map::from_iter([("spec".to_owned(), spec(driver, fields)), ("status".to_owned(), status())]);
    root(format!("A server that driver {driver} makes, watches and removes."), properties)
}

fn template(driver: &str, fields: &BTreeMap<String, SchemaField>) -> Value {
    let template = json!({
        "type": "object",
        "description": "What each machine is made from",
        "properties": {
            "metadata": {
                "type": "object",
                "description": "What each machine has beside its name",
                "properties": {
                    "annotations": {
                        "type": "object", "additionalProperties": {"type": "string"},
                        "description": "Annotations of the machines",
                    },
                    "labels": {
                        "type": "object", "additionalProperties": {"type": "string"},
                        "description": "Labels of the machines",
                    },
                },
            },
            "spec": spec(driver, fields),
        },
    });
    let spec = json!({
        "type": "object",
        "description": "Which cluster the machines are for, and what each is",
        "properties": {
            "clusterName": {"type": "string", "nullable": true, "description": "Cluster the machines are for"},
            "template": template,
        },
    });
    root(
        format!("What the machines of a pool are made from by driver {driver}."),
        Map::from_iter([("spec".to_owned(), spec)]),
    )
}

fn status() -> Value {
    json!({
        "type": "object",
        "description": "What became of the server",
        "properties": {
            "addresses": {
                "type": "array", "nullable": true,
                "description": "Addresses of the server",
                "items": {
                    "type": "object",
                    "properties": {
                        "address": text("The address"),
                        "type": text("What it is, such as InternalIP or Hostname"),
                    },
                },
            },
            "cloudCredentialSecretName": text("Credential the server was made with, and is removed with"),
            "conditions": {
                "type": "array", "nullable": true,
                "description": "Conditions by type",
                "items": {
                    "type": "object",
                    "properties": {
                        "lastTransitionTime": text("When the status last changed"),
                        "lastUpdateTime": text("When it was last written"),
                        "message": text("What is said for people"),
                        "reason": text("What is said for programs, in one word"),
                        "status": text("True, False or Unknown"),
                        "type": text("Type of the condition"),
                    },
                },
            },
            "driverHash": text("Checksum of the driver's program"),
            "driverUrl": text("Where the driver's program came from"),
            "failureClass": text("What kind of failure it was: quota, credentials, image, network, timeout, driver-crash or other"),
            "failureMessage": text("Why the server could not be made or removed"),
            "failureReason": text("CreateError or DeleteError"),
            "initialization": {
                "type": "object",
                "description": "How far the server is, as Cluster API asks for it",
                "properties": {"provisioned": {"type": "boolean", "description": "The server exists"}},
            },
            "jobName": text("Job that makes or removes the server"),
            "ready": {"type": "boolean", "description": "The server exists"},
        },
    })
}

#[cfg(test)]
mod tests;
