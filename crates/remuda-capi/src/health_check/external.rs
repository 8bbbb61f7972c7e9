//! Remediation by somebody else: requests cloned from a template, one for each Machine, of its name.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions},
    core::GroupVersionKind,
};
use remuda_api::core::{Machine, MachineHealthCheck, RemediationTemplate};
use remuda_control::{Informer, ObjectKey, Scope};
use remuda_names::capi::condition as kind;
use remuda_rollout::{
    condition::{
        Condition, Status,
        old::{OldCondition, Severity},
    },
    contract::{Contract, crd_name},
};

use super::{MANAGER, Pass, checks_of, targets::Target};
use crate::{
    error::{Error, is_code},
    managed::{group_of, plain_owner},
    providers::{Clone, Provided, REFERENCES, Resolved, named, reference_key},
    save::PATIENCE,
};

/// Checks by the names of the definitions their templates and requests need.
const BY_CRD: &str = "crd";
/// How long the first list of requests may take.
const FIRST_LIST: Duration = Duration::from_secs(10);

pub(super) fn index(checks: &Informer<MachineHealthCheck>) {
    checks.add_index(REFERENCES, |check| {
        let namespace = check.metadata.namespace.as_deref().unwrap_or_default();
        let template = check.spec.remediation.template_ref.iter();
        template
            .map(|template| {
                reference_key(group_of(&template.api_version), &template.kind, namespace, &template.name)
            })
            .collect()
    });
    checks.add_index(BY_CRD, |check| {
        let template = check.spec.remediation.template_ref.iter();
        template
            .flat_map(|template| [crd(template, &template.kind), crd(template, request_kind(template))])
            .collect()
    });
}

fn crd(template: &RemediationTemplate, kind: &str) -> String {
    crd_name(group_of(&template.api_version), kind)
}

fn request_kind(template: &RemediationTemplate) -> &str {
    template.kind.strip_suffix("Template").unwrap_or(&template.kind)
}

/// A kind as a template's reference names it. The version is part of the reference.
fn resource(template: &RemediationTemplate, kind: &str) -> ApiResource {
    let (group, version) = template.api_version.rsplit_once('/').unwrap_or(("", &template.api_version));
    let plural = crd_name("", kind);
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(group, version, kind),
        plural.trim_end_matches('.'),
    )
}

/// The requests there are, and the template for more.
pub(super) struct External {
    reference: RemediationTemplate,
    templates: Informer<DynamicObject>,
    requests: Informer<DynamicObject>,
}

impl External {
    /// A request for a Machine exists, or is going.
    pub(super) fn is_requested(&self, machine: &Machine) -> bool {
        self.requests.get(&ObjectKey::of(&machine.metadata)).is_some()
    }
}

