//! Making, starting, stopping and removing machines.
//!
//! The rules that make every interruption harmless:
//!
//! - A machine's record is written before anything is made of it, and marked before anything is removed.
//! - Whoever starts processes of a machine holds its work lock and hands it on to them. Whoever gets the lock
//!   later knows that no half-started process is left.
//! - A machine's first process holds a life lock. Whoever looks there finds it, and kills it by the process
//!   id the kernel names. Its end ends all its processes, mounts and interfaces: they exist in its namespaces
//!   only, nothing is ever mounted or connected on the host.
//! - Records are changed, addresses chosen and the hub started and ended under one lock per data directory.
//!
//! Everything here blocks; [`crate::driver`] calls it from threads that may.

use std::{
    fmt, fs,
    io::Write,
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::unistd::Pid;

use crate::{
    cgroup,
    cloud::UserData,
    control::short,
    error::{Error, Result, chain},
    init::bootstrap,
    lock::{Life, Work},
    place::{
        Home, Hub, NETWORK, PREFIX, Place, RELAY, Record, UNFINISHED, append_to, list, make_dir, read_json,
        remove_tree, replace, write_json,
    },
    seed,
    server::{PUBLISHED, ServerAddress, url_in_script},
    stage::{COMMAND, HUB, ISOLATED, dial, users},
    volume::Volume,
};

mod process;
mod seen;

use process::{end_life, last_words, read_own, replace_own, word};

pub use crate::init::bootstrap::Bootstrap;

/// A machine's names of all machines.
const HOSTS: &str = "etc/hosts";

/// A machine's start takes a fraction of a second; more than this and something hangs.
const START: Duration = Duration::from_secs(30);
/// How long one waits for others who are at work.
const TURN: Duration = Duration::from_secs(60);
/// A machine that is asked to stop has this long before it is killed.
const STOP: Duration = Duration::from_secs(30);

/// Where local machines live and what they are made with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's data directory.
    pub data_dir: PathBuf,
    /// The program that runs the stages: `remuda` itself. Each machine has it at `/opt/remuda/remuda`.
    pub program: PathBuf,
    /// Installer images that machines find beside those in `<data-dir>/sandbox/images`, which win.
    pub images: Images,
    /// Whether new machines of root are the host's root inside, with its devices, as a real distribution needs.
    /// Otherwise their users have no rights on the host.
    pub privileged: bool,
}

/// Installer images, made when a machine needs them.
#[derive(Clone)]
pub struct Images(pub Arc<dyn Fn() -> Vec<Image> + Send + Sync>);

impl Default for Images {
    fn default() -> Self {
        Self(Arc::new(Vec::new))
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Images")
    }
}

/// An installer image.
#[derive(Debug, Clone)]
pub struct Image {
    /// The tarball's file name; it must end in `.tar` or another ending the agent knows.
    pub file: String,
    pub bytes: Vec<u8>,
}

/// What a new machine is made from.
#[derive(Debug, Clone, Default)]
pub struct NewMachine {
    /// Identifies it for ever: letters, digits and `-`.
    pub id: String,
    pub name: String,
    /// A `#!` script or `#cloud-config`, run once inside.
    pub user_data: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineState {
    Running,
    /// It runs but is cut off from the others: the hub it was connected to is gone. A restart helps.
    Disconnected,
    Stopped,
    Removing,
}

/// A machine as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub id: String,
    pub name: String,
    pub hostname: String,
    pub address: Ipv4Addr,
    pub state: MachineState,
    /// The host's id of its first process.
    pub pid: Option<i32>,
    /// `None` while the user data has not been run to its end.
    pub bootstrap: Option<Bootstrap>,
}

/// The log files of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logs {
    /// What the machine itself says.
    pub console: PathBuf,
    /// What the user data wrote.
    pub bootstrap: PathBuf,
    /// One file per service, `<unit>.log`.
    pub units: PathBuf,
}

