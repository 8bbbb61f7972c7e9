//! `remuda image`: the image of the cluster agent, made of this program.
//!
//! Nodes of clusters made here are given it by their server. Clusters that were brought along pull it from a registry,
//! and this puts it there.

use std::{
    fs::{self, File},
    io::{BufWriter, Read},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use remuda_agent::{
    environment::Environment,
    image::{
        push::{PushError, push},
        registries::{Auth, Registries},
    },
};
use remuda_cli::Code;
use remuda_names::{cluster_agent, env, rancher::setting};
use remuda_oci::{
    Architecture, Image, Reference,
    agent::{self, AgentImageError, Build},
    archive,
};

use crate::{failure::Failure, output, serve, version::VERSION};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write the image to a file that docker load, ctr images import, K3s and RKE2 read
    #[command(after_help = "Examples:
  remuda image save agent.tar
  remuda image save agent-arm64.tar --binary remuda-arm64
  remuda image save agent.tar --name registry.example/team/agent:v1")]
    Save(Save),

    /// Put the image into a registry of your own
    #[command(
        after_help = "Afterwards the setting agent-image names it; the command prints how that is done. Credentials are those
of --username, of $REMUDA_REGISTRY_USERNAME and $REMUDA_REGISTRY_PASSWORD, or of docker login.

Examples:
  remuda image push registry.example/team/remuda-agent
  remuda image push registry.example/team/remuda-agent:v1 --username ann --password-stdin <password.txt
  remuda image push registry.example/agent --binary remuda-amd64 --binary remuda-arm64
  remuda image push 10.0.0.5:5000/agent --ca-file registry-ca.pem"
    )]
    Push(Push),
}

#[derive(Args)]
pub(crate) struct Save {
    /// The file to write, which must not exist
    file: PathBuf,

    /// A build of Remuda to make the image of [default: this program]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// What the image is called where it is imported [default: what the setting agent-image has by default]
    #[arg(long, value_name = "IMAGE")]
    name: Option<String>,
}

#[derive(Args)]
pub(crate) struct Push {
    /// Where to: REGISTRY/NAME[:TAG] [default tag: v and the version of the program]
    #[arg(value_name = "IMAGE")]
    image: String,

    /// A build of Remuda to make the image of; once for each architecture the cluster has [default: this program]
    #[arg(long, value_name = "FILE")]
    binary: Vec<PathBuf>,

    /// Who pushes
    #[arg(long, value_name = "NAME", env = env::REGISTRY_USERNAME)]
    username: Option<String>,

    /// Read the password from standard input [default: $REMUDA_REGISTRY_PASSWORD]
    #[arg(long, requires = "username")]
    password_stdin: bool,

    /// Certificates the registry is trusted by, beside those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Trust whoever answers, with or without TLS: whoever is on the way reads the password and changes the image
    #[arg(long)]
    insecure: bool,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Save(arguments) => save(arguments),
        Command::Push(arguments) => push_all(arguments),
    }
}

/// The program that runs, even when its file was replaced meanwhile.
const OWN: &str = "/proc/self/exe";

fn save(arguments: &Save) -> Result<(), Failure> {
    let Save { file, binary, name } = arguments;
    if file.exists() {
        return Err(Failure {
            message: format!("{} exists", file.display()),
            hint: Some("choose another name, or remove it".to_owned()),
            code: Code::Conflict,
        });
    }
    let build = look(binary.as_deref().unwrap_or(Path::new(OWN)))?;
    let default = format!("{}:v{}", cluster_agent::IMAGE, build.version);
    let reference = reference(name.as_deref().unwrap_or(&default))?;
    let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: std::io::Error| Failure {
        message: format!("write {}: {error}", file.display()),
        hint: None,
        code: Code::Other,
    };
    let scratch = tempfile::Builder::new().prefix(".remuda-image-").tempdir_in(beside).map_err(failed)?;
    let image = made(scratch.path(), &build)?;
    // Half an archive looks like one: it gets its name when it is whole.
    let pending = scratch.path().join("archive");
    let out = BufWriter::new(File::create_new(&pending).map_err(failed)?);
    archive::write(&image, &reference, out).map_err(failed)?;
    fs::rename(&pending, file).map_err(failed)?;
    let size = fs::metadata(file).map_or(0, |metadata| metadata.len());
    output::line(&format!(
        "wrote {} ({}): {reference} for {}, {}",
        file.display(),
        HumanBytes(size),
        image.architecture,
        image.digest()
    ));
    Ok(())
}

