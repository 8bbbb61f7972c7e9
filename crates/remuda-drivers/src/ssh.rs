//! Logging in to machines: run a command with its output streamed, put a file in place.
//!
//! Only keys are used, no passwords and no agent; nothing is forwarded in either direction. The host's key is
//! taken on trust at first contact and must be the same ever after: keep [`Session::host_key`] and give it
//! back as [`Target::host_key`].

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc, time::Duration};

use parking_lot::Mutex;
use russh::{
    Channel, ChannelMsg,
    client::{self, ChannelOpenHandle, Handle, Msg},
    keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate},
};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    driver::Ssh,
    error::{Class, Error, Result},
    log::Log,
    secret::Secret,
};

/// Where and as whom to log in.
#[derive(Debug, Clone)]
pub struct Target {
    pub host: String,
    pub port: u16,
    pub user: String,
    /// The private key, in OpenSSH's or PEM form.
    pub key: Secret,
    /// The host's key, as a line of `known_hosts` has it; empty before first contact.
    pub host_key: String,
    /// For connection and login together.
    pub patience: Duration,
}

impl Target {
    /// The target of a driver's facts, with the key read from its file.
    pub fn new(ssh: &Ssh, host_key: &str) -> Result<Self> {
        let key = std::fs::read_to_string(&ssh.key_path)
            .map_err(|error| Error::other(format!("read SSH key {}: {error}", ssh.key_path)))?;
        Ok(Self {
            host: ssh.host.clone(),
            port: ssh.port,
            user: ssh.user.clone(),
            key: Secret::new(key),
            host_key: host_key.to_owned(),
            patience: Duration::from_secs(30),
        })
    }
}

/// A machine one is logged in to. Dropping it hangs up.
pub struct Session {
    handle: Handle<Client>,
    host_key: String,
    place: String,
}

/// Where a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

impl Session {
    pub async fn connect(target: &Target) -> Result<Self> {
        let place = format!("{}@{}:{}", target.user, target.host, target.port);
        match timeout(target.patience, open(target, &place)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let waited = target.patience.as_secs();
                Err(Error::timeout(format!("SSH to {place} did not answer within {waited} s")))
            }
        }
    }

    /// The host's key, to be remembered.
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// Runs a command, feeds it `input`, hands its output on as it comes, and gives its exit status.
    pub async fn run(
        &self,
        command: &str,
        input: &[u8],
        patience: Duration,
        mut output: impl FnMut(Stream, &[u8]),
    ) -> Result<u32> {
        let work = async {
            let channel = self.handle.channel_open_session().await.map_err(|error| self.lost(&error))?;
            channel.exec(true, command).await.map_err(|error| self.lost(&error))?;
            let (mut read, write) = channel.split();
            let feed = async {
                // A command may end without reading its input.
                let _ = write.data(input).await;
                let _ = write.eof().await;
            };
            let listen = async {
                let mut status = None;
                // The status may come before the last of the output.
                while let Some(message) = read.wait().await {
                    match message {
                        ChannelMsg::Data { data } => output(Stream::Out, &data),
                        ChannelMsg::ExtendedData { data, .. } => output(Stream::Err, &data),
                        ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
                        ChannelMsg::ExitSignal { .. } => status = Some(255),
                        ChannelMsg::Failure => {
                            return Err(Error::other(format!("{} runs no commands", self.place)));
                        }
                        _ => {}
                    }
                }
                status.ok_or_else(|| Error::network(format!("connection to {} was lost", self.place)))
            };
            let mut feed = std::pin::pin!(feed);
            let mut listen = std::pin::pin!(listen);
            tokio::select! {
                status = &mut listen => status,
                () = &mut feed => listen.await,
            }
        };
        match timeout(patience, work).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let (place, waited) = (&self.place, patience.as_secs_f32());
                Err(Error::timeout(format!("a command on {place} did not end within {waited} s")))
            }
        }
    }

    /// Runs a command with its output in the log; any exit status but 0 is an error.
    pub async fn run_logged(&self, command: &str, input: &[u8], patience: Duration, log: &Log) -> Result<()> {
        let mut lines = LineLog { log, pending: [Vec::new(), Vec::new()], last: String::new() };
        let status = self.run(command, input, patience, |stream, data| lines.take(stream, data)).await;
        lines.finish();
        match status? {
            0 => Ok(()),
            status => {
                let last = log.redactor().scrub(&lines.last).into_owned();
                Err(Error::from_text(format!(
                    "a command on {} ended with status {status}: {last}",
                    self.place
                )))
            }
        }
    }

    /// Puts a file in place, at once or not at all. The content travels as input, not on a command line.
    pub async fn upload(&self, content: &[u8], path: &str, mode: u32, patience: Duration) -> Result<()> {
        let (path, new) = (quote(path), quote(&format!("{path}.new")));
        let command = format!("umask 077 && cat > {new} && chmod {mode:o} {new} && mv -f {new} {path}");
        let mut said = Vec::new();
        let status = self
            .run(&command, content, patience, |_, data| {
                let room = 500usize.saturating_sub(said.len());
                said.extend_from_slice(&data[..data.len().min(room)]);
            })
            .await?;
        if status == 0 {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        Err(Error::other(format!("write {path} on {}: {}", self.place, said.trim())))
    }

    fn lost(&self, error: &russh::Error) -> Error {
        Error::network(format!("SSH to {}: {error}", self.place))
    }
}

