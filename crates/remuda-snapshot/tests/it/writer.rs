//! Writes small files of the kind etcd writes.

use sha2::{Digest, Sha256};

/// The smallest there is: a test that flips every byte of a file is done soon.
pub(crate) const PAGE: usize = 512;

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn page(number: u64, flags: u16, count: usize, body: &[u8]) -> Vec<u8> {
    let mut page = number.to_le_bytes().to_vec();
    page.extend(flags.to_le_bytes());
    page.extend(u16::try_from(count).unwrap().to_le_bytes());
    let overflow = (16 + body.len()).div_ceil(PAGE) - 1;
    page.extend(u32::try_from(overflow).unwrap().to_le_bytes());
    page.extend(body);
    page.resize((overflow + 1) * PAGE, 0);
    page
}

fn leaf(items: &[(u32, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut elements, mut data): (Vec<u8>, Vec<u8>) = Default::default();
    for (at, (flags, key, value)) in items.iter().enumerate() {
        let from = (items.len() - at) * 16 + data.len();
        for field in [*flags, from as u32, key.len() as u32, value.len() as u32] {
            elements.extend(field.to_le_bytes());
        }
        data.extend(key);
        data.extend(value);
    }
    elements.extend(data);
    elements
}

fn branch(children: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let (mut elements, mut data): (Vec<u8>, Vec<u8>) = Default::default();
    for (at, (key, child)) in children.iter().enumerate() {
        let from = (children.len() - at) * 16 + data.len();
        elements.extend((from as u32).to_le_bytes());
        elements.extend((key.len() as u32).to_le_bytes());
        elements.extend(child.to_le_bytes());
        data.extend(key);
    }
    elements.extend(data);
    elements
}

fn meta(number: u64, version: u32, end: u64) -> Vec<u8> {
    let mut meta = Vec::new();
    for field in [0xED0C_DAED_u32, version, PAGE as u32, 0] {
        meta.extend(field.to_le_bytes());
    }
    for field in [3_u64, 0, 2, end, number + 1] {
        meta.extend(field.to_le_bytes());
    }
    let sum = fnv(&meta);
    meta.extend(sum.to_le_bytes());
    page(number, 0x04, 0, &meta)
}

/// A revision as it is stored: `deleted` is a tombstone.
pub(crate) struct Revision {
    pub(crate) main: i64,
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    pub(crate) deleted: bool,
}

impl Revision {
    fn stored(&self) -> (u32, Vec<u8>, Vec<u8>) {
        let mut name = self.main.to_be_bytes().to_vec();
        name.push(b'_');
        name.extend(0_i64.to_be_bytes());
        if self.deleted {
            name.push(b't');
        }
        let mut stored = vec![0x0a, u8::try_from(self.key.len()).unwrap()];
        stored.extend(self.key.as_bytes());
        stored.push(0x2a);
        let mut length = self.value.len();
        while length >= 0x80 {
            stored.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        stored.push(length as u8);
        stored.extend(&self.value);
        (0, name, stored)
    }
}

/// `+key` puts a key, `-key` deletes it; each is a revision, from 2 on.
pub(crate) fn revisions(text: &str) -> Vec<Revision> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let revision = |(at, line): (usize, &str)| Revision {
        main: at as i64 + 2,
        key: line[1..].to_owned(),
        value: b"value".to_vec(),
        deleted: line.starts_with('-'),
    };
    lines.enumerate().map(revision).collect()
}

/// The database without its checksum. `per_leaf` revisions are on each leaf of the bucket `key`.
pub(crate) fn database(revisions: &[Revision], per_leaf: usize, version: u32) -> Vec<u8> {
    let mut leaves = Vec::new();
    let mut next = 5;
    for part in revisions.chunks(per_leaf) {
        let items: Vec<_> = part.iter().map(Revision::stored).collect();
        let bytes = page(next, 0x02, items.len(), &leaf(&items));
        let pages = (bytes.len() / PAGE) as u64;
        leaves.push((items[0].1.clone(), next, bytes));
        next += pages;
    }
    let children: Vec<_> = leaves.iter().map(|(key, number, _)| (key.clone(), *number)).collect();
    let inline = {
        let items = [(0, b"consistent_index".to_vec(), 7_u64.to_be_bytes().to_vec())];
        let mut value = vec![0; 16];
        value.extend(&page(0, 0x02, 1, &leaf(&items))[..16 + leaf(&items).len()]);
        value
    };
    let mut below = 4_u64.to_le_bytes().to_vec();
    below.extend([0; 8]);
    let buckets = [(1, b"key".to_vec(), below), (1, b"meta".to_vec(), inline)];
    let mut file = meta(0, version, next);
    file.extend(meta(1, version, next));
    file.extend(page(2, 0x10, 0, &[]));
    file.extend(page(3, 0x02, buckets.len(), &leaf(&buckets)));
    match children.is_empty() {
        true => file.extend(page(4, 0x02, 0, &[])),
        false => file.extend(page(4, 0x01, children.len(), &branch(&children))),
    }
    for (_, _, bytes) in leaves {
        file.extend(bytes);
    }
    file
}

pub(crate) fn sealed(mut database: Vec<u8>) -> Vec<u8> {
    let sum = Sha256::digest(&database);
    database.extend(sum);
    database
}
