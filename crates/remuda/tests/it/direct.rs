//! The authorized endpoint of a cluster: its own API, used with tokens of the server while the server is away.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use kube::config::Kubeconfig;
use serde_json::json;

use crate::{
    harness::skipped,
    lab::{Lab, NEW},
};

/// For what happens by itself, on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const PASSWORD: &str = "correct horse battery\n";
/// What kubectl says to those who are nobody.
const NOBODY: &str = "You must be logged in to the server";

/// Somebody with a kubeconfig for the cluster.
struct Person {
    kubeconfig: String,
    /// `name:key`.
    token: String,
    /// Leads through the server.
    through: String,
    /// Lead to the cluster itself.
    direct: Vec<String>,
}

impl Person {
    fn new(kubeconfig: String) -> Person {
        let parsed = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let through = parsed.current_context.unwrap();
        let contexts = parsed.contexts.into_iter().map(|context| context.name);
        let direct = contexts.filter(|name| *name != through).collect();
        let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
        let token = line.trim_matches('"').to_owned();
        Person { token, through, direct, kubeconfig }
    }
}

/// A server with a cluster that has an authorized endpoint.
struct Site {
    lab: Lab,
    /// A machine from which the others are reached.
    worker: String,
}

impl Site {
    /// With machines for this version, and an endpoint if it is to be there from the start.
    fn open(machines: &str, endpoint: bool) -> Option<Site> {
        if Command::new("kubectl").arg("--help").output().is_err() {
            skipped("there is no kubectl in PATH");
            return None;
        }
        let lab = Lab::open(None)?;
        lab.run(&format!("cluster create demo {machines}"));
        let site = Site { lab, worker: String::new() };
        if endpoint {
            site.enable(true);
        }
        site.lab.until("the cluster is ready", SOON, || site.lab.say("why demo").0 == 0);
        let worker = site.lab.machines().into_iter().find(|name| name.contains("workers")).unwrap();
        Some(Site { worker, ..site })
    }

    fn enable(&self, enabled: bool) {
        // What the API remembers of tokens is usually good for two minutes.
        self.lab.change(
            "demo",
            &json!({"spec": {
                "localClusterAuthEndpoint": {"enabled": enabled},
                "rkeConfig": {"machineGlobalConfig": {
                    "kube-apiserver-arg": ["authentication-token-webhook-cache-ttl=1s"],
                }},
            }}),
        );
    }

