//! Drivers that are scripts.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use remuda_drivers::{
    driver::{Config, Driver, Owned, State},
    error::Class,
    exec::Exec,
    flags::Flags,
    log::{Log, MemoryLog},
    plugin::Timeouts,
};

struct World {
    dir: tempfile::TempDir,
    output: Arc<MemoryLog>,
}

impl World {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), output: Arc::default() }
    }

    fn driver(&self, name: &str, program: &Path) -> Exec {
        let timeouts =
            Timeouts { call: Duration::from_secs(10), work: Duration::from_secs(10), ..Timeouts::default() };
        Exec::new(name, program, Log::new(self.output.clone())).with_timeouts(timeouts)
    }

    fn script(&self, body: &str) -> Exec {
        let path = self.dir.path().join("driver");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.driver("demo", &path)
    }

    async fn prepared(&self, driver: &Exec, values: Flags) {
        driver.load(Config::named("m1", self.dir.path().to_str().unwrap())).await.unwrap();
        driver.configure(values).await.unwrap();
    }
}

#[tokio::test]
async fn the_sample_script_is_a_working_driver() {
    let world = World::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/directory.sh");
    let driver = world.driver("directory", &sample);
    let flags = driver.flags().await.unwrap();
    assert_eq!(flags[0].name, "directory-root");
    let mut values = Flags::defaults(&flags);
    values.set("directory-root", "/nonexistent");
    world.prepared(&driver, values.clone()).await;
    let error = driver.pre_create_check().await.unwrap_err();
    assert!(error.to_string().contains("no directory /nonexistent"), "{error}");

    values.set("directory-root", world.dir.path().to_str().unwrap());
    world.prepared(&driver, values).await;
    let record = driver.config().await.unwrap();
    driver.pre_create_check().await.unwrap();
    assert!(driver.state().await.unwrap_err().is_not_found());
    driver.create().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Running);
    assert_eq!(driver.addresses().await.unwrap().ip, "127.0.0.1");
    assert_eq!(driver.ssh().await.unwrap().user, "root");
    assert!(driver.stop().await.unwrap_err().is_unsupported());
    // Whoever knows no machine finds it.
    let stranger = world.driver("directory", &sample);
    let mut elsewhere = Flags::defaults(&stranger.flags().await.unwrap());
    elsewhere.set("directory-root", world.dir.path().to_str().unwrap());
    assert_eq!(stranger.places(), ["directory-root"]);
    world.prepared(&stranger, elsewhere).await;
    let identity = record.str("RemudaID").to_owned();
    let listed = Owned { kind: "directory".into(), id: identity.clone(), name: "m1".into(), identity };
    assert_eq!(stranger.inventory().await.unwrap(), [listed]);
    // The first record alone is enough to remove.
    let later = world.driver("directory", &sample);
    later.load(record).await.unwrap();
    later.remove().await.unwrap();
    assert!(driver.state().await.unwrap_err().is_not_found());
    assert_eq!(stranger.inventory().await.unwrap(), []);
}

#[tokio::test]
async fn a_list_is_about_no_machine_and_may_be_missing_or_nonsense() {
    let world = World::new();
    let driver = world.script(
        r#"[ "$1 [$REMUDA_ID] [$REMUDA_MACHINE] $REMUDA_FLAG_ZONE" = "list [] [] z1" ] || exit 1
        echo '{"machines":[{"id":"a","server":"17","name":"m"},{"name":"made by nobody"}]}'
        echo '{"machines":[{"id":"b"}]}'"#,
    );
    let mut values = Flags::default();
    values.set("demo-zone", "z1");
    world.prepared(&driver, values).await;
    let listed: Vec<_> =
        driver.inventory().await.unwrap().into_iter().map(|one| (one.id, one.identity)).collect();
    assert_eq!(listed, [("17".to_owned(), "a".to_owned()), ("b".to_owned(), "b".to_owned())]);

    let driver = world.script("exit 64");
    let error = driver.inventory().await.unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("has no method list"), "{error}");
    let driver = world.script("echo '{\"machines\":[17]}'");
    assert_eq!(driver.inventory().await.unwrap_err().class(), Class::DriverCrash);
}

#[tokio::test]
async fn state_is_kept_even_if_the_call_fails_and_classes_are_told() {
    let world = World::new();
    let driver = world.script(
        r#"case $1 in
        create) cat >&2; echo '{"state":{"server":17}}'; echo '{"log":"half way"}'
                echo '{"error":{"class":"quota","message":"no more of canary-token"}}' ;;
        status) [ "$REMUDA_STATE_SERVER" = 17 ] && [ "$REMUDA_FLAG_TOKEN" = canary-token ] && echo '{"status":"Stopped"}' ;;
        stop) kill -9 $$ ;;
        esac"#,
    );
    let mut values = Flags::default();
    values.set("demo-token", "canary-token");
    world.prepared(&driver, values).await;
    let error = driver.create().await.unwrap_err();
    assert_eq!((error.class(), error.to_string().as_str()), (Class::Quota, "no more of [redacted]"));
    assert_eq!(driver.state().await.unwrap(), State::Stopped);
    assert_eq!(driver.stop().await.unwrap_err().class(), Class::DriverCrash);
    let text = world.output.text();
    assert!(text.contains("half way") && text.contains("remuda.io/exec/v1"), "{text}");
    assert!(!text.contains("canary") && !format!("{driver:?}").contains("canary"));
}

#[tokio::test]
async fn a_script_may_talk_before_it_listens_and_leave_children_behind() {
    let world = World::new();
    let talk = "i=0; while [ $i -lt 3000 ]; do echo \"line $i of some length to fill the pipe\"; i=$((i+1)); done; \
                cat > /dev/null; setsid sleep 3 & echo '{\"state\":{\"done\":true}}'";
    let driver = world.script(talk);
    let mut values = Flags::default();
    values.set("demo-big", "x".repeat(300_000));
    world.prepared(&driver, values).await;
    driver.remove().await.unwrap();
    assert_eq!(driver.config().await.unwrap().0["State"]["done"], true);
}

#[tokio::test]
async fn hostile_scripts_end() {
    let world = World::new();
    let cases = [
        ("yes '{\"log\":\"x\"}'", Class::Timeout),
        ("tr '\\0' x </dev/zero", Class::Timeout),
        ("sleep 60", Class::Timeout),
        ("echo '{\"state\": 3}'", Class::DriverCrash),
        ("echo '{\"state\": {\"a\": '", Class::DriverCrash),
        ("exec 1>&-; exit 3", Class::Other),
    ];
    for (body, class) in cases {
        let short = Timeouts { work: Duration::from_secs(1), ..Timeouts::default() };
        let driver = world.script(body).with_timeouts(short);
        world.prepared(&driver, Flags::default()).await;
        let error = driver.remove().await.unwrap_err();
        assert!(error.class() == class || error.class() == Class::DriverCrash, "{body}: {error}");
    }
    for flag in
        [r#"{"name":"other-x"}"#, r#"{"name":"demo-x","type":"int","default":"a"}"#, r#"{"name":"demo-X"}"#]
    {
        let driver = world.script(&format!("echo '{{\"flags\":[{flag}]}}'"));
        assert_eq!(driver.flags().await.unwrap_err().class(), Class::Other, "{flag}");
    }
}
