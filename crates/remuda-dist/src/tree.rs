//! Files of a package, and tar archives of them that are the same whenever they are made.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
}

/// Files by their paths, without a slash in front.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, File>);

impl Tree {
    pub(crate) fn add(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), File { mode: 0o644, content: content.into() });
    }

    pub(crate) fn add_program(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), File { mode: 0o755, content: content.into() });
    }

    /// Bytes of all files.
    pub(crate) fn size(&self) -> u64 {
        self.0.values().map(|file| file.content.len() as u64).sum()
    }

    /// All of it as `.tar.gz`; directories come before what is in them.
    pub(crate) fn packed(&self, time: u64, level: Compression) -> io::Result<Vec<u8>> {
        let packed = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), level);
        let mut tar = Builder::new(packed);
        let mut made = std::collections::BTreeSet::new();
        for (path, file) in &self.0 {
            for (at, _) in path.match_indices('/') {
                if made.insert(&path[..at]) {
                    let mut header = header(time, 0o755, 0)?;
                    header.set_entry_type(EntryType::Directory);
                    tar.append_data(&mut header, format!("{}/", &path[..at]), io::empty())?;
                }
            }
            let mut header = header(time, file.mode, file.content.len() as u64)?;
            tar.append_data(&mut header, path, file.content.as_slice())?;
        }
        tar.into_inner()?.finish()
    }
}

fn header(time: u64, mode: u32, size: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_mtime(time);
    Ok(header)
}

/// One file, compressed the same whenever that is done.
pub(crate) fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    packed.write_all(content)?;
    packed.finish()
}
