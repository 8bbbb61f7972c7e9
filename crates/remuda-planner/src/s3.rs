//! Where snapshots are uploaded to: what a cluster says about it, and what its credential adds.

use crate::{
    input::{self, Secret},
    spec::S3,
};

/// The store of a cluster. What the cluster says outranks what its credential says.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Destination {
    pub bucket: String,
    pub region: String,
    pub folder: String,
    pub endpoint: String,
    pub access_key: String,
    pub secret_key: String,
    pub skip_verify: bool,
    /// The authorities of the store as PEM; empty for those of the system.
    pub authorities: String,
    /// The file with them on nodes, if the cluster names one.
    pub authorities_path: String,
}

impl Destination {
    pub fn of(s3: &S3, credential: Option<&Secret>) -> Destination {
        let field = |name: &str| field(credential, name);
        let or = |own: &str, name: &str| if own.is_empty() { field(name) } else { own.to_owned() };
        // A value that ends so is the path of a file on the nodes.
        let is_path = s3.endpoint_ca.ends_with(".crt");
        Destination {
            bucket: or(&s3.bucket, "defaultBucket"),
            region: or(&s3.region, "defaultRegion"),
            folder: or(&s3.folder, "defaultFolder"),
            endpoint: or(&s3.endpoint, "defaultEndpoint"),
            access_key: field("accessKey"),
            secret_key: field("secretKey"),
            skip_verify: s3.skip_ssl_verify || field("defaultSkipSSLVerify") == "true",
            authorities: or(if is_path { "" } else { &s3.endpoint_ca }, "defaultEndpointCA"),
            authorities_path: if is_path { s3.endpoint_ca.clone() } else { String::new() },
        }
    }
}

/// Keys are `<driver>credentialConfig-<field>`; what is before the last dash does not matter.
fn field(credential: Option<&Secret>, field: &str) -> String {
    let mut data = credential.into_iter().flat_map(|secret| &secret.data);
    let found = data.rfind(|(key, _)| key.rsplit_once('-').map_or(key.as_str(), |(_, end)| end) == field);
    found.map_or_else(String::new, |(_, value)| String::from_utf8_lossy(value).into_owned())
}

/// Namespace and name of the Secret with the credential, if one is named.
pub fn credential<'a>(s3: &'a S3, namespace: &'a str) -> Option<(&'a str, &'a str)> {
    let name = s3.cloud_credential_name.as_str();
    (!name.is_empty()).then(|| input::credential_location(name, namespace))
}
