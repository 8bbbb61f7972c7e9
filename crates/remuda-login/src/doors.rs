//! The doors of people: which paths are theirs, and on which terms.

use remuda_door::{ANY_METHOD, Access, Cookie, Door, Owned, Shown};
use remuda_names::identity::path;

/// Bodies of requests are small.
const BODY: usize = 64 << 10;

/// A door for people who are not known yet.
const fn public(
    name: &'static str,
    purpose: &'static str,
    paths: &'static [Owned],
    methods: &'static [&'static str],
) -> Door {
    Door {
        name,
        purpose,
        paths,
        methods,
        access: Access::Anonymous,
        cookie: Cookie::Never,
        // The query of a login holds codes that are good for a session.
        shown: Shown::Path,
        body: BODY,
        personal: true,
    }
}

/// A door for people who have logged in.
const fn known(
    name: &'static str,
    purpose: &'static str,
    paths: &'static [Owned],
    methods: &'static [&'static str],
) -> Door {
    Door {
        name,
        purpose,
        paths,
        methods,
        access: Access::Authenticated,
        cookie: Cookie::Proof,
        shown: Shown::Action,
        body: BODY,
        personal: true,
    }
}

pub static LOGIN: Door =
    public("login", "a session for a password or a code", &[Owned::Exact(path::LOGIN)], &["POST"]);

pub static LOCAL_LOGIN: Door = Door {
    shown: Shown::Action,
    ..public(
        "local-login",
        "the same, as browsers and older tools do it",
        &[Owned::Exact(path::LOCAL_LOGIN)],
        &["GET", "POST"],
    )
};

pub static PROVIDERS: Door = public("providers", "how people can log in", PROVIDER_PATHS, &["GET"]);

const PROVIDER_PATHS: &[Owned] = &[Owned::Exact(path::PROVIDERS), Owned::Exact(path::NEW_PROVIDERS)];

/// Clients try one root after the other, and go on to the next if the answer is 404 and no other.
pub static NOTHING_PUBLIC: Door = public(
    "nothing-public",
    "nothing: not found",
    &[Owned::Tree(path::PUBLIC), Owned::Tree(path::PUBLIC_V3)],
    ANY_METHOD,
);

pub static SSO: Door = public(
    "sso",
    "a login at an OpenID provider, and the way back",
    &[Owned::Exact(path::SSO), Owned::Exact(path::SSO_BACK)],
    &["GET"],
);

pub static LOGOUT: Door =
    known("logout", "the end of the caller's session", &[Owned::Exact(path::LOGOUT)], &["POST"]);

pub static TOKENS: Door = known(
    "tokens",
    "tokens of the caller; those of others with the right to them",
    &[Owned::Tree(path::TOKENS)],
    &["GET", "POST", "DELETE"],
);

pub static USERS: Door =
    known("users", "the caller, and passwords", &[Owned::Tree(path::USERS)], &["GET", "POST"]);

pub static PRINCIPALS: Door = known(
    "principals",
    "the caller, as providers of logins know them",
    &[Owned::Exact(path::PRINCIPALS)],
    &["GET"],
);

pub static KUBECONFIGS: Door = known(
    "kubeconfigs",
    "clusters the caller may read, as older clients know them, and kubeconfigs of those they have a role in",
    &[Owned::Tree(path::CLUSTERS)],
    &["GET", "POST"],
);

/// All of them.
pub static ALL: [&Door; 10] = [
    &LOGIN,
    &LOCAL_LOGIN,
    &PROVIDERS,
    &NOTHING_PUBLIC,
    &SSO,
    &LOGOUT,
    &TOKENS,
    &USERS,
    &PRINCIPALS,
    &KUBECONFIGS,
];
