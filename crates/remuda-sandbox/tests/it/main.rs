//! Real machines on this host: as whoever runs the tests, and if that is root, as somebody else too.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "tests fail aloud")]

mod bench;
mod driver;
mod isolation;
mod kills;
mod life;
mod services;

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

/// A uid that owns nothing.
const SOMEBODY: &str = "54321";

/// Runs all other tests of this file again, without privileges.
#[test]
fn everything_works_for_somebody_who_is_not_root() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (tests, program) = (dir.path().join("tests"), dir.path().join("remuda"));
    fs::copy(std::env::current_exe().unwrap(), &tests).unwrap();
    fs::copy(bench::program(), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", SOMEBODY, "--regid", SOMEBODY, "--clear-groups"]).arg(tests);
    command.env(bench::PROGRAM, program).env_remove("TMPDIR").current_dir("/");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("\n*** SKIPPED: setpriv is needed to test without privileges: {error}\n");
            return;
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stderr));
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
