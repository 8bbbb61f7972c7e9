//! What was found, as people and programs are told it.

use std::fmt;

use remuda_distro::release::Versions;
use remuda_gateway::Agent;
use remuda_names::rancher::setting;
use remuda_oci::{Format, Reference};
use remuda_registry::serve::{Found, Refused};
use serde_json::{Value, json};

use super::Platform;

/// Whether a machine gets something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// From this server.
    Ready,
    /// Not from this server; whether the machine reaches who has it is not known here.
    Elsewhere,
    /// No.
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Elsewhere => "elsewhere",
            State::Missing => "missing",
        }
    }
}

/// Something a machine needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    kind: &'static str,
    /// Machines of which kind; all of the cluster if none is named.
    platform: Option<Platform>,
    name: String,
    state: State,
    message: String,
    /// What to do about it.
    hint: Option<String>,
    /// The images it stands for, if it is several.
    images: Vec<String>,
}

impl Item {
    pub(super) fn value(&self) -> Value {
        let mut value = json!({
            "kind": self.kind,
            "name": self.name,
            "state": self.state.word(),
            "message": self.message,
        });
        if let Some(platform) = self.platform {
            value["platform"] = json!(platform.to_string());
        }
        if let Some(hint) = &self.hint {
            value["hint"] = json!(hint);
        }
        if !self.images.is_empty() {
            value["images"] = json!(self.images);
        }
        value
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = match self.format {
            Format::Linux => "linux",
            Format::Windows => "windows",
        };
        write!(f, "{system}/{}", self.architecture)
    }
}

const AGENT: &str = "agent";
const INSTALLER: &str = "installer";
const CLUSTER_AGENT: &str = "cluster-agent";
const SYSTEM: &str = "system-images";

/// The node agent.
pub(super) fn agent(platform: Platform, agent: &Agent) -> Item {
    let (state, message, hint) = match agent {
        Agent::Missing => (
            State::Missing,
            format!("this server has no agent for {platform}"),
            Some(format!("remuda assets add FILE, a build of Remuda for {platform}")),
        ),
        Agent::Own => (State::Ready, "this server's own program".to_owned(), None),
        Agent::Added { .. } => (State::Ready, "a program this server was given".to_owned(), None),
    };
    let name = format!("agent for {platform}");
    Item { kind: AGENT, platform: Some(platform), name, state, message, hint, images: Vec::new() }
}

/// The image that installs the distribution.
pub(super) fn installer(
    platform: Platform,
    name: &str,
    image: &Reference,
    found: Result<Found, Refused>,
) -> Item {
    let architecture = platform.architecture;
    let bundle = |file: &str| {
        format!(
            "remuda bundle create {file}.bundle {name} --architecture {architecture}, into the server's bundles"
        )
    };
    let file = || image.tag.clone();
    let (state, message, hint) = match found {
        Ok(Found::Bundled(path)) => {
            let path = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (State::Ready, format!("in bundle {path}"), None)
        }
        Ok(Found::Kept) => (State::Ready, format!("fetched from {} already", image.namespace()), None),
        Ok(Found::Mirrored) => {
            (State::Ready, format!("{} has it, and is mirrored here", image.namespace()), None)
        }
        Ok(Found::OtherArchitecture) => (
            State::Missing,
            format!("what this server has of it is not made for {platform}"),
            Some(bundle(&file())),
        ),
        Err(Refused::NotMirrored(_)) => (
            State::Elsewhere,
            format!("not on this server: machines ask {} themselves", image.namespace()),
            Some(bundle(&file())),
        ),
        Err(Refused::Unknown(_)) => (
            State::Missing,
            format!("{}, which is mirrored here, does not have it", image.namespace()),
            Some(format!("is there such a version? remuda versions; or {}", bundle(&file()))),
        ),
        Err(Refused::Upstream { reason, .. }) => (
            State::Missing,
            format!("{}, which is mirrored here: {reason}", image.namespace()),
            Some(bundle(&file())),
        ),
        Err(error @ (Refused::Path(_) | Refused::Failed(_))) => (State::Missing, error.to_string(), None),
    };
    Item {
        kind: INSTALLER,
        platform: Some(platform),
        name: name.to_owned(),
        state,
        message,
        hint,
        images: Vec::new(),
    }
}

/// Installers for Windows are pulled by another program, which asks their registry.
pub(super) fn windows(platform: Platform, name: &str) -> Item {
    Item {
        kind: INSTALLER,
        platform: Some(platform),
        name: name.to_owned(),
        state: State::Elsewhere,
        message: "machines with Windows ask its registry themselves".to_owned(),
        hint: None,
        images: Vec::new(),
    }
}

/// What runs in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterAgent {
    pub(super) image: String,
    /// Made by this server.
    pub(super) is_own: bool,
    pub(super) registry: String,
}

/// The image of the cluster agent, which comes with the node agent unless a setting names another one.
pub(super) fn cluster_agent(platform: Platform, wanted: &ClusterAgent, agent: &Agent) -> Item {
    let ClusterAgent { image, is_own, registry } = wanted;
    let from = if registry.is_empty() { "the registry in its name" } else { registry.as_str() };
    let (state, message, hint) = match (is_own, agent) {
        (false, _) => (
            State::Elsewhere,
            format!("settings name it, so containerd pulls it from {from}"),
            Some("remuda image push REGISTRY/NAME puts this server's into a registry".to_owned()),
        ),
        (true, Agent::Own | Agent::Added { is_static: true }) => {
            (State::Ready, "made by this server of its own program".to_owned(), None)
        }
        (true, Agent::Added { is_static: false }) => (
            State::Missing,
            format!("the program for {platform} that this server was given needs libraries of that platform"),
            Some("remuda assets add FILE, a static build (musl)".to_owned()),
        ),
        (true, Agent::Missing) => (
            State::Missing,
            format!("this server has no program for {platform} to make it of"),
            Some(format!("remuda assets add FILE, a build of Remuda for {platform}")),
        ),
    };
    Item {
        kind: CLUSTER_AGENT,
        platform: Some(platform),
        name: image.clone(),
        state,
        message,
        hint,
        images: Vec::new(),
    }
}

