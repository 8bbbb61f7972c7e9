//! The door `visible`: lists of clusters and their parts, of what the caller may see.
//!
//! RBAC has no list of "those of them I may read": who may read one cluster by its name gets 403 for the list. Behind
//! this door a list has every object its caller may `get`, and every part ([`kinds`]) of a cluster its caller may
//! `get`; nothing tells how many others there are. Whether the caller may is asked of the authorizer, object by object;
//! a part is one of the cluster if the cluster's own CAPI Cluster says so, so a name that was taken shows nothing.

mod kinds;
mod named;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use kube::Client;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use remuda_auth::{
    attributes::Attributes,
    rbac::policy::Policy,
    request_info::{RequestInfo, Verb},
};
use remuda_door::{Access, Answer, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown};
use remuda_names::{capi, path, rancher::group::PROVISIONING};
use remuda_steve::PartOf;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::{
    kinds::{CAPI_CLUSTER, CLUSTER, Kind, Tie},
    named::{Place, places},
};

pub(crate) static VISIBLE: Door = Door {
    name: "visible",
    purpose: "lists of clusters and their parts, of what the caller may see",
    paths: &[Owned::Below(path::VISIBLE)],
    methods: &["GET"],
    access: Access::Authenticated,
    cookie: Cookie::Proof,
    shown: Shown::Query,
    body: 0,
    personal: true,
};

/// Which kinds are parts of clusters for the list API.
pub(crate) fn part_of(group: &str, resource: &str) -> Option<PartOf> {
    Kind::part_of(group, resource)
}

/// Versions in which clusters are looked at.
const PROVISIONING_VERSION: &str = "v1";
const CAPI_VERSION: &str = "v1beta2";
/// Objects asked for at one time.
const PAGE: usize = 500;
/// Clusters in one selector.
const CHUNK: usize = 64;
/// Longest value of a label; longer names of clusters are in none.
const LONGEST_LABEL: usize = 63;
/// Lists that are put together at one time.
const AT_ONCE: usize = 8;

/// Answers with what callers may see.
pub(crate) struct Visible {
    /// Of a component that may read these kinds and nothing else.
    client: Client,
    /// Tells where to look; never whether the caller may.
    policy: Arc<Policy>,
    turns: Semaphore,
}

/// Names of clusters by their namespaces.
type Clusters = BTreeMap<String, BTreeSet<String>>;

/// How a cluster that its caller may read stands to its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has its parts.
    Whole,
    /// It has none yet.
    New,
}

/// A list of one kind that is asked for.
struct Query<'a> {
    kind: Kind,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    namespace: &'a str,
    labels: &'a str,
    fields: &'a str,
}

impl Query<'_> {
    fn path(&self, namespace: &str) -> String {
        let Query { group, version, resource, .. } = self;
        match namespace {
            "" => format!("/apis/{group}/{version}/{resource}"),
            namespace => format!("/apis/{group}/{version}/namespaces/{namespace}/{resource}"),
        }
    }
}

impl Visible {
    pub(crate) fn new(client: Client, policy: Arc<Policy>) -> Self {
        Self { client, policy, turns: Semaphore::new(AT_ONCE) }
    }

    pub(crate) fn opening(self) -> Opening {
        Opening { door: &VISIBLE, handler: Arc::new(self) }
    }

    async fn answer(&self, call: &Call) -> Answer {
        let path = call.path().get(path::VISIBLE.len() - 1..).unwrap_or_default();
        let query = call.head.uri.query();
        let info = RequestInfo::parse("GET", path, query);
        let verb = info.resource_verb().filter(|_| info.subresource.is_empty());
        let Some(verb @ (Verb::List | Verb::Get)) = verb else {
            return Err(Refusal::bad("behind this path are lists and single objects, and no watches"));
        };
        // Whoever may have all of it needs nothing from here.
        let asked = call.management.authorize(&call.caller.user(), info.attributes()).await;
        let Err(refused) = asked else { return pass_on(call, path, query).await };
        let known = Kind::find(&info.group, &info.resource).filter(|_| is_plain(&info));
        let Some(kind) = known.filter(|kind| kind.is_namespaced || info.namespace.is_empty()) else {
            return Err(refused);
        };
        let _turn = self.turns.acquire().await.map_err(|_| Refusal::not_yet("the server is stopping"))?;
        let parameter = |name: &str| call.query(name).unwrap_or_default();
        let (labels, fields) = (parameter("labelSelector"), parameter("fieldSelector"));
        let query = Query {
            kind,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            namespace: &info.namespace,
            labels: &labels,
            fields: &fields,
        };
        match verb {
            Verb::Get => self.one(call, &query, &info.name, refused).await,
            _ => self.list(call, &query).await,
        }
    }

