use futures::StreamExt;

use super::{
    read::{Reader, Wanted},
    *,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A log of whole lines, one a second.
fn log(directory: &Path, restarts: i32, limit: u64, lines: &[&str]) -> Log {
    let log = Log::with_limit(directory, restarts, limit).unwrap();
    for (second, line) in lines.iter().enumerate() {
        let text = format!("{line}\n");
        log.write(&Lines::default().take(text.as_bytes(), Stream::Out, at(second as i64)));
    }
    log
}

fn read(directory: &Path, wanted: Wanted) -> String {
    let mut reader = Reader::open(directory, wanted).unwrap().expect("there is a log");
    let mut text = Vec::new();
    loop {
        let piece = reader.piece().unwrap();
        if piece.is_empty() {
            return String::from_utf8(text).unwrap();
        }
        text.extend_from_slice(&piece);
    }
}

#[test]
fn as_much_is_read_as_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 0, LIMIT, &["a", "b", "c", "d"]);
    let read = |wanted| read(dir.path(), wanted);
    assert_eq!(read(Wanted::default()), "a\nb\nc\nd\n");
    assert_eq!(read(Wanted { tail: Some(2), ..Wanted::default() }), "c\nd\n");
    assert_eq!(read(Wanted { tail: Some(0), ..Wanted::default() }), "");
    assert_eq!(read(Wanted { tail: Some(9), ..Wanted::default() }), "a\nb\nc\nd\n");
    assert_eq!(read(Wanted { since: Some(at(2)), ..Wanted::default() }), "c\nd\n");
    assert_eq!(read(Wanted { limit: Some(3), ..Wanted::default() }), "a\nb");
    assert_eq!(read(Wanted { stream: Some(Stream::Err), ..Wanted::default() }), "");
    assert_eq!(
        read(Wanted { tail: Some(1), timestamps: true, ..Wanted::default() }),
        "1970-01-01T00:00:03.000000000Z d\n"
    );
}

#[test]
fn the_start_before_has_a_log_and_older_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    for (restarts, line) in [(0, "first"), (1, "second"), (2, "third")] {
        log(dir.path(), restarts, LIMIT, &[line]);
    }
    assert_eq!(read(dir.path(), Wanted::default()), "third\n");
    assert_eq!(read(dir.path(), Wanted { previous: true, ..Wanted::default() }), "second\n");
    assert_eq!(starts(dir.path()).len(), 2);
    let alone = tempfile::tempdir().unwrap();
    log(alone.path(), 0, LIMIT, &["only"]);
    assert!(Reader::open(alone.path(), Wanted { previous: true, ..Wanted::default() }).unwrap().is_none());
}

#[test]
fn a_log_does_not_grow_for_ever_and_is_read_across_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..20).map(|number| format!("line {number}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    log(dir.path(), 0, 200, &lines);
    let size: u64 =
        fs::read_dir(dir.path()).unwrap().flatten().map(|file| file.metadata().unwrap().len()).sum();
    assert!(size <= 400, "{size}");
    let text = read(dir.path(), Wanted { tail: Some(6), ..Wanted::default() });
    assert_eq!(text, "line 14\nline 15\nline 16\nline 17\nline 18\nline 19\n");
}

#[tokio::test]
async fn what_is_said_later_follows_until_the_process_ends() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path(), 0, 200, &["before"]);
    let wanted = Wanted { follow: true, ..Wanted::default() };
    let reader = Reader::open(dir.path(), wanted).unwrap().unwrap();
    let mut pieces = std::pin::pin!(reader.pieces(Some(log.changes())));
    assert_eq!(pieces.next().await.unwrap(), "before\n");
    let mut expected = String::new();
    for number in 0..30 {
        // Beyond the limit of a file, several times.
        let line = format!("number {number}\n");
        log.write(&Lines::default().take(line.as_bytes(), Stream::Out, at(9)));
        expected.push_str(&line);
        if number % 3 == 2 {
            let mut text = String::new();
            while text.len() < expected.len() {
                text.push_str(std::str::from_utf8(&pieces.next().await.unwrap()).unwrap());
            }
            assert_eq!(text, std::mem::take(&mut expected));
        }
    }
    log.write(&Lines::default().take(b"last\n", Stream::Out, at(9)));
    drop(log);
    assert_eq!(pieces.next().await.unwrap(), "last\n");
    assert_eq!(pieces.next().await, None);
}

#[tokio::test]
async fn bytes_come_out_as_they_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::begin(dir.path(), 0).unwrap();
    let mut text = vec![b'x'; 3 * LINE + 5];
    text.extend_from_slice(b"\n\n\xff\xfe and no end");
    log.keep(Stream::Err, text.as_slice()).await;
    let mut reader = Reader::open(dir.path(), Wanted::default()).unwrap().unwrap();
    let mut read = Vec::new();
    while let Ok(piece) = reader.piece() {
        if piece.is_empty() {
            break;
        }
        read.extend_from_slice(&piece);
    }
    assert!(read == text, "{} and {} bytes", read.len(), text.len());
}

#[test]
fn nonsense_in_a_log_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 0, LIMIT, &["good"]);
    let path = dir.path().join("0.log");
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"nonsense\n\n2020 stdout F \n").unwrap();
    assert_eq!(read(dir.path(), Wanted::default()), "good\n\n");
}
