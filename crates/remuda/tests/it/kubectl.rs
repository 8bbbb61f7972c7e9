//! A person with kubectl: what they type, and what they see.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{Place, Server, assert_success, skipped};

pub(crate) struct Shell {
    pub(crate) server: Server,
    pub(crate) place: Place,
    /// The minor version of kubectl: Debian's is 1.20, others may be new.
    minor: u32,
}

impl Shell {
    /// A server and a kubectl that talks to it; `None` if there is no kubectl.
    pub(crate) fn open() -> Option<Shell> {
        let found = Command::new("kubectl").args(["version", "--client", "-o", "json"]).output();
        let Some(found) = found.ok().filter(|output| output.status.success()) else {
            skipped("there is no kubectl in PATH (Debian: kubernetes-client)");
            return None;
        };
        let version: Value = serde_json::from_slice(&found.stdout).unwrap();
        let minor =
            version["clientVersion"]["minor"].as_str().unwrap().trim_end_matches('+').parse().unwrap();
        let place = Place::new();
        let server = Server::start(&place.data(), &[]);
        Some(Shell { server, place, minor })
    }

    /// Whether this kubectl has what version 1.`minor` brought; says so if it has not.
    pub(crate) fn has(&self, minor: u32, what: &str) -> bool {
        if self.minor < minor {
            skipped(&format!("kubectl 1.{} has no {what}", self.minor));
        }
        self.minor >= minor
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.args(line.split_whitespace()).env("KUBECONFIG", self.server.kubeconfig());
        // Discovery is cached below the home directory.
        command.env("HOME", self.place.join("home")).env("KUBECTL_KUBERC", "false").stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.output(line);
        assert_success(&output);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs what must fail and returns what it says about it.
    #[track_caller]
    pub(crate) fn fails(&self, line: &str) -> String {
        let output = self.output(line);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{line} succeeded");
        text
    }

    /// A token of a service account: asked for, or in a Secret as before 1.24.
    fn token_of(&self, account: &str) -> String {
        if self.minor >= 24 {
            return self.run(&format!("create token {account}"));
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": account}},
        });
        let file = self.file("token.json", &secret.to_string());
        self.run(&format!("create -f {}", file.display()));
        for _ in 0..100 {
            let token =
                self.run("get secret token -o go-template={{with.data.token}}{{.|base64decode}}{{end}}");
            if !token.is_empty() {
                return token;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the Secret was not given a token");
    }

    fn file(&self, name: &str, contents: &str) -> PathBuf {
        self.place.write(name, contents)
    }

    #[track_caller]
    pub(crate) fn apply(&self, manifest: &str, more: &str) -> String {
        let file = self.file("manifest.yaml", manifest);
        self.run(&format!("apply -f {} {more}", file.display()))
    }
}

/// A process whose lines are read as they come.
struct Following {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Following {
    fn start(mut command: Command) -> Following {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { child, lines }
    }

    #[track_caller]
    fn until(&mut self, wanted: &str) -> String {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if line.contains(wanted) {
                return line;
            }
        }
        panic!("the output ended without {wanted:?}");
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1
        ports: [{containerPort: 80}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
";

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        description: A widget
        properties:
          spec:
            type: object
            description: What is wanted
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 10, description: How large it is}
              colour: {type: string, default: grey, enum: [grey, red, green]}
            x-kubernetes-validations:
            - {rule: 'self.colour != \"red\" || self.size < 5', message: red widgets are small}
          status:
            type: object
            properties:
              conditions:
                type: array
                items:
                  type: object
                  x-kubernetes-preserve-unknown-fields: true
";

const WIDGET: &str = "
apiVersion: example.org/v1
kind: Widget
metadata: {name: one}
spec: {size: 3}
";

#[test]
fn objects_are_applied_listed_described_and_deleted() {
    let Some(shell) = Shell::open() else { return };
    let created = shell.apply(DEPLOYMENT, "");
    assert_eq!(created, "deployment.apps/web created\nconfigmap/settings created\n");
    assert_eq!(shell.apply(DEPLOYMENT, ""), "deployment.apps/web unchanged\nconfigmap/settings unchanged\n");
    let changed = shell.apply(&DEPLOYMENT.replace("red", "green"), "");
    assert_eq!(changed, "deployment.apps/web unchanged\nconfigmap/settings configured\n");

    let table = shell.run("get deployment web");
    let header: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
    assert_eq!(table.lines().nth(1).unwrap().split_whitespace().nth(1), Some("0/2"));
    assert!(shell.run("get deployment web -o wide").contains("nginx:1"));
    assert!(shell.run("get deploy,cm -l app=web -o name").contains("deployment.apps/web"));
    assert_eq!(shell.run("get cm settings -o jsonpath={.data.colour}"), "green");
    assert!(shell.run("get cm settings -o yaml").contains("colour: green"));
    assert!(shell.run("get all -A").contains("deployment.apps/web"));
    let described = shell.run("describe deployment web");
    assert!(described.contains("Image:") && described.contains("nginx:1"), "{described}");
    assert!(described.contains("StrategyType:           RollingUpdate"), "{described}");
    assert!(shell.run("describe cm settings").contains("green"));

    assert_eq!(shell.run("delete cm settings"), "configmap \"settings\" deleted\n");
    assert!(shell.fails("get cm settings").contains("(NotFound): configmaps \"settings\" not found"));
    assert!(shell.run("delete deployment web --cascade=foreground").contains("deleted"));
}

#[test]
fn a_watch_shows_changes_as_they_happen() {
    let Some(shell) = Shell::open() else { return };
    shell.run("create cm before --from-literal=a=1");
    let mut watch = Following::start(shell.command("get cm -w --output-watch-events"));
    watch.until("before");
    shell.run("create cm during --from-literal=a=1");
    assert!(watch.until("during").starts_with("ADDED"));
    shell.run("patch cm during --type=merge -p {\"data\":{\"a\":\"2\"}}");
    assert!(watch.until("during").starts_with("MODIFIED"));
    shell.run("delete cm during");
    assert!(watch.until("during").starts_with("DELETED"));
}

#[test]
fn objects_are_edited_patched_labelled_and_scaled() {
    let Some(shell) = Shell::open() else { return };
    shell.apply(DEPLOYMENT, "");
    let editor = shell.file("editor", "#!/bin/sh\nsed -i s/nginx:1/nginx:2/ \"$1\"\n");
    fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let edited = shell.command("edit deployment web").env("KUBE_EDITOR", &editor).output().unwrap();
    assert_success(&edited);
    let image = "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(shell.run(image), "nginx:2");

    // A strategic merge patch finds the container by its name.
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:3"}]}}}}"#;
    shell.run(&format!("patch deployment web -p {patch}"));
    assert_eq!(shell.run(image), "nginx:3");
    let patch = r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:4"}]"#;
    shell.run(&format!("patch deployment web --type=json -p {patch}"));
    assert_eq!(shell.run(image), "nginx:4");
    assert_eq!(
        shell
            .run("get deployment web -o jsonpath={.spec.template.spec.containers[0].ports[0].containerPort}"),
        "80"
    );

    shell.run("label deployment web tier=front");
    assert!(shell.fails("label deployment web tier=back").contains("already has a value"));
    shell.run("label deployment web tier=back --overwrite");
    assert_eq!(shell.run("get deployment -l tier=back -o name"), "deployment.apps/web\n");
    assert_eq!(shell.run("get deployment -l tier=front -o name"), "");
    shell.run("annotate deployment web note=hello");
    shell.run("scale deployment web --replicas=5");
    assert_eq!(shell.run("get deployment web -o jsonpath={.spec.replicas}"), "5");
    shell.run("set image deployment/web web=nginx:5");
    assert_eq!(shell.run(image), "nginx:5");
}

#[test]
fn waiting_ends_when_the_condition_comes() {
    let Some(shell) = Shell::open() else { return };
    shell.apply(CRD, "");
    shell.run("wait --for=condition=Established crd/widgets.example.org --timeout=20s");
    shell.apply(WIDGET, "");
    let waiting = shell
        .command("wait --for=condition=Ready widget/one --timeout=20s")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // As old kubectls can do it, too.
    let mut widget: Value = serde_json::from_str(&shell.run("get widget one -o json")).unwrap();
    widget["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let file = shell.file("status.json", &widget.to_string());
    let path = "/apis/example.org/v1/namespaces/default/widgets/one/status";
    shell.run(&format!("replace --raw {path} -f {}", file.display()));
    assert_success(&waiting.wait_with_output().unwrap());
    if shell.has(24, "--subresource") {
        let status = r#"{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}"#;
        shell.run(&format!("patch widget one --subresource=status --type=merge -p {status}"));
    }
    if shell.has(23, "wait for a JSON path") {
        shell.run("wait --for=jsonpath={.spec.size}=3 widget/one --timeout=20s");
    }
    let deleted =
        shell.command("wait --for=delete widget/one --timeout=20s").stdout(Stdio::piped()).spawn().unwrap();
    shell.run("delete widget one");
    assert_success(&deleted.wait_with_output().unwrap());
    shell.apply(WIDGET, "");
    let late = shell.fails("wait --for=condition=Ready widget/one --timeout=1s");
    assert!(late.contains("timed out"), "{late}");
}

#[test]
fn kinds_are_explained_and_listed() {
    let Some(shell) = Shell::open() else { return };
    let explained = shell.run("explain deployment.spec.replicas");
    let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("FIELD: replicas <integer>"), "{explained}");
    let containers = shell.run("explain pod.spec.containers");
    assert!(containers.contains("<[]Container>") || containers.contains("<[]Object>"), "{containers}");
    shell.apply(CRD, "");
    shell.run("wait --for=condition=Established crd/widgets.example.org --timeout=20s");
    let explained = shell.run("explain widget.spec");
    assert!(explained.contains("What is wanted") && explained.contains("-required-"), "{explained}");
    let resources = shell.run("api-resources");
    for wanted in
        ["deployments", "configmaps", "customresourcedefinitions", "widgets", "leases", "clusterroles"]
    {
        assert!(resources.contains(wanted), "{wanted} is not in\n{resources}");
    }
    assert!(shell.run("api-versions").contains("example.org/v1"));
    let version: Value = serde_json::from_str(&shell.run("version -o json")).unwrap();
    assert!(version["serverVersion"]["gitVersion"].as_str().unwrap().starts_with("v1."), "{version}");
    assert!(shell.run("get wd").is_empty());
}

#[test]
fn custom_resources_are_defaulted_validated_and_shown_in_columns() {
    let Some(shell) = Shell::open() else { return };
    shell.apply(CRD, "");
    shell.run("wait --for=condition=Established crd/widgets.example.org --timeout=20s");
    shell.apply(WIDGET, "");
    assert_eq!(shell.run("get widget one -o jsonpath={.spec.colour}"), "grey");
    let table = shell.run("get wd");
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "SIZE"]);
    assert_eq!(rows[1], ["one", "3"]);
    let refuse = |manifest: &str| {
        let file = shell.file("bad.yaml", manifest);
        shell.fails(&format!("apply -f {}", file.display()))
    };
    let text = refuse(&WIDGET.replace("size: 3", "size: 11"));
    assert!(
        text.contains("spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        "{text}"
    );
    let text = refuse(&WIDGET.replace("size: 3", "size: 7, colour: red"));
    assert!(text.contains("red widgets are small"), "{text}");
    let text = refuse(&WIDGET.replace("size: 3", "size: 3, weight: 1"));
    // Old kubectls check by themselves, with the schema we publish.
    let unknown = if shell.minor < 25 { "unknown field \"weight\"" } else { "unknown field \"spec.weight\"" };
    assert!(text.contains(unknown), "{text}");
    shell.run("delete crd widgets.example.org");
    // kubectl remembers for hours what there was.
    fs::remove_dir_all(shell.place.join("home")).unwrap();
    let text = shell.fails("get widgets");
    assert!(text.contains("the server doesn't have a resource type \"widgets\""), "{text}");
}

#[test]
fn permissions_are_asked_for_and_kept() {
    let Some(shell) = Shell::open() else { return };
    assert_eq!(shell.run("auth can-i create deployments"), "yes\n");
    if shell.has(28, "auth whoami") {
        assert!(shell.run("auth whoami").contains("kubernetes-admin"));
    }
    shell.run("create serviceaccount reader");
    shell.run("create role reader --verb=get,list --resource=configmaps");
    shell.run("create rolebinding reader --role=reader --serviceaccount=default:reader");
    let reader = "--as=system:serviceaccount:default:reader";
    assert_eq!(shell.run(&format!("auth can-i list configmaps {reader}")), "yes\n");
    let denied = shell.output(&format!("auth can-i list secrets {reader}"));
    assert_eq!((denied.status.code(), denied.stdout.as_slice()), (Some(1), &b"no\n"[..]));
    assert!(shell.run(&format!("auth can-i --list {reader}")).contains("configmaps"));
    let token = shell.token_of("reader");
    let config = "--kubeconfig=/dev/null";
    let ca = shell.place.data().join("pki/ca.crt");
    let with = |line: &str| {
        let login = format!(
            "--server={} --certificate-authority={} --token={}",
            shell.server.url,
            ca.display(),
            token.trim()
        );
        format!("{config} {login} {line}")
    };
    shell.run(&with("get configmaps -n default"));
    let denied = shell.fails(&with("get secrets -n default"));
    assert!(
        denied.contains("secrets is forbidden: User \"system:serviceaccount:default:reader\" cannot list resource \"secrets\""),
        "{denied}"
    );
}

#[test]
fn differences_are_shown_before_they_are_made() {
    let Some(shell) = Shell::open() else { return };
    shell.apply(DEPLOYMENT, "");
    let file = shell.file("changed.yaml", &DEPLOYMENT.replace("red", "green"));
    let diff = shell.output(&format!("diff -f {}", file.display()));
    let text = String::from_utf8_lossy(&diff.stdout);
    assert_eq!(diff.status.code(), Some(1), "{text}{}", String::from_utf8_lossy(&diff.stderr));
    assert!(text.contains("-  colour: red") && text.contains("+  colour: green"), "{text}");
    assert_eq!(shell.run("get cm settings -o jsonpath={.data.colour}"), "red");
    let file = shell.file("same.yaml", DEPLOYMENT);
    assert_eq!(shell.run(&format!("diff -f {}", file.display())), "");
}

#[test]
fn server_side_apply_tells_of_conflicts() {
    let Some(shell) = Shell::open() else { return };
    let file = shell.file("a.yaml", DEPLOYMENT);
    shell.run(&format!("apply --server-side --field-manager=alice -f {}", file.display()));
    let changed = shell.file("b.yaml", &DEPLOYMENT.replace("red", "green"));
    let conflict = shell.fails(&format!("apply --server-side --field-manager=bob -f {}", changed.display()));
    assert!(
        conflict.contains("Apply failed with 1 conflict: conflict with \"alice\": .data.colour"),
        "{conflict}"
    );
    assert_eq!(shell.run("get cm settings -o jsonpath={.data.colour}"), "red");
    shell.run(&format!("apply --server-side --force-conflicts --field-manager=bob -f {}", changed.display()));
    assert_eq!(shell.run("get cm settings -o jsonpath={.data.colour}"), "green");
    let show = if shell.minor < 21 { "" } else { "--show-managed-fields" };
    let managers =
        shell.run(&format!("get cm settings {show} -o jsonpath={{.metadata.managedFields[*].manager}}"));
    assert!(managers.contains("bob"), "{managers}");
}

#[test]
fn a_manifest_comes_through_standard_input_too() {
    let Some(shell) = Shell::open() else { return };
    let mut child =
        shell.command("create -f -").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(DEPLOYMENT.as_bytes()).unwrap();
    assert_success(&child.wait_with_output().unwrap());
    let again = shell.file("again.yaml", DEPLOYMENT);
    assert!(shell.fails(&format!("create -f {}", again.display())).contains("AlreadyExists"));
    shell.run(&format!("replace -f {}", again.display()));
    shell.run("create namespace elsewhere");
    shell.run("create cm far -n elsewhere");
    shell.run("delete namespace elsewhere --timeout=20s");
    assert!(shell.fails("get cm far -n elsewhere").contains("NotFound"));
}

#[test]
fn a_watching_kubectl_does_not_hold_up_a_stop() {
    let Some(shell) = Shell::open() else { return };
    shell.run("create cm before --from-literal=a=1");
    let mut watches: Vec<_> = (0..5).map(|_| Following::start(shell.command("get cm -w"))).collect();
    for watch in &mut watches {
        watch.until("before");
    }
    let (took, status) = shell.server.stop();
    assert!(status.success(), "{status}");
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}
