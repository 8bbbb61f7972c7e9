//! `remuda bundle`: images in one file, made where there is internet and used where there is none.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use remuda_cli::Code;
use remuda_names::env;
use remuda_oci::{Architecture, Reference, reference::DOCKER_HUB};
use remuda_registry::{
    Bundle, BundleError, Credentials, Store, Upstream,
    bundle::{self, Source},
    collect,
};
use serde_json::json;

use crate::{command::Format, failure::Failure, image, output, serve, version::VERSION};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Fetch images and write them to one file
    #[command(
        after_help = "Servers give what is in the files *.bundle of the directory `bundles` in their data directory to machines.

Examples:
  remuda bundle create k3s.bundle rancher/system-agent-installer-k3s:v1.35.1-k3s1
  remuda bundle create rke2.bundle --images-file rke2-images.txt --architecture amd64,arm64
  remuda bundle create x.bundle team/app:v1 --endpoint https://mirror.example --ca-file mirror-ca.pem"
    )]
    Create(Create),

    /// Say what is in a bundle
    Inspect {
        /// The bundle
        file: PathBuf,
        /// How to print it
        #[arg(long, short, value_enum, default_value_t = Format::Text)]
        output: Format,
    },

    /// Read all of a bundle: every part has its digest, and every image all its parts
    Verify {
        /// The bundle
        file: PathBuf,
        /// Every image must be there for this architecture
        #[arg(long, value_name = "ARCH")]
        architecture: Option<String>,
        /// The bundle must have this digest, as `remuda bundle inspect` prints it
        #[arg(long, value_name = "SHA256")]
        digest: Option<String>,
    },

    /// Put the images of a bundle into a registry
    #[command(
        after_help = "Images keep their repositories and tags: docker.io/rancher/x:v1 is REGISTRY/rancher/x:v1 there.

Examples:
  remuda bundle push k3s.bundle https://registry.example
  remuda bundle push k3s.bundle https://registry.example/mirror --username ann --password-stdin <password.txt"
    )]
    Push(Push),
}

#[derive(Args)]
pub(crate) struct Create {
    /// The file to write, which must not exist
    file: PathBuf,
    /// Images
    #[arg(value_name = "IMAGE", required_unless_present = "images_file")]
    images: Vec<String>,
    /// More images, one on each line
    #[arg(long, value_name = "FILE")]
    images_file: Option<PathBuf>,
    /// For which machines [default: those of this one's architecture]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    architecture: Vec<String>,
    /// Take all of them from this registry, which mirrors theirs
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    #[command(flatten)]
    access: Access,
}

#[derive(Args)]
pub(crate) struct Push {
    /// The bundle
    file: PathBuf,
    /// Where to: the address of the registry, and perhaps what comes before its repositories
    #[arg(value_name = "URL")]
    registry: String,
    #[command(flatten)]
    access: Access,
}

#[derive(Args)]
struct Access {
    /// Who asks the registry
    #[arg(long, value_name = "NAME", env = env::REGISTRY_USERNAME)]
    username: Option<String>,
    /// Read the password from standard input [default: $REMUDA_REGISTRY_PASSWORD]
    #[arg(long, requires = "username")]
    password_stdin: bool,
    /// Certificates the registry is trusted by, beside those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl Access {
    fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let Some(username) = self.username.clone() else { return Ok(None) };
        let password = image::password(&username, self.password_stdin)?;
        Ok(Some(Credentials { username, password }))
    }

    fn ca(&self) -> Result<Option<Vec<u8>>, Failure> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|error| Failure::usage(format!("read {}: {error}", path.display()), None))
        };
        self.ca_file.as_ref().map(read).transpose()
    }

    fn upstream(
        &self,
        address: &str,
        namespace: Option<String>,
        credentials: Option<&Credentials>,
    ) -> Result<Upstream, Failure> {
        let upstream = Upstream::new(address, namespace, credentials.cloned(), self.ca()?.as_deref());
        upstream.map_err(|error| Failure { code: Code::Invalid, ..Failure::new(&error, None) })
    }
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Create(arguments) => create(arguments),
        Command::Inspect { file, output } => inspect(file, *output),
        Command::Verify { file, architecture, digest } => {
            let bundle = open(file)?;
            if let Some(wanted) = digest.as_deref().filter(|wanted| *wanted != bundle.digest().to_string()) {
                let message = format!("{} has the digest {}, not {wanted}", file.display(), bundle.digest());
                return Err(Failure { code: Code::Invalid, ..Failure::usage(message, None) });
            }
            bundle.verify(architecture.as_deref()).map_err(|error| unusable(&error))?;
            let images = bundle.index().images.len();
            output::line(&format!("{} is whole: {images} images, {}", file.display(), bundle.digest()));
            Ok(())
        }
        Command::Push(arguments) => push(arguments),
    }
}

fn open(file: &Path) -> Result<Bundle, Failure> {
    Bundle::open(file).map_err(|error| unusable(&error))
}

