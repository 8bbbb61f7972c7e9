//! The service manager inside machines.

use crate::bench::{Bench, eventually};

fn install(bench: &Bench, unit: &str, body: &str) {
    bench.text(
        "one",
        &format!("cat > /etc/systemd/system/{unit} <<'EOF'\n{body}\nEOF\nsystemctl daemon-reload"),
    );
}

fn show(bench: &Bench, unit: &str, property: &str) -> String {
    bench.text("one", &format!("systemctl show -p {property} --value {unit}"))
}

#[test]
fn services_start_restart_stop_and_come_back_with_the_machine() {
    let Some(bench) = Bench::new() else { return };
    bench.create("one", "");
    let body = "[Unit]\nDescription=A web server\n[Service]\nEnvironment=NAME=web\n\
                ExecStartPre=-/bin/false\nExecStart=/bin/sh -c 'echo $${NAME} runs; exec sleep 1000'\n\
                Restart=always\nRestartSec=50ms\n[Install]\nWantedBy=multi-user.target";
    install(&bench, "web.service", body);
    assert_eq!(bench.run("one", "systemctl is-active web").status.code(), Some(3));
    bench.text("one", "systemctl enable --now web");
    assert_eq!(bench.text("one", "systemctl is-active web; systemctl is-enabled web"), "active\nenabled");
    assert_eq!(bench.text("one", "/usr/local/bin/systemctl is-active web"), "active");
    eventually("the service's output", || bench.text("one", "journalctl -u web").contains("web runs"));
    let since =
        "journalctl -u web --since=\"$(systemctl show web --property=ExecMainStartTimestamp | cut -f2 -d=)\"";
    assert!(bench.text("one", since).contains("web runs"));
    assert!(!bench.text("one", "journalctl -u web --until=-1h").contains("web runs"));
    // It is started again when it dies.
    let first = show(&bench, "web", "MainPID");
    bench.text("one", &format!("kill -9 {first}"));
    eventually("the restart", || {
        let pid = show(&bench, "web", "MainPID");
        pid != "0" && pid != first
    });
    assert_eq!(show(&bench, "web", "NRestarts"), "1");
    // But not when it is stopped.
    bench.text("one", "systemctl stop web");
    assert_eq!(bench.run("one", "systemctl status web").status.code(), Some(3));
    assert_eq!(bench.run("one", "pgrep -x sleep").status.code(), Some(1));
    bench.text("one", "systemctl restart web");
    bench.sandbox.restart("one-id").unwrap();
    eventually("the service after the restart", || {
        bench.run("one", "systemctl is-active web").status.success()
    });
    bench.text("one", "systemctl disable --now web");
    assert_eq!(bench.run("one", "systemctl is-enabled web").status.code(), Some(1));
    assert_eq!(bench.run("one", "systemctl start nothing").status.code(), Some(5));
    bench.text("one", "test -d /run/systemd/system && systemctl --version");
}

#[test]
fn every_type_of_service_is_up_when_it_says_so() {
    let Some(bench) = Bench::new() else { return };
    bench.create("one", "");
    install(
        &bench,
        "once.service",
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'sleep 0.1; touch /run/once'",
    );
    bench.text("one", "systemctl start once && test -e /run/once");
    assert_eq!(show(&bench, "once", "ActiveState,SubState"), "active\nexited");
    install(&bench, "fails.service", "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 4'");
    let output = bench.run("one", "systemctl start fails");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).starts_with("Job for fails.service failed"),
        "{output:?}"
    );
    assert_eq!(bench.text("one", "systemctl is-failed fails"), "failed");
    bench.text("one", "systemctl reset-failed fails");
    let fork = "[Service]\nType=forking\nPIDFile=/run/fork.pid\n\
                ExecStart=/bin/sh -c 'sleep 1000 & echo $$! > /run/fork.pid'";
    install(&bench, "fork.service", fork);
    bench.text("one", "systemctl start fork && kill -0 $(cat /run/fork.pid)");
    bench.text("one", "systemctl stop fork && ! kill -0 $(cat /run/fork.pid) 2>/dev/null");
    // Perl is on most hosts; the shell cannot write to such a socket.
    if std::path::Path::new("/usr/bin/perl").exists() {
        let script = r#"use Socket; socket(S, PF_UNIX, SOCK_DGRAM, 0);
                        send(S, "STATUS=fine\nREADY=1", 0, sockaddr_un($ENV{NOTIFY_SOCKET})) or die; sleep 1000"#;
        bench.text("one", &format!("cat > /opt/ready.pl <<'EOF'\n{script}\nEOF"));
        install(&bench, "ready.service", "[Service]\nType=notify\nExecStart=/usr/bin/perl /opt/ready.pl");
        bench.text("one", "systemctl start ready");
        assert_eq!(show(&bench, "ready", "ActiveState,SubState,StatusText"), "active\nrunning\nfine");
    }
    // One that never becomes ready fails after its time, and stopping it interrupts the wait.
    install(
        &bench,
        "mute.service",
        "[Service]\nType=notify\nTimeoutStartSec=300ms\nExecStart=/bin/sleep 1000",
    );
    assert_eq!(bench.run("one", "systemctl start mute").status.code(), Some(1));
    assert_eq!(show(&bench, "mute", "Result"), "timeout");
    install(&bench, "slow.service", "[Service]\nType=notify\nTimeoutStartSec=0\nExecStart=/bin/sleep 1000");
    bench.text("one", "systemctl --no-block start slow");
    eventually("the start", || show(&bench, "slow", "ActiveState") == "activating");
    bench.text("one", "systemctl stop slow");
    assert_eq!(show(&bench, "slow", "ActiveState"), "inactive");
    // A service that cannot run is not started for ever.
    install(&bench, "hot.service", "[Service]\nRestart=always\nRestartSec=1ms\nExecStart=/bin/false");
    let _ = bench.run("one", "systemctl start hot");
    eventually("the limit", || show(&bench, "hot", "Result") == "start-limit-hit");
}

#[test]
fn what_a_service_leaves_running_follows_its_kill_mode() {
    let Some(bench) = Bench::new() else { return };
    bench.create("one", "");
    let body = |mode: &str, seconds: u32| {
        format!("[Service]\nKillMode={mode}\nExecStart=/bin/sh -c 'setsid sleep {seconds} & exec sleep 1000'")
    };
    install(&bench, "group.service", &body("control-group", 1111));
    install(&bench, "process.service", &body("process", 2222));
    bench.text("one", "systemctl start group process");
    eventually("the children", || {
        bench.run("one", "pgrep -f 'sleep 1111' && pgrep -f 'sleep 2222'").status.success()
    });
    bench.text("one", "systemctl stop group process");
    assert_eq!(bench.run("one", "pgrep -fx 'sleep 1111'").status.code(), Some(1));
    assert_eq!(bench.run("one", "pgrep -fx 'sleep 2222'").status.code(), Some(0));
}
