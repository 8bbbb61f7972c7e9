//! `remuda capi repository`: the releases of the server's providers, in a directory `clusterctl` reads.
//!
//! `clusterctl` takes releases from GitHub, from GitLab and from directories. This makes such a directory, with a
//! configuration that leads to it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use http::Request;
use remuda_names::path;
use serde::Deserialize;

use crate::{
    failure::{Code, Failure},
    session::Session,
};

/// The configuration, by which a directory of ours is known.
const CONFIG: &str = "clusterctl.yaml";

#[derive(Deserialize)]
struct Index {
    providers: Vec<Provider>,
    files: Vec<String>,
}

#[derive(Deserialize)]
struct Provider {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    /// Of its components.
    path: String,
}

pub(super) async fn run(session: &Session, dir: &Path) -> Result<(), Failure> {
    let index = get(session, path::CLUSTERCTL).await?;
    let index: Index = serde_json::from_str(&index)
        .map_err(|error| Failure::new(Code::Other, format!("the server's list of releases: {error}")))?;
    let dir = prepare(dir)?;
    for file in &index.files {
        let text = get(session, &format!("{}/{file}", path::CLUSTERCTL)).await?;
        let place = dir.join(checked(file)?);
        let written =
            place.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&place, text));
        written.map_err(|error| failed("write", &place, &error))?;
    }
    let place = dir.join(CONFIG);
    fs::write(&place, config(&dir, &index.providers)?).map_err(|error| failed("write", &place, &error))?;
    session.out.line(&format!("{} files are in {}", index.files.len() + 1, dir.display()));
    session.out.note(&format!(
        "clusterctl --config {} generate cluster NAME --kubernetes-version v1.35.1 -n fleet-default | kubectl apply -f -",
        place.display()
    ));
    Ok(())
}

async fn get(session: &Session, path: &str) -> Result<String, Failure> {
    let doing = "reading the server's releases";
    let request = Request::get(path).body(Vec::new());
    let request = request.map_err(|error| Failure::new(Code::Other, format!("{doing}: {error}")))?;
    session.client.request_text(request).await.map_err(|error| Failure::api(doing, &error))
}

/// The directory as an absolute path. One with files of others in it is left as it is.
fn prepare(dir: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(dir).map_err(|error| failed("make", dir, &error))?;
    let dir = fs::canonicalize(dir).map_err(|error| failed("open", dir, &error))?;
    let mut entries = fs::read_dir(&dir).map_err(|error| failed("read", &dir, &error))?;
    if entries.next().is_some() && !dir.join(CONFIG).exists() {
        let message = format!("{} has files in it that this command did not write", dir.display());
        return Err(Failure::new(Code::Conflict, message).hint("name an empty or a new directory"));
    }
    if dir.to_str().is_none() {
        let message = format!("{} is not UTF-8, so clusterctl cannot be told of it", dir.display());
        return Err(Failure::new(Code::Invalid, message));
    }
    Ok(dir)
}

/// A path of plain names: nothing is written outside of the directory, whatever a server says.
fn checked(file: &str) -> Result<&Path, Failure> {
    let good = |part: &str| {
        !part.starts_with('.')
            && !part.is_empty()
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if file.split('/').all(good) {
        return Ok(Path::new(file));
    }
    Err(Failure::new(
        Code::Other,
        format!("the server names a file {file:?}, which is no place in the directory"),
    ))
}

fn config(dir: &Path, providers: &[Provider]) -> Result<String, Failure> {
    let mut text = String::from("# Written by remuda capi repository.\nproviders:\n");
    for provider in providers {
        let place = dir.join(checked(&provider.path)?);
        // Every JSON text is a YAML text.
        let entry = serde_json::json!({"name": provider.name, "type": provider.kind, "url": place});
        text.push_str(&format!("- {entry}\n"));
    }
    Ok(text)
}

fn failed(verb: &str, place: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::Other, format!("{verb} {}: {error}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_of_the_directory() {
        for file in ["../x", "/etc/x", "a//b", "a/../b", ".x", "a b", "a\\b", ""] {
            assert!(checked(file).is_err(), "{file:?}");
        }
        checked("infrastructure-remuda/v0.1.0/cluster-template-local.yaml").unwrap();
    }
}
