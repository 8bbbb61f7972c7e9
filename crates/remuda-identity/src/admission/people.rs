//! Users and their tokens.

use remuda_api::management::Token;
use remuda_auth::attributes::Attributes;
use remuda_names::{
    identity::{LOCAL_PRINCIPAL, extra},
    rancher::label,
};
use serde_json::Value;

use super::{Judgement, Operation, Refusal, Write, forbidden, invalid, list, text};
use crate::{
    Identity,
    identity::BY_USERNAME,
    tokens::{self, group_name},
};

const LONGEST_USERNAME: usize = 128;

impl Identity {
    pub(super) fn judge_user(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        let has = |field: &str| changed.iter().any(|name| name == field);
        if let Some(new) = write.new {
            if has("username") {
                self.is_free_username(write.name, text(new, "username"))?;
            }
            if has("principalIds") {
                self.are_free_principals(write, new)?;
            }
        }
        if write.operation == Operation::Create {
            return self.judge_new_user(write);
        }
        let touched = write.operation == Operation::Delete || !changed.is_empty();
        if touched && !self.outranks(write.user, write.name) {
            let what = if changed.is_empty() { "it".to_owned() } else { changed.join(", ") };
            return Err(forbidden(format!(
                "user {:?} may what you may not, so you may not change {what}",
                write.name
            )));
        }
        self.keep_an_administrator(write)?;
        Ok(Vec::new())
    }

    /// Whoever makes a user can be them, and so gives themselves what is bound to the name already.
    fn judge_new_user(&self, write: &Write<'_>) -> Judgement {
        if write.name.is_empty() || !self.has_rights(write.name) {
            return Ok(Vec::new());
        }
        if !self.outranks(write.user, write.name) {
            return Err(forbidden(format!(
                "bindings name user {:?} already and allow what you may not; choose another name",
                write.name
            )));
        }
        Ok(vec![format!("bindings name user {:?} already: the new user may what they allow", write.name)])
    }

