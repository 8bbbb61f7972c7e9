use futures::future::BoxFuture;
use http_body_util::BodyExt;
use kube::Client as KubeClient;
use parking_lot::Mutex;

use super::*;
use crate::{
    call::{Answer, Denied},
    door::{ANY_METHOD, Cookie, Owned},
};

const fn door(name: &'static str, paths: &'static [Owned], access: Access) -> Door {
    Door {
        name,
        purpose: "",
        paths,
        methods: &["GET", "POST"],
        access,
        cookie: Cookie::Proof,
        shown: Shown::Action,
        body: 8,
        personal: true,
    }
}

pub(super) static OPEN: Door = door("open", &[Owned::Exact("/open")], Access::Anonymous);
static VISITORS: Door = door("visitors", &[Owned::Exact("/visitors")], Access::Optional);
pub(super) static USERS: Door = door("users", &[Owned::Tree("/users")], Access::Authenticated);
pub(super) static ADMIN: Door = door("admin", &[Owned::Exact("/admin")], Access::Permission);
pub(super) static API: Door = Door { methods: ANY_METHOD, ..door("api", &[Owned::Rest], Access::Api) };

pub(super) struct Kubernetes;

impl Api for Kubernetes {
    async fn handle(&self, _: &'static Door, request: Request<Body>) -> Response<Body> {
        let who = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes().to_vec());
        Response::new(Body::from(who.unwrap_or_default()))
    }
}

/// Tokens are names; `root` may everything; `ann!` is `root` acting as `ann`.
#[derive(Default)]
pub(super) struct Names(Mutex<Vec<String>>);

impl Names {
    /// What was written to the audit log.
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Management for Arc<Names> {
    fn authenticate<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<Caller, Denied>> {
        let name = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let name = name.and_then(|name| name.strip_prefix("Bearer ")).unwrap_or_default();
        let denied = |user| Denied { user, refusal: Refusal::unauthorized("Unauthorized") };
        let found = match name {
            "" => Ok(Caller::anonymous()),
            "bad" => Err(denied(None)),
            "liar" => Err(denied(Some(User::new("liar", ["g"])))),
            name => match name.strip_suffix('!') {
                Some(other) => {
                    Ok(Caller { by: Some("root".to_owned()), ..Caller::of(&User::new(other, ["g"])) })
                }
                None => Ok(Caller::of(&User::new(name, ["g"]))),
            },
        };
        Box::pin(std::future::ready(found))
    }

    fn authorize<'a>(&'a self, user: &'a User, asked: Attributes<'a>) -> BoxFuture<'a, Result<(), Refusal>> {
        let message = format!("{} cannot {} {:?}", user.name, asked.verb, asked.path);
        let allowed = if user.name == "root" { Ok(()) } else { Err(Refusal::forbidden(message)) };
        Box::pin(std::future::ready(allowed))
    }

    fn client(&self, _: &Caller) -> KubeClient {
        unreachable!("nothing here asks the API")
    }

    fn audit(&self, line: &AuditLine<'_>) {
        let as_user = line.as_user.map(|user| format!(" as {}", user.name)).unwrap_or_default();
        let AuditLine { user, method, uri, allowed, .. } = line;
        let code = StatusCode::from_u16(line.code).unwrap();
        let reason = line.refusal.map(|(reason, _)| format!(" {reason}")).unwrap_or_default();
        self.0.lock().push(format!("{}{as_user} {method} {uri} {code}{reason} {allowed:?}", user.name));
    }
}

struct Echo;

impl Handler for Echo {
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            assert!(call.action() != "panic", "as it was asked to");
            let body = body.collect().await.map_err(|_| Refusal::bad("too long"))?;
            let mut response = Response::new(Body::from(body.to_bytes()));
            if call.action() == "login" {
                let by = Some(User::new("found-out", Vec::<String>::new()));
                response.extensions_mut().insert(Acted { by, as_user: None });
            }
            Ok(response)
        })
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        let mut response = refusal.as_error().response();
        response.headers_mut().insert("x-form", http::HeaderValue::from_static("own"));
        response
    }
}

fn frame() -> (Frame<Kubernetes>, Arc<Names>) {
    let names = Arc::new(Names::default());
    let openings = [&OPEN, &VISITORS, &USERS, &ADMIN]
        .map(|door| Opening { door, handler: Arc::new(Echo) as Arc<dyn Handler> });
    (Frame::new(Kubernetes, [&API], openings.to_vec(), Arc::new(names.clone())), names)
}

/// What a request ends with, and its line in the audit log.
async fn ask(method: &str, uri: &str, token: &str, body: &'static str) -> (Response<Body>, Vec<String>) {
    let (frame, names) = frame();
    let mut request = Request::builder().method(method).uri(uri);
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let client = Client { address: ([192, 0, 2, 1], 1).into(), certificate: false };
    // As it arrives: nobody says how long it is.
    let body = Body::boxed(http_body_util::Full::new(bytes::Bytes::from_static(body.as_bytes())));
    let response = frame.handle(client, request.body(body).unwrap()).await;
    let lines = names.0.lock().clone();
    (response, lines)
}

#[tokio::test]
async fn every_end_of_a_request_leaves_its_line() {
    for (method, uri, token, line) in [
        ("GET", "/open", "bad", "system:anonymous GET /open 200 OK Some(true)"),
        ("POST", "/open?action=login&code=secret", "", "found-out POST /open?action=login 200 OK Some(true)"),
        ("GET", "/visitors", "", "system:anonymous GET /visitors 200 OK Some(true)"),
        ("GET", "/visitors", "ann", "ann GET /visitors 200 OK Some(true)"),
        ("GET", "/visitors", "bad", "system:anonymous GET /visitors 401 Unauthorized Unauthorized None"),
        ("GET", "/users/x", "", "system:anonymous GET /users/x 401 Unauthorized Unauthorized None"),
        ("GET", "/users", "bad", "system:anonymous GET /users 401 Unauthorized Unauthorized None"),
        ("GET", "/users", "liar", "liar GET /users 401 Unauthorized Unauthorized None"),
        ("GET", "/users", "ann", "ann GET /users 200 OK Some(true)"),
        ("GET", "/users", "ann!", "root as ann GET /users 200 OK Some(true)"),
        ("PUT", "/users", "ann", "ann PUT /users 405 Method Not Allowed MethodNotAllowed Some(true)"),
        ("POST", "/admin", "ann", "ann POST /admin 403 Forbidden Forbidden Some(false)"),
        ("POST", "/admin", "root", "root POST /admin 200 OK Some(true)"),
        (
            "GET",
            "/users?action=panic",
            "ann",
            "ann GET /users?action=panic 500 Internal Server Error InternalError Some(true)",
        ),
    ] {
        let (response, lines) = ask(method, uri, token, "").await;
        assert_eq!(lines, [line], "{method} {uri} {token}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let has_form = response.headers().contains_key("x-form");
        assert_eq!(has_form, !response.status().is_success(), "a refusal has the form of its door");
    }
}

#[tokio::test]
async fn the_api_writes_its_own_lines() {
    let (response, lines) = ask("GET", "/api/v1/pods", "ann", "").await;
    assert!(lines.is_empty());
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "Bearer ann");
}

#[tokio::test]
async fn a_body_ends_where_the_door_says() {
    let (response, _) = ask("POST", "/open", "", "12345678").await;
    assert_eq!(response.status(), StatusCode::OK);
    let (response, _) = ask("POST", "/open", "", "123456789").await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}
