//! Situations and what is decided in them, as text.

use super::*;
use crate::{
    machine::address::Address as Given,
    machine::view::{Address, Cluster, Initialization},
    state::Phase,
};

const NOW: i64 = 10_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A machine that can be made.
fn fresh() -> Observed {
    Observed {
        namespace: "ns".into(),
        name: "m".into(),
        kind: "DemoMachine".into(),
        driver: "demo".into(),
        provider_id: String::new(),
        deleting: false,
        force: false,
        rebooted: None,
        powered: None,
        paused: false,
        status: Status::default(),
        owner: Owner::Machine("m".into()),
        capi: Some(Capi {
            name: "m".into(),
            bootstrap_secret: Some("boot".into()),
            deleting: false,
            reboot: None,
            power: None,
        }),
        cluster: Some(Cluster { paused: false, provisioned: true }),
        node_driver: Some(NodeDriver { url: "u".into(), checksum: "c".into(), interruptible: true }),
        job: None,
        state: State::Unread,
        creation_barred: false,
        address: Asked::No,
        retire_after: Duration::ZERO,
        namespace_terminating: false,
    }
}

fn job(removes: bool, outcome: Outcome) -> Option<JobView> {
    Some(JobView {
        removes,
        reboots: None,
        powers: None,
        deleting: false,
        cancelled: false,
        waiting: None,
        waits_for_host: false,
        outcome,
        told: false,
    })
}

fn failed(message: &str, at: i64) -> Outcome {
    Outcome::Failed { message: message.into(), at: Some(self::at(at)) }
}

fn made(phase: Phase) -> State {
    let address = Address { kind: "ExternalIP".into(), address: "192.0.2.1".into() };
    State::Machine { phase, addresses: vec![address], host: None }
}

/// With a condition since a moment.
fn having(mut observed: Observed, kind: &str, is: Is, message: &str, since: i64) -> Observed {
    condition::set(&mut observed.status.conditions, kind, is, "", message, at(since));
    observed
}

fn deleting(mut observed: Observed, state: State) -> Observed {
    (observed.deleting, observed.state, observed.creation_barred) = (true, state, true);
    observed
}

/// What is decided: the act, when to look again, and the conditions.
fn told(observed: &Observed) -> String {
    let decision = decide(observed, at(NOW));
    let mut text = format!("{:?}", decision.act).split(' ').next().unwrap_or_default().to_owned();
    if let Some(after) = decision.after {
        text += &format!(" after {}s", after.as_secs());
    }
    for condition in &decision.status.conditions {
        let message = condition.message.replace(&format!(" {}", server(observed)), " SERVER");
        text += format!("\n{}={} {}", condition.kind, condition.status, message).trim_end();
    }
    // Deciding again on the result changes nothing that is written.
    let again = Observed { status: decision.status.clone(), ..observed.clone() };
    assert_eq!(decide(&again, at(NOW)).status, decision.status);
    text
}

#[track_caller]
fn check(observed: Observed, expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(told(&observed), expected.join("\n"));
}

#[test]
fn a_machine_that_can_be_made_is() {
    check(
        fresh(),
        "Create
         CreateJob=Unknown creating machine provision job
         Ready=False creating SERVER",
    );
    let decision = decide(&fresh(), at(NOW));
    assert_eq!((decision.status.driver_url.as_str(), decision.status.driver_hash.as_str()), ("u", "c"));
    assert_eq!(decision.status.job_name, "m-machine-provision");
}

#[test]
fn what_is_waited_for_is_told() {
    check(
        Observed { owner: Owner::Set, ..fresh() },
        "Nothing\nReady=False waiting for the Machine this server is for",
    );
    check(
        Observed { cluster: None, ..fresh() },
        "Nothing\nReady=False waiting for the Cluster of the Machine",
    );
    let paused = Some(Cluster { paused: true, provisioned: true });
    check(
        Observed { cluster: paused, ..fresh() },
        "Nothing\nReady=False waiting for the Cluster to be unpaused",
    );
    let early = Some(Cluster { paused: false, provisioned: false });
    check(
        Observed { cluster: early, ..fresh() },
        "Nothing\nReady=False waiting for the infrastructure of the Cluster",
    );
    let capi =
        Some(Capi { name: "m".into(), bootstrap_secret: None, deleting: false, reboot: None, power: None });
    check(
        Observed { capi, ..fresh() },
        "Nothing\nReady=False waiting for the script the machine is to boot with",
    );
    check(Observed { node_driver: None, ..fresh() }, "Nothing\nReady=False waiting for NodeDriver demo");
}

