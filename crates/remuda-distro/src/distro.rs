//! The two distributions and what they call things.

/// The Kubernetes distribution of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distro {
    K3s,
    Rke2,
}

impl Distro {
    pub const ALL: [Distro; 2] = [Distro::K3s, Distro::Rke2];

    /// Of a cluster that is made with this version: everything that is not K3s is RKE2, as in Rancher.
    pub fn of(version: &str) -> Distro {
        if version.contains("k3s") { Distro::K3s } else { Distro::Rke2 }
    }

    /// The one a version that a cluster reports names as its build; `None` for those of other vendors.
    pub fn reported(version: &str) -> Option<Distro> {
        let (_, build) = version.split_once('+')?;
        Distro::ALL.into_iter().find(|distro| build.starts_with(distro.name()))
    }

    /// The one a program of this name is, whatever directory it is in.
    pub fn of_program(program: &str) -> Option<Distro> {
        let name = program.rsplit('/').next().unwrap_or(program);
        Distro::named(name)
    }

    pub fn named(name: &str) -> Option<Distro> {
        Distro::ALL.into_iter().find(|distro| distro.name() == name)
    }

    /// Of the program and its images, in paths, in annotations and in provider ids.
    pub fn name(self) -> &'static str {
        match self {
            Distro::K3s => "k3s",
            Distro::Rke2 => "rke2",
        }
    }

    /// As people write it.
    pub fn title(self) -> &'static str {
        match self {
            Distro::K3s => "K3s",
            Distro::Rke2 => "RKE2",
        }
    }

    /// Build metadata of the first release of a Kubernetes version.
    pub fn first_build(self) -> &'static str {
        match self {
            Distro::K3s => "k3s1",
            Distro::Rke2 => "rke2r1",
        }
    }

    /// What environment variables begin with.
    pub fn env_prefix(self) -> &'static str {
        match self {
            Distro::K3s => "K3S",
            Distro::Rke2 => "RKE2",
        }
    }

    pub fn config_dir(self) -> &'static str {
        match self {
            Distro::K3s => "/etc/rancher/k3s",
            Distro::Rke2 => "/etc/rancher/rke2",
        }
    }

    /// The configuration file the planner owns.
    pub fn config_path(self) -> &'static str {
        match self {
            Distro::K3s => "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml",
            Distro::Rke2 => "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
        }
    }

    pub fn registries_path(self) -> &'static str {
        match self {
            Distro::K3s => "/etc/rancher/k3s/registries.yaml",
            Distro::Rke2 => "/etc/rancher/rke2/registries.yaml",
        }
    }

    pub fn data_dir(self) -> &'static str {
        match self {
            Distro::K3s => "/var/lib/rancher/k3s",
            Distro::Rke2 => "/var/lib/rancher/rke2",
        }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(self) -> &'static str {
        match self {
            Distro::K3s => "/etc/rancher/k3s/k3s.yaml",
            Distro::Rke2 => "/etc/rancher/rke2/rke2.yaml",
        }
    }

    /// Where servers and agents join.
    pub fn supervisor_port(self) -> u16 {
        match self {
            Distro::K3s => 6443,
            Distro::Rke2 => 9345,
        }
    }

    /// The first part of paths of the supervisor.
    pub fn supervisor_prefix(self) -> &'static str {
        match self {
            Distro::K3s => "/v1-k3s/",
            Distro::Rke2 => "/v1-rke2/",
        }
    }

    /// systemd unit of servers.
    pub fn server_unit(self) -> &'static str {
        match self {
            Distro::K3s => "k3s",
            Distro::Rke2 => "rke2-server",
        }
    }

    /// systemd unit of workers.
    pub fn agent_unit(self) -> &'static str {
        match self {
            Distro::K3s => "k3s-agent",
            Distro::Rke2 => "rke2-agent",
        }
    }

    /// The unit of a node.
    pub fn unit(self, server: bool) -> &'static str {
        if server { self.server_unit() } else { self.agent_unit() }
    }

    /// How the administrator's kubectl is called on a server.
    pub fn kubectl(self) -> &'static str {
        match self {
            Distro::K3s => "kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml",
            Distro::Rke2 => "/var/lib/rancher/rke2/bin/kubectl --kubeconfig /etc/rancher/rke2/rke2.yaml",
        }
    }

    /// What the sandbox distribution reports when nothing says which version was installed.
    pub fn default_version(self) -> &'static str {
        match self {
            Distro::K3s => "v1.35.1+k3s1",
            Distro::Rke2 => "v1.35.1+rke2r1",
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

    /// On the Nodes of servers: the stage of `secrets-encrypt`, and the hash of the keys for Secrets.
    pub fn encryption_annotation(self) -> String {
        format!("{}.io/encryption-config-hash", self.name())
    }
}

impl std::fmt::Display for Distro {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_name_in_any_directory() {
        assert_eq!(Distro::of_program("/usr/local/bin/k3s"), Some(Distro::K3s));
        assert_eq!(Distro::of_program("rke2"), Some(Distro::Rke2));
        assert_eq!(Distro::of_program("/opt/remuda/remuda"), None);
    }

    #[test]
    fn a_version_tells_its_distribution() {
        assert_eq!(Distro::of("v1.35.1+k3s1"), Distro::K3s);
        assert_eq!(Distro::of("v1.35.1+rke2r1"), Distro::Rke2);
        assert_eq!(
            Distro::of("v1.35.1-custom"),
            Distro::Rke2,
            "whatever is installed here is one of the two"
        );
        assert_eq!(Distro::reported("v1.35.1+k3s1"), Some(Distro::K3s));
        assert_eq!(Distro::reported("v1.35.1+rke2r1"), Some(Distro::Rke2));
        assert_eq!(Distro::reported("v1.35.1-eks-3025e55"), None);
        // Without a build there is no report, and what is made here is RKE2.
        assert_eq!((Distro::of("v1.35.1"), Distro::reported("v1.35.1")), (Distro::Rke2, None));
    }

    #[test]
    fn an_image_of_an_installer_tells_it_too() {
        assert_eq!(Distro::of("rancher/system-agent-installer-rke2:v1.35.1-rke2r1"), Distro::Rke2);
        assert_eq!(Distro::of("rancher/system-agent-installer-k3s:v1.35.1-k3s1"), Distro::K3s);
        for distro in Distro::ALL {
            assert!(distro.kubectl().ends_with(&format!("kubectl --kubeconfig {}", distro.kubeconfig())));
            assert_eq!(distro.unit(true), distro.server_unit());
        }
    }
}
