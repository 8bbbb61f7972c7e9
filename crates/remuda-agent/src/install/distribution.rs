//! What plans have installed: K3s or RKE2, which bring scripts to remove themselves.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{InstallError, Layout};
use crate::disk::remove_all;

/// A distribution, where plans leave its configuration, and the scripts that remove it by the kind of node.
struct Distribution {
    config: &'static str,
    scripts: &'static [&'static str],
}

const DISTRIBUTIONS: &[Distribution] = &[
    Distribution {
        config: "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml",
        scripts: &["k3s-uninstall.sh", "k3s-agent-uninstall.sh"],
    },
    Distribution {
        config: "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
        scripts: &["rke2-uninstall.sh"],
    },
];
/// Where installers put them.
const DIRECTORIES: &[&str] = &["/usr/local/bin", "/opt/bin", "/usr/bin", "/opt/rke2/bin"];
/// What is left then: the password of the node, and what the planner keeps.
const REST: &[&str] = &["/etc/rancher/node", "/var/lib/rancher/capr"];

/// Scripts to run. A distribution that no plan has configured is somebody else's.
fn scripts(exists: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let ours = DISTRIBUTIONS.iter().filter(|known| exists(Path::new(known.config)));
    let named = ours.flat_map(|known| known.scripts.iter());
    let placed =
        named.flat_map(|name| DIRECTORIES.iter().map(move |directory| Path::new(directory).join(name)));
    placed.filter(|path| exists(path)).collect()
}

pub(super) fn remove(layout: &Layout) -> Result<(), InstallError> {
    let found = scripts(|path| layout.at(path).exists());
    if found.is_empty() {
        return Ok(());
    }
    for script in found {
        let failed = |reason: String| InstallError::Distribution { script: script.clone(), reason };
        tracing::info!(script = %script.display(), "removing the distribution");
        let output = Command::new(layout.at(&script)).stdin(Stdio::null()).output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.trim().lines().last().unwrap_or_default();
            return Err(failed(format!("{}: {last}", output.status)));
        }
    }
    for path in REST {
        remove_all(&layout.at(Path::new(path)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_distribution_that_plans_configured_is_removed() {
        let check = |there: &[&str], expected: &[&str]| {
            let found = scripts(|path| there.iter().any(|known| Path::new(known) == path));
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
        };
        check(&["/usr/local/bin/k3s-uninstall.sh"], &[]);
        check(
            &["/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", "/usr/local/bin/k3s-agent-uninstall.sh"],
            &["/usr/local/bin/k3s-agent-uninstall.sh"],
        );
        check(
            &["/etc/rancher/rke2/config.yaml.d/50-rancher.yaml", "/opt/rke2/bin/rke2-uninstall.sh"],
            &["/opt/rke2/bin/rke2-uninstall.sh"],
        );
    }
}
