//! How the program is linked.

#![allow(clippy::disallowed_methods, reason = "cargo tells build scripts in variables")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // At a fixed address nothing in the program's tables has to be relocated when it starts, so their pages stay those
    // of the file: they are shared by all agents of a machine, and only what is used is ever read. Libraries, heap and
    // stacks are at random addresses as before.
    let is = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
