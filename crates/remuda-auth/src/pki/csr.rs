//! Certificate signing requests, for the signers of the CertificateSigningRequest API.
//!
//! Only the subject and the alternative names of a request are taken over. What the certificate may be used
//! for follows from the signer and the API object's `usages`, never from the request itself.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use jiff::{SignedDuration, Timestamp};
use x509_parser::{
    certification_request::X509CertificationRequest, extensions::ParsedExtension, prelude::FromDer,
    x509::SubjectPublicKeyInfo,
};

use super::{
    PkiError,
    authority::{Authority, LEAF_LIFETIME, Purposes, San},
    certificate::{common_name, organizations, san},
};
use crate::{
    identity::{GROUP_MASTERS, GROUP_NODES, NODE_PREFIX},
    pem,
};

/// The shortest `spec.expirationSeconds`.
pub const MIN_EXPIRATION_SECONDS: i64 = 600;

/// The signers we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    ApiServerClient,
    ApiServerClientKubelet,
    KubeletServing,
}

impl Signer {
    /// `None`: somebody else's signer.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "kubernetes.io/kube-apiserver-client" => Self::ApiServerClient,
            "kubernetes.io/kube-apiserver-client-kubelet" => Self::ApiServerClientKubelet,
            "kubernetes.io/kubelet-serving" => Self::KubeletServing,
            _ => return None,
        })
    }
}

/// Why a signer does not sign. The text goes into the `Failed` condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsrRefusal {
    #[error("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed")]
    Masters,
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error("DNS or IP subjectAltName is required")]
    SanRequired,
    #[error("{0} subjectAltNames are not allowed")]
    SanNotAllowed(&'static str),
    #[error("usage {0:?} is required")]
    UsageRequired(&'static str),
    #[error("usage {0:?} is not allowed")]
    UsageNotAllowed(String),
    #[error("may not specify a duration less than 600 seconds")]
    Duration,
}

/// A request whose signature proves that the sender holds the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csr {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub names: Vec<San>,
    subject: Vec<u8>,
    spki: Vec<u8>,
}

impl Csr {
    pub fn from_pem(text: &str) -> Result<Self, PkiError> {
        let block = pem::find(text, &["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"]);
        Self::from_der(&block.ok_or(PkiError::NotARequest)?.der)
    }

    pub fn from_der(der: &[u8]) -> Result<Self, PkiError> {
        let (_, request) = X509CertificationRequest::from_der(der).map_err(|_| PkiError::NotARequest)?;
        let info = &request.certification_request_info;
        let algorithm = request.signature_algorithm.algorithm.to_id_string();
        let algorithm = verification(&algorithm, &info.subject_pki).ok_or(PkiError::Signature)?;
        UnparsedPublicKey::new(algorithm, info.subject_pki.raw)
            .verify(info.raw, &request.signature_value.data)
            .map_err(|_| PkiError::Signature)?;
        let mut names = Vec::new();
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(wanted) = extension {
                names.extend(wanted.general_names.iter().filter_map(san));
            }
        }
        Ok(Self {
            common_name: common_name(&info.subject),
            organizations: organizations(&info.subject),
            names,
            subject: info.subject.as_raw().to_vec(),
            spki: info.subject_pki.raw.to_vec(),
        })
    }

    /// What the signer's rules say to this request with these `spec.usages`.
    pub fn check<S: AsRef<str>>(&self, signer: Signer, usages: &[S]) -> Result<Purposes, CsrRefusal> {
        let purposes = purposes(signer, usages)?;
        let is_node = || {
            if self.organizations != [GROUP_NODES] {
                return Err(CsrRefusal::Organization);
            }
            let node = self.common_name.strip_prefix(NODE_PREFIX);
            if node.is_none_or(str::is_empty) { Err(CsrRefusal::CommonName) } else { Ok(()) }
        };
        let forbid = |dns_and_ip: bool| {
            let forbidden = self.names.iter().find_map(|name| match name {
                San::Dns(_) => dns_and_ip.then_some("DNS"),
                San::Ip(_) => dns_and_ip.then_some("IP"),
                San::Email(_) => Some("Email"),
                San::Uri(_) => Some("URI"),
            });
            forbidden.map_or(Ok(()), |kind| Err(CsrRefusal::SanNotAllowed(kind)))
        };
        match signer {
            Signer::ApiServerClient => {
                // Nobody could ever take such a certificate back.
                if self.organizations.iter().any(|name| name == GROUP_MASTERS) {
                    return Err(CsrRefusal::Masters);
                }
            }
            Signer::ApiServerClientKubelet => {
                is_node()?;
                forbid(true)?;
            }
            Signer::KubeletServing => {
                is_node()?;
                if !self.names.iter().any(|name| matches!(name, San::Dns(_) | San::Ip(_))) {
                    return Err(CsrRefusal::SanRequired);
                }
                forbid(false)?;
            }
        }
        Ok(purposes)
    }

    /// The certificate in PEM, for `status.certificate`.
    pub fn sign<S: AsRef<str>>(
        &self,
        authority: &Authority,
        signer: Signer,
        usages: &[S],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let purposes = self.check(signer, usages)?;
        let lifetime = match expiration_seconds {
            None => LEAF_LIFETIME,
            Some(seconds) if seconds < MIN_EXPIRATION_SECONDS => return Err(CsrRefusal::Duration.into()),
            Some(seconds) => SignedDuration::from_secs(seconds).min(LEAF_LIFETIME),
        };
        let certificate = authority.sign(&self.subject, &self.spki, &self.names, purposes, now, lifetime)?;
        Ok(pem::encode("CERTIFICATE", &certificate))
    }
}

