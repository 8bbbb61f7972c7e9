//! Certificates that are rotated before they end, without being asked for: when, and within which windows.
//!
//! It is told beforehand in `status.certificateRenewal`, holds nothing up while it waits, and once it has begun it goes
//! on to its end, window or not: half of a rotation is worse than a long one.

use jiff::{SignedDuration, Timestamp};
use remuda_distro::{
    certificates::RENEWED_WITHIN_DAYS,
    maintenance::{Opening, Windows},
};
use remuda_names::{
    provisioning::annotation::{MAINTENANCE_WINDOW, ROTATE_CERTIFICATES, ROTATE_CERTIFICATES_AUTO as AUTO},
    rancher::condition,
    waiting,
};

use serde::Deserialize;

use super::certificates::{self, Rotation};
use crate::{
    entry::Entry,
    input::ControlPlane,
    join,
    output::{Operation, Waiting},
    planner::{Pass, Stop},
    spec::CertificateRenewal,
};

/// What nodes say of their certificates may be wrong, and is then not believed again for so long.
const AGAIN: SignedDuration = SignedDuration::from_hours(30 * 24);
const WITHIN: SignedDuration = SignedDuration::from_hours(RENEWED_WITHIN_DAYS * 24);
/// What one machine takes, roughly.
const PER_MACHINE: SignedDuration = SignedDuration::from_mins(5);

/// Name of the periodic instruction that says when the first certificate of a node ends.
pub(crate) const CERTIFICATES: &str = "certificates";

/// Whether certificates are to be rotated before they end.
pub(crate) fn is_wanted(control_plane: &ControlPlane) -> bool {
    control_plane.annotations.get(ROTATE_CERTIFICATES).is_some_and(|value| value == AUTO)
}

#[derive(Deserialize)]
struct Told {
    expires: Timestamp,
}

/// When the first certificate of a node ends: as its agent says, or as its Machine does.
fn expiry(entry: &Entry<'_>) -> Option<Timestamp> {
    let told = join::periodic(entry, CERTIFICATES);
    let told = told.and_then(|text| serde_json::from_str::<Told>(text.trim()).ok());
    [told.map(|told| told.expires), entry.machine.certificates_until].into_iter().flatten().min()
}

pub(crate) fn run(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let known = pass.status.certificate_renewal.clone().unwrap_or_default();
    let control_plane = &pass.input.control_plane;
    let staying = || pass.entries.iter().filter(|entry| entry.node.is_some() && !entry.machine.deleting);
    let earliest = staying().filter_map(|entry| Some((expiry(entry)?, entry.name())));
    let paused = control_plane.paused || pass.input.cluster.as_ref().is_some_and(|cluster| cluster.paused);
    let decision = decide(&Facts {
        wanted: is_wanted(control_plane),
        windows: control_plane.annotations.get(MAINTENANCE_WINDOW).map_or("", String::as_str),
        // What is not as it should be is not disturbed any further.
        calm: !paused
            && pass.status.control_plane_initialized()
            && pass.status.is_true(condition::READY)
            && pass.status.applied_spec.as_ref() == Some(&control_plane.stored_spec),
        earliest: earliest.min(),
        machines: staying().count(),
        known: &known,
        now: pass.input.now,
    });
    match decision {
        Decision::Keep => Ok(()),
        Decision::Nothing { until } => {
            pass.status.certificate_renewal = Some(known.idle()).filter(|idle| idle.ended.is_some());
            pass.look_again(until);
            Ok(())
        }
        Decision::Wait { machine, expires, opens } => {
            let ended = known.ended;
            let code = waiting::MAINTENANCE_WINDOW.to_owned();
            let told =
                CertificateRenewal { code, machine, expires: Some(expires), opens, begun: None, ended };
            pass.status.certificate_renewal = Some(told);
            pass.look_again(opens);
            Ok(())
        }
        Decision::Begin { machine, expires } => {
            let begun = Some(whole(pass.input.now));
            let told = CertificateRenewal {
                machine,
                expires: Some(expires),
                begun,
                ..CertificateRenewal::default()
            };
            pass.status.certificate_renewal = Some(told);
            // Kept before the first machine is told, so that the next pass finishes it after a restart, too.
            Err(Waiting::Begun(Operation::RotateCertificates).into())
        }
        Decision::GoOn { begun } => {
            let value = begun.to_string();
            certificates::carry_out(pass, &Rotation { value: &value, services: &[] })?;
            ended(pass);
            Err(Waiting::CertificatesRotated.into())
        }
    }
}

/// All certificates were rotated, whether or not that was asked for.
pub(crate) fn ended(pass: &mut Pass<'_>) {
    let renewal = pass.status.certificate_renewal.get_or_insert_default();
    *renewal = CertificateRenewal { ended: Some(whole(pass.input.now)), ..renewal.idle() };
}

fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

impl CertificateRenewal {
    /// What stays of it when nothing is due.
    fn idle(&self) -> CertificateRenewal {
        CertificateRenewal { ended: self.ended, ..CertificateRenewal::default() }
    }
}

/// What the decision depends on.
struct Facts<'a> {
    wanted: bool,
    /// As they are written.
    windows: &'a str,
    calm: bool,
    /// Which certificates end first.
    earliest: Option<(Timestamp, &'a str)>,
    machines: usize,
    known: &'a CertificateRenewal,
    now: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is no time to decide.
    Keep,
    Nothing {
        /// Before this.
        until: Option<Timestamp>,
    },
    Wait {
        machine: String,
        expires: Timestamp,
        /// Nothing if no window opens within two weeks, or they cannot be read.
        opens: Option<Timestamp>,
    },
    Begin {
        machine: String,
        expires: Timestamp,
    },
    GoOn {
        begun: Timestamp,
    },
}

