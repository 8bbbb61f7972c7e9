//! What people do to machines, and to the cluster they try things with.

use std::time::Duration;

use crate::lab::{Lab, NEW};

#[test]
fn machines_are_cordoned_drained_restarted_and_deleted_by_command() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let worker = lab.machines().into_iter().find(|name| name.contains("-workers-")).unwrap();
    assert!(lab.run(&format!("machine cordon {worker}")).contains("takes no new pods"));
    assert!(lab.run(&format!("machine cordon {worker}")).contains("already"));
    assert!(lab.run(&format!("machine uncordon {worker}")).contains("takes pods again"));
    assert!(lab.run(&format!("machine drain {worker} --timeout 60s")).contains("is drained"));
    assert!(lab.run(&format!("machine uncordon {worker}")).contains("takes pods again"));

    // One that does not run is started.
    let sandbox = lab.sandbox();
    sandbox.stop(&sandbox.find(&worker).unwrap().id).unwrap();
    assert!(lab.run(&format!("machine restart {worker}")).contains("restarts"));
    lab.until("its node is back", Duration::from_secs(60), || {
        lab.say("why demo").0 == 0 && lab.nodes("demo").iter().all(|(_, _, ready)| *ready)
    });

    let (code, text) = lab.say(&format!("machine delete {worker}"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains(&format!("this deletes machine {worker} of cluster demo")), "{text}");
    let text = lab.run(&format!("machine delete {worker} --yes --wait --timeout 120s"));
    assert!(text.contains("pool workers makes another"), "{text}");
    assert!(!lab.machines().contains(&worker));
    assert_eq!(lab.say("machine cordon none-such").0, 3);
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}

#[test]
fn up_says_what_it_leaves_and_down_what_it_takes() {
    let Some(mut lab) = Lab::open(None) else { return };
    lab.kill_server();
    let data = lab.data();
    let elsewhere = lab.place.join("elsewhere");
    let mut up = lab.command(&["up", "--servers", "0", "--data-dir"]);
    let output = up.arg(&elsewhere).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!elsewhere.exists(), "nothing was made");

    let up = |more: &[&str]| {
        let mut up = lab.command(&["up", "--bind", &lab.bind, "--exit-when-ready", "--timeout", "120"]);
        let output = up.args(more).arg("--data-dir").arg(&data).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    let text = up(&["--workers", "1"]);
    assert!(text.contains("sandbox distribution") && text.contains("no containers"), "{text}");
    let text = up(&["--workers", "3"]);
    assert!(text.contains("not changed: pool workers from 1 to 3"), "{text}");
    assert!(text.contains("remuda cluster scale demo workers=3"), "{text}");
    assert!(!up(&[]).contains("not changed"));
    let (code, text) = lab.say("down");
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("cluster demo with 2 machines and all data of the server on"), "{text}");
    let (code, text) = lab.say("down --yes");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1 cluster deleted"), "{text}");
    assert!(!data.exists());
}
