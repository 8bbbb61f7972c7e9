//! Reading certificates.

use jiff::{SignedDuration, Timestamp};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer,
    x509::X509Name,
};

use super::{PkiError, authority::San};
use crate::{
    identity::{EXTRA_CREDENTIAL_ID, User},
    keys::sha256,
    pem,
};

/// The parts of a certificate that matter here, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub names: Vec<San>,
    pub validity: Validity,
    pub is_authority: bool,
    /// Extended key usages; a certificate without any is good for everything.
    pub for_clients: bool,
    pub for_servers: bool,
    pub(super) subject: Vec<u8>,
    pub(super) spki: Vec<u8>,
    pub(super) key_identifier: Option<Vec<u8>>,
}

/// From when until when a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Validity {
    pub fn of_pem(text: &str) -> Result<Self, PkiError> {
        let block = pem::find(text, &["CERTIFICATE"]).ok_or(PkiError::NotACertificate)?;
        Ok(Certificate::parse(&block.der)?.validity)
    }

    /// When two thirds of the life are over: late enough to be rare, early enough that a server that was
    /// off for weeks comes back with a good certificate.
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before);
        let part = SignedDuration::from_secs(life.as_secs() / 3 * 2);
        self.not_before.saturating_add(part).unwrap_or(self.not_after)
    }

    pub fn renew_needed(&self, now: Timestamp) -> bool {
        now >= self.renew_at()
    }

    pub fn contains(&self, now: Timestamp) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

impl Certificate {
    pub fn parse(der: &[u8]) -> Result<Self, PkiError> {
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| PkiError::NotACertificate)?;
        if !rest.is_empty() {
            return Err(PkiError::NotACertificate);
        }
        let time = |time: i64| Timestamp::from_second(time).map_err(|_| PkiError::NotACertificate);
        let validity = Validity {
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
        };
        let subject = parsed.subject();
        let mut certificate = Self {
            common_name: common_name(subject),
            organizations: organizations(subject),
            names: Vec::new(),
            validity,
            is_authority: false,
            for_clients: true,
            for_servers: true,
            subject: subject.as_raw().to_vec(),
            spki: parsed.public_key().raw.to_vec(),
            key_identifier: None,
        };
        for extension in parsed.extensions() {
            certificate.read(extension.parsed_extension());
        }
        Ok(certificate)
    }

    pub fn parse_pem(text: &str) -> Result<Self, PkiError> {
        let block = pem::find(text, &["CERTIFICATE"]).ok_or(PkiError::NotACertificate)?;
        Self::parse(&block.der)
    }

    fn read(&mut self, extension: &ParsedExtension<'_>) {
        match extension {
            ParsedExtension::BasicConstraints(constraints) => self.is_authority = constraints.ca,
            ParsedExtension::ExtendedKeyUsage(usage) => {
                self.for_clients = usage.any || usage.client_auth;
                self.for_servers = usage.any || usage.server_auth;
            }
            ParsedExtension::SubjectKeyIdentifier(identifier) => {
                self.key_identifier = Some(identifier.0.to_vec());
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                self.names = names.general_names.iter().filter_map(san).collect();
            }
            _ => {}
        }
    }
}

/// The last one, if a name has several.
pub(super) fn common_name(name: &X509Name<'_>) -> String {
    let values = name.iter_common_name().filter_map(|attribute| attribute.as_str().ok());
    values.last().unwrap_or("").to_owned()
}

pub(super) fn organizations(name: &X509Name<'_>) -> Vec<String> {
    name.iter_organization().filter_map(|attribute| attribute.as_str().ok()).map(str::to_owned).collect()
}

/// `None` for kinds of names nobody here uses.
pub(super) fn san(name: &GeneralName<'_>) -> Option<San> {
    Some(match name {
        GeneralName::DNSName(text) => San::Dns((*text).to_owned()),
        GeneralName::RFC822Name(text) => San::Email((*text).to_owned()),
        GeneralName::URI(text) => San::Uri((*text).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => San::Ip(<[u8; 4]>::try_from(*bytes).ok()?.into()),
            16 => San::Ip(<[u8; 16]>::try_from(*bytes).ok()?.into()),
            _ => return None,
        },
        _ => return None,
    })
}

/// The identity a client certificate stands for. That it chains to the client CA, is in its time and may be
/// used by clients was checked in the TLS handshake.
pub fn client_user(der: &[u8]) -> Result<User, PkiError> {
    let certificate = Certificate::parse(der)?;
    if certificate.common_name.is_empty() {
        return Err(PkiError::NoCommonName);
    }
    let credential = format!("X509SHA256={}", remuda_base::hex(sha256(der)));
    let user = User::new(certificate.common_name, certificate.organizations);
    Ok(user.authenticated().with_extra(EXTRA_CREDENTIAL_ID, credential))
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
