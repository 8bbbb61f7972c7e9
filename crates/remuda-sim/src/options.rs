//! What of the simulation is a choice.

use crate::dice::Latency;

/// The contract of Cluster API the providers keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Contract {
    V1Beta1,
    #[default]
    V1Beta2,
}

/// How the providers behave.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The same seed and the same names give the same world.
    pub seed: u64,
    pub contract: Contract,
    pub latencies: Latencies,
    pub failures: Failures,
    /// How many objects of one kind are reconciled at once.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            contract: Contract::default(),
            latencies: Latencies::default(),
            failures: Failures::default(),
            workers: 8,
        }
    }
}

/// How long each step takes. Nothing takes time unless told.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies {
    /// Until a cluster's infrastructure is there.
    pub infrastructure: Latency,
    /// Until bootstrap data is made.
    pub bootstrap: Latency,
    /// Until the cloud has made a server.
    pub create: Latency,
    /// From then until its Node registers.
    pub boot: Latency,
    /// From then until the Node is Ready.
    pub ready: Latency,
    /// Until a node agent has applied a plan.
    pub apply: Latency,
    /// Until a server, or a cluster's infrastructure, is gone.
    pub delete: Latency,
}

impl Latencies {
    /// Every step takes this long.
    pub fn all(latency: Latency) -> Self {
        Self {
            infrastructure: latency,
            bootstrap: latency,
            create: latency,
            boot: latency,
            ready: latency,
            apply: latency,
            delete: latency,
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::all(Latency::ZERO)
    }
}

/// How often steps fail, from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failures {
    /// A server that the cloud never makes.
    pub create: f64,
    /// A server that never becomes a Node.
    pub boot: f64,
    /// A Node that never becomes Ready.
    pub ready: f64,
    /// An attempt to apply a plan. There will be another.
    pub apply: f64,
}
