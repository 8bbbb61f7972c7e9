//! SSH with the key a driver made for its machine.
//!
//! The program `ssh` does the work: it has the terminal, the user's settings and every algorithm there is. The
//! host's key must be the one that was there when the machine was made; where nobody looked, it is remembered at
//! the first contact, under the machine's id, and compared from then on.

use std::{
    env, fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use remuda_names::PROGRAM;
use remuda_plan::machine_state;
use serde_json::Value;

use crate::{
    failure::{Code, Failure},
    hooks::MachineTarget,
    quote::quote,
};

/// What is needed to get into a machine.
#[derive(Debug, PartialEq, Eq)]
struct Access {
    host: String,
    user: String,
    port: u16,
    key: Vec<u8>,
    /// What the host showed when the machine was made; empty if nobody looked.
    host_key: String,
}

pub(super) async fn run(target: &MachineTarget) -> Result<u8, Failure> {
    let name = &target.machine;
    let Some(access) = access(&target.state, &target.addresses) else {
        let failure = Failure::new(Code::Other, format!("there is no SSH key for machine {name}"));
        return Err(failure.hint(match target.driver.as_str() {
            "custom" => "it was not made here: use the key you made it with",
            "local" => "machines of this driver are entered on the server's host: remuda machine shell",
            _ => "its driver has saved none",
        }));
    };
    let failed = |error: std::io::Error| Failure::new(Code::Other, format!("prepare SSH: {error}"));
    let dir = tempfile::Builder::new().prefix("remuda-ssh-").tempdir().map_err(failed)?;
    let key = dir.path().join("key");
    write_private(&key, &access.key).map_err(failed)?;
    let own = dir.path().join("known_hosts");
    let known = match access.host_key.as_str() {
        "" => known_hosts().unwrap_or(own),
        host_key => {
            write_private(&own, format!("{} {host_key}\n", alias(target)).as_bytes()).map_err(failed)?;
            own
        }
    };
    if let Some(parent) = known.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut command = tokio::process::Command::new("ssh");
    command.args(arguments(&access, &key, &known, target)).stdin(Stdio::inherit());
    match command.status().await {
        Ok(status) => Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255)),
        Err(error) => {
            Err(Failure::new(Code::Other, format!("start ssh: {error}")).hint("install an SSH client"))
        }
    }
}

fn arguments(access: &Access, key: &Path, known: &Path, target: &MachineTarget) -> Vec<String> {
    let option = |text: String| ["-o".to_owned(), text];
    let mut words: Vec<String> = vec!["-i".to_owned(), key.display().to_string()];
    words.extend(["-p".to_owned(), access.port.to_string()]);
    // What is pinned leaves nothing to trust.
    let checking = if access.host_key.is_empty() { "accept-new" } else { "yes" };
    for text in [
        "IdentitiesOnly=yes".to_owned(),
        "ForwardAgent=no".to_owned(),
        format!("StrictHostKeyChecking={checking}"),
        "ConnectTimeout=15".to_owned(),
        format!("UserKnownHostsFile={}", known.display()),
        format!("HostKeyAlias={}", alias(target)),
    ] {
        words.extend(option(text));
    }
    // A name that begins with a dash must not become an option.
    words.extend(["-l".to_owned(), access.user.clone(), "--".to_owned(), access.host.clone()]);
    // The other side's shell reads them once more.
    words.extend(target.command.iter().map(|word| quote(word)));
    words
}

/// What the host is called where its key is remembered: addresses are used again.
fn alias(target: &MachineTarget) -> String {
    match target.server.uid() {
        "" => format!("{}.{}", target.machine, target.namespace),
        uid => uid.to_owned(),
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(bytes)
}

fn known_hosts() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join(PROGRAM).join("known_hosts"))
}

