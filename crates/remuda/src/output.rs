//! What goes to the terminal. Results go to standard output, everything else beside it.

use std::io::{self, Write};

use crate::failure::Failure;

/// A line of result. If nobody reads it, nothing is lost by going on.
pub(crate) fn line(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// A line for the person, which is no result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Bytes of result. A reader that went away has what it wanted.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(&error, None)),
        _ => Ok(()),
    }
}
