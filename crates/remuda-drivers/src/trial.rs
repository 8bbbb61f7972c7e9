//! What every driver of a cloud has to stand, on a fake of its API.

use std::{sync::Arc, time::Duration};

use crate::{
    builtin::{Context, Registry},
    driver::{Config, Driver},
    error::{Class, Error},
    fake::{Api, Fake, Fault},
    flags::Flags,
    http::Pace,
    log::{Log, MemoryLog},
};

/// A fake cloud, as the trials need it.
pub(crate) trait Cloud: Api + Sized {
    const NAME: &'static str;
    /// An account, with things in it that belong to others.
    fn occupied() -> Self;
    /// What a machine needs to be told, with credentials that contain `canary`.
    fn settings(&self, values: &mut Flags);
    /// Everything that exists, one line each.
    fn everything(&self) -> Vec<String>;
}

pub(crate) struct World<A> {
    pub fake: Fake<A>,
    pub store: tempfile::TempDir,
    pub output: Arc<MemoryLog>,
    pub context: Context,
}

impl<A: Cloud> World<A> {
    pub(crate) async fn new() -> Self {
        let fake = Fake::start(A::occupied()).await.unwrap();
        let output = Arc::new(MemoryLog::default());
        let mut context = Context::new(Log::new(output.clone()));
        let short = Duration::from_millis(1);
        context.pace = Pace {
            retry: short,
            longest: short * 20,
            attempts: 5,
            poll: short,
            patience: short * 5000,
            settle: short,
        };
        context.elsewhere.insert(A::NAME.to_owned(), fake.url());
        Self { fake, store: tempfile::tempdir().unwrap(), output, context }
    }

    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        Registry::standard().open(A::NAME, self.context.clone()).unwrap()
    }

    /// A driver for machine m1, as far as it is before creation.
    pub(crate) async fn prepared(&self, change: impl FnOnce(&mut Flags)) -> Arc<dyn Driver> {
        let (driver, outcome) = self.configured(change).await;
        outcome.unwrap();
        driver
    }

    pub(crate) async fn configured(
        &self,
        change: impl FnOnce(&mut Flags),
    ) -> (Arc<dyn Driver>, Result<(), Error>) {
        let driver = self.driver();
        driver.load(Config::named("m1", self.store.path().to_str().unwrap())).await.unwrap();
        let mut values = Flags::defaults(&driver.flags().await.unwrap());
        self.fake.api.settings(&mut values);
        change(&mut values);
        let outcome = driver.configure(values).await;
        (driver, outcome)
    }

    /// What is refused when the machine is configured.
    pub(crate) async fn refusal(&self, change: impl FnOnce(&mut Flags)) -> String {
        let error = self.configured(change).await.1.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        error.to_string()
    }

    /// The class of what fails when the machine is made, and that nothing secret is told.
    pub(crate) async fn failure(&self, change: impl FnOnce(&mut Flags)) -> Class {
        let driver = self.prepared(change).await;
        let error = match driver.pre_create_check().await {
            Ok(()) => driver.create().await.unwrap_err(),
            Err(error) => error,
        };
        self.silent();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        error.class()
    }

    /// No secret is in what was written.
    pub(crate) fn silent(&self) {
        assert!(!self.output.text().contains("canary"), "{}", self.output.text());
    }
}

async fn calls_of_create<A: Cloud>() -> usize {
    let world = World::<A>::new().await;
    world.prepared(|_| {}).await.create().await.unwrap();
    world.fake.calls().len()
}

/// Creation stands whatever goes wrong with one call, makes one machine, and removal leaves what was there.
pub(crate) async fn a_lost_answer_at_any_call_neither_fails_creation_nor_leaks<A: Cloud>() {
    let count = calls_of_create::<A>().await;
    assert!(count >= 4, "{count}");
    for index in 0..count {
        for fault in [Fault::LoseAnswer, Fault::LoseRequest, Fault::Throttle("0"), Fault::Fail(503, "down")] {
            let world = World::<A>::new().await;
            let before = world.fake.api.everything();
            world.fake.fault(index, fault.clone());
            let driver = world.prepared(|_| {}).await;
            driver.create().await.unwrap_or_else(|error| panic!("call {index} {fault:?}: {error}"));
            let found = driver.inventory().await.unwrap();
            assert_eq!(found.len(), 1, "call {index} {fault:?}: {found:?}");
            driver.remove().await.unwrap_or_else(|error| panic!("call {index} {fault:?}: {error}"));
            assert_eq!(world.fake.api.everything(), before, "call {index} {fault:?}");
            world.silent();
        }
    }
}

/// What was begun is removed by a process that has no more than the record from before creation.
pub(crate) async fn a_death_at_any_call_is_cleaned_up_from_the_first_record_alone<A: Cloud>() {
    for index in 0..calls_of_create::<A>().await {
        let world = World::<A>::new().await;
        let before = world.fake.api.everything();
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
        later.remove().await.unwrap_or_else(|error| panic!("call {index}: {error}"));
        assert_eq!(world.fake.api.everything(), before, "call {index}");
    }
}

