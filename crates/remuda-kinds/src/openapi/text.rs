//! Descriptions, in words of our own: what `kubectl explain` shows first.

pub(super) const API_VERSION: &str = "Group and version of the schema this object is written in.";
pub(super) const KIND: &str = "Name of the schema this object is written in.";
pub(super) const METADATA: &str = "Name, labels and bookkeeping common to all objects.";
pub(super) const LIST_METADATA: &str = "Version of the list and how to continue it.";
pub(super) const SPEC: &str = "The desired state, written by users and controllers.";
pub(super) const STATUS: &str = "The observed state, written by controllers.";

/// One line about a built-in kind.
pub(super) fn of_kind(kind: &str) -> Option<&'static str> {
    let text = match kind {
        "Event" => "A report of something that happened to an object.",
        "APIService" => "Registers a group and version with the API server.",
        "Binding" => "Assigns a pod to a node.",
        "CSIDriver" => "Describes a volume driver installed in the cluster.",
        "CSINode" => "Lists the volume drivers present on a node.",
        "CSIStorageCapacity" => "Tells how much storage a driver can provide in a topology segment.",
        "CertificateSigningRequest" => "Asks a signer for an X.509 certificate.",
        "ClusterRole" => "A set of permissions that can be granted in one or in all namespaces.",
        "ClusterRoleBinding" => "Grants the permissions of a ClusterRole in all namespaces.",
        "ComponentStatus" => "Whether a part of the control plane is well.",
        "ConfigMap" => "Configuration data for programs to read.",
        "ControllerRevision" => "An immutable snapshot of a controller's state.",
        "CronJob" => "Creates jobs on a schedule.",
        "CustomResourceDefinition" => "Defines a new kind of object and serves it.",
        "DaemonSet" => "Runs a copy of a pod on every matching node.",
        "DeleteOptions" => "How an object is to be deleted.",
        "Deployment" => "Keeps a number of identical pods running and rolls out changes to them.",
        "EndpointSlice" => "A part of the network endpoints of a service.",
        "Endpoints" => "The network endpoints of a service; EndpointSlice is its successor.",
        "Eviction" => "Asks for a pod to be evicted if its disruption budget allows it.",
        "Ingress" => "Routes HTTP requests from outside to services.",
        "IngressClass" => "Names a controller that implements ingresses.",
        "Job" => "Runs pods until a number of them has succeeded.",
        "Lease" => "A lock with an expiry, held by one participant at a time.",
        "LimitRange" => "Bounds and defaults for the resources of objects in a namespace.",
        "LocalSubjectAccessReview" => "Asks whether somebody may do something in a namespace.",
        "MutatingWebhookConfiguration" => "Webhooks that may change objects while they are admitted.",
        "MutatingAdmissionPolicy" => "Changes made to objects while they are admitted, written in CEL.",
        "MutatingAdmissionPolicyBinding" => "Puts a mutating admission policy to work with its parameters.",
        "Namespace" => "A scope for names of objects.",
        "NetworkPolicy" => "Which traffic is allowed to and from a set of pods.",
        "Node" => "A machine that runs pods.",
        "ObjectMeta" => METADATA,
        "PersistentVolume" => "A piece of storage in the cluster.",
        "PersistentVolumeClaim" => "A request for storage.",
        "Pod" => "Containers that run together on one node.",
        "PodDisruptionBudget" => "How many pods of a set may be down at once.",
        "PodTemplate" => "A template to create pods from.",
        "PriorityClass" => "Gives a name to a scheduling priority.",
        "ReplicaSet" => "Keeps a number of identical pods running.",
        "ReplicationController" => "Keeps a number of identical pods running; ReplicaSet is its successor.",
        "ResourceQuota" => "Limits what a namespace may use in total.",
        "Role" => "A set of permissions within a namespace.",
        "RoleBinding" => "Grants the permissions of a role within a namespace.",
        "RuntimeClass" => "Names a container runtime configuration.",
        "Scale" => "The number of replicas of a scalable object.",
        "Secret" => "Confidential data for programs to read.",
        "SelfSubjectAccessReview" => "Asks whether the caller may do something.",
        "SelfSubjectReview" => "Tells who the caller is.",
        "SelfSubjectRulesReview" => "Lists what the caller may do in a namespace.",
        "Service" => "A stable network address for a set of pods.",
        "ServiceAccount" => "An identity for programs.",
        "StatefulSet" => "Runs pods with stable names and storage.",
        "Status" => "The outcome of a request that returns no object.",
        "StorageClass" => "A way to provision volumes.",
        "SubjectAccessReview" => "Asks whether somebody may do something.",
        "TokenRequest" => "Asks for a token of a service account.",
        "TokenReview" => "Asks whom a token belongs to.",
        "ValidatingAdmissionPolicy" => "Rules that objects must meet to be admitted.",
        "ValidatingAdmissionPolicyBinding" => "Puts an admission policy to work with its parameters.",
        "ValidatingWebhookConfiguration" => "Webhooks that may refuse objects while they are admitted.",
        "VolumeAttachment" => "The intent to attach a volume to a node.",
        _ => return None,
    };
    Some(text)
}

/// Description of a field every kind has.
pub(super) fn of_field(name: &str) -> Option<&'static str> {
    match name {
        "metadata" => Some(METADATA),
        "spec" => Some(SPEC),
        "status" => Some(STATUS),
        _ => None,
    }
}
