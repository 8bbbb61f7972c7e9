//! Which node gets which plan next, as a pure function.
//!
//! [`plan`] looks at one cluster — the control plane object, its machines with their plan secrets, the
//! objects it refers to — and says what to write, what the status becomes, and what anything waits for. It
//! reads no clock, draws no random number and talks to nobody, so the same function answers what an edit
//! would do (call it on the edited input) and why nothing happens (print [`output::Outcome`] and the
//! reports).
//!
//! ```text
//! objects ──► Input ──► plan ──► Output ──► writes, status
//!                         │
//!        gates: version, release data, cluster, join URLs, roles, tokens,
//!               snapshot, restore, rotations, pause, lost etcd
//!        tiers: bootstrap → etcd → control plane → workers → Windows workers
//! ```
//!
//! * [`input`]: what to read; [`input::references`] names the secrets and config maps.
//! * [`output`]: what to write and say.
//! * [`record`]: a decision and its input as a file; [`redact()`] takes the secrets out.
//! * [`node_plan`]: the plan itself and its bytes.
//! * [`removal`]: whether a machine with an etcd member may go; asked by the bootstrap controller.
//! * [`farewell`]: the last plan of a server that stays when its machine goes; asked by the CustomMachine controller.
//! * [`quorum`]: what may be done to an etcd member. Every restart and every removal asks it.
//! * [`distro`]: directories, images and registries of a cluster.
//! * [`s3`]: where snapshots are uploaded to.
//! * [`idempotent`]: instructions that run once, for operations.
//!
//! Where behaviour differs from Rancher's planner on purpose:
//!
//! * A plan that restarts an etcd member is held while the other members are not a quorum.
//! * A machine that never joined is not elected init node of a cluster that exists: it would start a second
//!   one. Until a member can take over, new machines join one that is being deleted.
//! * A machine that was told to start a cluster must be gone before another is; `Bootstrapped` is set when the
//!   first node can be joined, not when its plan is delivered.
//! * etcd machines are removed without asking etcd only while none of them has ever run; deleting all of
//!   them needs a word from a person.
//! * Plans carry no `plan-state`, so agents retry by themselves; a plan that was not applied yet can be
//!   replaced; machines whose server has no address yet get none.
//! * A failed pass is visible in the status.

pub mod distro;
mod drain;
pub mod driver;
mod election;
mod entry;
pub mod farewell;
pub mod idempotent;
pub mod input;
mod join;
mod operation;
pub mod output;
pub mod phase;
mod planner;
pub mod quorum;
pub mod reason;
pub mod record;
mod redact;
pub mod removal;
pub mod s3;
mod selector;
pub mod spec;
mod tier;

mod desired;

pub use desired::Unrenderable;
pub use operation::hibernation::Stage;
pub use planner::plan;
pub use redact::redact;
pub use remuda_plan::node_plan;
