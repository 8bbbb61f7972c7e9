//! Events of a watch, taken from the bytes it sends.
//!
//! Kubernetes sends an event a line, which is the way that costs nothing: what is before a newline is parsed. A proxy
//! or another server may send any stream of JSON objects, several in a line or one over many; then the end of an
//! object is looked for byte by byte.

use std::{borrow::Cow, error::Error as StdError, io};

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::{
    Error,
    core::{Status, WatchEvent},
};
use remuda_base::json_stream::Scanner;
use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) type Event = WatchEvent<Box<RawValue>>;

/// The events of a stream.
pub(super) struct Events<R> {
    source: R,
    buffer: Buffer,
}

impl<R: AsyncBufRead + Unpin> Events<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: Buffer::default() }
    }

    /// The next event; `None` at the end, where something may be cut off. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.buffer.event() {
                return Some(event);
            }
            match self.source.fill_buf().await {
                Ok([]) => return None,
                Ok(data) => {
                    let taken = data.len();
                    self.buffer.push(data);
                    self.source.consume_unpin(taken);
                }
                Err(error) if is_cut_off(&error) => return None,
                Err(error) => return Some(Err(Error::ReadEvents(error))),
            }
        }
    }
}

/// The connection ended in the middle, as it does when a server goes away.
fn is_cut_off(error: &io::Error) -> bool {
    let is_eof = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    // An io::Error has what it was made of behind its source, not as its source.
    let mut link = error.get_ref().map(|inner| inner as &(dyn StdError + 'static));
    while let Some(inner) = link {
        if inner.downcast_ref::<io::Error>().is_some_and(is_eof) {
            return true;
        }
        link = inner.source();
    }
    is_eof(error)
}

/// What was received and is no event yet. Each byte is looked at a fixed number of times, whatever is sent.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Where the next event begins.
    start: usize,
    /// Up to where there is no newline, from `start`.
    searched: usize,
    /// Where the event ends is looked for byte by byte, up to here.
    scanned: Option<(Scanner, usize)>,
}

impl Buffer {
    fn push(&mut self, data: &[u8]) {
        // What is used up goes when it is half of it all.
        if self.start > 0 && self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.searched = self.searched.saturating_sub(self.start);
            if let Some((_, at)) = &mut self.scanned {
                *at = at.saturating_sub(self.start);
            }
            self.start = 0;
        }
        self.bytes.extend_from_slice(data);
    }

    fn event(&mut self) -> Option<Result<Event, Error>> {
        if self.scanned.is_none() {
            let blank = self.bytes[self.start..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.start += blank;
            if self.bytes.get(self.start).is_some_and(|first| *first != b'{') {
                return Some(Err(no_object()));
            }
            if let Some(end) = self.newline()
                && let Ok(event) = read(&self.bytes[self.start..end])
            {
                self.start = end;
                return Some(Ok(event));
            }
        }
        // There is no newline yet, or more or less than one object before it.
        let (mut scanner, at) = self.scanned.take().unwrap_or((Scanner::default(), self.start));
        let Some(length) = scanner.end(&self.bytes[at..]) else {
            if self.bytes.len() > self.start {
                self.scanned = Some((scanner, self.bytes.len()));
            }
            return None;
        };
        let event = parse(&self.bytes[self.start..at + length]);
        self.start = at + length;
        Some(event)
    }

    /// The end of the line that begins at `start`.
    fn newline(&mut self) -> Option<usize> {
        let from = self.searched.max(self.start);
        match self.bytes[from..].iter().position(|byte| *byte == b'\n') {
            Some(at) => {
                // It is found again by the next event that is in the same line.
                self.searched = from + at;
                Some(from + at)
            }
            None => {
                self.searched = self.bytes.len();
                None
            }
        }
    }
}

/// An event as it is sent. Its fields may have any order, which what kube reads it with does not allow for objects that
/// stay text.
#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(rename = "type", borrow)]
    what: Cow<'a, str>,
    object: Box<RawValue>,
}

