//! Damaged, missing, foreign and failing files.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use remuda_store::{
    Disk, Embedded, Error, OpenError, Options, RESTORE_MARGIN, RealDisk, Record, Scope, Store,
};

use crate::conformance::{create, delete, prefix, update};

fn files(dir: &Path, start: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start))
        .collect();
    found.sort();
    found
}

fn options() -> Options {
    Options { preallocate: 4096, ..Options::default() }
}

async fn fill(store: &dyn Store, from: usize, count: usize) {
    for index in from..from + count {
        store.write(create(&format!("/fault/things/{index:03}"), &format!("value {index}"))).await.unwrap();
    }
}

async fn all(store: &dyn Store) -> Vec<Arc<Record>> {
    store.list(prefix("/")).await.unwrap().records
}

/// Where the frames of a segment lie.
fn frames(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = 40;
    let mut found = Vec::new();
    while bytes.len() >= at + 32 && bytes[at..at + 4] != [0; 4] {
        let len = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
        let end = at + (32 + len).next_multiple_of(8);
        found.push(at..end);
        at = end;
    }
    found
}

async fn filled(dir: &Path, count: usize) {
    let store = Embedded::open(dir, options()).unwrap();
    fill(&store, 0, count).await;
    store.close().await;
}

/// Ten writes, and what the mark said before the last of them: after a power cut it may lag.
async fn ten_with_an_older_mark(dir: &Path) -> (PathBuf, Vec<u8>, Vec<u8>) {
    filled(dir, 9).await;
    let older = fs::read(dir.join("STORE")).unwrap();
    let store = Embedded::open(dir, options()).unwrap();
    fill(&store, 9, 1).await;
    store.close().await;
    let wal = files(dir, "wal-").remove(0);
    let whole = fs::read(&wal).unwrap();
    (wal, whole, older)
}

#[tokio::test]
async fn a_torn_last_batch_is_left_out_and_said_and_everything_before_it_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (wal, whole, older) = ten_with_an_older_mark(dir.path()).await;
    let last = frames(&whole).pop().unwrap();
    for cut in last.start..last.end {
        // Lost from here on: as zeros, as a short file.
        let mut zeros = whole.clone();
        zeros[cut..].fill(0);
        for bytes in [zeros, whole[..cut].to_vec()] {
            fs::write(&wal, &bytes).unwrap();
            fs::write(dir.path().join("STORE"), &older).unwrap();
            let store = Embedded::open(dir.path(), options()).unwrap();
            let found = store.observed();
            assert_eq!(all(&store).await.len(), found as usize);
            match store.left_out() {
                // Padding, and a byte that was zero anyway, is no loss.
                None if found == 10 => assert!(cut + 8 > last.end, "cut at {cut}"),
                None => assert_eq!((cut, found), (last.start, 9)),
                Some(left_out) => {
                    assert_eq!((found, left_out.first), (9, 10), "cut at {cut}");
                    assert_eq!(left_out.last.is_some(), cut >= last.start + 32, "cut at {cut}");
                }
            }
        }
    }
    fs::write(&wal, &whole[..last.end - 20]).unwrap();
    fs::write(dir.path().join("STORE"), &older).unwrap();
    let store = Embedded::open(dir.path(), options()).unwrap();
    assert_eq!(store.observed(), 9);
    fill(&store, 20, 5).await;
    drop(store);
    let store = Embedded::open(dir.path(), options()).unwrap();
    assert_eq!((store.observed(), all(&store).await.len()), (14, 14));
}

#[tokio::test]
async fn a_last_batch_that_is_all_there_and_damaged_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (wal, whole, older) = ten_with_an_older_mark(dir.path()).await;
    let newest = fs::read(dir.path().join("STORE")).unwrap();
    let last = frames(&whole).pop().unwrap();
    // Whether the mark says that it was acknowledged or not.
    for mark in [&older, &newest] {
        for at in last.start..last.end - 8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x80;
            fs::write(&wal, &bytes).unwrap();
            fs::write(dir.path().join("STORE"), mark).unwrap();
            match Embedded::open(dir.path(), options()) {
                Err(error @ OpenError::Damaged { .. }) => {
                    let text = error.to_string();
                    assert!(text.contains("revision") && text.contains("10"), "{text}");
                    assert!(text.contains("backup"), "{text}");
                }
                Ok(store) => panic!("opened at {} with byte {at} changed", store.observed()),
                Err(error) => panic!("{error}"),
            }
            assert_eq!(fs::read(&wal).unwrap(), bytes, "nothing is changed");
        }
    }
}

