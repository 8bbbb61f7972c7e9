//! Installer images: what an agent unpacks and runs to have the sandbox distribution on a machine.
//!
//! An image has one layer with `run.sh`, as those of the real distributions have, and behaves as
//! they do: it installs the program and its units, and restarts the unit only when the stamp it is
//! given (or, for RKE2, the environment) has changed. The program is a link to a binary that is on
//! the machine already.

use serde_json::json;
use tar::{Builder, EntryType, Header};

use crate::distribution::Distribution;

const K3S: &str = include_str!("installer/k3s.sh");
const RKE2: &str = include_str!("installer/rke2.sh");

/// The name of the image for a version, as the planner writes it.
pub fn image_name(distribution: Distribution, version: &str) -> String {
    format!("rancher/system-agent-installer-{distribution}:{}", version.replace('+', "-"))
}

/// An image as `docker save` writes it. `binary` is this program's path on the machine.
pub fn image(distribution: Distribution, version: &str, binary: &str) -> Vec<u8> {
    let layer = tar(&[("run.sh", script(distribution, version, binary).as_bytes(), 0o755)]);
    let digest = remuda_base::hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &layer));
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": {"Cmd": ["run.sh"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        "history": [{"created_by": "remuda"}],
    })
    .to_string();
    let config_digest =
        remuda_base::hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, config.as_bytes()));
    let (config_name, layer_name) = (format!("{config_digest}.json"), format!("{digest}/layer.tar"));
    let manifest = json!([{
        "Config": config_name, "RepoTags": [image_name(distribution, version)], "Layers": [layer_name],
    }])
    .to_string();
    tar(&[
        ("manifest.json", manifest.as_bytes(), 0o644),
        (&config_name, config.as_bytes(), 0o644),
        (&layer_name, &layer, 0o644),
    ])
}

fn script(distribution: Distribution, version: &str, binary: &str) -> String {
    let text = match distribution {
        Distribution::K3s => K3S,
        Distribution::Rke2 => RKE2,
    };
    text.replace("@VERSION@", &quote(version)).replace("@BINARY@", &quote(binary))
}

/// For a shell, as one word.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The same bytes for the same content, whenever it is made.
fn tar(files: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, content, mode) in files {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        builder
            .append_data(&mut header, name, *content)
            .expect("names are short and memory takes everything");
    }
    builder.into_inner().expect("memory takes everything")
}

#[cfg(test)]
mod tests;
