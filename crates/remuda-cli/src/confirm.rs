//! Asks before something is done that cannot be undone.

use std::io::{self, BufRead, IsTerminal};

use crate::{
    failure::{Code, Failure},
    output,
};

/// Goes on if the person says so. Without a terminal there is no prompt: `--yes` has to be given.
pub fn confirm(doing: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::invalid(format!("this {doing}")).hint("say --yes to mean it"));
    }
    output::note(&format!("This {doing}. Type yes to go on:"));
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "yes" | "y" => Ok(()),
        _ => Err(Failure::new(Code::Interrupted, "nothing was done")),
    }
}

/// `1 cluster`, `3 clusters`.
pub fn counted(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}
