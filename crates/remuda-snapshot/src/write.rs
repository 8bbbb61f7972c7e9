//! Writes files of bbolt: what a store of ours puts into the form of a snapshot, and the database a new etcd member
//! starts from.
//!
//! Everything is in memory. Stores that are written this way are small.

use sha2::{Digest, Sha256};

use crate::bolt::{self, BRANCH, BUCKET, FREELIST, LEAF, META_PAGE};

const PAGE: usize = 4096;
const ROOT: u64 = 3;

/// A bucket with its keys and values, in order of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bucket {
    pub name: String,
    pub items: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A database with these buckets.
pub fn database(mut buckets: Vec<Bucket>) -> Vec<u8> {
    buckets.sort_by(|one, other| one.name.cmp(&other.name));
    let mut pages = Pages { next: ROOT + 1, bytes: Vec::new() };
    let mut roots = Vec::new();
    for bucket in &mut buckets {
        bucket.items.sort();
        let items = bucket.items.iter().map(|(key, value)| (0, key.as_slice(), value.as_slice()));
        let root = pages.tree(&items.collect::<Vec<_>>());
        let mut value = root.to_le_bytes().to_vec();
        value.extend([0; 8]);
        roots.push((bucket.name.as_bytes(), value));
    }
    let items: Vec<_> = roots.iter().map(|(name, value)| (BUCKET, *name, value.as_slice())).collect();
    let mut file = Vec::new();
    for number in [0, 1] {
        file.extend(page(number, META_PAGE, 0, &bolt::meta(PAGE as u32, ROOT, pages.next, number)));
    }
    file.extend(page(2, FREELIST, 0, &[]));
    file.extend(page(ROOT, LEAF, items.len(), &leaf(&items)));
    file.extend(pages.bytes);
    file
}

/// Appends the checksum that makes a database a snapshot.
pub fn seal(mut database: Vec<u8>) -> Vec<u8> {
    let sum = Sha256::digest(&database);
    database.extend(sum);
    database
}

/// A key of the store as the bucket `key` has it, at a revision.
pub fn revision(main: i64, key: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut name = main.to_be_bytes().to_vec();
    name.push(b'_');
    name.extend(0_i64.to_be_bytes());
    let mut stored = Vec::with_capacity(key.len() + value.len() + 32);
    let main = u64::try_from(main).unwrap_or_default();
    field(&mut stored, 0x0a, key);
    for tag in [0x10, 0x18] {
        stored.push(tag);
        number(&mut stored, main);
    }
    stored.extend([0x20, 1]);
    field(&mut stored, 0x2a, value);
    (name, stored)
}

fn field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    number(out, bytes.len() as u64);
    out.extend(bytes);
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Pages {
    next: u64,
    bytes: Vec<u8>,
}

impl Pages {
    fn add(&mut self, flags: u16, count: usize, body: &[u8]) -> u64 {
        let number = self.next;
        let bytes = page(number, flags, count, body);
        self.next += (bytes.len() / PAGE) as u64;
        self.bytes.extend(bytes);
        number
    }

    /// Writes leaves, then branches above them until one is left. Returns that one.
    fn tree(&mut self, items: &[(u32, &[u8], &[u8])]) -> u64 {
        let mut level: Vec<(Vec<u8>, u64)> = Vec::new();
        let size = |(_, key, value): &(u32, &[u8], &[u8])| key.len() + value.len();
        for part in fill(items, size) {
            let key = part.first().map_or_else(Vec::new, |(_, key, _)| key.to_vec());
            level.push((key, self.add(LEAF, part.len(), &leaf(part))));
        }
        while level.len() > 1 {
            let mut above = Vec::new();
            for part in fill(&level, |(key, _)| key.len()) {
                let key = part.first().map_or_else(Vec::new, |(key, _)| key.clone());
                above.push((key, self.add(BRANCH, part.len(), &branch(part))));
            }
            level = above;
        }
        match level.first() {
            Some((_, number)) => *number,
            None => self.add(LEAF, 0, &[]),
        }
    }
}

/// As many as fit on a page, and at least two: a tree with fewer would not become narrower.
fn fill<T>(items: &[T], size: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut parts = Vec::new();
    let mut rest = items;
    while !rest.is_empty() {
        let (mut count, mut used) = (0, 16);
        for item in rest {
            used += 16 + size(item);
            if count >= 2 && used > PAGE {
                break;
            }
            count += 1;
        }
        let (part, left) = rest.split_at(count);
        parts.push(part);
        rest = left;
    }
    parts
}

fn page(number: u64, flags: u16, count: usize, body: &[u8]) -> Vec<u8> {
    let overflow = (16 + body.len()).div_ceil(PAGE) - 1;
    let mut page = Vec::with_capacity((overflow + 1) * PAGE);
    page.extend(number.to_le_bytes());
    page.extend(flags.to_le_bytes());
    page.extend((count as u16).to_le_bytes());
    page.extend((overflow as u32).to_le_bytes());
    page.extend(body);
    page.resize((overflow + 1) * PAGE, 0);
    page
}

fn leaf(items: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
    let (mut elements, mut data): (Vec<u8>, Vec<u8>) = Default::default();
    for (at, (flags, key, value)) in items.iter().enumerate() {
        let from = (items.len() - at) * 16 + data.len();
        for field in [*flags, from as u32, key.len() as u32, value.len() as u32] {
            elements.extend(field.to_le_bytes());
        }
        data.extend(*key);
        data.extend(*value);
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
