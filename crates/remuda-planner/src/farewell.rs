//! The last plan of a server that is taken out of its cluster and goes on to exist: it is left as it came.
//!
//! Servers that drivers make are deleted, and need none.

use jiff::{SignedDuration, Timestamp};
use remuda_distro::Distro;
use remuda_plan::{
    Report, key,
    node_plan::{Instruction, NodePlan},
    sha256_hex,
};

use crate::{
    input::PlanSecret,
    output::{Delivery, PlanWrite},
};

/// How long a server is waited for. One that is switched off cannot be cleaned.
pub const LIMIT: SignedDuration = SignedDuration::from_mins(3);
/// How often its agent tries.
const TRIES: i64 = 3;
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
    /// Since when it is to go.
    pub deleted: Timestamp,
    pub now: Timestamp,
    /// `None` if it has none, or none any more.
    pub secret: Option<&'a PlanSecret>,
    pub wanted: &'a [u8],
    /// The agent is known to be away.
    pub away: bool,
    /// Somebody wants it to stay as it is.
    pub kept: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
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
    Kept,
    /// As it is: its agent is away, failed, or took too long.
    Away,
    Failed,
    TooLong,
}

impl Gone {
    /// Whether something of ours may be left on it.
    pub fn is_left(self) -> bool {
        matches!(self, Gone::Away | Gone::Failed | Gone::TooLong)
    }
}

pub fn decide(view: &View<'_>) -> Step {
    let Some(secret) = view.secret else { return Step::Go(Gone::Untouched) };
    if view.kept {
        return Step::Go(Gone::Kept);
    }
    let value = |name: &str| secret.data.get(name).map(Vec::as_slice).unwrap_or_default();
    if value(key::APPLIED_CHECKSUM).is_empty() && value(key::FAILED_CHECKSUM).is_empty() {
        return Step::Go(Gone::Untouched);
    }
    let delivered = value(key::PLAN) == view.wanted;
    let report = Report::read(value);
    let applied = report.applied || value(key::APPLIED_CHECKSUM) == sha256_hex(view.wanted).as_bytes();
    if delivered && applied {
        return Step::Go(Gone::Clean);
    }
    if delivered && report.gave_up {
        return Step::Go(Gone::Failed);
    }
    if view.away {
        return Step::Go(Gone::Away);
    }
    let left = LIMIT - view.now.duration_since(view.deleted);
    if left <= SignedDuration::ZERO {
        return Step::Go(Gone::TooLong);
    }
    if delivered { Step::Wait(left) } else { Step::Deliver }
}

/// How the plan is written to the Secret of a machine.
pub fn write(machine: &str, secret: &str, plan: Vec<u8>) -> PlanWrite {
    PlanWrite {
        machine: machine.to_owned(),
        secret: secret.to_owned(),
        delivery: Delivery::Changed { restarts: false },
        plan,
        joined_to: None,
        max_failures: Some(TRIES),
        failure_threshold: Some(1),
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_server_is_cleaned_once_and_not_waited_for_in_vain() {
        let wanted = b"{}".as_slice();
        let sum = sha256_hex(wanted);
        let secret = |pairs: &[(&str, &[u8])]| PlanSecret {
            data: pairs.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect(),
            ..PlanSecret::default()
        };
        let check = |pairs: Option<&[(&str, &[u8])]>, now: i64, away: bool, kept: bool, expected: Step| {
            let secret = pairs.map(secret);
            let view = View { deleted: at(0), now: at(now), secret: secret.as_ref(), wanted, away, kept };
            assert_eq!(decide(&view), expected, "{pairs:?}");
        };
        let old: &[(&str, &[u8])] = &[(key::PLAN, b"{\"files\":[]}"), (key::APPLIED_CHECKSUM, b"old")];
        let sent: &[(&str, &[u8])] = &[(key::PLAN, wanted), (key::APPLIED_CHECKSUM, b"old")];
        let done: &[(&str, &[u8])] = &[(key::PLAN, wanted), (key::APPLIED_CHECKSUM, sum.as_bytes())];
        let failed: &[(&str, &[u8])] = &[
            (key::PLAN, wanted),
            (key::APPLIED_CHECKSUM, b"old"),
            (key::FAILED_CHECKSUM, sum.as_bytes()),
            (key::FAILURE_COUNT, b"3"),
            (key::MAX_FAILURES, b"3"),
        ];
        check(None, 0, false, false, Step::Go(Gone::Untouched));
        check(Some(&[(key::PLAN, b"{\"files\":[]}")]), 0, false, false, Step::Go(Gone::Untouched));
        check(Some(old), 0, false, false, Step::Deliver);
        check(Some(old), 0, false, true, Step::Go(Gone::Kept));
        check(Some(old), 0, true, false, Step::Go(Gone::Away));
        check(Some(sent), 60, false, false, Step::Wait(SignedDuration::from_secs(120)));
        check(Some(sent), 180, false, false, Step::Go(Gone::TooLong));
        check(Some(done), 500, true, false, Step::Go(Gone::Clean));
        check(Some(failed), 10, false, false, Step::Go(Gone::Failed));
    }
}
