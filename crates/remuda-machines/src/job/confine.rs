//! Jobs of drivers that are programs, where they are started by root: they become a user that owns nothing.
//!
//! A job is root for as long as it takes to read its token and files, the state of its machine and the driver's
//! program. Then it copies what the driver needs to a directory outside of the data directory, and becomes a user
//! of its own, together with all that it starts, for good. What it reads and writes later is what the program may
//! read and write too, so links that a program lays lead nowhere.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown},
    path::{Path, PathBuf},
};

use nix::{
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        signal::{Signal, kill},
        stat::{Mode, umask},
    },
    unistd::{Gid, Pid, Uid, chdir, setgroups, setresgid, setresuid},
};
use rand::RngExt;
use remuda_drivers::{
    builtin::Registry,
    error::Class,
    install::{self, BUILT_IN, Program, Source},
    plugin::Image,
    users,
};
use remuda_names::machines;

use super::{Action, Args, Environment, Failure};
use crate::state::{Phase, Store};

/// What a driver's program may take: it is not our code, and it is not alone on this host.
const MOST_MEMORY: u64 = 4 << 30;
/// Programs written in Go reserve much that they never use.
const MOST_ADDRESSES: u64 = 64 << 30;
/// The same for a file it writes.
const LARGEST_FILE: u64 = 4 << 30;
const MOST_FILES: u64 = 4096;
/// Processes and threads of the job and its programs, which are counted by user.
const MOST_PROCESSES: u64 = 512;

/// What the directories of jobs begin with; the id of the process follows.
const STAGE: &str = "remuda-driver-";

/// A job as the user of its own.
pub(super) struct Confined {
    pub args: Args,
    pub environment: Environment,
    /// The program, if it is not one of the host's.
    pub program: Option<(Program, Image)>,
}

/// Whether a driver is a program.
pub(super) fn is_program(driver: &str, args: &Args, drivers: &Registry) -> bool {
    !drivers.has(driver) || !args.driver_url.is_empty()
}

/// Bounds this process, and with it the programs it starts. Not where a driver of ours makes machines of this host,
/// which would be bounded too.
pub(super) fn bound() {
    for (resource, most) in [
        (Resource::RLIMIT_DATA, MOST_MEMORY),
        (Resource::RLIMIT_AS, MOST_ADDRESSES),
        (Resource::RLIMIT_FSIZE, LARGEST_FILE),
        (Resource::RLIMIT_NOFILE, MOST_FILES),
    ] {
        lower(resource, most);
    }
}

fn lower(resource: Resource, most: u64) {
    if let Ok((_, hard)) = getrlimit(resource) {
        let _ = setrlimit(resource, most.min(hard), most.min(hard));
    }
}

/// The driver whose program a job is going to run, if it runs any.
fn driver_of(args: &Args, store: Option<&Store>) -> Result<Option<String>, Failure> {
    Ok(match &args.action {
        Action::Create(create) => Some(create.driver.clone()),
        Action::Flags { driver } => Some(driver.clone()),
        Action::Remove { name } | Action::Restart { name } | Action::Power { name, .. } => {
            let machine = store.map(|store| store.load(name)).transpose()?.flatten();
            machine.filter(|machine| machine.phase != Phase::Intended).map(|machine| machine.driver_name)
        }
    })
}

/// Becomes another user, if the driver is a program. The store is that of the state as it was read; it is gone then.
pub(super) async fn enter(
    args: &Args,
    environment: &Environment,
    drivers: &Registry,
    store: Option<&Store>,
) -> Result<Option<Confined>, Failure> {
    let driver = driver_of(args, store)?.filter(|driver| is_program(driver, args, drivers));
    if driver.is_none() {
        return Ok(None);
    }
    let program = match args.driver_url.as_str() {
        "" => None,
        url if url.starts_with(BUILT_IN) => None,
        url => {
            let cache = environment.data_dir.join(machines::file::DRIVERS);
            let program = install::obtain(Source { url, checksum: &args.driver_hash, cache: &cache }).await?;
            let image = Image::open(&program.path).map_err(failed("open the driver's program"))?;
            Some((program, image))
        }
    };
    let user = users::of_programs(std::process::id());
    let stage = stage(&std::env::temp_dir(), user).map_err(failed("set up a directory for the driver"))?;
    let (args, environment) =
        moved(args, environment, &stage, user).map_err(failed("copy files for the driver"))?;
    if let Some(store) = store {
        let _ = fs::remove_dir_all(store.path());
    }
    become_user(user, &stage).map_err(|error| {
        Failure::new(Class::Other, format!("run the driver as user {user}, in {}: {error}", stage.display()))
    })?;
    Ok(Some(Confined { args, environment, program }))
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new(Class::Other, format!("{doing}: {error}"))
}

