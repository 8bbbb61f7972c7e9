//! Room in a cluster, what ends by itself, and what is under way, in a browser.

use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::json;

use super::{
    MACHINES, axe,
    explore::{Scene, enter},
};

/// Of an organization whose name would be markup, for `shop.example`, good for thirty years.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIB6jCCAZGgAwIBAgIBBzAKBggqhkjOPQQDAjA+MS0wKwYDVQQKDCQ8aW1nIHNy
Yz14IG9uZXJyb3I9d2luZG93LnBsYW50ZWQ9MT4xDTALBgNVBAMMBHNob3AwIBcN
MjYxMTE5MDM1MDExWhgPMjA1NjEyMzEwMzUwMTFaMD4xLTArBgNVBAoMJDxpbWcg
c3JjPXggb25lcnJvcj13aW5kb3cucGxhbnRlZD0xPjENMAsGA1UEAwwEc2hvcDBZ
MBMGByqGSM49AgEGCCqGSM49AwEHA0IABOhEU/A1m9voD3p8g/gi1kzpVbuZI/Kt
YBEZOV54P9LI6yHTRNfrncOQNShL0tagIL/F/6wdLchxyhpiIDp0RoOjfjB8MB0G
A1UdDgQWBBRPB0Jizhp5LkU0iN5bdCEgXgBfcjAfBgNVHSMEGDAWgBRPB0Jizhp5
LkU0iN5bdCEgXgBfcjAPBgNVHRMBAf8EBTADAQH/MCkGA1UdEQQiMCCCDHNob3Au
ZXhhbXBsZYIQd3d3LnNob3AuZXhhbXBsZTAKBggqhkjOPQQDAgNHADBEAiA0qgTB
Wgv8DLbigfqG7LncJ8Mz1AXiPwc1FqqGT5abbwIgC2luxlqk6YBwxJf2agMJL6Md
BnOaLY/4g+0Eev0Sm1k=
-----END CERTIFICATE-----";

/// What a metrics server answers, kept in the cluster itself.
fn measure(scene: &Scene) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "nodes.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {
            "group": "metrics.k8s.io", "scope": "Cluster",
            "names": {"plural": "nodes", "singular": "nodemetrics", "kind": "NodeMetrics"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"usage": {"type": "object", "additionalProperties": {"type": "string"}}}}}}],
        },
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(scene.inside.clone());
    scene.lab.runtime.block_on(definitions.create(&PostParams::default(), &definition)).unwrap();
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "NodeMetrics");
    let metrics: Api<DynamicObject> =
        Api::all_with(scene.inside.clone(), &ApiResource::from_gvk_with_plural(&kind, "nodes"));
    for node in scene.nodes() {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": node},
            "usage": {"cpu": "250m", "memory": "64Mi"},
        }))
        .unwrap();
        let create = || scene.lab.runtime.block_on(metrics.create(&PostParams::default(), &object));
        scene.lab.until("the kind is served", MACHINES, || create().is_ok());
    }
}

