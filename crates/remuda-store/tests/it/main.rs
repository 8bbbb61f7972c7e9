//! Behaviour of the store through its public interface, engine by engine.

#![allow(clippy::unwrap_used)]

mod clients;
mod conformance;
mod crash;
mod damage;
mod etcd;
mod faults;
mod model;
mod power;
mod sealing;
mod shared;
mod usage;
