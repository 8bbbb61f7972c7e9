//! Ports of this host that lead into a cluster: `remuda up --port 8080:80`.
//!
//! A connection is handed to a process in the network of a machine ([`Sandbox::dial`]): the host needs no address there,
//! and nothing of it is changed. Which machines there are is looked up anew for each.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    process::Stdio,
    str::FromStr,
    sync::Arc,
};

use remuda_cli::{Code, Failure};
use remuda_sandbox::machines::{Machine, Sandbox};
use tokio::{
    net::{TcpListener as Listener, TcpStream},
    process::Command,
    sync::Semaphore,
    task::JoinSet,
};

use super::wrong;
use crate::{failure::chain, output};

/// Connections at one time: each is a process.
const AT_ONCE: usize = 128;

/// A port of the host, and the port of machines it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    listen: SocketAddr,
    port: u16,
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Mapping, String> {
        let wrong = || format!("{text:?} is not [ADDRESS:]HOST:NODE, such as 8080:80 or 0.0.0.0:8080:80");
        let (host, node) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = node.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let listen = match host.parse::<u16>() {
            // Others reach this host's ports only if that is asked for.
            Ok(host) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), host),
            Err(_) => host.parse().map_err(|_| wrong())?,
        };
        Ok(Mapping { listen, port })
    }
}

/// Ports that are this program's.
#[derive(Debug, Default)]
pub(super) struct Ports(Vec<(TcpListener, u16)>);

impl Ports {
    /// Takes them, all or none.
    pub(super) fn take(mappings: &[Mapping]) -> Result<Ports, Failure> {
        let mut taken = Vec::new();
        for Mapping { listen, port } in mappings {
            let listener = TcpListener::bind(listen).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            let listener = listener.map_err(|error| {
                Failure::new(Code::Conflict, format!("--port {listen}:{port}: {}", chain(&error)))
                    .hint("take another port of this host")
            })?;
            taken.push((listener, *port));
        }
        Ok(Ports(taken))
    }

    /// Serves them for ever. `pools` are what names of machines begin with: `demo-workers`.
    pub(super) async fn serve(self, sandbox: Sandbox, pools: Vec<String>) {
        let (turns, pools) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(pools));
        let mut doors = JoinSet::new();
        for (listener, port) in self.0 {
            let at = listener.local_addr();
            match (at, Listener::from_std(listener)) {
                (Ok(at), Ok(listener)) => {
                    output::note(&format!("{at} leads to port {port} of the cluster's machines"));
                    doors.spawn(accept(listener, port, sandbox.clone(), pools.clone(), turns.clone()));
                }
                (_, Err(error)) | (Err(error), _) => {
                    output::note(&format!("warning: {}", wrong("serve a port", &error).message));
                }
            }
        }
        while doors.join_next().await.is_some() {}
        std::future::pending::<()>().await;
    }
}

async fn accept(
    listener: Listener,
    port: u16,
    sandbox: Sandbox,
    pools: Arc<Vec<String>>,
    turns: Arc<Semaphore>,
) {
    let mut carried = JoinSet::new();
    loop {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        let accepted = loop {
            tokio::select! {
                accepted = listener.accept() => break accepted,
                Some(_) = carried.join_next() => {}
            }
        };
        match accepted {
            Ok((stream, _)) => {
                let (sandbox, pools) = (sandbox.clone(), pools.clone());
                carried.spawn(async move {
                    if let Err(error) = carry(stream, port, sandbox, &pools).await {
                        tracing::warn!(port, error = chain(&error), "a connection into a machine failed");
                    }
                    drop(turn);
                });
            }
            // Out of descriptors, most likely: some come back.
            Err(error) => {
                tracing::warn!(port, error = chain(&error), "a connection was not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// Hands a connection to the first machine that takes it.
async fn carry(stream: TcpStream, port: u16, sandbox: Sandbox, pools: &[String]) -> std::io::Result<()> {
    let listing = sandbox.clone();
    let machines =
        tokio::task::spawn_blocking(move || listing.list()).await.map_err(std::io::Error::other)?;
    let machines = machines.map_err(std::io::Error::other)?;
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    for machine in machines.iter().filter(|machine| is_of(machine, pools)) {
        let Some(dial) = sandbox.dial(machine, port) else { continue };
        let mut dial = Command::from(dial);
        dial.stdin(OwnedFd::from(stream.try_clone()?)).stdout(Stdio::null()).stderr(Stdio::null());
        let ended = dial.kill_on_drop(true).status().await?;
        if !Sandbox::was_refused(ended) {
            return Ok(());
        }
    }
    tracing::info!(port, "no machine of the cluster listens on a port that was asked for");
    Ok(())
}

/// Whether a machine is one of these pools: behind the pool's name are two words.
fn is_of(machine: &Machine, pools: &[String]) -> bool {
    pools.iter().any(|pool| {
        let rest = machine.name.strip_prefix(pool.as_str()).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| rest.split('-').count() == 2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_the_host_is_its_own_unless_an_address_is_named() {
        let read = |text: &str| text.parse::<Mapping>().map(|found| (found.listen.to_string(), found.port));
        assert_eq!(read("8080:80"), Ok(("127.0.0.1:8080".to_owned(), 80)));
        assert_eq!(read("0.0.0.0:8080:80"), Ok(("0.0.0.0:8080".to_owned(), 80)));
        assert_eq!(read("[::1]:8080:443"), Ok(("[::1]:8080".to_owned(), 443)));
        for bad in ["80", "8080:0", "8080:", "a:80", "host:8080:80", "99999:80", ""] {
            assert!(read(bad).unwrap_err().contains("is not [ADDRESS:]HOST:NODE"), "{bad}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_found_before_anything_is_made() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let mapping = Mapping { listen: other.local_addr().unwrap(), port: 80 };
        assert_eq!(Ports::take(&[mapping]).unwrap_err().code, Code::Conflict);
    }

    #[test]
    fn machines_of_other_clusters_are_others() {
        let machine = |name: &str| Machine {
            id: String::new(),
            name: name.to_owned(),
            hostname: name.to_owned(),
            address: Ipv4Addr::LOCALHOST,
            state: remuda_sandbox::machines::MachineState::Running,
            pid: None,
            bootstrap: None,
        };
        let pools = ["demo-servers".to_owned(), "demo-workers".to_owned()];
        assert!(is_of(&machine("demo-workers-x8k2p-9cdf2"), &pools));
        for other in ["demo-x-workers-x8k2p-9cdf2", "demo-workers-big-x8k2p-9cdf2", "demo-workers", "x"] {
            assert!(!is_of(&machine(other), &pools), "{other}");
        }
    }
}
