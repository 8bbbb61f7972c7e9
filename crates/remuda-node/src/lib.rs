//! The sandbox distribution.
pub mod config;
pub mod distribution;
pub mod files;
pub mod paths;
pub mod token;
