//! Drivers, machines and jobs on a real API, with real processes and fake clouds.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]
#![allow(clippy::disallowed_methods, reason = "tasks of tests end with their runtime")]

mod addresses;
mod confined;
mod deleted;
mod drivers;
mod host_files;
mod machines;
mod world;
