//! The machine's end of the way to the server.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixStream},
    time::sleep,
};
use tokio_util::task::TaskTracker;

use crate::{
    error::{Doing, Result},
    server::Listen,
};

const SOCKET: &str = "/run/remuda/relay/relay.sock";

/// Listens at the server's address inside the machine.
pub(crate) async fn open(listen: &Listen, url: String, tasks: &TaskTracker) -> Result<()> {
    let address = SocketAddr::new(listen.address, listen.port);
    let listener = TcpListener::bind(address).await.doing(|| format!("listen at {address}"))?;
    let own = tasks.clone();
    let accept = async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(own.spawn_local(pass(stream, url.clone()))),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    drop(tasks.spawn_local(accept));
    Ok(())
}

async fn pass(mut client: TcpStream, url: String) {
    let _ = client.set_nodelay(true);
    // A client whose server is away sees its connection closed, as with any server behind a proxy.
    let Ok(mut relay) = UnixStream::connect(SOCKET).await else { return };
    if relay.write_all(format!("{url}\n").as_bytes()).await.is_ok() {
        let _ = copy_bidirectional(&mut client, &mut relay).await;
    }
}
