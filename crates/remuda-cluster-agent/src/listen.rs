//! HTTP for the few who ask an agent: the node's probes, and the API beside it.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// What those who ask may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Whoever opens more waits.
    pub(crate) connections: usize,
    /// For the head of a request.
    pub(crate) headers: Duration,
    /// For all of a connection.
    pub(crate) connection: Duration,
    /// Bytes of a connection that are held.
    pub(crate) buffer: usize,
    /// A connection may be for more than one question.
    pub(crate) keep_alive: bool,
}

/// Answers until `stop`.
pub(crate) async fn serve<Answer, Answering>(
    listener: TcpListener,
    limits: Limits,
    stop: CancellationToken,
    answer: Answer,
) where
    Answer: Fn(Request<Incoming>) -> Answering + Clone + Send + 'static,
    Answering: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            _ = connections.join_next(), if connections.len() >= limits.connections => continue,
            accepted = listener.accept(), if connections.len() < limits.connections => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors; those that are open come back.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let answer = answer.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let answering = answer(request);
                async move { Ok::<_, Infallible>(answering.await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.headers)
                .keep_alive(limits.keep_alive)
                .max_buf_size(limits.buffer)
                .serve_connection(TokioIo::new(stream), service);
            // Whoever breaks off has their answer in that.
            let _ = timeout(limits.connection, connection).await;
        });
    }
}
