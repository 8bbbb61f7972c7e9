//! Roles, sessions, credentials and drivers, given and taken away in a browser.

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use super::{enter, user};
use crate::{browser::Browser, people::Desk};

#[test]
fn roles_are_given_and_taken_and_sessions_ended() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    user(&desk, "cleo", "user-base");
    enter(&browser, "ann");

    browser.load("/dashboard/roles");
    browser.click("[title='Give Auditor to somebody']");
    browser.script("const one = document.querySelector('dialog[open] [name=user]'); one.value = 'user-cleo'; one.dispatchEvent(new Event('change'))");
    browser.press("Give role");
    browser.wait("document.querySelector('[title=\"Take Auditor from cleo\"]')");
    let row = || desk.admin("user list").lines().find(|line| line.starts_with("cleo ")).map(str::to_owned);
    assert!(row().unwrap().contains("auditor"), "{:?}", row());
    browser.click("[title='Take Auditor from cleo']");
    browser.press("Take away");
    browser.wait("!document.querySelector('[title=\"Take Auditor from cleo\"]')");
    assert!(!row().unwrap().contains("auditor"), "{:?}", row());

    // Another session of the same person, and one of somebody else.
    let other = Browser::open(&desk.server.url).unwrap();
    enter(&other, "ann");
    let third = Browser::open(&desk.server.url).unwrap();
    enter(&third, "cleo");
    browser.load("/dashboard/tokens?state=session");
    browser.wait("document.querySelectorAll('table.rows tbody tr').length === 2");
    browser.click("#end-others");
    browser.press("End them");
    browser.wait("document.querySelectorAll('table.rows tbody tr').length === 1");
    other.load("/dashboard/clusters");
    other.wait("document.querySelector('[name=username]')");
    browser.press("Everybody’s");
    browser.wait("[...document.querySelectorAll('tbody tr')].some((one) => one.innerText.includes('cleo'))");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");

    // Who may not see those of others is not asked whether they want to.
    third.load("/dashboard/tokens");
    third.sees("This session");
    // Who has no cluster has an empty home, and nothing was refused on the way there.
    third.load("/dashboard/");
    third.sees("Clusters you are given a role in appear here.");
    let complaints = third.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    third.load("/dashboard/tokens");
    third.sees("This session");
    assert!(!third.shows("Everybody’s"));
    assert_eq!(
        third.script("return [...document.querySelectorAll('.rail .nav')].map((one) => one.innerText).filter((one) => ['Users', 'Roles', 'Credentials', 'Drivers', 'Configurations'].includes(one))"),
        json!([])
    );
    let complaints = third.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn credentials_are_made_and_drivers_switched() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    enter(&browser, "ann");

    browser.load("/dashboard/credentials");
    browser.click("#new-credential");
    browser.script("const one = document.querySelector('dialog[open] [name=driver]'); one.value = 'digitalocean'; one.dispatchEvent(new Event('change'))");
    browser.type_into("dialog[open] [name=name]", "cc-do");
    browser.press("Create credential");
    browser.sees("accessToken is missing.");
    browser.type_into("dialog[open] [name=value-accessToken]", "dop_v1_hunter2");
    browser.press("Create credential");
    browser.wait("document.querySelector('table.rows .n')?.innerText === 'cc-do'");
    assert!(!browser.shows("hunter2"));
    let secrets = desk.objects("", "v1", "Secret", Some("cattle-global-data"));
    let secret = desk.runtime.block_on(secrets.get("cc-do")).unwrap();
    assert_eq!(
        secret.data["data"],
        json!({"digitaloceancredentialConfig-accessToken": "ZG9wX3YxX2h1bnRlcjI="})
    );
    // What was read for the list has no values either.
    let read = "return performance.getEntriesByType('resource').map((one) => one.name).filter((one) => /\\/v1\\/secret.*pagesize=/.test(one)).every((one) => one.includes('excludeValues=data'))";
    assert_eq!(browser.script(read), true);
    // One without its token is refused before the provider is asked.
    let half = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cc-half", "namespace": "cattle-global-data"},
        "data": {"digitaloceancredentialConfig-other": "eA=="},
    });
    let half = serde_json::from_value(half).unwrap();
    desk.runtime.block_on(secrets.create(&PostParams::default(), &half)).unwrap();
    browser.wait("document.querySelector(\"[title='Test cc-do']\")");
    browser.click("[title='Test cc-half']");
    browser.wait("document.querySelector('table.rows .why.bad')?.innerText.includes('access-token')");
    desk.runtime.block_on(secrets.delete("cc-half", &DeleteParams::default())).unwrap();
    browser.wait("document.querySelectorAll('table.rows tbody tr').length === 1");
    browser.click("[title='Delete cc-do']");
    browser.type_into("dialog[open] [name=typed]", "cc-do");
    browser.press("Delete credential");
    browser.sees("No cloud credentials");
    let left = desk.runtime.block_on(secrets.list(&ListParams::default())).unwrap();
    assert!(left.iter().all(|one| one.name_any() != "cc-do"));

    browser.load("/dashboard/drivers");
    let row =
        "[...document.querySelectorAll('tbody tr')].find((one) => one.innerText.includes('DigitalOcean'))";
    browser.wait(&format!("{row}?.innerText.includes('Inactive')"));
    browser.click("[title='Actions for digitalocean']");
    browser.press("Activate");
    browser.wait(&format!("{row}?.querySelector('.badge').innerText === 'Active'"));
    a_cluster_of_a_provider(&desk, &browser);
    browser.load("/dashboard/drivers");
    browser.wait(&format!("{row}?.innerText.includes('sky')"));
    browser.click("[title='Actions for digitalocean']");
    browser.press("Deactivate …");
    browser.sees("sky has machines of it");
    browser.press("Deactivate");
    browser.wait(&format!("{row}?.querySelector('.badge').innerText === 'Inactive'"));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// The fields of its machines are those of the driver's schema, and what is made of them has what was typed.
