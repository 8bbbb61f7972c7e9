//! All doors, through a whole server and its socket.

use std::{collections::BTreeMap, path::Path};

use http::HeaderMap;
use remuda_auth::request_info::RequestInfo;
use remuda_door::{Access, Cookie, Door, Owned, Table};
use serde_json::{Value, json};

use super::all;
use crate::people::tests::{Got, Site};

/// The table in the documentation has every door as the code has it, and no other.
#[test]
fn the_table_in_the_documentation_is_complete() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doors.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<String> = all().iter().map(|door| door.row()).collect();
    let head =
        "| door | behind it | paths | methods | who may call | session cookie | in the audit log | body |";
    let (before, after) = text.split_once(head).expect("docs/doors.md has the table");
    let listed: Vec<&str> = after.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let rest: Vec<&str> = after.lines().skip(2).skip_while(|line| line.starts_with('|')).collect();
        let line = "|---|---|---|---|---|---|---|---|";
        let text = format!("{before}{head}\n{line}\n{}\n{}\n", rows.join("\n"), rest.join("\n"));
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert_eq!(listed, rows, "docs/doors.md is not what the code says; UPDATE_GOLDEN=1 writes it");
}

/// What is visited and listed is what a running server has open: one that is opened without being listed would be
/// visited by no test.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_has_these_doors_open_and_no_other() {
    let names = |doors: &[&'static Door]| {
        let mut names: Vec<&str> = doors.iter().map(|door| door.name).collect();
        names.sort_unstable();
        names
    };
    let site = Site::start().await;
    assert_eq!(names(site.server.doors()), names(&all()));
    let same = |door: &&Door| all().iter().any(|listed| std::ptr::eq(*listed, *door));
    assert!(site.server.doors().iter().all(same), "a door of the same name with other duties");
    site.stop().await;
    // Without controllers it has fewer, and none of its own.
    let dir = tempfile::tempdir().unwrap();
    let options = crate::config::Options {
        bind: Some("127.0.0.1:0".to_owned()),
        data_dir: Some(dir.path().to_owned()),
        controllers: Some(false),
        ..Default::default()
    };
    let bare = crate::Server::start(options.resolve().unwrap()).await.unwrap();
    assert!(bare.doors().iter().all(same) && bare.doors().len() < all().len());
    bare.shutdown().await;
}

/// A server and what is asked of it; each request has a user agent of its own, by which its audit lines are found.
struct Visitor {
    site: Site,
    token: String,
    asked: Vec<(String, String)>,
}

impl Visitor {
    /// Asks, and takes down what the audit log must say of it.
    async fn ask(
        &mut self,
        (method, path): (&str, &str),
        token: Option<&str>,
        headers: &[(&str, &str)],
        user: &str,
    ) -> Got {
        let agent = format!("visitor-{}", self.asked.len());
        let headers = [headers, &[("user-agent", agent.as_str())]].concat();
        let got = self.site.send(token, method, path, &headers, json!([])).await;
        self.asked.push((agent, format!("{user} {}", got.code.as_u16())));
        got
    }
}

