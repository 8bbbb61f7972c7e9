//! The plan of a node: the wire format between servers and node agents.
//!
//! A server writes a plan into a Secret, the agent of the node applies it and reports into the same Secret.
//! Both ends may be of another implementation, in Go: they compare, hash and remember the bytes.
//!
//! * [`node_plan`]: the plan, how it is read and its exact bytes; [`CheckedPlan`] is what an agent works with.
//! * [`key`], [`state`]: keys of the Secret and the values of `plan-state`.
//! * [`report`]: whether a plan is applied, failing or failed.
//! * [`output`]: saved output of instructions; [`probe`]: health of probes.
//! * [`machine_state`]: what a node driver saved about the machine a plan is for.
//! * [`json`]: JSON as Go writes it; [`digest`], [`naming`]: hashes, and names made with them.
//!
//! Reading is as lenient as Go is, since servers and agents rely on it: unknown keys are ignored, `null` is the
//! zero value, keys match regardless of case and the last of two equal keys wins.

pub mod digest;
pub mod json;
mod lenient;
pub mod machine_state;
pub mod naming;
pub mod node_plan;
pub mod output;
pub mod probe;
pub mod report;

pub use digest::sha256_hex;
pub use node_plan::{
    CheckedPlan, Command, DecodeError, File, HttpGet, Instruction, NodePlan, PeriodicInstruction, Probe,
};
pub use remuda_names::agent::{key, state};
pub use report::Report;
