//! What a cluster with an authorized endpoint is told of people.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    rbac::v1::ClusterRole,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use parking_lot::Mutex;
use remuda_auth::identity::{GROUP_MASTERS, User};
use remuda_gateway::{Authorize, Caller, Decision, Held, Holders, Role};
use remuda_testkit::until;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    downstream::{Agent, Downstream},
    world::{TOKEN, World},
};

/// Ann may look, strangers may nothing.
struct Rules;

impl Authorize for Rules {
    fn authorize<'a>(&'a self, caller: &'a Caller, _: &'a str) -> BoxFuture<'a, Result<Decision, String>> {
        let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]);
        let role = Role { name: "viewer".to_owned(), rules: Some(serde_json::from_value(rules).unwrap()) };
        let decision = match caller.name.as_str() {
            "ann" => Decision::allow().with_roles(vec![role]),
            _ => Decision::deny("no role"),
        };
        Box::pin(std::future::ready(Ok(decision)))
    }
}

#[derive(Clone, Default)]
struct People {
    held: Arc<Mutex<Option<Vec<Held>>>>,
    used: Arc<Mutex<Vec<(String, Timestamp)>>>,
    changed: watch::Sender<()>,
}

impl People {
    fn are(&self, held: Option<Vec<Held>>) {
        *self.held.lock() = held;
        self.changed.send_replace(());
    }
}

impl Holders for People {
    fn held(&self, cluster: &str) -> Option<Vec<Held>> {
        assert_eq!(cluster, "c-m-1");
        self.held.lock().clone()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn used(&self, token: &str, at: Timestamp) {
        self.used.lock().push((token.to_owned(), at));
    }
}

fn held(token: &str, user: &str) -> Held {
    Held {
        token: token.to_owned(),
        hash: format!("$3:1:{token}"),
        expires: "2099-01-01T00:00:00Z".parse().ok(),
        created: Timestamp::from_second(0).ok(),
        caller: Caller { name: user.to_owned(), groups: vec!["dev".to_owned()], ..Caller::default() },
    }
}

struct Site {
    world: World,
    people: People,
    there: Client,
    _agent: Agent,
}

impl Site {
    async fn open(held: Option<Vec<Held>>) -> Site {
        let people = People::default();
        people.are(held);
        let given = people.clone();
        let world = World::with(move |options| {
            options.authorize = Some(Arc::new(Rules));
            options.holders = Some(Arc::new(given));
        })
        .await;
        world.cluster("c-m-1", "demo", TOKEN).await;
        let downstream = Downstream::start().await;
        let there =
            Client::new(downstream.api.client_service(User::new("admin", [GROUP_MASTERS])), "default");
        let namespaces: Api<Namespace> = Api::all(there.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "cattle-system"}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let agent = downstream.connect(world.address, TOKEN).await.unwrap();
        world.until_condition("c-m-1", "Ready", "True").await;
        Site { world, people, there, _agent: agent }
    }

    async fn enable(&self, enabled: bool) {
        let clusters = self.world.dynamic("management.cattle.io/v3", "Cluster", None);
        let patch = Patch::Merge(json!({"spec": {"localClusterAuthEndpoint": {"enabled": enabled}}}));
        clusters.patch("c-m-1", &PatchParams::default(), &patch).await.unwrap();
    }

    fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cluster.cattle.io", "v3", kind);
        Api::namespaced_with(self.there.clone(), "cattle-system", &ApiResource::from_gvk(&kind))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.there.clone(), "cattle-system")
    }

    async fn names(&self, kind: &str) -> Vec<String> {
        let listed = self.objects(kind).list(&ListParams::default()).await;
        let mut names: Vec<String> =
            listed.map(|list| list.items.iter().map(ResourceExt::name_any).collect()).unwrap_or_default();
        names.sort();
        names
    }

    async fn until_tokens(&self, names: &[&str]) {
        until(&format!("the cluster knows the tokens {names:?}"), async || {
            self.names("ClusterAuthToken").await == names
        })
        .await;
    }

    async fn make_secret(&self, secret: Value) {
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.secrets().create(&PostParams::default(), &secret).await.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_knows_the_tokens_of_those_who_may_use_it_and_forgets_what_is_taken_away() {
    let all = vec![held("a-1", "ann"), held("a-2", "ann"), held("s-1", "stranger")];
    let site = Site::open(Some(all.clone())).await;
    assert!(site.names("ClusterAuthToken").await.is_empty(), "nobody asked for it");
    site.enable(true).await;
    site.until_tokens(&["a-1", "a-2"]).await;
    let token = site.objects("ClusterAuthToken").get("a-1").await.unwrap().data;
    assert_eq!(
        (&token["userName"], &token["enabled"], &token["expiresAt"], &token["hash"]),
        (&json!("ann"), &json!(true), &json!("2099-01-01T00:00:00Z"), &json!(""))
    );
    let secret = site.secrets().get("a-1").await.unwrap();
    assert_eq!(secret.data.unwrap()["hash"].0, b"$3:1:a-1");
    assert_eq!(site.names("ClusterUserAttribute").await, ["ann"]);
    let user = site.objects("ClusterUserAttribute").get("ann").await.unwrap().data;
    assert_eq!((&user["groups"], &user["enabled"]), (&json!(["dev", "remuda:role:viewer"]), &json!(true)));
    let roles: Api<ClusterRole> = Api::all(site.there.clone());
    assert!(roles.get_opt("remuda-role:viewer").await.unwrap().is_some());

    // Tokens nobody knows any more, such as those of another server, go with the next change.
    let alien = json!({
        "apiVersion": "cluster.cattle.io/v3", "kind": "ClusterAuthToken", "metadata": {"name": "alien"},
        "userName": "ann", "enabled": true,
    });
    let alien: DynamicObject = serde_json::from_value(alien).unwrap();
    site.objects("ClusterAuthToken").create(&PostParams::default(), &alien).await.unwrap();
    let used = json!({"lastUsedAt": "2026-11-16T10:00:00Z"});
    let patch = PatchParams::default();
    site.objects("ClusterAuthToken").patch("a-2", &patch, &Patch::Merge(used)).await.unwrap();
    site.people.are(Some(vec![held("a-2", "ann")]));
    site.until_tokens(&["a-2"]).await;
    assert!(site.secrets().get_opt("a-1").await.unwrap().is_none());
    until("the use of the token is told", async || {
        site.people.used.lock().contains(&("a-2".to_owned(), "2026-11-16T10:00:00Z".parse().unwrap()))
    })
    .await;

    // A server that does not know everybody yet takes nothing away.
    site.people.are(None);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(site.names("ClusterAuthToken").await, ["a-2"]);

    site.enable(false).await;
    site.until_tokens(&[]).await;
    until("nothing is left", async || {
        let recorded = site.world.managed("c-m-1").await.status.unwrap_or_default().auth_image;
        site.names("ClusterUserAttribute").await.is_empty()
            && site.secrets().get_opt("a-2").await.unwrap().is_none()
            && recorded.is_empty()
    })
    .await;
}

#[tokio::test]
async fn secrets_of_others_stay_as_they_are() {
    let site = Site::open(Some(vec![held("a-1", "ann"), held("theirs", "ann"), held("old", "ann")])).await;
    site.make_secret(json!({
        "metadata": {"name": "theirs"}, "type": "Opaque", "stringData": {"password": "x"},
    }))
    .await;
    // As another server leaves them.
    site.make_secret(
        json!({"metadata": {"name": "old"}, "type": "Opaque", "stringData": {"hash": "$3:1:x"}}),
    )
    .await;
    site.enable(true).await;
    site.until_tokens(&["a-1", "old"]).await;
    let theirs = site.secrets().get("theirs").await.unwrap().data.unwrap();
    assert_eq!(theirs.keys().collect::<Vec<_>>(), ["password"]);
    let old = site.secrets().get("old").await.unwrap().data.unwrap();
    assert_eq!(old["hash"].0, b"$3:1:old");
    site.people.are(Some(Vec::new()));
    site.until_tokens(&[]).await;
    assert!(site.secrets().get_opt("theirs").await.unwrap().is_some());
}
