use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    fake::{Fake, Fault, amazonec2::AmazonEc2 as Account},
    http::Pace,
    log::{Log, MemoryLog},
};

const ACCESS: &str = "AKIDCANARY";
const SECRET: &str = "canary-secret/+=";

struct World {
    fake: Fake<Account>,
    store: tempfile::TempDir,
    output: Arc<MemoryLog>,
    context: Context,
}

impl World {
    async fn new() -> Self {
        let fake = Fake::start(Account::new(ACCESS, SECRET, "us-east-1")).await.unwrap();
        let output = Arc::new(MemoryLog::default());
        let mut context = Context::new(Log::new(output.clone()));
        let short = Duration::from_millis(1);
        context.pace = Pace {
            retry: short,
            longest: short * 20,
            attempts: 5,
            poll: short,
            patience: short * 2000,
            settle: short,
        };
        Self { fake, store: tempfile::tempdir().unwrap(), output, context }
    }

    fn driver(&self) -> AmazonEc2 {
        AmazonEc2::new(self.context.clone())
    }

    async fn prepared(&self, name: &str, change: impl FnOnce(&mut Flags)) -> AmazonEc2 {
        let driver = self.driver();
        driver.load(Config::named(name, self.store.path().to_str().unwrap())).await.unwrap();
        let mut values = Flags::defaults(&flags::flags());
        values.set("amazonec2-access-key", ACCESS);
        values.set("amazonec2-secret-key", SECRET);
        values.set("amazonec2-endpoint", self.fake.authority());
        values.set("amazonec2-insecure-transport", true);
        change(&mut values);
        driver.configure(values).await.unwrap();
        driver
    }
}

#[tokio::test]
async fn an_instance_lives_from_create_to_remove() {
    let world = World::new().await;
    let file = world.store.path().join("user-data");
    std::fs::write(&file, "#cloud-config\n").unwrap();
    let driver = world
        .prepared("m1", |values| {
            values.set("amazonec2-userdata", file.to_str().unwrap());
            values.set("amazonec2-tags", "team,red,kubernetes.io/cluster/c-1,owned");
            values.set("amazonec2-http-tokens", "required");
            values.set("amazonec2-open-port", vec!["9000".to_owned(), "53/udp".to_owned()]);
        })
        .await;
    driver.pre_create_check().await.unwrap();
    driver.create().await.unwrap();
    let launch = &world.fake.api.launches()[0];
    for (name, value) in [
        ("ImageId", "ami-013b3de8a8fa9b39f"),
        ("UserData", "I2Nsb3VkLWNvbmZpZwo="),
        ("NetworkInterface.1.SubnetId", "subnet-2"),
        ("MetadataOptions.HttpTokens", "required"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "16"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
        ("TagSpecification.1.Tag.2.Key", "kubernetes.io/cluster/c-1"),
        ("TagSpecification.1.Tag.3.Value", "m1"),
    ] {
        assert_eq!(launch.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(driver.state().await.unwrap(), State::Running);
    let ssh = driver.ssh().await.unwrap();
    assert!(ssh.host.starts_with("198.51.100.") && ssh.user == "ubuntu", "{ssh:?}");
    assert!(driver.addresses().await.unwrap().private.starts_with("10."));
    let mine = driver.inventory().await.unwrap();
    assert_eq!(mine.len(), 1);
    assert_eq!((mine[0].name.as_str(), mine[0].kind.as_str()), ("m1", "instance"));
    assert_eq!(driver.config().await.unwrap().str("RemudaID"), mine[0].identity);
    driver.stop().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);
    driver.start().await.unwrap();
    driver.restart().await.unwrap();
    driver.kill().await.unwrap();

    let later = world.driver();
    later.load(driver.config().await.unwrap()).await.unwrap();
    later.remove().await.unwrap();
    later.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), Vec::<String>::new());
    assert!(later.state().await.unwrap_err().is_not_found());
    assert!(!world.output.text().contains("canary"));
    assert!(!format!("{driver:?}").to_lowercase().contains("canary"));
}

#[tokio::test]
async fn a_shared_group_stays_until_the_last_machine_is_gone() {
    let world = World::new().await;
    let (one, two) = (world.prepared("m1", |_| {}).await, world.prepared("m2", |_| {}).await);
    one.create().await.unwrap();
    two.create().await.unwrap();
    one.remove().await.unwrap();
    assert!(world.fake.api.resources().contains(&"group rancher-nodes".to_owned()));
    two.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), Vec::<String>::new());
}

