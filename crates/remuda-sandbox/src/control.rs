//! How tools talk to a machine's first process: one JSON line there, one back.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Where the socket is inside a machine.
pub(crate) const SOCKET: &str = "/run/remuda/init.sock";
/// More than this is not a request.
pub(crate) const MOST: u64 = 1 << 20;

/// What is asked, with systemctl's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) units: Vec<String>,
    /// `--now`
    pub(crate) now: bool,
    /// `--no-block`
    pub(crate) no_block: bool,
    /// `-p`
    pub(crate) properties: Vec<String>,
    /// `--value`
    pub(crate) value: bool,
    /// `-s`
    pub(crate) signal: String,
    /// `-n`
    pub(crate) lines: Option<usize>,
}

/// What the tool prints and ends with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Reply {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A path that fits into a socket's address, through an open directory.
pub(crate) fn short(dir: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name)
}

/// Asks and waits. Starting a service may take as long as the service wants.
pub(crate) fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    let dir = File::open(socket.parent().unwrap_or(socket))?;
    let mut stream = UnixStream::connect(short(&dir, socket.file_name().unwrap_or_default()))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text)?;
    if text.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&text)?)
}