#[test]
fn a_job_is_followed() {
    check(
        Observed { job: job(false, Outcome::Running), ..fresh() },
        "Nothing
         CreateJob=Unknown creating machine provision job
         Ready=False creating SERVER",
    );
    let waiting =
        JobView { waiting: Some("waiting for a place".into()), ..job(false, Outcome::Running).unwrap() };
    check(
        Observed { job: Some(waiting), ..fresh() },
        "Nothing
         CreateJob=Unknown creating machine provision job
         Ready=False waiting for a place",
    );
    let complete = Observed { job: job(false, Outcome::Complete), state: made(Phase::Delivered), ..fresh() };
    check(complete.clone(), "Nothing\nCreateJob=True\nReady=True");
    let status = decide(&complete, at(NOW)).status;
    assert!(status.ready && !status.initialization.provisioned);
    assert_eq!(status.addresses[0].address, "192.0.2.1");
    let joined = Observed { provider_id: "demo://1".into(), ..complete };
    check(joined.clone(), "Prune\nCreateJob=True\nReady=True");
    assert_eq!(decide(&joined, at(NOW)).status.initialization, Initialization { provisioned: true });
}

#[test]
fn a_machine_whose_job_is_gone_stays_as_it_is() {
    let observed = having(fresh(), kind::CREATE_JOB, Is::True, "", 1);
    check(Observed { node_driver: None, cluster: None, ..observed }, "Nothing\nCreateJob=True");
}

#[test]
fn a_failure_is_told_and_the_machine_replaced_in_time() {
    let observed = Observed { job: job(false, failed("quota: droplet limit", NOW)), ..fresh() };
    check(
        observed.clone(),
        "Nothing after 60s
         CreateJob=False failed creating SERVER: quota: droplet limit
         Ready=False failed creating SERVER: quota: droplet limit",
    );
    let status = decide(&observed, at(NOW)).status;
    assert_eq!((status.failure_reason.as_str(), status.failure_class.as_str()), ("CreateError", "quota"));
    let message = format!("failed creating {}: credentials: no", server(&fresh()));
    let old = |since| having(fresh(), kind::CREATE_JOB, Is::False, &message, since);
    assert_eq!(decide(&old(NOW - 100), at(NOW)).after, Some(Duration::from_secs(200)));
    assert_eq!(decide(&old(NOW - 300), at(NOW)).act, Act::Retire { machine: "m".into() });
    // The class counts, whatever the message says.
    let mut passing = old(NOW - 100);
    passing.status.failure_class = "quota".to_owned();
    assert_eq!(decide(&passing, at(NOW)).act, Act::Retire { machine: "m".into() });
    let patient = Observed { retire_after: Duration::from_secs(3600), ..old(NOW - 300) };
    assert_eq!(decide(&patient, at(NOW)).after, Some(Duration::from_secs(3300)));
}

#[test]
fn a_failure_that_is_in_the_status_is_not_told_again() {
    let told = |removes| job(removes, failed("", NOW)).map(|job| JobView { told: true, ..job });
    let mut observed = having(fresh(), kind::CREATE_JOB, Is::False, "failed creating it", NOW - 10);
    observed.status.failure_class = "network".to_owned();
    observed.job = told(false);
    let decision = decide(&observed, at(NOW));
    assert_eq!(decision.status.conditions, observed.status.conditions);
    assert_eq!(decision.after, Some(Duration::from_secs(50)));
    let mut dying = deleting(
        having(fresh(), kind::DELETE_JOB, Is::False, "failed deleting it", NOW),
        made(Phase::Created),
    );
    dying.job = told(true);
    let decision = decide(&dying, at(NOW));
    assert_eq!((decision.status.conditions, decision.act), (dying.status.conditions, Act::Nothing));
}

#[test]
fn what_was_never_made_is_let_go() {
    check(deleting(fresh(), State::Missing), "Release");
    check(deleting(Observed { capi: None, owner: Owner::Set, ..fresh() }, State::Empty), "Release");
    let intended = having(fresh(), kind::CREATE_JOB, Is::False, "", 1);
    check(deleting(intended, made(Phase::Intended)), "Release\nCreateJob=False");
    let terminating = Observed { namespace_terminating: true, ..fresh() };
    check(deleting(terminating, made(Phase::Created)), "Release");
}

