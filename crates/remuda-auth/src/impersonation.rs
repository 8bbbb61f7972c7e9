//! Acting as somebody else: the `Impersonate-*` request headers.
//!
//! The caller of a request parses the headers, asks the authorizer about every entry of
//! [`Impersonation::checks`] on behalf of the real user, and goes on as [`Impersonation::user`].

use std::collections::BTreeMap;

use crate::{
    attributes::Attributes,
    identity::{
        ANONYMOUS, GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED, User, parse_service_account,
        service_account_groups,
    },
};

pub const HEADER_USER: &str = "impersonate-user";
pub const HEADER_GROUP: &str = "impersonate-group";
pub const HEADER_UID: &str = "impersonate-uid";
pub const HEADER_EXTRA_PREFIX: &str = "impersonate-extra-";

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Whether a header must be removed before a request is passed on.
pub fn is_impersonation_header(name: &str) -> bool {
    let prefix = |prefix: &str| name.get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix));
    [HEADER_USER, HEADER_GROUP, HEADER_UID].iter().any(|own| name.eq_ignore_ascii_case(own))
        || prefix(HEADER_EXTRA_PREFIX)
}

/// Who is to be impersonated, as asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonation {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// A 400.
    #[error("requested impersonation of a group, uid or extra without impersonating a user")]
    NoUser,
}

impl Impersonation {
    /// Reads the headers of a request, one pair per value. `None` if nobody is to be impersonated.
    pub fn parse<'a>(
        headers: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Self>, ImpersonationError> {
        let mut asked = Self::default();
        for (name, value) in headers {
            if !is_impersonation_header(name) {
                continue;
            }
            if name.eq_ignore_ascii_case(HEADER_USER) {
                // The first wins, as for any header that is not a list.
                if asked.user.is_empty() {
                    value.clone_into(&mut asked.user);
                }
            } else if name.eq_ignore_ascii_case(HEADER_UID) {
                if asked.uid.is_empty() {
                    value.clone_into(&mut asked.uid);
                }
            } else if name.eq_ignore_ascii_case(HEADER_GROUP) {
                asked.groups.push(value.to_owned());
            } else {
                let key = extra_key(&name[HEADER_EXTRA_PREFIX.len()..]);
                asked.extra.entry(key).or_default().push(value.to_owned());
            }
        }
        match (asked.user.is_empty(), asked == Self::default()) {
            (false, _) => Ok(Some(asked)),
            (true, true) => Ok(None),
            (true, false) => Err(ImpersonationError::NoUser),
        }
    }

    /// Every permission the real user needs; all of them with the verb `impersonate`.
    pub fn checks(&self) -> Vec<Attributes<'_>> {
        let core = |resource| Attributes::resource("impersonate", "", resource).version("v1");
        let authentication =
            |resource| Attributes::resource("impersonate", AUTHENTICATION_GROUP, resource).version("v1");
        let mut checks = Vec::with_capacity(1 + self.groups.len());
        checks.push(match parse_service_account(&self.user) {
            Some((namespace, name)) => core("serviceaccounts").namespace(namespace).name(name),
            None => core("users").name(&self.user),
        });
        checks.extend(self.groups.iter().map(|group| core("groups").name(group)));
        for (key, values) in &self.extra {
            checks
                .extend(values.iter().map(|value| authentication("userextras").subresource(key).name(value)));
        }
        if !self.uid.is_empty() {
            checks.push(authentication("uids").name(&self.uid));
        }
        checks
    }

    /// The identity the request continues with.
    pub fn into_user(self) -> User {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = parse_service_account(&self.user)
        {
            groups.extend(service_account_groups(namespace));
        }
        let has = |wanted: &str| groups.iter().any(|group| group == wanted);
        if self.user == ANONYMOUS {
            if !has(GROUP_UNAUTHENTICATED) {
                groups.push(GROUP_UNAUTHENTICATED.to_owned());
            }
        } else if !has(GROUP_AUTHENTICATED) && !has(GROUP_UNAUTHENTICATED) {
            groups.push(GROUP_AUTHENTICATED.to_owned());
        }
        User { name: self.user, uid: self.uid, groups, extra: self.extra }
    }
}

