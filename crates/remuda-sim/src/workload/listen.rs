//! All workload clusters behind one TCP listener, for controllers in another process.
//!
//! A cluster is at `/clusters/NAMESPACE/NAME/`, in plain HTTP, for whoever has its token. Meant for loopback.

use std::{io, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header::AUTHORIZATION, uri::PathAndQuery};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use remuda_control::ObjectKey;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    WorkloadCluster, Workloads,
    wire::{Body, full, response},
};

/// Serves the clusters until told to stop. Kubeconfigs made from now on name this listener.
pub async fn serve(workloads: Workloads, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
    let _ = workloads.0.address.set(listener.local_addr()?);
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: it gets better when connections end.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let workloads = workloads.clone();
        let service = service_fn(move |request| route(workloads.clone(), request));
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        let stop = stop.clone();
        tasks.spawn(async move {
            // A connection that ends badly is the other side's, or a cluster that was told to refuse.
            let _ = stop.run_until_cancelled(connection).await;
        });
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

async fn route(workloads: Workloads, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
    let Some((key, path)) = split(request.uri()) else {
        return Ok(response(StatusCode::NOT_FOUND, full(Bytes::from_static(b"{}"))));
    };
    let cluster = workloads.get(&key);
    let cluster =
        cluster.ok_or_else(|| io::Error::new(io::ErrorKind::ConnectionRefused, "no such cluster"))?;
    if let Some(refused) = unauthorized(&cluster, &request) {
        return Ok(refused);
    }
    let (mut parts, body) = request.into_parts();
    parts.uri = Uri::from(path);
    Arc::clone(&cluster).serve(Request::from_parts(parts, body)).await
}

/// The answer to somebody without the cluster's token.
fn unauthorized<B>(cluster: &WorkloadCluster, request: &Request<B>) -> Option<Response<Body>> {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| value.strip_prefix("Bearer "));
    let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
    (token != Some(cluster.token()))
        .then(|| response(StatusCode::UNAUTHORIZED, full(Bytes::from_static(body.as_bytes()))))
}

/// Serves one connection to one cluster.
pub(crate) async fn serve_one(
    cluster: Arc<WorkloadCluster>,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let cluster = cluster.clone();
        async move {
            match unauthorized(&cluster, &request) {
                Some(refused) => Ok(refused),
                None => cluster.serve(request).await,
            }
        }
    });
    // A connection that ends badly is the other side's, or a cluster that was told to refuse.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(io), service)
        .await;
}

/// The cluster a path is about, and the rest of it.
fn split(uri: &Uri) -> Option<(ObjectKey, PathAndQuery)> {
    let rest = uri.path_and_query()?.as_str().strip_prefix("/clusters/")?;
    let (namespace, rest) = rest.split_once('/')?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, path) = rest.split_at(end);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Some((ObjectKey::namespaced(namespace, name), PathAndQuery::try_from(path).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_into_cluster_and_rest() {
        let split = |text: &str| split(&text.parse().unwrap()).map(|(key, path)| format!("{key} {path}"));
        assert_eq!(split("/clusters/a/b/api/v1/nodes?x=1").as_deref(), Some("a/b /api/v1/nodes?x=1"));
        assert_eq!(split("/clusters/a/b").as_deref(), Some("a/b /"));
        assert_eq!(split("/clusters/a/b?watch=1").as_deref(), Some("a/b /?watch=1"));
        assert_eq!(split("/clusters/a"), None);
        assert_eq!(split("/api"), None);
    }
}
