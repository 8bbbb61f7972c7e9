//! `remuda up --real` and what comes before it: a bundle, a host that can, and what machines would get. And ports of the
//! host that lead into machines.
//!
//! The installer in the bundle installs the sandbox distribution under a version that only the bundle has.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use remuda_oci::{Architecture, sha256_of};
use remuda_registry::bundle::{self, Source};
use remuda_sandbox_distro::{Distribution, installer};
use serde_json::{Value, json};

use crate::{
    harness::{Place, ended_with, remuda, skipped},
    lab::{Lab, versions},
};

/// No release has it, and no part of this program knows it.
const VERSION: &str = "v1.34.77+k3s1";
const NEXT: &str = "v1.34.78+k3s1";
const NOBODY: u32 = 65_534;

/// A part of a bundle, and how manifests name it.
fn part(source: &mut Source, place: &Place, name: &str, content: &[u8]) -> Value {
    let path = place.join(name);
    fs::write(&path, content).unwrap();
    json!({"digest": source.add(path).unwrap(), "size": content.len()})
}

/// A bundle with an installer and an image of the release.
fn bundle(place: &Place) -> PathBuf {
    let own = Architecture::own().unwrap().name();
    let mut source = Source { made_by: "0.1.0".to_owned(), ..Source::default() };
    source.architectures.insert(own.to_owned());
    let installer = installer::image(Distribution::K3s, VERSION, "/opt/remuda/remuda");
    let mut script = Vec::new();
    for entry in tar::Archive::new(installer.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().ends_with("layer.tar") {
            entry.read_to_end(&mut script).unwrap();
        }
    }
    assert!(!script.is_empty());
    let config = json!({"architecture": own, "os": "linux"}).to_string();
    let config = part(&mut source, place, "config", config.as_bytes());
    let installer = format!("docker.io/{}", installer::image_name(Distribution::K3s, VERSION));
    for (name, layer) in
        [(installer.as_str(), script.as_slice()), ("docker.io/rancher/mirrored-pause:3.6", b"pause")]
    {
        let file = name.rsplit('/').next().unwrap();
        let layer = part(&mut source, place, &format!("layer-{file}"), layer);
        let manifest = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer],
        });
        let manifest = part(&mut source, place, &format!("manifest-{file}"), manifest.to_string().as_bytes());
        source.images.insert(name.to_owned(), manifest["digest"].as_str().unwrap().to_owned());
    }
    let path = place.join("k3s.bundle");
    bundle::write(&path, &source).unwrap();
    path
}

/// `remuda up` that serves on. Told to stop when dropped.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

