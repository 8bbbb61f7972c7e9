//! The handler: which path means what, and whose request it is.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderMap, Method, Response, StatusCode, header};
use kube::Client;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use remuda_auth::rbac::policy::Policy;
use remuda_control::{bounded::Room, clock::Clock};
use remuda_door::{Answer, Body, Call, Handler, Opening, Refusal, accepts_gzip};
use remuda_names::list_api::path;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    actions::{self, CredentialChecks, NodeActions},
    answer::{answer, compressed, failure, nothing},
    cluster, counts,
    discovery::{Remembered, definitions},
    doors::{LIST_API, OLDER_FACTS, OLDER_KINDS, OLDER_SCHEMAS, OLDER_SETTINGS, SETTINGS},
    ext::{self, Ext},
    indexes::Indexes,
    kind::Kind,
    list,
    older::{Facts, InFrontOfClusters, OlderKinds, OlderSchemas},
    parts::PartOfCluster,
    preferences,
    query::{ListQuery, Parameters},
    rights::Rights,
    schema, schema_definition,
    settings::{self, OlderSettings},
    show::Base,
    subscribe,
    visit::{Source, Visit, unknown},
    write,
};

/// Lists that are put together at one time. They are short; their answers are not.
pub(crate) const AT_ONCE: usize = 16;
/// The catalogue of another cluster is asked for again after this.
const CLUSTER_CATALOGUE: Duration = Duration::from_secs(60);
/// Clusters whose catalogue is remembered.
const MOST_CLUSTERS: usize = 256;