#[test]
fn a_server_is_removed_before_its_machine_goes() {
    let ready = having(fresh(), kind::CREATE_JOB, Is::True, "", 1);
    let dying = deleting(Observed { capi: None, node_driver: None, ..ready }, made(Phase::Delivered));
    assert_eq!(decide(&dying, at(NOW)).act, Act::Remove);
    let begun = Observed { job: job(true, Outcome::Running), ..dying.clone() };
    assert_eq!(decide(&begun, at(NOW)).act, Act::Nothing);
    let done = Observed { job: job(true, Outcome::Complete), ..dying.clone() };
    assert_eq!(decide(&done, at(NOW)).act, Act::Release);
    // The Job was gone before the finalizer.
    let late = having(dying, kind::DELETE_JOB, Is::True, "", 1);
    assert_eq!(decide(&late, at(NOW)).act, Act::Release);
}

#[test]
fn a_creation_under_way_is_ended_only_where_the_record_is_enough() {
    let creating = Observed { job: job(false, Outcome::Running), ..fresh() };
    let dying = deleting(creating, made(Phase::Creating));
    assert_eq!(decide(&dying, at(NOW)).act, Act::DropJob);
    let foreign = NodeDriver { url: "u".into(), checksum: "c".into(), interruptible: false };
    let dying = Observed { node_driver: Some(foreign), ..dying };
    check(
        dying.clone(),
        "CancelJob\nReady=False cannot delete machine m because create job has not finished",
    );
    let cancelled = JobView { cancelled: true, ..dying.job.clone().unwrap() };
    check(
        Observed { job: Some(cancelled), ..dying.clone() },
        "Nothing\nReady=False cannot delete machine m because create job has not finished",
    );
    let ended = Observed { job: job(false, failed("x", NOW)), ..dying.clone() };
    assert_eq!(decide(&ended, at(NOW)).act, Act::DropJob);
    // Nothing was begun, and nothing can be.
    for state in [State::Missing, State::Empty, made(Phase::Intended)] {
        let early = Observed { state, ..dying.clone() };
        assert_eq!(decide(&early, at(NOW)).act, Act::DropJob);
    }
}

#[test]
fn a_record_is_gone_by_only_when_no_job_can_go_on_from_it() {
    let jobs =
        [None, job(false, Outcome::Running), job(false, Outcome::Complete), job(false, failed("x", NOW))];
    for job in jobs {
        for state in [State::Empty, made(Phase::Intended), made(Phase::Creating), made(Phase::Delivered)] {
            let dying = deleting(Observed { job: job.clone(), ..fresh() }, state.clone());
            let open = Observed { creation_barred: false, ..dying };
            assert_eq!(decide(&open, at(NOW)).act, Act::BarCreation, "{job:?} {state:?}");
            // A creation that has ended begins nothing.
            let made = having(open, kind::CREATE_JOB, Is::True, "", 1);
            assert_ne!(decide(&made, at(NOW)).act, Act::BarCreation, "{job:?} {state:?}");
        }
    }
}

#[test]
fn a_removal_that_failed_is_tried_again_and_never_given_up_but_by_force() {
    let ready = having(fresh(), kind::CREATE_JOB, Is::True, "", 1);
    let dying = deleting(ready, made(Phase::Delivered));
    let early = Observed { job: job(true, failed("credentials: no", NOW - 100)), ..dying.clone() };
    assert_eq!(decide(&early, at(NOW)).after, Some(Duration::from_secs(200)));
    assert_eq!(decide(&early, at(NOW)).status.failure_reason, "DeleteError");
    let late = Observed { job: job(true, failed("credentials: no", NOW - 300)), ..dying.clone() };
    assert_eq!(decide(&late, at(NOW)).act, Act::DropJob);
    let forced = Observed { force: true, ..early };
    assert_eq!(decide(&forced, at(NOW)).act, Act::Release);
    // A removal under way is not given up, unless the server it waits for is.
    let begun = Observed { job: job(true, Outcome::Running), force: true, ..dying.clone() };
    assert_eq!(decide(&begun, at(NOW)).act, Act::Nothing);
    let lost = JobView { waits_for_host: true, waiting: Some("?".into()), ..begun.job.clone().unwrap() };
    let lost = Observed { job: Some(lost), ..begun };
    assert_eq!(decide(&lost, at(NOW)).act, Act::Release);
    assert_eq!(decide(&Observed { force: false, ..lost }, at(NOW)).act, Act::Nothing);
    // Without its state nobody knows what to remove.
    let lost = Observed { state: State::Missing, ..dying };
    assert_eq!(decide(&lost, at(NOW)).act, Act::Nothing);
    assert_eq!(decide(&Observed { force: true, ..lost }, at(NOW)).act, Act::Release);
}

