//! The node agent: applies plans, runs probes, reports back.
//!
//! A root daemon on every managed machine. It watches one Kubernetes Secret, its *plan Secret*, applies
//! the plan it finds there and writes the outcome into the same Secret; it may also watch a directory of
//! plan files. The format is that of rancher/system-agent, in both directions: plans made for that agent
//! apply here, and servers made for it read these reports.
//!
//! # Parts
//!
//! | pure | what it decides |
//! |---|---|
//! | [`remuda_plan`], [`stamp`], [`output`] | the formats |
//! | [`decide`] | whether to run the plan, begin it anew or take up an execution that was cut off |
//! | [`report`] | what goes back into the Secret, also when somebody else wrote it meanwhile |
//! | [`periodic`], [`remuda_plan::probe`], [`remuda_base::backoff`] | when something is due, what counts as healthy, how long to wait |
//!
//! | acts | on what |
//! |---|---|
//! | [`run`] | the daemon: [`remote`] and [`local`] plans |
//! | [`apply`] | [`files`], [`journal`], [`execute`], [`image`], [`interlock`], [`history`] |
//! | [`kube`], [`client`], [`tls`], [`proxy`] | one Secret over HTTP/1.1, one connection per request |
//! | [`probe`] | HTTP checks |
//! | [`certificates`], [`snapshot`] | what is on the node, when plans ask for it |
//! | [`cluster_image`] | the image of the cluster agent, from the server to the distribution |
//! | [`command`], [`install`], [`supervise`] | the agent itself |
//!
//! # Exactly once
//!
//! A one-time instruction runs once per delivery of its plan, whenever and however often the agent is
//! killed; [`journal`] describes how. What that means in detail:
//!
//! - Instructions outlive the agent. One that is under way when the agent is stopped or killed goes on,
//!   and the next agent waits for it and reports its outcome. A new plan waits for it too.
//! - A server that writes `plan-state` orders another run by writing `pending` again. A server that only
//!   compares checksums gets failed plans retried under its `max-failures`, and nothing else: unlike
//!   agents without a journal, a restart does not run an applied plan again, it only restores its files.
//!   `forceApplyOnStart` in the configuration brings the old behaviour back. A machine that has no record
//!   of the plan, because it was reinstalled, runs it.
//! - If the machine itself goes down during an instruction, or somebody kills it, nobody can know how far
//!   it came. The plan's protocol has it executed again, with the next attempt number, and so it is, up to
//!   three times in all; `failInterrupted` reports it as failed instead. Instructions that had ended
//!   before are not repeated either way.
//!
//! # Differences from rancher/system-agent that servers may notice
//!
//! - A file that cannot be written fails the plan and is reported, instead of being retried in silence.
//! - The reason of a failure is saved in `failed-output` under [`remuda_names::agent::ERROR_OUTPUT`].
//! - In the flow with `plan-state`, a failed plan is not marked as applied one pass later.
//! - Output too large for a Secret is cut instead of making every report fail.
//! - Lost connections, conflicts and refused writes never end the process.

pub mod apply;
pub mod certificates;
pub mod client;
pub mod cluster_image;
pub mod command;
pub mod config;
pub mod decide;
pub mod disk;
pub mod environment;
pub mod execute;
pub mod files;
pub mod history;
pub mod image;
pub mod install;
pub mod interlock;
pub mod journal;
pub mod kube;
pub mod local;
pub mod output;
pub mod periodic;
pub mod probe;
pub mod proxy;
pub mod remote;
pub mod report;
pub mod run;
pub mod snapshot;
pub mod stamp;
pub mod supervise;
pub mod tls;
mod unit_log;
mod yaml;

pub use remuda_base::Chain;
