//! What an image means here: there are no images, only programs that are on the node.

use std::path::{Path, PathBuf};

use remuda_names::endpoint;

use crate::config::find_program;

/// Images that are this program, and the commands they stand for.
const OWN: [(&str, &str); 2] = [("rancher-agent", "cluster-agent"), (endpoint::NAME, endpoint::NAME)];

/// How a container runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    Process {
        program: PathBuf,
        args: Vec<String>,
    },
    /// Does nothing until it is stopped.
    Pause,
}

/// What a container says about what it runs.
#[derive(Debug, Clone, Default)]
pub struct Container<'a> {
    pub image: &'a str,
    pub command: &'a [String],
    pub args: &'a [String],
}

/// The repository of an image, without registry, tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let tag = image.rfind(':').filter(|colon| !image[*colon..].contains('/'));
    let name = &image[..tag.unwrap_or(image.len())];
    match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => rest,
        _ => name,
    }
}

/// How to run a container, or why it cannot. `own` is this program.
pub fn resolve(container: &Container<'_>, own: Option<&Path>, path: Option<&str>) -> Result<Run, String> {
    let repository = repository(container.image);
    let name = repository.rsplit('/').next().unwrap_or(repository);
    let args = container.args.to_vec();
    if let Some((program, rest)) = container.command.split_first() {
        return match find_program(program, path) {
            Some(program) => Ok(Run::Process { program, args: rest.iter().cloned().chain(args).collect() }),
            None => Err(format!(
                "the sandbox distribution runs no images, only programs that are on the node, and {program} is not \
                 (image {})",
                container.image
            )),
        };
    }
    if let Some((_, command)) = OWN.iter().find(|(image, _)| *image == name) {
        let program = own.ok_or("the program of the cluster agent is not found")?.to_owned();
        let args = [(*command).to_owned()].into_iter().chain(args).collect();
        return Ok(Run::Process { program, args });
    }
    if name == "pause" || name == "mirrored-pause" {
        return Ok(Run::Pause);
    }
    Err(format!(
        "the sandbox distribution runs no images: {} is none it knows, and the container names no command that is on \
         the node",
        container.image
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(image: &str, command: &[&str]) -> Result<Run, String> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        resolve(&Container { image, command: &command, args: &[] }, Some(Path::new("/opt/remuda")), None)
    }

    #[test]
    fn registries_and_tags_do_not_matter() {
        for (image, expected) in [
            ("rancher/rancher-agent:v2.15.0", "rancher/rancher-agent"),
            ("reg.io:5000/x/rancher/rancher-agent@sha256:ab", "x/rancher/rancher-agent"),
            ("localhost/pause", "pause"),
            ("busybox", "busybox"),
        ] {
            assert_eq!(repository(image), expected);
        }
    }

    #[test]
    fn the_cluster_agent_and_the_authenticator_are_this_program() {
        let expected = Run::Process { program: "/opt/remuda".into(), args: vec!["cluster-agent".to_owned()] };
        assert_eq!(run("reg.io/rancher/rancher-agent:v1", &[]), Ok(expected));
        let expected = Run::Process { program: "/opt/remuda".into(), args: vec!["kube-api-auth".to_owned()] };
        assert_eq!(run("rancher/kube-api-auth:v0.15.0", &[]), Ok(expected));
        assert_eq!(run("rancher/mirrored-pause:3.6", &[]), Ok(Run::Pause));
    }

    #[test]
    fn a_command_runs_if_it_is_there() {
        assert!(
            matches!(run("busybox", &["sh", "-c", "true"]), Ok(Run::Process { args, .. }) if args == ["-c", "true"])
        );
        assert!(run("busybox", &["/no/such/program"]).unwrap_err().contains("/no/such/program is not"));
        assert!(run("nginx", &[]).unwrap_err().contains("nginx is none it knows"));
    }
}