#[track_caller]
fn check_headers(door: &Door, what: &str, got: &Got) {
    let has = |headers: &HeaderMap, name: &str| -> String {
        headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let (name, headers) = (door.name, &got.headers);
    assert_eq!(has(headers, "x-content-type-options"), "nosniff", "{name}, {what}");
    assert_eq!(has(headers, "x-frame-options"), "DENY", "{name}, {what}");
    assert!(has(headers, "content-security-policy").contains("frame-ancestors 'none'"), "{name}, {what}");
    if door.personal {
        let kept = has(headers, "cache-control");
        assert!(kept.contains("no-store") || kept.contains("private"), "{name}, {what}: {kept}");
    }
}

/// An error in one of the forms clients know.
fn is_refusal(got: &Got) -> bool {
    got.body["kind"] == "Status" || got.body["type"] == "error"
}

/// Why a request was refused, in whichever form.
fn reason(got: &Got) -> &str {
    let field = if got.body["kind"] == "Status" { "reason" } else { "code" };
    got.body[field].as_str().unwrap_or_default()
}

const ANONYMOUS: &str = "system:anonymous";
const ADMIN: &str = "user-admin";

#[tokio::test(flavor = "multi_thread")]
async fn every_door_refuses_strangers_and_writes_down_who_came() {
    let site = Site::start().await;
    let first = site.server.first_user().unwrap().clone();
    let got = site.login(&first.username, &first.password).await;
    let token = got.body["token"].as_str().unwrap().to_owned();
    let mut visitor = Visitor { site, token: token.clone(), asked: Vec::new() };
    for door in all() {
        let method = door.methods.first().copied().unwrap_or("GET");
        let known = matches!(door.access, Access::Authenticated | Access::Permission);
        for path in door.paths.iter().map(|owned| owned.example()) {
            let request = (method, path.as_str());
            let bare = visitor.ask(request, None, &[], ANONYMOUS).await;
            check_headers(door, "nobody", &bare);
            let code = bare.code.as_u16();
            let expected = match door.access {
                Access::Authenticated | Access::Permission => code == 401 && is_refusal(&bare),
                // Strangers get what is for them, and no more: see the tests of what is behind it.
                Access::Optional => code == 200 || code == 404,
                Access::Credential(_) => bare.code.is_client_error() || code == 503,
                Access::Api => code == 403 && bare.body["kind"] == "Status",
                Access::Anonymous => true,
            };
            assert!(expected, "{} {path} without credentials: {code} {}", door.name, bare.text);

            let foreign = visitor.ask(request, Some("token-abcde:not-a-key"), &[], ANONYMOUS).await;
            check_headers(door, "a foreign token", &foreign);
            let code = foreign.code.as_u16();
            let expected = match door.access {
                Access::Optional | Access::Authenticated | Access::Permission | Access::Api => {
                    code == 401 && reason(&foreign) == "Unauthorized"
                }
                Access::Credential(_) => foreign.code.is_client_error() || code == 503,
                // Nothing that a token would change.
                Access::Anonymous => foreign.code == bare.code,
            };
            assert!(expected, "{} {path} with a foreign token: {code} {}", door.name, foreign.text);

            // What a browser sends when a page of another site makes it ask.
            let cookie = format!("R_SESS={}", visitor.token);
            for other in [
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "no-cors"),
                    ("sec-fetch-dest", "image"),
                ] as &[_],
                &[("origin", "https://evil.example")],
                &[("origin", "null")],
            ] {
                let headers = [&[("cookie", cookie.as_str())], other].concat();
                let forged = visitor.ask(request, None, &headers, ANONYMOUS).await;
                check_headers(door, "another site", &forged);
                let code = forged.code.as_u16();
                let expected = match door.cookie {
                    Cookie::Proof | Cookie::Fetch => code == 403 && reason(&forged) == "Forbidden",
                    // It is not looked at. Doors of agents may have become ready meanwhile.
                    Cookie::Never => forged.code == bare.code || matches!(door.access, Access::Credential(_)),
                };
                assert!(expected, "{} {path} from another site: {code} {}", door.name, forged.text);
            }

            if !door.methods.is_empty() {
                let user = if known || door.access == Access::Optional { ADMIN } else { ANONYMOUS };
                let odd = visitor.ask(("PATCH", &path), Some(&token), &[], user).await;
                check_headers(door, "a wrong method", &odd);
                assert_eq!(odd.code.as_u16(), 405, "{} {path}: {}", door.name, odd.text);
                assert_eq!(odd.headers["allow"], door.methods.join(", "), "{} {path}", door.name);
            }
        }
    }
    // What those who may do leaves its line too, with what was done.
    let backup = visitor.ask(("POST", "/remuda/v1/backup"), Some(&token), &[], ADMIN).await;
    assert_eq!(backup.code.as_u16(), 200);
    let rotated = visitor.ask(("POST", "/remuda/v1/rotate-keys"), Some(&token), &[], ADMIN).await;
    assert_eq!(rotated.code.as_u16(), 200, "{}", rotated.text);
    let changed = ("POST", "/v3/users?action=changepassword&x=secret");
    let changed = visitor.ask(changed, Some(&token), &[], ADMIN).await;
    assert!(changed.code.is_client_error(), "{}", changed.text);
    let actions = visitor.asked.last().unwrap().0.clone();
    // So do what becomes another protocol, and what goes on for a while.
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let socket = visitor.ask(("GET", "/v1/subscribe"), Some(&token), &upgrade, ADMIN).await;
    assert_eq!(socket.code.as_u16(), 101, "{}", socket.text);
    let stranger = visitor.ask(("GET", "/v1/subscribe"), None, &upgrade, ANONYMOUS).await;
    assert_eq!(stranger.code.as_u16(), 401, "{}", stranger.text);
    let tunnel = visitor.ask(("GET", "/v3/connect/register"), None, &upgrade, ANONYMOUS).await;
    assert!(tunnel.code.is_client_error() || tunnel.code.as_u16() == 503, "{}", tunnel.text);
    let watch = ("GET", "/api/v1/namespaces?watch=true&timeoutSeconds=1");
    let watch = visitor.ask(watch, Some(&token), &[], ADMIN).await;
    assert_eq!(watch.code.as_u16(), 200, "{}", watch.text);

    let Visitor { site, asked, .. } = visitor;
    let Site { server, dir } = site;
    server.shutdown().await;
    let log = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    let mut lines: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let agent = line["userAgent"].as_str().unwrap_or_default().to_owned();
        lines.entry(agent).or_default().push(line);
    }
    for (agent, expected) in asked {
        let told = lines.remove(&agent).unwrap_or_default();
        let shown: Vec<String> = told
            .iter()
            .map(|line| {
                format!("{} {}", line["user"]["username"].as_str().unwrap(), line["responseStatus"]["code"])
            })
            .collect();
        assert_eq!(shown, [expected], "{agent}: {told:?}");
        if agent == actions {
            assert_eq!(told[0]["requestURI"], "/v3/users?action=changepassword");
        }
    }
    assert!(!log.contains("selfsubjectreviews"), "who somebody is is not asked of the API");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_types_the_address_of_the_server_ends_at_the_dashboard() {
    let site = Site::start().await;
    let page = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let typed = site.send(None, "GET", "/", &[page], json!([])).await;
    assert_eq!(
        (typed.code.as_u16(), &typed.headers["location"]),
        (302, &http::HeaderValue::from_static("/dashboard"))
    );
    let shell = site.send(None, "GET", "/dashboard", &[page], json!([])).await;
    assert_eq!(shell.code.as_u16(), 200);
    assert!(shell.text.starts_with("<!doctype html>"), "{}", shell.text);
    let policy = shell.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    // Programs get what they always got.
    let program = site.send(None, "GET", "/", &[("accept", "*/*")], json!([])).await;
    assert_eq!((program.code.as_u16(), &program.body["kind"]), (403, &json!("Status")));
    let elsewhere = site.send(None, "GET", "/apis", &[page], json!([])).await;
    assert_ne!(elsewhere.code.as_u16(), 302);
}

