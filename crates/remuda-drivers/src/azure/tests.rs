use serde_json::json;

use super::*;
use crate::{
    error::Class,
    fake::azure::Azure as Subscription,
    trial::{Cloud, World, trials},
};

impl Cloud for Subscription {
    const NAME: &'static str = NAME;

    fn occupied() -> Self {
        let subscription = Self::new("client-1", "canary-secret-1");
        subscription.occupy(2);
        subscription
    }

    fn settings(&self, values: &mut Flags) {
        values.set("azure-client-id", "client-1");
        values.set("azure-client-secret", "canary-secret-1");
        values.set("azure-tenant-id", "tenant-1");
        values.set("azure-subscription-id", "sub-1");
    }

    /// What is shared stays, and costs nothing.
    fn everything(&self) -> Vec<String> {
        let shared = ["resourcegroups ", "virtualnetworks ", "subnets ", "availabilitysets "];
        self.resources().into_iter().filter(|it| !shared.iter().any(|kind| it.starts_with(kind))).collect()
    }
}

trials!(Subscription, "azure-client-secret");

#[tokio::test]
async fn a_machine_lives_from_create_to_remove() {
    let world = World::<Subscription>::new().await;
    let before = world.fake.api.everything();
    let file = world.store.path().join("user-data");
    std::fs::write(&file, "#cloud-config\n").unwrap();
    let driver = world
        .prepared(|values| {
            values.set("azure-custom-data", file.to_str().unwrap());
            values.set("azure-tags", "team,a,empty");
            values.set("azure-open-port", vec!["80/tcp".to_owned()]);
            values.set("azure-private-ip-address", "192.168.0.9");
        })
        .await;
    driver.pre_create_check().await.unwrap();
    driver.create().await.unwrap();
    let record = driver.config().await.unwrap();
    let machine = world.fake.api.resource("virtualmachines", "m1");
    assert_eq!(machine["tags"], json!({"team": "a", "empty": "", "remuda-machine": record.str("RemudaID")}));
    let properties = &machine["properties"];
    assert_eq!(properties["osProfile"]["customData"], "I2Nsb3VkLWNvbmZpZwo=");
    assert!(properties["availabilitySet"]["id"].as_str().unwrap().ends_with("/docker-machine"));
    let firewall = world.fake.api.resource("networksecuritygroups", "m1-firewall");
    let rules = firewall["properties"]["securityRules"].as_array().unwrap();
    assert_eq!(
        rules.iter().map(|rule| &rule["properties"]["destinationPortRange"]).collect::<Vec<_>>(),
        ["22", "80"]
    );
    let card = world.fake.api.resource("networkinterfaces", "m1-nic");
    assert_eq!(card["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"], "192.168.0.9");
    assert_eq!(driver.state().await.unwrap(), State::Running);
    let addresses = driver.addresses().await.unwrap();
    assert!(
        addresses.ip.starts_with("203.0.113.") && addresses.private.starts_with("192.168."),
        "{addresses:?}"
    );
    assert!(std::path::Path::new(&driver.ssh().await.unwrap().key_path).exists());

    driver.stop().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);
    driver.start().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Running);
    driver.restart().await.unwrap();
    driver.kill().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);

    let later = world.driver();
    later.load(record).await.unwrap();
    later.remove().await.unwrap();
    assert_eq!(world.fake.api.everything(), before);
    world.silent();
    let mut shown = Azure::new(world.context.clone());
    shown.record.get_mut().client_secret = Secret::new("canary");
    assert!(!format!("{shown:?}").contains("canary"));
}

#[tokio::test]
async fn a_machine_in_a_zone_without_a_public_address() {
    let world = World::<Subscription>::new().await;
    let driver = world
        .prepared(|values| {
            values.set("azure-no-public-ip", true);
            values.set("azure-availability-zone", "2");
            values.set("azure-vnet", "docker-machine:inside");
        })
        .await;
    driver.create().await.unwrap();
    let machine = world.fake.api.resource("virtualmachines", "m1");
    assert_eq!(machine["zones"], json!(["2"]));
    assert!(machine["properties"]["availabilitySet"].is_null());
    assert!(world.fake.api.resource("publicipaddresses", "m1-ip").is_null());
    assert!(!world.fake.api.resource("virtualnetworks", "inside").is_null());
    let addresses = driver.addresses().await.unwrap();
    assert!(addresses.ip.starts_with("192.168.") && addresses.ip == addresses.private, "{addresses:?}");
}

#[tokio::test]
async fn resources_of_the_same_name_that_are_somebody_elses_are_left_alone() {
    let world = World::<Subscription>::new().await;
    let driver = world.driver();
    driver.load(Config::named("other-1", world.store.path().to_str().unwrap())).await.unwrap();
    let mut values = Flags::defaults(&all());
    world.fake.api.settings(&mut values);
    driver.configure(values).await.unwrap();
    let before = world.fake.api.everything();
    for outcome in [driver.pre_create_check().await, driver.create().await] {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("not this machine's"), "{error}");
    }
    driver.remove().await.unwrap();
    assert_eq!(world.fake.api.everything(), before);
}

#[tokio::test]
async fn failures_have_their_class_and_no_secret() {
    let world = World::<Subscription>::new().await;
    let set = |flag: &'static str, value: &'static str| move |values: &mut Flags| values.set(flag, value);
    assert_eq!(world.failure(set("azure-client-secret", "canary-wrong")).await, Class::Credentials);
    assert_eq!(world.failure(set("azure-tenant-id", "nobody")).await, Class::Credentials);
    assert_eq!(world.failure(set("azure-subscription-id", "not-mine")).await, Class::Credentials);
    assert_eq!(world.failure(set("azure-image", "nobody:x:y:latest")).await, Class::Image);
    assert_eq!(world.failure(set("azure-location", "mars")).await, Class::Other);
    let other = World::<Subscription>::new().await;
    other.fake.api.exhaust();
    assert_eq!(other.failure(|_| {}).await, Class::Quota);
    let full = World::<Subscription>::new().await;
    full.fake.api.limit(0);
    assert_eq!(full.failure(|_| {}).await, Class::Quota);
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused_by_name() {
    let world = World::<Subscription>::new().await;
    for (flag, value) in [
        ("client-id", ""),
        ("client-secret", ""),
        ("tenant-id", ""),
        ("environment", "https://login.example"),
        ("plan", "a:b:c"),
        ("image", "https://example.com/disk.vhd"),
        ("ssh-user", "root"),
        ("tags", "remuda-machine,x"),
        ("tags", "a/b,x"),
        ("availability-zone", "1"),
        ("availability-zone", "west"),
        ("private-ip-address", "here"),
        ("nsg", "/elsewhere?x"),
        ("size", ""),
    ] {
        let said = world.refusal(|values| values.set(format!("azure-{flag}"), value)).await;
        assert!(said.contains(&format!("--azure-{flag}")), "{flag} {value}: {said}");
    }
    let said = world.refusal(|values| values.set("azure-open-port", vec!["all".to_owned()])).await;
    assert!(said.contains("--azure-open-port"), "{said}");
}

#[test]
fn there_are_the_flags_of_the_original() {
    let flags = all();
    assert_eq!(flags.len(), 33);
    let secret: Vec<_> =
        flags.iter().filter(|flag| flag.is_secret()).map(|flag| flag.name.as_str()).collect();
    assert_eq!(secret, ["azure-client-secret"]);
    assert_eq!(flags.iter().filter(|flag| flag.is_user_data()).count(), 1);
}
