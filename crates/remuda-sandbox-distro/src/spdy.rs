//! The server's side of SPDY/3.1, as far as Kubernetes' older streaming clients speak it.
//!
//! Clients open streams, each with headers that say what it is for; bytes go both ways on each. Windows are
//! neither kept nor announced, as in the implementation clients use: a stream that is not read holds up its
//! connection, and so its client. What a client sends is bounded in every respect: frames, headers, streams.

mod frame;
mod headers;

use std::{collections::HashMap, io, time::Duration};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};

use self::{
    frame::{Control, FIN, Head},
    headers::{Deflater, Inflater},
};

/// What is named in `Upgrade`.
pub const PROTOCOL: &str = "SPDY/3.1";

/// Streams of a connection at once.
const MOST_STREAMS: usize = 512;
/// Pieces of a stream, and frames of a connection, on their way.
const QUEUE: usize = 8;
/// Bytes of a piece.
const PIECE: usize = 16 << 10;
/// For the client to close its side.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the client breaks the protocol: {0}")]
    Protocol(&'static str),
}

/// A stream a client has opened.
pub struct Stream {
    headers: Vec<(String, String)>,
    /// What the client sends; closed when there is no more.
    pub bytes: mpsc::Receiver<Bytes>,
    pub sender: Sender,
}

impl Stream {
    /// A header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The way back on a stream.
#[derive(Clone)]
pub struct Sender {
    id: u32,
    frames: mpsc::Sender<Out>,
}

impl Sender {
    /// False if the connection is over.
    pub async fn send(&self, bytes: Bytes) -> bool {
        self.frames.send(Out::Data { id: self.id, bytes, last: false }).await.is_ok()
    }

    /// There will be no more.
    pub async fn end(&self) {
        let _ = self.frames.send(Out::Data { id: self.id, bytes: Bytes::new(), last: true }).await;
    }
}

enum Out {
    Reply(u32),
    Refuse(u32),
    Pong(u32),
    Data { id: u32, bytes: Bytes, last: bool },
    Goodbye,
}

/// What is known of an open stream.
struct Open {
    /// Gone when the client has said all.
    input: Option<mpsc::Sender<Bytes>>,
    /// Whether we have.
    ended: bool,
}

type Streams = Mutex<HashMap<u32, Open>>;

/// Serves a connection. `work` gets the streams as they are opened; the connection ends with it, or with the
/// client, when `work` is dropped.
pub async fn serve<S, W, F>(io: S, work: W) -> Result<(), SpdyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    W: FnOnce(mpsc::Receiver<Stream>) -> F,
    F: Future<Output = ()>,
{
    let (mut reader, mut writer) = tokio::io::split(io);
    let (opened, streams) = mpsc::channel(QUEUE);
    let (frames, outgoing) = mpsc::channel(QUEUE);
    let open = Streams::default();
    let work = work(streams);
    {
        let reading = read(&mut reader, &open, &opened, &frames);
        let working = async {
            work.await;
            let _ = frames.send(Out::Goodbye).await;
            std::future::pending::<()>().await;
        };
        let writing = write(&mut writer, &open, outgoing);
        tokio::pin!(reading);
        tokio::select! {
            read = &mut reading => return read,
            written = writing => written?,
            () = working => {}
        }
    }
    // Closed at once, what is on its way to the client might be lost.
    let mut rest = [0; 1024];
    let drained = async { while let Ok(1..) = reader.read(&mut rest).await {} };
    let _ = timeout(FAREWELL, drained).await;
    Ok(())
}

async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    open: &Streams,
    opened: &mpsc::Sender<Stream>,
    frames: &mpsc::Sender<Out>,
) -> Result<(), SpdyError> {
    let mut inflater = Inflater::default();
    let mut last_id = 0;
    loop {
        let mut head = [0; frame::HEAD];
        match reader.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        };
        match Head::parse(head) {
            Head::Data { id, flags, length } => {
                let input = open.lock().get(&id).and_then(|stream| stream.input.clone());
                carry(reader, length, input.as_ref()).await?;
                if flags & FIN != 0 {
                    close(open, id);
                }
            }
            Head::Control { version, kind, flags, length } => {
                if version != frame::VERSION {
                    return Err(SpdyError::Protocol("another version"));
                }
                if length > frame::LARGEST_CONTROL {
                    return Err(SpdyError::Protocol("a control frame that is too long"));
                }
                let mut payload = vec![0; length];
                reader.read_exact(&mut payload).await?;
                let control =
                    Control::parse(kind, &payload).ok_or(SpdyError::Protocol("a frame that is cut off"))?;
                match control {
                    Control::SynStream { id, block } => {
                        // Every block counts for those after it, also of streams that are refused.
                        let headers = inflater.read(block)?;
                        if id.is_multiple_of(2) || id <= last_id {
                            return Err(SpdyError::Protocol("a stream out of order"));
                        }
                        last_id = id;
                        if open.lock().len() >= MOST_STREAMS {
                            let _ = frames.send(Out::Refuse(id)).await;
                            continue;
                        }
                        let (input, bytes) = mpsc::channel(QUEUE);
                        let input = (flags & FIN == 0).then_some(input);
                        open.lock().insert(id, Open { input, ended: false });
                        let _ = frames.send(Out::Reply(id)).await;
                        let sender = Sender { id, frames: frames.clone() };
                        let _ = opened.send(Stream { headers, bytes, sender }).await;
                    }
                    Control::Headers { block } => drop(inflater.read(block)?),
                    Control::Reset { id } => drop(open.lock().remove(&id)),
                    // Ours would be even; an answer to one we did not send is nothing.
                    Control::Ping { id } if id % 2 == 1 => drop(frames.send(Out::Pong(id)).await),
                    // It means to go, and will when it has all it wants.
                    Control::GoAway | Control::Ping { .. } | Control::Other => {}
                }
            }
        }
    }
}