/// The local machines of one data directory.
#[derive(Debug, Clone)]
pub struct Sandbox {
    place: Place,
    program: PathBuf,
    images: Images,
    privileged: bool,
}

impl Sandbox {
    pub fn new(options: Options) -> Self {
        // Stages compare paths with the kernel's mount table, which has no links.
        let data_dir = fs::canonicalize(&options.data_dir)
            .or_else(|_| std::path::absolute(&options.data_dir))
            .unwrap_or(options.data_dir);
        let Options { program, images, privileged, .. } = options;
        Self { place: Place::of(&data_dir), program, images, privileged }
    }

    /// Tells machines where the server is. Called by the server at its start and when its address changes.
    ///
    /// # Errors
    /// If the data directory cannot be written.
    pub fn publish_server(data_dir: &Path, server: &ServerAddress) -> Result<()> {
        let place = Place::of(data_dir);
        if read_json(&place.server()).ok().flatten().as_ref() == Some(server) {
            return Ok(());
        }
        make_dir(place.dir(), 0o700)?;
        write_json(&place.server(), server)?;
        // Machines that run hear of it from the hub, if there is one.
        if let Ok(dir) = fs::File::open(place.relay())
            && let Ok(mut relay) = UnixStream::connect(short(&dir, RELAY.as_ref()))
        {
            let _ = relay.write_all(format!("{PUBLISHED}\n").as_bytes());
        }
        Ok(())
    }

    /// Where installers are that all machines see.
    pub fn images(&self) -> PathBuf {
        self.place.images()
    }

    /// Where container images are that distributions on all machines import.
    pub fn preloaded(&self) -> PathBuf {
        self.place.preloaded()
    }

    /// What machines see of the host that are made from now on and are not kept apart from it.
    ///
    /// # Errors
    /// If it cannot be written down.
    pub fn set_volumes(&self, volumes: &[Volume]) -> Result<()> {
        make_dir(self.place.dir(), 0o700)?;
        write_json(&self.place.volumes(), &volumes)
    }

    /// Whether a file below [`Sandbox::images`] was made by this program, and not put there.
    pub fn is_own_image(path: &Path) -> bool {
        path.parent().and_then(Path::file_name).is_some_and(|name| name == OWN_IMAGES)
    }

