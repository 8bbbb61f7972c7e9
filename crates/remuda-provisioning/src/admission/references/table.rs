//! The table of fields that name other objects.

use remuda_names::{
    capi::group::{ADDONS, CORE, IPAM},
    rancher::group::{MACHINE, MANAGEMENT, PROVISIONING, RKE},
};

use super::Use;

/// Where an object is that is named by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In the namespace of the object that names it.
    Same,
    /// In none.
    Cluster,
}

/// What the value of a field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// A Secret of the same namespace.
    Secret,
    /// A ConfigMap of the same namespace.
    ConfigMap,
    /// A Secret with a credential: `cattle-global-data:NAME`, or one of the same namespace.
    Credential,
    /// Files made of an object of this kind in the same namespace: `{name, items}`.
    Files(&'static str),
    /// A Secret or ConfigMap of the same namespace that is applied to clusters: `{kind, name}`.
    Resource,
    /// Any object: `{apiVersion, kind, namespace, name}` or `{apiGroup, kind, name}`.
    Reference(Use),
    /// What the machines of a pool are made from.
    MachineConfig,
    /// The credential a pool uses: of its own, or of the cluster.
    PoolCredential,
    /// An object of this kind, by its name.
    Object { group: &'static str, kind: &'static str, scope: Scope, used: Use },
    /// A snapshot of the same namespace.
    Snapshot,
    /// A namespace in which a cluster is created.
    Workspace,
    /// Secrets of the system's namespace, separated by commas, in the one Setting that has them.
    PullSecrets,
    /// A pool of addresses: `{apiGroup, kind, name}`. One of the same namespace is for those who may create claims there.
    AddressPool(Use),
    /// A pool of addresses by `NAME` or `KIND/NAME`, as the annotation of pools of machines has it.
    AddressPoolName,
    /// Texts of any depth with `secret://namespace:name` or `configmap://namespace:name` in them.
    Inline,
}

/// A field that names another object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub group: &'static str,
    /// `*` stands for every kind of the group.
    pub kind: &'static str,
    pub path: &'static str,
    pub names: Names,
}

impl Field {
    pub fn is_of(&self, group: &str, kind: &str) -> bool {
        self.group == group && (self.kind == "*" || self.kind == kind)
    }
}

const fn field(group: &'static str, kind: &'static str, path: &'static str, names: Names) -> Field {
    Field { group, kind, path, names }
}

/// Machines become part of it, and get what they need to join it.
const CAPI_CLUSTER: Names =
    Names::Object { group: CORE, kind: "Cluster", scope: Scope::Same, used: Use::Join };
/// Rights in it follow.
const MANAGEMENT_CLUSTER: Names =
    Names::Object { group: MANAGEMENT, kind: "Cluster", scope: Scope::Cluster, used: Use::Join };

