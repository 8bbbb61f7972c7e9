//! Providers for drivers: clouds, a web service and hosts that exist, with machines of this host behind them.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    thread,
};

use parking_lot::Mutex;
use remuda_drivers::{
    fake::{Api, Call, Fake, Hosts, Reply, amazonec2::AmazonEc2, digitalocean::DigitalOcean, ssh::SshServer},
    keys,
};
use remuda_sandbox::machines::{NewMachine, Sandbox};

pub(crate) const REGION: &str = "us-east-1";
pub(crate) const ACCESS_KEY: &str = "AKIDEXAMPLE";
/// Credentials that must be seen nowhere.
pub(crate) const OCEAN: &str = "canary-ocean-5c1f27";
pub(crate) const AMAZON: &str = "canary-amazon-90b3ee";
pub(crate) const REST: &str = "canary-rest-44d7a1";
pub(crate) const CANARIES: [&str; 3] = [OCEAN, AMAZON, REST];

/// Machines of the laboratory as servers of a provider.
struct Machines(Sandbox);

impl Hosts for Machines {
    fn boot(&self, id: &str, name: &str, user_data: &str) -> Result<String, String> {
        let new = NewMachine { id: id.to_owned(), name: name.to_owned(), user_data: user_data.to_owned() };
        self.0.create(&new).map(|machine| machine.address.to_string()).map_err(|error| error.to_string())
    }

    fn end(&self, id: &str) -> Result<(), String> {
        self.0.remove(id).map_err(|error| error.to_string())
    }
}

/// What a web server has: files, and the machines of `samples/rest.sh`.
pub(crate) struct Web {
    files: BTreeMap<String, Vec<u8>>,
    machines: Arc<dyn Hosts>,
    addresses: Mutex<BTreeMap<String, String>>,
}

impl Web {
    pub(crate) fn machines(&self) -> usize {
        self.addresses.lock().len()
    }

    /// Puts a machine into the list that was made by somebody who forgot it, or takes it out.
    pub(crate) fn lose(&self, id: &str, lost: bool) {
        match lost {
            true => self.addresses.lock().insert(id.to_owned(), "192.0.2.1".to_owned()),
            false => self.addresses.lock().remove(id),
        };
    }
}

impl Api for Web {
    fn handle(&self, call: &Call) -> Reply {
        if let Some(file) = self.files.get(call.path.trim_start_matches('/')) {
            return Reply::new(200, file.clone());
        }
        let Some(id) = call.path.strip_prefix("/machines") else { return self.error(404, "no such thing") };
        if call.headers.get("authorization").map(String::as_str) != Some(&format!("Bearer {REST}")) {
            return self.error(401, "who are you?");
        }
        let mut addresses = self.addresses.lock();
        let Some(id) = id.strip_prefix('/') else {
            let ids: Vec<&str> = addresses.keys().map(String::as_str).collect();
            return Reply::new(200, ids.join("\n"));
        };
        match call.method.as_str() {
            "PUT" => {
                match self.machines.boot(id, &format!("rest-{id}"), &String::from_utf8_lossy(&call.body)) {
                    Ok(address) => {
                        addresses.insert(id.to_owned(), address.clone());
                        Reply::new(200, address)
                    }
                    Err(why) => self.error(500, &why),
                }
            }
            "GET" => match addresses.get(id) {
                Some(address) => Reply::new(200, address.clone()),
                None => self.error(404, "no such machine"),
            },
            "DELETE" => match self.machines.end(id) {
                Ok(()) => {
                    addresses.remove(id);
                    Reply::new(204, "")
                }
                Err(why) => self.error(500, &why),
            },
            _ => self.error(405, "no such method"),
        }
    }

    fn error(&self, status: u16, code: &str) -> Reply {
        Reply::new(status, code.to_owned())
    }
}

/// Everybody who has servers.
pub(crate) struct Providers {
    pub(crate) ocean: Fake<DigitalOcean>,
    pub(crate) amazon: Fake<AmazonEc2>,
    pub(crate) web: Fake<Web>,
}

