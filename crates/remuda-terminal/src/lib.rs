//! Terminals of containers for pages of the dashboard.
//!
//! A page opens a WebSocket at the door; the command runs in the container through the door of clusters, as the caller,
//! so the cluster decides whether they may. What the command writes goes through an emulator here ([`screen`]), and the
//! page is told which rows have changed: it needs no emulator of its own, and a program that writes without end costs
//! it a few rows, some times a second. Nothing is kept once the socket is gone.
//!
//! Pure: [`exec`] (frames of the cluster), [`screen`], [`keys`], [`message`]. The socket and the session are shells.

mod exec;
mod keys;
mod message;
mod screen;
mod session;

#[cfg(test)]
mod fuzz;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use remuda_door::{
    Access, Answer, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown, WebSocket,
};
use remuda_names::path::TERMINAL;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{Role, WebSocketConfig},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::exec::Target;

/// Sessions of one user, and of all.
const MOST_OF_ONE: usize = 8;
const MOST: usize = 64;
/// For the page to take the upgrade.
const UPGRADE: Duration = Duration::from_secs(15);
/// Longest message of a page: something large was pasted.
const LARGEST_MESSAGE: usize = 256 << 10;

/// A command in a container, with a terminal.
pub static TERMINAL_DOOR: Door = Door {
    name: "terminal",
    purpose: "a shell in a container of a cluster, for pages of the dashboard",
    paths: &[Owned::Exact(TERMINAL)],
    methods: &["GET"],
    access: Access::Authenticated,
    cookie: Cookie::Fetch,
    shown: Shown::Query,
    body: 0,
    personal: true,
};

/// Serves terminals. Clones are the same.
#[derive(Clone)]
pub struct Terminals(Arc<Shared>);

struct Shared {
    /// The door of clusters: commands take the way everything takes.
    clusters: Opening,
    open: Mutex<HashMap<String, usize>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Terminals {
    pub fn new(clusters: Opening, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self(Arc::new(Shared { clusters, open: Mutex::default(), tasks, stop }))
    }

    pub fn opening(&self) -> Opening {
        Opening { door: &TERMINAL_DOOR, handler: Arc::new(self.clone()) }
    }
}

/// A place among the sessions there may be, given back when it is dropped.
struct Seat {
    shared: Arc<Shared>,
    user: String,
}

impl Seat {
    fn take(shared: &Arc<Shared>, user: &str) -> Result<Self, Refusal> {
        let mut open = shared.open.lock();
        let own = open.get(user).copied().unwrap_or_default();
        if own >= MOST_OF_ONE || open.values().sum::<usize>() >= MOST {
            let whose = if own >= MOST_OF_ONE { "you have" } else { "this server has" };
            let message = format!("{whose} too many open terminals; close one and try again");
            return Err(Refusal::new(http::StatusCode::TOO_MANY_REQUESTS, message));
        }
        open.insert(user.to_owned(), own + 1);
        Ok(Self { shared: shared.clone(), user: user.to_owned() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        if let Some(own) = open.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.user);
            }
        }
    }
}

impl Handler for Terminals {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let target = Target::parse(|name| call.query(name)).map_err(Refusal::bad)?;
            let socket = WebSocket::accept(&call.head)?;
            let seat = Seat::take(&self.0, &call.caller.name)?;
            let (shared, response) = (self.0.clone(), socket.response);
            self.0.tasks.spawn(async move {
                let _seat = seat;
                let Ok(Ok(upgraded)) = timeout(UPGRADE, socket.upgrade).await else {
                    return tracing::debug!("a page asked for a terminal and left");
                };
                let config = WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE));
                let io = TokioIo::new(upgraded);
                let page = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
                let revoked = call.caller.revoked.clone().unwrap_or_default();
                let (cluster, stop) = (shared.clusters.clone(), shared.stop.clone());
                tokio::select! {
                    () = session::serve(page, cluster, call, target) => {}
                    // A revoked token ends what was begun with it.
                    () = revoked.cancelled() => {}
                    () = stop.cancelled() => {}
                }
            });
            Ok(response)
        })
    }
}
