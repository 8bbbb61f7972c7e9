//! Tokens, passwords and kubeconfigs of users.

use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use kube::ResourceExt;
use remuda_api::management::Principal;
use remuda_auth::attributes::Attributes;
use remuda_door::{Answer, Body, Call, Refusal};
use remuda_identity::NewToken;
use remuda_names::identity::{path, token_kind, token_reason::NOT_A_USER};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Login, collection, json_response, kubeconfig, may, ok, refusal, shown, token};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenBody {
    #[serde(default)]
    user_id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    ttl: i64,
    #[serde(default, alias = "clusterName")]
    cluster_id: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeconfigBody {
    /// Whether there is a token in it.
    #[serde(default = "yes")]
    token: bool,
    #[serde(default)]
    description: String,
    #[serde(default)]
    ttl: i64,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PasswordBody {
    #[serde(default)]
    current_password: String,
    #[serde(default)]
    new_password: String,
    #[serde(default)]
    must_change_password: bool,
    /// Have one made up.
    #[serde(default)]
    generate: bool,
}

impl Login {
    pub(crate) async fn make_token(&self, call: &Call, body: Body) -> Answer {
        let asked: TokenBody = body.json().await?;
        let own = &call.caller.name;
        let user = if asked.user_id.is_empty() { own } else { &asked.user_id };
        let impersonate = Attributes::resource("impersonate", "", "users").version("v1").name(user);
        if user != own && !call.may(impersonate).await {
            return Err(Refusal::forbidden(format!("you may not make tokens of user {user:?}")));
        }
        if self.identity.user(user).is_none() {
            let message =
                format!("{user:?} is not a user of this server and has no tokens; name one with userId");
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message).because(NOT_A_USER));
        }
        let kind = match asked.kind.as_str() {
            token_kind::KUBECONFIG => token_kind::KUBECONFIG,
            _ => token_kind::API,
        };
        let new = NewToken {
            user,
            kind,
            description: &asked.description,
            ttl: asked.ttl,
            cluster: &asked.cluster_id,
            parent: token(call),
        };
        let issued = self.identity.issue(&new).await.map_err(refusal)?;
        Ok(json_response(StatusCode::CREATED, &shown(&issued)))
    }

    pub(crate) async fn kubeconfig(&self, call: &Call, id: &str, body: Body) -> Answer {
        let asked: KubeconfigBody = body.json().await?;
        let caller = &call.caller;
        let entitled = caller.user().is_master()
            || self.identity.access(&caller.name, &caller.groups, id) != remuda_identity::Access::None;
        if !entitled {
            let message = format!("user {:?} has no role in cluster {id:?}", caller.name);
            return Err(Refusal::forbidden(message));
        }
        let Some(cluster) = self.kubeconfigs.cluster(id) else {
            let message = format!("clusters.management.cattle.io {id:?} not found");
            return Err(Refusal::new(StatusCode::NOT_FOUND, message));
        };
        if self.identity.user(&caller.name).is_none() {
            let message = format!("{:?} is not a user of this server and has no tokens; log in", caller.name);
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message).because(NOT_A_USER));
        }
        let endpoints = self.kubeconfigs.endpoints(&call.head, &cluster);
        if !asked.token {
            let config = kubeconfig::render(&endpoints, None);
            return Ok(ok(&json!({"type": "generateKubeconfigOutput", "config": config})));
        }
        let description = match asked.description.as_str() {
            "" => format!("kubeconfig of cluster {}", endpoints[0].name),
            description => description.to_owned(),
        };
        let new = NewToken {
            user: &caller.name,
            kind: token_kind::KUBECONFIG,
            description: &description,
            ttl: asked.ttl,
            cluster: id,
            parent: token(call),
        };
        let issued = self.identity.issue(&new).await.map_err(refusal)?;
        let config = kubeconfig::render(&endpoints, Some(&issued.bearer));
        let expires = issued.expires().map(|at| at.to_string()).unwrap_or_default();
        Ok(ok(&json!({"type": "generateKubeconfigOutput", "config": config, "expiresAt": expires})))
    }

    pub(crate) async fn list_tokens(&self, call: &Call) -> Answer {
        let tokens = match call.query("userId") {
            Some(user) if user != call.caller.name => {
                if !may(call, "list", "tokens", "").await {
                    return Err(Refusal::forbidden("you may not list tokens of others"));
                }
                if user.is_empty() { self.identity.tokens() } else { self.identity.tokens_of(&user) }
            }
            _ => self.identity.tokens_of(&call.caller.name),
        };
        let (now, current) = (Timestamp::now(), token(call));
        let tokens = tokens.iter().map(|token| {
            let mut shown = remuda_identity::shown(token, now);
            shown["current"] = (current == Some(token.name_any().as_str())).into();
            shown
        });
        Ok(collection(tokens.collect()))
    }

    pub(crate) async fn one_token(&self, call: &Call, name: &str) -> Answer {
        let verb = match call.head.method {
            Method::GET => "get",
            Method::DELETE => "delete",
            _ => return Err(Refusal::method_not_allowed(&["GET", "DELETE"])),
        };
        let found = self.identity.token(name);
        let own = found.as_ref().is_some_and(|token| remuda_identity::owner(token) == call.caller.name);
        let may = own || may(call, verb, "tokens", name).await;
        // Whether others have a token of this name is their business.
        let Some(token) = found.filter(|_| may) else {
            let message = format!("there is no token {name:?} of yours");
            return Err(Refusal::new(StatusCode::NOT_FOUND, message));
        };
        if verb == "get" {
            return Ok(ok(&remuda_identity::shown(&token, Timestamp::now())));
        }
        self.identity.revoke(name).await.map_err(refusal)?;
        Ok(ok(&json!({})))
    }

    /// The caller first, then the groups they have from their provider. Callers that are not users of this server have none.
    pub(crate) fn principals(&self, call: &Call) -> Response<Body> {
        let Some(user) = self.identity.user(&call.caller.name) else { return collection(Vec::new()) };
        let known = token(call).and_then(|name| self.identity.token(name));
        let own = known.as_deref().map(|token| &token.user_principal).filter(|own| !id(own).is_empty());
        let own = own.cloned().unwrap_or_else(|| remuda_identity::principal(&user));
        let list = format!("{}{}", self.kubeconfigs.server(&call.head), path::PRINCIPALS);
        let groups = known.iter().flat_map(|token| &token.group_principals);
        let groups =
            groups.filter(|group| !id(group).is_empty()).map(|group| shown_principal(&list, group, false));
        collection(std::iter::once(shown_principal(&list, &own, true)).chain(groups).collect())
    }

    pub(crate) async fn change_password(&self, call: &Call, body: Body) -> Answer {
        let asked: PasswordBody = body.json().await?;
        let (user, keep, address) = (&call.caller.name, token(call), call.peer.ip());
        let (current, new) = (&asked.current_password, &asked.new_password);
        self.identity.change_password(user, current, new, address, keep).await.map_err(refusal)?;
        Ok(ok(&json!({})))
    }

    pub(crate) async fn set_password(&self, call: &Call, name: &str, body: Body) -> Answer {
        let asked: PasswordBody = body.json().await?;
        let may =
            may(call, "update", "users", name).await && self.identity.outranks(&call.caller.user(), name);
        if !may {
            return Err(Refusal::forbidden(format!("you may not set the password of user {name:?}")));
        }
        if asked.generate {
            let made = self.identity.make_up_password(name, asked.must_change_password).await;
            return Ok(ok(&json!({"password": made.map_err(refusal)?})));
        }
        let set = self.identity.set_password(name, &asked.new_password, asked.must_change_password).await;
        set.map_err(refusal)?;
        Ok(ok(&json!({})))
    }
}

/// Such as `local://user`.
fn id(principal: &Principal) -> &str {
    principal.other.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default()
}

fn shown_principal(list: &str, principal: &Principal, me: bool) -> Value {
    let names = [&*principal.display_name, &*principal.login_name, id(principal)];
    json!({
        "type": "principal", "baseType": "principal", "id": id(principal), "links": {"self": list}, "actions": {},
        "name": names.into_iter().find(|name| !name.is_empty()), "loginName": principal.login_name,
        "principalType": principal.principal_type, "provider": principal.provider, "me": me, "memberOf": !me,
    })
}
