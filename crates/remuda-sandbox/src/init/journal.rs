//! What services write, kept in one bounded file each.

use std::{
    cell::{Cell, RefCell},
    fs::{self, File, OpenOptions},
    io::{PipeReader, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
};

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
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
        let now = stamp(Timestamp::now());
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

/// How lines begin; as text in the order of time.
pub(crate) fn stamp(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A moment as people and scripts give it: `Thu 2026-03-05 09:30:00 UTC`, as `systemctl show` prints it, with
/// or without its edges; `@SECONDS`; `-1h`, `10min ago`, `now`. Machines keep universal time.
pub(crate) fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    if text == "now" {
        return Some(now);
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return Timestamp::from_second(seconds.parse().ok()?).ok();
    }
    if let Some(back) = text.strip_prefix('-').or_else(|| text.strip_suffix(" ago")) {
        let back = SignedDuration::try_from(crate::unit::duration(back)??).ok()?;
        return now.checked_sub(back).ok();
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    let plain = text.strip_suffix(" UTC").unwrap_or(text);
    let plain = plain.trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).trim_start();
    plain.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The last lines of a unit's log, oldest first.
pub(crate) fn tail(unit: &str, count: usize) -> Vec<String> {
    let mut all = lines(unit);
    let skipped = all.len().saturating_sub(count);
    all.split_off(skipped)
}

/// All lines there are of a unit, oldest first.
pub(crate) fn lines(unit: &str) -> Vec<String> {
    let path = Path::new(DIRECTORY).join(format!("{unit}.log"));
    let mut all = Vec::new();
    for path in [path.with_extension("log.1"), path] {
        let text = fs::read(&path).unwrap_or_default();
        all.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_understood_in_the_forms_scripts_have_them() {
        let now: Timestamp = "2026-03-05T10:00:00Z".parse().unwrap();
        let at = |text: &str| moment(text, now).map(stamp);
        let half_past = Some("2026-03-05T09:30:00.000000Z".to_owned());
        for text in [
            "Thu 2026-03-05 09:30:00 UTC",
            "2026-03-05 09:30:00",
            "2026-03-05T09:30:00Z",
            "@1772703000",
            "-30min",
            "30 minutes ago",
        ] {
            assert_eq!(at(text), half_past, "{text}");
        }
        assert_eq!(at("2026-03-05").as_deref(), Some("2026-03-05T00:00:00.000000Z"));
        for text in ["", "n/a", "whenever", "-", "-infinity", "@x", "99999999999999999999h ago"] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
