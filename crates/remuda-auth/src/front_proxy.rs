//! Identities vouched for by a proxy in front of the server: the `X-Remote-*` request headers.
//!
//! They mean something only on a connection whose client certificate chains to the authority of such
//! proxies and names an allowed one; on any other they must be removed unread.

use crate::{identity::User, impersonation::extra_key};

pub const HEADER_USER: &str = "x-remote-user";
pub const HEADER_UID: &str = "x-remote-uid";
pub const HEADER_GROUP: &str = "x-remote-group";
pub const HEADER_EXTRA_PREFIX: &str = "x-remote-extra-";

/// Whether a header must be removed before a request is handled or passed on.
pub fn is_proxy_header(name: &str) -> bool {
    [HEADER_USER, HEADER_UID, HEADER_GROUP].iter().any(|own| name.eq_ignore_ascii_case(own))
        || extra_part(name).is_some()
}

fn extra_part(name: &str) -> Option<&str> {
    let prefix = name.get(..HEADER_EXTRA_PREFIX.len())?;
    prefix.eq_ignore_ascii_case(HEADER_EXTRA_PREFIX).then(|| &name[HEADER_EXTRA_PREFIX.len()..])
}

/// The user the proxy vouches for; `None` if it names nobody, which leaves the proxy's own identity.
pub fn proxied_user<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Option<User> {
    let mut user = User::default();
    for (name, value) in headers {
        if name.eq_ignore_ascii_case(HEADER_USER) {
            if user.name.is_empty() {
                value.trim().clone_into(&mut user.name);
            }
        } else if name.eq_ignore_ascii_case(HEADER_UID) {
            if user.uid.is_empty() {
                value.clone_into(&mut user.uid);
            }
        } else if name.eq_ignore_ascii_case(HEADER_GROUP) {
            user.groups.push(value.to_owned());
        } else if let Some(key) = extra_part(name) {
            user.extra.entry(extra_key(key)).or_default().push(value.to_owned());
        }
    }
    if user.name.is_empty() { None } else { Some(user.authenticated()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_names_user_groups_and_extras() {
        let headers = [
            ("X-Remote-User", "jane"),
            ("X-Remote-Group", "dev"),
            ("x-remote-group", "ops"),
            ("X-Remote-Extra-Acme.com%2Fproject", "p"),
            ("Accept", "*/*"),
        ];
        let user = proxied_user(headers.into_iter()).unwrap();
        assert_eq!((user.name.as_str(), user.groups.len()), ("jane", 3));
        assert!(user.in_group("system:authenticated"));
        assert_eq!(user.extra["acme.com/project"], ["p"]);
        assert_eq!(proxied_user([("X-Remote-Group", "g")].into_iter()), None);
        assert_eq!(proxied_user([("X-Remote-User", " ")].into_iter()), None);
        assert!(
            is_proxy_header("X-REMOTE-EXTRA-a")
                && !is_proxy_header("X-Remote")
                && !is_proxy_header("é-remote-extraé")
        );
    }
}
