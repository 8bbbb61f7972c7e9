use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, rustls};

use super::*;
use crate::{
    error::Class,
    fake::proxmoxve::ProxmoxVe as Cluster,
    trial::{Cloud, World, trials},
};

const TOKEN: &str = "remuda@pve!machines";
const SECRET: &str = "canary-0000-1111";

impl Cloud for Cluster {
    const NAME: &'static str = NAME;

    fn occupied() -> Self {
        let cluster = Self::new(TOKEN, SECRET);
        cluster.occupy(3);
        cluster
    }

    fn settings(&self, values: &mut Flags) {
        values.set("proxmoxve-proxmox-host", "pve.example");
        values.set("proxmoxve-proxmox-token-id", TOKEN);
        values.set("proxmoxve-proxmox-token-secret", SECRET);
        values.set("proxmoxve-vm-clone-vmid", "9000");
    }

    fn everything(&self) -> Vec<String> {
        self.resources()
    }
}

trials!(Cluster, "proxmoxve-proxmox-token-secret");

#[tokio::test]
async fn a_machine_lives_from_clone_to_removal() {
    let world = World::<Cluster>::new().await;
    let before = world.fake.api.resources();
    let driver = world
        .prepared(|values| {
            values.set("proxmoxve-proxmox-node", "pve2");
            values.set("proxmoxve-vm-vmid-range", "200:210");
            values.set("proxmoxve-vm-storage-path", "ceph");
            values.set("proxmoxve-vm-net-bridge", "vmbr1");
            values.set("proxmoxve-vm-net-tag", 7);
            values.set("proxmoxve-vm-cpu-cores", "4");
            values.set("proxmoxve-ssh-username", "ubuntu");
        })
        .await;
    driver.pre_create_check().await.unwrap();
    driver.create().await.unwrap();
    let record = driver.config().await.unwrap();
    let id: u64 = record.str("VMID").parse().unwrap();
    assert!((200..=210).contains(&id));
    assert!(world.fake.api.resources().contains(&format!("{id} on pve2")));
    let made = world.fake.api.settings(id);
    assert_eq!(made["name"], "m1");
    assert_eq!(made["tags"], format!("golden;remuda-machine-{}", record.str("RemudaID")));
    assert_eq!((made["memory"].as_str(), made["cores"].as_str()), ("8192", "4"));
    assert_eq!(made["net0"], "virtio,bridge=vmbr1,tag=7");
    assert_eq!((made["ciuser"].as_str(), made["ipconfig0"].as_str()), ("ubuntu", "ip=dhcp"));
    assert!(made["sshkeys"].starts_with("ssh-ed25519%20"), "{}", made["sshkeys"]);
    assert!(made["scsi0"].ends_with("size=16G"), "{}", made["scsi0"]);
    assert_eq!(driver.state().await.unwrap(), State::Running);
    let addresses = driver.addresses().await.unwrap();
    assert!(
        addresses.ip.starts_with("192.0.2.") && addresses.ipv6.starts_with("2001:db8::"),
        "{addresses:?}"
    );
    let ssh = driver.ssh().await.unwrap();
    assert!(ssh.user == "ubuntu" && std::path::Path::new(&ssh.key_path).exists());

    driver.stop().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);
    driver.start().await.unwrap();
    driver.start().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Running);
    driver.restart().await.unwrap();
    driver.kill().await.unwrap();
    assert_eq!(driver.state().await.unwrap(), State::Stopped);

    let later = world.driver();
    later.load(record).await.unwrap();
    later.remove().await.unwrap();
    assert_eq!(world.fake.api.resources(), before, "those of the same name stay");
    world.silent();
    let mut shown = ProxmoxVe::new(world.context.clone());
    shown.record.get_mut().token_secret = Secret::new(SECRET);
    assert!(!format!("{shown:?}").contains("canary"));
}

