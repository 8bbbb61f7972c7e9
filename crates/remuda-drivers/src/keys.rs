//! Login keys of machines: made once per machine and kept in its store.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use aws_lc_rs::{
    rand::fill,
    signature::{Ed25519KeyPair, KeyPair},
};
use base64::{Engine, prelude::BASE64_STANDARD};

use crate::error::{Error, Result};

/// The public half of the key at `path`, which is made if it does not exist. Repeating gives the same key,
/// so a creation that is tried again uploads nothing new.
pub async fn ensure(path: &str, comment: &str) -> Result<String> {
    let (path, comment) = (path.to_owned(), comment.to_owned());
    on_disk(move || make(&path, &comment)).await
}

/// Copies a user's private key into the machine's store.
pub async fn copy(from: &str, to: &str) -> Result<()> {
    let (from, to) = (from.to_owned(), to.to_owned());
    on_disk(move || {
        let failed = |error: std::io::Error| Error::other(format!("copy key {from}: {error}"));
        make_parent(&to).map_err(failed)?;
        let key = fs::read(&from).map_err(failed)?;
        write(&to, &key).map_err(failed)
    })
    .await
}

/// Files are synced to disk, which may take its time.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Error::other("writing a key was given up")))
}

fn make(path: &str, comment: &str) -> Result<String> {
    let public_path = format!("{path}.pub");
    let failed =
        |doing: &'static str| move |error: std::io::Error| Error::other(format!("{doing} {path}: {error}"));
    if Path::new(path).exists()
        && let Ok(public) = fs::read_to_string(&public_path)
    {
        return Ok(public.trim().to_owned());
    }
    make_parent(path).map_err(failed("make directory of"))?;
    let (private, public) = generate(comment)?;
    // The private half is written last: it marks the pair as complete.
    write(&public_path, public.as_bytes()).map_err(failed("write public half of"))?;
    write(path, private.as_bytes()).map_err(failed("write"))?;
    Ok(public.trim().to_owned())
}

fn make_parent(path: &str) -> std::io::Result<()> {
    match Path::new(path).parent() {
        Some(parent) => fs::DirBuilder::new().recursive(true).mode(0o700).create(parent),
        None => Ok(()),
    }
}

fn write(path: &str, content: &[u8]) -> std::io::Result<()> {
    let temporary = format!("{path}.new");
    let _ = fs::remove_file(&temporary);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// A new key pair in OpenSSH's formats.
pub fn generate(comment: &str) -> Result<(String, String)> {
    let mut seed = [0; 32];
    let mut check = [0; 4];
    let random = fill(&mut seed).and_then(|()| fill(&mut check));
    random.map_err(|_| Error::other("no randomness for a key"))?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| Error::other("make a key"))?;
    Ok(openssh(&seed, pair.public_key().as_ref(), check, comment))
}

fn openssh(seed: &[u8], public: &[u8], check: [u8; 4], comment: &str) -> (String, String) {
    const KIND: &[u8] = b"ssh-ed25519";
    let mut blob = Vec::new();
    put(&mut blob, KIND);
    put(&mut blob, public);

    let mut secret = Vec::new();
    secret.extend(check);
    secret.extend(check);
    put(&mut secret, KIND);
    put(&mut secret, public);
    put(&mut secret, &[seed, public].concat());
    put(&mut secret, comment.as_bytes());
    for pad in (1..=8).take((8 - secret.len() % 8) % 8) {
        secret.push(pad);
    }

    let mut file = b"openssh-key-v1\0".to_vec();
    put(&mut file, b"none");
    put(&mut file, b"none");
    put(&mut file, b"");
    file.extend(1u32.to_be_bytes());
    put(&mut file, &blob);
    put(&mut file, &secret);

    let encoded = BASE64_STANDARD.encode(&file);
    let mut private = String::from("-----BEGIN OPENSSH PRIVATE KEY-----\n");
    for start in (0..encoded.len()).step_by(70) {
        private.push_str(&encoded[start..encoded.len().min(start + 70)]);
        private.push('\n');
    }
    private.push_str("-----END OPENSSH PRIVATE KEY-----\n");
    let public = format!("ssh-ed25519 {} {comment}\n", BASE64_STANDARD.encode(&blob));
    (private, public)
}

fn put(out: &mut Vec<u8>, field: &[u8]) {
    let length = u32::try_from(field.len()).expect("fields of a key are short");
    out.extend(length.to_be_bytes());
    out.extend_from_slice(field);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_key_is_made_once_with_tight_permissions_and_ssh_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("machines/m1/id_rsa");
        let path = path.to_str().unwrap();
        let public = ensure(path, "m1").await.unwrap();
        assert_eq!(ensure(path, "m1").await.unwrap(), public);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let key = russh::keys::PrivateKey::from_openssh(fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(key.public_key().to_openssh().unwrap(), public);
        // A crash between the two halves.
        fs::remove_file(path).unwrap();
        assert_ne!(ensure(path, "m1").await.unwrap(), public);
    }
}
