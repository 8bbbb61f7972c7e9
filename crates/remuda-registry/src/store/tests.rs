use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::*;

/// A registry that sends `content`, but breaks off at the given places, once at each.
#[derive(Clone)]
struct Fake {
    content: Arc<Vec<u8>>,
    breaks: Arc<Mutex<Vec<u64>>>,
    asked: Arc<AtomicUsize>,
    /// What it says the length is.
    announced: Option<u64>,
    /// Whether it can go on from an offset.
    ranges: bool,
}

impl Fake {
    fn new(content: &[u8]) -> Fake {
        Fake {
            announced: Some(content.len() as u64),
            content: Arc::new(content.to_vec()),
            breaks: Arc::default(),
            asked: Arc::default(),
            ranges: true,
        }
    }

    fn digest(&self) -> String {
        Digest::of(&self.content).to_string()
    }

    fn start(&self) -> Start {
        let fake = self.clone();
        Arc::new(move |from| {
            let fake = fake.clone();
            Box::pin(async move {
                fake.asked.fetch_add(1, Ordering::SeqCst);
                let offset = if fake.ranges { from } else { 0 };
                let end = fake.breaks.lock().pop();
                let last = end.unwrap_or(fake.content.len() as u64);
                let range = usize::try_from(offset).unwrap()..usize::try_from(last).unwrap();
                let bytes = fake.content[range].to_vec();
                let mut pieces: Vec<Result<Bytes, UpstreamError>> =
                    bytes.chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
                if end.is_some() {
                    pieces.push(Err(UpstreamError::Refused {
                        host: "fake".to_owned(),
                        code: http::StatusCode::BAD_GATEWAY,
                        what: "more".to_owned(),
                    }));
                }
                Ok(Blob { offset, length: fake.announced, pieces: stream::iter(pieces).boxed() })
            })
        })
    }
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 % 251) as u8).collect()
}

async fn followed(download: &Download, from: u64) -> io::Result<Vec<u8>> {
    let pieces: Vec<Bytes> = download.follow(from).try_collect().await?;
    Ok(pieces.concat())
}

fn kept(store: &Store, digest: &str) -> Vec<u8> {
    let (mut file, _) = store.get(digest).unwrap();
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn many_who_wait_share_one_download() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path(), 1 << 20).unwrap());
    let fake = Fake::new(&content(300_000));
    let followers = (0..50).map(|_| {
        let download = store.download(&fake.digest(), fake.start());
        async move { followed(&download, 0).await }
    });
    for got in futures::future::join_all(followers).await {
        assert!(got.unwrap() == *fake.content);
    }
    assert_eq!(fake.asked.load(Ordering::SeqCst), 1);
    assert!(kept(&store, &fake.digest()) == *fake.content);
    assert_eq!(store.total(), 300_000);
}

#[tokio::test]
async fn a_download_that_breaks_off_goes_on_where_it_was() {
    for ranges in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(directory.path(), 1 << 20).unwrap());
        let fake = Fake { ranges, ..Fake::new(&content(100_000)) };
        *fake.breaks.lock() = vec![70_000, 30_000];
        let download = store.download(&fake.digest(), fake.start());
        download.done().await.unwrap();
        assert_eq!(fake.asked.load(Ordering::SeqCst), 3);
        assert!(followed(&download, 99_000).await.unwrap() == fake.content[99_000..]);
        assert!(kept(&store, &fake.digest()) == *fake.content);
        assert_eq!(store.total(), 100_000);
    }
}

#[tokio::test]
async fn a_server_that_was_killed_goes_on_with_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(&content(100_000));
    let digest = fake.digest();
    {
        let store = Arc::new(Store::open(directory.path(), 1 << 20).unwrap());
        *fake.breaks.lock() = vec![60_000; 4];
        let download = store.download(&digest, fake.start());
        assert!(matches!(download.done().await, Err(StoreError::Upstream(_))));
        assert!(followed(&download, 0).await.is_err());
    }
    let store = Arc::new(Store::open(directory.path(), 1 << 20).unwrap());
    assert_eq!(store.total(), 60_000);
    assert!(store.get(&digest).is_none());
    let offsets = Arc::new(Mutex::new(Vec::new()));
    let (seen, inner) = (offsets.clone(), fake.start());
    let start: Start = Arc::new(move |from| {
        seen.lock().push(from);
        inner(from)
    });
    store.download(&digest, start).done().await.unwrap();
    assert_eq!(*offsets.lock(), [60_000]);
    assert!(kept(&store, &digest) == *fake.content);
    assert_eq!(store.total(), 100_000);
}

