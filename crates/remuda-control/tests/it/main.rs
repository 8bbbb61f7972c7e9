//! Real controllers on the real API server over the memory store.

mod applying;
mod driving;
mod finalizing;
mod following;
mod leading;
mod world;
mod writing;
