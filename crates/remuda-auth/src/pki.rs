//! The server's own certificate authority, and client certificates as identities.
//!
//! * [`authority`]: the CA and what it issues;
//! * [`certificate`]: reading certificates: who is this, is it due for renewal;
//! * [`csr`]: signing requests of the CertificateSigningRequest API.

pub mod authority;
pub mod certificate;
pub mod csr;

use jiff::Timestamp;

use crate::{keys::KeyError, tokens::RandomError};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PkiError {
    #[error("not a certificate")]
    NotACertificate,
    #[error("not a certificate signing request")]
    NotARequest,
    #[error("the key does not belong to the certificate")]
    KeyMismatch,
    #[error("not a certificate authority")]
    NotAnAuthority,
    #[error("the signature is wrong or of an unsupported kind")]
    Signature,
    #[error("subject alternative name {0:?} cannot be in a certificate")]
    Name(String),
    #[error(
        "the clock says {now}, and a certificate made now would end before it begins: its authority is good from {from} until {until}"
    )]
    Clock { now: Timestamp, from: Timestamp, until: Timestamp },
    #[error("certificate has no common name")]
    NoCommonName,
    #[error("use the signing key")]
    Key(#[from] KeyError),
    #[error("draw a serial number")]
    Random(#[from] RandomError),
    #[error(transparent)]
    Csr(#[from] csr::CsrRefusal),
}
