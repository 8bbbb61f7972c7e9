//! The dashboard, in a browser, on a server as it is built.

mod access;
mod explore;
mod markup;
mod room;

use std::time::Duration;

use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{browser::Browser, harness::skipped, lab::Lab, people::Desk};

const PASSWORD: &str = "correct horse battery";
/// For machines to come and go.
const MACHINES: Duration = Duration::from_secs(90);

/// A user with a password, without a second step at the login.
fn user(desk: &Desk, name: &str, role: &str) {
    let data = desk.place.data().display().to_string();
    let line = format!("user create {name} --role {role} --password-stdin --data-dir {data}");
    desk.run_with(&line, &format!("{PASSWORD}\n"));
}

fn enter(browser: &Browser, name: &str) {
    browser.load("/dashboard/");
    browser.login(name, PASSWORD);
    browser.wait("document.querySelector('.app .head')");
}

#[test]
fn a_person_logs_in_looks_around_and_logs_out() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    let made: Value = serde_json::from_str(&desk.admin("user create ann -o json")).unwrap();
    desk.admin("user grant ann --role admin");

    // Whoever types the address of the server ends here.
    browser.load("/");
    browser.wait("location.pathname.startsWith('/dashboard') && document.querySelector('[name=username]')");
    assert!(browser.complaints().is_empty());
    browser.login("ann", "not this one");
    browser.sees("User name or password is wrong.");
    browser.script("document.querySelector('[name=password]').select()");
    browser.type_into("[name=password]", made["password"].as_str().unwrap());
    browser.click("button[type=submit]");
    browser.sees("Choose a password of your own.");
    for field in ["newPassword", "repeat"] {
        browser.type_into(&format!("[name={field}]"), PASSWORD);
    }
    browser.click("button[type=submit]");
    // An empty server greets with ways to begin.
    browser.sees("Welcome to Remuda");
    assert_eq!(browser.script("return document.querySelectorAll('.door').length"), 3);
    // What was refused above is in the console of every browser.
    browser.complaints();

    // No token is where a script could reach it.
    let kept = browser
        .script("return document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)");
    assert!(
        !kept.as_str().unwrap().contains("token-") && !kept.as_str().unwrap().contains("R_SESS"),
        "{kept}"
    );

    for (path, text) in [
        ("clusters", "No clusters yet"),
        ("machines", "No machines yet"),
        ("users", "ann"),
        ("roles", "Administrator"),
        ("tokens", "This session"),
        ("credentials", "No cloud credentials"),
        ("drivers", "Amazon EC2"),
        ("configurations", "LocalConfig"),
        ("operations", "Nothing is under way"),
        ("notifications", "No webhooks yet"),
        ("explore/local/r/namespace", "fleet-default"),
        ("settings", "auth-user-session-ttl-minutes"),
        ("create", "Where its machines come from"),
        ("no/such/page", "There is no such page"),
    ] {
        browser.load(&format!("/dashboard/{path}"));
        browser.wait(&format!("document.body.textContent.includes({})", json!(text)));
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{path}: {complaints:?}");
    }

    // By keyboard: a palette that goes anywhere, and letters that do.
    browser.keys("gc");
    browser.wait("location.pathname === '/dashboard/clusters'");
    browser.click("#find");
    browser.type_into("dialog[open] input", "settings\u{e007}");
    browser.wait("location.pathname === '/dashboard/settings'");
    browser.click("[aria-label='Change theme']");
    let theme = browser.script("return document.documentElement.dataset.theme");
    browser.load("/dashboard/settings?q=session");
    browser.wait("document.querySelectorAll('.setting').length === 1");
    assert_eq!(browser.script("return document.documentElement.dataset.theme"), theme, "it is kept");
    assert_eq!(browser.script("return document.getElementById('filter').value"), "session");

    browser.click(".me");
    browser.press("Log out");
    browser.wait("document.querySelector('[name=username]')");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn people_and_tokens_are_made_and_end() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    enter(&browser, "ann");

    browser.load("/dashboard/users");
    browser.click("#new-user");
    browser.type_into("dialog[open] [name=username]", "cleo");
    browser.press("Create user");
    browser.wait("document.querySelector('#made-up')?.textContent.length > 8");
    let password = browser.script("return document.querySelector('#made-up').textContent");
    browser.press("Done");
    browser.wait("[...document.querySelectorAll('table.rows .n')].some((one) => one.textContent === 'cleo')");
    let listed = desk.admin("user list");
    let row = listed.lines().find(|line| line.starts_with("cleo ")).unwrap_or_default();
    assert!(row.contains("user"), "{listed}");

    browser.load("/dashboard/tokens");
    browser.click("#new-token");
    browser.type_into("dialog[open] [name=description]", "for a script");
    browser.press("Create token");
    browser.wait("document.querySelector('.secret-once')?.textContent.startsWith('token-')");
    browser.press("Done");
    browser.sees("for a script");
    browser.script("[...document.querySelectorAll('tr')].find((row) => row.innerText.includes('for a script')).querySelector('button').click()");
    browser.press("Revoke");
    browser.wait("!document.body.innerText.includes('for a script')");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");

    // Whom one made can log in, once with what was made up.
    browser.click(".me");
    browser.press("Log out");
    browser.login("cleo", password.as_str().unwrap());
    browser.sees("Choose a password of your own.");
}

