//! Drivers across process boundaries.

mod exec;
mod plugin;
mod served;