fn a_cluster_of_a_provider(desk: &Desk, browser: &Browser) {
    browser.load("/dashboard/create?kind=cloud");
    browser.wait("document.querySelector('[name=provider]')?.value === 'DigitaloceanConfig'");
    browser.wait("document.querySelector('[name=config-servers-region]')?.placeholder === 'nyc3'");
    assert_eq!(
        browser.script("return document.querySelector('[name=config-servers-accessToken]')"),
        json!(null),
        "what is in the credential is not asked for"
    );
    browser.type_into("[data-path='metadata.name']", "sky");
    browser.type_into("[name=config-servers-region]", "fra1");
    browser.script("document.querySelector('.pool-form details').open = true");
    browser.script("const one = document.querySelector('[name=config-servers-tags]'); one.value = 'a,b'; one.dispatchEvent(new Event('input'))");
    browser.sees("The server would take this.");
    // What is refused while one types is in the console of every browser.
    browser.complaints();
    browser.click("#save");
    browser.wait("location.pathname === '/dashboard/clusters/fleet-default/sky'");
    let configs =
        desk.objects("rke-machine-config.cattle.io", "v1", "DigitaloceanConfig", Some("fleet-default"));
    let made = |name: &str| desk.runtime.block_on(configs.get(name)).unwrap().data;
    assert_eq!(
        (&made("nc-sky-servers")["region"], &made("nc-sky-servers")["tags"]),
        (&json!("fra1"), &json!("a,b"))
    );
    assert_eq!(made("nc-sky-workers")["region"], "nyc3", "what is usual is left to the driver");
}