/// A word for a POSIX shell, whatever is in it.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

async fn open(target: &Target, place: &str) -> Result<Session> {
    let lost = |error: russh::Error| Error::network(format!("SSH to {place}: {error}"));
    // The parser's message could quote the key.
    let key = russh::keys::decode_secret_key(target.key.expose(), None)
        .map_err(|_| Error::new(Class::Credentials, format!("the SSH key for {place} cannot be read")))?;
    let pinned = match target.host_key.as_str() {
        "" => None,
        text => Some(
            PublicKey::from_openssh(text)
                .map_err(|_| Error::other(format!("the recorded host key of {place} cannot be read")))?,
        ),
    };
    let stream = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(|error| Error::network(format!("connect to {place}: {error}")))?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let handler = Client { pinned: pinned.clone(), seen: seen.clone() };
    let mut config = client::Config {
        nodelay: true,
        keepalive_interval: Some(Duration::from_secs(15)),
        keepalive_max: 3,
        ..client::Config::default()
    };
    if let Some(pinned) = &pinned {
        // A host has several keys; ask for the one we know.
        config.preferred.key = Cow::Owned(algorithms(pinned));
    }
    let connected = client::connect_stream(Arc::new(config), stream, handler).await;
    let refused = seen.lock().refused.take();
    if let Some(found) = refused {
        let known = pinned.map(|key| fingerprint(&key)).unwrap_or_default();
        return Err(Error::host_key_changed(format!(
            "the host key of {place} has changed: known is {known}, found {found}; it may not be the same machine"
        )));
    }
    let mut handle = connected.map_err(lost)?;
    login(&mut handle, &target.user, key)
        .await
        .map_err(lost)?
        .then_some(())
        .ok_or_else(|| Error::new(Class::Credentials, format!("SSH to {place}: the key is not accepted")))?;
    let host_key = seen.lock().key.take().unwrap_or_default();
    Ok(Session { handle, host_key, place: place.to_owned() })
}

async fn login(handle: &mut Handle<Client>, user: &str, key: PrivateKey) -> Result<bool, russh::Error> {
    // RSA keys are used with SHA-2 where the host can.
    let hash =
        if key.algorithm().is_rsa() { handle.best_supported_rsa_hash().await?.flatten() } else { None };
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
    Ok(handle.authenticate_publickey(user, key).await?.success())
}

fn algorithms(key: &PublicKey) -> Vec<Algorithm> {
    match key.algorithm() {
        Algorithm::Rsa { .. } => vec![
            Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
            Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
        ],
        other => vec![other],
    }
}

fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

#[derive(Default)]
struct Seen {
    key: Option<String>,
    /// The fingerprint of a key that was not the known one.
    refused: Option<String>,
}

struct Client {
    pinned: Option<PublicKey>,
    seen: Arc<Mutex<Seen>>,
}

type Answer = Result<(), russh::Error>;

/// The library accepts channels a host opens to us unless told not to. We want none: dropping the reply
/// refuses.
impl client::Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let key = key.public_key();
        let known = self.pinned.as_ref().is_none_or(|pinned| pinned.key_data() == key.key_data());
        let mut seen = self.seen.lock();
        if known {
            seen.key = key.to_openssh().ok();
        } else {
            seen.refused = Some(fingerprint(&key));
        }
        Ok(known)
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Answer {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Answer {
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Answer {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Answer {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Answer {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Answer {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Answer {
        Ok(())
    }
}

/// Output cut into lines of bounded length.
struct LineLog<'a> {
    log: &'a Log,
    pending: [Vec<u8>; 2],
    last: String,
}

impl LineLog<'_> {
    const LINE: usize = 4 << 10;

    fn take(&mut self, stream: Stream, data: &[u8]) {
        let slot = usize::from(stream == Stream::Err);
        for byte in data {
            if *byte == b'\n' {
                self.flush(slot);
            } else if self.pending[slot].len() < Self::LINE {
                self.pending[slot].push(*byte);
            }
        }
    }

    fn flush(&mut self, slot: usize) {
        let text = String::from_utf8_lossy(&self.pending[slot]).trim_end().to_owned();
        self.pending[slot].clear();
        self.log.info(&text);
        if !text.is_empty() {
            self.last = text.chars().take(300).collect();
        }
    }

    fn finish(&mut self) {
        for slot in 0..2 {
            if !self.pending[slot].is_empty() {
                self.flush(slot);
            }
        }
    }
}
