//! Users of the host that no other process has, for processes that are not trusted with root's.

use std::fs;

use nix::unistd::geteuid;

/// The first user of driver programs. Those below, from 1879048192 on, belong to machines.
pub const FIRST_OF_PROGRAMS: u32 = 0x7fc0_0000;
/// No system has larger process ids.
const PIDS: u32 = 1 << 22;

/// The user that the programs of a driver run as, by the id of the process that is their job: no two jobs that run
/// have the same.
pub fn of_programs(job: u32) -> u32 {
    FIRST_OF_PROGRAMS + job % PIDS
}

/// Whether we are root of the host itself. Who is root of a namespace only, as in an unprivileged container, has no
/// users to give, and is another user outside already.
pub fn is_host_root() -> bool {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    geteuid().is_root() && users.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_programs_are_none_that_a_system_uses() {
        for job in [0, 1, PIDS - 1, PIDS, u32::MAX] {
            let user = of_programs(job);
            assert!((FIRST_OF_PROGRAMS..0x8000_0000).contains(&user), "{user}");
        }
        assert_ne!(of_programs(7), of_programs(8));
    }
}
