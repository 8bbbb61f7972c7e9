//! Drivers anybody can write: a program that is run once per operation. `samples/directory.sh` is a whole one.
//!
//! # The protocol, `remuda.io/exec/v1`
//!
//! The program gets the **method** as its only argument: `flags`, `pre-create-check`, `create`, `status`,
//! `start`, `stop`, `restart`, `kill`, `upgrade`, `remove` or `list`. On standard input it gets one JSON object:
//!
//! ```json
//! {"protocol": "remuda.io/exec/v1", "method": "create",
//!  "machine": {"name": "demo-1", "id": "4f2c…", "storePath": "/var/lib/…", "keyPath": "/var/lib/…/id_rsa"},
//!  "flags": {"demo-size": "small", "demo-port": 22, "demo-ipv6": true, "demo-tag": ["a", "b"]},
//!  "state": {"server": "17"}}
//! ```
//!
//! and, so that a shell script need not read JSON, the same in variables: `REMUDA_METHOD`, `REMUDA_MACHINE`,
//! `REMUDA_ID`, `REMUDA_STORE`, `REMUDA_KEY`, `REMUDA_FLAG_<NAME>` for every flag (`demo-ssh-user` of driver
//! `demo` is `REMUDA_FLAG_SSH_USER`; lists are joined by commas) and `REMUDA_STATE_<KEY>` for every text,
//! number or boolean of the state.
//!
//! On standard output it writes JSON objects, one per line, with any of these fields:
//!
//! | field | meaning |
//! |---|---|
//! | `flags` | the driver's flags: `[{"name", "type", "default", "usage", "env", "place"}]`, type `string`, `int`, `bool` or `list`; names begin with the driver's; `place: true` for those that `list` needs |
//! | `state` | remembered for later calls, field by field; `null` forgets one. Recorded at once, also if the call fails later |
//! | `addresses` | `{"ip", "private", "ipv6"}`, recorded |
//! | `ssh` | `{"host", "port", "user", "keyPath"}`, recorded; the host is the address if not given |
//! | `status` | `Running`, `Stopped`, `Starting`, `Stopping`, `Paused`, `Error` or `Not Found` |
//! | `machines` | what there is, for `list`: `[{"id", "name", "server", "kind"}]`, where `id` is the `REMUDA_ID` a machine was made with, and `server` is what the provider calls it. Lists of several lines add up |
//! | `log` | a line for the log |
//! | `error` | `{"class", "message"}`: the call failed; class `quota`, `credentials`, `image`, `network`, `timeout` or `other` |
//!
//! Other lines, and everything on standard error, go to the log. Exit status 0 without an `error` is success,
//! 64 means "no such method", anything else failure, explained by the last lines of output.
//!
//! `REMUDA_ID` is recorded before `create` runs. Whatever is made must be findable by it, because `create`
//! and `remove` may be run again after any interruption, with no more than the first record.
//!
//! `list` is for `remuda machine orphans` and may be left out. It is about no machine, so it gets flags and nothing
//! else, and says what the provider has that was made with any `REMUDA_ID`.

mod said;

use std::{collections::BTreeMap, path::PathBuf, process::Stdio as Pipe, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::{io::AsyncWriteExt, process::Command, sync::mpsc, time::timeout};

use self::said::{Said, SaidFlag, SaidMachine};
use crate::{
    builtin::identity,
    driver::{Base, Config, Driver, Hidden, Owned, Pending, Ssh, State, from_config, to_config},
    error::{Class, Error, Result},
    flags::{Flag, Flags, Value},
    keys,
    log::Log,
    plugin::{
        Image, Timeouts, inherited,
        process::{Output, Process, Stdout},
    },
    secret::names_a_secret,
};

/// The method that is about no machine.
const LIST: &str = "list";
/// What a script says it does not know.
const NO_SUCH_METHOD: i32 = 64;
/// How long output is waited for after the program's end.
const DRAIN: Duration = Duration::from_millis(500);
/// Flags and state beyond this are not believed.
const MOST: usize = 1000;
/// Nor are longer lists of machines.
const MOST_MACHINES: usize = 100_000;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    #[serde(rename = "PrivateIPAddress")]
    private_ip_address: String,
    flags: Hidden,
    state: Hidden,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
}

