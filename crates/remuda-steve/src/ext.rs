//! Kinds of `ext.cattle.io`: tokens, kubeconfigs and the password of the caller, as Rancher's clients make them.
//!
//! None of them is stored as such. Each request becomes one to the doors of people, made by the same caller, so what
//! they may is decided there. The value of a token is in the answer to its creation and nowhere else.

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use remuda_door::{Body, Call, Refusal};
use remuda_names::{
    identity::path::{CLUSTERS, TOKENS, USERS},
    rancher::group::MANAGEMENT,
};
use serde_json::{Value, json};

use crate::{
    answer::invalid,
    api::Shared,
    show::{Base, collection},
    visit::Visit,
};

const API_VERSION: &str = "ext.cattle.io/v1";
/// Clusters in one kubeconfig.
const MOST_CLUSTERS: usize = 64;

/// A kind that is made of requests to the doors of people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ext {
    Token,
    Kubeconfig,
    PasswordChange,
    /// Of a session. Sessions here end at a time that was said when they began, whether they are used or not: what is
    /// told is that time, and being active changes nothing.
    UserActivity,
}

/// What a request ends with: an answer, or nothing to say.
pub(crate) type Ended = (StatusCode, Option<Value>);

impl Ext {
    pub(crate) const ALL: [Self; 4] =
        [Self::Token, Self::Kubeconfig, Self::PasswordChange, Self::UserActivity];

    /// Id of its schema, its plural, and the methods of objects and of the collection.
    pub(crate) fn schema(
        self,
    ) -> (&'static str, &'static str, &'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Token => {
                ("ext.cattle.io.token", "ext.cattle.io.tokens", &["GET", "DELETE"], &["GET", "POST"])
            }
            Self::Kubeconfig => ("ext.cattle.io.kubeconfig", "ext.cattle.io.kubeconfigs", &[], &["POST"]),
            Self::PasswordChange => (
                "ext.cattle.io.passwordchangerequest",
                "ext.cattle.io.passwordchangerequests",
                &[],
                &["POST"],
            ),
            Self::UserActivity => {
                ("ext.cattle.io.useractivity", "ext.cattle.io.useractivities", &["GET", "PUT"], &[])
            }
        }
    }

    /// By id or plural, in lower case.
    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ext| {
            let (id, plural, ..) = ext.schema();
            name == id || name == plural
        })
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Token => "Token",
            Self::Kubeconfig => "Kubeconfig",
            Self::PasswordChange => "PasswordChangeRequest",
            Self::UserActivity => "UserActivity",
        }
    }

    fn object(self, base: &Base, name: &str, spec: Value, status: Value) -> Value {
        let (id, plural, ..) = self.schema();
        let mut object = json!({
            "type": id, "apiVersion": API_VERSION, "kind": self.kind(), "links": {}, "spec": spec, "status": status,
            "metadata": {},
        });
        if !name.is_empty() {
            let own = format!("{}/{plural}/{name}", base.root());
            object["id"] = name.into();
            object["metadata"]["name"] = name.into();
            object["links"] = json!({"self": own, "remove": own});
        }
        object
    }
}