/// Reads a driver's archive: `machines/NAME/config.json` and the key beside it.
fn access(state: &[u8], addresses: &[String]) -> Option<Access> {
    let (mut config, mut key) = (Value::Null, Vec::new());
    for (path, content) in machine_state::files(state).ok()? {
        match path.file_name()?.to_str()? {
            machine_state::RECORD => config = serde_json::from_slice(&content).ok()?,
            "id_rsa" | "id_ed25519" | "id_ecdsa" => key = content,
            _ => {}
        }
    }
    if key.is_empty() {
        return None;
    }
    let driver = config.get("Driver").cloned().unwrap_or_default();
    let text = |key: &str| {
        driver.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let host = text("IPAddress").or_else(|| addresses.first().cloned())?;
    if host.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return None;
    }
    let ours = config.pointer("/Remuda/HostKey").and_then(Value::as_str).unwrap_or_default();
    let host_key = text("SSHHostKey").unwrap_or_else(|| ours.to_owned());
    if host_key.chars().any(char::is_control) {
        return None;
    }
    let port = driver.get("SSHPort").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    Some(Access {
        host,
        user: text("SSHUser").unwrap_or_else(|| "root".to_owned()),
        port: port.filter(|port| *port != 0).unwrap_or(22),
        key,
        host_key,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Object;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder =
            tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (path, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_cksum();
            builder.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn an_archive_says_how_to_get_in() {
        let config =
            json!({"Driver": {"IPAddress": "203.0.113.7", "SSHUser": "ubuntu", "SSHPort": 2222}}).to_string();
        let state = archive(&[("machines/x/config.json", &config), ("machines/x/id_rsa", "KEY")]);
        let expected = Access {
            host: "203.0.113.7".into(),
            user: "ubuntu".into(),
            port: 2222,
            key: b"KEY".to_vec(),
            host_key: String::new(),
        };
        assert_eq!(access(&state, &[]), Some(expected));
        let pinned = json!({"Driver": {"IPAddress": "a"}, "Remuda": {"HostKey": "ssh-ed25519 AAAA"}});
        let state = archive(&[("machines/x/config.json", &pinned.to_string()), ("machines/x/id_rsa", "KEY")]);
        assert_eq!(access(&state, &[]).unwrap().host_key, "ssh-ed25519 AAAA");
        let bare = archive(&[("machines/x/id_rsa", "KEY")]);
        let found = access(&bare, &["10.0.0.1".to_owned()]).unwrap();
        assert_eq!((found.host.as_str(), found.user.as_str(), found.port), ("10.0.0.1", "root", 22));
    }

    #[test]
    fn archives_without_a_key_or_of_rubbish_say_nothing() {
        assert_eq!(access(&[], &["a".into()]), None);
        assert_eq!(access(b"rubbish", &["a".into()]), None);
        assert_eq!(access(&archive(&[("machines/x/config.json", "{}")]), &["a".into()]), None);
        for hostile in [
            json!({"Driver": {"IPAddress": "a b"}}),
            json!({"Driver": {"IPAddress": "a", "SSHHostKey": "x\n* ssh-ed25519 AAAA"}}),
        ] {
            let state =
                archive(&[("machines/x/config.json", &hostile.to_string()), ("machines/x/id_rsa", "KEY")]);
            assert_eq!(access(&state, &[]), None);
        }
    }

    #[test]
    fn a_host_cannot_become_an_option() {
        let access = Access {
            host: "-oProxyCommand=x".into(),
            user: "root".into(),
            port: 22,
            key: Vec::new(),
            host_key: "ssh-ed25519 AAAA".into(),
        };
        let target = MachineTarget {
            namespace: "n".into(),
            machine: "m".into(),
            driver: "d".into(),
            server: Object(json!({"metadata": {"uid": "u-1"}})),
            addresses: Vec::new(),
            command: vec!["echo".into(), "a b".into()],
            data_dir: None,
            state: Vec::new(),
        };
        let words = arguments(&access, Path::new("/k"), Path::new("/h"), &target);
        let end = words.iter().position(|word| word == "--").unwrap();
        assert_eq!(words[end..], ["--", "-oProxyCommand=x", "echo", "'a b'"]);
        assert!(words.contains(&"HostKeyAlias=u-1".to_owned()));
        assert!(words.contains(&"StrictHostKeyChecking=yes".to_owned()));
    }
}
