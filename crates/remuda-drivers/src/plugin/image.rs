//! A program that is held open, so that it can be run by who may not enter the directory it is in.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tokio::process::Command;

#[derive(Debug, Clone)]
pub struct Image {
    path: PathBuf,
    file: Arc<File>,
}

impl Image {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // The interpreter of a script reads it after the start, so it stays open in the new process.
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file) })
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0(&self.path);
        command
    }
}
