//! From the host into the namespaces of a new machine.

use std::{
    fs::File,
    os::fd::AsFd,
    process::{Command, Stdio},
};

use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, setns, unshare},
    unistd::setsid,
};

use super::{
    hold::{BRIDGE, forbidden},
    program,
    users::{self, Outside},
};
use crate::{
    cgroup,
    error::{Doing, Error, Result},
    lock::Life,
    netlink::{Netlink, Peer},
    place::{GATEWAY, Hub, PREFIX, Place, Record, Running, read_json, write_json},
};

pub(crate) const INTERFACE: &str = "eth0";

/// Everything a machine has of its own, beside its users. Where we are not root, all machines of a hub share its
/// user namespace, so that one of them may connect another's interfaces.
pub(crate) fn own() -> CloneFlags {
    CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWCGROUP
}

pub(crate) fn run(place: &Place, id: &str) -> Result<()> {
    let _ = setsid();
    let home = place.machine(id);
    let record = home.record()?.ok_or_else(|| Error::NotFound(id.to_owned()))?;
    if record.removing {
        return Err(Error::Removing(record.name));
    }
    let hub: Hub = read_json(&place.hub_record())?.ok_or_else(|| Error::Stage("there is no hub".into()))?;
    if Life::holder(&place.hub_life())?.is_none() {
        return Err(Error::Stage("the hub is gone".into()));
    }
    write_json(&home.file("running.json"), &Running { hub: hub.id.clone() })?;
    let groups = cgroup::join(place.dir(), id);
    let bridge = join(&hub)?;
    let dir = match record.users {
        None => {
            let mut shared = Netlink::open().doing(|| "open netlink")?;
            unshare(own()).map_err(forbidden)?;
            connect(&mut shared, bridge)?;
            place.dir().to_owned()
        }
        Some(first) => {
            cgroup::hand_over(&groups, first);
            let outside = Outside::start(first, true)?;
            let dir = users::stage(place, id, first)?;
            outside.leave()?;
            dir
        }
    };
    configure(&record)?;
    // The first child is the first process of the new process tree.
    let mut init: Command = program();
    init.arg("init").arg(dir).arg(id);
    init.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit()).env_clear();
    init.spawn().doing(|| "start the machine's first process")?;
    Ok(())
}

/// Enters the namespaces of the hub and finds the bridge there.
fn join(hub: &Hub) -> Result<u32> {
    let open = |pid: &str, kind: &str| {
        File::open(format!("/proc/{pid}/ns/{kind}")).doing(|| format!("open the {kind} namespace of the hub"))
    };
    let holder = hub.holder.to_string();
    let is_same = |kind: &str| {
        let target = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
        target("self") == target(&holder)
    };
    let (users, network) = (open(&holder, "user")?, open(&holder, "net")?);
    if !is_same("user") {
        setns(users, CloneFlags::CLONE_NEWUSER).map_err(forbidden)?;
    }
    setns(network, CloneFlags::CLONE_NEWNET).map_err(forbidden)?;
    if_nametoindex(BRIDGE).doing(|| "find the bridge")
}

/// Gives the new network namespace, which is ours by now, its cable.
fn connect(shared: &mut Netlink, bridge: u32) -> Result<()> {
    let here = File::open("/proc/self/ns/net").doing(|| "open the machine's network namespace")?;
    let peer = Peer { name: INTERFACE, namespace: here.as_fd() };
    shared.add_pair("m%d", bridge, &peer).doing(|| "connect the machine to the bridge")
}

/// Sets up the machine's interfaces.
fn configure(record: &Record) -> Result<()> {
    let mut own = Netlink::open().doing(|| "open netlink")?;
    own.set_up(1).doing(|| "bring up the loopback interface")?;
    let link = if_nametoindex(INTERFACE).doing(|| "find the machine's interface")?;
    own.add_address(link, record.address, PREFIX).doing(|| "give the machine its address")?;
    own.set_up(link).doing(|| "bring up the machine's interface")?;
    own.add_default_route(link, GATEWAY).doing(|| "give the machine a default route")?;
    for address in record.listens().into_iter().filter_map(|(listen, _)| listen.foreign) {
        own.add_address(1, address, 32).doing(|| "give the machine the server's address")?;
    }
    Ok(())
}
