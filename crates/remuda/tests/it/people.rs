//! People at a server: their logins, users, roles and kubeconfigs, as they come by them on the command line.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::Duration,
};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use remuda_testkit::oidc::{CLIENT, Provider, SECRET};
use serde_json::{Value, json};

use crate::{
    client::client,
    etcd::{Etcd, Sharing},
    foreign::until,
    harness::{Place, Server, remuda, skipped, success},
};

/// What a command said and how it ended.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) struct Desk {
    pub(crate) server: Server,
    pub(crate) place: Place,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Desk {
    pub(crate) fn open() -> Desk {
        Self::open_with(|_| Vec::new())
    }

    /// With more arguments for the server, which may be about the place.
    pub(crate) fn open_with(arguments: impl FnOnce(&Place) -> Vec<String>) -> Desk {
        let place = Place::new();
        let arguments = arguments(&place);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let server = Server::start(&place.data(), &arguments);
        fs::create_dir_all(place.join("home")).unwrap();
        Desk { server, place, runtime: tokio::runtime::Runtime::new().unwrap() }
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = remuda();
        for name in ["KUBECONFIG", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        command.env("HOME", self.place.join("home"));
        command.args(line.split(' '));
        command
    }

    pub(crate) fn say(&self, line: &str, input: &str) -> Said {
        Self::run(self.command(line), input)
    }

    /// What a command says that is not started yet.
    pub(crate) fn run(mut command: Command, input: &str) -> Said {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub(crate) fn run_with(&self, line: &str, input: &str) -> String {
        let said = self.say(line, input);
        assert_eq!(said.code, 0, "remuda {line}\n{}{}", said.out, said.err);
        said.out + &said.err
    }

    /// As whoever runs the server.
    #[track_caller]
    pub(crate) fn admin(&self, line: &str) -> String {
        self.run_with(&format!("{line} --data-dir {}", self.place.data().display()), "")
    }

    #[track_caller]
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let said = self.say(line, "");
        assert_eq!(said.code, code, "remuda {line}\n{}{}", said.out, said.err);
        said.err
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.place.join(name).display().to_string()
    }

    pub(crate) fn objects(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        let client = self.runtime.block_on(client(&self.server));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// A cluster that is to be imported, once the server has a name for it.
    pub(crate) fn cluster(&self, name: &str) -> String {
        let clusters = self.objects("provisioning.cattle.io", "v1", "Cluster", Some("fleet-default"));
        let object = json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "fleet-default"}, "spec": {},
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.until(|| self.runtime.block_on(clusters.create(&PostParams::default(), &object)).ok());
        self.until(|| {
            let cluster = self.runtime.block_on(clusters.get(name)).unwrap();
            cluster.data.pointer("/status/clusterName").and_then(Value::as_str).map(str::to_owned)
        })
    }

    #[track_caller]
    pub(crate) fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        for _ in 0..300 {
            if let Some(found) = look() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("it did not come to be\n{}", self.server.log());
    }
}

#[test]
fn somebody_is_given_a_cluster_and_loses_it_without_any_yaml() {
    let desk = Desk::open();
    let (edge, other) = (desk.cluster("edge"), desk.cluster("other"));
    assert_ne!(edge, other);

    let data = desk.place.data().display().to_string();
    let made = desk.run_with(
        &format!("user create ann --display-name Ann --password-stdin --data-dir {data}"),
        "correct horse battery\n",
    );
    assert_eq!(made, "user ann is made\n");
    let again = desk.admin("user create ann");
    assert!(again.starts_with("user ann was there already"), "{again}");
    let made_up = desk.admin("user create bob -o json");
    assert!(made_up.contains("\"password\""), "{made_up}");
    assert_eq!(
        desk.admin("user grant ann --cluster edge --role cluster-member"),
        "user ann is cluster-member in cluster edge\n"
    );
    assert!(desk.admin("user grant ann --cluster edge --role cluster-member").contains("already"));
    let unknown =
        desk.fails(&format!("user grant ann --cluster edge --role cluster-membr --data-dir {data}"), 3);
    assert!(unknown.contains("did you mean cluster-member"), "{unknown}");
    assert!(
        desk.fails(&format!("user grant an --role user --data-dir {data}"), 3).contains("did you mean ann")
    );
    let listed = desk.admin("user list");
    let row = listed.lines().find(|line| line.starts_with("ann ")).unwrap();
    assert!(row.contains("edge:cluster-member") && row.contains("user-ann"), "{listed}");

    // Ann, on her own machine.
    let mine = desk.file("ann.kubeconfig");
    let login = format!("login --data-dir {data} -u ann --password-stdin --into {mine}");
    assert!(desk.run_with(&login, "correct horse battery\n").contains("logged in"));
    let wrong = desk.say(&login, "wrong\n");
    assert_eq!(wrong.code, 5, "{}", wrong.err);
    let own = desk.run_with(&format!("get kubeconfig edge --kubeconfig {mine} --ttl 1h"), "");
    assert!(own.contains(&format!("/k8s/clusters/{edge}")) && own.contains("kubeconfig-user-ann"), "{own}");
    assert!(own.contains("certificate-authority-data"), "{own}");
    let stranger = desk.fails(&format!("get kubeconfig other --kubeconfig {mine}"), 5);
    assert!(stranger.contains("forbidden") || stranger.contains("no role"), "{stranger}");
    let denied = desk.fails(&format!("user create eve --kubeconfig {mine}"), 5);
    assert!(denied.contains("hint:"), "{denied}");

    // Tokens that renew themselves.
    let exec = desk.file("edge.kubeconfig");
    desk.run_with(&format!("get kubeconfig edge --exec --kubeconfig {mine} -o {exec}"), "");
    let text = fs::read_to_string(&exec).unwrap();
    assert!(text.contains("client.authentication.k8s.io/v1") && !text.contains("token:"), "{text}");
    let ask = format!("kubeconfig credential --cluster {edge} --kubeconfig {mine} --context remuda");
    let token = || -> String {
        let answer: Value = serde_json::from_str(&desk.run_with(&ask, "")).unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    let first = token();
    assert_eq!(token(), first, "it is kept");
    let (name, _) = first.split_once(':').unwrap();
    desk.run_with(&format!("token revoke {name} --kubeconfig {mine}"), "");
    let second = token();
    assert_ne!(second, first, "one that was revoked is not handed out");
    let kubectl = Command::new("kubectl")
        .args(["--kubeconfig", &exec, "get", "nodes"])
        .env("HOME", desk.place.join("home"))
        .output();
    match kubectl {
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            // Who is not known would be told so; the cluster has no agent.
            assert!(told.contains("ServiceUnavailable"), "{told}");
        }
        Err(_) => skipped("there is no kubectl in PATH"),
    }

    desk.admin("user revoke ann --cluster edge");
    let refused = desk.until(|| {
        let said = desk.say(&format!("get kubeconfig edge --kubeconfig {mine}"), "");
        (said.code == 5).then_some(said.err)
    });
    assert!(refused.contains("hint:"), "{refused}");
    desk.admin("user disable ann");
    let out = desk.until(|| {
        let said = desk.say(&ask, "");
        (said.code == 5).then_some(said.err)
    });
    assert!(out.contains("remuda login"), "{out}");
    assert!(desk.admin("user disable ann").contains("already"));
    desk.admin("user delete ann");
    assert!(desk.admin("user delete ann").contains("nothing to delete"));
}

#[test]
fn somebody_logs_in_with_a_browser() {
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("there is no curl in PATH to be the browser");
    }
    let desk = Desk::open();
    let provider = desk.runtime.block_on(Provider::start());
    trust(&desk.server, &desk.runtime, &provider);
    let mine = desk.file("mine.kubeconfig");
    let data = desk.place.data();
    let mut command =
        desk.command(&format!("login --sso --no-browser --data-dir {} --into {mine}", data.display()));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let url = loop {
        let line = lines.next().expect("it says where").unwrap();
        if let Some(url) = line.trim().strip_prefix("https://") {
            break format!("https://{url}");
        }
    };
    // The browser: follows, keeps a cookie, and its owner clicks.
    let jar = desk.file("cookies");
    let browse = |url: &str| -> String {
        let output = Command::new("curl")
            .args(["-sS", "-k", "-L", "--max-time", "20", "-c", &jar, "-b", &jar])
            .arg(url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let page = desk.until(|| Some(browse(&url)).filter(|page| page.contains("You are Ann.")));
    let (_, link) = page.split_once("href=\"").unwrap();
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    assert!(browse(&link).contains("You are logged in."));
    assert!(child.wait().unwrap().success());
    assert!(fs::read_to_string(&mine).unwrap().contains("token-"));
    let tokens = desk.run_with(&format!("token list --kubeconfig {mine}"), "");
    assert!(tokens.contains("remuda login"), "{tokens}");
}

/// Trusts the provider that is for tests.
fn trust(server: &Server, runtime: &tokio::runtime::Runtime, provider: &Provider) {
    let client = runtime.block_on(client(server));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("management.cattle.io", "v3", "AuthConfig"));
    let configs: Api<DynamicObject> = Api::all_with(client, &resource);
    let config = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "AuthConfig", "metadata": {"name": "genericoidc"},
        "type": "genericOIDCConfig", "enabled": true, "issuer": provider.issuer(), "clientId": CLIENT,
        "clientSecret": SECRET,
    });
    let config: DynamicObject = serde_json::from_value(config).unwrap();
    runtime.block_on(configs.create(&PostParams::default(), &config)).unwrap();
}

