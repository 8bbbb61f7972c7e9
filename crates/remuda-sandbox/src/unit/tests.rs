use super::*;

const K3S: &str = r"
[Unit]
Description=Lightweight Kubernetes
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/systemd/system/k3s.service.env
KillMode=process
Delegate=yes
User=root
LimitNOFILE=1048576
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
# a comment
ExecStart=/usr/local/bin/k3s \
    server \
	'--disable' \
# in between
	'servicelb' \

";

fn unit(name: &str, text: &str) -> Unit {
    Unit::parse(name, "/etc/systemd/system/x.service".into(), &[text.to_owned()])
}

#[test]
fn the_unit_k3s_installs_is_understood() {
    let unit = unit("k3s.service", K3S);
    assert_eq!(unit.kind, Kind::Notify);
    assert_eq!(unit.kill_mode, KillMode::Process);
    assert_eq!(unit.timeout_start, None);
    assert_eq!((unit.restart, unit.restart_sec), (Restart::Always, Duration::from_secs(5)));
    assert_eq!(unit.environment_files[0], ("/etc/default/k3s".to_owned(), true));
    assert_eq!(unit.start[0].text(), "/usr/local/bin/k3s server --disable servicelb");
    assert!(unit.start_pre[0].may_fail);
    assert_eq!(unit.wanted_by, ["multi-user.target"]);
}

#[test]
fn drop_ins_add_to_lists_and_an_empty_value_resets_them() {
    let base = "[Service]\nExecStart=/bin/a\nEnvironment=A=1 \"B=x y\"\n".to_owned();
    let extra = "[Service]\nExecStart=\nExecStart=/bin/b\nEnvironment=A=2\n".to_owned();
    let unit = Unit::parse("x.service", PathBuf::new(), &[base, extra]);
    assert_eq!(unit.start.len(), 1);
    assert_eq!(unit.start[0].text(), "/bin/b");
    let environment: Vec<_> =
        unit.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(environment, ["A=1", "B=x y", "A=2"]);
}

#[test]
fn the_instance_of_a_template_reaches_its_values() {
    let unit = unit("web@blue.service", "[Unit]\nDescription=%p for %i (%n) 100%%\n");
    assert_eq!(unit.description, "web for blue (web@blue.service) 100%");
}

#[test]
fn times_are_read() {
    let second = Duration::from_secs(1);
    assert_eq!(duration("90"), Some(Some(90 * second)));
    assert_eq!(duration("1min 30s"), Some(Some(90 * second)));
    assert_eq!(duration("500ms"), Some(Some(second / 2)));
    assert_eq!(duration("infinity"), Some(None));
    for bad in ["", "x", "5 parsecs", "1e999999h", "99999999999999999999999w"] {
        assert_eq!(duration(bad), None, "{bad}");
    }
}

#[test]
fn restarts_follow_the_policy() {
    let with = |policy: &str| unit("x.service", &format!("[Service]\nExecStart=/x\nRestart={policy}\n"));
    let failed = Exit::Code(1);
    assert!(with("always").should_restart(Exit::Code(0)));
    assert!(with("on-failure").should_restart(failed) && !with("on-failure").should_restart(Exit::Code(0)));
    assert!(!with("on-failure").should_restart(Exit::Signal(15)), "a polite signal is a clean end");
    assert!(with("on-failure").should_restart(Exit::Signal(9)));
    assert!(
        with("on-abnormal").should_restart(Exit::Signal(11)) && !with("on-abnormal").should_restart(failed)
    );
    assert!(!with("no").should_restart(failed));
}

#[test]
fn signals_go_by_name_or_number() {
    assert_eq!(signal_number("SIGTERM"), Some(15));
    assert_eq!(signal_number("int"), Some(2));
    assert_eq!(signal_number("9"), Some(9));
    assert_eq!(signal_number("0"), None);
    assert_eq!(signal_number("SIGNONE"), None);
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_unit(text in "\\PC{0,200}", lines in proptest::collection::vec("[A-Za-z]{1,8}=\\PC{0,20}", 0..8)) {
        let body = format!("[Service]\n{}\n{text}", lines.join("\n"));
        let _ = unit("x@y.service", &body);
        let _ = duration(&text);
    }
}
