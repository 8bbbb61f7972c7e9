//! Where on this host the loader and the libraries of a program are.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::executable::{self, Architecture, Executable};

/// Where loaders look, whatever the distribution.
const USUAL: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// Loaded by the C library when a name is looked up, where they are not part of it.
const RESOLVING: [&str; 3] = ["libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"];
/// No program has more.
const MOST: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error("library {name} of the program is not found on this host")]
    Missing { name: String },
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// Everything a program needs to run, with the path at which its loader finds it. A static program needs nothing.
pub fn of(program: &Executable, own: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, LibraryError> {
    let mut found = BTreeMap::new();
    let Some(interpreter) = &program.interpreter else { return Ok(found) };
    let interpreter = PathBuf::from(interpreter);
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|source| LibraryError::Read { path: path.to_owned(), source })
    };
    found.insert(interpreter.clone(), real(&interpreter)?);
    let mut wanted: Vec<(String, Vec<PathBuf>)> = wishes(program, own);
    let mut seen: Vec<String> = Vec::new();
    while let Some((name, first)) = wanted.pop() {
        let is_loader = interpreter.file_name().is_some_and(|loader| loader == name.as_str());
        if seen.contains(&name) || is_loader || found.len() > MOST {
            continue;
        }
        let located = locate(&name, &first, program.architecture);
        let Some((path, library)) = located else {
            // Where these are missing, the C library has them inside.
            if RESOLVING.contains(&name.as_str()) {
                continue;
            }
            return Err(LibraryError::Missing { name });
        };
        let real = real(&path)?;
        if name == "libc.so.6" {
            wanted.extend(RESOLVING.map(|name| (name.to_owned(), Vec::new())));
        }
        wanted.extend(wishes(&library, &real));
        seen.push(name);
        found.insert(path, real);
    }
    Ok(found)
}

/// Libraries a program or library names, and the directories it wants them from.
fn wishes(of: &Executable, at: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let origin = at.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let directories: Vec<PathBuf> = of
        .search
        .iter()
        .map(|directory| directory.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into())
        .collect();
    of.needed.iter().map(|name| (name.clone(), directories.clone())).collect()
}

/// The first library of that name for the same processor: hosts that build for others have theirs too.
fn locate(name: &str, first: &[PathBuf], architecture: Architecture) -> Option<(PathBuf, Executable)> {
    let places: Vec<PathBuf> = if name.contains('/') {
        Some(PathBuf::from(name)).filter(|path| path.is_absolute()).into_iter().collect()
    } else {
        let usual = USUAL.iter().map(PathBuf::from);
        first.iter().cloned().chain(usual).map(|directory| directory.join(name)).collect()
    };
    places.into_iter().find_map(|path| {
        let library = executable::read(&mut File::open(&path).ok()?).ok()?;
        (library.architecture == architecture).then_some((path, library))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_this_program_are_found_with_their_own() {
        let own = std::env::current_exe().unwrap();
        let program = executable::read(&mut File::open(&own).unwrap()).unwrap();
        let found = of(&program, &own).unwrap();
        if cfg!(target_env = "gnu") {
            assert!(found.contains_key(Path::new(program.interpreter.as_deref().unwrap())));
            assert!(found.keys().any(|path| path.ends_with("libc.so.6")), "{found:?}");
        }
        assert!(found.values().all(|path| path.is_file()), "{found:?}");
    }

    #[test]
    fn a_library_that_is_nowhere_is_named() {
        let own = std::env::current_exe().unwrap();
        let mut program = executable::read(&mut File::open(&own).unwrap()).unwrap();
        program.interpreter = Some(own.to_string_lossy().into_owned());
        program.needed = vec!["libnothing.so.9".to_owned()];
        assert!(of(&program, &own).unwrap_err().to_string().contains("libnothing.so.9"));
        program.interpreter = None;
        assert_eq!(of(&program, &own).unwrap(), BTreeMap::new());
    }
}