#[tokio::test]
async fn a_log_cut_short_is_refused_with_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 10).await;
    let wal = files(dir.path(), "wal-").remove(0);
    let whole = fs::read(&wal).unwrap();
    let frames = frames(&whole);
    for (index, frame) in frames.iter().enumerate() {
        let mut zeros = whole.clone();
        zeros[frame.start..].fill(0);
        for bytes in [zeros, whole[..frame.start].to_vec()] {
            fs::write(&wal, &bytes).unwrap();
            match Embedded::open(dir.path(), options()) {
                Err(error @ OpenError::Incomplete { .. }) => {
                    let text = error.to_string();
                    let lost = match index {
                        9 => "revision 10".to_owned(),
                        _ => format!("revisions {} to 10", index + 1),
                    };
                    assert!(text.contains(&lost) && text.contains("acknowledged"), "{text}");
                }
                Ok(store) => panic!("opened at {} of 10", store.observed()),
                Err(error) => panic!("{error}"),
            }
        }
    }
    fs::write(&wal, &whole).unwrap();
    assert_eq!(Embedded::open(dir.path(), options()).unwrap().observed(), 10);
}

#[tokio::test]
async fn a_directory_of_the_format_before_marks_opens_and_is_guarded_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 5).await;
    fs::write(dir.path().join("STORE"), "format 1\n").unwrap();
    let store = Embedded::open(dir.path(), options()).unwrap();
    assert_eq!((store.observed(), store.left_out()), (5, None));
    drop(store);
    let wal = files(dir.path(), "wal-").remove(0);
    let whole = fs::read(&wal).unwrap();
    fs::write(&wal, &whole[..frames(&whole)[3].start]).unwrap();
    assert!(matches!(Embedded::open(dir.path(), options()), Err(OpenError::Incomplete { .. })));
}

#[tokio::test]
async fn a_segment_of_another_life_of_the_store_does_not_fit() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = Options { segment_bytes: 100, ..options() };
    for dir in [&dir, &other] {
        let store = Embedded::open(dir.path(), options.clone()).unwrap();
        fill(&store, 0, 6).await;
        store.close().await;
    }
    let (ours, theirs) = (files(dir.path(), "wal-"), files(other.path(), "wal-"));
    fs::copy(&theirs[1], &ours[1]).unwrap();
    let refused = Embedded::open(dir.path(), options);
    assert!(matches!(refused, Err(OpenError::Damaged { .. })), "{:?}", refused.err());
}

#[tokio::test]
async fn damage_before_the_end_is_refused_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 6).await;
    let wal = files(dir.path(), "wal-").remove(0);
    let whole = fs::read(&wal).unwrap();
    let frames = frames(&whole);
    let padding = frames[2].end - 8..frames[2].end;
    for at in frames[2].clone().filter(|at| !padding.contains(at)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&wal, &bytes).unwrap();
        match Embedded::open(dir.path(), options()) {
            Err(error @ OpenError::Damaged { .. }) => {
                let text = error.to_string();
                assert!(text.contains("wal-") && text.contains("backup"), "{text}");
                assert!(text.contains(&frames[2].start.to_string()), "{text}");
            }
            Ok(_) => panic!("opened with byte {at} changed"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(fs::read(&wal).unwrap(), bytes, "nothing is changed");
    }
    fs::write(&wal, &whole).unwrap();
    assert_eq!(Embedded::open(dir.path(), options()).unwrap().observed(), 6);
}

#[tokio::test]
async fn missing_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 100, ..options() };
    {
        let store = Embedded::open(dir.path(), options.clone()).unwrap();
        fill(&store, 0, 6).await;
        store.close().await;
    }
    let segments = files(dir.path(), "wal-");
    assert!(segments.len() > 4);
    for (index, path) in segments.iter().enumerate().take(segments.len() - 1) {
        let aside = dir.path().join("aside");
        fs::rename(path, &aside).unwrap();
        match Embedded::open(dir.path(), options.clone()) {
            Err(OpenError::Incomplete { .. }) => {}
            Err(error) => panic!("{index}: {error}"),
            Ok(_) => panic!("opened without segment {index}"),
        }
        fs::rename(&aside, path).unwrap();
    }
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    store.checkpoint().await.unwrap();
    drop(store);
    assert_eq!(files(dir.path(), "wal-").len(), 1);
    let checkpoint = files(dir.path(), "checkpoint-").remove(0);
    for path in [checkpoint, files(dir.path(), "wal-").remove(0)] {
        let aside = dir.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        assert!(Embedded::open(dir.path(), options.clone()).is_err(), "{}", path.display());
        fs::rename(&aside, &path).unwrap();
    }
    for path in files(dir.path(), "wal-").into_iter().chain(files(dir.path(), "checkpoint-")) {
        fs::remove_file(path).unwrap();
    }
    assert!(matches!(Embedded::open(dir.path(), options), Err(OpenError::Incomplete { .. })));
}

