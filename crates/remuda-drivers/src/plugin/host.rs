//! The parent's side of a plugin.

use std::{net::SocketAddr, path::Path, process::Stdio as Pipe, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{process::Command, sync::oneshot, task::JoinSet, time::timeout};

use super::{
    Image, Launch, Timeouts, inherited,
    process::{Output, Process, Stdout},
};
use crate::{
    driver::{Addresses, Config, Driver, Pending, Ssh, State},
    error::{Class, Error, Result},
    flags::{Flag, Flags},
    gob::encode::Body,
    log::Log,
    rpc::{
        OLD_SERVICE, SERVICE,
        client::{CallError, Client},
        codec::Received,
    },
    secret::{Redactor, names_a_secret},
};

/// The protocol version; there has been no other.
const VERSION: i64 = 1;
/// How long a process that lost its connection gets to say how it ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A driver running as a child process. Dropping it ends the process and its children.
#[derive(Debug)]
pub struct Plugin {
    name: String,
    service: &'static str,
    client: Arc<Client>,
    process: Arc<Process>,
    redactor: Redactor,
    timeouts: Timeouts,
    heartbeats: Mutex<JoinSet<()>>,
}

impl Plugin {
    /// Starts the binary and connects to it.
    pub async fn start(launch: Launch, log: Log) -> Result<Self> {
        let Launch { driver, binary, env, image, timeouts } = launch;
        for (name, value) in &env {
            if names_a_secret(name) {
                log.redactor().learn(value);
            }
        }
        let mut command = image.as_ref().map_or_else(|| Command::new(&binary), Image::command);
        // Plugins expect their parent's command line as arguments; ours says nothing about the machine.
        command.arg("remuda").env_clear().envs(inherited()).envs(env).stdin(Pipe::null());
        command.env("MACHINE_PLUGIN_TOKEN", "42").env("MACHINE_PLUGIN_DRIVER_NAME", last_component(&driver));
        let (first, address) = oneshot::channel();
        let redactor = log.redactor().clone();
        let output = Output { log, prefix: format!("({driver}) "), stdout: Stdout::First(first) };
        let (process, _) = Process::spawn(command, output)
            .await
            .map_err(|error| Error::crash(format!("start {}: {error}", binary.display())))?;
        let process = Arc::new(process);

        let address = match timeout(timeouts.start, address).await {
            Ok(Ok(line)) => parse_address(&line).map_err(|error| scrubbed(&redactor, error))?,
            Ok(Err(_)) => {
                let end = process.obituary(LAST_WORDS).await;
                return Err(Error::crash(format!("driver {driver} did not start: {end}")));
            }
            Err(_) => {
                let end = process.obituary(Duration::ZERO).await;
                let waited = timeouts.start.as_secs_f32();
                let message = format!("driver {driver} printed no address within {waited} s: {end}");
                return Err(Error::timeout(message));
            }
        };
        let connected = timeout(timeouts.start, Client::connect(address)).await;
        let mut plugin = Self {
            name: driver,
            service: SERVICE,
            client: match connected {
                Ok(Ok(client)) => Arc::new(client),
                Ok(Err(error)) => return Err(explain(&process, &redactor, "connect", error).await),
                Err(_) => return Err(Error::timeout("driver does not accept its connection")),
            },
            process,
            redactor,
            timeouts,
            heartbeats: Mutex::new(JoinSet::new()),
        };
        plugin.agree_on_version().await?;
        plugin.keep_alive();
        Ok(plugin)
    }

    async fn agree_on_version(&mut self) -> Result<()> {
        let first = self.call("GetVersion", Body::Empty, self.timeouts.start).await;
        let version = match first {
            Err(error) if error.to_string().contains("can't find service") => {
                self.service = OLD_SERVICE;
                self.call("GetVersion", Body::Empty, self.timeouts.start).await?
            }
            other => other?,
        };
        match version.into_int() {
            Ok(VERSION) => Ok(()),
            Ok(other) => {
                Err(Error::other(format!("driver binary uses an incompatible API version ({other})")))
            }
            Err(error) => Err(Error::crash(format!("driver answers GetVersion with nonsense: {error}"))),
        }
    }

    /// Heartbeats run beside every other call. One that fails means nobody will answer any more, and the
    /// process is ended so that calls under way fail too.
    fn keep_alive(&self) {
        let (client, process, timeouts) = (self.client.clone(), self.process.clone(), self.timeouts);
        let method = format!("{}.Heartbeat", self.service);
        self.heartbeats.lock().spawn(async move {
            loop {
                let beat = timeout(timeouts.call, client.call(&method, Body::Empty)).await;
                if !matches!(beat, Ok(Ok(_))) {
                    process.kill();
                    return;
                }
                tokio::time::sleep(timeouts.heartbeat).await;
            }
        });
    }

    async fn call(&self, method: &str, body: Body, patience: Duration) -> Result<Received> {
        let full = format!("{}.{method}", self.service);
        match timeout(patience, self.answer(&full, body)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(explain(&self.process, &self.redactor, method, error).await),
            Err(_) => {
                let waited = patience.as_secs_f32();
                Err(Error::timeout(format!("driver {} did not finish {method} within {waited} s", self.name)))
            }
        }
    }

    /// The reply, or the end of the process: its connection may outlive it in a child of its own.
    async fn answer(&self, method: &str, body: Body) -> Result<Received, CallError> {
        let mut reply = std::pin::pin!(self.client.call(method, body));
        tokio::select! {
            reply = &mut reply => reply,
            _ = self.process.exited() => match timeout(LAST_WORDS, reply).await {
                Ok(reply) => reply,
                Err(_) => Err(CallError::Lost("the process ended".into())),
            },
        }
    }

    async fn act(&self, method: &'static str) -> Result<()> {
        self.call(method, Body::Empty, self.timeouts.work).await.map(drop)
    }

    async fn ask(&self, method: &'static str) -> Result<Received> {
        self.call(method, Body::Empty, self.timeouts.call).await
    }

    async fn text(&self, method: &'static str) -> Result<String> {
        self.ask(method).await?.into_string().map_err(|error| nonsense(method, &error))
    }

    /// As [`text`](Self::text), empty if the plugin does not know.
    async fn text_if_known(&self, method: &'static str) -> Result<String> {
        match self.text(method).await {
            Err(error) if matches!(error.class(), Class::DriverCrash | Class::Timeout) => Err(error),
            Err(_) => Ok(String::new()),
            ok => ok,
        }
    }

    /// Asks the plugin to end, and sees to it.
    pub async fn close(self) {
        self.heartbeats.lock().abort_all();
        let method = format!("{}.Close", self.service);
        let _ = timeout(Duration::from_secs(1), self.client.call(&method, Body::Empty)).await;
        let _ = timeout(Duration::from_secs(1), self.process.exited()).await;
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // The heartbeat task also holds the process and is dropped later.
        self.process.kill();
    }
}

/// Turns a failed call into what a person should read; a lost connection is explained by the process's end.
async fn explain(process: &Process, redactor: &Redactor, method: &str, error: CallError) -> Error {
    let error = match error {
        CallError::Remote(text) if text.is_empty() => Error::other(format!("{method} failed")),
        CallError::Remote(text) => Error::from_text(shorten(&text)),
        CallError::Lost(_) => {
            let end = process.obituary(LAST_WORDS).await;
            Error::crash(format!("driver process ended during {method}: {end}"))
        }
        CallError::Protocol(text) => Error::crash(format!("driver breaks the protocol at {method}: {text}")),
    };
    scrubbed(redactor, error)
}

fn scrubbed(redactor: &Redactor, error: Error) -> Error {
    error.map_message(|text| redactor.scrub(text).into_owned())
}

fn nonsense(method: &str, error: &crate::gob::Error) -> Error {
    Error::crash(format!("driver answers {method} with nonsense: {error}"))
}

/// Keeps what a condition can hold.
fn shorten(text: &str) -> String {
    const LONGEST: usize = 2000;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Reads the first line of a plugin. Only our own machine is believed: the line decides where we connect.
fn parse_address(line: &str) -> Result<SocketAddr> {
    match line.trim().parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(address) => {
            Err(Error::crash(format!("driver listens on {address}, which is not a loopback address")))
        }
        Err(_) => {
            let shown: String = line.chars().take(120).collect();
            Err(Error::crash(format!("driver printed {shown:?} instead of its address")))
        }
    }
}

fn last_component(driver: &str) -> String {
    Path::new(driver)
        .file_name()
        .map_or_else(|| driver.to_owned(), |name| name.to_string_lossy().into_owned())
}

impl Driver for Plugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn flags(&self) -> Pending<'_, Vec<Flag>> {
        Box::pin(async {
            let method = "GetCreateFlags";
            self.ask(method).await?.into_flag_list().map_err(|error| nonsense(method, &error))
        })
    }

    fn load(&self, config: Config) -> Pending<'_, ()> {
        for (name, value) in &config.0 {
            if let Some(text) = value.as_str()
                && names_a_secret(name)
            {
                self.redactor.learn(text);
            }
        }
        let body = Body::Bytes(config.to_json());
        Box::pin(async { self.call("SetConfigRaw", body, self.timeouts.call).await.map(drop) })
    }

    fn config(&self) -> Pending<'_, Config> {
        Box::pin(async {
            let method = "GetConfigRaw";
            let bytes = self.ask(method).await?.into_bytes().map_err(|error| nonsense(method, &error))?;
            Config::from_json(&bytes)
        })
    }

    fn configure(&self, values: Flags) -> Pending<'_, ()> {
        values.teach(&self.redactor);
        let body = Body::FlagValues(values);
        Box::pin(async { self.call("SetConfigFromFlags", body, self.timeouts.call).await.map(drop) })
    }

    fn machine_name(&self) -> Pending<'_, String> {
        Box::pin(self.text("GetMachineName"))
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(self.act("PreCreateCheck"))
    }

    fn create(&self) -> Pending<'_, ()> {
        Box::pin(self.act("Create"))
    }

    fn remove(&self) -> Pending<'_, ()> {
        Box::pin(self.act("Remove"))
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            let number =
                self.ask("GetState").await?.into_int().map_err(|error| nonsense("GetState", &error))?;
            State::from_wire(number)
                .ok_or_else(|| Error::crash(format!("driver reports unknown state {number}")))
        })
    }

    fn addresses(&self) -> Pending<'_, Addresses> {
        Box::pin(async {
            let ip = self.text_if_known("GetIP").await?;
            // Plugins from before IPv6 lack the method.
            let ipv6 = self.text_if_known("GetIPv6").await?;
            let private = self.config().await?.str("PrivateIPAddress").to_owned();
            Ok(Addresses { ip, private, ipv6 })
        })
    }

    fn url(&self) -> Pending<'_, String> {
        Box::pin(self.text("GetURL"))
    }

    fn ssh(&self) -> Pending<'_, Ssh> {
        Box::pin(async {
            let port =
                self.ask("GetSSHPort").await?.into_int().map_err(|error| nonsense("GetSSHPort", &error))?;
            let port =
                u16::try_from(port).map_err(|_| Error::crash(format!("driver reports SSH port {port}")))?;
            Ok(Ssh {
                host: self.text("GetSSHHostname").await?,
                port,
                user: self.text("GetSSHUsername").await?,
                key_path: self.text("GetSSHKeyPath").await?,
            })
        })
    }

    /// docker-machine's drivers start anew and would make a second machine.
    fn resumes(&self) -> bool {
        false
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.act("Start"))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.act("Stop"))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.act("Restart"))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.act("Kill"))
    }

    fn upgrade(&self) -> Pending<'_, ()> {
        Box::pin(self.act("Upgrade"))
    }
}
