//! Messages that wait for the socket: a few, and not many bytes of them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// KiB that messages of one socket may have while they wait.
const ROOM: usize = 8 << 10;

/// A message, and the room it has.
struct Waiting {
    text: String,
    _room: OwnedSemaphorePermit,
}

/// The end of the subscriptions.
#[derive(Clone)]
pub(super) struct Out {
    sender: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

/// The end of the socket.
pub(super) struct Queue(mpsc::Receiver<Waiting>);

/// The client is gone; there is nothing left to do.
pub(super) struct Left;

pub(super) fn channel(messages: usize) -> (Out, Queue) {
    let (sender, receiver) = mpsc::channel(messages);
    (Out { sender, room: Arc::new(Semaphore::new(ROOM)) }, Queue(receiver))
}

impl Out {
    /// Waits until there is room. One that is larger than all of it has it for itself.
    pub(super) async fn say(&self, text: String) -> Result<(), Left> {
        let size = u32::try_from((text.len() >> 10).clamp(1, ROOM)).map_err(|_| Left)?;
        let room = tokio::select! {
            room = self.room.clone().acquire_many_owned(size) => room.map_err(|_| Left)?,
            () = self.sender.closed() => return Err(Left),
        };
        self.sender.send(Waiting { text, _room: room }).await.map_err(|_| Left)
    }

    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl Queue {
    pub(super) async fn recv(&mut self) -> Option<String> {
        Some(self.0.recv().await?.text)
    }

    #[cfg(test)]
    pub(super) fn try_recv(&mut self) -> Option<String> {
        Some(self.0.try_recv().ok()?.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_bytes_wait_for_a_client_that_does_not_read() {
        let (out, mut queue) = channel(64);
        let large = || "x".repeat(3 << 20);
        assert!(out.say(large()).await.is_ok() && out.say(large()).await.is_ok());
        let third = tokio::time::timeout(std::time::Duration::from_secs(1), out.say(large())).await;
        assert!(third.is_err(), "there is no room for it");
        assert_eq!(queue.recv().await.map(|text| text.len()), Some(3 << 20));
        assert!(out.say(large()).await.is_ok(), "now there is");
        drop(queue);
        assert!(out.say("y".repeat(64 << 20)).await.is_err(), "nobody reads any more");
    }
}
