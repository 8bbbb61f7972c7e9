//! The last plan of a server that is taken out of its cluster and goes on to exist: it is left as it came.
//!
//! Servers that drivers make are deleted, and need none.

use jiff::{SignedDuration, Timestamp};
use remuda_distro::Distro;
use remuda_names::{
    annotation::{ETCD_LEAVING, LAST_PLAN},
    rancher::annotation,
};
use remuda_plan::{
    Report, key,
    node_plan::{Instruction, NodePlan},
    sha256_hex,
};

use crate::{
    entry::Roles,
    input::PlanSecret,
    output::{Delivery, PlanWrite},
    spec::rfc3339,
};

/// How long a server is waited for. One that is switched off cannot be cleaned.
pub const LIMIT: SignedDuration = SignedDuration::from_mins(3);
/// Uninstall scripts take themselves along: a second try would find nothing to run and call that clean.
const TRIES: i64 = 1;
const SCRIPT: &str = include_str!("farewell/clean.sh");

/// Where things are on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places<'a> {
    pub distro: Distro,
    /// Directories of the cluster; empty is the usual one.
    pub data: &'a str,
    pub provisioning: &'a str,
    pub agent: &'a str,
}

/// The plan: one instruction that removes the distribution, what the planner left, and the agent.
pub fn last_plan(places: &Places<'_>) -> Vec<u8> {
    let or = |own: &str, usual: &str| if own.is_empty() { usual.to_owned() } else { own.to_owned() };
    let mut env = vec![
        format!("{}_DATA_DIR={}", places.distro.env_prefix(), or(places.data, places.distro.data_dir())),
        format!("PROVISIONING_DIR={}", or(places.provisioning, crate::distro::PROVISIONING_DIR)),
    ];
    if !places.agent.is_empty() {
        env.push(format!("{}={}", remuda_names::rancher::env::AGENT_VAR_DIR, places.agent));
    }
    let instruction = Instruction {
        name: "clean".to_owned(),
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), SCRIPT.to_owned()],
        env,
        save_output: true,
        ..Instruction::default()
    };
    NodePlan { instructions: vec![instruction], ..NodePlan::default() }.encode()
}

/// What is known of a server that is to go.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub now: Timestamp,
    pub machine: Owner,
    /// `None` if it has none, or none any more.
    pub secret: Option<&'a PlanSecret>,
    /// The agent is known to be away.
    pub away: bool,
    /// Somebody wants it to stay as it is.
    pub kept: bool,
}

/// The Machine of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Gone,
    /// Nobody asked for it to go, only for the object that stands for its server.
    Staying,
    /// It goes, and something has to happen before its server may: its member of etcd leaves.
    Hooked,
    Going,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The hook of the Machine is waited for.
    Hold,
    /// It has the plan; so long it may take.
    Wait(SignedDuration),
    Deliver,
    /// It may go, and why.
    Go(Gone),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    Clean,
    /// No agent ever reported: nothing was put there.
    Untouched,
    /// Somebody wants it so, or its Machine stays.
    Kept,
    /// As it is: its agent is away, failed, or took too long.
    Away,
    Failed,
    TooLong,
}

impl Gone {
    /// Whether something of ours may be left on it against the will of whoever deleted its Machine.
    pub fn is_left(self) -> bool {
        matches!(self, Gone::Away | Gone::Failed | Gone::TooLong)
    }
}