fn purposes<S: AsRef<str>>(signer: Signer, usages: &[S]) -> Result<Purposes, CsrRefusal> {
    let role = match signer {
        Signer::ApiServerClient | Signer::ApiServerClientKubelet => "client auth",
        Signer::KubeletServing => "server auth",
    };
    let mut found = Purposes::default();
    let (mut has_role, mut signs) = (false, false);
    for usage in usages.iter().map(AsRef::as_ref) {
        match usage {
            "digital signature" => signs = true,
            "key encipherment" => found.key_encipherment = true,
            _ if usage == role => has_role = true,
            _ => return Err(CsrRefusal::UsageNotAllowed(usage.to_owned())),
        }
    }
    if !has_role {
        return Err(CsrRefusal::UsageRequired(role));
    }
    if !signs && signer != Signer::ApiServerClient {
        return Err(CsrRefusal::UsageRequired("digital signature"));
    }
    found.client = role == "client auth";
    found.server = !found.client;
    Ok(found)
}

/// How to verify a signature of this kind by this key; `None` if the two do not belong together.
pub(super) fn verification(
    algorithm: &str,
    key: &SubjectPublicKeyInfo<'_>,
) -> Option<&'static dyn VerificationAlgorithm> {
    let curve = || {
        let parameters = key.algorithm.parameters.as_ref()?;
        Some(parameters.as_oid().ok()?.to_id_string())
    };
    let curve = curve().unwrap_or_default();
    let (p256, p384, p521) = ("1.2.840.10045.3.1.7", "1.3.132.0.34", "1.3.132.0.35");
    Some(match (algorithm, curve.as_str()) {
        ("1.2.840.10045.4.3.2", curve) if curve == p256 => &ECDSA_P256_SHA256_ASN1,
        ("1.2.840.10045.4.3.2", curve) if curve == p384 => &ECDSA_P384_SHA256_ASN1,
        ("1.2.840.10045.4.3.2", curve) if curve == p521 => &ECDSA_P521_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", curve) if curve == p256 => &ECDSA_P256_SHA384_ASN1,
        ("1.2.840.10045.4.3.3", curve) if curve == p384 => &ECDSA_P384_SHA384_ASN1,
        ("1.2.840.10045.4.3.3", curve) if curve == p521 => &ECDSA_P521_SHA384_ASN1,
        ("1.2.840.10045.4.3.4", curve) if curve == p256 => &ECDSA_P256_SHA512_ASN1,
        ("1.2.840.10045.4.3.4", curve) if curve == p384 => &ECDSA_P384_SHA512_ASN1,
        ("1.2.840.10045.4.3.4", curve) if curve == p521 => &ECDSA_P521_SHA512_ASN1,
        ("1.2.840.113549.1.1.11", _) => &RSA_PKCS1_2048_8192_SHA256,
        ("1.2.840.113549.1.1.12", _) => &RSA_PKCS1_2048_8192_SHA384,
        ("1.2.840.113549.1.1.13", _) => &RSA_PKCS1_2048_8192_SHA512,
        ("1.3.101.112", _) => &ED25519,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "csr_tests.rs"]
mod tests;
