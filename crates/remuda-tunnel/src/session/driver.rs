//! The loop between a WebSocket and the state machine.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::{SessionEnd, SessionTask, Shared};
use crate::{
    dial::{Inbound, Refusal},
    frame::ConnId,
    pipe::pipe,
    protocol::Transmit,
    socket::{Received, Sent, Socket, SocketError},
    stream::TunnelStream,
};

/// Messages read before looking at what is to be sent.
const READS: usize = 32;
/// Bytes moved one way before other tasks get a turn: those that take the data find it in the cache, and those with little
/// to say do not wait long.
const TURN: usize = 512 << 10;
/// What a message costs beside its bytes.
const MESSAGE: usize = 1 << 10;

impl<S: Socket> SessionTask<S> {
    /// Runs the session until either end, the transport or `stop` ends it.
    ///
    /// All of its connections end with it, also when the future is dropped.
    pub async fn run(self, stop: &CancellationToken) -> SessionEnd {
        let Self { shared, socket, inbound } = self;
        let ended = EndGuard(shared.clone());
        let tasks = TaskTracker::new();
        let cancel = CancellationToken::new();
        let _cancel_tasks = cancel.clone().drop_guard();
        let farewell = shared.options.farewell;
        let mut driver = Driver {
            sleep: Box::pin(sleep_until(Instant::now())),
            socket,
            inbound,
            tasks: tasks.clone(),
            cancel: cancel.clone(),
            stalled: None,
            blocked: false,
            unflushed: false,
            may_read: 0,
            may_write: 0,
            shared,
        };
        let own_stop = driver.shared.stop.clone();
        let end = tokio::select! {
            biased;
            end = poll_fn(|cx| driver.poll(cx)) => end,
            () = stop.cancelled() => SessionEnd::Stopped,
            () = own_stop.cancelled() => SessionEnd::Stopped,
        };
        if matches!(end, SessionEnd::Stopped) {
            let _ = timeout(farewell, driver.farewell()).await;
        }
        drop(driver);
        drop(ended);
        tasks.close();
        // Local connections end by themselves once their streams have; one that does not take its last
        // bytes is cut.
        if timeout(farewell, tasks.wait()).await.is_err() {
            cancel.cancel();
        }
        end
    }
}

/// Fails all connections however the session ends.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.with(|state| state.protocol.end(false));
    }
}

struct Driver<S> {
    shared: Arc<Shared>,
    socket: S,
    inbound: Option<Inbound>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    sleep: Pin<Box<Sleep>>,
    /// Since when the transport has not taken all it was given.
    stalled: Option<Instant>,
    /// The socket refuses more until that is gone.
    blocked: bool,
    unflushed: bool,
    /// What is left to move in this turn, each way: neither may starve the other.
    may_read: usize,
    may_write: usize,
}