/// The images of a release, as they are called in the registry of the cluster.
pub(super) fn system_images(images: &Versions, registry: &str) -> Vec<String> {
    let prefix =
        if registry.is_empty() { String::new() } else { format!("{}/", registry.trim_end_matches('/')) };
    let tags = |name: &str, tags: &str| -> Vec<String> {
        tags.split(',').map(|tag| format!("{prefix}rancher/{name}:{tag}")).collect()
    };
    images.iter().flat_map(|(name, versions)| tags(name, versions)).collect()
}

/// What containerd pulls.
pub(super) fn system(version: &str, registry: &str, images: Vec<String>, here: usize) -> Item {
    let count = images.len();
    let from = if registry.is_empty() { "docker.io" } else { registry };
    let bundled = match here {
        0 => String::new(),
        here => format!("; {here} of them are in bundles here"),
    };
    Item {
        kind: SYSTEM,
        platform: None,
        name: format!("{count} images of {version}"),
        state: State::Elsewhere,
        message: format!(
            "containerd imports them from agent/images on the machine, or pulls them from {from}{bundled}"
        ),
        hint: Some(format!(
            "remuda bundle push FILE REGISTRY fills a registry of yours; {} names it",
            setting::SYSTEM_DEFAULT_REGISTRY
        )),
        images,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use remuda_oci::Architecture;

    use super::*;

    const ARM: Platform = Platform { format: Format::Linux, architecture: Architecture::Arm64 };
    const NAME: &str = "rancher/system-agent-installer-k3s:v1.35.1-k3s1";

    /// State, message, and what the hint begins with.
    #[track_caller]
    fn check(item: &Item, expected: &str, hint: &str) {
        let found = item.value();
        let text = format!("{}: {}", found["state"].as_str().unwrap(), found["message"].as_str().unwrap());
        assert_eq!(text, expected);
        let found = found["hint"].as_str().unwrap_or_default();
        assert!(if hint.is_empty() { found.is_empty() } else { found.contains(hint) }, "{found}");
    }

    #[test]
    fn an_installer_is_here_or_it_is_said_what_adds_it() {
        let image = Reference::parse(NAME).unwrap();
        let of = |found| installer(ARM, NAME, &image, found);
        let create = "remuda bundle create v1.35.1-k3s1.bundle rancher/system-agent-installer-k3s:v1.35.1-k3s1 \
                      --architecture arm64";
        let busy = Refused::Upstream { what: "x".into(), reason: "connection refused".into(), after: None };
        check(&of(Ok(Found::Bundled(PathBuf::from("/d/k3s.bundle")))), "ready: in bundle k3s.bundle", "");
        check(&of(Ok(Found::Kept)), "ready: fetched from docker.io already", "");
        check(&of(Ok(Found::Mirrored)), "ready: docker.io has it, and is mirrored here", "");
        check(
            &of(Ok(Found::OtherArchitecture)),
            "missing: what this server has of it is not made for linux/arm64",
            create,
        );
        check(
            &of(Err(Refused::NotMirrored(NAME.into()))),
            "elsewhere: not on this server: machines ask docker.io themselves",
            create,
        );
        check(
            &of(Err(Refused::Unknown(NAME.into()))),
            "missing: docker.io, which is mirrored here, does not have it",
            "remuda versions",
        );
        check(&of(Err(busy)), "missing: docker.io, which is mirrored here: connection refused", create);
    }

    #[test]
    fn agents_are_this_servers_or_were_added() {
        check(&agent(ARM, &Agent::Own), "ready: this server's own program", "");
        check(
            &agent(ARM, &Agent::Missing),
            "missing: this server has no agent for linux/arm64",
            "remuda assets add FILE",
        );
        let own = ClusterAgent { image: "a/b:v1".into(), is_own: true, registry: String::new() };
        check(
            &cluster_agent(ARM, &own, &Agent::Added { is_static: false }),
            "missing: the program for linux/arm64 that this server was given needs libraries of that platform",
            "musl",
        );
        check(
            &cluster_agent(ARM, &own, &Agent::Added { is_static: true }),
            "ready: made by this server of its own program",
            "",
        );
        let other = ClusterAgent { is_own: false, registry: "r.example".into(), ..own };
        check(
            &cluster_agent(ARM, &other, &Agent::Missing),
            "elsewhere: settings name it, so containerd pulls it from r.example",
            "remuda image push",
        );
    }

    #[test]
    fn images_of_a_release_are_named_as_the_cluster_pulls_them() {
        let images: Versions = [("pause".into(), "3.6,3.7".into())].into_iter().collect();
        assert_eq!(system_images(&images, ""), ["rancher/pause:3.6", "rancher/pause:3.7"]);
        assert_eq!(system_images(&images, "r.example/x/")[0], "r.example/x/rancher/pause:3.6");
        let item = system("v1.35.1+k3s1", "", vec!["rancher/pause:3.6".into()], 1);
        check(
            &item,
            "elsewhere: containerd imports them from agent/images on the machine, or pulls them from docker.io; 1 of \
             them are in bundles here",
            "remuda bundle push",
        );
    }
}
