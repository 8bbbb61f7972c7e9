//! The front door: which path leads where, and the duties that are done for every request.
//!
//! A [`Door`] is data: the paths it owns, its methods, who may call, whether a browser's session cookie is good
//! enough, what the audit log shows, how large a body may be. The [`Frame`] does what the door demands, in one order
//! for all of them: session cookie and cross-site check, authentication, authorization, method, limits; then the
//! [`Handler`]; then security headers and the audit line. A handler that is reached has a caller who may.
//!
//! Handlers know the management API through the trait [`Management`] only, so they work on any.

mod body;
mod browser;
mod call;
mod door;
mod frame;
mod headers;
mod refusal;
mod session;
mod websocket;

pub use remuda_auth::audit::AuditLine;

pub use self::{
    body::{Body, BoxError},
    browser::Forged,
    call::{Acted, Answer, Call, Caller, Denied, Handler, Management, Opening},
    door::{ANY_METHOD, Access, Cookie, Door, Owned, Shown, Table},
    frame::{Api, Client, Frame},
    headers::{accepts_gzip, document_headers},
    refusal::Refusal,
    session::{begin_session, cookie, csrf_proof, end_session, set_cookie},
    websocket::WebSocket,
};
