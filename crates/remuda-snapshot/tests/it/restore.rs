//! What comes out of a snapshot, and what our own writer puts into one.

use std::io::Cursor;

use remuda_snapshot::{
    restore, verify,
    write::{self, Bucket},
};

use crate::writer::{database, revisions, sealed};

fn of_keys(keys: impl IntoIterator<Item = (i64, String, Vec<u8>)>) -> Vec<u8> {
    let items = keys.into_iter().map(|(at, key, value)| write::revision(at, key.as_bytes(), &value));
    let other = Bucket { name: "other".to_owned(), items: vec![(b"a".to_vec(), vec![9; 20_000])] };
    write::seal(write::database(vec![other, Bucket { name: "key".to_owned(), items: items.collect() }]))
}

#[test]
fn what_is_written_is_read_again() {
    for count in [0, 1, 2, 100, 5000] {
        let key =
            |at: i64| (at + 2, format!("/registry/pods/default/pod-{at}"), vec![1; (at % 700) as usize]);
        let file = of_keys((0..count).map(key));
        let verified = verify(&mut Cursor::new(&file)).unwrap();
        assert_eq!(verified.keys, count as u64);
        if count > 0 {
            let last = format!("/registry/pods/default/pod-{}", count - 1);
            let value = restore::value(&mut Cursor::new(&file), &last).unwrap().unwrap();
            assert_eq!(value.len(), ((count - 1) % 700) as usize);
        }
        let other = restore::bucket(&mut Cursor::new(&file), "other").unwrap().unwrap();
        assert_eq!(other[0].1.len(), 20_000);
        assert_eq!(restore::bucket(&mut Cursor::new(&file), "none").unwrap(), None);
    }
}

#[test]
fn a_key_that_was_deleted_has_no_value() {
    let file = sealed(database(&revisions("+/a/b/c\n+/a/b/d\n-/a/b/c"), 2, 2));
    let value = |key| restore::value(&mut Cursor::new(&file), key).unwrap();
    assert_eq!(value("/a/b/c"), None);
    assert_eq!(value("/a/b/d").as_deref(), Some(&b"value"[..]));
    assert_eq!(value("/a/b/e"), None);
}

#[test]
fn a_new_member_has_all_keys_and_a_later_revision() {
    let file =
        sealed(database(&revisions("+/registry/pods/a/b\n+/registry/pods/a/c\n-/registry/pods/a/b"), 2, 2));
    let before = verify(&mut Cursor::new(&file)).unwrap();
    let member = restore::new_member(&mut Cursor::new(&file), "/restored").unwrap();
    let after = verify(&mut Cursor::new(write::seal(member))).unwrap();
    assert_eq!(after.objects["/registry/pods"], 1);
    assert_eq!(after.keys, before.keys + 1);
    assert!(after.revision > before.revision + 1000);
}