#[test]
fn no_machine_with_a_server_is_ever_let_go_without_its_removal() {
    let outcomes = [Outcome::Running, Outcome::Complete, failed("network: x", 1), failed("other: x", NOW)];
    let jobs = outcomes.iter().flat_map(|outcome| [job(true, outcome.clone()), job(false, outcome.clone())]);
    let states =
        [made(Phase::Creating), made(Phase::Created), made(Phase::Delivered), State::Unreadable("?".into())];
    for job in jobs.chain([None]) {
        for state in &states {
            for created in [None, Some(Is::True), Some(Is::False), Some(Is::Unknown)] {
                for (driver, owner) in [(true, true), (true, false), (false, true), (false, false)] {
                    let mut observed = deleting(fresh(), state.clone());
                    observed.job = job.clone();
                    observed.node_driver = observed.node_driver.filter(|_| driver);
                    observed.owner = if owner { observed.owner } else { Owner::Set };
                    if let Some(created) = created {
                        observed = having(observed, kind::CREATE_JOB, created, "", 1);
                    }
                    let removed =
                        matches!(&job, Some(job) if job.removes && job.outcome == Outcome::Complete);
                    let act = decide(&observed, at(NOW)).act;
                    assert!(removed || act != Act::Release, "{job:?} {state:?} {created:?}");
                }
            }
        }
    }
}

/// A server that runs, and whose reboot was asked for.
fn asked(reboot: &str, rebooted: Option<&str>) -> Observed {
    let made = having(fresh(), kind::CREATE_JOB, Is::True, "", NOW);
    let capi = made.capi.clone().map(|capi| Capi { reboot: Some(reboot.into()), ..capi });
    Observed { capi, provider_id: "demo://1".into(), rebooted: rebooted.map(str::to_owned), ..made }
}

#[test]
fn a_server_is_rebooted_once_for_each_request() {
    check(asked("t1", None), "Reboot\nCreateJob=True");
    check(asked("t1", Some("t1")), "Nothing\nCreateJob=True");
    check(asked("t2", Some("t1")), "Reboot\nCreateJob=True");
    check(asked("", None), "Nothing\nCreateJob=True");

    let job = |outcome| job(false, outcome).map(|job| JobView { reboots: Some("t1".into()), ..job });
    let with = |observed: Observed, outcome| Observed { job: job(outcome), ..observed };
    check(with(asked("t1", None), Outcome::Running), "Nothing\nCreateJob=True");
    check(with(asked("t1", None), Outcome::Complete), "NoteReboot\nCreateJob=True");
    // A failure is no reason to replace the server, and not tried for ever.
    check(with(asked("t1", None), failed("quota: no", NOW)), "NoteReboot\nCreateJob=True");
    check(with(asked("t1", Some("t1")), Outcome::Complete), "Prune\nCreateJob=True");
    // Asked for again meanwhile: one after the other.
    check(with(asked("t2", None), Outcome::Complete), "NoteReboot\nCreateJob=True");
}

#[test]
fn what_is_not_there_or_goes_is_not_rebooted() {
    check(Observed { provider_id: String::new(), ..asked("t1", None) }, "Nothing\nCreateJob=True");
    let paused = Some(Cluster { paused: true, provisioned: true });
    check(Observed { cluster: paused, ..asked("t1", None) }, "Nothing\nCreateJob=True");
    let capi = asked("t1", None).capi.map(|capi| Capi { deleting: true, ..capi });
    check(Observed { capi, ..asked("t1", None) }, "Nothing\nCreateJob=True");
    let job = job(false, Outcome::Running).map(|job| JobView { reboots: Some("t1".into()), ..job });
    let dying = deleting(Observed { job, ..asked("t1", None) }, made(Phase::Delivered));
    assert_eq!(decide(&dying, at(NOW)).act, Act::DropJob);
}

