//! What stopped saying anything, on machines that were well: `why` tells it, and what it is.

use std::time::Duration;

use crate::lab::{Lab, NEW};

/// After the grace an agent has to come back, on a busy host.
const NOTICED: Duration = Duration::from_secs(90);

#[test]
fn an_agent_that_stops_is_missed_and_so_is_a_machine_that_dies() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let worker = lab.machines().into_iter().find(|name| name.contains("-workers-")).unwrap();
    let why = || lab.say(&format!("why {worker} -o name"));
    assert_eq!(why(), (0, "none\n".to_owned()));

    let systemctl = |verb: &str| {
        let (code, text) =
            lab.say_to(&format!("machine shell {worker}"), &["systemctl", verb, "rancher-system-agent"]);
        assert_eq!(code, 0, "{text}");
    };
    systemctl("stop");
    lab.until("the agent is missed", NOTICED, || why() == (11, "agent-silent\n".to_owned()));
    let (code, text) = lab.say("why demo");
    assert_eq!(code, 0, "the cluster runs as before: {text}");
    assert!(text.contains("the agent has not been heard from since"), "{text}");
    assert!(text.contains(&format!("remuda why {worker}")), "{text}");
    systemctl("start");
    lab.until("it is back", NOTICED, || why().0 == 0);
    let (_, text) = lab.say("why demo");
    assert!(!text.contains("not been heard from"), "{text}");

    let sandbox = lab.sandbox();
    sandbox.stop(&sandbox.find(&worker).unwrap().id).unwrap();
    lab.until("the machine is missed", NOTICED, || why() == (11, "machine-off\n".to_owned()));
    lab.until_why("demo", 11, &["does not run", "remuda machine restart"]);
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}
