//! Taking hold of the port, and saying who has it when that fails.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Socket, Type};

use crate::config::Bind;

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("port {} is in use{}", .address.port(), by(.owner.as_deref()))]
    Used { address: SocketAddr, owner: Option<String> },
    #[error("not allowed to listen on port {}", .address.port())]
    Privileged { address: SocketAddr },
    #[error("{} is not an address of this machine", .address.ip())]
    NotOurs { address: SocketAddr },
    #[error("listen on {address}")]
    Other { address: SocketAddr, source: io::Error },
}

fn by(owner: Option<&str>) -> String {
    owner.map(|owner| format!(" by {owner}")).unwrap_or_default()
}

impl ListenError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ListenError::Used { owner: Some(_), .. } => {
                Some("stop that process, or choose another port with --bind".to_owned())
            }
            ListenError::Used { owner: None, address } => Some(format!(
                "choose another port with --bind; ss -ltnp 'sport = :{}' shows who has this one",
                address.port()
            )),
            ListenError::Privileged { .. } => Some(
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another one with --bind"
                    .to_owned(),
            ),
            ListenError::NotOurs { .. } => Some("ip address shows the addresses of this machine".to_owned()),
            ListenError::Other { .. } => None,
        }
    }
}

/// Connections the kernel accepts for us while we are busy: a restart makes all clients come at once.
const BACKLOG: i32 = 4096;

/// Listens, without blocking mode, on the first candidate the machine can do.
pub fn listen(bind: Bind) -> Result<TcpListener, ListenError> {
    let mut last = None;
    for address in bind.candidates() {
        match open(address) {
            Ok(listener) => return Ok(listener),
            // A machine without IPv6 says so in several ways; try the next candidate.
            Err(error) if unsupported(&error) => last = Some((address, error)),
            Err(error) => return Err(explain(address, error)),
        }
    }
    let (address, error) = last.unwrap_or_else(|| {
        (SocketAddr::from(([0, 0, 0, 0], 0)), io::Error::from(io::ErrorKind::AddrNotAvailable))
    });
    Err(explain(address, error))
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // Connections of the process before us may linger in TIME_WAIT; they must not hold up a restart.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn unsupported(error: &io::Error) -> bool {
    use nix::libc::{EADDRNOTAVAIL, EAFNOSUPPORT, EPROTONOSUPPORT};
    matches!(error.raw_os_error(), Some(EADDRNOTAVAIL | EAFNOSUPPORT | EPROTONOSUPPORT))
}

fn explain(address: SocketAddr, error: io::Error) -> ListenError {
    match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::Used { address, owner: owner(address.port()) },
        io::ErrorKind::PermissionDenied => ListenError::Privileged { address },
        io::ErrorKind::AddrNotAvailable => ListenError::NotOurs { address },
        _ => ListenError::Other { address, source: error },
    }
}

/// The process listening on a port, as far as the kernel lets us see it.
fn owner(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        table.lines().skip(1).find_map(|line| listening_inode(line, port).map(str::to_owned))
    })?;
    let wanted = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has = |file: fs::DirEntry| {
            fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == wanted.as_str())
        };
        if files.flatten().any(has) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("process {pid} ({})", name.trim()));
        }
    }
    None
}

/// The socket in a line of `/proc/net/tcp`, if it listens on the port.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace();
    let (_, local_port) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    if state != LISTEN || u16::from_str_radix(local_port, 16).ok()? != port {
        return None;
    }
    fields.nth(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_port_names_its_owner() {
        let first = listen(Bind::At(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        let address = first.local_addr().unwrap();
        let error = listen(Bind::At(address)).unwrap_err().to_string();
        let expected = format!("port {} is in use by process {} (", address.port(), std::process::id());
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn any_address_includes_ipv4() {
        let listener = listen(Bind::any(0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn a_foreign_address_is_refused() {
        let error = listen(Bind::At(SocketAddr::from(([192, 0, 2, 1], 0)))).unwrap_err();
        assert_eq!(error.to_string(), "192.0.2.1 is not an address of this machine");
    }
}
