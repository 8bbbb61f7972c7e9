//! Who may approve and sign certificates: permissions on `signers`, by signer name.

use remuda_auth::{attributes::Attributes, identity::GROUP_MASTERS, pki::csr::Csr};
use serde_json::Value;

use crate::{
    call::Call,
    server::Inner,
    status::{ApiError, ApiResult},
};

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

impl Inner {
    /// `verb` is `approve` or `sign`. A permission on `domain/*` covers all signers of the domain.
    pub(crate) fn check_signer(&self, call: &Call, verb: &str, request: &Value) -> ApiResult<()> {
        let signer = request["spec"]["signerName"].as_str().unwrap_or_default();
        let domain = signer.split('/').next().unwrap_or_default();
        let allowed = [signer, &format!("{domain}/*")].into_iter().any(|name| {
            let attributes =
                Attributes::resource(verb, "certificates.k8s.io", "signers").version("*").name(name);
            self.policy.authorize(&call.user, &attributes).allowed
        });
        if allowed {
            return Ok(());
        }
        let detail = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(ApiError::forbidden(call.named(), &detail))
    }

    /// Writing a certificate or its failure through `/status` is signing. The verdict is not its to
    /// write: that stays as it is.
    pub(crate) fn check_signing(&self, call: &Call, new: &mut Value, live: &Value) -> ApiResult<()> {
        let list = |request: &Value| request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_verdict =
            |condition: &Value| matches!(condition["type"].as_str(), Some("Approved" | "Denied"));
        let mut verdict = list(live).into_iter().filter(is_verdict);
        let mut conditions = list(new);
        conditions.retain_mut(|condition| {
            if is_verdict(condition) {
                let kept = verdict.next();
                let keep = kept.is_some();
                *condition = kept.unwrap_or_default();
                return keep;
            }
            true
        });
        conditions.extend(verdict);
        if !conditions.is_empty() || new["status"]["conditions"].is_array() {
            new["status"]["conditions"] = conditions.into();
        }
        let (new, old) = (&new["status"], &live["status"]);
        if new["certificate"] == old["certificate"] && new["conditions"] == old["conditions"] {
            return Ok(());
        }
        self.check_signer(call, "sign", live)
    }
}

/// Nobody becomes an administrator by asking for a certificate that says so.
pub(crate) fn check_subject(call: &Call, request: &Value) -> ApiResult<()> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    if request["spec"]["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    let pem = request["spec"]["request"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let csr = pem.and_then(|pem| String::from_utf8(pem).ok()).and_then(|pem| Csr::from_pem(&pem).ok());
    // One that cannot be read is refused by validation.
    if csr.is_some_and(|csr| csr.organizations.iter().any(|group| group == GROUP_MASTERS)) {
        let detail = format!("use of {CLIENT_SIGNER} signer with {GROUP_MASTERS} group is not allowed");
        return Err(ApiError::forbidden(call.named_as(remuda_objects::meta::name(request)), &detail));
    }
    Ok(())
}
