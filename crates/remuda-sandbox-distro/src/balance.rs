//! A way to the servers that outlives each of them: connections are passed on, byte by byte, to the
//! first server that takes them.
//!
//! TLS goes through untouched, so servers see the client's certificate and the client theirs.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info};

use crate::listen::accept;

const CONNECT: Duration = Duration::from_secs(3);

/// The servers known, best first. Clones share them.
#[derive(Clone)]
pub struct Backends(Arc<Inner>);

struct Inner {
    servers: Mutex<Vec<String>>,
    /// Counts up when connections that are open are no longer to be trusted.
    distrust: watch::Sender<u64>,
}

impl Backends {
    /// `host:port` each.
    pub fn new(servers: Vec<String>) -> Backends {
        Backends(Arc::new(Inner { servers: Mutex::new(servers), distrust: watch::channel(0).0 }))
    }

    pub fn list(&self) -> Vec<String> {
        self.0.servers.lock().clone()
    }

    /// Takes over what is known now, keeping the order of those that stay. Returns whether anything
    /// is different. No servers at all is never true, and not taken over.
    pub fn replace(&self, mut servers: Vec<String>) -> bool {
        if servers.is_empty() {
            return false;
        }
        let mut known = self.0.servers.lock();
        let place = |server: &String| known.iter().position(|known| known == server).unwrap_or(usize::MAX);
        servers.sort_by_key(|server| (place(server), server.clone()));
        servers.dedup();
        if *known == servers {
            return false;
        }
        info!(?servers, "servers");
        *known = servers;
        true
    }

    /// Ends the connections there are: whoever uses them gets no answers, and may elsewhere.
    pub fn distrust(&self) {
        let mut servers = self.0.servers.lock();
        if servers.len() > 1 {
            servers.rotate_left(1);
        }
        self.0.distrust.send_modify(|count| *count += 1);
    }

    /// Connects to the first server that answers, and remembers it.
    async fn connect(&self) -> Option<TcpStream> {
        for server in self.list() {
            match timeout(CONNECT, TcpStream::connect(server.as_str())).await {
                Ok(Ok(stream)) => {
                    let mut servers = self.0.servers.lock();
                    if let Some(place) = servers.iter().position(|known| *known == server) {
                        servers[..=place].rotate_right(1);
                    }
                    return Some(stream);
                }
                Ok(Err(error)) => debug!(server, %error, "server does not answer"),
                Err(_) => debug!(server, "server does not answer in time"),
            }
        }
        None
    }
}

/// Passes connections on until told to stop.
pub async fn run(listener: TcpListener, backends: Backends, stop: CancellationToken, tasks: TaskTracker) {
    accept(listener, &stop.clone(), |mut client, _| {
        let (backends, stop) = (backends.clone(), stop.clone());
        tasks.spawn(async move {
            let mut distrust = backends.0.distrust.subscribe();
            let Some(mut server) = backends.connect().await else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            tokio::select! {
                () = stop.cancelled() => {}
                _ = distrust.changed() => {}
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            }
        });
    })
    .await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn servers_that_stay_keep_their_place() {
        let backends = Backends::new(vec!["b:1".to_owned(), "a:1".to_owned()]);
        assert!(!backends.replace(vec!["a:1".to_owned(), "b:1".to_owned()]));
        assert!(backends.replace(vec!["a:1".to_owned(), "c:1".to_owned()]));
        assert_eq!(backends.list(), ["a:1", "c:1"]);
        assert!(!backends.replace(Vec::new()));
    }

    #[tokio::test]
    async fn a_dead_server_is_passed_over() {
        let dead = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap().to_string()
        };
        let living = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backends = Backends::new(vec![dead, living.local_addr().unwrap().to_string()]);
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(run(front, backends.clone(), stop.clone(), tasks.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let (mut server, _) = living.accept().await.unwrap();
        let mut buffer = [0; 5];
        server.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"hello");
        assert_eq!(backends.list()[0], living.local_addr().unwrap().to_string());
        backends.distrust();
        assert_eq!(client.read(&mut buffer).await.unwrap_or(0), 0);
        stop.cancel();
    }
}