#[tokio::test]
async fn a_damaged_checkpoint_is_refused_byte_by_byte() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = Embedded::open(dir.path(), options()).unwrap();
        fill(&store, 0, 3).await;
        store.checkpoint().await.unwrap();
    }
    let path = files(dir.path(), "checkpoint-").remove(0);
    let whole = fs::read(&path).unwrap();
    let mut harmless = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        match Embedded::open(dir.path(), options()) {
            Err(OpenError::Damaged { .. } | OpenError::Newer { .. }) => {}
            Err(error) => panic!("{at}: {error}"),
            // Padding is covered by no checksum and read by nobody.
            Ok(store) => {
                assert_eq!(all(&store).await.len(), 3);
                harmless += 1;
            }
        }
    }
    assert!(harmless < 24, "{harmless} bytes may be changed unnoticed");
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(Embedded::open(dir.path(), options()).is_err(), "cut to {len} bytes");
    }
}

#[tokio::test]
async fn a_newer_format_and_a_held_lock_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), options()).unwrap();
    match Embedded::open(dir.path(), options()) {
        Err(error @ OpenError::Locked { .. }) => {
            assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        }
        _ => panic!("opened twice"),
    }
    drop(store);
    for path in files(dir.path(), "") {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    let wal = files(dir.path(), "wal-").remove(0);
    let mut bytes = fs::read(&wal).unwrap();
    bytes[8] = 9;
    fs::write(&wal, bytes).unwrap();
    match Embedded::open(dir.path(), options()) {
        Err(error @ OpenError::Newer { found: 9, .. }) => assert!(error.to_string().contains("newer")),
        _ => panic!("opened"),
    }
}

#[tokio::test]
async fn a_backup_restores_to_later_revisions() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path().join("a"), options()).unwrap();
    fill(&store, 0, 50).await;
    let file = dir.path().join("backup");
    let at = store.backup(&file, false).await.unwrap();
    assert_eq!(at, 50);
    assert!(store.backup(&file, false).await.is_err(), "it is there already");
    assert_eq!(store.backup(&file, true).await, Ok(50));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let expected = all(&store).await;
    fill(&store, 50, 5).await;
    assert!(Embedded::restore(&file, &dir.path().join("a"), &options()).is_err(), "in use");
    drop(store);
    let occupied = Embedded::restore(&file, &dir.path().join("a"), &options());
    assert!(matches!(occupied, Err(OpenError::NotEmpty { .. })));
    let target = dir.path().join("b");
    let mut damaged = fs::read(&file).unwrap();
    damaged[100] ^= 1;
    fs::write(dir.path().join("damaged"), damaged).unwrap();
    assert!(Embedded::restore(&dir.path().join("damaged"), &target, &options()).is_err());
    let revision = Embedded::restore(&file, &target, &options()).unwrap();
    assert_eq!(revision, 50 + RESTORE_MARGIN);
    let store = Embedded::open(&target, options()).unwrap();
    assert_eq!(all(&store).await, expected);
    assert_eq!(store.observed(), revision);
    for scope in ["/fault/things/", "/never/seen/", "/"] {
        for after in [50, 55, revision - 1] {
            let watch = store.watch(Scope::Prefix(scope.into()), after);
            assert!(matches!(watch, Err(Error::Compacted { .. })), "{scope} {after}");
        }
    }
    let first = store.get("/fault/things/000").await.unwrap().value.unwrap();
    let again = store.write(update("/fault/things/000", first.revision, "again")).await.unwrap();
    assert_eq!(again.revision, revision + 1);
    store.write(delete("/fault/things/001", 2)).await.unwrap();
    store.checkpoint().await.unwrap();
    let expected = all(&store).await;
    drop(store);
    let store = Embedded::open(&target, options()).unwrap();
    assert_eq!(all(&store).await, expected);
    let old = store.watch(Scope::Prefix("/never/seen/".into()), 55);
    assert!(matches!(old, Err(Error::Compacted { .. })), "also after a checkpoint");
}

/// Fails when told to.
#[derive(Default)]
struct Faulty {
    full: AtomicBool,
    no_sync: AtomicBool,
    no_truncate: AtomicBool,
}

