//! Revisions: the number a set's template has among those of its deployment.

use super::Set;

pub(super) struct Revisions {
    pub(super) revision: String,
    pub(super) history: Option<String>,
}

/// The revision of the current set: one more than any old set's, and never less than it had.
///
/// A set that becomes current again remembers the revisions it was before. A revision that is no number
/// counts as none; upstream gives up on such a set, which wedges its deployment.
pub(super) fn next(current: Option<&Set>, old: &[&Set]) -> Revisions {
    let number = |set: &Set| set.annotations.revision.as_deref().and_then(|text| text.parse::<i64>().ok());
    let highest = old.iter().filter_map(|set| number(set)).max().unwrap_or(0).max(0);
    let mut revision = highest.saturating_add(1);
    let Some(current) = current else {
        return Revisions { revision: revision.to_string(), history: None };
    };
    let mut history = current.annotations.revision_history.clone();
    if let Some(before) = number(current) {
        revision = revision.max(before);
        if revision != before {
            history = Some(match history.filter(|history| !history.is_empty()) {
                Some(history) => format!("{history},{before}"),
                None => before.to_string(),
            });
        }
    }
    Revisions { revision: revision.to_string(), history }
}