    /// Finds out whether the host allows what machines need.
    ///
    /// # Errors
    /// [`Error::Forbidden`] says what to change.
    pub fn check(&self) -> Result<()> {
        let isolated = if self.isolates() { ISOLATED } else { "" };
        let mut command = self.stage(&["probe", &format!("{isolated}/tmp")]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        word(&mut command, START)
    }

    /// Makes a machine and starts it. Doing so again continues, or changes nothing.
    ///
    /// # Errors
    /// With what failed; whatever was made by then is found by [`Sandbox::remove`].
    pub fn create(&self, new: &NewMachine) -> Result<Machine> {
        check_id(&new.id)?;
        let data = UserData::parse(&new.user_data).map_err(|problem| Error::Stage(problem.to_string()))?;
        let home = self.place.machine(&new.id);
        {
            let _lock = self.settle()?;
            make_dir(home.dir(), 0o700)?;
            match home.record()? {
                Some(record) if record.removing => return Err(Error::Removing(record.name)),
                Some(_) => {}
                None => home.write_record(&self.design(new, &data)?)?,
            }
        }
        let work = self.work(&home, &new.name)?;
        let record = home.record()?.ok_or_else(|| Error::NotFound(new.name.clone()))?;
        if !record.seeded {
            self.write_images()?;
            seed::seed(&home, &record, &new.user_data)?;
            if let Some(first) = record.users {
                users::give(&home.file("root"), first)?;
            }
            self.update(&home, |record| record.seeded = true)?;
        }
        self.start_held(&home, &work)?;
        drop(work);
        self.spread_names()?;
        self.get(&new.id)
    }

    /// Starts a machine that is stopped, for instance because the host was restarted.
    ///
    /// # Errors
    /// With what failed.
    pub fn start(&self, id: &str) -> Result<()> {
        let home = self.home(id)?;
        let work = self.work(&home, id)?;
        let published: Option<ServerAddress> = read_json(&self.place.server())?;
        let record = self.update(&home, |record| {
            record.stopped = false;
            // The server may have another address by now; the one the machine was born with stays.
            if let Some(server) = published
                && record.servers.first() != Some(&server)
            {
                record.servers.retain(|known| known.url != server.url);
                record.servers.insert(0, server);
                record.servers.truncate(4);
            }
        })?;
        if !record.seeded {
            return Err(Error::Stage(format!("machine {} was never completely made", record.name)));
        }
        self.start_held(&home, &work)?;
        drop(work);
        self.spread_names()
    }

    /// Lets the machine's services end, then the machine.
    ///
    /// # Errors
    /// With what failed.
    pub fn stop(&self, id: &str) -> Result<()> {
        self.end(id, Some(STOP))
    }

    /// Ends a machine at once.
    ///
    /// # Errors
    /// With what failed.
    pub fn kill(&self, id: &str) -> Result<()> {
        self.end(id, None)
    }

    /// Stops a machine, if it runs, and starts it again.
    ///
    /// # Errors
    /// With what failed.
    pub fn restart(&self, id: &str) -> Result<()> {
        // What is frozen does not hear that it is to end.
        let frozen = self.get(id)?.is_frozen();
        self.end(id, (!frozen).then_some(STOP))?;
        self.start(id)
    }

    /// Removes a machine and everything that was ever made of it. Gone already is fine.
    ///
    /// # Errors
    /// With what failed; calling it again continues.
    pub fn remove(&self, id: &str) -> Result<()> {
        check_id(id)?;
        let home = self.place.machine(id);
        if !self.place.dir().exists() {
            return Ok(());
        }
        match self.update(&home, |record| record.removing = true) {
            Ok(_) | Err(Error::NotFound(_) | Error::Record { .. }) => {}
            Err(error) => return Err(error),
        }
        // From here on nobody starts it; with the lock, nobody is about to have started it.
        if let Some(work) = Work::wait(&home.work(), TURN)? {
            end_life(&home.life(), None)?;
            cgroup::remove(self.place.dir(), id);
            // The record goes last of what counts: until then it says that this is being removed.
            remove_tree(&home.file("root"))?;
            remove_tree(&home.file("overlay"))?;
            remove_tree(home.dir())?;
            drop(work);
        }
        let Some(_lock) = Work::wait(&self.place.lock(), TURN)? else { return Ok(()) };
        if self.place.ids()?.is_empty() {
            return self.end_hub();
        }
        self.spread_names_held()
    }

    /// Removes every machine.
    ///
    /// # Errors
    /// With the first failure, after all have been tried.
    pub fn remove_all(&self) -> Result<()> {
        let mut outcome = Ok(());
        for id in self.place.ids()? {
            outcome = outcome.and(self.remove(&id));
        }
        if let Some(_lock) = Work::wait(&self.place.lock(), TURN)?
            && self.place.ids()?.is_empty()
        {
            outcome = outcome.and(self.end_hub());
        }
        outcome
    }

    /// Starts every machine that was not stopped on purpose, as after a restart of the host.
    ///
    /// # Errors
    /// With the first failure, after all have been tried.
    pub fn resume(&self) -> Result<()> {
        let mut outcome = Ok(());
        for record in self.place.records()? {
            if record.seeded && !record.stopped && !record.removing {
                outcome = outcome.and(self.start(&record.id));
            }
        }
        outcome
    }

    /// All machines, by name.
    ///
    /// # Errors
    /// If the records cannot be read.
    pub fn list(&self) -> Result<Vec<Machine>> {
        let mut all =
            self.place.records()?.into_iter().map(|record| self.look(record)).collect::<Result<Vec<_>>>()?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// # Errors
    /// [`Error::NotFound`], or if the record cannot be read.
    pub fn get(&self, id: &str) -> Result<Machine> {
        let record = self.home(id)?.record()?;
        self.look(record.ok_or_else(|| Error::NotFound(id.to_owned()))?)
    }

    /// The machine of a name, or of an id.
    ///
    /// # Errors
    /// [`Error::NotFound`], or if the records cannot be read.
    pub fn find(&self, name: &str) -> Result<Machine> {
        let all = self.list()?;
        let found = all.iter().find(|machine| machine.name == name || machine.hostname == name);
        let found = found.or_else(|| all.iter().find(|machine| machine.id == name));
        found.cloned().ok_or_else(|| Error::NotFound(name.to_owned()))
    }

    /// A command that runs another one inside a machine, on the caller's terminal and with its exit code.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or if the machine is not found.
    pub fn enter(&self, name: &str, command: &[String]) -> Result<Command> {
        let machine = self.find(name)?;
        let pid = machine.pid.ok_or_else(|| Error::NotRunning(name.to_owned()))?;
        let mut enter = Command::new(&self.program);
        enter.args([COMMAND, "enter", &pid.to_string()]);
        if command.is_empty() {
            let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
            enter.args([shell, "-l"]);
        } else {
            enter.args(command);
        }
        Ok(enter)
    }

    /// A command that carries the connection on its standard input to a port of a machine; `None` if that does not run.
    pub fn dial(&self, machine: &Machine, port: u16) -> Option<Command> {
        let pid = machine.pid?;
        Some(self.stage(&["dial", &pid.to_string(), &format!("{}:{port}", machine.address)]))
    }

    /// Whether a command of [`Sandbox::dial`] ended because nothing listens there; the connection is as it was.
    pub fn was_refused(ended: ExitStatus) -> bool {
        ended.code() == Some(i32::from(dial::REFUSED))
    }

    /// # Errors
    /// If the machine is not found.
    pub fn logs(&self, name: &str) -> Result<Logs> {
        let home = self.place.machine(&self.find(name)?.id);
        Ok(Logs {
            console: home.console(),
            bootstrap: home.private(bootstrap::LOG),
            units: home.private("var/log/units"),
        })
    }

    /// What the user data of a machine wrote so far; at most a mebibyte of it.
    ///
    /// # Errors
    /// If there can be no such machine.
    pub fn boot_log(&self, id: &str) -> Result<String> {
        Ok(read_own(&self.home(id)?, bootstrap::LOG).unwrap_or_default())
    }

    fn look(&self, record: Record) -> Result<Machine> {
        let home = self.place.machine(&record.id);
        let pid = Life::holder(&home.life())?;
        let state = match (pid, home.running()?) {
            _ if record.removing => MachineState::Removing,
            (None, _) => MachineState::Stopped,
            (Some(_), running) => {
                let hub = self.hub()?.map(|hub| hub.id);
                let connected = hub.is_some() && hub == running.map(|running| running.hub);
                if connected { MachineState::Running } else { MachineState::Disconnected }
            }
        };
        let bootstrap = read_own(&home, bootstrap::RESULT).and_then(|text| serde_json::from_str(&text).ok());
        Ok(Machine {
            id: record.id,
            name: record.name,
            hostname: record.hostname,
            address: record.address,
            state,
            pid: pid.map(Pid::as_raw),
            bootstrap,
        })
    }

    fn home(&self, id: &str) -> Result<Home> {
        check_id(id)?;
        Ok(self.place.machine(id))
    }

    /// The lock, in a place that may have to be made first, or again: removing the last machine takes it away.
    fn settle(&self) -> Result<Work> {
        loop {
            make_dir(self.place.dir(), 0o700)?;
            if let Some(lock) = Work::wait(&self.place.lock(), TURN)? {
                return Ok(lock);
            }
        }
    }

    fn lock(&self) -> Result<Work> {
        let gone = || Error::NotFound(self.place.dir().display().to_string());
        Work::wait(&self.place.lock(), TURN)?.ok_or_else(gone)
    }

    fn work(&self, home: &Home, name: &str) -> Result<Work> {
        Work::wait(&home.work(), TURN)?.ok_or_else(|| Error::NotFound(name.to_owned()))
    }

    /// Changes a record, unless another change comes first.
    fn update(&self, home: &Home, change: impl FnOnce(&mut Record)) -> Result<Record> {
        let _lock = self.lock()?;
        let mut record = home.record()?.ok_or_else(|| Error::NotFound(home.dir().display().to_string()))?;
        let before = record.clone();
        change(&mut record);
        if record != before {
            home.write_record(&record)?;
        }
        Ok(record)
    }

    fn design(&self, new: &NewMachine, data: &UserData) -> Result<Record> {
        let mut servers: Vec<ServerAddress> = read_json(&self.place.server())?.into_iter().collect();
        if let Some(url) = data.scripts().find_map(url_in_script)
            && servers.iter().all(|server| server.url != url)
        {
            servers.push(ServerAddress { url, connect: None });
        }
        let hostname = data.hostname.clone().unwrap_or_else(|| new.name.clone());
        let hostname =
            hostname.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-.".contains(*letter));
        let users = if self.isolates() { Some(self.choose_users()?) } else { None };
        // An isolated machine's root has no rights to what is the host's root's.
        let volumes = match users {
            None => read_json(&self.place.volumes())?.unwrap_or_default(),
            Some(_) => Vec::new(),
        };
        Ok(Record {
            id: new.id.clone(),
            name: new.name.clone(),
            // The kernel's limit.
            hostname: hostname.take(64).collect(),
            address: self.choose_address()?,
            servers,
            seeded: false,
            stopped: false,
            removing: false,
            users,
            volumes,
        })
    }

    /// Whether the users of new machines have no rights on the host. Where we are not root, they are ourselves anyway.
    fn isolates(&self) -> bool {
        !self.privileged && users::is_host_root()
    }

    fn choose_users(&self) -> Result<u32> {
        let taken: Vec<u32> = self.place.records()?.into_iter().filter_map(|record| record.users).collect();
        users::choose(self.place.dir(), &taken).ok_or(Error::NoAddress)
    }

    /// The next address that nobody has. Those of removed machines rest until all others have had their turn.
    fn choose_address(&self) -> Result<Ipv4Addr> {
        let taken: Vec<Ipv4Addr> = self.place.records()?.into_iter().map(|record| record.address).collect();
        let last = fs::read_to_string(self.place.addresses()).ok().and_then(|text| text.trim().parse().ok());
        let size = 1u32 << (32 - PREFIX);
        let address = |number: u32| Ipv4Addr::from(u32::from(NETWORK) | number);
        // The first is the bridge's, the last the broadcast address.
        let usable = 2..size - 1;
        let last = last.filter(|last| usable.contains(last)).unwrap_or(1);
        let next =
            (last + 1..usable.end).chain(usable.start..last + 1).find(|n| !taken.contains(&address(*n)));
        let next = next.ok_or(Error::NoAddress)?;
        replace(&self.place.addresses(), next.to_string().as_bytes(), 0o600)?;
        Ok(address(next))
    }

    /// Puts the images that come with the program where machines look, after all others in order.
    fn write_images(&self) -> Result<()> {
        let dir = self.place.images().join(OWN_IMAGES);
        make_dir(&dir, 0o755)?;
        for image in (self.images.0)() {
            let name = image.file.replace(['/', ':', '+'], "-");
            let path = dir.join(name);
            if fs::metadata(&path).is_ok_and(|meta| meta.len() == image.bytes.len() as u64)
                && fs::read(&path).is_ok_and(|bytes| bytes == image.bytes)
            {
                continue;
            }
            replace(&path, &image.bytes, 0o644)?;
        }
        Ok(())
    }

    fn start_held(&self, home: &Home, work: &Work) -> Result<()> {
        let alive = Life::holder(&home.life())?.is_some();
        let hub = self.ensure_hub()?;
        if alive {
            if home.running()?.is_some_and(|running| running.hub == hub.id) {
                return Ok(());
            }
            // Cut off for ever: its network ended with the hub it was made in.
            end_life(&home.life(), None)?;
        }
        let mut command = self.stage(&["machine"]);
        command.arg(self.place.dir()).arg(home.dir().file_name().unwrap_or_default());
        command.stdin(work.share()?).stderr(append_to(&home.console())?);
        word(&mut command, START).map_err(|error| last_words(error, &home.console()))
    }

    fn hub(&self) -> Result<Option<Hub>> {
        if Life::holder(&self.place.hub_life())?.is_none() {
            return Ok(None);
        }
        read_json(&self.place.hub_record())
    }

    fn ensure_hub(&self) -> Result<Hub> {
        let lock = self.lock()?;
        if let Some(hub) = self.hub()? {
            return Ok(hub);
        }
        make_dir(&self.place.hub(), 0o700)?;
        make_dir(&self.place.images(), 0o755)?;
        let mut command = self.stage(&["detach", "hub"]);
        let log = self.place.hub().join("hub.log");
        command.arg(self.place.dir()).stdin(lock.share()?).stderr(append_to(&log)?);
        word(&mut command, START).map_err(|error| last_words(error, &log))?;
        self.hub()?.ok_or_else(|| Error::Stage("the hub ended right after its start".into()))
    }

    /// Ends the hub and takes what is left of it away, with the lock held.
    fn end_hub(&self) -> Result<()> {
        end_life(&self.place.hub_life(), None)?;
        cgroup::remove(self.place.dir(), HUB);
        for path in [self.place.hub(), self.place.relay(), self.place.addresses(), self.place.machines()] {
            remove_tree(&path)?;
        }
        remove_tree(&self.place.images().join(OWN_IMAGES))?;
        for images in [self.place.images(), self.place.preloaded()] {
            let _ = fs::remove_dir(images);
        }
        // What the server or the operator put here stays, and then the lock may as well.
        let mut rest = list(self.place.dir())?;
        for path in rest.extract_if(.., |path| path.to_string_lossy().ends_with(UNFINISHED)) {
            remove_tree(&path)?;
        }
        rest.retain(|path| *path != self.place.lock());
        if rest.is_empty() {
            // Not as a tree: the server may write its address at this very moment.
            remove_tree(&self.place.lock())?;
            let _ = fs::remove_dir(self.place.dir());
        }
        Ok(())
    }

    fn end(&self, id: &str, patience: Option<Duration>) -> Result<()> {
        let home = self.home(id)?;
        self.update(&home, |record| record.stopped = true)?;
        let _work = self.work(&home, id)?;
        end_life(&home.life(), patience)
    }

    fn spread_names(&self) -> Result<()> {
        let _lock = self.lock()?;
        self.spread_names_held()
    }

    /// Tells all machines each other's names.
    fn spread_names_held(&self) -> Result<()> {
        let mut all = self.place.records()?;
        all.retain(|record| !record.removing);
        for record in all.iter().filter(|record| record.seeded) {
            let home = self.place.machine(&record.id);
            let current = read_own(&home, HOSTS).unwrap_or_default();
            let wanted = seed::hosts(&current, record, &all);
            if wanted != current {
                // What one machine did to its own directories does not hinder others from being made.
                let written = replace_own(&home, HOSTS, wanted.as_bytes(), record.users);
                if let Err(error) = written {
                    tracing::warn!(
                        machine = record.name,
                        error = chain(&error),
                        "names of machines not told"
                    );
                }
            }
        }
        Ok(())
    }

    fn stage(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(COMMAND).args(args).env_clear().current_dir("/");
        command
    }
}

/// Sorted after everything else the agent may find.
const OWN_IMAGES: &str = "~sandbox";

fn check_id(id: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !id.is_empty() && id.len() <= 128 && id.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::NotFound(format!("{id:?}")))
}
