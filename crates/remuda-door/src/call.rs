//! A request that was let in, and what its handler may use.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use http::{Response, request::Parts};
use kube::Client;
use remuda_auth::{attributes::Attributes, audit::AuditLine, identity::User};
use tokio_util::sync::CancellationToken;

use crate::{body::Body, door::Door, refusal::Refusal};

/// Who has shown who they are; `system:anonymous` at doors that do not ask.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
    /// Who really asks, if they act as another user.
    pub by: Option<String>,
    /// Cancelled when the credentials are no longer good: what is under way ends then.
    pub revoked: Option<CancellationToken>,
}

impl Caller {
    pub fn of(user: &User) -> Self {
        Self {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            by: None,
            revoked: None,
        }
    }

    pub fn anonymous() -> Self {
        Self::of(&User::anonymous())
    }

    /// As authorization knows them.
    pub fn user(&self) -> User {
        let mut user = User::new(self.name.clone(), self.groups.iter().cloned());
        user.uid.clone_from(&self.uid);
        user.extra.clone_from(&self.extra);
        user
    }

    pub fn is_anonymous(&self) -> bool {
        self.name.is_empty() || self.name == remuda_auth::identity::ANONYMOUS
    }
}

/// A caller whose credentials are not good, or who may not impersonate whom they ask to.
#[derive(Debug)]
pub struct Denied {
    /// As far as it is known who it was.
    pub user: Option<User>,
    pub refusal: Refusal,
}

/// What doors know of the management API.
pub trait Management: Send + Sync + 'static {
    /// Finds out who sent a request, from its headers and from what the listener put into its extensions. Headers
    /// that ask for impersonation are honoured here, by the rules of the management API.
    fn authenticate<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<Caller, Denied>>;

    /// Whether a user may do something. An `Err` says why not.
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: Attributes<'a>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// A client of the management API that acts as this caller, with their rights and no others.
    fn client(&self, caller: &Caller) -> Client;

    /// Writes a line of the audit log.
    fn audit(&self, line: &AuditLine<'_>);
}

/// Tells the audit log who a request was made by or as whom, where only its handler knows: put into the extensions
/// of the answer.
#[derive(Debug, Clone, Default)]
pub struct Acted {
    pub by: Option<User>,
    pub as_user: Option<User>,
}

/// A request whose caller may make it.
pub struct Call {
    pub door: &'static Door,
    pub peer: SocketAddr,
    pub caller: Caller,
    pub management: Arc<dyn Management>,
    pub head: Parts,
}

pub type Answer = Result<Response<Body>, Refusal>;

/// Answers requests of a door.
pub trait Handler: Send + Sync + 'static {
    /// `body` ends with an error where the door's limit is.
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer>;

    /// The answer to a request that is refused, by the frame or by this handler, in the form its clients know.
    fn refused(&self, refusal: Refusal) -> Response<Body> {
        refusal.response()
    }
}

/// A door with what is behind it.
#[derive(Clone)]
pub struct Opening {
    pub door: &'static Door,
    pub handler: Arc<dyn Handler>,
}

impl Call {
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// A parameter of the query, decoded.
    pub fn query(&self, name: &str) -> Option<String> {
        let query = self.head.uri.query()?;
        remuda_auth::request_info::parameter(query, name).map(std::borrow::Cow::into_owned)
    }

    /// `?action=…`; empty without one.
    pub fn action(&self) -> String {
        self.query("action").unwrap_or_default()
    }

    /// Whether the caller may do something.
    pub async fn may(&self, attributes: Attributes<'_>) -> bool {
        self.management.authorize(&self.caller.user(), attributes).await.is_ok()
    }
}