fn unusable(error: &BundleError) -> Failure {
    let code = match error {
        BundleError::Read { .. } | BundleError::Write { .. } => Code::Other,
        _ => Code::Invalid,
    };
    let hint = match error {
        BundleError::Part { .. } => {
            Some("copy the bundle again, or make it anew with remuda bundle create".to_owned())
        }
        BundleError::Newer { .. } => Some("use the version that made it, or a newer one".to_owned()),
        _ => None,
    };
    Failure { code, ..Failure::new(error, hint) }
}

fn inspect(file: &Path, format: Format) -> Result<(), Failure> {
    let bundle = open(file)?;
    let index = bundle.index();
    if format == Format::Json {
        let mut value = json!(index);
        value["digest"] = json!(bundle.digest().to_string());
        output::line(&format!("{value:#}"));
        return Ok(());
    }
    let size: u64 = index.parts.values().sum();
    let architectures: Vec<&str> = index.architectures.iter().map(String::as_str).collect();
    output::line(&format!("digest         {}", bundle.digest()));
    output::line(&format!("made by        Remuda {}", index.made_by));
    output::line(&format!("architectures  {}", architectures.join(", ")));
    output::line(&format!("parts          {}, {}", index.parts.len(), HumanBytes(size)));
    for (image, digest) in &index.images {
        output::line(&format!("image          {image} {digest}"));
    }
    Ok(())
}

fn create(arguments: &Create) -> Result<(), Failure> {
    let Create { file, images, images_file, architecture, endpoint, access } = arguments;
    if file.exists() {
        return Err(Failure {
            message: format!("{} exists", file.display()),
            hint: Some("choose another name, or remove it".to_owned()),
            code: Code::Conflict,
        });
    }
    let mut names: BTreeSet<String> = images.iter().cloned().collect();
    if let Some(path) = images_file {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Failure::usage(format!("read {}: {error}", path.display()), None))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        names.extend(lines.map(str::to_owned));
    }
    let mut references = Vec::new();
    for name in &names {
        let reference = Reference::parse(name).map_err(|error| Failure::usage(error.to_string(), None))?;
        references.push(reference);
    }
    let mut architectures: BTreeSet<String> = architecture.iter().cloned().collect();
    if architectures.is_empty() {
        architectures.extend(Architecture::own().map(|own| own.name().to_owned()));
    }
    if let Some(unknown) = architectures.iter().find(|name| Architecture::named(name).is_none()) {
        let known = Architecture::ALL.map(Architecture::name).join(", ");
        return Err(Failure::usage(format!("--architecture {unknown}: one of {known}"), None));
    }
    let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: std::io::Error| Failure {
        message: format!("write {}: {error}", file.display()),
        hint: None,
        code: Code::Other,
    };
    let scratch = tempfile::Builder::new().prefix(".remuda-bundle-").tempdir_in(beside).map_err(failed)?;
    let store = Arc::new(Store::open(scratch.path(), u64::MAX).map_err(failed)?);
    let mut source =
        Source { made_by: VERSION.to_owned(), architectures: architectures.clone(), ..Source::default() };
    let credentials = access.credentials()?;
    let credentials = credentials.as_ref();
    serve::runtime()?.block_on(async {
        for reference in &references {
            output::note(&format!("fetching {reference} …"));
            let namespace = reference.namespace().to_owned();
            let upstream = match endpoint {
                Some(endpoint) => access.upstream(endpoint, Some(namespace), credentials)?,
                None if reference.registry == DOCKER_HUB => {
                    access.upstream("https://registry-1.docker.io", None, credentials)?
                }
                None => access.upstream(&format!("https://{namespace}"), None, credentials)?,
            };
            let upstream = Arc::new(upstream);
            let collecting =
                collect(&upstream, reference, &architectures, &store, scratch.path(), &mut source);
            collecting.await.map_err(|error| Failure::new(&error, None))?;
        }
        Ok::<_, Failure>(())
    })?;
    let bundle = bundle::write(file, &source).map_err(|error| unusable(&error))?;
    let size = fs::metadata(file).map_or(0, |metadata| metadata.len());
    output::line(&format!(
        "wrote {} ({}): {} images, {}",
        file.display(),
        HumanBytes(size),
        bundle.index().images.len(),
        bundle.digest()
    ));
    Ok(())
}

fn push(arguments: &Push) -> Result<(), Failure> {
    let Push { file, registry, access } = arguments;
    let bundle = open(file)?;
    // Half of a bundle in a registry is harder to find than a bundle that is broken.
    bundle.verify(None).map_err(|error| unusable(&error))?;
    let upstream = access.upstream(registry, None, access.credentials()?.as_ref())?;
    serve::runtime()?.block_on(async {
        for (name, digest) in &bundle.index().images {
            let image = Reference::parse(name).map_err(|error| Failure::new(&error, None))?;
            let sent = upstream.push(&bundle, digest, &image.repository, &image.tag).await;
            let sent = sent.map_err(|error| Failure::new(&error, None))?;
            output::line(&format!(
                "pushed {}/{}:{} ({sent} sent)",
                upstream.host(),
                image.repository,
                image.tag
            ));
        }
        Ok(())
    })
}