#[test]
fn a_server_is_not_made_before_its_machine_has_an_address() {
    let lan = || Pool { kind: "InClusterIPPool".into(), name: "lan".into() };
    let with = |address: Asked| Observed { address, ..fresh() };
    check(
        with(Asked::Unclaimed(lan())),
        "Claim(Pool\nReady=False waiting for an address of InClusterIPPool lan",
    );
    check(
        with(Asked::Waiting(lan(), "InClusterIPPool lan is being deleted".into())),
        "Nothing
         Ready=False waiting for an address of InClusterIPPool lan: InClusterIPPool lan is being deleted",
    );
    check(with(Asked::Outdated(lan())), "Unclaim\nReady=False waiting for an address of InClusterIPPool lan");
    check(with(Asked::Exhausted(lan())), "Nothing\nReady=False no address is free in InClusterIPPool lan");
    let ready = decide(&with(Asked::Exhausted(lan())), at(NOW)).status.conditions.remove(0);
    assert_eq!(ready.reason, "PoolExhausted");
    check(
        with(Asked::Odd("a/b".into())),
        "Nothing\nReady=False \"a/b\" in annotation remuda.io/address-pool is no pool of addresses",
    );
    check(
        with(Asked::Unfit),
        "Nothing
         Ready=False driver demo takes no address, and annotation remuda.io/address-pool names a pool of them",
    );
    check(
        with(Asked::Taken),
        "Nothing\nReady=False there is an IPAddressClaim of this name that is not of this machine",
    );
    let given = Given { address: "10.0.0.5".into(), prefix: 24, gateway: String::new() };
    assert!(matches!(decide(&with(Asked::Given(given)), at(NOW)).act, Act::Create { .. }));
    // What waits for its Cluster claims nothing yet.
    let early = Observed { cluster: None, ..with(Asked::Unclaimed(lan())) };
    check(early, "Nothing\nReady=False waiting for the Cluster of the Machine");
}

/// A server that runs, and that is to run or not.
fn powered(asked: &str, is: Option<&str>) -> Observed {
    let made = having(fresh(), kind::CREATE_JOB, Is::True, "", NOW);
    let capi = made.capi.clone().map(|capi| Capi { power: Some(asked.into()), ..capi });
    Observed { capi, provider_id: "demo://1".into(), powered: is.map(str::to_owned), ..made }
}

#[test]
fn a_server_is_stopped_and_started_as_its_machine_says() {
    check(powered("stopped", None), "Power\nCreateJob=True");
    check(powered("stopped", Some("stopped")), "Nothing\nCreateJob=True");
    check(powered("running", Some("stopped")), "Power\nCreateJob=True");
    check(powered("running", None), "Nothing\nCreateJob=True");
    check(powered("running", Some("unknown")), "Power\nCreateJob=True");
    check(powered("asleep", None), "Nothing\nCreateJob=True");
    let paused = Observed { paused: true, ..powered("stopped", None) };
    check(paused, "Nothing\nCreateJob=True");
    // Stopping a cluster pauses it.
    let mut of_paused = powered("stopped", None);
    of_paused.cluster.as_mut().unwrap().paused = true;
    check(of_paused, "Power\nCreateJob=True");

    let job = |outcome| job(false, outcome).map(|job| JobView { powers: Some("stopped".into()), ..job });
    let with = |outcome, is| Observed { job: job(outcome), ..powered("stopped", is) };
    check(with(Outcome::Running, None), "Nothing\nCreateJob=True");
    check(with(Outcome::Complete, None), "NotePower\nCreateJob=True");
    check(with(Outcome::Complete, Some("stopped")), "Prune\nCreateJob=True");
    let failed = |at| failed("other: no such server", at);
    check(with(failed(NOW), None), "NotePower\nCreateJob=True");
    let told = "Powered=False the server could not be stopped: no such server";
    check(with(failed(NOW), Some("unknown")), &format!("Nothing after 60s\nCreateJob=True\n{told}"));
    check(with(failed(NOW - 60), Some("unknown")), &format!("Prune\nCreateJob=True\n{told}"));
    let going = Observed { deleting: true, ..with(Outcome::Running, None) };
    check(going, "DropJob\nCreateJob=True");
}