    /// A part of a cluster the caller may read.
    async fn one(&self, call: &Call, query: &Query<'_>, name: &str, refused: Refusal) -> Answer {
        if query.kind.tie == Tie::None || query.namespace.is_empty() {
            return Err(refused);
        }
        let object = self.get(&format!("{}/{name}", query.path(query.namespace))).await?;
        let cluster = match (&object, query.kind.tie) {
            (_, Tie::Name) => Some(name),
            (Some(object), _) => query.kind.cluster_of(object),
            // Whether there is one of this name is told to those who would see it.
            (None, _) => None,
        };
        let Some(cluster) = cluster else { return Err(refused) };
        match (self.standing(call, query.namespace, cluster).await?, object) {
            (Some(Standing::Whole), Some(object)) => Ok(answered(&query.kind.as_part(object))),
            (Some(_), _) => {
                let message = format!("{}.{} {name:?} not found", query.resource, query.group);
                Err(Refusal::new(StatusCode::NOT_FOUND, message))
            }
            (None, _) => Err(refused),
        }
    }

    async fn list(&self, call: &Call, query: &Query<'_>) -> Answer {
        // Says whether the kind is served and the selectors are good, and what such a list is called.
        let uri = selected(&query.path(query.namespace), query.labels, query.fields, 1, "");
        let mut list = self.ask(&uri).await?;
        let mut found = BTreeMap::new();
        if query.kind.tie != Tie::None {
            for (namespace, names) in self.clusters(call, query.namespace).await? {
                for object in self.parts(query, &namespace, &names).await? {
                    found.insert(key(&object), query.kind.as_part(object));
                }
            }
        }
        // What the caller has a right to themselves they see whole.
        for object in self.readable(call, query).await? {
            found.insert(key(&object), object);
        }
        list["items"] = found.into_values().collect();
        let version = list["metadata"]["resourceVersion"].take();
        list["metadata"] = json!({"resourceVersion": version});
        Ok(answered(&list))
    }

    /// Objects the caller may `get`.
    async fn readable(&self, call: &Call, query: &Query<'_>) -> Result<Vec<Value>, Refusal> {
        let user = call.caller.user();
        let (group, resource) = (query.group, query.resource);
        let places = places(&self.policy, &user, group, resource, query.namespace, query.kind.is_namespaced);
        let mut found = Vec::new();
        for Place { namespace, name } in places {
            let name = name.map(|name| format!("metadata.name={name}"));
            let fields = joined(query.fields, name.as_deref().unwrap_or_default());
            for object in self.pages(&query.path(&namespace), query.labels, &fields).await? {
                let (namespace, name) = key(&object);
                let asked = Attributes::resource("get", group, resource).version(query.version);
                if call.may(asked.namespace(&namespace).name(&name)).await {
                    found.push(object);
                }
            }
        }
        Ok(found)
    }

    /// Parts of clusters in a namespace.
    async fn parts(
        &self,
        query: &Query<'_>,
        namespace: &str,
        names: &BTreeSet<String>,
    ) -> Result<Vec<Value>, Refusal> {
        let path = query.path(namespace);
        let mut found = Vec::new();
        if query.kind.tie == Tie::Name {
            for name in names {
                let fields = joined(query.fields, &format!("metadata.name={name}"));
                found.extend(self.pages(&path, query.labels, &fields).await?);
            }
        } else {
            let names: Vec<&str> =
                names.iter().map(String::as_str).filter(|name| name.len() <= LONGEST_LABEL).collect();
            for names in names.chunks(CHUNK) {
                let ours = format!("{} in ({})", capi::label::CLUSTER_NAME, names.join(","));
                found.extend(self.pages(&path, &joined(query.labels, &ours), query.fields).await?);
            }
        }
        // Whatever the selectors made of each other.
        let ours = |object: &Value| query.kind.cluster_of(object).is_some_and(|name| names.contains(name));
        found.retain(|object| key(object).0 == namespace && ours(object));
        Ok(found)
    }

