//! The file format of bbolt: two meta pages, and trees of pages below buckets.

use std::io::{Read, Seek, SeekFrom};

use crate::{Fault, Unproven, restore::Item};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const HEADER: usize = 16;
const ELEMENT: usize = 16;
const META: usize = 64;
/// Bytes of the meta that its checksum covers.
const META_SUMMED: usize = 56;

pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const META_PAGE: u16 = 0x04;
pub(crate) const FREELIST: u16 = 0x10;
/// On an element of a leaf: its value is a bucket.
pub(crate) const BUCKET: u32 = 0x01;
/// A bucket that is smaller than a page is kept in the value itself.
const BUCKET_HEADER: usize = 16;

/// More levels than a file of any size has.
const DEPTH: u32 = 32;
/// The longest value etcd takes is far below.
const LARGEST_PAGE: usize = 64 * 1024 * 1024;

/// Is called for each element: its flags, key and value.
type Each<'a> = dyn FnMut(u32, &[u8], &[u8]) -> Result<(), Fault> + 'a;

struct Meta {
    page_size: u32,
    root: u64,
    /// Pages from here on do not exist.
    end: u64,
    transaction: u64,
}

pub(crate) struct Database<'f, F> {
    file: &'f mut F,
    meta: Meta,
    /// One bit for each page the walk has been on.
    seen: Vec<u64>,
}

enum Found {
    Meta(Meta),
    Newer(u32),
    None,
}

/// What is called for each key and value of a bucket.
pub(crate) type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> Result<(), Fault> + 'v;

impl<'f, F: Read + Seek> Database<'f, F> {
    /// Finds the newest valid meta page. The second one is where the page size of the writer puts it.
    pub(crate) fn open(file: &'f mut F, length: u64) -> Result<Database<'f, F>, Unproven> {
        if length < (HEADER + META) as u64 {
            return Err(Unproven::NotASnapshot);
        }
        let mut best: Option<Meta> = None;
        let mut newer = None;
        let offsets = std::iter::once(0).chain((9..=16).map(|power| 1 << power));
        for offset in offsets.filter(|offset| offset + (HEADER + META) as u64 <= length) {
            match read_meta(file, offset)? {
                Found::Meta(meta) if offset == 0 || offset == u64::from(meta.page_size) => {
                    if best.as_ref().is_none_or(|best| best.transaction < meta.transaction) {
                        best = Some(meta);
                    }
                }
                Found::Newer(found) => newer = Some(found),
                Found::Meta(_) | Found::None => {}
            }
        }
        match (best, newer) {
            (Some(meta), _) => {
                let pages = length / u64::from(meta.page_size) + 1;
                // A meta that promises more pages than the file has is told as a cut; the bits are for those there are.
                let words = usize::try_from(meta.end.min(pages) / 64 + 1).unwrap_or(usize::MAX);
                Ok(Database { file, meta, seen: vec![0; words] })
            }
            (None, Some(found)) => Err(Unproven::NewerFormat { found, known: VERSION }),
            (None, None) => Err(Unproven::NotASnapshot),
        }
    }

    /// The least length of the database.
    pub(crate) fn length(&self) -> u64 {
        self.meta.end.saturating_mul(u64::from(self.meta.page_size))
    }

    pub(crate) fn file(&mut self) -> &mut F {
        self.file
    }

    /// Calls `visit` for all of the bucket `name`, in the order of keys. All other buckets are walked as well, for
    /// their pages must be whole too.
    pub(crate) fn walk(&mut self, name: &[u8], visit: &mut Visit<'_>) -> Result<(), Unproven> {
        let buckets = self.buckets()?;
        if !buckets.iter().any(|(key, _)| key == name) {
            return Err(Unproven::Damaged { page: self.meta.root, fault: Fault::NoBucket });
        }
        for (key, value) in buckets {
            if key == name { self.inside(&value, visit)? } else { self.inside(&value, &mut |_, _| Ok(()))? }
        }
        Ok(())
    }

    /// Calls `visit` for all of the bucket `name`. False if there is none.
    pub(crate) fn bucket(&mut self, name: &[u8], visit: &mut Visit<'_>) -> Result<bool, Unproven> {
        match self.buckets()?.into_iter().find(|(key, _)| key == name) {
            Some((_, value)) => self.inside(&value, visit).map(|()| true),
            None => Ok(false),
        }
    }

    fn buckets(&mut self) -> Result<Vec<Item>, Unproven> {
        let mut buckets = Vec::new();
        self.tree(self.meta.root, 0, &mut Vec::new(), &mut |flags, key, value| {
            if flags & BUCKET == 0 {
                return Err(Fault::Kind);
            }
            buckets.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(buckets)
    }

    /// `bucket` is the value by which a bucket is found.
    fn inside(&mut self, bucket: &[u8], visit: &mut Visit<'_>) -> Result<(), Unproven> {
        let root = self.meta.root;
        let damaged = |fault| Unproven::Damaged { page: root, fault };
        let mut each = |flags: u32, key: &[u8], value: &[u8]| match flags & BUCKET {
            0 => visit(key, value),
            _ => Err(Fault::Kind),
        };
        let below = number(bucket, 0).ok_or(damaged(Fault::Bounds))?;
        if below != 0 {
            return self.tree(below, 0, &mut Vec::new(), &mut each);
        }
        let page = Page { number: root, bytes: bucket.get(BUCKET_HEADER..).ok_or(damaged(Fault::Bounds))? };
        if page.flags() != Some(LEAF) {
            return Err(damaged(Fault::Kind));
        }
        page.leaf(&mut Vec::new(), &mut each)
    }

    fn tree(
        &mut self,
        number: u64,
        depth: u32,
        last: &mut Vec<u8>,
        each: &mut Each<'_>,
    ) -> Result<(), Unproven> {
        let bytes = self.page(number)?;
        let page = Page { number, bytes: &bytes };
        if depth > DEPTH {
            return Err(page.damaged(Fault::Depth));
        }
        match page.flags() {
            Some(LEAF) => page.leaf(last, each),
            Some(BRANCH) => {
                let children = page.children()?;
                drop(bytes);
                children.into_iter().try_for_each(|child| self.tree(child, depth + 1, last, each))
            }
            _ => Err(page.damaged(Fault::Kind)),
        }
    }

    /// Reads a page with those it overflows into.
    fn page(&mut self, number: u64) -> Result<Vec<u8>, Unproven> {
        let damaged = |fault| Unproven::Damaged { page: number, fault };
        if number < 2 || number >= self.meta.end {
            return Err(damaged(Fault::Bounds));
        }
        let (word, bit) = (number / 64, 1 << (number % 64));
        let seen = usize::try_from(word).ok().and_then(|word| self.seen.get_mut(word));
        let seen = seen.ok_or(damaged(Fault::Bounds))?;
        if *seen & bit != 0 {
            return Err(damaged(Fault::Twice));
        }
        *seen |= bit;
        let size = u64::from(self.meta.page_size);
        self.file.seek(SeekFrom::Start(number * size))?;
        let mut bytes = vec![0; self.meta.page_size as usize];
        self.file.read_exact(&mut bytes)?;
        if self::number(&bytes, 0) != Some(number) {
            return Err(damaged(Fault::Number));
        }
        let overflow = u64::from(short(&bytes, 12).unwrap_or(0));
        if overflow >= self.meta.end - number {
            return Err(damaged(Fault::Bounds));
        }
        let whole = usize::try_from((overflow + 1) * size).unwrap_or(usize::MAX);
        if whole > LARGEST_PAGE {
            return Err(damaged(Fault::Bounds));
        }
        let first = bytes.len();
        bytes.resize(whole, 0);
        self.file.read_exact(&mut bytes[first..])?;
        Ok(bytes)
    }
}

struct Page<'b> {
    number: u64,
    bytes: &'b [u8],
}

impl Page<'_> {
    fn damaged(&self, fault: Fault) -> Unproven {
        Unproven::Damaged { page: self.number, fault }
    }

    fn flags(&self) -> Option<u16> {
        let bytes = self.bytes.get(8..10)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    }

    fn count(&self) -> usize {
        let bytes = self.bytes.get(10..12).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, |bytes| usize::from(u16::from_le_bytes(bytes)))
    }