#[tokio::test]
async fn failures_have_their_class_and_no_secret() {
    let world = World::<Cluster>::new().await;
    let set = |flag: &'static str, value: &'static str| move |values: &mut Flags| values.set(flag, value);
    assert_eq!(
        world.failure(set("proxmoxve-proxmox-token-secret", "canary-wrong")).await,
        Class::Credentials
    );
    assert_eq!(world.failure(set("proxmoxve-vm-clone-vmid", "9001")).await, Class::Image);
    assert_eq!(world.failure(set("proxmoxve-vm-clone-vmid", "101")).await, Class::Image);
    assert_eq!(world.failure(set("proxmoxve-proxmox-node", "pve3")).await, Class::Other);
    assert_eq!(world.failure(set("proxmoxve-vm-vmid-range", "100:102")).await, Class::Quota);
    world.fake.api.fill();
    assert_eq!(world.failure(|_| {}).await, Class::Quota);
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused_by_name() {
    let world = World::<Cluster>::new().await;
    for (flag, value) in [
        ("proxmox-host", "pve.example/../@x"),
        ("proxmox-host", ""),
        ("proxmox-token-id", "root"),
        ("proxmox-token-secret", ""),
        ("proxmox-user-password", "canary-password"),
        ("vm-protection", "1"),
        ("vm-net-bridge", "vmbr0,firewall=0"),
        ("vm-clone-vmid", "ubuntu"),
        ("vm-storage-type", "iso"),
        ("vm-vmid-range", "1:2"),
        ("vm-numa", "maybe"),
        ("vm-cpu-cores", "many"),
    ] {
        let said = world.refusal(|values| values.set(format!("proxmoxve-{flag}"), value)).await;
        assert!(said.contains(&format!("--proxmoxve-{flag}")), "{flag} {value}: {said}");
    }
}

#[tokio::test]
async fn a_machine_of_another_driver_is_not_guessed_at() {
    let world = World::<Cluster>::new().await;
    let driver = world.driver();
    let mut config = Config::named("m1", "/s");
    config.0.insert("VMID".into(), "100".into());
    driver.load(config).await.unwrap();
    let error = driver.remove().await.unwrap_err();
    assert!(error.to_string().contains("remove virtual machine 100 by hand"), "{error}");
    assert_eq!(world.fake.calls(), Vec::<String>::new());
}

/// Ends TLS in front of a fake, with a certificate of an authority of its own; gives its address and the authority.
async fn behind_tls(authority: String) -> (String, String, tokio::task::JoinSet<()>) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut inner = TcpStream::connect(&authority).await.unwrap();
            connections.spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut inner).await });
        }
    });
    (address, certificate.pem(), tasks)
}

#[tokio::test]
async fn the_server_is_known_by_the_authority_given_and_by_no_other() {
    let mut world = World::<Cluster>::new().await;
    let (address, authority, _tasks) = behind_tls(world.fake.authority()).await;
    let (_, other, _more) = behind_tls(world.fake.authority()).await;
    world.context.elsewhere.insert(NAME.to_owned(), address);
    world.context.pace.attempts = 1;
    let with = |pem: String| move |values: &mut Flags| values.set("proxmoxve-proxmox-ca", pem);
    world.prepared(with(authority)).await.pre_create_check().await.unwrap();
    assert_eq!(world.failure(with(other)).await, Class::Network);
    assert_eq!(world.failure(with("-----BEGIN NOTHING".to_owned())).await, Class::Other);
    // Nothing was sent to a server that is not known.
    assert_eq!(world.fake.calls().len(), 1);
}

#[test]
fn addresses_are_written_with_brackets_where_they_need_them() {
    let url = |host: &str| Record { host: host.into(), port: 8006, ..Record::default() }.url();
    assert_eq!(url("pve.example"), "https://pve.example:8006");
    assert_eq!(url("2001:db8::1"), "https://[2001:db8::1]:8006");
}
