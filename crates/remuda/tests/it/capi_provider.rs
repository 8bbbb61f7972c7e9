//! `remuda capi provider`: a provider that others make, beside the server. Its program is this one, called again.

mod program;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use kube::Client;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    client::client,
    foreign::until,
    harness::{Place, Server, ended_with, remuda, success},
};

const SIMS: &str = "/apis/infrastructure.cluster.x-k8s.io/v1/namespaces/default/simclusters";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

async fn post(client: &Client, path: &str, object: Value) -> Result<Value, String> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.map_err(|error| error.to_string())
}

async fn read(client: &Client, path: &str) -> Value {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

/// What a provider's manifest has, by where each is created. `rules` are those of its role.
fn components(rules: &Value) -> Vec<(&'static str, Value)> {
    let service = |path: &str| json!({"service": {"namespace": "sim-system", "name": "sim-webhook-service", "path": path}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let account = json!({"kind": "ServiceAccount", "name": "sim-manager", "namespace": "sim-system"});
    let labelled = |mut object: Value, name: &str| {
        object["metadata"]["name"] = name.into();
        object["metadata"]["labels"] =
            json!({"cluster.x-k8s.io/provider": "infrastructure-sim", "clusterctl.cluster.x-k8s.io": ""});
        object
    };
    let of = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind});
    let with = |mut object: Value, fields: Value| {
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        object
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        ("/api/v1/namespaces", labelled(of("v1", "Namespace"), "sim-system")),
        (
            DEFINITIONS,
            labelled(
                with(
                    of("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
                    json!({"spec": {
                        "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
                        "names": {"kind": "SimCluster", "listKind": "SimClusterList", "plural": "simclusters", "singular": "simcluster"},
                        "versions": [version("v1", true), version("v1alpha1", false)],
                        "conversion": {"strategy": "Webhook", "webhook":
                            {"conversionReviewVersions": ["v1"], "clientConfig": service("/convert")}},
                    }}),
                ),
                "simclusters.infrastructure.cluster.x-k8s.io",
            ),
        ),
        (
            "/api/v1/namespaces/sim-system/serviceaccounts",
            labelled(of("v1", "ServiceAccount"), "sim-manager"),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            labelled(with(of(rbac, "ClusterRole"), json!({"rules": rules})), "sim-manager"),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            labelled(
                with(
                    of(rbac, "ClusterRoleBinding"),
                    json!({"subjects": [account],
                        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sim-manager"}}),
                ),
                "sim-manager",
            ),
        ),
        (
            "/apis/apps/v1/namespaces/sim-system/deployments",
            labelled(
                with(
                    of("apps/v1", "Deployment"),
                    json!({"spec": {"selector": {"matchLabels": {"app": "sim"}}, "template": {
                        "metadata": {"labels": {"app": "sim"}},
                        "spec": {"serviceAccountName": "sim-manager",
                            "containers": [{"name": "manager", "image": "example.org/sim:v0.1.0"}]}}}}),
                ),
                "sim-controller-manager",
            ),
        ),
        (
            "/api/v1/namespaces/sim-system/services",
            labelled(
                with(
                    of("v1", "Service"),
                    json!({"spec": {"selector": {"app": "sim"}, "ports": [{"port": 443}]}}),
                ),
                "sim-webhook-service",
            ),
        ),
        (
            WEBHOOKS,
            labelled(
                with(
                    of("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
                    json!({"webhooks": [{
                        "name": "validation.simcluster.infrastructure.cluster.x-k8s.io", "sideEffects": "None",
                        "admissionReviewVersions": ["v1"], "clientConfig": service("/validate"),
                        "rules": [{"apiGroups": ["infrastructure.cluster.x-k8s.io"], "apiVersions": ["v1"],
                            "operations": ["CREATE", "UPDATE"], "resources": ["simclusters"]}],
                    }]}),
                ),
                "sim-validating-webhook-configuration",
            ),
        ),
        (
            "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/namespaces/sim-system/providers",
            labelled(
                with(
                    of("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider"),
                    json!({"providerName": "sim", "type": "InfrastructureProvider", "version": "v0.1.0"}),
                ),
                "infrastructure-sim",
            ),
        ),
    ]
}

async fn install(client: &Client, rules: &Value) {
    for (path, object) in components(rules) {
        post(client, path, object).await.unwrap();
    }
}

fn sim(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "SimCluster", "metadata": {"name": name}, "spec": spec})
}

/// `remuda capi provider run`, running.
struct Run {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Run {
    fn start(server: &Server, place: &Place) -> Run {
        let script = place.join("sim-manager");
        // The test program takes no flags of others, so they go by the environment.
        let text = format!(
            "#!/bin/sh\n{}=\"$*\" exec {:?} --exact capi_provider::program::plays_a_provider --nocapture\n",
            program::ARGUMENTS,
            std::env::current_exe().unwrap()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let log = place.join("run.log");
        let mut command = remuda();
        command.args(["capi", "provider", "run", "sim", "--data-dir"]).arg(&server.data_dir).arg("--");
        command.arg(&script).env(program::PID_FILE, place.join("pid"));
        command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let (said, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Run { child, lines, log }
    }

    /// Reads what is said until a line has these words, and returns all of it.
    #[track_caller]
    fn until(&self, words: &str) -> String {
        let mut said = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("it did not say {words:?}:\n{said}{}", self.log());
            };
            said.push_str(&line);
            said.push('\n');
            if line.contains(words) {
                return said;
            }
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it by a signal, which ends the program too.
    fn end(&mut self) -> Option<ExitStatus> {
        let _ = kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGTERM);
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }

    fn stop(mut self) -> ExitStatus {
        self.end().expect("it ends")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.end().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn pid(place: &Place) -> Pid {
    Pid::from_raw(fs::read_to_string(place.join("pid")).unwrap().parse().unwrap())
}

fn list(data: &Path) -> String {
    success(remuda().args(["capi", "provider", "list", "--data-dir"]).arg(data))
}

#[tokio::test]
async fn a_provider_runs_beside_the_server_and_its_webhooks_are_answered_while_it_does() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    install(
        &client,
        &json!([{"apiGroups": ["infrastructure.cluster.x-k8s.io"], "resources": ["*"], "verbs": ["*"]}]),
    )
    .await;
    let configurations = async || {
        let webhooks = read(&client, &format!("{WEBHOOKS}/sim-validating-webhook-configuration")).await;
        let definition =
            read(&client, &format!("{DEFINITIONS}/simclusters.infrastructure.cluster.x-k8s.io")).await;
        let annotations = [&webhooks, &definition].map(|object| object["metadata"]["annotations"].clone());
        (webhooks["webhooks"].clone(), definition["spec"]["conversion"].clone(), annotations)
    };
    let before = configurations().await;
    let refused = post(&client, SIMS, sim("early", &json!({}))).await.unwrap_err();
    let nothing_answers = "no endpoints available for service \"sim-webhook-service\"";
    assert!(refused.contains("failed calling webhook") && refused.contains(nothing_answers), "{refused}");
    let listed = list(&server.data_dir);
    assert!(
        listed.contains("2 not answered: Service sim-system/sim-webhook-service has no endpoints"),
        "{listed}"
    );

    // What cannot be started changes nothing.
    let wrong = |arguments: &[&str], code: i32| {
        let mut command = remuda();
        command.args(["capi", "provider", "run", "--data-dir"]).arg(&server.data_dir).args(arguments);
        ended_with(&mut command, code)
    };
    let told = wrong(&["sim", "--", "/no/such/program"], 3);
    assert!(told.contains("start /no/such/program: No such file"), "{told}");
    let told = wrong(&["infrastructure-simm", "--", "true"], 3);
    assert!(told.contains("did you mean infrastructure-sim?"), "{told}");
    let told = wrong(&["cluster-api", "--", "true"], 2);
    assert!(told.contains("is part of the server"), "{told}");
    assert_eq!(configurations().await, before);

    let run = Run::start(&server, &place);
    let said = run.until("infrastructure-sim v0.1.0 runs and answers 2 webhooks at https://127.0.0.1:");
    // What the program says is heard, and it has its own rights only.
    assert!(said.contains("the program sees 0 simclusters") && said.contains("secrets: 403"), "{said}");
    post(&client, SIMS, sim("good", &json!({}))).await.unwrap();
    let denied = post(&client, SIMS, sim("bad", &json!({"refuse": true}))).await.unwrap_err();
    assert!(denied.contains("denied the request: this simcluster is refused"), "{denied}");
    let old = read(&client, &format!("{}/good", SIMS.replace("/v1/", "/v1alpha1/"))).await;
    assert_eq!(old["converted"], "by the program", "{old}");
    let listed = list(&server.data_dir);
    assert!(listed.contains("answered") && !listed.contains("not answered"), "{listed}");
    let told = wrong(&["sim", "--", "true"], 6);
    assert!(told.contains("a program of infrastructure-sim runs and answers its webhooks"), "{told}");

    // One that is killed is started again.
    let first = pid(&place);
    kill(first, Signal::SIGKILL).unwrap();
    run.until("runs and answers 2 webhooks");
    assert!(run.log().contains("started again in 1 s"), "{}", run.log());
    assert_ne!(pid(&place), first);
    post(&client, SIMS, sim("after", &json!({}))).await.unwrap();

    // At the end nothing is left of it, and nothing goes unchecked.
    let last = pid(&place);
    assert!(run.stop().success());
    assert!(kill(last, None).is_err(), "the program outlives the command");
    assert_eq!(configurations().await, before);
    let refused = post(&client, SIMS, sim("late", &json!({}))).await.unwrap_err();
    assert!(refused.contains(nothing_answers), "{refused}");
    let json = success(
        remuda().args(["capi", "provider", "list", "-o", "json", "--data-dir"]).arg(&server.data_dir),
    );
    let json: Value = serde_json::from_str(&json).unwrap();
    let found =
        json["items"].as_array().unwrap().iter().find(|item| item["name"] == "infrastructure-sim").unwrap();
    assert_eq!((&found["webhooks"], &found["webhooksNotAnswered"]), (&json!("not-answered"), &json!(2)));
    server.stop();
    let server = Server::start(&place.data(), &[]);
    let advice = "remuda capi provider run infrastructure-sim -- PROGRAM";
    until("the log names the provider", Duration::from_secs(20), || server.log().contains(advice));
}

#[tokio::test]
async fn a_provider_whose_rights_do_not_suffice_is_said_to_lack_them() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    install(&client, &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])).await;
    let run = Run::start(&server, &place);
    let said = run.until("the program may not list simclusters");
    assert!(said.contains("403"), "{said}");
    let lacks = "system:serviceaccount:sim-system:sim-manager may not watch simclusters.infrastructure.cluster.x-k8s.io";
    assert!(run.log().contains(lacks), "{}", run.log());
    // It ends and is started again, until it is given the right.
    run.until("the program may not list simclusters");
    let rules = json!({"rules": [{"apiGroups": ["infrastructure.cluster.x-k8s.io"], "resources": ["*"], "verbs": ["*"]}]});
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/sim-manager";
    let request = http::Request::patch(role).header("content-type", "application/merge-patch+json");
    client.request::<Value>(request.body(rules.to_string().into_bytes()).unwrap()).await.unwrap();
    run.until("runs and answers 2 webhooks");
    assert!(run.log().contains("the program ended after"), "{}", run.log());
    assert!(run.stop().success());
}
