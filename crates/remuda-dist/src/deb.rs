//! The Debian package: the program, its service, and what happens when it comes, changes and goes.

use anyhow::Context;
use flate2::Compression;
use remuda_names::file;
use remuda_oci::Architecture;

use crate::{
    ar,
    pages::Pages,
    program::Program,
    tree::{Tree, gzip},
};

const SERVICE: &str = include_str!("../debian/remuda.service");
const CONFIG: &str = include_str!("../debian/config.yaml");
const SCRIPTS: [(&str, &str); 4] = [
    ("preinst", include_str!("../debian/preinst")),
    ("postinst", include_str!("../debian/postinst")),
    ("prerm", include_str!("../debian/prerm")),
    ("postrm", include_str!("../debian/postrm")),
];
const DESCRIPTION: &str = "Kubernetes clusters, provisioned and managed from one binary
 A server with a Kubernetes API of its own makes K3s and RKE2 clusters on
 servers of clouds, on servers there are, and on the host itself, and manages
 them through an agent on every node.
 .
 The same program is the agents and the command line.";

/// What a package says about itself beside what is in it.
pub(crate) struct About<'a> {
    pub(crate) maintainer: &'a str,
    pub(crate) changelog: &'a str,
    pub(crate) licence: &'a str,
    /// Newest format of a data directory the program works with.
    pub(crate) data_format: u64,
    pub(crate) time: u64,
    pub(crate) level: Compression,
}

/// As Debian calls the architecture.
pub(crate) fn architecture(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Arm => "armhf",
        other => other.name(),
    }
}

/// The package of a program.
pub(crate) fn package(program: &Program, pages: &Pages, about: &About<'_>) -> anyhow::Result<Vec<u8>> {
    let mut data = Tree::default();
    data.add_program("usr/bin/remuda", program.read()?);
    data.add("usr/lib/systemd/system/remuda.service", SERVICE);
    data.add(file::DEFAULT_CONFIG.trim_start_matches('/'), CONFIG);
    for (name, content) in &pages.completions {
        let path = match name.as_str() {
            "bash" => "usr/share/bash-completion/completions/remuda",
            "zsh" => "usr/share/zsh/vendor-completions/_remuda",
            _ => "usr/share/fish/vendor_completions.d/remuda.fish",
        };
        data.add(path, content.as_slice());
    }
    for (name, content) in &pages.manual {
        data.add(format!("usr/share/man/man1/{name}.gz"), gzip(content)?);
    }
    data.add("usr/share/doc/remuda/copyright", about.licence);
    data.add("usr/share/doc/remuda/changelog.gz", gzip(about.changelog.as_bytes())?);

    let mut control = Tree::default();
    control.add("control", self::control(program, &data, about));
    control.add("conffiles", format!("{}\n", file::DEFAULT_CONFIG));
    for (name, script) in SCRIPTS {
        control.add_program(name, filled(script, program, about));
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.packed(about.time, Compression::best())?),
        ("data.tar.gz", data.packed(about.time, about.level)?),
    ];
    ar::archive(&members, about.time).context("write the package")
}

fn filled(script: &str, program: &Program, about: &About<'_>) -> String {
    script
        .replace("@DATA_FORMAT@", &about.data_format.to_string())
        .replace("@MARKER@", file::FORMAT)
        .replace("@VERSION@", &program.version)
}

fn control(program: &Program, data: &Tree, about: &About<'_>) -> String {
    let libraries = program.debian_libraries();
    let depends: Vec<String> = libraries.into_iter().chain(["passwd".to_owned()]).collect();
    format!(
        "Package: remuda\n\
         Version: {}\n\
         Section: admin\n\
         Priority: optional\n\
         Architecture: {}\n\
         Maintainer: {}\n\
         Installed-Size: {}\n\
         Depends: {}\n\
         Recommends: ca-certificates\n\
         Description: {DESCRIPTION}\n",
        debian_version(&program.version),
        architecture(program.architecture),
        about.maintainer,
        data.size().div_ceil(1024),
        depends.join(", "),
    )
}

/// A version before another sorts before it: `0.2.0-rc.1` is `0.2.0~rc.1`.
pub(crate) fn debian_version(version: &str) -> String {
    version.replacen('-', "~", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_a_release_sort_before_it() {
        assert_eq!(debian_version("0.2.0"), "0.2.0");
        assert_eq!(debian_version("0.2.0-rc.1"), "0.2.0~rc.1");
    }

    #[test]
    fn every_placeholder_of_the_scripts_is_filled() {
        for (name, script) in SCRIPTS {
            let filled = script
                .replace("@DATA_FORMAT@", "1")
                .replace("@MARKER@", file::FORMAT)
                .replace("@VERSION@", "0.1.0");
            assert!(!filled.contains('@'), "{name}");
        }
    }
}
