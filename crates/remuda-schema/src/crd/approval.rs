//! Groups of the Kubernetes community need an approval on their definitions.

use serde_json::Value;

use crate::{crd::text, error::FieldError, gotext};

const ANNOTATION: &str = "api-approved.kubernetes.io";

#[derive(Clone, Copy, PartialEq)]
enum Approval {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The condition `KubernetesAPIApprovalPolicyConformant` of a definition: status, reason and message. Groups
/// outside the community have none.
pub fn approval_condition(crd: &Value) -> Option<(&'static str, &'static str, String)> {
    if !is_protected(crd) {
        return None;
    }
    let value = annotation(crd);
    Some(match state(crd) {
        Approval::Missing => ("False", "MissingAnnotation", missing()),
        Approval::Approved => ("True", "ApprovedAnnotation", format!("approved in {value}")),
        Approval::Bypassed => {
            ("False", "UnapprovedAnnotation", format!("not approved: {}", gotext::quote(value)))
        }
        Approval::Invalid => ("Unknown", "UnknownAnnotation", invalid()),
    })
}

fn is_protected(crd: &Value) -> bool {
    let group = crd.get("spec").map(|spec| text(spec, "group")).unwrap_or_default();
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn missing() -> String {
    format!("protected groups must have approval annotation {}, {SEE}", gotext::quote(ANNOTATION))
}

fn invalid() -> String {
    format!(
        "protected groups must have approval annotation {} with either a URL or a reason starting with \"unapproved\", {SEE}",
        gotext::quote(ANNOTATION)
    )
}

pub(super) fn check(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !is_protected(new) {
        return;
    }
    let approval = state(new);
    // An update that leaves the approval as it was is not the place to complain about it.
    if old.is_some_and(|old| state(old) == approval) {
        return;
    }
    let field = format!("metadata.annotations[{ANNOTATION}]");
    match approval {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => errors.push(FieldError::required(field, &missing())),
        Approval::Invalid => {
            errors.push(FieldError::invalid(field, &annotation(new).into(), &invalid()));
        }
    }
}

fn annotation(crd: &Value) -> &str {
    let annotations = crd.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.map(|annotations| text(annotations, ANNOTATION)).unwrap_or_default()
}

fn state(crd: &Value) -> Approval {
    let value = annotation(crd);
    if value.is_empty() {
        Approval::Missing
    } else if value.starts_with("unapproved") {
        Approval::Bypassed
    } else if is_url(value) {
        Approval::Approved
    } else {
        Approval::Invalid
    }
}

fn is_url(text: &str) -> bool {
    crate::format::is_request_uri(text)
        && text.split_once("://").is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with(['/', '?']))
}