impl Pass<'_> {
    /// Finds the kinds. The check is woken when they, the template or a request change.
    pub(super) async fn external(&mut self, reference: &RemediationTemplate) -> Result<External, Error> {
        let informers = &self.capi.ctx.informers;
        let enqueuer = &self.all.enqueuer;
        let definitions = informers.metadata::<CustomResourceDefinition>(Scope::all());
        let checks = self.all.checks.clone();
        enqueuer.follow(&definitions, move |definition| checks.keys_by_index(BY_CRD, &definition.name_any()));
        definitions.wait_synced().await;
        for kind in [&*reference.kind, request_kind(reference)] {
            let crd = crd(reference, kind);
            if definitions.get(&ObjectKey::cluster_wide(&crd)).is_none() {
                let group = group_of(&reference.api_version).to_owned();
                let error = Error::NoCrd { crd, kind: kind.to_owned(), group };
                self.remediation_template = Some(unavailable(error.to_string()));
                return Err(error);
            }
        }
        let templates = informers.dynamic(&resource(reference, &reference.kind), Scope::all());
        let (checks, group, kind) =
            (self.all.checks.clone(), group_of(&reference.api_version).to_owned(), reference.kind.clone());
        enqueuer.follow(&templates, move |template: &DynamicObject| {
            let namespace = template.namespace().unwrap_or_default();
            checks.keys_by_index(REFERENCES, &reference_key(&group, &kind, &namespace, &template.name_any()))
        });
        let requests = informers.dynamic(&resource(reference, request_kind(reference)), Scope::all());
        let (checks, machines) = (self.all.checks.clone(), self.capi.machines.clone());
        enqueuer.follow(&requests, move |request: &DynamicObject| {
            let machine: Option<Arc<Machine>> = machines.get(&ObjectKey::of(&request.metadata));
            machine.map(|machine| checks_of(&checks, &machine)).unwrap_or_default()
        });
        for cache in [&templates, &requests] {
            if tokio::time::timeout(FIRST_LIST, cache.wait_synced()).await.is_err() {
                let (kind, group) = (cache.kind().kind.clone(), cache.kind().group.clone());
                return Err(Error::NotServed { kind, group });
            }
        }
        Ok(External { reference: reference.clone(), templates, requests })
    }

    /// Makes a request, and tells the condition of the Machine that says so.
    pub(super) async fn request(
        &mut self,
        external: &External,
        target: &Target,
    ) -> (Condition, Result<(), Error>) {
        let reference = &external.reference;
        let Some(template) = external.templates.get(&self.key.sibling(&reference.name)) else {
            let condition = self.no_template();
            self.remediation_template = Some(unavailable(condition.message.clone()));
            // The template wakes us when it comes.
            return (condition, Ok(()));
        };
        self.remediation_template = Some(OldCondition::good("ExternalRemediationTemplateAvailable"));
        let kind = Resolved { contract: Contract::V1Beta2, resource: resource(reference, &reference.kind) };
        let machine = &*target.machine;
        let clone = Clone {
            template: &Provided { object: template, kind },
            name: &machine.name_any(),
            cluster: &machine.spec.cluster_name,
            owner: plain_owner(machine),
            labels: &Default::default(),
            annotations: &Default::default(),
        };
        let (resource, object) = clone.make();
        let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let waiting = remediated("WaitingForRemediation", String::new());
        match self.capi.providers.api(&resource, self.namespace()).create(&post, &object).await {
            Ok(created) => {
                if let Some(version) = created.resource_version() {
                    external.requests.wait_for(&version, PATIENCE).await;
                }
                (waiting, Ok(()))
            }
            Err(error) if is_code(&error, 409) => (waiting, Ok(())),
            Err(source) => {
                let what = named(&resource, self.namespace(), &machine.name_any());
                let message = "Please check controller logs for errors".to_owned();
                let failed = remediated("RemediationRequestCreationFailed", message);
                (failed, Err(Error::Api { verb: "create", what, source }))
            }
        }
    }

    /// Of a Machine that nobody can be asked to remediate.
    pub(super) fn no_template(&self) -> Condition {
        let template = self.check.spec.remediation.template_ref.clone().unwrap_or_default();
        let (kind, key) = (template.kind, self.key.sibling(&template.name));
        let message = format!("Error retrieving remediation template {kind} {key}");
        remediated("RemediationTemplateNotFound", message)
    }

    /// The Machine is well again.
    pub(super) async fn withdraw(&self, external: &External, target: &Target) -> Result<(), Error> {
        let Some(request) = external.requests.get(&ObjectKey::of(&target.machine.metadata)) else {
            return Ok(());
        };
        if request.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let resource = external.requests.kind().api_resource();
        let preconditions = Preconditions { uid: request.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let api = self.capi.providers.api(&resource, self.namespace());
        match api.delete(&request.name_any(), &params).await {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(source) => {
                let what = named(&resource, self.namespace(), &request.name_any());
                Err(Error::Api { verb: "delete", what, source })
            }
        }
    }
}

fn remediated(reason: &str, message: String) -> Condition {
    Condition::new(kind::EXTERNALLY_REMEDIATED, Status::False, reason, message)
}

fn unavailable(message: String) -> OldCondition {
    let (kind, reason) = ("ExternalRemediationTemplateAvailable", "ExternalRemediationTemplateNotFound");
    OldCondition::bad(kind, Severity::Error, reason, message)
}
