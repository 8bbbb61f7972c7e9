//! Who may use which driver, at a running server.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};

use crate::{
    client::{client, client_with},
    foreign::until,
    harness::{Place, Server, remuda, success},
};

const NAMESPACE: &str = "fleet-default";
const SOON: Duration = Duration::from_secs(30);
const CONFIGS: &str = "rke-machine-config.cattle.io";

struct Site {
    server: Server,
    place: Place,
    runtime: tokio::runtime::Runtime,
    admin: Client,
}

impl Site {
    fn open() -> Self {
        let place = Place::new();
        let server = Server::start(&place.data(), &[]);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let admin = runtime.block_on(client(&server));
        let site = Self { server, place, runtime, admin };
        let active = json!({"spec": {"active": true}});
        until("drivers are listed", SOON, || {
            site.patch(&site.admin, "management.cattle.io/v3/NodeDriver", None, "digitalocean", &active)
                .is_ok()
        });
        for kind in ["LocalConfig", "GenericConfig", "DigitaloceanConfig"] {
            let kind = format!("{CONFIGS}/v1/{kind}");
            until("drivers have their kinds", SOON, || {
                let api = api(&site.admin, &kind, Some(NAMESPACE));
                site.runtime.block_on(api.list(&Default::default())).is_ok()
            });
        }
        site
    }

    /// A standard user, who comes with a token.
    fn user(&self, name: &str) -> Client {
        let run = |line: &str| {
            let mut command = remuda();
            command.args(line.split(' ')).arg("--data-dir").arg(self.place.data());
            success(command.env("HOME", self.place.join("home")))
        };
        run(&format!("user create {name}"));
        let id = self.id_of(name);
        let token = run(&format!("token create --user {id}")).trim().to_owned();
        self.runtime.block_on(client_with(&self.server.kubeconfig(), |kubeconfig: &mut Kubeconfig| {
            for user in &mut kubeconfig.auth_infos {
                let info = user.auth_info.get_or_insert_default();
                *info = Default::default();
                info.token = Some(token.clone().into());
            }
        }))
    }

    /// What the server calls a user.
    fn id_of(&self, name: &str) -> String {
        let users = api(&self.admin, "management.cattle.io/v3/User", None);
        let users = self.runtime.block_on(users.list(&Default::default())).unwrap();
        let user = users.items.into_iter().find(|user| user.data["username"] == name).unwrap();
        user.metadata.name.unwrap()
    }

    /// Gives a user everything about configurations of local machines, but not their driver.
    fn share_machine_objects(&self, user: &str) {
        const RBAC: &str = "rbac.authorization.k8s.io";
        let role = json!({
            "metadata": {"name": "local-objects", "namespace": NAMESPACE},
            "rules": [{
                "apiGroups": [CONFIGS], "resources": ["localconfigs"], "verbs": ["get", "list", "update", "delete"],
            }],
        });
        let binding = json!({
            "metadata": {"name": "local-objects", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "local-objects"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        });
        self.create(&self.admin, &format!("{RBAC}/v1/Role"), &role).unwrap();
        self.create(&self.admin, &format!("{RBAC}/v1/RoleBinding"), &binding).unwrap();
    }

    /// Creates an object of a kind, given as `group/version/kind`.
    fn create(&self, client: &Client, kind: &str, object: &Value) -> Result<(), String> {
        let namespace = object["metadata"]["namespace"].as_str();
        let mut object = object.clone();
        let (version, name) = kind.rsplit_once('/').unwrap();
        object["apiVersion"] = json!(version);
        object["kind"] = json!(name);
        let object = serde_json::from_value(object).unwrap();
        let api = api(client, kind, namespace);
        told(self.runtime.block_on(api.create(&PostParams::default(), &object)))
    }

    fn patch(
        &self,
        client: &Client,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> Result<(), String> {
        let api = api(client, kind, namespace);
        told(self.runtime.block_on(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))))
    }
}

fn api(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let mut parts = kind.split('/');
    let mut part = || parts.next().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(part(), part(), part()));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn told(answer: Result<DynamicObject, kube::Error>) -> Result<(), String> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn refused(answer: Result<(), String>, field: &str, driver: &str) {
    let why = answer.expect_err("it is refused");
    let missing = format!("verb \"use\" on nodedrivers.management.cattle.io \"{driver}\"");
    assert!(why.starts_with("403 "), "{why}");
    for words in [field, &format!("driver \"{driver}\""), &missing] {
        assert!(why.contains(words), "{words}: {why}");
    }
}

fn config(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": NAMESPACE}})
}

fn cluster(name: &str, kind: &str, config: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {"machinePools": [{
            "name": "all", "quantity": 0, "etcdRole": true, "controlPlaneRole": true, "workerRole": true,
            "machineConfigRef": {"kind": kind, "name": config},
        }]}},
    })
}

const CLUSTER: &str = "provisioning.cattle.io/v1/Cluster";
const LOCAL: &str = "rke-machine-config.cattle.io/v1/LocalConfig";

