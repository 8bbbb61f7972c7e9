//! Carries a connection into a machine: its standard input is a socket of the host, the other end a port of the machine.
//!
//! A socket belongs to the network it was made in. The one that is given stays the host's, the one that is made here is
//! the machine's, whatever its first process does.

use std::{
    fs::{self, File},
    io,
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsFd,
    process::ExitCode,
    thread,
    time::Duration,
};

use nix::sched::{CloneFlags, setns};

use crate::error::{Doing, Error, Result};

/// Nothing listens there. Nothing has been read either: another machine may be tried.
pub(crate) const REFUSED: u8 = 7;
/// Machines are on this host.
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) fn run(pid: &str, address: &str) -> Result<ExitCode> {
    let address: SocketAddr =
        address.parse().map_err(|_| Error::Usage("remuda sandbox dial PID ADDRESS:PORT"))?;
    for (kind, flag) in [("user", CloneFlags::CLONE_NEWUSER), ("net", CloneFlags::CLONE_NEWNET)] {
        let of = |whose: &str| format!("/proc/{whose}/ns/{kind}");
        // Entering the user namespace one is in already is an error.
        if kind == "user" && fs::read_link(of(pid)).ok() == fs::read_link(of("self")).ok() {
            continue;
        }
        let namespace = File::open(of(pid)).doing(|| format!("open the machine's {kind} namespace"))?;
        setns(namespace, flag).doing(|| "enter the machine")?;
    }
    let Ok(there) = TcpStream::connect_timeout(&address, CONNECT) else {
        return Ok(ExitCode::from(REFUSED));
    };
    let here = io::stdin().as_fd().try_clone_to_owned().doing(|| "take the connection")?;
    carry(&TcpStream::from(here), &there);
    Ok(ExitCode::SUCCESS)
}

/// Until both sides have said all, or one of them broke.
fn carry(here: &TcpStream, there: &TcpStream) {
    let copy = |mut from: &TcpStream, mut to: &TcpStream| {
        let ended = io::copy(&mut from, &mut to);
        // What one side has said all of, the other one still may answer.
        let how = if ended.is_ok() { Shutdown::Write } else { Shutdown::Both };
        let _ = to.shutdown(how);
        if ended.is_err() {
            let _ = from.shutdown(Shutdown::Both);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| copy(here, there));
        copy(there, here);
    });
}
