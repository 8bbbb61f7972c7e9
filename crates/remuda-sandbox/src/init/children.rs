//! The processes of the machine: ours are waited for, orphans are laid to rest.

use std::{cell::RefCell, collections::HashMap, io, process::Command};

use nix::{
    sys::wait::{WaitPidFlag, WaitStatus, waitpid},
    unistd::Pid,
};
use tokio::sync::oneshot;

use super::process::INVOCATION;
use crate::unit::Exit;

/// Who waits for which process. Everything happens on one thread, so a process cannot end unnoticed between
/// its start and its entry here.
#[derive(Debug, Default)]
pub(crate) struct Children {
    waiting: RefCell<HashMap<i32, oneshot::Sender<Exit>>>,
}

pub(crate) type Ending = oneshot::Receiver<Exit>;

impl Children {
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(i32, Ending)> {
        let child = command.spawn()?;
        let pid = child.id().cast_signed();
        Ok((pid, self.adopt(pid)))
    }

    /// Waits for a process that somebody else started and left to us.
    pub(crate) fn adopt(&self, pid: i32) -> Ending {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid, sender);
        receiver
    }

    /// Takes in every process that has ended.
    pub(crate) fn reap(&self) {
        loop {
            let (pid, exit) = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) => return,
                Ok(_) => continue,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(_) => return,
            };
            if let Some(waiting) = self.waiting.borrow_mut().remove(&pid.as_raw()) {
                let _ = waiting.send(exit);
            }
        }
    }
}

/// The processes that carry a service's mark, except this one.
pub(crate) fn marked(invocation: &str) -> Vec<i32> {
    let mark = format!("{INVOCATION}={invocation}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != 1 && !invocation.is_empty())
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .collect()
}
