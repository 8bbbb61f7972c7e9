//! SHA-256 of what passes by.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use aws_lc_rs::digest::{Context, SHA256};
use remuda_base::hex;

/// A digest as registries write it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(hex(aws_lc_rs::digest::digest(&SHA256, bytes)))
    }

    /// Without `sha256:`.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// Digest and size of a file, read in pieces.
pub fn sha256_of(path: &Path) -> io::Result<(Digest, u64)> {
    let mut file = File::open(path)?;
    let mut sink = Digesting::new(io::sink());
    let mut piece = vec![0; 1 << 18];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            length => sink.write_all(&piece[..length])?,
        }
    }
    let (_, digest, size) = sink.finish();
    Ok((digest, size))
}

/// Passes on what is written, and knows what it was.
pub(crate) struct Digesting<W> {
    inner: W,
    context: Context,
    size: u64,
}

impl<W: Write> Digesting<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, context: Context::new(&SHA256), size: 0 }
    }

    pub(crate) fn finish(self) -> (W, Digest, u64) {
        (self.inner, Digest(hex(self.context.finish())), self.size)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.context.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_digest_of_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        std::fs::write(&path, "abc").unwrap();
        // printf abc | sha256sum
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let (digest, size) = sha256_of(&path).unwrap();
        assert_eq!((digest.to_string().as_str(), size), (expected, 3));
        assert_eq!(Digest::of(b"abc"), digest);
    }
}
