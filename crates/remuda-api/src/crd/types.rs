//! What the types say of themselves, in the form of a schema.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{addons, clusterctl, core, ipam, management, provisioning, quota, rke};

/// A field of a type, references followed and absence left out.
#[derive(Debug, Clone)]
pub(super) struct Shape<'a> {
    schema: &'a Value,
    definitions: &'a Map<String, Value>,
    /// Whether the type is one of Kubernetes' own.
    pub(super) foreign: bool,
}

impl<'a> Shape<'a> {
    fn new(schema: &'a Value, definitions: &'a Map<String, Value>) -> Self {
        let mut shape = Shape { schema, definitions, foreign: false };
        loop {
            let absent = |schema: &&Value| schema["type"] != "null";
            let choices = shape.schema["anyOf"].as_array().or(shape.schema["allOf"].as_array());
            if let Some(name) = shape.schema["$ref"].as_str() {
                let name = name.rsplit('/').next().unwrap();
                shape.foreign |= name.starts_with("io.k8s");
                shape.schema = &definitions[name];
            } else if let Some(choices) = choices.filter(|_| !shape.has("x-kubernetes-int-or-string")) {
                shape.schema = choices.iter().find(absent).unwrap();
            } else {
                return shape;
            }
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.schema.get(key).is_some()
    }

    /// Nothing is known of it.
    pub(super) fn is_anything(&self) -> bool {
        *self.schema == Value::Bool(true) || !["type", "properties", "anyOf"].iter().any(|key| self.has(key))
    }

    pub(super) fn kind(&self) -> &'a str {
        let kinds = &self.schema["type"];
        let mut several = kinds.as_array().into_iter().flatten().filter_map(Value::as_str);
        kinds.as_str().or_else(|| several.find(|kind| *kind != "null")).unwrap_or("object")
    }

    pub(super) fn format(&self) -> &'a str {
        self.schema["format"].as_str().unwrap_or_default()
    }

    pub(super) fn description(&self) -> Option<&'a str> {
        self.schema["description"].as_str()
    }

    /// Fields, with what is said of each where it is declared.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, Option<&'a str>, Shape<'a>)> {
        let definitions = self.definitions;
        self.schema["properties"].as_object().into_iter().flatten().map(move |(name, schema)| {
            (name.as_str(), schema["description"].as_str(), Shape::new(schema, definitions))
        })
    }

    /// It keeps fields that it does not know.
    pub(super) fn is_open(&self) -> bool {
        self.schema["additionalProperties"] == true
    }

    pub(super) fn values(&self) -> Option<Shape<'a>> {
        let values = self.schema.get("additionalProperties").filter(|values| values.is_object())?;
        Some(Shape::new(values, self.definitions))
    }

    pub(super) fn items(&self) -> Option<Shape<'a>> {
        Some(Shape::new(self.schema.get("items")?, self.definitions))
    }
}

/// The types of a kind, as one object.
pub(super) struct Types {
    root: Value,
    definitions: Map<String, Value>,
}

impl Types {
    fn new(make: impl FnOnce(&mut SchemaGenerator) -> Value) -> Self {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let root = make(&mut generator);
        Types { root, definitions: generator.take_definitions(true) }
    }

    fn spec<S: JsonSchema>() -> Self {
        Self::new(|generator| json!({"properties": {"spec": generator.subschema_for::<S>()}}))
    }

    fn spec_and_status<S: JsonSchema, T: JsonSchema>() -> Self {
        Self::new(
            |generator| json!({"properties": {"spec": generator.subschema_for::<S>(), "status": generator.subschema_for::<T>()}}),
        )
    }

    fn object<T: JsonSchema>() -> Self {
        Self::new(|generator| generator.subschema_for::<T>().to_value())
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        Shape::new(&self.root, &self.definitions)
    }

