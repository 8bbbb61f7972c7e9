//! What people install: each file of a release is made, checked and used as they would.

mod chart;
mod template;

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
};

use flate2::read::GzDecoder;
use remuda_dist::{Built, NotBuilt, Release, assemble, generate_key, stripped, verify};
use remuda_names::file;
use serde_json::Value;

use crate::harness::{Place, Server, assert_success, skipped, success};

/// What a chart says when it cannot go on.
fn chart_error(text: &str) -> String {
    text.to_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skipped(&format!("there is no {program} in PATH: what it says about a release"));
    }
    found
}

#[test]
fn what_is_made_can_be_checked_and_installed() {
    let place = Place::new();
    // The service's own user has to get here.
    fs::set_permissions(place.join("."), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.join("remuda");
    stripped(Path::new(env!("CARGO_BIN_EXE_remuda")), &program).unwrap();
    let keys = place.join("keys");
    fs::create_dir(&keys).unwrap();
    let (private, public) = generate_key(&keys).unwrap();
    let output = place.join("release");
    let release = Release {
        root: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        built: vec![Built { target: format!("{}-unknown-linux-gnu", std::env::consts::ARCH), program }],
        not_built: vec![NotBuilt { target: "some-other".to_owned(), reason: "of this and that".to_owned() }],
        output: output.clone(),
        sign_key: Some(private),
        maintainer: "Somebody <somebody@example.org>".to_owned(),
        time: 1_700_000_000,
        commit: None,
        fast: true,
    };
    let names = assemble(&release).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(names.len(), 9, "{names:?}");
    let again = assemble(&release).unwrap_err().to_string();
    assert!(again.contains("is not empty"), "{again}");

    checked(&output, &public);
    listed(&output, version);
    pages(&place, &output, version);
    image(&place, &output, version);
    package(&place, &output);
    // Last, as nothing is whole afterwards.
    flipped(&output, &public, &names);
}

/// By our own program, and by those everybody has.
fn checked(output: &Path, public: &Path) {
    assert_eq!(verify(output, Some(public)).unwrap(), 7);
    let manifest = json(&output.join("manifest.json"));
    assert_eq!(manifest["notBuilt"][0]["reason"], "of this and that");
    assert_eq!(manifest["dataFormat"], remuda_server::datadir::FORMAT);
    if has("sha256sum") {
        success(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(output));
    }
    if has("openssl") {
        let mut command = Command::new("openssl");
        command.args(["pkeyutl", "-verify", "-pubin", "-rawin", "-in", "manifest.json", "-sigfile"]);
        command.args(["manifest.json.sig", "-inkey"]).arg(public).current_dir(output);
        assert_success(&command.output().unwrap());
    }
}

fn listed(output: &Path, version: &str) {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let list = json(&output.join(format!("remuda-{version}-{target}.cdx.json")));
    assert_eq!(list["metadata"]["component"]["version"], version);
    let components = list["components"].as_array().unwrap();
    let rustls = components.iter().find(|component| component["name"] == "rustls").unwrap();
    assert_eq!(rustls["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert!(
        !components.iter().any(|component| component["name"] == "proptest"),
        "tests link it, not the program"
    );
}

fn pages(place: &Place, output: &Path, version: &str) {
    let packed = fs::File::open(output.join(format!("remuda-{version}-pages.tar.gz"))).unwrap();
    let directory = place.join("pages");
    tar::Archive::new(GzDecoder::new(packed)).unpack(&directory).unwrap();
    let page = fs::read_to_string(directory.join("man/man1/remuda-cluster-create.1")).unwrap();
    // An argument that is called as that of every program, and is another.
    assert!(page.contains("such as v1.35.1+k3s1"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(directory.join(format!("completions/remuda.{shell}")).is_file());
    }
    if has("man") {
        let mut command = Command::new("man");
        command.arg("--local-file").arg(directory.join("man/man1/remuda-server.1"));
        let Output { status, stdout, stderr } = command.env("MANWIDTH", "100").output().unwrap();
        let (text, complaints) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{complaints}");
        assert!(text.contains("--datastore"), "{text}");
    }
}

/// The image, unpacked as a container runtime does, has all the server needs to run.
fn image(place: &Place, output: &Path, version: &str) {
    let architecture = remuda_oci::Architecture::own().unwrap();
    let archive = output.join(format!("remuda-{version}-image-linux-{architecture}.tar"));
    let layout = place.join("layout");
    tar::Archive::new(fs::File::open(archive).unwrap()).unpack(&layout).unwrap();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        layout.join("blobs/sha256").join(digest)
    };
    let manifest = json(&blob(&json(&layout.join("index.json"))["manifests"][0]));
    let config = json(&blob(&manifest["config"]))["config"].clone();
    assert_eq!(config["Entrypoint"][0], "/usr/bin/remuda");
    assert_eq!(config["Cmd"][0], "server");
    let root = place.join("image-root");
    for layer in manifest["layers"].as_array().unwrap() {
        tar::Archive::new(GzDecoder::new(fs::File::open(blob(layer)).unwrap())).unpack(&root).unwrap();
    }
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root can enter an image: running the server of it");
    }
    let start =
        place.write("enter", &format!("#!/bin/sh\nexec chroot {} /usr/bin/remuda \"$@\"\n", root.display()));
    fs::set_permissions(&start, fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_program(&start, &place.join("inside"), &[], |_| {});
    let (_, status) = server.stop();
    assert!(status.success(), "{status}");
}

/// A system with nothing but what packages look for.
struct System {
    root: PathBuf,
    deb: PathBuf,
}

impl System {
    fn new(root: PathBuf, deb: PathBuf) -> System {
        for directory in ["etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for (name, text) in [
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
            ("etc/shadow", "root:*:19000:0:99999:7:::\n"),
            ("etc/gshadow", "root:*::\n"),
            ("var/lib/dpkg/status", ""),
        ] {
            fs::write(root.join(name), text).unwrap();
        }
        System { root, deb }
    }

    fn dpkg(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("dpkg");
        // There is no C library in it, and nothing to run scripts with.
        command.arg(format!("--root={}", self.root.display()));
        command.args(["--force-depends", "--force-script-chrootless", "--force-bad-path"]);
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command.output().unwrap()
    }

    fn install(&self) -> Output {
        self.dpkg(&["--install", self.deb.to_str().unwrap()])
    }

    fn join(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn user(&self) -> Option<(u32, u32)> {
        let text = fs::read_to_string(self.join("etc/passwd")).unwrap();
        let line = text.lines().find(|line| line.starts_with("remuda:"))?.to_owned();
        let fields: Vec<&str> = line.split(':').collect();
        Some((fields[2].parse().unwrap(), fields[3].parse().unwrap()))
    }
}

fn package(place: &Place, output: &Path) {
    let mut debs = fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path());
    let deb = debs.find(|path| path.extension().is_some_and(|extension| extension == "deb")).unwrap();
    if !has("dpkg") {
        return;
    }
    let contents = success(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    assert!(contents.contains("root/root") && contents.contains("usr/bin/remuda"), "{contents}");
    let about = success(Command::new("dpkg-deb").arg("--field").arg(&deb));
    assert!(about.contains("Depends: libc6 (>= 2.") || about.contains("Depends: passwd"), "{about}");
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root can install a package: installing, upgrading and removing it");
    }
    let system = System::new(place.join("system"), deb);
    assert_success(&system.install());
    let (uid, gid) = system.user().expect("the service has no user");
    let data = system.join("var/lib/remuda");
    let metadata = fs::metadata(&data).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (uid, gid, 0o700));
    let installed = fs::read(system.join("usr/bin/remuda")).unwrap();
    assert_eq!(installed, fs::read(place.join("remuda")).unwrap());
    service(&system, uid, gid);
    let format = data.join(file::FORMAT);
    assert!(format.is_file());

    // An upgrade keeps what people changed, and the data.
    let config = system.join("etc/remuda/config.yaml");
    fs::write(&config, "advertise: mine.example.org\n").unwrap();
    assert_success(&system.install());
    assert_eq!(fs::read_to_string(&config).unwrap(), "advertise: mine.example.org\n");
    assert_eq!(system.user(), Some((uid, gid)));

    // Data of a newer version is refused while that version is still there.
    let marker = fs::read_to_string(&format).unwrap();
    fs::write(&format, "format 99\nversion 9.9.9\n").unwrap();
    fs::write(system.join("usr/bin/remuda"), "the newer version").unwrap();
    let refused = system.install();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("has format 99"), "{said}");
    assert_eq!(fs::read_to_string(system.join("usr/bin/remuda")).unwrap(), "the newer version");
    fs::write(&format, marker).unwrap();
    assert_success(&system.install());
    service(&system, uid, gid);

    assert_success(&system.dpkg(&["--remove", "remuda"]));
    assert!(!system.join("usr/bin/remuda").exists() && config.is_file() && data.join(file::STORE).is_dir());
    assert_success(&system.dpkg(&["--purge", "remuda"]));
    assert!(
        !config.exists() && data.join(file::STORE).is_dir(),
        "the data is nobody's to delete but its owner's"
    );
}

