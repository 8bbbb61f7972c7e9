//! What summaries and aggregates have in common: classes, order and indentation.

use super::{Condition, Status};

/// What a condition means to the condition it is merged into. Earlier is more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Issue,
    Unknown,
    Info,
}

/// The class of a condition whose normal status is True, or False if it is one of `negative`.
pub fn class_of(condition: &Condition, negative: &[&str]) -> Class {
    let negative = negative.contains(&condition.kind.as_str());
    match condition.status {
        Status::Unknown => Class::Unknown,
        Status::True if negative => Class::Issue,
        Status::False if !negative => Class::Issue,
        Status::True | Status::False => Class::Info,
    }
}

/// The object a condition comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub kind: String,
    pub name: String,
    pub control_plane: bool,
}

/// The reason of a merged condition, by its most urgent class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reasons {
    pub issue: &'static str,
    pub unknown: &'static str,
    pub info: &'static str,
}

impl Default for Reasons {
    fn default() -> Self {
        Reasons { issue: "IssuesReported", unknown: "UnknownReported", info: "InfoReported" }
    }
}

impl Reasons {
    pub(super) fn of(self, worst: Class) -> &'static str {
        match worst {
            Class::Issue => self.issue,
            Class::Unknown => self.unknown,
            Class::Info => self.info,
        }
    }
}

/// The status of a merged condition, by its most urgent class.
pub(super) fn status_of(worst: Class, positive: bool) -> Status {
    match worst {
        Class::Unknown => Status::Unknown,
        Class::Issue => Status::from(!positive),
        Class::Info => Status::from(positive),
    }
}

/// A message as the continuation of a line: behind a blank, or as indented lines of its own.
pub(super) fn continued(message: &str) -> String {
    if !message.contains('\n') && !has_bullet(message) {
        return format!(" {message}");
    }
    let all_bullets = message.split('\n').all(has_bullet);
    let mut text = String::new();
    for line in message.split('\n') {
        text.push_str(match (all_bullets, has_bullet(line)) {
            (true, _) => "\n  ",
            (false, true) => "\n    ",
            (false, false) => "\n  * ",
        });
        text.push_str(line);
    }
    text
}

/// An asterisk with white space behind it, wherever it stands: upstream's pattern is not anchored.
fn has_bullet(line: &str) -> bool {
    line.as_bytes().windows(2).any(|pair| pair[0] == b'*' && pair[1].is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_messages_stay_on_their_line() {
        assert_eq!(continued("waiting"), " waiting");
        assert_eq!(continued(""), " ");
    }

    #[test]
    fn bullets_are_indented_below() {
        assert_eq!(continued("* a: x\n* b: y"), "\n  * a: x\n  * b: y");
        assert_eq!(continued("* a: x"), "\n  * a: x");
    }

    #[test]
    fn lines_without_a_bullet_get_one() {
        assert_eq!(continued("Drain:\n* Pod x"), "\n  * Drain:\n    * Pod x");
        assert_eq!(continued("one\ntwo"), "\n  * one\n  * two");
    }
}