/// Passes on the bytes of a data frame as they come.
async fn carry(
    reader: &mut (impl AsyncRead + Unpin),
    length: usize,
    input: Option<&mpsc::Sender<Bytes>>,
) -> Result<(), SpdyError> {
    let mut left = length;
    while left > 0 {
        let mut piece = BytesMut::zeroed(left.min(PIECE));
        let read = reader.read(&mut piece).await?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        left -= read;
        piece.truncate(read);
        if let Some(input) = input {
            // Whoever had the stream may have no more use for it.
            let _ = input.send(piece.freeze()).await;
        }
    }
    Ok(())
}

/// The client has said all on a stream.
fn close(open: &Streams, id: u32) {
    let mut open = open.lock();
    if let Some(stream) = open.get_mut(&id) {
        stream.input = None;
        if stream.ended {
            open.remove(&id);
        }
    }
}

async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    open: &Streams,
    mut outgoing: mpsc::Receiver<Out>,
) -> Result<(), SpdyError> {
    let mut deflater = Deflater::default();
    while let Some(out) = outgoing.recv().await {
        match out {
            Out::Reply(id) => writer.write_all(&frame::syn_reply(id, &deflater.empty()?)).await?,
            Out::Refuse(id) => writer.write_all(&frame::refuse(id)).await?,
            Out::Pong(id) => writer.write_all(&frame::ping(id)).await?,
            Out::Data { id, bytes, last } => {
                if open.lock().get(&id).is_none_or(|stream| stream.ended) {
                    continue;
                }
                for piece in bytes.chunks(PIECE) {
                    writer.write_all(&frame::data_head(id, 0, piece.len())).await?;
                    writer.write_all(piece).await?;
                }
                if last {
                    writer.write_all(&frame::data_head(id, FIN, 0)).await?;
                    let mut open = open.lock();
                    if let Some(stream) = open.get_mut(&id) {
                        stream.ended = true;
                        if stream.input.is_none() {
                            open.remove(&id);
                        }
                    }
                }
            }
            Out::Goodbye => {
                writer.write_all(&frame::go_away()).await?;
                writer.shutdown().await?;
                return Ok(());
            }
        }
        writer.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod client;
#[cfg(test)]
mod tests;
