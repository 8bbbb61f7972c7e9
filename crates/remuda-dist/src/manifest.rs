//! What proves that files are those of a release: checksums, and a manifest that can be signed.
//!
//! The signature is plain Ed25519 of the manifest's bytes, so that `openssl pkeyutl -verify -rawin` checks it, too.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_oci::{Digest, sha256_of};
use serde_json::{Value, json};

pub(crate) const SUMS: &str = "SHA256SUMS";
pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const SIGNATURE: &str = "manifest.json.sig";
const FORMAT: u64 = 1;
/// What comes before the 32 bytes of an Ed25519 key in the form OpenSSL writes.
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Writes checksums and the manifest of all files in a directory, and signs it if there is a key.
pub(crate) fn write(directory: &Path, about: Value, key: Option<&Path>) -> anyhow::Result<()> {
    for name in [SUMS, MANIFEST, SIGNATURE] {
        let path = directory.join(name);
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    let mut sums = String::new();
    let mut files = Vec::new();
    for name in names(directory)? {
        let path = directory.join(&name);
        let (digest, size) = sha256_of(&path).with_context(|| format!("read {}", path.display()))?;
        sums.push_str(&format!("{}  {name}\n", digest.hex()));
        files.push(json!({"name": name, "size": size, "sha256": digest.hex()}));
    }
    let path = directory.join(SUMS);
    put(&path, sums.as_bytes())?;
    files.push(json!({"name": SUMS, "size": sums.len(), "sha256": Digest::of(sums.as_bytes()).hex()}));
    let mut manifest = about;
    manifest["format"] = json!(FORMAT);
    manifest["files"] = json!(files);
    let manifest = format!("{manifest:#}\n");
    put(&directory.join(MANIFEST), manifest.as_bytes())?;
    if let Some(key) = key {
        put(&directory.join(SIGNATURE), &sign(key, manifest.as_bytes())?)?;
    }
    Ok(())
}

fn put(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

/// Names of the files in a directory, in order.
fn names(directory: &Path) -> anyhow::Result<BTreeSet<String>> {
    let read = || format!("read {}", directory.display());
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(directory).with_context(read)? {
        let entry = entry.with_context(read)?;
        let name = entry
            .file_name()
            .into_string()
            .ok()
            .with_context(|| format!("{}: a name that is no text", directory.display()))?;
        ensure!(entry.path().is_file(), "{name} is no file: a release has files only");
        names.insert(name);
    }
    Ok(names)
}

/// Checks all files of a release, and who signed it if a key is given.
pub fn verify(directory: &Path, key: Option<&Path>) -> anyhow::Result<usize> {
    let path = directory.join(MANIFEST);
    let manifest = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    if let Some(key) = key {
        let path = directory.join(SIGNATURE);
        let signature =
            fs::read(&path).with_context(|| format!("{MANIFEST} is not signed: read {}", path.display()))?;
        let public = public_key(key)?;
        let checked = UnparsedPublicKey::new(&ED25519, public).verify(&manifest, &signature);
        ensure!(
            checked.is_ok(),
            "{MANIFEST} was not signed with the key of {}, or was changed",
            key.display()
        );
    }
    let manifest: Value = serde_json::from_slice(&manifest).with_context(|| format!("read {MANIFEST}"))?;
    let format = manifest["format"].as_u64();
    ensure!(format == Some(FORMAT), "{MANIFEST} has a format this program does not know");
    let files = manifest["files"].as_array().with_context(|| format!("{MANIFEST} names no files"))?;
    let mut expected = BTreeSet::from([MANIFEST, SIGNATURE].map(str::to_owned));
    for file in files {
        let name = file["name"].as_str().unwrap_or_default();
        // It comes from elsewhere, and must not lead out of the directory.
        ensure!(Path::new(name).file_name().is_some_and(|last| last == name), "{MANIFEST} names {name:?}");
        let path = directory.join(name);
        ensure!(path.is_file(), "{name} is missing");
        let (digest, size) = sha256_of(&path).with_context(|| format!("read {}", path.display()))?;
        ensure!(file["size"] == size, "{name} has {size} bytes, not {}", file["size"]);
        ensure!(file["sha256"] == digest.hex(), "{name} differs from its checksum");
        expected.insert(name.to_owned());
    }
    if let Some(name) = names(directory)?.difference(&expected).next() {
        bail!("{name} is not in the manifest");
    }
    Ok(files.len())
}

fn sign(key: &Path, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let der = pem(key, "PRIVATE KEY")?;
    let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
        .map_err(|error| anyhow::anyhow!("{} is no Ed25519 key: {error}", key.display()))?;
    Ok(pair.sign(bytes).as_ref().to_vec())
}

fn public_key(path: &Path) -> anyhow::Result<Vec<u8>> {
    let der = pem(path, "PUBLIC KEY")?;
    let key = der.strip_prefix(&PUBLIC_PREFIX).filter(|key| key.len() == 32);
    Ok(key.with_context(|| format!("{} is no Ed25519 key", path.display()))?.to_vec())
}

/// What is between the lines of a PEM file.
fn pem(path: &Path, label: &str) -> anyhow::Result<Vec<u8>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let inner = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let inner = inner.with_context(|| format!("{} has no {begin:?}", path.display()))?.0;
    let inner: String = inner.split_whitespace().collect();
    STANDARD.decode(inner).with_context(|| format!("read {}", path.display()))
}

/// A pair of keys as PEM files, for tests and first releases.
pub fn generate_key(directory: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};

    let document = Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new())
        .map_err(|_| anyhow::anyhow!("no key could be made"))?;
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref())
        .map_err(|error| anyhow::anyhow!("no key could be made: {error}"))?;
    let public = [&PUBLIC_PREFIX[..], aws_lc_rs::signature::KeyPair::public_key(&pair).as_ref()].concat();
    let pem = |label: &str, bytes: &[u8]| {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(bytes))
    };
    let (private_path, public_path) = (directory.join("release.key"), directory.join("release.pub"));
    let mut options = fs::File::options();
    let opened = options.write(true).create_new(true).mode(0o600).open(&private_path);
    let written =
        opened.and_then(|mut file| file.write_all(pem("PRIVATE KEY", document.as_ref()).as_bytes()));
    written.with_context(|| format!("write {}", private_path.display()))?;
    put(&public_path, pem("PUBLIC KEY", &public).as_bytes())?;
    Ok((private_path, public_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> (tempfile::TempDir, tempfile::TempDir, PathBuf) {
        let (directory, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(directory.path().join("a"), "alpha").unwrap();
        fs::write(directory.path().join("b"), "beta").unwrap();
        let (private, public) = generate_key(keys.path()).unwrap();
        write(directory.path(), json!({"version": "0.1.0"}), Some(&private)).unwrap();
        (directory, keys, public)
    }

    #[track_caller]
    fn refused(directory: &Path, key: Option<&Path>, expected: &str) {
        let error = verify(directory, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_whole_release_is_accepted_and_a_changed_one_is_not() {
        let (directory, _keys, public) = release();
        let directory = directory.path();
        assert_eq!(verify(directory, Some(&public)).unwrap(), 3);

        fs::write(directory.join("b"), "beto").unwrap();
        refused(directory, None, "b differs from its checksum");
        fs::write(directory.join("b"), "bet").unwrap();
        refused(directory, None, "b has 3 bytes, not 4");
        fs::remove_file(directory.join("b")).unwrap();
        refused(directory, None, "b is missing");
        fs::write(directory.join("b"), "beta").unwrap();
        fs::write(directory.join("c"), "").unwrap();
        refused(directory, None, "c is not in the manifest");
    }

    #[test]
    fn the_signature_is_of_the_manifest_and_of_the_key() {
        let (directory, _keys, public) = release();
        let directory = directory.path();
        let elsewhere = tempfile::tempdir().unwrap();
        let (_, stranger) = generate_key(elsewhere.path()).unwrap();
        refused(directory, Some(&stranger), "was not signed with the key");

        let path = directory.join(MANIFEST);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("0.1.0", "0.1.1")).unwrap();
        refused(directory, Some(&public), "was not signed with the key");
        fs::remove_file(directory.join(SIGNATURE)).unwrap();
        refused(directory, Some(&public), "is not signed");
    }

    #[test]
    fn a_manifest_leads_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["../x", "/etc/passwd", "", "a/b", ".."] {
            let manifest = json!({"format": 1, "files": [{"name": name, "size": 0, "sha256": ""}]});
            fs::write(directory.path().join(MANIFEST), manifest.to_string()).unwrap();
            refused(directory.path(), None, "manifest.json names");
        }
        fs::write(directory.path().join(MANIFEST), "{\"format\": 2}").unwrap();
        refused(directory.path(), None, "a format this program does not know");
    }
}