/// Answers a request for one of these kinds.
pub(crate) async fn answer(
    api: &Shared,
    visit: &Visit,
    ext: Ext,
    rest: &[&str],
    call: &Call,
    body: Body,
) -> Result<Ended, Refusal> {
    match (ext, rest, &call.head.method) {
        (Ext::Token, [], &Method::GET | &Method::HEAD) => {
            let list = ask(api, call, Method::GET, TOKENS, None).await?;
            let tokens = list["data"].as_array().into_iter().flatten();
            let data: Vec<Value> = tokens.map(|token| shown(&visit.base, token)).collect();
            let (id, plural, ..) = ext.schema();
            let mut answer = collection(&visit.base, id, &format!("/{plural}"));
            answer["createTypes"][id] = format!("{}/{plural}", visit.base.root()).into();
            answer["count"] = data.len().into();
            answer["data"] = data.into();
            Ok((StatusCode::OK, Some(answer)))
        }
        (Ext::Token, [], &Method::POST) => {
            let asked = token_asked(&spec(body).await?)?;
            let made = ask(api, call, Method::POST, TOKENS, Some(asked)).await?;
            Ok((StatusCode::CREATED, Some(created(&visit.base, &made))))
        }
        (Ext::Token, [name], method @ (&Method::GET | &Method::DELETE)) => {
            let path = format!("{TOKENS}/{}", plain(name)?);
            let token = ask(api, call, method.clone(), &path, None).await?;
            Ok(match *method == Method::DELETE {
                true => (StatusCode::NO_CONTENT, None),
                false => (StatusCode::OK, Some(shown(&visit.base, &token))),
            })
        }
        (Ext::Kubeconfig, [], &Method::POST) => kubeconfig(api, visit, call, &spec(body).await?).await,
        (Ext::PasswordChange, [], &Method::POST) => {
            let spec = spec(body).await?;
            let user = text(&spec, "userID")?;
            if !user.is_empty() && user != call.caller.name {
                return Err(Refusal::forbidden("spec.userID: only your own password is changed here"));
            }
            let asked = json!({
                "currentPassword": text(&spec, "currentPassword")?, "newPassword": text(&spec, "newPassword")?,
            });
            ask(api, call, Method::POST, &format!("{USERS}?action=changepassword"), Some(asked)).await?;
            let status = json!({"summary": "Completed"});
            let answer = ext.object(&visit.base, "", json!({"userID": call.caller.name}), status);
            Ok((StatusCode::CREATED, Some(answer)))
        }
        (Ext::UserActivity, [name], &Method::GET | &Method::HEAD | &Method::PUT) => {
            let path = format!("{TOKENS}/{}", plain(name)?);
            let token = ask(api, call, Method::GET, &path, None).await?;
            let status = json!({"expiresAt": token["expiresAt"]});
            let mut activity = ext.object(&visit.base, name, json!({}), status);
            if let Some(links) = activity["links"].as_object_mut() {
                let own = links.remove("remove").unwrap_or_default();
                links.insert("update".to_owned(), own);
            }
            Ok((StatusCode::OK, Some(activity)))
        }
        (Ext::UserActivity, ..) => Err(Refusal::method_not_allowed(&["GET", "PUT"])),
        (Ext::Token, [] | [_], _) => Err(Refusal::method_not_allowed(&["GET", "POST", "DELETE"])),
        (_, [], _) => Err(Refusal::method_not_allowed(&["POST"])),
        _ => Err(Refusal::not_found()),
    }
}

/// A request to a door of people, by the caller of this one.
pub(crate) async fn ask(
    api: &Shared,
    call: &Call,
    method: Method,
    uri: &str,
    body: Option<Value>,
) -> Result<Value, Refusal> {
    let opening = api.people.as_ref().ok_or_else(Refusal::not_found)?;
    let request = Request::builder().method(method).uri(uri).body(());
    let (mut head, ()) = request.map_err(|_| Refusal::not_found())?.into_parts();
    head.headers.clone_from(&call.head.headers);
    head.headers.remove(header::CONTENT_LENGTH);
    let call = Call {
        door: opening.door,
        peer: call.peer,
        caller: call.caller.clone(),
        management: call.management.clone(),
        head,
    };
    let body = body.map(|body| Body::from(body.to_string())).unwrap_or_default();
    let answer = opening.handler.handle(call, body).await?;
    let code = answer.status();
    let failed = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; the log says why");
    let bytes = answer.into_body().collect().await.map_err(|_| failed())?.to_bytes();
    if !code.is_success() {
        return Err(failed());
    }
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// A name that can be part of a path as it is; what is none names nothing.
pub(crate) fn plain(name: &str) -> Result<&str, Refusal> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let good = !name.is_empty() && name.bytes().all(is_name) && name != "." && name != "..";
    good.then_some(name).ok_or_else(Refusal::not_found)
}

/// The spec of what is to be made.
async fn spec(body: Body) -> Result<Value, Refusal> {
    let object: Value = body.json().await?;
    match object.get("spec") {
        None | Some(Value::Null) => Ok(json!({})),
        Some(spec @ Value::Object(_)) => Ok(spec.clone()),
        Some(_) => Err(invalid("spec: is not an object")),
    }
}

fn text(spec: &Value, field: &str) -> Result<String, Refusal> {
    match &spec[field] {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(invalid(format!("spec.{field}: is not a text"))),
    }
}

fn number(spec: &Value, field: &str) -> Result<i64, Refusal> {
    match &spec[field] {
        Value::Null => Ok(0),
        value => value.as_i64().ok_or_else(|| invalid(format!("spec.{field}: is not a whole number"))),
    }
}

/// A token as the door of tokens is asked for it. Times are in milliseconds in both.
fn token_asked(spec: &Value) -> Result<Value, Refusal> {
    Ok(json!({
        "userId": text(spec, "userID")?, "description": text(spec, "description")?, "ttl": number(spec, "ttl")?,
        "clusterId": text(spec, "clusterName")?, "kind": text(spec, "kind")?,
    }))
}

