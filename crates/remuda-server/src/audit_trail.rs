//! The audit log for those who may read it: the newest lines first, from the files of this server.
//!
//! Bodies of requests and answers, which a policy may have put into the log, are left out: Secrets are among them, and
//! the right to read the log is none to read those. Several servers have a log each; this is of the one that answers.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use remuda_door::{Answer, Body, Call, Handler, Opening, Refusal};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::{doors, rotate};

/// Lines of an answer, unless asked otherwise and at most.
const LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// Bytes of the log that one request looks at.
const SCANNED: u64 = 64 << 20;
/// Bytes of an answer.
const ANSWERED: usize = 8 << 20;
const CHUNK: u64 = 64 << 10;
/// Lines are written when requests end, by many at once: hardly ever is one this late.
const OUT_OF_ORDER: SignedDuration = SignedDuration::from_secs(10);
/// Requests that read at one time.
const READERS: usize = 2;

/// Answers with the audit log, if there is one.
pub(crate) struct Trail {
    log: Option<PathBuf>,
    readers: Semaphore,
}

/// Which lines are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    limit: usize,
    since: Option<Timestamp>,
    user: Option<String>,
}

impl Wanted {
    fn parse(query: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let given = |name: &str| query(name).filter(|text| !text.is_empty());
        let limit = given("limit").map_or(Ok(LIMIT), |text| {
            let limit = text.parse::<usize>().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
            limit.ok_or_else(|| format!("limit: must be a number from 1 to {MAX_LIMIT}"))
        })?;
        let since = given("since").map(|text| {
            text.parse().map_err(|_| "since: must be a time such as 2026-01-31T12:00:00Z".to_owned())
        });
        Ok(Self { limit, since: since.transpose()?, user: given("user") })
    }

    /// Whether a line is one; `None` if none before it can be.
    fn matches(&self, event: &Value) -> Option<bool> {
        let at: Option<Timestamp> = event["stageTimestamp"].as_str().and_then(|text| text.parse().ok());
        if let (Some(since), Some(at)) = (self.since, at)
            && at < since
        {
            return (since.duration_since(at) < OUT_OF_ORDER).then_some(false);
        }
        let is_user = |user: &String| {
            [&event["user"], &event["impersonatedUser"]].iter().any(|said| said["username"] == user.as_str())
        };
        Some(self.user.as_ref().is_none_or(is_user))
    }
}

/// Lines of files from their ends.
struct Backwards {
    files: std::vec::IntoIter<File>,
    current: Option<(File, u64)>,
    /// What was read of the current file and not given out, up to the end of a line.
    rest: Vec<u8>,
    /// Bytes that may still be read.
    left: u64,
}

impl Backwards {
    fn new(files: Vec<File>) -> Self {
        Self { files: files.into_iter(), current: None, rest: Vec::new(), left: SCANNED }
    }

    /// The line before. `Ok(None)` at the beginning of the log, or when enough was read.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                let line = self.rest.split_off(end + 1);
                self.rest.truncate(end);
                if !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            match &mut self.current {
                Some((_, 0)) => {
                    self.current = None;
                    if !self.rest.is_empty() {
                        return Ok(Some(std::mem::take(&mut self.rest)));
                    }
                }
                Some((file, position)) => {
                    if self.left == 0 {
                        return Ok(None);
                    }
                    // As much again as there is, so that a long line is not copied once per chunk.
                    let length = CHUNK.max(self.rest.len() as u64).min(*position).min(self.left);
                    *position -= length;
                    self.left -= length;
                    file.seek(SeekFrom::Start(*position))?;
                    let mut chunk = Vec::new();
                    file.by_ref().take(length).read_to_end(&mut chunk)?;
                    chunk.append(&mut self.rest);
                    self.rest = chunk;
                }
                None => {
                    let Some(mut file) = self.files.next() else { return Ok(None) };
                    let end = file.seek(SeekFrom::End(0))?;
                    self.current = Some((file, end));
                }
            }
        }
    }

    /// Whether there is nothing before what was given out.
    fn is_done(&self) -> bool {
        self.current.is_none() && self.rest.is_empty() && self.files.len() == 0
    }
}

