//! Where etcd snapshots are uploaded to.

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_plan::digest::md5_hex;
use serde_json::{Value, json};

use super::{Renderer, Unrenderable, config::Config, values};
use crate::{
    input::Secret,
    node_plan::File,
    s3::{self, Destination},
    spec::S3,
};

/// Adds S3 arguments; answers the files they refer to.
pub(super) fn add(renderer: &Renderer<'_>, s3: &S3, config: &mut Config) -> Result<Vec<File>, Unrenderable> {
    if !s3.is_asked_for() {
        return Ok(Vec::new());
    }
    let to = Destination::of(s3, credential(renderer, s3)?);
    let mut files = Vec::new();
    let mut any = false;
    let mut put = |key: &str, value: Value| {
        config.insert(format!("etcd-s3-{key}"), value);
        any = true;
    };
    for (key, value) in [
        ("bucket", &to.bucket),
        ("access-key", &to.access_key),
        ("secret-key", &to.secret_key),
        ("region", &to.region),
        ("folder", &to.folder),
        ("endpoint", &to.endpoint),
    ] {
        if !value.is_empty() {
            put(key, json!(value));
        }
    }
    if to.skip_verify {
        put("skip-ssl-verify", json!(true));
    }
    if !to.authorities_path.is_empty() {
        put("endpoint-ca", json!(to.authorities_path));
        let ca = if to.authorities.is_empty() { &to.authorities_path } else { &to.authorities };
        let (path, file) = authority(renderer, ca, ca);
        if path == to.authorities_path {
            files.push(file);
        }
    } else if !to.authorities.is_empty() {
        let (path, file) = authority(renderer, &to.authorities, &encoded(&to.authorities));
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
    let control_plane = &renderer.input.control_plane;
    let Some((namespace, name)) = s3::credential(s3, &control_plane.namespace) else { return Ok(None) };
    let key = (namespace.to_owned(), name.to_owned());
    let found = renderer.input.resources.secrets.get(&key);
    let missing = || Unrenderable::NotFound { kind: "secret", namespace: key.0.clone(), name: key.1.clone() };
    found.map(Some).ok_or_else(missing)
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
