use super::*;
use crate::{
    error::Class,
    fake::hetzner::Hetzner as Project,
    trial::{Cloud, World, trials},
};

impl Cloud for Project {
    const NAME: &'static str = NAME;

    fn occupied() -> Self {
        let project = Self::new("canary-token-1234");
        project.occupy(3);
        project
    }

    fn settings(&self, values: &mut Flags) {
        values.set("hetzner-api-token", "canary-token-1234");
    }

    fn everything(&self) -> Vec<String> {
        self.resources()
    }
}

trials!(Project, "hetzner-api-token");

#[tokio::test]
async fn a_server_lives_from_create_to_remove() {
    let world = World::<Project>::new().await;
    let before = world.fake.api.resources();
    let file = world.store.path().join("user-data");
    std::fs::write(&file, "#cloud-config\n").unwrap();
    let driver = world
        .prepared(|values| {
            values.set("hetzner-user-data-file", file.to_str().unwrap());
            values.set("hetzner-server-label", vec!["team=a".to_owned()]);
            values.set("hetzner-server-location", "fsn1");
            values.set("hetzner-networks", vec!["inside".to_owned()]);
            values.set("hetzner-firewalls", vec!["21".to_owned()]);
            values.set("hetzner-placement-group", "apart");
            values.set("hetzner-primary-ipv4", "first");
        })
        .await;
    driver.pre_create_check().await.unwrap();
    driver.create().await.unwrap();
    let made = world.fake.api.servers().pop().unwrap();
    let id = driver.config().await.unwrap().str("RemudaID").to_owned();
    assert_eq!(made["labels"], json!({"team": "a", "remuda.io/machine": id}));
    assert_eq!(made["user_data"], "#cloud-config\n");
    assert_eq!((&made["networks"], &made["placement_group"]), (&json!([11]), &json!(31)));
    assert_eq!(made["firewalls"], json!([{"firewall": 21}]));
    assert_eq!(made["public_net"], json!({"enable_ipv4": true, "enable_ipv6": true, "ipv4": 41}));
    assert_eq!(driver.state().await.unwrap(), State::Running);
    let addresses = driver.addresses().await.unwrap();
    assert!(addresses.ip.starts_with("203.0.113.") && addresses.private.starts_with("10."), "{addresses:?}");
    assert!(addresses.ipv6.starts_with("2001:db8:") && addresses.ipv6.ends_with("::1"), "{addresses:?}");
    assert!(std::path::Path::new(&driver.ssh().await.unwrap().key_path).exists());

    driver.stop().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);
    driver.start().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Running);
    driver.restart().await.unwrap();
    driver.kill().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);

    // Another life, from the record alone.
    let later = world.driver();
    later.load(driver.config().await.unwrap()).await.unwrap();
    later.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), before);
    world.silent();
    let mut shown = Hetzner::new(world.context.clone());
    shown.record.get_mut().access_token = Secret::new("canary-token-1234");
    assert!(!format!("{shown:?}").contains("canary"));
}

#[tokio::test]
async fn a_server_without_public_addresses_is_reached_by_its_private_one() {
    let world = World::<Project>::new().await;
    let change = |values: &mut Flags| {
        values.set("hetzner-disable-public", true);
        values.set("hetzner-networks", vec!["inside".to_owned()]);
    };
    let driver = world.prepared(change).await;
    driver.create().await.unwrap();
    let made = world.fake.api.servers().pop().unwrap();
    assert_eq!(made["public_net"], json!({"enable_ipv4": false, "enable_ipv6": false}));
    let addresses = driver.addresses().await.unwrap();
    assert!(addresses.ip.starts_with("10.") && addresses.ip == addresses.private, "{addresses:?}");
}

#[tokio::test]
async fn a_name_that_is_somebody_elses_is_left_alone() {
    let world = World::<Project>::new().await;
    let driver = world.driver();
    driver.load(Config::named("other-1", world.store.path().to_str().unwrap())).await.unwrap();
    let mut values = Flags::defaults(&flags());
    world.fake.api.settings(&mut values);
    driver.configure(values).await.unwrap();
    let before = world.fake.api.servers();
    let error = driver.create().await.unwrap_err();
    assert!(error.to_string().contains("already used"), "{error}");
    driver.remove().await.unwrap();
    assert_eq!(world.fake.api.servers(), before);
}

#[tokio::test]
async fn an_existing_key_stays() {
    let world = World::<Project>::new().await;
    let before = world.fake.api.resources();
    let key = world.store.path().join("key");
    std::fs::write(&key, "private").unwrap();
    let driver = world
        .prepared(|values| {
            values.set("hetzner-existing-key-id", "1");
            values.set("hetzner-existing-key-path", key.to_str().unwrap());
        })
        .await;
    driver.create().await.unwrap();
    assert_eq!(world.fake.api.servers().pop().unwrap()["ssh_keys"], json!([1]));
    assert_eq!(std::fs::read_to_string(driver.ssh().await.unwrap().key_path).unwrap(), "private");
    driver.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), before);
}

#[tokio::test]
async fn failures_have_their_class_and_no_token() {
    let world = World::<Project>::new().await;
    let set = |flag: &'static str, value: &'static str| move |values: &mut Flags| values.set(flag, value);
    assert_eq!(world.failure(set("hetzner-api-token", "canary-wrong")).await, Class::Credentials);
    assert_eq!(world.failure(set("hetzner-api-token", "canary\u{7f}x")).await, Class::Credentials);
    assert_eq!(world.failure(set("hetzner-image", "nonesuch")).await, Class::Image);
    assert_eq!(world.failure(set("hetzner-image-id", "7")).await, Class::Image);
    assert_eq!(world.failure(set("hetzner-server-type", "huge")).await, Class::Other);
    assert_eq!(world.failure(set("hetzner-server-location", "mars1")).await, Class::Other);
    world.fake.api.limit(0);
    assert_eq!(world.failure(|_| {}).await, Class::Quota);
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused_by_name() {
    let world = World::<Project>::new().await;
    let refusal = async |flag: &str, value: crate::flags::Value| {
        world.refusal(|values| values.set(flag.to_owned(), value)).await
    };
    let text =
        |list: &[&str]| crate::flags::Value::from(list.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!(refusal("hetzner-api-token", "".into()).await.contains("--hetzner-api-token"));
    assert!(refusal("hetzner-volumes", text(&["v"])).await.contains("--hetzner-volumes is not supported"));
    assert!(refusal("hetzner-auto-spread", true.into()).await.contains("--hetzner-auto-spread"));
    assert!(refusal("hetzner-server-label", text(&["a=b c"])).await.contains("--hetzner-server-label"));
    assert!(refusal("hetzner-server-label", text(&["remuda.io/machine=x"])).await.contains("by the driver"));
    assert!(refusal("hetzner-image", "a\nb".into()).await.contains("--hetzner-image"));
    assert!(refusal("hetzner-image-id", "x".into()).await.contains("--hetzner-image-id"));
    assert!(refusal("hetzner-use-private-network", true.into()).await.contains("--hetzner-networks"));
    assert!(refusal("hetzner-existing-key-id", "4".into()).await.contains("need each other"));
}

#[test]
fn there_are_the_flags_of_the_original_but_inline_user_data() {
    let all = flags();
    assert_eq!(all.len(), 28);
    let secret: Vec<_> = all.iter().filter(|flag| flag.is_secret()).map(|flag| flag.name.as_str()).collect();
    assert_eq!(secret, ["hetzner-api-token"]);
    assert_eq!(all.iter().filter(|flag| flag.is_user_data()).count(), 1);
}
