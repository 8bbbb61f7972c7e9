//! The agent against servers that misbehave.

mod api;
mod image;
mod kill;
mod remote;
mod server;
