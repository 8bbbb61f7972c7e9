//! As much of ZIP as is needed to take one file out of an archive.

use std::io::Read;

use crate::error::{Error, Result};

/// The first file whose base name `wanted` likes, with its content.
pub(super) fn find(
    archive: &[u8],
    largest: u64,
    wanted: impl Fn(&str) -> bool,
) -> Result<Option<(String, Vec<u8>)>> {
    let broken = || Error::other("unpack: the ZIP archive is broken");
    let end = end_of_directory(archive).ok_or_else(broken)?;
    let entries = u16_at(archive, end + 10).ok_or_else(broken)?;
    let mut at = u32_at(archive, end + 16).ok_or_else(broken)? as usize;
    for _ in 0..entries {
        if archive.get(at..at + 4) != Some(b"PK\x01\x02") {
            return Err(broken());
        }
        let field = |offset: usize| u16_at(archive, at + offset).map(usize::from).ok_or_else(broken);
        let (name_length, extra, comment) = (field(28)?, field(30)?, field(32)?);
        let name = archive.get(at + 46..at + 46 + name_length).ok_or_else(broken)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let base = name.rsplit('/').next().unwrap_or_default().to_owned();
        if wanted(&base) && !name.ends_with('/') {
            let method = field(10)?;
            let packed = u32_at(archive, at + 20).ok_or_else(broken)? as usize;
            let header = u32_at(archive, at + 42).ok_or_else(broken)? as usize;
            let content = local(archive, header, packed).ok_or_else(broken)?;
            let content = unpack(method, content, largest)?;
            let checksum = u32_at(archive, at + 16).ok_or_else(broken)?;
            if crc32(&content) != checksum {
                return Err(Error::other(format!("unpack: {name} is damaged: its checksum does not fit")));
            }
            return Ok(Some((base, content)));
        }
        at += 46 + name_length + extra + comment;
    }
    Ok(None)
}

/// Where the record at the end of the archive is; a comment may follow it.
fn end_of_directory(archive: &[u8]) -> Option<usize> {
    let last = archive.len().checked_sub(22)?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    (first..=last).rev().find(|at| archive.get(*at..at + 4) == Some(b"PK\x05\x06"))
}

fn local(archive: &[u8], header: usize, packed: usize) -> Option<&[u8]> {
    if archive.get(header..header.checked_add(4)?)? != b"PK\x03\x04" {
        return None;
    }
    let name = usize::from(u16_at(archive, header + 26)?);
    let extra = usize::from(u16_at(archive, header + 28)?);
    let start = header + 30 + name + extra;
    archive.get(start..start.checked_add(packed)?)
}

fn unpack(method: usize, content: &[u8], largest: u64) -> Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    let read = match method {
        0 => content.take(largest + 1).read_to_end(&mut unpacked),
        8 => flate2::read::DeflateDecoder::new(content).take(largest + 1).read_to_end(&mut unpacked),
        other => return Err(Error::other(format!("unpack: the ZIP archive uses method {other}"))),
    };
    read.map_err(|error| Error::other(format!("unpack: {error}")))?;
    if unpacked.len() as u64 > largest {
        return Err(Error::other("the program is too large"));
    }
    Ok(unpacked)
}

fn crc32(content: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    crc.sum()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes)
}
