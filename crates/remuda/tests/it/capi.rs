//! Cluster API on the built program: what kubectl and clusterctl see, and what a restart leaves alone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use kube::{Client, api::DynamicObject, core::ObjectList};

use crate::{
    client::client,
    etcd::{Etcd, Sharing},
    harness::{Place, Server, assert_success, ended_with, remuda, skipped, success},
    kubectl::Shell,
};

/// A quick start as the providers' own templates had it before v1beta2.
const QUICK_START: &str = "
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: quick, labels: {cni: calico}}
spec:
  clusterNetwork:
    pods: {cidrBlocks: [192.168.0.0/16]}
    services: {cidrBlocks: [10.128.0.0/12]}
    serviceDomain: cluster.local
  controlPlaneRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, name: quick}
  infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerCluster, name: quick}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: quick-md-0}
spec:
  clusterName: quick
  replicas: 3
  selector: {matchLabels: null}
  template:
    spec:
      clusterName: quick
      version: v1.34.0
      nodeDrainTimeout: 1m30s
      bootstrap:
        configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: quick-md-0}
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, name: quick}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineHealthCheck
metadata: {name: quick}
spec:
  clusterName: quick
  maxUnhealthy: 40%
  nodeStartupTimeout: 10m0s
  selector: {matchLabels: {pool: a}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 5m0s}]
";

/// The headings of a table, without the spaces between them.
fn headings(table: &str) -> String {
    table
        .lines()
        .next()
        .unwrap()
        .split("  ")
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("|")
}

#[test]
fn a_quick_start_in_the_old_version_is_seen_in_both() {
    let Some(shell) = Shell::open() else { return };
    let applied = shell.apply(QUICK_START, "");
    assert_eq!(applied.matches(" created").count(), 3, "{applied}");
    let again = shell.apply(QUICK_START, "");
    assert_eq!(again.matches(" unchanged").count(), 3, "{again}");

    assert_eq!(
        headings(&shell.run("get cl")),
        "NAME|CLUSTERCLASS|AVAILABLE|CP DESIRED|CP AVAILABLE|CP UP-TO-DATE|W DESIRED|W AVAILABLE|W UP-TO-DATE|PHASE|AGE|VERSION"
    );
    assert_eq!(
        headings(&shell.run("get md")),
        "NAME|CLUSTER|AVAILABLE|DESIRED|CURRENT|READY|AVAILABLE|UP-TO-DATE|PHASE|AGE|VERSION"
    );
    assert_eq!(headings(&shell.run("get mhc")), "NAME|CLUSTER|REPLICAS|HEALTHY|AGE");
    assert_eq!(
        headings(&shell.run("get machinedeployments.v1beta1.cluster.x-k8s.io")),
        "NAME|CLUSTER|REPLICAS|READY|UPDATED|UNAVAILABLE|PHASE|AGE|VERSION"
    );
    let all = shell.run("get cluster-api -o name");
    assert_eq!(all.lines().count(), 3, "{all}");
    shell.run("get cl,md,ms,ma,mhc");

    let path = "-o jsonpath={.spec.template.spec.deletion.nodeDrainTimeoutSeconds}";
    assert_eq!(
        shell.run(&format!("get machinedeployments.v1beta2.cluster.x-k8s.io quick-md-0 {path}")),
        "90"
    );
    let path = "-o jsonpath={.spec.template.spec.nodeDrainTimeout}";
    let old = shell.run(&format!("get machinedeployments.v1beta1.cluster.x-k8s.io quick-md-0 {path}"));
    assert_eq!(old, "1m30s");

    let explained = shell.run("explain machinedeployment.spec.rollout.strategy");
    assert!(explained.contains("rollingUpdate"), "{explained}");
    assert!(explained.contains("How machines are replaced."), "{explained}");
    let explained = shell.run("explain machines.spec --api-version=cluster.x-k8s.io/v1beta1");
    assert!(explained.contains("nodeDrainTimeout"), "{explained}");

    let refused = shell.fails(
        "patch md quick-md-0 --type=merge -p {\"spec\":{\"template\":{\"spec\":{\"version\":\"v1\"}}}}",
    );
    assert!(refused.contains("The MachineDeployment \"quick-md-0\" is invalid"), "{refused}");
    assert!(
        refused
            .contains("spec.template.spec.version: Invalid value: \"v1\": must be a valid semantic version")
    );
    shell.run("scale md quick-md-0 --replicas=5");
    assert_eq!(shell.run("get md quick-md-0 -o jsonpath={.spec.replicas}"), "5");
}

async fn get(client: &Client, path: &str) -> ObjectList<DynamicObject> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

/// The store's revision; grows with every write.
async fn revision(client: &Client) -> String {
    get(client, "/api/v1/namespaces").await.metadata.resource_version.unwrap()
}

