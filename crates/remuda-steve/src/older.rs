//! Objects as clients of Rancher's older API (`/v3`) know them: those that its dashboard cannot do without.
//!
//! Reads    management Clusters, registration tokens, node drivers and cloud credentials, by the caller's rights.
//! Writes   as the caller, through the Kubernetes API: registration tokens, credentials, whether a driver is active.
//! Never    shows a value of a credential whose driver does not call it public.
//!
//! It is another face of the same rows the list API has: which rows there are is decided there, how one looks here
//! ([`form`]), which of them are meant in [`query`].

pub(crate) mod credential;
mod form;
mod query;
mod schemas;
mod token;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderValue, Method, Response, StatusCode};
use remuda_door::{Answer, Body, Call, Handler, Refusal};
use remuda_names::{
    identity::path::CLUSTERS,
    list_api::{RANCHER_VERSION, header, path},
    rancher::{
        group::MANAGEMENT,
        name::{GLOBAL_DATA, LOCAL},
    },
};
use serde_json::{Map, Value, json};

pub(crate) use self::schemas::OlderSchemas;
use self::{form::Form, query::Query};
use crate::{
    answer::{answer, failure, invalid, nothing},
    api::{Asked, Shared, host_of},
    kind::Kind,
    row::Row,
    settings::refused,
    show::Base,
    visit::Visit,
    write,
};

/// A kind of the older API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Older {
    Cluster,
    RegistrationToken,
    Driver,
    Credential,
}

impl Older {
    pub(crate) const ALL: [Self; 4] =
        [Self::Cluster, Self::RegistrationToken, Self::Driver, Self::Credential];

    /// Name of its schema.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::RegistrationToken => "clusterRegistrationToken",
            Self::Driver => "nodeDriver",
            Self::Credential => "cloudCredential",
        }
    }

    /// Of its collection, in the spellings clients use.
    fn paths(self) -> [&'static str; 2] {
        match self {
            Self::Cluster => [CLUSTERS, CLUSTERS],
            Self::RegistrationToken => [path::REGISTRATION_TOKENS_V3, path::REGISTRATION_TOKENS_V3_CAMEL],
            Self::Driver => [path::NODE_DRIVERS_V3, path::NODE_DRIVERS_V3_CAMEL],
            Self::Credential => [path::CREDENTIALS_V3, path::CREDENTIALS_V3_CAMEL],
        }
    }

    pub(crate) fn collection(self, base: &Base) -> String {
        format!("{}{}", base.api, self.paths()[0])
    }

    /// Of one object. Clients know it by the other spelling.
    fn object(self, base: &Base, id: &str) -> String {
        format!("{}{}/{id}", base.api, self.paths()[1])
    }

    /// The kind of the Kubernetes API behind it.
    pub(crate) fn kind(self, visit: &Visit) -> Result<Arc<Kind>, Refusal> {
        let (group, kind) = match self {
            Self::Cluster => (MANAGEMENT, "Cluster"),
            Self::RegistrationToken => (MANAGEMENT, "ClusterRegistrationToken"),
            Self::Driver => (MANAGEMENT, "NodeDriver"),
            Self::Credential => ("", "Secret"),
        };
        let api_version = if group.is_empty() { String::new() } else { format!("{group}/") };
        visit.catalogue.of(&api_version, kind).cloned().ok_or_else(Refusal::not_found)
    }

    /// The kind of a path, and what is behind its collection.
    fn of(path: &str) -> Option<(Self, &str)> {
        Self::ALL.into_iter().find_map(|older| {
            let rest = older.paths().into_iter().find_map(|own| path.strip_prefix(own))?;
            (rest.is_empty() || rest.starts_with('/')).then_some((older, rest))
        })
    }

    /// Whether an object of the kind is one of these.
    fn includes(self, row: &Row) -> bool {
        self != Self::Credential
            || (row.namespace() == GLOBAL_DATA && credential::driver_of(&row.object()).is_some())
    }
}

/// What a request ends with: an answer, or nothing to say.
type Ended = Result<(StatusCode, Option<Value>), Refusal>;

/// Behind the door of kinds of the older API.
pub(crate) struct OlderKinds(pub(crate) Arc<Shared>);

impl Handler for OlderKinds {
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move { Ok(respond(&self.0, call, body).await) })
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        refused(refusal)
    }
}

/// Takes requests that read clusters; all others go on to the door of people.
pub(crate) struct InFrontOfClusters {
    pub(crate) api: Arc<Shared>,
    pub(crate) people: Arc<dyn Handler>,
}

impl Handler for InFrontOfClusters {
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer> {
        if call.head.method == Method::POST {
            return self.people.handle(call, body);
        }
        Box::pin(async move { Ok(respond(&self.api, call, body).await) })
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        self.people.refused(refusal)
    }
}

async fn respond(api: &Arc<Shared>, call: Call, body: Body) -> Response<Body> {
    let base = Base { api: format!("https://{}", host_of(&call)) };
    let mut response = match asked(api, &base, call, body).await {
        Ok((code, Some(value))) => answer(&base, code, &value, false),
        Ok((_, None)) => nothing(&base),
        Err(refusal) => failure(&base, refusal),
    };
    where_schemas_are(&base, &mut response);
    response
}

