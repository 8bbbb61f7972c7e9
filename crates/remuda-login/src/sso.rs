//! Login at an OpenID provider, as browsers see it.
//!
//! `GET /v1-public/sso` sends a browser to the provider, `GET /verify-auth` is where it comes back. With `port`,
//! `state` and `challenge` the login is for a program that waits on the same machine: the person is asked, and
//! the program redeems the code it is given at the login endpoint.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};
use remuda_auth::request_info::parameter;
use remuda_door::{Answer, Body, Call, Refusal, set_cookie};
use remuda_identity::{Back, Error, Finished};
use remuda_names::identity::{cookie, path};

use crate::{Login, login, refusal};

/// Longest page to come back to.
const LONGEST: usize = 1024;

impl Login {
    pub(crate) async fn begin_sso(&self, call: &Call) -> Answer {
        let head = &call.head;
        let back = back(head).ok_or_else(|| {
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "to must be a path of this server; port, state and challenge belong together",
            )
        })?;
        let redirect = format!("{}{}", self.kubeconfigs.server(head), path::SSO_BACK);
        let begun = match self.identity.begin_sso(&redirect, back).await {
            Ok(begun) => begun,
            Err(error) => return Ok(sorry(error)),
        };
        let mut response = to(&begun.location)?;
        set_pending(response.headers_mut(), Some(&begun.cookie));
        Ok(response)
    }

    pub(crate) async fn finish_sso(&self, call: &Call) -> Answer {
        let (address, head) = (call.peer.ip(), &call.head);
        let field = |name: &str| query(head, name).unwrap_or_default();
        let pending = remuda_door::cookie(&head.headers, cookie::SSO).unwrap_or_default();
        let finished = match field("error").as_str() {
            "" => self.identity.finish_sso(&pending, &field("state"), &field("code"), address).await,
            error => {
                let more = field("error_description");
                let told: String = format!("{error} {more}").trim().chars().take(300).collect();
                Err(Error::NotAllowed(format!("the provider says {told:?}")))
            }
        };
        let mut response = match finished {
            Err(error) => sorry(error),
            Ok(Finished::Session { issued, page }) => {
                let mut response = to(&page)?;
                login::begin(&mut response, &issued);
                login::logged_in(&mut response, &issued);
                response
            }
            Ok(Finished::Program { port, state, code, person }) => {
                let url = format!("http://127.0.0.1:{port}/?code={code}&state={state}");
                let text = format!(
                    "You are {person}. A program on this computer wants to use this server as you. \
                     Go on only if you have just started `remuda login` here."
                );
                page(StatusCode::OK, "Log in", &text, Some(&url))
            }
        };
        set_pending(response.headers_mut(), None);
        Ok(response)
    }
}

/// Where a browser goes after the login; nothing if that is no place for them.
fn back(head: &Parts) -> Option<Back> {
    let word = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let [port, state, challenge] = ["port", "state", "challenge"].map(|name| query(head, name));
    if let (Some(port), Some(state), Some(challenge)) = (&port, &state, &challenge) {
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        let fits = word(state, 1..=128) && word(challenge, 43..=43);
        return fits.then(|| Back::Program { port, state: state.clone(), challenge: challenge.clone() });
    }
    if port.is_some() || state.is_some() || challenge.is_some() {
        return None;
    }
    let page = query(head, "to").unwrap_or_else(|| "/".to_owned());
    // `//host` and `/\host` are other hosts to browsers.
    let own = page.starts_with('/') && !page[1..].starts_with(['/', '\\']);
    let plain = page.len() <= LONGEST && page.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    (own && plain).then_some(Back::Page(page))
}

/// A parameter of the query, decoded.
fn query(head: &Parts, name: &str) -> Option<String> {
    parameter(head.uri.query()?, name).map(std::borrow::Cow::into_owned)
}

fn to(location: &str) -> Result<Response<Body>, Refusal> {
    let location = HeaderValue::try_from(location)
        .map_err(|_| Refusal::new(StatusCode::BAD_GATEWAY, "the provider's address cannot be used"))?;
    let mut response = Response::new(Body::from(String::new()));
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, location);
    guard(response.headers_mut());
    Ok(response)
}

fn sorry(error: Error) -> Response<Body> {
    let refusal = refusal(error);
    let mut response = page(refusal.code, "Not logged in", &refusal.message, None);
    if let Some(after) = refusal.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after));
    }
    response
}

/// A page with a text and perhaps a link. Nothing on it runs, and no other page can frame it.
fn page(code: StatusCode, title: &str, text: &str, link: Option<&str>) -> Response<Body> {
    let link = link.map(|url| format!("<p><a href=\"{}\">Continue</a></p>", escape(url))).unwrap_or_default();
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title} - Remuda</title>\
         <style>body{{font-family:sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}</style></head>\
         <body><h1>{title}</h1><p>{}</p>{link}</body></html>\n",
        escape(text)
    );
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    guard(headers);
    response
}

/// A page of ours has a style, and nothing else.
fn guard(headers: &mut HeaderMap) {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
}

/// The cookie of a login at a provider; `None` ends it.
fn set_pending(headers: &mut HeaderMap, sealed: Option<&str>) {
    // Long enough for the login, and for nothing but its end.
    let age = if sealed.is_some() { 600 } else { 0 };
    let value = sealed.unwrap_or_default();
    let rest = format!("Path={}; Secure; HttpOnly; SameSite=Lax; Max-Age={age}", path::SSO_BACK);
    set_cookie(headers, &format!("{}={value}; {rest}", cookie::SSO));
}

fn escape(text: &str) -> String {
    let escaped = |letter: char| match letter {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        letter => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Option<Back> {
        let (head, ()) = http::Request::get(format!("/v1-public/sso?{query}")).body(()).unwrap().into_parts();
        back(&head)
    }

    #[test]
    fn nobody_is_sent_elsewhere() {
        assert_eq!(parse(""), Some(Back::Page("/".to_owned())));
        assert_eq!(parse("to=/dashboard%3Fa=b"), Some(Back::Page("/dashboard?a=b".to_owned())));
        for bad in
            ["https://evil", "//evil", "/%5Cevil", "/%2Fevil", "evil", "", "/a%0d%0aSet-Cookie:x", "/a%20b"]
        {
            assert_eq!(parse(&format!("to={bad}")), None, "{bad}");
        }
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert!(parse(&format!("port=4000&state=abc&challenge={challenge}")).is_some());
        for bad in [
            "port=4000".to_owned(),
            "port=4000&state=abc&challenge=short".to_owned(),
            format!("port=0&state=abc&challenge={challenge}"),
            format!("port=4000@evil&state=abc&challenge={challenge}"),
            format!("port=4000&state=a%26b&challenge={challenge}"),
            format!("port=70000&state=abc&challenge={challenge}"),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn what_a_provider_says_is_text() {
        assert_eq!(escape("<script>\"'&"), "&lt;script&gt;&quot;&#39;&amp;");
    }
}
