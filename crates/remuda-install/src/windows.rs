//! The script that puts the node agent on a Windows machine.

use std::fmt::Write;

use crate::{STRICT_VERIFY, is_variable};

const INSTALL: &str = include_str!("windows/install.ps1");

/// What a rendered script is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct WindowsScript<'a> {
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
    /// Data directory of the distribution, where its kubelet is.
    pub data_dir: &'a str,
    /// Where the CSI proxy is downloaded from; empty for none.
    pub csi_proxy_url: &'a str,
    /// Version of the CSI proxy.
    pub csi_proxy_version: &'a str,
}

impl WindowsScript<'_> {
    /// The whole script.
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(INSTALL.len() + 1024);
        // Parameters must be the first thing in a script; what this one is told comes after.
        text.push_str(INSTALL);
        let is_given = |name: &str| self.env.iter().any(|(given, value)| given == name && !value.is_empty());
        for (name, value) in self.env {
            if is_variable(name) && !value.is_empty() {
                let _ = writeln!(text, "$env:{name}={}", quoted(value));
            }
        }
        let mut set = |name: &str, value: &str| {
            if !value.is_empty() {
                let _ = writeln!(text, "$env:{name}={}", quoted(value));
            }
        };
        let server = self.server_url.trim_end_matches('/');
        if !server.is_empty() {
            set("CATTLE_AGENT_BINARY_BASE_URL", &format!("{server}/assets"));
            set(remuda_names::cluster_agent::env::SERVER, server);
        }
        set(remuda_names::cluster_agent::env::CA_CHECKSUM, self.ca_checksum.unwrap_or_default());
        let token = self.token.unwrap_or_default();
        set(remuda_names::cluster_agent::env::TOKEN, token);
        if !self.csi_proxy_url.is_empty() {
            let version = self.csi_proxy_version;
            set("CSI_PROXY_URL", self.csi_proxy_url);
            set("CSI_PROXY_VERSION", if version.is_empty() { "v1.0.0" } else { version });
            set("CSI_PROXY_KUBELET_PATH", &format!("C:{}/bin/kubelet.exe", self.data_dir));
        }
        if !is_given(STRICT_VERIFY) {
            let strict = self.strict && self.ca_checksum.is_some_and(|checksum| !checksum.is_empty());
            set(STRICT_VERIFY, if strict { "true" } else { "false" });
        }
        if !token.is_empty() {
            set("CATTLE_ROLE_NONE", "true");
        }
        text.push_str("Invoke-WinsInstaller @PSBoundParameters\nexit 0\n");
        text
    }
}

/// In double quotes; a backtick takes away the meaning of what follows.
fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for character in value.chars() {
        match character {
            '\n' => text.push_str("`n"),
            '\r' => text.push_str("`r"),
            // PowerShell takes typographic quotes for quotes.
            '"' | '`' | '$' | '\u{201c}' | '\u{201d}' | '\u{201e}' => {
                text.push('`');
                text.push(character);
            }
            _ => text.push(character),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_values() {
        assert_eq!(quoted("a$b`c\"d\u{201d}\n"), "\"a`$b``c`\"d`\u{201d}`n\"");
    }

    #[test]
    fn what_the_script_is_told_comes_after_its_functions_and_before_the_call() {
        let env = [("HTTP_PROXY".to_owned(), "http://p".to_owned()), ("bad name".to_owned(), "x".to_owned())];
        let script = WindowsScript {
            server_url: "https://s",
            ca_checksum: Some("abc"),
            token: Some("t"),
            env: &env,
            strict: true,
            ..WindowsScript::default()
        };
        let text = script.render();
        let (_, tail) = text.split_once(INSTALL).unwrap();
        assert_eq!(
            tail,
            "$env:HTTP_PROXY=\"http://p\"\n$env:CATTLE_AGENT_BINARY_BASE_URL=\"https://s/assets\"\n\
             $env:CATTLE_SERVER=\"https://s\"\n$env:CATTLE_CA_CHECKSUM=\"abc\"\n$env:CATTLE_TOKEN=\"t\"\n\
             $env:STRICT_VERIFY=\"true\"\n$env:CATTLE_ROLE_NONE=\"true\"\n\
             Invoke-WinsInstaller @PSBoundParameters\nexit 0\n"
        );
    }
}
