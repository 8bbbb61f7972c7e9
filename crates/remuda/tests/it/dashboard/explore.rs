//! What is in a cluster, looked at and changed in a browser, and a cluster that comes back from a snapshot.

use std::fs;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, Secret};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{MACHINES, PASSWORD, PLANTED, axe};
use crate::{browser::Browser, client::client_with, lab::Lab};

/// A cluster with something to look at in it, and an administrator at the dashboard.
pub(super) struct Scene {
    pub(super) lab: Lab,
    pub(super) browser: Browser,
    pub(super) inside: Client,
    /// The management Cluster.
    id: String,
}

/// Logs in for the first time.
pub(super) fn enter(lab: &Lab, browser: &Browser, name: &str, grant: &str) {
    let made: Value = serde_json::from_str(&lab.output(&format!("user create {name} -o json"))).unwrap();
    lab.run(&format!("user grant {name} {grant}"));
    browser.load("/dashboard/");
    browser.login(name, made["password"].as_str().unwrap());
    for field in ["newPassword", "repeat"] {
        browser.type_into(&format!("[name={field}]"), PASSWORD);
    }
    browser.click("button[type=submit]");
    browser.wait("document.querySelector('.app .head')");
}

impl Scene {
    pub(super) fn open() -> Option<Scene> {
        let lab = Lab::open(None)?;
        let browser = Browser::open(&format!("https://{}", lab.bind))?;
        lab.run("cluster create demo --servers 1 --workers 1 --wait --timeout 120s");
        let config = lab.place.join("demo.kubeconfig");
        fs::write(&config, lab.run("get kubeconfig demo")).unwrap();
        let inside = lab.runtime.block_on(client_with(&config, |_| {}));
        let cluster = lab.objects("provisioning.cattle.io", "v1", "Cluster").remove(0);
        let id = cluster.data["status"]["clusterName"].as_str().unwrap().to_owned();
        Some(Scene { lab, browser, inside, id })
    }

    pub(super) fn create<T>(&self, object: Value)
    where
        T: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
        T: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
    {
        let api: Api<T> = Api::namespaced(self.inside.clone(), "default");
        let object: T = serde_json::from_value(object).unwrap();
        self.lab.runtime.block_on(api.create(&PostParams::default(), &object)).unwrap();
    }

    fn fill(&self) {
        let script = format!(
            "i=0; while true; do i=$((i+1)); printf '\\033[31mERROR\\033[0m turn %s {}\\n' $i; sleep 0.3; done",
            PLANTED.replace('\'', "")
        );
        self.create::<Pod>(json!({
            "metadata": {"name": "chatty", "labels": {"app": "chatty"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [
                {"name": "main", "image": "x", "command": ["/bin/sh", "-c", script]},
                {"name": "side", "image": "x", "command": ["/bin/sh", "-c", "echo from the side; sleep 3600"]},
            ]},
        }));
        self.create::<ConfigMap>(json!({
            "metadata": {"name": "settings", "annotations": {"planted": PLANTED}},
            "data": {"mode": "fast", "planted": PLANTED},
        }));
        self.create::<Secret>(json!({
            "metadata": {"name": "door-key", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"stringData\":{\"password\":\"hunter2\"}}"}},
            "stringData": {"password": "hunter2"},
        }));
        self.create::<Event>(json!({
            "metadata": {"name": "planted.1", "namespace": "default"}, "type": "Warning", "reason": "Planted",
            "message": PLANTED, "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "Pod", "name": "chatty", "namespace": "default"},
        }));
    }

    pub(super) fn load(&self, path: &str) {
        self.browser.load(&format!("/dashboard/explore/{}{path}", self.id));
        self.browser.wait("document.querySelector('.app .head') && !document.querySelector('.skeleton')");
    }

    fn namespaces(&self) -> Option<Vec<String>> {
        let api: Api<Namespace> = Api::all(self.inside.clone());
        let found = self.lab.runtime.block_on(api.list(&ListParams::default())).ok()?;
        Some(found.items.into_iter().filter_map(|one| one.metadata.name).collect())
    }

