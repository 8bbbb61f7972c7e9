//! What probes are told.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use remuda_tunnel::client::Link;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::listen::{self, Limits};

/// Probes come one at a time, each for one question.
const LIMITS: Limits = Limits {
    connections: 8,
    headers: Duration::from_secs(5),
    connection: Duration::from_secs(10),
    buffer: 8 << 10,
    keep_alive: false,
};

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
    listen::serve(listener, LIMITS, stop, move |request| {
        std::future::ready(answer(request.uri().path(), &link.borrow()))
    })
    .await;
}

fn answer(path: &str, link: &Link) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        "/healthz" | "/livez" | remuda_names::gateway::path::PING => (StatusCode::OK, "ok".to_owned()),
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
