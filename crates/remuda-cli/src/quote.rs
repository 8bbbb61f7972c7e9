//! Words for shells.

/// One word for a shell, whatever is in it.
pub(crate) fn quote(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    match text.is_empty() || !text.chars().all(plain) {
        true => format!("'{}'", text.replace('\'', r"'\''")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in ["", "plain", "a b", "it's", "$(reboot)", "`x`", "a\nb", "\\", "*", "~", "!", "ä"] {
            let script = format!("printf %s {}", quote(text));
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
