//! The command line in everyday use: help, lists, completions, questions and logs.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::{
    harness::{Place, ended_with, remuda, skipped},
    people::Desk,
};

#[test]
fn a_command_without_arguments_prints_its_own_help_and_ends_with_2() {
    for (command, usage) in [
        (vec![], "Usage: remuda <COMMAND>"),
        (vec!["cluster"], "Usage: remuda cluster"),
        (vec!["machine"], "Usage: remuda machine"),
        (vec!["get"], "Usage: remuda get"),
        (vec!["user"], "Usage: remuda user"),
        (vec!["kubeconfig"], "Usage: remuda kubeconfig"),
    ] {
        let text = ended_with(remuda().args(&command), 2);
        assert!(text.contains(usage), "{command:?}: {text}");
        assert!(!text.contains('\x1b'), "{command:?}: {text:?}");
    }
    let text = ended_with(remuda().args(["cluster", "lsit"]), 2);
    assert!(text.contains("hint: ") && text.contains("list"), "{text}");
    ended_with(remuda().args(["cluster", "get"]), 2);
    ended_with(remuda().args(["agent", "--nonsense"]), 2);
}

#[test]
fn lists_are_understood_in_the_words_of_kubectl_and_are_plain_in_pipes() {
    let desk = Desk::open();
    desk.cluster("edge");
    for line in ["cluster list", "clusters", "get clusters", "get cluster", "get clusters edge", "cluster ls"]
    {
        let text = desk.admin(line);
        assert!(text.contains("NAME") && text.contains("edge"), "{line}: {text}");
        assert!(!text.contains('\x1b'), "{line}: {text:?}");
    }
    for line in ["machines", "get machines"] {
        assert!(desk.admin(line).contains("there are no machines"), "{line}");
    }
}

#[test]
fn why_without_a_name_tells_of_everything_that_is_not_well() {
    let desk = Desk::open();
    let data = desk.place.data().display().to_string();
    assert_eq!(desk.admin("why"), "there are no clusters\n");
    desk.cluster("edge");
    desk.cluster("other");
    let said = desk.say(&format!("why --data-dir {data}"), "");
    assert!([10, 11].contains(&said.code), "{}{}", said.out, said.err);
    for name in ["fleet-default/edge", "fleet-default/other"] {
        assert!(said.out.contains(name), "{}", said.out);
    }
    assert!(said.err.contains("remuda why edge -n fleet-default says more"), "{}", said.err);
    let names = desk.say(&format!("why -o name --data-dir {data}"), "");
    assert_eq!(names.out, "fleet-default/edge\nfleet-default/other\n");
    let findings = desk.say(&format!("why -o json --data-dir {data}"), "").out;
    let findings: Value = serde_json::from_str(&findings).unwrap();
    assert_eq!(findings.as_array().unwrap().len(), 2);
    let elsewhere = desk.say(&format!("why -n default --data-dir {data}"), "");
    assert_eq!((elsewhere.code, elsewhere.out.as_str()), (0, "there are no clusters\n"));
}