/// The revision at which nobody writes any more: the API's own controllers follow new namespaces.
async fn settled(client: &Client) -> String {
    let mut last = revision(client).await;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match revision(client).await {
            now if now == last => return now,
            now => last = now,
        }
    }
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let Some(shell) = Shell::open() else { return };
    shell.apply(QUICK_START, "");
    let (server, place) = (shell.server, shell.place);
    let before = settled(&client(&server).await).await;
    // At another address it would have to say so in its settings.
    let bind = format!("127.0.0.1:{}", server.port());
    assert!(server.stop().1.success());
    let server = Server::start(&place.data(), &["--bind", &bind]);
    assert_eq!(revision(&client(&server).await).await, before);
    // Nor does anything that starts afterwards.
    assert_eq!(settled(&client(&server).await).await, before);
}

#[tokio::test]
async fn without_controllers_the_kinds_are_served_and_no_core_provider_is_claimed() {
    let place = Place::new();
    let server = Server::start(&place.data(), &["--controllers=false"]);
    let client = client(&server).await;
    assert!(get(&client, "/apis/cluster.x-k8s.io/v1beta2/machines").await.items.is_empty());
    assert!(get(&client, "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers").await.items.is_empty());
    server.stop();
    let server = Server::start(&place.data(), &[]);
    let client = crate::client::client(&server).await;
    let providers = get(&client, "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers").await;
    assert_eq!(providers.items.len(), 4);
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    // What controllers count is there, and at its end the text ends.
    assert!(metrics.contains("\n# TYPE events_dropped counter\n"), "{metrics}");
    assert_eq!(metrics.matches("# EOF").count(), 1);
    let ready = http::Request::get("/readyz").body(Vec::new()).unwrap();
    assert_eq!(client.request_text(ready).await.unwrap(), "ok");
}

