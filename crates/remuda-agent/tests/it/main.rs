//! The agent against servers that misbehave.

mod api;
mod kill;
mod remote;
mod server;
