//! The few things we ask the kernel's routing socket for, in its own binary form.
//!
//! Hosts may lack `ip`, and the asking happens in single-threaded processes between two namespaces, where an
//! asynchronous client would be in the way. All numbers are from `linux/rtnetlink.h` and `linux/if_link.h`.

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const REQUEST_AND_ACK: u16 = 1 | 4;
const CREATE: u16 = 0x400;
const EXCLUSIVE: u16 = 0x200;
const ERROR: u16 = 2;
const UP: u32 = 1;
const AF_INET: u8 = 2;

/// A socket to the network namespace it was opened in, wherever its owner goes later.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// The other end of a new pair of interfaces.
pub(crate) struct Peer<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: BorrowedFd<'a>,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::Netlink, SockType::Raw);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(crate) fn set_up(&mut self, link: u32) -> io::Result<()> {
        self.ask(Message::new(NEW_LINK, 0).link(link, UP))
    }

    pub(crate) fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, CREATE | EXCLUSIVE).link(0, UP);
        message.text(3, name);
        message.nest(18, |info| info.text(1, "bridge"));
        self.ask(message)
    }

    /// A pair of interfaces: one here, on the bridge, named by the kernel after the pattern; its peer
    /// elsewhere.
    pub(crate) fn add_pair(&mut self, pattern: &str, bridge: u32, peer: &Peer<'_>) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, CREATE | EXCLUSIVE).link(0, UP);
        message.text(3, pattern);
        message.bytes(10, &bridge.to_ne_bytes());
        message.nest(18, |info| {
            info.text(1, "veth");
            info.nest(2, |data| {
                data.nest(1, |end| {
                    end.raw(&link_header(0, 0));
                    end.text(3, peer.name);
                    end.bytes(28, &peer.namespace.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.ask(message)
    }

    pub(crate) fn add_address(&mut self, link: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = Message::new(NEW_ADDRESS, CREATE | EXCLUSIVE);
        message.raw(&[AF_INET, prefix, 0, 0]);
        message.raw(&link.to_ne_bytes());
        message.bytes(2, &address.octets());
        message.bytes(1, &address.octets());
        if prefix < 31 {
            let broadcast = Ipv4Addr::from(u32::from(address) | (u32::MAX >> prefix));
            message.bytes(4, &broadcast.octets());
        }
        match self.ask(message) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    pub(crate) fn add_default_route(&mut self, link: u32, gateway: Ipv4Addr) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const STATIC: u8 = 4;
        const UNICAST: u8 = 1;
        let mut message = Message::new(NEW_ROUTE, CREATE);
        message.raw(&[AF_INET, 0, 0, 0, MAIN_TABLE, STATIC, 0, UNICAST]);
        message.raw(&0u32.to_ne_bytes());
        message.bytes(5, &gateway.octets());
        message.bytes(4, &link.to_ne_bytes());
        self.ask(message)
    }

    fn ask(&mut self, message: Message) -> io::Result<()> {
        self.sequence += 1;
        let bytes = message.finish(self.sequence);
        sendto(self.socket.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut buffer = vec![0; 8192];
        loop {
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            if let Some(code) = answer(buffer.get(..length).unwrap_or_default(), self.sequence) {
                return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
            }
        }
    }
}

/// The error number in an acknowledgement; 0 is success, `None` is some other message.
fn answer(bytes: &[u8], sequence: u32) -> Option<i32> {
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let about = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    let code = i32::from_ne_bytes(bytes.get(16..20)?.try_into().ok()?);
    (kind == ERROR && about == sequence).then_some(code.wrapping_neg())
}

fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    // Which of the flags are meant.
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST_AND_ACK).to_ne_bytes());
        Self(bytes)
    }

    fn link(mut self, index: u32, flags: u32) -> Self {
        self.raw(&link_header(index, flags));
        self
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.nest(kind, |inner| inner.0.extend_from_slice(value));
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.nest(kind, |inner| {
            inner.0.extend_from_slice(value.as_bytes());
            inner.0.push(0);
        });
    }

    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        fill(self);
        let length = u16::try_from(self.0.len() - start).expect("our messages are a few hundred bytes");
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.pad();
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).expect("our messages are a few hundred bytes");
        self.0[0..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested_by_length() {
        let mut message = Message::new(NEW_LINK, 0).link(7, UP);
        message.nest(18, |info| info.text(1, "veth"));
        let bytes = message.finish(3);
        assert_eq!(bytes.len(), 16 + 16 + 4 + 12);
        assert_eq!(bytes[0..4], 48u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 7u32.to_ne_bytes());
        assert_eq!(bytes[32..34], 16u16.to_ne_bytes(), "the nest holds the padded attribute");
        assert_eq!(bytes[36..38], 9u16.to_ne_bytes(), "the text counts its end, not its padding");
        assert_eq!(&bytes[40..45], b"veth\0");
    }

    #[test]
    fn an_acknowledgement_is_read_and_anything_shorter_is_not() {
        let mut reply = vec![0; 36];
        reply[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        reply[8..12].copy_from_slice(&5u32.to_ne_bytes());
        reply[16..20].copy_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(answer(&reply, 5), Some(17));
        assert_eq!(answer(&reply, 6), None);
        assert_eq!(answer(&reply[..12], 5), None);
    }
}
