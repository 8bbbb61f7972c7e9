//! What services write, kept in one bounded file each.

use std::{
    cell::{Cell, RefCell},
    fs::{self, File, OpenOptions},
    io::{PipeReader, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::unix::pipe,
};

/// Where the files are, in the machine.
pub(crate) const DIRECTORY: &str = "/var/log/units";
/// A file larger than this becomes the old one; there is one old one.
const ROTATE: u64 = 4 << 20;
/// Longer lines are broken.
const LINE: u64 = 16 << 10;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: RefCell<Option<File>>,
    size: Cell<u64>,
}

impl Journal {
    pub(crate) fn of(unit: &str) -> Rc<Self> {
        Self::at(Path::new(DIRECTORY).join(format!("{unit}.log")))
    }

    pub(crate) fn at(path: PathBuf) -> Rc<Self> {
        Rc::new(Self { path, file: RefCell::default(), size: Cell::new(0) })
    }

    /// A line from the service manager itself.
    pub(crate) fn note(&self, text: &str) {
        self.line("systemd[1]", text);
    }

    /// Failing to write is no reason to fail: a full disk must not stop services.
    fn line(&self, who: &str, text: &str) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ");
        let line = format!("{now} {who}: {text}\n");
        let mut file = self.file.borrow_mut();
        if file.is_none() || self.size.get() > ROTATE {
            if let Some(parent) = self.path.parent() {
                let _ = fs::create_dir_all(parent);
            }
            let size = fs::metadata(&self.path).map_or(0, |meta| meta.len());
            if size > ROTATE {
                let _ = fs::rename(&self.path, self.path.with_extension("log.1"));
            }
            self.size.set(if size > ROTATE { 0 } else { size });
            *file = OpenOptions::new().append(true).create(true).open(&self.path).ok();
        }
        if let Some(file) = file.as_mut() {
            let _ = file.write_all(line.as_bytes());
            self.size.set(self.size.get() + line.len() as u64);
        }
    }

    /// Takes everything from a process's output until all its ends are closed.
    pub(crate) async fn follow(self: Rc<Self>, reader: PipeReader, who: String) {
        let Ok(receiver) = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)) else { return };
        let mut reader = BufReader::new(receiver);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut reader).take(LINE).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line);
                    self.line(&who, text.trim_end_matches(['\n', '\r']));
                }
            }
        }
    }
}

/// The last lines of a unit's log, oldest first.
pub(crate) fn tail(unit: &str, lines: usize) -> Vec<String> {
    let path = Path::new(DIRECTORY).join(format!("{unit}.log"));
    let mut all = Vec::new();
    for path in [path.with_extension("log.1"), path] {
        let text = fs::read(&path).unwrap_or_default();
        all.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    }
    let skipped = all.len().saturating_sub(lines);
    all.split_off(skipped)
}