/// Clients look for the schemas at what any answer says.
pub(crate) fn where_schemas_are(base: &Base, response: &mut Response<Body>) {
    if let Ok(schemas) = HeaderValue::try_from(format!("{}{}", base.api, path::SCHEMAS_V3)) {
        response.headers_mut().insert(header::SCHEMAS, schemas);
    }
}

async fn asked(api: &Arc<Shared>, base: &Base, call: Call, body: Body) -> Ended {
    let path = call.path().to_owned();
    let (older, rest) = Older::of(&path).ok_or_else(Refusal::not_found)?;
    let asked = Asked::new(rest, call.head.uri.query(), &call.head.headers);
    let visit = api.visit(&call, base.clone()).await?;
    let shelf = Shelf { visit: &visit, older, kind: older.kind(&visit)? };
    let action = asked.parameters.get("action").unwrap_or_default();
    let reads = matches!(call.head.method, Method::GET | Method::HEAD);
    let parts: Vec<&str> = asked.parts.iter().map(String::as_str).collect();
    match (parts.as_slice(), &call.head.method) {
        ([], _) if reads => shelf.list(&Query::parse(&asked.parameters)).await,
        ([], &Method::POST) => shelf.create(body).await,
        ([id], _) if reads => shelf.one(id).await,
        ([id], &Method::POST) if older == Older::Driver => shelf.activate(id, action).await,
        ([id], &Method::PUT) if older == Older::Credential => shelf.update(id, body).await,
        ([id], &Method::DELETE) if older != Older::Cluster => shelf.remove(id).await,
        ([_], &Method::POST) => Err(no_action(action)),
        ([] | [_], _) => Err(Refusal::method_not_allowed(&["GET"])),
        _ => Err(Refusal::not_found()),
    }
}

fn no_action(action: &str) -> Refusal {
    let action: String = action.chars().take(64).collect();
    invalid(format!("there is no action {action:?} here")).because("InvalidAction")
}

/// One kind, as one caller sees it.
struct Shelf<'a> {
    visit: &'a Visit,
    older: Older,
    kind: Arc<Kind>,
}