/// What a person prefers is there in another browser, and the audit log says what they did to those who may read it.
#[test]
fn preferences_follow_a_person_and_the_audit_log_is_read_by_those_who_may() {
    let desk = Desk::open_with(|place| {
        vec!["--audit-log".to_owned(), place.join("audit.log").display().to_string()]
    });
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    user(&desk, "bob", "user-base");
    enter(&browser, "ann");
    browser.click(".me");
    browser.press("Preferences …");
    for (name, value) in [("theme", "dark"), ("zone", "Asia/Tokyo")] {
        browser.script(&format!(
            "const one = document.querySelector('dialog[open] [name={name}]'); one.value = '{value}'; one.dispatchEvent(new Event('change'))"
        ));
    }
    browser.press("Done");
    browser.wait("document.documentElement.dataset.theme === 'dark'");
    browser.wait("JSON.parse(localStorage.getItem('remuda.prefs')).unsaved === false");
    let other = Browser::open(&desk.server.url).unwrap();
    enter(&other, "ann");
    other.wait("document.documentElement.dataset.theme === 'dark'");
    other.wait("JSON.parse(localStorage.getItem('remuda.prefs')).zone === 'Asia/Tokyo'");

    other.load("/dashboard/users");
    other.wait("document.querySelector('.rail a[href=\"/dashboard/audit\"]')");
    other.press("Audit");
    let row = "[...document.querySelectorAll('table.audit tbody tr')].find((one) => one.innerText.includes('/v1/userpreferences/user-ann') && one.innerText.includes('put'))";
    other.wait(&format!("{row}?.innerText.includes('200')"));
    other.script(&format!("{row}.querySelector('button').click()"));
    other.wait("location.search.includes('user=user-ann') && document.querySelector('[aria-pressed=true]')");
    other.wait("[...document.querySelectorAll('table.audit .c-wide button')].every((one) => one.innerText === 'user-ann')");
    let complaints = other.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    if let Some(axe) = super::axe() {
        for theme in ["light", "dark"] {
            other.script(&format!("document.documentElement.dataset.theme = '{theme}'"));
            assert_eq!(other.violations(&axe), json!([]), "{theme}");
        }
    }

    let third = Browser::open(&desk.server.url).unwrap();
    enter(&third, "bob");
    third.load("/dashboard/tokens");
    third.sees("This session");
    assert!(!third.shows("Audit"), "it is not for him");
    let refused = third.script(
        "const request = new XMLHttpRequest(); request.open('GET', '/remuda/v1/audit', false); request.send(); return request.status",
    );
    assert_eq!(refused, 403);
}

#[test]
fn a_webhook_is_made_and_its_address_stays_on_the_server() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    enter(&browser, "ann");
    browser.load("/dashboard/notifications");
    browser.click("#new-webhook");
    browser.type_into("dialog[open] [name=name]", "ops");
    browser.type_into("dialog[open] [name=url]", "nowhere");
    browser.click("dialog[open] [name=expiring]");
    browser.press("Create webhook");
    // The server says what is wrong with it, and the dialog stays.
    browser.sees("must be an address");
    browser.complaints();
    browser.script("document.querySelector('dialog[open] [name=url]').select()");
    browser.type_into("dialog[open] [name=url]", "http://127.0.0.1:9/hook?token=hunter2");
    browser.press("Create webhook");
    browser.wait("document.querySelector('.secret-once')?.textContent.startsWith('whsec_')");
    let key = browser.script("return document.querySelector('.secret-once').textContent");
    browser.press("Done");
    browser.sees("Broken, Fixed, Update available");

    let secrets = desk.objects("", "v1", "Secret", Some("cattle-system"));
    let secret = desk.runtime.block_on(secrets.get("ops")).unwrap();
    assert_eq!(secret.data["type"], "remuda.io/webhook");
    let value = |name: &str| {
        let text = secret.data["data"][name].as_str().unwrap_or_default();
        String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(value("url"), "http://127.0.0.1:9/hook?token=hunter2");
    assert_eq!(value("key"), key.as_str().unwrap());
    assert_eq!(value("events"), "broken,fixed,update-available");
    let answer = browser.script("const asked = performance.getEntriesByType('resource').findLast((one) => one.name.includes('/v1/secret/cattle-system?')); return fetch(asked.name).then((answer) => answer.json())");
    let kept = &answer["data"][0]["data"];
    assert_eq!(
        kept.as_object().map(|kept| kept.keys().collect::<Vec<_>>()),
        Some(vec![&"events".to_owned()])
    );

    browser.press("Delete …");
    browser.press("Delete webhook");
    browser.sees("No webhooks yet");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}
