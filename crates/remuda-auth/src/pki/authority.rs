//! A certificate authority and the certificates it issues.

use std::net::IpAddr;

use aws_lc_rs::rand;
use jiff::{SignedDuration, Timestamp};

use super::{
    PkiError,
    certificate::{Certificate, Validity},
};
use crate::{
    der,
    keys::{Algorithm, KeyPair, sha256},
    pem,
    tokens::RandomError,
};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// How long an authority lasts.
pub const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// How long a server or client certificate lasts, unless somebody asks for less.
pub const LEAF_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);
/// Certificates are valid from a little before they were made: clocks differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// A name in the subjectAltName extension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum San {
    Dns(String),
    Ip(IpAddr),
    Email(String),
    Uri(String),
}

impl San {
    /// An address if it looks like one, else a host name.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Dns(text.to_owned()), Self::Ip)
    }

    fn encode(&self) -> Result<Vec<u8>, PkiError> {
        // These strings are ASCII by definition.
        let ascii = |number: u8, text: &str| {
            let valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            if valid {
                Ok(der::implicit(number, text.as_bytes()))
            } else {
                Err(PkiError::Name(text.to_owned()))
            }
        };
        match self {
            Self::Email(text) => ascii(1, text),
            Self::Dns(text) => ascii(2, text),
            Self::Uri(text) => ascii(6, text),
            Self::Ip(IpAddr::V4(address)) => Ok(der::implicit(7, &address.octets())),
            Self::Ip(IpAddr::V6(address)) => Ok(der::implicit(7, &address.octets())),
        }
    }
}

/// What a leaf certificate may be used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purposes {
    pub client: bool,
    pub server: bool,
    pub key_encipherment: bool,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct Credential {
    pub certificate: Vec<u8>,
    pub key: KeyPair,
}

impl Credential {
    pub fn certificate_pem(&self) -> String {
        pem::encode("CERTIFICATE", &self.certificate)
    }

    /// Secret.
    pub fn key_pem(&self) -> Result<String, PkiError> {
        Ok(self.key.to_pem()?)
    }
}

/// A CA certificate with its key.
#[derive(Debug)]
pub struct Authority {
    certificate: Vec<u8>,
    key: KeyPair,
    /// The name as in the certificate, byte by byte: issued certificates must repeat it exactly.
    subject: Vec<u8>,
    key_identifier: Vec<u8>,
    validity: Validity,
}

impl Authority {
    /// A new self-signed authority.
    pub fn generate(name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let subject = distinguished_name(name, &[]);
        let extensions = [
            extension(&[2, 5, 29, 19], true, &der::sequence(&[der::boolean(true)])),
            // digitalSignature, keyCertSign, cRLSign.
            extension(&[2, 5, 29, 15], true, &der::bit_string(1, &[0b1000_0110])),
            subject_key_identifier(key.spki()),
        ];
        let body = Body {
            issuer: &subject,
            subject: &subject,
            not_before: saturating(now, -BACKDATE),
            not_after: saturating(now, AUTHORITY_LIFETIME),
            spki: key.spki(),
            extensions: &extensions,
        };
        let certificate = body.sign(&key)?;
        Self::new(certificate, key)
    }

    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, PkiError> {
        let block = pem::find(certificate, &["CERTIFICATE"]).ok_or(PkiError::NotACertificate)?;
        Self::new(block.der, KeyPair::from_pem(key)?)
    }

    fn new(certificate: Vec<u8>, key: KeyPair) -> Result<Self, PkiError> {
        let parsed = Certificate::parse(&certificate)?;
        if parsed.spki != key.spki() {
            return Err(PkiError::KeyMismatch);
        }
        if !parsed.is_authority {
            return Err(PkiError::NotAnAuthority);
        }
        let key_identifier = parsed.key_identifier.unwrap_or_else(|| key_identifier(key.spki()));
        Ok(Self { subject: parsed.subject, key_identifier, validity: parsed.validity, certificate, key })
    }

    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// What clients put into `certificate-authority-data`.
    pub fn certificate_pem(&self) -> String {
        pem::encode("CERTIFICATE", &self.certificate)
    }

    /// Secret.
    pub fn key_pem(&self) -> Result<String, PkiError> {
        Ok(self.key.to_pem()?)
    }

    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// A certificate for a server that is reached by these names.
    pub fn issue_server(
        &self,
        common_name: &str,
        names: &[San],
        now: Timestamp,
    ) -> Result<Credential, PkiError> {
        let key = KeyPair::generate()?;
        let purposes = Purposes { server: true, ..Purposes::default() };
        let subject = distinguished_name(common_name, &[]);
        let certificate = self.sign(&subject, key.spki(), names, purposes, now, LEAF_LIFETIME)?;
        Ok(Credential { certificate, key })
    }

    /// A certificate that authenticates as this user, in any number of groups.
    pub fn issue_client(
        &self,
        user: &str,
        groups: &[&str],
        now: Timestamp,
        lifetime: SignedDuration,
    ) -> Result<Credential, PkiError> {
        let key = KeyPair::generate()?;
        let purposes = Purposes { client: true, ..Purposes::default() };
        let certificate =
            self.sign(&distinguished_name(user, groups), key.spki(), &[], purposes, now, lifetime)?;
        Ok(Credential { certificate, key })
    }

