use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    error::Class,
    fake::{Fake, Fault, digitalocean::DigitalOcean as Account},
    http::Pace,
    log::{Log, MemoryLog},
};

const TOKEN: &str = "canary-token-1234";

fn pace() -> Pace {
    let short = Duration::from_millis(1);
    Pace {
        retry: short,
        longest: short * 20,
        attempts: 5,
        poll: short,
        patience: short * 2000,
        settle: short,
    }
}

struct World {
    fake: Fake<Account>,
    store: tempfile::TempDir,
    output: Arc<MemoryLog>,
    context: Context,
}

impl World {
    async fn new() -> Self {
        let fake = Fake::start(Account::new(TOKEN)).await.unwrap();
        let output = Arc::new(MemoryLog::default());
        let mut context = Context::new(Log::new(output.clone()));
        context.pace = pace();
        context.digitalocean = fake.url();
        Self { fake, store: tempfile::tempdir().unwrap(), output, context }
    }

    fn driver(&self) -> DigitalOcean {
        DigitalOcean::new(self.context.clone())
    }

    /// A driver for machine m1, as far as it is before creation.
    async fn prepared(&self, change: impl FnOnce(&mut Flags)) -> DigitalOcean {
        let driver = self.driver();
        driver.load(Config::named("m1", self.store.path().to_str().unwrap())).await.unwrap();
        let mut values = Flags::defaults(&flags());
        values.set("digitalocean-access-token", TOKEN);
        change(&mut values);
        driver.configure(values).await.unwrap();
        driver
    }
}

#[tokio::test]
async fn a_droplet_lives_from_create_to_remove() {
    let world = World::new().await;
    let file = world.store.path().join("user-data");
    std::fs::write(&file, "#cloud-config\n").unwrap();
    let driver = world
        .prepared(|values| {
            values.set("digitalocean-userdata", file.to_str().unwrap());
            values.set("digitalocean-tags", "a, b");
            values.set("digitalocean-ipv6", true);
            values.set("digitalocean-private-networking", true);
        })
        .await;
    driver.pre_create_check().await.unwrap();
    driver.create().await.unwrap();
    let made = world.fake.api.droplets();
    assert_eq!(made.len(), 1);
    assert_eq!(
        (made[0]["name"].as_str(), made[0]["user_data"].as_str()),
        (Some("m1"), Some("#cloud-config\n"))
    );
    assert_eq!(made[0]["tags"].as_array().unwrap().len(), 3);
    assert_eq!(driver.state().await.unwrap(), State::Running);
    let addresses = driver.addresses().await.unwrap();
    assert!(addresses.ip.starts_with("203.0.113.") && addresses.private.starts_with("10."), "{addresses:?}");
    assert!(addresses.ipv6.starts_with("2001:db8::"));
    assert!(std::path::Path::new(&driver.ssh().await.unwrap().key_path).exists());

    driver.stop().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);
    driver.start().await.unwrap();
    driver.restart().await.unwrap();
    driver.kill().await.unwrap();

    // Another life, from the record alone.
    let later = world.driver();
    later.load(driver.config().await.unwrap()).await.unwrap();
    assert_eq!(later.machine_name().await.unwrap(), "m1");
    later.remove().await.unwrap();
    later.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), ["tag a", "tag b"], "the user's own tags stay");
    assert!(later.state().await.unwrap_err().is_not_found());
    assert!(!world.output.text().contains("canary"));
    assert!(!format!("{driver:?}").contains("canary"));
}

#[tokio::test]
async fn fields_of_another_driver_of_that_name_are_kept() {
    let world = World::new().await;
    let driver = world.driver();
    let mut config = Config::named("m1", "/s");
    config.0.insert("Novelty".into(), "canary-novelty".into());
    config.0.insert("DropletID".into(), 7.into());
    driver.load(config).await.unwrap();
    let config = driver.config().await.unwrap();
    assert_eq!((config.str("Novelty"), config.0["DropletID"].as_u64()), ("canary-novelty", Some(7)));
    assert_eq!(config.str("MachineName"), "m1");
    assert!(!format!("{driver:?}").contains("canary"));
}

#[tokio::test]
async fn removing_what_was_never_configured_asks_nobody() {
    let world = World::new().await;
    let driver = world.driver();
    driver.load(Config::named("m1", "/s")).await.unwrap();
    driver.remove().await.unwrap();
    assert_eq!(world.fake.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn creating_twice_makes_one_droplet() {
    let world = World::new().await;
    let driver = world.prepared(|_| {}).await;
    let record = driver.config().await.unwrap();
    driver.create().await.unwrap();
    let again = world.driver();
    again.load(record).await.unwrap();
    again.create().await.unwrap();
    assert_eq!(world.fake.api.droplets().len(), 1);
    again.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), Vec::<String>::new());
}

