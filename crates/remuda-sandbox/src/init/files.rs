//! Where unit files are, and which of them start with the machine.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use crate::unit::Unit;

/// Earlier ones win. The last is the host's, which is there to be looked up, not to be started.
const DIRECTORIES: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
const OWN: &str = "/etc/systemd/system";
/// Units wanted by these start with the machine.
const BOOT: &[&str] =
    &["multi-user.target", "default.target", "graphical.target", "basic.target", "sysinit.target"];

/// `k3s` is `k3s.service`.
pub(crate) fn full_name(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    let known = [".service", ".target", ".socket", ".timer", ".mount", ".path", ".slice"];
    if known.iter().any(|suffix| name.ends_with(suffix)) {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

/// A name that stays in its directory.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.@\\".contains(&byte);
    !name.is_empty() && name.len() < 256 && name.bytes().all(plain) && !name.starts_with('.')
}

/// The file of a unit, or of the template it is an instance of.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    if !is_name(name) {
        return None;
    }
    let template = name
        .split_once('@')
        .and_then(|(prefix, rest)| rest.rsplit_once('.').map(|(_, suffix)| format!("{prefix}@.{suffix}")));
    let names = std::iter::once(name.to_owned()).chain(template);
    names
        .flat_map(|name| DIRECTORIES.iter().map(move |dir| Path::new(dir).join(&name)))
        .find(|path| fs::symlink_metadata(path).is_ok())
}

pub(crate) fn is_masked(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|target| target == Path::new("/dev/null"))
}

/// The unit as its files are now.
pub(crate) fn load(name: &str) -> Option<Unit> {
    let path = find(name)?;
    let mut texts = vec![fs::read_to_string(&path).ok()?];
    let mut extra: Vec<PathBuf> = Vec::new();
    for dir in DIRECTORIES {
        let entries = fs::read_dir(Path::new(dir).join(format!("{name}.d"))).into_iter().flatten().flatten();
        extra.extend(
            entries.map(|entry| entry.path()).filter(|path| path.extension() == Some("conf".as_ref())),
        );
    }
    extra.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    texts.extend(extra.iter().filter_map(|path| fs::read_to_string(path).ok()));
    Some(Unit::parse(name, path, &texts))
}

/// The links that enabling a unit makes.
fn links(unit: &Unit) -> Vec<PathBuf> {
    let own = Path::new(OWN);
    let fine = |name: &&String| is_name(name);
    let list = |target: &String, kind: &str| own.join(format!("{target}.{kind}")).join(&unit.name);
    let wanted = unit.wanted_by.iter().filter(fine).map(|target| list(target, "wants"));
    let required = unit.required_by.iter().filter(fine).map(|target| list(target, "requires"));
    let aliases = unit.aliases.iter().filter(fine).map(|alias| own.join(alias));
    wanted.chain(required).chain(aliases).collect()
}

/// Returns what it did, in systemctl's words.
pub(crate) fn enable(unit: &Unit) -> Result<String, String> {
    let links = links(unit);
    let mut out = String::new();
    for link in &links {
        if fs::read_link(link).is_ok_and(|target| target == unit.path) {
            continue;
        }
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        }
        let _ = fs::remove_file(link);
        symlink(&unit.path, link).map_err(|error| format!("{}: {error}", link.display()))?;
        out.push_str(&format!("Created symlink {} → {}.\n", link.display(), unit.path.display()));
    }
    Ok(out)
}

/// Takes every link to the unit away, also those its file no longer asks for.
pub(crate) fn disable(name: &str) -> String {
    let mut out = String::new();
    let mut remove = |link: PathBuf| {
        if fs::remove_file(&link).is_ok() {
            out.push_str(&format!("Removed \"{}\".\n", link.display()));
        }
    };
    for entry in fs::read_dir(OWN).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_list = path.extension().is_some_and(|kind| kind == "wants" || kind == "requires");
        if is_list && fs::symlink_metadata(path.join(name)).is_ok() {
            remove(path.join(name));
        }
    }
    if let Some(unit) = load(name) {
        for alias in unit.aliases.iter().filter(|alias| is_name(alias)) {
            let link = Path::new(OWN).join(alias);
            if link.is_symlink() {
                remove(link);
            }
        }
    }
    out
}

/// `enabled`, `disabled`, `static`, `masked`; `None` if there is no such unit.
pub(crate) fn state(name: &str) -> Option<&'static str> {
    let path = find(name)?;
    if is_masked(&path) {
        return Some("masked");
    }
    let unit = load(name)?;
    let linked = fs::read_dir(OWN).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let is_list = path.extension().is_some_and(|kind| kind == "wants" || kind == "requires");
        is_list && fs::symlink_metadata(path.join(name)).is_ok()
    });
    Some(match (linked, links(&unit).is_empty()) {
        (true, _) => "enabled",
        (false, true) => "static",
        (false, false) => "disabled",
    })
}

/// The services that start with the machine, those that others wait for first.
pub(crate) fn boot_order() -> Vec<String> {
    let mut names = Vec::new();
    for target in BOOT {
        for kind in ["wants", "requires"] {
            let dir = Path::new(OWN).join(format!("{target}.{kind}"));
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            names.extend(entries.filter_map(|entry| entry.file_name().into_string().ok()));
        }
    }
    names.retain(|name| name.ends_with(".service") && is_name(name));
    names.sort_unstable();
    names.dedup();
    let units: Vec<Unit> = names.iter().filter_map(|name| load(name)).collect();
    order(&units)
}

/// Sorts by `After` and `Before`; a circle is broken by name.
fn order(units: &[Unit]) -> Vec<String> {
    let mut left: Vec<&Unit> = units.iter().collect();
    let mut out = Vec::new();
    while !left.is_empty() {
        let waits = |unit: &Unit| {
            left.iter().any(|other| {
                other.name != unit.name
                    && (unit.after.contains(&other.name) || other.before.contains(&unit.name))
            })
        };
        let next = left.iter().position(|unit| !waits(unit)).unwrap_or(0);
        out.push(left.remove(next).name.clone());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, body: &str) -> Unit {
        Unit::parse(name, PathBuf::new(), &[format!("[Unit]\n{body}\n")])
    }

    #[test]
    fn names_are_completed_and_kept_in_their_directory() {
        assert_eq!(full_name("k3s"), "k3s.service");
        assert_eq!(full_name("a.target"), "a.target");
        assert_eq!(full_name("/etc/systemd/system/x.service"), "x.service");
        assert!(is_name("k3s-agent@1.service"));
        for bad in ["", "../x", "a/b", ".x", "a b"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn services_start_after_those_they_wait_for() {
        let units = [
            unit("a.service", "After=c.service"),
            unit("b.service", "After=gone.service"),
            unit("c.service", "Before=b.service"),
        ];
        assert_eq!(order(&units), ["c.service", "a.service", "b.service"]);
        let circle = [unit("x.service", "After=y.service"), unit("y.service", "After=x.service")];
        assert_eq!(order(&circle).len(), 2);
    }
}