    /// `subject` is an encoded name. Never outlives the authority.
    pub(super) fn sign(
        &self,
        subject: &[u8],
        spki: &[u8],
        names: &[San],
        purposes: Purposes,
        now: Timestamp,
        lifetime: SignedDuration,
    ) -> Result<Vec<u8>, PkiError> {
        let mut extensions = vec![
            extension(&[2, 5, 29, 19], true, &der::sequence(&[])),
            extension(&[2, 5, 29, 15], true, &key_usage(purposes)),
            extension(&[2, 5, 29, 37], false, &extended_key_usage(purposes)),
            subject_key_identifier(spki),
            extension(&[2, 5, 29, 35], false, &der::sequence(&[der::implicit(0, &self.key_identifier)])),
        ];
        if !names.is_empty() {
            let encoded = names.iter().map(San::encode).collect::<Result<Vec<_>, _>>()?;
            // Critical when it is all there is to identify the holder.
            let critical = subject == der::sequence(&[]);
            extensions.push(extension(&[2, 5, 29, 17], critical, &der::sequence(&encoded)));
        }
        let Validity { not_before: from, not_after: until } = self.validity;
        let not_before = saturating(now, -BACKDATE).max(from);
        let not_after = saturating(now, lifetime).min(until);
        // A clock far back, or far ahead.
        if not_after <= not_before {
            return Err(PkiError::Clock { now, from, until });
        }
        let body =
            Body { issuer: &self.subject, subject, not_before, not_after, spki, extensions: &extensions };
        body.sign(&self.key)
    }
}

fn saturating(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(time)
}

/// Organizations first, one relative name each, then the common name.
pub(super) fn distinguished_name(common_name: &str, organizations: &[&str]) -> Vec<u8> {
    let attribute = |arc: u32, value: &str| {
        let pair = der::sequence(&[der::oid(&[2, 5, 4, arc]), der::utf8_string(value)]);
        der::tlv(der::SET, &pair)
    };
    let mut parts: Vec<Vec<u8>> = organizations.iter().map(|name| attribute(10, name)).collect();
    if !common_name.is_empty() {
        parts.push(attribute(3, common_name));
    }
    der::sequence(&parts)
}

fn extension(arcs: &[u32], critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![der::oid(arcs)];
    if critical {
        parts.push(der::boolean(true));
    }
    parts.push(der::octet_string(value));
    der::sequence(&parts)
}

fn key_usage(purposes: Purposes) -> Vec<u8> {
    // digitalSignature is bit 0, keyEncipherment bit 2; trailing zero bits are left off.
    if purposes.key_encipherment {
        der::bit_string(5, &[0b1010_0000])
    } else {
        der::bit_string(7, &[0b1000_0000])
    }
}

fn extended_key_usage(purposes: Purposes) -> Vec<u8> {
    let mut parts = Vec::new();
    if purposes.server {
        parts.push(der::oid(&[1, 3, 6, 1, 5, 5, 7, 3, 1]));
    }
    if purposes.client {
        parts.push(der::oid(&[1, 3, 6, 1, 5, 5, 7, 3, 2]));
    }
    der::sequence(&parts)
}

/// Any stable digest of the key will do.
fn key_identifier(spki: &[u8]) -> Vec<u8> {
    sha256(spki)[..20].to_vec()
}

fn subject_key_identifier(spki: &[u8]) -> Vec<u8> {
    extension(&[2, 5, 29, 14], false, &der::octet_string(&key_identifier(spki)))
}

/// The part of a certificate that is signed.
struct Body<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    not_before: Timestamp,
    not_after: Timestamp,
    spki: &'a [u8],
    extensions: &'a [Vec<u8>],
}

impl Body<'_> {
    fn sign(&self, key: &KeyPair) -> Result<Vec<u8>, PkiError> {
        let algorithm = match key.algorithm() {
            Algorithm::Es256 => der::sequence(&[der::oid(&[1, 2, 840, 10045, 4, 3, 2])]),
            Algorithm::Rs256 => der::sequence(&[der::oid(&[1, 2, 840, 113_549, 1, 1, 11]), vec![5, 0]]),
        };
        let mut serial = [0; 16];
        rand::fill(&mut serial).map_err(|_| RandomError)?;
        // Positive, and of full length.
        serial[0] = (serial[0] & 0x7f) | 0x40;
        let signed = der::sequence(&[
            der::explicit(0, &der::integer(&[2])),
            der::integer(&serial),
            algorithm.clone(),
            self.issuer.to_vec(),
            der::sequence(&[der::time(self.not_before), der::time(self.not_after)]),
            self.subject.to_vec(),
            self.spki.to_vec(),
            der::explicit(3, &der::sequence(self.extensions)),
        ]);
        let signature = key.sign_asn1(&signed)?;
        Ok(der::sequence(&[signed, algorithm, der::bit_string(0, &signature)]))
    }
}

/// Lifetimes are given in days by people.
pub fn days(days: i32) -> SignedDuration {
    DAY.checked_mul(days).unwrap_or(SignedDuration::MAX)
}
