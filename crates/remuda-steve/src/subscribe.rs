//! The socket on which callers are told of changes.
//!
//! One task per subscription reads the index and hands finished messages to the task of the socket through a short
//! queue. A client that does not read fills the queue, then its subscriptions stand still, fall behind the ring of their
//! index and are told so: nothing is kept for it meanwhile. Rights are asked for every single change.

mod message;
mod queue;
mod watch;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{SinkExt, StreamExt};
use http::Response;
use hyper_util::rt::TokioIo;
use remuda_door::{Body, Call, Refusal, WebSocket};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, interval_at, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{Role, WebSocketConfig},
    },
};

pub(crate) use self::message::Said;
use self::{
    message::{Wish, ping},
    queue::Out,
    watch::SubscribeError,
};
use crate::{api::Shared, visit::Visit};

/// Messages that wait for the socket.
const QUEUE: usize = 64;
/// Subscriptions of one socket.
const MOST: usize = 2048;
/// Longest message of a client. What it wishes is kept, for each subscription.
const LARGEST_MESSAGE: usize = 8 << 10;
/// For the client to take the upgrade.
const UPGRADE: Duration = Duration::from_secs(15);
/// A client that takes no message for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);
const PING: Duration = Duration::from_secs(30);

/// What all subscriptions of a socket share.
struct Socket {
    api: Arc<Shared>,
    visit: Visit,
}

/// Turns a request into a socket.
pub(crate) fn open(api: &Arc<Shared>, visit: Visit, call: Call) -> Result<Response<Body>, Refusal> {
    let accepted = WebSocket::accept(&call.head)?;
    let (upgrade, response) = (accepted.upgrade, accepted.response);
    let (socket, stop) = (Arc::new(Socket { api: api.clone(), visit }), api.stop.clone());
    let revoked = call.caller.revoked.clone().unwrap_or_default();
    api.tasks.spawn(async move {
        let Ok(Ok(upgraded)) = timeout(UPGRADE, upgrade).await else {
            return tracing::debug!("a client asked for a socket of changes and left");
        };
        let config = WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE));
        let stream =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        tokio::select! {
            () = serve(socket, stream) => {}
            // A revoked token ends what was begun with it.
            () = revoked.cancelled() => {}
            () = stop.cancelled() => {}
        }
    });
    Ok(response)
}

/// Subscriptions that run, by what they wish.
struct Running {
    handles: HashMap<Wish, AbortHandle>,
    tasks: JoinSet<Wish>,
}

/// Serves a socket until the client leaves or stands still.
async fn serve<S>(socket: Arc<Socket>, stream: WebSocketStream<S>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut sink, mut input) = stream.split();
    let (out, mut queue) = queue::channel(QUEUE);
    let mut running = Running { handles: HashMap::new(), tasks: JoinSet::new() };
    let mut pings = interval_at(Instant::now() + PING, PING);
    loop {
        let text = tokio::select! {
            // What was asked is heard before more is told: a client can always stop what it does not want.
            biased;
            said = input.next() => match said {
                Some(Ok(Message::Text(text))) => match Said::parse(&text) {
                    Some(said) => match running.hear(&socket, said, &out) {
                        Some(answer) => answer,
                        None => continue,
                    },
                    None => continue,
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                // Reading answers pings.
                Some(Ok(_)) => continue,
            },
            Some(ended) = running.tasks.join_next() => {
                if let Ok(wish) = ended {
                    running.handles.remove(&wish);
                }
                continue;
            }
            text = queue.recv() => match text {
                Some(text) => text,
                None => return,
            },
            _ = pings.tick() => ping(),
        };
        match timeout(PATIENCE, sink.send(Message::text(text))).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
}

impl Running {
    /// Does what a client asks. What is returned is said at once.
    fn hear(&mut self, socket: &Arc<Socket>, said: Said, out: &Out) -> Option<String> {
        match said {
            Said::Stop(wish) => {
                self.handles.remove(&wish)?.abort();
                Some(wish.stopped())
            }
            // What runs already goes on.
            Said::Start(wish, _) if self.handles.contains_key(&wish) => None,
            Said::Start(wish, _) if self.handles.len() >= MOST => {
                Some(wish.failed(&SubscribeError::Refused(format!(
                    "a socket has no more than {MOST} subscriptions"
                ))))
            }
            Said::Start(wish, after) => {
                let (socket, out, own) = (socket.clone(), out.clone(), wish.clone());
                let task = self.tasks.spawn(async move {
                    watch::run(&socket, &own, after, &out).await;
                    own
                });
                self.handles.insert(wish, task);
                None
            }
        }
    }
}
