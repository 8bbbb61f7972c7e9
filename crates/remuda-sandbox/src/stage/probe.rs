//! Tries what a machine needs, and leaves nothing behind.

use std::{fs::File, path::Path, process::Stdio};

use nix::{
    mount::{MsFlags, mount},
    sched::unshare,
};

use super::{
    hold::{forbidden, own_network},
    machine::own,
    program, say, start,
    users::{self, Outside},
};
use crate::error::Result;

/// Before a directory: as machines that are kept apart from the host.
pub(crate) const ISOLATED: &str = "isolated:";

/// With a directory to mount on: in the host's namespaces. With `inside`: in those of a machine.
pub(crate) fn run(argument: &str) -> Result<()> {
    if let Some(dir) = argument.strip_prefix("inside:") {
        return inside(Path::new(dir));
    }
    let argument = match argument.strip_prefix(ISOLATED) {
        Some(dir) => {
            let first = users::choose(Path::new(dir), &[]).unwrap_or_default();
            Outside::start(first, false)?.leave()?;
            dir
        }
        None => {
            own_network()?;
            unshare(own()).map_err(forbidden)?;
            argument
        }
    };
    let mut child = program();
    child.arg("probe").arg(format!("inside:{argument}")).stdin(Stdio::null());
    let mut child = start(&mut child)?;
    let _ = child.wait();
    say("ready");
    Ok(())
}

fn inside(dir: &Path) -> Result<()> {
    let none: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).map_err(forbidden)?;
    for kind in ["tmpfs", "proc"] {
        mount(Some(kind), dir, Some(kind), MsFlags::empty(), none).map_err(forbidden)?;
    }
    let _ = File::open(dir.join("self"));
    say("ready");
    Ok(())
}
