//! The machine's end of the way to the server.

use std::{cell::RefCell, collections::BTreeSet, fs, net::SocketAddr, path::Path, time::Duration};

use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixStream},
    time::sleep,
};
use tokio_util::task::TaskTracker;

use crate::{
    error::{Doing, Result, chain},
    netlink::Netlink,
    place::replace,
    server::{Endpoint, Listen, WATCH},
    stage::{note, read_line},
};

const SOCKET: &str = "/run/remuda/relay/relay.sock";
const HOSTS: &str = "/etc/hosts";

/// A hub that went away is looked for again after this.
const AGAIN: Duration = Duration::from_secs(5);

/// Where this machine listens in the server's place.
pub(crate) struct Relay {
    open: RefCell<BTreeSet<SocketAddr>>,
    tasks: TaskTracker,
}

impl Relay {
    pub(crate) fn new(tasks: TaskTracker) -> Self {
        Self { open: RefCell::default(), tasks }
    }

    /// Listens at the server's address inside the machine.
    pub(crate) async fn open(&self, listen: &Listen, url: String) -> Result<()> {
        let address = SocketAddr::new(listen.address, listen.port);
        if self.open.borrow().contains(&address) {
            return Ok(());
        }
        let listener = TcpListener::bind(address).await.doing(|| format!("listen at {address}"))?;
        self.open.borrow_mut().insert(address);
        let own = self.tasks.clone();
        let accept = async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(own.spawn_local(pass(stream, url.clone()))),
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        };
        drop(self.tasks.spawn_local(accept));
        Ok(())
    }

    /// Hears from the hub when the server has another address, and listens there too.
    pub(crate) async fn follow(self) {
        loop {
            if let Ok(mut hub) = UnixStream::connect(SOCKET).await
                && hub.write_all(format!("{WATCH}\n").as_bytes()).await.is_ok()
            {
                while let Some(url) = read_line(&mut hub).await {
                    if let Err(error) = self.add(&url).await {
                        note(&chain(&error));
                    }
                }
            }
            sleep(AGAIN).await;
        }
    }

    async fn add(&self, url: &str) -> Result<()> {
        let Some(listen) = Endpoint::parse(url).map(|endpoint| endpoint.listen()) else { return Ok(()) };
        if self.open.borrow().contains(&SocketAddr::new(listen.address, listen.port)) && listen.name.is_none()
        {
            return Ok(());
        }
        if let Some(address) = listen.foreign {
            let added = Netlink::open().and_then(|mut netlink| netlink.add_address(1, address, 32));
            added.doing(|| format!("add {address}"))?;
        }
        if let Some(name) = &listen.name {
            let current = fs::read_to_string(HOSTS).unwrap_or_default();
            let is_known =
                current.lines().any(|line| line.split_whitespace().skip(1).any(|word| word == name));
            if !is_known {
                let text = format!("{current}{} {name}\n", listen.address);
                replace(Path::new(HOSTS), text.as_bytes(), 0o644)?;
            }
        }
        self.open(&listen, url.to_owned()).await
    }
}

async fn pass(mut client: TcpStream, url: String) {
    let _ = client.set_nodelay(true);
    // A client whose server is away sees its connection closed, as with any server behind a proxy.
    let Ok(mut relay) = UnixStream::connect(SOCKET).await else { return };
    if relay.write_all(format!("{url}\n").as_bytes()).await.is_ok() {
        let _ = copy_bidirectional(&mut client, &mut relay).await;
    }
}
