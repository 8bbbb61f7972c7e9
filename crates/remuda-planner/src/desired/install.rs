//! Instructions of an ordinary plan.

use remuda_plan::digest::hex;
use sha2::{Digest, Sha256};

use super::{
    Renderer,
    operations::{AGENT, AGENT_PATHS},
};
use crate::{
    entry::Entry,
    idempotent::WINDOWS_DIR,
    node_plan::{File, Instruction, PeriodicInstruction},
    operation::renewal,
};

/// Runs the installer image; the distribution restarts if the stamp is new to the node.
pub(super) fn install(
    renderer: &Renderer<'_>,
    entry: &Entry<'_>,
    files: &[File],
    config: Option<&(usize, String)>,
) -> Instruction {
    let (stamp, drain) = stamps(renderer, files, config, &entry.machine.restart_asked);
    let prefix = if entry.windows { "WINS_" } else { "" };
    let stamps = vec![format!("{prefix}RESTART_STAMP={stamp}"), format!("{prefix}DRAIN_HASH={drain}")];
    instruction(renderer, entry, stamps)
}

/// Runs the installer image without starting or restarting anything.
pub(super) fn install_without_start(renderer: &Renderer<'_>, entry: &Entry<'_>) -> Instruction {
    let distro = renderer.distro.env_prefix();
    instruction(renderer, entry, vec![format!("INSTALL_{distro}_SKIP_START=true")])
}

fn instruction(renderer: &Renderer<'_>, entry: &Entry<'_>, mut env: Vec<String>) -> Instruction {
    let spec = &renderer.input.control_plane.spec;
    let distro = renderer.distro.env_prefix();
    let data_dir = &renderer.data_dir;
    let own = spec.agent_env_vars.iter().filter(|var| !var.value.is_empty());
    if entry.windows {
        env.extend(own.map(|var| windows_variable(&var.name, &var.value)));
        env.push(format!("$env:{distro}_DATA_DIR=\"c:{data_dir}\""));
        env.push(windows_variable("INSTALL_RKE2_VERSION", &spec.kubernetes_version));
    } else {
        env.extend(own.map(|var| format!("{}={}", var.name, var.value)));
        env.push(format!("{distro}_DATA_DIR={data_dir}"));
    }
    if entry.roles.only_worker() {
        env.push(format!("INSTALL_{distro}_EXEC=agent"));
    }
    let (command, args) =
        if entry.windows { ("powershell.exe", ["-File", "run.ps1"]) } else { ("sh", ["-c", "run.sh"]) };
    Instruction {
        name: "install".to_owned(),
        image: renderer.image.clone(),
        env,
        args: args.map(str::to_owned).to_vec(),
        command: command.to_owned(),
        ..Instruction::default()
    }
}

/// Restart stamp and drain hash. They differ in how they see the configuration file.
fn stamps(
    renderer: &Renderer<'_>,
    files: &[File],
    config: Option<&(usize, String)>,
    restart_asked: &str,
) -> (String, String) {
    let control_plane = &renderer.input.control_plane;
    let mut stamp = Sha256::new();
    stamp.update(control_plane.spec.provision_generation.to_string());
    stamp.update(&renderer.image);
    let mut drain = stamp.clone();
    for (at, file) in files.iter().enumerate().filter(|(_, file)| !file.dynamic) {
        stamp.update(&file.path);
        stamp.update(file.content.as_bytes());
        drain.update(&file.path);
        match config {
            Some((config_at, text)) if *config_at == at => drain.update(text),
            _ => drain.update(file.content.as_bytes()),
        }
    }
    let generation = control_plane.status.config_generation.to_string();
    stamp.update(&generation);
    drain.update(&generation);
    // It is asked for since the machine is not well: nothing that could be moved away is on it.
    stamp.update(restart_asked);
    (hex(stamp.finalize()), hex(drain.finalize()))
}

/// A variable as Windows agents take it in plans: no `$env:` prefix, no quotes, booleans without `$`.
fn windows_variable(name: &str, value: &str) -> String {
    let name = name.strip_prefix("$env:").unwrap_or(name);
    let boolean = ["$true", "$false", "true", "false"].iter().any(|word| value.eq_ignore_ascii_case(word));
    let value = value.trim_matches('"');
    let value = if boolean { value.trim_matches('$') } else { value };
    format!("{name}={value}")
}

/// An etcd-only init node has no API that would tell its address: the node is asked for it.
pub(super) fn periodic(renderer: &Renderer<'_>) -> Vec<PeriodicInstruction> {
    let data = &renderer.data_dir;
    let port = renderer.distro.supervisor_port();
    let shell = |name: &str, script: String| PeriodicInstruction {
        name: name.to_owned(),
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script],
        period_seconds: 600,
        ..PeriodicInstruction::default()
    };
    let info = format!(
        "curl -f --retry 100 --retry-delay 5 --cacert {data}/server/tls/server-ca.crt \
         https://localhost:{port}/db/info | grep 'clientURLs'"
    );
    vec![
        shell(crate::join::CAPTURE_ADDRESS, info),
        shell(crate::join::ETCD_NAME, format!("cat {data}/server/db/etcd/name")),
    ]
}

/// When the first certificate of the node ends: its agent is asked where they are rotated in time.
pub(super) fn certificates(renderer: &Renderer<'_>) -> PeriodicInstruction {
    let ask = format!("{AGENT_PATHS} exec {AGENT} certificates \"$1\"");
    PeriodicInstruction {
        name: renewal::CERTIFICATES.to_owned(),
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), ask, "certificates".to_owned(), renderer.data_dir.clone()],
        period_seconds: 6 * 60 * 60,
        ..PeriodicInstruction::default()
    }
}

/// Windows leaves what was installed readable to everybody.
pub(super) fn windows_permissions() -> (File, Instruction) {
    let path = format!("{WINDOWS_DIR}/windows/set-permissions.ps1");
    let script = include_str!("../scripts/set-permissions.ps1");
    let file = File::new(path.as_str(), script.as_bytes()).dynamic().minor();
    let instruction = Instruction {
        name: "Set permissions for RKE2 installation files on Windows".to_owned(),
        command: "powershell.exe".to_owned(),
        args: vec!["-File".to_owned(), path],
        ..Instruction::default()
    };
    (file, instruction)
}

#[cfg(test)]
mod tests {
    use super::windows_variable;

    #[test]
    fn windows_variables_lose_their_decoration() {
        for (name, value, expected) in [
            ("A", "x", "A=x"),
            ("$env:A", "\"x\"", "A=x"),
            ("A", "$true", "A=true"),
            ("A", "True", "A=True"),
            ("A", "$x", "A=$x"),
        ] {
            assert_eq!(windows_variable(name, value), expected);
        }
    }
}
