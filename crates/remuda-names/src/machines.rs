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
}

/// Annotations.
pub mod annotation {
    /// On machine-state Secrets: the run of a job that may write them. A run that finds another one there ends.
    pub const RUN: &str = "remuda.io/run";
    /// On Jobs: proves to the runner that the machine provider made them, with exactly these arguments.
    pub const SEAL: &str = "remuda.io/seal";
    /// On NodeDrivers: sha256 of the program that is used.
    pub const DRIVER_DIGEST: &str = "remuda.io/driver-digest";
}

/// Conditions of Jobs.
pub mod job_condition {
    /// Why the runner has not started a Job. Written by the runner of jobs, read by the machine provider.
    pub const WAITING: &str = "Waiting";
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
    /// Directory of the job's own.
    pub const SCRATCH: &str = "REMUDA_MACHINE_SCRATCH";
}

/// Tags on what built-in drivers make at providers.
pub mod tag {
    /// Key of the tag with the machine's identity.
    pub const MACHINE: &str = "remuda.io/machine";
    /// Key of the tag on what belongs to no single machine.
    pub const OWNED: &str = "remuda.io/owned";
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
    /// One directory for each job under way.
    pub const JOBS: &str = "machine-jobs";
}
