//! A build of the program: where it is, what it is, and how it comes to be.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use remuda_oci::{Architecture, Format, agent::Build};

/// A build for Linux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    pub(crate) architecture: Architecture,
    pub(crate) is_static: bool,
    pub(crate) build: Build,
    /// The newest version of the C library it asks for.
    pub(crate) glibc: Option<(u32, u32)>,
}

impl Program {
    pub(crate) fn look(path: &Path) -> anyhow::Result<Program> {
        let build = Build::look(path)?;
        let executable = &build.executable;
        if executable.format != Format::Linux {
            bail!("{} is for {}; packages are for linux", path.display(), executable.format);
        }
        let is_static = executable.is_static();
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Ok(Program {
            path: path.to_owned(),
            version: build.version.to_string(),
            architecture: executable.architecture,
            is_static,
            glibc: if is_static { None } else { newest_glibc(&bytes) },
            build,
        })
    }

    pub(crate) fn read(&self) -> anyhow::Result<Vec<u8>> {
        fs::read(&self.path).with_context(|| format!("read {}", self.path.display()))
    }

    /// As container tools name the platform, and whether it runs anywhere.
    pub(crate) fn platform(&self) -> String {
        let suffix = if self.is_static { "-static" } else { "" };
        format!("linux-{}{suffix}", self.architecture)
    }

    /// Packages of Debian the program is linked with.
    pub(crate) fn debian_libraries(&self) -> BTreeSet<String> {
        let needed = &self.build.executable.needed;
        needed
            .iter()
            .filter_map(|library| match library.as_str() {
                "libgcc_s.so.1" => Some("libgcc-s1".to_owned()),
                "libstdc++.so.6" => Some("libstdc++6".to_owned()),
                _ if library.starts_with("ld-linux") => None,
                "libc.so.6" | "libm.so.6" | "libdl.so.2" | "libpthread.so.0" | "librt.so.1" => {
                    Some(match self.glibc {
                        Some((major, minor)) => format!("libc6 (>= {major}.{minor})"),
                        None => "libc6".to_owned(),
                    })
                }
                _ => None,
            })
            .collect()
    }
}

/// The newest symbol version of glibc a program names, such as `GLIBC_2.34`.
fn newest_glibc(bytes: &[u8]) -> Option<(u32, u32)> {
    const PREFIX: &[u8] = b"GLIBC_";
    let mut newest = None;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == PREFIX[0]) {
        at += found;
        if let Some(rest) = bytes[at..].strip_prefix(PREFIX) {
            let end = rest.iter().take(16).position(|byte| !(byte.is_ascii_digit() || *byte == b'.'));
            let text = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok()).unwrap_or_default();
            let mut numbers = text.split('.').map(str::parse::<u32>);
            if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) {
                newest = newest.max(Some((major, minor)));
            }
        }
        at += 1;
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_c_library_is_found() {
        let bytes = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0GLIBC_x.y\0GGLIBC_2.9\0";
        assert_eq!(newest_glibc(bytes), Some((2, 34)));
        assert_eq!(newest_glibc(b"GLIBC_2.3"), None, "cut short");
        assert_eq!(newest_glibc(b""), None);
    }
}