#[tokio::test]
async fn what_has_another_digest_is_never_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path(), 1 << 20).unwrap());
    let fake = Fake::new(&content(5000));
    let wrong = Digest::of(b"something else").to_string();
    let download = store.download(&wrong, fake.start());
    let mut got = 0;
    let mut follow = Box::pin(download.follow(0));
    let failed = loop {
        match follow.next().await {
            Some(Ok(piece)) => got += piece.len(),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(failed && got < 5000, "{got}");
    assert!(matches!(download.done().await, Err(StoreError::Digest { .. })));
    assert!(store.get(&wrong).is_none());
    assert_eq!((store.total(), fs::read_dir(directory.path().join("blobs")).unwrap().count()), (0, 0));
}

#[tokio::test]
async fn sizes_that_are_lies_do_not_fill_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path(), 20_000).unwrap());
    let more = Fake { announced: Some(10), ..Fake::new(&content(5000)) };
    let download = store.download(&more.digest(), more.start());
    assert!(matches!(download.done().await, Err(StoreError::Announced { .. })));
    let less = Fake { announced: Some(6000), ..Fake::new(&content(5000)) };
    assert!(store.download(&less.digest(), less.start()).done().await.is_err());
    // The upstream announces no length.
    let endless = Fake { announced: None, ..Fake::new(&content(50_000)) };
    let download = store.download(&endless.digest(), endless.start());
    assert!(matches!(download.done().await, Err(StoreError::TooLarge { .. })));
    let large = Fake::new(&content(50_000));
    let download = store.download(&large.digest(), large.start());
    let error = download.done().await.unwrap_err().to_string();
    assert!(error.ends_with("has 50000 bytes, and the cache keeps 20000"), "{error}");
    let on_disk: u64 = fs::read_dir(directory.path().join("blobs"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= 20_000 && store.total() <= 20_000, "{on_disk} {}", store.total());
}

#[tokio::test]
async fn what_was_not_used_for_longest_makes_room() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path(), 10_000).unwrap());
    let fakes: Vec<Fake> = (1..=4).map(|n| Fake::new(&content(3000 + n))).collect();
    for fake in &fakes[..3] {
        store.download(&fake.digest(), fake.start()).done().await.unwrap();
    }
    let first = store.get(&fakes[0].digest()).unwrap();
    store.download(&fakes[3].digest(), fakes[3].start()).done().await.unwrap();
    assert!(store.get(&fakes[1].digest()).is_none());
    assert!(store.get(&fakes[0].digest()).is_some() && store.get(&fakes[3].digest()).is_some());
    assert!(store.total() <= 10_000);
    drop(first);
    // A smaller limit at the next start is kept at once.
    drop(store);
    let store = Store::open(directory.path(), 4000).unwrap();
    assert!(store.total() <= 4000);
}

#[test]
fn manifests_and_tags_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), 1000).unwrap();
    let digest = store.put(b"manifest").unwrap();
    assert_eq!(store.put(b"manifest").unwrap(), digest);
    assert_eq!(store.total(), 8);
    store.set_tag("docker.io/a:1", &digest).unwrap();
    let store = Store::open(directory.path(), 1000).unwrap();
    assert_eq!(store.tag("docker.io/a:1").as_deref(), Some(digest.as_str()));
    assert_eq!(store.small(&digest).unwrap(), b"manifest");
    assert_eq!(store.tag("docker.io/a:2"), None);
    // Damage on the disk is noticed.
    fs::write(directory.path().join("blobs").join(name(&digest)), b"manifesT").unwrap();
    assert_eq!(store.small(&digest), None);
    assert!(matches!(store.put(&[0; 1001]), Err(StoreError::TooLarge { .. })));
}
