//! Users, their passwords and tokens, and what they may.
//!
//! [`Identity`] follows Users, Tokens, GlobalRoles, RoleTemplates and their bindings and answers from memory:
//!
//! - who a bearer token `name:key` stands for ([`Identity::authenticate`]). What is under way with a token that
//!   is revoked, disabled or has expired ends at once: see [`Login::revoked`];
//! - what somebody is in a cluster ([`Identity::access`]);
//! - what they may on this server: roles and bindings become rules in the policy requests are judged by, and
//!   are written nowhere.
//!
//! It also does what people do with their accounts: [`Identity::login`], [`Identity::issue`],
//! [`Identity::revoke`], [`Identity::change_password`], and a login at an OpenID provider ([`Identity::begin_sso`]). How that looks in HTTP is not its concern.
//!
//! Of tokens and passwords only hashes are stored: those of passwords in Secrets of a namespace of their own.

pub mod access;
mod account;
pub mod admission;
pub mod builtin;
mod creators;
mod identity;
pub mod password;
mod rank;
mod rights;
mod second_factor;
mod sso;
mod throttle;
mod tokens;
mod user_cleanup;

pub use self::{
    access::{Access, Role},
    account::{Attempt, Error, FirstUser, Issued, NewToken, principal, setting_defaults, shown},
    identity::{Held, Identity},
    second_factor::{Enrolment, SecondFactorState},
    sso::{Back, Begun, Finished},
    tokens::{Login, Verdict, expires, owner},
};
