//! The spec of a cluster as it is kept beside its control plane and in snapshots: JSON, compressed, in base64.

use std::io::{Read, Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use remuda_api::provisioning::ClusterSpec;
use serde_json::{Map, Value};

/// No spec is larger; what claims to be is not read to its end.
const LARGEST: u64 = 16 << 20;
/// What is asked for once is not part of what a cluster is.
const OPERATIONS: [&str; 4] =
    ["etcdSnapshotCreate", "etcdSnapshotRestore", "rotateCertificates", "rotateEncryptionKeys"];

/// The spec as it is archived.
pub(crate) fn content(spec: &ClusterSpec) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(spec)?;
    if let Some(config) = value.get_mut("rkeConfig").and_then(Value::as_object_mut) {
        for operation in OPERATIONS {
            config.remove(operation);
        }
    }
    Ok(value)
}

pub(crate) fn pack(content: &Value) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(content.to_string().as_bytes());
    STANDARD.encode(encoder.finish().unwrap_or_default())
}

pub(crate) fn unpack(text: &str) -> Option<Value> {
    let compressed = STANDARD.decode(text.trim()).ok()?;
    let mut content = Vec::new();
    GzDecoder::new(compressed.as_slice()).take(LARGEST).read_to_end(&mut content).ok()?;
    serde_json::from_slice(&content).ok()
}

/// What to keep beside a control plane that has `known` there. Another compression of the same spec is no change.
pub(crate) fn packed(spec: &ClusterSpec, known: Option<&str>) -> Result<String, serde_json::Error> {
    let content = content(spec)?;
    match known {
        Some(known) if unpack(known).as_ref() == Some(&content) => Ok(known.to_owned()),
        _ => Ok(pack(&content)),
    }
}

/// The spec in the metadata of a snapshot.
pub(crate) fn from_snapshot(metadata: &str) -> Option<ClusterSpec> {
    let map: Map<String, Value> = serde_json::from_slice(&STANDARD.decode(metadata.trim()).ok()?).ok()?;
    let spec = unpack(map.get("provisioning-cluster-spec")?.as_str()?)?;
    serde_json::from_value(spec).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec() -> ClusterSpec {
        serde_json::from_value(json!({
            "kubernetesVersion": "v1.35.1+k3s1",
            "rkeConfig": {"etcdSnapshotCreate": {"generation": 3}, "machineGlobalConfig": {"cni": "x"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_spec_comes_back_without_what_was_asked_for_once() {
        let text = packed(&spec(), None).unwrap();
        assert_eq!(
            unpack(&text).unwrap(),
            json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {"machineGlobalConfig": {"cni": "x"}}})
        );
        let metadata = STANDARD.encode(json!({"provisioning-cluster-spec": text}).to_string());
        assert_eq!(from_snapshot(&metadata).unwrap().kubernetes_version, "v1.35.1+k3s1");
    }

    #[test]
    fn another_compression_of_the_same_spec_is_kept() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        encoder.write_all(content(&spec()).unwrap().to_string().as_bytes()).unwrap();
        let known = STANDARD.encode(encoder.finish().unwrap());
        assert_eq!(packed(&spec(), Some(&known)).unwrap(), known);
        assert_ne!(packed(&ClusterSpec::default(), Some(&known)).unwrap(), known);
    }

    #[test]
    fn what_is_no_archive_is_none() {
        for text in ["", "%", "aGVsbG8=", &STANDARD.encode([0x1f, 0x8b, 8, 0])] {
            assert_eq!(unpack(text), None);
            assert_eq!(from_snapshot(text), None);
        }
    }
}
