//! Tokens somebody else keeps: the server asks them who a bearer is.

use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture};
use remuda_auth::identity::User;
use tokio_util::sync::CancellationToken;

use crate::{
    body::Body,
    call::{Answer, Content},
};

/// What is known of a bearer token.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// It is none of theirs; others may know it.
    Foreign,
    /// It is one of theirs, and not good.
    Refused,
    /// Whether it is good cannot be told yet.
    NotReady,
    Known(Bearer),
}

/// Somebody with a good token.
#[derive(Debug, Clone)]
pub struct Bearer {
    pub user: Arc<User>,
    /// Cancelled when the token is no longer good: streams it was used for end then.
    pub revoked: CancellationToken,
}

/// Keeps tokens. Asked on every request with one: must not wait.
pub trait Tokens: Send + Sync {
    fn authenticate(&self, token: &str) -> Verdict;
}

/// Knows tokens nobody here does, and takes a while to say so. Asked after everybody else.
pub trait Remote: Send + Sync {
    /// Who a token stands for; nobody if it is not good, or if that cannot be found out.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Option<Arc<User>>>;
}

/// Who sent a request.
pub(crate) struct Caller {
    pub(crate) user: Arc<User>,
    pub(crate) revoked: Option<CancellationToken>,
}

impl From<Arc<User>> for Caller {
    fn from(user: Arc<User>) -> Self {
        Self { user, revoked: None }
    }
}

/// Ends a stream with the credentials it was asked for with.
pub(crate) fn until(mut answer: Answer, revoked: Option<&CancellationToken>) -> Answer {
    if let (Content::Body(Body::Stream(events)), Some(revoked)) = (&mut answer.content, revoked) {
        let inner = std::mem::replace(events, futures::stream::empty().boxed());
        *events = inner.take_until(revoked.clone().cancelled_owned()).boxed();
    }
    answer
}