    /// A name at login is that of one user, however it is written. Letters that only look alike are none of it.
    fn is_free_username(&self, name: &str, username: &str) -> Result<(), Refusal> {
        if username.is_empty() {
            return Ok(());
        }
        let plain = username.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte));
        if !plain || username.len() > LONGEST_USERNAME {
            return Err(invalid(
                "username",
                format!(
                    "must consist of at most {LONGEST_USERNAME} ASCII letters, digits and any of . _ - @ +; \
                     displayName takes any letter"
                ),
            ));
        }
        let known = self.0.users.by_index(BY_USERNAME, &username.to_lowercase());
        match known.iter().find(|user| user.metadata.name.as_deref() != Some(name)) {
            Some(other) => Err(invalid(
                "username",
                format!(
                    "{username:?} is the name of user {:?}; upper and lower case are the same",
                    other.metadata.name.as_deref().unwrap_or_default()
                ),
            )),
            None => Ok(()),
        }
    }

    /// A name at an authentication provider is that of one user. Whoever gives it to a user decides who that
    /// person is here, which is acting as them.
    fn are_free_principals(&self, write: &Write<'_>, new: &Value) -> Result<(), Refusal> {
        let old: Vec<&str> = write.old.into_iter().flat_map(|old| list(old, "principalIds")).collect();
        for id in list(new, "principalIds").filter(|id| !old.contains(id)) {
            if let Some(name) = id.strip_prefix(LOCAL_PRINCIPAL) {
                if name != write.name {
                    return Err(invalid("principalIds", format!("{id} is the principal of another user")));
                }
                continue;
            }
            if let Some(other) = self.0.tokens.claimants(id).iter().find(|other| *other != write.name) {
                return Err(invalid("principalIds", format!("{id} is a principal of user {other:?}")));
            }
            let attributes = Attributes::resource("impersonate", "authentication.k8s.io", "userextras")
                .version("v1")
                .subresource(extra::PRINCIPAL)
                .name(id);
            if !write.user.is_controller() && !self.0.policy.authorize(write.user, &attributes).allowed {
                return Err(forbidden(format!(
                    "principalIds: whoever logs in as {id} would be this user; it can be set by those who may \
                     impersonate userextras/{}",
                    extra::PRINCIPAL
                )));
            }
        }
        Ok(())
    }

    pub(super) fn judge_token(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        // Whoever may end tokens may end any.
        let Some(new) = write.new else { return Ok(Vec::new()) };
        let owner = text(new, "userId");
        let has = |field: &str| changed.iter().any(|name| name == field);
        match write.old {
            None if owner.is_empty() => {
                return Err(invalid("userId", "must name the User the token is of"));
            }
            Some(_) if has("userId") => {
                return Err(invalid("userId", "cannot be changed; make another token"));
            }
            _ => {}
        }
        let labelled = new["metadata"]["labels"][label::TOKEN_USER_ID].as_str();
        let relabelled =
            write.old.is_none_or(|old| old["metadata"]["labels"][label::TOKEN_USER_ID].as_str() != labelled);
        if relabelled && labelled.is_some_and(|labelled| labelled != owner) {
            let field = format!("metadata.labels[{}]", label::TOKEN_USER_ID);
            return Err(invalid(&field, "must be the same as userId"));
        }
        if write.user.is_trusted_writer() {
            return Ok(Vec::new());
        }
        let own = write.old.is_some() && owner == write.user.name;
        if !owner.is_empty() && !own && !self.may_impersonate(write.user, "users", owner) {
            return Err(forbidden(format!(
                "the token is of user {owner:?}, whom you may not impersonate; tokens of your own are made with \
                 `remuda token create`"
            )));
        }
        let (before, after) = (parsed(write.old), parsed(Some(new)));
        let more: Vec<&str> =
            changed.iter().map(String::as_str).filter(|field| !is_less(field, &before, &after)).collect();
        if own && !more.is_empty() && !self.may_impersonate(write.user, "users", owner) {
            return Err(forbidden(format!(
                "{} of a token can be changed by those who may impersonate its user; a token of your own can \
                 only be made to end earlier",
                more.join(", ")
            )));
        }
        self.may_name_groups(write, &before, &after)
    }

    /// Whoever makes a token say that its user is in a group gives the user what the group may.
    fn may_name_groups(&self, write: &Write<'_>, before: &Token, after: &Token) -> Judgement {
        let known: Vec<String> = before.group_principals.iter().filter_map(group_name).collect();
        for group in after.group_principals.iter().filter_map(group_name) {
            if !known.contains(&group) && !self.may_impersonate(write.user, "groups", &group) {
                return Err(forbidden(format!(
                    "groupPrincipals: the token would be in group {group:?}, which you may not impersonate"
                )));
            }
        }
        Ok(Vec::new())
    }
}

fn parsed(token: Option<&Value>) -> Token {
    token.and_then(|token| serde_json::from_value(token.clone()).ok()).unwrap_or_default()
}

/// Whether a changed field only makes a token end earlier.
fn is_less(field: &str, before: &Token, after: &Token) -> bool {
    match field {
        "enabled" => after.enabled == Some(false),
        "expired" => after.expired,
        "ttl" | "expiresAt" => match (tokens::expires(before), tokens::expires(after)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(after)) => after <= before,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_comes_earlier_is_less() {
        let at = |text: &str| Token { expires_at: text.to_owned(), ..Token::named("t") };
        let (early, late, never) =
            (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"), Token::named("t"));
        assert!(is_less("expiresAt", &late, &early) && !is_less("expiresAt", &early, &late));
        assert!(is_less("expiresAt", &never, &late) && !is_less("expiresAt", &late, &never));
        assert!(is_less("ttl", &never, &Token { ttl: 1, ..never.clone() }));
        assert!(!is_less("ttl", &Token { ttl: 1, ..never.clone() }, &never));
        assert!(!is_less("expired", &Token { expired: true, ..never.clone() }, &never));
        assert!(is_less("enabled", &never, &Token { enabled: Some(false), ..never.clone() }));
        assert!(!is_less("enabled", &never, &Token { enabled: Some(true), ..never.clone() }));
        assert!(!is_less("groupPrincipals", &never, &never) && !is_less("lastUsedAt", &never, &never));
    }
}
