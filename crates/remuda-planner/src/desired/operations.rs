//! Plans of operations: the files of an ordinary plan, and instructions of their own.
//!
//! None of them starts the distribution: the installer is told to leave that to the ordinary plan.

use serde_json::json;

use super::{Desired, Renderer, Unrenderable, config, encryption::marked, s3};
use crate::{
    distro,
    entry::Entry,
    idempotent::{self, Once},
    input::Storage,
    node_plan::{File, Instruction, NodePlan},
    operation::certificates::Rotation,
    phase::Phase,
    spec::{RotateEncryptionKeys, S3},
};

/// Below which idempotent instructions of a restore remember what they did.
const RESTORE: &str = "etcd-restore";
/// The same of a rotation.
const ROTATION: &str = "certificate-rotation";
/// Where the agent is, if not in `PATH`.
pub(super) const AGENT_PATHS: &str = "PATH=$PATH:/usr/local/bin:/opt/rancher-system-agent/bin";
/// Name of the instruction that reads a snapshot.
pub(crate) const VERIFY: &str = "verify";
pub(super) const AGENT: &str = "rancher-system-agent";

impl Renderer<'_> {
    /// A snapshot of the member on the machine, read again when it was taken.
    pub(crate) fn snapshot(
        &self,
        entry: &Entry<'_>,
        before: Option<&RotateEncryptionKeys>,
    ) -> Result<Desired, Unrenderable> {
        let create = command("create", self.distro.name(), &["etcd-snapshot", "save"]);
        // What it says is told with the snapshot; taking another one would not make this one better.
        let read = format!("{AGENT_PATHS} {AGENT} verify-snapshot --newest {} || true", self.snapshots());
        let verify = Instruction { save_output: true, ..shell(VERIFY, &read) };
        let instructions = match before {
            Some(rotation) => marked(vec![create, verify], &Phase::Started, rotation),
            None => vec![create, verify],
        };
        self.operation(entry, instructions, Install::First)
    }

    /// Where snapshots are uploaded the command would delete the copy in S3 as well, which has an object of its own.
    pub(crate) fn snapshot_removal(
        &self,
        entry: &Entry<'_>,
        file: &str,
        storage: Storage,
    ) -> Result<Desired, Unrenderable> {
        let etcd = self.input.control_plane.spec.etcd.as_ref();
        let uploads = etcd.and_then(|etcd| etcd.s3.as_ref()).is_some_and(S3::is_asked_for);
        let mut args = vec!["etcd-snapshot", "delete"];
        if uploads && storage == Storage::Local {
            args.push("--etcd-s3=false");
        }
        args.push(file);
        self.operation(entry, vec![command("delete", self.distro.name(), &args)], Install::First)
    }

    /// Reads a snapshot where it lies. `value` makes the plan of each attempt another one.
    pub(crate) fn snapshot_check(
        &self,
        entry: &Entry<'_>,
        file: &str,
        storage: Storage,
        value: &str,
    ) -> Result<Desired, Unrenderable> {
        let path = format!("{}/{file}", self.snapshots());
        let attempt = format!("SNAPSHOT_RESTORE={value}");
        if storage == Storage::S3 {
            return self.check_in_store(path, attempt);
        }
        let check = format!("{AGENT_PATHS} exec {AGENT} verify-snapshot \"$1\"");
        let mut check = shell(VERIFY, &check);
        check.args.extend(["verify".to_owned(), path]);
        check.env.push(attempt);
        check.save_output = true;
        self.operation(entry, vec![check], Install::First)
    }

    /// The same for one in the store. Nothing of the distribution is needed for it, and a machine that never ran it is
    /// told nothing else: no server to join, and none to start.
    fn check_in_store(&self, path: String, attempt: String) -> Result<Desired, Unrenderable> {
        let etcd = self.input.control_plane.spec.etcd.as_ref();
        let mut config = config::Config::new();
        let mut files = match etcd.and_then(|etcd| etcd.s3.as_ref()) {
            Some(s3) => s3::add(self, s3, &mut config)?,
            None => Vec::new(),
        };
        // The keys are in a file, and on no command line.
        let store = self.config_file("s3-restore.json");
        files.push(File::new(store.as_str(), json!(config).to_string().as_bytes()));
        let check = format!("{AGENT_PATHS} exec {AGENT} verify-snapshot --s3 \"$2\" \"$1\"");
        let mut check = shell(VERIFY, &check);
        check.args.extend(["verify".to_owned(), path, store]);
        check.env.push(attempt);
        check.save_output = true;
        let plan = NodePlan { files, instructions: vec![check], ..NodePlan::default() };
        let bytes = plan.encode();
        Ok(Desired { plan, bytes, joined_to: None })
    }

    /// Stops everything. Servers forget who they are: they learn it from the one that is restored.
    pub(crate) fn stop(&self, entry: &Entry<'_>, value: &str) -> Result<Desired, Unrenderable> {
        let spec = &self.input.control_plane.spec;
        let data = &self.data_dir;
        let mut stop = self.killall();
        stop.env.push(format!("SNAPSHOT_RESTORE={value}"));
        let mut instructions = vec![stop];
        instructions.extend(self.without_manifests(entry));
        instructions.push(idempotent::forget(spec, RESTORE));
        if entry.roles.etcd {
            let tombstone =
                format!("mkdir -p {data}/server/db/etcd && touch {data}/server/db/etcd/tombstone");
            instructions.push(shell("create-etcd-tombstone", &tombstone));
        }
        if entry.roles.server() {
            let identity = format!("rm -rf {data}/server/tls {data}/server/cred");
            instructions.push(shell("remove-server-tls-and-cred", &identity));
        }
        self.operation(entry, instructions, Install::Never)
    }

    /// Gives the machine the state of a snapshot it has, or takes from the store its configuration names.
    pub(crate) fn reset(
        &self,
        entry: &Entry<'_>,
        file: &str,
        storage: Storage,
        value: &str,
    ) -> Result<Desired, Unrenderable> {
        let spec = &self.input.control_plane.spec;
        let once = |name: &str, command: &str, args: &[&str]| {
            let identifier = format!("{RESTORE}/{name}");
            idempotent::instruction(spec, &Once { identifier: &identifier, value, command, args, env: &[] })
        };
        let killall = self.killall();
        let etcd = format!("{}/server/db/etcd", self.data_dir);
        let loopback = distro::loopback(&spec.networking);
        let advertise = format!("--etcd-arg=advertise-client-urls=https://{loopback}:2379");
        let path = match storage {
            Storage::Local => format!("--cluster-reset-restore-path=db/snapshots/{file}"),
            Storage::S3 => format!("--cluster-reset-restore-path={file}"),
        };
        let mut restore =
            vec!["server", "--cluster-reset", &advertise, "--etcd-disable-snapshots=false", &path];
        if storage == Storage::Local {
            restore.push("--etcd-s3=false");
        }
        let args: Vec<&str> = killall.args.iter().map(String::as_str).collect();
        let mut instructions = vec![once("clean-etcd-dir", "rm", &["-rf", &etcd])];
        instructions.push(once("restore", self.distro.name(), &restore));
        let mut before = vec![once("etcd-restore-killall", &killall.command, &args)];
        before.extend(self.without_manifests(entry));
        let mut desired = self.operation(entry, instructions, Install::First)?;
        before.append(&mut desired.plan.instructions);
        desired.plan.instructions = before;
        desired.bytes = desired.plan.encode();
        Ok(desired)
    }

    /// New certificates, and a restart with them.
    pub(crate) fn rotation(
        &self,
        entry: &Entry<'_>,
        rotation: &Rotation<'_>,
    ) -> Result<Desired, Unrenderable> {
        let spec = &self.input.control_plane.spec;
        let Rotation { value, services } = *rotation;
        let unit = self.distro.unit(entry.roles.server());
        let mut instructions = Vec::new();
        if entry.roles.server() {
            instructions.push(idempotent::stop(spec, ROTATION, value, unit));
            let named = services.iter().flat_map(|service| ["-s", service.as_str()]);
            let args: Vec<&str> = ["certificate", "rotate"].into_iter().chain(named).collect();
            let identifier = format!("{ROTATION}/rotate");
            let command = self.distro.name();
            let once = Once { identifier: &identifier, value, command, args: &args, env: &[] };
            instructions.push(idempotent::instruction(spec, &once));
        }
        let named = |name: &str| services.is_empty() || services.iter().any(|service| service == name);
        let components = ["controller-manager", "scheduler"].into_iter().filter(|name| named(name));
        for name in components.filter(|_| entry.roles.control_plane) {
            let (identifier, data) = (format!("{ROTATION}/rm-{name}"), &self.data_dir);
            let dir = format!("{data}/server/tls/kube-{name}");
            let mut args = vec!["-f".to_owned()];
            args.extend(["crt", "key"].map(|extension| format!("{dir}/kube-{name}.{extension}")));
            if self.distro == remuda_distro::Distro::Rke2 {
                args.push(format!("{data}/agent/pod-manifests/kube-{name}.yaml"));
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let once = Once { identifier: &identifier, value, command: "rm", args: &args, env: &[] };
            instructions.push(idempotent::instruction(spec, &once));
        }
        instructions.extend(self.without_manifests(entry));
        instructions.extend(idempotent::restart(spec, ROTATION, value, unit));
        self.operation(entry, instructions, Install::Never)
    }

    /// The directory of snapshots. One that the user moved is where the user moved it.
    fn snapshots(&self) -> String {
        let own = self.input.control_plane.spec.machine_global_config.get("etcd-snapshot-dir");
        let own = own.and_then(|own| own.as_str()).filter(|own| !own.is_empty());
        own.map_or_else(|| format!("{}/server/db/snapshots", self.data_dir), str::to_owned)
    }

    fn killall(&self) -> Instruction {
        let name = self.distro.name();
        let script = format!("PATH=$PATH:/usr/local/bin:/opt/{name}/bin {name}-killall.sh");
        let mut instruction = shell("killall", &script);
        instruction.env.push(format!("{}_DATA_DIR={}", self.distro.env_prefix(), self.data_dir));
        instruction
    }

    /// RKE2 lays its manifests down anew when it starts.
    pub(super) fn without_manifests(&self, entry: &Entry<'_>) -> Option<Instruction> {
        let ours = self.distro == remuda_distro::Distro::Rke2 && entry.roles.server();
        let script = format!("rm -rf {}/server/manifests/rke2-*.yaml", self.data_dir);
        ours.then(|| shell("remove server manifests", &script))
    }

    pub(super) fn operation(
        &self,
        entry: &Entry<'_>,
        instructions: Vec<Instruction>,
        install: Install,
    ) -> Result<Desired, Unrenderable> {
        let mut plan = NodePlan::default();
        let mut joined_to = None;
        if !self.input.control_plane.spec.unmanaged_config {
            let rendered = self.files(entry, "")?;
            plan.files = rendered.files;
            if let Install::Running = install {
                plan.probes = super::probes::probes(self, entry, &rendered.config);
            }
            joined_to = Some(rendered.joined_to);
        }
        if let Install::First = install {
            plan.instructions.push(super::install::install_without_start(self, entry));
        }
        plan.instructions.extend(instructions);
        let bytes = plan.encode();
        Ok(Desired { plan, bytes, joined_to })
    }
}

pub(super) enum Install {
    First,
    Never,
    /// Neither: it runs, and is to run well again afterwards.
    Running,
}

pub(super) fn command(name: &str, command: &str, args: &[&str]) -> Instruction {
    Instruction {
        name: name.to_owned(),
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..Instruction::default()
    }
}

pub(super) fn shell(name: &str, script: &str) -> Instruction {
    command(name, "/bin/sh", &["-c", script])
}
