//! The agent against servers that misbehave.

mod api;
mod image;
mod install;
mod kill;
mod process;
mod remote;
mod server;