#[test]
fn a_watched_list_tells_what_changes_until_it_is_stopped() {
    let desk = Desk::open();
    let data = desk.place.data();
    desk.cluster("edge");
    let mut command = desk.command(&format!("cluster list --watch --data-dir {}", data.display()));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = |prefix: &str| loop {
        let line = lines.next().expect("it goes on").unwrap();
        if line.starts_with(prefix) {
            return line;
        }
    };
    next("NAME");
    next("edge");
    desk.cluster("later");
    next("later");
    desk.admin("cluster delete later --yes");
    while !next("later").contains("Gone") {}
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn deleting_needs_a_yes_and_names_what_goes() {
    let desk = Desk::open();
    let data = desk.place.data().display().to_string();
    desk.cluster("edge");
    let text = desk.fails(&format!("cluster delete edge --data-dir {data}"), 2);
    assert!(text.contains("this deletes cluster edge") && text.contains("--yes"), "{text}");
    desk.admin("cluster get edge");
    // What is not there needs no question.
    desk.admin("cluster delete none");
    desk.admin("cluster delete edge --yes");
}

#[test]
fn completions_know_names_and_are_silent_without_a_server() {
    let desk = Desk::open();
    desk.cluster("edge");
    desk.cluster("eden");
    let data = desk.place.data().display().to_string();
    let program = env!("CARGO_BIN_EXE_remuda");
    let script = desk.place.write("completion", &desk.run_with("completion bash", ""));
    let bash = |words: &[&str]| {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            "source {}; COMP_WORDS=({program} {}); COMP_CWORD={}; _remuda_names {program} '{}'; echo \"${{COMPREPLY[*]}}\"",
            script.display(),
            quoted.join(" "),
            words.len(),
            words[words.len() - 1],
        );
        let output = Command::new("bash").args(["-c", &line]).env("HOME", desk.place.join("home")).output();
        let output = output.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        String::from_utf8(output.stdout).unwrap().trim().replace('\n', " ")
    };
    if Command::new("bash").arg("--version").output().is_err() {
        skipped("there is no bash in PATH to complete anything");
    } else {
        assert_eq!(bash(&["cluster", "get", "--data-dir", &data, "ed"]), "eden edge");
        assert_eq!(bash(&["cluster", "delete", "--data-dir", &data, "edg"]), "edge");
        assert!(bash(&["cluster", "descr"]).contains("describe"));
    }
    let began = Instant::now();
    for line in ["complete -- cluster get ", "complete -- why x", "complete -- server --bind "] {
        let said = desk.say(line, "");
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", ""), "{line}");
    }
    let gone = desk.say("complete -- cluster get --kubeconfig /nowhere ", "");
    assert_eq!((gone.code, gone.err.as_str()), (0, ""));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Runs a command line of the program on a terminal of this width; nothing if there is no way to have one.
fn on_terminal(desk: &Desk, columns: u16, line: &str, input: &str) -> Option<(i32, String)> {
    if Command::new("script").arg("--version").output().is_err() {
        skipped("there is no script in PATH to be a terminal");
        return None;
    }
    let program = env!("CARGO_BIN_EXE_remuda");
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty cols {columns} rows 24; {program} {line}"), "/dev/null"]);
    for name in ["KUBECONFIG", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.env("HOME", desk.place.join("home")).env("TERM", "xterm");
    let said = Desk::run(command, input);
    Some((said.code, said.out))
}

#[test]
fn a_list_fits_the_terminal_and_colours_states() {
    let desk = Desk::open();
    desk.cluster("edge");
    let data = desk.place.data().display().to_string();
    let Some((code, text)) = on_terminal(&desk, 72, &format!("cluster list --data-dir {data}"), "") else {
        return;
    };
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("\x1b["), "{text:?}");
    let plain = anstream::adapter::strip_str(&text).to_string();
    let row = plain.lines().find(|line| line.starts_with("edge")).unwrap().trim_end();
    assert!(row.chars().count() <= 72, "{row}");
}

#[test]
fn login_looks_at_the_certificate_first_and_asks_for_another_first_password() {
    let desk = Desk::open();
    let url = desk.server.url.clone();
    // There is no terminal here: the certificate is found wanting before that matters.
    let text = desk.fails(&format!("login {url} -u admin"), 4);
    assert!(text.contains("certificate") && text.contains("--ca-file"), "{text}");
    let log = desk.server.log();
    let (_, password) = log.split_once("log in as admin with password ").unwrap();
    let password = password.lines().next().unwrap().to_owned();
    let (data, mine) = (desk.place.data(), desk.file("mine.kubeconfig"));
    let login =
        format!("login --data-dir {} -u admin --password-stdin --into {mine} --force", data.display());
    assert!(desk.run_with(&login, &password).contains("remuda user password"));
    let typed = format!("{password}\nanother-password-1\nanother-password-1\n");
    let line = format!("login --data-dir {} -u admin --into {mine} --force", data.display());
    let changed = match on_terminal(&desk, 80, &line, &typed) {
        Some((code, text)) => {
            assert_eq!(code, 0, "{text}");
            assert!(text.contains("your password is changed"), "{text}");
            "another-password-1"
        }
        None => return,
    };
    assert!(!desk.run_with(&login, changed).contains("remuda user password"));
}

#[test]
fn a_registration_command_warns_of_loopback_and_needs_no_sudo() {
    let desk = Desk::open();
    desk.admin("cluster create edge --custom");
    let data = desk.place.data().display().to_string();
    let said = desk.until(|| {
        let said = desk.say(&format!("cluster registration-command edge --data-dir {data}"), "");
        (said.code == 0).then_some(said)
    });
    assert!(said.err.contains("warning: 127.0.0.1") && said.err.contains("--advertise"), "{}", said.err);
    assert!(said.out.contains("| $(command -v sudo) sh -s -"), "{}", said.out);
    assert!(!said.out.contains("| sudo"), "{}", said.out);
}

/// Any JSON in which an object has a key twice is none.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Once, D::Error> {
        deserializer.deserialize_any(Once)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Once;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_str<E>(self, _: &str) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_unit<E>(self) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Once, A::Error> {
        while list.next_element::<Once>()?.is_some() {}
        Ok(Once)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some((key, _)) = map.next_entry::<String, Once>()? {
            if !keys.insert(key.clone()) {
                return Err(serde::de::Error::custom(format!("{key} is there twice")));
            }
        }
        Ok(Once)
    }
}

