//! Where each field stands in both versions.

use serde_json::{Map, Value};

use super::codec::{Codec, Context, Field, down, merge, up};

/// The fields of one kind.
#[derive(Debug)]
pub(super) struct Table {
    fields: &'static [&'static [Field]],
    /// Of these the client of the old version has no say.
    kept: &'static [&'static str],
}

impl Table {
    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<Field> {
        self.fields.concat()
    }

    pub(super) fn down(&self, hub: &Map<String, Value>, context: &Context<'_>) -> Map<String, Value> {
        let mut spoke = Map::new();
        for fields in self.fields {
            join(&mut spoke, down(fields, hub, context));
        }
        spoke
    }

    pub(super) fn up(&self, spoke: &Map<String, Value>, context: &Context<'_>) -> Map<String, Value> {
        let mut hub = Map::new();
        for fields in self.fields {
            join(&mut hub, up(fields, spoke, context));
        }
        hub
    }

    /// Up again, knowing what the object was `before` it was shown in the old version.
    pub(super) fn restore(
        &self,
        spoke: &Map<String, Value>,
        before: &Map<String, Value>,
        context: &Context<'_>,
    ) -> Map<String, Value> {
        let base = self.up(&self.down(before, context), context);
        let mut hub = merge(&self.up(spoke, context), &base, before);
        for path in self.kept {
            let (part, key) = path.split_once('.').unwrap_or(("status", path));
            let old = before.get(part).and_then(|part| part.get(key)).cloned();
            if let Some(fields) = hub.get_mut(part).and_then(Value::as_object_mut) {
                match old {
                    Some(old) => fields.insert(key.to_owned(), old),
                    None => fields.remove(key),
                };
            }
        }
        hub
    }
}

