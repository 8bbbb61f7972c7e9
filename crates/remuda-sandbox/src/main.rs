//! The stages of local machines as a program of its own.

use std::{ffi::OsString, io::Write, process::ExitCode};

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let mut rest: Vec<OsString> = args.collect();
    let name = std::path::Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(code) = remuda_sandbox::run_tool(&name, &rest) {
        return code;
    }
    if rest.first().is_some_and(|first| first == remuda_sandbox::stage::COMMAND) {
        rest.remove(0);
    }
    match remuda_sandbox::run_stage(&rest) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", remuda_base::Chain(&error));
            ExitCode::FAILURE
        }
    }
}