/// A token without its value.
fn shown(base: &Base, token: &Value) -> Value {
    let spec = json!({
        "userID": token["userId"], "description": token["description"], "ttl": token["ttl"],
        "enabled": token["enabled"], "kind": token["kind"], "clusterName": token["clusterId"],
    });
    let status = json!({
        "expired": token["expired"], "expiresAt": token["expiresAt"], "lastUsedAt": token["lastUsedAt"],
        "current": token["current"] == true,
    });
    let mut shown = Ext::Token.object(base, token["id"].as_str().unwrap_or_default(), spec, status);
    shown["metadata"]["creationTimestamp"] = token["created"].clone();
    shown
}

/// A token that was made, with its value: the only time it is told.
fn created(base: &Base, token: &Value) -> Value {
    let mut shown = shown(base, token);
    let bearer = token["token"].as_str().unwrap_or_default();
    shown["status"]["bearerToken"] = bearer.into();
    shown["status"]["value"] = bearer.split_once(':').map(|(_, key)| key).unwrap_or_default().into();
    shown
}

/// What a kubeconfig is asked for.
#[derive(Debug, PartialEq, Eq)]
struct KubeconfigAsked {
    /// All the caller may read.
    all: bool,
    clusters: Vec<String>,
    current: String,
    description: String,
    milliseconds: i64,
}