/// A directory of the user's own, below one that everybody may enter.
fn stage(below: &Path, user: u32) -> io::Result<PathBuf> {
    let name = format!("{STAGE}{}-{:016x}", std::process::id(), rand::rng().random::<u64>());
    let stage = below.join(name);
    if !below.exists() {
        // Images of containers may have no such directory.
        fs::create_dir_all(below)?;
        fs::set_permissions(below, Permissions::from_mode(0o1777))?;
    }
    DirBuilder::new().mode(0o700).create(&stage)?;
    lchown(&stage, Some(user), Some(user))?;
    Ok(stage)
}

/// What the job is told, with files where the user can read them.
fn moved(args: &Args, environment: &Environment, stage: &Path, user: u32) -> io::Result<(Args, Environment)> {
    let (mut args, mut environment) = (args.clone(), environment.clone());
    if let Some(files) = environment.files.take() {
        let there = stage.join("files");
        copy(&files, &there, user)?;
        let place = |text: &mut String| {
            if let Ok(below) = Path::new(text.as_str()).strip_prefix(&files) {
                *text = there.join(below).to_string_lossy().into_owned();
            }
        };
        if let Action::Create(create) = &mut args.action {
            create.flags.iter_mut().filter_map(|(_, value)| value.as_mut()).for_each(place);
            if let Some(script) = &mut create.install_script
                && let Ok(below) = script.strip_prefix(&files)
            {
                *script = there.join(below);
            }
        }
        environment.variables.values_mut().for_each(place);
        environment.files = Some(there);
    }
    for name in ["HOME", "TMPDIR"] {
        environment.variables.insert(name.to_owned(), stage.to_string_lossy().into_owned());
    }
    environment.scratch = stage.to_owned();
    Ok((args, environment))
}

/// Copies directories and files that the runner of jobs has written; there are no others.
fn copy(from: &Path, to: &Path, user: u32) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    lchown(to, Some(user), Some(user))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, place) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &place, user)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &place)?;
            fs::set_permissions(&place, Permissions::from_mode(0o600))?;
            lchown(&place, Some(user), Some(user))?;
        }
    }
    Ok(())
}

/// There is no way back from this.
fn become_user(user: u32, stage: &Path) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    prctl::set_no_new_privs()?;
    // Its memory has the token and the credentials, and programs of this user are not to read it.
    prctl::set_dumpable(false)?;
    umask(Mode::from_bits_truncate(0o077));
    lower(Resource::RLIMIT_NPROC, MOST_PROCESSES);
    chdir(stage)?;
    Ok(())
}

/// Ends what the programs of this job have left running, and forgets what they wrote.
pub(super) fn leave(environment: &Environment) {
    if Uid::current().as_raw() == users::of_programs(std::process::id()) {
        let _ = chdir("/");
        // Everything that this user may signal is the user's; this process is not among them.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        let _ = fs::remove_dir_all(&environment.scratch);
    }
}

/// Ends what a job has left running and removes its directory, for who started it and is root. Only if the process
/// has ended, and no other has taken its id.
pub(crate) fn end_leftovers(job: u32) {
    if !users::is_host_root() {
        return;
    }
    let user = users::of_programs(job);
    // A process that is killed while it starts another leaves that one to the next look.
    for _ in 0..100 {
        let left = processes_of(user);
        if left.is_empty() {
            break;
        }
        for pid in left {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let begins = format!("{STAGE}{job}-");
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let named = entry.file_name().to_string_lossy().starts_with(&begins);
        // Everybody may leave something under such a name there.
        if named && fs::symlink_metadata(entry.path()).is_ok_and(|meta| meta.is_dir() && meta.uid() == user) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Processes of a user that still run.
fn processes_of(user: u32) -> Vec<i32> {
    let runs = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next().map(str::to_owned)
        };
        field("Uid:").is_some_and(|uid| uid == user.to_string())
            && field("State:").is_some_and(|state| state != "Z")
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(runs).collect()
}