#[tokio::test]
async fn servers_that_start_together_on_one_etcd_install_each_definition_once() {
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let sharing = Sharing::new(&place, &etcd);
    let servers: Vec<Server> = thread::scope(|scope| {
        let starts: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                let (data, arguments) = (place.join(name), sharing.arguments());
                scope.spawn(move || Server::start(&data, &arguments))
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for server in &servers {
        let client = client(server).await;
        assert!(get(&client, "/apis/cluster.x-k8s.io/v1beta1/clusters").await.items.is_empty());
        let definitions = get(&client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await;
        let shipped: Vec<_> = remuda_api::crd::names().chain(remuda_api::crd::rancher_names()).collect();
        // Drivers bring kinds of their own.
        let ours =
            |one: &&DynamicObject| one.metadata.name.as_deref().is_some_and(|name| shipped.contains(&name));
        let definitions: Vec<_> = definitions.items.iter().filter(ours).collect();
        assert_eq!(definitions.len(), shipped.len());
        for definition in definitions {
            assert_eq!(definition.metadata.generation, Some(1), "{:?}", definition.metadata.name);
        }
        let providers = get(&client, "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers").await;
        assert_eq!(providers.items.len(), 4);
    }
}

/// What upstream's manifest of the core provider would put over ours: one definition and one webhook of it.
async fn put_over(client: &Client) {
    let patch = serde_json::json!({
        "metadata": {"annotations": {"cert-manager.io/inject-ca-from": "capi-system/capi-serving-cert"}},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "capi-system", "name": "capi-webhook-service", "path": "/convert"}}}}},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.cluster.x-k8s.io";
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    let request = request.body(patch.to_string().into_bytes()).unwrap();
    client.request::<serde_json::Value>(request).await.unwrap();
    let webhooks = serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "capi-mutating", "labels": {"cluster.x-k8s.io/provider": "cluster-api"}},
        "webhooks": [{
            "name": "default.cluster.cluster.x-k8s.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "capi-system", "name": "capi-webhook-service"}},
            "rules": [{"apiGroups": ["cluster.x-k8s.io"], "apiVersions": ["v1beta2"], "operations": ["CREATE", "UPDATE"],
                "resources": ["clusters"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    post(client, path, &webhooks).await.unwrap();
}

async fn post(client: &Client, path: &str, object: &serde_json::Value) -> Result<(), String> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    let answer = client.request::<serde_json::Value>(request).await;
    answer.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn one_command_gets_out_of_an_upgrade_to_another_core_provider() {
    let place = Place::new();
    // Where no controllers run the kinds are another manager's.
    let server = Server::start(&place.data(), &["--controllers=false"]);
    put_over(&client(&server).await).await;
    server.stop();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    let clusters = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters";
    let cluster = serde_json::json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "demo"}, "spec": {"paused": true, "infrastructureRef":
            {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerCluster", "name": "demo"}}});
    let refused = post(&client, clusters, &cluster).await.unwrap_err();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    assert!(server.log().contains("remuda capi reclaim"), "{}", server.log());
    let data = place.data().display().to_string();
    let reclaim = |more: &[&str]| success(remuda().args(["capi", "reclaim", "--data-dir", &data]).args(more));
    let planned = reclaim(&["--dry-run"]);
    assert!(planned.contains("MutatingWebhookConfiguration capi-mutating is deleted (dry run)"), "{planned}");
    assert!(post(&client, clusters, &cluster).await.is_err());
    let done = reclaim(&[]);
    assert!(
        done.contains("CustomResourceDefinition clusters.cluster.x-k8s.io is the server's again"),
        "{done}"
    );
    post(&client, clusters, &cluster).await.unwrap();
    assert_eq!(reclaim(&[]), "the kinds of Cluster API are the server's; there is nothing to reclaim\n");
    // What was put back is what a start would put there.
    let (before, bind) = (settled(&client).await, format!("127.0.0.1:{}", server.port()));
    assert!(server.stop().1.success());
    let server = Server::start(&place.data(), &["--bind", &bind]);
    assert_eq!(settled(&crate::client::client(&server).await).await, before);
}

/// A template with its variables put in, as clusterctl does it.
fn filled(template: &str, variables: &[(&str, &str)]) -> String {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, after) = after.split_once('}').unwrap();
        let (name, usual) = inside.split_once(":=").unwrap_or((inside, ""));
        let given = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        filled.push_str(before);
        filled.push_str(given.unwrap_or(usual));
        rest = after;
    }
    filled + rest
}

#[tokio::test]
async fn the_server_serves_releases_of_its_providers_and_their_templates_make_clusters() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    let (data, dir) = (place.data().display().to_string(), place.join("clusterctl"));
    let write = || {
        let mut command = remuda();
        command.args(["capi", "repository", "--data-dir", &data]).arg(&dir);
        command
    };
    let told = success(&mut write());
    assert!(told.contains("files are in"), "{told}");
    // Once more is fine, and files of others are left alone.
    success(&mut write());
    let config = fs::read_to_string(dir.join("clusterctl.yaml")).unwrap();
    assert!(config.contains("\"type\":\"InfrastructureProvider\""), "{config}");
    let mine = place.join("mine");
    fs::create_dir_all(&mine).unwrap();
    fs::write(mine.join("notes"), "x").unwrap();
    let refused = ended_with(remuda().args(["capi", "repository", "--data-dir", &data]).arg(&mine), 6);
    assert!(refused.contains("has files in it"), "{refused}");

    let releases = dir.join("infrastructure-remuda").join("v0.1.0");
    let template = |name: &str| fs::read_to_string(releases.join(name)).unwrap();
    let driver = template("cluster-template-hetzner.yaml");
    assert!(driver.contains("kind: HetznerConfig") && driver.contains("${CLOUD_CREDENTIAL}"), "{driver}");
    assert!(template("cluster-template.yaml").contains("kind: LocalConfig"));
    let custom = filled(
        &template("cluster-template-custom.yaml"),
        &[("CLUSTER_NAME", "edge"), ("KUBERNETES_VERSION", "v1.35.1")],
    );
    let clusters = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
    let request = http::Request::post(clusters).header("content-type", "application/yaml");
    let request = request.body(custom.into_bytes()).unwrap();
    client.request::<serde_json::Value>(request).await.unwrap();
    let request = http::Request::get(format!("{clusters}/edge")).body(Vec::new()).unwrap();
    let made: serde_json::Value = client.request(request).await.unwrap();
    // What clusterctl knows of versions has no distribution in it.
    assert_eq!(made["spec"]["kubernetesVersion"], "v1.35.1+k3s1");
    // The inventory names the same providers, so that clusterctl finds the templates by itself.
    let entries = get(&client, "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers").await.items;
    for entry in entries.iter().filter(|entry| entry.data["type"] == "InfrastructureProvider") {
        assert_eq!(
            (&entry.data["providerName"], &entry.data["version"]),
            (&"remuda".into(), &"v0.1.0".into())
        );
    }
}

/// A provider as others publish it, cut down to one object of each sort.
const PROVIDER: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: sim-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: simclusters.infrastructure.cluster.x-k8s.io
  labels: {cluster.x-k8s.io/v1beta2: v1}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: SimCluster, listKind: SimClusterList, plural: simclusters, singular: simcluster}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: sim-manager, namespace: sim-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sim-manager}
