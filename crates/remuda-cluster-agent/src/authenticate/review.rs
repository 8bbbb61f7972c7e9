//! Whether a token is good, and whose it is. Nothing here asks anybody.

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use remuda_auth::bearer;
use remuda_names::endpoint;
use serde_json::{Value, json};

use crate::api::is_name;

/// Between two writes of when a token was used.
const USED: SignedDuration = SignedDuration::from_secs(60);
/// Tokens that are kept elsewhere are shown with this in front of their name.
const ELSEWHERE: &str = "ext/";

/// What somebody came with, as the API tells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Of the TokenReview: the answer has the same.
    pub(super) version: String,
    /// Nothing if it has not the form of a token of the server.
    pub(super) token: Option<(String, Key)>,
}

/// The secret part of a token.
#[derive(PartialEq, Eq)]
pub(super) struct Key(pub(super) String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Shown {
    /// Reads a TokenReview; nothing if it is none.
    pub(super) fn read(body: &[u8]) -> Option<Shown> {
        let review: Value = serde_json::from_slice(body).ok()?;
        let version = review["apiVersion"].as_str()?;
        let known = ["authentication.k8s.io/v1", "authentication.k8s.io/v1beta1"].contains(&version);
        if !known || review["kind"] != "TokenReview" {
            return None;
        }
        let token = review.pointer("/spec/token")?.as_str().filter(|token| !token.is_empty())?;
        let token = token.split_once(':').and_then(|(name, key)| {
            let name = name.strip_prefix(ELSEWHERE).unwrap_or(name);
            let fits = is_name(name) && !key.is_empty() && key.len() <= 512;
            fits.then(|| (name.to_owned(), Key(key.to_owned())))
        });
        Some(Shown { version: version.to_owned(), token })
    }
}

/// Why somebody is not let in. For the log: callers are told nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("it has not the form of a token of the server")]
    Form,
    #[error("it is not known in this cluster")]
    Unknown,
    #[error("it is disabled")]
    Disabled,
    #[error("it has expired")]
    Expired,
    #[error("its user is not known in this cluster")]
    NoUser,
    #[error("its user is disabled")]
    UserDisabled,
    #[error("its hash is missing or of an unknown kind")]
    NoHash,
    #[error("the key is wrong")]
    Wrong,
}

/// What the cluster knows of a token.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) token: Value,
    pub(super) user: Option<Value>,
    pub(super) secret: Option<Value>,
}

/// Somebody with a good token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) name: String,
    pub(super) groups: Vec<String>,
    /// Its last use is worth writing.
    pub(super) first_in_a_while: bool,
}

/// Name of the User of a ClusterAuthToken, if it has one.
pub(super) fn user_of(token: &Value) -> Option<&str> {
    token["userName"].as_str().filter(|name| is_name(name))
}

pub(super) fn decide(known: &Known, key: &Key, now: Timestamp) -> Result<Person, Refused> {
    let token = &known.token;
    let is_going = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    if is_going(token) {
        return Err(Refused::Unknown);
    }
    if token["enabled"] != true {
        return Err(Refused::Disabled);
    }
    let expires = token["expiresAt"].as_str().unwrap_or_default();
    // One that says so in a way nobody understands has expired.
    let is_over = |expires: &str| expires.parse::<Timestamp>().map_or(true, |expires| expires <= now);
    if !expires.is_empty() && is_over(expires) {
        return Err(Refused::Expired);
    }
    let name = user_of(token).ok_or(Refused::NoUser)?;
    let user = known.user.as_ref().filter(|user| !is_going(user)).ok_or(Refused::NoUser)?;
    if user["enabled"] != true {
        return Err(Refused::UserDisabled);
    }
    let hash = hash(known).ok_or(Refused::NoHash)?;
    let stored = bearer::Stored::parse(&hash, true).ok_or(Refused::NoHash)?;
    if !stored.verify(&key.0) {
        return Err(Refused::Wrong);
    }
    let groups = user["groups"].as_array().into_iter().flatten();
    let groups = groups.filter_map(Value::as_str).filter(|group| !group.is_empty()).map(str::to_owned);
    let used = token["lastUsedAt"].as_str().and_then(|used| used.parse::<Timestamp>().ok());
    Ok(Person {
        name: name.to_owned(),
        groups: groups.collect(),
        first_in_a_while: used.is_none_or(|used| now.duration_since(used) > USED),
    })
}

