//! Asks for what must not be seen.

use std::{
    io::{IsTerminal, Read, Write},
    process::{Command, Stdio},
};

use crate::failure::{Code, Failure};

/// A terminal that shows nothing, until this is dropped.
struct Hidden(String);

impl Hidden {
    fn new() -> Option<Self> {
        let before = stty(&["-g"])?;
        // Ctrl-C comes as a letter: the terminal must not stay as it is now.
        stty(&["-echo", "-icanon", "-isig", "min", "1"])?;
        Some(Self(before.trim().to_owned()))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = stty(&[&self.0]);
    }
}

fn stty(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("stty").args(arguments).stdin(Stdio::inherit()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A line somebody types, unseen.
pub(crate) fn hidden(question: &str) -> Result<String, Failure> {
    let cannot = |why: &str| Failure::invalid(why).hint("give the password with --password-stdin");
    if !std::io::stdin().is_terminal() {
        return Err(cannot("there is no terminal to ask for the password"));
    }
    let mut err = anstream::stderr();
    let _ = write!(err, "{question}").and_then(|()| err.flush());
    let quiet = Hidden::new().ok_or_else(|| cannot("this terminal cannot hide what is typed"))?;
    let typed = line(std::io::stdin().lock().bytes().map_while(Result::ok));
    drop(quiet);
    let _ = writeln!(err);
    typed.ok_or_else(|| Failure::silent(Code::Interrupted))
}

/// As [`hidden`], asked for twice.
pub(crate) fn twice(question: &str) -> Result<String, Failure> {
    let new = hidden(question)?;
    if hidden("Again: ")? != new {
        return Err(Failure::invalid("the two are not the same"));
    }
    Ok(new)
}

/// All of standard input, without the end of its last line.
pub(crate) fn from_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(4096).read_to_string(&mut text);
    read.map_err(|error| Failure::invalid(format!("read the password: {error}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// What was typed before Enter; nothing if it was given up.
fn line(bytes: impl Iterator<Item = u8>) -> Option<String> {
    let mut typed: Vec<u8> = Vec::new();
    for byte in bytes {
        match byte {
            b'\r' | b'\n' => break,
            3 => return None,
            4 if typed.is_empty() => return None,
            8 | 127 => {
                // A letter may be several bytes.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            21 => typed.clear(),
            byte if typed.len() < 4096 => typed.push(byte),
            _ => {}
        }
    }
    Some(String::from_utf8_lossy(&typed).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_can_be_mended_and_given_up() {
        let line = |text: &str| line(text.bytes());
        assert_eq!(line("pass\nmore").as_deref(), Some("pass"));
        assert_eq!(line("paü\x7fss\r").as_deref(), Some("pass"));
        assert_eq!(line("wrong\x15right\n").as_deref(), Some("right"));
        assert_eq!(line("pa\x03"), None);
        assert_eq!(line("\x04"), None);
        assert_eq!(line("\x7f\x7fx\n").as_deref(), Some("x"));
    }
}
