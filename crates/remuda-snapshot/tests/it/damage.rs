use std::io::Cursor;

use proptest::prelude::*;
use remuda_snapshot::{Unproven, Verified, verify};

use crate::writer::{PAGE, Revision, database, revisions, sealed};

const STORE: &str = "
    +/registry/namespaces/default
    +/registry/namespaces/shop
    +/registry/pods/shop/a
    +/registry/pods/shop/b
    +/registry/pods/shop/a
    -/registry/pods/shop/b
    +/registry/example.org/things/shop/t";

fn check(file: Vec<u8>) -> Result<Verified, Unproven> {
    verify(&mut Cursor::new(file))
}

#[track_caller]
fn code(file: Vec<u8>) -> &'static str {
    check(file).expect_err("the file is damaged").code()
}

#[test]
fn a_whole_snapshot_says_what_it_holds() {
    let verified = check(sealed(database(&revisions(STORE), 2, 2))).unwrap();
    assert_eq!((verified.revision, verified.keys), (8, 4));
    let objects: Vec<_> = verified.objects.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    let expected = [("/registry/example.org/things", 1), ("/registry/namespaces", 2), ("/registry/pods", 1)];
    assert_eq!(objects, expected);
}

#[test]
fn a_store_without_keys_is_a_whole_one() {
    let verified = check(sealed(database(&[], 2, 2))).unwrap();
    assert_eq!((verified.revision, verified.keys), (1, 0));
}

#[test]
fn each_flipped_byte_is_found() {
    let whole = sealed(database(&revisions(STORE), 3, 2));
    check(whole.clone()).unwrap();
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut file = whole.clone();
            file[at] ^= bit;
            assert!(check(file).is_err(), "byte {at}, bit {bit:#x}");
        }
    }
}

#[test]
fn each_cut_is_found() {
    let whole = sealed(database(&revisions(STORE), 3, 2));
    for length in 0..whole.len() {
        let cut = code(whole[..length].to_vec());
        let expected = match length {
            0..80 => "NotASnapshot",
            _ if length == whole.len() - 32 => "NoChecksum",
            _ => "Cut",
        };
        assert_eq!(cut, expected, "cut at {length}");
    }
}

#[test]
fn reasons_are_told_apart() {
    let plain = database(&revisions(STORE), 3, 2);
    assert_eq!(code(b"no database at all".repeat(1000)), "NotASnapshot");
    assert_eq!(code(sealed(database(&revisions(STORE), 3, 3))), "NewerFormat");
    assert_eq!(code(plain.clone()), "NoChecksum");
    let mut flipped = sealed(plain.clone());
    flipped[5 * PAGE + 200] ^= 1;
    assert_eq!(code(flipped), "ChecksumMismatch");
    let mut cut = sealed(plain);
    cut.truncate(6 * PAGE + 100);
    assert_eq!(code(cut), "Cut");
}

/// A checksum over damage: what etcd itself wrote wrong, or what was written to deceive.
#[test]
fn a_tree_that_makes_no_sense_is_found_under_a_right_checksum() {
    let plain = database(&revisions(STORE), 3, 2);
    for (at, byte, fault) in [
        (5 * PAGE, 9, "it says that it is another page"),
        (5 * PAGE + 8, 0x10, "it is of a kind that does not belong there"),
        (5 * PAGE + 12, 0xff, "it points outside of itself or of the file"),
        (5 * PAGE + 16 + 15, 0x7f, "it points outside of itself or of the file"),
        (4 * PAGE + 16 + 16 + 8, 5, "the tree comes to it twice"),
        (4 * PAGE + 16 + 8, 1, "it points outside of itself or of the file"),
    ] {
        let mut file = plain.clone();
        file[at] = byte;
        let told = check(sealed(file)).expect_err("damaged").to_string();
        assert!(told.ends_with(fault), "{told} at {at}");
    }
}

#[test]
fn a_value_larger_than_a_page_is_read_across_pages() {
    let big =
        Revision { main: 2, key: "/registry/secrets/a/b".into(), value: vec![7; 3 * PAGE], deleted: false };
    let verified = check(sealed(database(&[big], 1, 2))).unwrap();
    assert_eq!(verified.objects["/registry/secrets"], 1);
}

proptest! {
    /// Nothing in a file makes the reader panic or read without end, with a right checksum too.
    #[test]
    fn any_damage_ends_in_an_answer(changes in prop::collection::vec((0..7 * PAGE, any::<u8>()), 1..12)) {
        let mut file = database(&revisions(STORE), 3, 2);
        for (at, byte) in changes {
            let at = at % file.len();
            file[at] = byte;
        }
        let _ = check(sealed(file));
    }

    #[test]
    fn bytes_of_any_kind_are_no_snapshot(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(check(bytes).is_err());
    }
}
