//! What probes are told.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use remuda_tunnel::client::Link;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Probes come one at a time; whoever opens more waits.
const CONNECTIONS: usize = 8;
const HEADERS: Duration = Duration::from_secs(5);
/// A connection is for one question.
const CONNECTION: Duration = Duration::from_secs(10);

/// Whether the agent is ready, and why not.
pub fn readiness(link: &Link) -> (StatusCode, String) {
    match link {
        Link::Connected => (StatusCode::OK, "ok".to_owned()),
        Link::Connecting => (StatusCode::SERVICE_UNAVAILABLE, "connecting".to_owned()),
        Link::Waiting { error, delay } => {
            let text = format!("not connected: {error}; trying again within {} s", delay.as_secs() + 1);
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

/// Answers probes until `stop`.
pub async fn serve(listener: TcpListener, link: watch::Receiver<Link>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            _ = connections.join_next(), if connections.len() >= CONNECTIONS => continue,
            accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors; those that are open come back.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let link = link.clone();
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer(request.uri().path(), &link.borrow());
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS)
                .keep_alive(false)
                .max_buf_size(8 << 10)
                .serve_connection(TokioIo::new(stream), service);
            // A probe that breaks off has its answer in that.
            let _ = timeout(CONNECTION, connection).await;
        });
    }
}

fn answer(path: &str, link: &Link) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        "/healthz" | "/livez" | "/ping" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => readiness(link),
        _ => (StatusCode::NOT_FOUND, "not found".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_says_what_is_wrong() {
        assert_eq!(readiness(&Link::Connected), (StatusCode::OK, "ok".to_owned()));
        let waiting = Link::Waiting { error: "TLS: bad".into(), delay: Duration::from_millis(1500) };
        let (status, text) = readiness(&waiting);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "not connected: TLS: bad; trying again within 2 s");
    }

    #[test]
    fn liveness_does_not_depend_on_the_server() {
        assert_eq!(answer("/healthz", &Link::Connecting).status(), StatusCode::OK);
        assert_eq!(answer("/readyz", &Link::Connecting).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer("/etc/passwd", &Link::Connected).status(), StatusCode::NOT_FOUND);
    }
}
