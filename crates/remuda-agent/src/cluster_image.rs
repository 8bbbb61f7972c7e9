//! The image of the cluster agent, brought to where the distribution of this machine imports images from.
//!
//! Servers whose clusters pull an image from nowhere hand it to their machines. No plan says so: an agent that is about
//! to carry one out asks, so that plans stay what they were and nothing restarts. A machine that cannot get the image
//! goes on without it, and asks again.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use http::StatusCode;
use remuda_names::sandbox;
use remuda_oci::{Architecture, sha256_of};
use remuda_plan::NodePlan;

use crate::{
    client::HttpError,
    disk::{Context, DiskError, create_dirs},
    kube::{Kube, KubeError},
};

/// What the file is called; distributions import everything that ends so.
const FILE: &str = "remuda-cluster-agent.tar";
/// Until it is whole it has no name that is imported.
const PENDING: &str = ".remuda-cluster-agent.pending";
/// No image is larger.
const LARGEST: u64 = 1 << 30;
/// Variables by which plans tell installers where the distribution keeps its data.
const DATA_DIRS: [&str; 2] = ["K3S_DATA_DIR=", "RKE2_DATA_DIR="];

/// Why the image is not there.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The server did not answer, or said no.
    #[error(transparent)]
    Server(#[from] KubeError),
    /// It broke off.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// Something else arrived than was announced.
    #[error("the image has the SHA-256 {found}, announced was {expected}")]
    Digest {
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// It is too large.
    #[error("the image is larger than {LARGEST} bytes")]
    TooLarge,
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// A new image is in place.
    New,
    /// The one in place is the right one.
    Same,
    /// The cluster does not expect one from the server.
    NotWanted,
}

/// Where the distribution that a plan installs imports images from; `None` if it installs none. Machines on the host of
/// the server have a directory of their own for that, which is the host's.
pub fn directory(plan: &NodePlan) -> Option<PathBuf> {
    if Path::new(sandbox::PRELOADED).exists() {
        return None;
    }
    let env = plan.instructions.iter().flat_map(|instruction| &instruction.env);
    let told = env.filter_map(|variable| DATA_DIRS.iter().find_map(|name| variable.strip_prefix(name)));
    let mut data = told.map(Path::new).filter(|path| path.is_absolute());
    Some(data.next()?.join("agent/images"))
}

/// Asks the server for the image, and puts it in place if it is another than the one that is there.
pub async fn deliver(kube: &Kube, directory: &Path) -> Result<Delivered, DeliverError> {
    let path = directory.join(FILE);
    let present = path.clone();
    let known = tokio::task::spawn_blocking(move || sha256_of(&present).ok()).await.ok().flatten();
    let known = known.map(|(digest, _)| digest.hex().to_owned());
    let architecture = Architecture::own().map_or("", Architecture::name);
    let response = match kube.agent_image(architecture, known.as_deref()).await {
        Ok(response) => response,
        // A server that knows nothing of it, or has none for this machine: asking again would not help.
        Err(KubeError::Api {
            status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND,
            message,
            ..
        }) => {
            tracing::info!(message, "the server has no image of the cluster agent for this machine");
            return Ok(Delivered::NotWanted);
        }
        Err(error) => return Err(error.into()),
    };
    match response.status {
        StatusCode::NOT_MODIFIED => return Ok(Delivered::Same),
        StatusCode::NO_CONTENT => return Ok(Delivered::NotWanted),
        _ => {}
    }
    let announced = response.headers.get(http::header::ETAG).and_then(|tag| tag.to_str().ok());
    let expected = announced.unwrap_or_default().trim_matches('"').to_owned();
    create_dirs(directory, 0o755)?;
    let pending = directory.join(PENDING);
    let received = receive(response.body, &pending, &expected).await;
    if received.is_err() {
        let _ = fs::remove_file(&pending);
    }
    received?;
    fs::rename(&pending, &path).on("rename", &pending)?;
    Ok(Delivered::New)
}

async fn receive(mut body: crate::client::Body, path: &Path, expected: &str) -> Result<(), DeliverError> {
    let mut file = File::create(path).on("create", path)?;
    let mut size = 0;
    while let Some(chunk) = body.chunk().await? {
        size += chunk.len() as u64;
        if size > LARGEST {
            return Err(DeliverError::TooLarge);
        }
        file.write_all(&chunk).on("write", path)?;
    }
    file.sync_all().on("write", path)?;
    let pending = path.to_owned();
    let digest = tokio::task::spawn_blocking(move || sha256_of(&pending)).await;
    let digest = digest.map_err(io::Error::other).and_then(|digest| digest);
    let found = digest.on("read", path)?.0.hex().to_owned();
    if found != expected {
        return Err(DeliverError::Digest { found, expected: expected.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use remuda_plan::Instruction;

    use super::*;

    #[test]
    fn images_go_where_the_distribution_of_a_plan_looks_for_them() {
        let plan = |env: &[&str]| NodePlan {
            instructions: vec![Instruction {
                env: env.iter().map(|variable| (*variable).to_owned()).collect(),
                ..Instruction::default()
            }],
            ..NodePlan::default()
        };
        let at = |env: &[&str]| directory(&plan(env));
        assert_eq!(at(&["A=b", "K3S_DATA_DIR=/data/k3s"]), Some("/data/k3s/agent/images".into()));
        assert_eq!(at(&["RKE2_DATA_DIR=/r"]), Some("/r/agent/images".into()));
        for env in [&["A=b"][..], &["K3S_DATA_DIR="], &["K3S_DATA_DIR=relative"], &[]] {
            assert_eq!(at(env), None, "{env:?}");
        }
    }
}