impl Shelf<'_> {
    async fn list(&self, query: &Query) -> Ended {
        let namespace = if self.older == Older::Credential { GLOBAL_DATA } else { "" };
        let rows = self.visit.rows(&self.kind, namespace, None).await?.rows;
        let mut forms = Vec::new();
        for row in rows.iter().filter(|row| self.older.includes(row)) {
            forms.push(self.form(row).await);
        }
        let (data, pagination) = query.page(forms, &self.older.collection(&self.visit.base));
        let mut answer = json!({
            "type": "collection", "resourceType": self.older.id(), "actions": {}, "createTypes": {},
            "links": {"self": self.older.collection(&self.visit.base)}, "pagination": pagination,
        });
        if self.methods().1.contains(&"POST") {
            answer["createTypes"][self.older.id()] = self.older.collection(&self.visit.base).into();
        }
        answer["data"] = data.into();
        Ok((StatusCode::OK, Some(answer)))
    }

    /// Methods of an object and of the collection, of those that are answered here.
    fn methods(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        schemas::methods(self.visit, &self.visit.rights.sheet(), self.older, &self.kind)
    }

    /// The namespace and the name an id stands for.
    fn place<'i>(&self, id: &'i str) -> Result<(&'i str, &'i str), Refusal> {
        match (self.kind.namespaced, id.split_once(':')) {
            (false, None) => Ok(("", id)),
            (true, Some((namespace, name))) if !namespace.is_empty() && !name.is_empty() => {
                Ok((namespace, name))
            }
            _ => Err(Refusal::not_found()),
        }
    }

    async fn row(&self, id: &str) -> Result<Arc<Row>, Refusal> {
        let (namespace, name) = self.place(id)?;
        let row = self.visit.seen(&self.kind, namespace, name).await?;
        if self.older.includes(&row) { Ok(row) } else { Err(Refusal::not_found()) }
    }

    async fn one(&self, id: &str) -> Ended {
        let row = match self.row(id).await {
            Ok(row) => row,
            Err(refusal) if self.older == Older::Cluster && id == LOCAL => {
                // A caller who may not read a Cluster of that name may know that the server itself is one.
                let is_missing = matches!(refusal.code, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN);
                return if is_missing { Ok((StatusCode::OK, Some(self.local()))) } else { Err(refusal) };
            }
            Err(refusal) => return Err(refusal),
        };
        Ok((StatusCode::OK, Some(self.form(&row).await)))
    }

    /// The server itself, which clients take for the cluster `local`. It has no object.
    fn local(&self) -> Value {
        let base = &self.visit.base;
        let is = |kind: &str| json!({"type": kind, "status": "True"});
        json!({
            "id": LOCAL, "type": self.older.id(), "baseType": self.older.id(), "name": LOCAL, "state": "active",
            "transitioning": "no", "transitioningMessage": "", "internal": true, "driver": "", "provider": "",
            "conditions": [is("Ready"), is("Updated"), is("Connected")], "labels": {}, "annotations": {},
            "links": {"self": self.older.object(base, LOCAL)}, "actions": {},
        })
    }

    async fn create(&self, body: Body) -> Ended {
        let given = map_of(body.json().await?)?;
        let object = match self.older {
            Older::RegistrationToken => token::object(&given)?,
            Older::Credential => credential::object(&given, &self.visit.user)?,
            Older::Cluster | Older::Driver => return Err(Refusal::method_not_allowed(&["GET"])),
        };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let made = write::send_new(self.visit, &self.kind, &namespace, &object).await?;
        Ok((StatusCode::CREATED, Some(self.written(made).await?)))
    }

    async fn activate(&self, id: &str, action: &str) -> Ended {
        let active = match action {
            "activate" => true,
            "deactivate" => false,
            action => return Err(no_action(action)),
        };
        let (namespace, name) = self.place(id)?;
        let patch = json!({"spec": {"active": active}});
        let done = write::merge(self.visit, &self.kind, (namespace, name), &patch).await?;
        Ok((StatusCode::OK, Some(self.written(done).await?)))
    }

    /// What is given is put over what is there.
    async fn update(&self, id: &str, body: Body) -> Ended {
        let given = map_of(body.json().await?)?;
        let row = self.row(id).await?;
        let patch = credential::patch(&given, &row.object())?;
        let done = write::merge(self.visit, &self.kind, (row.namespace(), row.name()), &patch).await?;
        Ok((StatusCode::OK, Some(self.written(done).await?)))
    }

    async fn remove(&self, id: &str) -> Ended {
        let row = self.row(id).await?;
        if self.older == Older::Credential && credential::is_used(self.visit, row.name()).await? {
            let message = format!("Cloud credential {id} is used by a cluster");
            return Err(invalid(message).because("InvalidAction"));
        }
        let place = (row.namespace(), row.name());
        let gone = write::remove(self.visit, &self.kind, place, &Default::default()).await?;
        Ok(match gone.and_then(|object| self.visit.written(&self.kind, object)) {
            Some(row) => (StatusCode::OK, Some(self.form(&row).await)),
            None => (StatusCode::NO_CONTENT, None),
        })
    }

    async fn written(&self, object: Value) -> Result<Value, Refusal> {
        let row = self.visit.written(&self.kind, object);
        Ok(self.form(&row.ok_or_else(|| invalid("nothing was written"))?).await)
    }

    /// An object as its clients know it.
    async fn form(&self, row: &Row) -> Value {
        let visit = self.visit;
        let object = row.object();
        let mut form = form::form(&Form {
            id: self.older.id(),
            status_on_top: matches!(self.older, Older::Cluster | Older::RegistrationToken),
            is_called_by_display_name: matches!(self.older, Older::Cluster | Older::Driver),
            object: &object,
            state: row.timeline.at(visit.now),
            created: row.created,
        });
        let may = |verb: &str| visit.rights.may(verb, &self.kind, row.namespace(), row.name());
        let own = self.older.object(&visit.base, form["id"].as_str().unwrap_or_default());
        form["links"] = json!({"self": own});
        if may("update") && self.older == Older::Credential {
            form["links"]["update"] = own.as_str().into();
        }
        if may("delete") && self.older != Older::Cluster {
            form["links"]["remove"] = own.as_str().into();
        }
        let action = |name: &str| json!({name: format!("{own}?action={name}")});
        match self.older {
            Older::Cluster if may("get") && form["removed"].is_null() => {
                form["actions"] = action("generateKubeconfig");
            }
            Older::Cluster => {}
            Older::RegistrationToken => token::fill(visit, row, &mut form).await,
            Older::Driver => {
                let active = object["spec"]["active"] == true;
                form["state"] = if active { "active" } else { "inactive" }.into();
                if may("update") || may("patch") {
                    form["actions"] = action(if active { "deactivate" } else { "activate" });
                }
            }
            Older::Credential => credential::fill(visit, &object, &mut form).await,
        }
        form
    }
}

fn map_of(body: Value) -> Result<Map<String, Value>, Refusal> {
    match body {
        Value::Object(map) => Ok(map),
        _ => Err(invalid("the body is not an object")),
    }
}

/// A text of a body; empty where there is none.
fn text(given: &Map<String, Value>, field: &str) -> Result<String, Refusal> {
    match given.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(invalid(format!("{field}: is not a text"))),
    }
}

/// What is the same for everybody: the version whose APIs this is, and that there are no extensions.
pub(crate) struct Facts;

impl Handler for Facts {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        let base = Base { api: format!("https://{}", host_of(&call)) };
        let told = match call.path() {
            path::VERSION => json!({"Version": RANCHER_VERSION, "GitCommit": "", "RancherPrime": "false"}),
            _ => json!({"entries": {}}),
        };
        Box::pin(std::future::ready(Ok(answer(&base, StatusCode::OK, &told, false))))
    }
}