fn read(text: &[u8]) -> Result<Event, serde_json::Error> {
    let Sent { what, object } = serde_json::from_slice(text)?;
    Ok(match what.as_ref() {
        "ADDED" => WatchEvent::Added(object),
        "MODIFIED" => WatchEvent::Modified(object),
        "DELETED" => WatchEvent::Deleted(object),
        "BOOKMARK" => WatchEvent::Bookmark(serde_json::from_str(object.get())?),
        "ERROR" => WatchEvent::Error(serde_json::from_str(object.get())?),
        other => return Err(serde::de::Error::custom(format!("{other:?} is no type of an event"))),
    })
}

fn parse(object: &[u8]) -> Result<Event, Error> {
    read(object).map_err(|error| match serde_json::from_slice::<Status>(object) {
        // Some answer with an error as if it were an event.
        Ok(status) if status.code != 0 => Error::Api(status.boxed()),
        _ => Error::SerdeError(error),
    })
}

fn no_object() -> Error {
    Error::SerdeError(serde::de::Error::custom("a watch sends something that is no JSON object"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(name: &str) -> Value {
        json!({"type": "ADDED", "object": {"metadata": {"name": name, "annotations": {"a": "}{\"\n"}}}})
    }

    /// Names of the objects of a stream that comes in pieces of this length, and the error it ends with.
    fn names(stream: &str, length: usize) -> (Vec<String>, Option<Error>) {
        let (mut buffer, mut found) = (Buffer::default(), Vec::new());
        for piece in stream.as_bytes().chunks(length) {
            buffer.push(piece);
            while let Some(event) = buffer.event() {
                match event {
                    Ok(WatchEvent::Added(raw)) => {
                        let object: Value = serde_json::from_str(raw.get()).unwrap();
                        found.push(object["metadata"]["name"].as_str().unwrap().to_owned());
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn any_stream_of_objects_is_a_watch() {
        let [a, b, c] = ["a", "b", "c"].map(event);
        let streams = [
            format!("{a}\n{b}\n{c}\n"),
            format!("{a}{b}{c}"),
            format!("{a:#}{b:#}\r\n\n{c:#}"),
            format!("{a} {b}\n{c:#}"),
            format!("\n\n{a:#}\n{b}{c}\n"),
        ];
        for stream in &streams {
            for length in (1..60).chain([stream.len()]) {
                let (found, error) = names(stream, length);
                assert!(error.is_none(), "{error:?}");
                assert_eq!(found, ["a", "b", "c"], "{stream} in pieces of {length}");
            }
        }
    }

    #[test]
    fn an_event_is_there_before_whatever_follows_it() {
        let mut buffer = Buffer::default();
        buffer.push(event("a").to_string().as_bytes());
        assert!(buffer.event().unwrap().is_ok());
        buffer.push(&event("b").to_string().as_bytes()[..20]);
        assert!(buffer.event().is_none());
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        let (found, error) = names(&format!("{}\nhello\n", event("a")), 7);
        assert_eq!(found, ["a"]);
        assert!(error.unwrap().to_string().contains("no JSON object"));
        let status = json!({"kind": "Status", "status": "Failure", "code": 410, "message": "too old"});
        let (_, error) = names(&status.to_string(), 9);
        assert!(matches!(error, Some(Error::Api(status)) if status.code == 410));
    }

    #[test]
    fn many_objects_in_a_line_cost_no_more_than_their_bytes() {
        let many = 50_000;
        let line = "{\"type\":\"BOOKMARK\"}".repeat(many);
        let mut buffer = Buffer::default();
        buffer.push(line.as_bytes());
        buffer.push(b"\n");
        // They lack an object, which is found out for each of them; quadratic it would take minutes.
        let mut seen = 0;
        while buffer.event().is_some() {
            seen += 1;
        }
        assert_eq!(seen, many);
    }
}
