//! Settings for those who have not logged in, and for clients that ask for them one by one.
//!
//! A login page needs some settings before a login, and programs of Rancher do nothing without others.
//! Which those are is a list of names: nothing else is shown to strangers, and what is in it holds no secret.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use remuda_door::{Answer, Body, Call, Handler, Refusal};
use remuda_names::{
    list_api::{COMMON_SETTINGS, PUBLIC_SETTINGS, header, path},
    rancher::group::MANAGEMENT,
};
use serde_json::{Value, json};

use crate::{
    answer::{answer, failure},
    api::{Asked, Shared, host_of},
    index::Index,
    kind::Kind,
    list,
    older::where_schemas_are,
    query::ListQuery,
    row::Row,
    show::Base,
    visit::{Snapshot, Source, Visit},
};

fn is_public(row: &Row) -> bool {
    PUBLIC_SETTINGS.contains(&row.name())
}

/// Answers an anonymous request for settings: `rest` is the path behind the list of them.
pub(crate) async fn for_strangers(
    api: &Arc<Shared>,
    call: &Call,
    base: &Base,
    asked: &Asked,
) -> Response<Body> {
    let mut response = match strangers(api, call, base, asked).await {
        Ok(value) => answer(base, StatusCode::OK, &value, asked.is_yaml),
        Err(refusal) => failure(base, refusal),
    };
    unknown_caller(response.headers_mut());
    response
}

/// Says that the request is anonymous.
pub(crate) fn unknown_caller(headers: &mut HeaderMap) {
    headers.insert(header::AUTHENTICATED, HeaderValue::from_static("false"));
}

async fn strangers(api: &Arc<Shared>, call: &Call, base: &Base, asked: &Asked) -> Result<Value, Refusal> {
    let unknown = || Refusal::unauthorized("Unauthorized");
    if !matches!(call.head.method, Method::GET | Method::HEAD) {
        return Err(unknown());
    }
    let rest: Vec<&str> = asked.parts.iter().skip(1).map(String::as_str).collect();
    let visit = api.visit(call, base.clone()).await?;
    let (kind, index) = all(&visit).await?;
    let query = ListQuery::parse(&asked.parameters).map_err(|bad| Refusal::bad(bad.0))?;
    match rest.as_slice() {
        [] => {
            let (mut rows, revision) = index.rows("");
            rows.retain(|row| is_public(row));
            list::of_rows(&visit, &kind, "", &query, Snapshot { rows, revision, _held: None }).await
        }
        [name] => {
            let row = index.row("", name).filter(|row| is_public(row)).ok_or_else(unknown)?;
            Ok(list::projected(visit.shown_row(&kind, &row), &query))
        }
        _ => Err(unknown()),
    }
}

/// The index of settings.
async fn all(visit: &Visit) -> Result<(Arc<Kind>, Arc<Index>), Refusal> {
    let kind = visit.catalogue.of(&format!("{MANAGEMENT}/"), "Setting").cloned();
    let (Some(kind), Source::Indexes(indexes)) = (kind, &visit.source) else {
        return Err(Refusal::not_yet("settings are not there yet"));
    };
    let index = indexes.get(&kind, true).await?;
    Ok((kind, index))
}

/// Settings as older clients ask for them: read, one by one or all.
pub(crate) struct OlderSettings(pub(crate) Arc<Shared>);

impl Handler for OlderSettings {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let base = Base { api: format!("https://{}", host_of(&call)) };
            let known = !call.caller.is_anonymous();
            let mut response = match older(&self.0, &call, &base).await {
                Ok(value) => answer(&base, StatusCode::OK, &value, false),
                Err(refusal) => failure(&base, refusal),
            };
            where_schemas_are(&base, &mut response);
            if !known {
                unknown_caller(response.headers_mut());
            }
            Ok(response)
        })
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        refused(refusal)
    }
}

/// A refusal before the handler was reached.
pub(crate) fn refused(refusal: Refusal) -> Response<Body> {
    let unknown = refusal.code == StatusCode::UNAUTHORIZED;
    let mut response = refusal.as_error().response();
    let word = HeaderValue::from_static(if unknown { "false" } else { "true" });
    response.headers_mut().insert(header::AUTHENTICATED, word);
    response
}

async fn older(api: &Arc<Shared>, call: &Call, base: &Base) -> Result<Value, Refusal> {
    let rest = call.path().strip_prefix(path::SETTINGS_V3).unwrap_or_default();
    let asked = Asked::new(rest, None, &call.head.headers);
    let visit = api.visit(call, base.clone()).await?;
    let (kind, index) = all(&visit).await?;
    let known = !call.caller.is_anonymous();
    let is_shown = |row: &Row| {
        is_public(row)
            || known
                && (COMMON_SETTINGS.contains(&row.name()) || visit.rights.may_read(&kind, "", row.name()))
    };
    let parts: Vec<&str> = asked.parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [] => {
            let (rows, _) = index.rows("");
            let data: Vec<Value> =
                rows.iter().filter(|row| is_shown(row)).map(|row| older_form(base, row)).collect();
            Ok(json!({
                "type": "collection", "resourceType": "setting", "actions": {}, "data": data,
                "links": {"self": format!("{}{}", base.api, path::SETTINGS_V3)},
            }))
        }
        [name] => match index.row("", name) {
            Some(row) if is_shown(&row) => Ok(older_form(base, &row)),
            _ if !known => Err(Refusal::unauthorized("Unauthorized")),
            _ => Err(Refusal::not_found()),
        },
        _ => Err(Refusal::not_found()),
    }
}

/// With the value that counts.
fn older_form(base: &Base, row: &Row) -> Value {
    let object = row.object();
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let value = if text("value").is_empty() { text("default") } else { text("value") };
    json!({
        "id": row.name(), "type": "setting", "baseType": "setting", "name": row.name(), "value": value,
        "default": text("default"), "customized": !text("value").is_empty(), "source": text("source"),
        "links": {"self": format!("{}{}/{}", base.api, path::SETTINGS_V3, row.name())}, "actions": {},
        "created": object["metadata"]["creationTimestamp"], "createdTS": row.created.map(|seconds| seconds * 1000),
        "uuid": object["metadata"]["uid"],
    })
}
