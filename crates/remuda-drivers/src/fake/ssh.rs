//! A small SSH server: one user key, and commands are really run by `sh`, except for what would change the host
//! the tests run on, or somewhere else.
#![allow(clippy::unwrap_used, reason = "a fake that cannot start fails the test")]

use std::{collections::HashMap, process::Stdio, sync::Arc};

use russh::{
    Channel, ChannelId, ChannelMsg,
    keys::{PrivateKey, PublicKey},
    server::{self, Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey},
};
use tokio::{io::AsyncWriteExt, net::TcpListener, task::JoinSet};

/// Makes a program of a command.
pub type Shell = Arc<dyn Fn(&str) -> std::process::Command + Send + Sync>;

pub struct SshServer {
    pub port: u16,
    _tasks: JoinSet<()>,
}

impl SshServer {
    /// Serves with a host key of its own and lets in whoever has `authorized`.
    pub async fn start(authorized: &str) -> Self {
        let (host, _) = crate::keys::generate("host").unwrap();
        Self::start_with(authorized, &host).await
    }

    pub async fn start_with(authorized: &str, host_key: &str) -> Self {
        let shell = |command: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.arg("-c").arg(format!("{HARMLESS}{command}"));
            shell
        };
        Self::start_in(authorized, host_key, Arc::new(shell)).await
    }

    /// Serves somewhere else: commands are run by `shell`.
    pub async fn start_in(authorized: &str, host_key: &str, shell: Shell) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(server::Config {
            keys: vec![PrivateKey::from_openssh(host_key).unwrap()],
            auth_rejection_time: std::time::Duration::from_millis(1),
            ..Default::default()
        });
        let authorized = PublicKey::from_openssh(authorized).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let handler = Handler {
                    authorized: authorized.clone(),
                    channels: HashMap::new(),
                    tasks: JoinSet::new(),
                    shell: shell.clone(),
                };
                let config = config.clone();
                connections.spawn(async move {
                    if let Ok(session) = server::run_stream(config, stream, handler).await {
                        let _ = session.await;
                    }
                });
            }
        });
        Self { port, _tasks: tasks }
    }
}

/// Stands for commands of an administrator.
const HARMLESS: &str = "hostname() { :; }; tee() { cat >/dev/null; }; sudo() { \"$@\"; }\n";

struct Handler {
    authorized: PublicKey,
    channels: HashMap<ChannelId, Channel<Msg>>,
    tasks: JoinSet<()>,
    shell: Shell,
}

impl server::Handler for Handler {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let known = key.public_key.key_data() == self.authorized.key_data();
        Ok(if known { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)?;
        if let Some(channel) = self.channels.remove(&id) {
            let command = (self.shell)(&String::from_utf8_lossy(data));
            self.tasks.spawn(execute(channel, command));
        }
        Ok(())
    }
}

async fn execute(mut channel: Channel<Msg>, command: std::process::Command) {
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take();
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                if let Some(stdin) = &mut stdin {
                    let _ = stdin.write_all(&data).await;
                }
            }
            ChannelMsg::Eof | ChannelMsg::Close => break,
            _ => {}
        }
    }
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let _ = channel.data(&output.stdout[..]).await;
    let _ = channel.extended_data(1, &output.stderr[..]).await;
    let _ = channel.exit_status(output.status.code().unwrap_or(255).cast_unsigned()).await;
    let _ = channel.eof().await;
    let _ = channel.close().await;
}
