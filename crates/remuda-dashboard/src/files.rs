//! The embedded files, under the paths and with the headers they are served with.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::OnceLock,
};

use aws_lc_rs::digest;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::HeaderValue;

/// Below it are files with the digest of all of them in their path.
pub(crate) const VERSIONED: &str = "/dashboard/-/";
/// What stands for the digest in the shell.
const PLACE: &str = "/dashboard/-/VERSION/";
const SHELL: &str = "index.html";
/// The module the shell runs.
const MAIN: &str = "main.js";
const PRELOADS: &str = "<!-- modules -->";

static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

pub(crate) struct File {
    pub(crate) kind: &'static str,
    pub(crate) etag: HeaderValue,
    pub(crate) plain: Bytes,
    compressed: OnceLock<Bytes>,
}

impl File {
    fn new(name: &str, plain: Bytes) -> Self {
        let etag = format!("\"{}\"", hash(&[&plain]));
        let etag = HeaderValue::try_from(etag).expect("hexadecimal digits are a header");
        Self { kind: kind(name), etag, plain, compressed: OnceLock::new() }
    }

    /// Compressed once, when it is first asked for.
    pub(crate) fn compressed(&self) -> Bytes {
        let made = self.compressed.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            let written = encoder.write_all(&self.plain).and_then(|()| encoder.finish());
            written.expect("memory takes everything").into()
        });
        made.clone()
    }
}

pub(crate) struct Files {
    base: String,
    shell: File,
    files: BTreeMap<&'static str, File>,
}

impl Files {
    pub(crate) fn embedded() -> Self {
        let all: Vec<&[u8]> = EMBEDDED.iter().flat_map(|(name, bytes)| [name.as_bytes(), *bytes]).collect();
        let base = format!("{VERSIONED}{}/", &hash(&all)[..16]);
        let mut files = BTreeMap::new();
        let mut shell = String::new();
        for (name, bytes) in EMBEDDED {
            if *name == SHELL {
                shell = String::from_utf8_lossy(bytes).into_owned();
            } else {
                files.insert(*name, File::new(name, Bytes::from_static(bytes)));
            }
        }
        // Modules import each other four deep; named here they are fetched at once.
        // Pages other than the first are asked for when they are opened.
        let preloads: String = reached(&files)
            .iter()
            .map(|name| format!("<link rel=\"modulepreload\" href=\"{PLACE}{name}\">\n"))
            .collect();
        let shell = shell.replace(PRELOADS, &preloads).replace(PLACE, &base);
        Self { shell: File::new(SHELL, shell.into()), base, files }
    }

    /// What the paths of all files begin with.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn shell(&self) -> &File {
        &self.shell
    }

    pub(crate) fn get(&self, name: &str) -> Option<&File> {
        self.files.get(name)
    }

    /// Whether a file is there before the first page is.
    #[cfg(test)]
    pub(crate) fn is_first(&self, name: &str) -> bool {
        !name.ends_with(".js") || reached(&self.files).contains(name)
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &File)> {
        self.files.iter().map(|(name, file)| (*name, file))
    }
}

/// Modules that [`MAIN`] imports, and all that those import. What is behind `import()` is not among them.
fn reached(files: &BTreeMap<&'static str, File>) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut next = vec![MAIN.to_owned()];
    while let Some(name) = next.pop() {
        let Some((name, file)) = files.get_key_value(name.as_str()) else { continue };
        if found.insert(*name) {
            let text = std::str::from_utf8(&file.plain).unwrap_or_default();
            let paths = text.split("from '").skip(1).filter_map(|said| said.split('\'').next());
            next.extend(paths.map(|path| beside(name, path)));
        }
    }
    found
}

/// The file a path in another one leads to.
fn beside(name: &str, path: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn hash(parts: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    remuda_base::hex(context.finish().as_ref())
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
