//! The two distributions this one stands in for, and what they call things.

/// Which distribution's directories, ports and units are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distribution {
    K3s,
    Rke2,
}

impl Distribution {
    pub const ALL: [Distribution; 2] = [Distribution::K3s, Distribution::Rke2];

    /// The one a version such as `v1.35.1+k3s1` is of, as Rancher tells them apart.
    pub fn of_version(version: &str) -> Distribution {
        if version.contains("k3s") { Distribution::K3s } else { Distribution::Rke2 }
    }

    /// The one a program of this name is, whatever directory it is in.
    pub fn of_program(program: &str) -> Option<Distribution> {
        let name = program.rsplit('/').next().unwrap_or(program);
        Distribution::ALL.into_iter().find(|distribution| distribution.name() == name)
    }

    /// Of the program, in paths, in annotations and in provider ids.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::K3s => "k3s",
            Distribution::Rke2 => "rke2",
        }
    }

    /// What environment variables begin with.
    pub fn env_prefix(self) -> &'static str {
        match self {
            Distribution::K3s => "K3S",
            Distribution::Rke2 => "RKE2",
        }
    }

    pub fn config_dir(self) -> &'static str {
        match self {
            Distribution::K3s => "/etc/rancher/k3s",
            Distribution::Rke2 => "/etc/rancher/rke2",
        }
    }

    pub fn data_dir(self) -> &'static str {
        match self {
            Distribution::K3s => "/var/lib/rancher/k3s",
            Distribution::Rke2 => "/var/lib/rancher/rke2",
        }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(self) -> &'static str {
        match self {
            Distribution::K3s => "/etc/rancher/k3s/k3s.yaml",
            Distribution::Rke2 => "/etc/rancher/rke2/rke2.yaml",
        }
    }

    /// Where servers and agents join.
    pub fn supervisor_port(self) -> u16 {
        match self {
            Distribution::K3s => 6443,
            Distribution::Rke2 => 9345,
        }
    }

    pub fn server_unit(self) -> &'static str {
        match self {
            Distribution::K3s => "k3s",
            Distribution::Rke2 => "rke2-server",
        }
    }

    pub fn agent_unit(self) -> &'static str {
        match self {
            Distribution::K3s => "k3s-agent",
            Distribution::Rke2 => "rke2-agent",
        }
    }

    /// What is reported when nothing says which version was installed.
    pub fn default_version(self) -> &'static str {
        match self {
            Distribution::K3s => "v1.35.1+k3s1",
            Distribution::Rke2 => "v1.35.1+rke2r1",
        }
    }

    /// Where the first Service address is; pods use it for the API in a real cluster.
    pub fn service_address(self) -> &'static str {
        "10.43.0.1"
    }

    /// Annotations about etcd, as the controllers of both distributions write them.
    pub fn etcd_annotation(self, name: &str) -> String {
        format!("etcd.{}.cattle.io/{name}", self.name())
    }

    /// The first part of paths of the supervisor, such as `/v1-k3s/`.
    pub fn supervisor_prefix(self) -> &'static str {
        match self {
            Distribution::K3s => "/v1-k3s/",
            Distribution::Rke2 => "/v1-rke2/",
        }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_name_in_any_directory() {
        assert_eq!(Distribution::of_program("/usr/local/bin/k3s"), Some(Distribution::K3s));
        assert_eq!(Distribution::of_program("rke2"), Some(Distribution::Rke2));
        assert_eq!(Distribution::of_program("/opt/remuda/remuda"), None);
    }

    #[test]
    fn a_version_tells_its_distribution() {
        assert_eq!(Distribution::of_version("v1.35.1+k3s1"), Distribution::K3s);
        assert_eq!(Distribution::of_version("v1.35.1+rke2r1"), Distribution::Rke2);
    }
}