/// Every field of a kind of ours that names another object.
pub const TABLE: &[Field] = &[
    // The cluster people write.
    field(PROVISIONING, "Cluster", "spec.cloudCredentialSecretName", Names::Credential),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.machinePools[*]", Names::PoolCredential),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.machinePools[*].machineConfigRef", Names::MachineConfig),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.infrastructureRef", Names::Reference(Use::Own)),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.etcd.s3.cloudCredentialName", Names::Credential),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.etcdSnapshotRestore.name", Names::Snapshot),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.registries.configs.*.authConfigSecretName", Names::Secret),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.registries.configs.*.tlsSecretName", Names::Secret),
    field(
        PROVISIONING,
        "Cluster",
        "spec.rkeConfig.machineSelectorFiles[*].fileSources[*].secret",
        Names::Files("Secret"),
    ),
    field(
        PROVISIONING,
        "Cluster",
        "spec.rkeConfig.machineSelectorFiles[*].fileSources[*].configMap",
        Names::Files("ConfigMap"),
    ),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.machineGlobalConfig", Names::Inline),
    field(PROVISIONING, "Cluster", "spec.rkeConfig.machineSelectorConfig[*].config", Names::Inline),
    field(
        PROVISIONING,
        "Cluster",
        "metadata.annotations[provisioning.cattle.io/management-cluster-name]",
        MANAGEMENT_CLUSTER,
    ),
    field(
        PROVISIONING,
        "Cluster",
        "metadata.annotations[provisioning.cattle.io/fleet-workspace-name]",
        Names::Workspace,
    ),
    field(PROVISIONING, "Cluster", "status.clusterName", MANAGEMENT_CLUSTER),
    field(PROVISIONING, "Cluster", "status.clientSecretName", Names::Secret),
    field(
        PROVISIONING,
        "Cluster",
        "spec.rkeConfig.machinePools[*].machineDeploymentAnnotations[remuda.io/address-pool]",
        Names::AddressPoolName,
    ),
    // What controllers make of it. A person can write these as well.
    field(RKE, "RKEControlPlane", "spec.clusterName", CAPI_CLUSTER),
    field(RKE, "RKEControlPlane", "spec.managementClusterName", MANAGEMENT_CLUSTER),
    field(RKE, "RKEControlPlane", "spec.etcd.s3.cloudCredentialName", Names::Credential),
    field(RKE, "RKEControlPlane", "spec.etcdSnapshotRestore.name", Names::Snapshot),
    field(RKE, "RKEControlPlane", "spec.registries.configs.*.authConfigSecretName", Names::Secret),
    field(RKE, "RKEControlPlane", "spec.registries.configs.*.tlsSecretName", Names::Secret),
    field(
        RKE,
        "RKEControlPlane",
        "spec.machineSelectorFiles[*].fileSources[*].secret",
        Names::Files("Secret"),
    ),
    field(
        RKE,
        "RKEControlPlane",
        "spec.machineSelectorFiles[*].fileSources[*].configMap",
        Names::Files("ConfigMap"),
    ),
    field(RKE, "RKEControlPlane", "spec.machineGlobalConfig", Names::Inline),
    field(RKE, "RKEControlPlane", "spec.machineSelectorConfig[*].config", Names::Inline),
    field(RKE, "RKEBootstrap", "spec.clusterName", CAPI_CLUSTER),
    field(RKE, "RKEBootstrap", "status.dataSecretName", Names::Secret),
    field(RKE, "RKEBootstrapTemplate", "spec.clusterName", CAPI_CLUSTER),
    field(RKE, "RKEBootstrapTemplate", "spec.template.spec.clusterName", CAPI_CLUSTER),
    field(RKE, "ETCDSnapshot", "spec.clusterName", CAPI_CLUSTER),
    field(RKE, "ETCDSnapshot", "snapshotFile.s3.cloudCredentialName", Names::Credential),
    // Machines of drivers and their templates.
    field(MACHINE, "*", "spec.common.cloudCredentialSecretName", Names::Credential),
    field(MACHINE, "*", "spec.template.spec.common.cloudCredentialSecretName", Names::Credential),
    field(MACHINE, "*", "spec.clusterName", CAPI_CLUSTER),
    field(MACHINE, "*", "metadata.annotations[remuda.io/address-pool]", Names::AddressPoolName),
    field(MACHINE, "*", "spec.template.metadata.annotations[remuda.io/address-pool]", Names::AddressPoolName),
    field(MACHINE, "*", "status.cloudCredentialSecretName", Names::Credential),
    // Cluster API, in both versions.
    field(CORE, "Cluster", "spec.infrastructureRef", Names::Reference(Use::Own)),
    field(CORE, "Cluster", "spec.controlPlaneRef", Names::Reference(Use::Own)),
    field(CORE, "Machine", "spec.clusterName", CAPI_CLUSTER),
    field(CORE, "Machine", "spec.infrastructureRef", Names::Reference(Use::Own)),
    field(CORE, "Machine", "spec.bootstrap.configRef", Names::Reference(Use::Own)),
    field(CORE, "Machine", "spec.bootstrap.dataSecretName", Names::Secret),
    field(CORE, "MachineSet", "spec.clusterName", CAPI_CLUSTER),
    field(CORE, "MachineSet", "spec.template.spec.clusterName", CAPI_CLUSTER),
    field(
        CORE,
        "MachineSet",
        "spec.template.metadata.annotations[remuda.io/address-pool]",
        Names::AddressPoolName,
    ),
    field(CORE, "MachineSet", "spec.template.spec.infrastructureRef", Names::Reference(Use::Own)),
    field(CORE, "MachineSet", "spec.template.spec.bootstrap.configRef", Names::Reference(Use::Own)),
    field(CORE, "MachineSet", "spec.template.spec.bootstrap.dataSecretName", Names::Secret),
    field(CORE, "MachineDeployment", "spec.clusterName", CAPI_CLUSTER),
    field(CORE, "MachineDeployment", "spec.template.spec.clusterName", CAPI_CLUSTER),
    field(
        CORE,
        "MachineDeployment",
        "spec.template.metadata.annotations[remuda.io/address-pool]",
        Names::AddressPoolName,
    ),
    field(CORE, "MachineDeployment", "spec.template.spec.infrastructureRef", Names::Reference(Use::Own)),
    field(CORE, "MachineDeployment", "spec.template.spec.bootstrap.configRef", Names::Reference(Use::Own)),
    field(CORE, "MachineDeployment", "spec.template.spec.bootstrap.dataSecretName", Names::Secret),
    field(CORE, "MachinePool", "spec.clusterName", CAPI_CLUSTER),
    field(CORE, "MachinePool", "spec.template.spec.clusterName", CAPI_CLUSTER),
    field(CORE, "MachinePool", "spec.template.spec.infrastructureRef", Names::Reference(Use::Own)),
    field(CORE, "MachinePool", "spec.template.spec.bootstrap.configRef", Names::Reference(Use::Own)),
    field(CORE, "MachinePool", "spec.template.spec.bootstrap.dataSecretName", Names::Secret),
    field(CORE, "MachineHealthCheck", "spec.clusterName", CAPI_CLUSTER),
    field(CORE, "MachineHealthCheck", "spec.remediation.templateRef", Names::Reference(Use::Read)),
    field(CORE, "MachineHealthCheck", "spec.remediationTemplate", Names::Reference(Use::Read)),
    field(ADDONS, "ClusterResourceSet", "spec.resources[*]", Names::Resource),
    field(ADDONS, "ClusterResourceSetBinding", "spec.clusterName", CAPI_CLUSTER),
    // An IPAddress takes an address away from its pool, whatever it is for.
    field(IPAM, "IPAddressClaim", "spec.poolRef", Names::AddressPool(Use::Read)),
    field(IPAM, "IPAddress", "spec.poolRef", Names::AddressPool(Use::Join)),
    // Identities of clusters.
    field(MANAGEMENT, "Cluster", "spec.fleetWorkspaceName", Names::Workspace),
    field(MANAGEMENT, "ClusterRegistrationToken", "spec.clusterName", MANAGEMENT_CLUSTER),
    field(MANAGEMENT, "Setting", "value", Names::PullSecrets),
    field(MANAGEMENT, "Setting", "default", Names::PullSecrets),
];

