//! What core conditions say about the object of a provider.

use crate::condition::{Condition, Fallback, NO_REASON_REPORTED, Status, mirror, sanitize};

/// A provider's object, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// It exists. Its condition of interest, if it reports one, or what is wrong with its conditions.
    Found(Result<Option<Condition>, String>),
    /// It positively does not exist.
    NotFound,
    /// Reading it failed, for this reason; that is not the same as not being there.
    Failed(String),
}

/// The object and what core remembers about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider<'a> {
    pub kind: &'a str,
    pub reading: Reading,
    /// The sticky flag in the core object's status: it was provisioned or initialized once.
    pub initialized: bool,
}

/// How a core object mirrors a provider's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mirror {
    /// Type at the source and at the target.
    pub(crate) source: &'static str,
    pub(crate) target: &'static str,
    pub(crate) good: &'static str,
    pub(crate) bad: &'static str,
    /// The contract field that stands in for a missing condition.
    pub(crate) field: &'static str,
    /// Who still exists after the object was deleted; `None` if that is not told.
    pub(crate) survivor: Option<&'static str>,
}

impl Mirror {
    pub(crate) fn condition(&self, provider: &Provider<'_>, deleting: bool) -> Condition {
        let Provider { kind, reading, initialized } = provider;
        match reading {
            Reading::Failed(why) => unreadable(self.target, why),
            Reading::Found(Err(problem)) => {
                Condition::new(self.target, Status::Unknown, "InvalidConditionReported", problem.clone())
            }
            Reading::Found(Ok(condition)) => {
                let (reason, message) = if *initialized {
                    (self.good, String::new())
                } else {
                    (self.bad, format!("{kind} {} is false", self.field))
                };
                let fallback = Fallback { status: Status::from(*initialized), reason, message };
                let mirrored = mirror(condition.as_ref(), self.source, self.target, Some(fallback));
                let mut mirrored = sanitize(mirrored);
                if mirrored.reason == NO_REASON_REPORTED && mirrored.status == Status::True {
                    mirrored.reason = self.good.to_owned();
                }
                mirrored
            }
            Reading::NotFound => self.missing(kind, *initialized, deleting),
        }
    }

    fn missing(&self, kind: &str, initialized: bool, deleting: bool) -> Condition {
        let deleted = |message| Condition::new(self.target, Status::False, "ObjectDeleted", message);
        match self.survivor {
            _ if initialized && deleting => deleted(format!("{kind} has been deleted")),
            Some(survivor) if initialized => {
                deleted(format!("{kind} has been deleted while the {survivor} still exists"))
            }
            _ => {
                let message = format!("{kind} does not exist");
                Condition::new(self.target, Status::False, "ObjectDoesNotExist", message)
            }
        }
    }
}

/// What is said of an object that could not be read. Upstream only points at its log.
pub(crate) fn unreadable(target: &str, why: &str) -> Condition {
    sanitize(Condition { message: why.to_owned(), ..Condition::internal_error(target) })
}
