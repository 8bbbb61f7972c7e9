//! What may be done to an etcd member without giving up the quorum.
//!
//! etcd works while more than half of its members are up. Two things the product does take members away:
//! a plan that restarts the distribution takes one down for a while, and the removal of a machine takes
//! one out for good. Both ask here first; both see the members as the plan secrets describe them, so a
//! member that somebody is already restarting or removing counts as down.

use std::{collections::BTreeMap, fmt};

use crate::{entry::Entry, input::Machine};

/// How many of `members` must be up.
pub fn needed(members: usize) -> usize {
    members / 2 + 1
}

/// The members of a cluster, by machine, and whether each is known to be running: its plan is applied, its
/// probes pass, nothing says its node is unwell, and it is not on its way out.
///
/// A machine is a member from the moment its agent reports a plan as applied until the machine is gone. A
/// joining machine before that moment is either no voter yet, or one that etcd has just seen in step and
/// promoted; either way it takes nothing from the quorum of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    members: BTreeMap<String, bool>,
    up: usize,
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub members: usize,
    /// Members up at present.
    pub up: usize,
    /// Members that would be left up, of [`Refusal::members_after`].
    pub up_after: usize,
    pub members_after: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { members, up, up_after, members_after } = *self;
        let needed = needed(members_after);
        if members_after == 0 {
            return write!(f, "it is the last etcd member");
        }
        write!(f, "{up} of {members} etcd members are up; ")?;
        write!(f, "{up_after} of {members_after} would be left and {needed} are needed")
    }
}

impl Members {
    /// Members among `machines`.
    pub fn of(machines: &[Machine]) -> Members {
        machines.iter().map(Entry::new).filter_map(|entry| member(&entry)).collect()
    }