impl Disk for Faulty {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            // Part of it fits.
            RealDisk.write_at(file, &bytes[..bytes.len() / 2], offset)?;
            return Err(io::Error::from_raw_os_error(28));
        }
        RealDisk.write_at(file, bytes, offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        if self.no_sync.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        RealDisk.sync_data(file)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        if self.no_truncate.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        RealDisk.set_len(file, len)
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Faulty::default());
    let options = Options { disk: disk.clone(), checkpoint_bytes: 1_000, ..options() };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    fill(&store, 0, 5).await;
    for round in 0..3 {
        disk.full.store(true, Ordering::Relaxed);
        let refused = store.write(create("/fault/things/new", "x")).await;
        assert!(matches!(&refused, Err(Error::Unavailable(text)) if text.contains("space")), "{refused:?}");
        assert!(matches!(store.health().await, Err(Error::Unavailable(_))));
        assert_eq!(store.get("/fault/things/new").await.unwrap().value, None);
        assert_eq!(all(&store).await.len(), 5 + round * 5);
        disk.full.store(false, Ordering::Relaxed);
        store.health().await.unwrap();
        fill(&store, 5 + round * 5, 5).await;
    }
    let expected = all(&store).await;
    drop(store);
    let store = Embedded::open(dir.path(), options).unwrap();
    assert_eq!(all(&store).await, expected);
}

#[tokio::test]
async fn after_a_failed_sync_the_store_is_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Faulty::default());
    let options = Options { disk: disk.clone(), ..options() };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    fill(&store, 0, 5).await;
    disk.no_sync.store(true, Ordering::Relaxed);
    let failed = store.write(create("/fault/things/new", "x")).await;
    assert!(matches!(failed, Err(Error::Unknown(_))), "{failed:?}");
    disk.no_sync.store(false, Ordering::Relaxed);
    let refused = store.write(create("/fault/things/newer", "x")).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert!(store.health().await.is_err());
    assert_eq!(all(&store).await.len(), 5, "reads go on");
    drop(store);
    let store = Embedded::open(dir.path(), options).unwrap();
    store.health().await.unwrap();
    assert!([5, 6].contains(&all(&store).await.len()));
    fill(&store, 10, 5).await;
}

#[tokio::test]
async fn a_failed_truncation_makes_the_store_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Faulty::default());
    let options = Options { disk: disk.clone(), ..options() };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    fill(&store, 0, 5).await;
    disk.full.store(true, Ordering::Relaxed);
    disk.no_truncate.store(true, Ordering::Relaxed);
    assert!(store.write(create("/fault/things/new", "x")).await.is_err());
    disk.full.store(false, Ordering::Relaxed);
    disk.no_truncate.store(false, Ordering::Relaxed);
    assert!(store.write(create("/fault/things/new", "x")).await.is_err());
    drop(store);
    assert_eq!(all(&Embedded::open(dir.path(), options).unwrap()).await.len(), 5);
}

#[tokio::test]
async fn a_segment_that_was_created_but_never_used_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 3).await;
    // What a roll leaves behind that failed after the rename.
    let other = tempfile::tempdir().unwrap();
    for path in files(dir.path(), "") {
        fs::copy(&path, other.path().join(path.file_name().unwrap())).unwrap();
    }
    Embedded::open(other.path(), options()).unwrap().checkpoint().await.unwrap();
    let stray = files(other.path(), "wal-").remove(0);
    fs::copy(&stray, dir.path().join(stray.file_name().unwrap())).unwrap();
    let store = Embedded::open(dir.path(), options()).unwrap();
    fill(&store, 3, 3).await;
    drop(store);
    // Now in the middle of the old segment's revisions.
    let first = files(dir.path(), "wal-").remove(0);
    let second = dir.path().join(stray.file_name().unwrap());
    assert_eq!(files(dir.path(), "wal-"), [first.clone(), second.clone()]);
    let whole = tempfile::tempdir().unwrap();
    filled(whole.path(), 6).await;
    fs::copy(&files(whole.path(), "wal-")[0], &first).unwrap();
    fs::copy(&stray, &second).unwrap();
    let store = Embedded::open(dir.path(), options()).unwrap();
    assert_eq!(store.observed(), 6);
    fill(&store, 6, 2).await;
    drop(store);
    assert_eq!(files(dir.path(), "wal-"), [first]);
    assert_eq!(Embedded::open(dir.path(), options()).unwrap().observed(), 8);
}
