//! Probes of containers.

use std::{net::Ipv4Addr, process::Stdio, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{net::TcpStream, process::Command, time::timeout};

use crate::{
    http::{HttpError, Peer},
    tls,
};

/// What a probe found, each time it looked.
pub struct Prober<'a> {
    pub probe: &'a Probe,
    pub container: &'a Container,
    pub env: &'a std::collections::BTreeMap<String, String>,
}

fn seconds(value: Option<i32>, default: u64, least: u64) -> Duration {
    let seconds = value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default);
    Duration::from_secs(seconds.max(least))
}

impl Prober<'_> {
    pub fn delay(&self) -> Duration {
        seconds(self.probe.initial_delay_seconds, 0, 0)
    }

    pub fn period(&self) -> Duration {
        seconds(self.probe.period_seconds, 10, 1)
    }

    pub fn failures(&self) -> u32 {
        self.probe.failure_threshold.and_then(|value| u32::try_from(value).ok()).unwrap_or(3).max(1)
    }

    fn port(&self, port: &IntOrString) -> Option<u16> {
        match port {
            IntOrString::Int(number) => u16::try_from(*number).ok(),
            IntOrString::String(name) => {
                let ports = self.container.ports.iter().flatten();
                let named = ports.into_iter().find(|port| port.name.as_deref() == Some(name));
                named.and_then(|port| u16::try_from(port.container_port).ok()).or_else(|| name.parse().ok())
            }
        }
    }

    /// Looks once.
    pub async fn check(&self) -> bool {
        let limit = seconds(self.probe.timeout_seconds, 1, 1);
        timeout(limit, self.ask()).await.unwrap_or(false)
    }

    async fn ask(&self) -> bool {
        if let Some(get) = &self.probe.http_get {
            let Some(port) = self.port(&get.port) else { return false };
            let https = get.scheme.as_deref() == Some("HTTPS");
            let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
            let path = get.path.as_deref().unwrap_or("/");
            let url = format!(
                "{}://{}{}{path}",
                if https { "https" } else { "http" },
                crate::address::join(host, port),
                if path.starts_with('/') { "" } else { "/" },
            );
            let tls = if https { tls::client_config(None, None).ok() } else { None };
            return match (Peer { tls, basic: None }).get(&url).await {
                Ok(_) => true,
                // A redirection is an answer.
                Err(HttpError::Refused { status, .. }) => status.is_redirection(),
                Err(_) => false,
            };
        }
        if let Some(socket) = &self.probe.tcp_socket {
            let Some(port) = self.port(&socket.port) else { return false };
            return TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok();
        }
        if let Some(command) = self.probe.exec.as_ref().and_then(|exec| exec.command.as_deref()) {
            let Some((program, args)) = command.split_first() else { return true };
            let mut command = Command::new(program);
            command.args(args).env_clear().envs(self.env).kill_on_drop(true);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            return command.status().await.is_ok_and(|status| status.success());
        }
        // Other kinds cannot be asked here; their containers are taken to be well.
        true
    }
}
