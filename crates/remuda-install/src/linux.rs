//! The script that puts the node agent on a Linux machine.
//!
//! The same script is served for people to pipe into a shell and rendered, with a token, into the Secrets
//! machines boot from. Its flags and variables are those of Rancher's, so commands people have keep working.

use std::{borrow::Cow, fmt::Write};

use crate::{STRICT_VERIFY, is_variable};

const INSTALL: &str = include_str!("linux/install.sh");
const UNINSTALL: &str = include_str!("linux/uninstall.sh");

/// What a rendered script is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinuxScript<'a> {
    /// Address of the server.
    pub server_url: &'a str,
    /// Checksum of its certificate authority; see [`ca_checksum`](crate::ca_checksum).
    pub ca_checksum: Option<&'a str>,
    /// Token of one machine whose roles the server knows. `None` for the script people run.
    pub token: Option<&'a str>,
    /// Environment of the agent.
    pub env: &'a [(String, String)],
    /// Trust the pinned authority only, if there is one.
    pub strict: bool,
}

impl LinuxScript<'_> {
    /// The whole script.
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(INSTALL.len() + UNINSTALL.len() + 1024);
        text.push_str("#!/usr/bin/env sh\n");
        let is_given = |name: &str| self.env.iter().any(|(given, value)| given == name && !value.is_empty());
        for (name, value) in self.env {
            if is_variable(name) && !value.is_empty() {
                let _ = writeln!(text, "export {name}={}", single_quoted(value));
            }
        }
        let checksum = self.ca_checksum.filter(|checksum| !checksum.is_empty());
        if !is_given(STRICT_VERIFY) {
            // Without anything to pin, strict verification could only fail.
            let strict = self.strict && checksum.is_some();
            let _ = writeln!(text, "export {STRICT_VERIFY}='{strict}'");
        }
        let server = self.server_url.trim_end_matches('/');
        if server.is_empty() {
            text.push_str("\n\n");
        } else {
            let base = format!("{server}/assets");
            let _ = writeln!(text, "CATTLE_AGENT_BINARY_BASE_URL={}", double_quoted(&base));
            let _ = writeln!(text, "CATTLE_SERVER={}", word(server));
        }
        match checksum {
            Some(checksum) => {
                let _ = writeln!(text, "CATTLE_CA_CHECKSUM={}", double_quoted(checksum));
            }
            None => text.push('\n'),
        }
        match self.token.filter(|token| !token.is_empty()) {
            Some(token) => {
                let _ = writeln!(text, "CATTLE_ROLE_NONE=true\nCATTLE_TOKEN={}", double_quoted(token));
            }
            None => text.push('\n'),
        }
        let (head, tail) = INSTALL.split_once("@UNINSTALL@\n").unwrap_or((INSTALL, ""));
        text.push_str(head);
        text.push_str(UNINSTALL);
        text.push_str(tail);
        text
    }
}

/// The script that takes the agent off again; [`LinuxScript`] brings it along.
pub fn uninstall_script() -> &'static str {
    UNINSTALL
}

fn single_quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// In double quotes, as scripts of the original have it, with everything escaped a shell would look at.
fn double_quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for character in value.chars() {
        if matches!(character, '"' | '\\' | '$' | '`') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
    text
}

/// Bare where that is the same.
fn word(value: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/._-[]%".contains(&byte);
    if value.bytes().all(is_plain) { Cow::Borrowed(value) } else { Cow::Owned(single_quoted(value)) }
}

#[cfg(test)]
mod tests;
