//! Machines made of Linux namespaces, and the driver that makes them.
//!
//! A local machine is a set of namespaces with its own root, host name, process tree and address, made
//! without any tool or image of the host, as root or as anybody else. Inside, it is a host like any other: it
//! has a service manager that knows ordinary unit files, runs user data at its first start, and reaches the
//! management server at its usual URL. It is for trying and testing. Machines of root
//! are in user namespaces: their users have no rights on the host. Machines that are made *privileged*, as real
//! distributions need, are **no security boundary**: root there is root of the host.
//!
//! - [`machines`]: making, starting, stopping, removing and listing them;
//! - [`driver`]: the same as node driver `local`;
//! - [`stage`]: the processes they are made of, which are this program started again. A binary that makes
//!   machines must call [`run_stage`] for `<program> sandbox ...`, and [`run_tool`] when it is called
//!   `systemctl` or `journalctl`, before it starts any thread.
//!
//! One *hub* per data directory holds what its machines share: the relay to the server, in the host's
//! network, and a network namespace with a bridge (inside a user namespace, if we are not root), in which
//! nothing but the bridge and one end of each machine's cable lives. The host's network is not touched.
//!
//! Installer images come from `<data-dir>/sandbox/images`, which every machine sees at once, running or not:
//! a tarball put there, as `docker save` writes it, is found by the agents of all machines by the tag it
//! carries, before the images that come with the program. That is how a real distribution takes the place of
//! the sandbox one. It needs root, privileged machines, and a host with unified control groups.
//!
//! What a machine lacks: a way to other networks than its own and the server, and a name server; if we are
//! not root, also users other than root and control groups of its own. Its service manager has no timers,
//! sockets, resource limits or sandboxing of services.

mod cgroup;
mod cloud;
mod control;
pub mod driver;
pub mod error;
mod host;
mod init;
mod lock;
pub mod machines;
mod netlink;
mod place;
mod seed;
pub mod server;
pub mod stage;
mod tools;
mod unit;
pub mod volume;

pub use driver::driver;
pub use stage::{run_stage, run_tool};
