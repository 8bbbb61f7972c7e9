//! What a machine needs, and whether it gets it: from what the server has, and what the machine is.

use std::{borrow::Cow, collections::BTreeSet};

use remuda_oci::Architecture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    object::Object,
    table::{Cell, Table, Tone},
};

/// What the server has of what plans need.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Answer {
    pub(super) version: String,
    items: Vec<Item>,
    /// Where machines on the server's host find the installer by themselves.
    local: Option<Local>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Local {
    at: String,
    needs_nothing: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct Item {
    kind: Kind,
    /// Machines of which kind; all if none is named.
    platform: Option<String>,
    name: String,
    state: State,
    message: String,
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Agent,
    Installer,
    ClusterAgent,
    SystemImages,
    /// Of a newer server.
    #[serde(other)]
    Other,
}

/// Better ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ready,
    Elsewhere,
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Elsewhere => "elsewhere",
            State::Missing => "missing",
        }
    }

    fn tone(self) -> Tone {
        match self {
            State::Ready => Tone::Good,
            State::Elsewhere => Tone::Busy,
            State::Missing => Tone::Bad,
        }
    }
}

/// A machine, as far as it counts here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) name: String,
    /// `linux/amd64`; empty if its node has not told yet.
    pub(super) platform: String,
    /// Made on the server's host: it reaches the server and nothing else.
    pub(super) is_local: bool,
}

/// What a machine needs, and whether it gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// Kind of machines of the driver `local`.
const LOCAL_MACHINE: &str = "LocalMachine";

pub(super) fn machine(object: &Object) -> Machine {
    let (system, architecture) =
        (object.text("/status/nodeInfo/operatingSystem"), object.text("/status/nodeInfo/architecture"));
    Machine {
        name: object.name().to_owned(),
        platform: match architecture {
            "" => String::new(),
            architecture => format!("{}/{architecture}", if system.is_empty() { "linux" } else { system }),
        },
        is_local: object.text("/spec/infrastructureRef/kind") == LOCAL_MACHINE,
    }
}

/// Whether there can be agents for a platform. Nodes tell what theirs is, and may tell anything.
pub(super) fn is_known(platform: &str) -> bool {
    platform.split_once('/').is_some_and(|(system, architecture)| {
        matches!(system, "linux" | "windows") && Architecture::named(architecture).is_some()
    })
}

/// What a machine needs of all that was looked for. `own` is the server's own platform.
pub(super) fn needs(machine: &Machine, answer: &Answer, own: &str, offline: bool) -> Vec<Need> {
    let platform = if machine.platform.is_empty() { own } else { machine.platform.as_str() };
    if !is_known(platform) {
        return vec![Need {
            name: "agent".to_owned(),
            state: State::Missing,
            message: format!("there are no agents for {platform}"),
            hint: None,
        }];
    }
    let of_this = |item: &&Item| item.platform.as_deref().is_none_or(|wanted| wanted == platform);
    let local = answer.local.as_ref().filter(|_| machine.is_local);
    let mut needs = Vec::new();
    for item in answer.items.iter().filter(of_this) {
        let mut need = Need {
            name: item.name.clone(),
            state: item.state,
            message: item.message.clone(),
            hint: item.hint.clone(),
        };
        match (local, item.kind) {
            // It is there before the server is asked.
            (Some(local), Kind::Installer) => {
                (need.state, need.message, need.hint) = (State::Ready, local.at.clone(), None);
            }
            (Some(local), Kind::SystemImages) if local.needs_nothing => continue,
            // Whether all of them are in its directory is not known; that no registry gives it others is.
            (_, Kind::SystemImages) => {}
            _ if need.state == State::Elsewhere && (machine.is_local || offline) => {
                need.state = State::Missing;
                if machine.is_local {
                    need.message =
                        "not on this server, and machines on its host reach nothing else".to_owned();
                }
            }
            _ => {}
        }
        if offline && need.state == State::Elsewhere {
            need.state = State::Missing;
        }
        needs.push(need);
    }
    needs
}

/// What is the matter with a cluster, in one word.
pub(super) fn worst(all: &[(Machine, Vec<Need>)]) -> State {
    let states = all.iter().flat_map(|(_, needs)| needs).map(|need| need.state);
    states.max().unwrap_or(State::Ready)
}

/// What to do, each thing once, and only about the worst.
pub(super) fn hints(all: &[(Machine, Vec<Need>)]) -> Vec<String> {
    let worst = worst(all);
    let mut seen = BTreeSet::new();
    let needs = all.iter().flat_map(|(_, needs)| needs);
    needs
        .filter(|need| need.state == worst && worst != State::Ready)
        .filter_map(|need| need.hint.clone())
        .filter(|hint| seen.insert(hint.clone()))
        .collect()
}

/// Machines of the platform this program was built for are what most servers make.
pub(super) const OWN: &str = match std::env::consts::ARCH.as_bytes() {
    b"aarch64" => "linux/arm64",
    _ => "linux/amd64",
};

