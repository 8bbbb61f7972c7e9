//! Snapshots in a store. It is reached over TLS by this server, and by each machine in its own network.

use std::{fs, net::TcpListener, thread};

use nix::sched::{CloneFlags, setns};
use remuda_s3::fake::{ACCESS_KEY, FakeStore, Fault, SECRET_KEY};

use super::*;
use crate::harness::skipped;

/// A laboratory with a store beside it.
struct Site {
    lab: Lab,
    fake: FakeStore,
}

impl Site {
    /// A cluster that puts its snapshots into the store.
    fn open(servers: u32) -> Option<Site> {
        if !nix::unistd::geteuid().is_root() {
            skipped("only root can have a store in the networks of machines");
            return None;
        }
        let lab = Lab::open(None)?;
        let buckets = lab.place.join("buckets");
        fs::create_dir_all(&buckets).unwrap();
        let fake = lab.runtime.block_on(FakeStore::start([127, 0, 0, 1].into(), &buckets)).unwrap();
        fake.make("backups").unwrap();
        let site = Site { lab, fake };
        site.lab.run(&format!("cluster create demo --servers {servers} --workers 1 --wait --timeout 180s"));
        site.reach();
        site.lab.make_secret(
            "demo",
            "keys",
            &json!({"s3credentialConfig-accessKey": ACCESS_KEY, "s3credentialConfig-secretKey": SECRET_KEY}),
        );
        site.lab.change(
            "demo",
            &json!({"spec": {"rkeConfig": {"etcd": {"s3": {
                "bucket": "backups", "folder": "demo", "endpoint": site.fake.endpoint(),
                "endpointCA": site.fake.certificate(), "cloudCredentialName": "keys",
            }}}}}),
        );
        site.settle();
        Some(site)
    }

    /// Has the store listen in the network of every machine.
    fn reach(&self) {
        let _runtime = self.lab.runtime.enter();
        for pid in self.lab.sandbox().list().unwrap().into_iter().filter_map(|machine| machine.pid) {
            let address = self.fake.address();
            let inside = move || {
                let network = fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
                setns(network, CloneFlags::CLONE_NEWNET).unwrap();
                // One that listens there already does so for the same store.
                TcpListener::bind(address).ok()
            };
            if let Some(listener) = thread::spawn(inside).join().unwrap() {
                self.fake.listen(listener).unwrap();
            }
        }
    }

    fn settle(&self) {
        self.lab.until("the plans are carried out", Duration::from_secs(120), || {
            let control_planes = self.lab.objects("rke.cattle.io", "v1", "RKEControlPlane");
            let carried_out = |one: &kube::api::DynamicObject| {
                one.data["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|condition| condition["type"] == "Reconciled" && condition["status"] == "True")
                    && one.data["status"]["observedGeneration"].as_i64() == one.metadata.generation
            };
            control_planes.iter().all(carried_out) && self.lab.say("why demo").0 == 0
        });
    }

    fn of(&self, storage: &str) -> Vec<Value> {
        let mut all = listed(&self.lab, "demo");
        all.retain(|one| one["metadata"]["annotations"]["etcdsnapshot.rke.io/storage"] == storage);
        all
    }

    /// Takes a snapshot. Answers with the name of its copy in the store.
    fn take(&self) -> String {
        self.lab.run("snapshot create demo --wait --timeout 90s");
        self.of("s3")[0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// The keys are where they have to be, and nowhere else.
    fn check_no_leak(&self) {
        for (machine, plan) in self.lab.plans() {
            let plan: Value = serde_json::from_str(plan.as_deref().unwrap_or("{}")).unwrap();
            let instructions = plan["instructions"].to_string();
            assert!(
                !instructions.contains(SECRET_KEY) && !instructions.contains(ACCESS_KEY),
                "{machine}: {plan}"
            );
        }
        let log = self.lab.server.as_ref().unwrap().log();
        assert!(!log.contains(SECRET_KEY));
        for (group, version, kind) in [
            ("rke.cattle.io", "v1", "ETCDSnapshot"),
            ("rke.cattle.io", "v1", "RKEControlPlane"),
            ("", "v1", "Event"),
        ] {
            for object in self.lab.objects(group, version, kind) {
                assert!(!object.data.to_string().contains(SECRET_KEY), "{kind}");
            }
        }
    }
}

#[test]
fn a_cluster_returns_from_a_store_and_its_keys_stay_secret() {
    let Some(site) = Site::open(1) else { return };
    let lab = &site.lab;
    make_namespace(lab, "demo", "keep");
    let name = site.take();
    let file = site.of("s3")[0]["snapshotFile"]["name"].as_str().unwrap().to_owned();
    assert_eq!(site.fake.names("backups", "demo"), std::slice::from_ref(&file));
    assert_eq!(site.of("local").len(), 1);
    let described = lab.run(&format!("snapshot describe {name}"));
    assert!(described.contains(&format!("s3://backups/demo/{file}")), "{described}");

    make_namespace(lab, "demo", "late");
    // The copy on the server is of no use any more.
    for path in find(&lab.data(), &file) {
        fs::write(path, "lost").unwrap();
    }
    // One that is damaged there is refused before anything is touched.
    let stored = lab.place.join("buckets/backups/demo").join(&file);
    let whole = fs::read(&stored).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    fs::write(&stored, damaged).unwrap();
    let (code, said) = lab.say(&format!("snapshot restore demo {name} --yes --wait --timeout 60s"));
    assert!(code == 1 && said.contains("check of etcd snapshot"), "{said}");
    lab.until("the cluster is as it was", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    assert!(namespaces(lab, "demo").contains(&"late".to_owned()));

    fs::write(&stored, whole).unwrap();
    lab.run(&format!("snapshot restore demo {name} --yes --wait --timeout 180s"));
    check_restored(lab, "demo");
    site.check_no_leak();

    // What the store refuses is told, and kept with its error.
    site.fake.fault("PUT /backups/demo/on-demand", Fault::Refuse(403, "AccessDenied"));
    let (code, said) = lab.say("snapshot create demo --wait --timeout 90s");
    assert!(code == 1 && said.contains("may not write in bucket"), "{said}");
    assert_eq!(site.of("s3").len(), 2);

    // Deleting the object deletes the file there.
    lab.run(&format!("snapshot delete {name} --yes --wait --timeout 60s"));
    assert!(!site.fake.names("backups", "demo").contains(&file));
    lab.until("the cluster is ready", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    let kept = site.take();
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
    assert!(!kept.is_empty() && !site.fake.names("backups", "demo").is_empty(), "files outlive the cluster");
}