#[test]
fn real_clusters_are_refused_where_they_cannot_be_before_anything_is_made() {
    let place = Place::new();
    let data = place.data();
    let up = |program: &Path, more: &[&str]| {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", place.join("home")).args(["up", "--real", "--bind", "0.0.0.0:0"]);
        command.args(more).arg("--data-dir").arg(&data);
        command
    };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_remuda"));
    let said = ended_with(remuda().args(["up", "--bundle", "x"]), 2);
    assert!(said.contains("--real"), "{said}");
    if !geteuid().is_root() {
        let said = ended_with(&mut up(&program, &[]), 1);
        assert!(said.contains("not root"), "{said}");
        skipped("not root: other refusals of remuda up --real");
        return;
    }
    let copy = place.join("remuda");
    fs::copy(&program, &copy).unwrap();
    chown(copy.parent().unwrap(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut unprivileged = up(&copy, &[]);
    let said = ended_with(unprivileged.uid(NOBODY).gid(NOBODY), 1);
    assert!(said.contains("this host cannot have real clusters: user: not root"), "{said}");
    assert!(said.contains("remuda doctor real"), "{said}");

    let doctor = remuda().args(["doctor", "real"]).output().unwrap();
    if !doctor.status.success() {
        skipped(&format!("no real clusters here: {}", String::from_utf8_lossy(&doctor.stdout)));
        return;
    }
    let here = place.join("here");
    let mut loopback = remuda();
    loopback.args(["up", "--real", "--bind", "127.0.0.1:0", "--bundle"]).arg(bundle(&place));
    let said = ended_with(loopback.arg("--data-dir").arg(&here), 2);
    assert!(said.contains("Pods do not reach that address") && !here.exists(), "{said}");
    let said = ended_with(&mut up(&program, &["--driver", "digitalocean"]), 2);
    assert!(said.contains("--real is for machines on this host"), "{said}");
    let said = ended_with(&mut up(&program, &[]), 3);
    assert!(said.contains("there is no installer of v1.35.1+k3s1 on this host"), "{said}");
    assert!(said.contains("--bundle FILE"), "{said}");
    let bundle = bundle(&place);
    let path = bundle.to_str().unwrap();
    for (volume, said) in
        [("/nonexistent:/data", "is no directory of this host"), ("/tmp:/usr/x", "is a machine's own")]
    {
        let refused = ended_with(&mut up(&program, &["--bundle", path, "--volume", volume]), 2);
        assert!(refused.contains(said), "{refused}");
    }
    let said = ended_with(&mut up(&program, &["--bundle", path, "--version", NEXT]), 3);
    assert!(said.contains(&format!("no installer of {NEXT}")) && said.contains(VERSION), "{said}");
    let mut bytes = fs::read(&bundle).unwrap();
    let at = bytes.windows(5).position(|found| found == b"pause").unwrap();
    // The first one is the name in the index; content comes behind it.
    let at = bytes[at + 5..].windows(5).position(|found| found == b"pause").map_or(at, |more| at + 5 + more);
    bytes[at] ^= 1;
    fs::write(&bundle, bytes).unwrap();
    let said = ended_with(&mut up(&program, &["--bundle", path]), 2);
    assert!(said.contains("differs from its digest"), "{said}");
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn a_bundle_brings_up_its_version_and_preflight_says_what_others_would_lack() {
    if !geteuid().is_root() {
        skipped("not root: remuda up --real");
        return;
    }
    let Some(mut lab) = Lab::open(None) else { return };
    let doctor = remuda().args(["doctor", "real"]).output().unwrap();
    if !doctor.status.success() {
        skipped(&format!("no real clusters here: {}", String::from_utf8_lossy(&doctor.stdout)));
        return;
    }
    lab.kill_server();
    let bundle = bundle(&lab.place);
    // Making the image of a debug build takes minutes; one that is there is not made again.
    let (digest, _) = sha256_of(Path::new(env!("CARGO_BIN_EXE_remuda"))).unwrap();
    let preloaded = lab.data().join("sandbox/preloaded");
    fs::create_dir_all(&preloaded).unwrap();
    fs::write(preloaded.join(format!("remuda-agent-{}.tar", &digest.hex()[..12])), "").unwrap();

    let log = lab.place.join("up.log");
    let bind = lab.bind.replace("127.0.0.1", "0.0.0.0");
    let mut up = lab.command(&["up", "--real", "--servers", "1", "--workers", "1", "--bind", &bind]);
    up.arg("--bundle").arg(&bundle).arg("--data-dir").arg(lab.data());
    let shared = lab.place.join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("from-host"), "hello").unwrap();
    up.arg("--volume").arg(format!("{}:/mnt/shared", shared.display()));
    up.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let up = Up(up.spawn().unwrap());
    let told = || fs::read_to_string(&log).unwrap_or_default();
    lab.until("the cluster is ready", Duration::from_secs(300), || {
        told().contains("cluster demo is ready after")
    });
    assert!(
        told().contains("have the host's root") && !told().contains("sandbox distribution"),
        "{}",
        told()
    );
    assert_eq!(versions(&lab.nodes("demo")), [VERSION; 2]);
    let machine = lab.machines()[0].clone();
    let (_, listed) =
        lab.say_to(&format!("machine shell {machine}"), &["ls", "/var/lib/rancher/k3s/agent/images"]);
    assert!(listed.contains("bundle-") && listed.contains("remuda-agent-"), "{listed}");

    let script = "cat /mnt/shared/from-host && hostname >/mnt/shared/from-machine";
    let (code, text) = lab.say_to(&format!("machine shell {machine}"), &["sh", "-c", script]);
    assert_eq!((code, text.as_str()), (0, "hello"));
    assert_eq!(fs::read_to_string(shared.join("from-machine")).unwrap().trim(), machine);

    // What is there is there; the next version is not, and machines of this host have no other server to ask.
    let text = lab.run("cluster preflight demo -o wide");
    assert!(text.contains("which every machine on this host sees"), "{text}");
    let (code, text) = lab.say(&format!("cluster preflight demo --to {NEXT}"));
    assert_eq!(code, 11, "{text}");
    assert!(text.contains("missing") && text.contains("remuda bundle create v1.34.78-k3s1.bundle"), "{text}");
    let (code, text) = lab.say(&format!("cluster preflight demo --to {NEXT} -o json"));
    let document: Value = serde_json::from_str(&text[..=text.rfind('}').unwrap()]).unwrap();
    assert_eq!((code, &document["state"], &document["version"]), (11, &json!("missing"), &json!(NEXT)));
    let mut names: Vec<&str> =
        document["machines"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let mut machines = lab.machines();
    machines.sort_unstable();
    assert_eq!(names, machines);
    let text = lab.run(&format!("cluster upgrade demo --to {NEXT} --dry-run"));
    assert!(
        text.contains("warning: rancher/system-agent-installer-k3s:v1.34.78-k3s1: not on this server"),
        "{text}"
    );
    assert_eq!(lab.say("cluster preflight nothing").0, 3);

    drop(up);
    let (code, text) = lab.say("down --yes");
    assert_eq!(code, 0, "{text}");
    assert!(!lab.data().exists());
    assert!(shared.join("from-host").exists(), "what is the host's stays");
}

/// What a server of files says on a port of this host; empty if nothing answers.
fn ask(port: u16) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut text = String::new();
    let _ = stream.write_all(b"GET /marker HTTP/1.0\r\n\r\n");
    // All is said: the other side may still answer.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn ports_of_this_host_lead_into_the_machines_of_a_cluster() {
    let Some(mut lab) = Lab::open(None) else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        skipped("there is no python3: ports that lead into machines");
        return;
    }
    lab.kill_server();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let up = || {
        let mut up = lab.command(&["up", "--servers", "1", "--workers", "1", "--bind", &lab.bind]);
        up.arg("--port").arg(format!("{port}:8099")).arg("--data-dir").arg(lab.data());
        up
    };
    let said = ended_with(&mut up(), 6);
    assert!(said.contains(&format!("--port 127.0.0.1:{port}:8099")), "{said}");
    drop(taken);
    let log = lab.place.join("up.log");
    let mut command = up();
    command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let up = Up(command.spawn().unwrap());
    let told = || fs::read_to_string(&log).unwrap_or_default();
    lab.until("the cluster is ready", Duration::from_secs(120), || {
        told().contains("cluster demo is ready after")
    });
    assert!(told().contains(&format!("127.0.0.1:{port} leads to port 8099")), "{}", told());
    assert_eq!(ask(port), "", "nothing listens yet");

    // On one of two machines: whichever it is, it is found.
    let machines = lab.machines();
    let worker = machines.iter().find(|name| name.contains("workers")).unwrap();
    let serve = "mkdir /tmp/served && echo from $(hostname) >/tmp/served/marker && cd /tmp/served && exec python3 -m http.server 8099";
    let mut shell = lab.command(&["machine", "shell", worker, "--data-dir"]);
    shell.arg(lab.data()).args(["--", "sh", "-c", serve]).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Up(shell.spawn().unwrap());
    lab.until("the port answers", Duration::from_secs(30), || ask(port).contains(&format!("from {worker}")));
    let many: Vec<_> = (0..20).map(|_| std::thread::spawn(move || ask(port))).collect();
    for asked in many {
        assert!(asked.join().unwrap().contains(&format!("from {worker}")));
    }
    drop(up);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the port went with what served it");
    let (code, text) = lab.say("down --yes");
    assert_eq!(code, 0, "{text}");
}