    pub(crate) fn of_entries(entries: &[Entry<'_>]) -> Members {
        entries.iter().filter_map(member).collect()
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Members known to be running.
    pub fn up(&self) -> usize {
        self.up
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// A member that is not known to be running.
    pub(crate) fn is_down(&self, machine: &str) -> bool {
        self.members.get(machine) == Some(&false)
    }

    /// From now on `machine` is not relied upon.
    pub(crate) fn take_down(&mut self, machine: &str) {
        if let Some(up) = self.members.get_mut(machine).filter(|up| **up) {
            *up = false;
            self.up -= 1;
        }
    }

    /// Whether `machine` may be restarted.
    ///
    /// The others must be a quorum. A member that is not up loses nothing: the restart may be its cure. One
    /// or two members can never spare one, so they may be restarted while all others are up; that costs a
    /// moment of the API and no data.
    pub fn may_restart(&self, machine: &str) -> Result<(), Refusal> {
        let Some(is_up) = self.members.get(machine).copied() else { return Ok(()) };
        let members = self.len();
        let others = self.up - usize::from(is_up);
        let spared = others >= needed(members) || !is_up || (members <= 2 && others + 1 == members);
        if spared {
            return Ok(());
        }
        Err(Refusal { members, up: others + 1, up_after: others, members_after: members })
    }

    /// Whether the member on `machine` may be removed from etcd and its server destroyed.
    ///
    /// There must be a quorum now, or etcd cannot agree on the removal, and one afterwards.
    pub fn may_remove(&self, machine: &str) -> Result<(), Refusal> {
        let Some(is_up) = self.members.get(machine).copied() else { return Ok(()) };
        let members = self.len();
        let others = self.up - usize::from(is_up);
        let up = self.up;
        let after = members - 1;
        if after > 0 && others >= needed(after) && up >= needed(members) {
            return Ok(());
        }
        Err(Refusal { members, up, up_after: others, members_after: after })
    }

    /// Whether the server of `machine` may vanish while etcd still counts its member.
    pub fn may_vanish(&self, machine: &str) -> Result<(), Refusal> {
        let Some(is_up) = self.members.get(machine).copied() else { return Ok(()) };
        let members = self.len();
        let others = self.up - usize::from(is_up);
        if others >= needed(members) {
            return Ok(());
        }
        Err(Refusal { members, up: self.up, up_after: others, members_after: members })
    }
}

/// Machines that are members, and whether they are up.
impl FromIterator<(String, bool)> for Members {
    fn from_iter<I: IntoIterator<Item = (String, bool)>>(members: I) -> Members {
        let members: BTreeMap<String, bool> = members.into_iter().collect();
        let up = members.values().filter(|up| **up).count();
        Members { members, up }
    }
}

fn member(entry: &Entry<'_>) -> Option<(String, bool)> {
    let node = entry.node.as_ref().filter(|node| entry.roles.etcd && node.has_applied())?;
    let leaving = !entry.annotation(remuda_names::annotation::ETCD_LEAVING).is_empty();
    let up = node.in_sync && node.healthy() && entry.machine.node_healthy != Some(false) && !leaving;
    Some((entry.machine.name.clone(), up))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: usize, up: u32) -> Members {
        (0..count).map(|at| (at_name(at), up >> at & 1 == 1)).collect()
    }

    fn at_name(at: usize) -> String {
        format!("m{at}")
    }

    /// Every cluster of up to seven members, every combination of members up, every target.
    fn every(mut check: impl FnMut(&Members, usize, usize, bool)) {
        for count in 1..=7 {
            for up in 0..1_u32 << count {
                let members = members(count, up);
                for target in 0..count {
                    check(&members, target, up.count_ones() as usize, up >> target & 1 == 1);
                }
            }
        }
    }

    #[test]
    fn a_permitted_restart_never_costs_a_quorum_that_could_be_kept() {
        every(|members, target, up, target_up| {
            let count = members.len();
            let had_quorum = up >= needed(count);
            let left = up - usize::from(target_up);
            match members.may_restart(&at_name(target)) {
                Ok(()) if count >= 3 => assert!(!had_quorum || left >= needed(count), "{members:?} {target}"),
                Ok(()) => assert!(!target_up || left == count - 1, "{members:?} {target}"),
                Err(refusal) => {
                    assert!(target_up, "a member that is down must never wait: {members:?} {target}");
                    assert!(left < needed(count) && refusal.up == up && refusal.up_after == left);
                }
            }
        });
    }

    #[test]
    fn a_permitted_removal_always_leaves_a_quorum() {
        every(|members, target, up, target_up| {
            let after = members.len() - 1;
            let left = up - usize::from(target_up);
            match members.may_remove(&at_name(target)) {
                Ok(()) => assert!(after >= 1 && left >= needed(after), "{members:?} {target}"),
                Err(_) => assert!(
                    after == 0 || left < needed(after) || up < needed(after + 1),
                    "refused without need: {members:?} {target}"
                ),
            }
        });
    }

    #[test]
    fn a_server_may_vanish_only_if_the_others_outvote_it() {
        every(|members, target, up, target_up| {
            let left = up - usize::from(target_up);
            let permitted = members.may_vanish(&at_name(target)).is_ok();
            assert_eq!(permitted, left >= needed(members.len()));
        });
    }

    #[test]
    fn no_sequence_of_permitted_restarts_and_removals_gives_up_the_quorum() {
        // Depth first over everything that may happen without anything failing or recovering by itself.
        fn go(members: &Members, seen: &mut std::collections::BTreeSet<Vec<bool>>) {
            let key: Vec<bool> = members.members.values().copied().collect();
            if !seen.insert(key) {
                return;
            }
            assert!(members.len() < 3 || members.up() >= needed(members.len()), "{members:?}");
            for name in members.names() {
                if members.may_restart(name).is_ok() {
                    let mut next = members.clone();
                    next.take_down(name);
                    go(&next, seen);
                }
                if members.may_remove(name).is_ok() {
                    let rest = members.members.iter().filter(|(other, _)| *other != name);
                    go(&rest.map(|(name, up)| (name.clone(), *up)).collect(), seen);
                }
            }
        }
        for count in 1..=7 {
            go(&members(count, u32::MAX), &mut std::collections::BTreeSet::new());
        }
    }

    #[test]
    fn refusals_say_what_is_missing() {
        let refused = members(3, 0b011).may_restart("m0").unwrap_err();
        assert_eq!(refused.to_string(), "2 of 3 etcd members are up; 1 of 3 would be left and 2 are needed");
        assert_eq!(members(1, 1).may_remove("m0").unwrap_err().to_string(), "it is the last etcd member");
        let refused = members(2, 0b10).may_remove("m0").unwrap_err();
        assert_eq!(refused.to_string(), "1 of 2 etcd members are up; 1 of 1 would be left and 1 are needed");
    }
}
