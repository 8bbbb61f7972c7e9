//! Plans of a rotation of the keys for Secrets: a step on the leader, and restarts after it.

use remuda_distro::Distro;

use super::{
    Desired, Renderer, Unrenderable,
    operations::{Install, command, shell},
};
use crate::{
    entry::Entry,
    idempotent::{self, Once},
    node_plan::{Instruction, PeriodicInstruction},
    phase::Phase,
    spec::RotateEncryptionKeys,
};

/// Name of the instruction that tells the stage, also of the one that tells it from time to time.
pub(crate) const STATUS: &str = "secrets-encrypt-status";
/// Below which idempotent instructions remember what they did.
const ROTATION: &str = "encryption-key-rotation";

/// The stages in which a step has been made already: an earlier rotation did not end.
fn made(step: &str) -> &'static [&'static str] {
    const STAGES: [&str; 4] = ["prepare", "rotate", "reencrypt_request", "reencrypt_active"];
    match step {
        "prepare" => &STAGES,
        "rotate" => &STAGES[1..],
        _ => &STAGES[2..],
    }
}

/// The name of the periodic instruction. An earlier rotation had one, too, and what it told is not to be read again.
pub(crate) fn periodic_status(asked: &RotateEncryptionKeys) -> String {
    format!("{STATUS}-{}", asked.generation)
}

impl Renderer<'_> {
    /// A step of the leader, once its server answers, and says of the others that they are where it is.
    pub(crate) fn encryption_command(
        &self,
        entry: &Entry<'_>,
        step: &str,
        phase: &Phase,
        asked: &RotateEncryptionKeys,
    ) -> Result<Desired, Unrenderable> {
        let spec = &self.input.control_plane.spec;
        let name = self.distro.name();
        let cases: Vec<String> = made(step).iter().map(|stage| format!("*'Stage: {stage}'*")).collect();
        let script = format!(
            "case \"$({name} secrets-encrypt status)\" in {}) exit 0;; esac; exec {name} secrets-encrypt {step}",
            cases.join("|")
        );
        let (identifier, value) = (format!("{ROTATION}/{step}"), asked.generation.to_string());
        let (command, args) = ("/bin/sh", ["-c", script.as_str()]);
        let once = Once { identifier: &identifier, value: &value, command, args: &args, env: &[] };
        let ready = match step {
            "prepare" => wait(self.distro, "grep -q Stage"),
            _ => wait(self.distro, "grep -q 'All hashes match'"),
        };
        let instructions = vec![ready, idempotent::instruction(spec, &once), status(self.distro)];
        let mut desired = self.operation(entry, marked(instructions, phase, asked), Install::Never)?;
        if step == "reencrypt" {
            let told = status(self.distro);
            desired.plan.periodic_instructions = vec![PeriodicInstruction {
                name: periodic_status(asked),
                command: told.command,
                args: told.args,
                period_seconds: 5,
                ..PeriodicInstruction::default()
            }];
            desired.bytes = desired.plan.encode();
        }
        Ok(desired)
    }

    /// A restart of a server. One of the control plane tells the stage it is in then.
    pub(crate) fn encryption_restart(
        &self,
        entry: &Entry<'_>,
        phase: &Phase,
        asked: &RotateEncryptionKeys,
    ) -> Result<Desired, Unrenderable> {
        let spec = &self.input.control_plane.spec;
        let unit = self.distro.server_unit();
        let identifier = format!("{ROTATION}/{}", phase.name().to_lowercase());
        let mut instructions = Vec::from_iter(self.without_manifests(entry));
        instructions.extend(idempotent::restart(spec, &identifier, &asked.generation.to_string(), unit));
        let active = format!(
            "i=0; while [ $i -lt 30 ]; do systemctl is-active {unit} && exit 0; sleep 10; i=$((i+1)); done; exit 1"
        );
        instructions.push(shell("wait-for-service", &active));
        if entry.roles.control_plane {
            instructions.push(wait(self.distro, "grep -q Stage"));
            instructions.push(status(self.distro));
        }
        self.operation(entry, marked(instructions, phase, asked), Install::Running)
    }
}

fn status(distro: Distro) -> Instruction {
    Instruction { save_output: true, ..command(STATUS, distro.name(), &["secrets-encrypt", "status"]) }
}

/// Waits until the status is as it is to be.
fn wait(distro: Distro, test: &str) -> Instruction {
    let name = distro.name();
    let script = format!(
        "i=0; while [ $i -lt 50 ]; do {name} secrets-encrypt status | {test} && exit 0; sleep 2; i=$((i+1)); done; \
         exit 1"
    );
    shell("wait-for-secrets-encrypt-status", &script)
}

/// Plans of two phases, or of two rotations, are never the same.
pub(super) fn marked(
    mut instructions: Vec<Instruction>,
    phase: &Phase,
    asked: &RotateEncryptionKeys,
) -> Vec<Instruction> {
    for instruction in &mut instructions {
        instruction.env.push(format!("ENCRYPTION_KEY_ROTATION_STAGE={phase}"));
        instruction.env.push(format!("ENCRYPTION_KEY_ROTATION_GENERATION={}", asked.generation));
    }
    instructions
}
