//! Decisions of the Cluster API controllers, as pure functions.
//!
//! A controller converts objects into the small views of this crate, calls one function and carries out
//! what it says. Nothing here reads a clock, draws a random number or talks to anybody: time and fresh
//! names are arguments. Behaviour follows Cluster API v1.14; where it differs, the reason is at the place.
//!
//! * [`deployment`]: which MachineSet is current, how many replicas each gets, what is cleaned up.
//! * [`set`]: which Machines to adopt, create, delete or replace.
//! * [`handoff`]: what core takes over from provider objects, and when.
//! * [`health`]: which Machines a MachineHealthCheck calls unhealthy, and whether anything may be done.
//! * [`machine`]: phases, conditions, the order of deletion, draining.
//! * [`cluster`]: phases, conditions, counters and the order of deletion.
//! * [`pool`]: phases, nodes, conditions and the order of deletion of machine pools.
//! * [`resource_set`]: what is applied to which cluster, and when again.
//! * [`addresses`]: what a pool of addresses has, and which of them a claim is given.
//! * [`admission`]: what is filled in and refused when somebody writes one of these objects.
//! * [`condition`]: setting, ordering, mirroring and merging conditions.
//! * [`contract`]: where provider objects say what core wants to know.

pub mod addresses;
pub mod admission;
pub mod amount;
pub mod cluster;
pub mod condition;
pub mod contract;
pub mod deployment;
pub mod handoff;
pub mod health;
pub mod machine;
mod members;
pub mod name;
pub mod paused;
pub mod pool;
pub mod provider;
pub mod resource_set;
pub mod selector;
pub mod set;
pub mod template;
pub mod text;
pub mod version;
pub mod view;
