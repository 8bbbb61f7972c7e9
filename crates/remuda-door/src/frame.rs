//! The frame: the duties that are done for every request, whichever door it comes to.

use std::{future::Future, net::SocketAddr, panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use http::{Request, Response, StatusCode, header, request::Parts};
use remuda_auth::{
    attributes::Attributes,
    audit::AuditLine,
    identity::User,
    request_info::{method_verb, parameter},
};

use crate::{
    body::Body,
    browser,
    call::{Acted, Call, Caller, Handler, Management, Opening},
    door::{Access, Door, Shown, Table},
    headers,
    refusal::{Refusal, Refused},
};

/// Most of a URI or a user agent that the audit log shows.
const LONGEST: usize = 4 << 10;

/// Who is at the other end of the connection, as far as the listener knows.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    pub address: SocketAddr,
    /// Whether a certificate was shown, good or not. Who shows one is known by it.
    pub certificate: bool,
}

/// The Kubernetes API itself, and whatever else does its own authentication, authorization and audit: doors of
/// [`Access::Api`].
pub trait Api: Send + Sync + 'static {
    fn handle(
        &self,
        door: &'static Door,
        request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// All doors of a server.
pub struct Frame<A> {
    table: Table,
    /// In the order of the table; none at doors of the API.
    handlers: Vec<Option<Arc<dyn Handler>>>,
    api: A,
    management: Arc<dyn Management>,
}

impl<A: Api> Frame<A> {
    /// # Panics
    ///
    /// If the doors contradict each other: see [`Table::new`].
    pub fn new(
        api: A,
        api_doors: impl IntoIterator<Item = &'static Door>,
        openings: Vec<Opening>,
        management: Arc<dyn Management>,
    ) -> Self {
        let api_doors: Vec<&'static Door> = api_doors.into_iter().collect();
        assert!(api_doors.iter().all(|door| door.access == Access::Api), "a door of the API does its duties");
        assert!(
            openings.iter().all(|opening| opening.door.access != Access::Api),
            "only the API does its own"
        );
        let table = Table::new(api_doors.iter().copied().chain(openings.iter().map(|opening| opening.door)));
        let handlers = api_doors.iter().map(|_| None).chain(openings.into_iter().map(|o| Some(o.handler)));
        Self { table, handlers: handlers.collect(), api, management }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub async fn handle(&self, client: Client, request: Request<Body>) -> Response<Body> {
        let place = self.table.find(request.uri().path());
        let door = self.table.doors()[place];
        let (mut head, body) = request.into_parts();
        let adopts = !matches!(door.access, Access::Anonymous | Access::Credential(_));
        let adopted = match adopts {
            true => {
                browser::adopt(door.cookie, client.certificate, &head.method, &head.uri, &mut head.headers)
            }
            false => Ok(()),
        };
        if let (Access::Api, Ok(())) = (door.access, &adopted) {
            let mut response = self.api.handle(door, Request::from_parts(head, body)).await;
            let code = response.status();
            headers::guard(door, code, response.headers_mut());
            return response;
        }
        let forged = adopted.err().map(|forged| Refusal::forbidden(forged.to_string()));
        Box::pin(self.attend(place, client, head, body, forged)).await
    }

    /// Lets a request in or not, and writes down how it ended.
    async fn attend(
        &self,
        place: usize,
        client: Client,
        head: Parts,
        body: Body,
        refused: Option<Refusal>,
    ) -> Response<Body> {
        let door = self.table.doors()[place];
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let uri = shown(door, &head);
        let agent = head.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let agent = cut(agent.unwrap_or_default()).to_owned();
        let mut entry = Entry { caller: Caller::anonymous(), allowed: None };
        let work = async {
            match refused {
                Some(refusal) => Err(refusal),
                None => self.enter(place, client, head, body, &mut entry).await,
            }
        };
        // A bug in one request must not take the connection, with all its other requests, along.
        let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(%method, path, door = door.name, "request handler panicked");
            let message = "the server failed to handle the request";
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message))
        });
        let mut response = result.unwrap_or_else(|refusal| match &self.handlers[place] {
            Some(handler) => handler.refused(refusal),
            None => refusal.response(),
        });
        let code = response.status();
        headers::guard(door, code, response.headers_mut());
        let refused = response.extensions_mut().remove::<Refused>();
        let acted = response.extensions_mut().remove::<Acted>().unwrap_or_default();
        let user = acted.by.unwrap_or_else(|| entry.caller.user());
        let real = entry.caller.by.as_ref().map(|name| User::new(name.clone(), Vec::<String>::new()));
        let (user, as_user) = match &real {
            Some(real) => (real, Some(&user)),
            None => (&user, acted.as_user.as_ref()),
        };
        tracing::debug!(door = door.name, user = user.name, %method, path, code = code.as_u16(), "request answered");
        self.management.audit(&AuditLine {
            user,
            as_user,
            method: method.as_str(),
            path: &path,
            uri: &uri,
            source: client.address.ip(),
            user_agent: &agent,
            code: code.as_u16(),
            refusal: refused.as_ref().map(|refused| (refused.reason, refused.message.as_str())),
            allowed: match code {
                StatusCode::FORBIDDEN => Some(false),
                _ => entry.allowed,
            },
        });
        response
    }

    async fn enter(
        &self,
        place: usize,
        client: Client,
        head: Parts,
        body: Body,
        entry: &mut Entry,
    ) -> Result<Response<Body>, Refusal> {
        let door = self.table.doors()[place];
        let Some(handler) = &self.handlers[place] else { return Err(Refusal::not_found()) };
        if matches!(door.access, Access::Optional | Access::Authenticated | Access::Permission) {
            match self.management.authenticate(&head).await {
                Ok(caller) => entry.caller = caller,
                Err(denied) => {
                    if let Some(user) = &denied.user {
                        entry.caller = Caller::of(user);
                    }
                    return Err(denied.refusal);
                }
            }
            if entry.caller.is_anonymous() && door.access != Access::Optional {
                return Err(Refusal::unauthorized("Unauthorized"));
            }
        }
        if door.access == Access::Permission {
            let attributes = Attributes::path(method_verb(head.method.as_str()), head.uri.path());
            self.management.authorize(&entry.caller.user(), attributes).await?;
        }
        entry.allowed = Some(true);
        if !door.allows(head.method.as_str()) {
            return Err(Refusal::method_not_allowed(door.methods));
        }
        let length = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse::<u64>().ok()).unwrap_or_default();
        if door.body > 0 && length > door.body as u64 {
            let message = format!("the body must not have more than {} bytes", door.body);
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let body = match door.body {
            usize::MAX => body,
            most => body.limited(most),
        };
        let caller = entry.caller.clone();
        let management = self.management.clone();
        handler.handle(Call { door, peer: client.address, caller, management, head }, body).await
    }
}

/// What is found out on the way in.
struct Entry {
    caller: Caller,
    allowed: Option<bool>,
}

fn shown(door: &Door, head: &Parts) -> String {
    let path = head.uri.path();
    let uri = match door.shown {
        Shown::Path => path.to_owned(),
        Shown::Masked(mask) => mask(path),
        Shown::Query => head.uri.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
        Shown::Action => match head.uri.query().and_then(|query| parameter(query, "action")) {
            Some(action) => {
                // What is no word is shown as it came, and a line stays a line.
                let word: String = action.chars().filter(char::is_ascii_graphic).take(64).collect();
                format!("{path}?action={word}")
            }
            None => path.to_owned(),
        },
    };
    cut(&uri).to_owned()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
