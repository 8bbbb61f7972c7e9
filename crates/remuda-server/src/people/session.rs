//! Credentials of browsers: cookies, and what keeps other sites from using them.
//!
//! A session is a token in a cookie scripts cannot read. Beside it is one they can: a value made of the token,
//! which a page of ours repeats in a header when it wants to change something. A page of somebody else's can
//! make a browser send the cookies, and neither read them nor set the header.

use aws_lc_rs::digest;
use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, HeaderValue, Method, header};
use remuda_names::identity::{CSRF_HEADER, cookie, path};

/// With or without padding: clients differ.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Why the session of a request does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Forged {
    #[error(
        "a change with a session in a cookie needs the header X-Api-Csrf with the value of the cookie CSRF"
    )]
    NoProof,
    #[error("a connection with a session in a cookie can be opened by pages of this server only")]
    OtherOrigin,
}

/// Makes credentials of browsers into those every part of the server knows. Headers that say who asks win.
pub(crate) fn adopt(method: &Method, headers: &mut HeaderMap) -> Result<(), Forged> {
    if let Some(given) = headers.get(header::AUTHORIZATION) {
        if let Some(token) = basic(given) {
            headers.insert(header::AUTHORIZATION, token);
        }
        return Ok(());
    }
    let Some(session) = read(headers, cookie::SESSION) else { return Ok(()) };
    let bearer = HeaderValue::try_from(format!("Bearer {session}"));
    let proof = proof(&session);
    if !is_safe(method) {
        let given = headers.get(CSRF_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        if aws_lc_rs::constant_time::verify_slices_are_equal(given, proof.as_bytes()).is_err() {
            return Err(Forged::NoProof);
        }
    } else if headers.contains_key(header::UPGRADE) && !is_same_origin(headers) {
        return Err(Forged::OtherOrigin);
    }
    headers.remove(header::COOKIE);
    if let Ok(mut bearer) = bearer {
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
    }
    Ok(())
}

/// Requests that change nothing.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Browsers say which page opens a connection; other programs say nothing.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let Some(origin) = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://")) else {
        return false;
    };
    text(header::HOST).is_some_and(|host| host.eq_ignore_ascii_case(origin))
}

/// `Basic` credentials that are a token.
fn basic(given: &HeaderValue) -> Option<HeaderValue> {
    let (scheme, encoded) = given.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let encoded = encoded.trim();
    let decoded = STANDARD.decode(encoded).or_else(|_| URL_SAFE.decode(encoded)).ok()?;
    let mut bearer = HeaderValue::try_from(format!("Bearer {}", String::from_utf8(decoded).ok()?)).ok()?;
    bearer.set_sensitive(true);
    Some(bearer)
}

/// A cookie; the first, if there are several.
pub(crate) fn read(headers: &HeaderMap, name: &str) -> Option<String> {
    let values = headers.get_all(header::COOKIE);
    let mut pairs = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let value = pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned()).filter(|value| !value.is_empty())
}

/// What a page must repeat. It says nothing of the session it is made of.
pub(crate) fn proof(session: &str) -> String {
    let digest = digest::digest(&digest::SHA256, format!("csrf:{session}").as_bytes());
    digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Cookies of a session that is good for so many seconds; `None` for one that ends with the browser.
pub(crate) fn begin(headers: &mut HeaderMap, session: &str, seconds: Option<i64>) {
    let age = seconds.map(|seconds| format!("; Max-Age={}", seconds.max(0))).unwrap_or_default();
    set(headers, &format!("{}={session}; Path=/; Secure; HttpOnly; SameSite=Lax{age}", cookie::SESSION));
    set(headers, &format!("{}={}; Path=/; Secure; SameSite=Lax{age}", cookie::CSRF, proof(session)));
}

pub(crate) fn end(headers: &mut HeaderMap) {
    for name in [cookie::SESSION, cookie::CSRF] {
        set(headers, &format!("{name}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0"));
    }
}

/// The cookie of a login at a provider; `None` ends it.
pub(crate) fn set_pending(headers: &mut HeaderMap, sealed: Option<&str>) {
    // Long enough for the login, and for nothing but its end.
    let age = if sealed.is_some() { 600 } else { 0 };
    let value = sealed.unwrap_or_default();
    let rest = format!("Path={}; Secure; HttpOnly; SameSite=Lax; Max-Age={age}", path::SSO_BACK);
    set(headers, &format!("{}={value}; {rest}", cookie::SSO));
}

fn set(headers: &mut HeaderMap, cookie: &str) {
    if let Ok(value) = HeaderValue::try_from(cookie) {
        headers.append(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn adopted(method: Method, list: &[(&'static str, &str)]) -> Result<Option<String>, Forged> {
        let mut headers = headers(list);
        adopt(&method, &mut headers)?;
        Ok(headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn a_cookie_is_a_token() {
        let session = ("cookie", "a=b; R_SESS=token-a:key; CSRF=x");
        assert_eq!(adopted(Method::GET, &[session]), Ok(Some("Bearer token-a:key".into())));
        assert_eq!(adopted(Method::GET, &[("cookie", "XR_SESS=a:b; R_SESS=")]), Ok(None));
        let both = [("authorization", "Bearer own"), session];
        assert_eq!(adopted(Method::POST, &both), Ok(Some("Bearer own".into())), "what is said wins");
    }

    #[test]
    fn other_sites_change_nothing() {
        let session = ("cookie", "R_SESS=token-a:key; CSRF=guess");
        assert_eq!(adopted(Method::POST, &[session]), Err(Forged::NoProof));
        for wrong in ["guess", "", &proof("token-b:key")] {
            assert_eq!(adopted(Method::DELETE, &[session, ("x-api-csrf", wrong)]), Err(Forged::NoProof));
        }
        let right = proof("token-a:key");
        let expected = Ok(Some("Bearer token-a:key".into()));
        assert_eq!(adopted(Method::PUT, &[session, ("x-api-csrf", &right)]), expected);
    }

    #[test]
    fn other_sites_open_no_connections() {
        let open = |origin: &str| {
            let list = [
                ("cookie", "R_SESS=token-a:key"),
                ("upgrade", "websocket"),
                ("host", "remuda.example:8443"),
                ("origin", origin),
            ];
            adopted(Method::GET, &list).is_ok()
        };
        assert!(open("https://remuda.example:8443"));
        for other in
            ["https://remuda.example", "http://remuda.example:8443", "null", "https://evil.example:8443"]
        {
            assert!(!open(other), "{other}");
        }
    }

    #[test]
    fn basic_credentials_are_a_token() {
        assert_eq!(
            adopted(Method::POST, &[("authorization", "Basic dG9rZW4tYTprZXk=")]),
            Ok(Some("Bearer token-a:key".into()))
        );
        let odd = "Basic !!!";
        assert_eq!(adopted(Method::POST, &[("authorization", odd)]), Ok(Some(odd.into())));
    }

    #[test]
    fn scripts_cannot_read_a_session() {
        let mut made = HeaderMap::new();
        begin(&mut made, "token-a:key", Some(60));
        let cookies: Vec<&str> =
            made.get_all(header::SET_COOKIE).iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(cookies[0], "R_SESS=token-a:key; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=60");
        assert!(cookies[1].starts_with("CSRF=") && !cookies[1].contains("HttpOnly"));
    }
}