/// What the list API is made of.
pub struct ListApiOptions {
    /// May read every kind. What of it a caller sees is decided by `policy`, for each query.
    pub client: Client,
    pub policy: Arc<Policy>,
    pub clock: Arc<dyn Clock>,
    /// Which kinds are parts of clusters, and shown to who may read the cluster.
    pub part_of: PartOfCluster,
    /// Who drains nodes of clusters; without it there are no actions on them.
    pub nodes: Option<Arc<dyn NodeActions>>,
    /// Who asks providers whether they take a credential; without it that is not offered.
    pub credentials: Option<Arc<dyn CredentialChecks>>,
    /// The doors of people, for tokens and kubeconfigs of callers; without it there are none.
    pub people: Option<Opening>,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

/// The list API of a server. Clones are the same.
#[derive(Clone)]
pub struct ListApi(Arc<Shared>);

pub(crate) struct Shared {
    client: Client,
    policy: Arc<Policy>,
    clock: Arc<dyn Clock>,
    part_of: PartOfCluster,
    pub(crate) nodes: Option<Arc<dyn NodeActions>>,
    pub(crate) credentials: Option<Arc<dyn CredentialChecks>>,
    pub(crate) people: Option<Opening>,
    /// The door of clusters, and what is behind it.
    pub(crate) clusters_door: OnceLock<Opening>,
    indexes: Arc<Indexes>,
    catalogue: Remembered,
    clusters: Mutex<HashMap<String, Arc<Remembered>>>,
    /// For what clusters answer.
    pub(crate) room: Arc<Room>,
    pub(crate) turns: Semaphore,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl ListApi {
    pub fn new(options: ListApiOptions) -> Self {
        let ListApiOptions { client, policy, clock, part_of, nodes, credentials, people, tasks, stop } =
            options;
        Self(Arc::new(Shared {
            indexes: Indexes::new(client.clone(), tasks.clone(), stop.clone()),
            client,
            policy,
            clock,
            part_of,
            nodes,
            credentials,
            people,
            clusters_door: OnceLock::new(),
            catalogue: Remembered::default(),
            clusters: Mutex::default(),
            room: Room::new(cluster::ROOM),
            turns: Semaphore::new(AT_ONCE),
            tasks,
            stop,
        }))
    }

    pub fn openings(&self) -> Vec<Opening> {
        let own: Arc<dyn Handler> = Arc::new(Own(self.0.clone()));
        vec![
            Opening { door: &LIST_API, handler: own.clone() },
            Opening { door: &SETTINGS, handler: own },
            Opening { door: &OLDER_SETTINGS, handler: Arc::new(OlderSettings(self.0.clone())) },
            Opening { door: &OLDER_SCHEMAS, handler: Arc::new(OlderSchemas(self.0.clone())) },
            Opening { door: &OLDER_KINDS, handler: Arc::new(OlderKinds(self.0.clone())) },
            Opening { door: &OLDER_FACTS, handler: Arc::new(Facts) },
        ]
    }

    /// The door of people for kubeconfigs, with clusters to read in front of it.
    pub fn in_front_of_people(&self, Opening { door, handler }: Opening) -> Opening {
        Opening { door, handler: Arc::new(InFrontOfClusters { api: self.0.clone(), people: handler }) }
    }

    /// The door of clusters, with the list API of each in front of what is behind it.
    pub fn in_front_of(&self, clusters: Opening) -> Opening {
        // It is set up once; another door of clusters would be the same.
        let _ = self.0.clusters_door.set(clusters.clone());
        let Opening { door, handler } = clusters;
        Opening { door, handler: Arc::new(cluster::InFront { api: self.0.clone(), proxy: handler }) }
    }

    /// Kinds, objects and bytes of objects that are held for lists.
    pub fn held(&self) -> (usize, usize, usize) {
        self.0.indexes.held()
    }
}

#[cfg(test)]
impl ListApi {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

/// Behind the list API's own door.
struct Own(Arc<Shared>);

impl Handler for Own {
    fn handle(&self, call: Call, body: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move { Ok(self.0.management(call, body).await) })
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        settings::refused(refusal)
    }
}

/// What a request asks for, taken from its path.
pub(crate) struct Asked {
    pub(crate) parts: Vec<String>,
    pub(crate) parameters: Parameters,
    pub(crate) is_yaml: bool,
    /// The caller reads compressed answers.
    pub(crate) takes_gzip: bool,
}

impl Asked {
    /// `rest` is the path behind the root. Repeated slashes count once, one at the end does not.
    pub(crate) fn new(rest: &str, query: Option<&str>, headers: &HeaderMap) -> Self {
        let parts = rest.split('/').filter(|part| !part.is_empty());
        let parts = parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect();
        let parameters = Parameters::parse(query);
        let accepted =
            headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let is_yaml = accepted.starts_with("application/yaml") || parameters.get("_format") == Some("yaml");
        Self { parts, parameters, is_yaml, takes_gzip: accepts_gzip(headers) }
    }
}

/// Where links of answers lead: the host as the client wrote it.
pub(crate) fn host_of(call: &Call) -> String {
    let host = call.head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or(call.head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or("localhost");
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".:-[]_".contains(&byte);
    // It goes into links and a header: what is no host is not repeated.
    if host.bytes().all(is_host) { host.to_owned() } else { "localhost".to_owned() }
}

impl Shared {
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// A request to the management API's own list API.
    async fn management(self: &Arc<Self>, call: Call, body: Body) -> Response<Body> {
        let (prefix, rest) = match call.path().strip_prefix(path::LOCAL_ROOT) {
            Some(rest) => (path::LOCAL_ROOT.trim_end_matches(path::ROOT), rest),
            None => ("", call.path().strip_prefix(path::ROOT).unwrap_or_default()),
        };
        let base = Base { api: format!("https://{}{prefix}", host_of(&call)) };
        let asked = Asked::new(rest, call.head.uri.query(), &call.head.headers);
        if call.caller.is_anonymous() {
            return settings::for_strangers(self, &call, &base, &asked).await;
        }
        let visit = match self.visit(&call, base.clone()).await {
            Ok(visit) => visit,
            Err(refusal) => return failure(&base, refusal),
        };
        let again = asked.parts.first().is_some_and(|name| {
            visit.catalogue.find(name).is_none() && name.contains('.') && self.catalogue.look_again()
        });
        let visit = match again {
            // A kind that was defined a moment ago.
            true => match self.visit(&call, base.clone()).await {
                Ok(visit) => visit,
                Err(refusal) => return failure(&base, refusal),
            },
            false => visit,
        };
        self.respond(visit, asked, call, body).await
    }

    /// The context of a caller at the management API.
    pub(crate) async fn visit(self: &Arc<Self>, call: &Call, base: Base) -> Result<Visit, Refusal> {
        let user = Arc::new(call.caller.user());
        Ok(Visit {
            base,
            rights: Rights::Policy(self.policy.clone(), user),
            client: call.management.client(&call.caller),
            catalogue: self.current_catalogue().await?,
            source: Source::Indexes(self.indexes.clone()),
            part_of: self.part_of,
            user: call.caller.name.clone(),
            now: self.now(),
        })
    }

    pub(crate) async fn current_catalogue(self: &Arc<Self>) -> Result<Arc<crate::kind::Catalogue>, Refusal> {
        let definitions = self.indexes.get(&definitions(), false).await?;
        definitions.touch();
        let (changes, changed) = definitions.changes();
        self.catalogue.get(&self.client, changes, changed, None).await
    }

    /// The catalogue of another cluster, asked as one of its callers.
    pub(crate) async fn catalogue_of(
        &self,
        cluster: &str,
        client: &Client,
    ) -> Result<Arc<crate::kind::Catalogue>, Refusal> {
        let remembered = {
            let mut clusters = self.clusters.lock();
            if clusters.len() >= MOST_CLUSTERS && !clusters.contains_key(cluster) {
                clusters.clear();
            }
            clusters.entry(cluster.to_owned()).or_default().clone()
        };
        remembered.get(client, 0, None, Some(CLUSTER_CATALOGUE)).await
    }

    /// Answers a request in its context.
    pub(crate) async fn respond(
        self: &Arc<Self>,
        visit: Visit,
        asked: Asked,
        call: Call,
        body: Body,
    ) -> Response<Body> {
        let base = visit.base.clone();
        let yaml = asked.is_yaml;
        let done = self.route(visit, &asked, call, body).await;
        match done {
            Ok(Done::Value(code, value)) => {
                let response = answer(&base, code, &value, yaml);
                if asked.takes_gzip { compressed(response) } else { response }
            }
            Ok(Done::Nothing) => nothing(&base),
            Ok(Done::Response(response)) => response,
            Err(refusal) => failure(&base, refusal),
        }
    }

    async fn route(
        self: &Arc<Self>,
        visit: Visit,
        asked: &Asked,
        call: Call,
        body: Body,
    ) -> Result<Done, Refusal> {
        let parts: Vec<&str> = asked.parts.iter().map(String::as_str).collect();
        let is_get = matches!(call.head.method, Method::GET | Method::HEAD);
        let get = |value: Value| match is_get {
            true => Ok(Done::Value(StatusCode::OK, value)),
            false => Err(Refusal::method_not_allowed(&["GET"])),
        };
        let first = parts.first().map(|first| first.to_lowercase()).unwrap_or_default();
        match (first.as_str(), &parts[parts.len().min(1)..]) {
            ("", _) => get(schema::root(&visit)),
            ("schema" | "schemas", []) => get(schema::list(&visit, "")),
            ("schemadefinition" | "schemadefinitions", [id]) => {
                get(schema_definition::one(&visit, id).await?)
            }
            ("schema" | "schemas", [id]) => get(schema::one(&visit, id).ok_or_else(|| unknown(id))?),
            ("count" | "counts", []) => get(counts::list(&visit).await),
            ("count" | "counts", ["count"]) => get(counts::one(&visit).await),
            ("subscribe", []) => subscribe::open(self, visit, call).map(Done::Response),
            (name, rest) if visit.is_management() && Ext::find(name).is_some() => {
                let ext = Ext::find(name).ok_or_else(|| unknown(name))?;
                Ok(match ext::answer(self, &visit, ext, rest, &call, body).await? {
                    (code, Some(value)) => Done::Value(code, value),
                    (_, None) => Done::Nothing,
                })
            }
            (preferences::ID | preferences::PLURAL, rest) if visit.is_management() => {
                Ok(match preferences::handle(&self.client, &visit, rest, &call, body).await? {
                    (code, Some(value)) => Done::Value(code, value),
                    (_, None) => Done::Nothing,
                })
            }
            ("ext.cattle.io.selfuser" | "ext.cattle.io.selfusers", []) => selfuser(&visit, &call),
            (name, rest) => {
                let kind = visit.kind(name)?;
                self.on_kind(visit, &kind, rest, asked, call, body).await
            }
        }
    }

    async fn on_kind(
        self: &Arc<Self>,
        visit: Visit,
        kind: &Arc<Kind>,
        rest: &[&str],
        asked: &Asked,
        call: Call,
        body: Body,
    ) -> Result<Done, Refusal> {
        let parameters = &asked.parameters;
        let (namespace, name) = match (kind.namespaced, rest) {
            (_, []) => ("", ""),
            (true, [namespace]) => (*namespace, ""),
            (false, [name]) => ("", *name),
            (true, [namespace, name]) | (true, [namespace, name, _]) => (*namespace, *name),
            (false, [name, _]) => ("", *name),
            _ => return Err(Refusal::not_found()),
        };
        let key = (namespace, name);
        let behind = rest.get(if kind.namespaced { 2 } else { 1 }).copied();
        if let Some(link) = behind.or(parameters.get("link")) {
            return linked(&visit, kind, key, link, &call).await;
        }
        if let Some(action) = parameters.get("action") {
            let shown = actions::act(self, &visit, kind, key, action, &call, body).await?;
            return Ok(Done::Value(StatusCode::OK, shown));
        }
        let method = call.head.method.clone();
        if name.is_empty() {
            return match method {
                Method::GET | Method::HEAD => {
                    let query = ListQuery::parse(parameters).map_err(|bad| Refusal::bad(bad.0))?;
                    // A slow cluster holds up no other request.
                    let _turn = match visit.is_management() {
                        true => self.turns.acquire().await.ok(),
                        false => None,
                    };
                    if !is_open(&visit, kind) {
                        let shown = kind.plural.as_str();
                        return Err(Refusal::forbidden(format!("{shown} is forbidden: you may not list it")));
                    }
                    let mut list = list::list(&visit, kind, namespace, &query).await?;
                    if let Some(rows) = list["data"].as_array_mut() {
                        actions::offer(self, &visit, kind, &call, rows).await;
                    }
                    Ok(Done::Value(StatusCode::OK, list))
                }
                Method::POST => {
                    let written = write::create(&visit, kind, namespace, parameters, body).await?;
                    Ok(self.written(&visit, kind, written))
                }
                _ => Err(Refusal::method_not_allowed(&["GET", "POST"])),
            };
        }
        match method {
            Method::GET | Method::HEAD => {
                let query = ListQuery::parse(parameters).map_err(|bad| Refusal::bad(bad.0))?;
                visit.with_owned(kind).await;
                let row = visit.seen(kind, namespace, name).await?;
                let mut shown = list::projected(visit.shown_row(kind, &row), &query);
                actions::offer(self, &visit, kind, &call, std::slice::from_mut(&mut shown)).await;
                Ok(Done::Value(StatusCode::OK, shown))
            }
            Method::PUT => {
                let written = write::update(&visit, kind, key, parameters, body).await?;
                Ok(self.written(&visit, kind, written))
            }
            Method::PATCH => {
                let content_type = call.head.headers.get(header::CONTENT_TYPE);
                let written = write::patch(&visit, kind, key, parameters, content_type, body).await?;
                Ok(self.written(&visit, kind, written))
            }
            Method::DELETE => match write::remove(&visit, kind, key, parameters).await? {
                None => Ok(Done::Nothing),
                Some(object) => {
                    let written = write::Written { code: StatusCode::OK, object };
                    Ok(self.written(&visit, kind, written))
                }
            },
            _ => Err(Refusal::method_not_allowed(&["GET", "PUT", "PATCH", "DELETE"])),
        }
    }

    /// A written object as it is shown; what is no object (a review) goes out as it came.
    fn written(&self, visit: &Visit, kind: &Arc<Kind>, written: write::Written) -> Done {
        let write::Written { code, object } = written;
        let shown = match visit.written(kind, object.clone()) {
            Some(row) => visit.shown_row(kind, &row),
            None => {
                let mut object = object;
                if object.is_object() {
                    object["type"] = kind.id.as_str().into();
                    object["links"] = json!({});
                }
                object
            }
        };
        Done::Value(code, shown)
    }
}

/// Whether a caller may ask for a list at all. In other clusters that is for them to say.
fn is_open(visit: &Visit, kind: &Kind) -> bool {
    !visit.is_management() || visit.methods(&visit.rights.sheet(), kind).1.contains(&"GET")
}

/// What a request ends with.
enum Done {
    Value(StatusCode, Value),
    Nothing,
    Response(Response<Body>),
}

/// What a link of an object leads to. Links of single kinds (shells, logs) are none yet.
async fn linked(
    visit: &Visit,
    kind: &Kind,
    (namespace, name): (&str, &str),
    link: &str,
    call: &Call,
) -> Result<Done, Refusal> {
    if link != "view" || name.is_empty() {
        return Err(Refusal::not_found());
    }
    if !matches!(call.head.method, Method::GET | Method::HEAD) {
        return Err(Refusal::method_not_allowed(&["GET"]));
    }
    let request = http::Request::get(kind.path(namespace, name)).body(Vec::new());
    let request = request.map_err(|_| Refusal::not_found())?;
    let object: Value = visit.client.request(request).await.map_err(crate::answer::refused)?;
    Ok(Done::Value(StatusCode::OK, object))
}

/// Who the caller is, as Rancher's dashboard asks.
fn selfuser(visit: &Visit, call: &Call) -> Result<Done, Refusal> {
    if call.head.method != Method::POST {
        return Err(Refusal::method_not_allowed(&["POST"]));
    }
    let answer = json!({
        "type": "ext.cattle.io.selfuser", "apiVersion": "ext.cattle.io/v1", "kind": "SelfUser", "links": {},
        "status": {"userID": visit.user},
    });
    Ok(Done::Value(StatusCode::CREATED, answer))
}