#[test]
fn drivers_that_act_on_the_host_are_for_who_was_given_them() {
    let site = Site::open();
    let ann = site.user("ann");
    let at = "spec.rkeConfig.machinePools[0].machineConfigRef";

    // Nothing of them can be made, and what others made cannot be used.
    let mut script = config("mine");
    script["userData"] = json!("#!/bin/sh\nid > /tmp/pwned\n");
    refused(site.create(&ann, LOCAL, &script), "kind", "local");
    let generic = format!("{CONFIGS}/v1/GenericConfig");
    refused(site.create(&ann, &generic, &config("mine")), "kind", "generic");
    site.create(&site.admin, LOCAL, &config("shared")).unwrap();
    site.share_machine_objects(&site.id_of("ann"));
    // With every right to the objects it is the driver alone that is missing.
    until("the objects are shared", SOON, || {
        let configs = api(&ann, LOCAL, Some(NAMESPACE));
        site.runtime.block_on(configs.get("shared")).is_ok()
    });
    refused(site.create(&ann, CLUSTER, &cluster("one", "LocalConfig", "shared")), at, "local");
    // However it is written: kinds are found by their plural.
    refused(site.create(&ann, CLUSTER, &cluster("one", "localConfig", "shared")), at, "local");
    let mut template = cluster("one", "LocalMachineTemplate", "shared");
    template["spec"]["rkeConfig"]["machinePools"][0]["machineConfigRef"]["apiVersion"] =
        json!("rke-machine.cattle.io/v1");
    // Templates of our own belong to the pool they were made for, whoever asks.
    let why = site.create(&ann, CLUSTER, &template).expect_err("it is refused");
    assert!(why.starts_with("422 ") && why.contains(at), "{why}");

    // Machines at providers are everybody's who may make clusters.
    let ocean = format!("{CONFIGS}/v1/DigitaloceanConfig");
    site.create(&ann, &ocean, &config("mine")).unwrap();
    site.create(&ann, CLUSTER, &cluster("one", "DigitaloceanConfig", "mine")).unwrap();
    // And a pool that comes later is judged as the first.
    let second = cluster("one", "LocalConfig", "shared")["spec"]["rkeConfig"]["machinePools"][0].clone();
    let mut pools = cluster("one", "DigitaloceanConfig", "mine")["spec"]["rkeConfig"]["machinePools"].clone();
    pools.as_array_mut().unwrap().push(second);
    pools[1]["name"] = json!("more");
    let patch = json!({"spec": {"rkeConfig": {"machinePools": pools}}});
    let mut answer = Err("404 ".to_owned());
    until("the cluster is its maker's", SOON, || {
        answer = site.patch(&ann, CLUSTER, Some(NAMESPACE), "one", &patch);
        !answer.as_ref().is_err_and(|why| why.contains("cannot patch"))
    });
    refused(answer, "spec.rkeConfig.machinePools[1].machineConfigRef", "local");

    // An administrator gives the driver, or says what a driver is trusted with.
    let role = json!({
        "metadata": {"name": "local-machines"}, "displayName": "Local machines",
        "rules": [{
            "apiGroups": ["management.cattle.io"], "resources": ["nodedrivers"], "resourceNames": ["local"],
            "verbs": ["use"],
        }],
    });
    site.create(&site.admin, "management.cattle.io/v3/GlobalRole", &role).unwrap();
    let binding = json!({
        "metadata": {"name": "ann-local"}, "globalRoleName": "local-machines", "userName": site.id_of("ann"),
    });
    site.create(&site.admin, "management.cattle.io/v3/GlobalRoleBinding", &binding).unwrap();
    until("the role holds", SOON, || site.create(&ann, LOCAL, &script).is_ok());
    site.create(&ann, CLUSTER, &cluster("two", "LocalConfig", "mine")).unwrap();
    refused(site.create(&ann, &generic, &config("mine")), "kind", "generic");
    let class = json!({"metadata": {"annotations": {"remuda.io/driver-class": "host"}}});
    site.patch(&site.admin, "management.cattle.io/v3/NodeDriver", None, "digitalocean", &class).unwrap();
    let mut place = 0;
    let mut answer = Ok(());
    until("the class holds", SOON, || {
        place += 1;
        answer = site.create(&ann, &ocean, &config(&format!("more-{place}")));
        answer.is_err()
    });
    refused(answer, "kind", "digitalocean");

    // What was there before keeps working: only what uses a driver anew is judged.
    let binding = api(&site.admin, "management.cattle.io/v3/GlobalRoleBinding", None);
    site.runtime.block_on(binding.delete("ann-local", &Default::default())).unwrap();
    until("the role is gone", SOON, || site.create(&ann, LOCAL, &config("late")).is_err());
    let scaled = json!({"spec": {"rkeConfig": {"machinePools": [
        cluster("two", "LocalConfig", "mine")["spec"]["rkeConfig"]["machinePools"][0].clone(),
    ]}, "localClusterAuthEndpoint": {"enabled": true}}});
    site.patch(&ann, CLUSTER, Some(NAMESPACE), "two", &scaled).unwrap();
}