/// A second creation from the first record finds what the first made.
pub(crate) async fn creating_twice_makes_one_machine<A: Cloud>() {
    let world = World::<A>::new().await;
    let before = world.fake.api.everything();
    let driver = world.prepared(|_| {}).await;
    let record = driver.config().await.unwrap();
    driver.create().await.unwrap();
    let once = world.fake.api.everything();
    let again = world.driver();
    again.load(record).await.unwrap();
    again.create().await.unwrap();
    assert_eq!(world.fake.api.everything(), once);
    assert_eq!(again.addresses().await.unwrap(), driver.addresses().await.unwrap());
    again.remove().await.unwrap();
    again.remove().await.unwrap();
    assert_eq!(world.fake.api.everything(), before);
    assert!(again.state().await.unwrap_err().is_not_found());
}

/// Rate limits are waited for, longer than failures, but not for ever.
pub(crate) async fn a_rate_limit_is_waited_for<A: Cloud>() {
    let world = World::<A>::new().await;
    (0..30).for_each(|index| world.fake.fault(index, Fault::Throttle("0")));
    let mut driver = world.prepared(|_| {}).await;
    driver.create().await.unwrap();
    let record = driver.config().await.unwrap();
    let mut impatient = world.context.clone();
    impatient.pace.patience = Duration::from_millis(50);
    driver = Registry::standard().open(A::NAME, impatient).unwrap();
    driver.load(record).await.unwrap();
    let now = world.fake.calls().len();
    (now..now + 10_000).for_each(|index| world.fake.fault(index, Fault::Throttle("0.01")));
    let error = driver.state().await.unwrap_err();
    assert_eq!(error.class(), Class::Quota, "{error}");
    assert!(error.to_string().contains("still throttled after"), "{error}");
}

/// A driver that knows the account and no machine lists ours, and nothing of others.
pub(crate) async fn the_inventory_shows_what_is_ours_and_nothing_else<A: Cloud>() {
    let world = World::<A>::new().await;
    let driver = world.prepared(|_| {}).await;
    driver.create().await.unwrap();
    let id = driver.config().await.unwrap().str("RemudaID").to_owned();
    assert_eq!(id.len(), 32);
    let other = world.driver();
    let mut values = Flags::defaults(&other.flags().await.unwrap());
    world.fake.api.settings(&mut values);
    other.load(Config::named("orphans", "")).await.unwrap();
    other.configure(values).await.unwrap();
    let found = other.inventory().await.unwrap();
    let found: Vec<_> = found.iter().map(|owned| (owned.identity.as_str(), owned.name.as_str())).collect();
    assert_eq!(found, [(id.as_str(), "m1")]);
}

/// A record that was never configured is nothing to ask anybody about; one of another driver of that name is kept.
pub(crate) async fn records_of_others_are_kept_and_empty_ones_ask_nobody<A: Cloud>() {
    let world = World::<A>::new().await;
    let driver = world.driver();
    let mut config = Config::named("m1", "/s");
    config.0.insert("Novelty".into(), "canary-novelty".into());
    driver.load(config).await.unwrap();
    assert_eq!(driver.config().await.unwrap().str("Novelty"), "canary-novelty");
    driver.remove().await.unwrap();
    assert_eq!(world.fake.calls(), Vec::<String>::new());
}

/// A credential that was changed is what later calls are made with.
pub(crate) async fn a_renewed_credential_is_used<A: Cloud>(flag: &str) {
    let world = World::<A>::new().await;
    let mut right = Flags::default();
    world.fake.api.settings(&mut right);
    let value = right.str(flag).to_owned();
    let driver = world.prepared(|_| {}).await;
    driver.create().await.unwrap();
    let mut record = driver.config().await.unwrap();
    let field = record.0.iter().find(|(_, held)| held.as_str() == Some(value.as_str()));
    let field = field.map(|(name, _)| name.clone()).unwrap();
    record.0.insert(field, "canary-old".into());
    let later = world.driver();
    later.load(record).await.unwrap();
    let error = later.state().await.unwrap_err();
    assert_eq!(error.class(), Class::Credentials, "{error}");
    let mut renewed = Flags::default();
    renewed.set(flag, value);
    later.renew(renewed).await.unwrap();
    later.state().await.unwrap();
    world.silent();
}

/// The trials that are the same for all, as tests of a driver's module.
macro_rules! trials {
    ($cloud:ty, $secret:literal) => {
        #[tokio::test]
        async fn a_lost_answer_at_any_call_neither_fails_creation_nor_leaks() {
            crate::trial::a_lost_answer_at_any_call_neither_fails_creation_nor_leaks::<$cloud>().await;
        }

        #[tokio::test]
        async fn a_death_at_any_call_is_cleaned_up_from_the_first_record_alone() {
            crate::trial::a_death_at_any_call_is_cleaned_up_from_the_first_record_alone::<$cloud>().await;
        }

        #[tokio::test]
        async fn creating_twice_makes_one_machine() {
            crate::trial::creating_twice_makes_one_machine::<$cloud>().await;
        }

        #[tokio::test]
        async fn a_rate_limit_is_waited_for() {
            crate::trial::a_rate_limit_is_waited_for::<$cloud>().await;
        }

        #[tokio::test]
        async fn the_inventory_shows_what_is_ours_and_nothing_else() {
            crate::trial::the_inventory_shows_what_is_ours_and_nothing_else::<$cloud>().await;
        }

        #[tokio::test]
        async fn records_of_others_are_kept_and_empty_ones_ask_nobody() {
            crate::trial::records_of_others_are_kept_and_empty_ones_ask_nobody::<$cloud>().await;
        }

        #[tokio::test]
        async fn a_renewed_credential_is_used() {
            crate::trial::a_renewed_credential_is_used::<$cloud>($secret).await;
        }
    };
}
pub(crate) use trials;