fn decide(facts: &Facts<'_>) -> Decision {
    let Facts { now, known, .. } = *facts;
    if let (Some(begun), None) = (known.begun, known.ended) {
        return Decision::GoOn { begun };
    }
    let Some((expires, machine)) = facts.earliest.filter(|_| facts.wanted) else {
        return Decision::Nothing { until: None };
    };
    let due = expires.saturating_sub(WITHIN).unwrap_or(Timestamp::MIN);
    let again = known.ended.and_then(|ended| ended.saturating_add(AGAIN).ok());
    let from = again.map_or(due, |again| again.max(due));
    if now < from {
        return Decision::Nothing { until: Some(from) };
    }
    if !facts.calm {
        return Decision::Keep;
    }
    let machine = machine.to_owned();
    if facts.windows.is_empty() {
        return Decision::Begin { machine, expires };
    }
    // What cannot be read opens nothing.
    let Ok(windows) = Windows::parse(facts.windows) else {
        return Decision::Wait { machine, expires, opens: None };
    };
    match windows.at(now) {
        Opening::Open { since, until } if fits(facts.machines, since, until, now) => {
            Decision::Begin { machine, expires }
        }
        Opening::Open { .. } | Opening::Closed { .. } => {
            Decision::Wait { machine, expires, opens: windows.next(now) }
        }
    }
}

/// Whether enough is left of a window. In one that is too short for all machines it begins in the first half.
fn fits(machines: usize, since: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    let machines = i32::try_from(machines).unwrap_or(i32::MAX);
    let needed = PER_MACHINE.saturating_mul(machines).min(until.duration_since(since) / 2);
    until.duration_since(now) >= needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn leaked(known: &CertificateRenewal) -> &'static CertificateRenewal {
        Box::leak(Box::new(known.clone()))
    }

    const SATURDAYS: &str = "Sat 01:00-05:00 Europe/Berlin";

    /// Certificates that end in the middle of January, and what is decided about them.
    #[track_caller]
    fn check(now: &str, change: impl FnOnce(&mut Facts<'_>), expected: &str) {
        let expires = at("2027-01-16T00:00:00Z");
        let known = CertificateRenewal::default();
        let mut facts = Facts {
            wanted: true,
            windows: SATURDAYS,
            calm: true,
            earliest: Some((expires, "m")),
            machines: 3,
            known: &known,
            now: at(now),
        };
        change(&mut facts);
        let told = match decide(&facts) {
            Decision::Keep => "keep".to_owned(),
            Decision::Nothing { until: None } => "nothing".to_owned(),
            Decision::Nothing { until: Some(until) } => format!("nothing until {until}"),
            Decision::Wait { opens: None, .. } => "wait".to_owned(),
            Decision::Wait { opens: Some(opens), machine, expires: told } => {
                assert_eq!((machine.as_str(), told), ("m", expires));
                format!("wait until {opens}")
            }
            Decision::Begin { .. } => "begin".to_owned(),
            Decision::GoOn { begun } => format!("go on since {begun}"),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn it_begins_when_certificates_end_soon_and_within_a_window() {
        // 90 days before, on a Sunday.
        check("2026-10-17T23:59:59Z", |_| {}, "nothing until 2026-10-18T00:00:00Z");
        // Saturdays begin two hours earlier in UTC in summer, and one in winter: clocks are set on the 25th.
        check("2026-10-18T00:00:00Z", |_| {}, "wait until 2026-10-23T23:00:00Z");
        check("2026-10-24T12:00:00Z", |_| {}, "wait until 2026-10-31T00:00:00Z");
        check("2026-10-31T00:00:00Z", |_| {}, "begin");
        // Fifteen minutes for three machines.
        check("2026-10-31T03:45:00Z", |_| {}, "begin");
        check("2026-10-31T03:45:01Z", |_| {}, "wait until 2026-11-07T00:00:00Z");
        check("2026-10-18T00:00:00Z", |facts| facts.windows = "", "begin");
        // All of them are more than fit into the window: it begins in its first half.
        check("2026-10-31T02:00:00Z", |facts| facts.machines = 1000, "begin");
        check("2026-10-31T02:00:01Z", |facts| facts.machines = 1000, "wait until 2026-11-07T00:00:00Z");
        check("2026-10-31T00:00:00Z", |facts| facts.windows = "Sat 25:00-26:00", "wait");
        // They have ended already.
        check("2027-02-06T00:00:00Z", |_| {}, "begin");
    }

    #[test]
    fn nothing_begins_unasked_in_trouble_or_without_knowing() {
        let inside = "2026-10-31T00:00:00Z";
        check(inside, |facts| facts.wanted = false, "nothing");
        check(inside, |facts| facts.earliest = None, "nothing");
        check(inside, |facts| facts.calm = false, "keep");
    }

    #[test]
    fn what_has_begun_is_finished_and_not_begun_again_soon() {
        let begun = Some(at("2026-10-31T00:00:00Z"));
        let running = CertificateRenewal { begun, ..CertificateRenewal::default() };
        let stopped =
            |facts: &mut Facts<'_>| (facts.wanted, facts.calm, facts.earliest) = (false, false, None);
        check(
            "2026-10-31T09:00:00Z",
            |facts| {
                stopped(facts);
                facts.known = leaked(&running);
            },
            "go on since 2026-10-31T00:00:00Z",
        );
        let ended = CertificateRenewal { ended: begun, ..CertificateRenewal::default() };
        let known = |facts: &mut Facts<'_>| facts.known = leaked(&ended);
        // A node that says the same as before, whatever is done.
        check("2026-11-07T00:00:00Z", known, "nothing until 2026-11-30T00:00:00Z");
        check("2026-12-05T00:00:00Z", known, "begin");
    }
}