#[test]
fn room_is_drawn_and_what_ends_is_named() {
    let Some(scene) = Scene::open() else { return };
    let browser = &scene.browser;
    enter(&scene.lab, browser, "ann", "--role admin");
    browser.complaints();

    // What is not measured is told by what Pods have asked for.
    scene.load("");
    browser.wait("document.querySelectorAll('.plot').length === 3");
    browser.sees("what is used is not known");
    assert_eq!(
        browser.script("return document.querySelectorAll('[aria-label=\"Nodes by room\"] tbody tr').length"),
        2
    );
    scene.quiet("room");
    measure(&scene);
    let drawn = || {
        scene.load("");
        browser.wait("document.querySelectorAll('.plot').length === 3");
        browser.shows("CPU used")
    };
    scene.lab.until("what is used is seen", MACHINES, drawn);
    browser.sees("0.5 cores of");
    // By keyboard, and for those who hear it.
    let told = browser.script("const plot = document.querySelector('.plot svg'); plot.focus(); plot.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home', bubbles: true})); return plot.getAttribute('aria-valuetext')");
    assert!(told.as_str().unwrap().contains("used 0.5 cores, asked for"), "{told}");
    browser.wait("document.querySelectorAll('.plot .cursor').length === 1");
    scene.load(&format!("/nodes/{}", scene.nodes()[0]));
    browser.sees("CPU used");
    browser.sees("0.25 cores of");
    scene.quiet("a node");

    // A node is emptied, and how it went is said.
    scene.load(&format!("/nodes/{}", scene.nodes().last().unwrap()));
    browser.click("#drain");
    for choice in ["deleteLocalData", "force"] {
        browser.click(&format!("dialog[open] [name={choice}]"));
    }
    browser.press("Drain");
    browser.wait_for(MACHINES, "/Cordoned[^]*Drained/.test(document.querySelector('.head-line').innerText)");
    browser.press("Uncordon");
    browser.wait("document.querySelector('.head-line').innerText.trim().endsWith('Ready')");
    scene.load("/nodes");
    browser.wait("document.querySelectorAll('table.rows .share').length === 6");
    scene.quiet("nodes");

    // A certificate is read, and its key is not.
    scene.create::<Secret>(json!({
        "metadata": {"name": "shop"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": CERTIFICATE, "tls.key": "hunter2"},
    }));
    scene.load("/certificates");
    browser.sees("shop.example, www.shop.example");
    let answer = browser.script("const asked = performance.getEntriesByType('resource').find((one) => one.name.includes('/v1/secret?')); return fetch(asked.name).then((answer) => answer.text())");
    let answer = answer.as_str().unwrap();
    assert!(answer.contains("tls.crt") && !answer.contains("tls.key"), "{answer}");
    scene.quiet("certificates");

    // An edit the cluster would refuse is refused while it is typed, at its line.
    scene.load("/r/secret/default/shop/edit");
    browser.wait("document.querySelector('#yaml').value");
    let change = |from: &str, to: &str| {
        browser.script(&format!("const one = document.querySelector('#yaml'); one.value = one.value.replace({}, {}); one.dispatchEvent(new Event('input'))", json!(from), json!(to)));
    };
    change("metadata:", "surplus: 1\nmetadata:");
    browser.wait("/^Line \\d+$/.test(document.querySelector('.objections button')?.innerText)");
    assert_eq!(browser.script("return document.querySelector('#save').disabled"), true);
    browser.click(".objections button");
    assert_eq!(
        browser.script("const one = document.querySelector('#yaml'); return one.value.slice(one.selectionStart, one.selectionEnd)"),
        "surplus: 1"
    );
    // What is refused is in the console of every browser.
    browser.complaints();
    change("surplus: 1\nmetadata:", "metadata:\n  labels:\n    a: b");
    browser.sees("The server would take this.");
    scene.quiet("an edit");

    // The cluster, seen from outside.
    let inside = "/dashboard/clusters/fleet-default/demo";
    for (path, text) in [
        (format!("{inside}/certificates"), "Authority of the cluster"),
        (format!("{inside}/timeline?q=created"), "cluster created"),
        ("/dashboard/operations".to_owned(), "Nothing is under way"),
        ("/dashboard/".to_owned(), "Maintained"),
        ("/dashboard/".to_owned(), "Room for Pods"),
    ] {
        browser.load(&path);
        browser.wait("document.querySelector('.app .head') && !document.querySelector('.skeleton')");
        browser.wait_for(MACHINES, &format!("document.body.innerText.includes({})", json!(text)));
        scene.quiet(&path);
    }

    // What a machine did, without its plan.
    let machine = scene.lab.objects("cluster.x-k8s.io", "v1beta2", "Machine").remove(0).name_any();
    let machine = format!("/dashboard/machines/fleet-default/{machine}");
    browser.load(&format!("{machine}/plan"));
    browser.wait("document.querySelector('.probes li') && document.querySelector('.facts .badge')?.innerText === 'Applied'");
    let answer = browser.script("const asked = performance.getEntriesByType('resource').find((one) => one.name.includes('machine-plan')); return fetch(asked.name).then((answer) => answer.json())");
    let read: Vec<_> = answer["data"][0]["data"].as_object().unwrap().keys().cloned().collect();
    assert!(read.contains(&"probe-statuses".to_owned()), "{read:?}");
    assert!(!read.contains(&"plan".to_owned()) && !read.contains(&"appliedPlan".to_owned()), "{read:?}");
    scene.quiet("a plan");
    browser.load(&format!("{machine}/log"));
    browser.wait("document.querySelector('.log-line')");
    scene.quiet("a log");
    let Some(axe) = axe() else { return };
    for theme in ["light", "dark"] {
        browser
            .script(&format!("localStorage.setItem('remuda.prefs', JSON.stringify({{theme: '{theme}'}}))"));
        for path in ["", "/certificates", "/nodes", &format!("/nodes/{}", scene.nodes()[0])] {
            scene.load(path);
            browser.wait("document.querySelector('.plot, .share, [aria-label=Certificates]')");
            assert_eq!(browser.violations(&axe), json!([]), "{path}, {theme}");
        }
        for path in [
            "/dashboard/",
            "/dashboard/clusters/fleet-default/demo/certificates",
            "/dashboard/clusters/fleet-default/demo/timeline",
            &format!("{machine}/plan"),
            &format!("{machine}/log"),
        ] {
            browser.load(path);
            browser.wait("document.querySelector('.app .head') && !document.querySelector('.skeleton')");
            assert_eq!(browser.violations(&axe), json!([]), "{path}, {theme}");
        }
    }
}

impl Scene {
    fn nodes(&self) -> Vec<String> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.inside.clone());
        let found = self.lab.runtime.block_on(nodes.list(&Default::default())).unwrap();
        found.items.iter().map(ResourceExt::name_any).collect()
    }
}
