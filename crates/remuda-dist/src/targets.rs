//! Which builds this host can make: the standard library of the target and a C compiler for it must be there.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// A platform there are agents for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    /// As rustc calls it.
    pub(crate) triple: &'static str,
    /// C compilers that make programs for it, and the package of Debian that has the first.
    compilers: &'static [&'static str],
    package: &'static str,
    /// Why no host can build it.
    never: Option<&'static str>,
}

/// The static builds run where nothing else is, also in images for other architectures.
pub(crate) const TARGETS: [Target; 5] = [
    Target::new("x86_64-unknown-linux-gnu", &["x86_64-linux-gnu-gcc"], "gcc-x86-64-linux-gnu"),
    Target::new("x86_64-unknown-linux-musl", &["x86_64-linux-musl-gcc", "musl-gcc"], "musl-tools"),
    Target::new("aarch64-unknown-linux-gnu", &["aarch64-linux-gnu-gcc"], "gcc-aarch64-linux-gnu"),
    Target::new("aarch64-unknown-linux-musl", &["aarch64-linux-musl-gcc"], "a cross compiler for musl"),
    Target {
        never: Some("the program uses what only Unix has"),
        ..Target::new("x86_64-pc-windows-gnu", &["x86_64-w64-mingw32-gcc"], "gcc-mingw-w64-x86-64")
    },
];

impl Target {
    const fn new(triple: &'static str, compilers: &'static [&'static str], package: &'static str) -> Target {
        Target { triple, compilers, package, never: None }
    }

    pub(crate) fn named(triple: &str) -> Option<Target> {
        TARGETS.into_iter().find(|target| target.triple == triple)
    }

    /// How to build it, or what is missing.
    pub(crate) fn possible(&self, host: &Host) -> Result<Tools, String> {
        if let Some(reason) = self.never {
            return Err(reason.to_owned());
        }
        if !(host.has_std)(self.triple) {
            return Err(format!("no standard library for it (rustup target add {})", self.triple));
        }
        if self.triple == host.triple {
            return Ok(Tools::default());
        }
        let found = self.compilers.iter().find(|compiler| (host.has_program)(compiler));
        match found {
            Some(compiler) => Ok(Tools { compiler: Some((*compiler).to_owned()) }),
            None => Err(format!("no C compiler {} ({})", self.compilers.join(" or "), self.package)),
        }
    }
}

/// What a build needs to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tools {
    /// Unless it is that of the host.
    pub(crate) compiler: Option<String>,
}

impl Tools {
    /// Variables for cargo and for the build scripts of crates with C in them.
    pub(crate) fn variables(&self, triple: &str) -> Vec<(String, String)> {
        let Some(compiler) = &self.compiler else { return Vec::new() };
        let name = triple.replace('-', "_");
        vec![
            (format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), compiler.clone()),
            (format!("CC_{name}"), compiler.clone()),
        ]
    }
}

/// What there is on a host.
pub(crate) struct Host {
    pub(crate) triple: String,
    pub(crate) has_std: Box<dyn Fn(&str) -> bool>,
    pub(crate) has_program: Box<dyn Fn(&str) -> bool>,
}

impl Host {
    /// This one.
    pub(crate) fn this() -> Option<Host> {
        let version = rustc(&["-vV"])?;
        let triple = version.lines().find_map(|line| line.strip_prefix("host: "))?.to_owned();
        let has_std = |triple: &str| {
            let directory = rustc(&["--print", "target-libdir", "--target", triple]);
            directory.is_some_and(|directory| Path::new(directory.trim()).is_dir())
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> = env::split_paths(&path).collect();
        let has_program = move |name: &str| places.iter().any(|place| place.join(name).is_file());
        Some(Host { triple, has_std: Box::new(has_std), has_program: Box::new(has_program) })
    }
}

fn rustc(arguments: &[&str]) -> Option<String> {
    let output = Command::new("rustc").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(stds: &'static [&str], programs: &'static [&str]) -> Host {
        Host {
            triple: "x86_64-unknown-linux-gnu".to_owned(),
            has_std: Box::new(move |triple| stds.contains(&triple)),
            has_program: Box::new(move |name| programs.contains(&name)),
        }
    }

    #[test]
    fn what_is_missing_for_a_target_is_said() {
        let possible = |triple: &str, host: &Host| Target::named(triple).unwrap().possible(host);
        let bare = host(&["x86_64-unknown-linux-gnu"], &[]);
        assert_eq!(possible("x86_64-unknown-linux-gnu", &bare), Ok(Tools::default()));
        let missing = possible("aarch64-unknown-linux-gnu", &bare).unwrap_err();
        assert!(missing.contains("rustup target add aarch64-unknown-linux-gnu"), "{missing}");

        let library = host(&["x86_64-unknown-linux-musl", "x86_64-pc-windows-gnu"], &["musl-gcc"]);
        let tools = possible("x86_64-unknown-linux-musl", &library).unwrap();
        assert_eq!(
            tools.variables("x86_64-unknown-linux-musl"),
            [
                ("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER".to_owned(), "musl-gcc".to_owned()),
                ("CC_x86_64_unknown_linux_musl".to_owned(), "musl-gcc".to_owned()),
            ]
        );
        assert!(possible("x86_64-pc-windows-gnu", &library).is_err());

        let no_compiler = host(&["aarch64-unknown-linux-gnu"], &["musl-gcc"]);
        let missing = possible("aarch64-unknown-linux-gnu", &no_compiler).unwrap_err();
        assert!(missing.contains("gcc-aarch64-linux-gnu"), "{missing}");
    }
}
