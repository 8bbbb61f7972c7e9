//! What the machine provider writes: labels and annotations, variables of its jobs, tags at providers.

/// Labels.
pub mod label {
    /// `true` on ConfigMaps that keep what the jobs of a machine wrote. Written by the runner of jobs, read by
    /// `remuda machine logs`.
    pub const LOG: &str = "remuda.io/machine-log";
    /// On the objects of a driver's kinds: the driver. Written and read by the machine provider.
    pub const DRIVER: &str = "remuda.io/driver";
    /// On Jobs: a digest of driver and credential, to count how many run at once.
    pub const LANE: &str = "remuda.io/lane";
    /// On Jobs of machines that exist on a server's own host: the identity of that host. Only the server there runs
    /// them. Written by the machine provider, read by the runner of jobs.
    pub const HOST: &str = "remuda.io/host";
}

/// Reason of condition `Ready` of a driver's machine: its turn among those of the same credential has not come.
pub const QUEUED: &str = "Queued";

/// Annotations.
pub mod annotation {
    /// On machine-state Secrets: the run of a job that may write them. A run that finds another one there ends.
    pub const RUN: &str = "remuda.io/run";
    /// `true` on machine-state Secrets: the machine is being deleted, so no job may begin to make its server any more.
    /// Written by the machine provider, read by jobs before they record that they begin.
    pub const CREATION_BARRED: &str = "remuda.io/creation-barred";
    /// `true` on Jobs: no further attempt is made. An attempt under way is waited for. Written by the machine provider,
    /// read by the runner.
    pub const CANCELLED: &str = "remuda.io/cancelled";
    /// On Jobs: the name of the host that [`super::label::HOST`] identifies, for people.
    pub const HOST_NAME: &str = "remuda.io/host-name";
    /// On Jobs: proves to the runner that the machine provider made them, with exactly these arguments.
    pub const SEAL: &str = "remuda.io/seal";
    /// In `machineDeploymentAnnotations` of pools, and from there on their Machines and machines of drivers: the pool of
    /// addresses each machine is given one of, see [`address_pool`]. Written by people, read by the machine provider.
    pub const ADDRESS_POOL: &str = "remuda.io/address-pool";
    /// Kind and name of the pool in [`ADDRESS_POOL`]: `NAME` for an InClusterIPPool, else `KIND/NAME`.
    pub fn address_pool(text: &str) -> Option<(&str, &str)> {
        let (kind, name) = text.split_once('/').unwrap_or((super::POOLS[0], text));
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let fits = super::POOLS.contains(&kind) && !name.is_empty() && name.chars().all(is_name);
        fits.then_some((kind, name))
    }
    /// On NodeDrivers: sha256 of the program that is used.
    pub const DRIVER_DIGEST: &str = "remuda.io/driver-digest";
    /// On NodeDrivers: what the driver is trusted with, see [`class`](super::class). Written by administrators,
    /// read by admission.
    pub const DRIVER_CLASS: &str = "remuda.io/driver-class";
}

/// Kinds of pools of addresses: of one namespace, and of all.
pub const POOLS: [&str; 2] = ["InClusterIPPool", "GlobalInClusterIPPool"];

/// Conditions.
pub mod condition {
    /// On machines of drivers: false while their server could not be stopped or started as was asked.
    pub const POWERED: &str = "Powered";
}

/// Finalizers.
pub mod finalizer {
    /// On IPAddressClaims of machines, until the server that has the address is gone. Written by the machine provider.
    pub const ADDRESS: &str = "remuda.io/address-in-use";
}

/// What drivers are trusted with.
pub mod class {
    /// The verb that whoever uses a driver needs, on the driver or on its class.
    pub const USE: &str = "use";
    /// What roles call classes: a resource in the group of NodeDrivers that nothing is stored under.
    pub const RESOURCE: &str = "nodedriverclasses";
    /// Makes servers at a provider.
    pub const CLOUD: &str = "cloud";
    /// Acts on the server's own host or from its network.
    pub const HOST: &str = "host";
}

/// Conditions of Jobs.
pub mod job_condition {
    /// Why the runner has not started a Job. Written by the runner of jobs, read by the machine provider.
    pub const WAITING: &str = "Waiting";
    /// Reason of [`WAITING`]: the server whose host the machine is on has not been heard of.
    pub const NO_HOST: &str = "NoHost";
}

/// Environment variables of a machine's job, set by the runner.
pub mod env {
    /// What they begin with; a driver's own process does not get them.
    pub const PREFIX: &str = "REMUDA_MACHINE_";
    /// What variables begin with that carry flags of drivers which must not be on a command line.
    pub const FLAG_PREFIX: &str = "REMUDA_MACHINE_FLAG_";
    /// Address of the API.
    pub const SERVER: &str = "REMUDA_MACHINE_SERVER";
    /// File with the API's certificate authority.
    pub const CA_FILE: &str = "REMUDA_MACHINE_CA_FILE";
    /// File with the token of the job's ServiceAccount.
    pub const TOKEN_FILE: &str = "REMUDA_MACHINE_TOKEN_FILE";
    /// File the job's last word goes to, as Kubernetes' termination log.
    pub const RESULT_FILE: &str = "REMUDA_MACHINE_RESULT_FILE";
    /// The only directory whose files flags of drivers may name. Without it they may name any.
    pub const FILES: &str = "REMUDA_MACHINE_FILES";
    /// The only driver a job may use: that of its machine's kind. Without it a record says which made the machine.
    pub const DRIVER: &str = "REMUDA_MACHINE_DRIVER";
    /// Identity and name of the host a job runs on, if its machine exists there.
    pub const HOST: &str = "REMUDA_MACHINE_HOST";
    /// Directory of the job's own.
    pub const SCRATCH: &str = "REMUDA_MACHINE_SCRATCH";
}

/// Tags on what built-in drivers make at providers.
pub mod tag {
    /// Key of the tag with the machine's identity.
    pub const MACHINE: &str = "remuda.io/machine";
    /// Key of the tag on what belongs to no single machine.
    pub const OWNED: &str = "remuda.io/owned";
    /// The same at providers whose keys have neither dots nor slashes.
    pub const LABEL: &str = "remuda-machine";
    /// What a tag begins with at providers whose tags have no keys; the identity follows.
    pub const PREFIX: &str = "remuda:";
}

/// Objects with a fixed name.
pub mod name {
    /// Secret in `cattle-system` with the key that Jobs of machines are sealed with.
    pub const SEAL_SECRET: &str = "remuda-machine-jobs";
    /// Its key.
    pub const SEAL_KEY: &str = "key";
}

/// Below the data directory.
pub mod file {
    /// Downloaded programs of drivers.
    pub const DRIVERS: &str = "machine-drivers";
    /// The identity of the host, for machines that exist there.
    pub const HOST: &str = "host-id";
    /// One directory for each job under way.
    pub const JOBS: &str = "machine-jobs";
}
