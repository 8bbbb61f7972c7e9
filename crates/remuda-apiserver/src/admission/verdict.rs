//! What a webhook answered: checked as Kubernetes checks it, and told to the client in its words.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::status::ApiError;

/// Which sort of webhook answers: only a mutating one may patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Mutating,
    Validating,
}

/// A response that is well formed.
#[derive(Debug, PartialEq)]
pub(super) struct Response {
    pub(super) warnings: Vec<String>,
    /// A JSON patch, of a mutating webhook.
    pub(super) patch: Option<Vec<u8>>,
    /// The `status` of a refusal.
    pub(super) denied: Option<Value>,
}

/// Reads the answer to a review of `version` with this `uid`. `v1beta1` demanded less.
pub(super) fn read(mut answer: Value, version: &str, uid: &str, sort: Sort) -> Result<Response, String> {
    // An answer may be anything, and only objects have fields to take.
    let response = answer.get_mut("response").map(Value::take).filter(Value::is_object);
    let mut response = response.ok_or("webhook response was absent")?;
    let strict = version == "v1";
    if strict {
        let given = response["uid"].as_str().unwrap_or_default();
        if given != uid {
            return Err(format!("expected response.uid={uid:?}, got {given:?}"));
        }
        let text = |field: &str| answer[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
            // The group before the slash may be empty.
            let slash = if api_version.contains('/') { "" } else { "/" };
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {slash}{api_version}, Kind={kind}"
            ));
        }
    }
    let patch = read_patch(&response, strict, sort)?;
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(Response {
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
        patch,
        denied: (response["allowed"] != true).then(|| response["status"].take()),
    })
}

fn read_patch(response: &Value, strict: bool, sort: Sort) -> Result<Option<Vec<u8>>, String> {
    let patch = match &response["patch"] {
        Value::Null => None,
        Value::String(text) => {
            let bytes = STANDARD.decode(text).map_err(|error| format!("response.patch: {error}"))?;
            Some(bytes).filter(|bytes| !bytes.is_empty())
        }
        _ => return Err("response.patch is not a text in base64".to_owned()),
    };
    let given = response.get("patchType").filter(|given| !given.is_null());
    if sort == Sort::Validating {
        return match (patch.filter(|_| strict), given.filter(|_| strict)) {
            (Some(_), _) => Err("validating webhook may not return response.patch".to_owned()),
            (None, Some(_)) => Err("validating webhook may not return response.patchType".to_owned()),
            (None, None) => Ok(None),
        };
    }
    if !strict {
        return Ok(patch);
    }
    match (&patch, given.map(|given| given.as_str().unwrap_or_default())) {
        (Some(_), None) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (None, Some(_)) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (_, Some("")) => Err("webhook returned invalid response.patchType of \"\"".to_owned()),
        (Some(_), Some(other)) if other != "JSONPatch" => Err(format!("unsupported patch type {other:?}")),
        _ => Ok(patch),
    }
}

/// The refusal as the client hears it: code, reason and details are the webhook's own.
pub(super) fn denial(name: &str, status: &Value) -> ApiError {
    let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let reason = text("reason").unwrap_or_default();
    let detail = match text("message").or(text("reason")) {
        Some(detail) => format!(": {detail}"),
        None => " without explanation".to_owned(),
    };
    // A refusal is never a success, whatever its code says.
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let message = format!("admission webhook {name:?} denied the request{detail}");
    let mut error = ApiError::new(code, reason.to_owned(), message);
    if let Some(details) = status.get("details").filter(|details| details.is_object()) {
        let seconds = details["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0);
        error.retry_after = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        error.details = Some(details.clone());
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `response` is the response without its uid, which is right.
    #[track_caller]
    fn refused(sort: Sort, response: Value, expected: &str) {
        let mut review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        review["response"]["uid"] = "u".into();
        assert_eq!(read(review, "v1", "u", sort), Err(expected.to_owned()));
    }

    #[test]
    fn patches_come_with_their_type_and_from_mutating_webhooks_only() {
        let patch = STANDARD.encode("[]");
        let absent = "webhook returned response.patch but not response.patchType";
        refused(Sort::Mutating, json!({"allowed": true, "patch": patch}), absent);
        let alone = "webhook returned response.patchType but not response.patch";
        refused(Sort::Mutating, json!({"allowed": true, "patchType": "JSONPatch"}), alone);
        let both = json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"});
        refused(Sort::Validating, both.clone(), "validating webhook may not return response.patch");
        let other = json!({"allowed": true, "patch": patch, "patchType": "Merge"});
        refused(Sort::Mutating, other, "unsupported patch type \"Merge\"");
        // The old version knew no types.
        let old =
            read(json!({"response": {"allowed": true, "patch": patch}}), "v1beta1", "u", Sort::Mutating);
        assert_eq!(old.unwrap().patch, Some(b"[]".to_vec()));
    }

    #[test]
    fn an_answer_of_another_kind_or_to_another_question_is_none() {
        let answer = |kind: &str, version: &str, uid: &str| {
            let review =
                json!({"apiVersion": version, "kind": kind, "response": {"uid": uid, "allowed": true}});
            read(review, "v1", "u", Sort::Validating).unwrap_err()
        };
        let expected = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got";
        let old = answer("AdmissionReview", "admission.k8s.io/v1beta1", "u");
        assert_eq!(old, format!("{expected} admission.k8s.io/v1beta1, Kind=AdmissionReview"));
        assert_eq!(answer("", "", "u"), format!("{expected} /, Kind="));
        let other = answer("AdmissionReview", "admission.k8s.io/v1", "v");
        assert_eq!(other, "expected response.uid=\"u\", got \"v\"");
        assert_eq!(read(json!([]), "v1", "u", Sort::Mutating).unwrap_err(), "webhook response was absent");
    }
}