    /// The types behind a definition.
    pub(super) fn of(definition: &str) -> Self {
        match definition {
            "clusters.cluster.x-k8s.io" => Self::spec_and_status::<core::ClusterSpec, core::ClusterStatus>(),
            "machines.cluster.x-k8s.io" => Self::spec_and_status::<core::MachineSpec, core::MachineStatus>(),
            "machinesets.cluster.x-k8s.io" => {
                Self::spec_and_status::<core::MachineSetSpec, core::MachineSetStatus>()
            }
            "machinedeployments.cluster.x-k8s.io" => {
                Self::spec_and_status::<core::MachineDeploymentSpec, core::MachineDeploymentStatus>()
            }
            "machinehealthchecks.cluster.x-k8s.io" => {
                Self::spec_and_status::<core::MachineHealthCheckSpec, core::MachineHealthCheckStatus>()
            }
            "machinedrainrules.cluster.x-k8s.io" => Self::spec::<core::MachineDrainRuleSpec>(),
            "machinepools.cluster.x-k8s.io" => {
                Self::spec_and_status::<core::MachinePoolSpec, core::MachinePoolStatus>()
            }
            "clusterresourcesets.addons.cluster.x-k8s.io" => {
                Self::spec_and_status::<addons::ClusterResourceSetSpec, addons::ClusterResourceSetStatus>()
            }
            "clusterresourcesetbindings.addons.cluster.x-k8s.io" => {
                Self::spec::<addons::ClusterResourceSetBindingSpec>()
            }
            "ipaddressclaims.ipam.cluster.x-k8s.io" => Self::object::<ipam::IpAddressClaim>(),
            "ipaddresses.ipam.cluster.x-k8s.io" => Self::object::<ipam::IpAddress>(),
            "inclusterippools.ipam.cluster.x-k8s.io" => Self::object::<ipam::InClusterIpPool>(),
            "globalinclusterippools.ipam.cluster.x-k8s.io" => Self::object::<ipam::GlobalInClusterIpPool>(),
            "providers.clusterctl.cluster.x-k8s.io" => Self::object::<clusterctl::Provider>(),
            "clusters.provisioning.cattle.io" => Self::object::<provisioning::Cluster>(),
            "rkeclusters.rke.cattle.io" => Self::object::<rke::RkeCluster>(),
            "rkecontrolplanes.rke.cattle.io" => Self::object::<rke::RkeControlPlane>(),
            "rkebootstraps.rke.cattle.io" => Self::object::<rke::RkeBootstrap>(),
            "rkebootstraptemplates.rke.cattle.io" => Self::object::<rke::RkeBootstrapTemplate>(),
            "custommachines.rke.cattle.io" => Self::object::<rke::CustomMachine>(),
            "etcdsnapshots.rke.cattle.io" => Self::object::<rke::EtcdSnapshot>(),
            "workspacequotas.remuda.io" => Self::object::<quota::WorkspaceQuota>(),
            other => Self::management(other.strip_suffix(".management.cattle.io").unwrap_or(other)),
        }
    }

    fn management(plural: &str) -> Self {
        match plural {
            "clusters" => Self::object::<management::Cluster>(),
            "clusterregistrationtokens" => Self::object::<management::ClusterRegistrationToken>(),
            "nodes" => Self::object::<management::Node>(),
            "settings" => Self::object::<management::Setting>(),
            "features" => Self::object::<management::Feature>(),
            "fleetworkspaces" => Self::object::<management::FleetWorkspace>(),
            "nodedrivers" => Self::object::<management::NodeDriver>(),
            "dynamicschemas" => Self::object::<management::DynamicSchema>(),
            "users" => Self::object::<management::User>(),
            "tokens" => Self::object::<management::Token>(),
            "authconfigs" => Self::object::<management::AuthConfig>(),
            "globalroles" => Self::object::<management::GlobalRole>(),
            "globalrolebindings" => Self::object::<management::GlobalRoleBinding>(),
            "roletemplates" => Self::object::<management::RoleTemplate>(),
            "clusterroletemplatebindings" => Self::object::<management::ClusterRoleTemplateBinding>(),
            other => panic!("{other} has no types"),
        }
    }
}
