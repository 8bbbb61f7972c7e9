//! What a cluster is to know of people. Nothing here asks the cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use remuda_names::{endpoint, rancher::name::SYSTEM};
use serde_json::{Value, json};

use crate::{
    access::{Authorize, Held, Role},
    proxy,
};

/// A token, as a cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) user: String,
    pub(super) hash: String,
    /// Empty if it never does.
    pub(super) expires: String,
}

/// All a cluster is to know.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Wanted {
    pub(super) tokens: BTreeMap<String, Token>,
    /// Users and their groups.
    pub(super) users: BTreeMap<String, BTreeSet<String>>,
    /// What some of these groups stand for.
    pub(super) roles: Vec<Role>,
}

impl Wanted {
    /// Whoever may not use a cluster through this server is not known to it. Groups of somebody are those of their
    /// newest token: an older one may say what was so once.
    pub(super) async fn decide(
        held: Vec<Held>,
        cluster: &str,
        authorize: &dyn Authorize,
    ) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        for (user, held) in by_user(held) {
            let Some(newest) = held.iter().max_by_key(|held| (held.created, &held.token)) else { continue };
            let decision = authorize.authorize(&newest.caller, cluster).await?;
            let who = proxy::abroad(&newest.caller, &decision);
            if !decision.allowed || !is_name(&user) || who.user != user {
                continue;
            }
            for role in decision.roles {
                if !wanted.roles.contains(&role) {
                    wanted.roles.push(role);
                }
            }
            let token = |held: &Held| Token {
                user: user.clone(),
                hash: held.hash.clone(),
                expires: held.expires.map(text).unwrap_or_default(),
            };
            wanted.tokens.extend(held.iter().map(|held| (held.token.clone(), token(held))));
            wanted.users.insert(user.clone(), who.groups);
        }
        Ok(wanted)
    }
}

fn by_user(held: Vec<Held>) -> BTreeMap<String, Vec<Held>> {
    let mut users: BTreeMap<String, Vec<Held>> = BTreeMap::new();
    for held in held.into_iter().filter(|held| is_name(&held.token)) {
        users.entry(held.caller.name.clone()).or_default().push(held);
    }
    users
}

/// As objects can be named.
fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    bytes.len() <= 253 && bytes.iter().copied().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

fn text(time: Timestamp) -> String {
    remuda_base::rfc3339(time.as_second())
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{}/{}", endpoint::GROUP, endpoint::VERSION), "kind": kind,
        "metadata": {"name": name, "namespace": SYSTEM},
    })
}

/// Fields of an object that say something else than those of the one that is there. Others are other writers'.
pub(super) fn differs(wanted: &Value, found: &Value) -> bool {
    let fields = wanted.as_object().into_iter().flatten();
    let own = fields.filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
    own.into_iter().any(|(name, value)| found.get(name) != Some(value))
}

impl Token {
    pub(super) fn object(&self, name: &str) -> Value {
        let mut object = object(endpoint::TOKEN_KIND, name);
        object["userName"] = json!(self.user);
        object["enabled"] = json!(true);
        object["expiresAt"] = json!(self.expires);
        // Where hashes once were; an authenticator would look here first.
        object[endpoint::HASH] = json!("");
        object
    }
}

pub(super) fn user_object(name: &str, groups: &BTreeSet<String>) -> Value {
    let mut object = object(endpoint::USER_KIND, name);
    object["groups"] = json!(groups);
    object["enabled"] = json!(true);
    object["needsRefresh"] = json!(false);
    object
}

/// The kinds, for clusters that do not have them.
pub(super) fn definitions() -> [Value; 2] {
    [(endpoint::TOKEN_KIND, endpoint::TOKENS), (endpoint::USER_KIND, endpoint::USERS)].map(
        |(kind, plural)| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{}", endpoint::GROUP)},
                "spec": {
                    "group": endpoint::GROUP, "scope": "Namespaced",
                    "names": {
                        "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                        "singular": kind.to_lowercase(),
                    },
                    "versions": [{
                        "name": endpoint::VERSION, "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        }},
                    }],
                },
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;
    use crate::access::{Caller, Decision};

    /// Ann is a member, Otto an owner, and nobody else may anything.
    struct Rules;

    impl Authorize for Rules {
        fn authorize<'a>(
            &'a self,
            caller: &'a Caller,
            cluster: &'a str,
        ) -> BoxFuture<'a, Result<Decision, String>> {
            assert_eq!(cluster, "c-1");
            let role = Role { name: "viewer".to_owned(), rules: None };
            let decision = match caller.name.as_str() {
                "ann" => Decision::allow().with_roles(vec![role]),
                "otto" => Decision::owner(),
                _ => Decision::deny("no"),
            };
            Box::pin(std::future::ready(Ok(decision)))
        }
    }

    fn held(token: &str, user: &str, second: i64, group: &str) -> Held {
        Held {
            token: token.to_owned(),
            hash: format!("hash of {token}"),
            expires: Timestamp::from_second(second + 60).ok(),
            created: Timestamp::from_second(second).ok(),
            caller: Caller {
                name: user.to_owned(),
                groups: vec![group.to_owned(), "remuda:role:brought-along".to_owned()],
                ..Caller::default()
            },
        }
    }

    #[tokio::test]
    async fn a_cluster_knows_whoever_may_use_it_as_what_they_are_there() {
        let held = vec![
            held("old", "ann", 0, "left"),
            held("new", "ann", 10, "joined"),
            held("o", "otto", 0, "x"),
            held("s", "stranger", 0, "x"),
            held("../x", "ann", 20, "x"),
            held("sa", "system:serviceaccount:a:b", 0, "x"),
        ];
        let wanted = Wanted::decide(held, "c-1", &Rules).await.unwrap();
        let tokens: Vec<(&str, &str)> =
            wanted.tokens.iter().map(|(name, token)| (name.as_str(), token.user.as_str())).collect();
        assert_eq!(tokens, [("new", "ann"), ("o", "otto"), ("old", "ann")]);
        let groups = |user: &str| wanted.users[user].iter().cloned().collect::<Vec<_>>();
        assert_eq!(groups("ann"), ["joined", "remuda:role:viewer"]);
        assert_eq!(groups("otto"), ["system:masters", "x"]);
        assert_eq!(wanted.users.len(), 2);
        assert_eq!(wanted.roles.len(), 1);
        let object = wanted.tokens["new"].object("new");
        assert_eq!(object["expiresAt"], "1970-01-01T00:01:10Z");
        assert!(!object.to_string().contains("hash of"), "hashes are in Secrets");
    }

    #[test]
    fn what_others_write_beside_is_no_difference() {
        let wanted = user_object("ann", &["a".to_owned()].into());
        let mut found = wanted.clone();
        found["lastRefresh"] = json!("2026-01-01T00:00:00Z");
        found["metadata"]["uid"] = json!("1");
        assert!(!differs(&wanted, &found));
        found["groups"] = json!(["a", "b"]);
        assert!(differs(&wanted, &found));
    }
}
