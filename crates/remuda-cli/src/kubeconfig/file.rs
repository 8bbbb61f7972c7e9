//! Kubeconfig files: nobody but their owner reads them, and a crash never leaves half of one.

use std::{
    env, fs,
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::failure::{Code, Failure};

pub(super) fn default_path() -> Result<PathBuf, Failure> {
    match env::var_os("HOME") {
        Some(home) => Ok(PathBuf::from(home).join(".kube/config")),
        None => {
            Err(Failure::invalid("there is no home directory to put the file in")
                .hint("name a file with --into"))
        }
    }
}

/// The file's content; a file that is not there is an empty kubeconfig.
pub(super) fn read(path: &Path) -> Result<Value, Failure> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(empty()),
        Ok(text) => parse(&text, &path.display().to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(empty()),
        Err(error) => Err(Failure::new(Code::Other, format!("read {}: {error}", path.display()))),
    }
}

fn empty() -> Value {
    json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": [], "current-context": ""})
}

pub(super) fn parse(text: &str, origin: &str) -> Result<Value, Failure> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(Failure::invalid(format!("{origin} is not a kubeconfig"))),
        Err(error) => Err(Failure::invalid(format!("{origin} is not YAML: {}", error.without_snippet()))),
    }
}

/// Keeps others from changing the file, kubectl too: it has the same custom.
pub(super) struct Lock(PathBuf);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Waits a moment for others to be done.
pub(super) fn lock(path: &Path) -> Result<Option<Lock>, Failure> {
    const TRIES: u32 = 40;
    const BETWEEN: Duration = Duration::from_millis(50);
    // What is no file is written through, and beside what is in /dev nobody puts a file.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(None);
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let failed =
        |error: std::io::Error| Failure::new(Code::Other, format!("create {}: {error}", name.display()));
    if let Some(dir) = name.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    for _ in 0..TRIES {
        match fs::OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(_) => return Ok(Some(Lock(name))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => thread::sleep(BETWEEN),
            Err(error) => return Err(failed(error)),
        }
    }
    Err(Failure::new(Code::Conflict, format!("somebody else is changing {}", path.display()))
        .hint(format!("if nobody is, remove {}", name.display())))
}

/// Replaces the file in one step. A link stays a link.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Code::Other, format!("write {}: {error}", path.display()));
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir = match target.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    fs::create_dir_all(dir).map_err(failed)?;
    // Only files are replaced: what is written to a pipe or a terminal is written through.
    if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
        return fs::write(&target, text).map_err(failed);
    }
    let mut new = tempfile::Builder::new()
        .prefix(".remuda-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(dir)
        .map_err(failed)?;
    new.write_all(text.as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
    new.persist(&target).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_and_a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("real"), dir.path().join("link"));
        write(&file, "a: 1\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "a: 2\n").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "a: 2\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn one_at_a_time_changes_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/config");
        let held = lock(&file).unwrap();
        assert_eq!(lock(&file).err().unwrap().code, Code::Conflict);
        drop(held);
        assert!(lock(&file).unwrap().is_some());
        assert!(lock(Path::new("/dev/null")).unwrap().is_none());
    }

    #[test]
    fn what_is_no_kubeconfig_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("notes");
        fs::write(&file, "just: [some\n").unwrap();
        assert!(read(&file).is_err());
        fs::write(&file, "a list").unwrap();
        assert!(read(&file).is_err());
        assert_eq!(read(&dir.path().join("none")).unwrap(), empty());
    }
}