/// The log and its predecessors, the newest first, each once: one may be renamed while they are opened.
fn open(log: &Path) -> io::Result<Vec<File>> {
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    for number in 0.. {
        let path = if number == 0 { log.to_owned() } else { rotate::numbered(log, number) };
        match File::open(&path) {
            Ok(file) => {
                let metadata = file.metadata()?;
                if seen.insert((metadata.dev(), metadata.ino())) {
                    files.push(file);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// The newest lines that are wanted, as an `EventList` of Kubernetes.
fn read(log: &Path, wanted: &Wanted) -> io::Result<Value> {
    let mut lines = Backwards::new(open(log)?);
    let (mut items, mut size, mut is_complete) = (Vec::new(), 0, false);
    while items.len() < wanted.limit && size < ANSWERED {
        let Some(line) = lines.line()? else {
            is_complete = lines.is_done();
            break;
        };
        // What is no event was not written by us; the beginning of a line that was not read is none either.
        let Ok(Value::Object(mut event)) = serde_json::from_slice::<Value>(&line) else { continue };
        event.remove("requestObject");
        event.remove("responseObject");
        let event = Value::Object(event);
        match wanted.matches(&event) {
            Some(true) => {
                size += event.to_string().len();
                items.push(event);
            }
            Some(false) => {}
            None => {
                is_complete = true;
                break;
            }
        }
    }
    Ok(json!({
        "kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {},
        "items": items, "complete": is_complete,
    }))
}

impl Trail {
    pub(crate) fn new(log: Option<PathBuf>) -> Self {
        Self { log, readers: Semaphore::new(READERS) }
    }

    pub(crate) fn opening(self) -> Opening {
        Opening { door: &doors::AUDIT, handler: Arc::new(self) }
    }

    async fn answer(&self, call: &Call) -> Answer {
        let Some(log) = self.log.clone() else {
            let message = "this server keeps no audit log; it is started with --audit-log FILE for one";
            return Err(Refusal::new(StatusCode::NOT_FOUND, message));
        };
        let wanted = Wanted::parse(|name| call.query(name))
            .map_err(|message| Refusal::new(StatusCode::BAD_REQUEST, message))?;
        let failed = |error: &dyn std::fmt::Display| {
            warn!(%error, "the audit log cannot be read");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the audit log cannot be read")
        };
        let _turn = self.readers.acquire().await.map_err(|error| failed(&error))?;
        let list = tokio::task::spawn_blocking(move || read(&log, &wanted)).await;
        let list = list.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        let mut response = Response::new(Body::from(list.to_string()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }
}

impl Handler for Trail {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move { self.answer(&call).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(user: &str, second: u32) -> String {
        json!({
            "user": {"username": user}, "stageTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60),
            "requestObject": {"data": "secret"}, "responseObject": {"data": "secret"},
        })
        .to_string()
            + "\n"
    }

    fn wanted(limit: usize) -> Wanted {
        Wanted { limit, since: None, user: None }
    }

    fn users(list: &Value) -> Vec<&str> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["user"]["username"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn the_newest_lines_come_first_from_all_files_and_without_bodies() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.log");
        std::fs::write(rotate::numbered(&log, 2), event("a", 1)).unwrap();
        std::fs::write(rotate::numbered(&log, 1), event("b", 2) + "no event\n\n" + &event("c", 30)).unwrap();
        std::fs::write(&log, event("d", 40) + &event("e", 50)).unwrap();
        let all = read(&log, &wanted(10)).unwrap();
        assert_eq!((users(&all), &all["complete"]), (vec!["e", "d", "c", "b", "a"], &json!(true)));
        assert!(!all.to_string().contains("secret"));
        let two = read(&log, &wanted(2)).unwrap();
        assert_eq!((users(&two), &two["complete"]), (vec!["e", "d"], &json!(false)));
        let since = Some("2026-01-01T00:00:35Z".parse().unwrap());
        let late = read(&log, &Wanted { since, ..wanted(10) }).unwrap();
        assert_eq!((users(&late), &late["complete"]), (vec!["e", "d"], &json!(true)));
        let one = read(&log, &Wanted { user: Some("b".to_owned()), ..wanted(10) }).unwrap();
        assert_eq!(users(&one), ["b"]);
    }

    #[test]
    fn lines_longer_than_a_chunk_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.log");
        let long = "x".repeat(3 * CHUNK as usize);
        std::fs::write(&log, event(&long, 1) + &event("a", 2)).unwrap();
        assert_eq!(users(&read(&log, &wanted(10)).unwrap()), ["a", long.as_str()]);
        assert_eq!(read(&dir.path().join("none"), &wanted(10)).unwrap()["items"], json!([]));
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_its_parameter() {
        let parse = |name: &'static str, text: &'static str| {
            Wanted::parse(move |asked| (asked == name).then(|| text.to_owned()))
        };
        for (name, text) in [("limit", "0"), ("limit", "1001"), ("limit", "x"), ("since", "yesterday")] {
            assert!(parse(name, text).unwrap_err().starts_with(name), "{name}={text}");
        }
        assert_eq!(parse("user", "ann").unwrap(), Wanted { user: Some("ann".to_owned()), ..wanted(LIMIT) });
    }
}