pub fn decide(view: &View<'_>) -> Step {
    match view.machine {
        // Without a Machine in deletion nobody asked for a server to be wiped.
        Owner::Gone => return Step::Go(Gone::Untouched),
        Owner::Staying => return Step::Go(Gone::Kept),
        Owner::Hooked | Owner::Going => {}
    }
    if view.kept {
        return Step::Go(Gone::Kept);
    }
    let Some(secret) = view.secret else { return Step::Go(Gone::Untouched) };
    let value = |name: &str| secret.data.get(name).map(Vec::as_slice).unwrap_or_default();
    let Some(since) = delivered(secret) else {
        return match view {
            _ if !key::REPORTED.iter().any(|name| secret.data.contains_key(*name)) => {
                Step::Go(Gone::Untouched)
            }
            View { machine: Owner::Hooked, .. } => Step::Hold,
            View { away: true, .. } => Step::Go(Gone::Away),
            _ => Step::Deliver,
        };
    };
    let report = Report::read(value);
    if report.applied || value(key::APPLIED_CHECKSUM) == sha256_hex(value(key::PLAN)).as_bytes() {
        return Step::Go(Gone::Clean);
    }
    if report.gave_up {
        return Step::Go(Gone::Failed);
    }
    match LIMIT - view.now.duration_since(since) {
        left if left > SignedDuration::ZERO => Step::Wait(left),
        _ => Step::Go(Gone::TooLong),
    }
}

/// Since when the plan in a Secret is the last one. It is known by its checksum: what the cluster says now may be
/// something else than when it was made.
fn delivered(secret: &PlanSecret) -> Option<Timestamp> {
    let sum = secret.annotations.get(LAST_PLAN)?;
    if *sum != sha256_hex(secret.data.get(key::PLAN)?) {
        return None;
    }
    let at = secret.annotations.get(annotation::PLAN_LAST_UPDATED)?;
    at.parse().ok()
}

/// Makes a plan the last one of a machine. Its member of etcd is not relied upon any more, however it left: a clean
/// server has no probes that could fail.
pub fn deliver(machine: &str, secret: &mut PlanSecret, plan: Vec<u8>, now: Timestamp) {
    secret.annotations.insert(LAST_PLAN.to_owned(), sha256_hex(&plan));
    if Roles::of(&secret.labels).etcd {
        secret.annotations.entry(ETCD_LEAVING.to_owned()).or_insert_with(|| rfc3339(now));
    }
    let write = PlanWrite {
        machine: machine.to_owned(),
        secret: secret.name.clone(),
        delivery: Delivery::Changed { restarts: false },
        plan,
        joined_to: None,
        max_failures: Some(TRIES),
        failure_threshold: Some(1),
    };
    write.apply(secret, now);
}

#[cfg(test)]
mod tests {
    use remuda_names::rancher::label;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_last_plan_knows_where_things_are() {
        let text = |places: &Places<'_>| String::from_utf8(last_plan(places)).unwrap();
        let usual = Places { distro: Distro::K3s, data: "", provisioning: "", agent: "" };
        let plan = text(&usual);
        assert!(plan.contains("\"K3S_DATA_DIR=/var/lib/rancher/k3s\""), "{plan}");
        assert!(plan.contains("\"PROVISIONING_DIR=/var/lib/rancher/capr\""), "{plan}");
        assert!(!plan.contains("CATTLE_AGENT_VAR_DIR="), "{plan}");
        let own = Places {
            distro: Distro::Rke2,
            data: "/srv/rke2",
            provisioning: "/srv/capr",
            agent: "/srv/agent",
        };
        let plan = text(&own);
        for part in
            ["RKE2_DATA_DIR=/srv/rke2", "PROVISIONING_DIR=/srv/capr", "CATTLE_AGENT_VAR_DIR=/srv/agent"]
        {
            assert!(plan.contains(part), "{plan}");
        }
    }

    const PLAN: &[u8] = b"{}";

    /// Pairs are data of the plan Secret; `last` is the last plan, delivered at 0.
    #[track_caller]
    fn check(machine: Owner, pairs: Option<&[(&str, &[u8])]>, now: i64, words: &str, expected: Step) {
        let has = |word: &str| words.split(' ').any(|known| known == word);
        let secret = pairs.map(|pairs| {
            let mut secret = PlanSecret {
                data: pairs.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect(),
                ..PlanSecret::default()
            };
            if has("last") {
                let reported = secret.data.clone();
                deliver("m", &mut secret, PLAN.to_vec(), at(0));
                secret.data.extend(reported);
                secret.data.insert(key::PLAN.to_owned(), PLAN.to_vec());
            }
            secret
        });
        let view =
            View { now: at(now), machine, secret: secret.as_ref(), away: has("away"), kept: has("kept") };
        assert_eq!(decide(&view), expected, "{machine:?} {pairs:?} {words}");
    }

