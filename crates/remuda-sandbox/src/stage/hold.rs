//! The process that holds what machines share: a user namespace when we are not root, and a network
//! namespace with the bridge.

use std::fs;

use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    sched::{CloneFlags, unshare},
    sys::{prctl::set_pdeathsig, signal::Signal},
    unistd::{Uid, getegid, geteuid, getppid, pause},
};

use super::say;
use crate::{
    error::{Doing, Error, Result},
    host::Facts,
    netlink::Netlink,
    place::{GATEWAY, PREFIX},
};

pub(crate) const BRIDGE: &str = "machines";

pub(crate) fn run(parent: &str) -> Result<()> {
    // The relay is the hub's face: without it nobody would find us again.
    set_pdeathsig(Signal::SIGKILL).doing(|| "tie the hub to its relay")?;
    if getppid().to_string() != parent {
        return Err(Error::Stage("the relay is gone".into()));
    }
    own_network()?;
    let mut netlink = Netlink::open().doing(|| "open netlink")?;
    netlink.set_up(1).doing(|| "bring up the loopback interface")?;
    netlink.add_bridge(BRIDGE).doing(|| "make the bridge")?;
    let bridge = if_nametoindex(BRIDGE).doing(|| "find the bridge")?;
    netlink.add_address(bridge, GATEWAY, PREFIX).doing(|| "give the bridge its address")?;
    netlink.set_up(bridge).doing(|| "bring up the bridge")?;
    say("ready");
    loop {
        pause();
    }
}

/// A network namespace of ours; as root right away, else inside a user namespace.
pub(crate) fn own_network() -> Result<()> {
    if geteuid().is_root() && unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok(());
    }
    own_users()?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(forbidden)
}

/// A user namespace in which we are root, and nobody else exists.
fn own_users() -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(forbidden)?;
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| forbidden(Errno::from_raw(error.raw_os_error().unwrap_or_default())))
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("0 {user} 1"))?;
    write("gid_map", format!("0 {group} 1"))?;
    debug_assert_eq!(geteuid(), Uid::from_raw(0));
    Ok(())
}

pub(crate) fn forbidden(errno: Errno) -> Error {
    Error::Forbidden(Facts::gather().explain(errno.desc()))
}