/// A browser that goes one step at a time. Its cookies are those of the host, whatever the port.
struct Browser(String);

impl Browser {
    fn command(&self, url: &str) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sS", "-k", "--max-time", "20", "-c", &self.0, "-b", &self.0, url]);
        command
    }

    /// Where a page sends it, with the code of the answer.
    fn sent(&self, url: &str) -> (String, String) {
        let mut command = self.command(url);
        let said = success(command.args(["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"]));
        let (code, location) = said.split_once(' ').unwrap();
        (code.to_owned(), location.to_owned())
    }

    fn reads(&self, url: &str) -> String {
        success(&mut self.command(url))
    }
}

#[test]
fn a_login_that_began_at_one_server_ends_at_another() {
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("there is no curl in PATH to be the browser");
    }
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let sharing = Sharing::new(&place, &etcd);
    let first = Server::start(&place.join("first"), &sharing.arguments());
    let second = Server::start(&place.join("second"), &sharing.arguments());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let provider = runtime.block_on(Provider::start());
    trust(&first, &runtime, &provider);
    const SOON: Duration = Duration::from_secs(20);

    let jar = place.join("cookies");
    let browser = Browser(jar.display().to_string());
    let begin = format!("{}/v1-public/sso?to=/x", first.url);
    for server in [&second, &first] {
        let url = begin.replace(&first.url, &server.url);
        until("the provider is offered", SOON, || browser.sent(&url).0 == "302");
    }
    // To the provider from the first, and back to the second.
    let back = |begun: &str| {
        let (code, there) = browser.sent(begun);
        assert_eq!(code, "302");
        let (_, back) = browser.sent(&there);
        // Both have the same address for everybody, which is that of one of them here.
        let (_, query) = back.split_once("/verify-auth?").unwrap_or_else(|| panic!("{back}"));
        [&first, &second].map(|server| format!("{}/verify-auth?{query}", server.url))
    };
    let [here, there] = back(&begin);
    let earlier = Browser(place.join("earlier").display().to_string());
    fs::copy(&jar, &earlier.0).unwrap();
    assert_eq!(browser.sent(&there), ("302".to_owned(), format!("{}/x", second.url)));
    assert_eq!(earlier.sent(&here).0, "400", "it is good once, on whichever server");
    assert_eq!(Browser(place.join("none").display().to_string()).sent(&there).0, "400");
    for server in [&first, &second] {
        let me = format!("{}/v3/users?me=true", server.url);
        until("the session is good", SOON, || browser.reads(&me).contains("\"Ann\""));
    }

    // A program that asked the first is given its code by the second.
    let mine = place.join("mine.kubeconfig");
    let mut command = remuda();
    command.env_remove("KUBECONFIG").env("HOME", place.join("home"));
    command.args(["login", "--sso", "--no-browser", "--data-dir"]).arg(place.join("first"));
    let mut child = command.arg("--into").arg(&mine).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let url = lines
        .find_map(|line| line.unwrap().trim().strip_prefix("https://").map(|url| format!("https://{url}")))
        .expect("it says where");
    let page = browser.reads(&back(&url)[1]);
    let (_, link) = page.split_once("href=\"").unwrap_or_else(|| panic!("{page}"));
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    assert!(browser.reads(&link).contains("You are logged in."));
    assert!(child.wait().unwrap().success());
    assert!(fs::read_to_string(&mine).unwrap().contains("token-"));
}
