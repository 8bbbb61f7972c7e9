//! Sessions, servers, clients and peers in one process, over in-memory pipes and loopback sockets.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![expect(clippy::disallowed_methods, reason = "the runtime of a test ends its tasks")]

mod flow;
mod hostile;
mod life;
mod peers;
mod support;
mod tls;