/// Starts the server as its unit says.
fn service(system: &System, uid: u32, gid: u32) {
    let unit = fs::read_to_string(system.join("usr/lib/systemd/system/remuda.service")).unwrap();
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap();
    assert_eq!((value("User"), value("ExecStart")), ("remuda", "/usr/bin/remuda server"));
    let (name, directory) = value("Environment").split_once('=').unwrap();
    assert_eq!(name, remuda_names::env::DATA_DIR);
    let data = system.join(directory.trim_start_matches('/'));
    let config = system.join("etc/remuda/config.yaml");
    let program = system.join("usr/bin/remuda");
    let server = Server::start_program(&program, &data, &["--config", config.to_str().unwrap()], |command| {
        command.uid(uid).gid(gid).env("HOME", "/nonexistent");
    });
    assert_eq!(fs::metadata(server.kubeconfig()).unwrap().uid(), uid);
    let (_, status) = server.stop();
    assert!(status.success(), "{status}");
}

/// One bit of any file is noticed, and the file named.
fn flipped(output: &Path, public: &Path, names: &[String]) {
    for name in names {
        let path = output.join(name);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let result = verify(output, Some(public));
        match name.as_str() {
            "manifest.json" | "manifest.json.sig" => {
                assert!(result.unwrap_err().to_string().contains("manifest.json was not signed"));
            }
            _ => assert_eq!(result.unwrap_err().to_string(), format!("{name} differs from its checksum")),
        }
        fs::write(&path, whole).unwrap();
    }
    verify(output, Some(public)).unwrap();
}
