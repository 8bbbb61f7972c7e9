//! A client that speaks by hand, for tests.

use std::collections::{HashMap, HashSet};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{
    frame::{self, FIN, Head},
    headers::Deflater,
};

/// A client that speaks by hand.
pub(crate) struct Client {
    pub(super) io: DuplexStream,
    deflater: Deflater,
}

impl Client {
    pub(crate) async fn open(&mut self, id: u32, headers: &[(&str, &str)]) {
        let block = self.deflater.headers(headers);
        self.io.write_all(&frame::syn_stream(id, 0, &block)).await.unwrap();
    }

    pub(crate) async fn say(&mut self, id: u32, flags: u8, text: &str) {
        self.io.write_all(&frame::data_head(id, flags, text.len())).await.unwrap();
        self.io.write_all(text.as_bytes()).await.unwrap();
    }

    /// There is no more on a stream.
    pub(crate) async fn end(&mut self, id: u32) {
        self.say(id, FIN, "").await;
    }

    /// What is said on each stream until all of these have ended.
    pub(crate) async fn all(&mut self, ids: &[u32]) -> HashMap<u32, String> {
        let mut said: HashMap<u32, Vec<u8>> = HashMap::new();
        let mut ended = HashSet::new();
        while !ids.iter().all(|id| ended.contains(id)) {
            if let (Head::Data { id, flags, .. }, bytes) = self.hear().await {
                said.entry(id).or_default().extend(bytes);
                if flags & FIN != 0 {
                    ended.insert(id);
                }
            }
        }
        said.into_iter().map(|(id, bytes)| (id, String::from_utf8(bytes).unwrap())).collect()
    }

    /// The next frame: its head and what follows.
    pub(super) async fn hear(&mut self) -> (Head, Vec<u8>) {
        let mut head = [0; frame::HEAD];
        self.io.read_exact(&mut head).await.unwrap();
        let head = Head::parse(head);
        let (Head::Data { length, .. } | Head::Control { length, .. }) = head;
        let mut payload = vec![0; length];
        self.io.read_exact(&mut payload).await.unwrap();
        (head, payload)
    }
}

pub(crate) fn client() -> (Client, DuplexStream) {
    let (io, server) = tokio::io::duplex(1 << 16);
    (Client { io, deflater: Deflater::default() }, server)
}