/// Older servers wrote it beside the token, newer ones into a Secret.
fn hash(known: &Known) -> Option<String> {
    if let Some(hash) = known.token[endpoint::HASH].as_str().filter(|hash| !hash.is_empty()) {
        return Some(hash.to_owned());
    }
    let encoded = known.secret.as_ref()?["data"][endpoint::HASH].as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

/// The answer to a TokenReview.
pub(super) fn answer(version: &str, person: Option<&Person>) -> Value {
    let status = match person {
        None => json!({"authenticated": false}),
        Some(person) => {
            json!({"authenticated": true, "user": {"username": person.name, "groups": person.groups}})
        }
    };
    json!({"apiVersion": version, "kind": "TokenReview", "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-16T10:00:00Z".parse().unwrap()
    }

    fn known() -> Known {
        let hash = BASE64_STANDARD.encode(bearer::hash("key").unwrap());
        Known {
            token: json!({"userName": "u-1", "enabled": true, "expiresAt": "2026-11-16T10:00:01Z", "hash": ""}),
            user: Some(json!({"enabled": true, "groups": ["a", "", 1, "b"]})),
            secret: Some(json!({"data": {"hash": hash}})),
        }
    }

    fn judged(change: impl FnOnce(&mut Known)) -> Result<Person, Refused> {
        let mut known = known();
        change(&mut known);
        decide(&known, &Key("key".to_owned()), now())
    }

    #[test]
    fn a_good_token_stands_for_its_user_in_their_groups() {
        let person = judged(|_| {}).unwrap();
        assert_eq!(
            (person.name.as_str(), person.groups.as_slice()),
            ("u-1", ["a", "b"].map(str::to_owned).as_slice())
        );
        assert!(person.first_in_a_while);
        let used = judged(|known| known.token["lastUsedAt"] = json!("2026-11-16T09:59:30Z")).unwrap();
        assert!(!used.first_in_a_while);
        let answer = answer("authentication.k8s.io/v1beta1", Some(&person));
        assert_eq!(answer["status"]["user"], json!({"username": "u-1", "groups": ["a", "b"]}));
    }

    #[test]
    fn everything_that_is_not_right_is_refused() {
        type Case = (fn(&mut Known), Refused);
        let cases: [Case; 13] = [
            (|known| known.token["enabled"] = json!(false), Refused::Disabled),
            (|known| known.token["enabled"] = json!("true"), Refused::Disabled),
            (|known| known.token["metadata"]["deletionTimestamp"] = json!("x"), Refused::Unknown),
            (|known| known.token["expiresAt"] = json!("2026-11-16T10:00:00Z"), Refused::Expired),
            (|known| known.token["expiresAt"] = json!("soon"), Refused::Expired),
            (|known| known.token["userName"] = json!("../secrets/x"), Refused::NoUser),
            (|known| known.user = None, Refused::NoUser),
            (|known| known.user = Some(json!({"groups": []})), Refused::UserDisabled),
            (|known| known.secret = None, Refused::NoHash),
            (|known| known.secret = Some(json!({"data": {"hash": "!"}})), Refused::NoHash),
            (|known| known.secret = Some(json!({"data": {"hash": ""}})), Refused::NoHash),
            (|known| known.token["hash"] = json!("key"), Refused::NoHash),
            (|known| known.token["hash"] = json!(bearer::hash("other").unwrap()), Refused::Wrong),
        ];
        for (at, (change, expected)) in cases.into_iter().enumerate() {
            assert_eq!(judged(change), Err(expected), "case {at}");
        }
        assert!(judged(|known| known.token["expiresAt"] = json!("")).is_ok(), "some never expire");
    }

    #[test]
    fn tokens_of_the_server_have_a_name_and_a_key() {
        let read = |token: &str| {
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview", "spec": {"token": token},
            });
            Shown::read(review.to_string().as_bytes())
        };
        let shown = read("ext/token-a:k:e").unwrap();
        assert_eq!(shown.token, Some(("token-a".to_owned(), Key("k:e".to_owned()))));
        assert!(!format!("{shown:?}").contains("k:e"));
        for odd in ["a", ":k", "a:", "a/../b:k", "ext/ext/a:k", "eyJh.eyJi.c"] {
            assert_eq!(read(odd).unwrap().token, None, "{odd}");
        }
        assert_eq!(read(""), None);
        for odd in ["", "{}", "[]", r#"{"kind":"TokenReview","spec":{"token":"a:b"}}"#, "\u{0}"] {
            assert_eq!(Shown::read(odd.as_bytes()), None, "{odd}");
        }
    }
}