fn kubeconfig_asked(spec: &Value) -> Result<KubeconfigAsked, Refusal> {
    let names = spec["clusters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Option<Vec<String>> = names.iter().map(|name| name.as_str().map(str::to_owned)).collect();
    let mut clusters = names.ok_or_else(|| invalid("spec.clusters: holds what is no name"))?;
    clusters.sort();
    clusters.dedup();
    let all = clusters == ["*"];
    if clusters.is_empty() || clusters.len() > MOST_CLUSTERS {
        return Err(Refusal::bad(format!(
            "spec.clusters: must name from 1 to {MOST_CLUSTERS} clusters, or \"*\""
        )));
    }
    let current = text(spec, "currentContext")?;
    if !current.is_empty() && !all && !clusters.contains(&current) {
        return Err(Refusal::bad("spec.currentContext: is not one of spec.clusters"));
    }
    let milliseconds = number(spec, "ttl")?.checked_mul(1000).filter(|time| *time >= 0);
    let milliseconds =
        milliseconds.ok_or_else(|| Refusal::bad("spec.ttl: must not be negative, or that long"))?;
    Ok(KubeconfigAsked { all, clusters, current, description: text(spec, "description")?, milliseconds })
}

async fn kubeconfig(api: &Shared, visit: &Visit, call: &Call, spec: &Value) -> Result<Ended, Refusal> {
    let mut asked = kubeconfig_asked(spec)?;
    let kind = visit.catalogue.of(&format!("{MANAGEMENT}/"), "Cluster").ok_or_else(Refusal::not_found)?;
    if asked.all {
        let rows = visit.rows(kind, "", None).await?.rows;
        asked.clusters = rows.iter().map(|row| row.name().to_owned()).take(MOST_CLUSTERS).collect();
    }
    // Before any token is made.
    for (place, id) in asked.clusters.iter().enumerate() {
        if !visit.rights.may("get", kind, "", id) {
            return Err(Refusal::forbidden(format!(
                "spec.clusters[{place}]: you have no role in cluster {id:?}"
            )));
        }
    }
    let mut configs = Vec::new();
    for id in &asked.clusters {
        let uri = format!("{CLUSTERS}/{}?action=generateKubeconfig", plain(id)?);
        let wanted = json!({"ttl": asked.milliseconds, "description": asked.description, "token": true});
        let made = ask(api, call, Method::POST, &uri, Some(wanted)).await?;
        let config = serde_saphyr::from_str(made["config"].as_str().unwrap_or_default());
        configs.push((id.clone(), config.map_err(|error| Refusal::failed("read a kubeconfig", &error))?));
    }
    let value = serde_saphyr::to_string(&merged(&configs, &asked.current));
    let value = value.map_err(|error| Refusal::failed("write a kubeconfig", &error))?;
    let spec = json!({
        "clusters": asked.clusters, "currentContext": asked.current, "description": asked.description,
        "ttl": asked.milliseconds / 1000,
    });
    let status = json!({"summary": "Complete", "value": value});
    Ok((StatusCode::CREATED, Some(Ext::Kubeconfig.object(&visit.base, "", spec, status))))
}

/// Kubeconfigs of clusters as one. Of several that have a name in common the later ones are called by their clusters' ids.
fn merged(configs: &[(String, Value)], current: &str) -> Value {
    let mut all = json!({
        "apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": [], "current-context": "",
    });
    for (id, config) in configs {
        let mut names = std::collections::HashMap::new();
        for field in ["clusters", "users", "contexts"] {
            for entry in config[field].as_array().into_iter().flatten() {
                let mut entry = entry.clone();
                let name = entry["name"].as_str().unwrap_or_default().to_owned();
                let is_taken = all[field]
                    .as_array()
                    .is_some_and(|known| known.iter().any(|known| known["name"] == name.as_str()));
                let own = if is_taken { format!("{name}-{id}") } else { name.clone() };
                names.insert((field, name), own.clone());
                entry["name"] = own.into();
                if field == "contexts" {
                    for (part, of) in [("cluster", "clusters"), ("user", "users")] {
                        let name = entry["context"][part].as_str().unwrap_or_default().to_owned();
                        if let Some(own) = names.get(&(of, name)) {
                            entry["context"][part] = own.as_str().into();
                        }
                    }
                }
                if let Some(list) = all[field].as_array_mut() {
                    list.push(entry);
                }
            }
        }
        let own = config["current-context"].as_str().unwrap_or_default();
        let own = names.get(&("contexts", own.to_owned()));
        if let Some(own) = own.filter(|_| all["current-context"] == "" || id == current) {
            all["current-context"] = own.as_str().into();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Base {
        Base { api: "https://h".to_owned() }
    }

    #[test]
    fn the_value_of_a_token_is_told_once() {
        let made = json!({"id": "token-a", "token": "token-a:key", "userId": "u", "ttl": 5, "enabled": true});
        let told = created(&base(), &made);
        assert_eq!(
            (&told["status"]["value"], &told["status"]["bearerToken"]),
            (&json!("key"), &json!("token-a:key"))
        );
        assert_eq!(told["links"]["self"], "https://h/v1/ext.cattle.io.tokens/token-a");
        let later = shown(&base(), &made);
        assert!(!later.to_string().contains("key") && later["spec"]["ttl"] == 5, "{later}");
    }

    #[test]
    fn bad_input_is_named() {
        let told = |spec: Value| kubeconfig_asked(&spec).unwrap_err().message;
        assert!(told(json!({})).starts_with("spec.clusters:"));
        assert!(told(json!({"clusters": [1]})).starts_with("spec.clusters:"));
        assert!(told(json!({"clusters": ["a"], "currentContext": "b"})).starts_with("spec.currentContext:"));
        assert!(told(json!({"clusters": ["a"], "ttl": -1})).starts_with("spec.ttl:"));
        assert!(told(json!({"clusters": ["a"], "ttl": i64::MAX})).starts_with("spec.ttl:"));
        let many: Vec<String> = (0..65).map(|number| format!("c-{number}")).collect();
        assert!(told(json!({"clusters": many})).starts_with("spec.clusters:"));
        assert!(kubeconfig_asked(&json!({"clusters": ["*"]})).unwrap().all);
        assert!(plain("token-a").is_ok());
        for odd in ["", "..", "a/b", "a?b", "A"] {
            assert_eq!(plain(odd).unwrap_err().code, 404, "{odd}");
        }
        assert!(token_asked(&json!({"ttl": "x"})).unwrap_err().message.starts_with("spec.ttl:"));
    }

    #[test]
    fn kubeconfigs_become_one() {
        let config = |server: &str| {
            json!({
                "clusters": [{"name": "demo", "cluster": {"server": server}}],
                "users": [{"name": "demo", "user": {"token": server}}],
                "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
                "current-context": "demo",
            })
        };
        let configs = [("c-1".to_owned(), config("one")), ("c-2".to_owned(), config("two"))];
        let all = merged(&configs, "c-2");
        assert_eq!(all["current-context"], "demo-c-2");
        let context = &all["contexts"][1];
        assert_eq!(
            context,
            &json!({"name": "demo-c-2", "context": {"cluster": "demo-c-2", "user": "demo-c-2"}})
        );
        assert_eq!(all["users"][1]["user"]["token"], "two");
        assert_eq!(merged(&configs, "")["current-context"], "demo");
        assert_eq!(merged(&[("c-1".to_owned(), json!("hostile"))], "")["clusters"], json!([]));
    }
}
