//! One terminal: a page on one side, a command in a container on the other.
//!
//! What the command writes is read when the page has taken what it was told before, so a slow page makes the command
//! wait and nothing is kept for it. The command ends with the socket of the page.

use std::{convert::Infallible, time::Duration};

use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use remuda_door::{Body, Call, Opening, Refusal};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    time::{Instant, interval_at, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error, Message, client::IntoClientRequest, http::HeaderValue, protocol::WebSocketConfig},
};

use crate::{
    exec::{self, Frame, Target},
    keys,
    message::{Said, Told},
    screen::Screen,
};

/// Between two times a page is told of changes.
const FRAME: Duration = Duration::from_millis(25);
/// For the cluster to begin the command.
const BEGIN: Duration = Duration::from_secs(30);
/// A page that takes no message for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Proxies between here and the page close what is silent.
const PING: Duration = Duration::from_secs(30);
/// Bytes between the session and the door of clusters.
const PIPE: usize = 64 << 10;
/// Longest message of a cluster.
const LARGEST: usize = 1 << 20;

type Cluster = WebSocketStream<DuplexStream>;

/// Serves a terminal until one side leaves.
pub(crate) async fn serve<S>(page: WebSocketStream<S>, clusters: Opening, call: Call, target: Target)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (here, there) = tokio::io::duplex(PIPE);
    let way = async {
        way(there, clusters, call).await;
        // The door has changed protocols, and carries bytes by itself from now on.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = attend(page, here, target) => {}
        () = way => {}
    }
}

async fn attend<S>(mut page: WebSocketStream<S>, here: DuplexStream, target: Target)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut cluster = match timeout(BEGIN, connect(here, &target)).await {
        Ok(Ok(cluster)) => cluster,
        Ok(Err(why)) => return say_last(&mut page, &why).await,
        Err(_) => return say_last(&mut page, "the cluster did not begin the command in time").await,
    };
    let mut screen = Screen::new(target.columns, target.rows);
    let Some(why) = run(&mut page, &mut cluster, &mut screen, &target).await else { return };
    // What was written last is seen before the end.
    let last = screen.changes();
    if !last.is_empty() {
        let _ = timeout(PATIENCE, page.send(Message::text(last.text()))).await;
    }
    say_last(&mut page, &why).await;
}

async fn say_last<S>(page: &mut WebSocketStream<S>, why: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _ = timeout(PATIENCE, async {
        page.send(Message::text(Told::ended(why).text())).await?;
        page.close(None).await
    })
    .await;
}

/// The door of clusters at the other end of a connection within this process, as the caller. It changes protocols on
/// it as on any other.
async fn way(there: DuplexStream, clusters: Opening, call: Call) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (clusters, caller, management) = (clusters.clone(), call.caller.clone(), call.management.clone());
        let peer = call.peer;
        async move {
            let (head, body) = request.into_parts();
            let call = Call { door: clusters.door, peer, caller, management, head };
            let answer = clusters.handler.handle(call, Body::Incoming(body)).await;
            Ok::<Response<Body>, Infallible>(answer.unwrap_or_else(Refusal::response))
        }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(there), service).with_upgrades().await;
    if let Err(error) = served {
        tracing::debug!(%error, "the way of a terminal into its cluster ended");
    }
}

/// Asks for the command.
async fn connect(here: DuplexStream, target: &Target) -> Result<Cluster, String> {
    let uri = format!("ws://cluster{}", target.uri());
    let mut request = uri.into_client_request().map_err(|error| error.to_string())?;
    let protocols = HeaderValue::from_static(exec::PROTOCOLS);
    request.headers_mut().insert("sec-websocket-protocol", protocols);
    let config = WebSocketConfig::default().max_message_size(Some(LARGEST));
    match client_async_with_config(request, here, Some(config)).await {
        Ok((cluster, _)) => Ok(cluster),
        Err(Error::Http(response)) => {
            let status = response.body().as_deref().unwrap_or_default();
            let status: serde_json::Value = serde_json::from_slice(status).unwrap_or_default();
            let message = status["message"].as_str().map(str::to_owned);
            Err(message.unwrap_or_else(|| format!("the cluster answered {}", response.status())))
        }
        Err(error) => Err(format!("the cluster cannot be reached: {error}")),
    }
}

/// Why the command ended; nothing if the page has left.
async fn run<S>(
    page: &mut WebSocketStream<S>,
    cluster: &mut Cluster,
    screen: &mut Screen,
    target: &Target,
) -> Option<String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    cluster.send(Message::binary(exec::resize(target.columns, target.rows))).await.ok()?;
    let mut pings = interval_at(Instant::now() + PING, PING);
    // When the page is told next, if there is something to tell.
    let mut due: Option<Instant> = Some(Instant::now());
    let mut told = Instant::now();
    loop {
        let tell = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // What was typed is heard before more is read: Control C reaches a command that writes without end.
            biased;
            said = page.next() => match said {
                Some(Ok(Message::Text(text))) => {
                    let Some(said) = Said::parse(&text) else { continue };
                    for frame in hear(screen, &said) {
                        if cluster.send(Message::binary(frame)).await.is_err() {
                            return Some("the cluster closed the connection".to_owned());
                        }
                    }
                    if said.size.is_some() || said.back.is_some() {
                        due.get_or_insert(told + FRAME);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                // Reading answers pings.
                Some(Ok(_)) => {}
            },
            () = tell => {
                due = None;
                told = Instant::now();
                let changes = screen.changes();
                if !changes.is_empty() {
                    timeout(PATIENCE, page.send(Message::text(changes.text()))).await.ok()?.ok()?;
                }
            }
            heard = cluster.next() => match heard {
                Some(Ok(Message::Binary(frame))) => match Frame::parse(&frame) {
                    Frame::Output(output) => {
                        screen.write(output);
                        due.get_or_insert(told + FRAME);
                    }
                    Frame::Ended(why) => return Some(why),
                    Frame::Other => {}
                },
                Some(Ok(Message::Close(_))) | None => return Some(String::new()),
                Some(Err(error)) => {
                    tracing::debug!(%error, "a command for a terminal ended");
                    return Some("the connection to the cluster was lost".to_owned());
                }
                Some(Ok(_)) => {}
            },
            _ = pings.tick() => {
                timeout(PATIENCE, page.send(Message::Ping(Vec::new().into()))).await.ok()?.ok()?;
            }
        }
    }
}

/// What a page says, as frames for the cluster.
fn hear(screen: &mut Screen, said: &Said) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    if let Some((columns, rows)) = said.size {
        let (columns, rows) = screen.resize(columns, rows);
        frames.push(exec::resize(columns, rows));
    }
    if let Some(back) = said.back {
        screen.look_back(back);
    }
    let modes = screen.modes();
    let typed = [
        keys::bytes(&said.key, said.held(), modes).unwrap_or_default(),
        said.text.clone().into_bytes(),
        if said.paste.is_empty() { Vec::new() } else { keys::pasted(&said.paste, modes) },
    ];
    let typed = typed.concat();
    if !typed.is_empty() {
        // Typing scrolls back to the end.
        screen.look_back(0);
        frames.push(exec::input(&typed));
    }
    frames
}
