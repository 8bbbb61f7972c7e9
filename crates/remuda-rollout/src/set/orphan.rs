//! Provider objects that were made for a machine that never came to be.

use std::collections::BTreeSet;

/// An infrastructure or bootstrap object that matches a set's selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    /// The set still owns it; once a Machine exists the Machine takes over.
    pub owned_by_set: bool,
    pub deleting: bool,
}

/// Names of those no machine refers to. They are left from a crash between their creation and the machine's.
pub fn orphans<'a>(candidates: &'a [Candidate], referenced: &BTreeSet<String>) -> Vec<&'a str> {
    candidates
        .iter()
        .filter(|candidate| {
            candidate.owned_by_set && !candidate.deleting && !referenced.contains(&candidate.name)
        })
        .map(|candidate| candidate.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_refers_to_goes() {
        let candidate =
            |name: &str, owned_by_set, deleting| Candidate { name: name.into(), owned_by_set, deleting };
        let all = [
            candidate("used", true, false),
            candidate("lost", true, false),
            candidate("going", true, true),
            candidate("taken", false, false),
        ];
        assert_eq!(orphans(&all, &BTreeSet::from(["used".to_owned()])), ["lost"]);
    }
}
