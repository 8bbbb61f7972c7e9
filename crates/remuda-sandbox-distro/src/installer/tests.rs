use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::*;

/// A root to install into, with a `systemctl` that writes down what it is asked for.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("fake");
        fs::create_dir(&bin).unwrap();
        let systemctl = bin.join("systemctl");
        let log = root.path().join("systemctl.log");
        // Active from the first restart on.
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {log}\ncase \"$1\" in is-active) grep -q restart {log} && [ \"$3\" != rke2-agent ];; esac\n",
            log = log.display()
        );
        fs::write(&systemctl, script).unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        Machine { root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Runs the script of an image and returns what systemctl was asked for meanwhile.
    fn install(&self, distribution: Distribution, version: &str, env: &[(&str, &str)]) -> Vec<String> {
        let log = self.path("systemctl.log");
        let known = fs::read_to_string(&log).unwrap_or_default().lines().count();
        let script = self.path("run.sh");
        fs::write(&script, super::script(distribution, version, "/opt/remuda/remuda")).unwrap();
        let path = format!("{}:/usr/bin:/bin", self.path("fake").display());
        let output = Command::new("sh")
            .arg(&script)
            .env_clear()
            .env("PATH", path)
            .env("SANDBOX_INSTALL_ROOT", self.root.path())
            .envs(env.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read_to_string(&log).unwrap_or_default().lines().skip(known).map(str::to_owned).collect()
    }
}

fn restarts(calls: &[String]) -> Vec<&str> {
    calls.iter().filter(|call| call.contains("restart")).map(String::as_str).collect()
}

#[test]
fn k3s_is_installed_and_restarted_only_by_a_new_stamp() {
    let machine = Machine::new();
    let stamp = |stamp| [("RESTART_STAMP", stamp), ("K3S_DATA_DIR", "/var/lib/rancher/k3s")];
    let first = machine.install(Distribution::K3s, "v1.35.1+k3s1", &stamp("one"));
    assert_eq!(restarts(&first), ["restart k3s"]);
    assert!(first.contains(&"enable k3s".to_owned()));
    assert_eq!(fs::read_link(machine.path("/usr/local/bin/k3s")).unwrap(), Path::new("/opt/remuda/remuda"));
    let unit = fs::read_to_string(machine.path("/etc/systemd/system/k3s.service")).unwrap();
    assert!(unit.contains("Type=notify") && unit.contains("ExecStart=/usr/local/bin/k3s server"));
    let env = fs::read_to_string(machine.path("/etc/systemd/system/k3s.service.env")).unwrap();
    assert!(
        env.contains("REMUDA_NODE_VERSION=v1.35.1+k3s1") && env.contains("K3S_DATA_DIR=/var/lib/rancher/k3s")
    );
    assert_eq!(fs::read_to_string(machine.path("/var/lib/rancher/k3s/restart_stamp")).unwrap(), "one\n");
    assert!(restarts(&machine.install(Distribution::K3s, "v1.35.1+k3s1", &stamp("one"))).is_empty());
    assert_eq!(restarts(&machine.install(Distribution::K3s, "v1.35.1+k3s1", &stamp("two"))), ["restart k3s"]);
    for script in ["k3s-killall.sh", "k3s-uninstall.sh"] {
        assert!(machine.path(&format!("/usr/local/bin/{script}")).exists(), "{script}");
    }
}

#[test]
fn a_new_version_restarts() {
    let machine = Machine::new();
    machine.install(Distribution::K3s, "v1.35.1+k3s1", &[("RESTART_STAMP", "one")]);
    let calls = machine.install(Distribution::K3s, "v1.35.2+k3s1", &[("RESTART_STAMP", "two")]);
    assert_eq!(restarts(&calls), ["restart k3s"]);
    assert_eq!(
        fs::read_to_string(machine.path("/etc/rancher/k3s/sandbox-version")).unwrap(),
        "v1.35.2+k3s1\n"
    );
}

#[test]
fn an_agent_has_a_unit_of_its_own() {
    let machine = Machine::new();
    let env = [("INSTALL_K3S_EXEC", "agent"), ("RESTART_STAMP", "one")];
    assert_eq!(restarts(&machine.install(Distribution::K3s, "v1.35.1+k3s1", &env)), ["restart k3s-agent"]);
    let unit = fs::read_to_string(machine.path("/etc/systemd/system/k3s-agent.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/k3s agent") && unit.contains("Type=exec"));
}

#[test]
fn nothing_starts_when_it_is_told_not_to() {
    let machine = Machine::new();
    let k3s = machine.install(Distribution::K3s, "v1.35.1+k3s1", &[("INSTALL_K3S_SKIP_START", "true")]);
    let rke2 = machine.install(Distribution::Rke2, "v1.35.1+rke2r1", &[("INSTALL_RKE2_SKIP_START", "true")]);
    assert!(restarts(&k3s).is_empty() && restarts(&rke2).is_empty());
}

#[test]
fn rke2_is_restarted_by_a_new_stamp_or_environment() {
    let machine = Machine::new();
    let env = |stamp, proxy| [("RESTART_STAMP", stamp), ("RKE2_DATA_DIR", "/data"), ("HTTPS_PROXY", proxy)];
    let install = |stamp, proxy| machine.install(Distribution::Rke2, "v1.35.1+rke2r1", &env(stamp, proxy));
    assert_eq!(restarts(&install("one", "a")), ["--no-block restart rke2-server"]);
    assert!(restarts(&install("one", "a")).is_empty());
    assert_eq!(restarts(&install("one", "b")), ["--no-block restart rke2-server"]);
    assert_eq!(restarts(&install("two", "b")), ["--no-block restart rke2-server"]);
    let stamp = machine.path("/data/system-agent-installer/rke2_restart_stamp");
    assert_eq!(fs::read_to_string(stamp).unwrap(), "two\n");
    let agent = machine.install(
        Distribution::Rke2,
        "v1.35.1+rke2r1",
        &[("INSTALL_RKE2_EXEC", "agent"), ("RESTART_STAMP", "x")],
    );
    assert_eq!(restarts(&agent), ["--no-block restart rke2-agent"]);
}

#[test]
fn an_image_is_what_docker_saves() {
    let image = image(Distribution::K3s, "v1.35.1+k3s1", "/opt/remuda/remuda");
    assert_eq!(image, super::image(Distribution::K3s, "v1.35.1+k3s1", "/opt/remuda/remuda"));
    let mut archive = tar::Archive::new(image.as_slice());
    let mut manifest = String::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap() == Path::new("manifest.json") {
            std::io::Read::read_to_string(&mut entry, &mut manifest).unwrap();
        }
    }
    assert!(manifest.contains("rancher/system-agent-installer-k3s:v1.35.1-k3s1"));
}