/// Adds one tree to another that has no leaf in common with it.
fn join(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => join(known, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

const fn field(hub: &'static str, spoke: &'static str, codec: Codec) -> Field {
    Field { hub, spoke, codec }
}

const fn same(path: &'static str) -> Field {
    Field { hub: path, spoke: path, codec: Codec::Same }
}

const fn plain(path: &'static str) -> Field {
    Field { hub: path, spoke: path, codec: Codec::Plain }
}

/// The table of a CRD; none if its versions differ in name only or it has but one.
pub(super) fn of(crd: &str) -> Option<&'static Table> {
    Some(match crd {
        "clusters.cluster.x-k8s.io" => &CLUSTER,
        "machines.cluster.x-k8s.io" => &MACHINE,
        "machinesets.cluster.x-k8s.io" => &MACHINE_SET,
        "machinedeployments.cluster.x-k8s.io" => &MACHINE_DEPLOYMENT,
        "machinehealthchecks.cluster.x-k8s.io" => &MACHINE_HEALTH_CHECK,
        "machinepools.cluster.x-k8s.io" => &MACHINE_POOL,
        "clusterresourcesets.addons.cluster.x-k8s.io" => &CLUSTER_RESOURCE_SET,
        "ipaddressclaims.ipam.cluster.x-k8s.io" => &IP_ADDRESS_CLAIM,
        _ => return None,
    })
}

/// Conditions never cross over: each style has its own place in either version.
const CONDITIONS: &[Field] = &[
    field("status.conditions", "status.v1beta2.conditions", Codec::Same),
    field("status.deprecated.v1beta1.conditions", "status.conditions", Codec::Same),
    plain("status.observedGeneration"),
];

const FAILURE: &[Field] = &[
    field("status.deprecated.v1beta1.failureReason", "status.failureReason", Codec::Same),
    field("status.deprecated.v1beta1.failureMessage", "status.failureMessage", Codec::Same),
];

/// Counters of both styles.
const COUNTERS: &[Field] = &[
    same("status.replicas"),
    field("status.readyReplicas", "status.v1beta2.readyReplicas", Codec::Same),
    field("status.availableReplicas", "status.v1beta2.availableReplicas", Codec::Same),
    field("status.upToDateReplicas", "status.v1beta2.upToDateReplicas", Codec::Same),
    same("status.versions"),
    field("status.deprecated.v1beta1.readyReplicas", "status.readyReplicas", Codec::Plain),
    field("status.deprecated.v1beta1.availableReplicas", "status.availableReplicas", Codec::Plain),
];

const MACHINE_STATUS: &[Field] = &[
    field("status.initialization.infrastructureProvisioned", "status.infrastructureReady", Codec::Plain),
    field("status.initialization.bootstrapDataSecretCreated", "status.bootstrapReady", Codec::Plain),
];

const TEMPLATE_SPEC: &[Field] = &[
    same("spec.template.metadata"),
    same("spec.template.spec.clusterName"),
    field(
        "spec.template.spec.bootstrap.configRef",
        "spec.template.spec.bootstrap.configRef",
        Codec::Reference,
    ),
    same("spec.template.spec.bootstrap.dataSecretName"),
    field("spec.template.spec.infrastructureRef", "spec.template.spec.infrastructureRef", Codec::Reference),
    plain("spec.template.spec.version"),
    plain("spec.template.spec.providerID"),
    plain("spec.template.spec.failureDomain"),
    same("spec.template.spec.readinessGates"),
    same("spec.template.spec.taints"),
    field(
        "spec.template.spec.deletion.nodeDrainTimeoutSeconds",
        "spec.template.spec.nodeDrainTimeout",
        Codec::Seconds,
    ),
    field(
        "spec.template.spec.deletion.nodeVolumeDetachTimeoutSeconds",
        "spec.template.spec.nodeVolumeDetachTimeout",
        Codec::Seconds,
    ),
    field(
        "spec.template.spec.deletion.nodeDeletionTimeoutSeconds",
        "spec.template.spec.nodeDeletionTimeout",
        Codec::Seconds,
    ),
];

/// What a group of machines has in its spec besides the template.
const GROUP_SPEC: &[Field] = &[same("spec.clusterName"), same("spec.replicas"), same("spec.selector")];

static MACHINE: Table = Table {
    fields: &[
        &[
            same("spec.clusterName"),
            field("spec.bootstrap.configRef", "spec.bootstrap.configRef", Codec::Reference),
            same("spec.bootstrap.dataSecretName"),
            field("spec.infrastructureRef", "spec.infrastructureRef", Codec::Reference),
            plain("spec.version"),
            plain("spec.providerID"),
            plain("spec.failureDomain"),
            same("spec.readinessGates"),
            same("spec.taints"),
            field("spec.deletion.nodeDrainTimeoutSeconds", "spec.nodeDrainTimeout", Codec::Seconds),
            field(
                "spec.deletion.nodeVolumeDetachTimeoutSeconds",
                "spec.nodeVolumeDetachTimeout",
                Codec::Seconds,
            ),
            field("spec.deletion.nodeDeletionTimeoutSeconds", "spec.nodeDeletionTimeout", Codec::Seconds),
            field("status.nodeRef", "status.nodeRef", Codec::Node),
            same("status.nodeInfo"),
            same("status.lastUpdated"),
            same("status.addresses"),
            field("status.phase", "status.phase", Codec::Phase),
            same("status.certificatesExpiryDate"),
            same("status.deletion"),
        ],
        MACHINE_STATUS,
        CONDITIONS,
        FAILURE,
    ],
    kept: &["status.phase"],
};

static MACHINE_SET: Table = Table {
    fields: &[
        GROUP_SPEC,
        TEMPLATE_SPEC,
        &[
            field("spec.template.spec.minReadySeconds", "spec.minReadySeconds", Codec::Plain),
            field("spec.deletion.order", "spec.deletePolicy", Codec::Plain),
            field("spec.machineNaming", "spec.machineNamingStrategy", Codec::Plain),
            plain("status.selector"),
            field(
                "status.deprecated.v1beta1.fullyLabeledReplicas",
                "status.fullyLabeledReplicas",
                Codec::Plain,
            ),
        ],
        COUNTERS,
        CONDITIONS,
        FAILURE,
    ],
    kept: &[],
};

static MACHINE_DEPLOYMENT: Table = Table {
    fields: &[
        GROUP_SPEC,
        TEMPLATE_SPEC,
        &[
            field("spec.template.spec.minReadySeconds", "spec.minReadySeconds", Codec::Same),
            field("spec.rollout.after", "spec.rolloutAfter", Codec::Same),
            field("spec.rollout.strategy.type", "spec.strategy.type", Codec::Plain),
            field(
                "spec.rollout.strategy.rollingUpdate.maxUnavailable",
                "spec.strategy.rollingUpdate.maxUnavailable",
                Codec::Same,
            ),
            field(
                "spec.rollout.strategy.rollingUpdate.maxSurge",
                "spec.strategy.rollingUpdate.maxSurge",
                Codec::Same,
            ),
            field("spec.deletion.order", "spec.strategy.rollingUpdate.deletePolicy", Codec::Plain),
            field("spec.remediation.maxInFlight", "spec.strategy.remediation.maxInFlight", Codec::Same),
            field("spec.machineNaming", "spec.machineNamingStrategy", Codec::Plain),
            plain("spec.paused"),
            plain("status.selector"),
            plain("status.phase"),
            field("status.deprecated.v1beta1.updatedReplicas", "status.updatedReplicas", Codec::Plain),
            field(
                "status.deprecated.v1beta1.unavailableReplicas",
                "status.unavailableReplicas",
                Codec::Plain,
            ),
        ],
        COUNTERS,
        CONDITIONS,
    ],
    kept: &[],
};

static MACHINE_POOL: Table = Table {
    fields: &[
        &[
            same("spec.clusterName"),
            same("spec.replicas"),
            field("spec.template.spec.minReadySeconds", "spec.minReadySeconds", Codec::Same),
            same("spec.providerIDList"),
            same("spec.failureDomains"),
            same("status.nodeRefs"),
            plain("status.phase"),
            field(
                "status.deprecated.v1beta1.unavailableReplicas",
                "status.unavailableReplicas",
                Codec::Plain,
            ),
        ],
        TEMPLATE_SPEC,
        MACHINE_STATUS,
        COUNTERS,
        CONDITIONS,
        FAILURE,
    ],
    kept: &[],
};

const UNHEALTHY: &[Field] =
    &[same("type"), same("status"), field("timeoutSeconds", "timeout", Codec::Seconds)];

static MACHINE_HEALTH_CHECK: Table = Table {
    fields: &[
        &[
            same("spec.clusterName"),
            same("spec.selector"),
            field("spec.checks.unhealthyNodeConditions", "spec.unhealthyConditions", Codec::Each(UNHEALTHY)),
            field(
                "spec.checks.unhealthyMachineConditions",
                "spec.unhealthyMachineConditions",
                Codec::Each(UNHEALTHY),
            ),
            field("spec.checks.nodeStartupTimeoutSeconds", "spec.nodeStartupTimeout", Codec::Seconds),
            field("spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", "spec.maxUnhealthy", Codec::Same),
            field("spec.remediation.triggerIf.unhealthyInRange", "spec.unhealthyRange", Codec::Plain),
            field("spec.remediation.templateRef", "spec.remediationTemplate", Codec::Template),
            plain("status.expectedMachines"),
            plain("status.currentHealthy"),
            plain("status.remediationsAllowed"),
            same("status.targets"),
        ],
        CONDITIONS,
    ],
    kept: &[],
};

static CLUSTER_RESOURCE_SET: Table = Table {
    fields: &[&[same("spec.clusterSelector"), same("spec.resources"), plain("spec.strategy")], CONDITIONS],
    kept: &[],
};

static IP_ADDRESS_CLAIM: Table = Table {
    fields: &[&[
        plain("spec.clusterName"),
        same("spec.poolRef"),
        plain("status.addressRef"),
        field("status.conditions", "status.v1beta2.conditions", Codec::Same),
        field("status.deprecated.v1beta1.conditions", "status.conditions", Codec::Same),
    ]],
    kept: &[],
};

static CLUSTER: Table = Table {
    fields: &[
        &[
            plain("spec.paused"),
            plain("spec.clusterNetwork"),
            plain("spec.controlPlaneEndpoint"),
            field("spec.controlPlaneRef", "spec.controlPlaneRef", Codec::Reference),
            field("spec.infrastructureRef", "spec.infrastructureRef", Codec::Reference),
            same("spec.availabilityGates"),
            field(
                "status.initialization.infrastructureProvisioned",
                "status.infrastructureReady",
                Codec::Plain,
            ),
            field("status.initialization.controlPlaneInitialized", "status.controlPlaneReady", Codec::Plain),
            field("status.controlPlane", "status.v1beta2.controlPlane", Codec::Same),
            field("status.workers", "status.v1beta2.workers", Codec::Same),
            field("status.failureDomains", "status.failureDomains", Codec::FailureDomains),
            plain("status.phase"),
        ],
        TOPOLOGY,
        CONDITIONS,
        FAILURE,
    ],
    kept: &[],
};

/// Managed topologies, as far as they are stored.
const TOPOLOGY: &[Field] = &[
    field("spec.topology.classRef.name", "spec.topology.class", Codec::Plain),
    field("spec.topology.classRef.namespace", "spec.topology.classNamespace", Codec::Plain),
    same("spec.topology.version"),
    same("spec.topology.variables"),
    same("spec.topology.controlPlane.metadata"),
    same("spec.topology.controlPlane.replicas"),
    same("spec.topology.controlPlane.readinessGates"),
    same("spec.topology.controlPlane.taints"),
    same("spec.topology.controlPlane.rollout"),
    same("spec.topology.controlPlane.variables"),
    field(
        "spec.topology.controlPlane.deletion.nodeDrainTimeoutSeconds",
        "spec.topology.controlPlane.nodeDrainTimeout",
        Codec::Seconds,
    ),
    field(
        "spec.topology.controlPlane.deletion.nodeVolumeDetachTimeoutSeconds",
        "spec.topology.controlPlane.nodeVolumeDetachTimeout",
        Codec::Seconds,
    ),
    field(
        "spec.topology.controlPlane.deletion.nodeDeletionTimeoutSeconds",
        "spec.topology.controlPlane.nodeDeletionTimeout",
        Codec::Seconds,
    ),
    field(
        "spec.topology.controlPlane.healthCheck.enabled",
        "spec.topology.controlPlane.machineHealthCheck.enable",
        Codec::Same,
    ),
    field(
        "spec.topology.controlPlane.healthCheck.checks.unhealthyNodeConditions",
        "spec.topology.controlPlane.machineHealthCheck.unhealthyConditions",
        Codec::Each(UNHEALTHY),
    ),
    field(
        "spec.topology.controlPlane.healthCheck.checks.unhealthyMachineConditions",
        "spec.topology.controlPlane.machineHealthCheck.unhealthyMachineConditions",
        Codec::Each(UNHEALTHY),
    ),
    field(
        "spec.topology.controlPlane.healthCheck.checks.nodeStartupTimeoutSeconds",
        "spec.topology.controlPlane.machineHealthCheck.nodeStartupTimeout",
        Codec::Seconds,
    ),
    field(
        "spec.topology.controlPlane.healthCheck.remediation.triggerIf.unhealthyLessThanOrEqualTo",
        "spec.topology.controlPlane.machineHealthCheck.maxUnhealthy",
        Codec::Same,
    ),
    field(
        "spec.topology.controlPlane.healthCheck.remediation.triggerIf.unhealthyInRange",
        "spec.topology.controlPlane.machineHealthCheck.unhealthyRange",
        Codec::Plain,
    ),
    field(
        "spec.topology.controlPlane.healthCheck.remediation.templateRef",
        "spec.topology.controlPlane.machineHealthCheck.remediationTemplate",
        Codec::Template,
    ),
    field(
        "spec.topology.workers.machineDeployments",
        "spec.topology.workers.machineDeployments",
        Codec::Each(TOPOLOGY_DEPLOYMENT),
    ),
    field(
        "spec.topology.workers.machinePools",
        "spec.topology.workers.machinePools",
        Codec::Each(TOPOLOGY_POOL),
    ),
];

const TOPOLOGY_POOL: &[Field] = &[
    same("metadata"),
    same("class"),
    same("name"),
    same("failureDomains"),
    same("replicas"),
    same("minReadySeconds"),
    same("taints"),
    same("variables"),
    field("deletion.nodeDrainTimeoutSeconds", "nodeDrainTimeout", Codec::Seconds),
    field("deletion.nodeVolumeDetachTimeoutSeconds", "nodeVolumeDetachTimeout", Codec::Seconds),
    field("deletion.nodeDeletionTimeoutSeconds", "nodeDeletionTimeout", Codec::Seconds),
];

const TOPOLOGY_DEPLOYMENT: &[Field] = &[
    same("metadata"),
    same("class"),
    same("name"),
    plain("failureDomain"),
    same("replicas"),
    same("minReadySeconds"),
    same("readinessGates"),
    same("taints"),
    same("variables"),
    field("deletion.order", "strategy.rollingUpdate.deletePolicy", Codec::Plain),
    field("deletion.nodeDrainTimeoutSeconds", "nodeDrainTimeout", Codec::Seconds),
    field("deletion.nodeVolumeDetachTimeoutSeconds", "nodeVolumeDetachTimeout", Codec::Seconds),
    field("deletion.nodeDeletionTimeoutSeconds", "nodeDeletionTimeout", Codec::Seconds),
    field("rollout.after", "rollout.after", Codec::Same),
    field("rollout.strategy.type", "strategy.type", Codec::Plain),
    field(
        "rollout.strategy.rollingUpdate.maxUnavailable",
        "strategy.rollingUpdate.maxUnavailable",
        Codec::Same,
    ),
    field("rollout.strategy.rollingUpdate.maxSurge", "strategy.rollingUpdate.maxSurge", Codec::Same),
    field("healthCheck.remediation.maxInFlight", "strategy.remediation.maxInFlight", Codec::Same),
    field("healthCheck.enabled", "machineHealthCheck.enable", Codec::Same),
    field(
        "healthCheck.checks.unhealthyNodeConditions",
        "machineHealthCheck.unhealthyConditions",
        Codec::Each(UNHEALTHY),
    ),
    field(
        "healthCheck.checks.unhealthyMachineConditions",
        "machineHealthCheck.unhealthyMachineConditions",
        Codec::Each(UNHEALTHY),
    ),
    field(
        "healthCheck.checks.nodeStartupTimeoutSeconds",
        "machineHealthCheck.nodeStartupTimeout",
        Codec::Seconds,
    ),
    field(
        "healthCheck.remediation.triggerIf.unhealthyLessThanOrEqualTo",
        "machineHealthCheck.maxUnhealthy",
        Codec::Same,
    ),
    field(
        "healthCheck.remediation.triggerIf.unhealthyInRange",
        "machineHealthCheck.unhealthyRange",
        Codec::Plain,
    ),
    field("healthCheck.remediation.templateRef", "machineHealthCheck.remediationTemplate", Codec::Template),
];
