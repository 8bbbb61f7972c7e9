//! What the host lets us do, and what to change where it does not.

use std::fs;

use nix::unistd::geteuid;

/// The settings that decide about namespaces.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) is_root: bool,
    pub(crate) max_user_namespaces: Option<u64>,
    pub(crate) unprivileged_userns_clone: Option<u64>,
    pub(crate) apparmor_restricts: Option<u64>,
    pub(crate) is_filtered: bool,
}

impl Facts {
    pub(crate) fn gather() -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            is_root: geteuid().is_root(),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            is_filtered: status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2')),
        }
    }

    /// Why namespaces cannot be made, and the fix. `problem` is what the kernel said.
    pub(crate) fn explain(&self, problem: &str) -> String {
        let why = if self.max_user_namespaces == Some(0) && self.is_root {
            "this host allows no user namespaces\n\
             hint: sysctl -w user.max_user_namespaces=15000, or --local-machines=privileged for machines that are \
             not kept apart from the host"
        } else if self.max_user_namespaces == Some(0) {
            "this host allows no user namespaces\n\
             hint: sudo sysctl -w user.max_user_namespaces=15000"
        } else if self.unprivileged_userns_clone == Some(0) && !self.is_root {
            "this host allows user namespaces to root only\n\
             hint: sudo sysctl -w kernel.unprivileged_userns_clone=1"
        } else if self.apparmor_restricts == Some(1) && !self.is_root {
            "AppArmor takes the rights of unprivileged user namespaces away\n\
             hint: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        } else if self.is_filtered {
            "a system call filter forbids namespaces, as in most containers\n\
             hint: run the container with --privileged, or with --security-opt seccomp=unconfined \
             --security-opt systempaths=unconfined"
        } else if self.is_root {
            "root here may not make namespaces, as in most containers\n\
             hint: run the container with --privileged"
        } else {
            "user namespaces do not work on this host\n\
             hint: run as root, or enable them in the kernel (CONFIG_USER_NS)"
        };
        let (why, hint) = why.split_once('\n').unwrap_or((why, ""));
        format!("local machines need Linux namespaces: {why} ({problem})\n{hint}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named_with_its_cure() {
        let facts = Facts { max_user_namespaces: Some(10), ..Facts::default() };
        for (facts, hint) in [
            (Facts { max_user_namespaces: Some(0), ..facts.clone() }, "user.max_user_namespaces=15000"),
            (Facts { unprivileged_userns_clone: Some(0), ..facts.clone() }, "unprivileged_userns_clone=1"),
            (Facts { apparmor_restricts: Some(1), ..facts.clone() }, "restrict_unprivileged_userns=0"),
            (Facts { is_filtered: true, ..facts.clone() }, "seccomp=unconfined"),
            (Facts { is_root: true, ..facts.clone() }, "--privileged"),
            (facts, "run as root"),
        ] {
            let text = facts.explain("EPERM");
            assert!(text.contains(hint) && text.contains("\nhint: ") && text.contains("(EPERM)"), "{text}");
        }
    }
}
