//! The front door of a server that has no Kubernetes API, for tests of what is behind other doors.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response, header, request::Parts};
use kube::Client;
use parking_lot::Mutex;
use remuda_auth::{
    attributes::Attributes,
    identity::{GROUP_MASTERS, User},
};
use remuda_door::{
    ANY_METHOD, Access, Api, AuditLine, Body, Caller, Cookie, Denied, Door, Frame, Management, Opening,
    Owned, Refusal, Shown,
};
use tokio_util::sync::CancellationToken;

/// A frame around some doors. Callers are who their bearer token says, as `name` or `name,group,group`.
pub struct Doors {
    pub frame: Frame<Nothing>,
    /// Lines of the audit log.
    pub told: Arc<Mutex<Vec<String>>>,
    /// Cancelled, everybody's credentials are revoked.
    pub revoked: CancellationToken,
}

impl Doors {
    pub fn new(openings: Vec<Opening>, client: Client) -> Arc<Self> {
        let (told, revoked) = <(Arc<Mutex<Vec<String>>>, CancellationToken)>::default();
        let management = ByName { client, revoked: revoked.clone(), told: told.clone() };
        let frame = Frame::new(Nothing, [&REST], openings, Arc::new(management));
        Arc::new(Self { frame, told, revoked })
    }

    pub async fn answer(
        &self,
        address: std::net::SocketAddr,
        request: Request<hyper::body::Incoming>,
    ) -> Response<Body> {
        let client = remuda_door::Client { address, certificate: false };
        self.frame.handle(client, request.map(Body::Incoming)).await
    }
}

static REST: Door = Door {
    name: "rest",
    purpose: "nothing",
    paths: &[Owned::Rest],
    methods: ANY_METHOD,
    access: Access::Api,
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: false,
};

/// No Kubernetes API.
pub struct Nothing;

impl Api for Nothing {
    async fn handle(&self, _: &'static Door, request: Request<Body>) -> Response<Body> {
        panic!("no door owns {}", request.uri());
    }
}

struct ByName {
    client: Client,
    revoked: CancellationToken,
    told: Arc<Mutex<Vec<String>>>,
}

impl Management for ByName {
    fn authenticate<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<Caller, Denied>> {
        let bearer = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("system:anonymous");
        let mut names = bearer.split(',').map(str::to_owned);
        let name = names.next().unwrap_or_default();
        let mut groups: Vec<String> = names.collect();
        groups.push("system:authenticated".to_owned());
        let caller = Caller { name, groups, revoked: Some(self.revoked.clone()), ..Caller::default() };
        Box::pin(std::future::ready(Ok(caller)))
    }

    /// Masters may everything, and nobody else anything.
    fn authorize<'a>(&'a self, user: &'a User, _: Attributes<'a>) -> BoxFuture<'a, Result<(), Refusal>> {
        let is_master = user.groups.iter().any(|group| group == GROUP_MASTERS);
        let decided = if is_master { Ok(()) } else { Err(Refusal::forbidden("there are no rights here")) };
        Box::pin(std::future::ready(decided))
    }

    fn client(&self, _: &Caller) -> Client {
        self.client.clone()
    }

    fn audit(&self, line: &AuditLine<'_>) {
        let AuditLine { user, as_user, method, uri, code, .. } = line;
        let as_user = as_user.map(|user| format!(" as {}", user.name)).unwrap_or_default();
        self.told.lock().push(format!("{}{as_user}: {method} {uri} {code}", user.name));
    }
}
