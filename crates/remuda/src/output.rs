//! What goes to the terminal. Results go to standard output, everything else beside it.

use std::io::{self, Write};

use crate::failure::Failure;

/// A line of result.
#[allow(clippy::print_stdout, reason = "the output is the purpose")]
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// A line for the person, which is no result.
#[allow(clippy::print_stderr, reason = "the output is the purpose")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// Bytes of result. A reader that went away has what it wanted.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(&error, None)),
        _ => Ok(()),
    }
}
