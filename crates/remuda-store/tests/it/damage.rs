//! Whatever happens to one file of a store: it opens with everything that was acknowledged, or
//! not at all. (What a power cut leaves, where the mark lags behind, is in `power` and `faults`.)

use std::{collections::BTreeSet, ffi::OsString, fs, io, path::Path, sync::Arc};

use proptest::{collection::vec, prelude::*, sample::Index};
use remuda_store::{Embedded, ListQuery, Options, Record, Revision, Store};

use crate::conformance::{create, delete, update};

#[derive(Debug, Clone)]
enum Step {
    Write { key: u8, size: usize },
    Delete { key: u8 },
    Checkpoint,
    Reopen,
}

#[derive(Debug, Clone)]
enum Harm {
    Flip { file: Index, at: Index, bits: u8 },
    Cut { file: Index, at: Index },
    Zero { file: Index, at: Index },
    Drop { file: Index },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..6u8, prop_oneof![0..100usize, 0..3000usize])
            .prop_map(|(key, size)| Step::Write { key, size }),
        3 => (0..6u8).prop_map(|key| Step::Delete { key }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        4 => (any::<Index>(), any::<Index>(), 1..=255u8)
            .prop_map(|(file, at, bits)| Harm::Flip { file, at, bits }),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(file, at)| Harm::Cut { file, at }),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(file, at)| Harm::Zero { file, at }),
        1 => any::<Index>().prop_map(|file| Harm::Drop { file }),
    ]
}

impl Harm {
    fn apply(&self, dir: &Path) -> String {
        let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let file = match self {
            Harm::Flip { file, .. }
            | Harm::Cut { file, .. }
            | Harm::Zero { file, .. }
            | Harm::Drop { file } => file,
        };
        let path = file.get(&paths);
        let mut bytes = fs::read(path).unwrap();
        // Zeros at the end are the room ahead of a log; most of the harm goes to what is before.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        let reach = (used + 64).min(bytes.len()).max(1);
        let at = match self {
            Harm::Flip { at, bits, .. } if !bytes.is_empty() => {
                let at = at.index(reach);
                bytes[at] ^= bits;
                at
            }
            Harm::Cut { at, .. } => {
                let at = at.index(reach);
                bytes.truncate(at);
                at
            }
            Harm::Zero { at, .. } if !bytes.is_empty() => {
                let at = at.index(reach);
                bytes[at..].fill(0);
                at
            }
            Harm::Flip { .. } | Harm::Zero { .. } => 0,
            Harm::Drop { .. } => {
                fs::remove_file(path).unwrap();
                return format!("{} removed", path.display());
            }
        };
        fs::write(path, bytes).unwrap();
        format!("{self:?}: {} at {at}", path.display())
    }
}

fn options() -> Options {
    Options { preallocate: 2048, segment_bytes: 4000, ..Options::default() }
}

async fn all(store: &Embedded) -> Vec<Arc<Record>> {
    store.list(ListQuery { prefix: "/".into(), ..ListQuery::default() }).await.unwrap().records
}

/// Runs the steps, then copies the directory as a killed process leaves it.
async fn live(dir: &Path, image: &Path, steps: &[Step]) -> (Revision, Vec<Arc<Record>>) {
    let mut store = Embedded::open(dir, options()).unwrap();
    for step in steps {
        match step {
            Step::Write { key, size } => {
                let (key, value) = (format!("/damage/things/{key}"), "v".repeat(*size));
                let write = match store.get(&key).await.unwrap().value {
                    Some(found) => update(&key, found.revision, &value),
                    None => create(&key, &value),
                };
                store.write(write).await.unwrap();
            }
            Step::Delete { key } => {
                let key = format!("/damage/things/{key}");
                if let Some(found) = store.get(&key).await.unwrap().value {
                    store.write(delete(&key, found.revision)).await.unwrap();
                }
            }
            Step::Checkpoint => store.checkpoint().await.unwrap(),
            Step::Reopen => {
                drop(store);
                store = Embedded::open(dir, options()).unwrap();
            }
        }
    }
    // A checkpoint may end while files are copied, and take old ones away: that would be no moment of the store.
    let whole = (0..100).any(|_| {
        let before = files(dir);
        for old in files(image) {
            fs::remove_file(image.join(old)).unwrap();
        }
        copy(dir, image).is_ok() && files(dir) == before
    });
    assert!(whole, "files change all the time");
    (store.observed(), all(&store).await)
}

fn files(dir: &Path) -> BTreeSet<OsString> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name != "LOCK").collect()
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for name in files(from) {
        fs::copy(from.join(&name), to.join(&name))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn after_any_harm_to_one_file_all_is_there_or_the_store_stays_closed(
        steps in vec(step(), 1..40),
        harms in vec(harm(), 40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (dir, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (acknowledged, expected) = live(dir.path(), image.path(), &steps).await;
            for harm in &harms {
                let harmed = tempfile::tempdir().unwrap();
                copy(image.path(), harmed.path()).unwrap();
                let what = harm.apply(harmed.path());
                let Ok(store) = Embedded::open(harmed.path(), options()) else { continue };
                assert_eq!(store.observed(), acknowledged, "{what}");
                assert_eq!(all(&store).await, expected, "{what}");
            }
        });
    }
}