/// A file with axe-core, which comes from npm and is not in this repository.
const AXE: &str = "REMUDA_TEST_AXE";

/// axe-core, or a loud word that there is none.
fn axe() -> Option<String> {
    let Some(file) = std::env::var_os(AXE) else {
        skipped(&format!("{AXE} names no axe-core: whether the dashboard is accessible is not tested"));
        return None;
    };
    Some(std::fs::read_to_string(file).unwrap())
}

#[test]
fn axe_finds_no_violation_on_any_page_in_both_themes() {
    let Some(axe) = axe() else { return };
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    let id = desk.cluster("edge");
    browser.load("/dashboard/");
    browser.wait("document.querySelector('[name=username]')");
    assert_eq!(browser.violations(&axe), json!([]), "login");
    enter(&browser, "ann");
    for theme in ["light", "dark"] {
        browser
            .script(&format!("localStorage.setItem('remuda.prefs', JSON.stringify({{theme: '{theme}'}}))"));
        for path in [
            "",
            "clusters",
            "clusters/fleet-default/edge",
            "clusters/fleet-default/edge/conditions",
            "clusters/fleet-default/edge/registration",
            "clusters/fleet-default/edge/yaml",
            "clusters/fleet-default/edge/snapshots",
            "clusters/fleet-default/edge/certificates",
            "clusters/fleet-default/edge/timeline",
            "create",
            "operations",
            "notifications",
            "machines",
            &format!("explore/{id}"),
            &format!("explore/{id}/nodes"),
            "explore/local",
            "explore/local/r/secret",
            "explore/local/r/management.cattle.io.globalrole/-/admin",
            "explore/local/r/configmap?new=1",
            "users",
            "roles",
            "tokens",
            "tokens?all=1",
            "credentials",
            "drivers",
            "configurations",
            "settings",
        ] {
            browser.load(&format!("/dashboard/{path}"));
            browser.wait("document.querySelector('.app .head') && !document.querySelector('.skeleton')");
            assert_eq!(browser.violations(&axe), json!([]), "{path}, {theme}");
        }
    }
}

/// What a page must never run, and must show as it is.
const PLANTED: &str = "<img src=x onerror=window.planted=1><script>window.planted=2</script>\"'>";

#[test]
fn what_a_person_may_not_do_is_not_offered() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    desk.cluster("edge");
    desk.cluster("other");
    user(&desk, "bob", "user-base");
    desk.admin("user grant bob --cluster edge --role cluster-member");
    enter(&browser, "bob");
    browser.load("/dashboard/clusters");
    browser.wait("document.querySelector('table.rows tbody a.n')?.textContent === 'edge'");
    assert!(!browser.shows("other"), "it is none of his");
    assert_eq!(browser.script("return document.querySelectorAll('a[href*=\"/create\"]').length"), 0);
    assert_eq!(
        browser.script(
            "return [...document.querySelectorAll('.rail .nav')].some((one) => one.innerText === 'Users')"
        ),
        false
    );
    browser.load("/dashboard/clusters/fleet-default/edge");
    browser.wait("document.querySelector('#more')");
    assert_eq!(browser.script("return Boolean(document.querySelector('#edit'))"), false);
    browser.click("#more");
    browser.sees("Download YAML");
    assert!(!browser.shows("Delete"));
    // A cluster that waits for its first machine is under way; that of others is not seen to be.
    browser.load("/dashboard/operations");
    browser.wait(
        "[...document.querySelectorAll('table.rows .n')].map((one) => one.innerText).join() === 'edge'",
    );
    // A member sees what is theirs on every page, and no page asks for what is not.
    browser.complaints();
    for page in [
        "",
        "machines",
        "operations",
        "clusters/fleet-default/edge/machines",
        "clusters/fleet-default/edge/related",
        "clusters/fleet-default/edge/certificates",
        "clusters/fleet-default/edge/timeline",
    ] {
        browser.load(&format!("/dashboard/{page}"));
        browser.wait("document.querySelector('.app .head') && !document.querySelector('.skeleton')");
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{page}: {complaints:?}");
    }
    browser.load("/dashboard/create");
    browser.sees("You may not create clusters");
    browser.load("/dashboard/clusters/fleet-default/other");
    browser.wait("document.querySelector('[role=alert]')");
    browser.complaints();
}