/// What a call of the script came to, beside what it recorded.
#[derive(Default)]
struct Outcome {
    flags: Option<Vec<SaidFlag>>,
    machines: Vec<SaidMachine>,
    status: Option<String>,
    error: Option<Error>,
}

/// A driver that is a program; see the module.
#[derive(Debug)]
pub struct Exec {
    name: String,
    program: PathBuf,
    image: Option<Image>,
    /// Added to the environment of the program.
    environment: Vec<(String, String)>,
    log: Log,
    timeouts: Timeouts,
    record: Mutex<Record>,
    /// Flags that say where machines are, as soon as it was asked for flags.
    places: Mutex<Vec<String>>,
}

impl Exec {
    /// A driver of that name. The program is not run before it is needed.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, log: Log) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            image: None,
            environment: Vec::new(),
            log,
            timeouts: Timeouts::default(),
            record: Mutex::default(),
            places: Mutex::default(),
        }
    }

    /// Runs the program where its path cannot be entered.
    #[must_use]
    pub fn with_image(mut self, image: Option<Image>) -> Self {
        self.image = image;
        self
    }

    /// Adds to the environment of the program.
    #[must_use]
    pub fn with_environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.environment = environment;
        self
    }

    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    async fn run(&self, method: &str, patience: Duration) -> Result<Outcome> {
        let mut record = self.record.lock().clone();
        if method == LIST {
            record = Record { flags: record.flags, ..Record::default() };
        }
        let mut command = self.image.as_ref().map_or_else(|| Command::new(&self.program), Image::command);
        command.arg(method).env_clear().envs(inherited()).stdin(Pipe::piped());
        command.envs(self.environment.iter().cloned()).envs(self.variables(method, &record));
        let (sender, lines) = mpsc::channel(16);
        let output = Output {
            log: self.log.clone(),
            prefix: format!("({}) ", self.name),
            stdout: Stdout::Lines(sender),
        };
        let failed =
            |error: std::io::Error| Error::crash(format!("start {}: {error}", self.program.display()));
        let (process, stdin) = Process::spawn(command, output).await.map_err(failed)?;
        let request = json!({
            "protocol": "remuda.io/exec/v1",
            "method": method,
            "machine": {
                "name": record.base.machine_name,
                "id": record.remuda_id,
                "storePath": record.base.store_path,
                "keyPath": record.base.key_path(),
            },
            "flags": record.flags.0,
            "state": record.state.0,
        });
        let finished = timeout(patience, async {
            let mut outcome = Outcome::default();
            let feed = async {
                // A script that does not read its input is fine.
                if let Some(mut stdin) = stdin {
                    let _ = stdin.write_all(format!("{request}\n").as_bytes()).await;
                }
            };
            let heard = {
                let talk = async { tokio::join!(feed, self.listen(lines, &mut outcome)).1 };
                let mut talk = std::pin::pin!(talk);
                tokio::select! {
                    heard = &mut talk => heard,
                    // Something it left behind may hold its output open.
                    _ = process.exited() => timeout(DRAIN, talk).await.unwrap_or(Ok(())),
                }
            };
            (heard.map(|()| outcome), process.exited().await)
        });
        let Ok((outcome, status)) = finished.await else {
            let waited = patience.as_secs_f32();
            return Err(Error::timeout(format!(
                "driver {} did not finish {method} within {waited} s",
                self.name
            )));
        };
        let outcome = outcome?;
        if let Some(error) = outcome.error {
            return Err(error);
        }
        match status?.code() {
            Some(0) => Ok(outcome),
            Some(NO_SUCH_METHOD) => Err(Error::unsupported(format!("driver {} has no {method}", self.name))),
            code => {
                let end = process.obituary(Duration::from_millis(100)).await;
                let text = format!("driver {} failed at {method}: {end}", self.name);
                // Killed by a signal is a crash; an exit status is the script's own word.
                Err(if code.is_none() { Error::crash(text) } else { Error::from_text(text) })
            }
        }
    }

    async fn listen(&self, mut lines: mpsc::Receiver<String>, outcome: &mut Outcome) -> Result<()> {
        while let Some(line) = lines.recv().await {
            let said: Said = match serde_json::from_str(&line) {
                Ok(said) => said,
                Err(_) if line.trim_start().starts_with('{') => {
                    return Err(Error::crash(format!("driver {} wrote a line of the wrong form", self.name)));
                }
                Err(_) => {
                    self.log.info(format!("({}) {line}", self.name));
                    continue;
                }
            };
            self.take(said, outcome)?;
        }
        Ok(())
    }

    fn take(&self, said: Said, outcome: &mut Outcome) -> Result<()> {
        if let Some(text) = said.log {
            self.log.info(format!("({}) {text}", self.name));
        }
        let mut record = self.record.lock();
        for (key, value) in said.state.into_iter().flatten() {
            if let Some(text) = value.as_str()
                && names_a_secret(&key)
            {
                self.log.redactor().learn(text);
            }
            if value.is_null() {
                record.state.0.remove(&key);
            } else if record.state.0.len() < MOST {
                record.state.0.insert(key, value);
            } else {
                return Err(Error::crash(format!("driver {} remembers too much", self.name)));
            }
        }
        if let Some(addresses) = said.addresses {
            let set =
                |to: &mut String, from: Option<String>| *to = from.unwrap_or_else(|| std::mem::take(to));
            set(&mut record.base.ip_address, addresses.ip);
            set(&mut record.private_ip_address, addresses.private);
            set(&mut record.base.ipv6_address, addresses.ipv6);
        }
        if let Some(ssh) = said.ssh {
            let base = &mut record.base;
            base.ssh_port = ssh.port.unwrap_or(base.ssh_port);
            if let Some(user) = ssh.user {
                base.ssh_user = user;
            }
            if let Some(path) = ssh.key_path {
                base.ssh_key_path = path;
            }
            if let Some(host) = ssh.host {
                record.state.0.insert("sshHost".into(), host.into());
            }
        }
        drop(record);
        outcome.flags = said.flags.or(outcome.flags.take());
        outcome.status = said.status.or(outcome.status.take());
        outcome.machines.extend(said.machines.into_iter().flatten());
        if outcome.machines.len() > MOST_MACHINES {
            return Err(Error::crash(format!("driver {} lists too many machines", self.name)));
        }
        if let Some(error) = said.error {
            let text = if error.message.is_empty() { "the driver failed" } else { &error.message };
            let text: String = self.log.redactor().scrub(text).chars().take(2000).collect();
            outcome.error = Some(match Class::parse(&error.class) {
                Class::Other => Error::from_text(text),
                class => Error::new(class, text),
            });
        }
        Ok(())
    }

    fn variables(&self, method: &str, record: &Record) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([
            ("REMUDA_METHOD".to_owned(), method.to_owned()),
            ("REMUDA_MACHINE".to_owned(), record.base.machine_name.clone()),
            ("REMUDA_ID".to_owned(), record.remuda_id.clone()),
            ("REMUDA_STORE".to_owned(), record.base.store_path.clone()),
            ("REMUDA_KEY".to_owned(), record.base.key_path()),
        ]);
        let prefix = format!("{}-", self.name);
        for (name, value) in &record.flags.0 {
            let short = name.strip_prefix(&prefix).unwrap_or(name);
            all.extend(variable("REMUDA_FLAG_", short, value));
        }
        for (name, value) in &record.state.0 {
            all.extend(variable("REMUDA_STATE_", name, value));
        }
        all
    }

    async fn act(&self, method: &'static str) -> Result<()> {
        self.run(method, self.timeouts.work).await.map(drop)
    }
}

