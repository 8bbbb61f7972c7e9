//! Watches: cursors into the event logs.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{
    Error, Event, Revision, Scope, WatchEnd,
    mvcc::{Collection, Found, GroupName, Mvcc, is_narrow},
};

/// A position in one scope's events.
///
/// A watch holds no queue: it reads the shared log from its position on, so a slow reader costs
/// nothing but the risk of falling out of the kept history.
pub struct Watch {
    mvcc: Arc<Mvcc>,
    scope: Scope,
    cursor: Revision,
    /// Absent for a scope of several collections.
    group: Option<Group>,
}

struct Group {
    collection: Arc<Collection>,
    name: GroupName,
    wake: Arc<Notify>,
}

impl Watch {
    pub(crate) fn new(mvcc: &Arc<Mvcc>, scope: Scope, after: Revision) -> Result<Self, Error> {
        if mvcc.is_closed() {
            return Err(Error::Closed);
        }
        let current = mvcc.published();
        if after > current {
            return Err(Error::Future { requested: after, current });
        }
        let group = match &scope {
            Scope::Prefix(prefix) if !is_narrow(prefix) => {
                mvcc.check_span(prefix, after)?;
                None
            }
            _ => {
                let (collection, name, wake) = mvcc.join(&scope, after)?;
                Some(Group { collection, name, wake })
            }
        };
        Ok(Self { mvcc: mvcc.clone(), scope, cursor: after, group })
    }

    /// The next events, at least one, in order. Cancel safe.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchEnd> {
        loop {
            // Asked for before looking: what is published after the look wakes it.
            let woken = match &self.group {
                Some(group) => group.wake.clone().notified_owned(),
                None => {
                    let mvcc = self.mvcc.clone();
                    let progress = mvcc.progress().notified();
                    if let Some(events) = look(&self.mvcc, &self.scope, None, &mut self.cursor)? {
                        return Ok(events);
                    }
                    progress.await;
                    continue;
                }
            };
            if let Some(events) = look(&self.mvcc, &self.scope, self.group.as_ref(), &mut self.cursor)? {
                return Ok(events);
            }
            woken.await;
        }
    }

    /// The events `next` would return without waiting, possibly none.
    pub fn pending(&mut self) -> Result<Vec<Arc<Event>>, WatchEnd> {
        look(&self.mvcc, &self.scope, self.group.as_ref(), &mut self.cursor).map(Option::unwrap_or_default)
    }

    /// Every event of the scope up to this revision has been returned by `next`.
    pub fn position(&self) -> Revision {
        let Some(group) = &self.group else { return self.cursor };
        // Read first: an event up to here is known to its group before it is published.
        let published = self.mvcc.published();
        if group.collection.is_pending(&group.name, self.cursor) {
            return self.cursor;
        }
        published.max(self.cursor)
    }
}

/// `None` if there is nothing yet.
fn look(
    mvcc: &Mvcc,
    scope: &Scope,
    group: Option<&Group>,
    cursor: &mut Revision,
) -> Result<Option<Vec<Arc<Event>>>, WatchEnd> {
    loop {
        let closed = mvcc.is_closed();
        let published = mvcc.published();
        let Found { events, upto } = match (group, scope) {
            (Some(group), _) => group.collection.look(scope, &group.name, *cursor, published)?,
            (None, Scope::Prefix(prefix) | Scope::Key(prefix)) => mvcc.span_events(prefix, *cursor)?,
        };
        *cursor = upto;
        if !events.is_empty() {
            return Ok(Some(events));
        }
        if upto >= published {
            return if closed { Err(WatchEnd::Closed) } else { Ok(None) };
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.collection.quit(&group.name);
        }
    }
}
