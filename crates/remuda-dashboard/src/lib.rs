//! The web dashboard: its files, embedded, and the door that serves them.
//!
//! Every path of the door that is not a file is the shell, in which the router of the page shows what the path names.
//! Files have the digest of all of them in their path, so browsers keep them for good, and a new version of the
//! program has new paths. Nothing here knows anything of objects: pages read them through the API, as their user.

mod files;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use remuda_door::{
    Access, Answer, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown, accepts_gzip,
};
use remuda_names::path;

use crate::files::{File, Files};

/// Files are the same for everybody; what they show is asked for with the session of who looks.
pub static DASHBOARD: Door = Door {
    name: "dashboard",
    purpose: "the files of the web dashboard",
    paths: &[Owned::Tree(path::DASHBOARD)],
    methods: &["GET", "HEAD"],
    access: Access::Anonymous,
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: false,
};

/// Only files of this server run and are loaded, and no script makes markup of text: the last two directives have
/// browsers refuse that, wherever it would be tried.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);

/// Made at the first request: a server without people at it pays nothing for its dashboard.
static FILES: LazyLock<Files> = LazyLock::new(Files::embedded);

/// What is behind the door.
pub struct Dashboard;

impl Dashboard {
    pub fn opening() -> Opening {
        Opening { door: &DASHBOARD, handler: Arc::new(Dashboard) }
    }
}

impl Handler for Dashboard {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move { answer(&FILES, call.path(), &call.head.headers) })
    }
}

fn answer(files: &Files, path: &str, asked: &HeaderMap) -> Answer {
    match path.strip_prefix(files.base()) {
        Some(name) => {
            let file = files.get(name).ok_or_else(Refusal::not_found)?;
            Ok(served(file, asked, "public, max-age=31536000, immutable"))
        }
        // A page of an older program asks for files that are gone; it is told to begin again.
        None if path.starts_with(files::VERSIONED) => Err(Refusal::not_found()),
        None => Ok(served(files.shell(), asked, "no-cache")),
    }
}

fn served(file: &File, asked: &HeaderMap, kept: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    headers.insert(header::ETAG, file.etag.clone());
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    let known = asked.get(header::IF_NONE_MATCH).map(HeaderValue::as_bytes);
    if known == Some(file.etag.as_bytes()) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    let body: Bytes = if accepts_gzip(asked) {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        file.compressed()
    } else {
        file.plain.clone()
    };
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::Full(body);
    response
}

/// Whether a browser asks for a page to show: `/` leads such callers to the dashboard and programs to the API.
pub fn wants_page(asked: &HeaderMap) -> bool {
    let lines = asked.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .any(|one| one.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html")))
}

#[cfg(test)]
mod tests;
