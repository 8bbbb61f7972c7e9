//! `cargo xtask dist`: builds the program and makes what people install of it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use clap::{Args, Parser};
use remuda_dist::{Built, Release, assemble, build_all, generate_key, stripped, verify};

/// Make what people install, check it, or make a key to sign it with.
#[derive(Parser)]
#[command(name = "cargo xtask dist", args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(flatten)]
    make: Make,
    #[command(subcommand)]
    other: Option<Other>,
}

#[derive(Args)]
struct Make {
    /// Where to: a new or empty directory
    #[arg(long, value_name = "DIR", default_value = "target/dist-files")]
    output: PathBuf,
    /// Build for this platform, and fail if that cannot be done; may be repeated [default: whatever can be built]
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// The profile to build with
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Build nothing: take this program, which is for this host
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "profile"])]
    program: Option<PathBuf>,
    /// Sign the manifest with this Ed25519 key (PEM)
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Whom the Debian package names
    #[arg(long, default_value = "Remuda project <remuda@example.invalid>")]
    maintainer: String,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Check the files of a release, and who signed them
    Verify {
        /// Where they are
        directory: PathBuf,
        /// The key they must be signed with (PEM)
        #[arg(long, value_name = "FILE")]
        public_key: Option<PathBuf>,
    },
    /// Make a pair of keys, release.key and release.pub
    Key {
        /// Where to
        directory: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let CommandLine { make, other } = CommandLine::parse();
    match other {
        None => self::make(make),
        Some(Other::Verify { directory, public_key }) => {
            let files = verify(&directory, public_key.as_deref())?;
            let signed = if public_key.is_some() { ", and the manifest is signed with that key" } else { "" };
            print(&format!("{files} files are as the manifest says{signed}"));
            Ok(())
        }
        Some(Other::Key { directory }) => {
            let (private, public) = generate_key(&directory)?;
            print(&format!("wrote {} and {}", private.display(), public.display()));
            Ok(())
        }
    }
}

fn make(make: Make) -> anyhow::Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let root = root.canonicalize().context("find the repository")?;
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").current_dir(&root).args(arguments).output().ok()?;
        let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let commit = git(&["rev-parse", "HEAD"]);
    #[expect(clippy::disallowed_methods, reason = "tools that make packages agree on this variable")]
    let time = env::var("SOURCE_DATE_EPOCH").ok().or_else(|| git(&["log", "-1", "--format=%ct"]));
    let time = time.map(|time| time.parse().context("SOURCE_DATE_EPOCH")).transpose()?.unwrap_or_default();
    let scratch = tempfile::tempdir().context("create a directory for the program")?;
    let (built, not_built) = match &make.program {
        Some(program) => {
            let copy = scratch.path().join("remuda");
            stripped(program, &copy)?;
            let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
            (vec![Built { target, program: copy }], Vec::new())
        }
        None => build_all(&root, &make.profile, &make.target, commit.as_deref())?,
    };
    for missing in &not_built {
        print(&format!("not built for {}: {}", missing.target, missing.reason));
    }
    let output = make.output.clone();
    let release = Release {
        root,
        built,
        not_built,
        output: make.output,
        sign_key: make.sign_key.clone(),
        maintainer: make.maintainer,
        time,
        commit,
        fast: false,
    };
    for name in assemble(&release)? {
        print(&format!("{}", output.join(name).display()));
    }
    if make.sign_key.is_none() {
        print("the manifest is not signed: --sign-key names a key, cargo xtask dist key DIR makes one");
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the output is the purpose")]
fn print(line: &str) {
    println!("{line}");
}
