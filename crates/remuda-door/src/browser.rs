//! What browsers send by themselves: cookies and certificates, and what keeps other sites from using them.
//!
//! Browsers say in `Sec-Fetch-*` and `Origin` which page asks and what for. Other programs send neither; those that
//! show a token in a header are not concerned at all.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use remuda_names::identity::{CSRF_HEADER, cookie};

use crate::{
    door::Cookie,
    session::{self, csrf_proof},
};

const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";
const DEST: &str = "sec-fetch-dest";

/// With or without padding: clients differ.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Why what a browser sent by itself does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    #[error(
        "a change with a session in a cookie needs the header X-Api-Csrf with the value of the cookie CSRF"
    )]
    NoProof,
    #[error("a session in a cookie or a certificate of a browser can be used by pages of this server only")]
    OtherSite,
    #[error(
        "a session in a cookie does not open this path in a browser; use a token, or a script of a page of this server"
    )]
    NotScript,
}

/// Makes credentials of browsers into those every part of the server knows. Headers that say who asks win.
pub(crate) fn adopt(
    accepted: Cookie,
    certificate: bool,
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
) -> Result<(), Forged> {
    if let Some(given) = headers.get(header::AUTHORIZATION) {
        if let Some(token) = basic(given) {
            headers.insert(header::AUTHORIZATION, token);
        }
        return Ok(());
    }
    if certificate {
        return if is_other_site(uri, headers) { Err(Forged::OtherSite) } else { Ok(()) };
    }
    if accepted == Cookie::Never || !headers.contains_key(header::COOKIE) {
        return Ok(());
    }
    let Some(session) = session::cookie(headers, cookie::SESSION) else { return Ok(()) };
    if is_other_site(uri, headers) {
        return Err(Forged::OtherSite);
    }
    let has_proof = || {
        let given = headers.get(CSRF_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        let proof = csrf_proof(&session);
        aws_lc_rs::constant_time::verify_slices_are_equal(given, proof.as_bytes()).is_ok()
    };
    if accepted == Cookie::Fetch && !is_script(headers) && !(text(headers, SITE).is_none() && has_proof()) {
        return Err(Forged::NotScript);
    }
    if !is_safe(method) && !has_proof() {
        return Err(Forged::NoProof);
    }
    let bearer = HeaderValue::try_from(format!("Bearer {session}"));
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

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Whether a page of another site makes the browser ask.
fn is_other_site(uri: &Uri, headers: &HeaderMap) -> bool {
    // No page can forge it, and behind `kubectl proxy` it is right where the origin names the proxy.
    if let Some(site) = text(headers, SITE) {
        return !matches!(site, "same-origin" | "none");
    }
    let Some(origin) = text(headers, "origin") else { return false };
    let host = text(headers, "host").or(uri.authority().map(http::uri::Authority::as_str));
    let Some((origin, host)) = origin.strip_prefix("https://").zip(host) else { return true };
    let plain = |host: &str| host.strip_suffix(":443").unwrap_or(host).to_ascii_lowercase();
    plain(origin) != plain(host)
}

/// Whether a script of a page of this server asks, and not the browser by itself.
fn is_script(headers: &HeaderMap) -> bool {
    if text(headers, SITE).is_none() {
        // Chromium says nothing else of sockets. Only scripts open them, and the origin is that of their page, which
        // was compared before this.
        let socket = text(headers, "upgrade").is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
        return socket && headers.contains_key(header::ORIGIN);
    }
    text(headers, SITE) == Some("same-origin")
        && matches!(text(headers, MODE), Some("cors" | "same-origin" | "no-cors" | "websocket"))
        && matches!(text(headers, DEST), Some("empty" | "websocket"))
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

#[cfg(test)]
mod tests {
    use super::*;

    type Lines<'a> = &'a [(&'static str, &'a str)];

    fn adopted_by(
        accepted: Cookie,
        certificate: bool,
        method: Method,
        list: Lines<'_>,
    ) -> Result<Option<String>, Forged> {
        let mut headers: HeaderMap =
            list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        adopt(accepted, certificate, &method, &Uri::from_static("/x"), &mut headers)?;
        Ok(headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned()))
    }

    fn adopted(method: Method, list: Lines<'_>) -> Result<Option<String>, Forged> {
        adopted_by(Cookie::Proof, false, method, list)
    }

    const SESSION: (&str, &str) = ("cookie", "a=b; R_SESS=token-a:key; CSRF=x");
    const HOST: (&str, &str) = ("host", "remuda.example:8443");

    fn bearer() -> Result<Option<String>, Forged> {
        Ok(Some("Bearer token-a:key".into()))
    }

    #[test]
    fn a_cookie_is_a_token() {
        assert_eq!(adopted(Method::GET, &[SESSION]), bearer());
        assert_eq!(adopted(Method::GET, &[("cookie", "XR_SESS=a:b; R_SESS=")]), Ok(None));
        let both = [("authorization", "Bearer own"), SESSION];
        assert_eq!(adopted(Method::POST, &both), Ok(Some("Bearer own".into())), "what is said wins");
        assert_eq!(adopted_by(Cookie::Never, false, Method::GET, &[SESSION]), Ok(None));
        assert_eq!(adopted_by(Cookie::Proof, true, Method::POST, &[SESSION]), Ok(None), "a certificate wins");
    }

    #[test]
    fn other_sites_change_nothing() {
        assert_eq!(adopted(Method::POST, &[SESSION]), Err(Forged::NoProof));
        for wrong in ["guess", "", &csrf_proof("token-b:key")] {
            assert_eq!(adopted(Method::DELETE, &[SESSION, ("x-api-csrf", wrong)]), Err(Forged::NoProof));
        }
        let right = csrf_proof("token-a:key");
        assert_eq!(adopted(Method::PUT, &[SESSION, ("x-api-csrf", &right)]), bearer());
        let elsewhere = [SESSION, ("x-api-csrf", &right), ("sec-fetch-site", "cross-site")];
        assert_eq!(adopted(Method::PUT, &elsewhere), Err(Forged::OtherSite));
    }

    #[test]
    fn other_sites_read_nothing_and_open_no_connections() {
        for (own, lines) in [
            (true, &[("origin", "https://remuda.example:8443")] as Lines<'_>),
            (true, &[("origin", "https://REMUDA.example:8443"), ("upgrade", "websocket")]),
            (true, &[("sec-fetch-site", "same-origin")]),
            (true, &[("sec-fetch-site", "none")]),
            (false, &[("origin", "https://remuda.example")]),
            (false, &[("origin", "http://remuda.example:8443")]),
            (false, &[("origin", "null")]),
            (false, &[("origin", "https://evil.example:8443"), ("upgrade", "websocket")]),
            (false, &[("sec-fetch-site", "cross-site")]),
            (false, &[("sec-fetch-site", "same-site")]),
            (false, &[("sec-fetch-site", "")]),
        ] {
            let with = |more: Lines<'static>| [more, &[HOST], lines].concat();
            let expected = if own { bearer() } else { Err(Forged::OtherSite) };
            assert_eq!(adopted(Method::GET, &with(&[SESSION])), expected, "{lines:?}");
            // A certificate is sent by browsers as a cookie is.
            let expected = if own { Ok(None) } else { Err(Forged::OtherSite) };
            assert_eq!(adopted_by(Cookie::Never, true, Method::GET, &with(&[])), expected, "{lines:?}");
            // Tokens are not.
            let token = with(&[("authorization", "Bearer own")]);
            assert_eq!(adopted(Method::POST, &token), Ok(Some("Bearer own".into())), "{lines:?}");
        }
    }

    #[test]
    fn some_doors_are_for_scripts_only() {
        let fetched = |lines: Lines<'static>| {
            adopted_by(Cookie::Fetch, false, Method::GET, &[&[SESSION, HOST], lines].concat())
        };
        let script =
            [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")];
        assert_eq!(fetched(script.to_vec().leak()), bearer());
        for dest in
            ["document", "iframe", "frame", "embed", "object", "image", "script", "worker", "serviceworker"]
        {
            let lines = vec![
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", dest),
            ];
            assert_eq!(fetched(lines.leak()), Err(Forged::NotScript), "{dest}");
        }
        let typed =
            [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert_eq!(fetched(typed.to_vec().leak()), Err(Forged::NotScript));
        // A socket of a page: its origin is all that is said of it.
        let own = ("origin", "https://remuda.example:8443");
        assert_eq!(fetched(vec![own, ("upgrade", "websocket")].leak()), bearer());
        assert_eq!(fetched(vec![own].leak()), Err(Forged::NotScript), "no socket");
        assert_eq!(fetched(&[("upgrade", "websocket")]), Err(Forged::NotScript), "of no page");
        for origin in ["null", "https://evil.example"] {
            let lines = vec![("origin", origin), ("upgrade", "websocket")];
            assert_eq!(fetched(lines.leak()), Err(Forged::OtherSite), "{origin}");
        }
        // Browsers that say nothing of themselves: only a script can send the proof.
        assert_eq!(fetched(&[]), Err(Forged::NotScript));
        let proof = csrf_proof("token-a:key");
        let lines = [SESSION, HOST, ("x-api-csrf", proof.as_str())];
        assert_eq!(adopted_by(Cookie::Fetch, false, Method::GET, &lines), bearer());
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
}