/// Lower-cased and percent-decoded; a key that cannot be decoded is meant literally.
pub(crate) fn extra_key(raw: &str) -> String {
    let raw = raw.to_ascii_lowercase();
    percent_decode(&raw).unwrap_or(raw)
}

fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        out.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(headers: &[(&str, &str)]) -> Result<Option<Impersonation>, ImpersonationError> {
        Impersonation::parse(headers.iter().copied())
    }

    #[test]
    fn headers_become_checks_and_an_identity() {
        let asked = parse(&[
            ("Accept", "*/*"),
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "dev"),
            ("impersonate-group", "ops"),
            ("Impersonate-Uid", "u1"),
            ("Impersonate-Extra-Acme.com%2FProject", "p1"),
            ("Impersonate-Extra-acme.com%2fproject", "p2"),
            ("Impersonate-Extra-Bad%zz", "x"),
        ])
        .unwrap()
        .unwrap();
        let checks: Vec<String> = asked
            .checks()
            .iter()
            .map(|a| format!("{} {}/{}/{} {}", a.verb, a.group, a.resource, a.subresource, a.name))
            .collect();
        assert_eq!(
            checks,
            [
                "impersonate /users/ jane",
                "impersonate /groups/ dev",
                "impersonate /groups/ ops",
                "impersonate authentication.k8s.io/userextras/acme.com/project p1",
                "impersonate authentication.k8s.io/userextras/acme.com/project p2",
                "impersonate authentication.k8s.io/userextras/bad%zz x",
                "impersonate authentication.k8s.io/uids/ u1",
            ]
        );
        let user = asked.into_user();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "u1"));
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.extra["acme.com/project"], ["p1", "p2"]);
    }

    #[test]
    fn a_service_account_brings_its_groups_unless_some_are_given() {
        let name = "system:serviceaccount:ns:sa";
        let asked = parse(&[("Impersonate-User", name)]).unwrap().unwrap();
        let check = asked.checks()[0];
        assert_eq!((check.resource, check.namespace, check.name), ("serviceaccounts", "ns", "sa"));
        assert_eq!(
            asked.into_user().groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
        );
        let asked = parse(&[("Impersonate-User", name), ("Impersonate-Group", "g")]).unwrap().unwrap();
        assert_eq!(asked.into_user().groups, ["g", "system:authenticated"]);
    }

    #[test]
    fn anonymous_stays_unauthenticated() {
        let asked = parse(&[("Impersonate-User", "system:anonymous")]).unwrap().unwrap();
        assert_eq!(asked.into_user(), User::anonymous());
        let asked = parse(&[("Impersonate-User", "x"), ("Impersonate-Group", "system:unauthenticated")]);
        assert_eq!(asked.unwrap().unwrap().into_user().groups, ["system:unauthenticated"]);
    }

    #[test]
    fn anything_without_a_user_is_an_error() {
        assert_eq!(parse(&[("Authorization", "x")]), Ok(None));
        assert_eq!(parse(&[("Impersonate-User", "")]), Ok(None));
        for header in ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-a"] {
            assert_eq!(parse(&[(header, "x")]), Err(ImpersonationError::NoUser));
        }
        assert!(is_impersonation_header("IMPERSONATE-EXTRA-x") && !is_impersonation_header("Impersonate"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn arbitrary_headers_never_panic(headers in prop::collection::vec(("(Impersonate-(User|Group|Uid|Extra-))?.{0,12}", ".{0,12}"), 0..6)) {
            if let Ok(Some(asked)) = Impersonation::parse(headers.iter().map(|(n, v)| (n.as_str(), v.as_str()))) {
                prop_assert!(!asked.checks().is_empty());
                let user = asked.into_user();
                prop_assert!(user.in_group("system:authenticated") || user.in_group("system:unauthenticated"));
            }
        }
    }
}
