//! The processes of services: their environment, their conditions, and what they say about themselves.

use std::{
    collections::BTreeMap,
    fs,
    future::Future,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use nix::unistd::User;
use tokio::net::UnixDatagram;

use super::PATH;
use crate::unit::{Kind, Unit, command::Ready};

/// Marks the processes of one start of a service. It is not systemd's own name for this: a distribution that
/// finds that one asks systemd for control groups, over a bus that is not there.
pub(crate) const INVOCATION: &str = "REMUDA_INVOCATION_ID";
const NOTIFY: &str = "/run/remuda-notify";

pub(crate) fn command(ready: &Ready, unit: &Unit, environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(&ready.program);
    command.arg0(&ready.name).args(&ready.args).env_clear().envs(environment);
    // Away from our own group, so that a signal to it does not reach the service.
    command.process_group(0);
    let directory = unit.working_directory.trim_start_matches('-');
    command.current_dir(match directory {
        "" => "/",
        "~" => "/root",
        other if Path::new(other).is_dir() => other,
        _ => "/",
    });
    if let Ok(Some(user)) = User::from_name(&unit.user)
        && !user.uid.is_root()
    {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Everything a command of the service finds in its environment.
pub(crate) fn environment(
    unit: &Unit,
    invocation: &str,
    main: Option<i32>,
) -> Result<BTreeMap<String, String>, String> {
    let mut all: BTreeMap<String, String> = [
        ("PATH", PATH),
        ("LANG", "C.UTF-8"),
        ("HOME", "/root"),
        ("USER", "root"),
        ("LOGNAME", "root"),
        ("SHELL", "/bin/sh"),
        (INVOCATION, invocation),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if unit.kind == Kind::Notify {
        all.insert("NOTIFY_SOCKET".into(), format!("{NOTIFY}/{}", unit.name));
    }
    if let Some(pid) = main {
        all.insert("MAINPID".into(), pid.to_string());
    }
    all.extend(unit.environment.iter().cloned());
    for (path, may_miss) in &unit.environment_files {
        match fs::read_to_string(path) {
            Ok(text) => all.extend(assignments(&text)),
            Err(_) if *may_miss => {}
            Err(error) => return Err(format!("{}: read {path}: {error}", unit.name)),
        }
    }
    // A NUL would make the whole start fail.
    all.retain(|name, value| !name.is_empty() && !name.contains('\0') && !value.contains('\0'));
    Ok(all)
}

/// The lines of an environment file: shell-like, without a shell.
fn assignments(text: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let joined = text.replace("\\\n", "");
    for line in joined.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim().strip_prefix("export ").unwrap_or(name.trim());
        out.push((name.to_owned(), unquote(value.trim())));
    }
    out
}

fn unquote(value: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if letter == open => quote = None,
            (Some('\''), _) => out.push(letter),
            (_, '\\') => out.extend(letters.next()),
            _ => out.push(letter),
        }
    }
    out
}

/// The first condition that does not hold. Conditions we do not know hold.
pub(crate) fn unmet(conditions: &[(String, String)]) -> Option<String> {
    let fails = |(key, value): &&(String, String)| {
        let (negated, value) = match value.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, value.as_str()),
        };
        let value = value.trim_start_matches('|');
        let path = Path::new(value);
        let kind = key.trim_start_matches("Condition").trim_start_matches("Assert");
        let holds = match kind {
            "PathExists" => path.exists(),
            "PathIsDirectory" => path.is_dir(),
            "PathIsSymbolicLink" => path.is_symlink(),
            "FileNotEmpty" => fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0),
            "FileIsExecutable" => {
                fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
            }
            "DirectoryNotEmpty" => fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()),
            _ => return false,
        };
        holds == negated
    };
    conditions.iter().find(fails).map(|(key, value)| format!("{key}={value}"))
}

pub(crate) fn notify_socket(name: &str) -> Option<UnixDatagram> {
    let path = Path::new(NOTIFY).join(name);
    let _ = fs::create_dir_all(NOTIFY);
    let _ = fs::remove_file(&path);
    UnixDatagram::bind(path).ok()
}

/// Passes on what a service says, until `end`.
pub(crate) async fn listen(socket: UnixDatagram, hear: impl Fn(&str), end: impl Future<Output = ()>) {
    let mut buffer = [0; 4096];
    let receive = async {
        while let Ok(length) = socket.recv(&mut buffer).await {
            hear(&String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()));
        }
    };
    tokio::select! {
        () = receive => {}
        () = end => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_files_are_read_like_a_shell_would() {
        let text = "# c\nA=1\nexport B=\"x y\"\nC='$z'\nD=a\\\nb\nbad\nE=\n";
        let read: Vec<_> =
            assignments(text).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(read, ["A=1", "B=x y", "C=$z", "D=ab", "E="]);
    }

    #[test]
    fn services_are_not_told_of_a_systemd_that_could_make_control_groups() {
        let unit =
            Unit::parse("k3s.service", std::path::PathBuf::new(), &["[Service]\nType=notify\n".into()]);
        let all = environment(&unit, "abc", None).unwrap();
        assert_eq!(all.get(INVOCATION).map(String::as_str), Some("abc"));
        assert!(!all.contains_key("INVOCATION_ID"), "K3s takes this for the systemd driver");
    }

    #[test]
    fn conditions_are_checked_and_unknown_ones_hold() {
        let condition = |key: &str, value: &str| unmet(&[(key.to_owned(), value.to_owned())]);
        assert_eq!(condition("ConditionPathExists", "/proc"), None);
        assert_eq!(condition("ConditionPathExists", "!/proc").as_deref(), Some("ConditionPathExists=!/proc"));
        assert!(condition("AssertPathIsDirectory", "/proc/self/status").is_some());
        assert_eq!(condition("ConditionVirtualization", "vm"), None);
    }
}
