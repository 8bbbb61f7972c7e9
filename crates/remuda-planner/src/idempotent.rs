//! Instructions that run once per attempt of an agent, however often the plan is applied.
//!
//! An agent may apply a plan again after a restart. What must not happen twice goes through a script on
//! the node that remembers the attempt it was made in; a retry counts as another attempt.

use remuda_plan::sha256_hex;

use crate::{distro::provisioning_dir, node_plan::Instruction, spec::ControlPlaneSpec};

pub(crate) const SCRIPT: &str = include_str!("scripts/idempotent.sh");
pub(crate) const WINDOWS_SCRIPT: &str = include_str!("scripts/idempotent.ps1");
/// Windows nodes do not follow `dataDirectories`.
pub(crate) const WINDOWS_DIR: &str = "c:\\var\\lib\\rancher\\capr";
pub(crate) const WINDOWS_SCRIPT_PATH: &str = "c:\\var\\lib\\rancher\\capr\\idempotence\\idempotent.ps1";

pub(crate) fn script_path(spec: &ControlPlaneSpec) -> String {
    format!("{}/idempotence/idempotent.sh", provisioning_dir(spec))
}

/// What to run once: per `identifier`, for each new `value`.
#[derive(Debug, Clone, Copy)]
pub struct Once<'a> {
    /// A relative path; also the directory of the script's memory.
    pub identifier: &'a str,
    pub value: &'a str,
    pub command: &'a str,
    pub args: &'a [&'a str],
    pub env: &'a [&'a str],
}

/// `once` on Linux.
pub fn instruction(spec: &ControlPlaneSpec, once: &Once<'_>) -> Instruction {
    let script = script_path(spec);
    wrap(once, "/bin/sh", &["-x", &script], provisioning_dir(spec))
}

/// `once` on Windows, where the command is a PowerShell expression.
pub fn windows_instruction(once: &Once<'_>) -> Instruction {
    wrap(once, "powershell.exe", &[WINDOWS_SCRIPT_PATH], WINDOWS_DIR)
}

fn wrap(once: &Once<'_>, interpreter: &str, head: &[&str], directory: &str) -> Instruction {
    let value = sha256_hex(once.value.as_bytes());
    let command = sha256_hex(once.command.as_bytes());
    let key = once.identifier.to_lowercase();
    let own = [key.as_str(), &value, &command, once.command, directory];
    Instruction {
        name: format!("idempotent-{}-{value}-{command}", once.identifier),
        command: interpreter.to_owned(),
        args: head.iter().chain(&own).chain(once.args).map(|arg| (*arg).to_owned()).collect(),
        env: once.env.iter().map(|var| (*var).to_owned()).collect(),
        ..Instruction::default()
    }
}

/// Restarts a unit, out of a failed state too.
pub fn restart(spec: &ControlPlaneSpec, identifier: &str, value: &str, unit: &str) -> [Instruction; 2] {
    let reset =
        format!("if [ $(systemctl is-failed {unit}) = failed ]; then systemctl reset-failed {unit}; fi");
    let one = |suffix: &str, command: &str, args: &[&str]| {
        let identifier = format!("{identifier}-{suffix}");
        instruction(spec, &Once { identifier: &identifier, value, command, args, env: &[] })
    };
    [one("reset-failed", "/bin/sh", &["-c", &reset]), one("restart", "systemctl", &["restart", unit])]
}

/// Restarts the distribution's service on Windows.
pub fn windows_restart(identifier: &str, value: &str) -> Instruction {
    let identifier = format!("{identifier}-restart");
    windows_instruction(&Once {
        identifier: &identifier,
        value,
        command: "restart-service",
        args: &["rke2"],
        env: &[],
    })
}

/// Stops a unit.
pub fn stop(spec: &ControlPlaneSpec, identifier: &str, value: &str, unit: &str) -> Instruction {
    let identifier = format!("{identifier}-stop");
    instruction(
        spec,
        &Once { identifier: &identifier, value, command: "systemctl", args: &["stop", unit], env: &[] },
    )
}

/// Makes the node forget what was run under `key`.
pub fn forget(spec: &ControlPlaneSpec, key: &str) -> Instruction {
    Instruction {
        name: "remove idempotency tracking".to_owned(),
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), format!("rm -rf {}/idempotence/{key}", provisioning_dir(spec))],
        ..Instruction::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotent_instruction_names_what_it_is_about() {
        let spec = ControlPlaneSpec::default();
        let once = Once { identifier: "Demo", value: "1", command: "ls", args: &["-l"], env: &["A=1"] };
        let (value, command) = (sha256_hex(b"1"), sha256_hex(b"ls"));
        let made = instruction(&spec, &once);
        assert_eq!(made.name, format!("idempotent-Demo-{value}-{command}"));
        assert_eq!(made.command, "/bin/sh");
        let script = "/var/lib/rancher/capr/idempotence/idempotent.sh";
        assert_eq!(made.args, ["-x", script, "demo", &value, &command, "ls", "/var/lib/rancher/capr", "-l"]);
        assert_eq!(made.env, ["A=1"]);
        let made = windows_instruction(&once);
        assert_eq!(made.args, [WINDOWS_SCRIPT_PATH, "demo", &value, &command, "ls", WINDOWS_DIR, "-l"]);
    }

    #[test]
    fn a_restart_gets_a_unit_out_of_its_failed_state_first() {
        let [reset, restart] = restart(&ControlPlaneSpec::default(), "x", "1", "k3s");
        assert!(reset.name.starts_with("idempotent-x-reset-failed-"));
        assert_eq!(restart.args[restart.args.len() - 2..], ["restart", "k3s"]);
        assert!(forget(&ControlPlaneSpec::default(), "x/y").args[1].ends_with("/idempotence/x/y"));
        assert!(stop(&ControlPlaneSpec::default(), "x", "1", "k3s").name.contains("x-stop"));
        assert!(windows_restart("x", "1").args.contains(&"restart-service".to_owned()));
    }
}