    /// Runs a command with an input, as somebody who has no part in the server.
    #[track_caller]
    fn with_input(&self, line: &str, input: &str) -> String {
        let mut command = self.lab.command(&line.split(' ').collect::<Vec<_>>());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "remuda {line}\n{told}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A user with a role in the cluster, who logs in and gets a kubeconfig with a way to each of the servers.
    fn somebody(&self, name: &str, role: &str, servers: usize) -> Person {
        let data = self.lab.data().display().to_string();
        self.with_input(&format!("user create {name} --password-stdin --data-dir {data}"), PASSWORD);
        self.lab.run(&format!("user grant {name} --cluster demo --role {role}"));
        let login = self.lab.place.join(&format!("{name}.login")).display().to_string();
        self.with_input(
            &format!("login --data-dir {data} -u {name} --password-stdin --into {login}"),
            PASSWORD,
        );
        let began = Instant::now();
        loop {
            let kubeconfig = self.with_input(&format!("get kubeconfig demo --kubeconfig {login}"), "");
            let person = Person::new(kubeconfig);
            if person.direct.len() == servers {
                assert!(person.direct.iter().all(|name| name.starts_with("demo-")), "{:?}", person.direct);
                return person;
            }
            assert!(began.elapsed() < SOON, "{}", person.kubeconfig);
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// kubectl on a machine of the cluster.
    fn kubectl(&self, kubeconfig: &str, context: &str, line: &str) -> (bool, String) {
        let script = "umask 077; dir=$(mktemp -d) && printf %s \"$1\" > \"$dir/config\" && shift && \
                      HOME=$dir kubectl --kubeconfig \"$dir/config\" --request-timeout=20s \"$@\"; code=$?; \
                      rm -rf \"$dir\"; exit $code";
        let words = ["sh", "-c", script, "sh", kubeconfig, "--context", context];
        let words: Vec<String> = words.into_iter().chain(line.split(' ')).map(str::to_owned).collect();
        let output = self.lab.sandbox().enter(&self.worker, &words).unwrap().output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn direct(&self, person: &Person, line: &str) -> (bool, String) {
        self.kubectl(&person.kubeconfig, &person.direct[0], line)
    }

    fn all_lead_in(&self, person: &Person) -> bool {
        person.direct.iter().all(|context| self.kubectl(&person.kubeconfig, context, "get nodes").0)
    }

    /// Waits until kubectl says these words: a busy node may not find out in time who somebody is.
    #[track_caller]
    fn until_told(&self, person: &Person, line: &str, words: &[&str]) {
        let began = Instant::now();
        loop {
            let (_, said) = self.direct(person, line);
            if words.iter().all(|word| said.contains(word)) {
                return;
            }
            assert!(began.elapsed() < SOON, "{line}: {said}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    #[track_caller]
    fn is_nobody(&self, person: &Person, token: &str) {
        let (_, said) =
            self.kubectl(&person.kubeconfig.replace(&person.token, token), &person.direct[0], "get nodes");
        assert!(said.contains(NOBODY), "{said}");
    }
}

/// What somebody may, in words.
fn rights(said: (bool, String)) -> Vec<String> {
    assert!(said.0, "{}", said.1);
    let mut lines: Vec<String> = said.1.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_member_uses_the_cluster_itself_while_the_server_is_away() {
    let machines = format!("--version {NEW} --servers 1 --workers 1");
    let Some(mut site) = Site::open(&machines, true) else { return };
    let ann = site.somebody("ann", "cluster-member", 1);
    let otto = site.somebody("otto", "cluster-owner", 1);
    site.lab.run("user create eve");
    let eve = site.lab.run("token create --user user-eve --cluster demo").trim().to_owned();

    // The cluster has heard of them.
    for person in [&ann, &otto] {
        site.lab.until("the token is good at the cluster", SOON, || site.direct(person, "get nodes").0);
    }
    let list = "auth can-i --list";
    assert_eq!(
        rights(site.direct(&ann, list)),
        rights(site.kubectl(&ann.kubeconfig, &ann.through, list)),
        "they are the same as through the server"
    );
    let (done, said) = site.direct(&otto, "create namespace owned");
    assert!(done, "{said}");
    let known = site.direct(
        &otto,
        "get clusterauthtokens.cluster.cattle.io,clusteruserattributes.cluster.cattle.io,secrets -n cattle-system -o yaml",
    );
    let (name, key) = ann.token.split_once(':').unwrap();
    assert!(known.0 && known.1.contains(name) && !known.1.contains(key), "{}", known.1);

    // What the API remembers is over, and there is nobody to ask but the cluster.
    site.lab.kill_server();
    thread::sleep(Duration::from_secs(2));
    site.until_told(&ann, "get nodes", &[&site.worker]);
    site.until_told(&ann, "create namespace hers", &["Forbidden", "user-ann"]);
    site.is_nobody(&ann, &eve);
    site.is_nobody(&ann, &format!("{name}:{}", "x".repeat(key.len())));
    site.is_nobody(&ann, "kubeconfig-nobody:x");
    let (_, key) = otto.token.split_once(':').unwrap();
    site.is_nobody(&ann, &format!("{name}:{key}"));

    // What is taken away is gone there too.
    site.lab.start();
    site.lab.until("the server is back", SOON, || site.lab.say(&format!("token revoke {name}")).0 == 0);
    let refused = |person: &Person| site.direct(person, "get nodes").1.contains(NOBODY);
    site.lab.until("the revoked token is not good any more", SOON, || refused(&ann));
    site.until_told(&otto, "get nodes", &[&site.worker]);
    site.lab.run("user revoke otto --cluster demo");
    site.lab.until("whoever has no role is nobody", SOON, || refused(&otto));

    site.enable(false);
    let zoe = || {
        let path = site.lab.place.join("zoe.kubeconfig");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, site.lab.run("get kubeconfig demo")).unwrap();
        path
    };
    site.lab.until("nothing of it is left in the cluster", SOON, || {
        let output = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(zoe())
            .args([
                "get",
                "clusterauthtokens.cluster.cattle.io,clusteruserattributes.cluster.cattle.io,daemonsets",
            ])
            .args(["-n", "cattle-system", "-o", "name", "--request-timeout=20s"])
            .env("HOME", site.lab.place.join("home"))
            .output()
            .unwrap();
        output.status.success() && output.stdout.is_empty()
    });
    site.lab.until("the cluster is ready", SOON, || site.lab.say("why demo").0 == 0);
    site.lab.run("cluster delete --yes demo --wait --timeout 60s");
    site.lab.check_nothing_left();
}

#[test]
fn every_server_of_a_running_cluster_is_an_endpoint() {
    let Some(mut site) = Site::open("--version v1.35.1+rke2r1 --servers 3 --workers 1", false) else {
        return;
    };
    site.enable(true);
    let ann = site.somebody("ann", "cluster-member", 3);
    site.lab.until("each of them has an authenticator", SOON, || site.all_lead_in(&ann));
    site.lab.until("the cluster is ready", SOON, || site.lab.say("why demo").0 == 0);
    site.lab.kill_server();
    thread::sleep(Duration::from_secs(2));
    site.lab.until("all of them do without the server", SOON, || site.all_lead_in(&ann));
    site.is_nobody(&ann, "kubeconfig-nobody:x");
    site.lab.start();
    site.lab.run("cluster delete --yes demo --wait --timeout 120s");
    site.lab.check_nothing_left();
}
