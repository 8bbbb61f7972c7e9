//! What goes wrong with a store, and which setting is to blame.

use std::{fmt, io, path::PathBuf};

/// The setting an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Endpoint,
    EndpointCa,
    Bucket,
    Folder,
    Region,
    Credential,
    Lookup,
    Timeout,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Endpoint => "endpoint",
            Field::EndpointCa => "endpointCA",
            Field::Bucket => "bucket",
            Field::Folder => "folder",
            Field::Region => "region",
            Field::Credential => "credential",
            Field::Lookup => "bucket lookup type",
            Field::Timeout => "timeout",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    #[error("{field}: {value:?} {reason}")]
    Setting { field: Field, value: String, reason: &'static str },
    #[error("there is no access key or no secret key for bucket {bucket:?}")]
    NoKeys { bucket: String },
    #[error("the certificates for {host} cannot be used")]
    Certificates { host: String, source: reqwest::Error },
    #[error("the certificate of {host} is not trusted")]
    Untrusted { host: String, source: reqwest::Error },
    #[error("{what} at {host}: no answer in time")]
    Silent { what: &'static str, host: String },
    #[error("{what} at {host}")]
    Transport { what: &'static str, host: String, source: reqwest::Error },
    #[error("there is no bucket {bucket:?} at {host}")]
    NoBucket { bucket: String, host: String },
    #[error("bucket {bucket:?} is in region {region:?}")]
    OtherRegion { bucket: String, region: String },
    #[error("{host} does not accept the credential: {code}")]
    Keys { host: String, code: String },
    #[error("the credential may not {what} in bucket {bucket:?}")]
    Forbidden { what: &'static str, bucket: String },
    #[error("there is no {key:?} in bucket {bucket:?}")]
    NoObject { key: String, bucket: String },
    #[error("{what} at {host}: {status} {code}")]
    Refused { what: &'static str, host: String, status: u16, code: String },
    #[error("{what} at {host}: the answer makes no sense")]
    Nonsense { what: &'static str, host: String },
    #[error("{key:?} has more than {limit} bytes")]
    TooLarge { key: String, limit: u64 },
    #[error("bucket {bucket:?} has too many objects in this folder")]
    TooMany { bucket: String },
    #[error("{}", .path.display())]
    File { path: PathBuf, source: io::Error },
}

impl S3Error {
    /// The setting that has to change, if it is one.
    pub fn field(&self) -> Field {
        match self {
            S3Error::Setting { field, .. } => *field,
            S3Error::Certificates { .. } | S3Error::Untrusted { .. } => Field::EndpointCa,
            S3Error::NoBucket { .. }
            | S3Error::Forbidden { .. }
            | S3Error::TooMany { .. }
            | S3Error::NoObject { .. } => Field::Bucket,
            S3Error::OtherRegion { .. } => Field::Region,
            S3Error::NoKeys { .. } | S3Error::Keys { .. } => Field::Credential,
            _ => Field::Endpoint,
        }
    }

    /// Whether it is known that the object is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, S3Error::NoObject { .. } | S3Error::NoBucket { .. })
    }
}
