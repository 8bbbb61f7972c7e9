//! What people run to register a machine or a cluster.

use remuda_api::management::{AgentEnvVar, ClusterRegistrationTokenStatus};
use remuda_install::ca_checksum;

use crate::settings::Server;

/// Stands for the token wherever a command is shown.
const TOKEN: &str = "{token}";

pub(super) fn fill(
    status: &mut ClusterRegistrationTokenStatus,
    server: &Server,
    cluster: &str,
    environment: &[AgentEnvVar],
) {
    let commands = Commands::new(server, environment);
    status.manifest_url = format!("{}/v3/import/{TOKEN}_{cluster}.yaml", server.url);
    status.command = format!("kubectl apply -f {}", status.manifest_url);
    status.insecure_command = format!("curl --insecure -sfL {} | kubectl apply -f -", status.manifest_url);
    status.node_command = commands.linux("curl -fL");
    status.insecure_node_command = commands.linux("curl --insecure -fL");
    status.windows_node_command = commands.windows("curl.exe -fL");
    status.insecure_windows_node_command = commands.windows("curl.exe --insecure -fL");
}

struct Commands<'a> {
    root: &'a str,
    checksum: String,
    environment: Vec<(&'a str, &'a str)>,
}

impl<'a> Commands<'a> {
    fn new(server: &'a Server, environment: &'a [AgentEnvVar]) -> Self {
        let given =
            environment.iter().filter(|variable| !variable.value.is_empty() && is_name(&variable.name));
        Self {
            root: root(&server.url),
            checksum: ca_checksum(&server.ca),
            environment: given.map(|variable| (variable.name.as_str(), variable.value.as_str())).collect(),
        }
    }

    fn linux(&self, download: &str) -> String {
        let variables = self
            .environment
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\" ", escape(value, SHELL, '\\')));
        let variables: String = variables.collect();
        let checksum = match self.checksum.as_str() {
            "" => String::new(),
            checksum => format!(" --ca-checksum {checksum}"),
        };
        let root = self.root;
        format!(
            "{variables}{download} {root}/system-agent-install.sh | sudo {variables}sh -s - --server {root} \
             --label 'cattle.io/os=linux' --token {TOKEN}{checksum}"
        )
    }

    fn windows(&self, download: &str) -> String {
        let variables = self
            .environment
            .iter()
            .map(|(name, value)| format!("$env:{name}=\"{}\"; ", escape(value, POWERSHELL, '`')));
        let variables: String = variables.collect();
        let checksum = match self.checksum.as_str() {
            "" => String::new(),
            checksum => format!(" -CaChecksum {checksum}"),
        };
        let root = self.root;
        format!(
            "{variables}{download} {root}/wins-agent-install.ps1 -o install.ps1; Set-ExecutionPolicy Bypass -Scope \
             Process -Force; ./install.ps1 -Server {root} -Label 'cattle.io/os=windows' -Token {TOKEN} -Worker{checksum}"
        )
    }
}

/// Names that a shell takes for something else are left out.
fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What ends or is replaced within double quotes, in shells and in PowerShell.
const SHELL: &[char] = &['"', '$', '`', '\\'];
const POWERSHELL: &[char] = &['"', '$', '`'];

/// Keeps a value within its double quotes: who copies a command must not run what is in it.
fn escape(value: &str, special: &[char], with: char) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars().filter(|character| !matches!(character, '\n' | '\r')) {
        if special.contains(&character) {
            escaped.push(with);
        }
        escaped.push(character);
    }
    escaped
}

/// A URL without its path.
fn root(url: &str) -> &str {
    let start = url.find("://").map_or(0, |scheme| scheme + 3);
    url[start..].find('/').map_or(url, |path| &url[..start + path])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(ca: &str, environment: &[(&str, &str)]) -> ClusterRegistrationTokenStatus {
        let server = Server { url: "https://mgr.example.com".into(), ca: ca.into(), ..Server::default() };
        let variable = |(name, value): &(&str, &str)| AgentEnvVar {
            name: (*name).into(),
            value: (*value).into(),
            ..AgentEnvVar::default()
        };
        let environment: Vec<AgentEnvVar> = environment.iter().map(variable).collect();
        let mut status = ClusterRegistrationTokenStatus::default();
        fill(&mut status, &server, "c-m-x", &environment);
        status
    }

    #[test]
    fn commands_are_those_people_know() {
        let status = filled("PEM", &[("HTTPS_PROXY", "http://proxy.corp:3128"), ("EMPTY", "")]);
        let sum = remuda_plan::sha256_hex(b"PEM\n");
        assert_eq!(status.manifest_url, "https://mgr.example.com/v3/import/{token}_c-m-x.yaml");
        assert_eq!(status.command, "kubectl apply -f https://mgr.example.com/v3/import/{token}_c-m-x.yaml");
        assert_eq!(
            status.insecure_command,
            "curl --insecure -sfL https://mgr.example.com/v3/import/{token}_c-m-x.yaml | kubectl apply -f -"
        );
        assert_eq!(
            status.node_command,
            format!(
                "HTTPS_PROXY=\"http://proxy.corp:3128\" curl -fL https://mgr.example.com/system-agent-install.sh | \
                 sudo HTTPS_PROXY=\"http://proxy.corp:3128\" sh -s - --server https://mgr.example.com \
                 --label 'cattle.io/os=linux' --token {{token}} --ca-checksum {sum}"
            )
        );
        assert_eq!(
            status.windows_node_command,
            format!(
                "$env:HTTPS_PROXY=\"http://proxy.corp:3128\"; curl.exe -fL \
                 https://mgr.example.com/wins-agent-install.ps1 -o install.ps1; Set-ExecutionPolicy Bypass -Scope \
                 Process -Force; ./install.ps1 -Server https://mgr.example.com -Label 'cattle.io/os=windows' \
                 -Token {{token}} -Worker -CaChecksum {sum}"
            )
        );
        let plain = filled("", &[]);
        assert_eq!(
            plain.insecure_node_command,
            "curl --insecure -fL https://mgr.example.com/system-agent-install.sh | sudo sh -s - \
             --server https://mgr.example.com --label 'cattle.io/os=linux' --token {token}"
        );
    }

    #[test]
    fn values_stay_within_their_quotes() {
        let status = filled("", &[("A", "x\" $(id) `id` \\"), ("B;id", "x")]);
        assert!(status.node_command.starts_with("A=\"x\\\" \\$(id) \\`id\\` \\\\\" curl -fL"));
        assert!(status.windows_node_command.starts_with("$env:A=\"x`\" `$(id) ``id`` \\\"; curl.exe"));
    }

    #[test]
    fn a_root_has_no_path() {
        assert_eq!(root("https://a:1/b/c"), "https://a:1");
        assert_eq!(root("https://a"), "https://a");
        assert_eq!(root(""), "");
    }
}
