//! What is behind the door `visible`, for several users and several objects: what RBAC and the table of parts allow, and
//! nothing else.

use super::*;

const NAMESPACE: &str = "fleet-default";
const DOOR: &str = "/remuda/v1/visible";
const CLUSTERS: &str = "provisioning.cattle.io/v1/clusters";
const MANAGED: &str = "management.cattle.io/v3/clusters";
const CAPI: &str = "cluster.x-k8s.io/v1beta2/clusters";
const MACHINES: &str = "cluster.x-k8s.io/v1beta2/machines";
const BOOTSTRAPS: &str = "rke.cattle.io/v1/rkebootstraps";
const PLANES: &str = "rke.cattle.io/v1/rkecontrolplanes";

/// An object of the world.
struct Thing {
    kind: &'static str,
    namespace: &'static str,
    name: String,
    /// The cluster it is a part of.
    cluster: Option<String>,
}

fn path(kind: &str, namespace: &str) -> String {
    let (version, resource) = kind.rsplit_once('/').unwrap();
    match namespace {
        "" => format!("/apis/{version}/{resource}"),
        namespace => format!("/apis/{version}/namespaces/{namespace}/{resource}"),
    }
}

struct World {
    site: Site,
    things: Vec<Thing>,
    /// Clusters whose CAPI Cluster is another's.
    foreign: Vec<(&'static str, String)>,
}

impl World {
    async fn make(
        &mut self,
        kind: &'static str,
        namespace: &'static str,
        name: &str,
        cluster: Option<&str>,
        mut object: Value,
    ) -> Value {
        let (version, _) = kind.rsplit_once('/').unwrap();
        object["apiVersion"] = version.into();
        object["metadata"]["name"] = name.into();
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        if let Some(cluster) = cluster.filter(|_| kind == MACHINES || kind == BOOTSTRAPS) {
            object["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = cluster.into();
        }
        let made = self.site.post_as_root(&path(kind, namespace), &object).await;
        assert_eq!(made["metadata"]["name"], name, "{kind} {name}: {made}");
        let cluster = cluster.map(str::to_owned);
        self.things.push(Thing { kind, namespace, name: name.to_owned(), cluster });
        made
    }

    /// A cluster with its parts.
    async fn cluster(&mut self, namespace: &'static str, name: &str, foreign: bool) {
        let cluster = json!({"kind": "Cluster", "spec": {}});
        let made = self.make(CLUSTERS, namespace, name, None, cluster).await;
        let uid = made["metadata"]["uid"].as_str().unwrap();
        let reference = |kind: &str| json!({"apiGroup": "rke.cattle.io", "kind": kind, "name": name});
        let owner =
            json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": name, "uid": uid});
        let capi = json!({
            "kind": "Cluster", "metadata": {"ownerReferences": if foreign { json!([]) } else { json!([owner]) }},
            "spec": {"infrastructureRef": reference("RKECluster"), "controlPlaneRef": reference("RKEControlPlane")},
        });
        self.make(CAPI, namespace, name, Some(name), capi).await;
        let plane = json!({"kind": "RKEControlPlane", "spec": {"clusterName": name, "managementClusterName": "c-m-1"}});
        self.make(PLANES, namespace, name, Some(name), plane).await;
        for number in 0..2 {
            let machine = json!({
                "kind": "Machine",
                "spec": {
                    "clusterName": name, "bootstrap": {"dataSecretName": "x"},
                    "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": "x"},
                },
            });
            self.make(MACHINES, namespace, &format!("{name}-{number}"), Some(name), machine).await;
            let bootstrap = json!({
                "kind": "RKEBootstrap",
                "spec": {"clusterName": name, "userdata": {"inlineUserdata": "a password"}},
            });
            self.make(BOOTSTRAPS, namespace, &format!("{name}-{number}"), Some(name), bootstrap).await;
        }
        if foreign {
            self.foreign.push((namespace, name.to_owned()));
        }
    }

