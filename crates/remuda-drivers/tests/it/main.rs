//! Drivers across process boundaries.

mod plugin;
