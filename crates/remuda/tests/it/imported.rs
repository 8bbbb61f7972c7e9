//! Clusters made elsewhere: brought in by their manifest, used through the proxy, lost and found again.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::{
    foreign::{Agent, Foreign, Person, led_to, until},
    harness::{Place, Server, remuda, success},
};

/// What must be told at once, on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// A link that was cut says nothing; that nothing is said is noticed after this.
const SILENCE: Duration = Duration::from_secs(45);
/// Two cores are not enough for several of these at once.
static TURN: Mutex<()> = Mutex::new(());

/// A server and a cluster it can only reach through the cluster's agent.
struct Herd {
    foreign: Foreign,
    server: Option<Server>,
    bind: String,
    place: Place,
    /// The management Cluster.
    id: String,
    _turn: MutexGuard<'static, ()>,
}

impl Herd {
    /// With the cluster's manifest applied and no agent running.
    fn open() -> Option<Herd> {
        let turn = TURN.lock();
        let place = Place::new();
        let foreign = Foreign::start(&place)?;
        let host = foreign.network.host.clone();
        let port = TcpListener::bind((host.as_str(), 0)).unwrap().local_addr().unwrap().port();
        let bind = format!("{host}:{port}");
        let mut herd = Herd { foreign, server: None, bind, place, id: String::new(), _turn: turn };
        herd.start();
        let cluster = json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": "old", "namespace": "fleet-default"}, "spec": {},
        });
        let file = herd.place.write("cluster.json", &cluster.to_string());
        let admin = herd.admin();
        admin.run(&format!("apply -f {}", file.display()));
        let name =
            "get clusters.provisioning.cattle.io -n fleet-default old -o jsonpath={.status.clusterName}";
        until("the cluster has a management Cluster", SOON, || !admin.run(name).is_empty());
        herd.id = admin.run(name);
        let mut command = String::new();
        until("there is a registration command", SOON, || {
            let output = herd.remuda("cluster registration-command old --insecure").output().unwrap();
            command = String::from_utf8(output.stdout).unwrap();
            output.status.success()
        });
        // As people run it: what was printed, in the cluster that is brought in.
        let output = herd.foreign.shell(command.trim());
        crate::harness::assert_success(&output);
        Some(herd)
    }

    fn start(&mut self) {
        let arguments = ["--bind", self.bind.as_str()];
        self.server = Some(Server::start(&self.place.data(), &arguments));
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// A command for people.
    fn remuda(&self, line: &str) -> Command {
        let mut command = remuda();
        command.args(line.split(' ')).arg("--data-dir").arg(self.place.data());
        command.env("HOME", self.place.join("home"));
        command
    }

    /// The administrator of the server, there.
    fn admin(&self) -> Person {
        let kubeconfig = std::fs::read_to_string(self.server().kubeconfig()).unwrap();
        Person::new(&self.place, "admin", &kubeconfig)
    }

    /// Somebody, in the cluster: the administrator without a token.
    fn abroad(&self, name: &str, token: Option<&str>) -> Person {
        let server = self.server();
        let path = format!("/k8s/clusters/{}", self.id);
        Person::new(&self.place, name, &led_to(&server.kubeconfig(), &server.url, &path, token))
    }

    /// A user, with a role in the cluster if it is said, who comes with a token.
    fn somebody(&self, name: &str, role: Option<&str>) -> Person {
        let mut items = vec![json!({
            "apiVersion": "management.cattle.io/v3", "kind": "User",
            "metadata": {"name": name}, "username": name, "enabled": true,
        })];
        if let Some(role) = role {
            items.push(json!({
                "apiVersion": "management.cattle.io/v3", "kind": "ClusterRoleTemplateBinding",
                "metadata": {"name": format!("{name}-{role}"), "namespace": self.id},
                "clusterName": self.id, "userName": name, "roleTemplateName": role,
            }));
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let file = self.place.write(&format!("{name}.json"), &list.to_string());
        self.admin().run(&format!("apply -f {}", file.display()));
        let mut token = String::new();
        until("a token is issued", SOON, || {
            let output = self.remuda(&format!("token create --user {name}")).output().unwrap();
            token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
            output.status.success()
        });
        self.abroad(name, Some(&token))
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let cluster = self.admin().run(&format!("get clusters.management.cattle.io {} -o json", self.id));
        let cluster: Value = serde_json::from_str(&cluster).unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|known| known["type"] == kind).unwrap_or_default();
        let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        (text("status"), text("message"))
    }

    /// Starts the agent and waits until the cluster is usable.
    fn connect(&self) -> Agent {
        let agent = self.foreign.agent();
        until("the cluster is ready", SOON, || self.condition("Ready").0 == "True");
        agent
    }
}

/// With what the server said: kubectl keeps the reasons of a failed discovery to itself otherwise.
const EXPLAINED: &str = "get namespaces -v=8";

