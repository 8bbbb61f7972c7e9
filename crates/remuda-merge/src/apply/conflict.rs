//! What stands against an applied configuration.

use std::fmt::{self, Write as _};

use crate::{fields::Set, fields::path_text, managed::Identity};

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409: fields that others own would change.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The configuration does not have the type of the object.
    #[error("{0}")]
    Typed(String),
    /// 400: the request makes no sense.
    #[error("{0}")]
    BadRequest(String),
}

/// A field that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `"name" with subresource "status" using v1`.
    pub manager: String,
    /// `.spec.ports[name="a"].port`.
    pub field: String,
}

/// All conflicts of an apply, grouped by manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

/// One entry of the answer's `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

impl Conflicts {
    /// The message of the answer.
    pub fn message(&self) -> String {
        if let [conflict] = self.0.as_slice() {
            return format!(
                "Apply failed with 1 conflict: conflict with {}: {}",
                conflict.manager, conflict.field
            );
        }
        let mut text = format!("Apply failed with {} conflicts:", self.0.len());
        let mut separator = ' ';
        for group in self.0.chunk_by(|left, right| left.manager == right.manager) {
            let _ = write!(text, "{separator}conflicts with {}:", group[0].manager);
            separator = '\n';
            for conflict in group {
                let _ = write!(text, "\n- {}", conflict.field);
            }
        }
        text
    }

    /// The causes of the answer.
    pub fn causes(&self) -> Vec<Cause> {
        let cause = |conflict: &Conflict| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {}", conflict.manager),
            field: conflict.field.clone(),
        };
        self.0.iter().map(cause).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

/// Conflicts of one manager, before they are put into words.
pub(super) struct Contested<'a> {
    pub(super) owner: Identity<'a>,
    pub(super) fields: Set<'a>,
}

pub(super) fn report(mut contested: Vec<Contested<'_>>) -> Conflicts {
    contested.sort_by(|left, right| left.owner.order(&right.owner));
    let mut conflicts = Vec::new();
    for Contested { owner, fields } in contested {
        let manager = owner.text();
        for path in fields.paths() {
            conflicts.push(Conflict { manager: manager.clone(), field: path_text(&path) });
        }
    }
    Conflicts(conflicts)
}