impl<S: Socket> Driver<S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        match self.try_poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(end)) => Poll::Ready(end),
            Poll::Ready(Ok(never)) => match never {},
        }
    }

    fn try_poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<std::convert::Infallible, SessionEnd>> {
        self.shared.driver.register(cx.waker());
        (self.may_read, self.may_write) = (TURN, TURN);
        while self.may_read > 0 && self.may_write > 0 {
            let read = self.poll_reads(cx)?;
            let sent = self.poll_writes(cx)?;
            if !read && !sent && !self.poll_timer(cx)? {
                return Poll::Pending;
            }
        }
        // However busy it is, signs of life are due when they are.
        self.poll_timer(cx)?;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether anything was read.
    fn poll_reads(&mut self, cx: &mut Context<'_>) -> Result<bool, SessionEnd> {
        let mut any = false;
        for _ in 0..READS {
            if self.may_read == 0 {
                break;
            }
            let Poll::Ready(message) = self.socket.poll_receive(cx) else { break };
            let message = message.map_err(transport)?;
            any = true;
            self.may_read = self.may_read.saturating_sub(MESSAGE);
            let now = Instant::now().into_std();
            let mut state = self.shared.state.lock();
            match message {
                Received::Binary(message) => {
                    self.may_read = self.may_read.saturating_sub(message.len());
                    state.protocol.receive(message, now)?;
                }
                // The answer to a ping waits in the socket until the next flush.
                Received::Ping => {
                    state.protocol.heard(now);
                    self.unflushed = true;
                }
                Received::Pong => state.protocol.heard(now),
                Received::Close => return Err(SessionEnd::Closed),
                Received::Text => return Err(SessionEnd::MessageType),
            }
            state.dispatch();
            let incoming = std::mem::take(&mut state.incoming);
            drop(state);
            for (id, proto, address) in incoming {
                self.accept(id, proto, address)?;
            }
        }
        Ok(any)
    }

    /// Whether anything was handed to the socket.
    fn poll_writes(&mut self, cx: &mut Context<'_>) -> Result<bool, SessionEnd> {
        let mut any = false;
        while self.may_write > 0 {
            if let Poll::Ready(result) = self.socket.poll_ready(cx) {
                result.map_err(transport)?;
                // A socket that was never full is ready without having sent anything.
                if std::mem::take(&mut self.blocked) {
                    self.stalled = None;
                }
            } else {
                self.blocked = true;
                self.stalled.get_or_insert_with(Instant::now);
                return Ok(any);
            }
            let next = {
                let mut state = self.shared.state.lock();
                let next = state.protocol.poll_transmit(Instant::now().into_std());
                state.dispatch();
                next
            };
            let Some(next) = next else { break };
            self.may_write = self.may_write.saturating_sub(MESSAGE);
            self.socket.send(match next {
                Transmit::Message(bytes) => {
                    self.may_write = self.may_write.saturating_sub(bytes.len());
                    Sent::Binary(bytes)
                }
                Transmit::Ping => Sent::Ping,
            });
            (any, self.unflushed) = (true, true);
        }
        if self.unflushed {
            match self.socket.poll_flush(cx) {
                Poll::Ready(result) => {
                    result.map_err(transport)?;
                    (self.unflushed, self.stalled) = (false, None);
                }
                Poll::Pending => _ = self.stalled.get_or_insert_with(Instant::now),
            }
        }
        Ok(any)
    }

    /// Whether the time had something to do.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Result<bool, SessionEnd> {
        let limit = self.shared.options.write_stall;
        let mut at = Instant::from_std(self.shared.state.lock().protocol.next_timeout());
        if let Some(since) = self.stalled {
            at = at.min(since + limit);
        }
        // Every message puts it off. A timer that is early is cheaper than one that is moved each time.
        if at < self.sleep.deadline() {
            self.sleep.as_mut().reset(at);
        }
        let now = loop {
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Ok(false);
            }
            let now = Instant::now();
            if now >= at {
                break now;
            }
            self.sleep.as_mut().reset(at);
        };
        if self.stalled.is_some_and(|since| now >= since + limit) {
            return Err(SessionEnd::WriteStall(limit));
        }
        self.shared.with(|state| state.protocol.tick(now.into_std()))?;
        Ok(true)
    }

    fn accept(&mut self, id: ConnId, proto: String, address: String) -> Result<(), SessionEnd> {
        let stream = TunnelStream::new(self.shared.clone(), id);
        let session = self.shared.name();
        let allowed = self.inbound.as_ref().is_some_and(|inbound| (inbound.authorizer)(&proto, &address));
        let Some(inbound) = self.inbound.as_ref().filter(|_| allowed) else {
            warn!(%session, proto, address, "connect not allowed");
            if self.inbound.as_ref().is_some_and(|inbound| inbound.refusal == Refusal::Connection) {
                stream.close_with("connect not allowed");
                return Ok(());
            }
            return Err(SessionEnd::ConnectNotAllowed { proto, address });
        };
        let dialer = inbound.dialer.clone();
        let limit = self.shared.options.dial;
        let linger = self.shared.options.timing.linger;
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            let served = async {
                match timeout(limit, dialer.dial(proto, address)).await {
                    Ok(Ok(local)) => pipe(stream, local, linger).await,
                    Ok(Err(error)) => {
                        debug!(conn = %id, %error, "dial failed");
                        stream.close_with(error.to_string());
                    }
                    Err(_) => stream.close_with("dial: i/o timeout"),
                }
            };
            cancel.run_until_cancelled(served).await;
        });
        Ok(())
    }

    /// Tells the other end that everything is over.
    async fn farewell(&mut self) {
        self.shared.with(|state| state.protocol.end(true));
        let mut closing = false;
        let sent = poll_fn(|cx| {
            loop {
                ready!(self.socket.poll_ready(cx))?;
                let next = {
                    let mut state = self.shared.state.lock();
                    state.protocol.poll_transmit(Instant::now().into_std())
                };
                self.socket.send(match next {
                    Some(Transmit::Message(bytes)) => Sent::Binary(bytes),
                    Some(Transmit::Ping) => continue,
                    None if !closing => {
                        closing = true;
                        Sent::Close
                    }
                    None => break,
                });
            }
            self.socket.poll_flush(cx)
        });
        let _: Result<(), SocketError> = sent.await;
    }
}

fn transport(error: SocketError) -> SessionEnd {
    match error {
        SocketError::Ended => SessionEnd::Closed,
        error => SessionEnd::Transport(error),
    }
}
