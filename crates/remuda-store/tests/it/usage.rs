//! What is told of the store's disk.

use remuda_store::{DiskUsage, Embedded, Options, Store, Template, Write};

#[tokio::test]
async fn a_checkpoint_makes_the_log_short_and_has_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    assert_eq!(DiskUsage::of(&path), DiskUsage::default());
    let store = Embedded::open(&path, Options::default()).unwrap();
    // Room for the log is set aside a MiB at a time.
    for number in 0..300 {
        let value = Template::with_slot("x".repeat(10_000), 3);
        store.write(Write::Create { key: format!("/core/configmaps/ns/{number}"), value }).await.unwrap();
    }
    let before = DiskUsage::of(&path);
    assert!(before.log_bytes > 2 << 20 && before.bytes >= before.log_bytes, "{before:?}");
    store.checkpoint().await.unwrap();
    let after = DiskUsage::of(&path);
    assert!(after.log_bytes < before.log_bytes, "{after:?}");
    assert!(after.checkpoint.is_some() && after.checkpoint >= before.checkpoint, "{after:?}");
    store.close().await;
}