rules:
- {apiGroups: [infrastructure.cluster.x-k8s.io], resources: ['*'], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sim-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sim-manager}
subjects:
- {kind: ServiceAccount, name: sim-manager, namespace: sim-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sim-manager, namespace: sim-system}
spec:
  selector: {matchLabels: {app: sim}}
  template:
    metadata: {labels: {app: sim}}
    spec:
      serviceAccountName: sim-manager
      containers:
      - {name: manager, image: 'example.org/sim:v0.1.0'}
";

const CERTIFICATES: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: KIND, plural: PLURAL}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

fn metadata(series: &str) -> String {
    format!(
        "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {{{series}, contract: v1beta2}}\n"
    )
}

/// Writes a release of a provider below a directory, and returns where its components are.
fn release(dir: &Path, label: &str, version: &str, series: &str, components: &str) -> PathBuf {
    let dir = dir.join(label).join(version);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("metadata.yaml"), metadata(series)).unwrap();
    let file = dir.join("components.yaml");
    fs::write(&file, components).unwrap();
    file
}

#[test]
fn clusterctl_adds_a_provider_to_the_core_that_is_here_and_shows_clusters() {
    if Command::new("clusterctl").arg("version").stdout(Stdio::null()).status().is_err() {
        return skipped("there is no clusterctl in PATH");
    }
    let Some(shell) = Shell::open() else { return };
    let dir = shell.place.join("releases");
    let sim = release(&dir, "infrastructure-sim", "v0.1.0", "major: 0, minor: 1", PROVIDER);
    let repository = shell.place.join("repository");
    let data = shell.place.data().display().to_string();
    success(remuda().args(["capi", "repository", "--data-dir", &data]).arg(&repository));
    let ours = fs::read_to_string(repository.join("clusterctl.yaml")).unwrap();
    let config = format!("{ours}- {{name: sim, type: InfrastructureProvider, url: {}}}\n", sim.display());
    let config = shell.place.write("clusterctl.yaml", &config);
    // As if cert-manager were there: clusterctl insists on it.
    let certificates = ["Issuer", "Certificate"].map(|kind| {
        CERTIFICATES.replace("PLURAL", &format!("{}s", kind.to_lowercase())).replace("KIND", kind)
    });
    let certificates = shell.place.write("certificates.yaml", &certificates.join("---"));
    let clusterctl = |line: &str| {
        let mut command = Command::new("clusterctl");
        command
            .arg("--config")
            .arg(&config)
            .args(line.split_whitespace())
            .env("KUBECONFIG", shell.server.kubeconfig());
        command.env("HOME", shell.place.join("home")).env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        let output = command.output().unwrap();
        assert_success(&output);
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    shell.run(&format!("apply -f {}", certificates.display()));
    let told = clusterctl("init --infrastructure sim");
    assert!(
        told.contains("provider=\"infrastructure-sim\"") && !told.contains("provider=\"cluster-api\""),
        "{told}"
    );
    let listed = shell.run("get providers -A --no-headers");
    assert_eq!(listed.lines().count(), 5, "{listed}");
    shell.run("get deployment -n sim-system sim-manager");
    assert!(clusterctl("upgrade plan").contains("You are already up to date!"));

    shell.apply(
        "
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: demo}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: SimCluster, name: demo}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: SimCluster
metadata: {name: demo}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: demo}
spec:
  clusterName: demo
  replicas: 0
  template:
    spec:
      clusterName: demo
      bootstrap: {dataSecretName: none}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: SimMachineTemplate, name: demo}
---
apiVersion: v1
kind: Secret
metadata: {name: demo-kubeconfig, labels: {cluster.x-k8s.io/cluster-name: demo}}
type: cluster.x-k8s.io/secret
stringData: {value: the way in}
",
        "",
    );
    let described = clusterctl("describe cluster demo");
    assert!(
        described.contains("Cluster default/demo") && described.contains("SimCluster default/demo"),
        "{described}"
    );
    assert_eq!(clusterctl("get kubeconfig demo").trim(), "the way in");
    clusterctl("alpha rollout restart machinedeployment/demo");
    assert!(!shell.run("get md demo -o jsonpath={.spec.rollout.after}").is_empty());

    let generated = shell.place.join("edge.yaml").display().to_string();
    clusterctl(&format!(
        "generate cluster edge --infrastructure remuda --flavor custom --kubernetes-version v1.35.1 -n fleet-default \
         --write-to {generated}"
    ));
    shell.run(&format!("apply -f {generated}"));
    let version =
        "-n fleet-default get clusters.provisioning.cattle.io edge -o jsonpath={.spec.kubernetesVersion}";
    assert_eq!(shell.run(version), "v1.35.1+k3s1");
    let listed =
        clusterctl("generate cluster edge --infrastructure remuda --flavor hetzner --list-variables");
    assert!(listed.contains("CLOUD_CREDENTIAL") && listed.contains("HETZNER_SERVER_TYPE"), "{listed}");
}