async fn calls_of_create() -> usize {
    let world = World::new().await;
    world.fake.api.occupy();
    world.prepared("m1", |_| {}).await.create().await.unwrap();
    world.fake.calls().len()
}

#[tokio::test]
async fn a_lost_answer_at_any_call_neither_fails_creation_nor_leaks() {
    let count = calls_of_create().await;
    assert!(count >= 8, "{count}");
    for index in 0..count {
        for fault in [Fault::LoseAnswer, Fault::LoseRequest, Fault::Fail(503, "RequestLimitExceeded")] {
            let world = World::new().await;
            world.fake.api.occupy();
            let before = world.fake.api.resources();
            world.fake.fault(index, fault.clone());
            let driver = world.prepared("m1", |_| {}).await;
            driver.create().await.unwrap_or_else(|error| panic!("call {index} {fault:?}: {error}"));
            assert_eq!(world.fake.api.launches().len(), 2, "call {index} {fault:?}");
            driver.remove().await.unwrap();
            assert_eq!(world.fake.api.resources(), before, "call {index} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_death_at_any_call_is_cleaned_up_from_the_first_record_alone() {
    for index in 0..calls_of_create().await {
        let world = World::new().await;
        world.fake.api.occupy();
        let before = world.fake.api.resources();
        world.fake.fault(index, Fault::Hang);
        let driver = world.prepared("m1", |_| {}).await;
        let record = driver.config().await.unwrap();
        tokio::select! {
            outcome = driver.create() => panic!("call {index} was answered: {outcome:?}"),
            () = world.fake.hanging() => {}
        }
        drop(driver);
        let later = world.driver();
        later.load(record).await.unwrap();
        later.remove().await.unwrap();
        assert_eq!(world.fake.api.resources(), before, "call {index}");
    }
}

#[tokio::test]
async fn failures_have_their_class_and_no_secret() {
    let world = World::new().await;
    let class = async |driver: AmazonEc2| {
        let error = match driver.pre_create_check().await {
            Ok(()) => driver.create().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(!format!("{error} {error:?}").to_lowercase().contains("canary"), "{error}");
        error.class()
    };
    let wrong = world.prepared("m1", |values| values.set("amazonec2-secret-key", "canary-wrong")).await;
    assert_eq!(class(wrong).await, Class::Credentials);
    let image = world.prepared("m1", |values| values.set("amazonec2-ami", "ami-missing")).await;
    assert_eq!(class(image).await, Class::Image);
    world.fake.api.limit(0);
    assert_eq!(class(world.prepared("m1", |_| {}).await).await, Class::Quota);
    let capacity = World::new().await;
    let at = calls_of_create().await;
    (0..at).for_each(|index| capacity.fake.fault(index, Fault::Fail(500, "InsufficientInstanceCapacity")));
    assert_eq!(class(capacity.prepared("m1", |_| {}).await).await, Class::Quota);
}

#[tokio::test]
async fn contradictory_flags_are_refused() {
    let world = World::new().await;
    let refuse = async |change: &dyn Fn(&mut Flags)| {
        let driver = world.driver();
        let mut values = Flags::defaults(&flags::flags());
        values.set("amazonec2-access-key", ACCESS);
        values.set("amazonec2-secret-key", SECRET);
        change(&mut values);
        driver.configure(values).await.unwrap_err().to_string()
    };
    assert!(refuse(&|values| values.set("amazonec2-region", "moon-1")).await.contains("moon-1"));
    assert!(refuse(&|values| values.set("amazonec2-insecure-transport", true)).await.contains("endpoint"));
    assert!(refuse(&|values| values.set("amazonec2-keypair-name", "k")).await.contains("ssh-keypath"));
    assert!(
        refuse(&|values| values.set("amazonec2-http-tokens", "maybe")).await.contains("optional or required")
    );
    assert!(
        refuse(&|values| values.set("amazonec2-ipv6-address-only", true)).await.contains("greater than zero")
    );
    assert!(refuse(&|values| values.set("amazonec2-secret-key", "")).await.contains("secret-key"));
}