impl Providers {
    pub(crate) async fn start(sandbox: &Sandbox, files: BTreeMap<String, Vec<u8>>) -> Self {
        let machines: Arc<dyn Hosts> = Arc::new(Machines(sandbox.clone()));
        let ocean = DigitalOcean::new(OCEAN).with_hosts(machines.clone());
        let amazon = AmazonEc2::new(ACCESS_KEY, AMAZON, REGION).with_hosts(machines.clone());
        let web = Web { files, machines, addresses: Mutex::default() };
        Self {
            ocean: Fake::start(ocean).await.unwrap(),
            amazon: Fake::start(amazon).await.unwrap(),
            web: Fake::start(web).await.unwrap(),
        }
    }
}

/// A server that exists, with the key that lets one in.
pub(crate) struct Shelf {
    pub(crate) port: u16,
    pub(crate) key: String,
    /// Whether it is OpenSSH that answers.
    pub(crate) real: bool,
    _server: Option<SshServer>,
}

pub(crate) const SHELF: &str = "shelf-1";

/// What a server needs before OpenSSH can run there.
const SSHD: &str = "#!/bin/sh
mkdir -p /run/sshd /root/.ssh && chmod 0755 /run/sshd && chmod 0700 /root/.ssh
grep -q ^sshd: /etc/passwd || echo 'sshd:x:105:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh_test_host
printf '%s\\n' 'HostKey /etc/ssh_test_host' 'UsePAM no' 'PasswordAuthentication no' 'PermitRootLogin yes' \\
    'StrictModes no' 'AuthorizedKeysFile /root/.ssh/authorized_keys' > /etc/sshd_test_config
echo '@KEY@' > /root/.ssh/authorized_keys
";

impl Shelf {
    /// A machine with an SSH server, which is reached at a port of this host: OpenSSH in the machine if the host has
    /// it, else one of ours that runs commands there.
    pub(crate) async fn start(sandbox: &Sandbox, dir: &Path) -> Self {
        let file = dir.join("shelf-key");
        let public = keys::ensure(&file.to_string_lossy(), "shelf").await.unwrap();
        let key = fs::read_to_string(&file).unwrap();
        let sshd = PathBuf::from("/usr/sbin/sshd");
        let real = sshd.exists();
        let user_data = if real { SSHD.replace("@KEY@", public.trim()) } else { String::new() };
        sandbox.create(&NewMachine { id: SHELF.into(), name: SHELF.into(), user_data }).unwrap();
        if real {
            while sandbox.get(SHELF).unwrap().bootstrap.is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            let port = door(sandbox.clone(), sshd);
            return Self { port, key, real, _server: None };
        }
        let sandbox = sandbox.clone();
        let shell = move |command: &str| {
            sandbox.enter(SHELF, &["/bin/sh".to_owned(), "-c".to_owned(), command.to_owned()]).unwrap()
        };
        let (host, _) = keys::generate("host").unwrap();
        let server = SshServer::start_in(&public, &host, Arc::new(shell)).await;
        Self { port: server.port, key, real, _server: Some(server) }
    }
}

/// A port of this host where each connection is handed to an OpenSSH inside the machine.
fn door(sandbox: Sandbox, sshd: PathBuf) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let words = [sshd.to_string_lossy().into_owned(), "-i".into(), "-f".into()];
            let words: Vec<String> = words.into_iter().chain(["/etc/sshd_test_config".to_owned()]).collect();
            // The machine may be gone by then.
            let Ok(mut command) = sandbox.enter(SHELF, &words) else { return };
            let other = stream.try_clone().unwrap();
            command.stdin(OwnedFd::from(stream)).stdout(OwnedFd::from(other)).stderr(Stdio::null());
            let Ok(mut child) = command.spawn() else { return };
            thread::spawn(move || child.wait());
        }
    });
    port
}