fn push_all(arguments: &Push) -> Result<(), Failure> {
    let own = [PathBuf::from(OWN)];
    let binaries = if arguments.binary.is_empty() { &own[..] } else { arguments.binary.as_slice() };
    let builds: Vec<Build> = binaries.iter().map(|path| look(path)).collect::<Result<_, _>>()?;
    let name = named(&arguments.image, &format!("v{}", builds[0].version));
    let reference = reference(&name)?;
    check(&builds, &reference)?;
    let auth = credentials(arguments)?;
    if arguments.insecure {
        output::note(&format!(
            "warning: {} is trusted whoever it is; anybody on the way can read the password and change the image",
            reference.registry
        ));
    }
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(&error, None))?;
    let images: Vec<Image> = builds
        .iter()
        .enumerate()
        .map(|(at, build)| made(&scratch.path().join(at.to_string()), build))
        .collect::<Result<_, _>>()?;
    let host = &reference.registry;
    let registries = Registries::only(host, auth, arguments.ca_file.clone(), arguments.insecure);
    let environment = Environment::of_process();
    let pushing = push(&images, &reference, &registries, &environment, arguments.insecure);
    let pushed = serve::runtime()?.block_on(Box::pin(pushing)).map_err(|error| refused(&error, host))?;
    output::line(&format!(
        "pushed {reference}@{} ({} sent, {} known)",
        pushed.digest, pushed.sent, pushed.known
    ));
    output::note(&format!(
        "clusters get it when the setting names it:\n  kubectl patch settings.management.cattle.io {} --type merge \
         --patch '{{\"value\":\"{reference}\"}}'",
        setting::AGENT_IMAGE
    ));
    Ok(())
}

fn look(path: &Path) -> Result<Build, Failure> {
    Build::look(path).map_err(|error| unusable(&error))
}

fn made(directory: &Path, build: &Build) -> Result<Image, Failure> {
    output::note(&format!(
        "making the image of Remuda {} for {} …",
        build.version, build.executable.architecture
    ));
    agent::build(directory, build).map_err(|error| unusable(&error))
}

fn unusable(error: &AgentImageError) -> Failure {
    let code = match error {
        AgentImageError::Image(_) | AgentImageError::Read { .. } => Code::Other,
        _ => Code::Invalid,
    };
    let hint = match error {
        AgentImageError::Foreign(_) => {
            Some(format!("--binary takes builds of Remuda, of about version {VERSION}"))
        }
        _ => None,
    };
    Failure { code, ..Failure::new(error, hint) }
}

fn reference(name: &str) -> Result<Reference, Failure> {
    let example = Some("name it as registry.example/team/remuda-agent:v1".to_owned());
    let reference =
        Reference::parse(name).map_err(|error| Failure::usage(error.to_string(), example.clone()))?;
    if reference.digest.is_some() {
        return Err(Failure::usage(format!("image name {name:?}: a digest cannot be chosen"), example));
    }
    Ok(reference)
}

/// With a tag, unless it has one.
fn named(image: &str, tag: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:{tag}") }
}

/// One name stands for one build of each architecture.
fn check(builds: &[Build], reference: &Reference) -> Result<(), Failure> {
    let mut seen: Vec<Architecture> = Vec::new();
    for build in builds {
        let architecture = build.executable.architecture;
        if seen.contains(&architecture) {
            return Err(Failure::usage(format!("--binary: two builds for {architecture}"), None));
        }
        if build.version != builds[0].version {
            let (one, other) = (&builds[0].version, &build.version);
            let message = format!("--binary: versions {one} and {other} cannot both be {reference}");
            return Err(Failure::usage(message, None));
        }
        seen.push(architecture);
    }
    Ok(())
}

fn credentials(arguments: &Push) -> Result<Option<Auth>, Failure> {
    let Some(username) = arguments.username.clone() else { return Ok(None) };
    let password = password(&username, arguments.password_stdin)?;
    Ok(Some(Auth { username: Some(username), password: Some(password), ..Auth::default() }))
}

/// The password of a user at a registry: from standard input if that was asked for, or from the environment.
pub(crate) fn password(username: &str, from_stdin: bool) -> Result<String, Failure> {
    if from_stdin {
        let mut text = String::new();
        let read = std::io::stdin().take(4096).read_to_string(&mut text);
        read.map_err(|error| Failure::usage(format!("read the password: {error}"), None))?;
        return Ok(text.trim_end_matches(['\r', '\n']).to_owned());
    }
    let given = Environment::of_process().get(env::REGISTRY_PASSWORD).map(str::to_owned);
    given.ok_or_else(|| {
        let hint = format!("give it with --password-stdin or ${}", env::REGISTRY_PASSWORD);
        Failure::usage(format!("no password for {username}"), Some(hint))
    })
}

fn refused(error: &PushError, host: &str) -> Failure {
    let hint = match error {
        PushError::Unreachable(_) => Some(format!(
            "is {host} a registry? --ca-file names the certificates of one whose authority the system does not know"
        )),
        PushError::Registry(_) => {
            Some("credentials: --username with --password-stdin, or docker login".to_owned())
        }
        _ => None,
    };
    Failure::new(error, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_added_where_there_is_none() {
        assert_eq!(named("r.example:5000/a", "v1"), "r.example:5000/a:v1");
        assert_eq!(named("r.example:5000/a:x", "v1"), "r.example:5000/a:x");
        assert_eq!(named("a", "v1"), "a:v1");
        let pinned = format!("a@sha256:{}", "0".repeat(64));
        assert!(reference(&named(&pinned, "v1")).unwrap_err().message.contains("a digest cannot be chosen"));
    }
}