async fn calls_of_create() -> usize {
    let world = World::new().await;
    world.fake.api.occupy(3);
    world.prepared(|_| {}).await.create().await.unwrap();
    world.fake.calls().len()
}

#[tokio::test]
async fn a_lost_answer_at_any_call_neither_fails_creation_nor_leaks() {
    let count = calls_of_create().await;
    assert!(count >= 4, "{count}");
    for index in 0..count {
        for fault in [Fault::LoseAnswer, Fault::LoseRequest, Fault::Throttle("0"), Fault::Fail(503, "down")] {
            let world = World::new().await;
            world.fake.api.occupy(3);
            let before = world.fake.api.resources();
            world.fake.fault(index, fault.clone());
            let driver = world.prepared(|_| {}).await;
            driver.create().await.unwrap_or_else(|error| panic!("call {index} {fault:?}: {error}"));
            assert_eq!(world.fake.api.droplets().len(), 4, "call {index} {fault:?}");
            driver.remove().await.unwrap();
            assert_eq!(world.fake.api.resources(), before, "call {index} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_death_at_any_call_is_cleaned_up_from_the_first_record_alone() {
    for index in 0..calls_of_create().await {
        let world = World::new().await;
        world.fake.api.occupy(3);
        let before = world.fake.api.resources();
        world.fake.fault(index, Fault::Hang);
        let driver = world.prepared(|_| {}).await;
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
async fn failures_have_their_class_and_no_token() {
    let world = World::new().await;
    let class = async |driver: DigitalOcean| {
        let error = match driver.pre_create_check().await {
            Ok(()) => driver.create().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        error.class()
    };
    let wrong = world.prepared(|values| values.set("digitalocean-access-token", "canary-wrong")).await;
    assert_eq!(class(wrong).await, Class::Credentials);
    let image = world.prepared(|values| values.set("digitalocean-image", "nonesuch")).await;
    assert_eq!(class(image).await, Class::Image);
    let region = world.prepared(|values| values.set("digitalocean-region", "mars1")).await;
    assert_eq!(class(region).await, Class::Other);
    world.fake.api.limit(0);
    assert_eq!(class(world.prepared(|_| {}).await).await, Class::Quota);
}

#[tokio::test]
async fn a_rate_limit_is_waited_for() {
    let world = World::new().await;
    // More often than a call is tried that fails.
    (0..40).for_each(|index| world.fake.fault(index, Fault::Throttle("0")));
    let driver = world.prepared(|_| {}).await;
    driver.create().await.unwrap();
    assert_eq!(world.fake.api.droplets().len(), 1);
    // But not for ever.
    let now = world.fake.calls().len();
    (now..now + 10_000).for_each(|index| world.fake.fault(index, Fault::Throttle("0.01")));
    let error = driver.state().await.unwrap_err();
    assert_eq!(error.class(), Class::Quota);
    assert!(error.to_string().contains("still throttled after"), "{error}");
}

#[tokio::test]
async fn two_hundred_machines_at_once_are_no_trouble() {
    let world = World::new().await;
    world.fake.latency(Duration::from_millis(5));
    let mut drivers = Vec::new();
    for number in 0..200 {
        let driver = world.driver();
        let name = format!("m{number}");
        driver.load(Config::named(&name, world.store.path().to_str().unwrap())).await.unwrap();
        let mut values = Flags::defaults(&flags());
        values.set("digitalocean-access-token", TOKEN);
        driver.configure(values).await.unwrap();
        drivers.push(driver);
    }
    let mut running = tokio::task::JoinSet::new();
    for driver in drivers {
        running.spawn(async move { driver.create().await });
    }
    assert!(running.join_all().await.into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(world.fake.api.droplets().len(), 200);
}

#[tokio::test]
async fn the_inventory_shows_what_is_ours_and_nothing_else() {
    let world = World::new().await;
    world.fake.api.occupy(3);
    let driver = world.prepared(|_| {}).await;
    driver.create().await.unwrap();
    let id = driver.config().await.unwrap().str("RemudaID").to_owned();
    // A driver that knows the account and no machine.
    let other = world.driver();
    let mut config = Config::default();
    config.0.insert("AccessToken".into(), TOKEN.into());
    other.load(config).await.unwrap();
    let found = other.inventory().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].identity.as_str(), found[0].name.as_str()), (id.as_str(), "m1"));
}
