//! A built-in driver as a plugin process, used through the plugin host, on a fake cloud.

use std::{path::PathBuf, sync::Arc, time::Duration};

use remuda_drivers::{
    driver::{Config, Driver, State},
    error::Class,
    fake::{Fake, Fault, amazonec2::AmazonEc2, digitalocean::DigitalOcean},
    flags::Flags,
    log::{Log, MemoryLog},
    plugin::{Launch, Plugin},
};

/// The example, which cargo builds beside the tests.
fn binary() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/plugin")
}

const TOKEN: &str = "canary-token-5678";

struct World {
    fake: Fake<DigitalOcean>,
    store: tempfile::TempDir,
    output: Arc<MemoryLog>,
}

impl World {
    async fn new() -> Self {
        let fake = Fake::start(DigitalOcean::new(TOKEN)).await.unwrap();
        Self { fake, store: tempfile::tempdir().unwrap(), output: Arc::default() }
    }

    fn launch(&self) -> Launch {
        let mut launch = Launch::new("digitalocean", binary());
        launch.env.push(("DIGITALOCEAN_API_URL".into(), self.fake.url()));
        launch
    }

    async fn plugin(&self) -> Plugin {
        Plugin::start(self.launch(), Log::new(self.output.clone())).await.unwrap()
    }

    async fn prepared(&self) -> Plugin {
        let plugin = self.plugin().await;
        let flags = plugin.flags().await.unwrap();
        assert_eq!(flags.len(), 14);
        plugin.load(Config::named("m1", self.store.path().to_str().unwrap())).await.unwrap();
        let mut values = Flags::defaults(&flags);
        values.set("digitalocean-access-token", TOKEN);
        plugin.configure(values).await.unwrap();
        plugin
    }
}

#[tokio::test]
async fn every_method_works_across_the_process_boundary() {
    let world = World::new().await;
    let plugin = world.prepared().await;
    assert_eq!(plugin.machine_name().await.unwrap(), "m1");
    plugin.pre_create_check().await.unwrap();
    plugin.create().await.unwrap();
    assert_eq!(plugin.state().await.unwrap(), State::Running);
    let ssh = plugin.ssh().await.unwrap();
    assert_eq!((ssh.port, ssh.user.as_str()), (22, "root"));
    assert_eq!(plugin.addresses().await.unwrap().ip, ssh.host);
    assert_eq!(plugin.url().await.unwrap(), format!("tcp://{}:2376", ssh.host));
    plugin.stop().await.unwrap();
    assert_eq!(plugin.state().await.unwrap(), State::Stopped);
    plugin.start().await.unwrap();
    plugin.restart().await.unwrap();
    plugin.kill().await.unwrap();
    assert!(plugin.upgrade().await.is_err());
    let record = plugin.config().await.unwrap();
    plugin.close().await;

    let later = world.plugin().await;
    later.load(record).await.unwrap();
    later.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), Vec::<String>::new());
    assert!(later.state().await.unwrap_err().is_not_found());
    let output = world.output.text();
    assert!(output.contains("Creating DigitalOcean droplet..."), "{output}");
    assert!(!output.contains("canary"), "{output}");
}

/// The command line of every process there is.
fn command_lines() -> String {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned() + "\n").collect()
}

#[tokio::test]
async fn a_killed_creation_is_cleaned_up_and_no_secret_is_seen_anywhere() {
    let world = World::new().await;
    let plugin = world.prepared().await;
    let record = plugin.config().await.unwrap();
    // The droplet is made, its answer never comes, and the plugin dies.
    let at = 2;
    world.fake.fault(at, Fault::Hang);
    tokio::select! {
        outcome = plugin.create() => panic!("{outcome:?}"),
        () = world.fake.hanging() => {}
    }
    assert_eq!(world.fake.calls()[at], "POST /v2/droplets");
    let lines = command_lines();
    assert!(lines.contains("examples/plugin") && !lines.contains("canary"));
    assert!(!format!("{plugin:?}").contains("canary"));
    drop(plugin);

    let later = world.plugin().await;
    later.load(record).await.unwrap();
    later.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), Vec::<String>::new());
    assert!(!world.output.text().contains("canary"));
}

#[tokio::test]
async fn classes_survive_the_wire_and_credentials_do_not() {
    let world = World::new().await;
    let plugin = world.prepared().await;
    let flags = plugin.flags().await.unwrap();
    let mut values = Flags::defaults(&flags);
    values.set("digitalocean-access-token", "canary-wrong-token");
    plugin.configure(values).await.unwrap();
    let error = plugin.pre_create_check().await.unwrap_err();
    assert_eq!(error.class(), Class::Credentials, "{error}");
    assert!(!format!("{error:?}").contains("canary"));
    let error = plugin.configure(Flags::defaults(&flags)).await.unwrap_err();
    assert!(error.to_string().contains("--digitalocean-access-token"), "{error}");
}

#[tokio::test]
async fn a_plugin_that_dies_while_it_works_is_told_from_one_that_fails() {
    let world = World::new().await;
    let real = world.prepared().await;
    drop(real);
    let ec2 = Fake::start(AmazonEc2::new("AKIDCANARY", "canary-secret", "us-east-1")).await.unwrap();
    let mut launch = Launch::new("amazonec2", binary());
    launch.env.push(("AWS_SECRET_ACCESS_KEY".into(), "canary-secret".into()));
    let plugin = Plugin::start(launch, Log::new(world.output.clone())).await.unwrap();
    plugin.load(Config::named("m1", world.store.path().to_str().unwrap())).await.unwrap();
    let mut values = Flags::defaults(&plugin.flags().await.unwrap());
    values.set("amazonec2-access-key", "AKIDCANARY");
    values.set("amazonec2-secret-key", "canary-secret");
    values.set("amazonec2-endpoint", ec2.authority());
    values.set("amazonec2-insecure-transport", true);
    plugin.configure(values).await.unwrap();
    ec2.fault(0, Fault::Hang);
    let pid = ec2_plugin();
    let killer = async {
        ec2.hanging().await;
        std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
    };
    let (outcome, ()) = tokio::join!(plugin.create(), killer);
    let error = outcome.unwrap_err();
    assert_eq!(error.class(), Class::DriverCrash);
    assert!(error.to_string().contains("signal: 9"), "{error}");
    let again = tokio::time::timeout(Duration::from_secs(2), plugin.state()).await.unwrap();
    assert_eq!(again.unwrap_err().class(), Class::DriverCrash);
}

/// The child of ours whose environment names EC2's driver.
fn ec2_plugin() -> String {
    let me = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter(|entry| {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|parent| parent.trim() == me))
            && String::from_utf8_lossy(&environ).contains("MACHINE_PLUGIN_DRIVER_NAME=amazonec2")
    });
    found.last().unwrap().file_name().to_string_lossy().into_owned()
}

#[tokio::test]
async fn started_by_hand_it_explains_itself() {
    let output = tokio::process::Command::new(binary()).env_clear().output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("API version: 1"));
}
