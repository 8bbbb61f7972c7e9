//! Watches: cursors into the event logs.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::task::coop;

use crate::{
    Error, Event, Revision, Scope, WatchEnd,
    bell::Listener,
    mvcc::{Collection, Found, Group, Mvcc, is_narrow},
};

/// A position in one scope's events.
///
/// A watch holds no queue: it reads the shared log from its position on, so a slow reader costs
/// nothing but the risk of falling out of the kept history.
pub struct Watch {
    cursor: Revision,
    listener: Listener,
    mvcc: Arc<Mvcc>,
    /// Absent for a scope of several collections.
    part: Option<(Arc<Collection>, Arc<Group>)>,
    scope: Scope,
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
        let part = match &scope {
            Scope::Prefix(prefix) if !is_narrow(prefix) => {
                mvcc.check_span(prefix, after)?;
                None
            }
            _ => Some(mvcc.join(&scope, after)?),
        };
        let bell = part.as_ref().map_or_else(|| mvcc.progress(), |(_, group)| group.bell());
        let listener = Listener::new(bell.clone());
        Ok(Self { cursor: after, listener, mvcc: mvcc.clone(), part, scope })
    }

    /// The next events, at least one, in order. Cancel safe.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchEnd> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Watch::next`]. Once this was pending, every event wakes the task, asked for again or not.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Arc<Event>>, WatchEnd>> {
        // Who never has to wait for events lets others have their turn all the same.
        let turn = ready!(coop::poll_proceed(context));
        // Before looking: what is published after the look wakes it.
        self.listener.listen(context);
        let Some(found) = self.look().transpose() else { return Poll::Pending };
        turn.made_progress();
        Poll::Ready(found)
    }

    /// The events `next` would return without waiting, possibly none.
    pub fn pending(&mut self) -> Result<Vec<Arc<Event>>, WatchEnd> {
        self.look().map(Option::unwrap_or_default)
    }

    /// Every event of the scope up to this revision has been returned by `next`.
    pub fn position(&self) -> Revision {
        let Some((_, group)) = &self.part else { return self.cursor };
        // Read first: an event up to here is known to its group before it is published.
        let published = self.mvcc.published();
        if group.is_pending(self.cursor) {
            return self.cursor;
        }
        published.max(self.cursor)
    }

    /// `None` if there is nothing yet.
    fn look(&mut self) -> Result<Option<Vec<Arc<Event>>>, WatchEnd> {
        loop {
            let closed = self.mvcc.is_closed();
            let published = self.mvcc.published();
            let Found { events, upto } = match (&self.part, &self.scope) {
                (Some((collection, group)), scope) => {
                    collection.look(scope, group, self.cursor, published)?
                }
                (None, Scope::Prefix(prefix) | Scope::Key(prefix)) => {
                    self.mvcc.span_events(prefix, self.cursor)?
                }
            };
            self.cursor = upto;
            if !events.is_empty() {
                return Ok(Some(events));
            }
            if upto >= published {
                return if closed { Err(WatchEnd::Closed) } else { Ok(None) };
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((collection, group)) = &self.part {
            collection.quit(group);
        }
    }
}