#[test]
fn an_imported_cluster_is_used_by_those_who_may() {
    let Some(herd) = Herd::open() else { return };
    let list = herd.remuda("cluster list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(!list.contains("Ready"), "a cluster whose agent never came is not ready:\n{list}");
    let admin = herd.abroad("admin-abroad", None);
    let said = admin.fails(EXPLAINED);
    assert!(said.contains("not connected"), "{said}");

    let _agent = herd.connect();
    let list = success(&mut herd.remuda("cluster list"));
    assert!(list.contains("Ready"), "{list}");
    herd.foreign.kubectl("create configmap mark -n default --from-literal=who=foreign");
    assert_eq!(admin.run("get configmap mark -n default -o jsonpath={.data.who}"), "foreign");

    // A member sees what the role lists, under their own name, and may not do what it does not.
    let member = herd.somebody("u-member", Some("cluster-member"));
    until("the role counts", SOON, || member.can("get namespaces"));
    let refused = member.fails("get secrets -A");
    assert!(refused.contains("u-member") && refused.contains("forbidden"), "{refused}");
    // A stranger does not get in at all, and nobody gets into a cluster that is not there.
    let stranger = herd.somebody("u-stranger", None);
    let refused = stranger.fails(EXPLAINED);
    assert!(refused.contains("forbidden") && refused.contains("no role in cluster"), "{refused}");
    let server = herd.server();
    let nowhere = led_to(&server.kubeconfig(), &server.url, "/k8s/clusters/c-nowhere", None);
    let nowhere = Person::new(&herd.place, "nowhere", &nowhere);
    let refused = nowhere.fails(EXPLAINED);
    assert!(refused.contains("not found"), "{refused}");
}

#[test]
fn what_is_under_way_ends_with_the_role_or_the_token() {
    let Some(herd) = Herd::open() else { return };
    let _agent = herd.connect();
    let watch = |person: &Person, line: &str| {
        let mut command = person.command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Until what is there was told, the watch itself has not begun.
    let begun = |child: &mut std::process::Child| {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "namespace/default"));
        lines
    };
    let line = "get namespaces -w -o name";
    let member = herd.somebody("u-member", Some("cluster-member"));
    let second = herd.somebody("u-second", Some("cluster-member"));
    until("the roles count", SOON, || member.can("get namespaces") && second.can("get namespaces"));
    let before = herd.foreign.watches();
    let (mut mine, mut theirs) = (watch(&member, line), watch(&second, line));
    let (_mine, mut told) = (begun(&mut mine), begun(&mut theirs));
    until("both watch in the cluster", SOON, || herd.foreign.watches() >= before + 2);
    let binding = "clusterroletemplatebindings.management.cattle.io";
    herd.admin().run(&format!("delete {binding} -n {} u-member-cluster-member", herd.id));
    until("the watch of whoever lost the role has ended", Duration::from_secs(3), || {
        mine.try_wait().unwrap().is_some()
    });
    until("it has ended in the cluster", SOON, || herd.foreign.watches() <= before + 1);
    let refused = member.fails(EXPLAINED);
    assert!(refused.contains("forbidden"), "{refused}");
    assert!(theirs.try_wait().unwrap().is_none(), "whoever has the role goes on");
    herd.foreign.kubectl("create namespace later");
    assert!(told.any(|line| line.unwrap() == "namespace/later"));
    // The same with the token.
    let token = success(&mut herd.remuda("token list --user u-second -o name"));
    success(&mut herd.remuda(&format!("token revoke {}", token.trim())));
    until("the watch of the revoked token has ended", Duration::from_secs(3), || {
        theirs.try_wait().unwrap().is_some()
    });
}

#[test]
fn what_is_large_slow_or_given_up_passes_through_the_tunnel() {
    let Some(herd) = Herd::open() else { return };
    let _agent = herd.connect();
    let admin = herd.abroad("admin-abroad", None);
    let large = "x".repeat(900 << 10);
    let file = herd.place.write("large", &large);
    admin.run(&format!("create configmap large -n default --from-file=value={}", file.display()));
    assert!(admin.run("get configmap large -n default -o jsonpath={.data.value}") == large);
    assert!(herd.foreign.kubectl("get configmap large -n default -o jsonpath={.data.value}") == large);

    // Events arrive while the answer is open.
    let mut watch =
        admin.command("get configmaps -n default -w -o name").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "configmap/large"));
    herd.foreign.kubectl("create configmap later -n default");
    assert_eq!(lines.next().unwrap().unwrap(), "configmap/later");
    watch.kill().unwrap();
    watch.wait().unwrap();

    // What callers give up is given up in the cluster too.
    let before = herd.foreign.watches();
    let watches: Vec<_> = (0..20)
        .map(|_| {
            let mut command = admin.command("get configmaps -A --watch-only");
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    until("twenty watches are open in the cluster", SOON, || herd.foreign.watches() >= before + 20);
    for mut watch in watches {
        watch.kill().unwrap();
        watch.wait().unwrap();
    }
    until("none of them is left", SOON, || herd.foreign.watches() <= before);
}

#[test]
fn a_cluster_comes_back_whatever_was_lost() {
    let Some(mut herd) = Herd::open() else { return };
    let agent = herd.connect();
    let admin = herd.abroad("admin-abroad", None);
    assert!(admin.can("get namespaces"));

    // The agent: told at once, with a reason, and over as soon as there is another.
    agent.kill();
    until("the loss of the agent is told", SOON, || herd.condition("Connected").0 == "False");
    let started = Instant::now();
    let said = admin.fails(EXPLAINED);
    assert!(said.contains("not connected since"), "{said}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let list = success(&mut herd.remuda("cluster list"));
    assert!(!list.contains("Ready"), "{list}");
    let agent = herd.connect();
    assert!(admin.can("get namespaces"));

    // The server: its agents come back by themselves.
    herd.server.take().unwrap().kill();
    herd.start();
    until("the cluster is back after the server was killed", SOON * 2, || admin.can("get namespaces"));

    // The link: what waits for an answer hears of it, and the tunnel returns with the link.
    let mut watch = admin
        .command("get configmaps -A --watch-only")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(1));
    assert!(watch.try_wait().unwrap().is_none());
    herd.foreign.network.set_link(false);
    until("the loss of the link is told", SILENCE, || herd.condition("Connected").0 == "False");
    until("what was under way has ended", SOON, || watch.try_wait().unwrap().is_some());
    herd.foreign.network.set_link(true);
    until("the cluster is back with the link", SOON * 2, || admin.can("get namespaces"));
    drop(agent);
}
