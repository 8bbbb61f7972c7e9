//! What single kinds do beyond storing: preparation, validation, and what guards them.

use remuda_auth::rbac::{
    escalation::{
        BindError, bind_attributes, check_aggregation, check_binding, check_escalation, escalate_attributes,
        is_harmless_update,
    },
    object::{Kind as RbacKind, RoleRef},
    rule::Rule,
};
use remuda_objects::{
    meta::{self, MetaRules},
    status, validate,
};
use remuda_schema::FieldError;
use serde_json::{Value, json};

use crate::{
    call::Call,
    controllers::{apiservices, volumes},
    options::DeleteOptions,
    registry::Resource,
    server::Inner,
    status::{ApiError, ApiResult},
    write::Part,
};

const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

impl Inner {
    /// Sets what the server decides about a new object.
    pub(crate) async fn prepare_create(&self, call: &Call, object: &mut Value) -> ApiResult<()> {
        let resource = &*call.resource;
        if resource.is_custom() {
            if resource.has_status() {
                status::drop_status(object);
            }
            return Ok(());
        }
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Namespace") => {
                let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
                if !finalizers.iter().any(|name| name == "kubernetes") {
                    let mut finalizers = finalizers;
                    finalizers.push("kubernetes".into());
                    object["spec"]["finalizers"] = finalizers.into();
                }
            }
            ("", "Pod") => self.admit_pod(call, object).await?,
            ("", "Service") => self.give_address(call, object, None)?,
            ("", "PersistentVolumeClaim") => {
                self.set_storage_class(object).await?;
                volumes::protect(object, volumes::OF_CLAIMS);
            }
            ("", "PersistentVolume") => volumes::protect(object, volumes::OF_VOLUMES),
            ("networking.k8s.io", "Ingress") => self.set_ingress_class(object).await?,
            ("certificates.k8s.io", "CertificateSigningRequest") => {
                object["spec"]["username"] = call.user.name.as_str().into();
                object["spec"]["groups"] = json!(call.user.groups);
                for (field, value) in [("uid", json!(call.user.uid)), ("extra", json!(call.user.extra))] {
                    match value.as_str() {
                        Some("") => {
                            object["spec"].as_object_mut().map(|spec| spec.remove(field));
                        }
                        _ => object["spec"][field] = value,
                    }
                }
                crate::signers::check_subject(call, object)?;
            }
            ("rbac.authorization.k8s.io", kind) => self.check_rbac(call, kind, object, None)?,
            _ => {}
        }
        Ok(())
    }

    /// Sets what the server decides about a changed object, after the writer's part of it is known.
    pub(crate) fn finish_update(&self, call: &Call, object: &mut Value, live: &Value) -> ApiResult<()> {
        match (call.resource.group.as_str(), call.resource.kind.as_str()) {
            ("", "Pod") => crate::pods::readmit(object),
            ("", "Service") => self.give_address(call, object, Some(live))?,
            ("apiregistration.k8s.io", "APIService")
                if apiservices::is_remote(object) != apiservices::is_remote(live) =>
            {
                self.judge_api_service(call, object);
            }
            _ => {}
        }
        Ok(())
    }

    /// Says of a workload that it is stored and nothing more, where nobody runs Pods.
    pub(crate) fn warn_of_standstill(&self, call: &Call) {
        let resource = &*call.resource;
        let is_workload = matches!(
            (resource.group.as_str(), resource.kind.as_str()),
            ("", "Pod" | "ReplicationController")
                | ("apps", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet")
                | ("batch", "Job" | "CronJob")
                | ("autoscaling", "HorizontalPodAutoscaler")
        );
        // Controllers of this server know what becomes of theirs.
        if !is_workload || self.kubelets.get().is_some() || call.user.is_controller() {
            return;
        }
        let kind = &resource.kind;
        call.warn(format!(
            "this server runs no Pods: the {kind} is stored, nothing acts on it and its status will not change"
        ));
    }

    /// Sets the first status of kinds that have one from birth.
    pub(crate) fn finish_create(&self, call: &Call, object: &mut Value) {
        match (call.resource.group.as_str(), call.resource.kind.as_str()) {
            ("", "Namespace") => object["status"] = json!({"phase": "Active"}),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => self.crds.prepare(self, object, None),
            ("apiregistration.k8s.io", "APIService") => self.judge_api_service(call, object),
            _ => {}
        }
    }

    fn judge_api_service(&self, call: &Call, object: &mut Value) {
        if apiservices::is_remote(object) {
            call.warn(
                "this server does not pass requests on to other API servers: the APIService is stored only",
            );
        }
        object["status"] = apiservices::status(object, &self.now_text());
    }

    /// Undoes what an update may not change.
    pub(crate) async fn prepare_update(
        &self,
        call: &Call,
        new: &mut Value,
        live: &Value,
        part: Part,
    ) -> ApiResult<()> {
        let resource = &*call.resource;
        match part {
            Part::Other => {}
            Part::Main if is_pod_subresource(call) => {
                crate::pods::keep_to_subresource(call.subresource(), new, live);
            }
            Part::Status if resource.is_custom() => status::prepare_custom_status_update(new, live),
            Part::Status => {
                status::prepare_status_update(&resource.group, &resource.kind, new, live);
                if resource.kind == "CertificateSigningRequest" {
                    self.check_signing(call, new, live)?;
                }
            }
            Part::Main if resource.is_custom() => {
                if resource.has_status() {
                    status::keep_status(new, live);
                }
            }
            Part::Main => {
                status::prepare_update(&resource.group, &resource.kind, new, live);
                match (resource.group.as_str(), resource.kind.as_str()) {
                    ("", "Namespace") => {
                        let name = meta::name(new).to_owned();
                        new["metadata"]["labels"][NAMESPACE_LABEL] = name.into();
                        new["spec"]["finalizers"] = live["spec"]["finalizers"].clone();
                        new["status"] = live["status"].clone();
                    }
                    ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                        self.crds.prepare(self, new, Some(live));
                    }
                    ("rbac.authorization.k8s.io", kind) => self.check_rbac(call, kind, new, Some(live))?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn validate_create(&self, call: &Call, object: &Value) -> ApiResult<()> {
        let resource = &*call.resource;
        let mut errors = meta::validate_object_meta(object, &meta_rules(resource));
        if resource.is_custom() {
            warn_finalizers(call, object, None);
            if let Some(schema) = &resource.schema {
                errors.extend(schema.validate(object, None));
            }
            errors.extend(check_scale(resource, object, Part::Main));
        } else {
            errors.extend(validate::create(&resource.group, &resource.kind, object));
            if resource.group == "admissionregistration.k8s.io" {
                errors.extend(crate::admission::check_expressions(&resource.kind, object, None));
            }
            if resource.kind == "CustomResourceDefinition" {
                errors.extend(remuda_schema::check_crd(object, None));
                remuda_schema::crd_warnings(object, None).into_iter().for_each(|text| call.warn(text));
            }
        }
        refuse(call, object, errors)
    }

    pub(crate) async fn validate_update(
        &self,
        call: &Call,
        new: &Value,
        live: &Value,
        part: Part,
    ) -> ApiResult<()> {
        let resource = &*call.resource;
        let mut errors = meta::validate_meta_update(new, live, &meta_rules(resource));
        if resource.is_custom() {
            if part != Part::Status {
                warn_finalizers(call, new, Some(live));
            }
            if let Some(schema) = &resource.schema {
                errors.extend(match part {
                    Part::Status => schema.validate_status(new, live),
                    Part::Main | Part::Other => schema.validate(new, Some(live)),
                });
            }
            errors.extend(check_scale(resource, new, part));
        } else if is_pod_subresource(call) {
            // Each changes what updates may not; the result must still be a pod.
            errors.extend(validate::create(&resource.group, &resource.kind, new));
            errors.extend(validate::ephemeral_containers(new, live));
        } else if part == Part::Main || part == Part::Other {
            errors.extend(validate::update(&resource.group, &resource.kind, new, live));
            if resource.group == "admissionregistration.k8s.io" {
                errors.extend(crate::admission::check_expressions(&resource.kind, new, Some(live)));
            }
            if resource.kind == "CustomResourceDefinition" {
                errors.extend(remuda_schema::check_crd(new, Some(live)));
                remuda_schema::crd_warnings(new, Some(live)).into_iter().for_each(|text| call.warn(text));
            }
        } else if resource.kind == "CustomResourceDefinition" {
            errors.extend(remuda_schema::check_crd_status(new));
        } else {
            errors.extend(validate::status_update(&resource.group, &resource.kind, new));
        }
        refuse(call, new, errors)
    }

    /// Nobody may grant what they do not hold.
    fn check_rbac(&self, call: &Call, kind: &str, new: &Value, live: Option<&Value>) -> ApiResult<()> {
        let user = &*call.user;
        if user.is_master() {
            return Ok(());
        }
        let Some(kind) = RbacKind::from_kind(kind) else { return Ok(()) };
        let namespace = call.namespace().unwrap_or_default();
        let name = meta::name(new);
        let named = call.named_as(name);
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                let unchanged = live.is_some_and(|live| is_harmless_update(live, new));
                let may_escalate =
                    self.policy.authorize(user, &escalate_attributes(kind, namespace, name)).allowed;
                if unchanged || may_escalate {
                    return Ok(());
                }
                if !new["aggregationRule"].is_null() {
                    check_aggregation(user, &self.policy)
                        .map_err(|error| ApiError::forbidden(named, &error.to_string()))?;
                }
                let rules = Rule::parse_all(new.get("rules"));
                check_escalation(user, &self.policy, namespace, &rules)
                    .map_err(|error| ApiError::forbidden(named, &error.to_string()))
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let unchanged = live.is_some_and(|live| is_harmless_update(live, new));
                let role = RoleRef::parse(new.get("roleRef"));
                let may_bind = bind_attributes(&role, namespace)
                    .is_some_and(|attributes| self.policy.authorize(user, &attributes).allowed);
                if unchanged || may_bind {
                    return Ok(());
                }
                match check_binding(user, &self.policy, namespace, &role) {
                    Ok(()) => Ok(()),
                    Err(BindError::Role(error)) => Err(ApiError::new(404, "NotFound", error.to_string())),
                    Err(BindError::Escalation(error)) => Err(ApiError::forbidden(named, &error.to_string())),
                }
            }
        }
    }
}

/// `binding`, `ephemeralcontainers`, `resize`.
fn is_pod_subresource(call: &Call) -> bool {
    call.resource.kind == "Pod" && !matches!(call.subresource(), "" | "status")
}

fn meta_rules(resource: &Resource) -> MetaRules {
    if resource.is_custom() {
        let name = remuda_objects::names::subdomain_name;
        return MetaRules { namespaced: resource.namespaced, name, domain_finalizers: false };
    }
    validate::meta_rules(&resource.group, &resource.kind, resource.namespaced)
}

/// Defaults that need more than the kind's table; like all defaults they belong to the writer.
pub(crate) fn default_create(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => {
            let name = meta::name(object).to_owned();
            if !name.is_empty() {
                object["metadata"]["labels"][NAMESPACE_LABEL] = name.into();
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => remuda_schema::default_crd(object),
        _ => {}
    }
}

/// The replicas of a scalable custom object must be numbers where the paths say they are.
fn check_scale(resource: &Resource, object: &Value, part: Part) -> Vec<FieldError> {
    let scale = resource.custom().and_then(|custom| custom.crd.view.versions[custom.version].scale.as_ref());
    scale.map_or_else(Vec::new, |scale| remuda_schema::check_scale(scale, object, part == Part::Status))
}

/// Custom objects may have finalizers without a domain, but should not.
fn warn_finalizers(call: &Call, new: &Value, live: Option<&Value>) {
    for name in meta::finalizers(new) {
        let known = live.is_some_and(|live| meta::finalizers(live).any(|known| known == name));
        if !known && !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion") {
            call.warn(format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
}

fn refuse(call: &Call, object: &Value, errors: Vec<FieldError>) -> ApiResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(call.kind_named(meta::name(object)), &errors))
}

/// Namespaces nobody may delete.
const PERMANENT: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) fn may_delete(call: &Call, live: &Value) -> ApiResult<()> {
    let resource = &*call.resource;
    if resource.group.is_empty() && resource.kind == "Namespace" && PERMANENT.contains(&meta::name(live)) {
        return Err(ApiError::forbidden(call.named(), "this namespace may not be deleted"));
    }
    Ok(())
}

/// Kinds whose delete answers with the object even when it is gone; the others say `Success`.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    match resource.group.as_str() {
        "" => matches!(
            resource.kind.as_str(),
            "Namespace"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "Pod"
                | "PodTemplate"
                | "ResourceQuota"
                | "Service"
                | "ServiceAccount"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => resource.kind != "CSIStorageCapacity",
        _ => false,
    }
}

/// What a kind does to itself when its deletion begins.
pub(crate) fn on_delete(resource: &Resource, object: &mut Value, now: jiff::Timestamp) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => object["status"]["phase"] = "Terminating".into(),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crate::crd::begin_termination(object, now),
        _ => {}
    }
}

/// Only pods leave gracefully.
pub(crate) fn grace_seconds(resource: &Resource, live: &Value, options: &DeleteOptions) -> i64 {
    if !(resource.group.is_empty() && resource.kind == "Pod") {
        return 0;
    }
    let scheduled = live["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let over = matches!(live["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !scheduled || over {
        return 0;
    }
    let grace = options
        .grace_seconds
        .or_else(|| live["metadata"]["deletionGracePeriodSeconds"].as_i64())
        .or_else(|| live["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(30);
    if grace < 0 { 1 } else { grace }
}
