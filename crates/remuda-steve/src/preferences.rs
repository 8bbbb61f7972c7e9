//! What the dashboard of a user remembers on the server: one object of texts for each user, which only they see.
//!
//! It is kept in a ConfigMap of the namespace for global data, written by the server and not as the caller: users have
//! no rights there. It goes with the User.

use http::{Method, StatusCode};
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use remuda_door::{Body, Call, Refusal};
pub(crate) use remuda_names::list_api::preferences::{ID, PLURAL};
use remuda_names::{
    list_api::preferences::{ENCODED_PREFIX, KEY, PREFIX},
    rancher::{group::MANAGEMENT, name::GLOBAL_DATA},
};
use serde_json::{Map, Value, json};

use crate::{
    answer::{invalid, refused},
    show::collection,
    visit::{Source, Visit},
};

/// Keys, and bytes of all of them and their values.
const MOST_KEYS: usize = 256;
const MOST_BYTES: usize = 128 << 10;
/// Longest name of a user that has preferences.
const LONGEST_NAME: usize = 100;
/// Attempts to write against other writers.
const ATTEMPTS: usize = 5;

/// Id, plural and methods of the schema.
pub(crate) const SCHEMA: (&str, &str, &[&str], &[&str]) = (ID, PLURAL, &["GET", "PUT", "DELETE"], &["GET"]);

/// Answers a request for preferences: `rest` is the path behind their list.
pub(crate) async fn handle(
    client: &Client,
    visit: &Visit,
    rest: &[&str],
    call: &Call,
    body: Body,
) -> Result<(StatusCode, Option<Value>), Refusal> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), GLOBAL_DATA);
    let name = place(&visit.user)?;
    let get = matches!(call.head.method, Method::GET | Method::HEAD);
    match rest {
        [] if get => {
            let mut answer = collection(&visit.base, ID, &format!("/{PLURAL}"));
            answer["data"] = json!([shown(visit, read(&maps, &name).await?.1)]);
            answer["count"] = 1.into();
            Ok((StatusCode::OK, Some(answer)))
        }
        [] => Err(Refusal::method_not_allowed(&["GET"])),
        // Whether other users have preferences is not told.
        [user] if *user != visit.user => Err(Refusal::not_found()),
        [_] if get => Ok((StatusCode::OK, Some(shown(visit, read(&maps, &name).await?.1)))),
        [_] if call.head.method == Method::PUT => {
            let data = given(body.json().await?)?;
            write(visit, &maps, &name, &data).await?;
            Ok((StatusCode::OK, Some(shown(visit, data))))
        }
        [_] if call.head.method == Method::DELETE => {
            match maps.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => drop(done.map_err(refused)?),
            }
            Ok((StatusCode::NO_CONTENT, None))
        }
        [_] => Err(Refusal::method_not_allowed(&["GET", "PUT", "DELETE"])),
        _ => Err(Refusal::not_found()),
    }
}

/// The name of the ConfigMap of a user. No two users have one in common.
fn place(user: &str) -> Result<String, Refusal> {
    if user.is_empty() || user.len() > LONGEST_NAME {
        return Err(invalid(format!(
            "users whose names have more than {LONGEST_NAME} bytes have no preferences"
        )));
    }
    let plain = user.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    Ok(match plain && !user.ends_with('-') {
        true => format!("{PREFIX}{user}"),
        false => format!("{ENCODED_PREFIX}{}", remuda_base::hex(user.as_bytes())),
    })
}

/// Preferences as they were sent. Values are texts; clients put JSON into them.
fn given(body: Value) -> Result<Map<String, Value>, Refusal> {
    let Value::Object(mut body) = body else { return Err(invalid("the body is not an object")) };
    let data = match body.remove("data") {
        None | Some(Value::Null) => return Ok(Map::new()),
        Some(Value::Object(data)) => data,
        Some(_) => return Err(invalid("data: is not an object")),
    };
    if data.len() > MOST_KEYS {
        return Err(invalid(format!("data: has more than {MOST_KEYS} keys")));
    }
    let mut bytes = 0;
    for (key, value) in &data {
        let Some(text) = value.as_str() else {
            let key: String = key.chars().take(64).collect();
            return Err(invalid(format!("data[{key}]: is not a text")));
        };
        bytes += key.len() + text.len();
    }
    if bytes > MOST_BYTES {
        return Err(invalid(format!("data: has more than {MOST_BYTES} bytes")));
    }
    Ok(data)
}

