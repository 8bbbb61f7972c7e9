//! Approved CertificateSigningRequests get their certificate.

use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_auth::{
    pki::csr::{Csr, Signer},
    request_info::Verb,
};
use serde_json::Value;

use crate::{
    crd::{condition, set_condition},
    server::Inner,
    status::ApiResult,
};

impl Inner {
    pub(super) async fn sign_request(&self, name: &str) -> ApiResult<()> {
        let Some(authority) = &self.config.signer else { return Ok(()) };
        let key = format!("/certificates.k8s.io/certificatesigningrequests/{name}");
        let Some(request) = self.read_object(&key).await? else { return Ok(()) };
        let status = &request["status"];
        let has = |kind: &str| condition(status, kind).is_some_and(|known| known["status"] == "True");
        let signer = Signer::from_name(request["spec"]["signerName"].as_str().unwrap_or_default());
        let (Some(signer), true) = (signer, has("Approved")) else { return Ok(()) };
        if status["certificate"].is_string() || has("Failed") || has("Denied") {
            return Ok(());
        }
        let outcome = self.certificate(authority, signer, &request["spec"]);
        let call = self
            .own_call("certificates.k8s.io", "certificatesigningrequests", Verb::Update, None, Some(name))?
            .through("status");
        let now = self.now_text();
        let written = self.change(&call, |request| {
            match &outcome {
                Ok(pem) => request["status"]["certificate"] = STANDARD.encode(pem).into(),
                Err(cause) => {
                    let mut status = request["status"].take();
                    set_condition(&mut status, "Failed", "True", "SignerValidationFailure", cause, &now);
                    request["status"] = status;
                }
            }
            Ok(())
        });
        match written.await {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    fn certificate(
        &self,
        authority: &remuda_auth::pki::authority::Authority,
        signer: Signer,
        spec: &Value,
    ) -> Result<String, String> {
        let pem = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok());
        let pem = pem.and_then(|pem| String::from_utf8(pem).ok()).ok_or("spec.request is not a PEM text")?;
        let csr = Csr::from_pem(&pem).map_err(|error| error.to_string())?;
        let usages: Vec<String> = spec["usages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|usage| usage.as_str().map(str::to_owned))
            .collect();
        let seconds = spec["expirationSeconds"].as_i64();
        csr.sign(authority, signer, &usages, seconds, self.now()).map_err(|error| error.to_string())
    }
}