pub(super) fn document(name: &str, answer: &Answer, all: &[(Machine, Vec<Need>)]) -> Value {
    let machines: Vec<Value> = all
        .iter()
        .map(|(machine, needs)| {
            let needs: Vec<Value> = needs
                .iter()
                .map(|need| {
                    json!({"name": need.name, "state": need.state.word(), "message": need.message,
                        "hint": need.hint})
                })
                .collect();
            json!({"name": machine.name, "platform": machine.platform, "needs": needs})
        })
        .collect();
    json!({
        "cluster": name,
        "version": answer.version,
        "state": worst(all).word(),
        "machines": machines,
    })
}

/// A line for each machine and thing; those that are ready share one unless all was asked for.
pub(super) fn table(all: &[(Machine, Vec<Need>)], whole: bool) -> Table {
    let mut table = Table::new(["MACHINE", "PLATFORM", "STATE", "NEEDS", "WHERE"]);
    for (machine, needs) in all {
        let platform: Cow<'_, str> = match machine.platform.as_str() {
            "" => format!("{OWN}?").into(),
            platform => platform.into(),
        };
        let shown: Vec<&Need> = needs.iter().filter(|need| whole || need.state != State::Ready).collect();
        let mut row = |state: State, name: &str, message: &str| {
            table.row(vec![
                machine.name.as_str().into(),
                platform.as_ref().into(),
                Cell::toned(state.word(), state.tone()),
                name.into(),
                message.into(),
            ]);
        };
        if shown.is_empty() {
            row(State::Ready, "all", "from this server");
        }
        shown.iter().for_each(|need| row(need.state, &need.name, &need.message));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(installer: &str, local: Option<Value>) -> Answer {
        let amd = |kind: &str, name: &str, state: &str| {
            json!({"kind": kind, "platform": "linux/amd64", "name": name, "state": state, "message": "m",
                "hint": "do it"})
        };
        let arm = json!({"kind": "agent", "platform": "linux/arm64", "name": "agent for linux/arm64",
            "state": "missing", "message": "none", "hint": "remuda assets add FILE"});
        let system =
            json!({"kind": "system-images", "name": "9 images", "state": "elsewhere", "message": "c"});
        let value = json!({
            "version": "v1.35.1+k3s1",
            "items": [amd("agent", "agent", "ready"), amd("installer", "image", installer), arm, system,
                {"kind": "of a newer server", "name": "x", "state": "ready", "message": ""}],
            "local": local,
        });
        serde_json::from_value(value).unwrap()
    }

    fn one(platform: &str, is_local: bool) -> Machine {
        Machine { name: "m".to_owned(), platform: platform.to_owned(), is_local }
    }

    #[track_caller]
    fn check(machine: &Machine, answer: &Answer, offline: bool, expected: &str) {
        let needs = needs(machine, answer, "linux/amd64", offline);
        let found: Vec<String> =
            needs.iter().map(|need| format!("{} {}", need.name, need.state.word())).collect();
        assert_eq!(found.join(", "), expected);
    }

    #[test]
    fn a_machine_needs_what_is_made_for_it() {
        let ready = answer("ready", None);
        check(
            &one("linux/amd64", false),
            &ready,
            false,
            "agent ready, image ready, 9 images elsewhere, x ready",
        );
        check(&one("", false), &ready, false, "agent ready, image ready, 9 images elsewhere, x ready");
        check(&one("linux/riscv64", false), &ready, false, "agent missing");
        check(&one("linux/amd64&cluster=x", false), &ready, false, "agent missing");
        check(
            &one("linux/arm64", false),
            &ready,
            false,
            "agent for linux/arm64 missing, 9 images elsewhere, x ready",
        );
    }

    #[test]
    fn what_is_elsewhere_is_missing_where_nothing_else_is_reached() {
        let elsewhere = answer("elsewhere", None);
        let expected =
            |image: &str, system: &str| format!("agent ready, image {image}, 9 images {system}, x ready");
        check(&one("linux/amd64", false), &elsewhere, false, &expected("elsewhere", "elsewhere"));
        check(&one("linux/amd64", false), &elsewhere, true, &expected("missing", "missing"));
        check(&one("linux/amd64", true), &elsewhere, false, &expected("missing", "elsewhere"));
        let there = |nothing: bool| Some(json!({"at": "sandbox", "needsNothing": nothing}));
        let local = one("linux/amd64", true);
        check(&local, &answer("elsewhere", there(true)), false, "agent ready, image ready, x ready");
        check(&local, &answer("missing", there(false)), false, &expected("ready", "elsewhere"));
        check(
            &one("linux/amd64", false),
            &answer("elsewhere", there(true)),
            false,
            &expected("elsewhere", "elsewhere"),
        );
    }

    #[test]
    fn a_hint_is_given_once_and_about_the_worst() {
        let answer = answer("missing", None);
        let all: Vec<_> = ["linux/amd64", "linux/amd64", "linux/arm64"]
            .map(|platform| one(platform, false))
            .into_iter()
            .map(|machine| (machine.clone(), needs(&machine, &answer, "linux/amd64", false)))
            .collect();
        assert_eq!(worst(&all), State::Missing);
        assert_eq!(hints(&all), ["do it", "remuda assets add FILE"]);
        assert!(table(&all, false).render("").contains("missing"));
        assert_eq!(document("demo", &answer, &all)["machines"][2]["needs"][0]["state"], "missing");
    }
}
