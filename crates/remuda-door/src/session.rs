//! Session cookies.
//!
//! A session is a token in a cookie scripts cannot read. Beside it is one they can: a value made of the token,
//! which a page of ours repeats in a header when it wants to change something. A page of another site can make a
//! browser send the cookies, and neither read them nor set the header.

use aws_lc_rs::digest;
use http::{HeaderMap, HeaderValue, header};
use remuda_names::identity::cookie as name;

/// A cookie of a request; the first, if there are several.
pub fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let values = headers.get_all(header::COOKIE);
    let mut pairs = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let value = pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned()).filter(|value| !value.is_empty())
}

/// What a page must repeat to change something. It says nothing of the session it is made of.
pub fn csrf_proof(session: &str) -> String {
    let digest = digest::digest(&digest::SHA256, format!("csrf:{session}").as_bytes());
    remuda_base::hex(&digest.as_ref()[..16])
}

/// Sets the cookies of a session that is good for so many seconds; `None` for one that ends with the browser.
pub fn begin_session(headers: &mut HeaderMap, session: &str, seconds: Option<i64>) {
    let age = seconds.map(|seconds| format!("; Max-Age={}", seconds.max(0))).unwrap_or_default();
    set_cookie(headers, &format!("{}={session}; Path=/; Secure; HttpOnly; SameSite=Lax{age}", name::SESSION));
    let proof = csrf_proof(session);
    set_cookie(headers, &format!("{}={proof}; Path=/; Secure; SameSite=Lax{age}", name::CSRF));
}

pub fn end_session(headers: &mut HeaderMap) {
    for name in [name::SESSION, name::CSRF] {
        set_cookie(headers, &format!("{name}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0"));
    }
}

pub fn set_cookie(headers: &mut HeaderMap, cookie: &str) {
    if let Ok(value) = HeaderValue::try_from(cookie) {
        headers.append(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_cannot_read_a_session() {
        let mut made = HeaderMap::new();
        begin_session(&mut made, "token-a:key", Some(60));
        let cookies: Vec<&str> =
            made.get_all(header::SET_COOKIE).iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(cookies[0], "R_SESS=token-a:key; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=60");
        assert!(cookies[1].starts_with("CSRF=") && !cookies[1].contains("HttpOnly"));
    }
}
