//! Lists the files of the dashboard, so that a file that is added is embedded without being named a second time.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "this is how cargo and build scripts speak"
)]

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("assets");
    println!("cargo::rerun-if-changed=assets");
    let mut found = Vec::new();
    collect(&root, "", &mut found)?;
    // The digest of all files is made in this order.
    found.sort();
    let mut text = String::from("&[\n");
    for name in found {
        let path = root.join(&name);
        text += &format!("    ({name:?}, include_bytes!({path:?})),\n");
    }
    text += "]\n";
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("files.rs"), text)
}

fn collect(directory: &Path, prefix: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), &format!("{name}/"), found)?,
            false => found.push(name),
        }
    }
    Ok(())
}
