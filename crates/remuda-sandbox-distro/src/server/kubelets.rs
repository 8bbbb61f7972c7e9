//! The API server's way to kubelets: one connection for each request, over TLS, as the API server.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use remuda_apiserver::{Body, Kubelets};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub struct Connections {
    pub tls: Arc<ClientConfig>,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

const CONNECT: Duration = Duration::from_secs(10);
/// To the first byte of an answer.
const ANSWER: Duration = Duration::from_secs(30);

impl Kubelets for Connections {
    fn send(
        &self,
        address: SocketAddr,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Incoming>, String>> {
        let (tls, tasks, stop) = (self.tls.clone(), self.tasks.clone(), self.stop.clone());
        Box::pin(async move {
            let connecting = async {
                let stream = TcpStream::connect(address).await?;
                let _ = stream.set_nodelay(true);
                TlsConnector::from(tls).connect(ServerName::from(address.ip()), stream).await
            };
            let late = |_| "no answer in time".to_owned();
            let stream =
                timeout(CONNECT, connecting).await.map_err(late)?.map_err(|error| error.to_string())?;
            let failed = |error: hyper::Error| error.to_string();
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
            // Ends with the answer's body, or hands the stream over when the protocol changes.
            tasks.spawn(async move { drop(stop.run_until_cancelled(connection.with_upgrades()).await) });
            let mut request = request;
            if let Ok(host) = HeaderValue::from_str(&address.to_string()) {
                request.headers_mut().insert(header::HOST, host);
            }
            timeout(ANSWER, sender.send_request(request)).await.map_err(late)?.map_err(failed)
        })
    }
}
