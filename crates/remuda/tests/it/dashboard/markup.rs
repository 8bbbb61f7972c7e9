//! Text from outside, planted wherever pages show some.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{PLANTED, enter, user};
use crate::{browser::Browser, people::Desk};

#[test]
fn what_is_in_objects_never_becomes_markup() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    let id = desk.cluster("planted");
    let clusters = desk.objects("provisioning.cattle.io", "v1", "Cluster", Some("fleet-default"));
    let (params, merge) = (PatchParams::default(), |value: Value| Patch::Merge(value));
    let annotated =
        json!({"metadata": {"annotations": {"field.cattle.io/description": PLANTED, "planted": PLANTED}}});
    desk.runtime.block_on(clusters.patch("planted", &params, &merge(annotated))).unwrap();
    let managed = desk.objects("management.cattle.io", "v3", "Cluster", None);
    let named = json!({"spec": {"displayName": PLANTED}});
    // The server may refuse a name; what it takes is shown.
    let _ = desk.runtime.block_on(managed.patch(&id, &params, &merge(named)));
    let users = desk.objects("management.cattle.io", "v3", "User", None);
    let named = json!({"displayName": PLANTED, "description": PLANTED});
    desk.runtime.block_on(users.patch("user-ann", &params, &merge(named))).unwrap();
    let settings = desk.objects("management.cattle.io", "v3", "Setting", None);
    let set = json!({"value": PLANTED});
    desk.runtime.block_on(settings.patch("system-default-registry", &params, &merge(set))).unwrap();
    let roles = desk.objects("management.cattle.io", "v3", "GlobalRole", None);
    let role = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "GlobalRole", "metadata": {"name": "planted"},
        "displayName": PLANTED, "description": PLANTED, "rules": [],
    });
    let role: DynamicObject = serde_json::from_value(role).unwrap();
    desk.runtime.block_on(roles.create(&PostParams::default(), &role)).unwrap();
    let drivers = desk.objects("management.cattle.io", "v3", "NodeDriver", None);
    let said = json!({"spec": {"description": PLANTED}});
    desk.runtime.block_on(drivers.patch("digitalocean", &params, &merge(said))).unwrap();
    let secrets = desk.objects("", "v1", "Secret", Some("cattle-global-data"));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "cc-planted", "annotations": {"field.cattle.io/description": PLANTED}},
        "stringData": {"digitaloceancredentialConfig-accessToken": PLANTED},
    });
    let secret: DynamicObject = serde_json::from_value(secret).unwrap();
    desk.runtime.block_on(secrets.create(&PostParams::default(), &secret)).unwrap();
    // A machine that no controller touches, with text from outside in every field.
    let machines = desk.objects("cluster.x-k8s.io", "v1beta2", "Machine", Some("fleet-default"));
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "planted-a", "namespace": "fleet-default", "annotations": {"planted": PLANTED, "cluster.x-k8s.io/paused": "true"}},
        "spec": {
            "clusterName": "planted", "providerID": PLANTED, "bootstrap": {"dataSecretName": "none"},
            "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": "none"},
        },
    });
    let machine: DynamicObject = serde_json::from_value(machine).unwrap();
    desk.runtime.block_on(machines.create(&PostParams::default(), &machine)).unwrap();
    let told = json!({"status": {
        "conditions": [{"type": "Ready", "status": "False", "reason": "Planted", "message": PLANTED, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "nodeInfo": {"osImage": PLANTED, "kubeletVersion": PLANTED, "architecture": "", "bootID": "", "containerRuntimeVersion": PLANTED, "kernelVersion": PLANTED, "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "systemUUID": ""},
        "addresses": [{"type": "InternalIP", "address": PLANTED}],
    }});
    desk.runtime.block_on(machines.patch_status("planted-a", &params, &merge(told))).unwrap();
    let events = desk.objects("", "v1", "Event", Some("fleet-default"));
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "planted.1", "namespace": "fleet-default"},
        "type": "Warning", "reason": PLANTED, "message": PLANTED, "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"kind": "Cluster", "name": "planted", "namespace": "fleet-default"},
    });
    let event: DynamicObject = serde_json::from_value(event).unwrap();
    desk.runtime.block_on(events.create(&PostParams::default(), &event)).unwrap();

    enter(&browser, "ann");
    let plain = json!(PLANTED);
    for path in [
        "",
        "clusters",
        "clusters/fleet-default/planted",
        "clusters/fleet-default/planted/machines",
        "clusters/fleet-default/planted/events",
        "clusters/fleet-default/planted/conditions",
        "clusters/fleet-default/planted/related",
        "clusters/fleet-default/planted/certificates",
        "clusters/fleet-default/planted/timeline",
        "clusters/fleet-default/planted/registration",
        "clusters/fleet-default/planted/yaml",
        "machines",
        "machines/fleet-default/planted-a",
        "machines/fleet-default/planted-a/conditions",
        "machines/fleet-default/planted-a/yaml",
        "explore/local/r/event",
        "explore/local/r/event/fleet-default/planted.1",
        "explore/local/r/management.cattle.io.globalrole/-/planted/yaml",
        "explore/local/r/management.cattle.io.globalrole/-/planted/edit",
        "users",
        "roles",
        "tokens",
        "credentials",
        "drivers",
        "configurations",
        "operations",
        "notifications",
        "settings",
    ] {
        browser.load(&format!("/dashboard/{path}"));
        browser.wait("document.querySelector('.app .head') && !document.querySelector('.skeleton')");
        browser.wait(&format!("document.body.textContent.includes('onerror') || !/(yaml|users|roles|credentials|drivers|settings|event|events|planted.1|planted-a|machines|certificates|operations|notifications)$/.test({})", json!(path)));
        let run = browser.script(
            "return [window.planted ?? null, document.querySelectorAll('main img, main script').length]",
        );
        assert_eq!(run, json!([null, 0]), "{path}");
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{path}: {complaints:?}");
    }
    browser.load("/dashboard/settings?q=system-default-registry");
    browser.wait(&format!(
        "[...document.querySelectorAll('.setting code')].some((one) => one.textContent === {plain})"
    ));
}