#[track_caller]
fn check_json(log: &str) {
    for line in log.lines() {
        let read: Result<Once, _> = serde_json::from_str(line);
        if let Err(error) = read {
            panic!("{error}: {line}");
        }
        let line: Value = serde_json::from_str(line).unwrap();
        for key in ["timestamp", "level", "message"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
    }
}

#[test]
fn json_logs_are_json_to_the_last_line() {
    let place = Place::new();
    let log = place.join("log");
    let mut command = remuda();
    command.args([
        "server",
        "--bind",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--log-level",
        "debug",
        "--data-dir",
    ]);
    command.arg(place.data()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let read = || fs::read_to_string(&log).unwrap();
    // The controllers are at work once the first user is there.
    while !read().contains("\"password\":") {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", read());
        std::thread::sleep(Duration::from_millis(100));
    }
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(read().lines().count() > 5, "{}", read());
    check_json(&read());

    let text = ended_with(
        remuda().args(["server", "--log-format", "json", "--tls-cert", "x", "--data-dir"]).arg(place.data()),
        2,
    );
    check_json(&text);
    assert!(text.contains("--tls-cert needs --tls-key as well"), "{text}");
}

/// A command of kubectl as the administrator; nothing if there is no kubectl.
pub(crate) fn kubectl(desk: &Desk, line: &str) -> Option<String> {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(desk.server.kubeconfig()).args(line.split(' '));
    let Ok(output) = command.env("HOME", desk.place.join("home")).output() else {
        skipped("there is no kubectl in PATH");
        return None;
    };
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn kubectl_shows_all_settings_and_what_they_are() {
    let desk = Desk::open();
    let settings = desk.objects("management.cattle.io", "v3", "Setting", None);
    // The last that are made.
    desk.until(|| desk.runtime.block_on(settings.get_opt("install-uuid")).unwrap());
    let Some(text) = kubectl(&desk, "get settings.management.cattle.io") else { return };
    let header: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "VALUE", "DEFAULT"]);
    for (name, default) in [
        ("auth-token-max-ttl-minutes", "129600"),
        ("auth-user-session-ttl-minutes", "960"),
        ("auth-second-factor", "off"),
        ("password-min-length", "12"),
        ("system-agent-installer-token-long-ttl", "1800s"),
        ("agent-tls-mode", "strict"),
    ] {
        let row = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        assert!(row.split_whitespace().any(|word| word == default), "{row}");
    }
    for name in
        ["crt-default-ttl-minutes", "system-default-registry-pull-secrets", "rke2-provisioning-prime-default"]
    {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn a_cluster_has_events_of_its_life() {
    let desk = Desk::open();
    desk.cluster("edge");
    let events = desk.objects("", "v1", "Event", Some("fleet-default"));
    let reasons = || -> Vec<String> {
        let list = desk.runtime.block_on(events.list(&Default::default())).unwrap();
        let about = list.items.iter().filter(|event| {
            event.data["involvedObject"]["kind"] == "Cluster"
                && event.data["involvedObject"]["name"] == "edge"
        });
        about.map(|event| event.data["reason"].as_str().unwrap_or_default().to_owned()).collect()
    };
    desk.until(|| reasons().contains(&"Importing".to_owned()).then_some(()));
    desk.admin("cluster delete edge --yes");
    desk.until(|| reasons().contains(&"Deleting".to_owned()).then_some(()));
    assert_eq!(reasons().iter().filter(|reason| *reason == "Importing").count(), 1, "{:?}", reasons());
}
