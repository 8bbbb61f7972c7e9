//! Logic of the pages, without a browser. What needs one is in the tests of the program, `dashboard`.

use std::{
    io::{self, Write},
    path::Path,
    process::Command,
};

#[test]
fn the_logic_of_the_pages_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/js");
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".test.mjs"));
    assert!(files.len() >= 4, "{files:?}");
    let output = match Command::new("node").arg("--test").args(&files).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Past the test harness, which keeps what passing tests print to itself.
            let _ =
                writeln!(io::stderr(), "SKIPPED: there is no node: the logic of the dashboard is not tested");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