/// A field that looks like a name of another object and is none, and why.
///
/// A path that ends in `**` stands for everything below it.
pub const NO_REFERENCES: &[(&str, &str, &str, &str)] = &[
    (PROVISIONING, "Cluster", "spec.agentEnvVars[*].name", "name of an environment variable"),
    (PROVISIONING, "Cluster", "spec.clusterAPIConfig.clusterName", "stored, but nothing follows it"),
    (
        PROVISIONING,
        "Cluster",
        "spec.defaultPodSecurityAdmissionConfigurationTemplateName",
        "stored, but nothing follows it",
    ),
    (
        PROVISIONING,
        "Cluster",
        "spec.clusterAgentDeploymentCustomization.**",
        "scheduling of the agent inside the cluster itself",
    ),
    (
        PROVISIONING,
        "Cluster",
        "spec.fleetAgentDeploymentCustomization.**",
        "scheduling of the agent inside the cluster itself",
    ),
    (
        PROVISIONING,
        "Cluster",
        "spec.webhookDeploymentCustomization.**",
        "scheduling of the webhook inside the cluster itself",
    ),
    (PROVISIONING, "Cluster", "spec.rkeConfig.machinePools[*].name", "name of the pool itself"),
    (PROVISIONING, "Cluster", "spec.rkeConfig.machinePools[*].displayName", "text for people"),
    (PROVISIONING, "Cluster", "status.fleetWorkspaceName", "a record of where the cluster is"),
    (PROVISIONING, "Cluster", "status.conditions[*].**", "a report"),
    (RKE, "RKEControlPlane", "spec.agentEnvVars[*].name", "name of an environment variable"),
    (RKE, "RKEControlPlane", "status.appliedSpec.**", "a record of the spec, from which nothing is read"),
    (RKE, "RKEControlPlane", "status.etcdSnapshotRestore.name", "a record of what was asked for"),
    (RKE, "RKEBootstrapTemplate", "spec.template.kind", "kind of the template itself"),
    (RKE, "RKEBootstrapTemplate", "spec.template.metadata.**", "metadata of what is made from the template"),
    (RKE, "RKEBootstrapTemplate", "spec.template.status.**", "a template has no status; nothing copies it"),
    (RKE, "ETCDSnapshot", "snapshotFile.name", "name of a file"),
    (RKE, "ETCDSnapshot", "snapshotFile.nodeName", "a Node of the cluster itself"),
    (CORE, "Cluster", "spec.topology.**", "topologies are refused or not followed: there is no ClusterClass"),
    (CORE, "Cluster", "status.failureDomains[*].name", "name of a failure domain"),
    (CORE, "Machine", "status.nodeRef.**", "a Node of the cluster itself"),
    (CORE, "MachinePool", "status.nodeRefs[*].**", "Nodes of the cluster itself"),
    (CORE, "MachineSet", "spec.machineNamingStrategy.template", "a pattern for names"),
    (CORE, "MachineSet", "spec.machineNaming.template", "a pattern for names"),
    (CORE, "MachineDeployment", "spec.machineNamingStrategy.template", "a pattern for names"),
    (CORE, "MachineDeployment", "spec.machineNaming.template", "a pattern for names"),
    (
        ADDONS,
        "ClusterResourceSetBinding",
        "spec.bindings[*].**",
        "a record of what was applied; it is read by nothing that applies",
    ),
    (
        IPAM,
        "IPAddressClaim",
        "spec.clusterName",
        "a cluster that can pause the claim, and is not touched by it",
    ),
    (IPAM, "IPAddressClaim", "status.addressRef.**", "a record; the address has the name of the claim"),
    (IPAM, "IPAddress", "spec.claimRef.**", "has to be the name of the address itself to count"),
    (MANAGEMENT, "Cluster", "spec.agentEnvVars[*].name", "name of an environment variable"),
    (MANAGEMENT, "Cluster", "spec.clusterSecrets.**", "shown, but nothing reads it"),
    (MANAGEMENT, "Cluster", "spec.importedConfig.privateRegistryPullSecrets", "stored, but nothing reads it"),
    (
        MANAGEMENT,
        "Cluster",
        "spec.defaultPodSecurityAdmissionConfigurationTemplateName",
        "stored, but nothing follows it",
    ),
    (MANAGEMENT, "Cluster", "spec.displayName", "text for people"),
    (MANAGEMENT, "Cluster", "status.**", "a report; nothing is looked up by it"),
    (MANAGEMENT, "ClusterRegistrationToken", "status.tokenSecretName", "a record; the name is computed"),
    (MANAGEMENT, "ClusterRoleTemplateBinding", "*", "rights are judged by the admission of rights"),
    (MANAGEMENT, "GlobalRoleBinding", "*", "rights are judged by the admission of rights"),
    (MANAGEMENT, "GlobalRole", "*", "rights are judged by the admission of rights"),
    (MANAGEMENT, "RoleTemplate", "*", "rights are judged by the admission of rights"),
    (MANAGEMENT, "Token", "*", "tokens are judged by the admission of rights"),
    (MANAGEMENT, "User", "displayName", "text for people"),
    (MANAGEMENT, "User", "username", "the name the user logs in with"),
    (MANAGEMENT, "AuthConfig", "clientSecret", "a value, not a name"),
    (MANAGEMENT, "DynamicSchema", "spec.pluralName", "name of the schema itself"),
    (MANAGEMENT, "DynamicSchema", "spec.schemaName", "name of the schema itself"),
    (MANAGEMENT, "Node", "spec.requestedHostname", "what the node is called in its cluster"),
    (
        MANAGEMENT,
        "Node",
        "status.nodeName",
        "a Node of the cluster itself; actions on it are done there, as whoever asks for them",
    ),
    (MANAGEMENT, "NodeDriver", "spec.addCloudCredential", "yes or no"),
    (MACHINE, "*", "status.jobName", "a record; the name is computed"),
    (MANAGEMENT, "NodeDriver", "spec.displayName", "text for people"),
    (remuda_names::capi::group::CLUSTERCTL, "Provider", "providerName", "name of the provider itself"),
];

/// Settings of built-in drivers that look like names of other objects, and why they are none. The server hands them to
/// the driver, and follows none of them.
pub(super) const DRIVER_FIELDS: &[(&str, &str)] = &[
    ("clientSecret", "a value, not a name"),
    ("deviceName", "a disk at the provider"),
    ("keypairName", "a key at the provider, in the account of the credential"),
    ("proxmoxTokenSecret", "a value, not a name"),
    ("proxmoxUserName", "the user of the provider's API"),
    ("sshUsername", "the user to log in as"),
    ("username", "the user to log in as"),
];
