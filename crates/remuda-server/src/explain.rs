//! Field descriptions of built-in kinds, as the Kubernetes type library documents them.
//!
//! Our own table of built-in types holds facts only. The library linked for the client knows the
//! words; they are looked up when an OpenAPI document is made.

use k8s_openapi::{
    api::{
        admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
        authorization::v1 as authorization, autoscaling::v1 as autoscaling,
        autoscaling::v2 as autoscaling_v2, batch::v1 as batch, certificates::v1 as certificates,
        coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
        networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
        scheduling::v1 as scheduling, storage::v1 as storage,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    apimachinery::pkg::apis::meta::v1 as meta,
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration,
};
use remuda_apiserver::{Descriptions, TypeDescription};
use schemars::SchemaGenerator;
use serde_json::Value;

macro_rules! add {
    ($generator:ident, $($kind:ty),+ $(,)?) => { $( $generator.subschema_for::<$kind>(); )+ };
}

/// Descriptions of every built-in kind and of all types they are made of.
pub(crate) fn descriptions() -> Descriptions {
    let mut generator = SchemaGenerator::default();
    add!(
        generator,
        core::ComponentStatus,
        core::ConfigMap,
        core::Endpoints,
        core::Event,
        core::LimitRange,
        core::Namespace,
        core::Node,
        core::PersistentVolume,
        core::PersistentVolumeClaim,
        core::Pod,
        core::PodTemplate,
        core::ReplicationController,
        core::ResourceQuota,
        core::Secret,
        core::Service,
        core::ServiceAccount,
        admission::MutatingWebhookConfiguration,
        admission::ValidatingAdmissionPolicy,
        admission::ValidatingAdmissionPolicyBinding,
        admission::ValidatingWebhookConfiguration,
        apiextensions::CustomResourceDefinition,
        apiregistration::APIService,
        apps::ControllerRevision,
        apps::DaemonSet,
        apps::Deployment,
        apps::ReplicaSet,
        apps::StatefulSet,
        authentication::SelfSubjectReview,
        authentication::TokenRequest,
        authentication::TokenReview,
        authorization::LocalSubjectAccessReview,
        authorization::SelfSubjectAccessReview,
        authorization::SelfSubjectRulesReview,
        authorization::SubjectAccessReview,
        autoscaling::HorizontalPodAutoscaler,
        autoscaling::Scale,
        autoscaling_v2::HorizontalPodAutoscaler,
        batch::CronJob,
        batch::Job,
        certificates::CertificateSigningRequest,
        coordination::Lease,
        discovery::EndpointSlice,
        events::Event,
        networking::IPAddress,
        networking::Ingress,
        networking::IngressClass,
        networking::NetworkPolicy,
        networking::ServiceCIDR,
        node::RuntimeClass,
        policy::Eviction,
        policy::PodDisruptionBudget,
        rbac::ClusterRole,
        rbac::ClusterRoleBinding,
        rbac::Role,
        rbac::RoleBinding,
        scheduling::PriorityClass,
        storage::CSIDriver,
        storage::CSINode,
        storage::CSIStorageCapacity,
        storage::StorageClass,
        storage::VolumeAttachment,
        meta::DeleteOptions,
        meta::Status,
    );
    let text = |value: &Value| value["description"].as_str().unwrap_or_default().to_owned();
    generator
        .take_definitions(false)
        .into_iter()
        .map(|(name, schema)| {
            let fields = schema["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(field, property)| (field.clone(), text(property)))
                .filter(|(_, text)| !text.is_empty())
                .collect();
            (name, TypeDescription { text: text(&schema), fields })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn nested_types_are_described_by_their_openapi_names() {
        let descriptions = super::descriptions();
        for (name, field) in [
            ("io.k8s.api.apps.v1.DeploymentSpec", "replicas"),
            ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec", "maxReplicas"),
            ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "metrics"),
            ("io.k8s.api.core.v1.Container", "image"),
            ("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"),
            ("io.k8s.api.networking.v1.ServiceCIDRSpec", "cidrs"),
            ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "labels"),
        ] {
            assert!(descriptions[name].fields.contains_key(field), "{name}.{field}");
        }
    }
}
