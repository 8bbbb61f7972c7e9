//! Power cuts: of what was written since the last sync any part may be on the disk, in any order.
//!
//! The disk below notes what is written to the log and to the high-water mark. Before each sync it
//! makes directories as a power cut at this moment might leave them, by putting back the old
//! content of random sectors, and opens a store in each.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rand::RngExt;
use remuda_store::{Disk, Embedded, Options, RealDisk, Store};

use crate::conformance::{create, delete, prefix, update};

const SECTOR: usize = 512;

struct Flaky {
    dir: PathBuf,
    armed: AtomicBool,
    acknowledged: AtomicU64,
    /// What the writes that are not synced yet replaced.
    before: Mutex<Vec<Replaced>>,
    cuts: AtomicU64,
}

struct Replaced {
    inode: u64,
    offset: u64,
    old: Vec<u8>,
    /// How long the file was.
    length: u64,
}

impl Flaky {
    fn cut_power(&self) {
        let mut rng = rand::rng();
        let dir = tempfile::tempdir().unwrap();
        let mut copies = HashMap::new();
        for entry in fs::read_dir(&self.dir).unwrap() {
            let path = entry.unwrap().path();
            let copy = dir.path().join(path.file_name().unwrap());
            fs::copy(&path, &copy).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&copy).unwrap();
            copies.insert(fs::metadata(&path).unwrap().ino(), file);
        }
        let lost: f64 = [0.05, 0.5, 0.95, 1.0][rng.random_range(0..4)];
        let shorter = rng.random_bool(0.3);
        for Replaced { inode, offset, old, length } in self.before.lock().iter().rev() {
            let file = &copies[inode];
            // Sectors of the disk, not of the write.
            let mut at = 0;
            while at < old.len() {
                let end = (at + SECTOR - (*offset as usize + at) % SECTOR).min(old.len());
                if rng.random_bool(lost) {
                    file.write_all_at(&old[at..end], offset + at as u64).unwrap();
                }
                at = end;
            }
            if shorter {
                file.set_len(*length).unwrap();
            }
        }
        drop(copies);
        self.check(dir.path());
        self.cuts.fetch_add(1, Ordering::Relaxed);
    }

    fn check(&self, dir: &Path) {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        for _ in 0..2 {
            let store = match Embedded::open(dir, Options { preallocate: 2048, ..Options::default() }) {
                Ok(store) => store,
                Err(error) => panic!("after {acknowledged} writes: {error}"),
            };
            let found = store.observed();
            assert!((acknowledged..=acknowledged + 8).contains(&found), "{found} of {acknowledged}");
        }
    }
}

impl Disk for Flaky {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.armed.load(Ordering::Relaxed) {
            let mut old = vec![0; bytes.len()];
            let mut read = 0;
            while let Ok(more @ 1..) = file.read_at(&mut old[read..], offset + read as u64) {
                read += more;
            }
            let metadata = file.metadata()?;
            let (inode, length) = (metadata.ino(), metadata.len());
            self.before.lock().push(Replaced { inode, offset, old, length });
        }
        RealDisk.write_at(file, bytes, offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        if self.armed.load(Ordering::Relaxed) {
            for _ in 0..2 {
                self.cut_power();
            }
            let synced = file.metadata()?.ino();
            self.before.lock().retain(|replaced| replaced.inode != synced);
        }
        Ok(())
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        RealDisk.set_len(file, len)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_leaves_what_was_acknowledged_and_opens() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Flaky {
        dir: dir.path().into(),
        armed: AtomicBool::new(false),
        acknowledged: AtomicU64::new(0),
        before: Mutex::default(),
        cuts: AtomicU64::new(0),
    });
    let options = Options { disk: disk.clone(), preallocate: 2048, ..Options::default() };
    let store = Arc::new(Embedded::open(dir.path(), options).unwrap());
    disk.armed.store(true, Ordering::Relaxed);
    for round in 0..60 {
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..round % 8 + 1 {
            let (store, disk, key) = (store.clone(), disk.clone(), format!("/power/things/{task}"));
            let value = "0123456789abcdef".repeat(rand::rng().random_range(0..200));
            tasks.spawn(async move {
                let write = match store.get(&key).await.unwrap().value {
                    None => create(&key, &value),
                    Some(found) if round % 5 == 4 => delete(&key, found.revision),
                    Some(found) => update(&key, found.revision, &value),
                };
                let record = store.write(write).await.unwrap();
                disk.acknowledged.fetch_max(record.revision, Ordering::Relaxed);
            });
        }
        tasks.join_all().await;
    }
    disk.armed.store(false, Ordering::Relaxed);
    assert!(disk.cuts.load(Ordering::Relaxed) > 100);
    assert!(!store.list(prefix("/power/")).await.unwrap().records.is_empty());
}