#[test]
fn a_session_that_ends_is_taken_up_where_it_was() {
    let desk = Desk::open();
    let Some(browser) = Browser::open(&desk.server.url) else { return };
    user(&desk, "ann", "admin");
    enter(&browser, "ann");
    browser.load("/dashboard/settings?q=ttl");
    browser.wait("document.querySelector('.setting')");
    browser.script("window.untouched = true");
    let tokens = desk.objects("management.cattle.io", "v3", "Token", None);
    for token in desk.runtime.block_on(tokens.list(&ListParams::default())).unwrap() {
        if token.data["userId"] == "user-ann" {
            desk.runtime.block_on(tokens.delete(&token.name_any(), &DeleteParams::default())).unwrap();
        }
    }
    browser.press("Edit …");
    browser.press("Save");
    browser.sees("Your session has ended");
    browser.type_into("dialog[open] [name=password]", PASSWORD);
    browser.click("dialog[open] .login-box button[type=submit]");
    browser.wait(
        "![...document.querySelectorAll('dialog[open]')].some((one) => one.innerText.includes('has ended'))",
    );
    // The dialog with what was being typed is still there.
    browser.press("Cancel");
    browser.wait("document.querySelectorAll('.setting').length > 1");
    assert_eq!(browser.script("return [location.search, window.untouched]"), json!(["?q=ttl", true]));
    browser.complaints();
}

#[test]
fn a_cluster_is_made_by_the_form_watched_changed_and_deleted() {
    let Some(lab) = Lab::open(None) else { return };
    let Some(browser) = Browser::open(&format!("https://{}", lab.bind)) else { return };
    let made: Value = serde_json::from_str(&lab.output("user create ann -o json")).unwrap();
    lab.run("user grant ann --role admin");
    browser.load("/dashboard/");
    browser.login("ann", made["password"].as_str().unwrap());
    for field in ["newPassword", "repeat"] {
        browser.type_into(&format!("[name={field}]"), PASSWORD);
    }
    browser.click("button[type=submit]");

    browser.click("a.door");
    browser.type_into("[data-path='metadata.name']", "Web");
    // The server says no while one types, at the field.
    browser.wait(
        "document.querySelector('[data-path=\"metadata.name\"]').getAttribute('aria-invalid') === 'true'",
    );
    browser.script("const name = document.querySelector('[data-path=\"metadata.name\"]'); name.value = ''; name.dispatchEvent(new Event('input'))");
    browser.type_into("[data-path='metadata.name']", "web");
    // What is refused is in the console of every browser; from here on nothing is.
    browser.sees("The server would take this.");
    browser.complaints();
    assert!(
        browser
            .script("return document.getElementById('yaml').value")
            .as_str()
            .unwrap()
            .contains("name: nc-web-servers")
    );
    browser.click("#save");
    browser.wait("location.pathname === '/dashboard/clusters/fleet-default/web'");
    browser.wait_for(MACHINES, "document.querySelector('.head .badge')?.innerText === 'Ready'");
    browser.wait("document.querySelectorAll('.topology a rect').length === 3");
    browser.script("window.untouched = true");

    // One more, told by the page alone.
    browser.press("Machines 3");
    browser.click("[aria-label='One more in workers']");
    browser.wait_for(MACHINES, "document.querySelectorAll('.pool table tbody tr').length === 4 && [...document.querySelectorAll('.pool .badge')].every((one) => one.innerText === 'Ready')");
    assert_eq!(browser.script("return window.untouched"), true, "nothing was loaded again");

    // The cluster itself knows them as nodes.
    browser.press("Explore");
    browser.press("Nodes");
    browser.wait("document.querySelectorAll('table.rows tbody a.n').length === 4");
    browser.click("table.rows tbody a.n");
    browser.wait("document.querySelectorAll('.gauge').length === 3");

    // A change shows what it changes.
    browser.load("/dashboard/clusters/fleet-default/web/edit");
    browser.wait("document.querySelector('[data-path=\"spec.rkeConfig.machinePools[1].quantity\"]')");
    browser.script("const field = document.querySelector('[data-path=\"spec.rkeConfig.machinePools[1].quantity\"]'); field.value = '1'; field.dispatchEvent(new Event('input'))");
    browser.press("Review and save …");
    browser.wait("document.querySelector('.diff .add')?.innerText.includes('quantity: 1')");
    browser.sees("Pool workers: 2 of 3 machines are removed");
    browser.click("#confirm-save");
    browser.wait("location.pathname === '/dashboard/clusters/fleet-default/web'");
    browser.wait_for(MACHINES, "document.querySelectorAll('.topology a rect').length === 2");

    // Deletion asks for the name, and says when it is over.
    browser.click("#more");
    browser.press("Delete …");
    assert_eq!(browser.script("return document.querySelector('dialog[open] [type=submit]').disabled"), true);
    browser.type_into("dialog[open] [name=typed]", "web");
    browser.press("Delete cluster");
    browser.wait_for(MACHINES, "document.body.innerText.includes('web is gone')");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}
