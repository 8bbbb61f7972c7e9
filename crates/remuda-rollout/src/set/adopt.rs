//! Which machines a set takes for its own.

use std::fmt;

/// What a machine that matches the selector is to the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adoption {
    /// The set is its controller already.
    Ours,
    /// Nobody controls it: the set becomes its controller.
    Adopt,
    /// Somebody else controls it.
    Foreign { controller: String },
    /// It is nobody's, but the set is going away and takes nothing with it.
    LeaveAlone,
}

impl fmt::Display for Adoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Adoption::Ours => f.write_str("ours"),
            Adoption::Adopt => f.write_str("adopt"),
            Adoption::Foreign { controller } => write!(f, "foreign: controlled by {controller}"),
            Adoption::LeaveAlone => f.write_str("leave alone: the MachineSet is deleting"),
        }
    }
}

/// Judges a machine by its controller: name and UID, if it has one.
///
/// Upstream also adopts on behalf of a set in deletion, and so deletes machines that were orphaned on
/// purpose a moment before.
pub fn adopt(set_uid: &str, set_deleting: bool, controller: Option<(&str, &str)>) -> Adoption {
    match controller {
        Some((_, uid)) if uid == set_uid => Adoption::Ours,
        Some((name, _)) => Adoption::Foreign { controller: name.to_owned() },
        None if set_deleting => Adoption::LeaveAlone,
        None => Adoption::Adopt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_machines_without_a_controller_are_adopted() {
        let told = |deleting, controller| adopt("me", deleting, controller).to_string();
        assert_eq!(told(false, None), "adopt");
        assert_eq!(told(false, Some(("set", "me"))), "ours");
        assert_eq!(told(true, Some(("set", "me"))), "ours");
        assert_eq!(told(false, Some(("other", "x"))), "foreign: controlled by other");
        assert_eq!(told(true, None), "leave alone: the MachineSet is deleting");
    }
}