/// A variable for a value; nothing for what has no plain text.
fn variable(prefix: &str, name: &str, value: &Json) -> Option<(String, String)> {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        Json::Bool(yes) => yes.to_string(),
        Json::Array(items) => items.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(","),
        Json::Null | Json::Object(_) => return None,
    };
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    // The system's own limits on variables; a longer value is still on standard input.
    let fits = name.len() < 200 && text.len() < 100_000 && !text.contains('\0');
    fits.then(|| (format!("{prefix}{}", name.chars().map(letter).collect::<String>()), text))
}

impl Driver for Exec {
    fn name(&self) -> &str {
        &self.name
    }

    fn flags(&self) -> Pending<'_, Vec<Flag>> {
        Box::pin(async {
            let flags = self.run("flags", self.timeouts.call).await?.flags.unwrap_or_default();
            if flags.len() > MOST {
                return Err(Error::other(format!("driver {} has too many flags", self.name)));
            }
            let places = flags.iter().filter(|flag| flag.place).map(|flag| flag.name.clone()).collect();
            *self.places.lock() = places;
            flags.into_iter().map(|said| said::flag(&self.name, said)).collect()
        })
    }

    fn load(&self, config: Config) -> Pending<'_, ()> {
        Box::pin(async {
            let mut record = self.record.lock();
            *record = from_config(&*record, config)?;
            for (name, value) in record.flags.0.iter().chain(&record.state.0) {
                if let Some(text) = value.as_str()
                    && names_a_secret(name)
                {
                    self.log.redactor().learn(text);
                }
            }
            Ok(())
        })
    }

    fn config(&self) -> Pending<'_, Config> {
        Box::pin(async { Ok(to_config(&*self.record.lock())) })
    }

    fn configure(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            values.teach(self.log.redactor());
            let prefix = format!("{}-", self.name);
            let mut record = self.record.lock();
            record.flags.0 = values
                .iter()
                .filter(|(name, _)| name.starts_with(&prefix))
                .map(|(name, value)| {
                    let value = match value {
                        Value::String(text) => text.as_str().into(),
                        Value::Int(number) => (*number).into(),
                        Value::Bool(yes) => (*yes).into(),
                        Value::List(items) => items.clone().into(),
                    };
                    (name.to_owned(), value)
                })
                .collect();
            if record.remuda_id.is_empty() {
                record.remuda_id = identity();
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.record.lock().base.check_name()?;
            match self.run("pre-create-check", self.timeouts.call).await {
                Err(error) if !error.is_unsupported() => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn create(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let base = self.record.lock().base.clone();
            base.check_name()?;
            if self.record.lock().remuda_id.is_empty() {
                return Err(Error::other("the machine has not been configured"));
            }
            keys::ensure(&base.key_path(), &base.machine_name).await?;
            self.act("create").await
        })
    }

    fn remove(&self) -> Pending<'_, ()> {
        Box::pin(self.act("remove"))
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            let status = self.run("status", self.timeouts.call).await?.status.unwrap_or_default();
            let state = State::parse(&status)
                .ok_or_else(|| Error::crash(format!("driver {} reports an unknown status", self.name)))?;
            if state == State::NotFound {
                let name = self.record.lock().base.machine_name.clone();
                return Err(Error::not_found(format!("machine {name} not found")));
            }
            Ok(state)
        })
    }

    fn ssh(&self) -> Pending<'_, Ssh> {
        Box::pin(async {
            let facts = self.config().await?.ssh();
            let record = self.record.lock();
            Ok(match record.state.0.get("sshHost").and_then(Json::as_str) {
                Some(host) => Ssh { host: host.to_owned(), ..facts },
                None => facts,
            })
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.act("start"))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.act("stop"))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.act("restart"))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.act("kill"))
    }

    fn upgrade(&self) -> Pending<'_, ()> {
        Box::pin(self.act("upgrade"))
    }

    fn places(&self) -> Vec<String> {
        self.places.lock().clone()
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(async {
            let listed = self.run(LIST, self.timeouts.work).await;
            let listed = listed.map_err(|error| match error.is_unsupported() {
                true => Error::unsupported(format!(
                    "driver {} has no method {LIST}, so its machines cannot be listed",
                    self.name
                )),
                false => error,
            })?;
            Ok(listed.machines.into_iter().filter_map(said::owned).collect())
        })
    }
}
