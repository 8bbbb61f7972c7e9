//! The driver, as the machine provider uses it.

use remuda_drivers::{
    driver::{Config, State},
    flags::Flags,
    log::Log,
};
use remuda_sandbox::{
    driver::flags,
    machines::{Image, Images, Options},
};

use crate::bench::{Bench, program};

#[tokio::test]
async fn a_machine_lives_through_its_driver_and_is_found_by_its_first_record() {
    let Some(bench) = Bench::new() else { return };
    let images = Images(std::sync::Arc::new(|| {
        vec![Image {
            file: "rancher/system-agent-installer-k3s:v1.35.1-k3s1.tar".into(),
            bytes: b"tar".into(),
        }]
    }));
    let options = Options { data_dir: bench.data_dir.clone(), program: program(), images, privileged: false };
    let open = || remuda_sandbox::driver(options.clone(), Log::tracing());
    let store = tempfile::tempdir().unwrap();
    let script = store.path().join("userdata");
    std::fs::write(&script, "#cloud-config\nhostname: demo-a\n").unwrap();

    let driver = open();
    driver.load(Config::named("demo", store.path().to_str().unwrap())).await.unwrap();
    assert!(driver.create().await.is_err(), "not configured yet");
    let mut values = Flags::defaults(&flags());
    values.set("local-user-data", script.to_str().unwrap());
    driver.configure(values.clone()).await.unwrap();
    driver.pre_create_check().await.unwrap();
    let first = driver.config().await.unwrap();
    assert!(driver.state().await.unwrap_err().is_not_found());
    driver.create().await.unwrap();
    driver.create().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Running);
    driver.booted().await.unwrap();
    let address = driver.addresses().await.unwrap().ip;
    assert!(address.starts_with("10.213."), "{address}");
    let found = "ls /var/lib/rancher/agent/images/*/ && hostname";
    let expected = "rancher-system-agent-installer-k3s-v1.35.1-k3s1.tar\ndemo-a";
    assert_eq!(bench.text("demo", found), expected);

    driver.restart().await.unwrap();
    driver.stop().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);
    driver.start().await.unwrap();
    driver.kill().await.unwrap();
    assert_eq!(driver.inventory().await.unwrap().len(), 1);

    // Another process knows no more than what was saved before the machine was made.
    let later = open();
    later.load(first).await.unwrap();
    later.remove().await.unwrap();
    later.remove().await.unwrap();
    assert!(later.state().await.unwrap_err().is_not_found());
    bench.assert_clean();
}

#[tokio::test]
async fn a_first_start_that_fails_is_a_failure_of_the_driver() {
    let Some(bench) = Bench::new() else { return };
    let options = Options {
        data_dir: bench.data_dir.clone(),
        program: program(),
        images: Images::default(),
        privileged: false,
    };
    let driver = remuda_sandbox::driver(options, Log::tracing());
    let store = tempfile::tempdir().unwrap();
    let script = store.path().join("userdata");
    // A disk that is full.
    let text = "#!/bin/sh\nset -e\nmkdir /srv/d\nmount -t tmpfs -o size=4k tmpfs /srv/d\n\
                echo filling\nhead -c 9000 /dev/zero > /srv/d/file\n";
    std::fs::write(&script, text).unwrap();
    driver.load(Config::named("full", store.path().to_str().unwrap())).await.unwrap();
    let mut values = Flags::defaults(&flags());
    values.set("local-user-data", script.to_str().unwrap());
    driver.configure(values).await.unwrap();
    driver.create().await.unwrap();
    let error = driver.booted().await.unwrap_err().to_string();
    assert!(error.contains("ended with 1") && error.contains("No space left on device"), "{error}");
    driver.remove().await.unwrap();
    bench.assert_clean();
}