    fn create_namespace(&self, name: &str) {
        let api: Api<Namespace> = Api::all(self.inside.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.lab.runtime.block_on(api.create(&PostParams::default(), &object)).unwrap();
    }

    pub(super) fn quiet(&self, place: &str) {
        let complaints = self.browser.complaints();
        assert!(complaints.is_empty(), "{place}: {complaints:?}");
        let run = self
            .browser
            .script("return [window.planted ?? null, document.querySelectorAll('main img').length]");
        assert_eq!(run, json!([null, 0]), "{place}");
    }
}

#[test]
fn a_cluster_is_explored_and_changed_by_those_who_may() {
    let Some(scene) = Scene::open() else { return };
    let browser = &scene.browser;
    scene.fill();
    enter(&scene.lab, browser, "ann", "--role admin");
    browser.complaints();

    scene.load("");
    browser.wait("document.querySelectorAll('.gauge').length === 3");
    browser.sees(PLANTED);
    scene.quiet("overview");

    // A log goes on while one looks, is searched, and is text.
    scene.load("/r/pod/default/chatty/logs");
    browser.wait("document.querySelectorAll('.log-line').length > 3");
    let seen = browser.script("return document.querySelectorAll('.log-line').length");
    browser.wait(&format!("document.querySelectorAll('.log-line').length > {seen} + 3"));
    assert_eq!(browser.script("return document.querySelector('.log .a-red').textContent"), "ERROR");
    browser.type_into("#filter", "TURN 2");
    browser.wait("document.querySelector('mark.here')?.textContent === 'turn 2'");
    assert_eq!(browser.script("return document.querySelectorAll('.log img, .log script').length"), 0);
    browser.script("const one = document.querySelector('#container'); one.value = 'side'; one.dispatchEvent(new Event('change'))");
    browser.wait("document.querySelector('.log').innerText.trim() === 'from the side'");
    scene.quiet("logs");

    // A shell runs in the Pod; what it writes is text, in its colours, as wide as the page.
    scene.load("/r/pod/default/chatty/shell");
    browser.wait("document.querySelector('.term-card .badge')?.innerText === 'Open'");
    let screen = "document.querySelector('.term-rows').innerText";
    browser.wait("document.querySelector('.term-rows').innerText.trim() && document.activeElement.matches('.term-input')");
    browser.type_into(".term-input", "stty size; printf '\\033[31mre%s\\033[0m \\346\\274\\242 <img src=x onerror=window.planted=3>\\n' d\u{e007}");
    browser
        .wait("[...document.querySelectorAll('.term-row .t-f1')].some((one) => one.textContent === 'red')");
    browser.wait(&format!("{screen}.includes('漢 <img')"));
    let size = "const rows = document.querySelectorAll('.term-row').length; return new RegExp(`^${rows} [0-9]+$`, 'm').test(document.querySelector('.term-rows').innerText)";
    assert_eq!(browser.script(size), true, "{}", browser.script(&format!("return {screen}")));
    browser.type_into(".term-input", "i=0; while true; do i=$((i+1)); echo line $i; done\u{e007}");
    browser.wait(&format!("/line \\d{{4}}/.test({screen})"));
    browser.type_into(".term-input", "\u{e009}c\u{e000}");
    browser.type_into(".term-input", "echo o''ver\u{e007}");
    browser.wait(&format!("/^over$/m.test({screen})"));
    browser.script("document.querySelector('.term').dispatchEvent(new WheelEvent('wheel', {deltaY: -2000, bubbles: true, cancelable: true}))");
    browser.sees("rows back");
    browser.type_into(".term-input", "exit\u{e007}");
    browser.sees("The shell has ended.");
    scene.quiet("shell");

    // A secret is shown when it is asked for, wherever it is.
    scene.load("/r/secret?q=door-key");
    browser.click("table.rows tbody a.n");
    browser.sees("password");
    assert!(!browser.shows("hunter2"));
    browser.press("Show");
    browser.sees("hunter2");
    scene.load("/r/secret/default/door-key/yaml");
    browser.wait("document.querySelector('.code')");
    assert!(!browser.shows("hunter2") && !browser.shows("aHVudGVyMg"));
    browser.press("Show values");
    browser.sees("aHVudGVyMg");

    // An edit shows what it changes before it is saved.
    scene.load("/r/configmap/default/settings/edit");
    browser.wait("document.querySelector('#yaml').value");
    browser.script("const one = document.querySelector('#yaml'); one.value = one.value.replace('mode: fast', 'mode: slow'); one.dispatchEvent(new Event('input'))");
    browser.press("Review and save …");
    browser.wait("document.querySelector('.diff .add')?.innerText.includes('mode: slow')");
    browser.click("#confirm-save");
    browser.wait("location.pathname.endsWith('/configmap/default/settings')");
    browser.sees("slow");
    let maps: Api<ConfigMap> = Api::namespaced(scene.inside.clone(), "default");
    let found = scene.lab.runtime.block_on(maps.get("settings")).unwrap();
    assert_eq!(found.data.unwrap()["mode"], "slow");
    assert_eq!(found.metadata.annotations.unwrap()["planted"], PLANTED, "what was not edited is as it was");
    scene.quiet("edit");

    // Another one is made, and deleted with the keyboard.
    scene.load("/r/configmap?new=1");
    browser.script("const one = document.querySelector('#yaml'); one.value = 'apiVersion: v1\\nkind: ConfigMap\\nmetadata:\\n  name: fresh\\n  namespace: default\\n'; one.dispatchEvent(new Event('input'))");
    browser.press("Create");
    browser.wait("location.pathname.endsWith('/configmap/default/fresh')");
    scene.load("/r/configmap?q=fresh&ns=default");
    browser.wait("document.querySelectorAll('table.rows tbody tr').length === 1");
    browser.keys("jx");
    browser.sees("1 selected");
    browser.press("Delete …");
    browser.press("Delete");
    browser.sees("Nothing fits the filter");
    scene.quiet("configmaps");

    // Kinds nobody here knows are shown by the columns they have.
    scene.load("/kinds");
    browser.press("HelmChart");
    browser.wait("document.querySelector('h1')?.innerText === 'Helm charts'");
    browser.wait("!document.querySelector('.skeleton')");
    scene.load("/r/pod");
    browser.click("[title='Choose columns']");
    browser.click("dialog[open] [name=c6]");
    browser.press("Done");
    browser.wait("[...document.querySelectorAll('th')].some((one) => one.innerText === 'Node')");
    scene.quiet("columns");
    if let Some(axe) = axe() {
        for (theme, path) in [
            ("light", ""),
            ("dark", "/r/pod"),
            ("light", "/r/event"),
            ("dark", "/kinds"),
            ("light", "/r/pod/default/chatty"),
            ("dark", "/r/pod/default/chatty/logs"),
            ("light", "/r/pod/default/chatty/logs"),
            ("dark", "/r/pod/default/chatty/shell"),
            ("light", "/r/pod/default/chatty/shell"),
            ("dark", "/r/secret/default/door-key"),
            ("light", "/r/configmap/default/settings/edit"),
        ] {
            browser.script(&format!(
                "localStorage.setItem('remuda.prefs', JSON.stringify({{theme: '{theme}'}}))"
            ));
            scene.load(path);
            assert_eq!(browser.violations(&axe), json!([]), "{path}, {theme}");
        }
    }

    // Who may look, looks: no button that would be refused, and no secrets.
    browser.click(".me");
    browser.press("Log out");
    enter(&scene.lab, browser, "bob", "--cluster demo --role cluster-viewer");
    browser.complaints();
    scene.load("/r/pod/default/chatty");
    browser.wait(
        "[...document.querySelectorAll('.tabs a')].map((one) => one.innerText).join() === 'Overview,Logs,Events,YAML'",
    );
    assert_eq!(browser.script("return document.querySelectorAll('#edit, #delete').length"), 0);
    // Until the cluster knows who comes for the first time it says so, and is asked again.
    browser.complaints();
    scene.load("/r/pod");
    browser.wait("document.querySelector('table.rows tbody a.n')");
    assert_eq!(browser.script("return document.querySelectorAll('#create, .pick').length"), 0);
    assert_eq!(
        browser.script(
            "return [...document.querySelectorAll('.tabs a')].some((one) => one.innerText === 'Secrets')"
        ),
        false
    );
    scene.quiet("a viewer");
}

#[test]
fn a_cluster_comes_back_from_a_snapshot_that_was_taken_in_the_browser() {
    let Some(scene) = Scene::open() else { return };
    let browser = &scene.browser;
    enter(&scene.lab, browser, "ann", "--role admin");
    browser.complaints();
    browser.load("/dashboard/clusters/fleet-default/demo/snapshots");
    browser.sees("No snapshots yet");
    browser.click("#new-snapshot");
    browser.press("Take snapshot");
    browser.wait_for(MACHINES, "document.querySelector('table.rows .badge')?.innerText === 'Verified'");
    browser.wait_for(MACHINES, "!document.querySelector('.cause')");
    scene.quiet("snapshots");
    if let Some(axe) = axe() {
        assert_eq!(browser.violations(&axe), json!([]), "snapshots");
    }
    scene.create_namespace("late");

    browser.click("table.rows .c-act button");
    browser.press("Restore …");
    browser.sees("Everything written to it since then is lost");
    if let Some(axe) = axe() {
        assert_eq!(browser.violations(&axe), json!([]), "restore");
    }
    assert_eq!(browser.script("return document.querySelector('dialog[open] [type=submit]').disabled"), true);
    browser.type_into("dialog[open] [name=typed]", "demo");
    browser.press("Restore");
    // The page says how far it is, and when it is over.
    browser.wait_for(
        MACHINES,
        "[...document.querySelectorAll('.cause')].some((one) => one.innerText.startsWith('Restore'))",
    );
    scene.lab.until("the cluster is what it was", MACHINES, || {
        scene.namespaces().is_some_and(|names| !names.contains(&"late".to_owned()))
    });
    browser.wait_for(MACHINES, "!document.querySelector('.cause')");

    browser.click("#more");
    browser.press("Rotate certificates …");
    browser.script("const one = document.querySelector('dialog[open] [name=service]'); one.value = 'kubelet'; one.dispatchEvent(new Event('change'))");
    browser.press("Rotate");
    let asked = || {
        let cluster = scene.lab.objects("provisioning.cattle.io", "v1", "Cluster").remove(0);
        cluster.data["spec"]["rkeConfig"]["rotateCertificates"].clone()
    };
    scene.lab.until("it is asked for", MACHINES, || !asked().is_null());
    assert_eq!(asked(), json!({"generation": 1, "services": ["kubelet"]}));
    browser.wait_for(MACHINES, "!document.querySelector('.cause')");

    browser.click("table.rows .c-act button");
    browser.press("Delete …");
    browser.press("Delete snapshot");
    browser.wait_for(MACHINES, "document.body.innerText.includes('No snapshots yet')");
    assert!(scene.lab.objects("rke.cattle.io", "v1", "ETCDSnapshot").is_empty());
}
