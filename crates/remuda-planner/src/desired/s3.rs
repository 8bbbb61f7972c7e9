//! Where etcd snapshots are uploaded to.

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_plan::digest::md5_hex;
use serde_json::{Value, json};

use super::{Renderer, Unrenderable, config::Config, values};
use crate::{
    input::{Secret, credential_location},
    node_plan::File,
    spec::S3,
};

/// Adds S3 arguments; answers the files they refer to.
pub(super) fn add(renderer: &Renderer<'_>, s3: &S3, config: &mut Config) -> Result<Vec<File>, Unrenderable> {
    let asked = [&s3.bucket, &s3.endpoint, &s3.folder, &s3.cloud_credential_name, &s3.region];
    if asked.iter().all(|field| field.is_empty()) {
        return Ok(Vec::new());
    }
    let credential = Credential(credential(renderer, s3)?);
    let mut files = Vec::new();
    let mut any = false;
    let mut put = |key: &str, value: Value| {
        config.insert(format!("etcd-s3-{key}"), value);
        any = true;
    };
    let mut text = |key: &str, own: &str, field: &str| {
        let value = if own.is_empty() { credential.field(field) } else { own.to_owned() };
        if !value.is_empty() {
            put(key, json!(value));
        }
    };
    text("bucket", &s3.bucket, "defaultBucket");
    text("access-key", "", "accessKey");
    text("secret-key", "", "secretKey");
    text("region", &s3.region, "defaultRegion");
    text("folder", &s3.folder, "defaultFolder");
    text("endpoint", &s3.endpoint, "defaultEndpoint");
    if s3.skip_ssl_verify || credential.field("defaultSkipSSLVerify") == "true" {
        put("skip-ssl-verify", json!(true));
    }
    let credential_ca = credential.field("defaultEndpointCA");
    if s3.endpoint_ca.ends_with(".crt") {
        put("endpoint-ca", json!(s3.endpoint_ca));
        let ca = if credential_ca.is_empty() { &s3.endpoint_ca } else { &credential_ca };
        let (path, file) = authority(renderer, ca, ca);
        if path == s3.endpoint_ca {
            files.push(file);
        }
    } else if !s3.endpoint_ca.is_empty() || !credential_ca.is_empty() {
        let ca = if s3.endpoint_ca.is_empty() { &credential_ca } else { &s3.endpoint_ca };
        let (path, file) = authority(renderer, ca, &encoded(ca));
        put("endpoint-ca", json!(path));
        files.push(file);
    }
    if s3.retention > 0 {
        put("retention", json!(s3.retention));
    }
    if any {
        config.insert("etcd-s3".to_owned(), json!(true));
    }
    Ok(files)
}

fn credential<'a>(renderer: &Renderer<'a>, s3: &S3) -> Result<Option<&'a Secret>, Unrenderable> {
    if s3.cloud_credential_name.is_empty() {
        return Ok(None);
    }
    let control_plane = &renderer.input.control_plane;
    let (namespace, name) = credential_location(&s3.cloud_credential_name, &control_plane.namespace);
    let key = (namespace.to_owned(), name.to_owned());
    let found = renderer.input.resources.secrets.get(&key);
    let missing = || Unrenderable::NotFound { kind: "secret", namespace: key.0.clone(), name: key.1.clone() };
    found.map(Some).ok_or_else(missing)
}

struct Credential<'a>(Option<&'a Secret>);

impl Credential<'_> {
    /// Keys are `<driver>credentialConfig-<field>`; what is before the last dash does not matter.
    fn field(&self, field: &str) -> String {
        let mut data = self.0.iter().flat_map(|secret| &secret.data);
        let found = data.rfind(|(key, _)| key.rsplit_once('-').map_or(key.as_str(), |(_, end)| end) == field);
        found.map_or_else(String::new, |(_, value)| String::from_utf8_lossy(value).into_owned())
    }
}

/// Base64 of a certificate that may be base64 already.
fn encoded(ca: &str) -> String {
    match values::base64(ca) {
        Some(_) => ca.to_owned(),
        None => BASE64_STANDARD.encode(ca),
    }
}

/// The file of an authority; its name carries a digest of `named_by`.
fn authority(renderer: &Renderer<'_>, ca: &str, named_by: &str) -> (String, File) {
    let path = renderer.config_file(&format!("s3-endpoint-ca-{}.crt", md5_hex(named_by, 5)));
    let file = File { content: encoded(ca).into(), path: path.clone(), ..File::default() };
    (path, file)
}