    /// Clusters the caller may read that have parts.
    async fn clusters(&self, call: &Call, namespace: &str) -> Result<Clusters, Refusal> {
        let query = cluster_query(CLUSTER, namespace);
        let mut uids: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for cluster in self.readable(call, &query).await? {
            let (namespace, name) = key(&cluster);
            let uid = cluster["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            uids.entry(namespace).or_default().insert(name, uid);
        }
        let mut clusters = Clusters::new();
        for (namespace, uids) in uids {
            let names = uids.keys().cloned().collect();
            let owners = cluster_query(CAPI_CLUSTER, &namespace);
            let owned = self.parts(&owners, &namespace, &names).await?;
            let owned = owned.iter().filter_map(|owner| {
                let (_, name) = key(owner);
                is_owned_by(owner, uids.get(&name)?).then_some(name)
            });
            clusters.insert(namespace.clone(), owned.collect());
        }
        Ok(clusters)
    }

    /// How a cluster stands to its parts; nothing if the caller may not read it, or they are not its.
    async fn standing(&self, call: &Call, namespace: &str, name: &str) -> Result<Option<Standing>, Refusal> {
        let (query, owners) = (cluster_query(CLUSTER, namespace), cluster_query(CAPI_CLUSTER, namespace));
        let asked = Attributes::resource("get", query.group, query.resource).version(query.version);
        if !call.may(asked.namespace(namespace).name(name)).await {
            return Ok(None);
        }
        let Some(cluster) = self.get(&format!("{}/{name}", query.path(namespace))).await? else {
            return Ok(None);
        };
        let uid = cluster["metadata"]["uid"].as_str().unwrap_or_default();
        Ok(match self.get(&format!("{}/{name}", owners.path(namespace))).await? {
            None => Some(Standing::New),
            Some(owner) => is_owned_by(&owner, uid).then_some(Standing::Whole),
        })
    }

    async fn pages(&self, path: &str, labels: &str, fields: &str) -> Result<Vec<Value>, Refusal> {
        let mut found = Vec::new();
        let mut next = String::new();
        loop {
            let mut page = self.ask(&selected(path, labels, fields, PAGE, &next)).await?;
            if let Value::Array(items) = page["items"].take() {
                let (version, kind) = (page["apiVersion"].clone(), page["kind"].as_str().unwrap_or_default());
                let kind = kind.strip_suffix("List").unwrap_or(kind).to_owned();
                found.extend(items.into_iter().map(|mut item| {
                    if let Some(item) = item.as_object_mut() {
                        item.entry("apiVersion").or_insert_with(|| version.clone());
                        item.entry("kind").or_insert_with(|| kind.clone().into());
                    }
                    item
                }));
            }
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => token.clone_into(&mut next),
                None => return Ok(found),
            }
        }
    }

    /// An object, if there is one.
    async fn get(&self, uri: &str) -> Result<Option<Value>, Refusal> {
        match self.ask(uri).await {
            Ok(object) => Ok(Some(object)),
            Err(refusal) if refusal.code == StatusCode::NOT_FOUND => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    async fn ask(&self, uri: &str) -> Result<Value, Refusal> {
        let request = Request::get(uri).body(Vec::new()).map_err(|_| Refusal::not_found())?;
        self.client.request::<Value>(request).await.map_err(|error| match error {
            // That it is the server who may not is nothing the caller could mend.
            kube::Error::Api(status) if status.code != 403 => refusal(&status),
            error => Refusal::failed("read what is visible", &error),
        })
    }
}

impl Handler for Visible {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move { self.answer(&call).await })
    }
}

/// The API's own answer to the caller.
async fn pass_on(call: &Call, path: &str, query: Option<&str>) -> Answer {
    let uri = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let request = Request::get(uri).body(Vec::new()).map_err(|_| Refusal::not_found())?;
    match call.management.client(&call.caller).request_text(request).await {
        Ok(text) => Ok(json_response(text)),
        Err(kube::Error::Api(status)) => Err(refusal(&status)),
        Err(error) => Err(Refusal::failed("pass the request on", &error)),
    }
}

pub(crate) fn refusal(status: &kube::core::Status) -> Refusal {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Refusal::new(code, status.message.clone())
}

fn answered(value: &Value) -> Response<Body> {
    json_response(value.to_string())
}

fn json_response(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Clusters, or their CAPI Clusters, in the version this server works with.
fn cluster_query(kind: Kind, namespace: &str) -> Query<'_> {
    let (group, version) = match kind.tie {
        Tie::None => (PROVISIONING, PROVISIONING_VERSION),
        _ => (capi::group::CORE, CAPI_VERSION),
    };
    Query { kind, group, version, resource: "clusters", namespace, labels: "", fields: "" }
}

fn is_owned_by(object: &Value, uid: &str) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    !uid.is_empty() && owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
}

/// Whether all parts of a path are as names are: they become parts of others.
fn is_plain(info: &RequestInfo) -> bool {
    let parts = [&info.group, &info.version, &info.resource, &info.namespace, &info.name];
    parts.into_iter().all(|part| named::is_plain(part))
}

/// Namespace and name of an object.
fn key(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// Both of two selectors.
fn joined(one: &str, other: &str) -> String {
    match (one, other) {
        (one, "") | ("", one) => one.to_owned(),
        (one, other) => format!("{one},{other}"),
    }
}

fn selected(path: &str, labels: &str, fields: &str, limit: usize, next: &str) -> String {
    let mut uri = format!("{path}?limit={limit}");
    for (name, value) in [("labelSelector", labels), ("fieldSelector", fields), ("continue", next)] {
        if !value.is_empty() {
            uri.push_str(&format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        }
    }
    uri
}