fn shown(visit: &Visit, data: Map<String, Value>) -> Value {
    let own = format!("{}/{PLURAL}/{}", visit.base.root(), visit.user);
    json!({"id": visit.user, "type": ID, "links": {"self": own, "update": own, "remove": own}, "data": data})
}

/// The ConfigMap, and what is in it; nothing if there is none.
async fn read(maps: &Api<ConfigMap>, name: &str) -> Result<(Option<ConfigMap>, Map<String, Value>), Refusal> {
    let found = maps.get_opt(name).await.map_err(refused)?;
    let text = found.as_ref().and_then(|map| map.data.as_ref()?.get(KEY));
    let data = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    Ok((found, data))
}

/// Puts these preferences in the place of all others.
async fn write(
    visit: &Visit,
    maps: &Api<ConfigMap>,
    name: &str,
    data: &Map<String, Value>,
) -> Result<(), Refusal> {
    let text = Value::Object(data.clone()).to_string();
    let owner = owner(visit).await;
    for attempt in 1.. {
        let (found, _) = read(maps, name).await?;
        let content = Some([(KEY.to_owned(), text.clone())].into());
        let done = match found {
            Some(mut map) => {
                map.data = content;
                maps.replace(name, &PostParams::default(), &map).await
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(name.to_owned()),
                    owner_references: owner.clone().map(|owner| vec![owner]),
                    ..ObjectMeta::default()
                };
                let map = ConfigMap { metadata, data: content, ..ConfigMap::default() };
                maps.create(&PostParams::default(), &map).await
            }
        };
        match done {
            // Another page of the same user was faster: the last one counts.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) && attempt < ATTEMPTS => {}
            done => return done.map(drop).map_err(refused),
        }
    }
    Ok(())
}

/// The User, with which preferences go. Callers that are no Users (certificates, accounts of services) have none.
async fn owner(visit: &Visit) -> Option<OwnerReference> {
    let Source::Indexes(indexes) = &visit.source else { return None };
    let kind = visit.catalogue.of(&format!("{MANAGEMENT}/"), "User")?;
    let row = indexes.get(kind, false).await.ok()?.row("", &visit.user)?;
    Some(OwnerReference {
        api_version: kind.api_version(),
        kind: kind.kind.clone(),
        name: row.name().to_owned(),
        uid: row.uid.to_string(),
        ..OwnerReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_places_of_their_own() {
        assert_eq!(place("u-abc").unwrap(), "preferences-u-abc");
        assert_eq!(place("a:B").unwrap(), "preferences.613a42");
        assert_eq!(place("a-").unwrap(), "preferences.612d");
        assert_eq!(place("").unwrap_err().code, 422);
        assert_eq!(place(&"x".repeat(101)).unwrap_err().code, 422);
    }

    #[test]
    fn preferences_are_a_few_texts() {
        assert_eq!(given(json!({"data": {"theme": "dark"}})).unwrap()["theme"], "dark");
        assert!(given(json!({})).unwrap().is_empty());
        let many: Map<String, Value> = (0..257).map(|key| (key.to_string(), "".into())).collect();
        for (bad, told) in [
            (json!([]), "the body"),
            (json!({"data": 7}), "data:"),
            (json!({"data": {"a": {"b": 1}}}), "data[a]:"),
            (json!({"data": many}), "data: has more than 256 keys"),
            (json!({"data": {"a": "x".repeat(MOST_BYTES)}}), "data: has more than"),
        ] {
            let refusal = given(bad).unwrap_err();
            assert!(refusal.message.starts_with(told) && refusal.code == 422, "{}", refusal.message);
        }
    }
}
