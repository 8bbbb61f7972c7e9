use super::*;
use crate::{
    fake::google::Google as Project,
    trial::{Cloud, World, trials},
};

impl Cloud for Project {
    const NAME: &'static str = NAME;

    fn occupied() -> Self {
        let project = Self::default();
        project.occupy(3);
        project
    }

    fn settings(&self, values: &mut Flags) {
        values.set("google-auth-encoded-json", Self::key());
    }

    fn everything(&self) -> Vec<String> {
        self.resources()
    }
}

trials!(Project, "google-auth-encoded-json");

#[tokio::test]
async fn an_instance_lives_from_create_to_remove() {
    let world = World::<Project>::new().await;
    let before = world.fake.api.resources();
    let file = world.store.path().join("user-data");
    std::fs::write(&file, "#cloud-config\n").unwrap();
    let driver = world
        .prepared(|values| {
            values.set("google-userdata", file.to_str().unwrap());
            values.set("google-vm-labels", "team,a,empty");
            values.set("google-tags", "web, ssh");
            values.set("google-address", "front");
            values.set("google-subnetwork", "inside");
        })
        .await;
    driver.pre_create_check().await.unwrap();
    driver.create().await.unwrap();
    let made = world.fake.api.instance("m1");
    let record = driver.config().await.unwrap();
    assert_eq!(record.str("Project"), "demo-project", "that of the key");
    let labels = json!({"team": "a", "empty": "", "remuda-machine": record.str("RemudaID")});
    assert_eq!((&made["labels"], &made["tags"]["items"]), (&labels, &json!(["web", "ssh"])));
    let card = &made["networkInterfaces"][0];
    assert_eq!(card["subnetwork"], "projects/demo-project/regions/us-central1/subnetworks/inside");
    let metadata = made["metadata"]["items"].as_array().unwrap();
    assert!(metadata[0]["value"].as_str().unwrap().starts_with("docker-user:ssh-ed25519 "), "{metadata:?}");
    assert_eq!(metadata[1], json!({"key": "user-data", "value": "#cloud-config\n"}));
    let disk = &made["disks"][0]["initializeParams"];
    assert_eq!(disk["sourceImage"], "projects/ubuntu-os-cloud/global/images/ubuntu-2204-jammy-v20220420");
    assert_eq!(driver.state().await.unwrap(), State::Running);
    let addresses = driver.addresses().await.unwrap();
    assert!(addresses.ip == "198.51.100.7" && addresses.private.starts_with("10."), "{addresses:?}");
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
    assert_eq!(world.fake.api.resources(), before);
    // One token is enough for one driver.
    let tokens = world.fake.calls().iter().filter(|call| *call == "POST /token").count();
    assert_eq!(tokens, 2);
    world.silent();
    let mut shown = Google::new(world.context.clone());
    shown.record.get_mut().auth = Secret::new("canary");
    assert!(!format!("{shown:?}").contains("canary"));
}

#[tokio::test]
async fn an_instance_without_an_external_address_is_reached_by_its_internal_one() {
    let world = World::<Project>::new().await;
    let driver = world.prepared(|values| values.set("google-use-internal-ip-only", true)).await;
    driver.create().await.unwrap();
    assert!(world.fake.api.instance("m1")["networkInterfaces"][0]["accessConfigs"].is_null());
    let addresses = driver.addresses().await.unwrap();
    assert!(addresses.ip.starts_with("10.") && addresses.ip == addresses.private, "{addresses:?}");
}

#[tokio::test]
async fn an_instance_of_the_same_name_that_is_somebody_elses_is_left_alone() {
    let world = World::<Project>::new().await;
    let driver = world.driver();
    driver.load(Config::named("other-1", world.store.path().to_str().unwrap())).await.unwrap();
    let mut values = Flags::defaults(&all());
    world.fake.api.settings(&mut values);
    driver.configure(values).await.unwrap();
    let before = world.fake.api.resources();
    let error = driver.create().await.unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert!(driver.state().await.unwrap_err().is_not_found());
    driver.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), before);
}

#[tokio::test]
async fn failures_have_their_class_and_no_secret() {
    let world = World::<Project>::new().await;
    let set = |flag: &'static str, value: &'static str| move |values: &mut Flags| values.set(flag, value);
    let broken = r#"{"type":"service_account","client_email":"a@b","private_key":"canary","project_id":"p"}"#;
    assert_eq!(world.failure(set("google-auth-encoded-json", broken)).await, Class::Credentials);
    assert_eq!(world.failure(set("google-project", "not-mine")).await, Class::Credentials);
    assert_eq!(
        world.failure(set("google-machine-image", "ubuntu-os-cloud/global/images/x")).await,
        Class::Image
    );
    assert_eq!(world.failure(set("google-zone", "mars-a")).await, Class::Other);
    assert_eq!(world.failure(set("google-machine-type", "huge")).await, Class::Other);
    world.fake.api.limit(0);
    assert_eq!(world.failure(|_| {}).await, Class::Quota);
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused_by_name() {
    let world = World::<Project>::new().await;
    for (flag, value) in [
        ("auth-encoded-json", "canary"),
        ("auth-encoded-json", ""),
        ("external-firewall-rule-prefix", "x"),
        ("vm-labels", "Team,a"),
        ("vm-labels", "remuda-machine,x"),
        ("tags", "Not A Tag"),
        ("username", "root; rm"),
        ("zone", "a\u{0}b"),
        ("network", ""),
    ] {
        let said = world.refusal(|values| values.set(format!("google-{flag}"), value)).await;
        assert!(said.contains(&format!("--google-{flag}")), "{flag} {value}: {said}");
    }
    let said = world.refusal(|values| values.set("google-use-existing", true)).await;
    assert!(said.contains("--google-use-existing is not supported"), "{said}");
    let driver = world.driver();
    driver.load(Config::named("Has.Dots", "/s")).await.unwrap();
    let mut values = Flags::defaults(&all());
    world.fake.api.settings(&mut values);
    driver.configure(values).await.unwrap();
    let error = driver.pre_create_check().await.unwrap_err();
    assert!(error.to_string().contains("Has.Dots"), "{error}");
}

#[test]
fn there_are_the_flags_of_the_original() {
    let flags = all();
    assert_eq!(flags.len(), 22);
    let secret: Vec<_> =
        flags.iter().filter(|flag| flag.is_secret()).map(|flag| flag.name.as_str()).collect();
    assert_eq!(secret, ["google-auth-encoded-json"]);
}