fn table() -> Table {
    Table::new(all())
}

#[test]
fn every_door_is_found_by_its_paths() {
    let table = table();
    for door in all() {
        for owned in door.paths {
            let found = table.doors()[table.find(&owned.example())];
            assert_eq!(found.name, door.name, "{owned:?}");
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2048))]

    /// However a path is written, it leads to one door: the one whose paths say so, and what reaches the API is
    /// judged by what the API would do.
    #[test]
    fn no_path_leads_to_two_doors(
        path in "/(k8s/clusters/|k8s/proxy/|local|local/v1|v1/logout|v3/|v1-public/|v3/tokens|v3/users|v3/import/|remuda/v1/|backup|metrics|ping|assets/|api/|apis/|v1/|namespaces/|secrets|connect|/|%2[fFeE5]|%6b|\\.\\.?/|[a-z]{1,3}|[%;:@?#\\\\ ]|\\PC){0,10}",
    ) {
        let table = table();
        let found = table.doors()[table.find(&path)];
        let owns = |owned: &Owned| match owned {
            Owned::Exact(own) => path == *own,
            Owned::Below(own) => path.starts_with(own),
            Owned::Tree(own) => path == *own || path.starts_with(&format!("{own}/")),
            Owned::Rest => false,
        };
        let owners: Vec<&str> =
            all().into_iter().filter(|door| door.paths.iter().any(owns)).map(|door| door.name).collect();
        match owners.as_slice() {
            [] => proptest::prop_assert_eq!(found.name, "kubernetes"),
            [one] => proptest::prop_assert_eq!(found.name, *one),
            // One door is inside another; the inner one has its paths for itself.
            several => {
                let public = several.iter().find(|name| **name != "nothing-public").copied().unwrap_or_default();
                let inner = match several {
                    several if several.contains(&"nothing-public") => public,
                    several if several.contains(&"logout") => "logout",
                    several if several.contains(&"list-api") => "list-api",
                    _ => "local",
                };
                let outer = ["local", "clusters", "list-api", "logout", "nothing-public", public];
                let nested = several.iter().all(|name| outer.contains(name));
                proptest::prop_assert!(nested && several.len() < 5, "{:?}", several);
                proptest::prop_assert_eq!(found.name, inner);
            }
        }
        let info = RequestInfo::parse("GET", &path, None);
        // The resource tree belongs to the API alone.
        if info.is_resource() && !path.contains('%') && !path.starts_with("//") {
            proptest::prop_assert_eq!(found.name, "kubernetes");
        }
    }
}