    fn children(&self) -> Result<Vec<u64>, Unproven> {
        let child = |at: usize| number(self.bytes, HEADER + at * ELEMENT + 8);
        let children: Option<Vec<u64>> = (0..self.count()).map(child).collect();
        children.ok_or_else(|| self.damaged(Fault::Bounds))
    }

    /// `last` is the key before the first of this page.
    fn leaf(&self, last: &mut Vec<u8>, each: &mut Each<'_>) -> Result<(), Unproven> {
        for at in 0..self.count() {
            let (flags, key, value) = self.element(at).ok_or_else(|| self.damaged(Fault::Bounds))?;
            if !last.is_empty() && last.as_slice() >= key {
                return Err(self.damaged(Fault::Order));
            }
            last.clear();
            last.extend_from_slice(key);
            each(flags, key, value).map_err(|fault| self.damaged(fault))?;
        }
        Ok(())
    }

    fn element(&self, at: usize) -> Option<(u32, &[u8], &[u8])> {
        let start = HEADER + at * ELEMENT;
        let field = |offset| short(self.bytes, start + offset);
        let size = |offset| field(offset).and_then(|value| usize::try_from(value).ok());
        let from = start.checked_add(size(4)?)?;
        let middle = from.checked_add(size(8)?)?;
        let end = middle.checked_add(size(12)?)?;
        Some((field(0)?, self.bytes.get(from..middle)?, self.bytes.get(middle..end)?))
    }
}

fn read_meta(file: &mut (impl Read + Seek), offset: u64) -> Result<Found, Unproven> {
    let mut bytes = [0; HEADER + META];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut bytes)?;
    Ok(parse_meta(&bytes).unwrap_or(Found::None))
}

fn parse_meta(bytes: &[u8]) -> Option<Found> {
    let page = Page { number: 0, bytes };
    let meta = bytes.get(HEADER..)?;
    if page.flags()? != META_PAGE || short(meta, 0)? != MAGIC {
        return None;
    }
    if number(meta, META_SUMMED)? != fnv(meta.get(..META_SUMMED)?) {
        return None;
    }
    let version = short(meta, 4)?;
    if version != VERSION {
        return Some(Found::Newer(version));
    }
    let page_size = short(meta, 8)?;
    if !page_size.is_power_of_two() || !(512..=65536).contains(&page_size) {
        return None;
    }
    let (root, end, transaction) = (number(meta, 16)?, number(meta, 40)?, number(meta, 48)?);
    Some(Found::Meta(Meta { page_size, root, end, transaction }))
}

/// The body of a meta page.
pub(crate) fn meta(page_size: u32, root: u64, end: u64, transaction: u64) -> Vec<u8> {
    let mut meta = Vec::with_capacity(META);
    for field in [MAGIC, VERSION, page_size, 0] {
        meta.extend(field.to_le_bytes());
    }
    // The bucket above all others and its sequence, the freelist, the end.
    for field in [root, 0, 2, end, transaction] {
        meta.extend(field.to_le_bytes());
    }
    let sum = fnv(&meta);
    meta.extend(sum.to_le_bytes());
    meta
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn short(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