    #[test]
    fn a_server_is_cleaned_once_and_not_waited_for_in_vain() {
        let sum = sha256_hex(PLAN);
        let old: &[(&str, &[u8])] = &[(key::PLAN, b"{\"files\":[]}"), (key::APPLIED_CHECKSUM, b"old")];
        let sent: &[(&str, &[u8])] = &[(key::APPLIED_CHECKSUM, b"old")];
        let done: &[(&str, &[u8])] = &[(key::APPLIED_CHECKSUM, sum.as_bytes())];
        let failed: &[(&str, &[u8])] = &[
            (key::APPLIED_CHECKSUM, b"old"),
            (key::FAILED_CHECKSUM, sum.as_bytes()),
            (key::FAILURE_COUNT, b"1"),
            (key::MAX_FAILURES, b"1"),
        ];
        let wait = |seconds| Step::Wait(SignedDuration::from_secs(seconds));
        check(Owner::Going, None, 0, "", Step::Go(Gone::Untouched));
        check(Owner::Going, Some(&[(key::PLAN, b"{\"files\":[]}")]), 0, "", Step::Go(Gone::Untouched));
        check(Owner::Going, Some(old), 0, "", Step::Deliver);
        check(Owner::Going, Some(old), 0, "kept", Step::Go(Gone::Kept));
        check(Owner::Going, Some(old), 0, "away", Step::Go(Gone::Away));
        check(Owner::Going, Some(sent), 60, "last", wait(120));
        // It went away after it had the plan, as it does when it is done: only time tells.
        check(Owner::Going, Some(sent), 60, "last away", wait(120));
        check(Owner::Going, Some(sent), 180, "last", Step::Go(Gone::TooLong));
        check(Owner::Going, Some(done), 500, "last away", Step::Go(Gone::Clean));
        check(Owner::Going, Some(failed), 10, "last", Step::Go(Gone::Failed));
    }

    #[test]
    fn nothing_is_wiped_that_nobody_asked_for_or_whose_member_is_in_etcd() {
        let old: &[(&str, &[u8])] = &[(key::PLAN, b"{\"files\":[]}"), (key::APPLIED_CHECKSUM, b"old")];
        check(Owner::Gone, Some(old), 0, "", Step::Go(Gone::Untouched));
        check(Owner::Staying, Some(old), 0, "", Step::Go(Gone::Kept));
        check(Owner::Hooked, Some(old), 99_999, "", Step::Hold);
        check(Owner::Hooked, Some(old), 0, "away", Step::Hold);
        check(Owner::Hooked, Some(&[]), 0, "", Step::Go(Gone::Untouched));
    }

    #[test]
    fn a_plan_that_another_one_took_the_place_of_is_delivered_again() {
        let mut secret = PlanSecret::default();
        secret.labels.insert(label::ETCD_ROLE.to_owned(), "true".to_owned());
        deliver("m", &mut secret, PLAN.to_vec(), at(7));
        assert_eq!(delivered(&secret), Some(at(7)));
        assert!(secret.annotations.contains_key(ETCD_LEAVING), "the member does not count as up");
        secret.data.insert(key::PLAN.to_owned(), b"{\"files\":[]}".to_vec());
        assert_eq!(delivered(&secret), None);
    }

    #[test]
    fn the_script_removes_only_what_plans_configured() {
        let lines: Vec<&str> = SCRIPT.lines().filter(|line| line.contains("rm -rf")).collect();
        assert_eq!(lines, ["rm -rf /etc/rancher/node \"$PROVISIONING_DIR/idempotence\""]);
        let guard = SCRIPT.find("50-rancher.yaml").unwrap();
        assert!(guard < SCRIPT.find("-uninstall.sh").unwrap());
    }
}