    /// A role for a user: verbs on objects of a kind, in a namespace or everywhere.
    async fn grant(&self, user: &str, namespace: &str, kind: &str, verbs: &[&str], names: &[&str]) {
        let (version, resource) = kind.rsplit_once('/').unwrap();
        let group = version.split('/').next().unwrap();
        let id = format!("{user}-{namespace}-{resource}-{}", names.join("-")).replace(':', "-");
        let (role, binding) = match namespace {
            "" => ("ClusterRole", "ClusterRoleBinding"),
            _ => ("Role", "RoleBinding"),
        };
        let base = match namespace {
            "" => "/apis/rbac.authorization.k8s.io/v1".to_owned(),
            namespace => format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"),
        };
        let rule =
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names});
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": role, "metadata": {"name": id}, "rules": [rule],
        });
        let made = self.site.post_as_root(&format!("{base}/{}s", role.to_lowercase()), &body).await;
        assert_eq!(made["metadata"]["name"], id, "{made}");
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": {"name": id},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": id},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        let made = self.site.post_as_root(&format!("{base}/{}s", binding.to_lowercase()), &body).await;
        assert_eq!(made["metadata"]["name"], id, "{made}");
    }

    /// What RBAC says, from the API itself.
    async fn may(&self, user: &str, verb: &str, kind: &str, namespace: &str, name: &str) -> bool {
        let (version, resource) = kind.rsplit_once('/').unwrap();
        let (group, version) = version.split_once('/').unwrap();
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": {
                "verb": verb, "group": group, "version": version, "resource": resource,
                "namespace": namespace, "name": name,
            }},
        });
        let told =
            self.site.post_as_root("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
        told["status"]["allowed"] == true
    }

    /// Whether a user is to see something: whole, as a part, or not at all.
    async fn sees(&self, user: &str, thing: &Thing) -> Option<bool> {
        if self.may(user, "get", thing.kind, thing.namespace, &thing.name).await {
            return Some(true);
        }
        let cluster = thing.cluster.as_ref()?;
        let foreign = self.foreign.contains(&(thing.namespace, cluster.clone()));
        let visible = !foreign && self.may(user, "get", CLUSTERS, thing.namespace, cluster).await;
        visible.then_some(false)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_is_what_roles_and_the_table_of_parts_allow() {
    let site = Site::start().await;
    let mut world = World { site, things: Vec::new(), foreign: Vec::new() };
    for namespace in [NAMESPACE, "team"] {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        world.site.post_as_root("/api/v1/namespaces", &body).await;
    }
    for name in ["c0", "c1", "c2"] {
        world.cluster(NAMESPACE, name, false).await;
    }
    world.cluster(NAMESPACE, "c3", true).await;
    world.cluster("team", "c0", false).await;
    for name in ["c-m-1", "c-m-2"] {
        world.make(MANAGED, "", name, None, json!({"kind": "Cluster", "spec": {}})).await;
    }
    let users = ["ann", "bob", "carl", "dora", "eve", "fay"];
    let mut tokens = Vec::new();
    for user in users {
        tokens.push(world.site.user(user, json!({})).await);
    }
    world.grant("ann", NAMESPACE, CLUSTERS, &["get"], &["c0"]).await;
    world.grant("ann", "", MANAGED, &["get"], &["c-m-1"]).await;
    world.grant("bob", NAMESPACE, CLUSTERS, &["*"], &["c1", "c2"]).await;
    world.grant("bob", NAMESPACE, MACHINES, &["get"], &["c0-1"]).await;
    // A name that is another's, and rights without an object.
    world.grant("carl", NAMESPACE, CLUSTERS, &["*"], &["c3", "none"]).await;
    world.grant("carl", NAMESPACE, MACHINES, &["list"], &["c0-0"]).await;
    world.grant("eve", "team", MACHINES, &["get", "list"], &[]).await;
    world.grant("eve", "", CLUSTERS, &["get"], &["c0"]).await;
    world.grant("fay", NAMESPACE, CLUSTERS, &["get"], &[]).await;

    let kinds = [CLUSTERS, MANAGED, CAPI, MACHINES, BOOTSTRAPS, PLANES];
    let mut shown = [0, 0, 0];
    for (user, token) in users.iter().zip(&tokens) {
        for kind in kinds {
            let namespaces: &[&str] = if kind == MANAGED { &[""] } else { &["", NAMESPACE, "team"] };
            for namespace in namespaces {
                let mut expected = Vec::new();
                let inside = |thing: &&Thing| {
                    thing.kind == kind && (namespace.is_empty() || thing.namespace == *namespace)
                };
                for thing in world.things.iter().filter(inside) {
                    if let Some(whole) = world.sees(user, thing).await {
                        expected.push((thing.namespace.to_owned(), thing.name.clone(), whole));
                    }
                }
                expected.sort();
                // Pages of others say nothing about how many there are.
                let list = format!("{DOOR}{}?limit=1", path(kind, namespace));
                let got = world.site.send(Some(token), "GET", &list, &[], json!(null)).await;
                assert_eq!(got.code, StatusCode::OK, "{user} {list}: {}", got.text);
                if !world.may(user, "list", kind, namespace, "").await {
                    assert_eq!(got.body["metadata"].as_object().unwrap().len(), 1, "{}", got.text);
                    let text = |item: &Value, field: &str| {
                        item["metadata"][field].as_str().unwrap_or_default().to_owned()
                    };
                    let items = got.body["items"].as_array().unwrap().iter().map(|item| {
                        let whole = item["metadata"].get("managedFields").is_some();
                        assert!(whole || item["spec"].get("userdata").is_none(), "{item}");
                        (text(item, "namespace"), text(item, "name"), whole)
                    });
                    assert_eq!(items.collect::<Vec<_>>(), expected, "{user} {list}");
                }
            }
        }
        for thing in &world.things {
            let one = format!("{DOOR}{}/{}", path(thing.kind, thing.namespace), thing.name);
            let got = world.site.send(Some(token), "GET", &one, &[], json!(null)).await;
            let sees = world.sees(user, thing).await;
            let expected = if sees.is_some() { StatusCode::OK } else { StatusCode::FORBIDDEN };
            assert_eq!(got.code, expected, "{user} {one}: {}", got.text);
            shown[sees.map_or(0, |whole| 1 + usize::from(whole))] += 1;
        }
    }
    assert!(shown.iter().all(|count| *count > 5), "all three happen: {shown:?}");

    let [ann, bob, carl, dora, ..] = tokens.as_slice() else { unreachable!() };
    let ask = async |token: &str, path: &str| {
        let got = world.site.send(Some(token), "GET", &format!("{DOOR}{path}"), &[], json!(null)).await;
        (got.code.as_u16(), got.body["items"].as_array().map_or(0, Vec::len))
    };
    let machines = path(MACHINES, NAMESPACE);
    let of = |cluster: &str| format!("{machines}?labelSelector=cluster.x-k8s.io%2Fcluster-name%3D{cluster}");
    assert_eq!(ask(ann, &of("c0")).await, (200, 2));
    assert_eq!(ask(ann, &of("c1")).await, (200, 0));
    assert_eq!(ask(bob, &format!("{machines}?fieldSelector=metadata.name%3Dc1-0")).await, (200, 1));
    // Selectors cannot take in the one that narrows them.
    assert_eq!(ask(ann, &format!("{machines}?labelSelector=x+notin+(y")).await.0, 400);
    assert_eq!(ask(ann, &format!("{machines}?labelSelector=x+notin+(y),x+notin+(z)")).await, (200, 2));
    for path in [
        &format!("{machines}?watch=true"),
        &format!("{machines}/c0-0/status"),
        "/apis/cluster.x-k8s.io/v1beta2/watch/machines",
        "/healthz",
        "/",
    ] {
        assert_eq!(ask(ann, path).await.0, 400, "{path}");
    }
    for path in [
        "/api/v1/secrets",
        "/api/v1/namespaces/fleet-default/secrets/x",
        "/apis/rke-machine.cattle.io/v1/amazonec2machinetemplates",
        "/apis/rke-machine-config.cattle.io/v1/amazonec2configs",
        "/apis/management.cattle.io/v3/tokens",
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet-default/machines/%2E%2E",
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet-default/machines/none",
    ] {
        assert_eq!(ask(ann, path).await.0, 403, "{path}");
    }
    // Of a cluster one may read it is told what it has not, of others nothing.
    let plane = |name: &str| format!("{}/{name}", path("rke.cattle.io/v1/rkeclusters", NAMESPACE));
    assert_eq!(ask(ann, &plane("c0")).await.0, 404);
    for name in ["c1", "none"] {
        assert_eq!(ask(ann, &plane(name)).await.0, 403);
    }
    assert_eq!(ask(carl, &plane("none")).await.0, 403);
    assert_eq!(ask(dora, &path(CLUSTERS, "")).await, (200, 0));
    world.site.stop().await;
}
